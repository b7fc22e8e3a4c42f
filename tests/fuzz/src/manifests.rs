//! Manifests: any input yields objects or errors with a location. Accepted objects are accepted again with the same
//! meaning.

mod mutate;

use plimsoll_cli::manifests::{ManifestError, Manifests, Place, read};
use plimsoll_model::snapshot::Snapshot;
use plimsoll_snapshot::{Extra, Objects, Source};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// First byte of an input that describes changes to a YAML document.
pub const CHANGES: u8 = 0;

/// Parses the bytes as a file. If the first byte is [`CHANGES`], parses a YAML document after changes to its values.
///
/// # Panics
/// If the property is violated.
pub fn holds(data: &[u8]) {
    match data.split_first() {
        Some((&CHANGES, rest)) => {
            if let Some(text) = mutate::changed(rest) {
                text_holds(text.as_bytes());
            }
        }
        _ => text_holds(data),
    }
}

fn from_bytes(mut bytes: &[u8]) -> Result<Manifests, Vec<ManifestError>> {
    read(&[PathBuf::from("-")], &mut bytes).map_err(|errors| errors.0)
}

fn text_holds(bytes: &[u8]) {
    match from_bytes(bytes) {
        Err(errors) => {
            assert!(!errors.is_empty(), "refused without a reason");
            errors.iter().for_each(has_place);
        }
        Ok(manifests) => accepted(&manifests),
    }
}

/// An error names the file and the document. An error about a field also names the object and the field.
fn has_place(error: &ManifestError) {
    let check = |place: &Place| assert!(&*place.file == "-" && place.document > 0, "where is {error}?");
    match error {
        ManifestError::Unreadable { path, problem } => assert!(path == "-" && !problem.is_empty(), "{error}"),
        ManifestError::Document { place, problem } => {
            check(place);
            assert!(!problem.is_empty(), "{error}");
        }
        ManifestError::Field { place, object, problem, .. } => {
            check(place);
            assert!(object.contains(' ') && !problem.is_empty(), "{error}");
        }
        ManifestError::Duplicate { object, first, second } => {
            assert!(object.contains(' '), "{error}");
            check(first);
            check(second);
        }
    }
}

fn accepted(manifests: &Manifests) {
    let expanded = manifests.objects.clone().expanded();
    let objects = written(&expanded);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    match from_bytes(list.as_bytes()) {
        Ok(again) => {
            let again = written(&again.objects.expanded());
            for (first, second) in objects.iter().zip(&again) {
                assert_eq!(first, second, "an object changed in a round trip");
            }
            assert_eq!(objects.len(), again.len());
        }
        Err(errors) => assert!(errors.is_empty(), "what was read is not read again: {errors:?}\n{list}"),
    }
    let extra = Extra { source: Source::Files, ..Extra::default() };
    let (snapshot, problems) = plimsoll_snapshot::build(&manifests.objects, &extra);
    problems.iter().for_each(|problem| has_place(&manifests.locate(problem)));
    let whole = plimsoll_snapshot::build(&expanded, &extra);
    assert_eq!((&snapshot, &problems), (&whole.0, &whole.1), "replicas are not what their pods are");
    // The snapshot of the command can be encoded.
    let wire = plimsoll_proto::snapshot::v1::Snapshot::from(&snapshot);
    assert_eq!(Snapshot::try_from(wire).as_ref(), Ok(&snapshot), "the snapshot changed in a round trip");
}

/// All objects with their kinds, in a fixed order of kinds. Replicas are already expanded into pods.
fn written(objects: &Objects) -> Vec<Value> {
    let mut values = Vec::new();
    let Objects {
        pods,
        nodes,
        node_pools,
        node_claims,
        node_classes,
        node_overlays,
        daemon_sets,
        pod_disruption_budgets,
        priority_classes,
        namespaces,
        persistent_volumes,
        persistent_volume_claims,
        storage_classes,
        csi_nodes,
        capacity_buffers,
        capacity_quotas,
        pod_templates,
        // The pods of replicas are included above.
        replicas: _,
        deployments: _,
        replica_sets: _,
        stateful_sets: _,
    } = objects;
    add(&mut values, "v1", "Pod", pods);
    add(&mut values, "v1", "Node", nodes);
    add(&mut values, "karpenter.sh/v1", "NodePool", node_pools);
    add(&mut values, "karpenter.sh/v1", "NodeClaim", node_claims);
    add(&mut values, "karpenter.k8s.aws/v1", "EC2NodeClass", node_classes);
    add(&mut values, "karpenter.sh/v1alpha1", "NodeOverlay", node_overlays);
    add(&mut values, "apps/v1", "DaemonSet", daemon_sets);
    add(&mut values, "policy/v1", "PodDisruptionBudget", pod_disruption_budgets);
    add(&mut values, "scheduling.k8s.io/v1", "PriorityClass", priority_classes);
    add(&mut values, "v1", "Namespace", namespaces);
    add(&mut values, "v1", "PersistentVolume", persistent_volumes);
    add(&mut values, "v1", "PersistentVolumeClaim", persistent_volume_claims);
    add(&mut values, "storage.k8s.io/v1", "StorageClass", storage_classes);
    add(&mut values, "storage.k8s.io/v1", "CSINode", csi_nodes);
    add(&mut values, "autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", capacity_buffers);
    add(&mut values, "autoscaling.x-k8s.io/v1beta1", "CapacityQuota", capacity_quotas);
    add(&mut values, "v1", "PodTemplate", pod_templates);
    values
}

fn add<T: Serialize>(all: &mut Vec<Value>, version: &str, kind: &str, objects: &[T]) {
    for object in objects {
        let value = serde_json::to_value(object);
        assert!(value.is_ok(), "a {kind} cannot be written: {value:?}");
        let mut fields = match value {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        fields.insert("apiVersion".to_owned(), version.into());
        fields.insert("kind".to_owned(), kind.into());
        all.push(Value::Object(fields));
    }
}
