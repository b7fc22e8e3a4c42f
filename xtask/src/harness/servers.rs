//! The real control plane and the EC2 stand-in without services, for checks that start their own programs.

use super::cloud::{self, Cloud};
use super::cluster::{Cluster, NAMESPACE};
use super::parts::Parts;
use super::process::{Guard, Process};
use anyhow::Result;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const REGION: &str = "us-east-1";

/// Running servers. Dropping this value ends them.
#[derive(Debug)]
pub(crate) struct Servers {
    cluster: Cluster,
    cloud: Cloud,
    /// Ends when this value is dropped.
    _cloud: Process,
}

impl Servers {
    /// Starts both, with deploy/crds and the permissions of deploy/kubernetes. `name` is the name of the cluster and of
    /// its queue.
    ///
    /// # Errors
    /// If a server cannot be built or does not start.
    pub(crate) fn start(guard: &Arc<Guard>, dir: &Path, name: &str, say: fn(&str)) -> Result<Servers> {
        let parts = Parts::find(guard, false, say)?;
        let cluster = Cluster::start(&parts, guard, dir, &[])?;
        cluster.install(&parts.root)?;
        let setup = cloud::Setup { region: REGION, cluster: name, ..cloud::Setup::default() };
        let (cloud, process) = Cloud::start(&parts, guard, dir, &setup)?;
        Ok(Servers { cluster, cloud, _cloud: process })
    }

    /// Address of the API server.
    ///
    /// # Errors
    /// If its URL contains no address.
    pub(crate) fn api_server(&self) -> Result<SocketAddr> {
        self.cluster.address()
    }

    /// Certificate of the API server's certificate authority.
    pub(crate) fn authority(&self) -> PathBuf {
        self.cluster.authority.clone()
    }

    /// A token of a service's account, as a kubelet mounts it.
    ///
    /// # Errors
    /// If the API server rejects the request.
    pub(crate) fn token(&self, account: &str) -> Result<String> {
        let token = self.cluster.kubectl.run(&["create", "token", account, "-n", NAMESPACE, "--duration=1h"])?;
        Ok(token.trim().to_owned())
    }

    /// The URL of the EC2 stand-in.
    pub(crate) fn aws_endpoint(&self) -> &str {
        &self.cloud.endpoint
    }

    /// The region of the EC2 stand-in.
    pub(crate) fn region(&self) -> &'static str {
        REGION
    }
}
