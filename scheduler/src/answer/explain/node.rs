//! Explains the pods of a node and why it is removed or kept.

use super::protection::{self, Evictions};
use super::{amounts, count_text, entry, find_node, names_text, state_text};
use crate::answer::AnswerError;
use crate::answer::solve_input::SolveInput;
use plimsoll_model::catalog::{CapacityType, Catalog, Offering};
use plimsoll_model::disruption;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::names::label;
use plimsoll_model::overlay;
use plimsoll_model::plan::{Plan, PodRef, PreferencePolicy, Termination};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{DisruptionReason, Node, NodePool, Pod, PodShape, PodState, Snapshot};
use plimsoll_model::time::duration_text;
use std::collections::BTreeMap;

pub(super) fn explain(input: &SolveInput, plan: &Plan, name: &str) -> Result<Vec<String>, AnswerError> {
    let snapshot = &input.snapshot;
    let node = find_node(snapshot, name, "node")?;
    let pool = node.node_pool.as_ref().map_or("none", |pool| pool.as_str());
    let mut lines = vec![entry("NodePool", pool)];
    lines.extend(node.node_claim.iter().map(|claim| entry("NodeClaim", claim)));
    lines.extend([entry("instance", identity(input, node)), entry("state", state_text(node))]);
    if let Some(expires) = node.expires {
        let left = expires.since(snapshot.now);
        let text = if left.0 == 0 { "now".to_owned() } else { format!("in {}", duration_text(left)) };
        lines.push(entry("expires", text));
    }
    let shapes: BTreeMap<&str, &PodShape> = snapshot.shapes.iter().map(|shape| (shape.id.as_str(), shape)).collect();
    let mut requested = Resources::new();
    pods_on(snapshot, node)
        .filter_map(|pod| shapes.get(pod.shape.as_str()))
        .for_each(|shape| requested.add(&shape.requests));
    lines.extend([entry("requested", amounts(&requested)), entry("of", amounts(&node.allocatable))]);
    lines.extend(pod_lines(snapshot, plan, node));
    match plan.terminations.iter().find(|termination| termination.node == node.name) {
        Some(termination) => lines.extend(removal_lines(plan, termination)),
        None => lines.extend(reasons_to_stay(input, plan, node).into_iter().map(|reason| entry("stays", reason))),
    }
    Ok(lines)
}

fn identity(input: &SolveInput, node: &Node) -> String {
    let keys = [label::INSTANCE_TYPE, label::CAPACITY_TYPE, label::ZONE];
    let mut parts: Vec<String> = keys.iter().filter_map(|key| node.labels.get(*key).cloned()).collect();
    parts.extend(price(input, node));
    if parts.is_empty() { "unknown".to_owned() } else { parts.join(", ") }
}

/// Price of the node, and what plans count instead because of NodeOverlays or node costs.
fn price(input: &SolveInput, node: &Node) -> Option<String> {
    let overlaid = overlay::applied(&input.snapshot, &input.catalogs);
    let (snapshot, catalogs) = overlaid.as_ref().map_or((&input.snapshot, &input.catalogs), |(one, all)| (one, all));
    let offering = offering(snapshot, catalogs, node)?;
    let (price, counted) = (offering.list_price(), offering.price);
    let counts = if counted == price { String::new() } else { format!(", counts as {counted}") };
    Some(format!("{price} USD per hour{counts}"))
}

/// The offering that the node was bought as, in its pool's catalog.
fn offering<'a>(snapshot: &Snapshot, catalogs: &'a BTreeMap<CatalogId, Catalog>, node: &Node) -> Option<&'a Offering> {
    let pool = pool_of(snapshot, node)?;
    catalogs.get(pool.catalog.as_ref()?)?.offering_of(&node.labels)
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
            lines.push(entry("pods", format!("{} {what}: {names}", pods.len())));
        }
    };
    line(&moving, "to move if the node goes");
    line(&staying, "tied to the node");
    line(&waiting, "waiting for the node");
    if let Some(arriving) = plan.placements.iter().find(|placement| placement.node == node.name) {
        lines.push(entry(
            "pods",
            format!("{} pending, planned here: {}", arriving.pods.len(), pod_names(&arriving.pods)),
        ));
    }
    if lines.is_empty() {
        lines.push(entry("pods", "none"));
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
    let mut lines = vec![entry("goes", format!("{reason}, saves {saving} USD per hour net of replacements"))];
    lines.extend(termination.moved_to.iter().map(|moved| {
        let pods = count_text(moved.pods.len(), "pod");
        entry("moves", format!("{pods} to node {}: {}", moved.node, pod_names(&moved.pods)))
    }));
    for launch in termination.replaced_by.iter().filter_map(|index| plan.launches.get(*index)) {
        let cheapest =
            launch.offerings.first().map(|offering| format!("{}, {}", offering.instance_type, offering.capacity_type));
        let (pool, cheapest, price) = (&launch.node_pool, cheapest.unwrap_or_default(), launch.price());
        let text =
            format!("a new node of NodePool {pool}: {cheapest}, {price} USD per hour, for {}", pod_names(&launch.pods));
        lines.push(entry("replaced by", text));
    }
    lines
}

/// Reasons why the node is kept, or that no cheaper solution was found.
fn reasons_to_stay(input: &SolveInput, plan: &Plan, node: &Node) -> Vec<String> {
    let snapshot = &input.snapshot;
    let Some(name) = &node.node_pool else {
        return vec!["it belongs to no NodePool: such nodes are never removed".to_owned()];
    };
    let Some(pool) = pool_of(snapshot, node) else {
        return vec![format!("there is no NodePool {name}")];
    };
    let pods: Vec<&Pod> = pods_on(snapshot, node).collect();
    let obstacles = disruption::obstacles(snapshot, plan, node, &pods);
    let more = obstacles.len().saturating_sub(super::MAX_SHOWN_NAMES);
    let mut reasons: Vec<String> = obstacles.iter().take(super::MAX_SHOWN_NAMES).map(ToString::to_string).collect();
    if more > 0 {
        reasons.push(format!("and {more} more"));
    }
    if node.expires.is_none_or(|at| at > snapshot.now) && node.drifted.is_none() {
        reasons.extend(disruption::consolidation_obstacle(snapshot, node, pool, &pods).map(|it| it.to_string()));
    }
    let virtual_pods = arriving_pods(snapshot, plan, node).filter(|pod| pod.is_virtual()).count();
    if virtual_pods > 0 {
        let pods = count_text(virtual_pods, "buffer pod");
        reasons.push(format!("it has capacity for {pods}, which would not cost less elsewhere"));
    }
    if reasons.is_empty() {
        let empty = virtual_pods == 0 && !pods.iter().any(|pod| pod.moves());
        let reason = protection::reason_to_go(snapshot, node, empty);
        let unfit = match reason {
            DisruptionReason::Underutilized => volume_problem(snapshot, &pods).or_else(|| unfit(input, node, pool)),
            DisruptionReason::Drifted if pool.replicas.is_none() => volume_problem(snapshot, &pods),
            _ => None,
        };
        let obstacle = || {
            let budget = protection::budget_obstacle(snapshot, plan, pool, reason);
            budget.or_else(|| Evictions::new(snapshot, plan).obstacle(snapshot, node, &pods))
        };
        reasons.push(unfit.or_else(|| Some(obstacle()?.to_string())).unwrap_or_else(|| match reason {
            DisruptionReason::Underutilized if pool.replicas.is_none() => no_consolidation(input, node, &pods),
            DisruptionReason::Drifted if pool.replicas.is_some() => {
                let when = "has exactly its replicas and can launch another node";
                format!("it is replaced only while static NodePool {name} {when}")
            }
            DisruptionReason::Drifted if !empty => "no other place was found for its pods".to_owned(),
            DisruptionReason::Empty | DisruptionReason::Underutilized if pool.replicas.is_some() => {
                let surplus = usize::try_from(disruption::surplus(snapshot, pool)).unwrap_or(usize::MAX);
                let surplus = count_text(surplus, "node");
                let why = "other nodes go, or no other place was found for its pods";
                format!("static NodePool {name} has {surplus} beyond its replicas: {why}")
            }
            _ => "no removal is planned for it".to_owned(),
        }));
    }
    reasons
}

/// Why a volume of a pod that would have to move cannot be attached to another node.
fn volume_problem(snapshot: &Snapshot, pods: &[&Pod]) -> Option<String> {
    pods.iter().filter(|pod| pod.moves()).find_map(|pod| {
        let shape = snapshot.shapes.iter().find(|shape| shape.id == pod.shape)?;
        let (claim, problem) = shape.volumes.iter().find_map(|one| Some((&one.claim, one.problem.as_ref()?)))?;
        Some(format!("volume {claim} of pod {}: {problem}", pod.full_name()))
    })
}

/// Why a node with pods cannot be consolidated, whatever the plan removes. Surplus nodes of a static pool need neither
/// a price nor a pool that is ready.
fn unfit(input: &SolveInput, node: &Node, pool: &NodePool) -> Option<String> {
    if pool.replicas.is_some() {
        return None;
    }
    let name = &pool.name;
    if let Some(problem) = &pool.not_ready {
        return Some(format!("NodePool {name} is not ready ({}): only its empty nodes are consolidated", problem.code));
    }
    let is_unknown = offering(&input.snapshot, &input.catalogs, node).is_none();
    is_unknown.then(|| format!("its price is unknown: the catalog of NodePool {name} does not have it"))
}

/// Why a node with pods is not consolidated although nothing protects it. Which of the rules decided is not known: a
/// plan keeps only the removals that it found.
fn no_consolidation(input: &SolveInput, node: &Node, pods: &[&Pod]) -> String {
    let is_spot = node.labels.get(label::CAPACITY_TYPE).is_some_and(|value| value == CapacityType::Spot.as_str());
    let rule = match (is_spot, input.options.spot_to_spot) {
        (false, _) => "",
        (true, false) => "; a Spot node is not replaced by another Spot node (spot-to-spot consolidation is off)",
        (true, true) => {
            "; a Spot node is replaced by another Spot node only if enough cheaper instance types are available"
        }
    };
    let while_possible = "count as requirements while a node can satisfy them (preference policy Respect)";
    let preferences = preferring_pod(input, pods).map(|pod| format!("; preferences of pod {pod} {while_possible}"));
    format!("no removal was found that pays and that limits allow{rule}{}", preferences.unwrap_or_default())
}

/// A pod of a node whose preferences consolidation respects.
fn preferring_pod(input: &SolveInput, pods: &[&Pod]) -> Option<String> {
    let prefers = |shape: &PodShape| {
        !shape.preferred_node_affinity.is_empty()
            || shape.topology_spread.iter().any(|one| !one.required)
            || shape.pod_affinity.iter().any(|one| one.weight.is_some())
    };
    let mut moving = pods.iter().filter(|pod| pod.moves());
    let found = moving.find(|pod| input.snapshot.shapes.iter().any(|shape| shape.id == pod.shape && prefers(shape)));
    found.filter(|_| input.options.preference_policy == PreferencePolicy::Respect).map(|pod| pod.full_name())
}
