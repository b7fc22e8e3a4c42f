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
    use proptest::prelude::*;
    use serde_json::json;

    /// Applies a merge patch as RFC 7386 says.
    fn apply(target: Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut fields = match target {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        for (key, value) in patch {
            let before = fields.remove(key).unwrap_or_default();
            if !value.is_null() {
                fields.insert(key.clone(), apply(before, value));
            }
        }
        Value::Object(fields)
    }

    /// Values without null, which a merge patch cannot set, and few of them, so that two often share a part.
    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![(0..2).prop_map(|number| json!(number)), Just(json!("x")), Just(json!([1, 2]))];
        leaf.prop_recursive(3, 20, 3, |inner| {
            prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| map.into_iter().collect::<Value>())
        })
    }

    proptest! {
        #[test]
        fn a_patch_turns_the_old_object_into_the_new_one(old in values(), new in values()) {
            let (old, new) = (json!({"spec": old}), json!({"spec": new}));
            let patch = difference(&old, &new);
            prop_assert_eq!(patch.is_none(), old == new);
            prop_assert_eq!(apply(old, &patch.map_or_else(|| json!({}), Value::Object)), new);
        }
    }

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
