//! Cost on random instances, compared with Karpenter's cost and the lower bound.

mod answers;

use super::child::prepare;
use super::mix::Peer;
use super::table::{Table, median, number, numbers, percent, seconds};
use super::{Bench, PROGRESS};
use anyhow::Result;
use plimsoll_workloads::Rng;
use plimsoll_workloads::bench::{Types, sizes};
use serde_json::Value;

/// Minimum and maximum number of pods of an instance.
const PODS: (f64, f64) = (10.0, 3000.0);
/// Groups of instances by size.
const SIZES: [(f64, f64); 3] = [(10.0, 100.0), (101.0, 1000.0), (1001.0, 3000.0)];

/// Relative tolerance for equal costs, because costs are printed in USD.
const SAME: f64 = 1e-6;

struct Instance {
    pods: f64,
    seconds: f64,
    /// `None` if the plan has no lower bound.
    gap: Option<f64>,
    hourly: f64,
    unschedulable: f64,
    theirs: Option<Peer>,
}

pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    let count = bench.args.instances;
    PROGRESS.say(&format!("{count} random instances on the real catalog"));
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
        // One catalog for all instances: Karpenter's side caches the last catalog.
        let catalog = dir.join("1").join("catalog.json");
        answers::kept(bench, &dir, &folders, &catalog)?
    } else {
        Vec::new()
    };
    let instances: Vec<Instance> =
        lines.iter().enumerate().map(|(index, line)| instance(line, theirs.get(index))).collect();
    Ok(vec![table(&instances)])
}

/// Number of pods of an instance, uniform on a logarithmic scale.
fn pods(seed: u64) -> usize {
    const STEPS: usize = 1_000_000;
    // A different random stream than that of the instance.
    let share = Rng::new(!seed).range(0, STEPS) as f64 / STEPS as f64;
    // The value is between the bounds, so the conversion is exact.
    (PODS.0.ln() + share * (PODS.1 / PODS.0).ln()).exp().round() as usize
}

fn instance(line: &Value, theirs: Option<&Value>) -> Instance {
    Instance {
        pods: number(line, "pods"),
        seconds: median(&numbers(&line["solveSeconds"])),
        gap: line["gap"].as_f64(),
        hourly: number(line, "hourly"),
        unschedulable: number(line, "unschedulable"),
        theirs: theirs.map(Peer::new),
    }
}

fn table(all: &[Instance]) -> Table {
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
    let seeds = all.iter().filter_map(|it| it.theirs.as_ref()).map(|peer| peer.seeds).min();
    let seeds = seeds
        .map_or(String::new(), |seeds| format!(". beside Karpenter: compared with the best cost of {seeds} seeds"));
    table.note(format!("gap: above Plimsoll's own lower bound{seeds}."));
    let unbounded = all.iter().filter(|it| it.gap.is_none()).count();
    if unbounded > 0 {
        table.note(format!("Gaps leave out {unbounded} instances whose plan has no lower bound."));
    }
    aims(&mut table, all);
    table
}

fn aims(table: &mut Table, all: &[Instance]) {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let most = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let gaps: Vec<f64> = all.iter().filter_map(|it| it.gap).collect();
    let beside: Vec<f64> = all.iter().filter_map(Instance::beside).collect();
    if !beside.is_empty() {
        table.aim(most(&beside) <= SAME, &format!("never above Karpenter's: at most {}.", percent(most(&beside))));
        let text = format!("on average at least 20 % below Karpenter's: {} below.", percent(-mean(&beside)));
        table.aim(mean(&beside) <= -0.2, &text);
    }
    if !gaps.is_empty() {
        table.aim(mean(&gaps) <= 0.03, &format!("mean gap at most 3 %: {}.", percent(mean(&gaps))));
        table.aim(most(&gaps) <= 0.1, &format!("worst gap at most 10 %: {}.", percent(most(&gaps))));
    }
}

impl Instance {
    /// The cost relative to Karpenter's best, if Karpenter ran.
    fn beside(&self) -> Option<f64> {
        Some(self.hourly / self.theirs.as_ref()?.hourly - 1.0)
    }
}

fn row(title: &str, some: &[&Instance]) -> Vec<String> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let most = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let gaps: Vec<f64> = some.iter().filter_map(|it| it.gap).collect();
    let times: Vec<f64> = some.iter().map(|it| it.seconds).collect();
    let beside: Vec<f64> = some.iter().filter_map(|it| it.beside()).collect();
    let of = |value: f64| if value.is_finite() { percent(value) } else { "-".to_owned() };
    vec![
        title.to_owned(),
        some.len().to_string(),
        if gaps.is_empty() { "-".to_owned() } else { of(mean(&gaps)) },
        of(most(&gaps)),
        format!("{:.0}", some.iter().map(|it| it.unschedulable).sum::<f64>()),
        seconds(median(&times)),
        seconds(times.iter().copied().fold(0.0, f64::max)),
        if beside.is_empty() { "-".to_owned() } else { of(mean(&beside)) },
        of(most(&beside)),
        if beside.is_empty() { "-".to_owned() } else { beside.iter().filter(|it| **it > SAME).count().to_string() },
    ]
}

#[cfg(test)]
mod tests {
    use super::{instance, pods, row};
    use serde_json::json;

    #[test]
    fn plans_without_a_lower_bound_have_no_gap() {
        let [known, unknown] = [json!(0.1), json!(null)].map(|gap| {
            let line = json!({"pods": 20, "solveSeconds": [0.1], "gap": gap, "hourly": 1.0, "unschedulable": 0});
            instance(&line, None)
        });
        assert_eq!(row("all", &[&known, &unknown])[1..4], ["2", "10.0 %", "10.0 %"]);
        assert_eq!(row("all", &[&unknown])[1..4], ["1", "-", "-"]);
    }

    #[test]
    fn sizes_cover_the_range() {
        let sizes: Vec<usize> = (0..500).map(pods).collect();
        assert!(sizes.iter().all(|it| (10..=3000).contains(it)));
        // The logarithmic midpoint is 173, so about half of the sizes are below it.
        let small = sizes.iter().filter(|it| **it < 173).count();
        assert!((200..300).contains(&small), "{small}");
    }
}
