//! Which nodes can go: expired, empty, drifted, and those whose pods are served for less elsewhere.
//!
//! One after another, each on what the ones before it left, so that the plan holds as a whole. Budgets, do-not-disrupt and
//! disruption budgets of pods hold for all but expired nodes, whose time is over whatever they run.

mod allowance;
mod candidates;
mod consolidate;
mod record;
mod surplus;

use crate::draft::{Demand, listed};
use crate::lots::{self, Lot};
use crate::place::{Placed, Search, State};
use crate::rooms::{self, Guests};
use crate::select::Listings;
use crate::world::World;
use allowance::Allowance;
use candidates::Candidate;
pub(crate) use candidates::expired;
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::snapshot::{DisruptionReason, Pod};
pub(crate) use record::{Removed, terminations};
use std::collections::{BTreeMap, BTreeSet};

/// What was found so far.
pub(crate) struct Removal<'a> {
    pub(crate) removed: Vec<Removed<'a>>,
    /// Moved pods by the number of the node that takes them.
    pub(crate) existing: BTreeMap<usize, Vec<&'a Pod>>,
    /// Virtual pods, which move with their nodes as others do.
    pub(crate) guests: Guests<'a>,
    /// Launches that were told before the plan was whole.
    pub(crate) early: Vec<Launch>,
    /// All others.
    pub(crate) launches: Vec<Launch>,
    /// What those list.
    pub(crate) listings: Listings,
    /// Pods of all launches, by shape.
    pub(crate) demand: Demand,
    /// Nodes that take pods by this plan: they stay.
    pub(crate) busy: BTreeSet<usize>,
}

impl<'a> Removal<'a> {
    fn is_gone(&self, node: usize) -> bool {
        self.removed.iter().any(|one| one.node == node)
    }

    /// The node goes, and nobody stays there.
    fn note(&mut self, candidate: &Candidate<'a>, reason: DisruptionReason) {
        self.guests.remove(&candidate.node);
        self.removed.push(candidate.removed(reason));
    }

    fn commit(&mut self, world: &World<'a>, placed: Placed<'a>) {
        for (node, pods) in placed.existing {
            self.busy.insert(node);
            let (pods, guests) = rooms::apart(&pods);
            if !pods.is_empty() {
                self.existing.entry(node).or_default().extend(pods);
            }
            if !guests.is_empty() {
                self.guests.entry(node).or_default().extend(guests);
            }
        }
        self.launches.extend(listed(world, &placed.launches, &mut self.listings, &mut self.demand));
    }
}

/// Adds terminations to `removal`, which has the expired nodes already.
pub(crate) fn remove<'a>(world: &World<'a>, state: &mut State, plan: &mut Plan, removal: &mut Removal<'a>) {
    let (found, next) = candidates::find(world, removal);
    plan.next_time = plan.next_time.into_iter().chain(next).min();
    let mut allowance = Allowance::new(world, removal);
    for candidate in found.iter().filter(|one| one.empty) {
        if !removal.is_gone(candidate.node) && allowance.permits(world, candidate, DisruptionReason::Empty) {
            state.close(candidate.node);
            allowance.note(candidate);
            removal.note(candidate, DisruptionReason::Empty);
        }
    }
    surplus::remove(world, state, &mut allowance, removal);
    drifted(world, state, &found, &mut allowance, removal);
    consolidate::consolidate(world, state, &found, &mut allowance, removal);
}

/// Drifted nodes: replaced by as many as it takes, whatever they cost. First those without pods, then those that need not wait for
/// theirs, since evictions that nothing holds back count before those that leave room.
fn drifted<'a>(
    world: &World<'a>,
    state: &mut State,
    found: &[Candidate<'a>],
    allowance: &mut Allowance<'a>,
    removal: &mut Removal<'a>,
) {
    let mut order: Vec<&Candidate<'a>> = found.iter().filter(|one| one.drifted).collect();
    order.sort_by_key(|one| (!one.pods.is_empty(), !one.patient, one.disturbance, &world.nodes[one.node].node.name));
    for candidate in order {
        if removal.is_gone(candidate.node)
            || removal.busy.contains(&candidate.node)
            || state.work == 0
            || !allowance.permits(world, candidate, DisruptionReason::Drifted)
        {
            continue;
        }
        // With a terminationGracePeriod, pods that may not be evicted do not hold the node: they stay until that is over.
        let moving = candidate.pods.iter().copied().filter(|pod| lots::can_leave(world, pod));
        let wanted: Vec<Lot<'a>> = lots::by_shape(world, moving);
        if wanted.iter().any(|lot| crate::reasons::unsupported(world.shapes[lot.shape].shape).is_some()) {
            continue;
        }
        let placed = state.trial(|state| {
            state.close(candidate.node);
            lots::leave(world, state, &wanted);
            let search = Search { in_service: true, settled: false };
            let mut placed = crate::preferences::place(world, state, wanted, search);
            crate::place::widen(world, state, &mut placed.launches);
            placed.left.is_empty().then_some(placed)
        });
        if let Some(placed) = placed {
            allowance.note(candidate);
            removal.note(candidate, DisruptionReason::Drifted);
            removal.commit(world, placed);
        }
    }
}
