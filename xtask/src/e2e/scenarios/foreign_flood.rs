//! Thousands of messages about instances of others: our own Spot notice is handled in time, and EC2 is not asked.

use super::super::objects::{self, SOON, in_millis};
use super::super::{Context, Figure};
use crate::harness::audit::Entry;
use crate::harness::kubectl::instance_of;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use std::time::{Duration, Instant, SystemTime};

const MESSAGES: u32 = 4000;
const FLOOD: Duration = Duration::from_secs(60);
/// Messages flow for this long before the first notice.
const BEFORE: Duration = Duration::from_secs(15);
/// Maximum time from a notice to the deletion of its claim.
const HANDLED_SECONDS_MAX: f64 = 5.0;
const PODS: usize = 3;
const NOTICES: u32 = 3;

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.cluster.kubectl.apply(&world.pool_manifest().replace("values: [on-demand]", "values: [spot]"))?;
    world.cluster.kubectl.apply(&objects::deployment("web", PODS, 1500))?;
    world.wait_ready("web", PODS, SOON)?;
    let seen = world.cloud.last_call()?;
    let began = Instant::now();
    world.cloud.flood(MESSAGES, FLOOD)?;
    // The notices come in the middle of the flood, which a queue serves in no certain order.
    let mut slowest = 0.0_f64;
    for number in 1..=NOTICES {
        until_true("the messages flow", FLOOD, || Ok((began.elapsed() > BEFORE * number, String::new())))?;
        slowest = slowest.max(notice(world)?);
        world.wait_ready("web", PODS, SOON)?;
    }
    until_true("the flood is over, and the queue is empty", FLOOD + SOON, || {
        let sent = began.elapsed() > FLOOD;
        let waiting = if sent { world.cloud.waiting_messages()? } else { u64::from(MESSAGES) };
        Ok((sent && waiting == 0, format!("{waiting} messages wait")))
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let asked = world.cloud.foreign_reads(seen)?;
    ensure!(asked == 0, "{asked} calls of EC2 name instances of others");
    Ok(vec![
        ("slowest notice", in_millis(slowest)),
        ("foreign messages", format!("{MESSAGES} in {seconds:.0} s, no call of EC2 about them")),
    ])
}

/// Interrupts a living instance. Returns the seconds until its claim is deleted.
fn notice(world: &World) -> Result<f64> {
    let claims = world.cluster.kubectl.list(&["nodeclaims"])?;
    let living: Vec<_> = claims.iter().filter(|claim| claim["metadata"]["deletionTimestamp"].is_null()).collect();
    let nodes = world.nodes()?;
    let name_of = |claim: &&&serde_json::Value| {
        let node = nodes.iter().find(|node| node["metadata"]["name"] == claim["status"]["nodeName"])?;
        Some((claim["metadata"]["name"].as_str()?.to_owned(), instance_of(node)?.to_owned()))
    };
    let (claim, instance) = living.iter().find_map(|claim| name_of(&claim)).context("no claim has a node")?;
    let sent = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64();
    world.cloud.interrupt(&instance)?;
    let mut handled = None;
    until_true("the claim of the interrupted instance is deleted", SOON, || {
        let audit = world.cluster.audit()?;
        handled = audit.iter().find(|entry| deletes(entry, &claim)).map(|entry| entry.time);
        Ok((handled.is_some(), format!("{claim} is not")))
    })?;
    let seconds = handled.context("the claim is not deleted")? - sent;
    ensure!(seconds < HANDLED_SECONDS_MAX, "the notice was handled after {seconds:.1} s");
    Ok(seconds)
}

fn deletes(entry: &Entry, claim: &str) -> bool {
    entry.service() == Some("actuator")
        && entry.verb == "delete"
        && entry.resource == "nodeclaims"
        && entry.name == claim
        && entry.code < 300
}
