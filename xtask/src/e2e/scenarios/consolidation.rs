//! Nodes with few pods are removed one after the other, since the budget is one node, and each pod moves at most once.

use super::super::objects::{self, SOON, in_millis};
use super::super::{Context, Figure};
use crate::harness::audit::Entry;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Nodes at first, each with one large and one small pod. One node is enough for all small pods.
const NODES: usize = 5;
const LARGE_MILLIS: u32 = 1200;
const SMALL_MILLIS: u32 = 300;
/// One node after the other: the drain, the termination of the instance.
const CONSOLIDATED: Duration = Duration::from_secs(240);
const POSTPONED: &str = "plimsoll.dev/removal-postponed";
/// Without `consolidateAfter`, so that a node that has just received a pod is a destination for the next one.
const DISRUPTION: &str = r#"{"spec": {"disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}}}"#;

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_pool()?;
    world.cluster.kubectl.apply(&objects::deployment("large", NODES, LARGE_MILLIS))?;
    let nodes = world.wait_ready("large", NODES, SOON)?;
    ensure!(nodes.len() == NODES, "{NODES} pods of {LARGE_MILLIS}m run on {} nodes", nodes.len());
    // kube-scheduler spreads the pods of a Deployment over nodes.
    world.cluster.kubectl.apply(&objects::deployment("small", NODES, SMALL_MILLIS))?;
    let nodes = world.wait_ready("small", NODES, SOON)?;
    ensure!(nodes.len() == NODES, "the {NODES} small pods run on {} nodes", nodes.len());
    world.scale("large", 0)?;
    until_true("the large pods are gone", world.with_slack(SOON), || {
        let left = world.cluster.kubectl.list(&["pods", "-n", "default", "-l", "app=large"])?.len();
        Ok((left == 0, format!("{left} are left")))
    })?;
    world.cluster.kubectl.run(&["patch", "nodepool", "default", "--type=merge", "-p", DISRUPTION])?;

    let began = Instant::now();
    let mut most_postponed = 0;
    until_true("one node is left", world.with_slack(CONSOLIDATED), || {
        let nodes = world.nodes()?;
        let postponed = tainted(&nodes, POSTPONED);
        most_postponed = most_postponed.max(postponed.len());
        Ok((nodes.len() == 1 && postponed.is_empty(), format!("{} nodes, {postponed:?} postponed", nodes.len())))
    })?;
    let took = began.elapsed();
    world.wait_ready("small", NODES, SOON)?;
    ensure!(most_postponed > 0, "no node had the taint {POSTPONED}");
    let evicted = evicted(&world.cluster.audit()?, "small-");
    ensure!(evicted.len() == NODES - 1, "{} small pods were evicted, for {} nodes", evicted.len(), NODES - 1);
    super::crash::settled(world)?;
    Ok(vec![
        ("five nodes to one", in_millis(took.as_secs_f64())),
        ("evictions", evicted.len().to_string()),
        ("nodes postponed at the same time, at most", most_postponed.to_string()),
    ])
}

/// Names of the nodes with a taint.
fn tainted(nodes: &[Value], key: &str) -> Vec<String> {
    let has = |node: &&Value| {
        let taints = node["spec"]["taints"].as_array();
        taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == key))
    };
    nodes.iter().filter(has).filter_map(|node| node["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

/// Names of the pods that were evicted, of those that begin with `prefix`.
fn evicted(audit: &[Entry], prefix: &str) -> BTreeSet<String> {
    let evicted = |entry: &&Entry| {
        entry.resource == "pods/eviction"
            && entry.verb == "create"
            && entry.code < 300
            && entry.name.starts_with(prefix)
    };
    audit.iter().filter(evicted).map(|entry| entry.name.clone()).collect()
}
