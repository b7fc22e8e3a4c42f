//! Seed 001: scale up, reach the limit, and scale down to zero.

use super::super::objects::{self, SOON, millis};
use super::super::{Context, Figure};
use crate::harness::kubectl::condition;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};

/// CPU limit of the pool.
const LIMIT_MILLIS: u64 = 10_000;
const CONSOLIDATE_AFTER: Duration = Duration::from_secs(30);
/// Time from the end of the last pod: `consolidateAfter`, the drain, the termination of the instance.
const EMPTIED: Duration = Duration::from_secs(120);
/// Time for which the limit is checked after every pod that fits runs.
const WATCHED: Duration = Duration::from_secs(15);

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_file("api/tests/fixtures/seed-001.yaml")?;
    let begun = Instant::now();
    world.cluster.kubectl.apply(&objects::deployment("web", 5, 1000))?;
    let nodes = world.wait_ready("web", 5, SOON)?;
    let up = begun.elapsed();
    let types: Vec<_> = world.cloud.living()?.into_iter().map(|i| i.instance_type).collect();
    ensure!(types.iter().all(|t| allowed(t)), "seed 001 does not allow {types:?}");

    world.scale("web", 15)?;
    let (running, told) = at_the_limit(world)?;
    world.scale("web", 0)?;
    let begun = Instant::now();
    world.wait_all_gone(EMPTIED)?;
    let down = begun.elapsed();
    ensure!(down >= CONSOLIDATE_AFTER, "the nodes went after {} s, before consolidateAfter", down.as_secs());
    Ok(vec![
        ("5 pods ready", format!("{:.1} s on {} nodes ({})", up.as_secs_f64(), nodes.len(), types.join(", "))),
        ("of 15 pods", format!("{running} run, {told} are pending with a reason in their Events")),
        ("0 pods, all deleted", format!("{:.1} s", down.as_secs_f64())),
    ])
}

/// Generation above 5, category c, m or r.
fn allowed(instance_type: &str) -> bool {
    let generation = instance_type
        .chars()
        .skip_while(|c| c.is_ascii_alphabetic())
        .take_while(char::is_ascii_digit)
        .collect::<String>();
    instance_type.starts_with(['c', 'm', 'r']) && generation.parse::<u32>().is_ok_and(|g| g > 5)
}

/// Waits until every pod either runs or has a reason, and checks that the limit holds.
fn at_the_limit(world: &World) -> Result<(usize, usize)> {
    let mut seen = (0, 0);
    until_true("every pod runs or has a reason in its Events", world.with_slack(SOON), || {
        ensure_limit(world)?;
        let pods = world.pods("web")?;
        let (running, pending): (Vec<_>, Vec<_>) = pods.iter().partition(|p| condition(p, "Ready"));
        let mut with_reason = 0;
        for pod in &pending {
            with_reason += usize::from(reason(world, pod)?.is_some_and(|r| r.contains("limit")));
        }
        seen = (running.len(), with_reason);
        let all = pods.len() == 15 && !pending.is_empty() && with_reason == pending.len();
        Ok((all, format!("{} run, {with_reason} of {} others have a reason", running.len(), pending.len())))
    })?;
    let begun = Instant::now();
    until_true("the limit holds", WATCHED * 2, || {
        ensure_limit(world)?;
        Ok((begun.elapsed() > WATCHED, String::new()))
    })?;
    Ok(seen)
}

/// Checks the limit with the capacity of nodes, and one CPU for each instance that is not a node yet.
fn ensure_limit(world: &World) -> Result<()> {
    let cpu: u64 = world.nodes()?.iter().filter_map(|n| n["status"]["capacity"]["cpu"].as_str().and_then(millis)).sum();
    ensure!(cpu <= LIMIT_MILLIS, "nodes of {cpu}m, the limit is {LIMIT_MILLIS}m");
    // Every type of these categories has at least one CPU.
    let living = world.cloud.living()?.len();
    ensure!(living <= 10, "{living} instances of at least one CPU each, the limit is 10");
    Ok(())
}

/// Message of Plimsoll's latest Event on a pod.
pub(super) fn reason(world: &World, pod: &Value) -> Result<Option<String>> {
    let name = pod["metadata"]["name"].as_str().context("a pod without name")?;
    let events = world.cluster.kubectl.list(&[
        "events",
        "-n",
        "default",
        "--field-selector",
        &format!("involvedObject.name={name}"),
    ])?;
    let ours = events.into_iter().filter(|e| {
        let source = [&e["source"]["component"], &e["reportingComponent"], &e["reportingController"]];
        source.iter().any(|s| s.as_str().is_some_and(|s| s.contains("plimsoll")))
    });
    // In the order of kubectl; the latest Event counts.
    let latest = ours.max_by_key(|e| time_of(e).to_owned());
    Ok(latest.and_then(|e| e["message"].as_str().map(str::to_owned)))
}

/// Time at which an Event was last seen: RFC 3339 in UTC, which sorts as a string.
fn time_of(event: &Value) -> &str {
    let times = [&event["series"]["lastObservedTime"], &event["lastTimestamp"], &event["eventTime"]];
    times.iter().find_map(|t| t.as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn only_late_generations_of_c_m_and_r() {
        for (name, good) in [
            ("c6i.large", true),
            ("m7i-flex.large", true),
            ("r8g.xlarge", true),
            ("m5.large", false),
            ("t3.large", false),
            ("c5.large", false),
        ] {
            assert_eq!(allowed(name), good, "{name}");
        }
    }
}
