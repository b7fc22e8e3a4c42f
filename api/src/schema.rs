//! Parts of the CRD schema that the serde types do not express: patterns, CEL rules and list types.
//!
//! The API server estimates the cost of CEL rules and rejects expensive CRDs. Therefore every list, map and string that
//! a CEL rule iterates over is bounded, unless the rule is cheap without a bound.

use plimsoll_model::names::label;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Regular expressions in the common syntax of Go and Rust.
pub(crate) mod pattern {
    /// A label key: a name with an optional DNS prefix.
    pub(crate) const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
    /// A label value.
    pub(crate) const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
    /// A quantity.
    pub(crate) const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
    /// An API group.
    pub(crate) const NO_SLASH: &str = "^[^/]*$";
    /// Hours, minutes and seconds.
    pub(crate) const DURATION: &str = "^([0-9]+(s|m|h))+$";
    /// A duration or Never.
    pub(crate) const NILLABLE_DURATION: &str = "^(([0-9]+(s|m|h))+|Never)$";
    /// Hours and minutes; Go appends `0s`.
    pub(crate) const BUDGET_DURATION: &str = "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$";
    /// A percentage or a number of nodes.
    pub(crate) const BUDGET_NODES: &str = "^((100|[0-9]{1,2})%|[0-9]+)$";
    /// A macro or five fields.
    pub(crate) const BUDGET_SCHEDULE: &str =
        r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$";
    /// A signed amount or percentage.
    pub(crate) const PRICE_ADJUSTMENT: &str =
        r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$";
    /// An amount.
    pub(crate) const PRICE: &str = r"^\d+(\.\d+)?$";
    /// The type of a condition.
    pub(crate) const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
    /// The reason of a condition.
    pub(crate) const CONDITION_REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
    /// The reason of a claim's condition; may be empty.
    pub(crate) const CONDITION_REASON_OR_EMPTY: &str = "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$";
    /// Size of an EBS volume: at most 59000Gi, 64000G, 58Ti or 64T.
    pub(crate) const VOLUME_SIZE: &str = "^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G|([1-9]|[1-4][0-9]|5[0-8])Ti|([1-9]|[1-5][0-9]|6[0-4])T)$";
    /// An AWS account.
    pub(crate) const ACCOUNT: &str = "^[0-9]{12}$";
    /// A subnet. Not anchored, as in Karpenter.
    pub(crate) const SUBNET: &str = "subnet-[0-9a-z]+";
    /// A security group. Not anchored, as in Karpenter.
    pub(crate) const SECURITY_GROUP: &str = "sg-[0-9a-z]+";
    /// An image. Not anchored, as in Karpenter.
    pub(crate) const IMAGE: &str = "ami-[0-9a-z]+";
    /// A capacity reservation.
    pub(crate) const CAPACITY_RESERVATION: &str = "^cr-[0-9a-z]+$";
    /// A placement group.
    pub(crate) const PLACEMENT_GROUP: &str = "^pg-[0-9a-z]+$";
}

/// Maximum length of a label key: a DNS name of 253, a slash and a name of 63, minus one.
pub(crate) const LABEL_KEY_MAX_LENGTH: u64 = 316;
/// Maximum length of a label value.
pub(crate) const LABEL_VALUE_MAX_LENGTH: u64 = 63;

/// CEL rules with their error messages.
pub(crate) fn cel(rules: &[(&str, &str)]) -> Value {
    rules.iter().map(|(rule, message)| json!({"rule": rule, "message": message})).collect()
}

/// Rule for a non-empty string.
pub(crate) fn not_empty(field: &str) -> Value {
    cel(&[("self != ''", &format!("{field} must not be empty"))])
}

/// A date and time.
pub(crate) fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// Quantities by resource name.
pub(crate) fn resource_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": pattern::QUANTITY,
            "x-kubernetes-int-or-string": true,
        },
    })
}

/// Conditions, with the type as list key.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = plain_conditions(generator);
    schema.insert("x-kubernetes-list-type".to_owned(), json!("map"));
    schema.insert("x-kubernetes-list-map-keys".to_owned(), json!(["type"]));
    schema
}

/// Conditions of a NodeClaim; reason and message may be missing.
pub(crate) fn claim_conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = conditions(generator);
    schema.insert(
        "items".to_owned(),
        condition(&["lastTransitionTime", "status", "type"], pattern::CONDITION_REASON_OR_EMPTY, None),
    );
    schema
}

/// Conditions as a list without key, as in EC2NodeClass.
pub(crate) fn plain_conditions(_: &mut SchemaGenerator) -> Schema {
    let required = ["lastTransitionTime", "message", "reason", "status", "type"];
    json_schema!({"type": "array", "items": condition(&required, pattern::CONDITION_REASON, Some(1))})
}

fn condition(required: &[&str], reason: &str, reason_min_length: Option<u64>) -> Value {
    let mut reason = json!({
        "description": "Reason of the last change of the status, as one CamelCase word.",
        "type": "string",
        "maxLength": 1024,
        "pattern": reason,
    });
    if let (Some(length), Some(reason)) = (reason_min_length, reason.as_object_mut()) {
        reason.insert("minLength".to_owned(), length.into());
    }
    json!({
        "description": "A condition of the object.",
        "type": "object",
        "required": required,
        "properties": {
            "lastTransitionTime": {
                "description": "When the status of the condition last changed.",
                "type": "string",
                "format": "date-time",
            },
            "message": {
                "description": "Human-readable explanation of the last change of the status.",
                "type": "string",
                "maxLength": 32768,
            },
            "observedGeneration": {
                "description": "Generation of the object that the condition was set for.",
                "type": "integer",
                "format": "int64",
                "minimum": 0,
            },
            "reason": reason,
            "status": {
                "description": "Status of the condition: True, False or Unknown.",
                "type": "string",
                "enum": ["True", "False", "Unknown"],
            },
            "type": {
                "description": "Type of the condition.",
                "type": "string",
                "maxLength": 316,
                "pattern": pattern::CONDITION_TYPE,
            },
        },
    })
}

/// Domains whose labels users may only use if they are listed. As in Karpenter, the rules check the suffix of a domain,
/// so `mykarpenter.sh` is rejected too.
const RESTRICTED_DOMAINS: [&str; 2] = ["karpenter.sh", label::AWS_DOMAIN];

/// Labels of restricted domains that a pool's template may set and its requirements may use.
pub(crate) fn pool_labels() -> Vec<&'static str> {
    let mut labels = vec![label::CAPACITY_TYPE];
    labels.extend_from_slice(label::AWS_WELL_KNOWN);
    labels
}

/// Labels of restricted domains that a claim's requirements may use.
pub(crate) fn claim_labels() -> Vec<&'static str> {
    let mut labels = vec![label::CAPACITY_TYPE, label::NODE_POOL];
    labels.extend_from_slice(label::AWS_WELL_KNOWN);
    labels
}

/// Labels of restricted domains that an overlay's requirements may use; excludes labels that only a launch determines.
pub(crate) fn overlay_labels() -> Vec<&'static str> {
    let of_a_launch = ["/capacity-reservation-", "/placement-group-", "/instance-tenancy"];
    let mut labels = claim_labels();
    labels.retain(|key| !of_a_launch.iter().any(|part| key.contains(part)));
    labels
}

/// Whether `key` is in a restricted domain and not in `allowed`. Equivalent to the CEL rules of [`label_rules`].
pub(crate) fn is_restricted(key: &str, allowed: &[&str]) -> bool {
    let domain = key.split('/').next().unwrap_or_default();
    key == label::HOSTNAME
        || (!allowed.contains(&key) && RESTRICTED_DOMAINS.iter().any(|restricted| domain.ends_with(restricted)))
}

/// CEL rules for a label key, named `key` in CEL. `wrap` converts an expression to a complete rule.
fn label_rules(allowed: &[&str], key: &str, wrap: impl Fn(&str) -> String) -> Value {
    let mut rules: Vec<Value> = RESTRICTED_DOMAINS
        .iter()
        .map(|domain| {
            let of_domain: Vec<String> = allowed
                .iter()
                .filter(|label| label.split('/').next() == Some(domain))
                .map(|label| format!("'{label}'"))
                .collect();
            let rule = format!("{key} in [{}] || !{key}.split('/')[0].endsWith('{domain}')", of_domain.join(", "));
            let message = format!("of the labels of {domain}, only those may be named that users choose nodes by");
            json!({"rule": wrap(&rule), "message": message})
        })
        .collect();
    rules.push(json!({
        "rule": wrap(&format!("{key} != '{}'", label::HOSTNAME)),
        "message": format!("{} is each node's own and may not be named", label::HOSTNAME),
    }));
    rules.into()
}

/// Labels of a pool's template.
pub(crate) fn template_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 100,
        "additionalProperties": {
            "type": "string",
            "maxLength": LABEL_VALUE_MAX_LENGTH,
            "pattern": pattern::LABEL_VALUE,
        },
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-validations": label_rules(&pool_labels(), "k", |rule| format!("self.all(k, {rule})")),
    })
}

/// Annotations of a pool's template.
pub(crate) fn template_annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string"},
        "x-kubernetes-map-type": "granular",
    })
}

/// Requirements of a NodePool's template.
pub(crate) fn pool_requirements(_: &mut SchemaGenerator) -> Schema {
    requirements(&pool_labels(), true, IN_NEEDS_VALUES)
}

/// Requirements of a NodeClaim.
pub(crate) fn claim_requirements(_: &mut SchemaGenerator) -> Schema {
    requirements(&claim_labels(), true, IN_NEEDS_VALUES)
}

/// Requirements of a NodeOverlay.
pub(crate) fn overlay_requirements(_: &mut SchemaGenerator) -> Schema {
    requirements(&overlay_labels(), false, IN_AND_NOT_IN_NEED_VALUES)
}

/// Requirements of an image in a node class' status.
pub(crate) fn image_requirements(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "description": "A requirement on one label.",
            "type": "object",
            "required": ["key", "operator"],
            "properties": {
                "key": {"description": "Key of the label.", "type": "string"},
                "operator": {"description": "Operator that relates the label to the values.", "type": "string"},
                "values": {
                    "description": "Values for the operator.",
                    "type": "array",
                    "items": {"type": "string"},
                    "x-kubernetes-list-type": "atomic",
                },
            },
        },
    })
}

const IN_NEEDS_VALUES: (&str, &str) =
    ("self.all(r, r.operator != 'In' || (has(r.values) && r.values.size() > 0))", "operator In needs a value");
const IN_AND_NOT_IN_NEED_VALUES: (&str, &str) = (
    "self.all(r, !(r.operator in ['In', 'NotIn']) || (has(r.values) && r.values.size() > 0))",
    "operators In and NotIn need a value",
);
const BOUND_NEEDS_ONE_NUMBER: (&str, &str) = (
    "self.all(r, !(r.operator in ['Gt', 'Lt', 'Gte', 'Lte']) \
     || (has(r.values) && r.values.size() == 1 && int(r.values[0]) >= 0))",
    "operators Gt, Lt, Gte and Lte need exactly one value, a whole number that is not negative",
);
const MIN_VALUES_NEED_VALUES: (&str, &str) = (
    "self.all(r, r.operator != 'In' || !has(r.minValues) || (has(r.values) && r.values.size() >= r.minValues))",
    "operator In with minValues needs at least so many values",
);

fn requirements(allowed: &[&str], min_values: bool, set_rule: (&str, &str)) -> Schema {
    let mut properties = json!({
        "key": {
            "description": "Key of the label.",
            "type": "string",
            "maxLength": LABEL_KEY_MAX_LENGTH,
            "pattern": pattern::LABEL_KEY,
            "x-kubernetes-validations": label_rules(allowed, "self", str::to_owned),
        },
        "operator": {
            "description": "Operator that relates the label to the values.",
            "type": "string",
            "enum": crate::Operator::ALL,
        },
        "values": {
            "description": "Values for the operator: a list for In and NotIn, one integer for Gt, Lt, Gte and Lte, none for Exists and DoesNotExist.",
            "type": "array",
            "items": {"type": "string"},
            "x-kubernetes-list-type": "atomic",
        },
    });
    let mut rules = vec![set_rule, BOUND_NEEDS_ONE_NUMBER];
    if let (true, Some(properties)) = (min_values, properties.as_object_mut()) {
        rules.push(MIN_VALUES_NEED_VALUES);
        let min_values = json!({
            "description": "Minimum number of different values of the label among the instance types of a launch.",
            "type": "integer",
            "minimum": 1,
            "maximum": 50,
        });
        properties.insert("minValues".to_owned(), min_values);
    }
    json_schema!({
        "type": "array",
        "maxItems": 100,
        "items": {
            "description": "A requirement on one label.",
            "type": "object",
            "required": ["key", "operator"],
            "properties": properties,
        },
        "x-kubernetes-list-type": "atomic",
        "x-kubernetes-validations": cel(&rules),
    })
}

/// Reference of a pool to its node class, of which only the name may change.
pub(crate) fn pool_node_class_ref(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<crate::NodeClassRef>();
    schema.insert(
        "x-kubernetes-validations".to_owned(),
        cel(&[
            ("self.group == oldSelf.group", "the group of a node class cannot be changed"),
            ("self.kind == oldSelf.kind", "the kind of a node class cannot be changed"),
        ]),
    );
    schema
}

/// Tags of a selector: at most 20, without empty keys or values.
pub(crate) fn selector_tags(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 20,
        "additionalProperties": {"type": "string"},
        "x-kubernetes-validations": cel(&[(
            "self.all(k, k != '' && self[k] != '')",
            "a tag needs a key and a value; the value * stands for any",
        )]),
    })
}
