//! Explains, as text with figures, why a pod has no place, where it will go, or what is planned for a node.

mod node;

use super::AnswerError;
use super::solve_input::SolveInput;
use crate::solve::solve;
use plimsoll_model::plan::{Launch, Plan, PodRef, ReasonCode, Unschedulable};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, NodeState, Pod, PodState, Snapshot};
use plimsoll_proto::scheduler::v1::{ExplainRequest, ExplainResponse, explain_request::Subject};
use plimsoll_solver::Cancel;

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
            ExplainResponse { lines, reasons: unschedulable.flat_map(|entry| &entry.reasons).map(Into::into).collect() }
        }
        Subject::Node(name) => ExplainResponse { lines: node::explain(&input, &plan, &name)?, reasons: Vec::new() },
    })
}

fn explain_pod(snapshot: &Snapshot, plan: &Plan, name: &str) -> Result<Vec<String>, AnswerError> {
    if let Some(ignored) = snapshot.ignored.iter().find(|ignored| ignored.pod == name) {
        return Ok(vec![format!("{name} is not considered: {}", ignored.reason)]);
    }
    let pod = find_pod(snapshot, name, "pod")?;
    let node_of = |name: &str| snapshot.nodes.iter().find(|node| node.name.as_str() == name);
    let mut lines = match &pod.state {
        PodState::Bound(node) => vec![format!("{name} runs on node {node}")],
        PodState::Reserved(node) => {
            let state = node_of(node.as_str()).map_or("unknown", |node| state_text(node));
            return Ok(vec![format!("{name} waits for node {node}, which {state}")]);
        }
        PodState::Pending => Vec::new(),
    };
    if let Some(owner) = &pod.buffer {
        lines.push(format!(
            "{name} does not exist: it stands for room that CapacityBuffer {}/{} keeps",
            pod.namespace, owner.buffer
        ));
    }
    let requests = requests_of(snapshot, pod);
    if let Some(placement) = plan.placements.iter().find(|placement| contains_pod(&placement.pods, pod)) {
        let state = node_of(placement.node.as_str()).map_or("unknown", |node| state_text(node));
        lines.push(format!("{name} will go to node {}, which {state}: it has room for {requests}", placement.node));
    }
    for launch in plan.launches.iter().filter(|launch| contains_pod(&launch.pods, pod)) {
        lines.extend(explain_launch(name, launch));
    }
    for termination in plan.terminations.iter().filter(|termination| contains_pod(&termination.pods, pod)) {
        let reason = termination.reason.as_str();
        lines.push(format!("it has to leave node {}, which is to be removed: {reason}", termination.node));
        for moved in termination.moved_to.iter().filter(|moved| contains_pod(&moved.pods, pod)) {
            lines.push(format!("it will go to node {}, which has room for {requests}", moved.node));
        }
    }
    if let Some(unschedulable) = plan.unschedulable.iter().find(|unschedulable| unschedulable.pod.uid == pod.uid) {
        lines.extend(unschedulable_lines(pod, unschedulable, &requests));
    }
    if lines.is_empty() {
        // The pod is pending but must not be placed.
        let why = if pod.terminating { "it is being deleted" } else { "it stays with its node" };
        lines.push(format!("{name} is not to be placed: {why}"));
    }
    Ok(lines)
}

fn unschedulable_lines(pod: &Pod, unschedulable: &Unschedulable, requests: &str) -> Vec<String> {
    let mut lines = vec![format!("{} has no place; it requests {requests}", pod.full_name())];
    lines.extend(unschedulable.reasons.iter().map(|reason| {
        let (code, message) = (reason.code.as_str(), &reason.message);
        match (reason.node_pool.as_str(), reason.code) {
            ("", ReasonCode::NoExistingNode) => format!("  {code}: {message}"),
            ("", _) => format!("  the pod itself: {code}: {message}"),
            (pool, _) => format!("  NodePool {pool}: {code}: {message}"),
        }
    }));
    lines
}

fn explain_launch(pod: &str, launch: &Launch) -> Vec<String> {
    let others = launch.pods.len().saturating_sub(1);
    let others_text =
        if others == 0 { "alone".to_owned() } else { format!("with {}", count_text(others, "other pod")) };
    let mut lines = vec![format!("{pod} will go to a new node of NodePool {}, {others_text}", launch.node_pool)];
    if let Some(cheapest) = launch.offerings.first() {
        let (kind, zone, price) = (cheapest.capacity_type, &cheapest.zone, cheapest.price);
        let choice = count_text(launch.offerings.len(), "acceptable offering");
        lines.push(format!(
            "  {} {kind} in {zone} at {price} USD/h is the cheapest of {choice}",
            cheapest.instance_type
        ));
    }
    lines.push(format!("  its pods and DaemonSets request {}", amounts(&launch.requests)));
    if !launch.why.is_empty() {
        lines.push(format!("  {}", launch.why));
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
        NodeState::InFlight => "is on its way",
        NodeState::Registered => "has joined, but is not in service yet",
        NodeState::Initialized if !node.ready => "is in service, but not Ready",
        NodeState::Initialized => "is in service",
    }
}

fn requests_of(snapshot: &Snapshot, pod: &Pod) -> String {
    let shape = snapshot.shapes.iter().find(|shape| shape.id == pod.shape);
    shape.map(|shape| amounts(&shape.requests)).unwrap_or_default()
}

/// Formats resources, such as `cpu 500m, memory 1Gi`; `nothing` if all are zero.
fn amounts(resources: &Resources) -> String {
    let nonzero = resources.iter().filter(|(_, amount)| *amount != 0);
    let parts: Vec<String> = nonzero.map(|(name, amount)| format!("{name} {}", format_amount(name, amount))).collect();
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
