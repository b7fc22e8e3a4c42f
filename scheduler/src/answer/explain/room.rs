//! Why no node that is there or on its way takes a pod: how many nodes for which cause.

use super::counted;
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, NodeState, Pod, PodShape, PodState, Snapshot};
use plimsoll_model::taints::TaintEffect;
use std::collections::BTreeMap;

/// Why one node does not take the pod, in the order in which the causes are told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Closed,
    Taint(String),
    NotSelected,
    TooLittle(String),
    HostPort,
    /// Room is there, but the plan gives it to other pods.
    Taken,
}

pub(super) fn explain(snapshot: &Snapshot, pod: &Pod) -> Vec<String> {
    let Some(shape) = snapshot.shapes.iter().find(|shape| shape.id == pod.shape) else { return Vec::new() };
    if snapshot.nodes.is_empty() {
        return vec!["  there is no node yet".to_owned()];
    }
    let shapes: BTreeMap<&str, &PodShape> = snapshot.shapes.iter().map(|shape| (shape.id.as_str(), shape)).collect();
    let mut there: BTreeMap<&str, Vec<&PodShape>> = BTreeMap::new();
    for one in &snapshot.pods {
        if let PodState::Bound(node) | PodState::Reserved(node) = &one.state {
            there.entry(node.as_str()).or_default().extend(shapes.get(one.shape.as_str()));
        }
    }
    let mut causes: BTreeMap<Cause, usize> = BTreeMap::new();
    let mut most_free: BTreeMap<String, i64> = BTreeMap::new();
    for node in &snapshot.nodes {
        let others = there.get(node.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let free = free(node, others);
        let cause = cause(node, shape, others, &free);
        if let Cause::TooLittle(resource) = &cause {
            let most = most_free.entry(resource.clone()).or_default();
            *most = (*most).max(free.get(resource));
        }
        *causes.entry(cause).or_default() += 1;
    }
    let mut lines = vec![format!("  none of {} takes it:", counted(snapshot.nodes.len(), "node"))];
    lines.extend(causes.iter().map(|(cause, count)| format!("    {count}: {}", text(cause, &most_free))));
    lines
}

fn free(node: &Node, pods: &[&PodShape]) -> Resources {
    let mut free = node.allocatable.clone();
    pods.iter().for_each(|shape| free.subtract(&shape.requests));
    free
}

fn cause(node: &Node, shape: &PodShape, others: &[&PodShape], free: &Resources) -> Cause {
    let lost = node.state == NodeState::Initialized && !node.ready;
    if node.cordoned || node.deleting || lost {
        return Cause::Closed;
    }
    let repelled = |taint: &&plimsoll_model::taints::Taint| {
        taint.effect != TaintEffect::PreferNoSchedule && !shape.tolerations.iter().any(|one| one.tolerates(taint))
    };
    if let Some(taint) = node.taints.iter().find(repelled) {
        return Cause::Taint(format!("{}={}:{}", taint.key, taint.value, taint.effect.as_str()));
    }
    let selected = shape.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let terms = &shape.required_node_affinity;
    let wanted = terms.is_empty() || terms.iter().any(|term| term.matches_node(node.name.as_str(), &node.labels));
    if !selected || !wanted {
        return Cause::NotSelected;
    }
    if let Some(resource) = shape.requests.first_excess(free) {
        return Cause::TooLittle(resource.to_owned());
    }
    let taken = |port: &plimsoll_model::snapshot::HostPort| {
        others.iter().any(|other| other.host_ports.iter().any(|one| one.conflicts(port)))
    };
    if shape.host_ports.iter().any(taken) { Cause::HostPort } else { Cause::Taken }
}

fn text(cause: &Cause, most_free: &BTreeMap<String, i64>) -> String {
    match cause {
        Cause::Closed => "cordoned, not Ready or on the way out".to_owned(),
        Cause::Taint(taint) => format!("the pod does not tolerate {taint}"),
        Cause::NotSelected => "not what its node selector or affinity asks for".to_owned(),
        Cause::TooLittle(resource) => {
            let most = most_free.get(resource).copied().unwrap_or(0).max(0);
            format!("too little {resource}, at most {} free", format_amount(resource, most))
        }
        Cause::HostPort => "its host port is taken".to_owned(),
        Cause::Taken => "room is kept for other pods or DaemonSets, or the pod asks for more than resources".to_owned(),
    }
}
