//! While Karpenter's lease is held, nothing is written and nothing launched (rule 20).

use plimsoll_model::names::lease;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Call};
use plimsoll_sim::plimsoll::Options;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{HOUR, MINUTE, Setup, TestCluster, instance_of, node_pool};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

const SECOND: Duration = Duration::from_secs(1);

fn held(world: &World, holder: &str) -> Value {
    let now = world.server().now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": lease::KARPENTER, "namespace": "kube-system"},
           "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now, "leaseTransitions": 1}})
}

/// Renews Karpenter's lease until the task is aborted, and waits until the services have seen the lease.
async fn karpenter_leads(cluster: &Arc<TestCluster>) -> AbortHandle {
    let renewing = cluster.clone();
    let renewals = tokio::spawn(async move {
        loop {
            renewing.world.apply_object(&held(&renewing.world, "karpenter-1")).unwrap();
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    });
    cluster.pass(Duration::from_secs(30)).await;
    renewals.abort_handle()
}

/// Message of the condition Paused of the pool `default`.
fn paused(world: &World) -> Option<String> {
    let pool = world.get(ResourceId::NODE_POOLS, "default").unwrap();
    let conditions = object::items(&pool, &["status", "conditions"]);
    let condition = conditions.iter().find(|it| it["type"] == "Paused" && it["status"] == "True");
    condition.map(|it| object::text(it, &["message"]).to_owned())
}

#[tokio::test(start_paused = true)]
async fn nothing_is_bought_while_karpenter_leads_and_all_goes_on_when_it_is_gone() {
    let cluster = Arc::new(TestCluster::usual().await);
    let renewals = karpenter_leads(&cluster).await;
    let mutating = [Action::CreateFleet, Action::TerminateInstances, Action::CreateLaunchTemplate];
    let calls =
        || cluster.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| mutating.contains(&call.action)).count());
    // The node class may have been validated with a launch template before Karpenter held its lease.
    let before = calls();
    cluster.deploy("web", 3, 500);
    cluster.pass(3 * MINUTE).await;
    assert_eq!(calls(), before);
    assert!(cluster.world.all(ResourceId::NODE_CLAIMS).is_empty());
    let message = paused(&cluster.world).expect("the pool has the condition Paused");
    assert!(
        message.contains("karpenter-1") && message.contains("would launch 1 node(s) of this NodePool"),
        "{message}"
    );
    let pool = cluster.world.get(ResourceId::NODE_POOLS, "default").unwrap();
    assert!(object::condition_is_true(&pool, "Ready"), "other conditions of the pool do not change");
    renewals.abort();
    cluster.world.apply_object(&held(&cluster.world, "")).unwrap();
    cluster.until_running(3, 5 * MINUTE).await;
    assert_eq!(paused(&cluster.world), None, "the condition is cleared");
}

/// Between two leaders of Karpenter, its Lease is free. The actuator reads it every five seconds.
#[tokio::test(start_paused = true)]
async fn a_restart_of_karpenter_ends_no_shadow_mode() {
    let cluster = Arc::new(TestCluster::usual().await);
    let renewals = karpenter_leads(&cluster).await;
    let is_launch = |call: &&Call| call.action == Action::CreateFleet;
    let calls = || cluster.world.ec2.read(|cloud, _| cloud.log.iter().filter(is_launch).count());
    let before = calls();
    cluster.deploy("web", 3, 500);
    renewals.abort();
    cluster.world.apply_object(&held(&cluster.world, "")).unwrap();
    cluster.pass(40 * SECOND).await;
    let message = paused(&cluster.world).expect("the pool has the condition Paused");
    assert!(message.starts_with("Karpenter may be restarting: "), "{message}");
    let _renewals = karpenter_leads(&cluster).await;
    cluster.pass(3 * MINUTE).await;
    let message = paused(&cluster.world).expect("the pool has the condition Paused");
    assert!(message.starts_with("Karpenter is running: "), "{message}");
    assert_eq!(calls(), before);
    assert!(cluster.world.all(ResourceId::NODE_CLAIMS).is_empty());
}

/// Lets Karpenter hold its Lease for two hours.
fn hold(world: &World) {
    let mut lease = held(world, "karpenter-1");
    lease["spec"]["leaseDurationSeconds"] = json!(2 * HOUR.as_secs());
    world.apply_object(&lease).unwrap();
}

/// Without a first read of the Lease, nothing is written. Later, the result of the last read stays.
#[tokio::test(start_paused = true)]
async fn while_the_lease_cannot_be_read_the_last_read_counts() {
    let watcher = FakeWatcher::start(Setup::default());
    let faults = watcher.world.server().faults();
    let reads = Matcher { name: Some(lease::KARPENTER.to_owned()), ..Matcher::of(Verb::Get, "leases") };
    let refused = faults.always(reads.clone(), Effect::internal_error());
    tokio::time::sleep(2 * MINUTE).await;
    let own = [ResourceId::LEASES, ResourceId::EVENTS, ResourceId::EVENTS_K8S];
    let audit = watcher.world.server().audit();
    let wrote =
        audit.iter().find(|it| it.client.starts_with("actuator") && it.verb.is_write() && !own.contains(&it.resource));
    assert_eq!(wrote, None);
    faults.remove(refused);
    let is_ready = |world: &World| {
        let pool = world.get(ResourceId::NODE_POOLS, "default").unwrap();
        object::condition_is_true(&pool, "Ready")
    };
    watcher.until("the pool is Ready", 2 * MINUTE, is_ready).await;

    let refused = faults.always(reads.clone(), Effect::internal_error());
    hold(&watcher.world);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(paused(&watcher.world), None, "it was free");
    let status = Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodepools") };
    let refused_status = faults.always(status, Effect::internal_error());
    faults.remove(refused);
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(paused(&watcher.world), None, "the condition cannot be written");
    faults.remove(refused_status);
    // The write is tried again after ten seconds.
    watcher.until("the pool has the condition Paused", 12 * SECOND, |world| paused(world).is_some()).await;

    faults.always(reads, Effect::internal_error());
    tokio::time::sleep(MINUTE).await;
    assert!(paused(&watcher.world).is_some(), "it was held");
}

/// For example since a webhook refuses it.
#[tokio::test(start_paused = true)]
async fn a_pool_that_cannot_be_written_keeps_no_other_from_its_condition() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    // It is the first by name.
    watcher.world.apply_object(&node_pool("blocked", &json!({}))).unwrap();
    let name = Some("blocked".to_owned());
    let status = Matcher { subresource: Some("status"), name, ..Matcher::of(Verb::Patch, "nodepools") };
    watcher.world.server().faults().always(status, Effect::internal_error());
    hold(&watcher.world);
    watcher.until("the pool has the condition Paused", MINUTE, |world| paused(world).is_some()).await;
    watcher.world.apply_object(&held(&watcher.world, "")).unwrap();
    watcher.until("the condition is cleared", 3 * MINUTE, |world| paused(world).is_none()).await;
}

/// Messages of the shadow reports about the pool.
fn reports(world: &World) -> Vec<String> {
    let events = world.all(ResourceId::EVENTS);
    let reports = events.iter().filter(|event| event["reason"] == "ShadowReport");
    reports.map(|event| object::text(event, &["message"]).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_shadow_report_counts_a_repeated_plan_once() {
    let interval = 20 * MINUTE;
    let options = Options { shadow_report_interval: interval, ..Options::default() };
    let cluster = Arc::new(TestCluster::begin(Setup { options, ..Setup::default() }).await);
    let renewals = karpenter_leads(&cluster).await;
    cluster.deploy("web", 3, 500);
    cluster.pass(interval / 2).await;
    assert!(reports(&cluster.world).is_empty(), "not before the interval is over");
    // A further pod causes another plan, which proposes the same launch again.
    cluster.deploy("giant", 1, 900_000);
    cluster.pass(interval / 2 + 2 * MINUTE).await;
    renewals.abort();
    let reports = reports(&cluster.world);
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(
        reports[0].starts_with("In the last 20 min, Plimsoll would have launched 1 and removed 0 nodes of this NodePool. Its nodes cost 0 USD per hour; with the last plan they would cost 0."),
        "{reports:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_shadow_report_tells_what_removals_would_save() {
    let interval = 20 * MINUTE;
    let options = Options { shadow_report_interval: interval, ..Options::default() };
    let cluster = TestCluster::begin(Setup { options, ..Setup::default() }).await;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    cluster.pass(MINUTE).await;
    hold(&cluster.world);
    cluster.pass(30 * SECOND).await;
    cluster.scale("web", 0);
    cluster.pass(interval).await;
    let found = reports(&cluster.world);
    assert_eq!(found.len(), 1, "{found:?}");
    let expected = |removed: u32| {
        format!("In the last 20 min, Plimsoll would have launched 0 and removed {removed} nodes of this NodePool.")
    };
    assert!(found[0].starts_with(&expected(1)), "{found:?}");
    assert!(!found[0].contains("Its nodes cost 0 USD per hour"), "{found:?}");
    assert!(found[0].ends_with("with the last plan they would cost 0."), "{found:?}");
    // The next period may begin with another plan that removes the node.
    cluster.scale("web", 1);
    cluster.pass(2 * interval).await;
    let found = reports(&cluster.world);
    assert!(found.iter().any(|report| report.starts_with(&expected(0))), "each period is counted anew: {found:?}");
}

/// Karpenter deletes the NodeClaim, and counts that.
#[tokio::test(start_paused = true)]
async fn no_claim_counts_as_collected_while_karpenter_leads() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    hold(&watcher.world);
    tokio::time::sleep(MINUTE).await;
    let id = instance_of(&watcher.world, &node);
    watcher.world.ec2.with(|cloud, now| cloud.terminate_instances(&[id], now));
    tokio::time::sleep(15 * MINUTE).await;
    let is_going =
        |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none_or(|claim| object::is_deleting(&claim));
    assert!(!is_going(&watcher.world));
    let collected = [("reason", "garbage_collected")];
    assert_eq!(watcher.counted("karpenter_nodeclaims_disrupted_total", &collected), 0);
    watcher.world.apply_object(&held(&watcher.world, "")).unwrap();
    watcher.until("the claim is deleted", 5 * MINUTE, is_going).await;
}
