//! Kubelets: they register their Node, run the pods bound to it, and stop deleted pods.

mod node;

use super::Controller;
use super::mirror::Mirror;
use super::view::PodView;
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::apiserver::store::{DeleteOptions, Key, Part, Store, Write};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Annotation of a pod: time from binding to running, such as `2s`. These annotations are also those of the kwok stages
/// of the real control plane.
pub const RUN_AFTER: &str = "plimsoll.test/run-after";
/// Annotation of a pod whose containers complete: time from their start to completion.
pub const COMPLETE_AFTER: &str = "plimsoll.test/complete-after";
/// Annotation of a pod: time that it takes to stop, at most its grace period.
pub const STOP_AFTER: &str = "plimsoll.test/stop-after";
/// Annotation of a Node: time from registration to Ready.
pub const READY_AFTER: &str = "plimsoll.test/ready-after";

/// Latencies.
#[derive(Debug, Clone, Copy)]
pub struct Delays {
    /// From registration of the Node to Ready.
    pub node_ready: Duration,
    /// From binding to running and ready, on a Ready node.
    pub pod_start: Duration,
    /// Default time from deletion to removal of a pod.
    pub pod_stop: Duration,
    /// Interval of Node status reports without changes.
    pub heartbeat: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            node_ready: Duration::from_secs(5),
            pod_start: Duration::from_secs(2),
            pod_stop: Duration::from_secs(1),
            // The interval of real kubelets.
            heartbeat: Duration::from_secs(300),
        }
    }
}

/// Description of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSpec {
    /// Name of the Node.
    pub name: String,
    /// `spec.providerID`; may be empty.
    pub provider_id: String,
    /// Labels to register with. Missing `kubernetes.io/hostname`, os and arch labels are added.
    pub labels: BTreeMap<String, String>,
    /// Annotations to register with.
    pub annotations: BTreeMap<String, String>,
    /// Taints to register with: objects with `key`, `value`, `effect`.
    pub taints: Vec<Value>,
    /// `status.capacity`.
    pub capacity: BTreeMap<String, String>,
    /// `status.allocatable`; defaults to the capacity.
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

/// State of a kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pulse {
    Beating,
    Stopped(Timestamp),
    /// No simulated kubelet: the Node was created by other means.
    Unknown,
}

/// Kubelets of a cluster. Cheap to clone; clones share their state.
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
    /// Creates a set without kubelets.
    #[must_use]
    pub fn new(clock: Clock, delays: Delays) -> Self {
        Self { all: Arc::default(), changed: signal::Sender::default(), clock, delays }
    }

    /// Starts a kubelet, which registers its Node. A stopped kubelet of the same name resumes with this description.
    pub fn start(&self, spec: NodeSpec) {
        let now = self.clock.now();
        let name = spec.name.clone();
        self.all.lock().insert(name, Kubelet { spec, registered: None, ready: false, last_report: now, stopped: None });
        self.changed.notify();
    }

    /// Stops a kubelet as if its machine lost power: its pods freeze, and nothing is reported.
    pub fn stop(&self, name: &str) {
        let now = self.clock.now();
        if let Some(kubelet) = self.all.lock().get_mut(name) {
            kubelet.stopped.get_or_insert(now);
        }
        self.changed.notify();
    }

    /// Starts a stopped kubelet again, which finds its Node as it left it.
    pub fn resume(&self, name: &str) {
        let spec = self.all.lock().get(name).filter(|kubelet| kubelet.stopped.is_some()).map(|it| it.spec.clone());
        if let Some(spec) = spec {
            self.start(spec);
        }
    }

    /// Starts another kubelet on the machine of one, which registers the machine again under another name.
    pub fn join_as(&self, name: &str, other: &str) {
        let spec = self.all.lock().get(name).map(|it| NodeSpec { name: other.to_owned(), ..it.spec.clone() });
        if let Some(spec) = spec {
            self.start(spec);
        }
    }

    /// Removes a kubelet permanently.
    pub fn remove(&self, name: &str) {
        self.all.lock().remove(name);
        self.changed.notify();
    }

    /// Names of the running kubelets.
    #[must_use]
    pub fn running(&self) -> Vec<String> {
        self.all.lock().iter().filter(|(_, kubelet)| kubelet.stopped.is_none()).map(|(name, _)| name.clone()).collect()
    }

    /// State of a kubelet.
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

/// All kubelets, as one component of the cluster.
#[derive(Debug)]
pub struct KubeletController {
    kubelets: Kubelets,
    pods: Mirror<PodView>,
    /// When each pod was first seen bound, with its UID.
    bound: BTreeMap<Key, (String, Timestamp)>,
    /// Next action of each pod, by time.
    due: BTreeMap<Key, Timestamp>,
}

impl KubeletController {
    /// The component that runs these kubelets.
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
                // Pods of this node were waiting for it.
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
    /// Performs the due actions of one pod. Returns when to run again.
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
            // The pod was removed in the meantime, or a finalizer holds it. Nothing is left to do for the kubelet.
            let _ = store.delete(ResourceId::PODS, &key.namespace, &key.name, &DeleteOptions::force(&*pod.uid), &write);
            return None;
        }
        match pod.phase.as_str() {
            "Pending" => {
                let at = after(since, duration_annotation(&pod.object, RUN_AFTER).unwrap_or(delays.pod_start));
                if at > now {
                    return Some(at);
                }
                report(store, pod, &running(pod, now), &write);
                None
            }
            // The node controller has reported it as not ready while the kubelet was silent.
            "Running" if !pod.ready => {
                report(store, pod, &ready_again(pod, now), &write);
                None
            }
            "Running" => {
                let started = object::time_at(&pod.object, &["status", "startTime"]).unwrap_or(since);
                let at = after(started, duration_annotation(&pod.object, COMPLETE_AFTER)?);
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
    after(asked, duration_annotation(&pod.object, STOP_AFTER).unwrap_or(usual)).min(deadline)
}

/// Duration in an annotation, if set.
fn duration_annotation(object: &Value, annotation: &str) -> Option<Duration> {
    object::annotation(object, annotation)?.parse::<SignedDuration>().ok()?.try_into().ok()
}

fn report(store: &mut Store, pod: &PodView, new: &Value, write: &Write<'_>) {
    // The pod was deleted or changed in the meantime; the change triggers another step.
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

fn ready_again(pod: &PodView, now: Timestamp) -> Value {
    let mut new = (*pod.object).clone();
    object::set_condition(&mut new, json!({"type": "Ready", "status": "True"}), now);
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
