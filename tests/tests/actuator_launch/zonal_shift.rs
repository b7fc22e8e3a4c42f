//! Launches that are under way when the cluster is shifted away from a zone.

use plimsoll_actuator::ports::{CloudError, ZonalShift};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::plimsoll::Options;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, future_pod};
use plimsoll_tests::{MINUTE, Setup, instances_ever_launched};

#[tokio::test(start_paused = true)]
async fn a_request_for_a_shifted_zone_gets_no_further_attempt() {
    let mut setup = Setup::default();
    setup.options = Options { zonal_shift: true, ..setup.options };
    let watcher = FakeWatcher::begin(setup).await;
    // Six pauses of 1 s to 32 s, in which the shift is read, until EC2 refuses the first attempt.
    watcher.world.ec2.faults(|faults| {
        faults.inject(Action::CreateFleet, Effect::Refuse(CloudError::Throttled), 6);
        let denied = CloudError::Denied { message: "not allowed".to_owned() };
        faults.inject(Action::CreateFleet, Effect::Refuse(denied), 1);
    });
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
    let (outcome, ()) = tokio::join!(watcher.final_outcome(plan), shift);
    let expected = (OutcomeStatus::Failed, Some(OutcomeReason::NoCapacity));
    assert_eq!((outcome.status, outcome.reason), expected, "{outcome:?}");
    assert!(outcome.message.contains("zonal shift"), "{outcome:?}");
    assert!(instances_ever_launched(&watcher.world).is_empty());
}
