//! Objects in their types: no unknown field, no value of another type, nothing that an API server would refuse.

use super::kinds::Kind;
use super::workloads::Workload;
use super::{Manifest, ManifestError};
use plimsoll_api::crd::Kind as CustomKind;
use plimsoll_api::{CapacityBuffer, NodeOverlay, Validate, validation};
use plimsoll_snapshot::Objects;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Puts the object where it belongs; a workload is handed back, to be expanded when all objects are known.
pub(super) fn add(manifest: Manifest, objects: &mut Objects) -> Result<Option<Workload>, ManifestError> {
    let it = &manifest;
    match it.kind {
        Kind::NodePool => objects.node_pools.push(custom(it, CustomKind::NodePool)?),
        Kind::EC2NodeClass => objects.node_classes.push(custom(it, CustomKind::EC2NodeClass)?),
        Kind::NodeClaim => objects.node_claims.push(custom(it, CustomKind::NodeClaim)?),
        Kind::NodeOverlay => drop(custom::<NodeOverlay>(it, CustomKind::NodeOverlay)?),
        Kind::CapacityBuffer => drop(custom::<CapacityBuffer>(it, CustomKind::CapacityBuffer)?),
        Kind::Node => objects.nodes.push(read(it)?),
        Kind::Pod => objects.pods.push(read(it)?),
        Kind::DaemonSet => objects.daemon_sets.push(read(it)?),
        Kind::PersistentVolume => objects.persistent_volumes.push(read(it)?),
        Kind::PersistentVolumeClaim => objects.persistent_volume_claims.push(read(it)?),
        Kind::StorageClass => objects.storage_classes.push(read(it)?),
        Kind::CSINode => drop(read::<k8s_openapi::api::storage::v1::CSINode>(it)?),
        Kind::PodDisruptionBudget => objects.pod_disruption_budgets.push(read(it)?),
        Kind::PriorityClass => objects.priority_classes.push(read(it)?),
        Kind::Namespace => objects.namespaces.push(read(it)?),
        Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::Job => {
            return Workload::read(manifest).map(Some);
        }
    }
    Ok(None)
}

fn custom<T: DeserializeOwned + Validate>(manifest: &Manifest, kind: CustomKind) -> Result<T, ManifestError> {
    if let Some(error) = validation::check_manifest(kind, &manifest.value).into_iter().next() {
        return Err(manifest.fault(error.path, error.message));
    }
    // The check above has found unknown fields; the derived types skip `apiVersion` and `kind`, which `read` would take for such.
    let object: T = serde_path_to_error::deserialize(&manifest.value)
        .map_err(|error| manifest.fault(error.path().to_string(), error.inner()))?;
    match object.validate().into_iter().next() {
        Some(error) => Err(manifest.fault(error.path, error.message)),
        None => Ok(object),
    }
}

/// Reads a Kubernetes object; the first field that its type does not have is an error.
pub(super) fn read<T: DeserializeOwned>(manifest: &Manifest) -> Result<T, ManifestError> {
    let mut unknown = None;
    let mut track = serde_path_to_error::Track::new();
    let read = {
        let deserializer = serde_path_to_error::Deserializer::new(&manifest.value, &mut track);
        serde_ignored::deserialize(deserializer, |path| {
            let path = path.to_string().replace(".?", "");
            // A null is how YAML writes nothing at all.
            if unknown.is_none() && !value_at(&manifest.value, &path).is_some_and(Value::is_null) {
                unknown = Some(path);
            }
        })
    };
    let object = read.map_err(|error: serde_json::Error| manifest.fault(track.path().to_string(), error))?;
    match unknown {
        Some(path) => Err(manifest.fault(path, "no such field")),
        None => Ok(object),
    }
}

fn value_at<'value>(value: &'value Value, path: &str) -> Option<&'value Value> {
    path.split('.').try_fold(value, |value, key| match value {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        other => other.get(key),
    })
}
