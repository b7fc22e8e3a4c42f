//! Claims that are deleted while they are launched, or soon after.

use crate::fixture::{begin, launch, plan, start, wanted};
use plimsoll_actuator::ports::CloudError;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::world::World;
use plimsoll_tests::MINUTE;
use plimsoll_tests::fake_watcher::FakeWatcher;
use serde_json::json;
use std::time::Duration;

/// Rule 7: the claim counts towards limits until its instance is gone, but its pods do not wait for that.
#[tokio::test(start_paused = true)]
async fn the_pods_of_a_claim_being_deleted_get_another_node_at_once() {
    for new_leader in [false, true] {
        let (mut watcher, catalog, position) = begin().await;
        let of_pod = |action: &str| launch(&catalog, action, &["m6i.large"], "p-1");
        watcher.execute(plan(position, vec![of_pod("a-1")])).await.unwrap();
        let claims = watcher.settled(1).await;
        // The instance stays for as long as the test takes.
        let refused = Effect::Refuse(CloudError::Throttled);
        watcher.world.ec2.faults(|faults| faults.inject(Action::TerminateInstances, refused, u32::MAX));
        watcher.world.delete(ResourceId::NODE_CLAIMS, claims[0].metadata.name.as_deref().unwrap()).unwrap();
        if new_leader {
            watcher.replace_actuator();
            watcher.catalog().await;
        }
        // Time to see the deletion.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let position = watcher.position().await;
        let outcomes = watcher.execute(plan(position, vec![of_pod("b-1")])).await.unwrap();
        assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "new leader: {new_leader}, {outcomes:?}");
        assert_eq!((watcher.claims().await.len(), watcher.world.living_instances().len()), (2, 2));
    }
}

/// Sends a plan with one group while all fleet calls have this effect, and deletes the first claim of the group.
async fn deleted_meanwhile(watcher: &FakeWatcher, effect: Effect, launches: usize) {
    let catalog = watcher.catalog().await;
    let position = watcher.position().await;
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, effect, u32::MAX));
    drop(watcher.stream(plan(position, wanted(&catalog, launches))).await.unwrap());
    watcher.until_fleet_calls(1).await;
    let claims = watcher.claims().await;
    assert_eq!(claims.len(), launches);
    watcher.world.delete(ResourceId::NODE_CLAIMS, claims[0].metadata.name.as_deref().unwrap()).unwrap();
}

/// Rule 3. The pods of all claims of a group are planned again, and the next launch does not wait.
#[tokio::test(start_paused = true)]
async fn nothing_is_bought_for_claims_that_are_deleted_while_ec2_throttles_their_launch() {
    for launches in [1, 2] {
        let watcher = start();
        deleted_meanwhile(&watcher, Effect::Refuse(CloudError::Throttled), launches).await;
        let empty = |world: &World| world.all(ResourceId::NODE_CLAIMS).is_empty();
        watcher.world.until("all claims are deleted", Duration::from_secs(180), empty).await.unwrap();
        // The ledger learns of it, before a back-off would end.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let catalog = watcher.catalog().await;
        let position = watcher.position().await;
        watcher.world.ec2.faults(|faults| faults.clear());
        let again = (0..launches).map(|i| launch(&catalog, &format!("b-{i}"), &["m6i.large"], &format!("p-{i}")));
        let outcomes = watcher.execute(plan(position, again.collect())).await.unwrap();
        assert!(outcomes.iter().all(|outcome| outcome.status != OutcomeStatus::Rejected), "{outcomes:?}");
        // Longer than a request is sent again.
        tokio::time::sleep(Duration::from_secs(660)).await;
        let events = watcher.world.all(ResourceId::EVENTS);
        let warned = events.iter().any(|event| event["reason"] == "LaunchFailed");
        assert!(!warned, "no launch has failed: {events:?}");
        assert_eq!(watcher.bought(), launches, "only by the second plan");
    }
}

/// Rule 14: its instance would be launched after it is gone.
#[tokio::test(start_paused = true)]
async fn a_deleted_claim_stays_while_its_group_is_launched() {
    let watcher = start();
    // For all that the actuator knows, the first call has launched both.
    deleted_meanwhile(&watcher, Effect::Drop, 2).await;
    // Longer than look-ups by tag must find nothing.
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert_eq!(watcher.claims().await.len(), 2);
    watcher.world.ec2.faults(|faults| faults.clear());
    let only_one_stays =
        |world: &World| world.all(ResourceId::NODE_CLAIMS).len() == 1 && world.living_instances().len() == 1;
    watcher
        .world
        .until("the instance of the other claim stays", Duration::from_secs(600), only_one_stays)
        .await
        .unwrap();
    assert_eq!(watcher.bought(), 2, "one for each claim of the group");
}

/// A former leader stopped before it had written all claims of a group, so that nothing was sent for them.
#[tokio::test(start_paused = true)]
async fn the_pods_of_a_claim_that_was_never_sent_for_do_not_wait_until_the_watch_shows_its_end() {
    let (watcher, catalog, _) = begin().await;
    let annotations =
        json!({annotation::LAUNCH_GROUP: r#"{"v":1,"id":"other","size":2}"#, annotation::PODS: r#"["p-0"]"#});
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let part = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "part", "labels": {"karpenter.sh/nodepool": "default"}, "annotations": annotations},
        "spec": {"nodeClassRef": class, "requirements": []}});
    watcher.world.apply_object(&part).unwrap();
    // The watch shows the claim by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    watcher.delay_watch("nodeclaims", 5 * MINUTE);
    let is_gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, "part").is_none();
    watcher.until("the claim is deleted", MINUTE, is_gone).await;
    // The ledger learns of it.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let position = watcher.position().await;
    let outcomes = watcher.send(plan(position, wanted(&catalog, 1))).await;
    assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "{outcomes:?}");
}
