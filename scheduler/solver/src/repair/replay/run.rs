//! One run of a replay: kube-scheduler binds the pods one after another, and the actuator nominates pods to the nodes
//! of the plan.

use super::projected::{Assignment, PlannedPod, Replay};
use plimsoll_kubesched::queue::Queue;
use plimsoll_kubesched::{ClusterState, Nominated};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::Node;
use std::cmp::Reverse;

/// Bound on attempts per pod, on average. Ends runs in which pods never fit.
const ROUNDS: usize = 32;
/// Number of pods that kube-scheduler tries before a rejected pod is tried again: its backoff is a second.
const BACKOFF: usize = 100;
/// Number of pods whose order may change in a loose run: about as many pods are created at a time.
const NEXT: usize = 8;
/// Maximum noise in a loose run. Scores are several hundred.
const NOISE: u64 = 3;

#[derive(Debug, Clone, Copy)]
pub(super) struct RunConfig {
    /// Seed of the next random choices.
    seed: u64,
    /// The actuator nominates pods each time kube-scheduler has tried this many pods.
    pace: usize,
    /// Whether launches become any listed type instead of always the cheapest.
    any_type: bool,
    /// Number of pods whose order may change: each time, one of so many is next.
    next: usize,
    /// Maximum noise that is added to scores, which are not known exactly.
    noise: u64,
    nominates: bool,
}

impl RunConfig {
    /// A run with nominations. If `loose`, order and scores are only approximately those of kube-scheduler.
    pub(super) fn nominating(seed: u64, pace: usize, any_type: bool, loose: bool) -> Self {
        let (next, noise) = if loose { (NEXT, NOISE) } else { (1, 0) };
        Self { seed, pace, any_type, next, noise, nominates: true }
    }

    /// A run without nominations, in which pods come in any order.
    pub(super) fn unordered(seed: u64) -> Self {
        Self { seed, pace: usize::MAX, any_type: false, next: usize::MAX, noise: NOISE, nominates: false }
    }
}

struct Run<'r> {
    replay: &'r Replay,
    state: &'r mut ClusterState,
    assignment: Assignment,
    /// Whether a slot is nominated to its planned node.
    nominated: IndexVec<PlannedPod, bool>,
    /// Unbound slots by planned node.
    waiting: IndexVec<Node, Vec<Id<PlannedPod>>>,
    config: RunConfig,
}

/// Runs the plan once and returns the node of each slot. `state` is the state of the replay, and is restored.
pub(super) fn run(replay: &Replay, state: &mut ClusterState, config: RunConfig) -> Assignment {
    let start = state.checkpoint();
    let assignment = Run::new(replay, state, config).play();
    state.rollback(start);
    assignment
}

impl<'r> Run<'r> {
    fn new(replay: &'r Replay, state: &'r mut ClusterState, config: RunConfig) -> Self {
        let mut waiting: IndexVec<Node, Vec<Id<PlannedPod>>> = IndexVec::filled(Vec::new(), state.nodes());
        for (id, slot) in replay.slots.iter_enumerated() {
            waiting[slot.node].push(id);
        }
        let mut run = Self {
            replay,
            state,
            assignment: IndexVec::filled(None, replay.slots.len()),
            nominated: IndexVec::filled(false, replay.slots.len()),
            waiting,
            config,
        };
        for (node, machines) in replay.machines.iter_enumerated() {
            // The cheapest type is as likely as a random type.
            let any = config.any_type && run.draw(2) == 1;
            let machine = if any { run.draw(machines.len()) } else { 0 };
            if let Some(other) = machines.get(machine).filter(|_| machine > 0) {
                run.state.resize(node.number(), other.clone());
            }
        }
        run
    }

    fn play(mut self) -> Assignment {
        let order = self.order();
        let (slots, config) = (&self.replay.slots, self.config);
        let mut queue = Queue::new(order, slots.iter().map(|slot| slot.priority).collect());
        if config.nominates {
            self.waiting.ids().for_each(|node| self.nominate(node));
        }
        let mut changed = Vec::new();
        let (mut tried, mut in_vain) = (0, 0);
        while let Some(number) = queue.pop(tried) {
            let slot = Id::new(number);
            tried += 1;
            changed.push(slots[slot].node);
            if let Some(node) = self.choose(slot) {
                self.state.bind(slots[slot].shape.number(), node.number());
                self.assignment[slot] = Some(node);
                self.nominated[slot] = false;
                in_vain = 0;
            } else {
                // kube-scheduler clears the nomination of a pod that it rejects.
                self.nominated[slot] = false;
                queue.back_off(number, tried + BACKOFF);
                in_vain += 1;
            }
            if config.nominates && (tried % config.pace == 0 || queue.is_idle(tried)) {
                changed.drain(..).for_each(|node| self.nominate(node));
            }
            if in_vain > 2 * queue.len() || tried > ROUNDS * slots.len() {
                break;
            }
        }
        self.assignment
    }

    /// Order in which kube-scheduler tries slots: each time one of the `next` ones.
    fn order(&mut self) -> Vec<usize> {
        let slots = self.replay.slots.len();
        let mut order: Vec<usize> = (0..slots).collect();
        for at in 0..slots {
            let drawn = self.draw(self.config.next.min(slots - at));
            if let Some(part) = order.get_mut(at..=at + drawn) {
                part.rotate_right(1);
            }
        }
        order.sort_by_key(|slot| Reverse(self.replay.slots[Id::new(*slot)].priority));
        order
    }

    /// Nominates pending pods to their node, as the actuator does.
    fn nominate(&mut self, node: Id<Node>) {
        let assignment = &self.assignment;
        self.waiting[node].retain(|slot| assignment[*slot].is_none());
        let waiting = &self.waiting[node];
        if waiting.is_empty() {
            return;
        }
        let candidate = |slot: &Id<PlannedPod>| (self.replay.slots[*slot].shape.number(), self.nominated[*slot]);
        let candidates: Vec<(usize, bool)> = waiting.iter().map(candidate).collect();
        let admitted = self.state.admissible(&candidates);
        waiting.iter().zip(admitted).for_each(|(slot, admitted)| self.nominated[*slot] = admitted);
    }

    /// The node that kube-scheduler binds the pod to, if any.
    fn choose(&mut self, slot: Id<PlannedPod>) -> Option<Id<Node>> {
        let pod = &self.replay.slots[slot];
        if self.nominated[slot] && self.fits(slot, pod.node) {
            return Some(pod.node);
        }
        let open = self.replay.open[pod.shape].iter().copied();
        let nodes: Vec<usize> = open.filter(|node| self.fits(slot, *node)).map(Id::number).collect();
        if let [only] = nodes.as_slice() {
            return Some(Id::new(*only));
        }
        let scores = self.state.scores(pod.shape.number(), &nodes);
        let mut best = Vec::new();
        let mut highest = i64::MIN;
        for (node, score) in nodes.into_iter().zip(scores) {
            let most = self.config.noise;
            let noise = if most > 0 { i64::try_from(self.next() % (most + 1)).unwrap_or(0) } else { 0 };
            if score + noise > highest {
                best.clear();
                highest = score + noise;
            }
            if score + noise == highest {
                best.push(Id::new(node));
            }
        }
        if best.is_empty() { None } else { best.get(self.draw(best.len())).copied() }
    }

    /// Whether the pod fits both with and without the pods nominated to the node.
    fn fits(&self, slot: Id<PlannedPod>, node: Id<Node>) -> bool {
        let pod = &self.replay.slots[slot];
        if self.state.filter_pods(pod.shape.number(), node.number()).is_err() {
            return false;
        }
        let mut nominated = Nominated::default();
        for other in self.waiting[node].iter().filter(|other| **other != slot && self.nominated[**other]) {
            let other = &self.replay.slots[*other];
            if other.priority >= pod.priority {
                nominated.add(other.shape.number());
            }
        }
        nominated.is_empty() || self.state.filter_beside(pod.shape.number(), node.number(), &nominated).is_ok()
    }

    /// A random number below `many`, which must not be 0.
    fn draw(&mut self, many: usize) -> usize {
        usize::try_from(self.next() % many as u64).unwrap_or(0)
    }

    fn next(&mut self) -> u64 {
        next(&mut self.config.seed)
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
