//! Cost on random instances: beside Karpenter's and above the lower bound.

use super::child::prepare;
use super::mix::Peer;
use super::table::{Table, median, number, numbers, percent, seconds};
use super::{Bench, say};
use anyhow::Result;
use plimsoll_workloads::Rng;
use plimsoll_workloads::bench::{Types, sizes};
use serde_json::Value;

/// Least and most pods of an instance.
const PODS: (f64, f64) = (10.0, 3000.0);
/// Instances are told apart by their size.
const SIZES: [(f64, f64); 3] = [(10.0, 100.0), (101.0, 1000.0), (1001.0, 3000.0)];

struct Instance {
    pods: f64,
    seconds: f64,
    gap: f64,
    hourly: f64,
    unschedulable: f64,
    theirs: Option<Peer>,
}

pub(super) fn run(bench: &Bench) -> Result<String> {
    let count = bench.args.instances;
    say(&format!("{count} random instances on the real catalog"));
    let dir = bench.measure.dir.join("instances");
    let mut folders = Vec::new();
    for seed in 1..=count {
        let case = sizes(seed, pods(seed), Types::BuiltIn);
        let folder = dir.join(seed.to_string());
        prepare(&case, &folder)?;
        if bench.measure.with_peer() {
            case.write(&folder)?;
        }
        folders.push(folder);
    }
    let lines = bench.measure.solve(&folders, 1)?;
    let theirs = if bench.measure.with_peer() {
        // One catalog for all: Karpenter's side keeps what it read last.
        let catalog = dir.join("1").join("catalog.json");
        let about: Vec<_> = folders.iter().map(|it| (it.join("manifests"), catalog.clone())).collect();
        bench.measure.ask(&about, bench.args.peer_seeds, false)?
    } else {
        Vec::new()
    };
    let instances: Vec<Instance> =
        lines.iter().enumerate().map(|(index, line)| instance(line, theirs.get(index))).collect();
    Ok(table(&instances))
}

/// Pods of an instance, drawn evenly on a logarithmic scale.
fn pods(seed: u64) -> usize {
    const STEPS: usize = 1_000_000;
    // Another stream than that of the instance itself.
    let share = Rng::new(!seed).range(0, STEPS) as f64 / STEPS as f64;
    // Between the bounds, so that the conversion is exact.
    (PODS.0.ln() + share * (PODS.1 / PODS.0).ln()).exp().round() as usize
}

fn instance(line: &Value, theirs: Option<&Value>) -> Instance {
    Instance {
        pods: number(line, "pods"),
        seconds: median(&numbers(&line["solveSeconds"])),
        gap: number(line, "gap"),
        hourly: number(line, "hourly"),
        unschedulable: number(line, "unschedulable"),
        theirs: theirs.map(Peer::new),
    }
}

fn table(all: &[Instance]) -> String {
    let mut table = Table::new(
        "Cost, random instances of 10 to 3,000 plain pods on the real catalog",
        &[
            "pods",
            "instances",
            "mean gap",
            "worst gap",
            "unplaced",
            "median time",
            "slowest",
            "cost beside Karpenter, mean",
            "worst",
            "dearer",
        ],
    );
    for (least, most) in SIZES {
        let some: Vec<&Instance> = all.iter().filter(|it| (least..=most).contains(&it.pods)).collect();
        table.row(row(&format!("{least} to {most}"), &some));
    }
    table.row(row("all", &all.iter().collect::<Vec<_>>()));
    table.note("gap: above Plimsoll's own lower bound; beside Karpenter: the best cost of its seeds.".to_owned());
    table.render()
}

fn row(title: &str, some: &[&Instance]) -> Vec<String> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let most = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let gaps: Vec<f64> = some.iter().map(|it| it.gap).collect();
    let times: Vec<f64> = some.iter().map(|it| it.seconds).collect();
    let beside: Vec<f64> = some.iter().filter_map(|it| Some(it.hourly / it.theirs.as_ref()?.hourly - 1.0)).collect();
    let of = |value: f64| if value.is_finite() { percent(value) } else { "-".to_owned() };
    vec![
        title.to_owned(),
        some.len().to_string(),
        of(mean(&gaps)),
        of(most(&gaps)),
        format!("{:.0}", some.iter().map(|it| it.unschedulable).sum::<f64>()),
        seconds(median(&times)),
        seconds(times.iter().copied().fold(0.0, f64::max)),
        if beside.is_empty() { "-".to_owned() } else { of(mean(&beside)) },
        of(most(&beside)),
        if beside.is_empty() { "-".to_owned() } else { beside.iter().filter(|it| **it > 1e-6).count().to_string() },
    ]
}

#[cfg(test)]
mod tests {
    use super::pods;

    #[test]
    fn sizes_cover_the_range() {
        let sizes: Vec<usize> = (0..500).map(pods).collect();
        assert!(sizes.iter().all(|it| (10..=3000).contains(it)));
        // The logarithmic middle is 173: about half are below.
        let small = sizes.iter().filter(|it| **it < 173).count();
        assert!((200..300).contains(&small), "{small}");
    }
}
