//! Maps claims to the pods that use them.

use crate::{Objects, kube_time};
use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PodSpec};
use plimsoll_api::{Pod, volume_claims};
use plimsoll_model::time::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pods by namespace and name of their claims.
pub(crate) struct ClaimUsers<'objects> {
    by_claim: BTreeMap<&'objects str, BTreeMap<String, Vec<&'objects Pod>>>,
}

impl<'objects> ClaimUsers<'objects> {
    pub(crate) fn new(objects: &'objects Objects) -> Self {
        let mut by_claim: BTreeMap<&str, BTreeMap<String, Vec<&Pod>>> = BTreeMap::new();
        for pod in objects.pods.iter().map(Arc::as_ref).filter(|pod| !pod.is_terminal()) {
            // kube-scheduler does not look at a pod with scheduling gates.
            let is_open = |spec: &&Arc<PodSpec>| pod.node_name.is_some() || !has_gates(spec);
            let Some(spec) = pod.spec.as_ref().filter(is_open) else { continue };
            for (claim, _) in volume_claims(spec, name(pod)) {
                let users = by_claim.entry(namespace(pod)).or_default().entry(claim).or_default();
                if users.last().is_none_or(|last| !std::ptr::eq(*last, pod)) {
                    users.push(pod);
                }
            }
        }
        Self { by_claim }
    }

    /// Whether more than one pod uses the claim.
    pub(crate) fn is_shared(&self, namespace: &str, claim: &str) -> bool {
        self.of(namespace, claim).len() > 1
    }

    /// The pod that has, or will get, the claim before the named pod. Pods with a node come first, then higher
    /// priority, age and name.
    pub(crate) fn preceding_user(&self, namespace: &str, claim: &str, pod: &str) -> Option<&'objects str> {
        let first = self.of(namespace, claim).iter().copied().min_by_key(|pod| rank(pod))?;
        Some(name(first)).filter(|first| *first != pod)
    }

    fn of(&self, namespace: &str, claim: &str) -> &[&'objects Pod] {
        self.by_claim.get(namespace).and_then(|claims| claims.get(claim)).map_or(&[], Vec::as_slice)
    }
}

fn rank(pod: &Pod) -> (bool, Reverse<i32>, Timestamp, &str) {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    (pod.node_name.is_none(), Reverse(priority), kube_time::created(&pod.metadata), name(pod))
}

/// Whether only one pod in the cluster may use the claim at a time.
pub(crate) fn is_read_write_once_pod(spec: &PersistentVolumeClaimSpec) -> bool {
    spec.access_modes.iter().flatten().any(|mode| mode == "ReadWriteOncePod")
}

fn has_gates(spec: &PodSpec) -> bool {
    spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty())
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}
