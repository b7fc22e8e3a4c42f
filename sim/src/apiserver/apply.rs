//! Server-side apply: owners of the fields of an object, and the changes that an apply makes.

use super::error::ApiError;
use super::fields::{Difference, Fields, merge_applied};
use super::object;
use super::resources::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Operation by which a manager owns its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    manager: String,
    operation: Operation,
    subresource: String,
}

/// Owners of the fields of one object.
///
/// Stored separately and shown in `metadata.managedFields` only after the first apply. Before that, no client reads
/// them, and they would double the size of every Pod and Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    /// Fields are shared with earlier versions of the object: most writes change values, not owners.
    rows: BTreeMap<Owner, (Arc<Fields>, String)>,
}

impl Owners {
    /// Records an ordinary write: its manager owns the fields that it changed, and removed fields lose their owners.
    pub(crate) fn note_write(&mut self, manager: &str, subresource: &str, difference: &Difference, now: Timestamp) {
        let writer =
            Owner { manager: manager.to_owned(), operation: Operation::Update, subresource: subresource.to_owned() };
        for (owner, (fields, _)) in &mut self.rows {
            subtract(fields, &difference.removed);
            if *owner != writer {
                subtract(fields, &difference.changed);
            }
        }
        if !difference.changed.is_empty() {
            let row = self.rows.entry(writer).or_default();
            if !row.0.contains(&difference.changed) {
                Arc::make_mut(&mut row.0).add(&difference.changed);
            }
            row.1 = object::time(now);
        }
        self.rows.retain(|_, (fields, _)| !fields.is_empty());
    }

    /// Returns the object after `manager` applies `config`, and the new owners.
    ///
    /// # Errors
    /// 409 if the apply changes fields of other owners and `force` is not set.
    pub(crate) fn apply(
        &self,
        resource: &Resource,
        live: &Value,
        request: &Apply<'_>,
    ) -> Result<(Value, Self), ApiError> {
        let applier = Owner {
            manager: request.manager.to_owned(),
            operation: Operation::Apply,
            subresource: request.subresource.to_owned(),
        };
        let mut wanted = Fields::of_object(resource.custom, request.config);
        if request.subresource == "status" {
            wanted.keep_top("status");
        } else if resource.status {
            wanted.remove_top("status");
        }
        let mut merged = merge_applied(resource.custom, live, request.config);
        let difference = Difference::between(resource.custom, live, &merged);
        let mut owners = self.clone();
        let changed = difference.changed.common(&wanted);
        if !request.force {
            owners.check_conflicts(&applier, &changed)?;
        }
        for (owner, (fields, _)) in &mut owners.rows {
            if *owner != applier {
                subtract(fields, &changed);
            }
        }
        // Fields that this manager applied before and omits now are removed, unless another manager also owns them.
        if let Some((before, _)) = owners.rows.remove(&applier) {
            let mut gone = Arc::unwrap_or_clone(before);
            gone.subtract(&wanted);
            for (fields, _) in owners.rows.values() {
                gone.subtract(fields);
            }
            gone.remove_from(resource.custom, &mut merged);
        }
        owners.rows.retain(|_, (fields, _)| !fields.is_empty());
        owners.rows.insert(applier, (Arc::new(wanted), object::time(request.now)));
        Ok((merged, owners))
    }

    fn check_conflicts(&self, applier: &Owner, changed: &Fields) -> Result<(), ApiError> {
        let mut conflicts = Vec::new();
        for (owner, (fields, _)) in self.rows.iter().filter(|(owner, _)| *owner != applier) {
            let common = fields.common(changed);
            conflicts.extend(common.shown().into_iter().map(|field| (owner.manager.clone(), field)));
        }
        if conflicts.is_empty() { Ok(()) } else { Err(ApiError::apply_conflict(&conflicts)) }
    }

    /// Whether the same managers own the same fields. Times are ignored.
    pub(crate) fn same_fields(&self, other: &Self) -> bool {
        let plain = |owners: &Self| {
            owners.rows.iter().map(|(owner, (fields, _))| (owner.clone(), Arc::clone(fields))).collect::<Vec<_>>()
        };
        plain(self) == plain(other)
    }

    /// Value of `metadata.managedFields`; `None` before the first apply.
    pub(crate) fn shown(&self, resource: &Resource) -> Option<Value> {
        self.rows.keys().any(|owner| owner.operation == Operation::Apply).then(|| {
            let rows = self.rows.iter().map(|(owner, (fields, time))| {
                let mut row = json!({
                    "manager": owner.manager, "operation": format!("{:?}", owner.operation),
                    "apiVersion": resource.api_version(), "time": time,
                    "fieldsType": "FieldsV1", "fieldsV1": fields.to_v1(),
                });
                if !owner.subresource.is_empty() {
                    row["subresource"] = Value::from(owner.subresource.clone());
                }
                row
            });
            Value::Array(rows.collect())
        })
    }
}

/// Removes the paths of `other` from fields that may be shared.
fn subtract(fields: &mut Arc<Fields>, other: &Fields) {
    if fields.meets(other) {
        Arc::make_mut(fields).subtract(other);
    }
}

/// An apply request.
#[derive(Debug)]
pub(crate) struct Apply<'a> {
    pub(crate) manager: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) config: &'a Value,
    pub(crate) force: bool,
    pub(crate) now: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::{Apply, Owners};
    use crate::apiserver::error::ApiError;
    use crate::apiserver::fields::Difference;
    use crate::apiserver::resources::ResourceId;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    struct Thing {
        live: Value,
        owners: Owners,
    }

    impl Thing {
        fn new(live: Value) -> Self {
            let mut thing = Self { live: json!({}), owners: Owners::default() };
            thing.write("creator", live);
            thing
        }

        fn write(&mut self, manager: &str, new: Value) {
            let difference = Difference::between(false, &self.live, &new);
            self.owners.note_write(manager, "", &difference, Timestamp::UNIX_EPOCH);
            self.live = new;
        }

        fn apply(&mut self, manager: &str, config: &Value, force: bool) -> Result<(), ApiError> {
            let request = Apply { manager, subresource: "", config, force, now: Timestamp::UNIX_EPOCH };
            let (live, owners) = self.owners.apply(ResourceId::CONFIG_MAPS.get(), &self.live, &request)?;
            (self.live, self.owners) = (live, owners);
            Ok(())
        }
    }

    #[test]
    fn fields_no_longer_applied_go_and_those_of_others_stay() {
        let mut map = Thing::new(json!({"data": {"theirs": "1"}}));
        map.apply("me", &json!({"data": {"a": "1", "b": "2"}}), false).unwrap();
        map.apply("me", &json!({"data": {"a": "1"}}), false).unwrap();
        assert_eq!(map.live, json!({"data": {"theirs": "1", "a": "1"}}));
    }

    #[test]
    fn a_changed_value_of_another_conflicts_an_equal_one_is_shared() {
        let mut map = Thing::new(json!({"data": {"a": "1"}}));
        map.apply("me", &json!({"data": {"a": "1"}}), false).unwrap();
        let error = map.apply("me", &json!({"data": {"a": "2"}}), false).unwrap_err();
        assert_eq!((error.code, error.reason), (409, "Conflict"));
        assert!(error.message.contains(".data.a (creator)"), "{}", error.message);
        map.apply("me", &json!({"data": {"a": "2"}}), true).unwrap();
        assert_eq!(map.live, json!({"data": {"a": "2"}}));
        // After the forced apply, the creator has the conflict.
        assert!(map.apply("creator", &json!({"data": {"a": "1"}}), false).is_err());
    }

    #[test]
    fn a_shared_field_outlives_one_of_its_owners() {
        let mut map = Thing::new(json!({}));
        map.apply("one", &json!({"data": {"a": "1"}}), false).unwrap();
        map.apply("two", &json!({"data": {"a": "1"}}), false).unwrap();
        map.apply("one", &json!({"data": {}}), false).unwrap();
        assert_eq!(map.live["data"], json!({"a": "1"}));
        map.apply("two", &json!({"data": {}}), false).unwrap();
        assert_eq!(map.live.pointer("/data/a"), None);
    }

    #[test]
    fn a_map_applied_empty_keeps_what_others_have_added() {
        let mut map = Thing::new(json!({"data": {"theirs": "1"}}));
        map.apply("me", &json!({"data": {"a": "1"}}), false).unwrap();
        map.apply("me", &json!({"data": {}}), false).unwrap();
        assert_eq!(map.live["data"], json!({"theirs": "1"}));
        map.apply("me", &json!({"data": {"b": "1"}}), false).unwrap();
        assert_eq!(map.live["data"], json!({"theirs": "1", "b": "1"}));
    }

    #[test]
    fn an_ordinary_write_takes_ownership() {
        let mut map = Thing::new(json!({}));
        map.apply("me", &json!({"data": {"a": "1"}}), false).unwrap();
        map.write("other", json!({"data": {"a": "9"}}));
        assert!(map.apply("me", &json!({"data": {"a": "1"}}), false).is_err());
    }

    #[test]
    fn conditions_are_owned_item_by_item() {
        let mut pod = Thing::new(json!({"status": {"conditions": [{"type": "A", "status": "True"}]}}));
        // The test writes the status of this kind with the whole object: config maps have no status subresource.
        pod.apply("me", &json!({"status": {"conditions": [{"type": "B", "status": "False"}]}}), false).unwrap();
        assert_eq!(pod.live["status"]["conditions"].as_array().unwrap().len(), 2);
        pod.apply("me", &json!({"status": {"conditions": [{"type": "C", "status": "False"}]}}), false).unwrap();
        let kinds: Vec<_> =
            pod.live["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].clone()).collect();
        assert_eq!(kinds, ["A", "C"]);
        let shown = pod.owners.shown(ResourceId::CONFIG_MAPS.get()).unwrap();
        assert!(shown.to_string().contains(r#"k:{\"type\":\"C\"}"#), "{shown}");
    }
}
