//! Outcomes of several runs of one plan.

use super::projected::{Assignment, PlannedPod, Replay};
use super::run::{self, RunConfig};
use plimsoll_kubesched::ClusterState;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::Node;
use std::collections::{BTreeMap, BTreeSet};

/// Number of pods that kube-scheduler tries between two nominations by the actuator. The actuator reacts within a tenth
/// of a second. In that time kube-scheduler tries a few pods when it is busy, and all of them when it is idle.
const PACES: [usize; 3] = [2, 5, 1_000];
/// Runs per pace, with the cheapest types and with any types. The first run of each keeps the exact order and scores.
/// The others vary them.
const DRAWS: usize = 4;
/// Factor of runs of [`Outcomes::closely`].
pub(super) const CLOSE: usize = 4;
/// Factor of runs of [`Outcomes::anew`].
pub(super) const ANEW: usize = 8;
/// Number of runs of [`Outcomes::of`].
pub(super) const RUNS: usize = PACES.len() * 2 * DRAWS;

#[derive(Debug, Clone)]
pub(super) struct Outcomes {
    /// Number of runs that strand a pod.
    pub(super) stranding: usize,
    /// How often each slot was stranded.
    pub(super) stranded: BTreeMap<Id<PlannedPod>, usize>,
    /// Assignments of runs on the cheapest types that bind all pods.
    pub(super) whole: BTreeSet<IndexVec<PlannedPod, Id<Node>>>,
    /// Assignments of runs that strand a pod. Those on the cheapest types come first.
    pub(super) broken: BTreeSet<(bool, Assignment)>,
}

impl Outcomes {
    /// Runs the plan. Each run uses different random choices, and the same ones every time.
    pub(super) fn of(replay: &Replay) -> Self {
        Self::many(replay, 0, 1)
    }

    /// Runs the plan [`CLOSE`] times as often with other random choices, since the best of many candidates is partly
    /// lucky.
    pub(super) fn closely(replay: &Replay) -> Self {
        Self::many(replay, 1, CLOSE)
    }

    /// Runs the plan [`ANEW`] times as often, with random choices by which no candidate was selected so far.
    pub(super) fn anew(replay: &Replay) -> Self {
        Self::many(replay, 1 + CLOSE, ANEW)
    }

    /// Like [`Self::anew`], with random choices by which no plan was ever selected.
    pub(super) fn last(replay: &Replay) -> Self {
        Self::many(replay, 1 + CLOSE + ANEW, ANEW)
    }

    fn many(replay: &Replay, from: usize, times: usize) -> Self {
        let mut outcomes =
            Self { stranding: 0, stranded: BTreeMap::new(), whole: BTreeSet::new(), broken: BTreeSet::new() };
        let mut seed = (from * RUNS) as u64;
        let mut state = ClusterState::clone(&replay.state);
        for pace in PACES {
            for any_type in [false, true] {
                for draw in 0..DRAWS * times {
                    seed += 1;
                    let config = RunConfig::nominating(seed, pace, any_type, draw % DRAWS > 0);
                    outcomes.add(run::run(replay, &mut state, config), any_type);
                }
            }
        }
        outcomes
    }

    fn add(&mut self, assignment: Assignment, any_type: bool) {
        if let Some(whole) = assignment.iter().copied().collect::<Option<IndexVec<PlannedPod, Id<Node>>>>() {
            if !any_type {
                self.whole.insert(whole);
            }
            return;
        }
        self.stranding += 1;
        let lost = assignment.iter_enumerated().filter(|(_, place)| place.is_none());
        lost.for_each(|(slot, _)| *self.stranded.entry(slot).or_default() += 1);
        self.broken.insert((any_type, assignment));
    }
}
