//! Tests of the actuator with interruption notices (safety rule 13).
#![allow(clippy::unwrap_used, reason = "needed only if helpers outside of tests use it")]

mod deferred;
mod late_leaders;
mod lost_capacity;
mod plans;
mod queue;
mod refused_writes;
mod replacements;
mod waits;

use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::names::annotation;
use plimsoll_model::plan::Unschedulable;
use plimsoll_sim::apiserver::faults::{Effect as ApiEffect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::plimsoll::Options;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, wanted};
use plimsoll_tests::{MINUTE, Setup, instance_of, instances_ever_launched, running_on};
use serde_json::json;
use std::time::Duration;

/// Time between the notice and the termination of a Spot instance.
const NOTICE: Duration = Duration::from_secs(120);

fn spot(action: &str) -> Wanted<'_> {
    Wanted { capacity_type: CapacityType::Spot, ..wanted(action) }
}

async fn begin() -> FakeWatcher {
    begin_with(Options::default()).await
}

async fn begin_with(options: Options) -> FakeWatcher {
    let types = ["spot", "on-demand", "reserved"];
    let requirements = json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": types}]);
    let pool = json!({"template": {"spec": {"requirements": requirements}}});
    FakeWatcher::begin(Setup { options, ..Setup::with_pool(pool) }).await
}

fn interrupt(watcher: &FakeWatcher, instance: &str) {
    assert!(watcher.world.ec2.with(|cloud, now| cloud.interrupt_spot(instance, now)), "the instance exists");
}

fn recommend_rebalance(watcher: &FakeWatcher, instance: &str) {
    assert!(watcher.world.ec2.with(|cloud, now| cloud.recommend_rebalance(instance, now)), "the instance exists");
}

/// Announces maintenance of instances that begins at `start`. Such notices list their instances by id.
fn announce_maintenance(watcher: &FakeWatcher, instances: &[&str], start: Option<&str>) {
    let entities: Vec<_> = instances.iter().map(|instance| json!({"entityValue": instance})).collect();
    let detail = json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": start,
        "affectedEntities": entities});
    let body = json!({"version": "0", "id": "maintenance", "detail-type": "AWS Health Event", "source": "aws.health",
        "account": "123456789012", "time": "2026-01-05T00:00:00Z", "region": "us-west-2", "resources": [],
        "detail": detail});
    watcher.world.ec2.with(|cloud, now| cloud.queue.send(instances[0], &body.to_string(), now));
}

fn waiting_messages(world: &World) -> usize {
    world.ec2.read(|cloud, _| cloud.queue.len())
}

/// A Spot node in service with two pods.
async fn with_pods(watcher: &FakeWatcher) -> (String, String, String) {
    let (claim, node) = watcher.node(&spot("a-1")).await;
    watcher.world.deploy("web", 2, &json!({"cpu": "500m"}), &json!({})).unwrap();
    watcher.until("the pods run", MINUTE, |world| running_on(world, &node) == 2).await;
    let instance = instance_of(&watcher.world, &node);
    (claim, node, instance)
}

#[tokio::test(start_paused = true)]
async fn without_a_plan_the_node_is_replaced_by_its_like_before_its_time_is_over() {
    let watcher = begin().await;
    let (claim, node, instance) = with_pods(&watcher).await;
    interrupt(&watcher, &instance);
    watcher
        .until("the claim is on its way out", Duration::from_secs(2), |world| {
            world.get(ResourceId::NODE_CLAIMS, &claim).is_none_or(|claim| object::is_deleting(&claim))
        })
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(running_on(&watcher.world, &node), 2, "the drain waits for a plan");
    let remaining = NOTICE - Duration::from_secs(10);
    watcher
        .until("the pods run elsewhere", remaining, |world| world.running_pods() == 2 && running_on(world, &node) == 0)
        .await;
    watcher
        .until("the old instance is terminated", 2 * MINUTE, |world| {
            world.get(ResourceId::NODE_CLAIMS, &claim).is_none() && !world.living_instances().contains_key(&instance)
        })
        .await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 2, "one replacement");
    assert_eq!(waiting_messages(&watcher.world), 0);
    let events = watcher.world.events_of("NodeClaim", &claim);
    assert!(events.iter().any(|event| event.contains("SpotInterrupted")), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_plans_replacement_is_the_only_one_and_pods_move_when_it_is_in_service() {
    let watcher = begin().await;
    let (claim, node, instance) = with_pods(&watcher).await;
    let pods = watcher.pods_on(&node);
    interrupt(&watcher, &instance);
    watcher.until("the claim is on its way out", Duration::from_secs(2), |world| is_deleting(world, &claim)).await;
    let wanted = Wanted { action: "a-2", instance_type: "m6i.xlarge", capacity_type: CapacityType::OnDemand, pods };
    let plan = watcher.plan(&[wanted], Vec::new()).await;
    let outcomes = watcher.send(plan).await;
    assert_eq!(
        outcomes[0].status,
        OutcomeStatus::Accepted,
        "pods of an interrupted node need another node: {outcomes:?}"
    );
    let is_in_service = |world: &World| {
        let nodes = world.all(ResourceId::NODES);
        nodes.iter().any(|other| object::name(other) != node && object::condition_is_true(other, "Ready"))
    };
    watcher
        .until("the replacement is Ready", MINUTE, |world| {
            assert!(
                running_on(world, &node) == 2 || is_in_service(world),
                "pods are evicted before their new node is in service"
            );
            is_in_service(world)
        })
        .await;
    watcher.until("the drain starts", Duration::from_secs(5), |world| running_on(world, &node) < 2).await;
    watcher.until("the pods run elsewhere", NOTICE, |world| world.running_pods() == 2).await;
    watcher
        .until("the old claim is deleted", 2 * MINUTE, |world| world.get(ResourceId::NODE_CLAIMS, &claim).is_none())
        .await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 2);
}

/// As where Cluster Autoscaler runs: the node termination handler ignores its annotation.
#[tokio::test(start_paused = true)]
async fn pods_that_are_not_safe_to_evict_leave_an_interrupted_node() {
    let watcher = begin().await;
    let (_, node, instance) = with_pods(&watcher).await;
    for pod in watcher.world.all(ResourceId::PODS) {
        let mark = json!({"metadata": {"annotations": {annotation::SAFE_TO_EVICT: "false"}}});
        watcher.world.patch(ResourceId::PODS, object::name(&pod), mark).unwrap();
    }
    interrupt(&watcher, &instance);
    let have_left = |world: &World| running_on(world, &node) == 0;
    watcher.until("the pods have left", NOTICE - Duration::from_secs(10), have_left).await;
}

/// A pod is bound to another node while the node that was launched for it boots: that node does not take it later.
#[tokio::test(start_paused = true)]
async fn a_node_that_a_pod_waited_for_before_it_was_bound_elsewhere_does_not_cover_it() {
    let watcher = begin().await;
    let (_, node) = watcher.node(&spot("a-1")).await;
    let cordon =
        |on: bool| watcher.world.patch(ResourceId::NODES, &node, json!({"spec": {"unschedulable": on}})).unwrap();
    cordon(true);
    watcher.world.deploy("web", 1, &json!({"cpu": "500m"}), &json!({})).unwrap();
    watcher.until("the pod exists", MINUTE, |_| watcher.pods_on("").len() == 1).await;
    let wanted = Wanted { pods: watcher.pods_on(""), ..spot("a-2") };
    let outcomes = watcher.send(watcher.plan(&[wanted], Vec::new()).await).await;
    assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "{outcomes:?}");
    let claim = outcomes[0].node_claim.clone().unwrap();
    // Times in Kubernetes have whole seconds.
    tokio::time::sleep(Duration::from_secs(2)).await;
    cordon(false);
    watcher.until("the pod runs on the first node", MINUTE, |world| running_on(world, &node) == 1).await;
    watcher.in_service(&claim).await;
    interrupt(&watcher, &instance_of(&watcher.world, &node));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(running_on(&watcher.world, &node), 1, "the pod is evicted before a plan has another node for it");
    watcher
        .until("the pod runs elsewhere", NOTICE, |world| world.running_pods() == 1 && running_on(world, &node) == 0)
        .await;
}

/// The message is deleted only after the claim is marked.
#[tokio::test(start_paused = true)]
async fn a_notice_is_not_lost_while_the_cluster_cannot_be_written() {
    let watcher = begin().await;
    let (claim, _, instance) = with_pods(&watcher).await;
    let patch = Matcher::of(Verb::Patch, "nodeclaims");
    let rule = watcher.world.server().faults().always(patch, ApiEffect::internal_error());
    interrupt(&watcher, &instance);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(waiting_messages(&watcher.world) > 0);
    watcher.world.server().faults().remove(rule);
    watcher
        .until("the claim is marked", MINUTE, |world| {
            world.get(ResourceId::NODE_CLAIMS, &claim).is_none_or(|claim| {
                let mark = object::text(&claim, &["metadata", "annotations", annotation::INTERRUPTED]);
                object::is_deleting(&claim) && mark.contains("spot_interrupted")
            })
        })
        .await;
    let delete = |world: &World| waiting_messages(world) == 0;
    watcher.until("the message is deleted", 2 * MINUTE, delete).await;
}

/// Each notice may be about several instances.
#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_written_delays_no_other_claim_of_the_notice() {
    let watcher = begin().await;
    let mut claims = Vec::new();
    for action in ["a-1", "a-2"] {
        let (claim, node) = watcher.node(&spot(action)).await;
        claims.push((instance_of(&watcher.world, &node), claim));
    }
    claims.sort();
    let patch = Matcher { name: Some(claims[0].1.clone()), ..Matcher::of(Verb::Patch, "nodeclaims") };
    watcher.world.server().faults().always(patch, ApiEffect::internal_error());
    announce_maintenance(&watcher, &[&claims[0].0, &claims[1].0], None);
    let limit = Duration::from_secs(5);
    watcher.until("the other claim is on its way out", limit, |world| is_deleting(world, &claims[1].1)).await;
    assert!(waiting_messages(&watcher.world) > 0, "the notice is repeated for the first claim");
}

/// A leader crashes after it marked the claim. The next leader continues, and nothing is launched twice.
#[tokio::test(start_paused = true)]
async fn a_new_leader_goes_on_after_the_mark() {
    let mut watcher = begin().await;
    let (claim, node, instance) = with_pods(&watcher).await;
    interrupt(&watcher, &instance);
    watcher.until("the claim is on its way out", Duration::from_secs(2), |world| is_deleting(world, &claim)).await;
    watcher.replace_actuator();
    let moved = |world: &World| world.running_pods() == 2 && running_on(world, &node) == 0;
    watcher.until("the pods run elsewhere", 3 * MINUTE, moved).await;
    watcher
        .until("the old claim is deleted", 3 * MINUTE, |world| world.get(ResourceId::NODE_CLAIMS, &claim).is_none())
        .await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 2, "one replacement");
}

/// A notice may arrive before the claim knows its instance. A recommendation that is acted on is a notice too.
#[tokio::test(start_paused = true)]
async fn a_notice_for_an_instance_whose_claim_does_not_know_it_yet_is_kept() {
    for notify in [interrupt, recommend_rebalance] {
        let watcher = begin_with(Options { act_on_rebalance: true, ..Options::default() }).await;
        let status = Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") };
        let rule = watcher.world.server().faults().always(status, ApiEffect::internal_error());
        let plan = watcher.plan(&[spot("a-1")], Vec::new()).await;
        watcher.send(plan).await;
        watcher.until("the instance is launched", MINUTE, |world| world.living_instances().len() == 1).await;
        let instance = watcher.world.living_instances().into_keys().next().unwrap();
        notify(&watcher, &instance);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(waiting_messages(&watcher.world) > 0, "the notice waits");
        watcher.world.server().faults().remove(rule);
        watcher
            .until("the claim is on its way out", MINUTE, |world| {
                world.all(ResourceId::NODE_CLAIMS).iter().all(|claim| object::is_deleting(claim))
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_and_what_is_not_ours_is_deleted_and_touches_nothing() {
    let watcher = begin().await;
    let (claim, _) = watcher.node(&spot("a-1")).await;
    let foreign = json!({"version": "0", "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning",
        "time": "2026-01-02T03:04:05Z", "detail": {"instance-id": "i-00000000000000000"}});
    watcher.world.ec2.with(|cloud, now| {
        for body in ["not JSON".to_owned(), "{}".to_owned(), foreign.to_string()] {
            cloud.queue.send("", &body, now);
        }
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(waiting_messages(&watcher.world), 0);
    assert!(!object::is_deleting(&watcher.claim(&claim).unwrap()));
    let results = [("unreadable", "deleted"), ("no_op", "ignored"), ("spot_interrupted", "foreign")];
    let [unreadable, ignored, foreign] = results.map(|(kind, result)| queue::handled(&watcher, kind, result));
    assert_eq!((unreadable, foreign), (1, 1));
    assert!(ignored > 0, "instances that start cause such messages, too");
}

#[tokio::test(start_paused = true)]
async fn a_rebalance_recommendation_is_an_event_only() {
    let watcher = begin().await;
    let (claim, node) = watcher.node(&spot("a-1")).await;
    let instance = instance_of(&watcher.world, &node);
    recommend_rebalance(&watcher, &instance);
    watcher
        .until("the reason is reported", MINUTE, |world| {
            world.events_of("NodeClaim", &claim).iter().any(|event| event.contains("SpotRebalanceRecommendation"))
        })
        .await;
    tokio::time::sleep(MINUTE).await;
    assert!(!object::is_deleting(&watcher.claim(&claim).unwrap()));
    assert_eq!(waiting_messages(&watcher.world), 0);
}

#[tokio::test(start_paused = true)]
async fn a_rebalance_recommendation_that_is_acted_on_drains_the_node() {
    let watcher = begin_with(Options { act_on_rebalance: true, ..Options::default() }).await;
    let (claim, node) = watcher.node(&spot("a-1")).await;
    recommend_rebalance(&watcher, &instance_of(&watcher.world, &node));
    watcher.until("the claim is on its way out", Duration::from_secs(2), |world| is_deleting(world, &claim)).await;
}

/// A later notice leaves less time than an earlier one.
#[tokio::test(start_paused = true)]
async fn a_later_notice_shortens_the_time_of_an_earlier_one() {
    let watcher = begin().await;
    let (claim, node, instance) = with_pods(&watcher).await;
    // The limit allows no new node, so that the pods stay as long as possible.
    watcher.world.patch(ResourceId::NODE_POOLS, "default", json!({"spec": {"limits": {"cpu": "2"}}})).unwrap();
    announce_maintenance(&watcher, &[&instance], Some("Thu, 31 Dec 2026 00:00:00 GMT"));
    watcher.until("the claim is on its way out", Duration::from_secs(2), |world| is_deleting(world, &claim)).await;
    tokio::time::sleep(3 * NOTICE).await;
    assert_eq!(running_on(&watcher.world, &node), 2, "the event is months ahead");
    interrupt(&watcher, &instance);
    tokio::time::sleep(NOTICE - Duration::from_secs(60)).await;
    assert_eq!(running_on(&watcher.world, &node), 2, "pods still run before the deadline");
    watcher.until("the pods stop in time", Duration::from_secs(59), |world| running_on(world, &node) == 0).await;
}

/// Evicted pods would stay pending.
#[tokio::test(start_paused = true)]
async fn pods_that_a_plan_has_no_room_for_stay_while_there_is_time() {
    let watcher = begin().await;
    let (_, node, instance) = with_pods(&watcher).await;
    let pods = watcher.pods_on(&node);
    watcher.world.patch(ResourceId::NODE_POOLS, "default", json!({"spec": {"limits": {"cpu": "2"}}})).unwrap();
    interrupt(&watcher, &instance);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut plan = watcher.plan(&[], Vec::new()).await;
    plan.unschedulable = pods.into_iter().map(|pod| Unschedulable { pod, reasons: Default::default() }).collect();
    watcher.send(plan).await;
    tokio::time::sleep(NOTICE - Duration::from_secs(50)).await;
    assert_eq!(running_on(&watcher.world, &node), 2);
    watcher.until("the pods stop in time", Duration::from_secs(45), |world| running_on(world, &node) == 0).await;
}

/// Every instance of the account causes messages when it terminates.
#[tokio::test(start_paused = true)]
async fn a_flood_of_foreign_messages_does_not_delay_a_notice() {
    let watcher = begin().await;
    let (claim, _, instance) = with_pods(&watcher).await;
    let slow = Effect::Delay(Duration::from_secs(2));
    watcher.world.ec2.faults(|faults| faults.inject(Action::DescribeInstances, slow, u32::MAX));
    send_foreign_messages(&watcher, 4000);
    interrupt(&watcher, &instance);
    watcher.until("the claim is on its way out", Duration::from_secs(5), |world| is_deleting(world, &claim)).await;
}

/// One reader needs 0.6 s for ten messages, so 15 s for those before the notice.
#[tokio::test(start_paused = true)]
async fn slow_calls_of_the_queue_are_made_concurrently_while_it_has_messages() {
    let watcher = begin().await;
    let (claim, _, instance) = with_pods(&watcher).await;
    let slow = Effect::Delay(Duration::from_millis(300));
    for action in [Action::ReceiveMessage, Action::DeleteMessage] {
        watcher.world.ec2.faults(|faults| faults.inject(action, slow.clone(), u32::MAX));
    }
    send_foreign_messages(&watcher, 250);
    interrupt(&watcher, &instance);
    watcher.until("the claim is on its way out", Duration::from_secs(5), |world| is_deleting(world, &claim)).await;
}

fn is_deleting(world: &World, claim: &str) -> bool {
    world.get(ResourceId::NODE_CLAIMS, claim).is_some_and(|claim| object::is_deleting(&claim))
}

/// Sends messages about instances of other teams, which have Spot instances too.
fn send_foreign_messages(watcher: &FakeWatcher, count: u32) {
    watcher.world.ec2.with(|cloud, now| {
        for number in 0..count {
            let id = format!("i-{number:017x}");
            let kind = if number % 10 == 0 {
                "Spot Instance Interruption Warning"
            } else {
                "Instance State-change Notification"
            };
            let body = json!({"version": "0", "source": "aws.ec2", "time": "2026-01-05T00:00:00Z",
                "detail-type": format!("EC2 {kind}"), "detail": {"instance-id": id, "state": "terminated"}});
            cloud.queue.send(&id, &body.to_string(), now);
        }
    });
}
