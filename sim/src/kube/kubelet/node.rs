//! The Node of a kubelet: registration, readiness, status reports.

use super::{Delays, Kubelet, READY_AFTER, after};
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::apiserver::store::{Key, Part, Store, Write};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Version of the kubelet in the Node's status.
const VERSION: &str = "v1.36.3";

impl Kubelet {
    /// Registers the Node, sets it Ready, reports its status. Returns when to run again.
    pub(super) fn step(&mut self, store: &mut Store, delays: &Delays, now: Timestamp) -> Timestamp {
        let write = Write::new(now, "kubelet");
        let Some(registered) = self.registered else {
            self.register(store, &write);
            self.registered = Some(now);
            self.last_report = now;
            return after(now, self.ready_delay(delays));
        };
        let ready_at = after(registered, self.ready_delay(delays));
        if !self.ready && ready_at > now {
            return ready_at;
        }
        let heartbeat = after(self.last_report, delays.heartbeat);
        if self.ready && heartbeat > now {
            return heartbeat;
        }
        self.ready = true;
        self.last_report = now;
        if let Some(node) = store.find(ResourceId::NODES, &Key::new("", self.spec.name.clone())) {
            let mut new = (*node).clone();
            set_conditions(&mut new, true, now);
            let _ = store.update(ResourceId::NODES, "", &self.spec.name, Part::Status, new, &write);
        }
        after(now, delays.heartbeat)
    }

    fn ready_delay(&self, delays: &Delays) -> Duration {
        let own = self.spec.annotations.get(READY_AFTER).and_then(|text| text.parse::<SignedDuration>().ok());
        own.and_then(|own| own.try_into().ok()).unwrap_or(delays.node_ready)
    }

    fn register(&self, store: &mut Store, write: &Write<'_>) {
        let node = self.node(write.now);
        if let Some(old) = store.find(ResourceId::NODES, &Key::new("", self.spec.name.clone())) {
            // A restarted kubelet takes over its Node: it sets labels and status, but not taints.
            let mut new = (*old).clone();
            for (key, value) in node["metadata"]["labels"].as_object().into_iter().flatten() {
                object::set(&mut new, &["metadata", "labels", key], value.clone());
            }
            let _ = store.update(ResourceId::NODES, "", &self.spec.name, Part::Main, new.clone(), write);
            new["status"] = node["status"].clone();
            object::remove(&mut new, &["metadata", "resourceVersion"]);
            let _ = store.update(ResourceId::NODES, "", &self.spec.name, Part::Status, new, write);
        } else if let Err(error) = store.create(ResourceId::NODES, "", node, write) {
            tracing::warn!(node = self.spec.name, %error, "the Node was not registered");
        }
    }

    fn node(&self, now: Timestamp) -> Value {
        let spec = &self.spec;
        let mut labels = spec.labels.clone();
        for (key, value) in [
            ("kubernetes.io/hostname", spec.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ] {
            labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
        let architecture = labels.get("kubernetes.io/arch").cloned();
        let allocatable = if spec.allocatable.is_empty() { &spec.capacity } else { &spec.allocatable };
        let mut node_spec = Map::new();
        if !spec.provider_id.is_empty() {
            node_spec.insert("providerID".to_owned(), json!(spec.provider_id));
        }
        if !spec.taints.is_empty() {
            node_spec.insert("taints".to_owned(), json!(spec.taints));
        }
        let mut node = json!({
            "metadata": {"name": spec.name, "labels": labels, "annotations": spec.annotations},
            "spec": node_spec,
            "status": {
                "capacity": spec.capacity, "allocatable": allocatable,
                "addresses": [{"type": "Hostname", "address": spec.name}],
                "nodeInfo": {"kubeletVersion": VERSION, "operatingSystem": "linux", "architecture": architecture, "osImage": "simulated",
                             "kernelVersion": "", "containerRuntimeVersion": "", "kubeProxyVersion": "", "machineID": "", "systemUUID": "", "bootID": ""},
            },
        });
        set_conditions(&mut node, false, now);
        node
    }
}

fn set_conditions(node: &mut Value, ready: bool, now: Timestamp) {
    let ready_reason = if ready { "KubeletReady" } else { "KubeletNotReady" };
    let mut set = |kind: &str, status: bool, reason: &str| {
        let status = if status { "True" } else { "False" };
        let condition = json!({"type": kind, "status": status, "reason": reason, "message": "", "lastHeartbeatTime": object::time(now)});
        object::set_condition(node, condition, now);
    };
    set("MemoryPressure", false, "KubeletHasSufficientMemory");
    set("DiskPressure", false, "KubeletHasNoDiskPressure");
    set("PIDPressure", false, "KubeletHasSufficientPID");
    set("Ready", ready, ready_reason);
}
