//! A scheduler: binds pending pods to nodes that fit, and reports why the others fit nowhere.
//!
//! Filters and scores are those of `plimsoll-kubesched`. The nominated node of a pod is tried first, and its capacity
//! is reserved against pods of the same or a lower priority. A nomination ends when its pod fits nowhere. There is no
//! preemption. A claim without a volume does not block its pod.

mod cluster;
mod nominations;
mod rejections;
mod shape;

use super::Controller;
use super::mirror::Mirror;
use super::view::{NodeView, PodView};
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::apiserver::store::{Key, Object, Part, Store, Write};
use cluster::{PlacementObjects, SchedulerCluster};
use jiff::{SignedDuration, Timestamp};
use nominations::Nominations;
use rejections::Rejections;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Scheduler name of the pods that this scheduler handles.
const NAME: &str = "default-scheduler";
/// Backoff after the first failed attempt. It doubles with each attempt, up to the maximum.
const BACKOFF_FIRST: SignedDuration = SignedDuration::from_secs(1);
const BACKOFF_MAX: SignedDuration = SignedDuration::from_secs(10);

/// The last failed attempt of a pod.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    count: u32,
    at: Timestamp,
    /// State of the cluster at the attempt.
    epoch: Epoch,
}

/// Counters of changes in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Epoch {
    /// Changes that can make any pending pod fit.
    nodes: u64,
    /// Pods that were bound or removed. These changes can make pods fit that depend on other pods.
    pods: u64,
}

impl Epoch {
    /// Whether a pod that did not fit at this time may fit `now`.
    fn is_outdated(self, now: Self, pod: &PodView) -> bool {
        self.nodes != now.nodes || (self.pods != now.pods && looks_at_pods(pod))
    }
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
    namespaces: Mirror<Object>,
    claims: Mirror<Object>,
    volumes: Mirror<Object>,
    csi_nodes: Mirror<Object>,
    attempts: BTreeMap<String, Attempt>,
    epoch: Epoch,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            pods: Mirror::new(ResourceId::PODS, PodView::read),
            nodes: Mirror::new(ResourceId::NODES, NodeView::read),
            namespaces: Mirror::new(ResourceId::NAMESPACES, Object::clone),
            claims: Mirror::new(ResourceId::PERSISTENT_VOLUME_CLAIMS, Object::clone),
            volumes: Mirror::new(ResourceId::PERSISTENT_VOLUMES, Object::clone),
            csi_nodes: Mirror::new(ResourceId::CSI_NODES, Object::clone),
            attempts: BTreeMap::new(),
            epoch: Epoch::default(),
        }
    }
}

impl Controller for Scheduler {
    fn watches(&self) -> &'static [ResourceId] {
        &[
            ResourceId::PODS,
            ResourceId::NODES,
            ResourceId::NAMESPACES,
            ResourceId::PERSISTENT_VOLUME_CLAIMS,
            ResourceId::PERSISTENT_VOLUMES,
            ResourceId::CSI_NODES,
        ]
    }

    fn step(&mut self, store: &mut Store, now: Timestamp) -> Option<Timestamp> {
        self.sync(store);
        let mut next = None;
        let mut due = BTreeSet::new();
        for pod in self.pods.values().filter(|pod| is_pending(pod)) {
            match self.attempts.get(&pod.uid) {
                None => drop(due.insert(pod.key.clone())),
                Some(attempt) if !attempt.epoch.is_outdated(self.epoch, pod) => {}
                Some(attempt) if attempt.retry_at() <= now => drop(due.insert(pod.key.clone())),
                Some(attempt) => {
                    let at = attempt.retry_at();
                    next = Some(next.map_or(at, |next: Timestamp| next.min(at)));
                }
            }
        }
        if !due.is_empty() {
            self.place(store, now, &due);
        }
        next
    }
}

impl Scheduler {
    fn sync(&mut self, store: &Store) {
        for (key, before) in self.nodes.sync(store) {
            let (old, new) = (before.map(|node| node.signature), self.nodes.get(&key).map(|node| node.signature));
            self.epoch.nodes += u64::from(new.is_some() && old != new);
        }
        for mirror in [&mut self.namespaces, &mut self.claims, &mut self.volumes, &mut self.csi_nodes] {
            self.epoch.nodes += u64::from(!mirror.sync(store).is_empty());
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
            self.epoch.nodes += u64::from(frees_room || (was_nominated && !keeps && !went_there));
            let node = |pod: Option<&PodView>| pod.map(|pod| (pod.node.clone(), pod.is_active()));
            self.epoch.pods += u64::from(node(before.as_ref()) != node(now));
            let (Some(before), changed) = (before, now.map(|pod| (&pod.uid, pod.shape))) else { continue };
            // The pod was deleted or replaced, so its last attempt no longer counts.
            if changed != Some((&before.uid, before.shape)) {
                self.attempts.remove(&before.uid);
            }
        }
    }

    fn place(&mut self, store: &mut Store, now: Timestamp, due: &BTreeSet<Key>) {
        let objects = PlacementObjects {
            namespaces: self.namespaces.values().collect(),
            claims: self.claims.iter().collect(),
            volumes: self.volumes.values().map(|volume| (object::name(volume), volume)).collect(),
            csi_nodes: self.csi_nodes.values().map(|node| (object::name(node), node)).collect(),
        };
        let mut cluster = SchedulerCluster::new(self.nodes.values(), self.pods.values(), &objects, is_pending);
        let by_uid: BTreeMap<&str, &PodView> = self.pods.values().map(|pod| (pod.uid.as_str(), pod)).collect();
        let slots = cluster.state.pods().to_vec();
        let pods = slots.iter().filter_map(|slot| Some((slot.shape, *by_uid.get(slot.uid.as_str())?)));
        let pods: Vec<(usize, &PodView)> = pods.collect();
        let mut nominations = Nominations::new(&pods, &cluster);
        // A pod that does not depend on other pods and does not fit once in a pass does not fit later in the pass: free
        // capacity only decreases.
        let mut rejected: BTreeMap<usize, String> = BTreeMap::new();
        let write = Write::new(now, NAME);
        // In the order of kube-scheduler's queue.
        for (shape, pod) in pods.into_iter().filter(|(_, pod)| due.contains(&pod.key)) {
            let known = rejected.get(&shape).filter(|_| pod.nominated.is_empty() && !looks_at_pods(pod));
            if let Some(message) = known {
                reject(store, pod, message, &write);
            } else {
                match choose(&cluster, &nominations, shape, pod) {
                    Ok(best) => {
                        nominations.end(pod);
                        let name = cluster.state.node_name(best).as_str();
                        if store.bind(&pod.key.namespace, &pod.key.name, Some(&pod.uid), name, &write).is_ok() {
                            cluster.state.bind(shape, best);
                            self.attempts.remove(&pod.uid);
                        }
                        continue;
                    }
                    Err(rejections) => {
                        nominations.end(pod);
                        let message = rejections.message(cluster.state.nodes());
                        reject(store, pod, &message, &write);
                        rejected.insert(shape, message);
                    }
                }
            }
            let attempt =
                self.attempts.entry(pod.uid.clone()).or_insert(Attempt { count: 0, at: now, epoch: self.epoch });
            *attempt = Attempt { count: attempt.count + 1, at: now, epoch: self.epoch };
        }
    }
}

/// Whether the placement of the pod depends on other pods.
fn looks_at_pods(pod: &PodView) -> bool {
    let has = |path: &[&str]| !object::items(&pod.object, path).is_empty();
    let affinity = |kind| has(&["spec", "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution"]);
    has(&["spec", "topologySpreadConstraints"]) || affinity("podAffinity") || affinity("podAntiAffinity")
}

fn is_pending(pod: &PodView) -> bool {
    pod.node.is_empty()
        && pod.is_active()
        && object::text(&pod.object, &["spec", "schedulerName"]) == NAME
        && object::items(&pod.object, &["spec", "schedulingGates"]).is_empty()
}

/// Whether capacity is reserved for the pod.
fn is_nominated(pod: &PodView) -> bool {
    is_pending(pod) && !pod.nominated.is_empty()
}

/// The nominated node if the pod fits there; otherwise the fitting node with the best score, and the first by name
/// among equals.
fn choose(
    cluster: &SchedulerCluster<'_>,
    nominations: &Nominations,
    shape: usize,
    pod: &PodView,
) -> Result<usize, Rejections> {
    let fits = |node: &usize| cluster.state.filter(shape, *node, &nominations.beside(pod, *node)).is_ok();
    if let Some(node) = cluster.node(&pod.nominated).filter(fits) {
        return Ok(node);
    }
    let mut rejections = Rejections::default();
    let mut fitting = Vec::new();
    for node in 0..cluster.state.nodes() {
        let nominated = nominations.beside(pod, node);
        match cluster.state.filter(shape, node, &nominated) {
            Ok(()) => fitting.push(node),
            Err(rejection) => rejections.add(cluster, (shape, node), &nominated, rejection),
        }
    }
    cluster.state.best(shape, &fitting).ok_or(rejections)
}

fn reject(store: &mut Store, pod: &PodView, message: &str, write: &Write<'_>) {
    let mut new = (*pod.object).clone();
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                           "observedGeneration": object::generation(&new)});
    let ended = object::remove(&mut new, &["status", "nominatedNodeName"]).is_some();
    if object::set_condition(&mut new, condition, write.now) || ended {
        // The pod was deleted or changed in the meantime; the change triggers another attempt.
        let _ = store.update(ResourceId::PODS, &pod.key.namespace, &pod.key.name, Part::Status, new, write);
        tell(store, pod, message, write);
    }
}

/// Writes the event for a rejected pod.
fn tell(store: &mut Store, pod: &PodView, message: &str, write: &Write<'_>) {
    let now = object::time(write.now);
    let event = json!({
        "metadata": {"generateName": format!("{}.", pod.key.name)},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": pod.key.namespace, "name": pod.key.name, "uid": pod.uid},
        "reason": "FailedScheduling", "message": message, "type": "Warning", "count": 1,
        "firstTimestamp": now, "lastTimestamp": now, "reportingComponent": NAME, "source": {"component": NAME},
    });
    // A terminating namespace accepts no events, and nobody needs this one.
    let _ = store.create(ResourceId::EVENTS, &pod.key.namespace, event, write);
}
