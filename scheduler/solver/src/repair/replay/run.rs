//! One run of a replay: kube-scheduler takes the pods one after another, and the actuator nominates pods to the plan's
//! nodes.

use super::projected::Replay;
use plimsoll_kubesched::queue::Queue;
use plimsoll_kubesched::{ClusterState, Nominated};
use std::cmp::Reverse;

/// Attempts per pod on average; a few are enough.
const ROUNDS: usize = 32;
/// Pods that kube-scheduler takes before a refused pod is tried again: its back-off is a second.
const BACKOFF: usize = 100;
/// How many pods may change their order in a loose run: pods are created about that many at a time.
const NEXT: usize = 8;
/// Most that is added to scores in a loose run. Scores are several hundred and not known exactly.
const NOISE: u64 = 3;

/// How a run differs from others.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunConfig {
    /// Start of its draws.
    pub(super) seed: u64,
    /// The actuator nominates each time so many pods were tried.
    pub(super) pace: usize,
    /// Launches are bought as any listed type, not always as the cheapest.
    pub(super) any_type: bool,
    /// Order and scores are only roughly those of kube-scheduler.
    pub(super) loose: bool,
}

/// A run in progress.
struct Run<'r> {
    replay: &'r Replay,
    state: &'r mut ClusterState,
    /// By slot: the node that it is bound to.
    assignment: Vec<Option<usize>>,
    /// By slot: whether it is nominated to the plan's node.
    nominated: Vec<bool>,
    /// By node: slots that wait for it.
    waiting: Vec<Vec<usize>>,
    draws: u64,
    noise: u64,
}

/// Runs the plan once and returns the node of each slot, or `None` where kube-scheduler found none. `state` is the
/// replay's, and is restored.
pub(super) fn run(replay: &Replay, state: &mut ClusterState, config: RunConfig) -> Vec<Option<usize>> {
    let start = state.checkpoint();
    let assignment = Run::new(replay, state, config).play(config);
    state.rollback(start);
    assignment
}

impl<'r> Run<'r> {
    fn new(replay: &'r Replay, state: &'r mut ClusterState, config: RunConfig) -> Self {
        let mut waiting = vec![Vec::new(); state.nodes()];
        for (number, slot) in replay.slots.iter().enumerate() {
            waiting[slot.node].push(number);
        }
        let mut run = Self {
            replay,
            state,
            assignment: vec![None; replay.slots.len()],
            nominated: vec![false; replay.slots.len()],
            waiting,
            draws: config.seed,
            noise: if config.loose { NOISE } else { 0 },
        };
        for (node, machines) in replay.machines.iter().enumerate() {
            // The cheapest type as often as any type.
            let any = config.any_type && run.draw(2) == 1;
            let machine = if any { run.draw(machines.len()) } else { 0 };
            if machine > 0 {
                run.state.resize(node, machines[machine].clone());
            }
        }
        run
    }

    fn play(mut self, config: RunConfig) -> Vec<Option<usize>> {
        let order = self.order(if config.loose { NEXT } else { 1 });
        let slots = &self.replay.slots;
        let mut queue = Queue::new(order, slots.iter().map(|slot| slot.priority).collect());
        (0..self.waiting.len()).for_each(|node| self.nominate(node));
        let mut changed = Vec::new();
        let (mut tried, mut in_vain) = (0, 0);
        while let Some(slot) = queue.pop(tried) {
            tried += 1;
            changed.push(slots[slot].node);
            if let Some(node) = self.choose(slot) {
                self.state.bind(slots[slot].shape, node);
                self.assignment[slot] = Some(node);
                self.nominated[slot] = false;
                in_vain = 0;
            } else {
                // kube-scheduler clears the nomination of a pod that it refuses.
                self.nominated[slot] = false;
                queue.back_off(slot, tried + BACKOFF);
                in_vain += 1;
            }
            if tried % config.pace == 0 || queue.is_idle(tried) {
                changed.drain(..).for_each(|node| self.nominate(node));
            }
            if in_vain > 2 * queue.len() || tried > ROUNDS * slots.len() {
                break;
            }
        }
        self.assignment
    }

    /// Order in which kube-scheduler takes slots: each time one of the `next`.
    fn order(&mut self, next: usize) -> Vec<usize> {
        let slots = self.replay.slots.len();
        let mut order: Vec<usize> = (0..slots).collect();
        for at in 0..slots {
            let drawn = self.draw(next.min(slots - at));
            order[at..=at + drawn].rotate_right(1);
        }
        order.sort_by_key(|slot| Reverse(self.replay.slots[*slot].priority));
        order
    }

    /// Nominates pods that wait for the node, as the actuator does.
    fn nominate(&mut self, node: usize) {
        let assignment = &self.assignment;
        self.waiting[node].retain(|slot| assignment[*slot].is_none());
        let waiting = &self.waiting[node];
        if waiting.is_empty() {
            return;
        }
        let candidate = |slot: &usize| (self.replay.slots[*slot].shape, self.nominated[*slot]);
        let candidates: Vec<(usize, bool)> = waiting.iter().map(candidate).collect();
        let admitted = self.state.admissible(&candidates);
        waiting.iter().zip(admitted).for_each(|(slot, admitted)| self.nominated[*slot] = admitted);
    }

    /// The node that kube-scheduler binds the pod to, if any.
    fn choose(&mut self, slot: usize) -> Option<usize> {
        let pod = &self.replay.slots[slot];
        if self.nominated[slot] && self.fits(slot, pod.node) {
            return Some(pod.node);
        }
        let open = self.replay.open[pod.shape].iter().copied();
        let nodes: Vec<usize> = open.filter(|node| self.fits(slot, *node)).collect();
        if let [only] = nodes[..] {
            return Some(only);
        }
        let scores = self.state.scores(pod.shape, &nodes);
        let mut best = Vec::new();
        let mut highest = i64::MIN;
        for (node, score) in nodes.into_iter().zip(scores) {
            let noise = if self.noise > 0 { i64::try_from(self.next() % (self.noise + 1)).unwrap_or(0) } else { 0 };
            if score + noise > highest {
                best.clear();
                highest = score + noise;
            }
            if score + noise == highest {
                best.push(node);
            }
        }
        (!best.is_empty()).then(|| best[self.draw(best.len())])
    }

    /// Whether the pod fits both with and without the pods nominated to the node.
    fn fits(&self, slot: usize, node: usize) -> bool {
        let pod = &self.replay.slots[slot];
        if self.state.filter_pods(pod.shape, node).is_err() {
            return false;
        }
        let mut nominated = Nominated::default();
        for other in self.waiting[node].iter().filter(|other| **other != slot && self.nominated[**other]) {
            let other = &self.replay.slots[*other];
            if other.priority >= pod.priority {
                nominated.add(other.shape);
            }
        }
        nominated.is_empty() || self.state.filter_beside(pod.shape, node, &nominated).is_ok()
    }

    /// A number below `many`, which is not 0.
    fn draw(&mut self, many: usize) -> usize {
        usize::try_from(self.next() % many as u64).unwrap_or(0)
    }

    fn next(&mut self) -> u64 {
        next(&mut self.draws)
    }
}

/// The next number of SplitMix64.
pub(super) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
