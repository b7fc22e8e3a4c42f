//! Execution of plans: launched once and together, within limits and the rules of the pool, only for the leading
//! watcher.

use crate::fixture::{begin, forbidden, launch, plan, start, start_with_limit, statuses, wanted};
use plimsoll_actuator::state::launch_group::claim_name;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::{ClaimState, LedgerUpdate, OutcomeReason, OutcomeStatus};
use plimsoll_model::names::{annotation, tag};
use plimsoll_model::plan::{Launch, OfferingChoice, PodRef};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_proto::actuator::v1::WatchLedgerRequest;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::apiserver::faults::{Effect as ClusterEffect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::cloud::{Action, Capacity, Effect, Pool};
use plimsoll_tests::fake_watcher::FakeWatcher;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;

/// Enough that the ledger is read while a plan's launches are admitted, and fewer than a pool may launch in a minute.
const LAUNCHES: usize = 200;

#[tokio::test(start_paused = true)]
async fn one_launch_becomes_one_instance_and_one_claim() {
    use OutcomeStatus::{Accepted, Launched};
    let (watcher, catalog, position) = begin().await;
    let wanted = plan(position, vec![launch(&catalog, "a-1", &["m6i.large", "m6i.xlarge"], "p-1")]);
    let outcomes = watcher.execute(wanted.clone()).await.unwrap();
    assert_eq!(statuses(&outcomes), [Accepted, Launched], "{outcomes:?}");

    let claims = watcher.settled(1).await;
    let claim = &claims[0];
    assert_eq!(outcomes[1].node_claim, claim.metadata.name);
    let labels = claim.metadata.labels.clone().unwrap();
    assert_eq!(labels["node.kubernetes.io/instance-type"], "m6i.large", "the cheapest");
    assert_eq!(
        (labels["karpenter.sh/nodepool"].as_str(), labels["karpenter.sh/capacity-type"].as_str()),
        ("default", "on-demand")
    );
    let zone_id = watcher.world.ec2.read(|cloud, _| {
        let subnet = cloud.subnets.values().find(|subnet| subnet.zone == labels["topology.kubernetes.io/zone"]);
        subnet.unwrap().zone_id.clone()
    });
    assert_eq!(labels["topology.k8s.aws/zone-id"], zone_id);
    assert_eq!(claim.metadata.finalizers.as_deref(), Some(["karpenter.sh/termination".to_owned()].as_slice()));
    assert_eq!(claim.metadata.annotations.as_ref().unwrap()[annotation::ACTION_ID], "a-1");
    assert_eq!(claim.status.as_ref().unwrap().capacity["cpu"].0, "2");
    let tags = watcher.world.ec2.read(|cloud, _| cloud.machines().values().next().unwrap().tags.clone());
    assert_eq!((tags[tag::OWNER].as_str(), tags["kubernetes.io/cluster/demo"].as_str()), ("plimsoll", "owned"));
    assert_eq!(Some(&tags[tag::NODE_CLAIM]), claim.metadata.name.as_ref());

    // The same plan again requests the outcomes again.
    let again = watcher.execute(wanted).await.unwrap();
    assert_eq!(statuses(&again), [Accepted, Launched]);
    assert_eq!(watcher.bought(), 1);
    let counted = |outcome: &str| watcher.counted("plimsoll_actuator_actions_total", &[("outcome", outcome)]);
    assert_eq!((counted("accepted"), counted("repeated"), counted("rejected")), (1, 1, 0));
}

/// A claim without room would make the next plan launch another node for a pod that fits on it. A ledger that is read
/// while a launch is admitted may have a claim that its position does not cover yet, so one message is no violation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_shows_an_admitted_claim_with_its_room() {
    let watcher = start_with_limit("1000");
    let catalog = watcher.catalog().await;
    let mut updates = watcher.client().await.watch_ledger(WatchLedgerRequest {}).await.unwrap().into_inner();
    let position = LedgerUpdate::try_from(updates.message().await.unwrap().unwrap()).unwrap().position;
    let watching = tokio::spawn(async move {
        let (mut without_room, mut seen): (BTreeSet<String>, BTreeSet<String>) = Default::default();
        while seen.len() < LAUNCHES {
            let update = LedgerUpdate::try_from(updates.message().await.unwrap().unwrap()).unwrap();
            let before = without_room.clone();
            for claim in update.upserted {
                match claim.allocatable.get("cpu") {
                    0 => without_room.insert(claim.name.clone()),
                    _ => without_room.remove(&claim.name),
                };
                seen.insert(claim.name);
            }
            let both: Vec<&String> = before.intersection(&without_room).collect();
            assert!(both.is_empty(), "admitted before the position {:?}, without room: {both:?}", update.position);
        }
    });
    let outcomes = watcher.execute(plan(position, wanted(&catalog, LAUNCHES))).await.unwrap();
    assert!(outcomes.iter().all(|outcome| outcome.status != OutcomeStatus::Rejected), "{outcomes:?}");
    watching.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn launches_that_buy_the_same_are_bought_by_one_call() {
    let (watcher, catalog, position) = begin().await;
    let mut launches = wanted(&catalog, 3);
    launches.push(launch(&catalog, "b", &["c6i.large"], "q"));
    watcher.execute(plan(position, launches)).await.unwrap();
    watcher.settled(4).await;
    assert_eq!(watcher.fleet_calls(), 2, "one for each request");
}

/// The user's costs rank m6i.large below c6i.large, although EC2 sells c6i.large for less.
#[tokio::test(start_paused = true)]
async fn where_prices_are_the_users_the_first_offering_is_bought_not_the_cheapest() {
    let (watcher, catalog, position) = begin().await;
    let mut ours = launch(&catalog, "a", &["m6i.large", "c6i.large"], "p");
    assert_eq!(ours.offerings[0].instance_type, "c6i.large", "the cheapest");
    let dear = |choice: &OfferingChoice| choice.instance_type == "m6i.large";
    let choices = Arc::make_mut(&mut ours.offerings);
    choices.iter_mut().filter(|choice| dear(choice)).for_each(|choice| choice.price.0 = 1_000);
    choices.sort_by_key(|choice| !dear(choice));
    ours.prioritized = true;
    watcher.execute(plan(position, vec![ours])).await.unwrap();
    let claims = watcher.settled(1).await;
    let labels = claims[0].metadata.labels.clone().unwrap();
    assert_eq!(labels["node.kubernetes.io/instance-type"], "m6i.large");
}

/// No offering of the launch has capacity.
fn without_capacity(watcher: &FakeWatcher, launch: &Launch) {
    watcher.world.ec2.with(|cloud, _| {
        for choice in launch.offerings.iter() {
            cloud.limit(Pool::new(&choice.instance_type, &choice.zone, choice.capacity_type), Capacity::Instances(0));
        }
    });
}

#[tokio::test(start_paused = true)]
async fn without_capacity_the_claim_goes_and_the_next_plan_takes_another_offering_within_a_second() {
    let (watcher, catalog, position) = begin().await;
    let first = launch(&catalog, "a", &["m6i.large"], "p");
    without_capacity(&watcher, &first);
    let outcomes = watcher.execute(plan(position, vec![first.clone()])).await.unwrap();
    let last = outcomes.last().unwrap();
    assert_eq!((last.status, last.reason), (OutcomeStatus::Failed, Some(OutcomeReason::NoCapacity)), "{outcomes:?}");
    assert!(watcher.claims().await.is_empty(), "the claim is deleted at once");

    let failed_at = tokio::time::Instant::now();
    let mut next = launch(&catalog, "b", &["m6i.large", "c6i.large"], "p");
    Arc::make_mut(&mut next.offerings).sort_by_key(|choice| choice.price);
    loop {
        let position = watcher.position().await;
        let outcomes = watcher.execute(plan(position, vec![next.clone()])).await.unwrap();
        if outcomes.last().unwrap().status == OutcomeStatus::Launched {
            break;
        }
        assert!(failed_at.elapsed() < Duration::from_secs(1), "{outcomes:?}");
        next.action_id = format!("{}x", next.action_id).as_str().into();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let claims = watcher.settled(1).await;
    assert_eq!(claims[0].metadata.labels.as_ref().unwrap()["node.kubernetes.io/instance-type"], "c6i.large");
    let requested: BTreeSet<String> = watcher.world.ec2.read(|cloud, _| {
        cloud.fleets().last().unwrap().request.overrides().map(|way| way.instance_type.clone()).collect()
    });
    assert_eq!(requested, ["c6i.large".to_owned()].into(), "the type without capacity was not requested again");
    // Events are published one after the other.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let events = watcher.world.all(ResourceId::EVENTS);
    assert!(events.iter().any(|event| event["reason"] == "InsufficientCapacityError"), "{events:?}");
}

/// Rule 7: the claim counts until it is gone, but its pods can be planned again.
#[tokio::test(start_paused = true)]
async fn a_claim_that_failed_and_cannot_be_deleted_still_counts() {
    let (watcher, catalog, position) = begin().await;
    let first = launch(&catalog, "a", &["m6i.large"], "p");
    without_capacity(&watcher, &first);
    watcher.world.server().faults().always(Matcher::of(Verb::Delete, "nodeclaims"), ClusterEffect::internal_error());
    let outcomes = watcher.execute(plan(position, vec![first])).await.unwrap();
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Failed, "{outcomes:?}");
    let claims = watcher.ledger().await.unwrap().upserted;
    let counted: Vec<_> = claims.iter().map(|it| (it.state, it.limit_usage.get("cpu"), it.pods.len())).collect();
    assert_eq!(counted, [(ClaimState::Terminating, 2000, 0)]);
}

/// The only subnet of a zone can run out of addresses.
#[tokio::test(start_paused = true)]
async fn a_full_subnet_delays_no_launch_into_another_zone() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let zones: BTreeSet<String> =
        launch(&catalog, "a", &["m6i.large"], "p").offerings.iter().map(|choice| choice.zone.clone()).collect();
    let [full, other]: [String; 2] = zones.into_iter().take(2).collect::<Vec<_>>().try_into().unwrap();
    watcher.world.ec2.with(|cloud, _| {
        cloud.subnets.values_mut().filter(|it| it.zone == full).for_each(|it| it.free_ipv4_addresses = 0);
    });
    let into = |action: &str, kind: &str, zone: &str| {
        let mut launch = launch(&catalog, action, &[kind], "p");
        Arc::make_mut(&mut launch.offerings).retain(|choice| choice.zone == zone);
        launch
    };
    // The first launch finds that the subnet is full. For the second, the zone is closed in the catalog.
    let launches = [("b", "m6i.large", OutcomeStatus::Failed), ("c", "c6i.large", OutcomeStatus::Rejected)];
    for (action, kind, status) in launches {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let position = watcher.position().await;
        let outcomes = watcher.execute(plan(position, vec![into(action, kind, &full)])).await.unwrap();
        let last = outcomes.last().unwrap();
        assert_eq!((last.status, last.reason), (status, Some(OutcomeReason::NoCapacity)), "{outcomes:?}");
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let position = watcher.position().await;
    let outcomes = watcher.execute(plan(position, vec![into("d", "m6i.large", &other)])).await.unwrap();
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Launched, "{outcomes:?}");
}

#[tokio::test(start_paused = true)]
async fn limits_hold_exactly_and_the_rest_of_the_plan_goes_on() {
    let (watcher, catalog, position) = begin().await;
    // The largest type of each launch has 4 vCPU; the limit of the pool is 20.
    let outcomes = watcher.execute(plan(position, wanted(&catalog, 7))).await.unwrap();
    let rejected: Vec<_> =
        outcomes.iter().filter(|it| it.status == OutcomeStatus::Rejected).map(|it| it.reason).collect();
    assert_eq!(rejected, [Some(OutcomeReason::LimitReached); 2]);
    watcher.settled(5).await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_may_not_add_to_what_the_pool_allows() {
    let (watcher, catalog, position) = begin().await;
    let usual = launch(&catalog, "a", &["m6i.large"], "p");
    let mut label = usual.clone();
    label.labels.insert("team".to_owned(), "other".to_owned());
    let mut class = usual.clone();
    class.node_class = "other".to_owned();
    let mut spot = usual.clone();
    Arc::make_mut(&mut spot.offerings).iter_mut().for_each(|choice| choice.capacity_type = CapacityType::Spot);
    let mut open = usual.clone();
    Arc::make_mut(&mut open.requirements).push(NodeSelectorRequirement::new("example.com/new", Operator::In, ["x"]));
    let mut action = 0;
    let launches = [label, class, spot, open].map(|launch| {
        action += 1;
        let pod = PodRef { name: format!("default/{action}"), uid: format!("p-{action}").as_str().into() };
        Launch { action_id: format!("a-{action}").as_str().into(), pods: vec![pod], ..launch }
    });
    let outcomes = watcher.execute(plan(position, launches.to_vec())).await.unwrap();
    let reasons: Vec<_> = outcomes.iter().map(|it| (it.status, it.reason)).collect();
    assert_eq!(reasons, [(OutcomeStatus::Rejected, Some(OutcomeReason::PoolChanged)); 4], "{outcomes:?}");
    assert_eq!(watcher.bought(), 0);
}

#[tokio::test(start_paused = true)]
async fn only_the_watcher_that_leads_is_heard() {
    let (watcher, catalog, position) = begin().await;
    let refused = watcher.execute_as(("watcher-0", 0), plan(position, wanted(&catalog, 1))).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    watcher.give_lease_to(("watcher-2", 2));
    let position = watcher.position().await;
    watcher.execute_as(("watcher-2", 2), plan(position, wanted(&catalog, 1))).await.unwrap();
    let late = watcher.execute(plan(position, wanted(&catalog, 2))).await.unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition, "{late:?}");
    watcher.settled(1).await;
}

/// Rule 2: nor is the rest of its group.
#[tokio::test(start_paused = true)]
async fn a_claim_that_the_api_server_refuses_is_not_bought() {
    for count in [1, 3] {
        let (watcher, catalog, position) = begin().await;
        let launches = wanted(&catalog, count);
        // The primary claim is the first by name.
        let name = launches.iter().map(|launch| claim_name(&launch.node_pool, &launch.action_id)).max();
        watcher.world.server().faults().next(
            1,
            Matcher { name, ..Matcher::of(Verb::Create, "nodeclaims") },
            forbidden(),
        );
        let outcomes = watcher.execute(plan(position, launches)).await.unwrap();
        let ends = outcomes.iter().filter(|it| it.status.is_final()).map(|it| (it.status, it.reason));
        let refused = (OutcomeStatus::Failed, Some(OutcomeReason::ClusterRefused));
        assert_eq!(ends.collect::<Vec<_>>(), vec![refused; count], "{outcomes:?}");
        assert_eq!((watcher.bought(), watcher.fleet_calls(), watcher.claims().await.len()), (0, 0, 0));
        let calls = watcher.world.server().audit();
        let creates = calls.iter().filter(|it| it.verb == Verb::Create && it.resource == ResourceId::NODE_CLAIMS);
        assert_eq!(creates.count(), if count == 1 { 1 } else { 2 }, "the primary claim is written last");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_others_with_the_same_name_is_left_alone() {
    let (watcher, catalog, position) = begin().await;
    // The actuator does not see the change yet.
    watcher.world.server().faults().lag_watches(watcher.actuator(), Duration::from_secs(60));
    let name = claim_name(&"default".into(), &"a-0".into());
    watcher
        .world
        .apply_object(&json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []},
        }))
        .unwrap();
    let outcomes = watcher.execute(plan(position, wanted(&catalog, 1))).await.unwrap();
    let last = outcomes.last().unwrap();
    assert_eq!(
        (last.status, last.reason),
        (OutcomeStatus::Failed, Some(OutcomeReason::ClusterRefused)),
        "{outcomes:?}"
    );
    let claims = watcher.claims().await;
    assert_eq!((claims.len(), watcher.bought()), (1, 0));
    assert!(claims[0].metadata.deletion_timestamp.is_none());
}

/// Rule 7: a claim that is being deleted counts as long as its instance exists.
#[tokio::test(start_paused = true)]
async fn a_claim_being_deleted_counts_until_its_instance_is_gone() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let large = |name: &str| launch(&catalog, name, &["m6i.xlarge"], name);
    // The limit of 20 vCPU allows five nodes of 4 vCPU.
    let launches = ["a-1", "a-2", "a-3", "a-4", "a-5"].map(large).to_vec();
    let position = watcher.position().await;
    watcher.execute(plan(position, launches)).await.unwrap();
    let claims = watcher.settled(5).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, claims[0].metadata.name.as_deref().unwrap()).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(watcher.claims().await.len(), 5, "it is on its way out");
    let position = watcher.position().await;
    let outcomes = watcher.execute(plan(position, vec![large("b-1")])).await.unwrap();
    assert_eq!(outcomes[0].reason, Some(OutcomeReason::LimitReached), "{outcomes:?}");
    while watcher.claims().await.len() == 5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let position = watcher.position().await;
    let outcomes = watcher.execute(plan(position, vec![large("b-2")])).await.unwrap();
    assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "{outcomes:?}");
}

/// Rule 22: the reservations of a launch are stored on its claim, where a new leader reads them.
#[tokio::test(start_paused = true)]
async fn a_new_leader_knows_limits_and_pods_of_the_former_ones_launches() {
    let mut watcher = start();
    let catalog = watcher.catalog().await;
    let large = |action: &str, pod: &str| launch(&catalog, action, &["m6i.xlarge"], pod);
    let launches = (1..=5).map(|i| large(&format!("a-{i}"), &format!("p-{i}"))).collect();
    let position = watcher.position().await;
    watcher.execute(plan(position, launches)).await.unwrap();
    watcher.settled(5).await;
    watcher.replace_actuator();
    watcher.catalog().await;
    let asked = [large("b-1", "p-1"), large("b-2", "p-9")].to_vec();
    let position = watcher.position().await;
    let outcomes = watcher.execute(plan(position, asked)).await.unwrap();
    let reasons: Vec<_> = outcomes.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, [Some(OutcomeReason::PodChanged), Some(OutcomeReason::LimitReached)], "{outcomes:?}");
    assert_eq!(watcher.bought(), 5);
}

/// A launch continues with the pool and the class of its admission: it completes and reports an outcome.
#[tokio::test(start_paused = true)]
async fn no_admitted_launch_is_lost_although_its_pool_and_class_go_meanwhile() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let slow = Effect::Delay(Duration::from_secs(5));
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateLaunchTemplate, slow, u32::MAX));
    let position = watcher.position().await;
    let launches = plan(position, wanted(&catalog, 3));
    let mut execution = std::pin::pin!(watcher.execute(launches));
    let early = tokio::time::timeout(Duration::from_secs(2), &mut execution).await;
    assert!(early.is_err(), "all are admitted and wait for their template");
    for kind in [ResourceId::NODE_POOLS, ResourceId::EC2_NODE_CLASSES] {
        watcher.world.delete(kind, "default").unwrap();
    }
    let outcomes = execution.await.unwrap();
    let accepted = outcomes.iter().filter(|it| it.status == OutcomeStatus::Accepted).count();
    let ended: BTreeSet<_> =
        outcomes.iter().filter(|it| it.status.is_final()).map(|it| it.action_id.0.as_str()).collect();
    assert_eq!((accepted, ended), (3, BTreeSet::from(["a-0", "a-1", "a-2"])), "{outcomes:?}");
}
