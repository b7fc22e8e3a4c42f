//! Accessors for Kubernetes objects in JSON form.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// Value at a path of field names, if every field exists.
#[must_use]
pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |current, field| current.get(field))
}

/// String at a path. Empty if there is none, as Kubernetes treats absent strings.
#[must_use]
pub fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// Integer at a path, if there is one.
#[must_use]
pub fn integer(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// Items of the list at a path; empty if there is no list.
#[must_use]
pub fn items<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Sets the value at a path. Creates missing maps and replaces values on the path that are not maps.
pub fn set(value: &mut Value, path: &[&str], new: Value) {
    let mut current = value;
    for field in path {
        if !current.is_object() {
            *current = Value::Object(Map::new());
        }
        current = &mut current[*field];
    }
    *current = new;
}

/// Removes the field at a path and returns its value.
pub fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let mut current = value;
    for field in parents {
        current = current.get_mut(field)?;
    }
    current.as_object_mut()?.shift_remove(*last)
}

/// `metadata.name`.
#[must_use]
pub fn name(value: &Value) -> &str {
    text(value, &["metadata", "name"])
}

/// `metadata.namespace`; empty for cluster-scoped objects.
#[must_use]
pub fn namespace(value: &Value) -> &str {
    text(value, &["metadata", "namespace"])
}

/// `metadata.uid`.
#[must_use]
pub fn uid(value: &Value) -> &str {
    text(value, &["metadata", "uid"])
}

/// `metadata.resourceVersion`; empty if not set.
#[must_use]
pub fn resource_version(value: &Value) -> &str {
    text(value, &["metadata", "resourceVersion"])
}

/// `metadata.generation`; 0 if not set.
#[must_use]
pub fn generation(value: &Value) -> i64 {
    integer(value, &["metadata", "generation"]).unwrap_or(0)
}

/// Whether `metadata.deletionTimestamp` is set.
#[must_use]
pub fn is_deleting(value: &Value) -> bool {
    at(value, &["metadata", "deletionTimestamp"]).is_some_and(|stamp| !stamp.is_null())
}

/// `metadata.finalizers`.
pub fn finalizers(value: &Value) -> impl Iterator<Item = &str> {
    items(value, &["metadata", "finalizers"]).iter().filter_map(Value::as_str)
}

/// Value of a label, if set.
#[must_use]
pub fn label<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    at(value, &["metadata", "labels", key]).and_then(Value::as_str)
}

/// Value of an annotation, if set.
#[must_use]
pub fn annotation<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    at(value, &["metadata", "annotations", key]).and_then(Value::as_str)
}

/// Owner reference with `controller: true`.
#[must_use]
pub fn controller(value: &Value) -> Option<&Value> {
    items(value, &["metadata", "ownerReferences"])
        .iter()
        .find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
}

/// Condition of one type in `status.conditions`.
#[must_use]
pub fn condition<'a>(value: &'a Value, kind: &str) -> Option<&'a Value> {
    items(value, &["status", "conditions"]).iter().find(|condition| text(condition, &["type"]) == kind)
}

/// Whether the status of the condition of one type is `"True"`.
#[must_use]
pub fn condition_is_true(value: &Value, kind: &str) -> bool {
    condition(value, kind).is_some_and(|condition| text(condition, &["status"]) == "True")
}

/// Replaces the condition with the type of `new`, or appends `new`. Sets `lastTransitionTime` to `now` if the status
/// changed, and keeps it otherwise. Returns whether any field other than times changed.
pub fn set_condition(value: &mut Value, mut new: Value, now: Timestamp) -> bool {
    let kind = text(&new, &["type"]).to_owned();
    let old = condition(value, &kind).cloned();
    let same_status = old.as_ref().is_some_and(|old| old.get("status") == new.get("status"));
    let since = old
        .as_ref()
        .filter(|_| same_status)
        .and_then(|old| old.get("lastTransitionTime").cloned())
        .unwrap_or_else(|| Value::from(time(now)));
    new["lastTransitionTime"] = since;
    let changed = old.as_ref().is_none_or(|old| {
        ["status", "reason", "message", "observedGeneration"].iter().any(|field| old.get(field) != new.get(field))
    });
    if !at(value, &["status", "conditions"]).is_some_and(Value::is_array) {
        set(value, &["status", "conditions"], Value::Array(Vec::new()));
    }
    if let Some(list) = value["status"]["conditions"].as_array_mut() {
        match list.iter_mut().find(|condition| text(condition, &["type"]) == kind) {
            Some(place) => *place = new,
            None => list.push(new),
        }
    }
    changed
}

/// A time as Kubernetes formats it in most fields: RFC 3339, whole seconds, UTC.
#[must_use]
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Time at a path, if there is one that parses.
#[must_use]
pub fn time_at(value: &Value, path: &[&str]) -> Option<Timestamp> {
    text(value, path).parse().ok()
}
