//! Launches that are under way when the cluster is shifted away from a zone.

use plimsoll_actuator::ports::{CloudError, ZonalShift};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::{Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::plimsoll::Options;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, future_pod};
use plimsoll_tests::{MINUTE, Setup, instances_ever_launched};

/// A watcher whose actuator follows zonal shifts. EC2 throttles the first six requests. In the pauses of 1 s to 32 s
/// after them, the shift is read.
async fn throttled() -> FakeWatcher {
    let mut setup = Setup::default();
    setup.options = Options { zonal_shift: true, ..setup.options };
    let watcher = FakeWatcher::begin(setup).await;
    watcher.world.ec2.faults(|faults| faults.throttle(Action::CreateFleet, 6));
    watcher
}

/// The outcome of a launch if the cluster is shifted away from its zone once the first request was sent.
async fn outcome_of_launch(watcher: &FakeWatcher) -> Outcome {
    let pods = vec![future_pod("p")];
    let wanted = Wanted { action: "a-1", instance_type: "m6i.large", capacity_type: CapacityType::OnDemand, pods };
    let plan = watcher.plan(&[wanted], Vec::new()).await;
    let zone = plan.launches[0].offerings[0].zone.clone();
    let shift = async {
        let sent =
            |world: &World| world.ec2.read(|cloud, _| cloud.log.iter().any(|call| call.action == Action::CreateFleet));
        watcher.until("the request is sent", MINUTE, sent).await;
        watcher.world.ec2.with(|cloud, _| {
            let subnet = cloud.subnets.values().find(|subnet| subnet.zone == zone).unwrap();
            cloud.zonal_shifts = vec![ZonalShift { zone_id: subnet.zone_id.clone(), expires: None }];
        });
    };
    tokio::join!(watcher.final_outcome(plan), shift).0
}

fn assert_failed(watcher: &FakeWatcher, outcome: &Outcome) {
    let expected = (OutcomeStatus::Failed, Some(OutcomeReason::NoCapacity));
    assert_eq!((outcome.status, outcome.reason), expected, "{outcome:?}");
    assert!(outcome.message.contains("zonal shift"), "{outcome:?}");
    assert!(instances_ever_launched(&watcher.world).is_empty());
}

/// EC2 would accept the seventh request.
#[tokio::test(start_paused = true)]
async fn a_request_that_has_launched_nothing_is_not_sent_during_a_shift_away_from_its_zone() {
    let watcher = throttled().await;
    assert_failed(&watcher, &outcome_of_launch(&watcher).await);
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_shifted_zone_gets_no_further_attempt() {
    let watcher = throttled().await;
    // EC2 would refuse the seventh request, and another attempt would follow.
    watcher.world.ec2.faults(|faults| {
        let denied = CloudError::Denied { message: "not allowed".to_owned() };
        faults.inject(Action::CreateFleet, Effect::Refuse(denied), 1);
    });
    assert_failed(&watcher, &outcome_of_launch(&watcher).await);
}
