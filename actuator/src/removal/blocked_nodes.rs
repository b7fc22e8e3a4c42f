//! Events about nodes that cannot be disrupted or consolidated, with the reason.

use super::{Removals, blocked_pools};
use crate::clock::Timestamped;
use crate::events::{Note, object, reason};
use crate::pacing::interval_passed;
use crate::{nodes, pods};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::{NodeClaim, Pod};
use plimsoll_model::disruption::{Obstacle, consolidation_obstacle, obstacles};
use plimsoll_model::identity::NodeName;
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{Node as NodeView, NodePool, NodeState, Pod as PodView, PodState, Snapshot};
use plimsoll_snapshot::{Extra, Objects};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval between passes. An Event is repeated after [`Note::with_long_window`] at the earliest.
const INTERVAL: Duration = Duration::from_secs(300);
/// Nodes per pass; the next pass continues after the last one. In a large cluster with many blocked nodes, Events
/// would otherwise be most of the writes.
const MAX_NODES: usize = 200;

/// A verdict on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Reason of the Event.
    pub reason: &'static str,
    /// Message of the Event.
    pub message: String,
    /// The obstacle without figures, to recognize repetitions.
    pub cause: String,
}

/// Publishes Events until `stop`.
pub async fn run(deps: Removals, stop: CancellationToken) {
    let mut last = String::new();
    while interval_passed(&stop, INTERVAL).await {
        if deps.fence.check_admission().is_ok() {
            last = pass(&deps, &last);
            blocked_pools::publish(&deps);
        }
    }
}

/// Judges the next nodes after the node `last`, and returns where the next pass continues: see [`next_ones`].
fn pass(deps: &Removals, last: &str) -> String {
    let claims = deps.stores.claims.state();
    let claims: BTreeMap<&str, &Arc<NodeClaim>> =
        claims.iter().filter_map(|claim| Some((claim.provider_id()?, claim))).collect();
    let nodes = deps.stores.nodes.state();
    let with_claims = nodes.iter().filter_map(|node| {
        let claim = claims.get(nodes::provider_id(node)?)?;
        Some((node.name_any(), (node, *claim)))
    });
    let (chosen, end) = next_ones(with_claims, last);
    let pods = chosen.keys().flat_map(|node| deps.stores.pods.on_node(node));
    let objects = Objects {
        nodes: chosen.values().map(|(node, _)| Node::clone(node)).collect(),
        node_claims: chosen.values().map(|(_, claim)| NodeClaim::clone(claim)).collect(),
        pods: pods.collect::<Vec<Arc<Pod>>>(),
        node_pools: deps.stores.pools.state().iter().map(|pool| (**pool).clone()).collect(),
        pod_disruption_budgets: deps.stores.budgets.state().iter().map(|budget| (**budget).clone()).collect(),
        ..Objects::default()
    };
    let now = deps.clock.timestamp();
    let extra = Extra { now, shifted_zones: deps.zonal_shifts.zones(&deps.stores, now), ..Extra::default() };
    for (node, verdict) in verdicts(&objects, &extra) {
        let Some((node, claim)) = chosen.get(node.as_str()) else { continue };
        for object in [object(&***node), object(&***claim)] {
            let note = Note::normal(object, verdict.reason, verdict.message.clone());
            deps.events.publish(note.with_cause(verdict.cause.clone()).with_long_window());
        }
    }
    end
}

/// Up to [`MAX_NODES`] of the nodes after the node `last` in the order of their names. Also returns the name of the
/// last one; it is empty if no other follows, so that the next pass begins anew.
fn next_ones<T>(nodes: impl Iterator<Item = (String, T)>, last: &str) -> (BTreeMap<String, T>, String) {
    let mut chosen: Vec<(String, T)> = nodes.filter(|(name, _)| name.as_str() > last).collect();
    chosen.sort_by(|a, b| a.0.cmp(&b.0));
    let more = chosen.len() > MAX_NODES;
    chosen.truncate(MAX_NODES);
    let chosen: BTreeMap<String, T> = chosen.into_iter().collect();
    let end = chosen.last_key_value().filter(|_| more).map(|(name, _)| name.clone());
    (chosen, end.unwrap_or_default())
}

/// Verdicts on the nodes of NodePools that are in service and are not being removed. A node without an obstacle, or one
/// that only has to wait for `consolidateAfter`, has none.
#[must_use]
pub fn verdicts(objects: &Objects, extra: &Extra) -> BTreeMap<NodeName, Verdict> {
    let (snapshot, _) = plimsoll_snapshot::build(objects, extra);
    let mut pods: BTreeMap<&NodeName, Vec<&PodView>> = BTreeMap::new();
    for pod in &snapshot.pods {
        if let PodState::Bound(node) | PodState::Reserved(node) = &pod.state {
            pods.entry(node).or_default().push(pod);
        }
    }
    let pools: BTreeMap<_, &NodePool> = snapshot.node_pools.iter().map(|pool| (&pool.name, pool)).collect();
    let mut verdicts = BTreeMap::new();
    for node in snapshot.nodes.iter().filter(|node| node.state == NodeState::Initialized && !node.deleting) {
        let Some(pool) = node.node_pool.as_ref().and_then(|name| pools.get(name)) else { continue };
        let pods = pods.get(&node.name).map(Vec::as_slice).unwrap_or_default();
        if let Some(verdict) = verdict(&snapshot, (objects, extra), node, pool, pods) {
            verdicts.insert(node.name.clone(), verdict);
        }
    }
    verdicts
}

fn verdict(
    snapshot: &Snapshot,
    sources: (&Objects, &Extra),
    node: &NodeView,
    pool: &NodePool,
    pods: &[&PodView],
) -> Option<Verdict> {
    if let Some(obstacle) = obstacles(snapshot, &Plan::default(), node, pods).into_iter().next() {
        let message = format!("The node cannot be disrupted: {}", text_of(&obstacle, sources, node));
        return Some(Verdict { reason: reason::DISRUPTION_BLOCKED, message, cause: obstacle.short() });
    }
    if node.drifted.is_some() {
        return None;
    }
    let obstacle = consolidation_obstacle(snapshot, node, pool, pods)?;
    // The node may be consolidated soon.
    if matches!(obstacle, Obstacle::ConsolidateAfter { .. }) {
        return None;
    }
    let message = format!("The node is not consolidated: {obstacle}");
    Some(Verdict { reason: reason::UNCONSOLIDATABLE, message, cause: obstacle.short() })
}

/// The obstacle in a sentence. An annotation is the one of the object, since the snapshot does not tell which it is,
/// nor that it protects a node because of its zone or because of a pod that cannot be read.
fn text_of(obstacle: &Obstacle, (objects, extra): (&Objects, &Extra), view: &NodeView) -> String {
    match obstacle {
        Obstacle::NodeAnnotation => {
            let node = objects.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(view.name.as_str()));
            let zone = view.labels.get(label::ZONE).filter(|zone| extra.shifted_zones.contains(*zone));
            match (node.and_then(plimsoll_snapshot::protecting_annotation), zone) {
                (Some(annotation), _) => format!("it has the annotation {annotation}"),
                (None, Some(zone)) => format!("the cluster is shifted away from its zone {zone}"),
                (None, None) => "a pod on it cannot be read".to_owned(),
            }
        }
        Obstacle::PodAnnotation { pod: full_name, remaining } => {
            let pod = objects.pods.iter().find(|pod| pods::full_name(pod) == *full_name);
            match pod.and_then(|pod| pod.protection()) {
                Some((_, annotation)) => format!("pod {full_name} has the annotation {annotation}{remaining}"),
                None => obstacle.to_string(),
            }
        }
        _ => obstacle.to_string(),
    }
}

#[cfg(test)]
mod tests;
