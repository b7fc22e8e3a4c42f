//! ReplicaSets: keep the desired number of pods.

use super::{BURST, Work, count, size};
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::kube::view::PodView;
use serde_json::json;

pub(super) fn reconcile(work: &mut Work<'_>, pods: &[&PodView]) {
    let mut active: Vec<&PodView> = pods.iter().copied().filter(|pod| pod.is_active()).collect();
    let wanted = size(work.number("replicas").unwrap_or(1));
    if !work.is_deleting() {
        if active.len() < wanted {
            for _ in 0..(wanted - active.len()).min(BURST) {
                let mut pod = work.pod();
                pod["metadata"]["generateName"] = json!(format!("{}-", object::name(work.owner)));
                work.create(ResourceId::PODS, pod);
            }
        } else {
            // Deletion order: not bound, not running, not ready, then the youngest.
            active.sort_by_cached_key(|pod| {
                let age = object::text(&pod.object, &["metadata", "creationTimestamp"]).to_owned();
                (!pod.node.is_empty(), pod.phase == "Running", pod.ready, std::cmp::Reverse(age), pod.key.clone())
            });
            for pod in active.iter().take((active.len() - wanted).min(BURST)) {
                work.delete_pod(pod);
            }
        }
    }
    let replicas = count(pods, PodView::is_active);
    let ready = count(pods, |pod| pod.is_active() && pod.ready);
    work.report(json!({"replicas": replicas, "fullyLabeledReplicas": replicas, "readyReplicas": ready, "availableReplicas": ready}));
}
