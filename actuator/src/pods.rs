//! Predicates on pods that matter when a node is removed. Pure functions.

use jiff::{SignedDuration, Timestamp};
use plimsoll_api::Pod;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

/// Field manager of our nominations. In `metadata.managedFields` it distinguishes them from kube-scheduler's own.
pub(crate) const NOMINATION_FIELD_MANAGER: &str = "plimsoll-nomination";

/// Priority classes of critical pods.
const CRITICAL: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
/// A pod that still exists this long after its grace period ended has an unresponsive kubelet.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// `namespace/name`.
pub(crate) fn full_name(pod: &Pod) -> String {
    let metadata = &pod.metadata;
    format!("{}/{}", metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

pub(crate) fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

/// Whether the pod has a system-critical priority class.
pub(crate) fn is_critical(pod: &Pod) -> bool {
    let class = pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref());
    class.is_some_and(|class| CRITICAL.contains(&class))
}

/// Whether the pod's grace period ended long ago.
pub(crate) fn is_stuck(pod: &Pod, now: Timestamp) -> bool {
    let Some(deleted) = &pod.metadata.deletion_timestamp else { return false };
    now.duration_since(deleted.0) > STUCK_AFTER
}

/// Until when the pod must not be disrupted, and the annotation that says so; `None` if it may be disrupted now.
/// Cluster Autoscaler's annotation protects from its own removals, which are voluntary, so not from a `forced` one.
pub(crate) fn protection(pod: &Pod, forced: bool, now: Timestamp) -> Option<(Timestamp, &'static str)> {
    let may_be_protected = !pod.is_terminal() && !pod.is_terminating();
    let protection = if forced { pod.do_not_disrupt() } else { pod.protection() };
    protection.filter(|(until, _)| may_be_protected && *until > now)
}

/// Whether the pod must be rescheduled when its node is removed.
pub(crate) fn is_reschedulable(pod: &Pod) -> bool {
    !pod.is_terminal() && !pod.is_terminating() && !pod.is_static() && !pod.is_daemon()
}

/// Hash of the pods that keep their node from being empty; 0 if there are none. It changes when one comes, ends or is
/// deleted, and when one is gone that its StatefulSet then creates again.
pub(crate) fn hash_of_reschedulable(pods: &[Arc<Pod>]) -> u64 {
    let is_awaited = |pod: &Pod| pod.returns() && pod.is_terminating() && !pod.is_terminal();
    let counted = pods.iter().filter(|pod| is_reschedulable(pod) || is_awaited(pod));
    let counted: BTreeSet<(String, bool)> = counted.map(|pod| (uid(pod), pod.is_terminating())).collect();
    if counted.is_empty() {
        return 0;
    }
    BuildHasherDefault::<DefaultHasher>::default().hash_one(counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The hash of a pod of this owner in this phase, and being deleted since then.
    fn hash_of(owner: &str, phase: &str, deleted: Option<&str>) -> u64 {
        let owners = json!([{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o"}]);
        let pod = json!({"metadata": {"uid": "u", "ownerReferences": owners, "deletionTimestamp": deleted},
            "spec": {"nodeName": "n", "containers": []}, "status": {"phase": phase}});
        hash_of_reschedulable(&[Arc::new(serde_json::from_value(pod).unwrap())])
    }

    #[test]
    fn a_pod_that_comes_back_counts_until_it_has_ended() {
        let deleted = Some("2026-01-05T00:00:00Z");
        for owner in ["ReplicaSet", "StatefulSet"] {
            assert_ne!(hash_of(owner, "Running", None), 0);
            assert_eq!(hash_of(owner, "Succeeded", None), 0);
        }
        assert_eq!(hash_of("ReplicaSet", "Running", deleted), 0, "its successor is created already");
        let ending = hash_of("StatefulSet", "Running", deleted);
        assert!(ending != 0 && ending != hash_of("StatefulSet", "Running", None));
        assert_eq!(hash_of("StatefulSet", "Failed", deleted), 0);
        assert_eq!(hash_of("DaemonSet", "Running", None), 0);
    }
}
