//! Many pods of one Deployment at once, while the actuator's leader is killed.

use super::client::{ApiClient, DEPLOYMENTS};
use super::population::container;
use super::usage::{EVERY, Usage};
use super::{PROGRESS, seconds};
use crate::bench::table::Table;
use crate::harness::services::Kind;
use crate::harness::world::World;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::thread::park_timeout;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// CPU request of a pod.
const MILLIS: usize = 1000;
/// kube-scheduler needs most of this time: about 200 verdicts per second beside the rest.
const LIMIT: Duration = Duration::from_secs(600);
/// Interval of the looks at all instances, which take EC2's stand-in a second for thousands of instances.
const LOOK: Duration = Duration::from_secs(5);
/// Share of additional capacity that counts as bought twice.
const MOST_CAPACITY: f64 = 1.15;

pub(super) fn run(
    world: &mut World,
    runtime: &Runtime,
    cluster: &ApiClient,
    usage: &mut Usage,
    count: usize,
    table: &mut Table,
) -> Result<()> {
    let before = world.cloud.instances()?.len();
    let begun = Instant::now();
    let mut row = |figure: &str, value: String| table.row(vec!["burst".to_owned(), figure.to_owned(), value]);
    runtime.block_on(cluster.create(DEPLOYMENTS, &deployment(count)))?;
    let kubectl = world.cluster.kubectl.clone();
    let services = world.services()?;
    let leader = services.leader(Kind::Actuator, &kubectl)?;
    services.kill(leader)?;
    services.up(leader)?;
    let mut sampled = Instant::now();
    let vcpus = loop {
        let launched = vcpus(world, before)?;
        if launched >= count * MILLIS / 1000 {
            break launched;
        }
        ensure!(begun.elapsed() < LIMIT, "only {launched} vCPUs are launched for {count} pods of one vCPU");
        if sampled.elapsed() >= EVERY {
            usage.sample(world)?;
            PROGRESS.say(&format!("{launched} vCPUs after {}", seconds(begun.elapsed())));
            sampled = Instant::now();
        }
        // Nothing unparks this thread: a pause between two looks.
        park_timeout(LOOK);
    };
    row("instances for all pods after", seconds(begun.elapsed()));
    world.services()?.wait_ready(leader)?;
    usage.sample(world)?;
    let most = (count * MILLIS) as f64 / 1000.0 * MOST_CAPACITY;
    row("vCPUs launched for the pods' CPUs", format!("{vcpus} for {}", count * MILLIS / 1000));
    ensure!((vcpus as f64) <= most, "{vcpus} vCPUs are launched for {count} pods of one vCPU: some were bought twice");
    Ok(())
}

fn deployment(replicas: usize) -> Value {
    let labels = json!({"app": "burst"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "burst", "namespace": "default"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"nodeSelector": {"plimsoll.test/burst": "true"}, "containers": [container(MILLIS)]},
            },
        },
    })
}

/// vCPUs of the pending and running instances that were launched after the first `before`.
fn vcpus(world: &World, before: usize) -> Result<usize> {
    let facts = plimsoll_catalog::builtin::facts();
    let mut sum = 0;
    for instance in world.cloud.instances()?.iter().skip(before) {
        if instance.state == "running" || instance.state == "pending" {
            let known = facts.iter().find(|facts| facts.name == instance.instance_type);
            sum += known.map_or(0, |facts| usize::try_from(facts.vcpus).unwrap_or(0));
        }
    }
    Ok(sum)
}
