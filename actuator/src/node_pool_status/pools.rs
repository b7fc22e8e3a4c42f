//! Annotations and status of NodePools.

use crate::clock::Timestamped;
use crate::controller_loop::{Candidate, ControllerLoop, Requeue, version_of};
use crate::events::{Note, object, reason};
use crate::io::{ObjectPart, WriteError};
use crate::node_pool_status::{NodePoolStatus, hash};
use crate::rollout::{self, Halt};
use crate::state::capacity::{self, capacity};
use crate::state::registrations as health;
use crate::stores::WatchedKind;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use plimsoll_api::condition::node_pool::{CONDITIONS, NODE_CLASS_READY, VALIDATION_SUCCEEDED};
use plimsoll_api::condition::{self, Moment, Status};
use plimsoll_api::{EC2NodeClass, FieldError, NodePool, ResourceList, Validate};
use plimsoll_model::names::{NODES_RESOURCE, label};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::Resources;
use plimsoll_snapshot::rollout::{Rollout, Stage, claims_of_drifted_pools};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Minimum interval between writes for a pool whose nodes come and go by the hundred.
const MIN_WRITE_INTERVAL: Duration = Duration::from_millis(500);

/// A pool with the inputs of its status.
#[derive(Clone)]
struct PoolWithClass {
    pool: Arc<NodePool>,
    class: Option<Arc<EC2NodeClass>>,
    has: Resources,
    rollout: Option<Rollout>,
}

pub(super) async fn run(deps: &NodePoolStatus, stop: &CancellationToken) {
    let kinds = [WatchedKind::NodePool, WatchedKind::NodeClaim, WatchedKind::Node, WatchedKind::EC2NodeClass];
    let work = |subject: PoolWithClass| reconcile(deps.clone(), subject);
    let controller = ControllerLoop::new("node_pool_status", &deps.metrics, &deps.stores, &deps.fence);
    controller.run(stop, &kinds, || candidates(deps), work).await;
}

fn candidates(deps: &NodePoolStatus) -> Vec<Candidate<PoolWithClass>> {
    let mut has = has_by_pool(deps);
    let classes: BTreeMap<String, Arc<EC2NodeClass>> =
        deps.stores.classes.state().into_iter().map(|class| (class.name_any(), class)).collect();
    let claims = deps.stores.claims.state();
    let drifted = claims_of_drifted_pools(claims.iter().map(Arc::as_ref));
    let pools = deps.stores.pools.state().into_iter();
    pools
        .map(|pool| {
            let class = classes.get(&pool.spec.template.spec.node_class_ref.name).cloned();
            let has = has.remove(&pool.name_any()).unwrap_or_default();
            let of_drifted = drifted.get(pool.name_any().as_str()).map(Vec::as_slice).unwrap_or_default();
            let rollout = rollout::of(&deps.stores, &pool, of_drifted, deps.clock.timestamp());
            let version = version_of(&(
                &pool.metadata.resource_version,
                class.as_ref().and_then(|class| class.metadata.resource_version.as_ref()),
                &has,
                // The text of the progress changes less often than the progress, which changes with each node.
                rollout.as_ref().map(|rollout| (&rollout.stage, rollout.progress.to_string())),
                deps.registrations.is_healthy(&pool.name_any()),
            ));
            let (key, input) = (pool.name_any(), PoolWithClass { pool, class, has, rollout });
            Candidate { key, version: Some(version), input }
        })
        .collect()
}

/// Total resources of each pool's nodes, excluding nodes being deleted.
fn has_by_pool(deps: &NodePoolStatus) -> BTreeMap<String, Resources> {
    let mut by_pool: BTreeMap<String, Resources> = BTreeMap::new();
    for claim in deps.stores.claims.state() {
        let Some(pool) = claim.labels().get(label::NODE_POOL) else { continue };
        if claim.metadata.deletion_timestamp.is_none() && claim.provider_id().is_some() {
            let nodes = deps.stores.nodes_of(&claim);
            by_pool.entry(pool.clone()).or_default().add(&capacity(&claim, nodes.first().map(|node| &**node)));
        }
    }
    by_pool
}

async fn reconcile(deps: NodePoolStatus, subject: PoolWithClass) -> Result<Requeue, WriteError> {
    // A claim that cannot be written keeps the pool from nothing else.
    let carried_over = hash::carry_over_claims(&deps, &subject.pool).await;
    hash::mark(&deps, &subject.pool).await?;
    if let Some(Stage::Failed { claim, cause }) = subject.rollout.as_ref().map(|rollout| &rollout.stage) {
        let halt = Halt { stores: &deps.stores, writes: &deps.writes, events: &deps.events };
        halt.write(deps.clock, &subject.pool, claim, cause).await?;
    }
    let (now, healthy) = (deps.clock.now(), is_healthy(&deps, &subject));
    let show = |pool: &mut NodePool| {
        let moment = Moment::of(&pool.metadata, now);
        show_validation(pool, moment);
        let status = pool.status.get_or_insert_default();
        status.resources = shown(&subject.has);
        status.nodes = Some(subject.has.get(NODES_RESOURCE));
        status.node_class_observed_generation = subject.class.as_ref().and_then(|class| class.metadata.generation);
        let (state, reason, message) = class_ready(subject.class.as_deref());
        CONDITIONS.set(&mut status.conditions, moment, NODE_CLASS_READY, state, &reason, &message);
        health::show(&mut status.conditions, moment, healthy);
        rollout::show(&mut status.conditions, moment, subject.rollout.as_ref());
    };
    deps.writes.update(&*subject.pool, ObjectPart::Status, show).await?;
    if let Some(message) = joined(&subject.pool.unreadable_schedules()) {
        let note = Note::warning(object(&*subject.pool), reason::INVALID_BUDGET, message);
        deps.events.publish(note.with_long_window());
    }
    tokio::time::sleep(MIN_WRITE_INTERVAL).await;
    carried_over?;
    let next = subject.rollout.as_ref().and_then(|rollout| rollout.next_change);
    Ok(next.map(|next| Duration::from_millis(next.since(deps.clock.timestamp()).0)))
}

/// Shows whether the pool is valid. A budget whose schedule cannot be read is named, but keeps no node from launching.
fn show_validation(pool: &mut NodePool, moment: Moment) {
    let (status, reason, message) = match (problem(pool), joined(&pool.unreadable_schedules())) {
        (Some(problem), _) => (Status::False, "NodePoolValidationFailed", problem),
        (None, Some(problem)) => (Status::True, reason::INVALID_BUDGET, problem),
        (None, None) => (Status::True, VALIDATION_SUCCEEDED, String::new()),
    };
    let conditions = &mut pool.status.get_or_insert_default().conditions;
    CONDITIONS.set(conditions, moment, VALIDATION_SUCCEEDED, status, reason, &message);
}

/// All errors of the pool; `None` if it is valid.
fn problem(pool: &NodePool) -> Option<String> {
    let mut errors = pool.validate();
    errors.extend(plimsoll_snapshot::invalid_annotations(pool));
    joined(&errors)
}

/// The errors as one text; `None` if there are none.
fn joined(errors: &[FieldError]) -> Option<String> {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    (!errors.is_empty()).then(|| errors.join("; "))
}

/// Whether instances of the pool registered recently; unknown after a change of pool or class.
fn is_healthy(deps: &NodePoolStatus, subject: &PoolWithClass) -> Option<bool> {
    let pool = &subject.pool;
    let status = pool.status.as_ref();
    let condition = status.and_then(|status| health::shown(&status.conditions));
    let class = subject.class.as_ref().and_then(|class| class.metadata.generation);
    let of_class = status.and_then(|status| status.node_class_observed_generation);
    let changed = condition.is_some_and(|condition| condition.observed_generation != pool.metadata.generation)
        || (of_class.is_some() && of_class != class);
    deps.registrations.judge(&pool.name_any(), condition, changed)
}

/// Status, reason and message of the condition. A node class that is not ready gives its own reason, as in Karpenter.
fn class_ready(class: Option<&EC2NodeClass>) -> (Status, String, String) {
    let own = |status, reason: &str, message: &str| (status, reason.to_owned(), message.to_owned());
    let Some(class) = class else {
        return own(Status::False, "NodeClassNotFound", "the EC2NodeClass does not exist");
    };
    if class.metadata.deletion_timestamp.is_some() {
        return own(Status::False, "NodeClassTerminating", "the EC2NodeClass is being deleted");
    }
    match condition::get(class.conditions(), condition::READY) {
        Some(ready) if ready.status == "True" => own(Status::True, NODE_CLASS_READY, ""),
        Some(ready) if ready.status == "False" => {
            let reason = if ready.reason.is_empty() { "NodeClassNotReady" } else { ready.reason.as_str() };
            own(Status::False, reason, &ready.message)
        }
        _ => own(Status::Unknown, "NodeClassReadinessUnknown", "the EC2NodeClass has not been reconciled yet"),
    }
}

fn shown(has: &Resources) -> ResourceList {
    let whole = capacity::shown(has);
    whole.iter().map(|(name, amount)| (name.to_owned(), Quantity(format_amount(name, amount)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_empty_pool_shows_zeros() {
        let shown = shown(&Resources::new());
        let names: Vec<&str> = shown.keys().map(String::as_str).collect();
        assert_eq!(names, ["cpu", "ephemeral-storage", "memory", "nodes", "pods"]);
        assert!(shown.values().all(|amount| amount.0 == "0"));
    }

    #[test]
    fn the_condition_names_every_error_of_the_pool() {
        let pool = |requirement: serde_json::Value, weight: i32| -> NodePool {
            serde_json::from_value(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
                "metadata": {"name": "p"},
                "spec": {"weight": weight, "template": {"spec": {"requirements": [requirement], "nodeClassRef":
                    {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}}}}}))
            .unwrap()
        };
        let arch = json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]});
        assert_eq!(problem(&pool(arch, 1)), None);
        let no_values = json!({"key": "kubernetes.io/arch", "operator": "In", "values": []});
        let wrong = problem(&pool(no_values, 1000)).unwrap();
        assert!(wrong.contains("spec.weight") && wrong.contains("; ") && wrong.contains("requirements[0]"), "{wrong}");
    }

    #[test]
    fn the_condition_names_every_annotation_that_keeps_the_pool_from_launching() {
        let pool = |annotations: serde_json::Value| -> NodePool {
            serde_json::from_value(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
                "metadata": {"name": "p", "annotations": annotations},
                "spec": {"template": {"spec": {"requirements": [],
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}}}}}))
            .unwrap()
        };
        let (percentage, cost) = ("plimsoll.dev/on-demand-percentage", "plimsoll.dev/node-cost-per-hour");
        assert_eq!(problem(&pool(json!({percentage: "30", cost: "0.1"}))), None);
        let wrong = problem(&pool(json!({percentage: "30%", cost: "$1"}))).unwrap();
        assert!(wrong.contains(percentage) && wrong.contains("; ") && wrong.contains(cost), "{wrong}");
        for key in ["plimsoll.dev/termination-delay", "plimsoll.dev/expiry-jitter"] {
            let wrong = problem(&pool(json!({key: "much"}))).unwrap();
            assert!(wrong.contains(key), "{wrong}");
        }
    }

    #[test]
    fn the_condition_names_an_unreadable_schedule_and_stays_true() {
        let budget = json!({"nodes": "5", "schedule": "0 9 * * 7", "duration": "1h"});
        let mut pool: NodePool = serde_json::from_value(json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "p"},
            "spec": {"disruption": {"consolidateAfter": "0s", "budgets": [budget]},
                "template": {"spec": {"requirements": [],
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}}}}}))
        .unwrap();
        let moment = Moment::of(&pool.metadata, jiff::Timestamp::UNIX_EPOCH);
        show_validation(&mut pool, moment);
        let conditions = pool.status.unwrap().conditions;
        let shown = condition::get(&conditions, VALIDATION_SUCCEEDED).unwrap();
        assert_eq!((shown.status.as_str(), shown.reason.as_str()), ("True", "InvalidBudget"));
        assert!(shown.message.starts_with("spec.disruption.budgets[0].schedule: "), "{}", shown.message);
    }

    #[test]
    fn node_class_condition_distinguishes_missing_unknown_and_unready() {
        let class = |conditions: serde_json::Value| -> EC2NodeClass {
            let status = json!({ "conditions": conditions });
            serde_json::from_value(json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
                "metadata": {"name": "c"}, "spec": {"amiFamily": "AL2023", "subnetSelectorTerms": [],
                "securityGroupSelectorTerms": []}, "status": status}))
            .unwrap()
        };
        let with_reason = |status: &str, reason: &str| {
            json!([{"type": "Ready", "status": status, "reason": reason, "message": "no subnets",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let ready = |status: &str| with_reason(status, "UnhealthyDependents");
        assert_eq!(class_ready(None).1, "NodeClassNotFound");
        assert_eq!(class_ready(Some(&class(json!([])))).1, "NodeClassReadinessUnknown");
        assert_eq!(class_ready(Some(&class(ready("True")))).0, Status::True);
        let not_ready = |reason: &str| (Status::False, reason.to_owned(), "no subnets".to_owned());
        assert_eq!(class_ready(Some(&class(ready("False")))), not_ready("UnhealthyDependents"));
        assert_eq!(class_ready(Some(&class(with_reason("False", "")))), not_ready("NodeClassNotReady"));
    }
}
