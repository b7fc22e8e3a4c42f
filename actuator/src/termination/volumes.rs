//! Volumes that are still attached to a node. Read live, and only while a termination waits for volumes.

use super::drain::is_waited_for;
use crate::io::WriteError;
use crate::termination::Termination;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Maximum age of the list, which all waiting terminations share.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Names of attached PersistentVolumes by node.
type ByNode = BTreeMap<String, BTreeSet<String>>;

/// Attached volumes, and when they were read.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    read: Mutex<Option<(Instant, ByNode)>>,
}

impl Volumes {
    /// PersistentVolumes attached to these nodes, except volumes of pods that the drain does not wait for.
    pub(super) async fn attached(
        &self,
        deps: &Termination,
        nodes: &[&Arc<Node>],
        all_pods: &[Arc<Pod>],
    ) -> Result<Vec<String>, WriteError> {
        let mut attached = BTreeSet::new();
        {
            let mut read = self.read.lock().await;
            let is_recent = read.as_ref().is_some_and(|(at, _)| at.elapsed() < MAX_AGE);
            if !is_recent {
                *read = Some((Instant::now(), list(deps).await?));
            }
            for node in nodes {
                let names = read.as_ref().and_then(|(_, by_node)| by_node.get(&node.name_any()));
                attached.extend(names.into_iter().flatten().cloned());
            }
        }
        if attached.is_empty() {
            return Ok(Vec::new());
        }
        let now = deps.clock.now();
        for pod in all_pods.iter().filter(|pod| !is_waited_for(pod, now) && !pod.is_terminal()) {
            for volume in kept_by(deps, pod).await? {
                attached.remove(&volume);
            }
        }
        Ok(attached.into_iter().collect())
    }
}

async fn list(deps: &Termination) -> Result<ByNode, WriteError> {
    let list = deps.writes.list_attachments().await?;
    let mut by_node = ByNode::new();
    for attachment in list {
        if let Some(volume) = attachment.spec.source.persistent_volume_name {
            by_node.entry(attachment.spec.node_name).or_default().insert(volume);
        }
    }
    Ok(by_node)
}

/// Volumes of a pod that stays until the instance is terminated.
async fn kept_by(deps: &Termination, pod: &Pod) -> Result<Vec<String>, WriteError> {
    let mut names = Vec::new();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let claim = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => source.claim_name.clone(),
            (None, Some(_)) => format!("{}-{}", pod.name_any(), volume.name),
            (None, None) => continue,
        };
        let volume_claim = deps.writes.read_volume_claim(namespace, &claim).await?;
        names.extend(volume_claim.and_then(|claim| claim.spec).and_then(|spec| spec.volume_name));
    }
    Ok(names)
}
