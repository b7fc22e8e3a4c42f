//! Limits hold exactly, also in bursts and when an actuator crashes (rule 7), and pods that they block get a reason
//! (rule 27).

use plimsoll_actuator::ports::InstanceState;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::{World, is_pending};
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup, TestCluster, most_cpu_of_claims};
use serde_json::json;
use std::time::Duration;

/// CPU limit, in millicores.
const LIMIT: i64 = 20_000;

async fn cluster() -> TestCluster {
    TestCluster::begin(Setup::with_pool(json!({"limits": {"cpu": "20"}}))).await
}

fn says_limit(world: &World) -> bool {
    let pods = world.all(ResourceId::PODS);
    pods.iter()
        .filter(|pod| is_pending(pod))
        .any(|pod| world.events_of("Pod", object::name(pod)).iter().any(|event| event.contains("limit")))
}

/// The limit is never exceeded, and no capacity within it stays unused: the smallest type has 2 CPUs.
fn the_limit_is_used_and_kept(cluster: &TestCluster) {
    let most = most_cpu_of_claims(&cluster.world, "default");
    assert!(most <= LIMIT, "{most}");
    assert!(most > LIMIT - 4000, "{most} of {LIMIT}\n{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn a_burst_fills_the_limit_and_not_more() {
    let cluster = cluster().await;
    cluster.deploy("web", 60, 700);
    cluster.until("waiting pods say that the limit is reached", 3 * MINUTE, says_limit).await;
    cluster.pass(5 * MINUTE).await;
    the_limit_is_used_and_kept(&cluster);
}

#[tokio::test(start_paused = true)]
async fn many_small_bursts_fill_the_limit_and_not_more() {
    let cluster = cluster().await;
    for step in 1..=20 {
        cluster.deploy("web", 3 * step, 700);
        cluster.pass(Duration::from_millis(150)).await;
    }
    cluster.until("waiting pods say that the limit is reached", 3 * MINUTE, says_limit).await;
    cluster.pass(5 * MINUTE).await;
    the_limit_is_used_and_kept(&cluster);
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_when_the_actuator_dies_in_the_burst() {
    let mut cluster = cluster().await;
    cluster.deploy("web", 60, 700);
    let some = |world: &World| !world.all(ResourceId::NODE_CLAIMS).is_empty();
    cluster.until("claims are written", MINUTE, some).await;
    let leader = cluster.plimsoll.leader(Role::Actuator).unwrap();
    cluster.plimsoll.kill(&leader);
    cluster.until("waiting pods say that the limit is reached", 5 * MINUTE, says_limit).await;
    cluster.pass(5 * MINUTE).await;
    the_limit_is_used_and_kept(&cluster);
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_lets_more_pods_run() {
    let cluster = cluster().await;
    cluster.deploy("web", 60, 700);
    cluster.until("waiting pods say that the limit is reached", 3 * MINUTE, says_limit).await;
    cluster.world.patch(ResourceId::NODE_POOLS, "default", json!({"spec": {"limits": {"cpu": "100"}}})).unwrap();
    cluster.until_running(60, 5 * MINUTE).await;
}

/// The CRD accepts a sign. As in Karpenter, such a NodePool launches nothing, and its nodes are still removed.
#[tokio::test(start_paused = true)]
async fn a_negative_limit_is_reported_and_empty_nodes_go() {
    let cluster = cluster().await;
    cluster.deploy("web", 2, 700);
    cluster.until_running(2, 3 * MINUTE).await;
    cluster.world.patch(ResourceId::NODE_POOLS, "default", json!({"spec": {"limits": {"cpu": "-1"}}})).unwrap();
    let is_invalid = |world: &World| {
        let pool = world.all(ResourceId::NODE_POOLS).remove(0);
        !object::condition_is_true(&pool, "ValidationSucceeded")
    };
    cluster.until("the NodePool says that it is invalid", MINUTE, is_invalid).await;
    cluster.scale("web", 0);
    cluster.until_empty(20 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_being_removed_count_until_their_instances_are_gone() {
    let cluster = cluster().await;
    cluster.deploy("web", 60, 700);
    cluster.until("waiting pods say that the limit is reached", 3 * MINUTE, says_limit).await;
    for claim in cluster.claims().iter().take(2) {
        cluster.world.delete(ResourceId::NODE_CLAIMS, object::name(claim)).unwrap();
    }
    cluster.pass(10 * MINUTE).await;
    the_limit_is_used_and_kept(&cluster);
}

/// Limit of the price, in millionths of a dollar per hour.
const USD_LIMIT: i64 = 600_000;

/// Price of all instances that EC2 has not terminated, in millionths of a dollar per hour.
fn bill(cluster: &TestCluster) -> i64 {
    cluster.world.ec2.read(|cloud, now| {
        let on_bill = cloud
            .machines()
            .values()
            .filter(|machine| !matches!(machine.state(now), InstanceState::ShuttingDown | InstanceState::Terminated));
        let price = |kind: &str, zone: &str, capacity_type: CapacityType| match capacity_type {
            CapacityType::Spot => cloud.offers[&(kind.to_owned(), zone.to_owned())].0,
            CapacityType::OnDemand | CapacityType::Reserved => cloud.on_demand[kind].0,
        };
        on_bill.map(|machine| price(&machine.instance_type, &machine.zone, machine.capacity_type)).sum()
    })
}

/// The bill of EC2, which knows nothing of limits, stays below the limit while an actuator is killed in a burst, and
/// the usage that the NodePool shows is the bill.
#[tokio::test(start_paused = true)]
async fn the_limit_of_the_price_holds_when_the_actuator_dies_in_the_burst() {
    let mut cluster =
        TestCluster::begin(Setup::with_pool(json!({"limits": {"plimsoll.dev/usd-per-hour": "0.6"}}))).await;
    cluster.deploy("web", 60, 700);
    let some = |world: &World| !world.all(ResourceId::NODE_CLAIMS).is_empty();
    cluster.until("claims are written", MINUTE, some).await;
    let leader = cluster.plimsoll.leader(Role::Actuator).unwrap();
    cluster.plimsoll.kill(&leader);
    for _ in 0..10 {
        cluster.pass(MINUTE).await;
        let bill = bill(&cluster);
        assert!(bill <= USD_LIMIT, "{bill}\n{}", cluster.summary());
    }
    assert!(says_limit(&cluster.world), "{}", cluster.summary());
    let bill = bill(&cluster);
    assert!(bill > USD_LIMIT / 2, "{bill} of {USD_LIMIT} are used\n{}", cluster.summary());
    let pool = cluster.world.all(ResourceId::NODE_POOLS).remove(0);
    let shown = object::text(&pool, &["status", "resources", "plimsoll.dev/usd-per-hour"]).to_owned();
    assert_eq!(shown, MicroUsdPerHour(bill).to_string(), "{}", cluster.summary());
}

/// A plan that asks for more than one node is not trusted: the actuator counts itself.
#[tokio::test(start_paused = true)]
async fn the_actuator_launches_no_more_nodes_than_a_static_pool_has_replicas() {
    let watcher = FakeWatcher::begin(Setup::with_pool(json!({"replicas": 1}))).await;
    let outcomes = watcher.send(watcher.plan(&["a-1", "a-2"].map(wanted), Vec::new()).await).await;
    let said: Vec<_> = outcomes.iter().map(|outcome| (outcome.status, outcome.reason)).collect();
    let over = (OutcomeStatus::Rejected, Some(OutcomeReason::LimitReached));
    assert_eq!(said, [(OutcomeStatus::Accepted, None), over], "{outcomes:?}");
}
