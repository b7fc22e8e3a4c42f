//! Objects in their types: no unknown field, no value of another type, nothing that an API server would refuse.

use super::kinds::Kind;
use super::workloads::Workload;
use super::{Manifest, ManifestError, pod_checks, strict};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplate};
use plimsoll_api::crd::Kind as CustomKind;
use plimsoll_api::{Validate, validation};
use plimsoll_snapshot::Objects;
use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;
use std::sync::Arc;

/// Puts the object where it belongs; a workload is handed back, to be expanded when all objects are known.
pub(super) fn add(manifest: Manifest, objects: &mut Objects) -> Result<Option<Workload>, Vec<ManifestError>> {
    let it = &manifest;
    match it.kind {
        Kind::NodePool => objects.node_pools.push(custom(it, CustomKind::NodePool)?),
        Kind::EC2NodeClass => objects.node_classes.push(custom(it, CustomKind::EC2NodeClass)?),
        Kind::NodeClaim => objects.node_claims.push(custom(it, CustomKind::NodeClaim)?),
        Kind::NodeOverlay => objects.node_overlays.push(custom(it, CustomKind::NodeOverlay)?),
        Kind::CapacityBuffer => objects.capacity_buffers.push(custom(it, CustomKind::CapacityBuffer)?),
        Kind::PodTemplate => objects.pod_templates.push(pod_template(it)?),
        Kind::Node => objects.nodes.push(read(it)?),
        Kind::Pod => objects.pods.push(Arc::new(pod(it)?)),
        Kind::DaemonSet => objects.daemon_sets.push(daemon_set(it)?),
        Kind::PersistentVolume => objects.persistent_volumes.push(read(it)?),
        Kind::PersistentVolumeClaim => objects.persistent_volume_claims.push(read(it)?),
        Kind::StorageClass => objects.storage_classes.push(read(it)?),
        Kind::CSINode => objects.csi_nodes.push(read(it)?),
        Kind::PodDisruptionBudget => objects.pod_disruption_budgets.push(read(it)?),
        Kind::PriorityClass => objects.priority_classes.push(read(it)?),
        Kind::Namespace => objects.namespaces.push(read(it)?),
        Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::Job => {
            return Workload::read(manifest, objects).map(Some);
        }
    }
    Ok(None)
}

fn pod(manifest: &Manifest) -> Result<Pod, Vec<ManifestError>> {
    let pod: Pod = read(manifest)?;
    pod_checks::check(manifest, pod.spec.as_ref(), "spec")?;
    Ok(pod)
}

fn daemon_set(manifest: &Manifest) -> Result<DaemonSet, Vec<ManifestError>> {
    let daemon_set: DaemonSet = read(manifest)?;
    let template = daemon_set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    pod_checks::check(manifest, template, "spec.template.spec")?;
    if let Some(spec) = &daemon_set.spec {
        pod_checks::check_selector(manifest, &spec.template)?;
    }
    Ok(daemon_set)
}

fn pod_template(manifest: &Manifest) -> Result<PodTemplate, Vec<ManifestError>> {
    let pod_template: PodTemplate = read(manifest)?;
    let template = pod_template.template.as_ref().and_then(|template| template.spec.as_ref());
    pod_checks::check(manifest, template, "template.spec")?;
    Ok(pod_template)
}

fn custom<T: DeserializeOwned + Validate>(manifest: &Manifest, kind: CustomKind) -> Result<T, Vec<ManifestError>> {
    let faults = |errors: Vec<validation::FieldError>| -> Vec<ManifestError> {
        errors.into_iter().map(|error| manifest.fault(error.path, error.message)).collect()
    };
    let errors = validation::check_manifest(kind, &manifest.value);
    if !errors.is_empty() {
        return Err(faults(errors));
    }
    // The check above has found unknown fields; the derived types skip `apiVersion` and `kind`, which `read` would take for such.
    let object = match T::deserialize(&manifest.value) {
        Ok(object) => object,
        Err(_) => serde_path_to_error::deserialize(&manifest.value)
            .map_err(|error| vec![manifest.fault(error.path().to_string(), error.inner())])?,
    };
    let errors = object.validate();
    if errors.is_empty() { Ok(object) } else { Err(faults(errors)) }
}

/// Reads a Kubernetes object; fields that its type does not have are errors, but for those of its status: a server wrote that, and
/// it may be newer.
pub(super) fn read<T: DeserializeOwned>(manifest: &Manifest) -> Result<T, Vec<ManifestError>> {
    strict::read(&manifest.value).map_or_else(|| read_with_paths(manifest), Ok)
}

/// The same at a multiple of the cost, with the path of each field that is wrong.
pub(super) fn read_with_paths<T: DeserializeOwned>(manifest: &Manifest) -> Result<T, Vec<ManifestError>> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let read = {
        let deserializer = serde_path_to_error::Deserializer::new(&manifest.value, &mut track);
        let mut note = |path: Path<'_>| {
            // A null is how YAML writes nothing at all.
            let null = value_at(&manifest.value, &path).is_some_and(Value::is_null);
            let path = text(&path);
            if !null && !path.starts_with("status.") {
                unknown.push(manifest.fault(path, "no such field"));
            }
        };
        // Behind one type, since the two wrappers grow with each level: unerased, every Kubernetes type is compiled once per depth.
        let mut erased =
            <dyn erased_serde::Deserializer<'_>>::erase(serde_ignored::Deserializer::new(deserializer, &mut note));
        erased_serde::deserialize(&mut erased)
    };
    let object = read.map_err(|error: erased_serde::Error| vec![manifest.fault(track.path().to_string(), error)])?;
    if unknown.is_empty() { Ok(object) } else { Err(unknown) }
}

/// `spec.containers[0].image`.
fn text(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", text(parent)),
        Path::Map { parent, key } => {
            let parent = text(parent);
            if parent.is_empty() { key.clone() } else { format!("{parent}.{key}") }
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => text(parent),
    }
}

fn value_at<'value>(value: &'value Value, path: &Path<'_>) -> Option<&'value Value> {
    match path {
        Path::Root => Some(value),
        Path::Seq { parent, index } => value_at(value, parent)?.get(index),
        Path::Map { parent, key } => value_at(value, parent)?.get(key),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            value_at(value, parent)
        }
    }
}
