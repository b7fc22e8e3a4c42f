//! Live reads of the cluster. They change nothing and need no leadership, only a timeout.

use super::kinds::WritableKind;
use crate::fencing::CLUSTER_CALL;
use crate::settings::ObjectName;
use futures::Stream;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watch_object};
use plimsoll_api::NodeClaim;
use std::time::Duration;

/// NodeClaims per page. Some carry a launch request of tens of kilobytes, so that a page stays within a few megabytes.
const PAGE_SIZE: u32 = 500;
/// Timeout of a page. Longer than [`CLUSTER_CALL`], because a new leader can do nothing without the list, and the API
/// server of a large cluster may be busy with the lists of a process that starts at the same time.
const PAGE_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of pages: four times the nodes that Kubernetes supports in one cluster.
const MAX_PAGES: usize = 40;

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No response within the timeout.
    #[error("no response within {0:?}")]
    TimedOut(Duration),
    /// More objects than any cluster has.
    #[error("list is still incomplete after {0} objects")]
    TooMany(usize),
    /// The API server returned an error.
    #[error(transparent)]
    Cluster(#[from] kube::Error),
}

/// Live reads of the cluster. Clones share the client.
#[derive(Clone)]
pub struct Reads {
    client: kube::Client,
}

impl Reads {
    pub(super) fn new(client: kube::Client) -> Self {
        Self { client }
    }

    /// The NodeClaim with that name, if it exists.
    ///
    /// # Errors
    /// The read failed.
    pub async fn claim(&self, name: &str) -> Result<Option<NodeClaim>, ReadError> {
        within_deadline(NodeClaim::api(&self.client, None).get_opt(name)).await
    }

    /// All NodeClaims with an EC2NodeClass at one moment, read in pages with a timeout each.
    ///
    /// # Errors
    /// A page could not be read, or there are more than [`MAX_PAGES`].
    pub async fn claims(&self) -> Result<Vec<NodeClaim>, ReadError> {
        let api = NodeClaim::api(&self.client, None);
        let mut claims = Vec::new();
        let mut page = ListParams::default().limit(PAGE_SIZE);
        for _ in 0..MAX_PAGES {
            let list = within(PAGE_TIMEOUT, api.list(&page)).await?;
            claims.extend(list.items.into_iter().filter(|claim| claim.spec.node_class_ref.is_ec2_node_class()));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(claims),
            }
        }
        Err(ReadError::TooMany(claims.len()))
    }

    /// A ConfigMap, if it exists.
    ///
    /// # Errors
    /// The read failed.
    pub async fn config_map(&self, name: &ObjectName) -> Result<Option<ConfigMap>, ReadError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &name.namespace);
        within_deadline(maps.get_opt(&name.name)).await
    }

    /// A Lease, if it exists. The caller must set a timeout.
    ///
    /// # Errors
    /// The API server returned an error.
    pub async fn lease(&self, name: &ObjectName) -> kube::Result<Option<Lease>> {
        self.leases(name).get_opt(&name.name).await
    }

    /// A stream of a Lease: the current object, then each change. Restarts the watch after errors.
    pub fn watch_lease(&self, name: &ObjectName) -> impl Stream<Item = watcher::Result<Option<Lease>>> + use<> {
        watch_object(self.leases(name), &name.name).backoff(crate::stores::Pauses::default())
    }

    fn leases(&self, name: &ObjectName) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &name.namespace)
    }
}

async fn within_deadline<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, ReadError> {
    within(CLUSTER_CALL, call).await
}

async fn within<T>(timeout: Duration, call: impl Future<Output = kube::Result<T>>) -> Result<T, ReadError> {
    Ok(tokio::time::timeout(timeout, call).await.map_err(|_| ReadError::TimedOut(timeout))??)
}
