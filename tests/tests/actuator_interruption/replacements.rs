//! Replacements that the actuator launches on its own.

use super::{begin, interrupt, with_pods};
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_tests::instances_ever_launched;
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
