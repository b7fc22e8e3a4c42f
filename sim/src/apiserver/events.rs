//! Events exist in two API groups. They are stored as core/v1 and converted for clients of events.k8s.io/v1.

use super::resources::ResourceId;
use super::store::Object;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Names of the same field in events.k8s.io/v1 and in core/v1.
const NAMES: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// The kind under which objects of `resource` are stored.
#[must_use]
pub(super) fn storage(resource: ResourceId) -> ResourceId {
    if resource == ResourceId::EVENTS_K8S { ResourceId::EVENTS } else { resource }
}

/// Converts a stored object to its form under `resource`.
#[must_use]
pub(super) fn shown(resource: ResourceId, object: &Object) -> Cow<'_, Value> {
    if resource == ResourceId::EVENTS_K8S {
        Cow::Owned(renamed(object, &ResourceId::EVENTS_K8S.get().api_version(), |new, core| (core, new)))
    } else {
        Cow::Borrowed(object)
    }
}

/// Converts an object received under `resource` to its stored form.
#[must_use]
pub(super) fn stored(resource: ResourceId, object: Value) -> Value {
    if resource == ResourceId::EVENTS_K8S {
        renamed(&object, &ResourceId::EVENTS.get().api_version(), |new, core| (new, core))
    } else {
        object
    }
}

fn renamed(
    object: &Value,
    api_version: &str,
    direction: impl Fn(&'static str, &'static str) -> (&'static str, &'static str),
) -> Value {
    let names: Vec<_> = NAMES.iter().map(|(new, core)| direction(new, core)).collect();
    let rename = |key: &String| {
        names.iter().find(|(from, _)| from == key).map_or_else(|| key.clone(), |(_, to)| (*to).to_owned())
    };
    let fields = object.as_object().into_iter().flatten();
    let mut map: Map<String, Value> = fields.map(|(key, value)| (rename(key), value.clone())).collect();
    map.insert("apiVersion".to_owned(), Value::from(api_version));
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::{shown, stored};
    use crate::apiserver::resources::ResourceId;
    use serde_json::json;

    #[test]
    fn an_event_reads_the_same_both_ways() {
        let new = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "a"}, "note": "n", "reason": "R",
                         "reportingController": "c", "deprecatedCount": 2});
        let core = stored(ResourceId::EVENTS_K8S, new.clone());
        assert_eq!(
            core,
            json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "a"}, "message": "n", "reason": "R",
                   "reportingComponent": "c", "count": 2})
        );
        assert_eq!(*shown(ResourceId::EVENTS_K8S, &core.into()), new);
    }
}
