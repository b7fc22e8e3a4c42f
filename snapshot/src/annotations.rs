//! The text of an annotation, and the fault if it is invalid.

use crate::problems::Fault;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::fmt;

/// The text of the annotation `key`, if the object has it.
pub(crate) fn text<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The annotation `key` is invalid.
pub(crate) fn fault(key: &str, message: impl fmt::Display) -> Fault {
    Fault::new(format!("metadata.annotations[{key}]"), message)
}
