//! One performance: kube-scheduler takes the pods one after another.

use super::rules::{Guests, Rules};
use super::score;
use super::stage::{Kind, Stage};
use crate::intern::{add, fits};
use plimsoll_model::snapshot::HostPort;
use plimsoll_model::turns::{self, Waiting};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// How often each pod is tried on average at most; a few times are enough.
const ROUNDS: usize = 32;
/// A pod that was refused comes back a second later, when kube-scheduler has taken about so many others, or has none.
const BACKOFF: usize = 100;
/// Of so many pods any may be the next where the order is loose: as many are made at a time.
const NEXT: usize = 8;
/// By how much scores may be off where they are loose, of several hundred: they are not known to the point.
const OFF: u64 = 3;

/// How a performance differs from others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mood {
    /// Where its draws begin.
    pub(super) seed: u64,
    /// After so many pods those that may be nominated by then are.
    pub(super) pace: usize,
    /// Launches are bought as any type that they list, not always as the cheapest.
    pub(super) any_type: bool,
    /// Pods come in about their order, and nodes that are about as good are as good.
    pub(super) loose: bool,
}

/// The cluster while it goes on.
struct Scene<'s> {
    stage: &'s Stage,
    rules: Rules,
    /// By place.
    kinds: Vec<Kind>,
    ports: Vec<Vec<HostPort>>,
    /// By actor.
    ending: Vec<Option<usize>>,
    /// By actor: whether it is nominated to the plan's node.
    nominated: Vec<bool>,
    /// By place: actors that wait for it.
    waiting: Vec<Vec<usize>>,
    draws: u64,
    off: u64,
}

/// Where actors are in the end; `None` where kube-scheduler found no node.
pub(super) fn perform(stage: &Stage, mood: Mood) -> Vec<Option<usize>> {
    let mut scene = Scene::new(stage, mood);
    let mut queue = Queue::new(scene.order(if mood.loose { NEXT } else { 1 }), stage);
    (0..stage.places.len()).for_each(|place| scene.nominate(place));
    let mut changed = Vec::new();
    let (mut tried, mut in_vain) = (0, 0);
    while let Some(actor) = queue.next(tried) {
        tried += 1;
        changed.push(stage.actors[actor].node);
        if let Some(place) = scene.choose(actor) {
            scene.bind(actor, place);
            in_vain = 0;
        } else {
            // kube-scheduler takes the nomination of a pod back that it refuses.
            scene.nominated[actor] = false;
            queue.again(actor, tried + BACKOFF);
            in_vain += 1;
        }
        if tried % mood.pace == 0 || queue.is_idle(tried) {
            changed.drain(..).for_each(|place| scene.nominate(place));
        }
        if in_vain > 2 * queue.len() || tried > ROUNDS * stage.actors.len() {
            break;
        }
    }
    scene.ending
}

/// Pods as kube-scheduler comes to them.
struct Queue {
    /// By priority, then the time from which they wait.
    ready: BTreeSet<(Reverse<i32>, usize, usize)>,
    /// Those that were refused, by the time at which they come back.
    backing_off: BTreeSet<(usize, usize)>,
    priorities: Vec<i32>,
}

impl Queue {
    fn new(order: Vec<usize>, stage: &Stage) -> Self {
        let priorities: Vec<i32> = stage.actors.iter().map(|actor| actor.priority).collect();
        let ready = order.into_iter().enumerate().map(|(at, actor)| (Reverse(priorities[actor]), at, actor));
        Self { ready: ready.collect(), backing_off: BTreeSet::new(), priorities }
    }

    /// The next one once so many were tried; where only some wait that were refused, as soon as the first of them comes back.
    fn next(&mut self, tried: usize) -> Option<usize> {
        let soonest = self.backing_off.first().map(|(due, _)| *due);
        let until = if self.ready.is_empty() { soonest.unwrap_or(tried).max(tried) } else { tried };
        while let Some((due, actor)) = self.backing_off.first().copied().filter(|(due, _)| *due <= until) {
            self.backing_off.pop_first();
            self.ready.insert((Reverse(self.priorities[actor]), due, actor));
        }
        self.ready.pop_first().map(|(_, _, actor)| actor)
    }

    fn again(&mut self, actor: usize, due: usize) {
        self.backing_off.insert((due, actor));
    }

    /// Whether it has nothing to do until a pod comes back.
    fn is_idle(&self, tried: usize) -> bool {
        self.ready.is_empty() && self.backing_off.first().is_none_or(|(due, _)| *due > tried)
    }

    fn len(&self) -> usize {
        self.ready.len() + self.backing_off.len()
    }
}

impl<'s> Scene<'s> {
    fn new(stage: &'s Stage, mood: Mood) -> Self {
        let mut waiting = vec![Vec::new(); stage.places.len()];
        for (number, actor) in stage.actors.iter().enumerate() {
            waiting[actor.node].push(number);
        }
        let mut scene = Self {
            stage,
            rules: stage.rules.clone(),
            kinds: Vec::with_capacity(stage.places.len()),
            ports: stage.places.iter().map(|place| place.ports.clone()).collect(),
            ending: vec![None; stage.actors.len()],
            nominated: vec![false; stage.actors.len()],
            waiting,
            draws: mood.seed,
            off: if mood.loose { OFF } else { 0 },
        };
        for place in &stage.places {
            // As often the cheapest as any of them.
            let any = mood.any_type && scene.draw(2) == 1;
            let kind = if any { scene.draw(place.kinds.len()) } else { 0 };
            scene.kinds.push(place.kinds[kind].clone());
        }
        scene
    }

    /// Actors as kube-scheduler comes to them, each time one of the next so many.
    fn order(&mut self, next: usize) -> Vec<usize> {
        let actors = self.stage.actors.len();
        let mut order: Vec<usize> = (0..actors).collect();
        for at in 0..actors {
            let drawn = self.draw(next.min(actors - at));
            order[at..=at + drawn].rotate_right(1);
        }
        order.sort_by_key(|actor| Reverse(self.stage.actors[*actor].priority));
        order
    }

    /// What the actuator does for pods that wait for that place.
    fn nominate(&mut self, place: usize) {
        let ending = &self.ending;
        self.waiting[place].retain(|actor| ending[*actor].is_none());
        let waiting = &self.waiting[place];
        if waiting.is_empty() {
            return;
        }
        let shape = |actor: &usize| self.stage.actors[*actor].shape;
        if waiting.iter().all(|actor| self.rules.is_plain(shape(actor))) {
            waiting.iter().for_each(|actor| self.nominated[*actor] = true);
            return;
        }
        let mut shapes: Vec<usize> = waiting.iter().map(shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        let one = |actor: &usize| {
            let Some(Ok(kind)) = self.stage.actors.get(*actor).map(|one| shapes.binary_search(&one.shape)) else {
                return Waiting { kind: 0, priority: 0, stands: false };
            };
            Waiting { kind, priority: self.stage.actors[*actor].priority, stands: self.nominated[*actor] }
        };
        let all: Vec<Waiting> = waiting.iter().map(one).collect();
        let may = turns::at_once(&self.rules.kinds(&shapes), &all);
        waiting.iter().zip(may).for_each(|(actor, may)| self.nominated[*actor] = may);
    }

    /// The node that the pod is bound to, if there is one.
    fn choose(&mut self, actor: usize) -> Option<usize> {
        let one = &self.stage.actors[actor];
        if self.nominated[actor] && self.takes(actor, one.node) {
            return Some(one.node);
        }
        let open = self.stage.open[one.shape].iter().copied();
        let places: Vec<usize> = open.filter(|place| self.takes(actor, *place)).collect();
        if let [only] = places[..] {
            return Some(only);
        }
        let crowds: Vec<i64> = places.iter().map(|place| self.rules.crowd(one.shape, *place)).collect();
        let pulls: Vec<i64> = places.iter().map(|place| self.rules.pull(one.shape, *place)).collect();
        let wishes = score::normalized(&crowds, false).into_iter().zip(score::normalized(&pulls, true));
        let mut best = Vec::new();
        let mut most = i64::MIN;
        for (place, (spread, near)) in places.into_iter().zip(wishes) {
            let off = if self.off > 0 { i64::try_from(self.next() % (self.off + 1)).unwrap_or(0) } else { 0 };
            let wish = score::SPREAD * spread + score::NEAR * near;
            let score = score::score(self.stage, &self.kinds[place], one.shape, place) + wish + off;
            if score > most {
                best.clear();
                most = score;
            }
            if score == most {
                best.push(place);
            }
        }
        (!best.is_empty()).then(|| best[self.draw(best.len())])
    }

    /// Whether the node would do, both with the pods that are nominated to it and without.
    fn takes(&self, actor: usize, place: usize) -> bool {
        let stage = self.stage;
        let one = &stage.actors[actor];
        let (requests, own) = (&stage.requests[one.shape], &stage.ports[one.shape]);
        let clash = |ports: &[HostPort]| own.iter().any(|port| ports.iter().any(|other| other.conflicts(port)));
        let alone = fits(requests, &self.kinds[place].free)
            && !clash(&self.ports[place])
            && self.rules.permit(one.shape, place, &Guests::default());
        if !alone {
            return false;
        }
        let mut guests = Guests::default();
        for other in self.waiting[place].iter().filter(|other| **other != actor && self.nominated[**other]) {
            let guest = &stage.actors[*other];
            if guest.priority >= one.priority {
                guests.add(guest.shape);
            }
        }
        if guests.is_empty() {
            return true;
        }
        let mut free = self.kinds[place].free.clone();
        guests.iter().for_each(|(shape, count)| add(&mut free, &stage.requests[shape], -count));
        fits(requests, &free)
            && !guests.iter().any(|(shape, _)| clash(&stage.ports[shape]))
            && self.rules.permit(one.shape, place, &guests)
    }

    fn bind(&mut self, actor: usize, place: usize) {
        let shape = self.stage.actors[actor].shape;
        add(&mut self.kinds[place].free, &self.stage.requests[shape], -1);
        self.ports[place].extend(self.stage.ports[shape].iter().cloned());
        self.rules.add(shape, place);
        self.ending[actor] = Some(place);
        self.nominated[actor] = false;
    }

    /// One of the numbers below `many`, which is not 0.
    fn draw(&mut self, many: usize) -> usize {
        usize::try_from(self.next() % many as u64).unwrap_or(0)
    }

    fn next(&mut self) -> u64 {
        next(&mut self.draws)
    }
}

/// The next number of a sequence that depends on where it began alone: SplitMix64.
pub(super) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
