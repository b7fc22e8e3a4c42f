//! From the JSON schema that schemars makes to the narrower one that Kubernetes takes.

use serde_json::{Map, Number, Value};

/// Rewrites a schema in place, with all schemas in it.
pub(super) fn schema(schema: &mut Map<String, Value>) {
    for keyword in ["$schema", "title", "nullable"] {
        schema.remove(keyword);
    }
    unwrap_optional(schema);
    join_variants(schema);
    if let Some(Value::Array(types)) = schema.get("type") {
        // An optional field may be missing; that it may be null is not said, since the API server drops nulls anyway.
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

/// `anyOf` a schema and null is the schema.
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
        // What is said of the field goes before what is said of its type.
        schema.entry(keyword).or_insert(value);
    }
}

/// `oneOf` constants, which schemars makes of variants with documentation, are an enumeration.
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

/// Bounds are floating-point numbers in Kubernetes' types; whole ones are written as such.
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

/// Beyond this, not every whole number is a floating-point number.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn whole_number(number: Number) -> Number {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
            #[expect(clippy::cast_possible_truncation, reason = "checked: whole, and small enough to be exact")]
            let whole = float as i64;
            whole.into()
        }
        _ => number,
    }
}
