//! Offerings on probation: EC2 refused them, and launched none of them since.

use crate::fixture::{launch, plan, start};
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::identity::ActionId;
use plimsoll_model::names::label;
use plimsoll_model::plan::Launch;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::cloud::{Capacity, Pool};
use plimsoll_tests::fake_watcher::FakeWatcher;
use std::sync::Arc;
use std::time::Duration;

/// Refused offerings are skipped for three minutes.
const SKIPPED: Duration = Duration::from_secs(181);

/// Statuses with which these launches were admitted or not, in order.
async fn admitted(watcher: &FakeWatcher, launches: Vec<Launch>) -> Vec<OutcomeStatus> {
    let actions: Vec<_> = launches.iter().map(|launch| launch.action_id.clone()).collect();
    let position = watcher.position().await;
    let outcomes = watcher.execute(plan(position, launches)).await.unwrap();
    let first = |action: &ActionId| outcomes.iter().find(|it| it.action_id == *action).unwrap().status;
    actions.iter().map(first).collect()
}

#[tokio::test(start_paused = true)]
async fn refused_offerings_are_tried_by_one_launch_at_a_time_until_one_is_launched() {
    use OutcomeStatus::{Accepted, Rejected};
    let watcher = start();
    let catalog = watcher.catalog().await;
    let pair = |actions: [&str; 2], types: &[&str]| actions.map(|it| launch(&catalog, it, types, it)).to_vec();
    let refused = launch(&catalog, "a", &["m6i.large"], "a");
    let limit = |capacity| {
        watcher.world.ec2.with(|cloud, _| {
            for choice in refused.offerings.iter() {
                cloud.limit(Pool::new(&choice.instance_type, &choice.zone, choice.capacity_type), capacity);
            }
        });
    };
    limit(Capacity::Instances(0));
    let position = watcher.position().await;
    let outcomes = watcher.execute(plan(position, vec![refused.clone()])).await.unwrap();
    assert_eq!(outcomes.last().unwrap().reason, Some(OutcomeReason::NoCapacity), "{outcomes:?}");
    tokio::time::sleep(SKIPPED).await;

    let both = pair(["b-1", "b-2"], &["m6i.large", "c6i.large"]);
    assert_eq!(admitted(&watcher, both).await, [Accepted; 2], "they accept another type as well");
    watcher.settled(2).await;

    limit(Capacity::Unlimited);
    assert_eq!(admitted(&watcher, pair(["c-1", "c-2"], &["m6i.large"])).await, [Accepted, Rejected]);
    let claims = watcher.settled(3).await;
    let labels = claims.iter().filter_map(|claim| claim.metadata.labels.as_ref());
    let zone = labels.clone().find(|labels| labels[label::INSTANCE_TYPE] == "m6i.large").unwrap()[label::ZONE].clone();
    let mut last = pair(["d-1", "d-2"], &["m6i.large"]);
    let in_zone = |launch: &mut Launch| Arc::make_mut(&mut launch.offerings).retain(|choice| choice.zone == zone);
    last.iter_mut().for_each(in_zone);
    assert_eq!(admitted(&watcher, last).await, [Accepted; 2], "one was launched in this zone");
}

/// EC2 answers a client token that it knows as it did before.
#[tokio::test(start_paused = true)]
async fn a_launch_that_is_planned_again_after_its_failure_is_launched() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let same = launch(&catalog, "a", &["m6i.large"], "a");
    for (capacity, status) in
        [(Capacity::Instances(0), OutcomeStatus::Failed), (Capacity::Unlimited, OutcomeStatus::Launched)]
    {
        watcher.world.ec2.with(|cloud, _| {
            for choice in same.offerings.iter() {
                cloud.limit(Pool::new(&choice.instance_type, &choice.zone, choice.capacity_type), capacity);
            }
        });
        let position = watcher.position().await;
        let outcomes = watcher.execute(plan(position, vec![same.clone()])).await.unwrap();
        assert_eq!(outcomes.last().unwrap().status, status, "{outcomes:?}");
        tokio::time::sleep(SKIPPED).await;
    }
    watcher.settled(1).await;
}

/// EC2 adds UnfulfillableCapacity to a request that it refuses for another reason.
#[tokio::test(start_paused = true)]
async fn an_invalid_request_closes_no_offering() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let invalid = launch(&catalog, "a", &["m6i.large"], "a");
    watcher.world.ec2.with(|cloud, _| {
        for (number, choice) in invalid.offerings.iter().enumerate() {
            let code = if number == 0 { "InvalidParameterValue" } else { "UnfulfillableCapacity" };
            let refused = Capacity::Refused(code, "Unable to fulfill capacity due to your request configuration.");
            cloud.limit(Pool::new(&choice.instance_type, &choice.zone, choice.capacity_type), refused);
        }
    });
    let position = watcher.position().await;
    let outcomes = watcher.execute(plan(position, vec![invalid])).await.unwrap();
    assert_eq!(outcomes.last().unwrap().reason, Some(OutcomeReason::CloudRefused), "{outcomes:?}");
    watcher.world.ec2.with(|cloud, _| cloud.limits.clear());
    // Longer than the pool pauses, and shorter than an offering is skipped.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let events = watcher.world.all(ResourceId::EVENTS);
    assert!(events.iter().any(|event| event["reason"] == "LaunchFailed"), "{events:?}");
    let mut valid = launch(&catalog, "b", &["m6i.large"], "b");
    Arc::make_mut(&mut valid.offerings).remove(0);
    assert_eq!(admitted(&watcher, vec![valid]).await, [OutcomeStatus::Accepted]);
    watcher.settled(1).await;
}
