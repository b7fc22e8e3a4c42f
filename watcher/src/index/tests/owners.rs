//! How many pods the owners of pods want.

use super::*;
use k8s_openapi::api::core::v1::ReplicationController;
use plimsoll_api::PodPhase;

#[test]
fn jobs_want_their_remaining_completions_and_ordered_stateful_sets_one_pod() {
    let table = [
        (
            "Job",
            json!({"parallelism": 3, "completions": 10, "template": {"spec": null}}),
            json!({"succeeded": 9}),
            true,
        ),
        (
            "Job",
            json!({"parallelism": 3, "completions": 10, "template": {"spec": null}}),
            json!({"succeeded": 8}),
            false,
        ),
        ("Job", json!({"parallelism": 2, "template": {"spec": null}}), json!({}), false),
        ("Job", json!({"parallelism": 2, "template": {"spec": null}}), json!({"succeeded": 1}), true),
        ("Job", json!({"parallelism": 2, "suspend": true, "template": {"spec": null}}), json!({}), true),
        ("StatefulSet", json!({"replicas": 3, "serviceName": "s", "selector": {}, "template": {}}), json!({}), true),
        (
            "StatefulSet",
            json!({
                "replicas": 3, "podManagementPolicy": "Parallel", "serviceName": "s", "selector": {}, "template": {},
            }),
            json!({}),
            false,
        ),
    ];
    for (kind, spec, status, complete) in table {
        let owner = json!({"metadata": {"namespace": "shop", "name": "o", "uid": "o"}, "spec": spec, "status": status});
        let mut index = Index::default();
        match kind {
            "Job" => index.apply(read::<Job>(&owner)),
            _ => {
                let mut set = owner.clone();
                set["status"] = json!({"replicas": 0});
                index.apply(read::<StatefulSet>(&set))
            }
        };
        index.apply(pod("a", Some("o"), "Unschedulable"));
        assert_eq!(incomplete(&index).is_empty(), complete, "{owner}");
    }
}

/// Whether a pending pod of owner `o` waits for others, where the owner is as given.
fn waits_for<K: Indexed>(owner: &Value) -> bool {
    let mut whole = owner.clone();
    whole["metadata"]["namespace"] = json!("shop");
    whole["metadata"]["name"] = json!("o");
    whole["metadata"]["uid"] = json!("o");
    let mut index = Index::default();
    index.apply(read::<K>(&whole));
    index.apply(pod("a", Some("o"), "Unschedulable"));
    !incomplete(&index).is_empty()
}

#[test]
fn replication_controllers_want_their_replicas_and_the_default_is_one() {
    for (spec, waits) in [(json!({"replicas": 2}), true), (json!({"replicas": 1}), false), (json!({}), false)] {
        assert_eq!(waits_for::<ReplicationController>(&json!({ "spec": spec })), waits, "{spec}");
    }
    assert!(!waits_for::<ReplicaSet>(&json!({"spec": {"selector": {}}})));
    assert!(!waits_for::<Job>(&json!({"spec": {"completions": 9, "template": {"spec": null}}})));
    assert!(!waits_for::<Job>(&json!({})), "there is nothing that it wants");
}

#[test]
fn an_owner_that_is_being_deleted_wants_no_more_pods() {
    let spec = json!({"replicas": 2, "selector": {}});
    assert!(waits_for::<ReplicaSet>(&json!({ "spec": spec })));
    let deleted = json!({"deletionTimestamp": "2026-01-05T00:00:00Z"});
    assert!(!waits_for::<ReplicaSet>(&json!({"metadata": deleted, "spec": spec})));
}

#[test]
fn pods_that_have_ended_do_not_count_as_observed() {
    let mut index = Index::default();
    index.apply(replica_set(2));
    index.apply(pod("a", Some("rs"), "Unschedulable"));
    let mut ended = pod("b", Some("rs"), "n1");
    ended.status.phase = Some(PodPhase::Failed);
    index.apply(ended);
    assert_eq!(incomplete(&index), ["a"]);
}
