//! Validates labels, requirements, taints and node class references of pools, claims and overlays.

use super::{FieldError, is_label_key, is_label_value, overlong_part};
use crate::{NodeClassRef, Operator, Requirement, Taint, node_pool::NodeClaimTemplate, schema};
use plimsoll_model::names::label;
use plimsoll_model::similar;
use std::collections::BTreeSet;

/// Path of the fields, and what is allowed there.
pub(super) struct Context {
    path: &'static str,
    allowed: Vec<&'static str>,
    needs_values: &'static [Operator],
}

impl Context {
    /// Rules of a NodePool.
    pub(super) fn pool(path: &'static str) -> Self {
        Self { path, allowed: schema::pool_labels(), needs_values: &[Operator::In] }
    }

    /// Rules of a NodeClaim.
    pub(super) fn claim(path: &'static str) -> Self {
        Self { path, allowed: schema::claim_labels(), needs_values: &[Operator::In] }
    }

    /// Rules of a NodeOverlay.
    pub(super) fn overlay(path: &'static str) -> Self {
        Self { path, allowed: schema::overlay_labels(), needs_values: &[Operator::In, Operator::NotIn] }
    }

    /// Validates requirements.
    pub(super) fn check_requirements(&self, requirements: &[Requirement], errors: &mut Vec<FieldError>) {
        for (position, requirement) in requirements.iter().enumerate() {
            let path = format!("{}.requirements[{position}]", self.path);
            if schema::is_restricted(&requirement.key, &self.allowed) {
                errors.push(restricted(format!("{path}.key"), &requirement.key));
            }
            errors.extend(overlong_part(&requirement.key).map(|error| FieldError::new(format!("{path}.key"), error)));
            let path = format!("{path}.values");
            self.check_values(requirement, &path, errors);
        }
    }

    fn check_values(&self, requirement: &Requirement, path: &str, errors: &mut Vec<FieldError>) {
        let Requirement { key, operator, values, min_values } = requirement;
        let mut error = |message: String| errors.push(FieldError::new(path, message));
        if self.needs_values.contains(operator) && values.is_empty() {
            error(format!("operator {operator} needs a value"));
        }
        if operator.is_bound() {
            let is_number = |value: &String| value.parse::<i64>().is_ok_and(|number| number >= 0);
            if !matches!(values.as_slice(), [value] if is_number(value)) {
                error(format!("operator {operator} needs exactly one value, a whole number that is not negative"));
            }
            return;
        }
        for value in values.iter().filter(|value| !is_label_value(value)) {
            error(format!("{value:?} cannot be the value of a label"));
        }
        let valid: BTreeSet<&String> = values.iter().filter(|value| is_label_value(value)).collect();
        let is_too_few = |min: &i64| usize::try_from(*min).is_ok_and(|min| valid.len() < min);
        if let (Operator::In, Some(min)) = (operator, min_values.filter(is_too_few)) {
            error(format!("minValues is {min}, but the number of different values is {}", valid.len()));
        }
        let is_valid = |value: &String| CAPACITY_TYPES.contains(&value.as_str());
        let requires_capacity_type = *operator == Operator::In && key == label::CAPACITY_TYPE && !values.is_empty();
        if requires_capacity_type && !values.iter().any(is_valid) {
            let mut meant = values.iter().filter_map(|value| similar::nearest(value, CAPACITY_TYPES));
            let advice = meant.next().map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            error(format!("none of the values is one of {}{advice}", CAPACITY_TYPES.join(", ")));
        }
    }

    /// Validates taints beyond their schema. Key and effect must be unique across both lists. A Node with a taint that
    /// the API server refuses could never join.
    pub(super) fn check_taints(&self, taints: &[Taint], startup_taints: &[Taint], errors: &mut Vec<FieldError>) {
        let mut seen = BTreeSet::new();
        for (field, list) in [("taints", taints), ("startupTaints", startup_taints)] {
            for (position, taint) in list.iter().enumerate() {
                let path = format!("{}.{field}[{position}]", self.path);
                errors.extend(overlong_part(&taint.key).map(|error| FieldError::new(format!("{path}.key"), error)));
                if let Some(value) = taint.value.as_ref().filter(|value| !is_label_value(value)) {
                    let message = format!("{value:?} cannot be the value of a taint");
                    errors.push(FieldError::new(format!("{path}.value"), message));
                }
                if !seen.insert((&taint.key, taint.effect)) {
                    let message = format!("there is another taint {} with the same effect", taint.key);
                    errors.push(FieldError::new(path, message));
                }
            }
        }
    }

    /// Validates the reference to the node class.
    pub(super) fn check_node_class_ref(&self, node_class: &NodeClassRef, errors: &mut Vec<FieldError>) {
        let NodeClassRef { group, kind, name } = node_class;
        for (field, value) in [("group", group), ("kind", kind), ("name", name)] {
            if value.is_empty() {
                errors.push(FieldError::new(format!("{}.nodeClassRef.{field}", self.path), "must not be empty"));
            }
        }
    }
}

/// Valid capacity types.
const CAPACITY_TYPES: [&str; 3] = ["spot", "on-demand", "reserved"];

fn restricted(path: String, key: &str) -> FieldError {
    let message = match label::similar(key) {
        _ if key == label::HOSTNAME => format!("label {key} is different on each node and must not be used here"),
        Some(known) => format!("label {key} is unknown; did you mean {known}?"),
        None => format!("label {key} is in a domain reserved for Kubernetes and Karpenter; use a domain of your own"),
    };
    FieldError::new(path, message)
}

/// Validates the label keys of a template.
pub(super) fn check_labels(template: &NodeClaimTemplate, path: &str, errors: &mut Vec<FieldError>) {
    let allowed = schema::pool_labels();
    for (key, _) in template.labels() {
        let path = format!("{path}[{key}]");
        if !is_label_key(key) {
            errors.push(FieldError::new(path, "cannot be the key of a label"));
        } else if schema::is_restricted(key, &allowed) {
            errors.push(restricted(path, key));
        }
    }
}
