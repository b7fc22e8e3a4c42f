//! Capacity reservations: used first, never beyond their count, and left in time.

use plimsoll_actuator::ports::{CapacityReservation, InstanceMatchCriteria, ReservationType};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::label;
use plimsoll_model::time::Millis;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Capacity, Machine, Pool};
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn reservation(id: &str, kind: ReservationType, free: u32) -> CapacityReservation {
    CapacityReservation {
        id: id.to_owned(),
        owner_id: "123456789012".to_owned(),
        instance_type: "m6i.xlarge".to_owned(),
        zone: "us-west-2b".to_owned(),
        platform: "Linux/UNIX".to_owned(),
        match_criteria: InstanceMatchCriteria::Targeted,
        kind,
        interruptible: false,
        ends: None,
        free,
        tags: [("team".to_owned(), "shop".to_owned())].into(),
    }
}

/// A cluster with these reservations, which the class selects by tag.
async fn cluster_with(reservations: Vec<CapacityReservation>) -> TestCluster {
    let requirements = json!([
        {"key": label::CAPACITY_TYPE, "operator": "In", "values": ["reserved", "on-demand"]},
        {"key": label::ARCH, "operator": "In", "values": ["amd64"]},
    ]);
    // Otherwise nodes that are no longer reserved make room for cheaper ones.
    let disruption = json!({"consolidationPolicy": "WhenEmpty"});
    let pool = json!({"template": {"spec": {"requirements": requirements}}, "disruption": disruption});
    let cluster = TestCluster::begin(Setup::with_pool(pool)).await;
    let count = reservations.len();
    cluster.world.ec2.with(|cloud, _| reservations.into_iter().for_each(|one| cloud.reserve(one)));
    select(&cluster, &json!([{"tags": {"team": "shop"}}]));
    let listed = move |world: &World| in_status(world) == count;
    cluster.until("the class lists its reservations", 2 * MINUTE, listed).await;
    cluster
}

fn select(cluster: &TestCluster, terms: &Value) {
    let patch = json!({"spec": {"capacityReservationSelectorTerms": terms}});
    cluster.world.patch(ResourceId::EC2_NODE_CLASSES, "default", patch).unwrap();
}

fn in_status(world: &World) -> usize {
    let class = world.get(ResourceId::EC2_NODE_CLASSES, "default").unwrap();
    object::items(&class, &["status", "capacityReservations"]).len()
}

/// Living instances by their reservation.
fn by_reservation(world: &World) -> BTreeMap<Option<String>, usize> {
    let mut counts = BTreeMap::new();
    for Machine { capacity_reservation_id, .. } in world.living_instances().into_values() {
        *counts.entry(capacity_reservation_id).or_default() += 1;
    }
    counts
}

/// Nodes and claims by the values of two labels.
fn labelled(world: &World, resource: ResourceId) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    for one in world.all(resource) {
        let text = |key: &str| object::text(&one, &["metadata", "labels", key]).to_owned();
        *counts.entry((text(label::CAPACITY_TYPE), text(label::CAPACITY_RESERVATION_ID))).or_default() += 1;
    }
    counts
}

fn refusals(cluster: &TestCluster) -> Vec<String> {
    cluster.world.ec2.read(|cloud, _| {
        cloud.fleets().iter().flat_map(|fleet| &fleet.answer.errors).map(|error| error.code.clone()).collect()
    })
}

fn pair(capacity_type: &str, reservation: &str) -> (String, String) {
    (capacity_type.to_owned(), reservation.to_owned())
}

#[tokio::test(start_paused = true)]
async fn reserved_instances_are_used_first_and_never_beyond_the_count() {
    let cluster = cluster_with(vec![reservation("cr-1", ReservationType::Default, 2)]).await;
    // Two bursts, each more than the reservation holds.
    cluster.deploy("web", 3, 3000);
    cluster.until_running(3, 5 * MINUTE).await;
    cluster.deploy("more", 3, 3000);
    cluster.until_running(6, 5 * MINUTE).await;
    assert_eq!(by_reservation(&cluster.world).get(&Some("cr-1".to_owned())), Some(&2), "{}", cluster.summary());
    assert_eq!(refusals(&cluster), Vec::<String>::new());
    for resource in [ResourceId::NODE_CLAIMS, ResourceId::NODES] {
        assert_eq!(
            labelled(&cluster.world, resource).get(&pair("reserved", "cr-1")),
            Some(&2),
            "{}",
            cluster.summary()
        );
    }
    // What is given back is used again.
    cluster.world.delete(ResourceId::DEPLOYMENTS, "web").unwrap();
    cluster.world.delete(ResourceId::DEPLOYMENTS, "more").unwrap();
    cluster.until_empty(20 * MINUTE).await;
    cluster.deploy("again", 1, 3000);
    cluster.until_running(1, 5 * MINUTE).await;
    assert_eq!(by_reservation(&cluster.world), [(Some("cr-1".to_owned()), 1)].into());
}

#[tokio::test(start_paused = true)]
async fn what_others_took_of_a_reservation_is_bought_elsewhere() {
    let cluster = cluster_with(vec![reservation("cr-1", ReservationType::Default, 2)]).await;
    // The count that Plimsoll read is too high from now on.
    cluster.world.ec2.with(|cloud, _| cloud.reserve(reservation("cr-1", ReservationType::Default, 0)));
    cluster.deploy("web", 2, 3000);
    cluster.until_running(2, 5 * MINUTE).await;
    assert_eq!(by_reservation(&cluster.world), [(None, 2)].into());
    let refused = refusals(&cluster);
    assert!((1..=2).contains(&refused.len()) && refused.iter().all(|code| code == "ReservationCapacityExceeded"));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_without_capacity_closes_no_other_one_of_its_type_and_zone() {
    let [full, other] = [("cr-1", 2), ("cr-2", 1)].map(|(id, free)| reservation(id, ReservationType::Default, free));
    let cluster = cluster_with(vec![full, other]).await;
    // Others took it after Plimsoll read the count.
    cluster.world.ec2.with(|cloud, _| cloud.reserve(reservation("cr-1", ReservationType::Default, 0)));
    cluster.deploy("web", 1, 3000);
    cluster.until_running(1, 5 * MINUTE).await;
    assert_eq!(refusals(&cluster), ["ReservationCapacityExceeded"], "the one with more free instances is tried first");
    assert_eq!(by_reservation(&cluster.world), [(Some("cr-2".to_owned()), 1)].into(), "{}", cluster.summary());
}

/// The place of each instance is free again once the instance is gone. The pauses between the launches are 1, 2, 4 ...
/// 128 and 180 s.
#[tokio::test(start_paused = true)]
async fn a_reservation_whose_instances_lose_their_capacity_at_the_start_is_used_less_and_less_often() {
    let cluster = cluster_with(vec![reservation("cr-1", ReservationType::Default, 1)]).await;
    let requirements = json!([{"key": label::CAPACITY_TYPE, "operator": "In", "values": ["reserved"]}]);
    let only_reserved = json!({"spec": {"template": {"spec": {"requirements": requirements}}}});
    cluster.world.patch(ResourceId::NODE_POOLS, "default", only_reserved).unwrap();
    cluster.world.ec2.with(|cloud, _| {
        cloud.settings.shutdown = Millis::from_seconds(1);
        let ends = Capacity::Ends("Server.InsufficientInstanceCapacity", "Insufficient capacity");
        cloud.limit(Pool::new("m6i.xlarge", "us-west-2b", CapacityType::Reserved), ends);
    });
    cluster.deploy("web", 1, 3000);
    cluster.pass(10 * MINUTE).await;
    let launched = instances_ever_launched(&cluster.world).len();
    assert!((5..=24).contains(&launched), "{launched} launches in ten minutes\n{}", cluster.summary());
    cluster.world.ec2.with(|cloud, _| cloud.limits.clear());
    cluster.until_running(1, 6 * MINUTE).await;
    assert_eq!(by_reservation(&cluster.world), [(Some("cr-1".to_owned()), 1)].into(), "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn nodes_of_a_cancelled_reservation_become_on_demand_nodes() {
    let cluster = cluster_with(vec![reservation("cr-1", ReservationType::Default, 1)]).await;
    cluster.deploy("web", 1, 3000);
    cluster.until_running(1, 5 * MINUTE).await;
    let before = cluster.world.living_instances().into_keys().collect::<Vec<_>>();
    cluster.world.ec2.with(|cloud, _| cloud.cancel_reservation("cr-1"));
    let relabelled = |world: &World| {
        [ResourceId::NODE_CLAIMS, ResourceId::NODES]
            .iter()
            .all(|resource| labelled(world, *resource) == [(pair("on-demand", ""), 1)].into())
    };
    cluster.until("claim and node are on demand", 4 * MINUTE, relabelled).await;
    assert_eq!(cluster.world.living_instances().into_keys().collect::<Vec<_>>(), before);
}

#[tokio::test(start_paused = true)]
async fn nodes_of_a_reservation_that_is_no_longer_selected_are_replaced() {
    let cluster = cluster_with(vec![reservation("cr-1", ReservationType::Default, 1)]).await;
    cluster.deploy("web", 1, 3000);
    cluster.until_running(1, 5 * MINUTE).await;
    assert_eq!(by_reservation(&cluster.world), [(Some("cr-1".to_owned()), 1)].into());
    select(&cluster, &json!([]));
    let drifted = |world: &World| {
        world.count(ResourceId::NODE_CLAIMS, |claim| {
            let conditions = object::items(claim, &["status", "conditions"]);
            conditions.iter().any(|one| object::text(one, &["reason"]) == "CapacityReservationDrift")
        }) > 0
    };
    cluster.until("the node has drifted", 10 * MINUTE, drifted).await;
    let elsewhere = |world: &World| by_reservation(world) == [(None, 1)].into() && world.running_pods() == 1;
    cluster.until("the pod runs on an On-Demand node", 10 * MINUTE, elsewhere).await;
}

#[tokio::test(start_paused = true)]
async fn a_capacity_block_is_left_before_ec2_takes_its_instances() {
    let mut block = reservation("cr-1", ReservationType::CapacityBlock, 1);
    let cluster = cluster_with(Vec::new()).await;
    let ends = cluster.world.ec2.read(|_, now| now.plus(Millis::from_seconds(60 * 60)));
    block.ends = Some(ends);
    cluster.world.ec2.with(|cloud, _| cloud.reserve(block));
    cluster.until("the class lists the block", 3 * MINUTE, |world| in_status(world) == 1).await;
    cluster.deploy("web", 1, 3000);
    cluster.until_running(1, 5 * MINUTE).await;
    assert_eq!(by_reservation(&cluster.world), [(Some("cr-1".to_owned()), 1)].into());
    let left = |world: &World| by_reservation(world) == [(None, 1)].into() && world.running_pods() == 1;
    cluster.until("the pod runs elsewhere", 30 * MINUTE, left).await;
    let remaining = cluster.world.ec2.read(|_, now| ends.since(now));
    assert!(remaining > Millis::from_seconds(30 * 60), "{remaining:?} before the end");
}
