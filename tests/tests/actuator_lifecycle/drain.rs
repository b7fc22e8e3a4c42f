//! Evictions: errors of single pods, and the disruption budgets that a drained node leaves to others.

use super::{instance_of, limit_disruptions, running_on, wanted};
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::names::annotation;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ApiError, ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::director::{Director, Wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::{Value, json};
use std::time::Duration;

/// A node with the pods `a`, `b` and `c`, with these annotations, is deleted while requests for `b` are refused.
async fn without_b(refused: Matcher, annotations: &Value) -> Director {
    let spec = json!({"template": {"spec": {"terminationGracePeriod": "2m"}}});
    let director = Director::begin(Setup::with_pool(spec)).await;
    let (claim, node) = director.node(&wanted("a-1")).await;
    for name in ["a", "b", "c"] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example.com/app:1"}]}});
        director.world.apply_object(&pod).unwrap();
    }
    director.until("the pods run", MINUTE, |world| running_on(world, &node) == 3).await;
    let refused = Matcher { name: Some("b".to_owned()), ..refused };
    let error = ApiError::new(403, "Forbidden", "a webhook refuses it");
    director.world.server().faults().always(refused, Effect::Refuse(error));
    director.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    director
}

fn only_b_is_left(world: &World) -> bool {
    let pods = world.all(ResourceId::PODS);
    pods.iter().map(|pod| object::name(pod)).eq(["b"])
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_eviction_is_refused_keeps_no_other_pod() {
    let eviction = Matcher { subresource: Some("eviction"), ..Matcher::of(Verb::Create, "pods") };
    let director = without_b(eviction, &json!({})).await;
    let is_evicted = |world: &World, pod| world.events_of("Pod", pod).iter().any(|event| event.contains("Evicted"));
    director
        .until("the other pods are evicted", Duration::from_secs(10), |world| {
            only_b_is_left(world) && is_evicted(world, "a") && is_evicted(world, "c")
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_deleted_when_the_nodes_time_is_over_keeps_no_other_pod() {
    let protected = json!({annotation::DO_NOT_DISRUPT: "true"});
    let director = without_b(Matcher::of(Verb::Delete, "pods"), &protected).await;
    director.until("the other pods are deleted", 2 * MINUTE, only_b_is_left).await;
}

/// Evictions that are over are in the budget's own count.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_drained_leaves_its_disruption_budget_to_others() {
    let director = Director::begin(Setup::default()).await;
    let (claim, first) = director.node(&wanted("a-1")).await;
    director.world.deploy("web", 1, &json!({"cpu": "1"}), &json!({})).unwrap();
    director.until("the first pod runs", MINUTE, |world| running_on(world, &first) == 1).await;
    let (_, second) = director.node(&wanted("a-2")).await;
    director.world.scale("web", 2).unwrap();
    director.until("the second pod runs", MINUTE, |world| running_on(world, &second) == 1).await;
    let (_, third) = director.node(&Wanted { instance_type: "m6i.2xlarge", ..wanted("a-3") }).await;
    limit_disruptions(&director.world, 1);
    let allows_one = |world: &World| {
        let budget = world.get(ResourceId::POD_DISRUPTION_BUDGETS, "web").unwrap();
        object::integer(&budget, &["status", "disruptionsAllowed"]) == Some(1)
    };
    director.until("the budget allows a disruption", MINUTE, allows_one).await;
    // The removal goes on while EC2 refuses to terminate the instance.
    let instance = instance_of(&director.world, &first);
    director.world.ec2.with(|cloud, _| cloud.protect(&instance, true));
    let reason = DisruptionReason::Underutilized;
    let outcome = director.remove("r-1", &first, reason, Some(&third)).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    let outcome = director.remove("r-2", &second, reason, Some(&third)).await;
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::Blocked)));
    let is_drained = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim).unwrap();
        object::condition_is_true(&claim, "Drained") && running_on(world, &third) == 1 && allows_one(world)
    };
    director.until("the first node is drained", MINUTE, is_drained).await;
    let outcome = director.remove("r-3", &second, reason, Some(&third)).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    assert!(director.claim(&claim).is_some(), "the first removal is not over");
}
