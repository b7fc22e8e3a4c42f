//! Nodes that may be removed, why, and in which order.

use crate::groups::{is_protected, moves};
use crate::world::World;
use plimsoll_model::snapshot::{
    ConsolidationPolicy, DisruptionReason, NodePool, NodeState, Pod, PodDisruptionBudget, PodState,
};
use plimsoll_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A node that may go, for one reason.
pub(crate) struct Candidate<'a> {
    pub(crate) node: usize,
    pub(crate) pool: &'a NodePool,
    pub(crate) reason: DisruptionReason,
    /// What it costs, if the catalog knows.
    pub(crate) price: Option<i64>,
}

/// Candidates in order (expired, empty, drifted, then those that disturb least) and when time alone would make more.
pub(crate) fn find<'a>(world: &World<'a>, busy: &BTreeSet<usize>) -> (Vec<Candidate<'a>>, Option<Timestamp>) {
    let pools: BTreeMap<&str, &'a NodePool> =
        world.snapshot.node_pools.iter().map(|pool| (pool.name.as_str(), pool)).collect();
    let budgets: BTreeMap<&str, &PodDisruptionBudget> =
        world.snapshot.pod_disruption_budgets.iter().map(|one| (one.name.as_str(), one)).collect();
    let now = world.snapshot.now;
    let mut next: Option<Timestamp> = None;
    let mut later = |at: Option<Timestamp>| {
        next = next.into_iter().chain(at.filter(|at| *at > now)).min();
    };
    let mut found: Vec<(u8, i64, Candidate<'a>)> = Vec::new();
    for (index, view) in world.nodes.iter().enumerate() {
        let Some(pool) = view.node.node_pool.as_ref().and_then(|name| pools.get(name.as_str()).copied()) else {
            continue;
        };
        later(view.node.expires);
        later(pool.disruption.next_budget_change);
        view.pods.iter().for_each(|pod| later(pod.do_not_disrupt_until));
        let ready_since = idle_until(world, index, pool);
        later(ready_since);
        if busy.contains(&index) || !is_free(world, index, &budgets) || pool.replicas.is_some() {
            continue;
        }
        let idle = ready_since.is_some_and(|at| at <= now);
        let Some(reason) = reason(world, index, pool, idle) else { continue };
        let price =
            world.pools.iter().find(|one| one.pool.name == pool.name).and_then(|one| one.price_of(&view.node.labels));
        let rank = match reason {
            DisruptionReason::Expired => 0,
            DisruptionReason::Empty => 1,
            DisruptionReason::Drifted => 2,
            _ => 3,
        };
        let disturbance = view.pods.iter().filter(|pod| moves(pod)).map(|pod| pod.eviction_cost_milli).sum();
        found.push((rank, disturbance, Candidate { node: index, pool, reason, price }));
    }
    found.sort_by(|a, b| {
        let name = |one: &Candidate<'_>| world.nodes[one.node].node.name.clone();
        (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| name(&a.2).cmp(&name(&b.2)))
    });
    (found.into_iter().map(|(_, _, candidate)| candidate).collect(), next)
}

/// From when the node may be consolidated; `None`: never.
fn idle_until(world: &World<'_>, index: usize, pool: &NodePool) -> Option<Timestamp> {
    let after = pool.disruption.consolidate_after?;
    Some(world.nodes[index].node.idle_since.map_or(world.snapshot.now, |since| since.plus(after)))
}

fn reason(world: &World<'_>, index: usize, pool: &NodePool, idle: bool) -> Option<DisruptionReason> {
    let view = &world.nodes[index];
    if view.node.expires.is_some_and(|at| at <= world.snapshot.now) {
        return Some(DisruptionReason::Expired);
    }
    if idle && !view.pods.iter().any(|pod| moves(pod)) {
        return Some(DisruptionReason::Empty);
    }
    if view.node.drifted.is_some() {
        return Some(DisruptionReason::Drifted);
    }
    let thrifty = pool.disruption.policy != ConsolidationPolicy::WhenEmpty;
    (idle && thrifty && view.pods.iter().any(|pod| moves(pod))).then_some(DisruptionReason::Underutilized)
}

/// Whether nothing speaks against removing the node: it is in service, nobody is to come, and its pods may be evicted.
fn is_free(world: &World<'_>, index: usize, budgets: &BTreeMap<&str, &PodDisruptionBudget>) -> bool {
    let view = &world.nodes[index];
    let node = view.node;
    node.state == NodeState::Initialized
        && !node.deleting
        && !node.do_not_disrupt
        && !view.pods.iter().any(|pod| matches!(pod.state, PodState::Reserved(_)))
        && !view.pods.iter().any(|pod| is_protected(pod, world.snapshot.now))
        && view.pods.iter().filter(|pod| moves(pod)).all(|pod| evictable(pod, budgets))
}

/// The Eviction API refuses pods with more than one budget.
fn evictable(pod: &Pod, budgets: &BTreeMap<&str, &PodDisruptionBudget>) -> bool {
    pod.pod_disruption_budgets.len() <= 1
        && pod.pod_disruption_budgets.iter().all(|name| {
            budgets.get(name.as_str()).is_some_and(|one| !one.fully_blocking && one.disruptions_allowed > 0)
        })
}
