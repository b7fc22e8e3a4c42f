use super::{ChangeKind, DeleteOptions, Filter, Key, Page, Part, Propagation, Store, Write};
use crate::apiserver::ResourceId;
use crate::apiserver::error::ApiError;
use crate::apiserver::object;
use crate::apiserver::patch::Patch;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;

const MAPS: ResourceId = ResourceId::CONFIG_MAPS;

fn now() -> Timestamp {
    "2026-01-05T00:00:00Z".parse().unwrap()
}

fn write() -> Write<'static> {
    Write::new(now(), "test")
}

fn store() -> Store {
    Store::new(1, now())
}

fn map(store: &mut Store, name: &str, data: &Value) -> u64 {
    let body = json!({"metadata": {"name": name}, "data": data});
    version(&store.create(MAPS, "default", body, &write()).unwrap())
}

fn patch(store: &mut Store, name: &str, patch: Value) -> u64 {
    version(&store.patch(MAPS, "default", name, Part::Main, &Patch::Merge(patch), &write()).unwrap())
}

fn version(object: &Value) -> u64 {
    object::resource_version(object).parse().unwrap()
}

fn names(store: &Store, page: &Page) -> Vec<String> {
    let listing = store.list(MAPS, &Filter::default(), page).unwrap();
    listing.items.iter().map(|object| object::name(object).to_owned()).collect()
}

#[test]
fn one_seed_one_cluster() {
    let run = |seed| {
        let mut store = Store::new(seed, now());
        let made = store.create(MAPS, "default", json!({"metadata": {"generateName": "x-"}}), &write()).unwrap();
        made.to_string()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn every_write_has_its_own_revision_in_order() {
    let mut store = store();
    let start = store.revision();
    assert_eq!(map(&mut store, "a", &json!({})), start + 1);
    assert_eq!(patch(&mut store, "a", json!({"data": {"x": "1"}})), start + 2);
    store.delete(MAPS, "default", "a", &DeleteOptions::default(), &write()).unwrap();
    let kinds: Vec<_> =
        store.events_after(MAPS, start).unwrap().map(|event| (event.revision - start, event.kind)).collect();
    assert_eq!(kinds, [(1, ChangeKind::Added), (2, ChangeKind::Modified), (3, ChangeKind::Deleted)]);
    let last = store.events_after(MAPS, start + 2).unwrap().next().unwrap().object.clone();
    assert_eq!(last["data"], json!({"x": "1"}), "a deletion shows the last state");
    assert_eq!(version(&last), start + 3, "at the version of the deletion");
}

#[test]
fn a_list_of_the_past_shows_the_past() {
    let mut store = store();
    map(&mut store, "a", &json!({}));
    let then = map(&mut store, "b", &json!({}));
    store.delete(MAPS, "default", "a", &DeleteOptions::default(), &write()).unwrap();
    map(&mut store, "c", &json!({}));
    assert_eq!(names(&store, &Page::default()), ["b", "c"]);
    assert_eq!(names(&store, &Page { revision: Some(then), ..Page::default() }), ["a", "b"]);
    let ahead = store.list(MAPS, &Filter::default(), &Page { revision: Some(then + 100), ..Page::default() });
    assert_eq!(ahead.unwrap_err().code, 504);
}

#[test]
fn forgotten_history_is_gone_for_lists_and_watches() {
    let mut store = store();
    store.set_history_limit(2);
    let first = map(&mut store, "a", &json!({}));
    for round in 0..4 {
        patch(&mut store, "a", json!({"data": {"round": round.to_string()}}));
    }
    assert_eq!(store.events_after(MAPS, first).err().map(|error| (error.code, error.reason)), Some((410, "Expired")));
    let page = Page { revision: Some(first), ..Page::default() };
    assert_eq!(store.list(MAPS, &Filter::default(), &page).unwrap_err().code, 410);
    assert_eq!(store.events_after(MAPS, store.revision() - 2).unwrap().count(), 2);
}

#[test]
fn two_writers_of_one_version_and_only_the_first_wins() {
    let mut store = store();
    map(&mut store, "a", &json!({}));
    let read = store.get(MAPS, "default", "a").unwrap();
    for (value, expected) in [("1", None), ("2", Some((409, "Conflict")))] {
        let mut new = (*read).clone();
        new["data"] = json!({"x": value});
        let result = store.update(MAPS, "default", "a", Part::Main, new, &write());
        assert_eq!(result.err().map(|error| (error.code, error.reason)), expected, "{value}");
    }
    assert_eq!(store.get(MAPS, "default", "a").unwrap()["data"], json!({"x": "1"}));
}

#[test]
fn clients_cannot_write_what_the_server_owns() {
    let mut store = store();
    let forged = json!({"metadata": {"name": "a", "uid": "mine", "generation": 7, "creationTimestamp": "2000-01-01T00:00:00Z",
                                     "deletionTimestamp": "2000-01-01T00:00:00Z"}});
    let made = store.create(MAPS, "default", forged, &write()).unwrap();
    assert_ne!(object::uid(&made), "mine");
    assert_eq!(object::text(&made, &["metadata", "creationTimestamp"]), "2026-01-05T00:00:00Z");
    assert!(!object::is_deleting(&made));
    patch(
        &mut store,
        "a",
        json!({"metadata": {"creationTimestamp": "2000-01-01T00:00:00Z", "generation": 9}, "data": {"x": "1"}}),
    );
    let kept = store.get(MAPS, "default", "a").unwrap();
    assert_eq!(kept["metadata"]["creationTimestamp"], made["metadata"]["creationTimestamp"]);
    let stolen = json!({"metadata": {"name": "a", "uid": "another"}});
    assert_eq!(store.update(MAPS, "default", "a", Part::Main, stolen, &write()).unwrap_err().code, 409);
}

fn pod(store: &mut Store, name: &str, extra: &Value) {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    json_patch::merge(&mut pod, extra);
    store.create(ResourceId::PODS, "default", pod, &write()).unwrap();
}

#[test]
fn pods_get_what_admission_gives_them() {
    let mut store = store();
    let extra = json!({"spec": {"priorityClassName": "system-node-critical", "tolerations": [{"operator": "Exists"}],
                                "containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}});
    pod(&mut store, "p", &extra);
    let pod = store.get(ResourceId::PODS, "default", "p").unwrap();
    assert_eq!(pod["spec"]["priority"], json!(2_000_001_000));
    assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 1, "what is tolerated already is not added again");
    assert_eq!(
        (pod["status"]["qosClass"].as_str(), pod["status"]["phase"].as_str()),
        (Some("Guaranteed"), Some("Pending"))
    );
    let unknown =
        json!({"metadata": {"name": "q"}, "spec": {"priorityClassName": "none", "containers": [{"name": "c"}]}});
    assert_eq!(store.create(ResourceId::PODS, "default", unknown, &write()).unwrap_err().code, 403);
}

#[test]
fn an_admission_hook_completes_and_refuses() {
    let mut store = store();
    store.admission_mut().add(
        MAPS,
        Arc::new(|situation, object| {
            if object["data"]["bad"] == json!("yes") {
                return Err(ApiError::bad_request("bad"));
            }
            object::set(object, &["data", "is-new"], json!(situation.old.is_none().to_string()));
            Ok(())
        }),
    );
    map(&mut store, "a", &json!({}));
    assert_eq!(store.get(MAPS, "default", "a").unwrap()["data"], json!({"is-new": "true"}));
    patch(&mut store, "a", json!({"data": {"x": "1"}}));
    assert_eq!(store.get(MAPS, "default", "a").unwrap()["data"], json!({"is-new": "false", "x": "1"}));
    let bad = Patch::Merge(json!({"data": {"bad": "yes"}}));
    assert_eq!(store.patch(MAPS, "default", "a", Part::Main, &bad, &write()).unwrap_err().code, 400);
}

#[test]
fn a_pod_with_grace_and_finalizers_needs_both_to_end() {
    let mut store = store();
    pod(&mut store, "p", &json!({"metadata": {"finalizers": ["test/hold"]}, "spec": {"nodeName": "n"}}));
    let options = DeleteOptions { grace_seconds: Some(10), ..DeleteOptions::default() };
    let marked = store.delete(ResourceId::PODS, "default", "p", &options, &write()).unwrap().object().clone();
    let ends = now() + SignedDuration::from_secs(10);
    assert_eq!(object::time_at(&marked, &["metadata", "deletionTimestamp"]), Some(ends));
    // The pod has no finalizers, but the kubelet has not reported its termination.
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    store.patch(ResourceId::PODS, "default", "p", Part::Main, &free, &write()).unwrap();
    assert!(store.get(ResourceId::PODS, "default", "p").is_ok());
    store.delete(ResourceId::PODS, "default", "p", &DeleteOptions::force(object::uid(&marked)), &write()).unwrap();
    assert!(store.get(ResourceId::PODS, "default", "p").is_err());
}

#[test]
fn an_unbound_pod_that_is_held_goes_with_its_last_finalizer() {
    let mut store = store();
    pod(&mut store, "p", &json!({"metadata": {"finalizers": ["test/hold"]}}));
    store.delete(ResourceId::PODS, "default", "p", &DeleteOptions::default(), &write()).unwrap();
    let free = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    store.patch(ResourceId::PODS, "default", "p", Part::Main, &free, &write()).unwrap();
    assert!(store.get(ResourceId::PODS, "default", "p").is_err());
}

#[test]
fn claims_never_change_what_they_ask_for() {
    let mut store = store();
    let claim = json!({"metadata": {"name": "c"}, "spec": {"requirements": []}});
    store.create(ResourceId::NODE_CLAIMS, "", claim, &write()).unwrap();
    let change = Patch::Merge(json!({"spec": {"expireAfter": "1h"}}));
    let refused = store.patch(ResourceId::NODE_CLAIMS, "", "c", Part::Main, &change, &write()).unwrap_err();
    assert_eq!(refused.code, 422);
    let note = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    let noted = store.patch(ResourceId::NODE_CLAIMS, "", "c", Part::Main, &note, &write()).unwrap();
    assert_eq!(object::generation(&noted), 1, "metadata does not raise the generation");
}

fn owned(store: &mut Store, name: &str, owners: &[&str]) {
    let references: Vec<_> = owners
        .iter()
        .map(|owner| {
            let uid = store.get(MAPS, "default", owner).map(|owner| object::uid(&owner).to_owned()).unwrap_or_default();
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": true})
        })
        .collect();
    let body = json!({"metadata": {"name": name, "ownerReferences": references}});
    store.create(MAPS, "default", body, &write()).unwrap();
}

#[test]
fn garbage_goes_level_by_level_and_shared_objects_stay() {
    let mut store = store();
    for name in ["a", "z"] {
        map(&mut store, name, &json!({}));
    }
    owned(&mut store, "b", &["a"]);
    owned(&mut store, "c", &["b"]);
    owned(&mut store, "shared", &["a", "z"]);
    assert!(!store.collect_garbage(&write()), "nothing is garbage yet");
    store.delete(MAPS, "default", "a", &DeleteOptions::default(), &write()).unwrap();
    assert!(store.collect_garbage(&write()));
    assert_eq!(names(&store, &Page::default()), ["shared", "z"]);
    let shared = store.get(MAPS, "default", "shared").unwrap();
    assert_eq!(object::items(&shared, &["metadata", "ownerReferences"]).len(), 1);
}

#[test]
fn orphans_stay_and_lose_their_owner() {
    let mut store = store();
    map(&mut store, "a", &json!({}));
    owned(&mut store, "b", &["a"]);
    let options = DeleteOptions { propagation: Some(Propagation::Orphan), ..DeleteOptions::default() };
    store.delete(MAPS, "default", "a", &options, &write()).unwrap();
    store.collect_garbage(&write());
    assert_eq!(names(&store, &Page::default()), ["b"]);
    let orphan = store.get(MAPS, "default", "b").unwrap();
    assert!(object::items(&orphan, &["metadata", "ownerReferences"]).is_empty());
}

#[test]
fn a_namespace_goes_when_it_is_empty() {
    let mut store = store();
    store.create(ResourceId::NAMESPACES, "", json!({"metadata": {"name": "ns"}}), &write()).unwrap();
    let held = json!({"metadata": {"name": "held", "finalizers": ["test/hold"]}});
    store.create(MAPS, "ns", held, &write()).unwrap();
    store.create(MAPS, "ns", json!({"metadata": {"name": "plain"}}), &write()).unwrap();
    store.delete(ResourceId::NAMESPACES, "", "ns", &DeleteOptions::default(), &write()).unwrap();
    store.collect_garbage(&write());
    assert!(store.find(MAPS, &Key::new("ns", "plain")).is_none());
    assert!(store.find(ResourceId::NAMESPACES, &Key::new("", "ns")).is_some(), "it waits for what is held");
    let refused = store.create(MAPS, "ns", json!({"metadata": {"name": "late"}}), &write()).unwrap_err();
    assert_eq!(refused.code, 403);
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    store.patch(MAPS, "ns", "held", Part::Main, &free, &write()).unwrap();
    store.collect_garbage(&write());
    assert!(store.find(ResourceId::NAMESPACES, &Key::new("", "ns")).is_none());
}

#[test]
fn a_budget_that_lags_lets_nothing_go() {
    let mut store = store();
    pod(&mut store, "p", &json!({"metadata": {"labels": {"app": "a"}}, "spec": {"nodeName": "n"}}));
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    store.patch(ResourceId::PODS, "default", "p", Part::Status, &Patch::Merge(running), &write()).unwrap();
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    store.create(ResourceId::POD_DISRUPTION_BUDGETS, "default", budget, &write()).unwrap();
    let lagging = store.evict("default", "p", &super::Eviction::default(), &write()).unwrap_err();
    assert_eq!((lagging.code, lagging.retry_after_seconds), (429, Some(10)));
    let status =
        json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0}});
    store
        .patch(ResourceId::POD_DISRUPTION_BUDGETS, "default", "b", Part::Status, &Patch::Merge(status), &write())
        .unwrap();
    store.evict("default", "p", &super::Eviction::default(), &write()).unwrap();
    let budget = store.get(ResourceId::POD_DISRUPTION_BUDGETS, "default", "b").unwrap();
    assert_eq!(budget["status"]["disruptionsAllowed"], json!(0));
    assert!(budget["status"]["disruptedPods"].get("p").is_some());
}
