//! The same nodes with the pods elsewhere on them, so that fewer runs strand one.

use super::outcomes::{CLOSE, Outcomes, RUNS};
use super::projected::Replay;
use super::run::next;
use super::{Inputs, edit};
use crate::input::intern::add;
use plimsoll_model::plan::Plan;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Looks of pods at nodes that the search for one plan may take: a tenth of a second or less, for one plan of a hundred; and a search for one of several
/// plans among which there is to be a choice.
pub(super) const ALONE: usize = 1_000_000;
pub(super) const AMONG: usize = 200_000;
/// Those of the best that are looked at anew.
const FINALISTS: usize = 8;
/// Exchanges of pods that are tried, if assignments do not do.
const EXCHANGES: usize = 300;
/// Exchanges that are drawn for it: most do not fit.
const DRAWS: usize = 3_000;

/// A plan of which fewer runs strand a pod, if one is found in so many `looks`, and how many do when it is looked at closely. `replay` is of `plan`.
pub(super) fn better(inputs: Inputs<'_>, plan: &Plan, replay: Replay, looks: usize) -> (Option<Plan>, usize) {
    let after = Rc::clone(&replay.after);
    let left = looks / (replay.looks() * RUNS).max(1);
    let (outcomes, closely) = (Outcomes::of(&replay), Outcomes::closely(&replay));
    let before = Outcomes::anew(&replay).stranding;
    let mut search = Search { steps: Vec::new(), replay, outcomes, closely: closely.stranding, left };
    search.among_assignments(closely.whole);
    search.among_exchanges();
    // With the draws that they were chosen by, the last ones do better than they are.
    let finalists = search.steps.into_iter().rev().take(FINALISTS);
    let mut finalists: Vec<(usize, Replay)> = finalists
        .map(|replay| (Outcomes::anew(&replay).stranding, replay))
        .filter(|(still, _)| *still < before)
        .collect();
    finalists.sort_by_key(|(still, _)| *still);
    // What is not an assignment may not be valid.
    for (still, replay) in finalists {
        let Some(adopted) = edit::with(inputs, plan, &after.nodes, &replay.targets().into()) else { continue };
        // Without a node that has no pod any more it goes otherwise.
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
    /// What was better than all before it.
    steps: Vec<Replay>,
    /// The best so far.
    replay: Replay,
    outcomes: Outcomes,
    /// Runs of it that strand a pod, looked at closely.
    closely: usize,
    /// How many more may be run.
    left: usize,
}

impl Search {
    /// Goes from `assignments` to assignments of the best of those, as long as they become better.
    fn among_assignments(&mut self, mut assignments: BTreeSet<Vec<usize>>) {
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

    /// Lets pods change places.
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

    /// Takes `other` if it is as good as the best so far, or better: with other ways on. Whether it is better; `None` if nothing more is to be run.
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

    /// The best so far with a pod or two elsewhere, as often as not one that was stranded.
    fn exchanged(&self, draws: &mut u64) -> Option<Replay> {
        let mut draw = |many: usize| usize::try_from(next(draws) % many.max(1) as u64).unwrap_or(0);
        let mut places: Vec<usize> = self.replay.slots.iter().map(|slot| slot.node).collect();
        for _ in 0..=draw(2) {
            let lost = self.outcomes.stranded.len();
            let one = if draw(2) == 0 { *self.outcomes.stranded.keys().nth(draw(lost))? } else { draw(places.len()) };
            let other = draw(places.len());
            let (here, there) = (places[one], places[other]);
            if draw(2) == 0 {
                places[other] = here;
            }
            places[one] = there;
        }
        let replay = &self.replay;
        let mut free: Vec<_> =
            (0..replay.state.nodes()).map(|node| replay.state.machine(node).free().to_vec()).collect();
        for (slot, place) in replay.slots.iter().zip(&places) {
            if !replay.open[slot.shape].contains(place) {
                return None;
            }
            add(&mut free[*place], replay.state.requests(slot.shape), -1);
        }
        let changed = replay.slots.iter().zip(&places).any(|(slot, place)| slot.node != *place);
        let fits = free.iter().flatten().all(|amount| *amount >= 0);
        (changed && fits).then(|| replay.with(&places))
    }
}
