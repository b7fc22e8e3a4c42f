//! What an API server refuses in objects.
//!
//! The snapshot finds unreadable quantities and unknown operators; those are left to it. A rule that depends on the
//! version of the API server is left out.

mod admission;
mod placement;
mod pod;
mod policy;
mod resources;
mod storage;
mod workload;

pub(super) use admission::{CONTAINER, limit_range, runtime_class};
pub(super) use pod::pod;
pub(super) use policy::{disruption_budget, priority_class};
pub(super) use storage::{claim, csi_node, storage_class, volume};
pub(super) use workload::{claim_templates, job, pod_template, replicated};

use super::kinds::{DNS_LABEL_RULE, is_dns_label};
use super::{Manifest, ManifestError};
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorTerm};
use plimsoll_api::validation::{is_label_key, is_label_value};
use serde_json::Value;
use std::fmt;

/// What keys and values of labels must be.
const KEY_RULE: &str = "a key has at most 63 letters, digits, -, _ and ., after a domain and / if there is one";
const VALUE_RULE: &str = "a value has at most 63 letters, digits, -, _ and ., with a letter or digit at both ends";
/// The field of a node that a node selector can name.
const NAME_FIELD: &str = "metadata.name";

/// Where a field is. It becomes text only if something is wrong with the field.
#[derive(Clone, Copy)]
struct Path<'path> {
    parent: Option<&'path Path<'path>>,
    field: &'path str,
    index: Option<usize>,
}

impl<'path> Path<'path> {
    /// The field of that name in the object.
    const fn root(field: &'path str) -> Self {
        Self { parent: None, field, index: None }
    }

    /// A field below this one.
    const fn field(&'path self, field: &'path str) -> Self {
        Self { parent: Some(self), field, index: None }
    }

    /// An item of a list below this field.
    const fn item(&'path self, field: &'path str, index: usize) -> Self {
        Self { parent: Some(self), field, index: Some(index) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.field)?;
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}

/// What is wrong with one object.
struct Faults<'manifest> {
    manifest: &'manifest Manifest,
    found: Vec<ManifestError>,
}

impl<'manifest> Faults<'manifest> {
    const fn new(manifest: &'manifest Manifest) -> Self {
        Self { manifest, found: Vec::new() }
    }

    fn add(&mut self, at: &Path<'_>, problem: impl fmt::Display) {
        self.found.push(self.manifest.fault(at.to_string(), problem));
    }

    /// Adds a fault if the value is given and not among those that are allowed.
    fn unless_one_of(&mut self, at: &Path<'_>, value: Option<&str>, allowed: &[&str]) {
        let Some(value) = value.filter(|value| !allowed.contains(value)) else { return };
        self.add(at, format_args!("{value:?} is not one of {}", allowed.join(", ")));
    }

    fn labels<'label>(&mut self, at: &Path<'_>, labels: impl Iterator<Item = (&'label String, &'label str)>) {
        for (key, value) in labels {
            let rule = if !is_label_key(key) {
                KEY_RULE
            } else if !is_label_value(value) {
                VALUE_RULE
            } else {
                continue;
            };
            self.add(at, format_args!("{key:?}: {value:?} is not a label: {rule}"));
        }
    }

    fn into_result(self) -> Result<(), Vec<ManifestError>> {
        if self.found.is_empty() { Ok(()) } else { Err(self.found) }
    }
}

/// Checks the labels of an object of any kind. Labels that are not text are somebody else's.
pub(super) fn own_labels(manifest: &Manifest) -> Result<(), Vec<ManifestError>> {
    let labels = manifest.value.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let mut faults = Faults::new(manifest);
    faults.labels(&Path::root("metadata.labels"), labels.filter_map(|(key, value)| Some((key, value.as_str()?))));
    faults.into_result()
}

/// Terms that are alternatives: without any, no node would match.
fn node_selector(faults: &mut Faults<'_>, at: &Path<'_>, selector: &NodeSelector) {
    if selector.node_selector_terms.is_empty() {
        faults.add(&at.field("nodeSelectorTerms"), "must have at least one term");
    }
    for (index, term) in selector.node_selector_terms.iter().enumerate() {
        node_selector_term(faults, &at.item("nodeSelectorTerms", index), term);
    }
}

fn node_selector_term(faults: &mut Faults<'_>, at: &Path<'_>, term: &NodeSelectorTerm) {
    for (index, expression) in term.match_expressions.iter().flatten().enumerate() {
        if !expression.key.is_empty() && !is_label_key(&expression.key) {
            let at = at.item("matchExpressions", index);
            faults.add(&at.field("key"), format_args!("{:?} is not a label key", expression.key));
        }
    }
    for (index, field) in term.match_fields.iter().flatten().enumerate() {
        let at = at.item("matchFields", index);
        faults.unless_one_of(&at.field("key"), Some(&field.key), &[NAME_FIELD]);
        faults.unless_one_of(&at.field("operator"), Some(&field.operator), &["In", "NotIn"]);
        if field.values.as_ref().map_or(0, Vec::len) != 1 {
            faults.add(&at.field("values"), "must be exactly one");
        }
    }
}

#[cfg(test)]
mod tests;
