//! Exchanges pods between the nodes of a plan, so that fewer runs strand a pod.

use super::Inputs;
use super::outcomes::{CLOSE, Outcomes, RUNS};
use super::projected::{PlannedPod, Replay};
use super::run::next;
use crate::input::intern::{Amounts, add};
use crate::repair::edit::{self, Change};
use crate::retries;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::Node;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Maximum number of checks of pods against nodes in a search: at most a tenth of a second for a single plan, and less
/// for one of several candidates.
pub(super) const ALONE: usize = 1_000_000;
pub(super) const AMONG: usize = 200_000;
/// Maximum number of random exchanges that are tried if no assignment of a run helps.
const EXCHANGES: usize = 300;
/// Maximum number of random exchanges that are drawn. Most do not fit.
const DRAWS: usize = 3_000;

/// Returns a plan with the pods of `plan` on other nodes that strands a pod in fewer runs, and its number of stranding
/// runs. The search uses at most `looks` checks. `replay` belongs to `plan`.
pub(super) fn better(inputs: Inputs<'_>, plan: &Plan, replay: Replay, looks: usize) -> (Option<Plan>, usize) {
    let after = Rc::clone(&replay.after);
    let left = looks / (replay.looks() * RUNS).max(1);
    let (outcomes, closely) = (Outcomes::of(&replay), Outcomes::closely(&replay));
    let before = Outcomes::anew(&replay).stranding;
    let mut search = Search { steps: Vec::new(), replay, outcomes, closely: closely.stranding, left };
    search.among_assignments(closely.whole);
    search.among_exchanges();
    // Uses other random choices: the search prefers candidates that were lucky with the previous ones.
    let finalists = search.steps.into_iter().rev().take(retries::SEVERAL);
    let mut finalists: Vec<(usize, Replay)> = finalists
        .map(|replay| (Outcomes::anew(&replay).stranding, replay))
        .filter(|(still, _)| *still < before)
        .collect();
    finalists.sort_by_key(|(still, _)| *still);
    // An exchange may be invalid, unlike the assignment of a run.
    for (still, replay) in finalists {
        let change = Change { targets: replay.targets(), ..Change::default() };
        let Some(adopted) = edit::with(inputs, plan, &after.nodes, &change) else { continue };
        // The plan behaves differently without its empty nodes.
        let fewer = adopted.launches.len() < plan.launches.len();
        let anew = || Replay::new(inputs, &adopted).map(|replay| Outcomes::anew(&replay).stranding);
        match if fewer { anew() } else { Some(still) } {
            Some(still) if still < before => return (Some(adopted), still),
            _ => {}
        }
    }
    (None, before)
}

struct Search {
    /// Candidates, each better than all before it.
    steps: Vec<Replay>,
    /// The best candidate so far.
    replay: Replay,
    outcomes: Outcomes,
    /// Number of stranding runs of the best candidate, in [`CLOSE`] times as many runs.
    closely: usize,
    /// Number of candidates that may still be run.
    left: usize,
}

impl Search {
    /// Tries `assignments`, then the final assignments of the best candidate's runs, as long as the result improves.
    fn among_assignments(&mut self, mut assignments: BTreeSet<IndexVec<PlannedPod, Id<Node>>>) {
        while self.closely > 0 && !assignments.is_empty() {
            let mut improved = false;
            let from = self.replay.clone();
            for assignment in std::mem::take(&mut assignments) {
                improved |= self.attempt(from.with(&assignment)) == Some(true);
            }
            if improved {
                assignments.clone_from(&self.outcomes.whole);
            }
        }
    }

    /// Tries random exchanges of pods.
    fn among_exchanges(&mut self) {
        let (mut draws, mut tried) = (0, 0);
        for _ in 0..DRAWS {
            if self.closely == 0 || tried == EXCHANGES {
                return;
            }
            let Some(other) = self.exchanged(&mut draws) else { continue };
            tried += 1;
            if self.attempt(other).is_none() {
                return;
            }
        }
    }

    /// Makes `other` the best candidate if it is at least as good. Returns whether it is better, or `None` if
    /// no run is left.
    fn attempt(&mut self, other: Replay) -> Option<bool> {
        self.left = self.left.checked_sub(1)?;
        let outcomes = Outcomes::of(&other);
        if outcomes.stranding > self.outcomes.stranding || outcomes.whole.is_empty() {
            return Some(false);
        }
        self.left = self.left.checked_sub(CLOSE)?;
        let closely = Outcomes::closely(&other).stranding;
        let better = closely < self.closely;
        if better {
            self.steps.push(other.clone());
        }
        if closely <= self.closely {
            (self.replay, self.outcomes, self.closely) = (other, outcomes, closely);
        }
        Some(better)
    }

    /// The best candidate with one or two pods moved at random; every second time a stranded pod is moved.
    fn exchanged(&self, draws: &mut u64) -> Option<Replay> {
        let mut draw = |many: usize| usize::try_from(next(draws) % many.max(1) as u64).unwrap_or(0);
        let mut places: IndexVec<PlannedPod, Id<Node>> = self.replay.slots.iter().map(|slot| slot.node).collect();
        for _ in 0..=draw(2) {
            let lost = self.outcomes.stranded.len();
            let one = if draw(2) == 0 {
                *self.outcomes.stranded.keys().nth(draw(lost))?
            } else {
                Id::new(draw(places.len()))
            };
            let other = Id::new(draw(places.len()));
            let (here, there) = (places[one], places[other]);
            if draw(2) == 0 {
                places[other] = here;
            }
            places[one] = there;
        }
        let replay = &self.replay;
        let mut free: IndexVec<Node, Amounts> =
            (0..replay.state.nodes()).map(|node| replay.state.machine(node).free().to_vec()).collect();
        for (slot, place) in replay.slots.iter().zip(&places) {
            if !replay.open[slot.shape].contains(place) {
                return None;
            }
            add(&mut free[*place], replay.requests(slot), -1);
        }
        let changed = replay.slots.iter().zip(&places).any(|(slot, place)| slot.node != *place);
        let fits = free.iter().flatten().all(|amount| *amount >= 0);
        (changed && fits).then(|| replay.with(&places))
    }
}
