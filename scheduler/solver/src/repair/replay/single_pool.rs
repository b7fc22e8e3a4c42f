//! Plans with one NodePool of each weight.
//!
//! Pools of one weight compete by price. Where pods depend on each other, nodes of several pools in one domain are more
//! ways for kube-scheduler to bind them otherwise than planned.

use super::add_nodes::{is_worth, played};
use super::drop_pods::{is_valid, left};
use crate::repair::{Repair, with_reports_of};
use plimsoll_model::plan::Plan;
use std::collections::BTreeSet;

/// Pools of one weight that are tried, in the order in which they are asked. Each costs a plan.
const TRIES: usize = 3;

/// A plan with one pool of each weight that strands a pod in fewer runs, if it is worth its price.
pub(super) fn planned(repair: &Repair<'_>, (plan, stranding): (&Plan, usize)) -> Option<(Plan, usize)> {
    let inputs = repair.inputs;
    let mut best: Option<(Plan, usize)> = None;
    for number in 0..TRIES {
        let mut facts = inputs.snapshot.clone();
        let weights: BTreeSet<i32> = facts.node_pools.iter().map(|pool| pool.weight).collect();
        let kept: BTreeSet<_> = weights
            .into_iter()
            .filter_map(|weight| {
                let mut own: Vec<_> = facts.node_pools.iter().filter(|pool| pool.weight == weight).collect();
                own.sort_by(|a, b| b.name.cmp(&a.name));
                own.get(number.min(own.len() - 1)).map(|pool| pool.name.clone())
            })
            .collect();
        let before = facts.node_pools.len();
        facts.node_pools.retain(|pool| pool.replicas.is_some() || kept.contains(&pool.name));
        if facts.node_pools.len() == before {
            return None;
        }
        let other = repair.plan_keeping_nodes(&facts)?;
        if !left(&other).is_subset(&left(plan)) || !is_valid(inputs, &other) {
            continue;
        }
        let (known, known_stranding) = best.as_ref().map_or((plan, stranding), |(plan, still)| (plan, *still));
        let Some((other, still)) = played(repair, with_reports_of(other, plan)) else { continue };
        if still < known_stranding && is_worth((&other, still), (known, known_stranding)) {
            best = Some((other, still));
        }
    }
    best
}
