//! Claims, volumes and their classes.

use crate::Feature;
use crate::generate::Draft;
use crate::manifest::push;
use plimsoll_model::names::label;
use serde_json::{Value, json};

const DRIVER: &str = "ebs.csi.aws.com";

/// Applies a feature of this module to a workload.
pub(crate) fn apply(draft: &mut Draft, feature: Feature, index: usize) {
    match feature {
        Feature::BoundVolumes => bound(draft, index),
        Feature::WaitingVolumes => waiting(draft, index),
        _ => {}
    }
}

/// The storage class of this name, created if it is missing.
fn class(draft: &mut Draft, name: &str, allowed: &[String]) {
    let there = draft.objects.iter().any(|it| it["kind"] == "StorageClass" && it["metadata"]["name"] == name);
    if there {
        return;
    }
    let mut class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer",
    });
    if !allowed.is_empty() {
        class["allowedTopologies"] = json!([{"matchLabelExpressions": [{"key": label::ZONE, "values": allowed}]}]);
    }
    draft.objects.push(class);
}

/// One claim with a volume in a random zone, which all pods of the workload share.
fn bound(draft: &mut Draft, index: usize) {
    let zones = draft.zones();
    let zone = draft.rng.pick(&zones).cloned().unwrap_or_default();
    class(draft, "ebs", &[]);
    let Some(workload) = draft.workloads.get_mut(index) else { return };
    let claim = format!("{}-data", workload.name);
    let volume = format!("pv-{}", workload.name);
    let namespace = workload.namespace.clone();
    push(&mut workload.pod, &["volumes"], json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}}));
    draft.objects.push(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Gi"}, "storageClassName": "ebs",
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": DRIVER, "volumeHandle": format!("vol-{volume}")},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": label::ZONE, "operator": "In", "values": [zone]},
            ]}]}},
        },
        "status": {"phase": "Bound"},
    }));
    draft.objects.push(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim, "namespace": namespace,
            "annotations": {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"},
        },
        "spec": claim_spec("ebs", Some(&volume)),
        "status": {"phase": "Bound"},
    }));
}

/// One claim per pod, bound in the zone of the pod.
fn waiting(draft: &mut Draft, index: usize) {
    let zones = draft.zones();
    let name = if draft.rng.chance(50) {
        let allowed = draft.rng.some(&zones, 1);
        class(draft, "ebs-somewhere", &allowed);
        "ebs-somewhere"
    } else {
        class(draft, "ebs", &[]);
        "ebs"
    };
    if let Some(workload) = draft.workloads.get_mut(index) {
        workload.claims.push(json!({"metadata": {"name": "state"}, "spec": claim_spec(name, None)}));
        if let Some(first) = workload.pod["containers"].get_mut(0) {
            push(first, &["volumeMounts"], json!({"name": "state", "mountPath": "/state"}));
        }
    }
}

fn claim_spec(class: &str, volume: Option<&str>) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": {"requests": {"storage": "10Gi"}},
    });
    if let Some(volume) = volume {
        spec["volumeName"] = volume.into();
    }
    spec
}
