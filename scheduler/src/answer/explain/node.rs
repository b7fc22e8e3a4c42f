//! What a node is for, and why it stays or goes.

use super::{amounts, counted, find_node, listed, state_text};
use crate::answer::AnswerError;
use crate::answer::question::Question;
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

pub(super) fn explain(question: &Question, plan: &Plan, name: &str) -> Result<Vec<String>, AnswerError> {
    let snapshot = &question.snapshot;
    let node = find_node(snapshot, name, "node")?;
    let mut lines = vec![format!("node {name} {}: {}", state_text(node), identity(question, node))];
    let shapes: BTreeMap<&str, &PodShape> = snapshot.shapes.iter().map(|shape| (shape.id.as_str(), shape)).collect();
    let mut requested = Resources::new();
    on(snapshot, node).filter_map(|pod| shapes.get(pod.shape.as_str())).for_each(|one| requested.add(&one.requests));
    lines.push(format!("its pods request {} of {}", amounts(&requested), amounts(&node.allocatable)));
    lines.extend(of_pods(snapshot, plan, node));
    match plan.terminations.iter().find(|one| one.node == node.name) {
        Some(termination) => lines.extend(going(plan, termination)),
        None => {
            lines.push("it stays:".to_owned());
            lines.extend(staying(question, plan, node).into_iter().map(|reason| format!("  {reason}")));
        }
    }
    Ok(lines)
}

fn identity(question: &Question, node: &Node) -> String {
    let known = [label::INSTANCE_TYPE, label::CAPACITY_TYPE, label::ZONE];
    let mut parts: Vec<String> = known.iter().filter_map(|key| node.labels.get(*key).cloned()).collect();
    parts.extend(price(question, node).map(|price| format!("{price} USD/h")));
    let pool =
        node.node_pool.as_ref().map_or_else(|| "of no NodePool".to_owned(), |pool| format!("of NodePool {pool}"));
    parts.push(pool);
    parts.join(", ")
}

/// What its pool's catalog asks for it.
fn price(question: &Question, node: &Node) -> Option<MicroUsdPerHour> {
    let pool = pool_of(&question.snapshot, node)?;
    let catalog = question.catalogs.get(pool.catalog.as_ref()?)?;
    let instance_type = catalog.get(node.labels.get(label::INSTANCE_TYPE)?)?;
    let zone = node.labels.get(label::ZONE)?;
    let capacity_type = CapacityType::parse(node.labels.get(label::CAPACITY_TYPE)?)?;
    let offered = instance_type.offerings.iter().find(|one| one.zone == *zone && one.capacity_type == capacity_type);
    offered.map(|one| one.price)
}

fn pool_of<'a>(snapshot: &'a Snapshot, node: &Node) -> Option<&'a NodePool> {
    let name = node.node_pool.as_ref()?;
    snapshot.node_pools.iter().find(|pool| pool.name == *name)
}

fn on<'a>(snapshot: &'a Snapshot, node: &'a Node) -> impl Iterator<Item = &'a Pod> {
    snapshot.pods.iter().filter(|pod| match &pod.state {
        PodState::Bound(name) | PodState::Reserved(name) => *name == node.name,
        PodState::Pending => false,
    })
}

fn of_pods(snapshot: &Snapshot, plan: &Plan, node: &Node) -> Vec<String> {
    let (waiting, running): (Vec<&Pod>, Vec<&Pod>) =
        on(snapshot, node).partition(|pod| matches!(pod.state, PodState::Reserved(_)));
    let (moving, own): (Vec<&Pod>, Vec<&Pod>) = running.into_iter().partition(|pod| pod.moves());
    let mut lines = Vec::new();
    let mut line = |pods: &[&Pod], what: &str| {
        if !pods.is_empty() {
            let names: Vec<String> = pods.iter().map(|pod| pod.full_name()).collect();
            let names = listed(names.iter().map(String::as_str));
            lines.push(format!("{} {what}: {names}", counted(pods.len(), "pod")));
        }
    };
    line(&moving, "on it would have to go elsewhere");
    line(&own, "on it would go with it");
    line(&waiting, "waiting for it");
    if let Some(coming) = plan.placements.iter().find(|one| one.node == node.name) {
        lines.push(format!("{} will come to it: {}", counted(coming.pods.len(), "pending pod"), refs(&coming.pods)));
    }
    if lines.is_empty() {
        lines.push("no pods".to_owned());
    }
    lines
}

/// Pending pods that the plan has on the node.
fn coming<'a>(snapshot: &'a Snapshot, plan: &'a Plan, node: &'a Node) -> impl Iterator<Item = &'a Pod> {
    let own = plan.placements.iter().filter(|one| one.node == node.name).flat_map(|one| &one.pods);
    own.filter_map(|pod| snapshot.pods.iter().find(|one| one.uid == pod.uid))
}

fn refs(pods: &[PodRef]) -> String {
    listed(pods.iter().map(|pod| pod.name.as_str()))
}

fn going(plan: &Plan, termination: &Termination) -> Vec<String> {
    let (reason, saving) = (termination.reason.as_str(), termination.saving);
    let mut lines = vec![format!("it goes: {reason}, which saves {saving} USD/h net of replacements")];
    lines.extend(termination.moved_to.iter().map(|moved| {
        format!("  {} will go to node {}: {}", counted(moved.pods.len(), "pod"), moved.node, refs(&moved.pods))
    }));
    for launch in termination.replaced_by.iter().filter_map(|index| plan.launches.get(*index)) {
        let cheapest = launch.offerings.first().map(|one| format!("{} {}", one.instance_type, one.capacity_type));
        lines.push(format!(
            "  it is replaced by a new node of NodePool {}: {} at {} USD/h, for {}",
            launch.node_pool,
            cheapest.unwrap_or_default(),
            launch.price(),
            refs(&launch.pods)
        ));
    }
    lines
}

/// Everything that keeps it, or that nothing cheaper was found.
fn staying(question: &Question, plan: &Plan, node: &Node) -> Vec<String> {
    let snapshot = &question.snapshot;
    let Some(name) = &node.node_pool else {
        return vec!["no NodePool made it: such nodes are never removed".to_owned()];
    };
    let Some(pool) = pool_of(snapshot, node) else {
        return vec![format!("its NodePool {name} is not there")];
    };
    let mut reasons = obstacles(snapshot, plan, node);
    if node.expires.is_none_or(|at| at > snapshot.now) && node.drifted.is_none() {
        reasons.extend(not_for_cost(snapshot, node, pool));
    }
    let room = coming(snapshot, plan, node).filter(|pod| pod.is_virtual()).count();
    if room > 0 {
        reasons
            .push(format!("it keeps room for {}, which is not kept for less elsewhere", counted(room, "virtual pod")));
    }
    let empty = room == 0 && !on(snapshot, node).any(Pod::moves);
    let wanted = match () {
        () if node.expires.is_some_and(|at| at <= snapshot.now) => DisruptionReason::Expired,
        () if empty => DisruptionReason::Empty,
        () if node.drifted.is_some() => DisruptionReason::Drifted,
        () => DisruptionReason::Underutilized,
    };
    if reasons.is_empty() {
        reasons.push(match pool.disruption.allowed.get(&wanted) {
            Some(allowed) => format!(
                "the budgets of NodePool {name} allow {} for {} now; others come first or nothing cheaper was found",
                counted(usize::try_from(*allowed).unwrap_or(usize::MAX), "removal"),
                wanted.as_str()
            ),
            None => "its pods would not be served for less elsewhere".to_owned(),
        });
    }
    reasons
}

/// What forbids any voluntary removal.
fn obstacles(snapshot: &Snapshot, plan: &Plan, node: &Node) -> Vec<String> {
    let mut found = Vec::new();
    if node.state != NodeState::Initialized {
        found.push("it is not in service yet".to_owned());
    }
    if node.deleting {
        found.push("it is on its way out already".to_owned());
    }
    if node.do_not_disrupt {
        found.push("it is annotated karpenter.sh/do-not-disrupt".to_owned());
    }
    if coming(snapshot, plan, node).any(|pod| !pod.is_virtual()) {
        found.push("pending pods will come to it".to_owned());
    }
    if plan.terminations.iter().any(|one| one.moved_to.iter().any(|moved| moved.node == node.name)) {
        found.push("pods of nodes that are to be removed will come to it".to_owned());
    }
    for pod in on(snapshot, node) {
        if matches!(pod.state, PodState::Reserved(_)) {
            found.push(format!("{} waits for it", pod.full_name()));
        }
        if let Some(until) = pod.do_not_disrupt_until.filter(|until| *until > snapshot.now && !pod.terminating) {
            found.push(format!("{} must not be disrupted{}", pod.full_name(), until_text(snapshot.now, until)));
        }
        if pod.moves() && !pod.terminating {
            found.extend(budget(snapshot, pod));
        }
    }
    let more = found.len().saturating_sub(super::SHOWN_NAMES);
    found.truncate(super::SHOWN_NAMES);
    if more > 0 {
        found.push(format!("and {more} more"));
    }
    found
}

fn budget(snapshot: &Snapshot, pod: &Pod) -> Option<String> {
    let names = &pod.pod_disruption_budgets;
    if names.len() > 1 {
        return Some(format!(
            "{} is covered by {} PodDisruptionBudgets, which the Eviction API refuses",
            pod.full_name(),
            names.len()
        ));
    }
    let name = names.first()?;
    let budget = snapshot.pod_disruption_budgets.iter().find(|one| one.name == *name);
    let blocks = budget.is_none_or(|one| one.fully_blocking || one.disruptions_allowed <= 0);
    blocks.then(|| format!("PodDisruptionBudget {name} does not allow {} to be evicted now", pod.full_name()))
}

/// What keeps a node that is neither expired nor drifted.
fn not_for_cost(snapshot: &Snapshot, node: &Node, pool: &NodePool) -> Option<String> {
    if pool.replicas.is_some() {
        return Some(format!("NodePool {} is static", pool.name));
    }
    let Some(after) = pool.disruption.consolidate_after else {
        return Some(format!("NodePool {} never consolidates (consolidateAfter: Never)", pool.name));
    };
    if let Some(at) = node.idle_since.map(|since| since.plus(after)).filter(|at| *at > snapshot.now) {
        return Some(format!("consolidateAfter has not passed{}", until_text(snapshot.now, at)));
    }
    let empty = !on(snapshot, node).any(Pod::moves);
    (pool.disruption.policy == ConsolidationPolicy::WhenEmpty && !empty)
        .then(|| format!("NodePool {} consolidates only empty nodes", pool.name))
}

/// `, for another 30 s`; nothing where there is no end.
fn until_text(now: Timestamp, until: Timestamp) -> String {
    if until == Timestamp(i64::MAX) {
        return String::new();
    }
    format!(", for another {} s", until.since(now).0.div_ceil(1000))
}
