//! DaemonSets: one pod on every matching node.

use super::{Work, count};
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::kube::view::{NodeView, PodView};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Taints that DaemonSet pods tolerate by default, with their effects.
const TOLERATED: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

pub(super) fn reconcile<'n>(work: &mut Work<'_>, pods: &[&PodView], nodes: impl Iterator<Item = &'n NodeView>) {
    let mut by_node: BTreeMap<String, Vec<&PodView>> = BTreeMap::new();
    for pod in pods {
        by_node.entry(target(pod)).or_default().push(pod);
    }
    let template = daemon(work);
    let (mut desired, mut present, mut ready) = (0, 0, 0);
    for node in nodes {
        let own = by_node.remove(&node.name).unwrap_or_default();
        let (starts, stays) = takes(&template, node);
        let active: Vec<_> = own.iter().copied().filter(|pod| pod.is_active()).collect();
        desired += i64::from(starts);
        present += i64::from(starts && !active.is_empty());
        ready += i64::from(starts && active.iter().any(|pod| pod.ready));
        if work.is_deleting() {
            continue;
        }
        for pod in own.iter().filter(|pod| pod.is_over() && pod.deletion.is_none()) {
            work.delete_pod(pod);
        }
        if starts && own.is_empty() {
            work.create(ResourceId::PODS, aimed(&template, &node.name));
        }
        for pod in active.iter().skip(usize::from(stays)) {
            work.delete_pod(pod);
        }
    }
    // The remaining pods are for nodes that no longer exist.
    for pod in by_node.into_values().flatten().filter(|pod| pod.is_active() && pod.node.is_empty()) {
        work.delete_pod(pod);
    }
    let scheduled = count(pods, PodView::is_active);
    work.report(json!({"desiredNumberScheduled": desired, "currentNumberScheduled": present, "updatedNumberScheduled": scheduled.min(desired),
                       "numberReady": ready, "numberAvailable": ready, "numberMisscheduled": 0}));
}

/// The pod template with the default tolerations of DaemonSets.
fn daemon(work: &Work<'_>) -> Value {
    let mut pod = work.pod();
    let mut tolerations = object::items(&pod, &["spec", "tolerations"]).to_vec();
    tolerations
        .extend(TOLERATED.iter().map(|(key, effect)| json!({"key": key, "operator": "Exists", "effect": effect})));
    if object::at(&pod, &["spec", "hostNetwork"]).and_then(Value::as_bool) == Some(true) {
        tolerations.push(
            json!({"key": "node.kubernetes.io/network-unavailable", "operator": "Exists", "effect": "NoSchedule"}),
        );
    }
    object::set(&mut pod, &["spec", "tolerations"], Value::Array(tolerations));
    pod["metadata"]["generateName"] = json!(format!("{}-", object::name(work.owner)));
    pod
}

/// Whether a pod is started on a node, and whether an existing pod may stay.
fn takes(pod: &Value, node: &NodeView) -> (bool, bool) {
    let spec = pod.get("spec").cloned().unwrap_or_default();
    if !node.is_selected_by(&spec) {
        return (false, false);
    }
    let tolerations = object::items(&spec, &["tolerations"]);
    let repels =
        |effect: &str| node.taints.iter().any(|taint| taint.effect == effect && !taint.is_tolerated_by(tolerations));
    let stays = !repels("NoExecute");
    (stays && !repels("NoSchedule"), stays)
}

/// The pod with node affinity for one node, which the scheduler then binds.
fn aimed(pod: &Value, node: &str) -> Value {
    let mut pod = pod.clone();
    let required = ["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    let name = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let terms = object::at(&pod, &required).map(|required| object::items(required, &["nodeSelectorTerms"]).to_vec());
    let mut terms = terms.filter(|terms| !terms.is_empty()).unwrap_or_else(|| vec![json!({})]);
    for term in &mut terms {
        term["matchFields"] = json!([name]);
    }
    object::set(&mut pod, &required, json!({"nodeSelectorTerms": terms}));
    pod
}

/// The node that a pod runs on or is meant for.
fn target(pod: &PodView) -> String {
    if !pod.node.is_empty() {
        return pod.node.clone();
    }
    let path =
        ["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];
    object::items(&pod.object, &path)
        .iter()
        .flat_map(|term| object::items(term, &["matchFields"]))
        .find_map(|field| object::items(field, &["values"]).first()?.as_str())
        .unwrap_or_default()
        .to_owned()
}
