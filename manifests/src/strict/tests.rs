use super::read;
use crate::{Manifest, Place, UnknownFields, kinds::Kind, typed};
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::Pod;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1", "memory": 1_000_000}},
            "ports": [{"containerPort": 80}], "livenessProbe": {"httpGet": {"port": "http"}}}], "priority": 3},
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// What the reader that names fields makes of the value, if anything.
fn with_paths<T: DeserializeOwned>(value: &Value) -> Option<T> {
    typed::read_with_paths(&manifest(value)).ok()
}

fn manifest(value: &Value) -> Manifest {
    let unknown_fields = UnknownFields::default();
    Manifest { place: Place::default(), kind: Kind::Pod, name: "a".to_owned(), value: value.clone(), unknown_fields }
}

#[test]
fn unknown_fields_that_a_server_wrote_are_noted() {
    let mut pod = pod();
    pod["spec"]["imagined"] = json!({"deep": 1});
    pod["spec"]["containers"][0]["imagined"] = json!(1);
    assert!(typed::read::<Pod>(&manifest(&pod)).is_err());
    pod["metadata"]["uid"] = json!("u");
    let written = manifest(&pod);
    assert!(typed::read::<Pod>(&written).is_ok());
    let noted: Vec<(String, usize)> = written.unknown_fields.take().into_iter().collect();
    let expected = ["Pod spec.containers[].imagined", "Pod spec.imagined"].map(|field| (field.to_owned(), 1_usize));
    assert_eq!(noted, expected);
    pod["spec"]["priority"] = json!("3");
    assert!(typed::read::<Pod>(&manifest(&pod)).is_err(), "a value of another type is an error all the same");
}

#[test]
fn unknown_fields_are_refused_but_in_the_status() {
    let table = [
        ("/metadata/labels/other", json!("x"), true),
        ("/metadata/labels/other", Value::Null, true),
        ("/metadata/annotations", json!({"a": null}), true),
        ("/metadata/imagined", json!("x"), false),
        ("/metadata/imagined", Value::Null, true),
        ("/imagined", json!(1), false),
        ("/status/imagined", json!({"deep": [1]}), true),
        ("/status/conditions/0/imagined", json!(1), true),
        ("/status/phase", json!(1), false),
        ("/spec/containers/0/imagined", json!(1), false),
        ("/spec/containers/0/resources/requests/gpu", json!(0.5), true),
        ("/spec/status", json!({"imagined": 1}), false),
        ("/spec/nodeSelector", json!({"disk": null}), true),
        ("/spec/nodeSelector", json!({"disk": 1}), false),
        ("/spec/containers/0/resources/requests/cpu", Value::Null, true),
        ("/spec/priority", json!("3"), false),
        ("/spec/containers", json!({}), false),
        ("/spec", Value::Null, true),
        ("/spec/containers/0/livenessProbe/httpGet/port", json!(8080), true),
    ];
    for (path, value, accepted) in table {
        let mut pod = pod();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = pod.pointer_mut(parent).unwrap();
        parent.as_object_mut().unwrap().insert(key.to_owned(), value);
        assert_eq!(read::<Pod>(&pod).is_some(), accepted, "{path}");
        assert_eq!(read::<Pod>(&pod), with_paths(&pod), "{path}");
    }
}

/// Any value.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9:.-]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::hash_map("[a-z]{1,6}", inner, 0..3).prop_map(|it| it.into_iter().collect()),
        ]
    })
}

/// Paths of all values below `value`.
fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| paths(value, &format!("{path}/{key}"), found)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| paths(value, &format!("{path}/{index}"), found));
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn both_readers_accept_the_same(at in any::<prop::sample::Index>(), key in "[a-z]{1,8}", value in any_value(), insert: bool) {
        let mut pod = pod();
        let mut all: Vec<String> = Vec::new();
        paths(&pod, "", &mut all);
        let place = pod.pointer_mut(at.get(&all).as_str()).unwrap();
        match place.as_object_mut().filter(|_| insert) {
            Some(fields) => {
                fields.insert(key, value);
            }
            None => *place = value,
        }
        prop_assert_eq!(read::<Pod>(&pod), with_paths::<Pod>(&pod));
        prop_assert_eq!(read::<Node>(&pod), with_paths::<Node>(&pod));
    }
}
