//! Writes of claims without a response: the actuator finds out the result, and never assumes "not written" (safety rule
//! 2).

use crate::fixture::{begin, forbidden, launch, plan, start, wanted};
use plimsoll_actuator::ports::CloudError;
use plimsoll_actuator::state::launch_group::claim_name;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::names::annotation;
use plimsoll_model::plan::OfferingChoice;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::faults::{Effect as ClusterEffect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Capacity, Effect, Pool};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{self, FakeWatcher};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Plans again for the pod of the first launch, with new actions, as a watcher does after a failure, until a launch
/// succeeds.
async fn until_launched(watcher: &FakeWatcher) -> OutcomeStatus {
    let catalog = watcher.catalog().await;
    for number in 0..20 {
        let position = watcher.position().await;
        let next = launch(&catalog, &format!("b-{number}"), &["m6i.large", "m6i.xlarge"], "p-0");
        let outcomes = watcher.execute(plan(position, vec![next])).await.unwrap();
        if outcomes.iter().any(|it| it.status == OutcomeStatus::Launched) {
            return OutcomeStatus::Launched;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    OutcomeStatus::Failed
}

/// Kills the actuator while the fleet call for a group of three claims is held.
async fn dies_in_fleet_call(watcher: &mut FakeWatcher, hold: fn(Gate) -> Effect) -> Gate {
    let catalog = watcher.catalog().await;
    let position = watcher.position().await;
    let gate = Gate::default();
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, hold(gate.clone()), 1));
    tokio::select! {
        answer = watcher.execute(plan(position, wanted(&catalog, 3))) => panic!("it ended: {answer:?}"),
        () = gate.reached(1) => {}
    }
    watcher.kill_actuator();
    gate
}

/// Deletes one claim of the group. The claim that is first by name stores the request, so the group is still found.
async fn delete_member(watcher: &FakeWatcher) {
    let last = watcher.claims().await.into_iter().filter_map(|claim| claim.metadata.name).max().unwrap();
    watcher.world.delete(ResourceId::NODE_CLAIMS, &last).unwrap();
    watcher.world.patch(ResourceId::NODE_CLAIMS, &last, json!({"metadata": {"finalizers": null}})).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_may_be_written_is_read_back_until_it_is_known() {
    let (watcher, catalog, position) = begin().await;
    let faults = watcher.world.server().faults();
    faults.next(1, Matcher::of(Verb::Create, "nodeclaims"), ClusterEffect::LoseAnswer);
    // The read-back gets no response either, for longer than a call may take.
    faults.next(1, Matcher::of(Verb::Get, "nodeclaims"), ClusterEffect::HoldAfter(Gate::default()));
    let outcomes = watcher.execute(plan(position, wanted(&catalog, 1))).await.unwrap();
    if outcomes.last().unwrap().status != OutcomeStatus::Launched {
        until_launched(&watcher).await;
    }
    // Time for a later leader to find the claim.
    tokio::time::sleep(Duration::from_secs(180)).await;
    watcher.settled(1).await;
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Launched, "{outcomes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_says_nothing_of_an_earlier_try_that_was_not_answered() {
    let (watcher, catalog, position) = begin().await;
    let claim = claim_name(&"default".into(), &"a-0".into());
    let creates = Matcher::of(Verb::Create, "nodeclaims");
    let faults = watcher.world.server().faults();
    faults.next(1, creates.clone(), ClusterEffect::Late(Duration::from_secs(45)));
    let denied = faults.always(creates, forbidden());
    let outcomes = watcher.execute(plan(position, wanted(&catalog, 1))).await.unwrap();
    faults.remove(denied);
    if outcomes.last().unwrap().status != OutcomeStatus::Launched {
        until_launched(&watcher).await;
    }
    tokio::time::sleep(Duration::from_secs(180)).await;
    let claims = watcher.settled(1).await;
    assert_eq!(claims[0].metadata.name.as_deref(), Some(claim.as_str()), "the late claim");
}

/// The next call is refused, but the first one may have launched an instance.
#[tokio::test(start_paused = true)]
async fn a_fleet_call_that_times_out_is_looked_up_before_its_claim_fails() {
    let (watcher, catalog, position) = begin().await;
    let message = "no such parameter".to_owned();
    let refused = CloudError::InvalidRequest { code: "InvalidParameterValue".to_owned(), message };
    watcher.world.ec2.faults(|faults| {
        faults.inject(Action::CreateFleet, Effect::HoldAfter(Gate::default()), 1);
        faults.inject(Action::CreateFleet, Effect::Refuse(refused), 1);
    });
    let outcomes = watcher.execute(plan(position, wanted(&catalog, 1))).await.unwrap();
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Launched, "{outcomes:?}");
    watcher.settled(1).await;
    assert_eq!(watcher.fleet_calls(), 2);
}

/// Other than internal errors of EC2. The next plan may ask for the same offerings.
#[tokio::test(start_paused = true)]
async fn requests_that_do_not_arrive_say_nothing_of_capacity() {
    let (watcher, catalog, position) = begin().await;
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::Drop, u32::MAX));
    // Ten minutes of requests, and two minutes of look-ups.
    let outcomes = watcher.execute(plan(position, wanted(&catalog, 1))).await.unwrap();
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Failed, "{outcomes:?}");
    let unavailable = watcher.ledger().await.unwrap().unavailable_offerings;
    assert!(unavailable.as_ref().is_none_or(Vec::is_empty), "{unavailable:?}");
}

/// The next plan would ask for the same ones.
#[tokio::test(start_paused = true)]
async fn offerings_for_which_ec2_answers_by_internal_errors_are_skipped() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let position = watcher.position().await;
    let message = "InternalError: An internal error has occurred".to_owned();
    let broken = Effect::Refuse(CloudError::Ambiguous { message });
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, broken, u32::MAX));
    let asked = launch(&catalog, "a-0", &["m6i.large"], "p-0");
    // A minute of requests, and two minutes of look-ups.
    let outcomes = watcher.execute(plan(position, vec![asked.clone()])).await.unwrap();
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Failed, "{outcomes:?}");
    assert_eq!(watcher.fleet_calls(), 7);
    let unavailable = watcher.ledger().await.unwrap().unavailable_offerings.unwrap_or_default();
    let skipped: BTreeSet<_> = unavailable.into_iter().map(|it| (it.instance_type, it.zone)).collect();
    let offering = |it: &OfferingChoice| (Some(it.instance_type.clone()), Some(it.zone.clone()));
    assert_eq!(skipped, asked.offerings.iter().map(offering).collect());
}

/// EC2 shows the instance after look-ups by tag have found nothing for two minutes. The NodeClaim cannot be deleted
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn a_node_whose_instance_is_found_after_its_launch_was_given_up_can_be_removed() {
    let mut setup = Setup::default();
    setup.world.settling = Duration::from_secs(180);
    // It becomes a Node after that.
    setup.world.boot = Duration::from_secs(200);
    let watcher = FakeWatcher::begin(setup).await;
    watcher.world.ec2.faults(|faults| {
        faults.inject(Action::CreateFleet, Effect::LoseAnswer, 1);
        faults.inject(Action::CreateFleet, Effect::Refuse(CloudError::IdempotentParameterMismatch), 1);
    });
    let faults = watcher.world.server().faults();
    let refused = faults.always(Matcher::of(Verb::Delete, "nodeclaims"), ClusterEffect::internal_error());
    let launched = watcher.plan(&[fake_watcher::wanted("a-1")], Vec::new()).await;
    let outcome = watcher.final_outcome(launched).await;
    assert_eq!(outcome.status, OutcomeStatus::Failed, "{outcome:?}");
    let claim = outcome.node_claim.unwrap();
    let node = watcher.in_service(&claim).await;
    faults.remove(refused);
    let outcome = watcher.remove("r-1", &node, DisruptionReason::Empty, None).await;
    assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
    let is_gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none();
    watcher.until("the claim is gone", 3 * MINUTE, is_gone).await;
    assert_eq!(watcher.bought(), 1);
}

/// It may still take effect, however often the API server is busy after that.
#[tokio::test(start_paused = true)]
async fn rate_limits_say_nothing_of_an_earlier_try_that_was_not_answered() {
    let (watcher, catalog, position) = begin().await;
    let creates = Matcher::of(Verb::Create, "nodeclaims");
    let faults = watcher.world.server().faults();
    faults.next(1, creates.clone(), ClusterEffect::Late(Duration::from_secs(20)));
    let limited = faults.always(creates, ClusterEffect::throttle(1));
    let (outcomes, ()) = tokio::join!(watcher.execute(plan(position, wanted(&catalog, 1))), async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        faults.remove(limited);
    });
    let outcomes = outcomes.unwrap();
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Launched, "{outcomes:?}");
    watcher.settled(1).await;
}

/// Its pods do not wait for ever.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_writes_are_never_answered_is_given_up_after_two_minutes() {
    let (watcher, catalog, position) = begin().await;
    let faults = watcher.world.server().faults();
    let dropped = faults.always(Matcher::of(Verb::Create, "nodeclaims"), ClusterEffect::Drop);
    let began = tokio::time::Instant::now();
    let outcomes = watcher.execute(plan(position, wanted(&catalog, 1))).await.unwrap();
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Failed, "{outcomes:?}");
    assert!((120..150).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    faults.remove(dropped);
    assert_eq!(until_launched(&watcher).await, OutcomeStatus::Launched);
    watcher.settled(1).await;
}

/// Later than the API server processes a request: the launch has failed, and its pods have another node by then.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_written_after_its_launch_failed_is_not_bought_for() {
    let (watcher, catalog, position) = begin().await;
    let claim = claim_name(&"default".into(), &"a-0".into());
    let creates = Matcher::of(Verb::Create, "nodeclaims");
    let faults = watcher.world.server().faults();
    faults.next(1, creates.clone(), ClusterEffect::Late(Duration::from_secs(150)));
    let denied = faults.always(creates, forbidden());
    let outcomes = watcher.execute(plan(position, wanted(&catalog, 1))).await.unwrap();
    faults.remove(denied);
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Failed, "{outcomes:?}");
    assert_eq!(until_launched(&watcher).await, OutcomeStatus::Launched);
    let appeared = |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_some();
    watcher.world.until("the late claim exists", Duration::from_secs(180), appeared).await.unwrap();
    let gone = |world: &World| !appeared(world);
    watcher.world.until("the late claim is deleted", Duration::from_secs(300), gone).await.unwrap();
    watcher.settled(1).await;
    assert_eq!(watcher.fleet_calls(), 1);
}

/// A fleet call is for all claims of its group: with a missing claim, it would launch too many instances.
#[tokio::test(start_paused = true)]
async fn a_group_with_missing_members_is_looked_up_and_not_sent() {
    let mut watcher = start();
    let _gate = dies_in_fleet_call(&mut watcher, Effect::HoldBefore).await;
    delete_member(&watcher).await;
    watcher.start_actuator();
    let empty = |world: &World| world.all(ResourceId::NODE_CLAIMS).is_empty();
    watcher.world.until("the other claims are deleted", Duration::from_secs(600), empty).await.unwrap();
    assert_eq!(watcher.bought(), 0);
    assert_eq!(until_launched(&watcher).await, OutcomeStatus::Launched);
    watcher.settled(1).await;
    // Longer than a look-up that another scan might have begun.
    tokio::time::sleep(2 * MINUTE).await;
    let failed = [("cause", "NothingFound")];
    assert_eq!(watcher.counted("plimsoll_actuator_nodeclaims_failed_total", &failed), 2, "each claim once");
}

/// One of the instances of the group is nobody's. Garbage collection would wait for minutes.
#[tokio::test(start_paused = true)]
async fn the_instance_of_a_missing_member_is_terminated_when_the_others_are_adopted() {
    let mut watcher = start();
    let gate = dies_in_fleet_call(&mut watcher, Effect::HoldAfter).await;
    gate.open();
    assert_eq!(watcher.bought(), 3);
    delete_member(&watcher).await;
    watcher.start_actuator();
    let has_instance = |claim: &Value| !object::text(claim, &["status", "providerID"]).is_empty();
    let adopted = |world: &World| world.count(ResourceId::NODE_CLAIMS, has_instance) == 2;
    watcher.until("two instances are adopted", Duration::from_secs(180), adopted).await;
    let two_run = |world: &World| world.living_instances().len() == 2;
    watcher.until("the third is terminated", Duration::from_secs(30), two_run).await;
    assert_eq!(watcher.counted("plimsoll_actuator_instances_collected_total", &[("cause", "surplus")]), 1);
}

/// Reads of EC2 show an instance for an hour after its end.
#[tokio::test(start_paused = true)]
async fn an_instance_that_has_ended_is_not_adopted() {
    let mut watcher = start();
    let gate = dies_in_fleet_call(&mut watcher, Effect::HoldAfter).await;
    gate.open();
    delete_member(&watcher).await;
    // Instances are matched in the order of their ids.
    let ended = watcher.world.living_instances().into_keys().next().unwrap();
    watcher.world.ec2.with(|cloud, now| cloud.terminate_instances(&[ended], now));
    let living = watcher.world.living_instances();
    assert_eq!(living.len(), 2);
    watcher.start_actuator();
    let is_adopted = |world: &World, id: &str| {
        world.count(ResourceId::NODE_CLAIMS, |claim| object::text(claim, &["status", "providerID"]).ends_with(id)) == 1
    };
    let adopted = |world: &World| living.keys().all(|id| is_adopted(world, id));
    watcher.until("the two that live are adopted", Duration::from_secs(180), adopted).await;
    assert_eq!(watcher.world.living_instances().len(), 2);
}

/// The next scan for unfinished groups would be later.
#[tokio::test(start_paused = true)]
async fn a_match_that_cannot_be_written_is_written_again_within_seconds() {
    let (watcher, catalog, position) = begin().await;
    let statuses = Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") };
    let faults = watcher.world.server().faults();
    let broken = faults.always(statuses, ClusterEffect::internal_error());
    let began = tokio::time::Instant::now();
    let (outcomes, ()) = tokio::join!(watcher.execute(plan(position, wanted(&catalog, 1))), async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        faults.remove(broken);
    });
    let outcomes = outcomes.unwrap();
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Launched, "{outcomes:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!(watcher.fleet_calls(), 1);
    watcher.settled(1).await;
}

/// The reservations of a claim are unknown, so its pool gets no launches until a user repairs the annotation.
#[tokio::test(start_paused = true)]
async fn a_mended_annotation_opens_its_pool_again() {
    let watcher = start();
    watcher.catalog().await;
    let broken = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "by-hand", "labels": {"karpenter.sh/nodepool": "default"},
                     "annotations": {annotation::RESERVED: "nonsense"}},
        "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                 "requirements": []}});
    watcher.world.apply_object(&broken).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let catalog = watcher.catalog().await;
    let launch_of = |action: &str| launch(&catalog, action, &["m6i.large"], "p-0");
    let position = watcher.position().await;
    let closed = watcher.execute(plan(position, vec![launch_of("a-0")])).await.unwrap();
    assert_eq!(closed.last().unwrap().status, OutcomeStatus::Rejected, "{closed:?}");
    assert!(closed.last().unwrap().message.contains("plimsoll.dev/reserved"), "{closed:?}");
    let rejected = [("kind", "launch"), ("outcome", "rejected")];
    assert_eq!(watcher.counted("plimsoll_actuator_actions_total", &rejected), 1);
    let mended = json!({"metadata": {"annotations": {annotation::RESERVED: "{\"cpu\": \"1\"}"}}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, "by-hand", mended).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let position = watcher.position().await;
    let open = watcher.execute(plan(position, vec![launch_of("a-1")])).await.unwrap();
    assert_eq!(open.last().unwrap().status, OutcomeStatus::Launched, "{open:?}");
}

/// EC2 answers, but launches nothing: the account launches too many instances.
#[tokio::test(start_paused = true)]
async fn a_launch_whose_instances_are_throttled_keeps_its_claims() {
    let (watcher, catalog, position) = begin().await;
    let launches = wanted(&catalog, 3);
    let throttled = Capacity::Refused("RequestLimitExceeded", "Request limit exceeded.");
    watcher.world.ec2.with(|cloud, _| {
        for choice in launches.iter().flat_map(|launch| launch.offerings.iter()) {
            cloud.limit(Pool::new(&choice.instance_type, &choice.zone, choice.capacity_type), throttled);
        }
    });
    let (outcomes, ()) = tokio::join!(watcher.execute(plan(position, launches)), async {
        watcher.until_fleet_calls(5).await;
        watcher.world.ec2.with(|cloud, _| cloud.limits.clear());
    });
    let outcomes = outcomes.unwrap();
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Launched, "{outcomes:?}");
    let tokens = watcher.world.ec2.read(|cloud, _| {
        let tokens = cloud.fleets().iter().map(|fleet| fleet.request.client_token.clone());
        tokens.collect::<BTreeSet<_>>()
    });
    assert!(tokens.len() >= 5, "{tokens:?}");
    assert_eq!(tokens.len(), watcher.fleet_calls(), "a token for each call");
    watcher.settled(3).await;
}
