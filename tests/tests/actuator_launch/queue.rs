//! The time of the interruption queue's last read, by which an alert notices that it is not read.

use crate::fixture::start;
use plimsoll_actuator::ports::CloudError;
use plimsoll_model::names::lease;
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_tests::MINUTE;
use plimsoll_tests::fake_watcher::FakeWatcher;
use serde_json::json;
use std::time::Duration;

/// Two reads of Karpenter's Lease.
const PAUSE_NOTICED: Duration = Duration::from_secs(10);

fn last_read(watcher: &FakeWatcher) -> f64 {
    let text = watcher.plimsoll.metrics(&watcher.actuator()).unwrap().encode().unwrap();
    let name = "plimsoll_actuator_interruption_queue_last_receive_timestamp_seconds ";
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
}

fn calls(watcher: &FakeWatcher) -> usize {
    watcher.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::ReceiveMessage).count())
}

/// Karpenter's Lease, held for ten minutes, or released.
fn karpenter(watcher: &FakeWatcher, holder: &str) {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": lease::KARPENTER, "namespace": "kube-system"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 600}});
    watcher.world.apply_object(&lease).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_was_never_read_has_a_time_except_while_paused() {
    let watcher = start();
    let refused = Effect::Refuse(CloudError::Throttled);
    watcher.world.ec2.faults(|faults| faults.inject(Action::ReceiveMessage, refused, u32::MAX));
    watcher.catalog().await;
    tokio::time::sleep(MINUTE).await;
    let begun = last_read(&watcher);
    assert!(begun > 0.0, "the time at which reading began");
    tokio::time::sleep(MINUTE).await;
    assert!((last_read(&watcher) - begun).abs() < 1e-6, "no read succeeded");

    karpenter(&watcher, "karpenter-1");
    tokio::time::sleep(PAUSE_NOTICED).await;
    assert!(last_read(&watcher).abs() < 1e-6, "Karpenter reads the queue");
    let before = calls(&watcher);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(calls(&watcher), before);

    karpenter(&watcher, "");
    // Karpenter may return for a minute.
    tokio::time::sleep(MINUTE + PAUSE_NOTICED).await;
    assert!(last_read(&watcher) > begun + 2.0 * MINUTE.as_secs_f64(), "reading began again");
    assert!(calls(&watcher) > before);
}
