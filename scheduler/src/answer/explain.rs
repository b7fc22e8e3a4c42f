//! Explains, as text with figures, why a pod has no place, where it will go, or what is planned for a node.

mod node;
mod protection;
mod waiting;

pub use protection::{ProtectedNode, protected_nodes, without_protection};
pub use waiting::{place_waiting, waiting_pods};

use super::AnswerError;
use super::solve_input::SolveInput;
use crate::solve::solve;
use plimsoll_model::plan::{Launch, Plan, PodRef, Unschedulable};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::{PODS, Resources};
use plimsoll_model::snapshot::{Node, NodeState, Pod, PodState, Snapshot};
use plimsoll_proto::scheduler::v1::{ExplainRequest, ExplainResponse, explain_request::Subject};
use plimsoll_solver::Cancel;
use std::collections::BTreeSet;

/// Maximum names in a list; further names are only counted.
const MAX_SHOWN_NAMES: usize = 5;

pub(crate) fn explain_of(request: ExplainRequest, cancel: &Cancel) -> Result<ExplainResponse, AnswerError> {
    let subject = request.subject.ok_or_else(|| AnswerError::request("subject", "is not set"))?;
    let input = SolveInput::new(request.snapshot, request.catalogs, request.options)?;
    let plan = solve(&input.snapshot, &input.catalogs, &input.options, cancel)?;
    Ok(match subject {
        Subject::Pod(name) => {
            let lines = explain_pod(&input.snapshot, &plan, &name)?;
            let unschedulable = plan.unschedulable.iter().filter(|entry| entry.pod.name == name);
            ExplainResponse {
                lines,
                reasons: unschedulable.flat_map(|entry| entry.reasons.iter()).map(Into::into).collect(),
            }
        }
        Subject::Node(name) => ExplainResponse { lines: node::explain(&input, &plan, &name)?, reasons: Vec::new() },
    })
}

fn explain_pod(snapshot: &Snapshot, plan: &Plan, name: &str) -> Result<Vec<String>, AnswerError> {
    if let Some(ignored) = snapshot.ignored.iter().find(|ignored| ignored.pod == name) {
        return Ok(vec![entry("ignored", &ignored.reason)]);
    }
    let pod = find_pod(snapshot, name, "pod")?;
    let node_of = |name: &str| snapshot.nodes.iter().find(|node| node.name.as_str() == name);
    let state_of = |name: &str| node_of(name).map_or("unknown", state_text);
    let mut lines = vec![entry("requests", requests_of(snapshot, pod))];
    if let Some(owner) = &pod.buffer {
        lines.push(entry("stands for", format!("capacity of CapacityBuffer {}/{}", pod.namespace, owner.buffer)));
    }
    if let PodState::Bound(node) = &pod.state {
        lines.push(entry("runs on", format!("node {node}")));
    }
    let described = lines.len();
    if let Some(placement) = plan.placements.iter().find(|placement| contains_pod(&placement.pods, pod)) {
        let node = &placement.node;
        lines.push(entry("goes to", format!("node {node}, which is {}", state_of(node.as_str()))));
    }
    for launch in plan.launches.iter().filter(|launch| contains_pod(&launch.pods, pod)) {
        lines.extend(explain_launch(launch));
    }
    for termination in plan.terminations.iter().filter(|termination| contains_pod(&termination.pods, pod)) {
        let reason = termination.reason.as_str();
        lines.push(entry("leaves", format!("node {}, which is removed: {reason}", termination.node)));
        for moved in termination.moved_to.iter().filter(|moved| contains_pod(&moved.pods, pod)) {
            lines.push(entry("goes to", format!("node {}", moved.node)));
        }
    }
    if let Some(unschedulable) = plan.unschedulable.iter().find(|unschedulable| unschedulable.pod.uid == pod.uid) {
        lines.extend(unschedulable_lines(unschedulable));
    }
    if lines.len() == described {
        match &pod.state {
            PodState::Bound(_) => {}
            PodState::Reserved(node) => {
                lines.push(entry("waits for", format!("node {node}, which is {}", state_of(node.as_str()))));
            }
            PodState::Pending => {
                // The pod is pending but must not be placed.
                let why = if pod.terminating { "it is being deleted" } else { "it stays with its node" };
                lines.push(entry("not placed", why));
            }
        }
    }
    Ok(lines)
}

fn unschedulable_lines(unschedulable: &Unschedulable) -> Vec<String> {
    let mut lines = vec!["has no place".to_owned()];
    lines.extend(unschedulable.reasons.iter().map(|reason| {
        let (code, message) = (reason.code.as_str(), &reason.message);
        let text = match reason.node_pool.as_str() {
            "" => format!("{code}: {message}"),
            pool => format!("NodePool {pool}: {code}: {message}"),
        };
        entry("because", text)
    }));
    lines
}

fn explain_launch(launch: &Launch) -> Vec<String> {
    let mut lines = vec![entry("goes to", format!("a new node of NodePool {}", launch.node_pool))];
    if let Some(cheapest) = launch.offerings.first() {
        let (instance_type, zone, kind, price) =
            (&cheapest.instance_type, &cheapest.zone, cheapest.capacity_type, cheapest.price);
        lines.push(entry("cheapest", format!("{instance_type} in {zone}, {kind}, {price} USD per hour")));
        let types: BTreeSet<&str> = launch.offerings.iter().map(|offering| offering.instance_type.as_str()).collect();
        let (types, offerings) =
            (count_text(types.len(), "instance type"), count_text(launch.offerings.len(), "offering"));
        lines.push(entry("accepts", format!("{types}, {offerings}")));
    }
    lines.push(entry("shared with", count_text(launch.pods.len().saturating_sub(1), "other pod")));
    lines.push(entry("node total", format!("{} with DaemonSets", amounts(&launch.requests))));
    if !launch.why.is_empty() {
        lines.push(entry("because", &launch.why));
    }
    lines
}

/// Finds a pod by `namespace/name`. `field` is the path in the error.
pub(super) fn find_pod<'a>(snapshot: &'a Snapshot, name: &str, field: &str) -> Result<&'a Pod, AnswerError> {
    let pod = snapshot.pods.iter().find(|pod| pod.full_name() == name);
    pod.ok_or_else(|| AnswerError::request(field, format!("no pod {name:?} in the snapshot")))
}

/// Finds a node by name. `field` is the path in the error.
pub(super) fn find_node<'a>(snapshot: &'a Snapshot, name: &str, field: &str) -> Result<&'a Node, AnswerError> {
    let node = snapshot.nodes.iter().find(|node| node.name.as_str() == name);
    node.ok_or_else(|| AnswerError::request(field, format!("no node {name:?} in the snapshot")))
}

fn contains_pod(pods: &[PodRef], pod: &Pod) -> bool {
    pods.iter().any(|reference| reference.uid == pod.uid)
}

fn state_text(node: &Node) -> &'static str {
    match node.state {
        _ if node.deleting => "being removed",
        NodeState::InFlight => "being launched",
        NodeState::Registered => "registered, not yet initialized",
        NodeState::Initialized if !node.ready => "initialized, not Ready",
        NodeState::Initialized => "in service",
    }
}

/// A line of an explanation: what it is about, padded to a column, and the text.
fn entry(about: &str, text: impl std::fmt::Display) -> String {
    format!("{about:<14}{text}")
}

fn requests_of(snapshot: &Snapshot, pod: &Pod) -> String {
    let shape = snapshot.shapes.iter().find(|shape| shape.id == pod.shape);
    shape.map(|shape| amounts(&shape.requests)).unwrap_or_default()
}

/// Formats resources, such as `500m cpu, 1Gi memory`; `nothing` if all are zero. The count of pods is left out.
fn amounts(resources: &Resources) -> String {
    let nonzero = resources.iter().filter(|(name, amount)| *amount != 0 && *name != PODS);
    let parts: Vec<String> = nonzero.map(|(name, amount)| format!("{} {name}", format_amount(name, amount))).collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

fn count_text(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Lists the first names and the number of further names.
fn names_text<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let first: Vec<&str> = names.take(MAX_SHOWN_NAMES).collect();
    let more = count.saturating_sub(MAX_SHOWN_NAMES);
    if more == 0 { first.join(", ") } else { format!("{} and {more} more", first.join(", ")) }
}
