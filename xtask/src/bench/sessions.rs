//! Sessions with the scheduler, only Plimsoll.

use super::child::prepare;
use super::table::{Table, number, seconds};
use super::{Bench, PROGRESS};
use anyhow::{Context as _, Result};
use plimsoll_workloads::Case;
use plimsoll_workloads::bench::{self as workloads, Types};
use serde_json::Value;
use std::path::PathBuf;

/// Seed of the sizes.
const SEED: u64 = 1;
/// Nodes and running pods of the large cluster.
const LARGE: (usize, usize) = (5_000, 100_000);

/// Maximum seconds of a plan for one more pod in a warm session, of a plan in a cold session, of the first launch and
/// of the whole plan of a burst; maximum memory of the burst in MiB.
const WARM: f64 = 0.01;
const COLD: f64 = 2.0;
const FIRST_LAUNCH: f64 = 0.1;
const WHOLE_PLAN: f64 = 1.0;
const MEMORY: f64 = 512.0;

pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    let cluster = folder(bench, "cluster", &workloads::with_nodes(SEED, LARGE.0, LARGE.1, 1))?;
    PROGRESS.say("one more pod in a warm session");
    let warm = measure(bench, &["warm"], &cluster)?;
    let mut over_wire = Vec::new();
    for (title, arguments) in
        [("without disruption", ["wire", "--no-disruption"].as_slice()), ("with disruption", &["wire"])]
    {
        PROGRESS.say(&format!("a cold session, {title}"));
        let title = format!("{} nodes, {} running pods, {title}", LARGE.0, LARGE.1);
        over_wire.push((title, measure(bench, arguments, &cluster)?));
    }
    PROGRESS.say("the first launch of a burst");
    let burst = folder(bench, "burst", &workloads::shapes(SEED, 100_000, 300, Types::BuiltIn))?;
    let burst = measure(bench, &["wire"], &burst)?;
    Ok(vec![warm_table(&warm), wire_table(&over_wire, &burst)])
}

fn folder(bench: &Bench, name: &str, case: &Case) -> Result<PathBuf> {
    let dir = bench.measure.dir.join(name);
    prepare(case, &dir)?;
    Ok(dir)
}

fn measure(bench: &Bench, arguments: &[&str], folder: &PathBuf) -> Result<Value> {
    bench.measure.run(arguments, std::slice::from_ref(folder))?.pop().context("plimsoll-measure printed nothing")
}

fn warm_table(told: &Value) -> Table {
    let columns = [
        "what comes",
        "disruption",
        "steps",
        "first plan",
        "delta and plan, median",
        "p99",
        "plan alone, median",
        "p99",
        "on nodes",
        "launched",
    ];
    let mut table = Table::new("One more pod in a warm session", &columns);
    let mut slowest = [0.0_f64; 2];
    for series in told["series"].as_array().into_iter().flatten() {
        let is_known_workload = series["more"] == "known";
        let disruption = series["disruption"] == true;
        slowest[usize::from(disruption)] = slowest[usize::from(disruption)].max(number(series, "median"));
        table.row(vec![
            if is_known_workload { "a pod of a known workload" } else { "the first pod of a new workload" }.to_owned(),
            if disruption { "yes" } else { "no" }.to_owned(),
            series["steps"].to_string(),
            seconds(number(series, "firstPlanSeconds")),
            seconds(number(series, "median")),
            seconds(number(series, "p99")),
            seconds(number(series, "planMedian")),
            seconds(number(series, "planP99")),
            series["placed"].to_string(),
            series["launched"].to_string(),
        ]);
    }
    table.note(format!(
        "{} nodes and {} running pods on the real catalog. Each step adds one pending pod; the pod of the step before runs where the plan placed it. \
         The time is that of the session: applying the delta, planning, checking the plan and encoding its messages. Each row runs for at most 60 s.",
        LARGE.0, LARGE.1
    ));
    for (slowest, title) in slowest.iter().zip(["without", "with"]) {
        let text = format!("one more pod below {}, {title} disruption: {} (median).", seconds(WARM), seconds(*slowest));
        table.aim(*slowest < WARM, &text);
    }
    table
}

fn wire_table(clusters: &[(String, Value)], burst: &Value) -> Table {
    let columns = [
        "cluster",
        "whole session",
        "plan, first fragment",
        "first launch",
        "last fragment",
        "fragments",
        "launches",
        "placements",
        "terminations",
        "unplaced",
        "scheduler's MiB",
    ];
    let mut table = Table::new("Sessions over gRPC on loopback", &columns);
    let mut row = |title: &str, told: &Value| {
        table.row(vec![
            title.to_owned(),
            seconds(number(told, "coldSeconds")),
            seconds(number(told, "planFirstFragmentSeconds")),
            told["planFirstLaunchSeconds"].as_f64().map_or("-".to_owned(), seconds),
            seconds(number(told, "planSeconds")),
            told["fragments"].to_string(),
            told["launches"].to_string(),
            told["placements"].to_string(),
            told["terminations"].to_string(),
            told["unschedulable"].to_string(),
            format!("{:.0}", number(told, "serverPeakMib")),
        ]);
    };
    clusters.iter().for_each(|(title, told)| row(title, told));
    row("100,000 waiting pods of 300 shapes, spread, anti-affinity", burst);
    table.note(
        "The scheduler runs in its own process. whole session: from Hello to the last fragment of the plan, including the transfer of catalog and snapshot. \
         plan: in another session, measured after the whole snapshot has arrived; an empty catalog, sent last, starts the plan."
            .to_owned(),
    );
    for (title, told) in clusters {
        let cold = number(told, "coldSeconds");
        table.aim(cold < COLD, &format!("a cold session below {COLD} s, {title}: {}.", seconds(cold)));
    }
    let first = number(burst, "planFirstLaunchSeconds");
    table.aim(
        first < FIRST_LAUNCH,
        &format!("the first launch of a burst below {}: {}.", seconds(FIRST_LAUNCH), seconds(first)),
    );
    let plan = number(burst, "planSeconds");
    table.aim(
        plan < WHOLE_PLAN,
        &format!("the plan for a burst below {WHOLE_PLAN} s, over gRPC and with the check: {}.", seconds(plan)),
    );
    let memory = number(burst, "serverPeakMib");
    table.aim(
        memory < MEMORY,
        &format!("peak memory below {MEMORY:.0} MiB for a burst, including the session's mirror: {memory:.0} MiB."),
    );
    table
}
