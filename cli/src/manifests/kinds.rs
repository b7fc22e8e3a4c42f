//! What kind of object a document is.

use super::{Manifest, ManifestError, Place};
use serde_json::Value;

/// Kinds that mean something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    NodePool,
    EC2NodeClass,
    NodeClaim,
    NodeOverlay,
    CapacityBuffer,
    Node,
    Pod,
    Deployment,
    ReplicaSet,
    StatefulSet,
    Job,
    DaemonSet,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CSINode,
    PodDisruptionBudget,
    PriorityClass,
    Namespace,
}

/// Kind, `apiVersion` and whether objects of it are in a namespace.
const KINDS: [(Kind, &str, &str, bool); 19] = [
    (Kind::NodePool, "NodePool", "karpenter.sh/v1", false),
    (Kind::EC2NodeClass, "EC2NodeClass", "karpenter.k8s.aws/v1", false),
    (Kind::NodeClaim, "NodeClaim", "karpenter.sh/v1", false),
    (Kind::NodeOverlay, "NodeOverlay", "karpenter.sh/v1alpha1", false),
    (Kind::CapacityBuffer, "CapacityBuffer", "autoscaling.x-k8s.io/v1beta1", true),
    (Kind::Node, "Node", "v1", false),
    (Kind::Pod, "Pod", "v1", true),
    (Kind::Deployment, "Deployment", "apps/v1", true),
    (Kind::ReplicaSet, "ReplicaSet", "apps/v1", true),
    (Kind::StatefulSet, "StatefulSet", "apps/v1", true),
    (Kind::Job, "Job", "batch/v1", true),
    (Kind::DaemonSet, "DaemonSet", "apps/v1", true),
    (Kind::PersistentVolume, "PersistentVolume", "v1", false),
    (Kind::PersistentVolumeClaim, "PersistentVolumeClaim", "v1", true),
    (Kind::StorageClass, "StorageClass", "storage.k8s.io/v1", false),
    (Kind::CSINode, "CSINode", "storage.k8s.io/v1", false),
    (Kind::PodDisruptionBudget, "PodDisruptionBudget", "policy/v1", true),
    (Kind::PriorityClass, "PriorityClass", "scheduling.k8s.io/v1", false),
    (Kind::Namespace, "Namespace", "v1", false),
];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        KINDS.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }
}

/// The object with its kind and name, or the kind alone if it means nothing here. Objects without namespace are in `default`.
pub(super) fn classify(place: &Place, mut value: Value) -> Result<Result<Manifest, String>, ManifestError> {
    let problem = |problem: String| ManifestError::Document { place: place.clone(), problem };
    let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
    let kind = text("kind").ok_or_else(|| problem("kind: must be a text".to_owned()))?;
    let version = text("apiVersion").ok_or_else(|| problem(format!("{kind}: apiVersion: must be a text")))?;
    let group = |version: &str| version.rsplit_once('/').map_or(String::new(), |(group, _)| group.to_owned());
    let rows = KINDS.iter().find(|row| row.1 == kind && group(row.2) == group(&version));
    let Some((known, _, expected, namespaced)) = rows else { return Ok(Err(format!("{version} {kind}"))) };
    if version != *expected {
        return Err(problem(format!("{kind}: apiVersion: {version:?} is not supported, {expected:?} is")));
    }
    let metadata = value.get_mut("metadata").and_then(Value::as_object_mut);
    let metadata = metadata.ok_or_else(|| problem(format!("{kind}: metadata: must be an object")))?;
    let name = metadata.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| problem(format!("{kind}: metadata.name: is required")))?.to_owned();
    let full_name = if *namespaced {
        let namespace = metadata.entry("namespace").or_insert_with(|| Value::from("default"));
        if namespace.is_null() {
            *namespace = Value::from("default");
        }
        let message = || problem(format!("{kind} {name}: metadata.namespace: must be a text"));
        format!("{}/{name}", namespace.as_str().ok_or_else(message)?)
    } else {
        metadata.remove("namespace");
        name
    };
    Ok(Ok(Manifest { place: place.clone(), kind: *known, name: full_name, value }))
}
