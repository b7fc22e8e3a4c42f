//! The watcher's Lease, which says whose plans are executed (rule 17).

use crate::fixture::{plan, start, statuses, wanted};
use plimsoll_model::execution::OutcomeStatus::{Accepted, Launched};
use plimsoll_model::names::lease;
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{Audit, ResourceId};
use plimsoll_sim::machines::NAMESPACE;
use plimsoll_tests::fake_watcher::FakeWatcher;
use serde_json::json;
use std::time::Duration;

/// How often the actuator has read the Lease so far.
fn reads(watcher: &FakeWatcher) -> usize {
    let audit = watcher.world.server().audit();
    let is_lease = |entry: &&Audit| entry.resource == ResourceId::LEASES && entry.name == lease::WATCHER;
    audit.iter().filter(is_lease).filter(|entry| entry.verb == Verb::Get).count()
}

/// The actuator follows the Lease, so that the first plan of a new watcher waits for no read. Renewals need none
/// either.
#[tokio::test(start_paused = true)]
async fn a_new_watcher_is_known_before_its_first_plan() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    watcher.position().await;
    let before = reads(&watcher);
    watcher.give_lease_to(("watcher-2", 2));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(reads(&watcher), before + 1, "the watch may lag, so the Lease is read once");
    for second in 0..5 {
        let renewed = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": lease::WATCHER, "namespace": NAMESPACE},
            "spec": {"renewTime": format!("2026-01-05T00:10:0{second}.000000Z")}});
        watcher.world.apply_object(&renewed).unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let position = watcher.position().await;
    let outcomes = watcher.execute_as(("watcher-2", 2), plan(position, wanted(&catalog, 1))).await.unwrap();
    assert_eq!(statuses(&outcomes), [Accepted, Launched], "{outcomes:?}");
    assert_eq!(reads(&watcher), before + 1);
}
