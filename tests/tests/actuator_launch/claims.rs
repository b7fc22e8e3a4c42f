//! Creation of claims: names that are taken, and an API server that is busy.

use crate::fixture::{begin, plan, wanted};
use plimsoll_actuator::state::launch_group::claim_name;
use plimsoll_model::execution::{Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::cloud::{Action, Effect as CloudEffect};
use plimsoll_tests::fake_watcher::FakeWatcher;
use serde_json::json;
use std::time::Duration;

/// Name of the claim for the first launch of [`wanted`].
fn name() -> String {
    claim_name(&"default".into(), &"a-0".into())
}

fn assert_refused(outcomes: &[Outcome], watcher: &FakeWatcher) {
    let last = outcomes.last().unwrap();
    let expected = (OutcomeStatus::Failed, Some(OutcomeReason::ClusterRefused));
    assert_eq!((last.status, last.reason), expected, "{outcomes:?}");
    assert_eq!(watcher.fleet_calls(), 0);
}

/// The instance of another group would be launched for this one.
#[tokio::test(start_paused = true)]
async fn a_claim_of_the_same_action_in_another_group_is_left_alone() {
    let (watcher, catalog, position) = begin().await;
    // The actuator does not see the change yet.
    watcher.world.server().faults().lag_watches(watcher.actuator(), Duration::from_secs(60));
    let annotations =
        json!({annotation::ACTION_ID: "a-0", annotation::LAUNCH_GROUP: r#"{"v":1,"id":"other","size":1}"#});
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let other = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name(), "annotations": annotations}, "spec": {"nodeClassRef": class, "requirements": []}});
    watcher.world.apply_object(&other).unwrap();
    let outcomes = watcher.execute(plan(position, wanted(&catalog, 1))).await.unwrap();
    assert_refused(&outcomes, &watcher);
    let claims = watcher.claims().await;
    assert!(claims.len() == 1 && claims[0].metadata.deletion_timestamp.is_none(), "{claims:?}");
}

/// A user deletes the claim before the actuator knows that it was written.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_being_deleted_is_not_bought() {
    let (watcher, catalog, position) = begin().await;
    let (creates, gate) = (Matcher::of(Verb::Create, "nodeclaims"), Gate::default());
    let faults = watcher.world.server().faults();
    faults.next(1, creates.clone(), Effect::LoseAnswer);
    faults.nth(2, creates, Effect::HoldBefore(gate.clone()));
    let user = async {
        gate.reached(1).await;
        watcher.world.delete(ResourceId::NODE_CLAIMS, &name()).unwrap();
        gate.open();
    };
    let (outcomes, ()) = tokio::join!(watcher.execute(plan(position, wanted(&catalog, 1))), user);
    assert_refused(&outcomes.unwrap(), &watcher);
}

/// A rate-limited create wrote nothing. Its pods are planned again if that does not end soon.
#[tokio::test(start_paused = true)]
async fn a_rate_limited_create_is_tried_three_times() {
    for (limited, end) in [(2, OutcomeStatus::Launched), (u32::MAX, OutcomeStatus::Failed)] {
        let (watcher, catalog, position) = begin().await;
        let creates = Matcher::of(Verb::Create, "nodeclaims");
        watcher.world.server().faults().next(limited, creates, Effect::throttle(1));
        let outcomes = watcher.execute(plan(position, wanted(&catalog, 1))).await.unwrap();
        assert_eq!(outcomes.last().unwrap().status, end, "{outcomes:?}");
        let calls = watcher.world.server().audit();
        let creates = calls.iter().filter(|it| it.verb == Verb::Create && it.resource == ResourceId::NODE_CLAIMS);
        assert_eq!(creates.count(), 3, "{end:?}");
    }
}

/// Somebody removes its finalizer and deletes it. Garbage collection would wait for two minutes at least.
#[tokio::test(start_paused = true)]
async fn the_instance_of_a_claim_that_has_gone_meanwhile_is_terminated_at_once() {
    let (watcher, catalog, position) = begin().await;
    let slow = CloudEffect::Delay(Duration::from_secs(5));
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, slow, 1));
    let user = async {
        while watcher.claims().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let no_finalizers = json!({"metadata": {"finalizers": null}});
        watcher.world.patch(ResourceId::NODE_CLAIMS, &name(), no_finalizers).unwrap();
        watcher.world.delete(ResourceId::NODE_CLAIMS, &name()).unwrap();
        let start = tokio::time::Instant::now();
        while watcher.bought() == 0 || !watcher.world.living_instances().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(60), "launched {}, and running", watcher.bought());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let (_outcomes, ()) = tokio::join!(watcher.execute(plan(position, wanted(&catalog, 1))), user);
}
