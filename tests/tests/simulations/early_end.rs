//! Instances that end before their Nodes register: EC2 launches them, and cannot start them.

use plimsoll_model::catalog::CapacityType;
use plimsoll_model::time::Millis;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Capacity, Pool};
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, instances_ever_launched};
use std::collections::BTreeSet;
use std::time::Duration;

const ZONES: [&str; 4] = ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"];

/// Ends all instances of these types for the reason with this code and message.
fn end(cluster: &TestCluster, types: &[&str], code: &'static str, message: &'static str) {
    cluster.world.ec2.with(|cloud, _| {
        for (instance_type, zone) in types.iter().flat_map(|one| ZONES.map(|zone| (*one, zone))) {
            cloud.limit(Pool::new(instance_type, zone, CapacityType::OnDemand), Capacity::Ends(code, message));
        }
    });
}

fn is_told(world: &World, text: &str) -> bool {
    world.all(ResourceId::EVENTS).iter().any(|event| object::text(event, &["message"]).contains(text))
}

fn is_unhealthy(world: &World) -> bool {
    let pool = world.get(ResourceId::NODE_POOLS, "default");
    let condition = pool.as_ref().and_then(|pool| object::condition(pool, "NodeRegistrationHealthy"));
    condition.is_some_and(|condition| condition["status"] == "False")
}

/// The key of the volumes may not be used. Each instance ends three seconds after its launch. The pauses between are
/// 1, 2, 4 ... 128 and 180 s. The next launch may be admitted before the end of the last one is read.
#[tokio::test(start_paused = true)]
async fn instances_that_ec2_cannot_start_are_launched_less_and_less_often() {
    let cluster = TestCluster::usual().await;
    let types = ["m6i.large", "m6i.xlarge", "m6i.2xlarge", "c6i.large", "c6i.xlarge"];
    let message = "Client.InternalError: Client error on launch";
    end(&cluster, &types, "Client.InternalError", message);
    cluster.deploy("web", 1, 700);
    cluster.until("the reason is told", MINUTE, |world| is_told(world, message)).await;
    cluster.until("the pool is not healthy", 2 * MINUTE, is_unhealthy).await;
    cluster.pass(10 * MINUTE).await;
    let launched = instances_ever_launched(&cluster.world).len();
    assert!((5..=24).contains(&launched), "{launched} launches in ten minutes\n{}", cluster.summary());
    cluster.world.ec2.with(|cloud, _| cloud.limits.clear());
    cluster.until_running(1, 6 * MINUTE).await;
}

/// EC2 has ended them by the time that it is asked to terminate them, and its answer has no reasons.
#[tokio::test(start_paused = true)]
async fn the_reasons_of_many_ends_are_read_with_few_calls() {
    const NODES: usize = 200;
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let message = "Client.InternalError: Client error on launch";
    end(&cluster, &["m6i.xlarge"], "Client.InternalError", message);
    cluster.world.ec2.with(|cloud, _| cloud.settings.shutdown = Millis(0));
    cluster.deploy("web", u32::try_from(NODES).unwrap(), 3000);
    let launched = |world: &World| instances_ever_launched(world).len() >= NODES;
    cluster.until("all instances are launched", MINUTE, launched).await;
    let first: BTreeSet<String> = cluster.claims().iter().map(|claim| object::name(claim).to_owned()).collect();
    let reads = |world: &World| {
        world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::DescribeInstances).count())
    };
    let before = reads(&cluster.world);
    let is_first = |name: &str| first.contains(name);
    let gone = |world: &World| world.count(ResourceId::NODE_CLAIMS, |claim| is_first(object::name(claim))) == 0;
    cluster.until("their NodeClaims are gone", MINUTE, gone).await;
    let reads = reads(&cluster.world) - before;
    // Batches while notices arrive, and what other controllers read.
    assert!((1..=60).contains(&reads), "{reads} calls");
    assert!(is_told(&cluster.world, message), "{}", cluster.summary());
}

/// The other types are not refused, and no pause keeps them waiting.
#[tokio::test(start_paused = true)]
async fn an_offering_that_loses_its_capacity_at_the_start_is_left_for_another() {
    let cluster = TestCluster::usual().await;
    // The cheapest type that fits the pod.
    end(&cluster, &["c6i.large"], "Server.InsufficientInstanceCapacity", "Insufficient capacity");
    cluster.deploy("web", 1, 1500);
    let took = cluster.until_running(1, 3 * MINUTE).await;
    assert!(took < 2 * MINUTE, "{took:?}");
    let launched = instances_ever_launched(&cluster.world).len();
    assert!((2..=10).contains(&launched), "{launched} launches\n{}", cluster.summary());
    assert!(is_told(&cluster.world, "Server.InsufficientInstanceCapacity"), "{}", cluster.summary());
}

/// Nothing is wrong with the pool if a user deletes a NodeClaim.
#[tokio::test(start_paused = true)]
async fn a_claim_that_a_user_deletes_is_no_failure() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 1, 700);
    let launched = |world: &World| !world.living_instances().is_empty();
    cluster.until("an instance is launched", MINUTE, launched).await;
    cluster.pass(Duration::from_secs(2)).await;
    let name = object::name(&cluster.claims()[0]).to_owned();
    cluster.world.delete(ResourceId::NODE_CLAIMS, &name).unwrap();
    cluster.until_running(1, 3 * MINUTE).await;
    assert!(!is_told(&cluster.world, "ended before its Node registered"), "{}", cluster.summary());
}
