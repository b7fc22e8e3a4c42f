//! Output of kubectl for Plimsoll's objects, and for a pending pod.

use super::super::objects::{self, SOON};
use super::super::{Context, Figure};
use super::growth::reason;
use crate::harness::kubectl::condition;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Context as _, Result, ensure};

pub(super) fn play(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_file("api/tests/fixtures/seed-001.yaml")?;
    world.cluster.kubectl.apply(&objects::deployment("web", 15, 1000))?;
    let mut waiting = None;
    until_true("some pods run, another has an Event with the reason", SOON, || {
        let pods = world.pods("web")?;
        let (ready, pending): (Vec<_>, Vec<_>) = pods.into_iter().partition(|p| condition(p, "Ready"));
        waiting = None;
        for pod in pending {
            // Before the node class is resolved, the reason is a different one, which is also correct.
            if waiting.is_none() && reason(world, &pod)?.is_some_and(|r| r.contains("limit")) {
                waiting = pod["metadata"]["name"].as_str().map(str::to_owned);
            }
        }
        Ok((!ready.is_empty() && waiting.is_some(), format!("{} are ready", ready.len())))
    })?;

    let get = |what: &str| world.cluster.kubectl.run(&["get", what]);
    // The status of the NodePool follows its nodes, so both are read until they agree.
    until_true("the NodePool has the number of its nodes", SOON, || {
        let (pools, count) = (get("nodepools")?, world.nodes()?.len().to_string());
        let row =
            columns(&pools, &["NAME", "NODECLASS", "NODES", "READY", "AGE"], &["default", "default", &count, "True"]);
        Ok((row.is_ok(), row.err().map(|error| error.to_string()).unwrap_or_default()))
    })?;
    let classes = get("ec2nodeclasses")?;
    columns(&classes, &["NAME", "READY", "AGE"], &["default", "True"])?;
    let mut claims = String::new();
    until_true("all claims are ready", world.with_slack(SOON), || {
        claims = get("nodeclaims")?;
        // Cells of a claim without instance are empty.
        let is_ready = |line: &&str| line.split_whitespace().nth(5) == Some("True");
        let open: Vec<_> = claims.lines().skip(1).filter(|line| !is_ready(line)).collect();
        Ok((open.is_empty(), open.join("; ")))
    })?;
    columns(&claims, &["NAME", "TYPE", "CAPACITY", "ZONE", "NODE", "READY", "AGE"], &[])?;
    for line in claims.lines().skip(1) {
        let cells: Vec<_> = line.split_whitespace().collect();
        ensure!(cells.len() == 7, "a claim's row has not 7 cells: {line}");
        let seen = (cells[0].starts_with("default-"), cells[2], cells[3].starts_with("us-east-1"), cells[5]);
        ensure!(seen == (true, "on-demand", true, "True"), "a claim's row is {line}");
    }

    let pod = waiting.context("no pod waits")?;
    let description = world.cluster.kubectl.run(&["describe", "pod", &pod, "-n", "default"])?;
    let line =
        description.lines().rfind(|l| l.contains("plimsoll")).context("kubectl describe shows no Event of Plimsoll")?;
    for word in ["Warning", "FailedScheduling", "default", "limit", "cpu"] {
        ensure!(line.contains(word), "the Event does not say {word:?}: {line}");
    }
    Ok(vec![("Event of a pending pod", line.split_once("plimsoll").map_or("", |(_, rest)| rest).trim().to_owned())])
}

/// Checks the heading, and the start of the first row.
fn columns(table: &str, heading: &[&str], row: &[&str]) -> Result<()> {
    let mut lines = table.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    let shown = lines.next().unwrap_or_default();
    ensure!(shown == heading, "the columns are {shown:?}, not {heading:?}");
    let first = lines.next().context("the table is empty")?;
    ensure!(first.starts_with(row), "the row is {first:?}, not {row:?}");
    Ok(())
}
