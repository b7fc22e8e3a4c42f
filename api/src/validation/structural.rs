//! Validates a value against a CRD's schema like the API server: types, bounds, patterns, enumerations, required
//! fields. CEL rules are implemented in Rust in the other modules.

use super::{FieldError, compile, moved};
use crate::schema::pattern;
use plimsoll_model::quantity::Quantity;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;

/// Treatment of unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strictness {
    /// Unknown fields are errors.
    NoUnknownFields,
    /// Unknown fields are allowed.
    AnyFields,
}

/// A schema prepared for validation.
#[derive(Debug, Default)]
pub(super) struct StructuralSchema {
    type_name: Option<String>,
    is_int_or_string: bool,
    is_set: bool,
    has_default: bool,
    format: Option<String>,
    /// As the CRD has it, and compiled.
    pattern: Option<(String, Regex)>,
    choices: Vec<Value>,
    minimum: Option<i64>,
    maximum: Option<i64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    max_properties: Option<u64>,
    required: Vec<String>,
    properties: BTreeMap<String, StructuralSchema>,
    entries: Option<Box<StructuralSchema>>,
    items: Option<Box<StructuralSchema>>,
}

impl StructuralSchema {
    /// Prepares a schema such as [`crate::crd::Kind::schema`] returns.
    pub(super) fn of(schema: &Value) -> Self {
        let text = |keyword: &str| schema[keyword].as_str().map(str::to_owned);
        let count = |keyword: &str| schema[keyword].as_u64();
        let inner = |keyword: &str| {
            schema.get(keyword).filter(|value| value.is_object()).map(|value| Box::new(Self::of(value)))
        };
        let properties = schema["properties"].as_object().into_iter().flatten();
        let required = schema["required"].as_array().into_iter().flatten();
        Self {
            type_name: text("type"),
            is_int_or_string: schema["x-kubernetes-int-or-string"] == true,
            is_set: schema["x-kubernetes-list-type"] == "set",
            has_default: schema.get("default").is_some(),
            format: text("format"),
            pattern: text("pattern").and_then(|pattern| compile(&pattern).map(|compiled| (pattern, compiled))),
            choices: schema["enum"].as_array().cloned().unwrap_or_default(),
            minimum: schema["minimum"].as_i64(),
            maximum: schema["maximum"].as_i64(),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            max_properties: count("maxProperties"),
            required: required.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            properties: properties.map(|(name, property)| (name.clone(), Self::of(property))).collect(),
            entries: inner("additionalProperties"),
            items: inner("items"),
        }
    }

    /// Adds the errors of `value` at `path` to `errors`.
    pub(super) fn check(&self, value: &Value, path: &str, strictness: Strictness, errors: &mut Vec<FieldError>) {
        if let Some(expected) = self.wrong_type(value) {
            let is_string = self.type_name.as_deref() == Some("string");
            let number = value.to_string();
            let (actual, advice) = match value {
                Value::Null => ("nothing", ""),
                Value::Bool(_) => ("true or false", if is_string { "; quote it" } else { "" }),
                Value::Number(_) => {
                    (number.as_str(), if is_string || self.is_int_or_string { "; quote it" } else { "" })
                }
                Value::String(_) => ("a string", ""),
                Value::Array(_) => ("a list", ""),
                Value::Object(_) => ("an object", ""),
            };
            errors.push(FieldError::new(path, format!("must be {expected}, not {actual}{advice}")));
            return;
        }
        let mut messages = Vec::new();
        match value {
            Value::String(text) => self.check_text(text, &mut messages),
            Value::Number(_) => self.check_number(value, &mut messages),
            Value::Array(items) => self.check_list(items, &mut messages),
            Value::Object(entries) => self.check_count(entries.len(), self.max_properties, "entries", &mut messages),
            Value::Null | Value::Bool(_) => {}
        }
        if !self.choices.is_empty() && !self.choices.contains(value) {
            let choices: Vec<&str> = self.choices.iter().filter_map(Value::as_str).collect();
            messages.push(format!("{value} is not one of {}{}", choices.join(", "), moved::value(value)));
        }
        errors.extend(messages.into_iter().map(|message| FieldError::new(path, message)));
        match value {
            Value::Array(items) => {
                for (position, item) in items.iter().enumerate() {
                    if let Some(schema) = &self.items {
                        schema.check(item, &format!("{path}[{position}]"), strictness, errors);
                    }
                }
            }
            Value::Object(entries) => self.check_fields(entries, path, strictness, errors),
            _ => {}
        }
    }

    /// Removes the nulls among the entries of maps.
    pub(super) fn drop_null_entries(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if self.entries.is_some() {
                    fields.retain(|name, value| !value.is_null() || self.properties.contains_key(name));
                }
                for (name, value) in fields {
                    if let Some(schema) = self.properties.get(name).or(self.entries.as_deref()) {
                        schema.drop_null_entries(value);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    items.iter_mut().for_each(|item| schema.drop_null_entries(item));
                }
            }
            _ => {}
        }
    }

    fn wrong_type(&self, value: &Value) -> Option<&'static str> {
        if self.is_int_or_string {
            let fits = value.is_string() || value.is_i64() || value.is_u64();
            return (!fits).then_some("a quantity such as 500m or 2Gi");
        }
        let (fits, wanted) = match self.type_name.as_deref()? {
            "string" => (value.is_string(), "a string"),
            "integer" => (value.is_i64() || value.is_u64(), "a whole number"),
            "boolean" => (value.is_boolean(), "true or false"),
            "array" => (value.is_array(), "a list"),
            "object" => (value.is_object(), "an object"),
            _ => (true, ""),
        };
        (!fits).then_some(wanted)
    }

    fn check_text(&self, text: &str, messages: &mut Vec<String>) {
        let length = text.chars().count() as u64;
        if self.min_length.is_some_and(|min| length < min) {
            messages.push("must not be empty".to_owned());
        }
        if let Some(max) = self.max_length.filter(|max| length > *max) {
            messages.push(format!("must not be longer than {max} characters"));
        }
        if let Some((pattern, _)) = self.pattern.as_ref().filter(|(_, compiled)| !compiled.is_match(text)) {
            messages.push(mismatch(text, pattern));
        }
        if self.format.as_deref() == Some("date-time") && text.parse::<jiff::Timestamp>().is_err() {
            messages.push(format!("{text:?} is not a time such as 2026-01-31T12:00:00Z"));
        }
    }

    fn check_number(&self, value: &Value, messages: &mut Vec<String>) {
        let Some(number) = value.as_i64() else {
            messages.push(format!("{value} is too large"));
            return;
        };
        if self.format.as_deref() == Some("int32") && i32::try_from(number).is_err() {
            messages.push(format!("{number} is too large"));
        }
        if let Some(min) = self.minimum.filter(|min| number < *min) {
            messages.push(format!("must be {min} or more"));
        }
        if let Some(max) = self.maximum.filter(|max| number > *max) {
            messages.push(format!("must be {max} or less"));
        }
    }

    fn check_list(&self, items: &[Value], messages: &mut Vec<String>) {
        if self.min_items.is_some_and(|min| (items.len() as u64) < min) {
            messages.push("must not be empty".to_owned());
        }
        self.check_count(items.len(), self.max_items, "items", messages);
        let repeated = items
            .iter()
            .enumerate()
            .find(|(position, item)| items.iter().take(*position).any(|earlier| earlier == *item));
        if let (true, Some((_, item))) = (self.is_set, repeated) {
            messages.push(format!("{item} is there twice"));
        }
    }

    fn check_count(&self, count: usize, max: Option<u64>, what: &str, messages: &mut Vec<String>) {
        if let Some(max) = max.filter(|max| count as u64 > *max) {
            messages.push(format!("must not have more than {max} {what}"));
        }
    }

    fn check_fields(
        &self,
        fields: &serde_json::Map<String, Value>,
        path: &str,
        strictness: Strictness,
        errors: &mut Vec<FieldError>,
    ) {
        let field = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        // The API server drops nulls and applies defaults before it checks required fields.
        let is_missing = |name: &String| fields.get(name).is_none_or(Value::is_null);
        let has_default = |name: &String| self.properties.get(name).is_some_and(|property| property.has_default);
        for name in self.required.iter().filter(|name| is_missing(name) && !has_default(name)) {
            errors.push(FieldError::new(field(name), "is required"));
        }
        for (name, value) in fields {
            if let Some(property) = self.properties.get(name) {
                if !value.is_null() {
                    property.check(value, &field(name), strictness, errors);
                }
            } else if let Some(entries) = &self.entries {
                entries.check(value, &format!("{path}[{name}]"), strictness, errors);
            } else if !self.properties.is_empty() && strictness == Strictness::NoUnknownFields {
                let path = field(name);
                let message = format!("there is no such field{}", moved::field(&path));
                errors.push(FieldError::new(path, message));
            }
        }
    }
}

/// A message for a text that its pattern does not match. Most patterns are hard to read.
fn mismatch(text: &str, pattern: &str) -> String {
    match pattern {
        pattern::LABEL_KEY => Some(format!("{text:?} is not the key of a label")),
        pattern::BUDGET_NODES => Some(format!("{text:?} is neither a number of nodes nor a percentage up to 100%")),
        pattern::BUDGET_SCHEDULE => {
            Some(format!("{text:?} is not a schedule: five fields such as 0 9 * * 1-5, or a name such as @daily"))
        }
        pattern::PRICE => Some(format!("{text:?} is not a price such as 0.25")),
        pattern::PRICE_ADJUSTMENT => {
            Some(format!("{text:?} is neither a signed amount such as +0.1 nor a signed percentage such as -20%"))
        }
        pattern::VOLUME_SIZE => Some(format!("{text:?} is not a volume size from 1Gi to 58Ti or from 1G to 64T")),
        pattern::QUANTITY => Quantity::parse(text).err().map(|error| error.to_string()),
        pattern::DURATION => Some(format!("{text:?} is not a duration such as 30s, 10m or 1h30m")),
        pattern::BUDGET_DURATION => {
            Some(format!("{text:?} is not a duration in hours and minutes, such as 8h, 30m or 1h30m"))
        }
        pattern::NILLABLE_DURATION => {
            Some(format!("{text:?} is neither a duration such as 30s, 10m or 1h30m nor Never"))
        }
        _ => None,
    }
    .unwrap_or_else(|| format!("{text:?} does not match {pattern}"))
}
