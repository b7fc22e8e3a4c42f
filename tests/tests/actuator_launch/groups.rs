//! Launch groups beside each other: none waits for another.

use crate::fixture::{Fixture, WATCHER, fleet_calls, plan, wanted};
use plimsoll_actuator::ports::CloudError;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_sim::cloud::{Action, Effect};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// As many groups as may send their requests at the same time.
const AT_ONCE: usize = 64;

/// The limit of the pool has room for all launches of a test.
async fn begin() -> Fixture {
    let fixture = Fixture::begin().await;
    let pool = plimsoll_tests::node_pool("default", &json!({"limits": {"cpu": "1000"}}));
    fixture.world.apply_object(&pool).unwrap();
    fixture
}

/// EC2 says that it knows their requests with other parameters, so their instances are looked up for two minutes.
#[tokio::test(start_paused = true)]
async fn groups_that_wait_keep_no_other_from_being_launched() {
    let fixture = begin().await;
    let _actuator = fixture.start("actuator-1");
    let catalog = fixture.catalog().await;
    let (refused, times) = (CloudError::IdempotentParameterMismatch, u32::try_from(AT_ONCE).unwrap());
    fixture.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::Refuse(refused), times));
    let mut launches = wanted(&catalog, AT_ONCE + 1);
    let last = launches.pop().unwrap();
    let position = fixture.ledger().await.position;
    for launch in launches {
        drop(fixture.send(WATCHER, plan(position, vec![launch])).await.unwrap());
    }
    while fleet_calls(&fixture) < AT_ONCE {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let began = Instant::now();
    let outcomes = fixture.execute(WATCHER, plan(position, vec![last])).await.unwrap();
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Launched, "{outcomes:?}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}
