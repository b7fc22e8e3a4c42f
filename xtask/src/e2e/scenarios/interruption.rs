//! Seed 000: a Spot instance gets an interruption notice.

use super::super::objects::{self, SOON, in_millis};
use super::super::{Context, Figure};
use crate::harness::audit::Entry;
use crate::harness::kubectl::instance_of;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use std::time::{Duration, SystemTime};

/// Notice period of EC2.
const NOTICE: Duration = Duration::from_secs(120);
/// Two of these pods need more than a large instance has, and no node of the pool has capacity for a third one.
const MILLIS: u32 = 1500;

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_file("api/tests/fixtures/seed-000.yaml")?;
    world.cluster.kubectl.apply(&objects::deployment("api", 3, MILLIS))?;
    world.wait_ready("api", 3, SOON)?;
    let before = world.cloud.living()?;
    ensure!(before.iter().all(|i| i.capacity_type == "spot"), "not all instances are Spot: {before:?}");
    ensure!(
        before.iter().all(|i| i.instance_type.starts_with("c6g.") || i.instance_type.starts_with("m6g.")),
        "{before:?}"
    );

    let victim = before.first().context("no instance")?.id.clone();
    let node = node_of(world, &victim)?;
    let seen = world.cloud.last_call()?;
    let notice = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64();
    world.cloud.interrupt(&victim)?;
    until_true("the instance is terminated, and the pods run elsewhere", NOTICE, || {
        let gone = world.cloud.living()?.iter().all(|i| i.id != victim);
        let nodes = if gone { world.wait_ready("api", 3, SOON)? } else { [node.clone()].into() };
        Ok((gone && !nodes.contains(&node), format!("terminated: {gone}, pods on {nodes:?}")))
    })?;

    let replaced = world
        .cloud
        .calls("CreateFleet", seen)?
        .into_iter()
        .find(|c| !c.instances.is_empty())
        .context("no replacement was launched")?;
    let ended = world
        .cloud
        .calls("TerminateInstances", seen)?
        .into_iter()
        .next()
        .context("Plimsoll did not terminate the instance")?;
    let audit = world.cluster.audit()?;
    let drained = audit.iter().find(|e| e.time > notice && takes_away(e)).context("no pod was evicted")?;
    let ready = first_ready(world, notice)?;
    ensure!(
        ready <= drained.time,
        "the first pod was evicted {} before the replacement was Ready",
        in_millis(ready - drained.time)
    );
    ensure!(ended.time - notice < NOTICE.as_secs_f64(), "the instance was terminated after {} s", ended.time - notice);
    Ok(vec![
        ("notice to CreateFleet", in_millis(replaced.time - notice)),
        ("notice to first eviction", in_millis(drained.time - notice)),
        ("notice to TerminateInstances", in_millis(ended.time - notice)),
    ])
}

/// Time at which the first Node created after `notice` became Ready, rounded down to seconds.
fn first_ready(world: &World, notice: f64) -> Result<f64> {
    let seconds = |stamp: &serde_json::Value| {
        let time: Option<jiff::Timestamp> = stamp.as_str().and_then(|text| text.parse().ok());
        time.map(|time| time.as_second() as f64)
    };
    let ready = world.nodes()?.into_iter().filter_map(|node| {
        let created = seconds(&node["metadata"]["creationTimestamp"])?;
        let conditions = node["status"]["conditions"].as_array()?;
        let ready =
            conditions.iter().find(|condition| condition["type"] == "Ready" && condition["status"] == "True")?;
        seconds(&ready["lastTransitionTime"]).filter(|_| created >= notice.floor())
    });
    ready.min_by(f64::total_cmp).context("no new Node is Ready")
}

fn node_of(world: &World, instance: &str) -> Result<String> {
    let nodes = world.nodes()?;
    let node = nodes.iter().find(|n| instance_of(n) == Some(instance));
    Ok(node.and_then(|n| n["metadata"]["name"].as_str()).with_context(|| format!("{instance} is no node"))?.to_owned())
}

/// Whether the actuator evicts or deletes a pod.
fn takes_away(entry: &Entry) -> bool {
    let evicts = entry.resource == "pods/eviction" && entry.verb == "create";
    let deletes = entry.resource == "pods" && entry.verb == "delete";
    entry.service() == Some("actuator") && entry.code < 300 && (evicts || deletes)
}
