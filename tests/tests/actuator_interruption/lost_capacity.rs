//! What a notice says about capacity: the offering of an interrupted instance is not launched again, and a capacity
//! reservation that its owner takes back has no free instance. One whose instance is terminated has one more.

use super::{announce_maintenance, begin, interrupt, is_deleting, spot};
use plimsoll_actuator::ports::{CapacityReservation, FleetRequest, InstanceMatchCriteria, ReservationType};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::names::label;
use plimsoll_model::snapshot::ReservationCount;
use plimsoll_sim::apiserver::faults::{Effect as ApiEffect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted};
use plimsoll_tests::{MINUTE, instance_of};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// An instance type and a zone.
type Offering = (String, String);

/// What each fleet may launch, in order of the fleets.
fn fleets(world: &World) -> Vec<(CapacityType, BTreeSet<Offering>)> {
    world.ec2.read(|cloud, _| {
        let requests = cloud.fleets().iter().map(|fleet| &fleet.request);
        let offerings = |request: &FleetRequest| {
            request.overrides().map(|way| (way.instance_type.clone(), way.zone.clone())).collect()
        };
        requests.map(|request| (request.capacity_type, offerings(request))).collect()
    })
}

/// Checks that the second fleet may launch what the first one may, except the offering of an instance.
fn assert_excluded(world: &World, instance: &str) {
    let lost = world.ec2.read(|cloud, _| {
        let machine = &cloud.machines()[instance];
        (machine.instance_type.clone(), machine.zone.clone())
    });
    let [(former, mut offerings), (capacity_type, others)] = fleets(world).try_into().unwrap();
    assert!(offerings.remove(&lost) && !offerings.is_empty(), "{lost:?}: {offerings:?}");
    assert_eq!((capacity_type, others), (former, offerings), "all but {lost:?}");
}

async fn until_going(watcher: &FakeWatcher, claim: &str) {
    let limit = Duration::from_secs(2);
    watcher.until("the claim is on its way out", limit, |world| is_deleting(world, claim)).await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_does_not_launch_the_interrupted_offering_again() {
    let watcher = begin().await;
    let (claim, node) = watcher.node(&spot("a-1")).await;
    let instance = instance_of(&watcher.world, &node);
    interrupt(&watcher, &instance);
    until_going(&watcher, &claim).await;
    let outcomes = watcher.send(watcher.plan(&[spot("a-2")], Vec::new()).await).await;
    assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "{outcomes:?}");
    watcher.until("the other node is launched", MINUTE, |world| fleets(world).len() == 2).await;
    assert_excluded(&watcher.world, &instance);
}

/// Nor does an interruption if it is not known which offering it is about.
#[tokio::test(start_paused = true)]
async fn maintenance_says_nothing_of_the_capacity_of_an_offering() {
    for knows_zone in [true, false] {
        let watcher = begin().await;
        let (claim, node) = watcher.node(&spot("a-1")).await;
        let instance = instance_of(&watcher.world, &node);
        if knows_zone {
            announce_maintenance(&watcher, &[&instance], None);
        } else {
            let unlabelled = json!({"metadata": {"labels": {label::ZONE: null}}});
            watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, unlabelled).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            interrupt(&watcher, &instance);
        }
        until_going(&watcher, &claim).await;
        let outcomes = watcher.send(watcher.plan(&[spot("a-2")], Vec::new()).await).await;
        assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "{outcomes:?}");
        watcher.until("the other node is launched", MINUTE, |world| fleets(world).len() == 2).await;
        let [first, second] = fleets(&watcher.world).try_into().unwrap();
        assert_eq!(first, second, "knows its zone: {knows_zone}");
    }
}

/// Only Spot interruptions say that capacity is short. The offering of a broken host is avoided all the same.
#[tokio::test(start_paused = true)]
async fn a_like_for_like_replacement_is_not_of_the_same_offering() {
    let watcher = begin().await;
    let (claim, node) = watcher.node(&Wanted { capacity_type: CapacityType::OnDemand, ..spot("a-1") }).await;
    watcher.deploy("web", "500m").await;
    let instance = instance_of(&watcher.world, &node);
    announce_maintenance(&watcher, &[&instance], None);
    until_going(&watcher, &claim).await;
    watcher.until("the replacement is launched", MINUTE, |world| fleets(world).len() == 2).await;
    assert_excluded(&watcher.world, &instance);
}

/// Free instances of the capacity reservation, as the ledger tells them.
fn free(free: u32) -> Option<Vec<ReservationCount>> {
    Some(vec![ReservationCount { id: "cr-1".to_owned(), free }])
}

/// A capacity reservation.
pub(super) fn reservation(id: &str, instance_type: &str, zone: &str, free: u32) -> CapacityReservation {
    CapacityReservation {
        id: id.to_owned(),
        owner_id: "123456789012".to_owned(),
        instance_type: instance_type.to_owned(),
        zone: zone.to_owned(),
        platform: "Linux/UNIX".to_owned(),
        match_criteria: InstanceMatchCriteria::Targeted,
        kind: ReservationType::Default,
        interruptible: true,
        ends: None,
        free,
        tags: [("team".to_owned(), "shop".to_owned())].into(),
    }
}

/// Makes these capacity reservations, and waits until plans may use them.
pub(super) async fn reserve(watcher: &FakeWatcher, reservations: Vec<CapacityReservation>) {
    let count = reservations.len();
    watcher.world.ec2.with(|cloud, _| reservations.into_iter().for_each(|one| cloud.reserve(one)));
    let select = json!({"spec": {"capacityReservationSelectorTerms": [{"tags": {"team": "shop"}}]}});
    watcher.world.patch(ResourceId::EC2_NODE_CLASSES, "default", select).unwrap();
    let is_listed = |world: &World| {
        let class = world.get(ResourceId::EC2_NODE_CLASSES, "default").unwrap();
        object::items(&class, &["status", "capacityReservations"]).len() == count
    };
    watcher.until("the class lists the reservations", 2 * MINUTE, is_listed).await;
    // Its catalog is built again.
    tokio::time::sleep(MINUTE).await;
}

/// A node in a capacity reservation of three instances. Returns the names of claim and Node.
async fn reserved_node(watcher: &FakeWatcher) -> (String, String) {
    reserve(watcher, vec![reservation("cr-1", "m6i.large", "us-west-2b", 3)]).await;
    let names = watcher.node(&Wanted { capacity_type: CapacityType::Reserved, ..spot("a-1") }).await;
    assert_eq!(watcher.ledger().await.unwrap().reservations, free(2));
    names
}

/// EC2 is asked once a minute, and does not answer here.
#[tokio::test(start_paused = true)]
async fn a_reservation_has_one_free_instance_less_once_one_is_launched() {
    let watcher = begin().await;
    reserve(&watcher, vec![reservation("cr-1", "m6i.large", "us-west-2b", 3)]).await;
    let no_answer = Effect::Drop;
    watcher.world.ec2.faults(|faults| faults.inject(Action::DescribeCapacityReservations, no_answer, u32::MAX));
    watcher.node(&Wanted { capacity_type: CapacityType::Reserved, ..spot("a-1") }).await;
    assert_eq!(watcher.ledger().await.unwrap().reservations, free(2));
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_its_owner_takes_back_has_no_free_instance() {
    let watcher = begin().await;
    let (claim, node) = reserved_node(&watcher).await;
    let instance = instance_of(&watcher.world, &node);
    let body = json!({"version": "0", "source": "aws.ec2", "time": watcher.world.server().now().to_string(),
        "detail-type": "EC2 Capacity Reservation Instance Interruption Warning", "detail": {"instance-id": instance}});
    watcher.world.ec2.with(|cloud, now| cloud.queue.send(&instance, &body.to_string(), now));
    until_going(&watcher, &claim).await;
    assert_eq!(watcher.ledger().await.unwrap().reservations, free(0));
}

/// Only one of its instances ends, and the others stay free.
#[tokio::test(start_paused = true)]
async fn maintenance_says_nothing_of_the_capacity_of_a_reservation() {
    let watcher = begin().await;
    let (claim, node) = reserved_node(&watcher).await;
    announce_maintenance(&watcher, &[&instance_of(&watcher.world, &node)], None);
    until_going(&watcher, &claim).await;
    assert_eq!(watcher.ledger().await.unwrap().reservations, free(2));
}

/// EC2 is asked once a minute, and does not answer here. A watch that lags shows the claim after its Node is gone. If
/// answers are lost, the actuator does not get the one to its last write.
#[tokio::test(start_paused = true)]
async fn a_reservation_has_one_more_free_instance_once_a_claim_is_gone() {
    for (lag, loses_answers) in [(Duration::ZERO, false), (Duration::from_secs(5), false), (Duration::ZERO, true)] {
        let watcher = begin().await;
        let (claim, _) = reserved_node(&watcher).await;
        let no_answer = Effect::Drop;
        watcher.world.ec2.faults(|faults| faults.inject(Action::DescribeCapacityReservations, no_answer, u32::MAX));
        watcher.delay_watch("nodeclaims", lag);
        if loses_answers {
            let patches = Matcher::of(Verb::Patch, "nodeclaims");
            watcher.world.server().faults().always(patches, ApiEffect::LoseAnswer);
        }
        watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
        let is_gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none();
        watcher.until("the claim is gone", 2 * MINUTE, is_gone).await;
        // The actuator gets the response to its last write.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(watcher.ledger().await.unwrap().reservations, free(3), "{lag:?}, {loses_answers}");
        let text = watcher.plimsoll.metrics(&watcher.actuator()).unwrap().encode().unwrap();
        let counted = text.lines().filter(|line| line.starts_with("karpenter_nodeclaims_terminated_total{"));
        let counts: Vec<&str> = counted.filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(counts, ["1"], "{lag:?}, {loses_answers}");
    }
}
