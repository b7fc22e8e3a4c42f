//! Errors of single objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::fmt;

/// Reason why an object was left out or a field ignored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Kind of the object, such as `Pod`.
    pub kind: String,
    /// `namespace/name`, or the name of a cluster-scoped object.
    pub name: String,
    /// Path of the field, such as `spec.containers[0].resources.requests.cpu`.
    pub field: String,
    /// Description of the error.
    pub message: String,
    /// Whether the object is missing from the snapshot. If false, only the field is ignored.
    pub left_out: bool,
}

impl Problem {
    pub(crate) fn of(kind: &str, metadata: &ObjectMeta, fault: Fault) -> Self {
        let Fault { field, message } = fault;
        Self { kind: kind.to_owned(), name: full_name(metadata), field, message, left_out: true }
    }

    /// A problem of a field that is ignored; the object is used.
    pub(crate) fn of_field(kind: &str, metadata: &ObjectMeta, fault: Fault) -> Self {
        Self { left_out: false, ..Self::of(kind, metadata, fault) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}: {}", self.kind, self.name, self.field, self.message)
    }
}

/// An invalid field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Fault {
    /// Path of the field from the object's root.
    pub field: String,
    /// Description of the error.
    pub message: String,
}

impl Fault {
    pub(crate) fn new(field: impl Into<String>, message: impl fmt::Display) -> Self {
        Self { field: field.into(), message: message.to_string() }
    }

    /// Prefixes the field with `path`.
    pub(crate) fn below(self, path: &str) -> Self {
        Self { field: format!("{path}.{}", self.field), ..self }
    }
}

/// `namespace/name`, or the name alone where there is no namespace.
#[must_use]
pub fn full_name(metadata: &ObjectMeta) -> String {
    full_name_of(metadata, metadata.name.as_deref().unwrap_or_default())
}

/// Full name of another object in the same namespace.
pub(crate) fn full_name_of(metadata: &ObjectMeta, name: &str) -> String {
    match metadata.namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
