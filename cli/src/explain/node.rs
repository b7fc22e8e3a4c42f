//! Why a node is there, and whether it is to go.

use super::text::{self, Text};
use super::unknown;
use crate::CommandError;
use crate::input::Question;
use plimsoll_api::NodeClaim;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::{annotation, label};
use plimsoll_model::plan::Plan;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{ConsolidationPolicy, Node, NodePool, NodeState, Pod, PodState};
use plimsoll_model::time::Timestamp;

pub(super) fn explain(question: &Question, plan: &Plan, name: &str) -> Result<String, CommandError> {
    let snapshot = &question.snapshot;
    let named = |node: &&Node| node.name.as_str() == name || node.node_claim.as_deref() == Some(name);
    let Some(node) = snapshot.nodes.iter().find(named) else {
        let nodes = snapshot.nodes.iter();
        let known = nodes.flat_map(|node| [Some(node.name.to_string()), node.node_claim.clone()]).flatten();
        return Err(unknown("node", name, known.collect()));
    };
    let pods: Vec<&Pod> = snapshot.pods.iter().filter(|pod| is_on(pod, node)).collect();
    let mut text = Text::new(&format!("Node {}", node.name));
    identity(&mut text, question, node);
    use_of(&mut text, question, node, &pods);
    why(&mut text, question, node);
    future(&mut text, question, plan, node, &pods);
    Ok(text.end())
}

fn is_on(pod: &Pod, node: &Node) -> bool {
    matches!(&pod.state, PodState::Bound(name) | PodState::Reserved(name) if *name == node.name)
}

fn identity(text: &mut Text, question: &Question, node: &Node) {
    if let Some(claim) = node.node_claim.as_deref().filter(|claim| *claim != node.name.as_str()) {
        text.line("NodeClaim", claim);
    }
    text.line("NodePool", node.node_pool.as_ref().map_or("none: Plimsoll never removes it", |pool| pool.as_str()));
    let of = |key: &str| node.labels.get(key).map(String::as_str);
    let instance: Vec<&str> =
        [label::INSTANCE_TYPE, label::ZONE, label::CAPACITY_TYPE].into_iter().filter_map(of).collect();
    if !instance.is_empty() {
        let price = price(question, node).map_or("price not known".to_owned(), |it| format!("{it} USD per hour"));
        text.line("instance", format!("{}, {price}", instance.join(", ")));
    }
    let state = match node.state {
        NodeState::InFlight => "on its way: no Node yet",
        NodeState::Registered => "registered, not yet initialized",
        NodeState::Initialized if !node.ready => "in service, but its kubelet is not Ready",
        NodeState::Initialized if node.cordoned => "in service, cordoned",
        NodeState::Initialized => "in service",
    };
    text.line("state", state);
    if node.created != Timestamp::default() {
        text.line("since", text::time(node.created));
    }
    if let Some(expires) = node.expires {
        text.line("expires", text::time(expires));
    }
}

/// What an offering like the node's costs in the catalog of its pool.
fn price(question: &Question, node: &Node) -> Option<MicroUsdPerHour> {
    let pool = pool(question, node)?;
    let catalog = question.catalogs.get(pool.catalog.as_ref()?)?;
    let offerings = &catalog.get(node.labels.get(label::INSTANCE_TYPE)?)?.offerings;
    let (zone, capacity_type) = (node.labels.get(label::ZONE)?, node.labels.get(label::CAPACITY_TYPE)?);
    let same = offerings.iter().find(|it| it.zone == *zone && it.capacity_type.as_str() == capacity_type.as_str());
    same.map(|it| it.price)
}

fn pool<'question>(question: &'question Question, node: &Node) -> Option<&'question NodePool> {
    let name = node.node_pool.as_ref()?;
    question.snapshot.node_pools.iter().find(|pool| pool.name == *name)
}

fn use_of(text: &mut Text, question: &Question, node: &Node, pods: &[&Pod]) {
    let mut used = Resources::new();
    for pod in pods {
        if let Some(shape) = question.snapshot.shapes.iter().find(|shape| shape.id == pod.shape) {
            used.add(&shape.requests);
        }
    }
    let staying = pods.iter().filter(|pod| pod.stays_with_node).count();
    text.line("pods", format!("{}, {staying} of them tied to the node", pods.len()));
    text.line("requested", text::resources(&used));
    text.line("of", text::resources(&node.allocatable));
}

fn why(text: &mut Text, question: &Question, node: &Node) {
    let named = |claim: &&NodeClaim| claim.metadata.name == node.node_claim;
    let Some(claim) = question.objects.node_claims.iter().find(named).filter(|_| node.node_claim.is_some()) else {
        return;
    };
    let annotations = claim.metadata.annotations.as_ref();
    let of = |key: &str| annotations.and_then(|it| it.get(key)).map(String::as_str);
    match of(annotation::WHY) {
        Some(why) => text.line("launched", why),
        None if of(annotation::OWNER) == Some(annotation::OWNER_VALUE) => text.line("launched", "why is not recorded"),
        None => text.line("launched", "by something other than Plimsoll"),
    }
    if let Some(kind) = of(annotation::INTERRUPTED) {
        text.line("interrupted", format!("its capacity is about to be taken back: {kind}"));
    }
    if of(annotation::REMOVAL).is_some() {
        text.line("removal", "is under way");
    }
}

fn future(text: &mut Text, question: &Question, plan: &Plan, node: &Node, pods: &[&Pod]) {
    if node.deleting {
        text.line("goes", "it is being deleted");
        return;
    }
    let Some(removal) = plan.terminations.iter().find(|it| it.node == node.name) else {
        for reason in stays(question, node, pods) {
            text.line("stays", reason);
        }
        return;
    };
    text.line("goes", format!("{}: saves {} USD per hour", removal.reason.as_str(), removal.saving));
    for place in &removal.moved_to {
        text.line("moves", format!("{} to {}", text::count(place.pods.len(), "pod"), place.node));
    }
    for launch in removal.replaced_by.iter().filter_map(|index| plan.launches.get(*index)) {
        let offering = launch.offerings.first().map(text::offering).unwrap_or_default();
        text.line("replaced by", offering);
    }
}

/// Why nothing removes it, as far as its own facts tell.
fn stays(question: &Question, node: &Node, pods: &[&Pod]) -> Vec<String> {
    let now = question.snapshot.now;
    let Some(pool) = pool(question, node) else {
        return vec!["only nodes of a NodePool are removed".to_owned()];
    };
    let mut reasons = Vec::new();
    if node.state != NodeState::Initialized {
        reasons.push("it is not in service yet".to_owned());
    }
    if node.do_not_disrupt {
        reasons.push(format!("it has the annotation {}", annotation::DO_NOT_DISRUPT));
    }
    for pod in pods.iter().filter(|pod| pod.do_not_disrupt_until.is_some_and(|until| until > now)) {
        reasons.push(format!("pod {} has the annotation {}", pod.full_name(), annotation::DO_NOT_DISRUPT));
    }
    for budget in &question.snapshot.pod_disruption_budgets {
        let covered = pods.iter().find(|pod| pod.pod_disruption_budgets.contains(&budget.name));
        if let Some(pod) = covered.filter(|_| budget.disruptions_allowed <= 0) {
            reasons.push(format!("PodDisruptionBudget {} allows no eviction of {}", budget.name, pod.full_name()));
        }
    }
    reasons.extend(consolidation(pool, node, pods, now));
    if reasons.is_empty() {
        reasons.push("no cheaper place was found for its pods".to_owned());
    }
    reasons
}

/// What its pool says about removal for cost.
fn consolidation(pool: &NodePool, node: &Node, pods: &[&Pod], now: Timestamp) -> Vec<String> {
    let mut reasons = Vec::new();
    let busy = pods.iter().any(|pod| !pod.stays_with_node);
    if busy && pool.disruption.policy == ConsolidationPolicy::WhenEmpty {
        reasons.push(format!("NodePool {} removes empty nodes only (consolidationPolicy)", pool.name));
    }
    match (pool.disruption.consolidate_after, node.idle_since) {
        (None, _) => reasons.push(format!("NodePool {} never consolidates (consolidateAfter)", pool.name)),
        (Some(after), Some(since)) if since.plus(after) > now => {
            let until = text::time(since.plus(after));
            reasons.push(format!("it was in use lately: consolidateAfter is over at {until}"));
        }
        _ => {}
    }
    for (reason, allowed) in &pool.disruption.allowed {
        if *allowed == 0 {
            reasons.push(format!("the budgets of NodePool {} allow no removal as {} now", pool.name, reason.as_str()));
        }
    }
    reasons
}
