//! Objects by kind, each checked for what an API server would refuse.

use super::admission::Admission;
use super::kinds::Kind;
use super::typed::{checked, read};
use super::workloads::Workload;
use super::{Manifest, ManifestError, validation as checks};
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::PodTemplate;
use plimsoll_api::crd::Kind as CustomKind;
use plimsoll_api::{Pod, Validate, validation};
use plimsoll_snapshot::Objects;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// Puts the object where it belongs; a workload is handed back, to be expanded when all objects are known.
pub(super) fn add(
    mut manifest: Manifest,
    admission: &Admission,
    objects: &mut Objects,
) -> Result<Option<Workload>, Vec<ManifestError>> {
    checks::own_labels(&manifest)?;
    let it = &manifest;
    match it.kind {
        Kind::NodePool => objects.node_pools.push(custom(&mut manifest, CustomKind::NodePool)?),
        Kind::EC2NodeClass => objects.node_classes.push(custom(&mut manifest, CustomKind::EC2NodeClass)?),
        Kind::NodeClaim => objects.node_claims.push(custom(&mut manifest, CustomKind::NodeClaim)?),
        Kind::NodeOverlay => objects.node_overlays.push(custom(&mut manifest, CustomKind::NodeOverlay)?),
        Kind::CapacityBuffer => objects.capacity_buffers.push(custom(&mut manifest, CustomKind::CapacityBuffer)?),
        Kind::CapacityQuota => objects.capacity_quotas.push(custom(&mut manifest, CustomKind::CapacityQuota)?),
        Kind::PodTemplate => objects.pod_templates.push(checked(it, pod_template)?),
        Kind::Node => objects.nodes.push(read(it)?),
        Kind::Pod => objects.pods.push(Arc::new(admission.pod(it, checked(it, pod)?)?)),
        Kind::DaemonSet => {
            let mut object: DaemonSet = checked(it, daemon_set)?;
            if let Some(spec) = &mut object.spec {
                admission.template(it, &mut spec.template)?;
            }
            objects.daemon_sets.push(object);
        }
        Kind::PersistentVolume => objects.persistent_volumes.push(checked(it, checks::volume)?),
        Kind::PersistentVolumeClaim => objects.persistent_volume_claims.push(checked(it, checks::claim)?),
        Kind::StorageClass => objects.storage_classes.push(checked(it, checks::storage_class)?),
        Kind::CSINode => objects.csi_nodes.push(checked(it, checks::csi_node)?),
        Kind::PodDisruptionBudget => objects.pod_disruption_budgets.push(checked(it, checks::disruption_budget)?),
        Kind::PriorityClass => objects.priority_classes.push(checked(it, checks::priority_class)?),
        Kind::Namespace => objects.namespaces.push(read(it)?),
        // `admission` has them.
        Kind::RuntimeClass | Kind::LimitRange => {}
        Kind::Deployment | Kind::ReplicaSet | Kind::StatefulSet | Kind::Job => {
            return Workload::read(manifest, admission, objects).map(Some);
        }
    }
    Ok(None)
}

fn pod(manifest: &Manifest, pod: &Pod) -> Result<(), Vec<ManifestError>> {
    checks::pod(manifest, pod.spec.as_deref())
}

fn daemon_set(manifest: &Manifest, daemon_set: &DaemonSet) -> Result<(), Vec<ManifestError>> {
    let none = DaemonSetSpec::default();
    let spec = daemon_set.spec.as_ref().unwrap_or(&none);
    checks::replicated(manifest, &spec.selector, &spec.template)
}

fn pod_template(manifest: &Manifest, pod_template: &PodTemplate) -> Result<(), Vec<ManifestError>> {
    checks::pod_template(manifest, pod_template.template.as_ref())
}

fn custom<T: DeserializeOwned + Validate>(manifest: &mut Manifest, kind: CustomKind) -> Result<T, Vec<ManifestError>> {
    // As an API server, which reads the metadata of all kinds alike.
    for field in ["/metadata/labels", "/metadata/annotations"] {
        let entries = manifest.value.pointer_mut(field).and_then(Value::as_object_mut).into_iter().flatten();
        entries.map(|(_, value)| value).filter(|value| value.is_null()).for_each(|value| *value = Value::from(""));
    }
    validation::drop_null_entries(kind, &mut manifest.value);
    let faults = |errors: Vec<validation::FieldError>| -> Vec<ManifestError> {
        errors.into_iter().map(|error| manifest.fault(error.path, error.message)).collect()
    };
    let errors = validation::check_manifest(kind, &manifest.value);
    if !errors.is_empty() {
        return Err(faults(errors));
    }
    // The check above has found unknown fields; the derived types skip `apiVersion` and `kind`, which `read` would take
    // for such.
    let object = match T::deserialize(&manifest.value) {
        Ok(object) => object,
        Err(_) => serde_path_to_error::deserialize(&manifest.value)
            .map_err(|error| vec![manifest.fault(error.path().to_string(), error.inner())])?,
    };
    let errors = object.validate();
    if errors.is_empty() { Ok(object) } else { Err(faults(errors)) }
}
