//! Replacements that the actuator launches on its own.

use super::{NOTICE, begin, interrupt, spot, with_pods};
use plimsoll_model::catalog::CapacityType;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_tests::fake_watcher::Wanted;
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
