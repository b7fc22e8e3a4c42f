//! Computes other plans for the same pods, and uses them if kube-scheduler strands a pod less often.

use super::OFTEN;
use super::add_nodes::{improved_by_exchange, is_worth};
use super::drop_pods::left;
use crate::repair::{Repair, Variant, with_reports_of};
use crate::retries;
use plimsoll_model::identity::NodePoolName;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{NodePool, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Assigns pods that are spread over several keys evenly to the domain tuples instead of the cheapest tuple. Otherwise
/// one zone may have only Spot nodes and another none, and two spreads together exclude the last pods from all domains.
pub(super) fn assign_evenly(repair: &Repair<'_>, known: (&Plan, usize)) -> Option<(Plan, usize)> {
    better(repair, known, repair.plan_as(repair.inputs.snapshot, Variant::Evenly)?)
}

/// Plans with one NodePool of each weight. Pools of one weight compete by price. If pods depend on each other, nodes of
/// several pools give kube-scheduler more ways to deviate from the plan.
pub(super) fn single_pool(repair: &Repair<'_>, (plan, stranding): (&Plan, usize)) -> Option<(Plan, usize)> {
    let mut best: Option<(Plan, usize)> = None;
    for number in 0..retries::PLANS {
        let Some(changed_snapshot) = with_one_pool(repair.inputs.snapshot, number) else { break };
        let known = best.as_ref().map_or((plan, stranding), |(plan, still)| (plan, *still));
        if let Some(other) = better(repair, known, repair.plan_as(&changed_snapshot, Variant::KeepingNodes)?) {
            best = Some(other);
        }
    }
    best
}

/// The snapshot with only the pool with this number of each weight, or the last one. `None` if no pool is omitted.
fn with_one_pool(snapshot: &Snapshot, number: usize) -> Option<Snapshot> {
    let mut by_weight: BTreeMap<i32, Vec<&NodePool>> = BTreeMap::new();
    for pool in snapshot.node_pools.iter().rev().filter(|pool| pool.replicas.is_none()) {
        by_weight.entry(pool.weight).or_default().push(pool);
    }
    let chosen = by_weight.values().filter_map(|pools| pools.get(number).or(pools.last()));
    let chosen: BTreeSet<NodePoolName> = chosen.map(|pool| pool.name.clone()).collect();
    let mut changed_snapshot = snapshot.clone();
    changed_snapshot.node_pools.retain(|pool| pool.replicas.is_some() || chosen.contains(&pool.name));
    (changed_snapshot.node_pools.len() < snapshot.node_pools.len()).then_some(changed_snapshot)
}

/// Returns `other` if it places all pods that the known plan places and is better: it places more pods, or it strands a
/// pod in fewer runs and is worth its price.
fn better(repair: &Repair<'_>, (plan, stranding): (&Plan, usize), other: Plan) -> Option<(Plan, usize)> {
    if !left(&other).is_subset(&left(plan)) || !repair.inputs.is_valid(&other) {
        return None;
    }
    let (other, still) = improved_by_exchange(repair, with_reports_of(other, plan))?;
    let better = match other.unschedulable.len() < plan.unschedulable.len() {
        true => still <= stranding,
        false => still + OFTEN <= stranding && is_worth((&other, still), (plan, stranding)),
    };
    better.then_some((other, still))
}
