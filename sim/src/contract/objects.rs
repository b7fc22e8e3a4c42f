//! Tests of creating, reading, updating, listing and deleting.

use super::{Check, TestContext, code, ensure, eventually, object};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node};
use k8s_openapi::api::events::v1::Event as NewEvent;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::PartialObjectMeta;
use serde_json::json;
use std::collections::BTreeSet;

pub(super) async fn creates_reads_and_refuses_a_second(context: &TestContext) -> Check {
    let created = context.config_map("create", json!({"a": "1"})).await?;
    ensure!(created.uid().is_some(), "no uid");
    ensure!(created.resource_version().is_some(), "no resourceVersion");
    ensure!(created.creation_timestamp().is_some(), "no creationTimestamp");
    let maps: Api<ConfigMap> = context.api();
    let read = maps.get("create").await?;
    ensure!(read == created, "what is read differs from what the creation answered: {read:?}");
    let again: ConfigMap = object(json!({"metadata": {"name": "create"}}))?;
    match maps.create(&PostParams::default(), &again).await {
        Err(kube::Error::Api(status)) => ensure!(status.is_already_exists() && status.code == 409, "{status:?}"),
        other => ensure!(false, "a second creation gave {other:?}"),
    }
    match maps.get("missing").await {
        Err(kube::Error::Api(status)) => ensure!(status.is_not_found() && status.code == 404, "{status:?}"),
        other => ensure!(false, "reading a missing object gave {other:?}"),
    }
    let unnamed: ConfigMap = object(json!({"metadata": {"name": "Not_a_name"}}))?;
    let refused = code(maps.create(&PostParams::default(), &unnamed).await)?;
    ensure!(refused == 422, "a bad name gave {refused}");
    Ok(())
}

pub(super) async fn completes_generated_names(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    let wanted: ConfigMap = object(json!({"metadata": {"generateName": "made-"}}))?;
    let mut names = BTreeSet::new();
    for _ in 0..3 {
        names.insert(maps.create(&PostParams::default(), &wanted).await?.name_any());
    }
    ensure!(names.len() == 3, "{names:?}");
    ensure!(names.iter().all(|name| name.len() == "made-".len() + 5 && name.starts_with("made-")), "{names:?}");
    Ok(())
}

pub(super) async fn refuses_objects_of_no_namespace(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), "no-such-namespace-here");
    let map: ConfigMap = object(json!({"metadata": {"name": "a"}}))?;
    let refused = code(maps.create(&PostParams::default(), &map).await)?;
    ensure!(refused == 404, "{refused}");
    Ok(())
}

pub(super) async fn refuses_updates_from_an_older_version(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    let mut first = context.config_map("conflict", json!({"a": "1"})).await?;
    let mut second = first.clone();
    first.data = Some([("a".to_owned(), "2".to_owned())].into());
    let updated = maps.replace("conflict", &PostParams::default(), &first).await?;
    ensure!(updated.resource_version() != first.resource_version(), "the version did not move");
    second.data = Some([("a".to_owned(), "3".to_owned())].into());
    match maps.replace("conflict", &PostParams::default(), &second).await {
        Err(kube::Error::Api(status)) => ensure!(status.is_conflict() && status.reason == "Conflict", "{status:?}"),
        other => ensure!(false, "an update from an older version gave {other:?}"),
    }
    // A patch with a resourceVersion is subject to the same conflict check.
    let stale = json!({"metadata": {"resourceVersion": first.resource_version()}, "data": {"a": "4"}});
    let refused = code(maps.patch("conflict", &PatchParams::default(), &Patch::Merge(&stale)).await)?;
    ensure!(refused == 409, "a patch of an older version gave {refused}");
    let kept = maps.get("conflict").await?;
    ensure!(kept.data == first.data, "{kept:?}");
    Ok(())
}

pub(super) async fn ignores_updates_that_change_nothing(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    let map = context.config_map("same", json!({"a": "1"})).await?;
    let again = maps.replace("same", &PostParams::default(), &map).await?;
    ensure!(again.resource_version() == map.resource_version(), "an update without change moved the version");
    Ok(())
}

pub(super) async fn tries_without_doing(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    let map: ConfigMap = object(json!({"metadata": {"name": "dry"}}))?;
    let tried = maps.create(&PostParams { dry_run: true, field_manager: None }, &map).await?;
    ensure!(tried.uid().is_some(), "a dry run returns no UID");
    ensure!(code(maps.get("dry").await)? == 404, "a dry run made the object");
    Ok(())
}

pub(super) async fn selects_by_labels_and_fields(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    for (name, tier) in [("select-a", "web"), ("select-b", "web"), ("select-c", "db")] {
        let map: ConfigMap = object(json!({"metadata": {"name": name, "labels": {"tier": tier, "test": "select"}}}))?;
        maps.create(&PostParams::default(), &map).await?;
    }
    let names = |list: &[ConfigMap]| list.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    for (parameters, expected) in [
        (ListParams::default().labels("test=select,tier in (web, none)"), vec!["select-a", "select-b"]),
        (ListParams::default().labels("test=select,tier!=web"), vec!["select-c"]),
        (ListParams::default().labels("test=select").fields("metadata.name=select-b"), vec!["select-b"]),
        (ListParams::default().labels("test=select,missing"), vec![]),
    ] {
        let found = names(&maps.list(&parameters).await?.items);
        ensure!(found == expected, "{parameters:?} gave {found:?}");
    }
    let refused = code(maps.list(&ListParams::default().fields("data.a=b")).await)?;
    ensure!(refused == 400, "an unknown field gave {refused}");
    let refused = code(maps.list(&ListParams::default().labels("a in b")).await)?;
    ensure!(refused == 400, "a malformed label selector gave {refused}");
    Ok(())
}

pub(super) async fn lists_in_pages_of_one_moment(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    for name in ["page-a", "page-b", "page-c"] {
        let map: ConfigMap = object(json!({"metadata": {"name": name, "labels": {"test": "page"}}}))?;
        maps.create(&PostParams::default(), &map).await?;
    }
    let parameters = ListParams::default().labels("test=page").limit(2);
    let first = maps.list(&parameters).await?;
    let token = first.metadata.continue_.clone().unwrap_or_default();
    ensure!(first.items.len() == 2 && !token.is_empty(), "{} items, token {token:?}", first.items.len());
    // Changes between two pages do not show on the second page.
    maps.delete("page-c", &DeleteParams::default()).await?;
    let second = maps.list(&parameters.continue_token(&token)).await?;
    let names: Vec<_> = second.items.iter().map(ResourceExt::name_any).collect();
    ensure!(names == ["page-c"], "the second page shows {names:?}");
    ensure!(second.metadata.continue_.unwrap_or_default().is_empty(), "there is no third page");
    ensure!(second.metadata.resource_version == first.metadata.resource_version, "two pages, two versions");
    Ok(())
}

pub(super) async fn keeps_an_object_until_its_finalizers_are_gone(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    let map: ConfigMap = object(json!({"metadata": {"name": "held", "finalizers": ["plimsoll.test/hold"]}}))?;
    maps.create(&PostParams::default(), &map).await?;
    let deleted = maps.delete("held", &DeleteParams::default()).await?;
    ensure!(
        deleted.left().is_some_and(|map| map.metadata.deletion_timestamp.is_some()),
        "the answer is not the marked object"
    );
    let marked = maps.get("held").await?;
    ensure!(marked.metadata.deletion_timestamp.is_some(), "the object is not marked");
    // A second deletion changes nothing.
    maps.delete("held", &DeleteParams::default()).await?;
    let again = maps.get("held").await?;
    ensure!(
        again.metadata.deletion_timestamp == marked.metadata.deletion_timestamp,
        "a second deletion moved the time"
    );
    let added = json!({"metadata": {"finalizers": ["plimsoll.test/hold", "plimsoll.test/late"]}});
    let refused = code(maps.patch("held", &PatchParams::default(), &Patch::Merge(&added)).await)?;
    ensure!(refused == 422, "a new finalizer on a deleted object gave {refused}");
    let none = json!({"metadata": {"finalizers": null}});
    maps.patch("held", &PatchParams::default(), &Patch::Merge(&none)).await?;
    ensure!(code(maps.get("held").await)? == 404, "the object outlived its finalizers");
    Ok(())
}

pub(super) async fn deletes_only_the_object_meant(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    let map = context.config_map("meant", json!({})).await?;
    let of_uid =
        |uid: String| DeleteParams::default().preconditions(Preconditions { uid: Some(uid), resource_version: None });
    let refused = code(maps.delete("meant", &of_uid("11111111-2222-3333-4444-555555555555".to_owned())).await)?;
    ensure!(refused == 409, "{refused}");
    let of_version = |version: Option<String>| {
        DeleteParams::default().preconditions(Preconditions { uid: map.uid(), resource_version: version })
    };
    let refused = code(maps.delete("meant", &of_version(Some("1".to_owned()))).await)?;
    ensure!(refused == 409, "a deletion of another version gave {refused}");
    let deleted = maps.delete("meant", &of_version(map.resource_version())).await?;
    ensure!(deleted.right().is_some_and(|status| status.is_success()), "the answer is not a Status of success");
    ensure!(code(maps.get("meant").await)? == 404, "the object is still there");
    ensure!(code(maps.delete("meant", &DeleteParams::default()).await)? == 404, "a second deletion is not a 404");
    Ok(())
}

pub(super) async fn deletes_collections(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    for (name, group) in [("many-a", "go"), ("many-b", "go"), ("many-c", "stay")] {
        let map: ConfigMap = object(json!({"metadata": {"name": name, "labels": {"many": group}}}))?;
        maps.create(&PostParams::default(), &map).await?;
    }
    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("many=go")).await?;
    let left: Vec<_> =
        maps.list(&ListParams::default().labels("many")).await?.iter().map(ResourceExt::name_any).collect();
    ensure!(left == ["many-c"], "{left:?}");
    Ok(())
}

pub(super) async fn shows_metadata_alone(context: &TestContext) -> Check {
    let map = context.config_map("bare", json!({"a": "1"})).await?;
    let maps: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(context.client.clone(), &context.namespace);
    let bare = maps.get_metadata("bare").await?;
    ensure!(bare.metadata.uid == map.metadata.uid, "{bare:?}");
    let listed = maps.list_metadata(&ListParams::default().fields("metadata.name=bare")).await?;
    ensure!(listed.items.len() == 1, "{} items", listed.items.len());
    Ok(())
}

pub(super) async fn shows_events_under_both_groups(context: &TestContext) -> Check {
    let new: Api<NewEvent> = context.api();
    let event: NewEvent = object(json!({
        "metadata": {"name": "both"}, "eventTime": "2026-01-05T00:00:00.000000Z", "reason": "Tested", "note": "seen twice",
        "action": "Test", "type": "Normal", "reportingController": "plimsoll.test/contract", "reportingInstance": "one",
        "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "name": "thing", "namespace": context.namespace},
    }))?;
    new.create(&PostParams::default(), &event).await?;
    let core: Api<Event> = context.api();
    let found = core.list(&ListParams::default().fields("involvedObject.name=thing")).await?;
    let messages: Vec<_> = found.items.iter().map(|event| event.message.clone().unwrap_or_default()).collect();
    ensure!(messages == ["seen twice"], "{messages:?}");
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-05T00:00:01.000000Z"}});
    let patched = new.patch("both", &PatchParams::default(), &Patch::Merge(&series)).await?;
    ensure!(patched.note.as_deref() == Some("seen twice"), "{patched:?}");
    ensure!(patched.series.is_some_and(|series| series.count == 2), "the series was not kept");
    Ok(())
}

pub(super) async fn taints_new_nodes(context: &TestContext) -> Check {
    let nodes: Api<Node> = Api::all(context.client.clone());
    let name = context.global("node");
    let node: Node = object(json!({"metadata": {"name": name}, "status": {"capacity": {"cpu": "2"}}}))?;
    let created = nodes.create(&PostParams::default(), &node).await?;
    nodes.delete(&name, &DeleteParams::default()).await?;
    let taints = created.spec.and_then(|spec| spec.taints).unwrap_or_default();
    ensure!(
        taints.iter().any(|taint| taint.key == "node.kubernetes.io/not-ready" && taint.effect == "NoSchedule"),
        "{taints:?}"
    );
    let capacity = created.status.and_then(|status| status.capacity).unwrap_or_default();
    ensure!(capacity.contains_key("cpu"), "a new node lost its status");
    Ok(())
}

pub(super) async fn collects_what_lost_its_owner(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    let owner = context.config_map("owner", json!({})).await?;
    let owned = |name: &str, uid: &str| {
        json!({"metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": true}]}})
    };
    let uid = owner.uid().unwrap_or_default();
    maps.create(&PostParams::default(), &object(owned("owned", &uid))?).await?;
    maps.delete("owner", &DeleteParams::background()).await?;
    let gone = async |name: &str| Ok::<bool, super::Failure>(maps.get_opt(name).await?.is_none());
    eventually("the dependent is collected", async || gone("owned").await).await?;
    // With foreground deletion, the owner waits for its dependents.
    let owner = context.config_map("owner", json!({})).await?;
    let mut held = owned("owned", &owner.uid().unwrap_or_default());
    held["metadata"]["finalizers"] = json!(["plimsoll.test/hold"]);
    maps.create(&PostParams::default(), &object(held)?).await?;
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    maps.delete("owner", &foreground).await?;
    let is_marked = async || Ok(maps.get("owned").await?.metadata.deletion_timestamp.is_some());
    eventually("the dependent is marked", is_marked).await?;
    ensure!(maps.get("owner").await?.metadata.deletion_timestamp.is_some(), "the owner went first");
    maps.patch("owned", &PatchParams::default(), &Patch::Merge(&json!({"metadata": {"finalizers": null}}))).await?;
    eventually("the owner goes after its dependent", async || gone("owner").await).await
}
