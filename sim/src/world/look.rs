//! Queries on a world.

use super::World;
use crate::apiserver::store::{Key, Object};
use crate::apiserver::{ResourceId, object};
use crate::cloud::Machine;
use plimsoll_actuator::ports::InstanceState;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::time::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

impl World {
    /// All objects of a kind.
    #[must_use]
    pub fn all(&self, resource: ResourceId) -> Vec<Object> {
        self.server().read(|store| store.all(resource).map(|(_, object)| object.clone()).collect())
    }

    /// One object. Namespaced objects are looked up in `default`.
    #[must_use]
    pub fn get(&self, resource: ResourceId, name: &str) -> Option<Object> {
        let namespace = if resource.get().namespaced { "default" } else { "" };
        self.server().read(|store| store.find(resource, &Key::new(namespace, name)))
    }

    /// Number of objects of a kind that pass a test.
    pub fn count(&self, resource: ResourceId, test: impl Fn(&Value) -> bool) -> usize {
        self.server().read(|store| store.all(resource).filter(|(_, object)| test(object)).count())
    }

    /// Number of pods that are running, ready and not terminating.
    #[must_use]
    pub fn running_pods(&self) -> usize {
        self.count(ResourceId::PODS, is_running)
    }

    /// Number of pods that are not bound to a node.
    #[must_use]
    pub fn pending_pods(&self) -> usize {
        self.count(ResourceId::PODS, is_pending)
    }

    /// Number of Nodes that are Ready.
    #[must_use]
    pub fn ready_nodes(&self) -> usize {
        self.count(ResourceId::NODES, |node| object::condition_is_true(node, "Ready"))
    }

    /// Instances that are pending or running, by id.
    #[must_use]
    pub fn living_instances(&self) -> BTreeMap<String, Machine> {
        self.ec2.read(|cloud, now| {
            let living = |machine: &&Machine| is_living(machine, now);
            cloud.machines().values().filter(living).map(|machine| (machine.id.clone(), machine.clone())).collect()
        })
    }

    /// Hourly price of all pending and running instances.
    #[must_use]
    pub fn hourly_cost(&self) -> MicroUsdPerHour {
        self.ec2.read(|cloud, now| {
            let living = cloud.machines().values().filter(|machine| is_living(machine, now));
            let price = |machine: &Machine| match machine.capacity_type {
                CapacityType::Spot => cloud.offers.get(&(machine.instance_type.clone(), machine.zone.clone())),
                CapacityType::OnDemand | CapacityType::Reserved => cloud.on_demand.get(&machine.instance_type),
            };
            living.map(|machine| price(machine).copied().unwrap_or_default()).sum()
        })
    }

    /// Events about an object as `Reason: message`, oldest first.
    #[must_use]
    pub fn events_of(&self, kind: &str, name: &str) -> Vec<String> {
        let about = |event: &Value| {
            object::text(event, &["involvedObject", "kind"]) == kind
                && object::text(event, &["involvedObject", "name"]) == name
        };
        let mut events: Vec<Object> = self.all(ResourceId::EVENTS).into_iter().filter(|event| about(event)).collect();
        events.sort_by_key(|event| object::text(event, &["metadata", "creationTimestamp"]).to_owned());
        events
            .iter()
            .map(|event| format!("{}: {}", object::text(event, &["reason"]), object::text(event, &["message"])))
            .collect()
    }
}

fn is_living(machine: &Machine, now: Timestamp) -> bool {
    matches!(machine.state(now), InstanceState::Pending | InstanceState::Running)
}

/// Whether a pod is running, ready and not terminating.
#[must_use]
pub fn is_running(pod: &Value) -> bool {
    object::condition_is_true(pod, "Ready")
        && object::text(pod, &["status", "phase"]) == "Running"
        && !object::is_deleting(pod)
}

/// Whether a pod waits for a node.
#[must_use]
pub fn is_pending(pod: &Value) -> bool {
    object::text(pod, &["spec", "nodeName"]).is_empty() && !object::is_deleting(pod)
}
