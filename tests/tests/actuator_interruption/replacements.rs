//! Replacements that the actuator launches on its own.

use super::lost_capacity::{reservation, reserve};
use super::{NOTICE, announce_maintenance, begin, interrupt, spot, with_pods};
use plimsoll_actuator::ports::CapacityReservation;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::snapshot::ReservationCount;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Capacity, Machine, Pool};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, future_pod, launch};
use plimsoll_tests::{MINUTE, Setup, instance_of, instances_ever_launched, running_on};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The node class is being deleted, and still has a catalog. Plans would move pods to the node, which never comes.
#[tokio::test(start_paused = true)]
async fn a_replacement_that_cannot_be_requested_leaves_no_claim_in_the_ledger() {
    let watcher = begin().await;
    let (claim, _, instance) = with_pods(&watcher).await;
    watcher.world.delete(ResourceId::EC2_NODE_CLASSES, "default").unwrap();
    interrupt(&watcher, &instance);
    // Plans are waited for during the first five seconds.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 1);
    let in_flight = watcher.ledger().await.unwrap().upserted;
    assert_eq!(in_flight.iter().map(|claim| claim.name.as_str()).collect::<Vec<_>>(), [claim]);
}

/// The pod of either node fits on the third node, but not both pods.
#[tokio::test(start_paused = true)]
async fn two_interrupted_nodes_do_not_count_on_the_same_room() {
    let watcher = begin().await;
    let mut interrupted = Vec::new();
    for (action, app) in [("a-1", "one"), ("a-2", "two")] {
        let (_, node) = watcher.node(&spot(action)).await;
        watcher.world.deploy(app, 1, &json!({"cpu": "1500m"}), &json!({})).unwrap();
        watcher.until("the pod runs", MINUTE, |world| running_on(world, &node) == 1).await;
        interrupted.push(node);
    }
    let (_, third) = watcher.node(&Wanted { capacity_type: CapacityType::OnDemand, ..spot("a-3") }).await;
    for node in &interrupted {
        interrupt(&watcher, &instance_of(&watcher.world, node));
    }
    // Plans are waited for during the first five seconds.
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(running_on(&watcher.world, &third), 1);
    assert_eq!(watcher.world.running_pods(), 2, "the other pod runs until its new node is in service");
    assert_eq!(instances_ever_launched(&watcher.world).len(), 4, "one replacement");
    watcher
        .until("both pods run elsewhere", NOTICE, |world| {
            world.running_pods() == 2 && interrupted.iter().all(|node| running_on(world, node) == 0)
        })
        .await;
}

/// Types of the nodes with volumes, the cheaper one first.
const TYPES: [&str; 2] = ["c6i.large", "m6i.large"];

/// A node with a pod that has a volume. Returns the id of its instance.
async fn with_volume(watcher: &FakeWatcher, capacity_type: CapacityType) -> String {
    let catalog = watcher.catalog().await;
    let mut plan = watcher.plan(&[], Vec::new()).await;
    plan.launches = vec![launch(&catalog, "a-1", &TYPES, capacity_type, vec![future_pod("db")])];
    let claim = watcher.send(plan).await[0].node_claim.clone().unwrap();
    let node = watcher.in_service(&claim).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db"}, "spec": {"nodeName": node,
        "containers": [{"name": "main", "image": "example.com/app:1"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
    watcher.world.apply_object(&pod).unwrap();
    watcher.until("the pod runs", MINUTE, |world| running_on(world, &node) == 1).await;
    instance_of(&watcher.world, &node)
}

fn machine(world: &World, instance: &str) -> Machine {
    world.ec2.read(|cloud, _| cloud.machines()[instance].clone())
}

/// Waits until the instance is replaced. Returns the new one.
async fn replacement_of(watcher: &FakeWatcher, instance: &str) -> Machine {
    let launched = |world: &World| instances_ever_launched(world).len() == 2;
    watcher.until("the replacement is launched", MINUTE, launched).await;
    let mut machines = watcher.world.living_instances().into_values();
    machines.find(|machine| machine.id != instance).unwrap()
}

/// Of the two types of the claim, only the cheaper one is left out, and only in the zone of the old node. The cheapest
/// offerings are in the other zones, where the pod's volume cannot be attached.
#[tokio::test(start_paused = true)]
async fn the_replacement_of_a_node_with_volumes_is_in_the_same_zone() {
    let watcher = begin().await;
    let instance = with_volume(&watcher, CapacityType::OnDemand).await;
    announce_maintenance(&watcher, &[&instance], None);
    let new = replacement_of(&watcher, &instance).await;
    let old = machine(&watcher.world, &instance);
    assert_eq!([old.instance_type.as_str(), new.instance_type.as_str()], TYPES);
    assert_eq!(new.zone, old.zone);
}

/// The volume may be one that can be attached anywhere.
#[tokio::test(start_paused = true)]
async fn a_node_with_volumes_is_replaced_although_the_reservations_of_its_zone_are_full() {
    let watcher = begin().await;
    let reservations =
        [("cr-1", 0, "us-west-2a"), ("cr-2", 1, "us-west-2a"), ("cr-3", 0, "us-west-2b"), ("cr-4", 1, "us-west-2b")]
            .map(|(id, kind, zone)| reservation(id, TYPES[kind], zone, 1));
    reserve(&watcher, reservations.to_vec()).await;
    let instance = with_volume(&watcher, CapacityType::Reserved).await;
    let old = machine(&watcher.world, &instance);
    let is_near =
        |one: &&CapacityReservation| one.zone == old.zone && Some(&one.id) != old.capacity_reservation_id.as_ref();
    let near = reservations.iter().find(is_near).unwrap().clone();
    // Others use it.
    watcher.world.ec2.with(|cloud, _| cloud.reserve(CapacityReservation { free: 0, ..near.clone() }));
    // EC2 is asked once a minute.
    tokio::time::sleep(2 * MINUTE).await;
    let counts = watcher.ledger().await.unwrap().reservations.unwrap();
    assert!(counts.contains(&ReservationCount { id: near.id, free: 0 }), "{counts:?}");
    announce_maintenance(&watcher, &[&instance], None);
    let new = replacement_of(&watcher, &instance).await;
    assert_ne!(new.zone, old.zone);
}

/// A launch has found that the other type lacks capacity there.
#[tokio::test(start_paused = true)]
async fn a_node_with_volumes_is_replaced_although_its_zone_lacks_capacity() {
    let watcher = begin().await;
    let instance = with_volume(&watcher, CapacityType::OnDemand).await;
    let old = machine(&watcher.world, &instance);
    let other = Pool::new(TYPES[1], &old.zone, CapacityType::OnDemand);
    watcher.world.ec2.with(|cloud, _| cloud.limit(other, Capacity::Instances(0)));
    let catalog = watcher.catalog().await;
    let mut refused = launch(&catalog, "a-2", &TYPES[1..], CapacityType::OnDemand, vec![future_pod("other")]);
    Arc::make_mut(&mut refused.offerings).retain(|choice| choice.zone == old.zone);
    let mut plan = watcher.plan(&[], Vec::new()).await;
    plan.launches = vec![refused];
    let outcome = watcher.final_outcome(plan).await;
    assert_eq!(outcome.reason, Some(OutcomeReason::NoCapacity), "{outcome:?}");
    announce_maintenance(&watcher, &[&instance], None);
    let new = replacement_of(&watcher, &instance).await;
    assert_ne!(new.zone, old.zone);
}

/// The pod has left before the new leader may launch.
#[tokio::test(start_paused = true)]
async fn a_delayed_replacement_of_a_node_with_volumes_is_in_the_same_zone() {
    let mut watcher = begin().await;
    let instance = with_volume(&watcher, CapacityType::OnDemand).await;
    announce_maintenance(&watcher, &[&instance], None);
    let is_draining = |world: &World| {
        world.all(ResourceId::NODE_CLAIMS).iter().all(|claim| object::condition(claim, "Drained").is_some())
    };
    watcher.until("the drain begins", Duration::from_secs(2), is_draining).await;
    watcher.replace_actuator();
    let leads = |_: &World| watcher.plimsoll.leader(Role::Actuator).is_some();
    watcher.until("the new actuator leads", MINUTE, leads).await;
    // It finds out that the pod needs a replacement.
    tokio::time::sleep(Duration::from_secs(1)).await;
    watcher.world.delete(ResourceId::PODS, "db").unwrap();
    let has_left = |world: &World| world.get(ResourceId::PODS, "db").is_none();
    watcher.until("the pod has left", Duration::from_secs(5), has_left).await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 1, "calls of the former leader may still take effect");
    let new = replacement_of(&watcher, &instance).await;
    assert_eq!(new.zone, machine(&watcher.world, &instance).zone);
}

/// Otherwise its pods may not fit.
#[tokio::test(start_paused = true)]
async fn a_replacement_is_like_the_old_node() {
    const TEAM: &str = "example.com/team";
    let requirements = json!([{"key": label::CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]},
                              {"key": TEAM, "operator": "In", "values": ["a", "b"]}]);
    let taints = json!([{"key": TEAM, "value": "any", "effect": "NoSchedule"}]);
    let pool = json!({"template": {"spec": {"requirements": requirements, "taints": taints}}});
    let watcher = FakeWatcher::begin(Setup::with_pool(pool)).await;
    let mut plan = watcher.plan(&[spot("a-1")], Vec::new()).await;
    // The pod selects the team.
    let selected = NodeSelectorRequirement::new(TEAM, Operator::In, vec!["a"]);
    Arc::make_mut(&mut plan.launches[0].requirements).push(selected);
    let claim = watcher.send(plan).await[0].node_claim.clone().unwrap();
    let node = watcher.in_service(&claim).await;
    let tolerations = json!({"tolerations": [{"key": TEAM, "operator": "Exists"}]});
    watcher.world.deploy("web", 1, &json!({"cpu": "500m"}), &tolerations).unwrap();
    watcher.until("the pod runs", MINUTE, |world| running_on(world, &node) == 1).await;
    let properties = |claim: &Value| {
        let team = object::items(claim, &["spec", "requirements"]).iter().find(|it| it["key"] == TEAM);
        (team.cloned(), claim["spec"]["taints"].clone(), claim["spec"]["resources"].clone())
    };
    let old = properties(&watcher.claim(&claim).unwrap());
    assert_eq!(old.0.as_ref().map(|team| &team["values"]), Some(&json!(["a"])), "{old:?}");
    interrupt(&watcher, &instance_of(&watcher.world, &node));
    let others = |world: &World| {
        let claims = world.all(ResourceId::NODE_CLAIMS);
        claims.iter().filter(|other| object::name(other) != claim).map(|other| properties(other)).collect::<Vec<_>>()
    };
    watcher.until("it is replaced", MINUTE, |world| !others(world).is_empty()).await;
    assert_eq!(others(&watcher.world), [old]);
    watcher
        .until("the pod runs elsewhere", NOTICE, |world| world.running_pods() == 1 && running_on(world, &node) == 0)
        .await;
}
