//! CapacityQuotas: launches stay within them, and their status has what they count.

use crate::fixture::{forbidden, launch, plan, start};
use kube::Api;
use plimsoll_api::condition::{self, capacity_quota::VALID};
use plimsoll_api::{CapacityQuota, NodeClaim};
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::names::label;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ApiError, ResourceId};
use plimsoll_tests::fake_watcher::FakeWatcher;
use serde_json::{Value, json};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The usage by resource, and the message of a quota that is not valid.
async fn status(watcher: &FakeWatcher, name: &str) -> (Vec<(String, String)>, Option<String>) {
    let api: Api<CapacityQuota> = Api::all(watcher.world.server().client("test"));
    let status = api.get(name).await.unwrap().status.unwrap_or_default();
    let used = status.used.into_iter().flat_map(|used| used.resources).map(|(name, amount)| (name, amount.0));
    let invalid = condition::get(&status.conditions, VALID).filter(|valid| valid.status != "True");
    (used.collect(), invalid.map(|valid| valid.message.clone()))
}

async fn until_used(watcher: &FakeWatcher, expected: &[(&str, &str)]) {
    let expected: Vec<(String, String)> = expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let begun = tokio::time::Instant::now();
    loop {
        let (used, invalid) = status(watcher, "all").await;
        if used == expected && invalid.is_none() {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "used: {used:?}, invalid: {invalid:?}; expected: {expected:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn quota(name: &str, selector: &Value, resources: &Value) -> Value {
    json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityQuota", "metadata": {"name": name},
        "spec": {"selector": selector, "limits": {"resources": resources}}})
}

#[tokio::test(start_paused = true)]
async fn the_status_has_what_the_ledger_counts_and_what_is_invalid() {
    let watcher = start();
    watcher.world.apply_object(&quota("all", &json!({}), &json!({"cpu": 7, "nodes": 10}))).unwrap();
    // The schema of the CRD cannot refuse a requirement without values.
    let no_values = json!({"matchExpressions": [{"key": "team", "operator": "In"}]});
    watcher.world.apply_object(&quota("invalid", &no_values, &json!({"nodes": 0}))).unwrap();
    let catalog = watcher.catalog().await;
    until_used(&watcher, &[("cpu", "0"), ("nodes", "0")]).await;
    let position = watcher.position().await;
    let launches = ["m6i.xlarge", "m6i.large", "c6i.large"].iter().enumerate();
    let launches = launches.map(|(i, name)| launch(&catalog, &format!("a-{i}"), &[name], &format!("p-{i}"))).collect();
    let outcomes = watcher.execute(plan(position, launches)).await.unwrap();
    let rejected: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.reason).collect();
    assert_eq!(rejected, [OutcomeReason::LimitReached], "4 and 2 of 7 vCPU, so no room for 2 more: {outcomes:?}");
    let claims = watcher.settled(2).await;
    until_used(&watcher, &[("cpu", "6"), ("nodes", "2")]).await;
    let (used, invalid) = status(&watcher, "invalid").await;
    assert_eq!(used, []);
    let message = "spec.selector.matchExpressions[0].values: operators In and NotIn need a value";
    assert_eq!(invalid.as_deref(), Some(message));

    // A NodeClaim that is being deleted counts until its instance is gone.
    let large = |claim: &&NodeClaim| {
        claim.metadata.labels.as_ref().is_some_and(|labels| labels["node.kubernetes.io/instance-type"] == "m6i.large")
    };
    let large = claims.iter().find(large).unwrap();
    watcher.world.delete(ResourceId::NODE_CLAIMS, large.metadata.name.as_ref().unwrap()).unwrap();
    until_used(&watcher, &[("cpu", "4"), ("nodes", "1")]).await;
}

/// The nodes of a pool have the labels of its template, whether or not a plan repeats them.
#[tokio::test(start_paused = true)]
async fn a_quota_counts_launches_by_the_labels_of_their_pool() {
    let watcher = start();
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}});
    watcher.world.patch(ResourceId::NODE_POOLS, "default", labels).unwrap();
    let of_team = json!({"matchLabels": {"team": "a"}});
    watcher.world.apply_object(&quota("team", &of_team, &json!({"nodes": 1}))).unwrap();
    let catalog = watcher.catalog().await;
    let position = watcher.position().await;
    let launches: Vec<_> = ["a-0", "a-1"].map(|action| launch(&catalog, action, &["m6i.large"], action)).into();
    assert!(launches.iter().all(|launch| launch.labels.is_empty()));
    let outcomes = watcher.execute(plan(position, launches)).await.unwrap();
    let rejected: Vec<_> = outcomes.iter().filter_map(|it| Some((it.action_id.as_str(), it.reason?))).collect();
    assert_eq!(rejected, [("a-1", OutcomeReason::LimitReached)], "{outcomes:?}");
    watcher.settled(1).await;
}

/// For example while the API server reads the definition of the kind again.
#[tokio::test(start_paused = true)]
async fn a_quota_holds_although_a_watch_did_not_find_its_kind() {
    let watcher = start();
    watcher.world.apply_object(&quota("all", &json!({}), &json!({"nodes": 0}))).unwrap();
    let catalog = watcher.catalog().await;
    until_used(&watcher, &[("nodes", "0")]).await;
    let watch = Matcher { client: Some(watcher.actuator()), ..Matcher::of(Verb::Watch, "capacityquotas") };
    watcher.world.server().faults().next(1, watch, Effect::Refuse(ApiError::no_such_path()));
    watcher.world.server().faults().cut_watches([watcher.actuator().as_str()]);
    // Longer than the longest pause of a watch.
    tokio::time::sleep(LIMIT).await;
    let position = watcher.position().await;
    let outcomes = watcher.execute(plan(position, vec![launch(&catalog, "a", &["m6i.large"], "p")])).await.unwrap();
    let rejected: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.reason).collect();
    assert_eq!(rejected, [OutcomeReason::LimitReached], "{outcomes:?}");
}

/// Nothing else changes after that.
#[tokio::test(start_paused = true)]
async fn a_status_that_could_not_be_written_is_written_later() {
    let watcher = start();
    watcher.catalog().await;
    let statuses = Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "capacityquotas") };
    let refused = watcher.world.server().faults().always(statuses, Effect::internal_error());
    watcher.world.apply_object(&quota("all", &json!({}), &json!({"nodes": 1}))).unwrap();
    tokio::time::sleep(LIMIT).await;
    assert_eq!(status(&watcher, "all").await, (Vec::new(), None));
    watcher.world.server().faults().remove(refused);
    until_used(&watcher, &[("nodes", "0")]).await;
}

/// Its first writes get no response and may still take effect, whatever the API server answers to later ones.
#[tokio::test(start_paused = true)]
async fn a_launch_without_a_pool_that_may_be_written_keeps_its_part_of_a_quota() {
    for (first, rejected) in [(Effect::Drop, Some(OutcomeReason::LimitReached)), (forbidden(), None)] {
        let watcher = start();
        watcher.world.apply_object(&quota("all", &json!({}), &json!({"nodes": 1}))).unwrap();
        let catalog = watcher.catalog().await;
        let name = Some("mine".to_owned());
        let writes = Matcher { subresource: Some(""), name, ..Matcher::of(Verb::Patch, "nodeclaims") };
        let faults = watcher.world.server().faults();
        let rule = faults.always(writes.clone(), first);
        let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
        let on_demand = json!({"key": label::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]});
        let claim = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "mine"},
            "spec": {"nodeClassRef": class, "requirements": [on_demand], "expireAfter": "Never"}});
        watcher.world.apply_object(&claim).unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        faults.remove(rule);
        faults.always(writes, forbidden());
        // The launch is tried again after 8 s at most.
        tokio::time::sleep(Duration::from_secs(15)).await;
        let position = watcher.position().await;
        let outcomes = watcher.execute(plan(position, vec![launch(&catalog, "a", &["m6i.large"], "p")])).await.unwrap();
        assert_eq!(outcomes.iter().find_map(|outcome| outcome.reason), rejected, "{outcomes:?}");
    }
}
