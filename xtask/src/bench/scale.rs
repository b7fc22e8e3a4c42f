//! Large workloads, only Plimsoll.

use super::table::{Table, marked, median, number, numbers, percent_at, seconds};
use super::{Bench, PROGRESS};
use anyhow::Result;
use plimsoll_workloads::Case;
use plimsoll_workloads::bench::{self as workloads, Types};
use serde_json::Value;

/// Number of plans of each workload; the median counts.
const REPEAT: u32 = 3;

/// Seed of the sizes.
const SEED: u64 = 1;

/// Maximum seconds of a plan, and maximum MiB.
type Aim = (Option<f64>, Option<f64>);

/// Title, limits, and generator.
type Workload = (&'static str, Aim, fn() -> Case);

const WORKLOADS: &[Workload] = &[
    ("100,000 pods of 300 shapes, spread, anti-affinity", (Some(1.0), Some(512.0)), || {
        workloads::shapes(SEED, 100_000, 300, Types::BuiltIn)
    }),
    ("100,000 pods, all different", (Some(5.0), None), || workloads::all_different(SEED, 100_000, Types::BuiltIn)),
    ("100,000 pods of one Deployment", (None, None), || workloads::one_deployment(100_000, Types::BuiltIn)),
    ("100 pods of one Deployment", (None, None), || workloads::one_deployment(100, Types::BuiltIn)),
    ("100,000 plain pods on 400 synthetic types", (None, None), || {
        workloads::sizes(SEED, 100_000, Types::Synthetic(400))
    }),
    ("10,000 pods over 63 team pools", (None, None), || workloads::many_pools(SEED, 10_000, 63, Types::BuiltIn)),
    ("4,000 pods of a company's 40 Deployments", (None, None), || workloads::company(SEED, 4_000)),
    ("one more pod, 5,000 nodes, 100,000 running", (None, None), || workloads::with_nodes(SEED, 5_000, 100_000, 1)),
    ("5,000 more pods, 5,000 nodes, 100,000 running", (None, None), || {
        workloads::with_nodes(SEED, 5_000, 100_000, 5_000)
    }),
    ("500 Jobs, 5,000 nodes, 100,000 pods of StatefulSets, 30,000 of DaemonSets", (None, None), || {
        workloads::with_controllers(SEED, 5_000, 100_000, 500)
    }),
];

pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    let columns = ["workload", "solve", "check", "launches", "most pods", "unplaced", "gap", "MiB", "of it input"];
    let mut table = Table::new("Scale, on the real catalog", &columns);
    let mut reached = Vec::new();
    for (title, (most, memory), make) in WORKLOADS {
        PROGRESS.say(title);
        let figures = bench.measure.plan(&make(), REPEAT, false)?;
        table.row(row(title, &figures));
        let (took, peak) = (median(&numbers(&figures["solveSeconds"])), number(&figures, "peakMib"));
        if let Some(most) = most {
            reached.push((took < *most, format!("{title}: plan below {most} s: {}.", seconds(took))));
        }
        if let Some(memory) = memory {
            reached.push((peak < *memory, format!("{title}: peak memory below {memory} MiB: {peak:.0} MiB.")));
        }
    }
    table.note(
        "solve: a whole plan from a snapshot in memory, without state from an earlier plan. check: `invariants::check` of the plan. \
         most pods: on one launch. of it input: memory before planning."
            .to_owned(),
    );
    reached.iter().for_each(|(reached, text)| table.aim(*reached, text));
    Ok(vec![table])
}

fn row(title: &str, told: &Value) -> Vec<String> {
    let mut unplaced = told["unschedulable"].to_string();
    if let Some(reason) = told["firstReason"].as_str() {
        unplaced.push_str(&format!(" ({})", reason.split(':').next().unwrap_or_default()));
    }
    vec![
        marked(title, told),
        seconds(median(&numbers(&told["solveSeconds"]))),
        seconds(number(told, "checkSeconds")),
        told["launches"].to_string(),
        told["mostOnOneLaunch"].to_string(),
        unplaced,
        percent_at(told, "gap"),
        format!("{:.0}", number(told, "peakMib")),
        format!("{:.0}", number(told, "inputMib")),
    ]
}
