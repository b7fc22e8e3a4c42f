//! Explains the pods of a node and why it is removed or kept.

use super::{amounts, count_text, find_node, names_text, state_text};
use crate::answer::AnswerError;
use crate::answer::solve_input::SolveInput;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Plan, PodRef, Termination};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{
    ConsolidationPolicy, DisruptionReason, Node, NodePool, NodeState, Pod, PodShape, PodState, Snapshot,
};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;

pub(super) fn explain(input: &SolveInput, plan: &Plan, name: &str) -> Result<Vec<String>, AnswerError> {
    let snapshot = &input.snapshot;
    let node = find_node(snapshot, name, "node")?;
    let mut lines = vec![format!("node {name} {}: {}", state_text(node), identity(input, node))];
    let shapes: BTreeMap<&str, &PodShape> = snapshot.shapes.iter().map(|shape| (shape.id.as_str(), shape)).collect();
    let mut requested = Resources::new();
    pods_on(snapshot, node)
        .filter_map(|pod| shapes.get(pod.shape.as_str()))
        .for_each(|shape| requested.add(&shape.requests));
    lines.push(format!("its pods request {} of {}", amounts(&requested), amounts(&node.allocatable)));
    lines.extend(pod_lines(snapshot, plan, node));
    match plan.terminations.iter().find(|termination| termination.node == node.name) {
        Some(termination) => lines.extend(removal_lines(plan, termination)),
        None => {
            lines.push("it stays:".to_owned());
            lines.extend(reasons_to_stay(input, plan, node).into_iter().map(|reason| format!("  {reason}")));
        }
    }
    Ok(lines)
}

fn identity(input: &SolveInput, node: &Node) -> String {
    let keys = [label::INSTANCE_TYPE, label::CAPACITY_TYPE, label::ZONE];
    let mut parts: Vec<String> = keys.iter().filter_map(|key| node.labels.get(*key).cloned()).collect();
    parts.extend(price(input, node).map(|price| format!("{price} USD/h")));
    let pool =
        node.node_pool.as_ref().map_or_else(|| "of no NodePool".to_owned(), |pool| format!("of NodePool {pool}"));
    parts.push(pool);
    parts.join(", ")
}

/// Price of the node in its pool's catalog.
fn price(input: &SolveInput, node: &Node) -> Option<MicroUsdPerHour> {
    let pool = pool_of(&input.snapshot, node)?;
    let catalog = input.catalogs.get(pool.catalog.as_ref()?)?;
    let instance_type = catalog.get(node.labels.get(label::INSTANCE_TYPE)?)?;
    let zone = node.labels.get(label::ZONE)?;
    let capacity_type = CapacityType::parse(node.labels.get(label::CAPACITY_TYPE)?)?;
    let offering = instance_type
        .offerings
        .iter()
        .find(|offering| offering.zone == *zone && offering.capacity_type == capacity_type);
    offering.map(|offering| offering.price)
}

fn pool_of<'a>(snapshot: &'a Snapshot, node: &Node) -> Option<&'a NodePool> {
    let name = node.node_pool.as_ref()?;
    snapshot.node_pools.iter().find(|pool| pool.name == *name)
}

fn pods_on<'a>(snapshot: &'a Snapshot, node: &'a Node) -> impl Iterator<Item = &'a Pod> {
    snapshot.pods.iter().filter(|pod| match &pod.state {
        PodState::Bound(name) | PodState::Reserved(name) => *name == node.name,
        PodState::Pending => false,
    })
}

fn pod_lines(snapshot: &Snapshot, plan: &Plan, node: &Node) -> Vec<String> {
    let (waiting, running): (Vec<&Pod>, Vec<&Pod>) =
        pods_on(snapshot, node).partition(|pod| matches!(pod.state, PodState::Reserved(_)));
    let (moving, staying): (Vec<&Pod>, Vec<&Pod>) = running.into_iter().partition(|pod| pod.moves());
    let mut lines = Vec::new();
    let mut line = |pods: &[&Pod], what: &str| {
        if !pods.is_empty() {
            let names: Vec<String> = pods.iter().map(|pod| pod.full_name()).collect();
            let names = names_text(names.iter().map(String::as_str));
            lines.push(format!("{} {what}: {names}", count_text(pods.len(), "pod")));
        }
    };
    line(&moving, "on it would have to go elsewhere");
    line(&staying, "on it would go with it");
    line(&waiting, "waiting for it");
    if let Some(arriving) = plan.placements.iter().find(|placement| placement.node == node.name) {
        lines.push(format!(
            "{} will come to it: {}",
            count_text(arriving.pods.len(), "pending pod"),
            pod_names(&arriving.pods)
        ));
    }
    if lines.is_empty() {
        lines.push("no pods".to_owned());
    }
    lines
}

/// Pending pods that the plan places on the node.
fn arriving_pods<'a>(snapshot: &'a Snapshot, plan: &'a Plan, node: &'a Node) -> impl Iterator<Item = &'a Pod> {
    let placed =
        plan.placements.iter().filter(|placement| placement.node == node.name).flat_map(|placement| &placement.pods);
    placed.filter_map(|pod| snapshot.pods.iter().find(|candidate| candidate.uid == pod.uid))
}

fn pod_names(pods: &[PodRef]) -> String {
    names_text(pods.iter().map(|pod| pod.name.as_str()))
}

fn removal_lines(plan: &Plan, termination: &Termination) -> Vec<String> {
    let (reason, saving) = (termination.reason.as_str(), termination.saving);
    let mut lines = vec![format!("it goes: {reason}, which saves {saving} USD/h net of replacements")];
    lines.extend(termination.moved_to.iter().map(|moved| {
        format!("  {} will go to node {}: {}", count_text(moved.pods.len(), "pod"), moved.node, pod_names(&moved.pods))
    }));
    for launch in termination.replaced_by.iter().filter_map(|index| plan.launches.get(*index)) {
        let cheapest =
            launch.offerings.first().map(|offering| format!("{} {}", offering.instance_type, offering.capacity_type));
        lines.push(format!(
            "  it is replaced by a new node of NodePool {}: {} at {} USD/h, for {}",
            launch.node_pool,
            cheapest.unwrap_or_default(),
            launch.price(),
            pod_names(&launch.pods)
        ));
    }
    lines
}

/// Reasons why the node is kept, or that no cheaper solution was found.
fn reasons_to_stay(input: &SolveInput, plan: &Plan, node: &Node) -> Vec<String> {
    let snapshot = &input.snapshot;
    let Some(name) = &node.node_pool else {
        return vec!["no NodePool made it: such nodes are never removed".to_owned()];
    };
    let Some(pool) = pool_of(snapshot, node) else {
        return vec![format!("its NodePool {name} is not there")];
    };
    let mut reasons = obstacles(snapshot, plan, node);
    if node.expires.is_none_or(|at| at > snapshot.now) && node.drifted.is_none() {
        reasons.extend(consolidation_obstacle(snapshot, node, pool));
    }
    let virtual_pods = arriving_pods(snapshot, plan, node).filter(|pod| pod.is_virtual()).count();
    if virtual_pods > 0 {
        reasons.push(format!(
            "it keeps room for {}, which is not kept for less elsewhere",
            count_text(virtual_pods, "virtual pod")
        ));
    }
    let empty = virtual_pods == 0 && !pods_on(snapshot, node).any(Pod::moves);
    let reason = match () {
        () if node.expires.is_some_and(|at| at <= snapshot.now) => DisruptionReason::Expired,
        () if empty => DisruptionReason::Empty,
        () if node.drifted.is_some() => DisruptionReason::Drifted,
        () => DisruptionReason::Underutilized,
    };
    if reasons.is_empty() {
        reasons.push(match pool.disruption.allowed.get(&reason) {
            Some(allowed) => format!(
                "the budgets of NodePool {name} allow {} for {} now; others come first or nothing cheaper was found",
                count_text(usize::try_from(*allowed).unwrap_or(usize::MAX), "removal"),
                reason.as_str()
            ),
            None => "its pods would not be served for less elsewhere".to_owned(),
        });
    }
    reasons
}

/// Obstacles to every voluntary removal.
fn obstacles(snapshot: &Snapshot, plan: &Plan, node: &Node) -> Vec<String> {
    let mut obstacles = Vec::new();
    if node.state != NodeState::Initialized {
        obstacles.push("it is not in service yet".to_owned());
    }
    if node.deleting {
        obstacles.push("it is on its way out already".to_owned());
    }
    if node.do_not_disrupt {
        obstacles.push("it is annotated karpenter.sh/do-not-disrupt".to_owned());
    }
    if arriving_pods(snapshot, plan, node).any(|pod| !pod.is_virtual()) {
        obstacles.push("pending pods will come to it".to_owned());
    }
    if plan.terminations.iter().any(|termination| termination.moved_to.iter().any(|moved| moved.node == node.name)) {
        obstacles.push("pods of nodes that are to be removed will come to it".to_owned());
    }
    for pod in pods_on(snapshot, node) {
        if matches!(pod.state, PodState::Reserved(_)) {
            obstacles.push(format!("{} waits for it", pod.full_name()));
        }
        if let Some(until) = pod.do_not_disrupt_until.filter(|until| *until > snapshot.now && !pod.terminating) {
            obstacles.push(format!("{} must not be disrupted{}", pod.full_name(), until_text(snapshot.now, until)));
        }
        if pod.moves() && !pod.terminating {
            obstacles.extend(budget_obstacle(snapshot, pod));
        }
    }
    let more = obstacles.len().saturating_sub(super::MAX_SHOWN_NAMES);
    obstacles.truncate(super::MAX_SHOWN_NAMES);
    if more > 0 {
        obstacles.push(format!("and {more} more"));
    }
    obstacles
}

fn budget_obstacle(snapshot: &Snapshot, pod: &Pod) -> Option<String> {
    let names = &pod.pod_disruption_budgets;
    if names.len() > 1 {
        return Some(format!(
            "{} is covered by {} PodDisruptionBudgets, which the Eviction API refuses",
            pod.full_name(),
            names.len()
        ));
    }
    let name = names.first()?;
    let budget = snapshot.pod_disruption_budgets.iter().find(|budget| budget.name == *name);
    let blocks = budget.is_none_or(|budget| budget.fully_blocking || budget.disruptions_allowed <= 0);
    blocks.then(|| format!("PodDisruptionBudget {name} does not allow {} to be evicted now", pod.full_name()))
}

/// Reason why a node that is neither expired nor drifted is not consolidated.
fn consolidation_obstacle(snapshot: &Snapshot, node: &Node, pool: &NodePool) -> Option<String> {
    if pool.replicas.is_some() {
        return Some(format!("NodePool {} is static", pool.name));
    }
    let Some(after) = pool.disruption.consolidate_after else {
        return Some(format!("NodePool {} never consolidates (consolidateAfter: Never)", pool.name));
    };
    if let Some(at) = node.idle_since.map(|since| since.plus(after)).filter(|at| *at > snapshot.now) {
        return Some(format!("consolidateAfter has not passed{}", until_text(snapshot.now, at)));
    }
    let empty = !pods_on(snapshot, node).any(Pod::moves);
    (pool.disruption.policy == ConsolidationPolicy::WhenEmpty && !empty)
        .then(|| format!("NodePool {} consolidates only empty nodes", pool.name))
}

/// Formats a deadline, such as `, for another 30 s`; empty without an end.
fn until_text(now: Timestamp, until: Timestamp) -> String {
    if until == Timestamp(i64::MAX) {
        return String::new();
    }
    format!(", for another {} s", until.since(now).0.div_ceil(1000))
}
