//! What several runs of one plan show.

use super::projected::Replay;
use super::run::{self, RunConfig};
use plimsoll_kubesched::ClusterState;
use std::collections::{BTreeMap, BTreeSet};

/// After how many pods the actuator nominates those that may be by then: it does so within a tenth of a second of a change, in which kube-scheduler takes
/// a few pods where it is busy with others, and all of them where it is not.
const PACES: [usize; 3] = [2, 5, 1_000];
/// Draws for each pace, with the cheapest types and with any. The first of each is in order, the others are loose.
const DRAWS: usize = 4;
/// See [`Outcomes::closely`].
pub(super) const CLOSE: usize = 4;
/// See [`Outcomes::anew`].
pub(super) const ANEW: usize = 8;
/// How many runs there are.
pub(super) const RUNS: usize = PACES.len() * 2 * DRAWS;

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Outcomes {
    /// Runs that strand a pod.
    pub(super) stranding: usize,
    /// Slots that were stranded, and how often.
    pub(super) stranded: BTreeMap<usize, usize>,
    /// Assignments on the cheapest types with all pods bound.
    pub(super) whole: BTreeSet<Vec<usize>>,
    /// Others; those on the cheapest types come first.
    pub(super) broken: BTreeSet<(bool, Vec<Option<usize>>)>,
}

impl Outcomes {
    /// Plays the plan; no two runs draw alike, and all are the same each time.
    pub(super) fn of(replay: &Replay) -> Self {
        Self::many(replay, 0, 1)
    }

    /// Plays it [`CLOSE`] times as often, with other draws: what looks best among many is partly luck.
    pub(super) fn closely(replay: &Replay) -> Self {
        Self::many(replay, 1, CLOSE)
    }

    /// The same once more with other draws: a plan that was chosen by those above does well with them.
    pub(super) fn anew(replay: &Replay) -> Self {
        Self::many(replay, 1 + CLOSE, ANEW)
    }

    /// With draws that nothing was chosen by.
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
                    let config = RunConfig { seed, pace, any_type, loose: draw % DRAWS > 0 };
                    outcomes.add(run::run(replay, &mut state, config), any_type);
                }
            }
        }
        outcomes
    }

    fn add(&mut self, assignment: Vec<Option<usize>>, any_type: bool) {
        if let Some(whole) = assignment.iter().copied().collect::<Option<Vec<usize>>>() {
            if !any_type {
                self.whole.insert(whole);
            }
            return;
        }
        self.stranding += 1;
        let lost = assignment.iter().enumerate().filter(|(_, place)| place.is_none());
        lost.for_each(|(slot, _)| *self.stranded.entry(slot).or_default() += 1);
        self.broken.insert((any_type, assignment));
    }
}
