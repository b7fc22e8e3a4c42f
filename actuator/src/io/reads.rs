//! Live reads of the cluster. They change nothing and need no leadership, only a timeout.

use super::kinds::WritableKind;
use crate::fencing::CLUSTER_CALL;
use crate::guarded::Guarded;
use crate::settings::ObjectName;
use futures::Stream;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use kube::core::error_boundary::InvalidObject;
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
    /// The object is unreadable, and its kind is not read partially.
    #[error("object cannot be read: {0}")]
    Unreadable(#[from] Box<InvalidObject>),
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

    /// The NodeClaim with that name, if it exists. Of an unreadable claim, what is readable.
    ///
    /// # Errors
    /// The read failed.
    pub async fn claim(&self, name: &str) -> Result<Option<NodeClaim>, ReadError> {
        let read = within_deadline(NodeClaim::guarded_api(&self.client, None).get_opt(name)).await?;
        Ok(read.map(|claim| claim.0).transpose()?)
    }

    /// All NodeClaims with an EC2NodeClass at one moment, read in pages with a timeout each. Of unreadable claims, what
    /// is readable: a new leader needs the list, and nothing may be concluded from the absence of a claim that exists.
    ///
    /// # Errors
    /// A page could not be read, or there are more than `MAX_PAGES`.
    pub async fn claims(&self) -> Result<Vec<NodeClaim>, ReadError> {
        let api = NodeClaim::guarded_api(&self.client, None);
        let mut claims = Vec::new();
        let mut page = ListParams::default().limit(PAGE_SIZE);
        for _ in 0..MAX_PAGES {
            let list = within(PAGE_TIMEOUT, api.list(&page)).await?;
            for claim in list.items {
                claims.extend(ours(claim)?);
            }
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

/// The claim, unless it belongs to another provider. Without the managed fields, which take more memory than the rest.
fn ours(claim: Guarded<NodeClaim>) -> Result<Option<NodeClaim>, Box<InvalidObject>> {
    let mut claim = claim.0?;
    claim.metadata.managed_fields = None;
    Ok(Some(claim).filter(|claim| claim.spec.node_class_ref.is_ec2_node_class()))
}

async fn within_deadline<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, ReadError> {
    within(CLUSTER_CALL, call).await
}

async fn within<T>(timeout: Duration, call: impl Future<Output = kube::Result<T>>) -> Result<T, ReadError> {
    Ok(tokio::time::timeout(timeout, call).await.map_err(|_| ReadError::TimedOut(timeout))??)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::api::ObjectList;
    use serde_json::json;

    #[test]
    fn one_unreadable_claim_does_not_fail_the_list() {
        let claim = |name: &str, group: &str, expires: &str| {
            let managed_fields = json!([{"manager": "test", "fieldsV1": {"f:spec": {}}}]);
            json!({"metadata": {"name": name, "managedFields": managed_fields}, "spec": {
                "nodeClassRef": {"group": group, "kind": "EC2NodeClass", "name": "default"},
                "requirements": [], "expireAfter": expires,
            }})
        };
        let list = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaimList", "metadata": {}, "items": [
            claim("foreign", "example.com", "2562048h"),
            claim("good", "karpenter.k8s.aws", "720h"),
            claim("unreadable", "karpenter.k8s.aws", "2562048h"),
        ]});
        let list: ObjectList<Guarded<NodeClaim>> = serde_json::from_value(list).unwrap();
        let claims: Vec<NodeClaim> = list.items.into_iter().filter_map(|claim| ours(claim).unwrap()).collect();
        let names: Vec<&str> = claims.iter().filter_map(|claim| claim.metadata.name.as_deref()).collect();
        assert_eq!(names, ["good", "unreadable"]);
        assert!(claims.iter().all(|claim| claim.metadata.managed_fields.is_none()));
    }
}
