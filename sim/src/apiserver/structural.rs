//! Structural schemas of CustomResourceDefinitions.
//!
//! Prunes unknown fields, sets defaults and validates values. CEL rules are not evaluated; a test that needs one adds
//! it by [`Admission::add`](super::admission::Admission::add).

use super::admission::Hook;
use super::error::{ApiError, Cause};
use regex::Regex;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a schema is not usable.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct SchemaError {
    /// Path in the object.
    pub path: String,
    /// Description of the problem.
    pub reason: String,
}

/// A compiled schema.
#[derive(Debug, Default)]
struct Schema {
    kind: String,
    default: Option<Value>,
    properties: BTreeMap<String, Schema>,
    required: Vec<String>,
    additional: Option<Box<Schema>>,
    items: Option<Box<Schema>>,
    preserves_unknown: bool,
    int_or_string: bool,
    allowed: Vec<Value>,
    pattern: Option<Regex>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    /// Bounds on length, items or properties, depending on the type.
    least: Option<u64>,
    most: Option<u64>,
}

/// Returns an admission step that enforces an `openAPIV3Schema`.
///
/// # Errors
/// If a pattern in the schema does not compile.
pub(super) fn hook(schema: &Value) -> Result<Hook, SchemaError> {
    let schema = Schema::read("", schema)?;
    Ok(Arc::new(move |situation, object| {
        let Some(map) = object.as_object_mut() else { return Ok(()) };
        // These three fields have their own rules.
        let kept: Vec<_> =
            ["apiVersion", "kind", "metadata"].iter().filter_map(|field| map.remove_entry(*field)).collect();
        schema.prune(object);
        schema.fill_in(object);
        let mut causes = Vec::new();
        schema.check("", situation.old, object, &mut causes);
        causes.retain(|cause| !["apiVersion", "kind", "metadata"].contains(&cause.field.as_str()));
        if let Some(map) = object.as_object_mut() {
            map.extend(kept);
        }
        let name = super::object::name(object).to_owned();
        if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(situation.resource.get(), &name, &causes)) }
    }))
}

impl Schema {
    fn read(path: &str, schema: &Value) -> Result<Self, SchemaError> {
        let field = |name: &str| schema.get(name);
        let flag = |name: &str| field(name).and_then(Value::as_bool) == Some(true);
        let inner = |name: &str, path: String| -> Result<Option<Box<Self>>, SchemaError> {
            field(name)
                .filter(|inner| inner.is_object())
                .map(|inner| Self::read(&path, inner).map(Box::new))
                .transpose()
        };
        let pattern = field("pattern").and_then(Value::as_str).map(Regex::new).transpose();
        let pattern = pattern.map_err(|error| SchemaError { path: path.to_owned(), reason: error.to_string() })?;
        let properties = field("properties").and_then(Value::as_object).into_iter().flatten();
        let bound = |names: [&str; 3]| names.iter().find_map(|name| field(name).and_then(Value::as_u64));
        let list = |name: &str| field(name).and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(Self {
            kind: field("type").and_then(Value::as_str).unwrap_or_default().to_owned(),
            default: field("default").cloned(),
            properties: properties
                .map(|(name, inner)| Ok((name.clone(), Self::read(&join(path, name), inner)?)))
                .collect::<Result<_, _>>()?,
            required: list("required").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            additional: inner("additionalProperties", format!("{path}.*"))?,
            items: inner("items", format!("{path}[*]"))?,
            preserves_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            allowed: list("enum"),
            pattern,
            minimum: field("minimum").and_then(Value::as_f64),
            maximum: field("maximum").and_then(Value::as_f64),
            least: bound(["minLength", "minItems", "minProperties"]),
            most: bound(["maxLength", "maxItems", "maxProperties"]),
        })
    }

    fn of_property(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    fn prune(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                // Without properties, `type: object` declares no fields, so all fields are unknown.
                map.retain(|name, _| self.preserves_unknown || self.of_property(name).is_some());
                for (name, inner) in map {
                    if let Some(schema) = self.of_property(name) {
                        schema.prune(inner);
                    }
                }
            }
            Value::Array(list) => {
                if let Some(schema) = &self.items {
                    list.iter_mut().for_each(|item| schema.prune(item));
                }
            }
            _ => {}
        }
    }

    fn fill_in(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, schema) in &self.properties {
                    if let Some(default) = &schema.default {
                        map.entry(name.clone()).or_insert_with(|| default.clone());
                    }
                }
                for (name, inner) in map {
                    if let Some(schema) = self.of_property(name) {
                        schema.fill_in(inner);
                    }
                }
            }
            Value::Array(list) => {
                if let Some(schema) = &self.items {
                    list.iter_mut().for_each(|item| schema.fill_in(item));
                }
            }
            _ => {}
        }
    }

    /// Validates a value. Unchanged values are not validated again, so that a stricter schema does not block updates of
    /// existing objects.
    fn check(&self, path: &str, old: Option<&Value>, value: &Value, causes: &mut Vec<Cause>) {
        if old == Some(value) {
            return;
        }
        if !self.has_kind(value) {
            causes.push(Cause {
                reason: "FieldValueTypeInvalid",
                field: path.to_owned(),
                message: format!("must be of type {}", self.kind),
            });
            return;
        }
        if !self.allowed.is_empty() && !self.allowed.contains(value) {
            causes.push(Cause {
                reason: "FieldValueNotSupported",
                field: path.to_owned(),
                message: format!("{value} is none of {}", Value::from(self.allowed.clone())),
            });
        }
        self.check_bounds(path, value, causes);
        match value {
            Value::Object(map) => self.check_fields(path, old, map, causes),
            Value::Array(list) => {
                for (index, item) in list.iter().enumerate() {
                    if let Some(schema) = &self.items {
                        schema.check(&format!("{path}[{index}]"), old.and_then(|old| old.get(index)), item, causes);
                    }
                }
            }
            _ => {}
        }
    }

    /// Validates a value against pattern and bounds, without its items and fields.
    fn check_bounds(&self, path: &str, value: &Value, causes: &mut Vec<Cause>) {
        let text = value.as_str();
        if let (Some(pattern), Some(text)) = (&self.pattern, text)
            && !pattern.is_match(text)
        {
            causes.push(Cause::invalid(path, format!("{text:?} should match '{pattern}'")));
        }
        let number = value.as_f64();
        if number.is_some_and(|number| {
            self.minimum.is_some_and(|least| number < least) || self.maximum.is_some_and(|most| number > most)
        }) {
            causes.push(Cause::invalid(path, format!("{value} is out of bounds")));
        }
        let size = match value {
            Value::String(text) => Some(text.chars().count()),
            Value::Array(list) => Some(list.len()),
            Value::Object(map) => Some(map.len()),
            _ => None,
        };
        let size = size.and_then(|size| u64::try_from(size).ok());
        if size.is_some_and(|size| {
            self.least.is_some_and(|least| size < least) || self.most.is_some_and(|most| size > most)
        }) {
            causes.push(Cause::invalid(path, "has too few or too many characters, items or fields"));
        }
    }

    fn check_fields(&self, path: &str, old: Option<&Value>, map: &Map<String, Value>, causes: &mut Vec<Cause>) {
        for name in self.required.iter().filter(|name| !map.contains_key(*name)) {
            causes.push(Cause::required(join(path, name), "Required value"));
        }
        for (name, inner) in map {
            if let Some(schema) = self.of_property(name) {
                schema.check(&join(path, name), old.and_then(|old| old.get(name)), inner, causes);
            }
        }
    }

    fn has_kind(&self, value: &Value) -> bool {
        if self.int_or_string {
            return value.is_i64() || value.is_u64() || value.is_string();
        }
        match self.kind.as_str() {
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            _ => true,
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::hook;
    use crate::apiserver::store::{Part, Store, Write};
    use crate::apiserver::{ApiError, Patch, ResourceId};
    use jiff::Timestamp;
    use serde_json::{Value, json};

    const POOLS: ResourceId = ResourceId::NODE_POOLS;

    fn store() -> Store {
        let mut store = Store::new(1, Timestamp::UNIX_EPOCH);
        let schema = json!({"type": "object", "required": ["spec"], "properties": {
            "spec": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3},
                "weight": {"type": "integer", "minimum": 1, "maximum": 100},
                "policy": {"type": "string", "enum": ["A", "B"], "default": "A"},
                "limits": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"on": {"type": "boolean", "default": true}}}},
            }},
            "status": {"type": "object", "properties": {"nodes": {"type": "integer"}}},
        }});
        store.admission_mut().add(POOLS, hook(&schema).unwrap());
        store
    }

    fn create(store: &mut Store, spec: &Value) -> Result<Value, ApiError> {
        let write = Write::new(Timestamp::UNIX_EPOCH, "test");
        let made = store.create(POOLS, "", json!({"metadata": {"name": "a"}, "spec": spec}), &write)?;
        Ok(made["spec"].clone())
    }

    #[test]
    fn unknown_fields_go_and_defaults_come() {
        let spec = json!({"name": "abc", "color": "red", "limits": {"cpu": 1, "memory": "1Gi"}, "list": [{"off": 1}, {"on": false}]});
        let expected = json!({"name": "abc", "limits": {"cpu": 1, "memory": "1Gi"}, "list": [{"on": true}, {"on": false}], "policy": "A"});
        assert_eq!(create(&mut store(), &spec).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (spec, field) in [
            (json!({}), "spec.name"),
            (json!({"name": 1}), "spec.name"),
            (json!({"name": "ABC"}), "spec.name"),
            (json!({"name": "abcd"}), "spec.name"),
            (json!({"name": "a", "weight": 0}), "spec.weight"),
            (json!({"name": "a", "weight": 1.5}), "spec.weight"),
            (json!({"name": "a", "policy": "C"}), "spec.policy"),
            (json!({"name": "a", "limits": {"cpu": true}}), "spec.limits.cpu"),
            (json!({"name": "a", "list": [{"on": "x"}]}), "spec.list[0].on"),
        ] {
            let error = create(&mut store(), &spec).unwrap_err();
            assert_eq!(error.code, 422);
            let causes = error.status();
            assert_eq!(causes["details"]["causes"][0]["field"], field, "{spec}");
        }
    }

    #[test]
    fn a_status_is_held_to_the_schema_too() {
        let mut store = store();
        create(&mut store, &json!({"name": "a"})).unwrap();
        let write = Write::new(Timestamp::UNIX_EPOCH, "test");
        let mut patch =
            |status: Value| store.patch(POOLS, "", "a", Part::Status, &Patch::Merge(json!({"status": status})), &write);
        assert_eq!(patch(json!({"nodes": 2, "unknown": 1})).unwrap()["status"], json!({"nodes": 2}));
        assert_eq!(patch(json!({"nodes": "two"})).unwrap_err().code, 422);
    }
}
