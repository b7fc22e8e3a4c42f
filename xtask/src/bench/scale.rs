//! Large workloads, Plimsoll alone.

use super::table::{Table, marked, median, number, numbers, percent, seconds};
use super::{Bench, say};
use anyhow::Result;
use plimsoll_workloads::Case;
use plimsoll_workloads::bench::{self as workloads, Types};
use serde_json::Value;

/// How often each is planned; the median counts.
const REPEAT: u32 = 3;

/// Sizes are drawn from it.
const SEED: u64 = 1;

/// What it is, what it may take, and how it is made.
type Workload = (&'static str, &'static str, fn() -> Case);

const WORKLOADS: &[Workload] = &[
    ("100,000 pods of 300 shapes, spread, anti-affinity", "1 s, 512 MiB", || {
        workloads::shapes(SEED, 100_000, 300, Types::BuiltIn)
    }),
    ("100,000 pods, all different", "5 s", || workloads::all_different(SEED, 100_000, Types::BuiltIn)),
    ("100,000 pods of one Deployment", "", || workloads::one_deployment(100_000, Types::BuiltIn)),
    ("100 pods of one Deployment", "", || workloads::one_deployment(100, Types::BuiltIn)),
    ("100,000 plain pods on 400 synthetic types", "", || workloads::sizes(SEED, 100_000, Types::Synthetic(400))),
    ("10,000 pods over 63 team pools", "", || workloads::many_pools(SEED, 10_000, 63, Types::BuiltIn)),
    ("4,000 pods of a company's 40 Deployments", "", || workloads::company(SEED, 4_000)),
    ("one more pod, 5,000 nodes, 100,000 running", "10 ms warm", || workloads::with_nodes(SEED, 5_000, 100_000, 1)),
    ("5,000 more pods, 5,000 nodes, 100,000 running", "", || workloads::with_nodes(SEED, 5_000, 100_000, 5_000)),
];

pub(super) fn run(bench: &Bench) -> Result<String> {
    let columns =
        ["workload", "aim", "solve", "check", "launches", "most pods", "unplaced", "gap", "MiB", "of it input"];
    let mut table = Table::new("Scale, on the real catalog", &columns);
    for (title, aim, make) in WORKLOADS {
        say(title);
        let told = bench.measure.plan(&make(), REPEAT, false)?;
        table.row(row(title, aim, &told));
    }
    table.note(
        "solve: a whole plan from a snapshot in memory; nothing is kept from one plan to the next. check: `invariants::check` of the plan. \
         most pods: on one launch. of it input: the memory before planning."
            .to_owned(),
    );
    Ok(table.render())
}

fn row(title: &str, aim: &str, told: &Value) -> Vec<String> {
    let mut unplaced = told["unschedulable"].to_string();
    if let Some(reason) = told["firstReason"].as_str() {
        unplaced.push_str(&format!(" ({})", reason.split(':').next().unwrap_or_default()));
    }
    vec![
        marked(title, told),
        aim.to_owned(),
        seconds(median(&numbers(&told["solveSeconds"]))),
        seconds(number(told, "checkSeconds")),
        told["launches"].to_string(),
        told["mostOnOneLaunch"].to_string(),
        unplaced,
        percent(number(told, "gap")),
        format!("{:.0}", number(told, "peakMib")),
        format!("{:.0}", number(told, "inputMib")),
    ]
}
