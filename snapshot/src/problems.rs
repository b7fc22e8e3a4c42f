//! What is wrong with an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::fmt;

/// Why an object was left out, or a wish of it ignored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Kind of the object, such as `Pod`.
    pub kind: String,
    /// `namespace/name`, or the name alone where there are no namespaces.
    pub name: String,
    /// The field, such as `spec.containers[0].resources.requests.cpu`.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
    /// The object is not in the snapshot; else it is, as if the field were not set.
    pub left_out: bool,
}

impl Problem {
    pub(crate) fn of(kind: &str, metadata: &ObjectMeta, fault: Fault) -> Self {
        let Fault { field, message } = fault;
        Self { kind: kind.to_owned(), name: full_name(metadata), field, message, left_out: true }
    }

    /// Of an object that stays.
    pub(crate) fn of_field(kind: &str, metadata: &ObjectMeta, fault: Fault) -> Self {
        Self { left_out: false, ..Self::of(kind, metadata, fault) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}: {}", self.kind, self.name, self.field, self.message)
    }
}

/// A field and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Fault {
    /// The field, from the object's root.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl Fault {
    pub(crate) fn new(field: impl Into<String>, message: impl fmt::Display) -> Self {
        Self { field: field.into(), message: message.to_string() }
    }

    /// The same, where the field is below `path`.
    pub(crate) fn below(self, path: &str) -> Self {
        Self { field: format!("{path}.{}", self.field), ..self }
    }
}

/// `namespace/name`, or the name alone where there is no namespace.
pub(crate) fn full_name(metadata: &ObjectMeta) -> String {
    full_name_of(metadata, metadata.name.as_deref().unwrap_or_default())
}

/// The full name of another object of the same namespace.
pub(crate) fn full_name_of(metadata: &ObjectMeta, name: &str) -> String {
    match metadata.namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}
