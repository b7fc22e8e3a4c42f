//! Converts a case to the input of the solver, in this process and without files.

use crate::Case;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;
use plimsoll_snapshot::{Extra, Objects, Source};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Time of all cases, 2026-01-01. No case depends on it.
pub const NOW: Timestamp = Timestamp(1_767_225_600_000);

/// Input of the solver.
#[derive(Debug, Clone)]
pub struct Question {
    /// The cluster.
    pub snapshot: Snapshot,
    /// Catalogs by id.
    pub catalogs: BTreeMap<CatalogId, Catalog>,
}

/// A manifest that does not match its kind: an error of the generator.
#[derive(Debug, thiserror::Error)]
#[error("{object}: {problem}")]
pub struct BadManifest {
    /// Kind and name.
    pub object: String,
    /// Description of the problem.
    pub problem: String,
}

impl Case {
    /// The typed objects of the case, with workloads expanded as in `plimsoll plan`.
    ///
    /// # Errors
    ///
    /// If a manifest has an unknown kind or does not match its type.
    pub fn typed_objects(&self) -> Result<Objects, BadManifest> {
        let mut objects = Objects::default();
        for value in &self.objects {
            add(value, &mut objects)?;
        }
        Ok(objects)
    }

    /// The input of the solver.
    ///
    /// # Errors
    ///
    /// If a manifest cannot be parsed.
    pub fn question(&self) -> Result<Question, BadManifest> {
        Question::of(&self.typed_objects()?, self.catalog.catalog())
            .map_err(|problem| BadManifest { object: self.title(), problem })
    }
}

impl Question {
    /// Input for a cluster of these objects in which every node class uses `catalog`.
    ///
    /// # Errors
    ///
    /// The first invalid object, with its problem.
    pub fn of(objects: &Objects, catalog: Catalog) -> Result<Self, String> {
        Self::at(objects, catalog, NOW)
    }

    /// As [`Question::of`], at another time.
    ///
    /// # Errors
    ///
    /// The first invalid object, with its problem.
    pub fn at(objects: &Objects, catalog: Catalog, now: Timestamp) -> Result<Self, String> {
        let id = catalog.id();
        let classes = objects.node_classes.iter().filter_map(|class| class.metadata.name.clone());
        let extra = Extra {
            source: Source::Files,
            now,
            catalogs: classes.map(|name| (name, id.clone())).collect(),
            ..Extra::default()
        };
        let (snapshot, problems) = plimsoll_snapshot::build(objects, &extra);
        match problems.first() {
            Some(problem) => Err(problem.to_string()),
            None => Ok(Self { snapshot, catalogs: BTreeMap::from([(id, catalog)]) }),
        }
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, BadManifest> {
    serde_json::from_value(value.clone())
        .map_err(|error| BadManifest { object: title(value), problem: error.to_string() })
}

fn title(value: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&value["kind"]), text(&value["metadata"]["name"]))
}

fn add(value: &Value, objects: &mut Objects) -> Result<(), BadManifest> {
    match value["kind"].as_str().unwrap_or_default() {
        "NodePool" => objects.node_pools.push(read(value)?),
        "EC2NodeClass" => objects.node_classes.push(read(value)?),
        "Node" => objects.nodes.push(read(value)?),
        "Pod" => objects.pods.push(Arc::new(read(value)?)),
        "DaemonSet" => objects.daemon_sets.push(read(value)?),
        "PersistentVolume" => objects.persistent_volumes.push(read(value)?),
        "PersistentVolumeClaim" => objects.persistent_volume_claims.push(read(value)?),
        "StorageClass" => objects.storage_classes.push(read(value)?),
        "PodDisruptionBudget" => objects.pod_disruption_budgets.push(read(value)?),
        "PriorityClass" => objects.priority_classes.push(read(value)?),
        "Namespace" => objects.namespaces.push(read(value)?),
        "Deployment" => {
            let it: Deployment = read(value)?;
            let spec = it.spec.unwrap_or_default();
            expand(("Deployment", &it.metadata), spec.replicas, &spec.template, &[], objects);
        }
        "StatefulSet" => {
            let it: StatefulSet = read(value)?;
            let spec = it.spec.unwrap_or_default();
            let claims = spec.volume_claim_templates.unwrap_or_default();
            expand(("StatefulSet", &it.metadata), spec.replicas, &spec.template, &claims, objects);
        }
        _ => return Err(BadManifest { object: title(value), problem: "no kind that cases have".to_owned() }),
    }
    Ok(())
}

/// Adds the pods of a workload of kind and metadata `owner`.
fn expand(
    (kind, owner): (&str, &ObjectMeta),
    replicas: Option<i32>,
    template: &PodTemplateSpec,
    claims: &[PersistentVolumeClaim],
    objects: &mut Objects,
) {
    let labels = template.metadata.clone().unwrap_or_default();
    let reference = OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: kind.to_owned(),
        name: owner.name.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    for number in 0..replicas.unwrap_or(1) {
        let name = format!("{}-{number}", owner.name.as_deref().unwrap_or_default());
        let mut spec = template.spec.clone().unwrap_or_default();
        for claim in claims {
            let volume = claim.metadata.name.clone().unwrap_or_default();
            let claim_name = format!("{volume}-{name}");
            let mut made = claim.clone();
            made.metadata.name = Some(claim_name.clone());
            made.metadata.namespace.clone_from(&owner.namespace);
            objects.persistent_volume_claims.push(made);
            spec.volumes.get_or_insert_default().push(Volume {
                name: volume,
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name, read_only: None }),
                ..Volume::default()
            });
        }
        let pod = Pod {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: owner.namespace.clone(),
                labels: labels.labels.clone(),
                annotations: labels.annotations.clone(),
                owner_references: Some(vec![reference.clone()]),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
            status: None,
        };
        objects.pods.push(Arc::new(pod.into()));
    }
}
