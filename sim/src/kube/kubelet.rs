//! Kubelets: they register their Node, run the pods bound to it, and stop those that are deleted.

mod node;

use super::Controller;
use super::mirror::Mirror;
use super::view::PodView;
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::apiserver::store::{DeleteOptions, Key, Part, Store, Write};
use crate::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use plimsoll_runtime::signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Annotation of a pod: how long after its binding it runs, such as `2s`. These annotations are those of the real control plane's kwok stages.
pub const RUN_AFTER: &str = "plimsoll.test/run-after";
/// Annotation of a pod whose containers end by themselves: how long after their start.
pub const COMPLETE_AFTER: &str = "plimsoll.test/complete-after";
/// Annotation of a pod: how long it takes to stop. Its grace period cuts it short.
pub const STOP_AFTER: &str = "plimsoll.test/stop-after";
/// Annotation of a Node: how long after its registration it is Ready.
pub const READY_AFTER: &str = "plimsoll.test/ready-after";

/// How long things take.
#[derive(Debug, Clone, Copy)]
pub struct Delays {
    /// From the Node's registration to its being Ready.
    pub node_ready: Duration,
    /// From binding to running and ready, on a node that is Ready.
    pub pod_start: Duration,
    /// From deletion to being gone, where the pod does not say so itself.
    pub pod_stop: Duration,
    /// Between reports of a Node's status when nothing changes.
    pub heartbeat: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            node_ready: Duration::from_secs(5),
            pod_start: Duration::from_secs(2),
            pod_stop: Duration::from_secs(1),
            // As real kubelets do.
            heartbeat: Duration::from_secs(300),
        }
    }
}

/// A machine's description of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSpec {
    /// The Node's name.
    pub name: String,
    /// `spec.providerID`; empty for none.
    pub provider_id: String,
    /// Labels to register with. `kubernetes.io/hostname`, os and arch are added where missing.
    pub labels: BTreeMap<String, String>,
    /// Annotations to register with.
    pub annotations: BTreeMap<String, String>,
    /// Taints to register with: objects with `key`, `value`, `effect`.
    pub taints: Vec<Value>,
    /// `status.capacity`.
    pub capacity: BTreeMap<String, String>,
    /// `status.allocatable`; the capacity where empty.
    pub allocatable: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Kubelet {
    spec: NodeSpec,
    registered: Option<Timestamp>,
    ready: bool,
    last_report: Timestamp,
    stopped: Option<Timestamp>,
}

/// What is known of a kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pulse {
    Beating,
    Stopped(Timestamp),
    /// It is none of ours: a Node made by hand.
    Unknown,
}

/// The kubelets of a cluster. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Kubelets {
    all: Arc<Mutex<BTreeMap<String, Kubelet>>>,
    changed: signal::Sender,
    clock: Clock,
    delays: Delays,
}

impl std::fmt::Debug for Kubelets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubelets").field("delays", &self.delays).finish_non_exhaustive()
    }
}

impl Kubelets {
    /// No kubelets yet.
    #[must_use]
    pub fn new(clock: Clock, delays: Delays) -> Self {
        Self { all: Arc::default(), changed: signal::Sender::default(), clock, delays }
    }

    /// Starts a kubelet, which registers its Node. One of the same name that was stopped goes on with this description.
    pub fn start(&self, spec: NodeSpec) {
        let now = (self.clock)();
        let name = spec.name.clone();
        self.all.lock().insert(name, Kubelet { spec, registered: None, ready: false, last_report: now, stopped: None });
        self.changed.tell();
    }

    /// Stops a kubelet as if its machine lost power: nothing on it moves any more, and nobody is told.
    pub fn stop(&self, name: &str) {
        let now = (self.clock)();
        if let Some(kubelet) = self.all.lock().get_mut(name) {
            kubelet.stopped.get_or_insert(now);
        }
        self.changed.tell();
    }

    /// Forgets a kubelet for good.
    pub fn remove(&self, name: &str) {
        self.all.lock().remove(name);
        self.changed.tell();
    }

    /// The names of those that run.
    #[must_use]
    pub fn running(&self) -> Vec<String> {
        self.all.lock().iter().filter(|(_, kubelet)| kubelet.stopped.is_none()).map(|(name, _)| name.clone()).collect()
    }

    /// Whether a kubelet lives.
    pub(super) fn pulse(&self, name: &str) -> Pulse {
        match self.all.lock().get(name) {
            Some(Kubelet { stopped: Some(at), .. }) => Pulse::Stopped(*at),
            Some(_) => Pulse::Beating,
            None => Pulse::Unknown,
        }
    }

    pub(super) fn subscribe(&self) -> signal::Receiver {
        self.changed.subscribe()
    }
}

/// All kubelets, as one part of the cluster.
#[derive(Debug)]
pub struct KubeletController {
    kubelets: Kubelets,
    pods: Mirror<PodView>,
    /// When each pod was first seen bound (its uid with it).
    bound: BTreeMap<Key, (String, Timestamp)>,
    /// What is to be done with a pod, and when.
    due: BTreeMap<Key, Timestamp>,
}

impl KubeletController {
    /// The part that moves these kubelets.
    #[must_use]
    pub fn new(kubelets: Kubelets) -> Self {
        let pods = Mirror::new(ResourceId::PODS, PodView::read);
        Self { kubelets, pods, bound: BTreeMap::new(), due: BTreeMap::new() }
    }
}

impl Controller for KubeletController {
    fn watches(&self) -> &'static [ResourceId] {
        &[ResourceId::PODS]
    }

    fn wake(&self) -> Option<signal::Receiver> {
        Some(self.kubelets.subscribe())
    }

    fn step(&mut self, store: &mut Store, now: Timestamp) -> Option<Timestamp> {
        let shared = self.kubelets.all.clone();
        let mut all = shared.lock();
        let mut next: Option<Timestamp> = None;
        let mut sooner = |at: Timestamp| next = Some(next.map_or(at, |next| next.min(at)));
        for kubelet in all.values_mut().filter(|kubelet| kubelet.stopped.is_none()) {
            let became_ready = !kubelet.ready;
            sooner(kubelet.step(store, &self.kubelets.delays, now));
            if became_ready && kubelet.ready {
                // Its pods were waiting for it.
                let waiting =
                    self.bound.keys().filter(|key| self.pods.get(key).is_some_and(|pod| pod.node == kubelet.spec.name));
                self.due.extend(waiting.map(|key| (key.clone(), now)));
            }
        }
        for key in self.pods.sync(store).into_keys() {
            self.due.insert(key, now);
        }
        let due: Vec<Key> = self.due.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.due.remove(&key);
            let runs = |node: &str| all.get(node).is_some_and(|kubelet| kubelet.stopped.is_none() && kubelet.ready);
            if let Some(at) = self.pod(store, &key, runs, now) {
                self.due.insert(key, at);
            }
        }
        if let Some(at) = self.due.values().min() {
            sooner(*at);
        }
        next
    }
}

impl KubeletController {
    /// Does what is due for one pod. Returns when to look again.
    fn pod(&mut self, store: &mut Store, key: &Key, runs: impl Fn(&str) -> bool, now: Timestamp) -> Option<Timestamp> {
        let Some(pod) = self.pods.get(key).filter(|pod| !pod.node.is_empty()) else {
            self.bound.remove(key);
            return None;
        };
        if self.bound.get(key).is_none_or(|(uid, _)| *uid != pod.uid) {
            self.bound.insert(key.clone(), (pod.uid.clone(), now));
        }
        let since = self.bound.get(key).map_or(now, |(_, since)| *since);
        if !runs(&pod.node) {
            return None;
        }
        let write = Write::new(now, "kubelet");
        let delays = self.kubelets.delays;
        if let Some(deadline) = pod.deletion {
            let at = stops_at(pod, deadline, delays.pod_stop);
            if at > now {
                return Some(at);
            }
            // Gone in the meantime, or held by a finalizer: either way this kubelet is done with it.
            let _ = store.delete(ResourceId::PODS, &key.namespace, &key.name, &DeleteOptions::force(&*pod.uid), &write);
            return None;
        }
        match pod.phase.as_str() {
            "Pending" => {
                let at = after(since, said(&pod.object, RUN_AFTER).unwrap_or(delays.pod_start));
                if at > now {
                    return Some(at);
                }
                report(store, pod, &running(pod, now), &write);
                None
            }
            "Running" => {
                let started = object::time_at(&pod.object, &["status", "startTime"]).unwrap_or(since);
                let at = after(started, said(&pod.object, COMPLETE_AFTER)?);
                if at > now {
                    return Some(at);
                }
                report(store, pod, &completed(pod, now), &write);
                None
            }
            _ => None,
        }
    }
}

fn after(start: Timestamp, time: Duration) -> Timestamp {
    start.saturating_add(time).unwrap_or(Timestamp::MAX)
}

fn stops_at(pod: &PodView, deadline: Timestamp, usual: Duration) -> Timestamp {
    let grace = object::integer(&pod.object, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
    let asked = deadline.checked_sub(SignedDuration::from_secs(grace)).unwrap_or(deadline);
    after(asked, said(&pod.object, STOP_AFTER).unwrap_or(usual)).min(deadline)
}

/// The time that an annotation says, if it says one.
fn said(object: &Value, annotation: &str) -> Option<Duration> {
    object::annotation(object, annotation)?.parse::<SignedDuration>().ok()?.try_into().ok()
}

fn report(store: &mut Store, pod: &PodView, new: &Value, write: &Write<'_>) {
    // Deleted or changed in the meantime: the change brings the pod back here.
    let _ = store.update(ResourceId::PODS, &pod.key.namespace, &pod.key.name, Part::Status, new.clone(), write);
}

fn running(pod: &PodView, now: Timestamp) -> Value {
    let mut new = (*pod.object).clone();
    let started = object::time(now);
    let containers: Vec<_> = object::items(&new, &["spec", "containers"])
        .iter()
        .map(|container| {
            json!({"name": container["name"], "image": object::text(container, &["image"]), "imageID": "", "ready": true, "started": true,
                   "restartCount": 0, "state": {"running": {"startedAt": started}}})
        })
        .collect();
    let status = &mut new["status"];
    status["phase"] = json!("Running");
    status["startTime"] = json!(started);
    status["containerStatuses"] = Value::Array(containers);
    for kind in ["PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"] {
        object::set_condition(&mut new, json!({"type": kind, "status": "True"}), now);
    }
    new
}

fn completed(pod: &PodView, now: Timestamp) -> Value {
    let mut new = (*pod.object).clone();
    new["status"]["phase"] = json!("Succeeded");
    for kind in ["ContainersReady", "Ready"] {
        object::set_condition(&mut new, json!({"type": kind, "status": "False", "reason": "PodCompleted"}), now);
    }
    new
}
