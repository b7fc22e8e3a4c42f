//! Crashes and lost responses of the actuator where something could be launched twice or lost (safety rules 2 to 4,
//! 16).

use crate::fixture::{begin, plan, wanted};
use plimsoll_api::NodeClaim;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::names::annotation;
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_sim::apiserver::faults::{Effect as ClusterEffect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_tests::fake_watcher::FakeWatcher;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_for_again_under_the_same_token() {
    let (watcher, catalog, position) = begin().await;
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::LoseAnswer, 2));
    let outcomes = watcher.execute(plan(position, wanted(&catalog, 2))).await.unwrap();
    assert!(outcomes.iter().filter(|it| it.status == OutcomeStatus::Launched).count() == 2, "{outcomes:?}");
    watcher.settled(2).await;
    let tokens = watcher.world.ec2.read(|cloud, _| {
        let calls = cloud.log.iter().filter(|call| call.action == Action::CreateFleet);
        calls.map(|call| call.about.clone()).collect::<Vec<_>>()
    });
    assert_eq!(tokens.len(), 3);
    assert!(tokens.windows(2).all(|pair| pair[0] == pair[1]), "{tokens:?}");
}

/// Number of claims that the actuator launches before it dies.
const LAUNCHES: usize = 3;

/// Kills the actuator while one of its calls is held, releases the call, and starts a replacement.
async fn dies_while_held(hold: impl FnOnce(&FakeWatcher, Gate)) {
    dies_later(Duration::ZERO, hold).await;
}

/// As [`dies_while_held`], after this delay.
async fn dies_later(later: Duration, hold: impl FnOnce(&FakeWatcher, Gate)) {
    let (mut watcher, catalog, position) = begin().await;
    let wanted = plan(position, wanted(&catalog, LAUNCHES));
    let gate = Gate::default();
    hold(&watcher, gate.clone());
    let execution = watcher.execute(wanted.clone());
    tokio::select! {
        answer = execution => panic!("it ended: {answer:?}"),
        () = gate.reached(1) => {}
    }
    tokio::time::sleep(later).await;
    watcher.kill_actuator();
    watcher.world.server().faults().clear_rules();
    gate.open();
    watcher.start_actuator();
    watcher.catalog().await;
    // The watcher plans again for pods without a claim, with the ledger of the new leader, until none is missing.
    for sequence in 2..20 {
        let there = watcher.claims().await;
        let has_claim = |launch: &Launch| {
            let action =
                |claim: &NodeClaim| claim.metadata.annotations.as_ref().map(|it| it[annotation::ACTION_ID].clone());
            there.iter().any(|claim| action(claim) == Some(launch.action_id.0.clone()))
        };
        let mut again = Plan { snapshot_sequence: sequence, ledger: watcher.position().await, ..wanted.clone() };
        again.launches.retain(|launch| !has_claim(launch));
        if !again.launches.is_empty() {
            watcher.execute(again).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    watcher.settled(LAUNCHES).await;
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_dies_when_the_first_claim_is_written_leaves_one_instance_per_claim() {
    dies_while_held(|watcher, gate| {
        watcher.world.server().faults().next(
            1,
            Matcher::of(Verb::Create, "nodeclaims"),
            ClusterEffect::HoldAfter(gate),
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_dies_before_the_fleet_is_called_leaves_one_instance_per_claim() {
    dies_while_held(|watcher, gate| {
        watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::HoldBefore(gate), 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_dies_before_the_answer_comes_leaves_one_instance_per_claim() {
    dies_while_held(|watcher, gate| {
        watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::HoldAfter(gate), 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_dies_while_it_writes_the_match_leaves_one_instance_per_claim() {
    dies_while_held(|watcher, gate| {
        watcher.world.server().faults().next(
            1,
            Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") },
            ClusterEffect::HoldBefore(gate),
        );
    })
    .await;
}

/// Rule 4: recorded matches are final, and the others are matched around them.
#[tokio::test(start_paused = true)]
async fn an_actuator_that_dies_with_a_part_of_the_match_written_leaves_one_instance_per_claim() {
    dies_later(Duration::from_secs(2), |watcher, gate| {
        watcher.world.server().faults().next(
            1,
            Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") },
            ClusterEffect::HoldBefore(gate),
        );
    })
    .await;
}
