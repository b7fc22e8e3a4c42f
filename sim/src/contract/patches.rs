//! Tests of patches, server-side apply, and subresources.

use super::{Check, TestContext, code, ensure, object};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

pub(super) async fn merges(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    context.config_map("merge", json!({"a": "1", "b": "2"})).await?;
    let patch = json!({"data": {"a": null, "c": "3"}, "metadata": {"annotations": {"x": "y"}}});
    let patched = maps.patch("merge", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    ensure!(json!(patched.data) == json!({"b": "2", "c": "3"}), "{:?}", patched.data);
    ensure!(patched.annotations().get("x").is_some_and(|value| value == "y"), "{:?}", patched.annotations());
    ensure!(
        code(maps.patch("merge-none", &PatchParams::default(), &Patch::Merge(&patch)).await)? == 404,
        "a missing object was patched"
    );
    Ok(())
}

pub(super) async fn merges_keyed_lists(context: &TestContext) -> Check {
    let nodes: Api<Node> = Api::all(context.client.clone());
    let name = context.global("strategic");
    let node: Node = object(json!({
        "metadata": {"name": name, "finalizers": ["plimsoll.test/a"]},
        "spec": {"unschedulable": true, "taints": [{"key": "plimsoll.test/a", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "plimsoll.test/One", "status": "True", "reason": "r", "message": "m",
                                   "lastHeartbeatTime": "2026-01-05T00:00:00Z", "lastTransitionTime": "2026-01-05T00:00:00Z"}]},
    }))?;
    nodes.create(&PostParams::default(), &node).await?;
    let status = json!({"status": {"conditions": [{"type": "plimsoll.test/Two", "status": "False"}, {"type": "plimsoll.test/One", "status": "False"}]}});
    let patched = nodes.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&status)).await?;
    let conditions = patched.status.and_then(|status| status.conditions).unwrap_or_default();
    let one = conditions.iter().find(|condition| condition.type_ == "plimsoll.test/One");
    let kept = one.is_some_and(|one| one.status == "False" && one.reason.as_deref() == Some("r"));
    let two = conditions.iter().any(|condition| condition.type_ == "plimsoll.test/Two");
    let spec = json!({"metadata": {"finalizers": ["plimsoll.test/b"]}, "spec": {"taints": [{"key": "plimsoll.test/b", "effect": "NoExecute"}]}});
    let patched = nodes.patch(&name, &PatchParams::default(), &Patch::Strategic(&spec)).await?;
    let none = json!({"metadata": {"finalizers": null}});
    nodes.patch(&name, &PatchParams::default(), &Patch::Merge(&none)).await?;
    nodes.delete(&name, &DeleteParams::default()).await?;
    ensure!(kept && two, "conditions did not merge by type: {conditions:?}");
    let keys: Vec<_> =
        patched.spec.and_then(|spec| spec.taints).unwrap_or_default().into_iter().map(|taint| taint.key).collect();
    ensure!(
        !keys.contains(&"plimsoll.test/a".to_owned()) && keys.contains(&"plimsoll.test/b".to_owned()),
        "taints are one value: {keys:?}"
    );
    let finalizers = patched.metadata.finalizers.unwrap_or_default();
    ensure!(finalizers.len() == 2, "finalizers are a set: {finalizers:?}");
    Ok(())
}

pub(super) async fn patches_by_json_pointer(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    context.config_map("pointer", json!({"a": "1"})).await?;
    let patch = |value: Value| object::<json_patch::Patch>(value).map(Patch::<ConfigMap>::Json);
    let good = patch(
        json!([{"op": "test", "path": "/data/a", "value": "1"}, {"op": "replace", "path": "/data/a", "value": "2"}]),
    )?;
    let patched = maps.patch("pointer", &PatchParams::default(), &good).await?;
    ensure!(json!(patched.data) == json!({"a": "2"}), "{:?}", patched.data);
    // The test operation of the same patch now fails, so the server applies no part of the patch.
    let refused = code(maps.patch("pointer", &PatchParams::default(), &good).await)?;
    ensure!(refused == 422, "a patch whose test fails gave {refused}");
    Ok(())
}

pub(super) async fn applies_and_takes_back(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    let apply = async |data: Value| {
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data});
        maps.patch("applied", &PatchParams::apply("one"), &Patch::Apply(&config)).await
    };
    let made = apply(json!({"a": "1", "b": "2"})).await?;
    ensure!(made.uid().is_some(), "an apply creates what is missing");
    maps.patch("applied", &PatchParams::default(), &Patch::Merge(&json!({"data": {"other": "9"}}))).await?;
    let changed = apply(json!({"a": "5"})).await?;
    ensure!(json!(changed.data) == json!({"a": "5", "other": "9"}), "{:?}", changed.data);
    let same = apply(json!({"a": "5"})).await?;
    ensure!(same.resource_version() == changed.resource_version(), "an apply without change moved the version");
    let managers: Vec<_> = changed.managed_fields().iter().filter_map(|row| row.manager.clone()).collect();
    ensure!(managers.contains(&"one".to_owned()), "{managers:?}");
    Ok(())
}

pub(super) async fn guards_what_others_own(context: &TestContext) -> Check {
    let maps: Api<ConfigMap> = context.api();
    let apply = async |manager: &str, value: &str, force: bool| {
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "guarded"}, "data": {"a": value}});
        let parameters = PatchParams { force, ..PatchParams::apply(manager) };
        maps.patch("guarded", &parameters, &Patch::Apply(&config)).await
    };
    apply("one", "1", false).await?;
    apply("two", "1", false).await?;
    match apply("two", "2", false).await {
        Err(kube::Error::Api(status)) => {
            ensure!(status.code == 409 && status.reason == "Conflict", "{status:?}");
            let causes = status.details.clone().map(|details| details.causes).unwrap_or_default();
            ensure!(causes.iter().any(|cause| cause.field == ".data.a"), "{causes:?}");
        }
        other => ensure!(false, "an apply over another manager gave {other:?}"),
    }
    let forced = apply("two", "2", true).await?;
    ensure!(json!(forced.data) == json!({"a": "2"}), "{:?}", forced.data);
    ensure!(code(apply("one", "1", false).await)? == 409, "the former owner still owns the field");
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "guarded"}});
    let refused = code(maps.patch("guarded", &PatchParams::default(), &Patch::Apply(&config)).await)?;
    ensure!(refused == 422, "an apply without a manager gave {refused}");
    Ok(())
}

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]},
        }},
        "status": {"replicas": 7},
    })
}

pub(super) async fn separates_status_from_the_rest(context: &TestContext) -> Check {
    let deployments: Api<Deployment> = context.api();
    let mut wanted = deployment("parts", 0);
    wanted["spec"]["paused"] = json!(true);
    let created = deployments.create(&PostParams::default(), &object(wanted)?).await?;
    ensure!(created.metadata.generation == Some(1), "{:?}", created.metadata.generation);
    ensure!(created.status.unwrap_or_default().replicas.unwrap_or(0) == 0, "a creation wrote status");
    let both = json!({"spec": {"minReadySeconds": 3}, "status": {"collisionCount": 4}});
    let patched = deployments.patch("parts", &PatchParams::default(), &Patch::Merge(&both)).await?;
    ensure!(
        patched.metadata.generation == Some(2),
        "a change of the spec raises the generation: {:?}",
        patched.metadata.generation
    );
    ensure!(patched.status.unwrap_or_default().collision_count.unwrap_or(0) == 0, "the object wrote status");
    let both = json!({"spec": {"minReadySeconds": 9}, "status": {"collisionCount": 4}});
    let patched = deployments.patch_status("parts", &PatchParams::default(), &Patch::Merge(&both)).await?;
    ensure!(patched.metadata.generation == Some(2), "a status raised the generation");
    ensure!(patched.spec.clone().unwrap_or_default().min_ready_seconds == Some(3), "the status wrote spec");
    ensure!(patched.status.unwrap_or_default().collision_count == Some(4), "the status was not written");
    Ok(())
}

pub(super) async fn scales(context: &TestContext) -> Check {
    let deployments: Api<Deployment> = context.api();
    let mut wanted = deployment("scaled", 0);
    wanted["spec"]["paused"] = json!(true);
    deployments.create(&PostParams::default(), &object(wanted)?).await?;
    let scale = deployments.get_scale("scaled").await?;
    ensure!(scale.spec.and_then(|spec| spec.replicas).unwrap_or(0) == 0, "the scale is not that of the object");
    ensure!(
        scale.status.and_then(|status| status.selector).as_deref() == Some("app=scaled"),
        "no selector in the scale"
    );
    let patch = json!({"spec": {"replicas": 2}});
    let scaled = deployments.patch_scale("scaled", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    ensure!(scaled.spec.and_then(|spec| spec.replicas) == Some(2), "the scale did not change");
    let read = deployments.get("scaled").await?;
    ensure!(read.spec.and_then(|spec| spec.replicas) == Some(2), "the object did not follow its scale");
    deployments.delete("scaled", &DeleteParams::background()).await?;
    Ok(())
}

pub(super) async fn treats_custom_resources_by_their_own_rules(context: &TestContext) -> Check {
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("karpenter.sh", "v1", "NodePool"), "nodepools");
    let pools: Api<DynamicObject> = Api::all_with(context.client.clone(), &kind);
    match pools.list(&ListParams::default().limit(1)).await {
        // The kind is not installed on this server, so there is nothing to check.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        other => drop(other?),
    }
    let name = context.global("pool");
    let pool: DynamicObject = object(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "none"},
            "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
        }}},
        "status": {"nodes": 3},
    }))?;
    let created = pools.create(&PostParams::default(), &pool).await?;
    let checked = custom_rules(&pools, &created).await;
    pools.delete(&name, &DeleteParams::default()).await?;
    checked
}

async fn custom_rules(pools: &Api<DynamicObject>, created: &DynamicObject) -> Check {
    let name = created.name_any();
    ensure!(created.metadata.generation == Some(1), "{:?}", created.metadata.generation);
    ensure!(created.data.pointer("/status/nodes").is_none_or(|nodes| *nodes != json!(3)), "a creation wrote status");
    let patch = json!({"spec": {"weight": 5}});
    let refused = code(pools.patch(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await)?;
    ensure!(refused == 415, "a strategic merge patch gave {refused}");
    let patched = pools.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    ensure!(patched.metadata.generation == Some(2), "{:?}", patched.metadata.generation);
    let mut blind = patched.clone();
    blind.metadata.resource_version = None;
    let refused = code(pools.replace(&name, &PostParams::default(), &blind).await)?;
    ensure!(refused == 422, "an update without version gave {refused}");
    let status =
        json!({"metadata": {"labels": {"x": "y"}}, "spec": {"weight": 9}, "status": {"resources": {"cpu": "1"}}});
    let patched = pools.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    ensure!(patched.data.pointer("/spec/weight") == Some(&json!(5)), "the status wrote spec");
    ensure!(patched.labels().is_empty(), "the status wrote metadata");
    ensure!(patched.data.pointer("/status/resources/cpu") == Some(&json!("1")), "the status was not written");
    let apply = async |manager: &str, kind: &str| {
        let condition = json!({"type": kind, "status": "True", "reason": "Tested", "message": "", "lastTransitionTime": "2026-01-05T00:00:00Z"});
        let config = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
                            "status": {"conditions": [condition]}});
        pools.patch_status(&name, &PatchParams::apply(manager), &Patch::Apply(&config)).await
    };
    apply("one", "One").await?;
    let both = apply("two", "Two").await?;
    let conditions = both.data.pointer("/status/conditions").and_then(Value::as_array).map_or(0, Vec::len);
    ensure!(conditions == 2, "two managers of two conditions left {conditions}");
    Ok(())
}
