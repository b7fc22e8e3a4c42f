//! Removes nodes: expired, empty and drifted nodes, and nodes whose pods cost less elsewhere.
//!
//! Each removal starts from the result of the previous ones, so that the plan is valid as a whole. Budgets,
//! do-not-disrupt and PodDisruptionBudgets apply to all nodes except expired ones.

pub(crate) mod pod_age;
pub(crate) mod single_node;

mod allowance;
mod candidates;
mod consolidate;
mod drift;
mod followed;
mod preferences;
mod record;
mod repack;
mod surplus;

use crate::input::context::SolveContext;
use crate::place::buffer_pods::{self, PlacedBufferPods};
use crate::place::draft::{Demand, Draft};
use crate::place::pod_groups::PodGroup;
use crate::place::{Placed, State};
use allowance::Allowance;
use candidates::Candidate;
pub(crate) use candidates::expired;
pub(crate) use drift::{link_successors, successors_of};
pub(crate) use followed::Followed;
use plimsoll_model::index::Id;
use plimsoll_model::plan::{Launch, Plan, PlanOptions};
use plimsoll_model::snapshot::{DisruptionReason, Node, Pod};
pub(crate) use record::{Removed, postponed, terminations};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes of static pools, each with the launch of its successor once the plan's launches are known.
pub(crate) type Successors = BTreeMap<Id<Node>, Option<usize>>;

#[derive(Default)]
pub(crate) struct Removal<'a> {
    pub(crate) removed: Vec<Removed<'a>>,
    /// Moved pods by the node that takes them.
    pub(crate) existing: BTreeMap<Id<Node>, Vec<&'a Pod>>,
    /// Virtual pods that move with their nodes.
    pub(crate) placed_buffer_pods: PlacedBufferPods<'a>,
    /// Virtual pods of removed surplus nodes that have no other place.
    pub(crate) unplaced: Vec<PodGroup<'a>>,
    /// Launches that were reported early.
    pub(crate) early: Vec<Launch>,
    /// All other launches.
    pub(crate) launches: Vec<Draft<'a>>,
    /// Pods of the launches that were reported early, by shape; at the end, pods of all launches.
    pub(crate) demand: Demand,
    /// Pods that must stay in their domain.
    pub(crate) followed: Followed,
    /// Nodes that take pods by this plan and therefore stay.
    pub(crate) busy: BTreeSet<Id<Node>>,
    /// Nodes that the options keep. Unlike `busy` nodes, they do not await pods.
    pub(crate) kept: BTreeSet<Id<Node>>,
    /// Nodes that consolidation would remove if budgets allowed it.
    pub(crate) postponed: Vec<Id<Node>>,
    /// Removed nodes of static pools.
    pub(crate) successors: Successors,
    /// Removals and evictions so far, and what budgets still allow.
    pub(crate) allowance: Allowance<'a>,
}

impl<'a> Removal<'a> {
    fn is_gone(&self, node: Id<Node>) -> bool {
        self.removed.iter().any(|one| one.node == node)
    }

    fn is_open(&self, candidate: &Candidate<'a>) -> bool {
        let node = &candidate.node;
        !self.is_gone(*node) && !self.busy.contains(node) && !self.kept.contains(node)
    }

    /// Records the removal of the node. Its pods are placed elsewhere.
    fn note(&mut self, context: &SolveContext<'a>, candidate: &Candidate<'a>, reason: DisruptionReason) {
        self.allowance.note(context, candidate, reason);
        self.placed_buffer_pods.remove(&candidate.node);
        self.removed.push(candidate.removed(reason));
    }

    /// Removes the node if this is still possible and allowed, and if `place` places its pods after the node is closed.
    /// Returns whether the node is removed.
    fn attempt(
        &mut self,
        context: &SolveContext<'a>,
        state: &mut State,
        candidate: &Candidate<'a>,
        reason: DisruptionReason,
        place: impl FnOnce(&mut State) -> Option<Placed<'a>>,
    ) -> bool {
        if state.work == 0 || !self.is_open(candidate) || !self.allowance.permits(context, candidate, reason) {
            return false;
        }
        let placed = state.trial(|state| {
            state.close(candidate.node);
            place(state).filter(|_| self.followed.permits(context, state, candidate.node))
        });
        let Some(placed) = placed else { return false };
        self.note(context, candidate, reason);
        self.commit(context, placed);
        true
    }

    fn commit(&mut self, context: &SolveContext<'a>, placed: Placed<'a>) {
        self.followed.add(context, &placed);
        for (node, pods) in placed.existing {
            self.busy.insert(node);
            let (pods, placed_buffer_pods) = buffer_pods::apart(&pods);
            if !pods.is_empty() {
                self.existing.entry(node).or_default().extend(pods);
            }
            if !placed_buffer_pods.is_empty() {
                self.placed_buffer_pods.entry(node).or_default().extend(placed_buffer_pods);
            }
        }
        self.launches.extend(placed.launches);
    }
}

/// Adds terminations to `removal`, which contains the expired nodes already.
pub(crate) fn remove<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    plan: &mut Plan,
    removal: &mut Removal<'a>,
    options: &PlanOptions,
) {
    let (found, next) = candidates::find(context, removal);
    plan.next_time = plan.next_time.into_iter().chain(next).min();
    removal.allowance = Allowance::new(context, removal);
    for candidate in found.iter().filter(|one| one.empty) {
        if !removal.is_gone(candidate.node) && removal.allowance.permits(context, candidate, DisruptionReason::Empty) {
            state.close(candidate.node);
            removal.note(context, candidate, DisruptionReason::Empty);
        }
    }
    // Pods may move to initialized nodes only.
    state.search.in_service = true;
    state.moving = true;
    surplus::remove(context, state, removal);
    // Pods that move to a drifted node would soon move again.
    state.search.lasting = true;
    with_half_of_work(state, |state| drift::remove(context, state, &found, removal));
    // Pods may move only to nodes for which `consolidateAfter` has passed.
    state.search.settled = true;
    consolidate::consolidate(context, state, &found, removal, options);
}

/// Takes `step` with half of the work that is left. The other half remains for what follows.
fn with_half_of_work(state: &mut State, step: impl FnOnce(&mut State)) {
    let kept = state.work / 2;
    state.work -= kept;
    step(state);
    state.work += kept;
}
