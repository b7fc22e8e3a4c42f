//! What kind of object a document is.

use super::documents::Object;
use super::{Manifest, ManifestError, UnknownFields};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use plimsoll_model::identity::ContentHasher;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Kinds that mean something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    NodePool,
    EC2NodeClass,
    NodeClaim,
    NodeOverlay,
    CapacityBuffer,
    CapacityQuota,
    PodTemplate,
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
    RuntimeClass,
    LimitRange,
    Namespace,
}

/// Kind, `apiVersion` and whether objects of it are in a namespace.
const KINDS: [(Kind, &str, &str, bool); 23] = [
    (Kind::NodePool, "NodePool", "karpenter.sh/v1", false),
    (Kind::EC2NodeClass, "EC2NodeClass", "karpenter.k8s.aws/v1", false),
    (Kind::NodeClaim, "NodeClaim", "karpenter.sh/v1", false),
    (Kind::NodeOverlay, "NodeOverlay", "karpenter.sh/v1alpha1", false),
    (Kind::CapacityBuffer, "CapacityBuffer", "autoscaling.x-k8s.io/v1beta1", true),
    (Kind::CapacityQuota, "CapacityQuota", "autoscaling.x-k8s.io/v1beta1", false),
    (Kind::PodTemplate, "PodTemplate", "v1", true),
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
    (Kind::RuntimeClass, "RuntimeClass", "node.k8s.io/v1", false),
    (Kind::LimitRange, "LimitRange", "v1", true),
    (Kind::Namespace, "Namespace", "v1", false),
];

/// Further versions of kinds, which have the same fields.
const OLDER_VERSIONS: [(Kind, &str); 3] = [
    (Kind::CapacityBuffer, "autoscaling.x-k8s.io/v1alpha1"),
    (Kind::CapacityQuota, "autoscaling.x-k8s.io/v1alpha1"),
    (Kind::RuntimeClass, "node.k8s.io/v1beta1"),
];

/// What is added to a generateName, as long as what the API server adds.
const GENERATED_DIGITS: usize = 5;
/// Longest name of an object.
const MAX_NAME: usize = 253;
/// The longest name that can be part of a host name.
const MAX_DNS_LABEL: usize = 63;
/// What [`is_dns_label`] requires.
pub(super) const DNS_LABEL_RULE: &str =
    "at most 63 lower-case letters, digits and -, beginning and ending with a letter or digit";

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        KINDS.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }
}

/// The kind of that name.
pub(super) fn of_name(name: &str) -> Option<Kind> {
    KINDS.iter().find(|row| row.1 == name).map(|row| row.0)
}

/// The kind with this name in any case, and its `apiVersion`.
#[must_use]
pub fn known_kind(name: &str) -> Option<(&'static str, &'static str)> {
    KINDS.iter().find(|row| row.1.eq_ignore_ascii_case(name)).map(|row| (row.1, row.2))
}

/// The object that an owner reference in `namespace` is about, if it is of a kind that means something here.
pub(super) fn owner(owner: &OwnerReference, namespace: &str) -> Option<(Kind, String)> {
    let row = KINDS.iter().find(|row| row.1 == owner.kind && group(row.2) == group(&owner.api_version))?;
    let name = if row.3 { format!("{namespace}/{}", owner.name) } else { owner.name.clone() };
    Some((row.0, name))
}

/// The group of an `apiVersion`; empty for the core group.
fn group(version: &str) -> &str {
    version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// An object of a kind that means nothing here.
#[derive(Debug)]
pub(super) struct Ignored {
    version: String,
    kind: String,
    namespace: Option<String>,
    pub(super) name: String,
}

impl Ignored {
    /// `apiVersion` and kind.
    pub(super) fn full_kind(&self) -> String {
        format!("{} {}", self.version, self.kind)
    }

    /// Whether the owner reference of an object in `namespace` is about this object.
    pub(super) fn owns(&self, owner: &OwnerReference, namespace: &str) -> bool {
        owner.kind == self.kind
            && owner.name == self.name
            && group(&owner.api_version) == group(&self.version)
            && self.namespace.as_deref().is_none_or(|own| own == namespace)
    }
}

/// The object with its kind and name, or an ignored object. Objects without namespace are in `default`.
/// `generated` counts objects whose name is generated, by that name.
pub(super) fn classify(
    object: Object,
    generated: &mut BTreeMap<String, usize>,
) -> Result<Result<Manifest, Ignored>, ManifestError> {
    let Object { place, mut value } = object;
    if let Some(name) = generated_name(&value, generated) {
        value["metadata"]["name"] = Value::from(name);
    }
    let problem = |problem: String| ManifestError::Document { place: place.clone(), problem };
    let Some(fields) = value.as_object_mut() else { return Err(problem("not an object".to_owned())) };
    let text = |field: &str| match fields.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        None | Some(Value::Null | Value::String(_)) => Err("is required"),
        Some(_) => Err("must be a string"),
    };
    let kind = text("kind").map_err(|fault| problem(format!("kind: {fault}")))?;
    let version = text("apiVersion").map_err(|fault| problem(format!("{kind}: apiVersion: {fault}")))?;
    let row = KINDS.iter().find(|row| row.1 == kind && group(row.2) == group(&version));
    let Some((known, _, expected, namespaced)) = row else {
        let of = |field: &str| value["metadata"][field].as_str().map(str::to_owned);
        return Ok(Err(Ignored { namespace: of("namespace"), name: of("name").unwrap_or_default(), version, kind }));
    };
    if version != *expected && !OLDER_VERSIONS.contains(&(*known, version.as_str())) {
        let name = fields.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
        let name = name.map(|name| format!(" {name}")).unwrap_or_default();
        return Err(problem(format!("{kind}{name}: apiVersion: {version:?} is not supported, {expected:?} is")));
    }
    let metadata = match fields.get_mut("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None | Some(Value::Null) => return Err(problem(format!("{kind}: metadata: is required"))),
        Some(_) => return Err(problem(format!("{kind}: metadata: must be an object"))),
    };
    let fault = |fault: String| problem(format!("{kind}: metadata.name: {fault}"));
    let mut name = object_name(metadata.get("name")).map_err(fault)?;
    if *namespaced {
        let fault = |fault: String| problem(format!("{kind} {name}: metadata.namespace: {fault}"));
        name = format!("{}/{name}", namespace(metadata).map_err(fault)?);
    } else {
        metadata.remove("namespace");
    }
    Ok(Ok(Manifest { kind: *known, name, value, place, unknown_fields: UnknownFields::default() }))
}

/// The value of `metadata.name`, or what is wrong with it.
fn object_name(name: Option<&Value>) -> Result<String, String> {
    match name {
        Some(Value::String(name)) if is_name(name) => Ok(name.clone()),
        None | Some(Value::Null) => Err("is required".to_owned()),
        Some(Value::String(name)) if name.is_empty() => Err("is required".to_owned()),
        Some(name) => {
            let rule = "at most 253 lower-case letters, digits, - and ., beginning and ending with a letter or digit";
            Err(unquoted(name).map_or_else(|| format!("{name} must consist of {rule}"), str::to_owned))
        }
    }
}

/// The value of `metadata.namespace`, or what is wrong with it. Sets it to `default` if there is none.
fn namespace(metadata: &mut Map<String, Value>) -> Result<String, String> {
    let namespace = metadata.entry("namespace").or_insert_with(|| Value::from("default"));
    if namespace.is_null() || namespace.as_str() == Some("") {
        *namespace = Value::from("default");
    }
    match namespace.as_str() {
        Some(name) if is_dns_label(name) => Ok(name.to_owned()),
        _ => {
            let fault = || format!("{namespace} must consist of {DNS_LABEL_RULE}");
            Err(unquoted(namespace).map_or_else(fault, str::to_owned))
        }
    }
}

/// The name of an object that has `metadata.generateName` alone. The API server would draw it; here it follows from the
/// content, so that it does not depend on the order of documents. Objects that are the same in all are numbered.
fn generated_name(value: &Value, generated: &mut BTreeMap<String, usize>) -> Option<String> {
    let metadata = value.get("metadata")?;
    let prefix = metadata.get("generateName")?.as_str().filter(|it| !it.is_empty())?;
    if metadata.get("name").is_some_and(|name| !name.is_null() && name != "") {
        return None;
    }
    let mut hasher = ContentHasher::new("generated name");
    hasher.text(&value.to_string());
    let name = format!("{prefix}{}", hasher.hex(GENERATED_DIGITS));
    let known = generated.entry(name.clone()).or_default();
    *known += 1;
    Some(if *known == 1 { name } else { format!("{name}-{known}") })
}

/// What is wrong with a name that is no string, such as `123` and `n` in YAML.
fn unquoted(name: &Value) -> Option<&'static str> {
    match name {
        Value::Number(_) => Some("must be a string, not a number; quote it"),
        Value::Bool(_) => Some("must be a string, not a boolean; quote it"),
        Value::Array(_) | Value::Object(_) => Some("must be a string"),
        _ => None,
    }
}

/// Whether Kubernetes would take `text` for an object's name.
fn is_name(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| {
        let (first, last) = (part.bytes().next(), part.bytes().last());
        first.is_some_and(inside) && last.is_some_and(inside) && part.bytes().all(|byte| inside(byte) || byte == b'-')
    };
    text.len() <= MAX_NAME && text.split('.').all(part)
}

/// Whether Kubernetes would take the text for the name of a namespace, a container or a volume.
pub(super) fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_DNS_LABEL && !text.contains('.') && is_name(text)
}
