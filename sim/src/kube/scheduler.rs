//! A scheduler: binds pending pods to nodes that fit, and says of the others why none does.
//!
//! It knows requests, node selectors and required node affinity, taints, the unschedulable flag and host ports. A pod that is nominated
//! to a node is tried there first, and keeps its room there from pods of the same or a lower priority; a nomination ends when its pod
//! fits nowhere. It does not preempt, and knows neither topology spread nor pod affinity nor volumes.

mod filter;
mod nominations;

use super::Controller;
use super::mirror::Mirror;
use super::view::{NodeView, PodView};
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::apiserver::store::{Key, Part, Store, Write};
use filter::{Rejections, Room};
use jiff::{SignedDuration, Timestamp};
use nominations::Nominations;
use serde_json::json;
use std::collections::BTreeMap;

/// The scheduler whose pods these are.
const NAME: &str = "default-scheduler";
/// A pod that did not fit waits this long after its first attempt, then twice as long after each, up to the maximum.
const BACKOFF_FIRST: SignedDuration = SignedDuration::from_secs(1);
const BACKOFF_MAX: SignedDuration = SignedDuration::from_secs(10);

/// What is remembered of a pod that did not fit.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    count: u32,
    at: Timestamp,
    /// The state of the cluster that it was tried on.
    epoch: u64,
}

impl Attempt {
    fn retry_at(&self) -> Timestamp {
        let doubled = BACKOFF_FIRST.saturating_mul(1_i32.checked_shl(self.count.min(10) - 1).unwrap_or(1));
        self.at.saturating_add(doubled.min(BACKOFF_MAX)).unwrap_or(Timestamp::MAX)
    }
}

/// The scheduler.
#[derive(Debug)]
pub struct Scheduler {
    pods: Mirror<PodView>,
    nodes: Mirror<NodeView>,
    attempts: BTreeMap<String, Attempt>,
    /// Raised by every change that may let a pod fit that did not.
    epoch: u64,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            pods: Mirror::new(ResourceId::PODS, PodView::read),
            nodes: Mirror::new(ResourceId::NODES, NodeView::read),
            attempts: BTreeMap::new(),
            epoch: 0,
        }
    }
}

impl Controller for Scheduler {
    fn watches(&self) -> &'static [ResourceId] {
        &[ResourceId::PODS, ResourceId::NODES]
    }

    fn step(&mut self, store: &mut Store, now: Timestamp) -> Option<Timestamp> {
        self.sync(store);
        let mut next = None;
        let mut due = Vec::new();
        for pod in self.pods.values().filter(|pod| is_pending(pod)) {
            match self.attempts.get(&pod.uid) {
                None => due.push(pod.key.clone()),
                Some(attempt) if attempt.epoch == self.epoch => {}
                Some(attempt) if attempt.retry_at() <= now => due.push(pod.key.clone()),
                Some(attempt) => {
                    let at = attempt.retry_at();
                    next = Some(next.map_or(at, |next: Timestamp| next.min(at)));
                }
            }
        }
        if !due.is_empty() {
            self.place(store, now, due);
        }
        next
    }
}

impl Scheduler {
    fn sync(&mut self, store: &Store) {
        for (key, before) in self.nodes.sync(store) {
            let (old, new) = (before.map(|node| node.signature), self.nodes.get(&key).map(|node| node.signature));
            self.epoch += u64::from(new.is_some() && old != new);
        }
        for (key, before) in self.pods.sync(store) {
            let now = self.pods.get(&key);
            let frees_room = before.as_ref().is_some_and(|pod| !pod.node.is_empty() && !pod.is_over())
                && now.is_none_or(PodView::is_over);
            let was_nominated = before.as_ref().is_some_and(is_nominated);
            let keeps = now.is_some_and(|now| {
                is_nominated(now) && Some(&now.nominated) == before.as_ref().map(|it| &it.nominated)
            });
            let went_there = now.zip(before.as_ref()).is_some_and(|(now, before)| now.node == before.nominated);
            self.epoch += u64::from(frees_room || (was_nominated && !keeps && !went_there));
            let (Some(before), changed) = (before, now.map(|pod| (&pod.uid, pod.shape))) else { continue };
            // Gone, or not the pod it was: what is remembered no longer counts.
            if changed != Some((&before.uid, before.shape)) {
                self.attempts.remove(&before.uid);
            }
        }
    }

    fn place(&mut self, store: &mut Store, now: Timestamp, mut due: Vec<Key>) {
        // Kubernetes' queue: by priority, then by age.
        due.sort_by_cached_key(|key| {
            let pod = self.pods.get(key);
            let age = pod.map(|pod| object::text(&pod.object, &["metadata", "creationTimestamp"]).to_owned());
            (std::cmp::Reverse(pod.map_or(0, |pod| pod.priority)), age, key.clone())
        });
        let mut rooms: Vec<Room<'_>> = self.nodes.values().map(Room::new).collect();
        let index: BTreeMap<&str, usize> =
            rooms.iter().enumerate().map(|(at, room)| (room.node.name.as_str(), at)).collect();
        for pod in self.pods.values().filter(|pod| !pod.is_over()) {
            if let Some(at) = index.get(pod.node.as_str()) {
                rooms[*at].take(pod);
            }
        }
        let mut nominations = Nominations::new(self.pods.values().filter(|pod| is_nominated(pod)), &index);
        // Room only shrinks within a pass, so what did not fit once will not fit again; but for a pod whose own room is kept.
        let mut rejected: BTreeMap<u64, String> = BTreeMap::new();
        let write = Write::new(now, NAME);
        for key in due {
            let Some(pod) = self.pods.get(&key) else { continue };
            if let Some(message) = rejected.get(&pod.shape).filter(|_| pod.nominated.is_empty()) {
                reject(store, pod, message, &write);
            } else {
                match choose(&rooms, &nominations, pod) {
                    Ok(best) => {
                        nominations.end(pod);
                        if store.bind(&key.namespace, &key.name, Some(&pod.uid), &rooms[best].node.name, &write).is_ok()
                        {
                            rooms[best].take(pod);
                            self.attempts.remove(&pod.uid);
                        }
                        continue;
                    }
                    Err(rejections) => {
                        nominations.end(pod);
                        let message = rejections.message(rooms.len());
                        reject(store, pod, &message, &write);
                        rejected.insert(pod.shape, message);
                    }
                }
            }
            let attempt = self.attempts.entry(pod.uid.clone()).or_insert(Attempt { count: 0, at: now, epoch: 0 });
            *attempt = Attempt { count: attempt.count + 1, at: now, epoch: self.epoch };
        }
    }
}

fn is_pending(pod: &PodView) -> bool {
    pod.node.is_empty()
        && pod.is_active()
        && object::text(&pod.object, &["spec", "schedulerName"]) == NAME
        && object::items(&pod.object, &["spec", "schedulingGates"]).is_empty()
}

/// Whether room is kept for the pod.
fn is_nominated(pod: &PodView) -> bool {
    is_pending(pod) && !pod.nominated.is_empty()
}

/// The node that it is nominated to, if it fits there; else the fitting one with the best score, among equals the first by name.
fn choose(rooms: &[Room<'_>], nominations: &Nominations<'_>, pod: &PodView) -> Result<usize, Rejections> {
    let mut rejections = Rejections::default();
    let mut best: Option<(i64, usize)> = None;
    let check = |at: usize, room: &Room<'_>| match nominations.beside(pod, at) {
        kept if kept.is_empty() => room.check(pod),
        kept => {
            let mut fuller = room.clone();
            kept.into_iter().for_each(|other| fuller.take(other));
            fuller.check(pod)
        }
    };
    let nominated = rooms.iter().position(|room| !pod.nominated.is_empty() && room.node.name == pod.nominated);
    if let Some(at) = nominated.filter(|at| check(*at, &rooms[*at]).is_ok()) {
        return Ok(at);
    }
    for (at, room) in rooms.iter().enumerate() {
        match check(at, room) {
            Ok(()) => {
                let score = room.score(pod);
                if best.is_none_or(|(highest, _)| score > highest) {
                    best = Some((score, at));
                }
            }
            Err(rejection) => rejections.add(rejection),
        }
    }
    best.map(|(_, at)| at).ok_or(rejections)
}

fn reject(store: &mut Store, pod: &PodView, message: &str, write: &Write<'_>) {
    let mut new = (*pod.object).clone();
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                           "observedGeneration": object::generation(&new)});
    let ended = object::remove(&mut new, &["status", "nominatedNodeName"]).is_some();
    if object::set_condition(&mut new, condition, write.now) || ended {
        // Deleted or changed in the meantime: then it comes round again.
        let _ = store.update(ResourceId::PODS, &pod.key.namespace, &pod.key.name, Part::Status, new, write);
        tell(store, pod, message, write);
    }
}

/// Writes the event that goes with a rejection.
fn tell(store: &mut Store, pod: &PodView, message: &str, write: &Write<'_>) {
    let now = object::time(write.now);
    let event = json!({
        "metadata": {"generateName": format!("{}.", pod.key.name)},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": pod.key.namespace, "name": pod.key.name, "uid": pod.uid},
        "reason": "FailedScheduling", "message": message, "type": "Warning", "count": 1,
        "firstTimestamp": now, "lastTimestamp": now, "reportingComponent": NAME, "source": {"component": NAME},
    });
    // A namespace on its way out takes no events: nobody will miss this one.
    let _ = store.create(ResourceId::EVENTS, &pod.key.namespace, event, write);
}
