//! While Karpenter's lease is held, nothing is written and nothing launched (rule 20).

use plimsoll_model::names::lease;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::Action;
use plimsoll_sim::plimsoll::Options;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn held(world: &World, holder: &str) -> Value {
    let now = world.server().now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": lease::KARPENTER, "namespace": "kube-system"},
           "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now, "leaseTransitions": 1}})
}

/// Message of the pool's condition Paused.
fn paused(world: &World) -> Option<String> {
    let pool = world.get(ResourceId::NODE_POOLS, "default").unwrap();
    let conditions = object::items(&pool, &["status", "conditions"]);
    let condition = conditions.iter().find(|it| it["type"] == "Paused" && it["status"] == "True");
    condition.map(|it| object::text(it, &["message"]).to_owned())
}

#[tokio::test(start_paused = true)]
async fn nothing_is_bought_while_karpenter_leads_and_all_goes_on_when_it_is_gone() {
    let cluster = Arc::new(TestCluster::usual().await);
    let renewing = cluster.clone();
    let renewals = tokio::spawn(async move {
        loop {
            renewing.world.apply_object(&held(&renewing.world, "karpenter-1")).unwrap();
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    });
    cluster.pass(Duration::from_secs(30)).await;
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
    let renewing = cluster.clone();
    let renewals = tokio::spawn(async move {
        loop {
            renewing.world.apply_object(&held(&renewing.world, "karpenter-1")).unwrap();
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    });
    cluster.pass(Duration::from_secs(30)).await;
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
