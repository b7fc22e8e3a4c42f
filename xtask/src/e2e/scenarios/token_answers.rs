//! The answers that EC2 may give to a repeated client token of an instant fleet: none of them buys an instance twice.

use super::super::objects::{self, SOON, in_millis};
use super::super::{Context, Figure};
use crate::harness::cloud::Call;
use crate::harness::services::Kind;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::time::{Duration, SystemTime};

/// Two of these pods do not fit on a node.
const MILLIS: u32 = 1500;
/// Duration of the first call where a repeated one is answered meanwhile. The actuator's own timeout is 7.5 s.
const RUNNING_SECONDS: u64 = 14;
/// Age of an attempt that is not sent again: more than ten minutes.
const OLD: Duration = Duration::from_secs(11 * 60);
/// Time for the lease to expire and for look-ups by tag.
const RECOVERED: Duration = Duration::from_secs(180);
const STARTED: &str = "plimsoll.dev/launch-started";

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_pool()?;
    Ok(vec![same(world)?, mismatch(world)?, in_progress(world)?, expired(world)?])
}

/// The answer is lost, and the same answer is given again.
fn same(world: &mut World) -> Result<Figure> {
    world.cloud.repeated_tokens("same", 0)?;
    let (calls, seconds) = lost(world, "same")?;
    let refused = calls.iter().filter(|call| !call.refused.is_empty()).count();
    ensure!(world.are_calls(calls.len(), 2) && world.are_calls(refused, 0), "same: {calls:?}");
    Ok(("same answer", in_millis(seconds)))
}

/// The answer is lost, and EC2 says that the parameters differ: the instance is found by its tag.
fn mismatch(world: &mut World) -> Result<Figure> {
    world.cloud.repeated_tokens("mismatch", 0)?;
    let (calls, seconds) = lost(world, "mismatch")?;
    let refused = calls.iter().filter(|call| call.refused == "IdempotentParameterMismatch").count();
    ensure!(world.are_calls(refused, 1) && world.are_calls(calls.len(), 2), "mismatch: {calls:?}");
    Ok(("mismatch", in_millis(seconds)))
}

/// The first call takes longer than the actuator waits, and EC2 refuses the second one meanwhile.
fn in_progress(world: &mut World) -> Result<Figure> {
    world.cloud.repeated_tokens("in-progress", RUNNING_SECONDS)?;
    let (calls, seconds) = launch(world, "in-progress")?;
    let refused = calls.iter().filter(|call| call.refused == "IdempotentRequestInProgress").count();
    ensure!(world.are_calls(refused, 1) && world.are_calls(calls.len(), 2), "in progress: {calls:?}");
    Ok(("in progress", in_millis(seconds)))
}

/// The answer is lost with the actuators, and the token expires before they are back: the request is not sent again.
fn expired(world: &mut World) -> Result<Figure> {
    world.cloud.repeated_tokens("expired", 0)?;
    let (before, seen) = (world.cloud.instances()?.len(), world.cloud.last_call()?);
    world.cloud.faults(&json!({"calls": [{"action": "CreateFleet", "do": "hold-answer"}]}))?;
    world.cluster.kubectl.apply(&objects::pod("expired", MILLIS))?;
    until_true("EC2 has executed CreateFleet", world.with_slack(SOON), || {
        let calls = world.cloud.calls("CreateFleet", seen)?;
        Ok((calls.iter().any(|call| call.state == "held-answer"), format!("{} calls", calls.len())))
    })?;
    let actuators: Vec<usize> = {
        let replicas = world.services()?.replicas.iter().enumerate();
        replicas.filter(|(_, replica)| replica.kind == Kind::Actuator).map(|(index, _)| index).collect()
    };
    for index in &actuators {
        world.services()?.kill(*index)?;
    }
    let calls_before = world.cloud.calls("CreateFleet", seen)?.len();
    world.cloud.release(false)?;
    backdate(world)?;
    for index in &actuators {
        world.services()?.up(*index)?;
    }
    let began = SystemTime::now();
    world.keep_ready("expired", &objects::pod("expired", MILLIS), RECOVERED)?;
    let calls = world.cloud.calls("CreateFleet", seen)?;
    ensure!(world.are_calls(calls_before, 1), "calls before the end of the actuators: {calls:?}");
    ensure!(calls.len() == calls_before, "the request was sent again after its token had expired: {calls:?}");
    bought_once(world, before)?;
    Ok(("expired", in_millis(began.elapsed()?.as_secs_f64())))
}

/// Makes the attempt of the claim without an instance older than a request may be.
fn backdate(world: &World) -> Result<()> {
    let claims = world.cluster.kubectl.list(&["nodeclaims"])?;
    let waiting = claims.iter().find(|claim| claim["status"]["providerID"].as_str().is_none_or(str::is_empty));
    let waiting = waiting.context("no claim waits for its instance")?;
    let started = waiting["metadata"]["annotations"][STARTED].as_str().context("the claim has no start")?;
    let started = started.parse::<u128>()?.saturating_sub(OLD.as_millis());
    let name = waiting["metadata"]["name"].as_str().context("a claim without name")?;
    let change = format!("{STARTED}={started}");
    world.cluster.kubectl.run(&["annotate", "nodeclaim", name, "--overwrite", &change]).map(drop)
}

/// Launches a node whose first answer is lost. Returns its calls of CreateFleet and the seconds to the ready pod.
fn lost(world: &World, app: &str) -> Result<(Vec<Call>, f64)> {
    world.cloud.faults(&json!({"calls": [{"action": "CreateFleet", "do": "lose-answer"}]}))?;
    launch(world, app)
}

fn launch(world: &World, app: &str) -> Result<(Vec<Call>, f64)> {
    let (before, seen) = (world.cloud.instances()?.len(), world.cloud.last_call()?);
    let began = SystemTime::now();
    world.keep_ready(app, &objects::pod(app, MILLIS), RECOVERED)?;
    let seconds = began.elapsed()?.as_secs_f64();
    bought_once(world, before)?;
    Ok((world.cloud.calls("CreateFleet", seen)?, seconds))
}

fn bought_once(world: &World, before: usize) -> Result<()> {
    let bought = world.cloud.instances()?.len().saturating_sub(before);
    ensure!(bought == 1, "{bought} instances were launched for one pod");
    super::crash::settled(world)
}
