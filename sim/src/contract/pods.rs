//! Tests of binding, grace periods and eviction.

use super::{Check, TestContext, code, ensure, object};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, EvictParams, Patch, PatchParams, PostParams};
use kube::core::response::Status;
use serde_json::{Value, json};

/// Creates a pod that no scheduler picks up. With `node`, the pod is assigned to a node without a kubelet.
async fn pod(context: &TestContext, name: &str, node: Option<&str>) -> Check<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"schedulerName": "nobody", "terminationGracePeriodSeconds": 20, "automountServiceAccountToken": false,
                 "containers": [{"name": "main", "image": "none"}]},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    Ok(context.api().create(&PostParams::default(), &object(pod)?).await?)
}

/// Marks a pod as running and ready, as its kubelet does.
async fn run(context: &TestContext, name: &str) -> Check<Pod> {
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    Ok(context.api().patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?)
}

async fn budget(context: &TestContext, name: &str, spec: Value, status: Value) -> Check {
    let budgets: Api<PodDisruptionBudget> = context.api();
    let mut wanted = json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        wanted["spec"][field] = value.clone();
    }
    budgets.create(&PostParams::default(), &object(wanted)?).await?;
    // Writes the status that the disruption controller computes. A running controller computes the same.
    budgets.patch_status(name, &PatchParams::default(), &Patch::Merge(&json!({"status": status}))).await?;
    Ok(())
}

pub(super) async fn binds_once(context: &TestContext) -> Check {
    let pods: Api<Pod> = context.api();
    let unbound = pod(context, "bound", None).await?;
    ensure!(
        unbound.status.is_some_and(|status| status.phase.as_deref() == Some("Pending")),
        "a new pod is not Pending"
    );
    let bind = async |node: &str| {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"},
                             "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        pods.create_subresource::<Value, Status>("binding", "bound", &PostParams::default(), &binding).await
    };
    bind("nowhere").await?;
    let read = pods.get("bound").await?;
    ensure!(read.spec.clone().unwrap_or_default().node_name.as_deref() == Some("nowhere"), "not bound: {read:?}");
    let conditions = read.status.and_then(|status| status.conditions).unwrap_or_default();
    ensure!(conditions.iter().any(|one| one.type_ == "PodScheduled" && one.status == "True"), "{conditions:?}");
    let refused = code(bind("elsewhere").await)?;
    ensure!(refused == 409, "a second binding gave {refused}");
    pods.delete("bound", &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}

/// As the actuator nominates a node, takes the nomination back, and nominates another.
pub(super) async fn keeps_the_phase_if_only_a_nomination_is_applied(context: &TestContext) -> Check {
    let pods: Api<Pod> = context.api();
    pod(context, "nominated", None).await?;
    let apply = async |status: Value| -> Check<Option<String>> {
        let config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "nominated"}, "status": status});
        let applied = pods.patch_status("nominated", &PatchParams::apply("one"), &Patch::Apply(&config)).await?;
        let status = applied.status.unwrap_or_default();
        ensure!(status.phase.as_deref() == Some("Pending"), "after {config}, the phase is {:?}", status.phase);
        Ok(status.nominated_node_name)
    };
    let first = apply(json!({"nominatedNodeName": "n1"})).await?;
    ensure!(first.as_deref() == Some("n1"), "not nominated: {first:?}");
    let none = apply(json!({})).await?;
    ensure!(none.is_none(), "a field that is no longer applied stays: {none:?}");
    let second = apply(json!({"nominatedNodeName": "n2"})).await?;
    ensure!(second.as_deref() == Some("n2"), "not nominated again: {second:?}");
    Ok(())
}

pub(super) async fn gives_bound_pods_their_grace(context: &TestContext) -> Check {
    let pods: Api<Pod> = context.api();
    pod(context, "graced", Some("nowhere")).await?;
    let deleted = pods.delete("graced", &DeleteParams::default()).await?.left();
    let grace = deleted.as_ref().and_then(|pod| pod.metadata.deletion_grace_period_seconds);
    ensure!(grace == Some(20), "{grace:?}");
    ensure!(deleted.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()), "not marked");
    let shorter = pods.delete("graced", &DeleteParams::default().grace_period(5)).await?.left();
    let grace = shorter.and_then(|pod| pod.metadata.deletion_grace_period_seconds);
    ensure!(grace == Some(5), "grace cannot be shortened: {grace:?}");
    pods.delete("graced", &DeleteParams::default().grace_period(0)).await?;
    ensure!(code(pods.get("graced").await)? == 404, "a deletion without grace left the pod");
    pod(context, "unbound", None).await?;
    pods.delete("unbound", &DeleteParams::default()).await?;
    ensure!(code(pods.get("unbound").await)? == 404, "a pod without a node needs no grace");
    Ok(())
}

pub(super) async fn refuses_changes_to_what_runs(context: &TestContext) -> Check {
    let pods: Api<Pod> = context.api();
    pod(context, "fixed", None).await?;
    let change = json!({"spec": {"nodeSelector": {"a": "b"}}});
    let refused = code(pods.patch("fixed", &PatchParams::default(), &Patch::Merge(&change)).await)?;
    ensure!(refused == 422, "a new node selector gave {refused}");
    let label = json!({"metadata": {"labels": {"x": "y"}, "annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    let patched = pods.patch("fixed", &PatchParams::default(), &Patch::Merge(&label)).await?;
    ensure!(patched.labels().contains_key("x"), "labels may change");
    pods.delete("fixed", &DeleteParams::default()).await?;
    Ok(())
}

pub(super) async fn evicts_within_the_budget(context: &TestContext) -> Check {
    let pods: Api<Pod> = context.api();
    pod(context, "roomy", Some("nowhere")).await?;
    run(context, "roomy").await?;
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1});
    budget(context, "roomy", json!({"minAvailable": 0}), status).await?;
    let answer = pods.evict("roomy", &EvictParams::default()).await?;
    ensure!(answer.is_success(), "{answer:?}");
    let marked = pods.get("roomy").await?;
    ensure!(marked.metadata.deletion_timestamp.is_some(), "an evicted pod is not marked");
    let budgets: Api<PodDisruptionBudget> = context.api();
    let status = budgets.get("roomy").await?.status.unwrap_or_default();
    ensure!(status.disruptions_allowed == Some(0), "the budget was not reduced: {status:?}");
    pods.delete("roomy", &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}

pub(super) async fn refuses_evictions_beyond_the_budget(context: &TestContext) -> Check {
    let pods: Api<Pod> = context.api();
    pod(context, "tight", Some("nowhere")).await?;
    run(context, "tight").await?;
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1});
    budget(context, "tight", json!({"minAvailable": 1}), status).await?;
    match pods.evict("tight", &EvictParams::default()).await {
        Err(kube::Error::Api(status)) => {
            ensure!(status.code == 429 && status.reason == "TooManyRequests", "{status:?}");
            let causes = status.details.clone().map(|details| details.causes).unwrap_or_default();
            ensure!(causes.iter().any(|cause| cause.reason == "DisruptionBudget"), "{causes:?}");
        }
        other => ensure!(false, "an eviction beyond the budget gave {other:?}"),
    }
    ensure!(pods.get("tight").await?.metadata.deletion_timestamp.is_none(), "a refused eviction marked the pod");
    pods.delete("tight", &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}

pub(super) async fn evicts_what_no_budget_guards(context: &TestContext) -> Check {
    let pods: Api<Pod> = context.api();
    let refused = code(pods.evict("nobody", &EvictParams::default()).await)?;
    ensure!(refused == 404, "evicting a missing pod gave {refused}");
    // A pod that has not started does not count towards availability.
    pod(context, "tight-too", None).await?;
    let status = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 1, "expectedPods": 1});
    budget(context, "tight-too", json!({"minAvailable": 1}), status).await?;
    pods.evict("tight-too", &EvictParams::default()).await?;
    ensure!(code(pods.get("tight-too").await)? == 404, "a pending pod outlived its eviction");
    Ok(())
}
