//! Causes of launches, and reservations of launches (rules 6, 7 and 27).

use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::names::{annotation, label};
use plimsoll_model::plan::{Reason, ReasonCode, Unschedulable};
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::{Part, Write};
use plimsoll_sim::apiserver::{Patch, ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, future_pod};
use plimsoll_tests::{MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::{Value, json};
use std::time::Duration;

fn bought(world: &World) -> usize {
    instances_ever_launched(world).len()
}

fn set_status(world: &World, pod: &str, status: &Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    let write = Write::new(world.server().now(), "test");
    let patched = |store: &mut plimsoll_sim::apiserver::store::Store| {
        store.patch(ResourceId::PODS, "default", pod, Part::Status, &patch, &write).map(drop)
    };
    world.server().write(patched).unwrap();
}

/// A pod whose scheduler, the test, has marked it as unschedulable.
fn unschedulable(world: &World, name: &str, metadata: &Value, spec: &Value) {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"schedulerName": "test",
        "containers": [{"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": "1"}}}]}});
    json_patch::merge(&mut pod["metadata"], metadata);
    json_patch::merge(&mut pod["spec"], spec);
    world.apply_object(&pod).unwrap();
    set_status(world, name, &judged());
}

fn judged() -> Value {
    json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]})
}

/// Rule 6: gated, terminating and DaemonSet pods cause no launch.
#[tokio::test(start_paused = true)]
async fn pods_that_are_not_to_get_a_node_buy_none() {
    let cluster = TestCluster::usual().await;
    let world = &cluster.world;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d-1", "controller": true}]);
    unschedulable(world, "daemon", &json!({ "ownerReferences": owner }), &json!({}));
    unschedulable(world, "gated", &json!({}), &json!({"schedulingGates": [{"name": "example.com/wait"}]}));
    unschedulable(world, "leaving", &json!({"finalizers": ["example.com/stay"]}), &json!({}));
    world.delete(ResourceId::PODS, "leaving").unwrap();
    let nominated = json!({"nominatedNodeName": "elsewhere", "conditions": judged()["conditions"]});
    unschedulable(world, "nominated", &json!({}), &json!({}));
    set_status(world, "nominated", &nominated);
    unschedulable(world, "unjudged", &json!({}), &json!({}));
    set_status(world, "unjudged", &json!({ "conditions": null }));
    cluster.pass(MINUTE).await;
    // Two pods were marked for an instant, which is not part of this test.
    assert_eq!(bought(world), 0, "{}", cluster.summary());
    set_status(world, "nominated", &json!({ "nominatedNodeName": null }));
    cluster.until("the unschedulable pod gets a node", MINUTE, |world| bought(world) == 1).await;
}

/// Rule 7: a pod that waits for its node gets no second node, from any plan.
#[tokio::test(start_paused = true)]
async fn a_reserved_pod_is_not_bought_for_again() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let wanted = |action: &'static str| Wanted {
        action,
        instance_type: "m6i.large",
        capacity_type: CapacityType::OnDemand,
        pods: vec![future_pod("web")],
    };
    let plan = watcher.plan(&[wanted("a-1")], Vec::new()).await;
    assert_eq!(watcher.send(plan).await[0].status, OutcomeStatus::Accepted);
    // The plan has the current ledger position.
    let plan = watcher.plan(&[wanted("a-2")], Vec::new()).await;
    let outcome = watcher.send(plan).await.remove(0);
    assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::PodChanged)));
    watcher.until("the node is launched", MINUTE, |world| bought(world) == 1).await;
}

/// Rule 7: the reservation ends when kube-scheduler rejects the pod again on its planned node.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_refused_again_is_planned_again_at_once() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    cluster.deploy("web", 1, 3000);
    cluster.until("its node exists", 2 * MINUTE, |world| !world.all(ResourceId::NODES).is_empty()).await;
    let node = object::name(&cluster.world.all(ResourceId::NODES)[0]).to_owned();
    // Another pod takes the capacity.
    let squatter = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "squatter"}, "spec": {"nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": "3"}}}]}});
    cluster.world.apply_object(&squatter).unwrap();
    let in_service = |world: &World| {
        world.all(ResourceId::NODE_CLAIMS).iter().any(|claim| object::condition_is_true(claim, "Initialized"))
    };
    cluster.until("its node is in service", 2 * MINUTE, in_service).await;
    assert_eq!(bought(&cluster.world), 1);
    let took = cluster.until("another node is launched", MINUTE, |world| bought(world) == 2).await;
    assert!(took < Duration::from_secs(15), "{took:?}: not only when the reservation runs out");
    cluster.until_running(2, 3 * MINUTE).await;
}

/// Rule 7: a Node whose claim is not matched yet is the same node as the claim, not additional capacity.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_matched_yet_offers_no_room_of_its_own() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let status = Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") };
    let rule = cluster.world.server().faults().always(status, Effect::internal_error());
    cluster.deploy("web", 1, 3000);
    cluster.until("its node exists", 2 * MINUTE, |world| !world.all(ResourceId::NODES).is_empty()).await;
    cluster.pass(Duration::from_secs(2)).await;
    cluster.scale("web", 2);
    cluster.until("a node for the other pod is launched", Duration::from_secs(20), |world| bought(world) == 2).await;
    cluster.world.server().faults().remove(rule);
    cluster.until_running(2, 5 * MINUTE).await;
    assert_eq!(bought(&cluster.world), 2);
}

/// Rule 27: an unschedulable pod gets a reason, once for each cause and time window.
#[tokio::test(start_paused = true)]
async fn a_pod_without_a_place_says_why_and_does_not_repeat_itself() {
    let cluster = TestCluster::usual().await;
    let selector = json!({"nodeSelector": {label::INSTANCE_TYPE: "x9.huge"}});
    cluster.world.deploy("web", 1, &json!({"cpu": "100m"}), &selector).unwrap();
    cluster.pass(14 * MINUTE).await;
    let pod = cluster.world.all(ResourceId::PODS).remove(0);
    let of_us = |event: &Value| {
        object::text(event, &["involvedObject", "name"]) == object::name(&pod)
            && object::text(event, &["reportingComponent"]).starts_with("plimsoll")
    };
    let events: Vec<_> = cluster.world.all(ResourceId::EVENTS).into_iter().filter(|event| of_us(event)).collect();
    let event_count: i64 = events.iter().map(|event| event["count"].as_i64().unwrap_or(1)).sum();
    assert!((1..=4).contains(&event_count), "{events:?}");
    assert!(object::text(&events[0], &["message"]).contains("default"), "names the pool: {events:?}");
}

/// Rule 27: the same cause is reported once per time window, however often plans contain it.
#[tokio::test(start_paused = true)]
async fn a_cause_that_every_plan_repeats_is_told_once() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    for _ in 0..10 {
        let mut plan = watcher.plan(&[], Vec::new()).await;
        let reason = Reason {
            node_pool: "default".to_owned(),
            code: ReasonCode::InvalidPod,
            message: "the test says so".to_owned(),
        };
        plan.unschedulable = vec![Unschedulable { pod: future_pod("web"), reasons: vec![reason].into() }];
        watcher.send(plan).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let about = |event: &Value| object::text(event, &["involvedObject", "name"]) == "web";
    let events: Vec<_> = watcher.world.all(ResourceId::EVENTS).into_iter().filter(|event| about(event)).collect();
    let event_count: i64 = events.iter().map(|event| event["count"].as_i64().unwrap_or(1)).sum();
    assert_eq!(event_count, 1, "{events:?}");
}

/// A running pod uses its resources even if an annotation is invalid, and an Event names the invalid annotation.
#[tokio::test(start_paused = true)]
async fn an_annotation_that_cannot_be_read_is_told_and_takes_no_pods_room_away() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let deploy = |name: &str, annotations: Value| {
        let container = json!({"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": "3"}}});
        let template = json!({"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": {"containers": [container]}});
        let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template});
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec});
        cluster.world.apply_object(&object).unwrap();
    };
    deploy("wishing", json!({annotation::ON_DEMAND_PERCENTAGE: "30%", annotation::DO_NOT_DISRUPT: "yes"}));
    cluster.until_running(1, 3 * MINUTE).await;
    let pod = object::name(&cluster.world.all(ResourceId::PODS)[0]).to_owned();
    deploy("other", json!({}));
    cluster.until_running(2, 3 * MINUTE).await;
    assert_eq!(bought(&cluster.world), 2);
    cluster.pass(MINUTE).await;
    let events = cluster.world.events_of("Pod", &pod);
    let names_annotation =
        |event: &String| event.starts_with("InvalidAnnotation: ") && event.contains("on-demand-percentage");
    assert!(events.iter().any(names_annotation), "{events:?}");
    assert!(events.iter().any(|event| event.starts_with("InvalidDoNotDisruptAnnotation: ")), "{events:?}");
}
