//! Claims that are deleted while they are launched, or soon after.

use crate::fixture::{Fixture, WATCHER, fleet_calls, launch, plan, wanted};
use plimsoll_actuator::ports::CloudError;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::world::World;
use std::time::Duration;

/// Rule 7: the claim counts towards limits until its instance is gone, but its pods do not wait for that.
#[tokio::test(start_paused = true)]
async fn the_pods_of_a_claim_being_deleted_get_another_node_at_once() {
    for new_leader in [false, true] {
        let fixture = Fixture::begin().await;
        let first = fixture.start("actuator-1");
        let catalog = fixture.catalog().await;
        let position = fixture.ledger().await.position;
        let of_pod = |action: &str| launch(&catalog, action, &["m6i.large"], "p-1");
        fixture.execute(WATCHER, plan(position, vec![of_pod("a-1")])).await.unwrap();
        let claims = fixture.settled(1).await;
        // The instance stays for as long as the test takes.
        let refused = Effect::Refuse(CloudError::Throttled);
        fixture.world.ec2.faults(|faults| faults.inject(Action::TerminateInstances, refused, u32::MAX));
        fixture.world.delete(ResourceId::NODE_CLAIMS, claims[0].metadata.name.as_deref().unwrap()).unwrap();
        if new_leader {
            fixture.kill(&first);
            let _second = fixture.start("actuator-2");
            fixture.catalog().await;
        }
        // Time to see the deletion.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let position = fixture.ledger().await.position;
        let outcomes = fixture.execute(WATCHER, plan(position, vec![of_pod("b-1")])).await.unwrap();
        assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "new leader: {new_leader}, {outcomes:?}");
        assert_eq!((fixture.claims().await.len(), fixture.world.living_instances().len()), (2, 2));
    }
}

/// Sends a plan with one group while EC2 throttles all fleet calls, and deletes the first claim of the group.
async fn deleted_while_throttled(fixture: &Fixture, launches: usize) {
    let catalog = fixture.catalog().await;
    let position = fixture.ledger().await.position;
    fixture.world.ec2.faults(|faults| faults.throttle(Action::CreateFleet, u32::MAX));
    drop(fixture.send(WATCHER, plan(position, wanted(&catalog, launches))).await.unwrap());
    while fleet_calls(fixture) == 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let claims = fixture.claims().await;
    assert_eq!(claims.len(), launches);
    fixture.world.delete(ResourceId::NODE_CLAIMS, claims[0].metadata.name.as_deref().unwrap()).unwrap();
}

/// Rule 3.
#[tokio::test(start_paused = true)]
async fn nothing_is_bought_for_claims_that_are_deleted_while_ec2_throttles_their_launch() {
    let fixture = Fixture::begin().await;
    let _actuator = fixture.start("actuator-1");
    deleted_while_throttled(&fixture, 1).await;
    tokio::time::sleep(Duration::from_secs(180)).await;
    fixture.world.ec2.faults(|faults| faults.clear());
    // Longer than a request is sent again.
    tokio::time::sleep(Duration::from_secs(660)).await;
    assert_eq!((fixture.bought(), fixture.claims().await.len()), (0, 0));
}

/// Rule 14: its instance would be launched after it is gone.
#[tokio::test(start_paused = true)]
async fn a_deleted_claim_stays_while_its_group_is_launched() {
    let fixture = Fixture::begin().await;
    let _actuator = fixture.start("actuator-1");
    deleted_while_throttled(&fixture, 2).await;
    // Longer than look-ups by tag must find nothing.
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert_eq!(fixture.claims().await.len(), 2);
    fixture.world.ec2.faults(|faults| faults.clear());
    let only_one_stays =
        |world: &World| world.all(ResourceId::NODE_CLAIMS).len() == 1 && world.living_instances().len() == 1;
    fixture
        .world
        .until("the instance of the other claim stays", Duration::from_secs(600), only_one_stays)
        .await
        .unwrap();
    assert_eq!(fixture.bought(), 2, "one for each claim of the group");
}
