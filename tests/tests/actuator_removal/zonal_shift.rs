//! Removals in a zone that the cluster is shifted away from (docs/zonal-shift.md).

use crate::undone::forbid_deletion;
use crate::{is_tainted, until_undone};
use plimsoll_actuator::ports::ZonalShift;
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::plimsoll::Options;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};

/// Whoever makes the plan.
#[tokio::test(start_paused = true)]
async fn a_removal_that_has_not_deleted_its_claim_is_undone_and_no_other_begins() {
    let options = Options { zonal_shift: true, ..Options::default() };
    let watcher = FakeWatcher::begin(Setup { options, ..Setup::default() }).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    forbid_deletion(&watcher, &claim);
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    watcher.until("the node is tainted", MINUTE, |world| is_tainted(world, &node)).await;
    let zone = watcher.world.living_instances().into_values().next().unwrap().zone;
    watcher.world.ec2.with(|cloud, _| {
        let subnet = cloud.subnets.values().find(|subnet| subnet.zone == zone).unwrap();
        cloud.zonal_shifts = vec![ZonalShift { zone_id: subnet.zone_id.clone(), expires: None }];
    });
    // The shifts are read every 30 s, and the deletion is tried again after as long.
    until_undone(&watcher, &claim, &node, 2 * MINUTE).await;
    let outcome = watcher.remove("r-2", &node, DisruptionReason::Empty, None).await;
    let expected = (OutcomeStatus::Rejected, Some(OutcomeReason::NodeChanged));
    assert_eq!((outcome.status, outcome.reason), expected, "{outcome:?}");
    let actions = "plimsoll_actuator_actions_total";
    let of = |outcome: &str| watcher.counted(actions, &[("kind", "termination"), ("outcome", outcome)]);
    assert_eq!((of("accepted"), of("rejected")), (1, 1));
    let rejections = "karpenter_voluntary_disruption_failed_validations_total";
    assert_eq!(watcher.counted(rejections, &[("consolidation_type", "empty")]), 1);
    // Nodes are looked at every five minutes.
    tokio::time::sleep(6 * MINUTE).await;
    let blocked =
        format!("DisruptionBlocked: The node cannot be disrupted: the cluster is shifted away from its zone {zone}");
    let events = watcher.world.events_of("Node", &node);
    assert!(events.contains(&blocked), "{events:?}");
    // A watch cache that lags may show the removal once more after it was undone.
    let failures = "karpenter_voluntary_disruption_queue_failures_total";
    assert!(of("failed") > 0 && watcher.counted(failures, &[("decision", "delete"), ("reason", "empty")]) > 0);
}
