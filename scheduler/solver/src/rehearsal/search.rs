//! The same nodes with the pods elsewhere on them, so that fewer performances strand one.

use super::replay::Replay;
use super::run::next;
use super::shown::{CLOSE, PERFORMANCES, Shown};
use super::{Question, adopt};
use crate::intern::add;
use plimsoll_model::plan::Plan;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Looks of pods at nodes that the search for one plan may take: a tenth of a second or less, for one plan of a hundred; and a search for one of several
/// plans among which there is to be a choice.
pub(super) const ALONE: usize = 1_000_000;
pub(super) const AMONG: usize = 200_000;
/// Those of the best that are looked at anew.
const FINALISTS: usize = 8;
/// Exchanges of pods that are tried, if endings do not do.
const EXCHANGES: usize = 300;
/// Exchanges that are drawn for it: most do not fit.
const DRAWS: usize = 3_000;

/// A plan of which fewer performances strand a pod, if one is found in so many `looks`, and how many do when it is looked at closely. `replay` is of `plan`.
pub(super) fn better(question: Question<'_>, plan: &Plan, replay: Replay, looks: usize) -> (Option<Plan>, usize) {
    let after = Rc::clone(&replay.after);
    let left = looks / (replay.looks() * PERFORMANCES).max(1);
    let (shown, closely) = (Shown::of(&replay), Shown::closely(&replay));
    let before = Shown::anew(&replay).stranding;
    let mut search = Search { steps: Vec::new(), replay, shown, closely: closely.stranding, left };
    search.among_endings(closely.whole);
    search.among_exchanges();
    // With the draws that they were chosen by, the last ones do better than they are.
    let finalists = search.steps.into_iter().rev().take(FINALISTS);
    let mut finalists: Vec<(usize, Replay)> =
        finalists.map(|replay| (Shown::anew(&replay).stranding, replay)).filter(|(still, _)| *still < before).collect();
    finalists.sort_by_key(|(still, _)| *still);
    // What is not an ending may not be valid.
    for (still, replay) in finalists {
        let Some(adopted) = adopt::with(question, plan, &after.nodes, &replay.targets().into()) else { continue };
        // Without a node that has no pod any more it goes otherwise.
        let fewer = adopted.launches.len() < plan.launches.len();
        let anew = || Replay::new(question, &adopted).map(|replay| Shown::anew(&replay).stranding);
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
    shown: Shown,
    /// Performances of it that strand a pod, looked at closely.
    closely: usize,
    /// How many more may be played.
    left: usize,
}

impl Search {
    /// Goes from `endings` to endings of the best of those, as long as they become better.
    fn among_endings(&mut self, mut endings: BTreeSet<Vec<usize>>) {
        while self.closely > 0 && !endings.is_empty() {
            let mut improved = false;
            let from = self.replay.clone();
            for ending in std::mem::take(&mut endings) {
                improved |= self.attempt(from.with(&ending)) == Some(true);
            }
            if improved {
                endings.clone_from(&self.shown.whole);
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

    /// Takes `other` if it is as good as the best so far, or better: with other ways on. Whether it is better; `None` if nothing more is to be played.
    fn attempt(&mut self, other: Replay) -> Option<bool> {
        self.left = self.left.checked_sub(1)?;
        let shown = Shown::of(&other);
        if shown.stranding > self.shown.stranding || shown.whole.is_empty() {
            return Some(false);
        }
        self.left = self.left.checked_sub(CLOSE)?;
        let closely = Shown::closely(&other).stranding;
        let better = closely < self.closely;
        if better {
            self.steps.push(other.clone());
        }
        if closely <= self.closely {
            (self.replay, self.shown, self.closely) = (other, shown, closely);
        }
        Some(better)
    }

    /// The best so far with a pod or two elsewhere, as often as not one that was stranded.
    fn exchanged(&self, draws: &mut u64) -> Option<Replay> {
        let mut draw = |many: usize| usize::try_from(next(draws) % many.max(1) as u64).unwrap_or(0);
        let mut places: Vec<usize> = self.replay.slots.iter().map(|slot| slot.node).collect();
        for _ in 0..=draw(2) {
            let lost = self.shown.stranded.len();
            let one = if draw(2) == 0 { *self.shown.stranded.keys().nth(draw(lost))? } else { draw(places.len()) };
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
