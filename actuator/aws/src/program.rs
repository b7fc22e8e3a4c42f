//! The program: arguments, logging, signals, ports.

use crate::cluster;
use crate::connect::{self, Connection, Options};
use anyhow::Result;
use clap::{CommandFactory, Parser};
use plimsoll_actuator::args::ActuatorArgs;
use plimsoll_actuator::cluster_facts;
use plimsoll_actuator::discovery::{self, Configured, Discovered, DiscoveryError};
use plimsoll_actuator::ports::ManagedControlPlane;
use plimsoll_actuator::service::{self, Parts};
use plimsoll_actuator::zonal_shift::{self, ZonalShiftError};
use plimsoll_runtime::args::invalid_flag::{Refused, parse_args};
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::cluster_access;
use plimsoll_runtime::program::{self, ServiceProgram};
use std::ffi::OsString;

/// Default listen address.
const DEFAULT_LISTEN: &str = "127.0.0.1:9443";

/// Executes Plimsoll's plans: the only service that writes to the cluster and spends money on AWS.
///
/// Credentials are found as by any AWS program: the environment, EKS Pod Identity, a web identity or the instance.
#[derive(Parser, Debug)]
#[command(name = "plimsoll-actuator", version, after_help = EXAMPLES)]
pub struct Program {
    #[command(flatten)]
    args: ActuatorArgs,
}

impl Program {
    /// Parses the arguments of the process.
    ///
    /// # Errors
    /// The arguments are wrong, or help or the version was asked for.
    pub fn read(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, Refused> {
        let command = Self::command().mut_arg("listen", |arg| arg.default_value(DEFAULT_LISTEN));
        parse_args(command, args, |program: &Self| program.args.check())
    }
}

const EXAMPLES: &str = "\
Examples:
  In a cluster, as the deployment in deploy/ does:
    plimsoll-actuator --cluster-name prod --region eu-west-1 --interruption-queue prod --listen 0.0.0.0:9443 \\
      --tls-cert /tls/tls.crt --tls-key /tls/tls.key --tls-ca /tls/ca.crt

  On one's own machine, against an AWS stand-in:
    plimsoll-actuator --kubeconfig ~/.kube/config --cluster-name demo --cluster-endpoint https://127.0.0.1:6443 \\
      --region us-east-1 --aws-endpoint-url http://127.0.0.1:5000";

/// Runs until a signal or a failure.
///
/// # Errors
/// A flag, file or address is invalid, a required fact of the cluster or AWS cannot be read, or a component failed.
pub async fn run(program: Program) -> Result<()> {
    let Program { args } = program;
    let clock = Clock::system();
    let (program, listener) = ServiceProgram::start("actuator", &args.service).await?;
    let config = program::kube_config(args.kubeconfig.as_deref()).await?;
    let configured = configured(&args, &config)?;
    let client = cluster_access::client(config)?;
    let options = Options {
        region: Some(args.region.clone()).filter(|region| !region.is_empty()),
        endpoint_url: args.aws_endpoint_url.clone(),
        interruption_queue: args.interruption_queue.clone(),
    };
    let mut connection = connect::connect(&options, clock).await?;
    if args.enable_zonal_shift {
        follow_zonal_shifts(&mut connection, &args.cluster_name).await?;
    }
    let mut settings = args.settings(discover(configured, &client, connection.control_plane.as_ref()).await?);
    settings.region = connection.region;
    let lease = args.lease(&clock);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        cluster = settings.cluster_name,
        region = settings.region,
        kubernetes = settings.kubernetes_version,
        service_cidr = settings.service_cidr.as_ref().or(settings.discovered.service_cidr.as_ref()),
        cluster_dns = settings.cluster_dns.as_ref().or(settings.discovered.cluster_dns.as_ref()),
        interruption_queue = args.interruption_queue,
        zonal_shift = args.enable_zonal_shift,
        "starting"
    );
    let parts = Parts {
        client,
        cloud: connection.cloud,
        clock,
        settings,
        lease,
        listener,
        metrics: program.metrics.clone(),
        readiness: program.readiness.clone(),
    };
    let service = service::run(parts, program.shutdown.clone());
    Ok(program.run(service).await?)
}

/// What flags and the client configuration say about the control plane.
fn configured(args: &ActuatorArgs, config: &kube::Config) -> Result<Configured> {
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    Ok(Configured {
        cluster_name: args.cluster_name.clone(),
        endpoint: some(&args.cluster_endpoint),
        ca_bundle: args.cluster_ca_file.as_deref().map(cluster::ca_of_file).transpose()?,
        service_cidr: some(&args.service_cidr),
        // A kubeconfig may be about another cluster than the pod's.
        pod_ca_bundle: if args.kubeconfig.is_none() { cluster::ca_of_pod() } else { None },
        client_ca_bundle: cluster::ca_of_client(config),
    })
}

/// Reads the facts that are needed before the service starts. Some are read again while it runs.
async fn discover(
    configured: Configured,
    client: &kube::Client,
    control_plane: &dyn ManagedControlPlane,
) -> Result<Discovered, DiscoveryError> {
    let (facts, failures) = cluster_facts::read(client).await;
    let eks = if discovery::needs_eks(&configured, &facts) {
        Some(control_plane.describe_cluster(&configured.cluster_name).await)
    } else {
        None
    };
    discovery::resolve(configured, facts, &failures, eks)
}

/// Checks that the zonal shifts of the cluster can be read, and follows them.
async fn follow_zonal_shifts(connection: &mut Connection, cluster: &str) -> Result<(), ZonalShiftError> {
    let arn = zonal_shift::cluster_arn(cluster, connection.control_plane.describe_cluster(cluster).await)?;
    connection.follow_zonal_shifts(&arn);
    if let Some(resource) = &connection.cloud.managed_resource {
        zonal_shift::check(&arn, resource.zonal_shifts().await)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_port_is_not_that_of_the_scheduler() {
        let program = Program::read(["plimsoll-actuator", "--cluster-name=a", "--region=b"]);
        let program = program.map_err(|refused| refused.to_string()).unwrap();
        assert_eq!(program.args.service.listen.to_string(), "127.0.0.1:9443");
    }
}
