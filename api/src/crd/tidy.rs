//! Converts the JSON schema of schemars to the subset that Kubernetes accepts.

use serde_json::{Map, Number, Value};

/// Converts a schema and all nested schemas in place.
pub(super) fn schema(schema: &mut Map<String, Value>) {
    for keyword in ["$schema", "title", "nullable"] {
        schema.remove(keyword);
    }
    unwrap_optional(schema);
    join_variants(schema);
    if let Some(Value::Array(types)) = schema.get("type") {
        // Optional fields need not be nullable, since the API server drops nulls anyway.
        let only = types.iter().find(|name| *name != "null").cloned().unwrap_or(Value::Null);
        schema.insert("type".to_owned(), only);
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.sort_by_cached_key(ToString::to_string);
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().filter_map(Value::as_object_mut).for_each(self::schema);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = schema.get_mut(keyword) {
            self::schema(inner);
        }
    }
}

/// Replaces `anyOf` with a schema and null by the schema.
fn unwrap_optional(schema: &mut Map<String, Value>) {
    let is_null = |value: &Value| value.get("type").is_some_and(|name| name == "null");
    let Some(Value::Array(choices)) = schema.get("anyOf") else { return };
    let [Value::Object(inner), null] = choices.as_slice() else { return };
    if !is_null(null) {
        return;
    }
    let inner = inner.clone();
    schema.remove("anyOf");
    for (keyword, value) in inner {
        // Keywords of the field take precedence over those of its type.
        schema.entry(keyword).or_insert(value);
    }
}

/// Replaces `oneOf` with constants, which schemars generates for documented variants, by an enumeration.
fn join_variants(schema: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = schema.get("oneOf") else { return };
    let constants = variants.iter().map(|variant| match (variant.get("const"), variant.get("enum")) {
        (Some(constant), _) => Some(vec![constant.clone()]),
        (None, Some(Value::Array(constants))) => Some(constants.clone()),
        _ => None,
    });
    let Some(constants) = constants.collect::<Option<Vec<_>>>() else { return };
    let constants = constants.concat();
    schema.remove("oneOf");
    schema.insert("type".to_owned(), "string".into());
    schema.insert("enum".to_owned(), constants.into());
}

/// Writes integral numbers as integers: Kubernetes' types use floating-point numbers for bounds.
pub(super) fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Object(entries) => {
            Value::Object(entries.into_iter().map(|(key, value)| (key, whole_numbers(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Number(number) => Value::Number(whole_number(number)),
        other => other,
    }
}

/// Above this value, floating-point numbers cannot represent all integers.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

fn whole_number(number: Number) -> Number {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < MAX_EXACT_INTEGER => {
            #[expect(clippy::cast_possible_truncation, reason = "checked: whole, and small enough to be exact")]
            let whole = float as i64;
            whole.into()
        }
        _ => number,
    }
}
