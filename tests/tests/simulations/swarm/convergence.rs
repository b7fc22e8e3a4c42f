//! Without faults, a cluster settles: nodes are neither launched nor removed any more, and they cost little more than a
//! new cluster for the same pods.

use super::config::Config;
use crate::observer::Observer;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::taint;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_tests::{MINUTE, TestCluster};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Time without a new NodeClaim or the end of one, after which a cluster is settled: several times the longest
/// `consolidateAfter`.
const QUIET: Duration = Duration::from_secs(20 * 60);
/// Maximum time until a cluster is settled: with a budget of one node, nodes leave one after the other.
const LIMIT: Duration = Duration::from_secs(4 * 3600);
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Maximum cost in percent of the cost of a new cluster. In a small cluster, one node of the dearest
/// type more is accepted.
const MOST_PERCENT: i64 = 105;

/// Waits until the cluster is settled, and checks its cost if it must be low.
pub(super) async fn check(cluster: &TestCluster, observer: &mut Observer, config: &Config) {
    until_settled(cluster, observer).await;
    let is_postponed = |taint: &Value| taint["key"] == taint::REMOVAL_POSTPONED;
    let nodes = cluster.world.all(ResourceId::NODES);
    let postponed =
        nodes.iter().filter(|node| object::items(node, &["spec", "taints"]).iter().any(is_postponed)).count();
    assert_eq!(postponed, 0, "removals stay postponed\n{}", cluster.summary());
    if !config.is_to_be_cheap() {
        return;
    }
    let (cost, fresh) = (cluster.world.hourly_cost(), fresh(config).await);
    let node = cluster.world.ec2.read(|cloud, _| cloud.on_demand.values().max().copied().unwrap_or_default());
    let most = (fresh.0 * MOST_PERCENT / 100).max(fresh.0 + node.0);
    assert!(cost.0 <= most, "the cost stays at {cost:?}, a new cluster costs {fresh:?}\n{}", cluster.summary());
}

async fn until_settled(cluster: &TestCluster, observer: &mut Observer) {
    let claims = || -> BTreeSet<String> {
        let all = cluster.world.all(ResourceId::NODE_CLAIMS);
        all.iter().filter(|claim| !object::is_deleting(claim)).map(|claim| object::uid(claim).to_owned()).collect()
    };
    let started = Instant::now();
    let (mut known, mut since) = (claims(), started);
    while since.elapsed() < QUIET {
        assert!(started.elapsed() < LIMIT, "nodes are launched and removed without an end\n{}", cluster.summary());
        super::pass(cluster, observer, LOOK_EVERY).await;
        let now = claims();
        if now != known {
            (known, since) = (now, Instant::now());
        }
    }
}

/// Cost of a new cluster without faults.
async fn fresh(config: &Config) -> MicroUsdPerHour {
    let cluster = TestCluster::begin(config.calm_setup()).await;
    let pods = config.workloads.deploy_final(&cluster);
    cluster.until_running(pods, 15 * MINUTE).await;
    cluster.world.hourly_cost()
}
