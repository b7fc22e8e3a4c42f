//! Validates objects without an API server: the rules of the CRD's schema and CEL expressions, and those that Karpenter
//! checks at run time and reports in `ValidationSucceeded`.

use crate::{
    CapacityBuffer, CapacityQuota, EC2NodeClass, EC2NodeClassSpec, NodeClaim, NodeOverlay, NodePool,
    budget::{Budget, Cron},
    capacity_quota,
    crd::Kind,
    node_overlay, schema,
};
use kube::{Resource, core::object::HasSpec};
use plimsoll_model::names::USD_PER_HOUR_RESOURCE;
use plimsoll_model::quantity::Quantity;
use regex::Regex;
use serde::Serialize;
use serde_json::Value;
use std::{fmt, sync::LazyLock};

mod ec2_limits;
mod ec2_node_class;
mod moved;
mod requirements;
mod structural;

use structural::{Strictness, StructuralSchema};

/// An invalid field of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    /// Path of the field, such as `spec.template.spec.requirements[0].values`.
    pub path: String,
    /// Description of the error.
    pub message: String,
}

impl FieldError {
    /// Creates an error for the field at `path`.
    #[must_use]
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Objects that can be validated.
pub trait Validate {
    /// Returns all errors of the object; empty if it is valid. The status is not checked.
    fn validate(&self) -> Vec<FieldError>;
}

/// Validates a manifest before deserialization: unknown fields, values of the wrong type, and other errors that the
/// schema detects. [`Validate`] checks the rest.
#[must_use]
pub fn check_manifest(kind: Kind, manifest: &Value) -> Vec<FieldError> {
    let mut manifest = manifest.clone();
    if let Some(manifest) = manifest.as_object_mut() {
        manifest.remove("status");
    }
    let mut errors = Vec::new();
    schema_of(kind).check(&manifest, "", Strictness::NoUnknownFields, &mut errors);
    errors
}

/// Removes the nulls among the entries of maps, as the API server does before it validates a custom resource. The
/// metadata stays as it is.
pub fn drop_null_entries(kind: Kind, manifest: &mut Value) {
    schema_of(kind).drop_null_entries(manifest);
}

static SCHEMAS: LazyLock<[(Kind, StructuralSchema); 6]> =
    LazyLock::new(|| Kind::ALL.map(|kind| (kind, StructuralSchema::of(&kind.schema()))));

fn schema_of(kind: Kind) -> &'static StructuralSchema {
    let [first, ..] = &*SCHEMAS;
    SCHEMAS.iter().find(|(candidate, _)| *candidate == kind).map_or(&first.1, |(_, schema)| schema)
}

/// Checks the metadata and the schema of an object.
fn check_metadata_and_schema<T: Resource<DynamicType = ()> + HasSpec>(kind: Kind, object: &T) -> Vec<FieldError>
where
    T::Spec: Serialize,
{
    let mut errors = Vec::new();
    let metadata = object.meta();
    match (&metadata.name, &metadata.generate_name) {
        (None, None) => errors.push(FieldError::new("metadata.name", "is required")),
        (None, Some(_)) => {}
        (Some(name), _) if matches!(kind, Kind::NodePool | Kind::EC2NodeClass) && name.len() > LABEL_VALUE_MAX => {
            let message =
                format!("must have at most {LABEL_VALUE_MAX} characters: it is the value of a label of Nodes");
            errors.push(FieldError::new("metadata.name", message));
        }
        (Some(name), _) if name.len() <= 253 && matches(&DNS_SUBDOMAIN, name) => {}
        (Some(_), _) => {
            let message = "must be lower-case letters, digits, - and ., begin and end with a letter or digit, and have at most 253 characters";
            errors.push(FieldError::new("metadata.name", message));
        }
    }
    match serde_json::to_value(object.spec()) {
        Ok(spec) => {
            let spec = serde_json::json!({"spec": spec});
            schema_of(kind).check(&spec, "", Strictness::AnyFields, &mut errors);
        }
        Err(error) => errors.push(FieldError::new("spec", error.to_string())),
    }
    errors
}

/// A regular expression that is compiled once; `None` if it is invalid, which tests rule out.
type Pattern = LazyLock<Option<Regex>>;

static DNS_SUBDOMAIN: Pattern =
    LazyLock::new(|| compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"));
static QUANTITY: Pattern = LazyLock::new(|| compile(schema::pattern::QUANTITY));
static LABEL_VALUE: Pattern = LazyLock::new(|| compile(schema::pattern::LABEL_VALUE));
static LABEL_KEY: Pattern = LazyLock::new(|| compile(schema::pattern::LABEL_KEY));

/// Compiles a pattern of the schema with Go's semantics: character classes are ASCII.
fn compile(pattern: &str) -> Option<Regex> {
    Regex::new(&pattern.replace(r"\d", "[0-9]").replace(r"\s", r"[\t\n\f\r ]")).ok()
}

fn matches(pattern: &Pattern, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Whether `text` is a quantity.
#[must_use]
pub fn is_quantity(text: &str) -> bool {
    matches(&QUANTITY, text)
}

/// Whether `text` is a valid label value.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.len() <= LABEL_VALUE_MAX && matches(&LABEL_VALUE, text)
}

/// Whether `text` is a valid label key.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    overlong_part(text).is_none() && matches(&LABEL_KEY, text)
}

/// Which part of a label key is too long. The pattern does not limit their lengths, and the CRDs only limit their sum.
fn overlong_part(key: &str) -> Option<String> {
    let (prefix, name) = key.rsplit_once('/').unwrap_or(("", key));
    let too_long = |part: &str, max: usize| format!("the {part} of the key has more than {max} characters");
    if prefix.len() > LABEL_PREFIX_MAX {
        return Some(too_long("prefix", LABEL_PREFIX_MAX));
    }
    (name.len() > LABEL_NAME_MAX).then(|| too_long("name", LABEL_NAME_MAX))
}

/// Limits of Kubernetes.
const LABEL_VALUE_MAX: usize = 63;
const LABEL_PREFIX_MAX: usize = 253;
const LABEL_NAME_MAX: usize = 63;

impl Validate for NodePool {
    fn validate(&self) -> Vec<FieldError> {
        let mut errors = check_metadata_and_schema(Kind::NodePool, self);
        if self.spec.is_static() {
            for name in self.spec.limits.keys().filter(|name| *name != plimsoll_model::names::NODES_RESOURCE) {
                let message = "a pool with replicas can limit nothing but nodes";
                errors.push(FieldError::new(format!("spec.limits[{name}]"), message));
            }
            if self.spec.weight.is_some() {
                errors.push(FieldError::new("spec.weight", "a pool with replicas cannot have a weight"));
            }
        }
        for (name, limit) in &self.spec.limits {
            if let Some(error) = not_a_limit(name, &limit.0) {
                errors.push(FieldError::new(format!("spec.limits[{name}]"), error));
            }
        }
        let template = &self.spec.template;
        requirements::check_labels(template, "spec.template.metadata.labels", &mut errors);
        let context = requirements::Context::pool("spec.template.spec");
        context.check_requirements(&template.spec.requirements, &mut errors);
        context.check_taints(&template.spec.taints, &template.spec.startup_taints, &mut errors);
        context.check_node_class_ref(&template.spec.node_class_ref, &mut errors);
        for (path, budget) in budgets_with_paths(self) {
            if budget.schedule.is_some() != budget.duration.is_some() {
                errors.push(FieldError::new(path, "a budget needs both schedule and duration or neither"));
            }
        }
        errors
    }
}

impl NodePool {
    /// Schedules of budgets that cannot be read. The pool is valid nevertheless, as in Karpenter: it launches nodes,
    /// but such a budget allows no disruption.
    #[must_use]
    pub fn unreadable_schedules(&self) -> Vec<FieldError> {
        let unreadable = budgets_with_paths(self).filter_map(|(path, budget)| {
            let error = Cron::parse(budget.schedule.as_deref()?).err()?;
            let message = format!("{error}, so that no node of the NodePool is disrupted");
            Some(FieldError::new(format!("{path}.schedule"), message))
        });
        unreadable.collect()
    }
}

/// The budgets of the pool, each with the path of its field.
fn budgets_with_paths(pool: &NodePool) -> impl Iterator<Item = (String, &Budget)> {
    let budgets = pool.spec.disruption.as_ref().and_then(|disruption| disruption.budgets.as_ref());
    let budgets = budgets.into_iter().flatten().enumerate();
    budgets.map(|(position, budget)| (format!("spec.disruption.budgets[{position}]"), budget))
}

/// Why a quantity cannot limit a resource. A limit beyond 64 bits, which no NodePool reaches, is valid, except of US
/// dollars per hour.
fn not_a_limit(resource: &str, text: &str) -> Option<String> {
    match Quantity::parse(text) {
        // The schema reports what is no quantity.
        Err(error) => is_quantity(text).then(|| error.to_string()),
        Ok(limit) if limit.is_negative() => Some(format!("{text} is negative")),
        Ok(limit) => {
            let is_too_large = resource == USD_PER_HOUR_RESOURCE && limit.amount_of(resource).is_none();
            is_too_large.then(|| format!("{text} is too large"))
        }
    }
}

impl Validate for NodeClaim {
    fn validate(&self) -> Vec<FieldError> {
        let mut errors = check_metadata_and_schema(Kind::NodeClaim, self);
        let context = requirements::Context::claim("spec");
        context.check_requirements(&self.spec.requirements, &mut errors);
        context.check_taints(&self.spec.taints, &self.spec.startup_taints, &mut errors);
        context.check_node_class_ref(&self.spec.node_class_ref, &mut errors);
        errors
    }
}

impl Validate for NodeOverlay {
    fn validate(&self) -> Vec<FieldError> {
        let mut errors = check_metadata_and_schema(Kind::NodeOverlay, self);
        requirements::Context::overlay("spec").check_requirements(&self.spec.requirements, &mut errors);
        if self.spec.price.is_some() && self.spec.price_adjustment.is_some() {
            errors.push(FieldError::new("spec.priceAdjustment", "price and priceAdjustment exclude each other"));
        }
        for name in self.spec.capacity.keys().filter(|name| node_overlay::FIXED_RESOURCES.contains(&name.as_str())) {
            let message = "cpu, memory, ephemeral-storage and pods are the instance type's own";
            errors.push(FieldError::new(format!("spec.capacity[{name}]"), message));
        }
        errors
    }
}

impl Validate for CapacityBuffer {
    fn validate(&self) -> Vec<FieldError> {
        let mut errors = check_metadata_and_schema(Kind::CapacityBuffer, self);
        let spec = &self.spec;
        if spec.pod_template_ref.is_some() && spec.replicas.is_none() && spec.limits.is_none() {
            errors.push(FieldError::new("spec.podTemplateRef", "podTemplateRef needs replicas or limits"));
        }
        if spec.pod_template_ref.is_some() && spec.scalable_ref.is_some() {
            errors.push(FieldError::new("spec.scalableRef", "podTemplateRef and scalableRef exclude each other"));
        }
        errors
    }
}

impl Validate for CapacityQuota {
    fn validate(&self) -> Vec<FieldError> {
        let mut errors = check_metadata_and_schema(Kind::CapacityQuota, self);
        let expressions = self.spec.selector().match_expressions.unwrap_or_default();
        for (position, expression) in expressions.iter().enumerate() {
            let has_values = expression.values.as_ref().is_some_and(|values| !values.is_empty());
            let message = match expression.operator.as_str() {
                "In" | "NotIn" if !has_values => "operators In and NotIn need a value",
                "Exists" | "DoesNotExist" if has_values => "operators Exists and DoesNotExist have no values",
                _ => continue,
            };
            errors.push(FieldError::new(format!("spec.selector.matchExpressions[{position}].values"), message));
        }
        for (name, limit) in self.spec.limits() {
            let path = || format!("spec.limits.resources[{name}]");
            if name.len() > capacity_quota::MAX_RESOURCE_NAME {
                errors.push(FieldError::new(path(), "names of resources have at most 63 characters"));
            }
            if name == USD_PER_HOUR_RESOURCE {
                errors.push(FieldError::new(path(), "only a NodePool can limit the price"));
            }
            // The schema reports what is no quantity.
            if let Some(problem) =
                Some(limit).filter(|limit| is_quantity(&limit.0)).and_then(capacity_quota::limit_problem)
            {
                errors.push(FieldError::new(path(), problem));
            }
        }
        errors
    }
}

impl Validate for EC2NodeClass {
    fn validate(&self) -> Vec<FieldError> {
        let mut errors = check_metadata_and_schema(Kind::EC2NodeClass, self);
        ec2_node_class::check(&self.spec, &mut errors);
        errors
    }
}

impl EC2NodeClassSpec {
    /// Fields that are valid in the schema but that EC2 refuses in any launch: its limits, and combinations.
    #[must_use]
    pub fn refused_by_ec2(&self) -> Vec<FieldError> {
        ec2_limits::check(self)
    }
}

#[cfg(test)]
mod tests;
