//! Which nodes can go: expired, empty, drifted, and those whose pods are served for less elsewhere.
//!
//! One node after another, each on what the ones before it left, so that the plan holds as a whole. Budgets, do-not-disrupt and
//! disruption budgets of pods hold for all of them. A spot node is never replaced by another spot node for cost.

mod candidates;

use crate::groups;
use crate::place::{Groups, Placed, Search, State, place};
use crate::select;
use crate::world::World;
use candidates::Candidate;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::identity::{ActionId, ContentHasher};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, Placement, Plan, Termination};
use plimsoll_model::snapshot::DisruptionReason;
use std::collections::{BTreeMap, BTreeSet};

/// Adds terminations, with the launches that replace them, to `plan`. `busy` nodes take pods by this plan and stay.
pub(crate) fn remove(world: &World<'_>, state: &mut State, plan: &mut Plan, busy: &BTreeSet<usize>) {
    let (found, next) = candidates::find(world, busy);
    plan.next_time = plan.next_time.into_iter().chain(next).min();
    let mut allowed: BTreeMap<(String, DisruptionReason), u32> = BTreeMap::new();
    for pool in &world.snapshot.node_pools {
        for (reason, count) in &pool.disruption.allowed {
            allowed.insert((pool.name.0.clone(), *reason), *count);
        }
    }
    let mut taking: BTreeSet<usize> = BTreeSet::new();
    for candidate in &found {
        let budget = allowed.get_mut(&(candidate.pool.name.0.clone(), candidate.reason));
        if budget.as_ref().is_some_and(|count| **count == 0) || taking.contains(&candidate.node) || state.work == 0 {
            continue;
        }
        if let Some(placed) = try_one(world, state, candidate) {
            taking.extend(placed.existing.keys());
            record(world, plan, candidate, placed);
            if let Some(count) = budget {
                *count -= 1;
            }
        }
    }
}

/// Where the pods of `candidate` would go; `state` changes only if they all find a place that is worth it.
fn try_one<'a>(world: &World<'a>, state: &mut State, candidate: &Candidate<'a>) -> Option<Placed<'a>> {
    let view = &world.nodes[candidate.node];
    let moving: Groups<'a> = groups::group(world, view.pods.iter().copied().filter(|pod| groups::moves(pod)));
    if moving.keys().any(|shape| crate::reasons::unsupported(world.shapes[*shape].shape).is_some()) {
        return None;
    }
    let for_cost = candidate.reason == DisruptionReason::Underutilized;
    let mut trial = state.clone();
    trial.rooms[candidate.node].closed = true;
    // Without a known price nothing can be said to be cheaper: then its pods must fit on what is there.
    let below = for_cost.then(|| candidate.price.unwrap_or(0));
    let mut placed = place(world, &mut trial, moving, Search { below, in_service: true });
    state.work = trial.work;
    let spot = view.node.labels.get(label::CAPACITY_TYPE).map(String::as_str) == Some(CapacityType::Spot.as_str());
    if for_cost && spot {
        for launch in &mut placed.launches {
            launch.offerings.retain(|one| one.capacity_type != CapacityType::Spot);
        }
    }
    let nowhere = !placed.left.is_empty() || placed.launches.iter().any(|launch| launch.offerings.is_empty());
    if nowhere || (for_cost && placed.launches.len() > 1) {
        return None;
    }
    *state = trial;
    Some(placed)
}

fn record(world: &World<'_>, plan: &mut Plan, candidate: &Candidate<'_>, placed: Placed<'_>) {
    let view = &world.nodes[candidate.node];
    let moving: Vec<_> = view.pods.iter().copied().filter(|pod| groups::moves(pod)).collect();
    let pods = select::pod_refs(&moving);
    let mut moved_to: Vec<Placement> = placed
        .existing
        .iter()
        .map(|(node, pods)| Placement { node: world.nodes[*node].node.name.clone(), pods: select::pod_refs(pods) })
        .collect();
    moved_to.sort();
    let replacements: MicroUsdPerHour = placed.launches.iter().map(Launch::price).sum();
    let mut hasher = ContentHasher::new("termination");
    hasher.text(&format!("{:?}", world.snapshot.ledger));
    hasher.text(view.node.name.as_str());
    hasher.text(candidate.reason.as_str());
    pods.iter().for_each(|pod| hasher.text(pod.uid.as_str()));
    let first = plan.launches.len();
    plan.launches.extend(placed.launches);
    plan.terminations.push(Termination {
        action_id: ActionId(hasher.hex(16)),
        node: view.node.name.clone(),
        reason: candidate.reason,
        pods,
        replaced_by: (first..plan.launches.len()).collect(),
        moved_to,
        saving: MicroUsdPerHour(candidate.price.unwrap_or(0)) - replacements,
    });
}
