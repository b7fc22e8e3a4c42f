//! Launch templates of groups, and the resources that they attach to instances.

use crate::fixture::{begin, forbidden, launch, plan, start, statuses};
use plimsoll_actuator::ports::{CloudError, LaunchTemplateFilter, LaunchTemplateSpec, Tags};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::execution::OutcomeStatus::{Accepted, Failed, Launched, Rejected};
use plimsoll_model::names::{annotation, tag};
use plimsoll_model::plan::Launch;
use plimsoll_sim::apiserver::faults::{Effect as ClusterEffect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_tests::MINUTE;
use plimsoll_tests::fake_watcher::FakeWatcher;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const EFA: &str = "vpc.amazonaws.com/efa";

/// A launch for each zone: each needs its own request, and all need the same launch template.
fn per_zone(catalog: &Catalog) -> Vec<Launch> {
    let all = launch(catalog, "a", &["m6i.large"], "p");
    let zones: BTreeSet<&str> = all.offerings.iter().map(|it| it.zone.as_str()).collect();
    let in_zone = |zone: &&str| {
        let mut zonal = launch(catalog, &format!("a-{zone}"), &["m6i.large"], &format!("p-{zone}"));
        Arc::make_mut(&mut zonal.offerings).retain(|it| it.zone == **zone);
        zonal
    };
    zones.iter().map(in_zone).collect()
}

/// The validation of the class has asked for the same template. It is asked for again after this time.
const TRUST_PERIOD: Duration = Duration::from_secs(61);

fn template_calls(watcher: &FakeWatcher) -> usize {
    watcher
        .world
        .ec2
        .read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::CreateLaunchTemplate).count())
}

#[tokio::test(start_paused = true)]
async fn groups_with_the_same_template_ask_for_it_once() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    tokio::time::sleep(TRUST_PERIOD).await;
    let slow = Effect::Delay(Duration::from_secs(1));
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateLaunchTemplate, slow, u32::MAX));
    let launches = per_zone(&catalog);
    let count = launches.len();
    assert!(count > 1);
    let position = watcher.position().await;
    let of_validation = template_calls(&watcher);
    watcher.execute(plan(position, launches)).await.unwrap();
    watcher.settled(count).await;
    assert_eq!((watcher.fleet_calls(), template_calls(&watcher) - of_validation), (count, 1));
}

/// Templates count against a limit of the account.
#[tokio::test(start_paused = true)]
async fn templates_of_ours_are_deleted_a_quarter_of_an_hour_after_their_last_use() {
    let (watcher, catalog, position) = begin().await;
    watcher.execute(plan(position, vec![launch(&catalog, "a-1", &["m6i.large"], "p-1")])).await.unwrap();
    watcher.settled(1).await;
    let all = LaunchTemplateFilter { tags: Tags::new() };
    let names = || -> Vec<String> {
        let templates = watcher.world.ec2.read(|cloud, _| cloud.list_launch_templates(&all));
        templates.into_iter().map(|template| template.name).collect()
    };
    let ours = names();
    assert!(!ours.is_empty());
    watcher.world.ec2.with(|cloud, _| {
        let spec = cloud.launch_template(&ours[0]).cloned().unwrap();
        cloud.ensure_launch_template(&LaunchTemplateSpec { name: "of-others".to_owned(), tags: Tags::new(), ..spec });
    });
    tokio::time::sleep(13 * MINUTE).await;
    assert_eq!(names().len(), ours.len() + 1, "somebody may still use them");
    // Unused templates are looked for every five minutes.
    tokio::time::sleep(9 * MINUTE).await;
    assert_eq!(names(), ["of-others"]);
    let position = watcher.position().await;
    let outcomes = watcher.execute(plan(position, vec![launch(&catalog, "a-2", &["m6i.large"], "p-2")])).await.unwrap();
    assert_eq!(statuses(&outcomes), [Accepted, Launched], "{outcomes:?}");
}

/// The right to delete a template depends on its tags, which somebody may have changed.
#[tokio::test(start_paused = true)]
async fn a_template_that_cannot_be_deleted_keeps_no_other() {
    let (watcher, catalog, position) = begin().await;
    watcher.execute(plan(position, vec![launch(&catalog, "a-1", &["m6i.large"], "p-1")])).await.unwrap();
    watcher.settled(1).await;
    let ours: BTreeSet<String> = watcher.world.ec2.with(|cloud, _| {
        let all = LaunchTemplateFilter { tags: Tags::new() };
        let first = cloud.list_launch_templates(&all).remove(0).name;
        let spec = cloud.launch_template(&first).cloned().unwrap();
        cloud.ensure_launch_template(&LaunchTemplateSpec { name: format!("{first}-other"), ..spec });
        cloud.list_launch_templates(&all).into_iter().map(|template| template.name).collect()
    });
    let denied = Effect::Refuse(CloudError::Denied { message: "not allowed".to_owned() });
    watcher.world.ec2.faults(|faults| faults.inject(Action::DeleteLaunchTemplates, denied, u32::MAX));
    tokio::time::sleep(30 * MINUTE).await;
    let tried: BTreeSet<String> = watcher.world.ec2.read(|cloud, _| {
        let deletions = cloud.log.iter().filter(|call| call.action == Action::DeleteLaunchTemplates);
        deletions.map(|call| call.about.clone()).collect()
    });
    assert!(ours.len() > 1 && tried == ours, "{tried:?}");
}

/// RequestLimitExceeded, and a template that Describe does not return yet.
#[tokio::test(start_paused = true)]
async fn a_template_that_ec2_cannot_give_yet_fails_no_launch_and_pauses_no_pool() {
    for refused in [CloudError::Throttled, CloudError::Unavailable { message: "not visible yet".to_owned() }] {
        let watcher = start();
        let catalog = watcher.catalog().await;
        watcher.world.ec2.faults(|faults| faults.inject(Action::CreateLaunchTemplate, Effect::Refuse(refused), 6));
        let position = watcher.position().await;
        let first = plan(position, vec![launch(&catalog, "a-1", &["m6i.large"], "p-1")]);
        let outcomes = watcher.execute(first).await.unwrap();
        assert_eq!(statuses(&outcomes), [Accepted, Launched], "{outcomes:?}");
        let position = watcher.position().await;
        let next = plan(position, vec![launch(&catalog, "a-2", &["m6i.large"], "p-2")]);
        let outcomes = watcher.execute(next).await.unwrap();
        assert_eq!(statuses(&outcomes), [Accepted, Launched], "{outcomes:?}");
        watcher.settled(2).await;
    }
}

/// EC2 refuses it for another reason than its load, or is busy for longer than pods wait.
#[tokio::test(start_paused = true)]
async fn a_template_that_ec2_does_not_give_fails_its_launch_which_reserves_nothing_then() {
    let denied = CloudError::Denied { message: "not allowed".to_owned() };
    for (refused, seconds) in [(denied, 0..10), (CloudError::Throttled, 120..150)] {
        let watcher = start();
        let catalog = watcher.catalog().await;
        tokio::time::sleep(TRUST_PERIOD).await;
        let effect = Effect::Refuse(refused);
        watcher.world.ec2.faults(|faults| faults.inject(Action::CreateLaunchTemplate, effect, u32::MAX));
        let position = watcher.position().await;
        let began = tokio::time::Instant::now();
        let of_pod = |action: &str| vec![launch(&catalog, action, &["m6i.large"], "p-1")];
        let outcomes = watcher.execute(plan(position, of_pod("a-1"))).await.unwrap();
        let last = outcomes.last().unwrap();
        assert_eq!((last.status, last.reason), (Failed, Some(OutcomeReason::PoolChanged)), "{outcomes:?}");
        assert!(seconds.contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        assert_eq!((watcher.claims().await.len(), watcher.ledger().await.unwrap().upserted.len()), (0, 0));
        watcher.world.ec2.faults(|faults| faults.clear());
        let position = watcher.position().await;
        let early = watcher.execute(plan(position, of_pod("a-2"))).await.unwrap();
        assert_eq!((early[0].status, early[0].reason), (Rejected, Some(OutcomeReason::PoolChanged)), "{early:?}");
        // Longer than the pool pauses after a first failure.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let position = watcher.position().await;
        let outcomes = watcher.execute(plan(position, of_pod("a-3"))).await.unwrap();
        assert_eq!(statuses(&outcomes), [Accepted, Launched], "{outcomes:?}");
        watcher.settled(1).await;
        let events = watcher.world.events_of("NodePool", "default");
        assert!(events.iter().any(|event| event.starts_with("LaunchFailed: LaunchTemplateNotReady")), "{events:?}");
    }
}

/// The node class is being deleted, and a claim holds it. It still has a catalog. Plans would place pods on the node,
/// which never comes.
#[tokio::test(start_paused = true)]
async fn a_launch_that_cannot_be_requested_leaves_no_claim_in_the_ledger() {
    let (watcher, catalog, position) = begin().await;
    watcher.execute(plan(position, vec![launch(&catalog, "a-1", &["m6i.large"], "p-1")])).await.unwrap();
    let claims = watcher.settled(1).await;
    watcher.world.delete(ResourceId::EC2_NODE_CLASSES, "default").unwrap();
    // The watch shows it by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let position = watcher.position().await;
    let second = vec![launch(&catalog, "a-2", &["m6i.large"], "p-2")];
    let outcomes = watcher.execute(plan(position, second)).await.unwrap();
    assert_eq!(statuses(&outcomes), [Accepted, Failed], "{outcomes:?}");
    assert_eq!(outcomes[1].reason, Some(OutcomeReason::PoolChanged));
    let in_flight = watcher.ledger().await.unwrap().upserted;
    let names = in_flight.iter().map(|claim| Some(claim.name.as_str())).collect::<Vec<_>>();
    assert_eq!(names, [claims[0].metadata.name.as_deref()]);
    watcher.settled(1).await;
}

/// CreateFleet does not find a new template, or the template was deleted.
fn missing_template() -> Effect {
    let code = "InvalidLaunchTemplateName.NotFoundException".to_owned();
    Effect::Refuse(CloudError::InvalidRequest { code, message: "the launch template does not exist".to_owned() })
}

/// Patches of NodeClaims, without those of their status.
fn patches() -> Matcher {
    Matcher { subresource: Some(""), ..Matcher::of(Verb::Patch, "nodeclaims") }
}

#[tokio::test(start_paused = true)]
async fn a_template_that_create_fleet_does_not_find_is_restored() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    tokio::time::sleep(TRUST_PERIOD).await;
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, missing_template(), 2));
    let position = watcher.position().await;
    let wanted = plan(position, vec![launch(&catalog, "a-1", &["m6i.large"], "p-1")]);
    let of_validation = template_calls(&watcher);
    let outcomes = watcher.execute(wanted).await.unwrap();
    assert_eq!(statuses(&outcomes), [Accepted, Launched], "{outcomes:?}");
    let claims = watcher.settled(1).await;
    let calls = (watcher.fleet_calls(), template_calls(&watcher) - of_validation);
    assert_eq!(calls, (3, 3), "requested again after each rejection");
    // Rule 3: the claim has the attempt that launched the instance.
    let (token, tags) = watcher.world.ec2.read(|cloud, _| {
        let machine = cloud.machines().values().next().unwrap();
        (cloud.fleets()[0].request.client_token.clone(), machine.tags.clone())
    });
    assert!(token.ends_with("-3"), "{token}");
    let annotations = claims[0].metadata.annotations.clone().unwrap();
    assert_eq!((tags[tag::LAUNCH_ATTEMPT].as_str(), annotations[annotation::LAUNCH_ATTEMPT].as_str()), ("3", "3"));
    let stored: Value = serde_json::from_str(&annotations[annotation::LAUNCH_REQUEST]).unwrap();
    assert_eq!(stored["client_token"], token);
}

/// Rule 3.
#[tokio::test(start_paused = true)]
async fn the_next_attempt_is_sent_only_after_it_is_written() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, missing_template(), 1));
    let gate = Gate::default();
    watcher.world.server().faults().always(patches(), ClusterEffect::HoldBefore(gate.clone()));
    let position = watcher.position().await;
    let wanted = plan(position, vec![launch(&catalog, "a-1", &["m6i.large"], "p-1")]);
    let mut execution = std::pin::pin!(watcher.execute(wanted));
    tokio::select! {
        answer = &mut execution => panic!("it ended: {answer:?}"),
        () = gate.reached(1) => {}
    }
    // Longer than the pause between the attempts, and shorter than a call may take.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(watcher.fleet_calls(), 1);
    gate.open();
    let outcomes = execution.await.unwrap();
    assert_eq!(statuses(&outcomes), [Accepted, Launched], "{outcomes:?}");
    assert_eq!(watcher.fleet_calls(), 2);
}

/// The scan for unfinished groups continues with the attempt that the claim has.
#[tokio::test(start_paused = true)]
async fn a_group_whose_next_attempt_cannot_be_written_is_resumed_within_a_minute() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, missing_template(), 1));
    watcher.world.server().faults().next(1, patches(), forbidden());
    let position = watcher.position().await;
    let wanted = plan(position, vec![launch(&catalog, "a-1", &["m6i.large"], "p-1")]);
    let began = tokio::time::Instant::now();
    let outcomes = watcher.execute(wanted).await.unwrap();
    assert_eq!(statuses(&outcomes), [Accepted, Launched], "{outcomes:?}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let claims = watcher.settled(1).await;
    assert_eq!(claims[0].metadata.annotations.as_ref().unwrap()[annotation::LAUNCH_ATTEMPT], "1");
    assert_eq!(watcher.fleet_calls(), 2);
}

/// The list of the scan has the second group as it was before its next attempt. Sent again, its first attempt would
/// launch another instance.
#[tokio::test(start_paused = true)]
async fn a_group_that_ends_during_a_scan_is_not_resumed() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let faults = watcher.world.server().faults();
    let refuse_next = || watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, missing_template(), 1));
    // Claims are listed only because of this group, which waits to be resumed.
    refuse_next();
    faults.next(1, patches(), forbidden());
    let position = watcher.position().await;
    let first = plan(position, vec![launch(&catalog, "a-1", &["m6i.large"], "p-1")]);
    let _first = watcher.stream(first).await.unwrap();
    let (before, after) = (Gate::default(), Gate::default());
    let lists = Matcher { client: Some(watcher.actuator()), ..Matcher::of(Verb::List, "nodeclaims") };
    faults.next(1, lists.clone(), ClusterEffect::HoldBefore(before.clone()));
    faults.next(1, lists, ClusterEffect::HoldAfter(after.clone()));
    before.reached(1).await;
    let began = tokio::time::Instant::now();
    refuse_next();
    let position = watcher.position().await;
    let second = plan(position, vec![launch(&catalog, "b-1", &["c6i.large"], "p-2")]);
    let claim = watcher.send(second).await.remove(0).node_claim.unwrap();
    let raise = Gate::default();
    let patch = Matcher { name: Some(claim.clone()), ..patches() };
    faults.next(1, patch, ClusterEffect::HoldBefore(raise.clone()));
    raise.reached(1).await;
    before.open();
    after.reached(1).await;
    raise.open();
    // The scan leaves out claims of the last ten seconds, and its list may take fifteen.
    tokio::time::sleep_until(began + Duration::from_secs(12)).await;
    let is_launched = watcher.claim(&claim).is_some_and(|claim| object::condition_is_true(&claim, "Launched"));
    assert!(is_launched, "the second group has ended");
    after.open();
    // The first group is resumed.
    watcher.settled(2).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    watcher.settled(2).await;
    assert_eq!(watcher.fleet_calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_claim_has_elastic_fabric_adapters_only_if_it_asked_for_them() {
    let watcher = start();
    let limits = json!({"spec": {"limits": {"cpu": "1000"}}});
    watcher.world.patch(ResourceId::NODE_POOLS, "default", limits).unwrap();
    let catalog = watcher.catalog().await;
    assert!(catalog.get("m6i.32xlarge").unwrap().capacity.get(EFA) > 0);
    for (action, wanted) in [("a-0", 0), ("a-1", 1)] {
        let mut wanted_launch = launch(&catalog, action, &["m6i.32xlarge"], action);
        if wanted > 0 {
            wanted_launch.requests.set(EFA, wanted);
        }
        let position = watcher.position().await;
        let outcomes = watcher.execute(plan(position, vec![wanted_launch])).await.unwrap();
        let claims = watcher.claims().await;
        let claim = claims.iter().find(|claim| claim.metadata.name == outcomes[1].node_claim).unwrap();
        let status = claim.status.clone().unwrap();
        let has = [&status.capacity, &status.allocatable].map(|resources| resources.contains_key(EFA));
        assert_eq!(has, [wanted > 0; 2], "{action}: {outcomes:?}");
    }
}
