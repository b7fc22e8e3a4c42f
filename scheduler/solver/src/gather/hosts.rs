//! Spreads over hosts that leave pods for a host that will not come.
//!
//! The least over hosts is taken as zero, since there can always be one more. Where there cannot, since limits forbid it or since the pods must
//! be beside others, that leaves pods which kube-scheduler, which counts the hosts that are there, would bind: each of them has a pod,
//! so the next one may follow. Then all is planned once more as if the spread bore as many more as each host has.

use super::{Best, without};
use crate::facts::selects;
use crate::topology::matches;
use crate::world::tolerated;
use plimsoll_model::identity::{PodUid, ShapeId};
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{Node, PodShape, PodState, Snapshot, TopologySpread};
use std::collections::{BTreeMap, BTreeSet};

/// How many more pods on a host are tried for one spread: as many as its pods would need if they were even, then what the fullest of such plans has
/// on each. Each try costs a plan.
const TRIES: usize = 3;
/// Spreads that are tried at most.
const SPREADS: usize = 4;

/// A spread over hosts, by namespace.
type Spread<'a> = (&'a str, &'a TopologySpread);

/// Looks for a plan that leaves fewer pods.
pub(super) fn join(best: &mut Best<'_>) {
    let snapshot = best.snapshot;
    for (spread, waiting) in stuck(snapshot, &best.plan).into_iter().take(SPREADS) {
        let on_hosts = members(snapshot, &best.plan, spread);
        let Some(least) = on_hosts.iter().min().copied().filter(|least| *least > 0) else { continue };
        let even = (on_hosts.iter().sum::<usize>() + waiting).div_ceil(on_hosts.len());
        let skew = usize::try_from(spread.1.max_skew).unwrap_or(1);
        let mut more = even.saturating_sub(skew).max(least);
        for _ in 0..TRIES {
            let tried = best.attempt(|facts| facts.shapes.iter_mut().for_each(|shape| ease(shape, spread, more)));
            let Some(tried) = tried else { break };
            let reached = members(snapshot, &tried, spread).into_iter().min().unwrap_or(0);
            if reached == 0 || reached >= more {
                break;
            }
            more = reached;
        }
    }
}

/// Spreads over hosts of pods without a place, with the number of those pods.
fn stuck<'a>(snapshot: &'a Snapshot, plan: &Plan) -> BTreeMap<Spread<'a>, usize> {
    let mut spreads = BTreeMap::new();
    let without = without(snapshot, plan);
    for shape in &snapshot.shapes {
        let Some(count) = without.get(&shape.id) else { continue };
        let over_hosts = shape.topology_spread.iter().filter(|one| one.required && is_over_hosts(one));
        for spread in over_hosts {
            *spreads.entry((shape.namespace.as_str(), spread)).or_default() += count;
        }
    }
    // One that an empty host holds back is not held back by one that could come.
    spreads.retain(|spread, _| {
        let owner = snapshot.shapes.iter().find(|shape| has(shape, *spread) && without.contains_key(&shape.id));
        owner.is_some_and(|owner| !empty_host(snapshot, plan, owner, *spread))
    });
    spreads
}

fn is_over_hosts(spread: &TopologySpread) -> bool {
    label::normalized(&spread.topology_key) == label::HOSTNAME && spread.selector.is_some()
}

fn has(shape: &PodShape, (namespace, spread): Spread<'_>) -> bool {
    shape.namespace == namespace && shape.topology_spread.contains(spread)
}

/// Whether a node is there that the spread of `owner` looks at, and that none of the pods that it counts is on, or comes to.
fn empty_host(snapshot: &Snapshot, plan: &Plan, owner: &PodShape, spread: Spread<'_>) -> bool {
    let counts = by_host(snapshot, plan, spread);
    let looks_at = |node: &Node| {
        (!spread.1.honor_node_affinity || selects(owner, node.name.as_str(), &node.labels))
            && (!spread.1.honor_node_taints || tolerated(&node.taints, &owner.tolerations, true))
    };
    let mut nodes = snapshot.nodes.iter().filter(|node| !node.deleting);
    nodes.any(|node| !counts.contains_key(node.name.as_str()) && looks_at(node))
}

/// How many pods that the spread counts are on each host that has any, once the plan is carried out.
fn members(snapshot: &Snapshot, plan: &Plan, spread: Spread<'_>) -> Vec<usize> {
    by_host(snapshot, plan, spread).into_values().collect()
}

/// The same by node name, or by action of the launch.
fn by_host<'a>(snapshot: &'a Snapshot, plan: &'a Plan, (namespace, spread): Spread<'_>) -> BTreeMap<&'a str, usize> {
    let counted = |shape: &&PodShape| {
        shape.namespace == namespace && spread.selector.as_ref().is_some_and(|selector| matches(selector, shape))
    };
    let shapes: BTreeSet<&ShapeId> = snapshot.shapes.iter().filter(counted).map(|shape| &shape.id).collect();
    let leaving: BTreeSet<&str> =
        snapshot.nodes.iter().filter(|node| node.deleting).map(|node| node.name.as_str()).collect();
    let mut pods: BTreeSet<&PodUid> = BTreeSet::new();
    let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in snapshot.pods.iter().filter(|pod| !pod.terminating && shapes.contains(&pod.shape)) {
        pods.insert(&pod.uid);
        if let PodState::Bound(node) | PodState::Reserved(node) = &pod.state
            && !leaving.contains(node.as_str())
        {
            *hosts.entry(node.as_str()).or_default() += 1;
        }
    }
    let placed = plan.placements.iter().map(|one| (one.node.as_str(), &one.pods));
    let launched = plan.launches.iter().map(|one| (one.action_id.0.as_str(), &one.pods));
    for (host, coming) in placed.chain(launched) {
        let count = coming.iter().filter(|pod| pods.contains(&pod.uid)).count();
        if count > 0 {
            *hosts.entry(host).or_default() += count;
        }
    }
    hosts
}

/// Lets `more` pods be on a host where the shape has that spread, or one that differs from it in nothing that is counted.
fn ease(shape: &mut PodShape, (namespace, spread): Spread<'_>, more: usize) {
    if shape.namespace != namespace {
        return;
    }
    let like = |one: &&mut TopologySpread| {
        one.required && is_over_hosts(one) && one.selector == spread.selector && one.max_skew == spread.max_skew
    };
    for one in shape.topology_spread.iter_mut().filter(like) {
        one.max_skew = one.max_skew.saturating_add(i32::try_from(more).unwrap_or(i32::MAX));
    }
}
