//! Instances of the cloud as machines.
//!
//! A machine boots, interprets its user data as the first programs of a node do, and becomes a Node through its
//! kubelet. When the instance ends, its kubelet stops and the cloud controller deletes the Node.

mod hardware;
mod user_data;

pub use hardware::Hardware;

use crate::apiserver::object;
use crate::apiserver::store::{DeleteOptions, Key, Store, Write};
use crate::apiserver::{ApiServer, ResourceId};
use crate::cloud::{Cloud, Ec2, Machine};
use crate::kube::{Controller, Kubelets, NodeSpec};
use jiff::Timestamp;
use parking_lot::Mutex;
use plimsoll_actuator::ports::InstanceState;
use plimsoll_model::names::label;
use plimsoll_runtime::signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use user_data::UserData;

/// Interval at which the cloud controller checks whether a Node that is not ready still has its instance, as the real
/// controller does.
const CLOUD_CONTROLLER_INTERVAL: Duration = Duration::from_secs(5);

/// Namespace of the services and their Leases.
pub const NAMESPACE: &str = "plimsoll-system";

/// Lifecycle stage of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The kubelet runs.
    Running,
    /// The machine runs but cannot register a Node.
    Useless,
    /// The machine is powered off.
    Off,
    /// Neither the machine nor its Node exists.
    Gone,
}

/// Turns instances into Nodes.
#[derive(Debug)]
pub struct Machines {
    ec2: Ec2,
    kubelets: Kubelets,
    hardware: Hardware,
    stages: BTreeMap<String, Stage>,
    /// Names of Nodes that are not the private DNS names, by instance.
    names: BTreeMap<String, String>,
    problems: Problems,
}

/// Why instances did not become Nodes, one line each. Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct Problems(Arc<Mutex<Vec<String>>>);

impl Problems {
    /// All problems so far.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl Machines {
    /// Creates the machines behind the instances of `ec2`.
    #[must_use]
    pub fn new(ec2: Ec2, kubelets: Kubelets, hardware: Hardware) -> Self {
        let (stages, names) = (BTreeMap::new(), BTreeMap::new());
        Self { ec2, kubelets, hardware, stages, names, problems: Problems::default() }
    }

    /// Reasons why instances did not become Nodes.
    #[must_use]
    pub fn problems(&self) -> Problems {
        self.problems.clone()
    }

    /// Advances one machine. Returns the time of its next change.
    fn follow(&mut self, store: &mut Store, machine: &Machine, cloud: &Cloud, now: Timestamp) -> Option<Timestamp> {
        let time = plimsoll_model::time::Timestamp(now.as_millisecond());
        let stage = self.stages.get(&machine.id).copied();
        let at = |moment: Option<plimsoll_model::time::Timestamp>| {
            moment.and_then(|moment| Timestamp::from_millisecond(moment.0).ok()).filter(|moment| *moment > now)
        };
        match machine.state(time) {
            InstanceState::Running if stage.is_none() => {
                let reached = match self.node(machine, cloud) {
                    Ok(spec) => {
                        if spec.name != machine.private_dns_name {
                            self.names.insert(machine.id.clone(), spec.name.clone());
                        }
                        self.kubelets.start(spec);
                        Stage::Running
                    }
                    Err(problem) => {
                        tracing::warn!(instance = machine.id, %problem, "the instance does not become a Node");
                        self.problems.0.lock().push(format!("{}: {problem}", machine.id));
                        Stage::Useless
                    }
                };
                self.stages.insert(machine.id.clone(), reached);
            }
            InstanceState::ShuttingDown | InstanceState::Stopping | InstanceState::Stopped
                if stage != Some(Stage::Off) =>
            {
                self.kubelets.stop(self.name_of(machine));
                self.stages.insert(machine.id.clone(), Stage::Off);
            }
            InstanceState::Terminated => {
                if stage == Some(Stage::Running) {
                    self.kubelets.stop(self.name_of(machine));
                }
                if self.clear_away(store, machine, now) {
                    self.kubelets.remove(self.name_of(machine));
                    self.stages.insert(machine.id.clone(), Stage::Gone);
                    return None;
                }
                self.stages.insert(machine.id.clone(), Stage::Off);
                return now.checked_add(CLOUD_CONTROLLER_INTERVAL).ok();
            }
            _ => {}
        }
        [machine.runs_from, machine.ends_from, machine.gone_from].into_iter().filter_map(at).min()
    }

    /// Deletes the Node of a terminated instance, as the cloud controller does. Returns true once the Node is gone.
    fn clear_away(&self, store: &mut Store, machine: &Machine, now: Timestamp) -> bool {
        let name = self.name_of(machine);
        let Some(node) = store.find(ResourceId::NODES, &Key::new("", name)) else { return true };
        if object::text(&node, &["spec", "providerID"]) != provider_id(machine) {
            // The Node belongs to another machine of the same name.
            return true;
        }
        let ready = object::condition(&node, "Ready").map(|ready| object::text(ready, &["status"]));
        if ready != Some("True") && !object::is_deleting(&node) {
            let write = Write::new(now, "cloud-node-lifecycle-controller");
            // A conflict does not matter: the next round retries.
            let _ = store.delete(ResourceId::NODES, "", name, &DeleteOptions::default(), &write);
        }
        store.find(ResourceId::NODES, &Key::new("", name)).is_none()
    }

    /// The name of the Node of a machine.
    fn name_of<'a>(&'a self, machine: &'a Machine) -> &'a str {
        self.names.get(&machine.id).unwrap_or(&machine.private_dns_name)
    }

    /// The Node that a machine registers, or why it cannot register one.
    fn node(&self, machine: &Machine, cloud: &Cloud) -> Result<NodeSpec, String> {
        let data = UserData::read(&machine.user_data)?;
        if data.cluster.is_empty() {
            return Err("the user data names no cluster".to_owned());
        }
        let built = self.hardware.build(&machine.instance_type, &data)?;
        let image = cloud.images.get(&machine.image_id).map_or("", |image| image.architecture.as_str());
        if !self.ec2.faults(|faults| faults.boots(&machine.image_id)) {
            return Err(format!("image {} does not boot", machine.image_id));
        }
        let runs = if image == "x86_64" { "amd64" } else { image };
        if runs != built.architecture {
            return Err(format!("an image for {image} does not boot on a {}", machine.instance_type));
        }
        let zone_id = cloud.subnets.get(&machine.subnet_id).map_or("", |subnet| subnet.zone_id.as_str());
        let name = if self.ec2.faults(|faults| faults.renames_nodes()) {
            format!("{}.{}.compute.internal", machine.id, cloud.settings.region)
        } else {
            machine.private_dns_name.clone()
        };
        let mut labels = data.labels;
        for (key, value) in [
            (label::INSTANCE_TYPE, machine.instance_type.as_str()),
            (label::ZONE, &machine.zone),
            (label::ZONE_ID, zone_id),
            (label::REGION, &cloud.settings.region),
            (label::ARCH, &built.architecture),
            (label::OS, "linux"),
        ] {
            labels.insert(key.to_owned(), value.to_owned());
        }
        Ok(NodeSpec {
            name,
            provider_id: provider_id(machine),
            labels,
            annotations: BTreeMap::new(),
            taints: data.taints,
            capacity: built.capacity,
            allocatable: built.allocatable,
        })
    }
}

impl Controller for Machines {
    fn watches(&self) -> &'static [ResourceId] {
        &[]
    }

    fn wake(&self) -> Option<signal::Receiver> {
        Some(self.ec2.subscribe())
    }

    fn step(&mut self, store: &mut Store, now: Timestamp) -> Option<Timestamp> {
        let ec2 = self.ec2.clone();
        ec2.read(|cloud, _| {
            let machines = cloud.machines().values();
            machines
                .filter_map(|machine| match self.stages.get(&machine.id) {
                    Some(Stage::Gone) => None,
                    _ => self.follow(store, machine, cloud, now),
                })
                .min()
        })
    }
}

fn provider_id(machine: &Machine) -> String {
    format!("aws:///{}/{}", machine.zone, machine.id)
}

/// Adds what an EKS cluster has besides its nodes: the DNS service and the project's custom resources with their
/// schemas.
///
/// # Errors
/// If a schema is not usable.
pub fn install_prerequisites(server: &ApiServer) -> Result<(), crate::apiserver::SchemaError> {
    use plimsoll_api::crd::Kind;
    for kind in Kind::ALL {
        if let Some(resource) = ResourceId::of_kind(&kind.api_version(), kind.kind()) {
            server.install_schema(resource, &kind.schema())?;
        }
    }
    let dns: Value =
        json!({"metadata": {"name": "kube-dns"}, "spec": {"clusterIP": "10.100.0.10", "ports": [{"port": 53}]}});
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    let now = server.now();
    server.write(|store| {
        // If the objects exist already, they serve the purpose too.
        let _ = store.create(ResourceId::NAMESPACES, "", namespace, &Write::new(now, "cluster"));
        let _ = store.create(ResourceId::SERVICES, "kube-system", dns, &Write::new(now, "cluster"));
    });
    Ok(())
}

#[cfg(test)]
mod tests;
