//! Objects by kind, each checked for what an API server would refuse.

use super::kinds::Kind;
use super::typed::read;
use super::workloads::Workload;
use super::{Manifest, ManifestError, pod_checks};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::PodTemplate;
use plimsoll_api::crd::Kind as CustomKind;
use plimsoll_api::{Pod, Validate, validation};
use plimsoll_snapshot::Objects;
use serde::de::DeserializeOwned;
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
        Kind::CapacityQuota => objects.capacity_quotas.push(custom(it, CustomKind::CapacityQuota)?),
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
    pod_checks::check(manifest, pod.spec.as_deref(), "spec")?;
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
