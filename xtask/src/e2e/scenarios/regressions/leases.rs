//! The Lease of the watcher is deleted, and then that of the actuator.

use super::super::super::Figure;
use super::super::super::objects::SOON;
use crate::harness::audit;
use crate::harness::cluster::NAMESPACE;
use crate::harness::services::Kind;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The next watcher takes the Lease within seconds; the rest is the start of the node.
const WATCHER: Duration = Duration::from_secs(30);
/// The next actuator also waits for the lease and the longest call of the former one: 23 s.
const ACTUATOR: Duration = Duration::from_secs(60);
/// A Lease expires after 15 s.
const TAKEN: Duration = Duration::from_secs(40);

pub(super) fn watcher(world: &mut World) -> Result<Figure> {
    world.keep_ready("before", &pod("before"), SOON)?;
    change_hands(world)?;
    world.keep_ready("between", &pod("between"), SOON)?;
    after_deletion(world, "plimsoll-watcher", "watcher-lease", WATCHER, 3)
}

pub(super) fn actuator(world: &mut World) -> Result<Figure> {
    after_deletion(world, "plimsoll-actuator", "actuator-lease", ACTUATOR, 4)
}

/// Makes the watcher's Lease change its holder, so that its transition count is above that of a new Lease.
fn change_hands(world: &mut World) -> Result<()> {
    let kubectl = world.cluster.kubectl.clone();
    let services = world.services()?;
    let leader = services.leader(Kind::Watcher, &kubectl)?;
    services.kill(leader)?;
    services.up(leader)?;
    until_true("the watcher's Lease changes hands", TAKEN, || {
        let lease = kubectl.list(&["lease", "plimsoll-watcher", "-n", NAMESPACE])?;
        let transitions = lease.first().and_then(|lease| lease["spec"]["leaseTransitions"].as_u64()).unwrap_or(0);
        Ok((transitions > 0, format!("{transitions} transitions")))
    })
}

/// Deletes a Lease, waits until it exists again, and checks that a new pod gets its own node: one instance per pod.
fn after_deletion(world: &World, lease: &str, name: &'static str, limit: Duration, instances: usize) -> Result<Figure> {
    let uid = |lease: &Value| lease["metadata"]["uid"].as_str().map(str::to_owned);
    let read = || {
        world.cluster.kubectl.list(&["lease", "-n", NAMESPACE, "--field-selector", &format!("metadata.name={lease}")])
    };
    let before = read()?.first().and_then(uid);
    world.cluster.kubectl.run(&["delete", "lease", lease, "-n", NAMESPACE])?;
    let deleted = Instant::now();
    until_true(&format!("{lease} is held again"), limit, || {
        let now = read()?.first().and_then(uid);
        Ok((now.is_some() && now != before, format!("{now:?}")))
    })?;
    world.keep_ready(name, &pod(name), limit.saturating_sub(deleted.elapsed()))?;
    let took = deleted.elapsed();
    let bought = audit::launched_claims_of(&world.cluster.audit()?, "leases");
    ensure!(bought == instances, "{lease} deleted: {bought} instances were launched for {instances} pods");
    Ok((name, format!("a pod was ready {:.1} s after its deletion", took.as_secs_f64())))
}

/// A pod that fills a node of the pool.
fn pod(name: &str) -> String {
    let resources = json!({"requests": {"cpu": "1500m", "memory": "64Mi"}});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"plimsoll.test/case": "leases"},
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}],
        },
    })
    .to_string()
}
