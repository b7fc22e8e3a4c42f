//! Replacements that the actuator launches on its own.

use super::{NOTICE, announce_maintenance, begin, interrupt, spot, with_pods};
use plimsoll_model::catalog::CapacityType;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{Wanted, future_pod, launch};
use plimsoll_tests::{MINUTE, instance_of, instances_ever_launched, running_on};
use serde_json::json;
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

/// Of the two types of the claim, only the cheaper one is left out, and only in the zone of the old node. The cheapest
/// offerings are in the other zones, where the pod's volume cannot be attached.
#[tokio::test(start_paused = true)]
async fn the_replacement_of_a_node_with_volumes_is_in_the_same_zone() {
    let watcher = begin().await;
    let types = ["c6i.large", "m6i.large"];
    let catalog = watcher.catalog().await;
    let mut plan = watcher.plan(&[], Vec::new()).await;
    plan.launches = vec![launch(&catalog, "a-1", &types, CapacityType::OnDemand, vec![future_pod("db")])];
    let claim = watcher.send(plan).await[0].node_claim.clone().unwrap();
    let is_in_service = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim);
        claim.is_some_and(|claim| object::condition_is_true(&claim, "Initialized"))
    };
    watcher.until("the node is in service", 3 * MINUTE, is_in_service).await;
    let node = object::text(&watcher.claim(&claim).unwrap(), &["status", "nodeName"]).to_owned();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db"}, "spec": {"nodeName": node,
        "containers": [{"name": "main", "image": "example.com/app:1"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
    watcher.world.apply_object(&pod).unwrap();
    watcher.until("the pod runs", MINUTE, |world| running_on(world, &node) == 1).await;
    let instance = instance_of(&watcher.world, &node);
    announce_maintenance(&watcher, &[&instance], None);
    let launched = |world: &World| instances_ever_launched(world).len() == 2;
    watcher.until("the replacement is launched", MINUTE, launched).await;
    let machines = watcher.world.living_instances();
    let old = &machines[&instance];
    let new = machines.values().find(|machine| machine.id != instance).unwrap();
    assert_eq!((old.instance_type.as_str(), new.instance_type.as_str()), (types[0], types[1]));
    assert_eq!(new.zone, old.zone);
}
