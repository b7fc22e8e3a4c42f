//! Launch groups beside each other: none waits for another.

use crate::fixture::{launch, plan, start_with_limit, wanted};
use plimsoll_actuator::ports::CloudError;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::names::annotation;
use plimsoll_model::plan::{Launch, PodRef};
use plimsoll_sim::apiserver::faults::{Effect as ClusterEffect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::cloud::{Action, Capacity, Effect, Pool};
use plimsoll_tests::fake_watcher::FakeWatcher;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Code;

/// As many groups as may send their requests at the same time.
const AT_ONCE: usize = 64;

/// The limit of the pool has room for all launches of a test.
fn start() -> FakeWatcher {
    start_with_limit("1000")
}

/// EC2 says that it knows their requests with other parameters, so their instances are looked up for two minutes.
#[tokio::test(start_paused = true)]
async fn groups_that_wait_keep_no_other_from_being_launched() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let (refused, times) = (CloudError::IdempotentParameterMismatch, u32::try_from(AT_ONCE).unwrap());
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::Refuse(refused), times));
    let mut launches = wanted(&catalog, AT_ONCE + 1);
    let last = launches.pop().unwrap();
    let position = watcher.position().await;
    for launch in launches {
        drop(watcher.stream(plan(position, vec![launch])).await.unwrap());
    }
    watcher.until_fleet_calls(AT_ONCE).await;
    let began = Instant::now();
    let outcomes = watcher.execute(plan(position, vec![last])).await.unwrap();
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Launched, "{outcomes:?}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// EC2 launches too many instances for the account, so these groups ask again and again, for ten minutes.
#[tokio::test(start_paused = true)]
async fn groups_that_are_throttled_keep_no_other_from_being_launched() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let launches = wanted(&catalog, AT_ONCE);
    let throttled = Capacity::Refused("RequestLimitExceeded", "Request limit exceeded.");
    watcher.world.ec2.with(|cloud, _| {
        for choice in launches[0].offerings.iter() {
            cloud.limit(Pool::new(&choice.instance_type, &choice.zone, choice.capacity_type), throttled);
        }
    });
    let position = watcher.position().await;
    for launch in launches {
        drop(watcher.stream(plan(position, vec![launch])).await.unwrap());
    }
    watcher.until_fleet_calls(AT_ONCE).await;
    let began = Instant::now();
    let other = launch(&catalog, "b", &["c6i.large"], "q");
    let outcomes = watcher.execute(plan(position, vec![other])).await.unwrap();
    assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Launched, "{outcomes:?}");
    // Each of the others may have one call before it, and EC2 is called five times a second.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// The API server does not answer the list of the scan for unfinished groups.
#[tokio::test(start_paused = true)]
async fn launches_do_not_wait_for_the_scan_for_unfinished_groups() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let group = json!({annotation::LAUNCH_GROUP: r#"{"v":1,"id":"other","size":1}"#});
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let unfinished = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "unfinished", "annotations": group}, "spec": {"nodeClassRef": class, "requirements": []}});
    let lists = Matcher { client: Some(watcher.actuator()), ..Matcher::of(Verb::List, "nodeclaims") };
    watcher.world.server().faults().always(lists, ClusterEffect::HoldBefore(Gate::default()));
    watcher.world.apply_object(&unfinished).unwrap();
    // Longer than the interval between scans and the time-out of a list.
    for launch in wanted(&catalog, 50) {
        let began = Instant::now();
        let position = watcher.position().await;
        let outcomes = watcher.execute(plan(position, vec![launch])).await.unwrap();
        assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Launched, "{outcomes:?}");
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Launches of one pool that cannot share a group: each accepts another subset of the offerings.
fn apart(catalog: &Catalog, pool: &str, count: usize) -> Vec<Launch> {
    let all = launch(catalog, "all", &["m6i.large", "m6i.xlarge", "c6i.large"], "all");
    assert!(count < (1 << all.offerings.len()));
    let accepting = |subset: usize| {
        let name = format!("{pool}-{subset}");
        let pod = PodRef { name: format!("default/{name}"), uid: name.as_str().into() };
        let offerings = all.offerings.iter().enumerate().filter(|(index, _)| (subset >> index) & 1 == 1);
        Launch {
            action_id: name.as_str().into(),
            node_pool: pool.into(),
            offerings: Arc::new(offerings.map(|(_, offering)| offering.clone()).collect()),
            pods: vec![pod],
            ..all.clone()
        }
    };
    (1..=count).map(accepting).collect()
}

/// EC2 answers no fleet call: 1,024 groups wait, and as many more in the queue.
#[tokio::test(start_paused = true)]
async fn plans_are_refused_while_too_many_groups_wait() {
    let watcher = start();
    // A pool launches at most 600 nodes in a minute.
    let pools = ["a", "b", "c", "d", "e"];
    for pool in pools {
        watcher.world.apply_object(&plimsoll_tests::node_pool(pool, &json!({}))).unwrap();
    }
    let catalog = watcher.catalog().await;
    let held = Effect::HoldBefore(Gate::default());
    watcher.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, held, u32::MAX));
    let position = watcher.position().await;
    let mut codes = Vec::new();
    for pool in pools {
        let answer = watcher.stream(plan(position, apart(&catalog, pool, 500))).await;
        codes.push(answer.map_or_else(|status| status.code(), |_| Code::Ok));
        // The launcher takes groups from the queue.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::Ok, Code::Ok, Code::ResourceExhausted]);
}
