//! Merge patches (RFC 7386).

use serde_json::{Map, Value};

/// The merge patch that turns `old` into `new`; `None` if they are equal.
pub(super) fn difference(old: &Value, new: &Value) -> Option<Map<String, Value>> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return None };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(before) if before == value => {}
            Some(before @ Value::Object(_)) if value.is_object() => {
                if let Some(inner) = difference(before, value) {
                    patch.insert(key.clone(), Value::Object(inner));
                }
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patch_contains_only_differences() {
        let old =
            json!({"metadata": {"labels": {"a": "1", "b": "2"}, "name": "x"}, "spec": {"taints": [1, 2]}, "same": {}});
        let new = json!({"metadata": {"labels": {"a": "1", "c": "3"}, "name": "x"}, "spec": {}, "same": {}});
        let patch = difference(&old, &new).map(Value::Object);
        assert_eq!(patch, Some(json!({"metadata": {"labels": {"c": "3", "b": null}}, "spec": {"taints": null}})));
        assert_eq!(difference(&new, &new), None);
    }
}
