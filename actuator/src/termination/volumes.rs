//! Volumes that are still attached to a node. Read live, and only while a termination waits for volumes.

use super::drain::is_waited_for;
use crate::io::WriteError;
use crate::termination::Termination;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::{Pod, volume_claims};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long before a termination asks, the list that it gets may have begun. All waiting terminations share a list.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Names of attached PersistentVolumes by node.
type ByNode = BTreeMap<String, BTreeSet<String>>;

/// The last list of attached volumes, or why it failed, and when it began.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    read: Mutex<Option<(Instant, Result<ByNode, String>)>>,
}

impl Volumes {
    /// PersistentVolumes attached to these nodes, except volumes of pods that the drain does not wait for.
    ///
    /// # Errors
    /// Why they are not known.
    pub(super) async fn attached(
        &self,
        deps: &Termination,
        nodes: &[&Arc<Node>],
        all_pods: &[Arc<Pod>],
    ) -> Result<Vec<String>, String> {
        let mut attached = BTreeSet::new();
        {
            // Not the time at which it is this one's turn: a list that takes longer than `MAX_AGE` would serve nobody.
            let asked = Instant::now();
            let mut read = self.read.lock().await;
            let last = match read.take().filter(|(began, _)| *began + MAX_AGE > asked) {
                Some(last) => last,
                None => (Instant::now(), list(deps).await.map_err(|error| error.to_string())),
            };
            let by_node = read.insert(last).1.as_ref().map_err(String::clone)?;
            for node in nodes {
                attached.extend(by_node.get(&node.name_any()).into_iter().flatten().cloned());
            }
        }
        if attached.is_empty() {
            return Ok(Vec::new());
        }
        let now = deps.clock.now();
        for pod in all_pods.iter().filter(|pod| !is_waited_for(pod, now) && !pod.is_terminal()) {
            for volume in kept_by(deps, pod).await.map_err(|error| error.to_string())? {
                attached.remove(&volume);
            }
        }
        Ok(attached.into_iter().collect())
    }
}

async fn list(deps: &Termination) -> Result<ByNode, WriteError> {
    let mut by_node = ByNode::new();
    for (node, volume) in deps.writes.list_attached_volumes().await? {
        by_node.entry(node).or_default().insert(volume);
    }
    Ok(by_node)
}

/// Volumes of a pod that stays until the instance is terminated.
async fn kept_by(deps: &Termination, pod: &Pod) -> Result<Vec<String>, WriteError> {
    let mut names = Vec::new();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let name = pod.name_any();
    let claims = pod.spec.iter().flat_map(|spec| volume_claims(spec, &name));
    let claims: Vec<String> = claims.map(|(claim, _)| claim).collect();
    for claim in claims {
        let volume_claim = deps.writes.read_volume_claim(namespace, &claim).await?;
        names.extend(volume_claim.and_then(|claim| claim.spec).and_then(|spec| spec.volume_name));
    }
    Ok(names)
}
