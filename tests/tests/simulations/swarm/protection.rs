//! Pods that a user protects from disruption for a while.

use crate::random_faults::one_of;
use plimsoll_model::names::{annotation, taint};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::seed::Rng;
use plimsoll_tests::TestCluster;
use serde_json::{Value, json};

/// Protects a pod, if possible one on a node that is being removed. Returns its name. Pods that are protected by their
/// workload stay as they are.
pub(super) fn protect_one(cluster: &TestCluster, rng: &mut Rng) -> Option<String> {
    let is_leaving = |pod: &Value| {
        let node = cluster.world.get(ResourceId::NODES, object::text(pod, &["spec", "nodeName"]));
        let is_mark = |one: &Value| object::text(one, &["key"]) == taint::DISRUPTED;
        node.is_some_and(|node| object::items(&node, &["spec", "taints"]).iter().any(is_mark))
    };
    let mut pods = cluster.world.all(ResourceId::PODS);
    pods.retain(|pod| object::annotation(pod, annotation::DO_NOT_DISRUPT).is_none());
    if pods.iter().any(|pod| is_leaving(pod)) {
        pods.retain(|pod| is_leaving(pod));
    }
    let name = object::name(one_of(rng, &pods)?).to_owned();
    annotate(cluster, &name, &json!("true"));
    Some(name)
}

/// Ends the protection of a pod.
pub(super) fn end(cluster: &TestCluster, pod: &str) {
    annotate(cluster, pod, &Value::Null);
}

fn annotate(cluster: &TestCluster, pod: &str, value: &Value) {
    let patch = json!({"metadata": {"annotations": {annotation::DO_NOT_DISRUPT: value}}});
    // The pod may be gone.
    drop(cluster.world.patch(ResourceId::PODS, pod, patch));
}
