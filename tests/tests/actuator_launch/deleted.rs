//! Claims that are deleted while they are launched, or soon after.

use crate::fixture::{Fixture, WATCHER, launch, plan};
use plimsoll_actuator::ports::CloudError;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::cloud::{Action, Effect};
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
