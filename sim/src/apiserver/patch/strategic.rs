//! Strategic merge patch: a merge patch that merges keyed lists item by item.

use crate::apiserver::error::ApiError;
use crate::apiserver::schema::{self, ListKind};
use serde_json::{Map, Value};

const DIRECTIVE: &str = "$patch";
const DELETE_FROM_SET: &str = "$deleteFromPrimitiveList/";

/// Merges `patch` into `object`.
///
/// # Errors
/// 400 if an item of a keyed list lacks its key or a directive is unknown.
pub(crate) fn merge(object: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let Some(patch) = patch.as_object() else {
        return Err(ApiError::bad_request("a strategic merge patch must be an object"));
    };
    merge_value(object, patch, "")
}

fn merge_value(target: &mut Value, patch: &Map<String, Value>, parent: &str) -> Result<(), ApiError> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => {
            *target = Value::Object(patch.iter().filter(|(key, _)| *key != DIRECTIVE).map(clone_pair).collect());
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(ApiError::bad_request(format!("unknown directive {other:?} in the patch"))),
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return Ok(()) };
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(DELETE_FROM_SET) {
            delete_from_set(map, field, value);
        } else if key.starts_with('$') {
            // Ordering directives and retained keys do not affect the stored object.
        } else if value.is_null() {
            map.shift_remove(key);
        } else if let Some(inner) = value.as_object() {
            merge_value(map.entry(key.clone()).or_insert(Value::Null), inner, key)?;
        } else if let Some(list) = value.as_array() {
            let slot = map.entry(key.clone()).or_insert(Value::Null);
            merge_list(slot, list, parent, key)?;
        } else {
            map.insert(key.clone(), value.clone());
        }
    }
    Ok(())
}

fn merge_list(target: &mut Value, patch: &[Value], parent: &str, field: &str) -> Result<(), ApiError> {
    let live = target.as_array().cloned().unwrap_or_default();
    let merged = match schema::for_merge(parent, field) {
        ListKind::Atomic => patch.to_vec(),
        ListKind::Set => {
            let mut all = live;
            for item in patch {
                if !all.contains(item) {
                    all.push(item.clone());
                }
            }
            all
        }
        ListKind::Keyed(keys) => merge_keyed(live, patch, keys.first().copied().unwrap_or_default(), field)?,
    };
    *target = Value::Array(merged);
    Ok(())
}

fn merge_keyed(live: Vec<Value>, patch: &[Value], key: &str, field: &str) -> Result<Vec<Value>, ApiError> {
    let directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str).map(str::to_owned);
    let replaces = |item: &Value| directive(item).as_deref() == Some("replace") && item.get(key).is_none();
    if patch.iter().any(replaces) {
        return Ok(patch.iter().filter(|item| !replaces(item)).cloned().collect());
    }
    let mut merged = live;
    for item in patch {
        let (Some(id), Some(changes)) = (item.get(key), item.as_object()) else {
            return Err(ApiError::bad_request(format!("an item of {field} in the patch lacks its key {key}")));
        };
        let place = merged.iter().position(|old| old.get(key) == Some(id));
        match (directive(item).as_deref(), place) {
            (Some("delete"), Some(place)) => drop(merged.remove(place)),
            (Some("delete"), None) => {}
            (_, Some(place)) => merge_value(&mut merged[place], changes, field)?,
            (_, None) => {
                let mut new = Value::Null;
                merge_value(&mut new, changes, field)?;
                merged.push(new);
            }
        }
    }
    Ok(merged)
}

fn delete_from_set(map: &mut Map<String, Value>, field: &str, gone: &Value) {
    let gone = gone.as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(list) = map.get_mut(field).and_then(Value::as_array_mut) {
        list.retain(|item| !gone.contains(item));
    }
}

fn clone_pair((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

#[cfg(test)]
mod tests {
    use super::merge;
    use serde_json::{Value, json};

    fn merged(mut object: Value, patch: &Value) -> Value {
        merge(&mut object, patch).unwrap();
        object
    }

    #[test]
    fn conditions_merge_by_type_and_taints_are_one_value() {
        let node = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
                          "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "x"}, {"type": "Other", "status": "True"}]}});
        let patch = json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]},
                           "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "New", "status": "True"}]}});
        assert_eq!(
            merged(node, &patch),
            json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]},
                   "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "x"}, {"type": "Other", "status": "True"}, {"type": "New", "status": "True"}]}})
        );
    }

    #[test]
    fn containers_and_their_environment_merge_by_name() {
        let pod = json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}]}});
        let patch = json!({"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}});
        assert_eq!(
            merged(pod, &patch),
            json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]}})
        );
    }

    #[test]
    fn directives_delete_replace_and_take_from_sets() {
        let object = json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {"volumes": [{"name": "v"}, {"name": "w"}], "keep": {"x": 1}}});
        let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
                           "spec": {"volumes": [{"name": "v", "$patch": "delete"}], "keep": {"$patch": "replace", "y": 2}}});
        assert_eq!(
            merged(object, &patch),
            json!({"metadata": {"finalizers": ["b", "c"]}, "spec": {"volumes": [{"name": "w"}], "keep": {"y": 2}}})
        );
    }

    #[test]
    fn an_item_without_its_key_is_refused() {
        let mut pod = json!({"spec": {"containers": []}});
        assert_eq!(merge(&mut pod, &json!({"spec": {"containers": [{"image": "x"}]}})).unwrap_err().code, 400);
    }
}
