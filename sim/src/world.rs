//! A simulated cluster on a simulated cloud, with helpers for the demo and tests to change and inspect it.

mod look;

pub use look::{is_pending, is_running};

use crate::apiserver::store::{DeleteOptions, Key, Object, Part, Write};
use crate::apiserver::{ApiError, ApiServer, Patch, ResourceId, object};
use crate::clock;
use crate::cloud::{Cloud, Ec2, Settings};
use crate::kube::{Cluster, Delays};
use crate::machines::{self, Hardware, Machines, Problems};
use plimsoll_model::time::Millis;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Polling interval of [`World::until`].
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Settings of a world.
#[derive(Debug, Clone)]
pub struct WorldConfig {
    /// Determines names, UIDs, instance ids and which faults occur.
    pub seed: u64,
    /// Region with a built-in catalog.
    pub region: String,
    /// Values of the discovery tag. Each value selects a separate network.
    pub networks: Vec<String>,
    /// Time from launch to the start of the kubelet.
    pub boot: Duration,
    /// Maximum additional time until the start of the kubelet.
    pub boot_jitter: Duration,
    /// Time from launch until reads from the cloud return an instance.
    pub settling: Duration,
    /// Latencies of the cluster's components.
    pub delays: Delays,
    /// Names of the instance types on offer. `None` offers all types.
    pub types: Option<Vec<String>>,
    /// Memory in MiB that machines lack compared to the estimate of catalogs.
    pub missing_memory_mib: i64,
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            region: "us-west-2".to_owned(),
            networks: vec!["demo".to_owned()],
            boot: Duration::from_secs(20),
            boot_jitter: Duration::ZERO,
            settling: Duration::from_secs(1),
            delays: Delays::default(),
            types: None,
            missing_memory_mib: 0,
        }
    }
}

/// Why a world cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The region has no built-in catalog.
    #[error(transparent)]
    Region(#[from] plimsoll_catalog::builtin::UnknownRegion),
    /// The schema of a custom resource is not usable.
    #[error(transparent)]
    Schema(#[from] crate::apiserver::SchemaError),
}

/// Why objects cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The text is not YAML.
    #[error("not YAML: {0}")]
    Yaml(String),
    /// The server does not serve this kind.
    #[error("{api_version} {kind} is not served")]
    UnknownKind {
        /// `apiVersion` of the object.
        api_version: String,
        /// `kind` of the object.
        kind: String,
    },
    /// The server rejects the object.
    #[error("{0}")]
    Refused(#[from] ApiError),
}

/// An expected condition did not hold in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not seen within {limit:?}: {what}")]
pub struct NotSeen {
    /// Description of the condition.
    pub what: String,
    /// Time limit that passed.
    pub limit: Duration,
}

/// A simulated cluster on a simulated cloud.
#[derive(Debug)]
pub struct World {
    /// The Kubernetes cluster.
    pub cluster: Cluster,
    /// The simulated EC2.
    pub ec2: Ec2,
    /// Why instances did not become Nodes.
    pub problems: Problems,
    /// Settings of this world.
    pub config: WorldConfig,
}

impl World {
    /// Creates an empty world. Must be called within a tokio runtime; with paused time, the world runs in virtual time.
    ///
    /// # Errors
    /// If the region has no built-in catalog.
    pub fn start(config: WorldConfig) -> Result<Self, WorldError> {
        let clock = clock::usual();
        let server = ApiServer::new(config.seed, clock);
        machines::install_prerequisites(&server)?;
        let mut cluster = Cluster::start(server, config.delays);
        let millis = |time: Duration| Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let settings = Settings {
            region: config.region.clone(),
            settling: millis(config.settling),
            boot: Some(millis(config.boot)),
            boot_jitter: millis(config.boot_jitter),
            ..Settings::default()
        };
        let types = config.types.clone();
        let sells = |name: &str| types.as_ref().is_none_or(|types| types.iter().any(|one| one == name));
        let cloud = Cloud::of_region(config.seed, settings, &config.networks, sells)?;
        let ec2 = Ec2::new(cloud, clock);
        ec2.faults(|faults| faults.seed(config.seed));
        let hardware = Hardware::of_region(&config.region)?.with_less_memory(config.missing_memory_mib);
        let machines = Machines::new(ec2.clone(), cluster.kubelets.clone(), hardware);
        let problems = machines.problems();
        cluster.add(Box::new(machines));
        Ok(Self { cluster, ec2, problems, config })
    }

    /// API server of the cluster.
    #[must_use]
    pub fn server(&self) -> &ApiServer {
        &self.cluster.server
    }

    /// Creates every object of a YAML text. Updates objects that exist with a merge patch.
    ///
    /// # Errors
    /// If the text is not valid YAML or the server rejects an object. Objects before the rejected one stay applied.
    pub fn apply(&self, text: &str) -> Result<(), ApplyError> {
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(text).map_err(|error| ApplyError::Yaml(error.to_string()))?;
        for object in objects.iter().filter(|object| object.is_object()) {
            self.apply_object(object)?;
        }
        Ok(())
    }

    /// Applies one object, as [`World::apply`] does.
    ///
    /// # Errors
    /// If the kind is unknown or the server rejects the object.
    pub fn apply_object(&self, object: &Value) -> Result<Object, ApplyError> {
        let (api_version, kind) = (object::text(object, &["apiVersion"]), object::text(object, &["kind"]));
        let resource = ResourceId::of_kind(api_version, kind)
            .ok_or_else(|| ApplyError::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() })?;
        let namespace = match (resource.get().namespaced, object::namespace(object)) {
            (false, _) => "",
            (true, "") => "default",
            (true, own) => own,
        };
        let (name, write) = (object::name(object), Write::new(self.server().now(), "kubectl"));
        let applied = self.server().write(|store| {
            if store.find(resource, &Key::new(namespace, name)).is_some() {
                store.patch(resource, namespace, name, Part::Main, &Patch::Merge(object.clone()), &write)
            } else {
                store.create(resource, namespace, object.clone(), &write)
            }
        });
        Ok(applied?)
    }

    /// Applies a merge patch to an object. Namespaced objects are looked up in `default`.
    ///
    /// # Errors
    /// If the server rejects the patch.
    pub fn patch(&self, resource: ResourceId, name: &str, patch: Value) -> Result<Object, ApiError> {
        let write = Write::new(self.server().now(), "kubectl");
        let namespace = if resource.get().namespaced { "default" } else { "" };
        self.server().write(|store| store.patch(resource, namespace, name, Part::Main, &Patch::Merge(patch), &write))
    }

    /// Deletes an object. Namespaced objects are looked up in `default`.
    ///
    /// # Errors
    /// If the server rejects the deletion.
    pub fn delete(&self, resource: ResourceId, name: &str) -> Result<(), ApiError> {
        let write = Write::new(self.server().now(), "kubectl");
        let namespace = if resource.get().namespaced { "default" } else { "" };
        self.server().write(|store| store.delete(resource, namespace, name, &DeleteOptions::default(), &write))?;
        Ok(())
    }

    /// Creates or updates a Deployment whose pods have these requests. `spec` is merged into the pod spec.
    ///
    /// # Errors
    /// If the server rejects it.
    pub fn deploy(&self, name: &str, replicas: u32, requests: &Value, spec: &Value) -> Result<(), ApplyError> {
        let mut pod = json!({"containers": [{"name": "main", "image": "example.com/app:1", "resources": {"requests": requests}}]});
        json_patch::merge(&mut pod, spec);
        self.apply_object(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
                     "template": {"metadata": {"labels": {"app": name}}, "spec": pod}},
        }))?;
        Ok(())
    }

    /// Sets the replicas of a Deployment.
    ///
    /// # Errors
    /// If there is no Deployment of that name.
    pub fn scale(&self, name: &str, replicas: u32) -> Result<(), ApiError> {
        self.patch(ResourceId::DEPLOYMENTS, name, json!({"spec": {"replicas": replicas}}))?;
        Ok(())
    }

    /// Lets time pass until a condition holds and returns the elapsed time.
    ///
    /// # Errors
    /// If the condition does not hold within `limit`.
    pub async fn until(&self, what: &str, limit: Duration, test: impl Fn(&Self) -> bool) -> Result<Duration, NotSeen> {
        let start = Instant::now();
        loop {
            if test(self) {
                return Ok(start.elapsed());
            }
            if start.elapsed() >= limit {
                return Err(NotSeen { what: what.to_owned(), limit });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests;
