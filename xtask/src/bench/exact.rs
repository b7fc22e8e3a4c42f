//! Lower bound and plan compared with the optimum, which HiGHS proves (tests/exact), on small instances.

mod fillings;

use super::child::prepare;
use super::table::{Table, number, percent};
use super::{Bench, PROGRESS};
use crate::json_process::JsonProcess;
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use plimsoll_workloads::Rng;
use plimsoll_workloads::bench::{Types, sizes};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Minimum and maximum number of pods of an instance.
const PODS: (usize, usize) = (10, 16);
/// Micro-USD per USD.
const MICRO: f64 = 1e6;
/// Tolerance for bounds above the optimum, because figures are printed in USD.
const ROUNDING: f64 = 1e-9;

/// Results of one instance, in USD per hour.
struct Found {
    seed: u64,
    optimum: f64,
    plan: f64,
    bound: f64,
    fillings: usize,
}

pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    let count = bench.args.exact;
    PROGRESS.say(&format!("{count} small instances compared with their optimum"));
    let (mut highs, version) = start(&bench.measure.root)?;
    let dir = bench.measure.dir.join("exact");
    let (mut folders, mut optima, mut unproven) = (Vec::new(), Vec::new(), 0_u64);
    for seed in 1..=count {
        let case = sizes(seed, Rng::new(!seed).range(PODS.0, PODS.1), Types::BuiltIn);
        let (demand, fillings) = fillings::all(&case.question()?).with_context(|| format!("instance {seed}"))?;
        let answer: Value = highs.ask(&json!({"demand": demand, "fillings": fillings}))?;
        if let Some(error) = answer["error"].as_str() {
            bail!("instance {seed}: HiGHS: {error}");
        }
        if answer["unproven"] == true {
            PROGRESS.say(&format!("instance {seed}: HiGHS found no proof in time"));
            unproven += 1;
            continue;
        }
        optima.push((seed, number(&answer, "optimum") / MICRO, fillings.len()));
        let folder = dir.join(seed.to_string());
        prepare(&case, &folder)?;
        folders.push(folder);
    }
    highs.end()?;
    let lines = bench.measure.solve(&folders, 1)?;
    let mut all = Vec::new();
    for ((seed, optimum, fillings), line) in optima.into_iter().zip(&lines) {
        if line["unschedulable"] != 0 || line["violations"] != 0 {
            bail!("instance {seed}: the plan leaves pods or is not valid: {line}");
        }
        all.push(Found { seed, optimum, plan: number(line, "hourly"), bound: number(line, "lowerBound"), fillings });
    }
    let mut table = table(&all, &version);
    if unproven > 0 {
        table.note(format!("{unproven} more instances are omitted: HiGHS found no proof in time."));
    }
    Ok(vec![table])
}

/// Starts HiGHS. Returns its version too.
fn start(root: &Path) -> Result<(JsonProcess, String)> {
    let folder = root.join("tests/exact");
    let venv = workspace::script(&folder.join("venv.sh"))?;
    let python = venv.join("bin/python");
    let mut highs = JsonProcess::start("HiGHS", Command::new(python).arg(folder.join("optimum.py")))?;
    let hello: Value = highs.read()?;
    Ok((highs, hello["highs"].as_str().unwrap_or("unknown").to_owned()))
}

fn table(all: &[Found], version: &str) -> Table {
    let columns = [
        "instances",
        "bounds above the optimum",
        "bound below it, mean",
        "worst",
        "plans that are optimal",
        "plan above it, mean",
        "worst",
    ];
    let mut table = Table::new("Exact optimum of small instances", &columns);
    let count = all.len().max(1) as f64;
    let beyond = |it: &&Found| it.bound > it.optimum * (1.0 + ROUNDING);
    let impossible = |it: &&Found| it.plan < it.optimum * (1.0 - ROUNDING);
    let below: Vec<f64> = all.iter().map(|it| 1.0 - it.bound / it.optimum).collect();
    let above: Vec<f64> = all.iter().map(|it| it.plan / it.optimum - 1.0).collect();
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    table.row(vec![
        all.len().to_string(),
        all.iter().filter(beyond).count().to_string(),
        percent(below.iter().sum::<f64>() / count),
        percent(most(&below)),
        above.iter().filter(|it| **it < ROUNDING).count().to_string(),
        percent(above.iter().sum::<f64>() / count),
        percent(most(&above)),
    ]);
    let largest = all.iter().map(|it| it.fillings).max().unwrap_or(0);
    table.note(format!(
        "{} to {} plain pods of Karpenter's sizes on the real catalog. HiGHS {version} proves the optimum over all ways to fill a node that no \
         other way dominates (up to {largest}). They are generated without the solver's code.",
        PODS.0, PODS.1,
    ));
    let bounds = all.iter().filter(beyond).count();
    table.aim(bounds == 0, &format!("the bound is never above the optimum: {bounds} times."));
    let mean = above.iter().sum::<f64>() / count;
    table.aim(mean <= 0.02, &format!("the plan is on average within 2 % of the optimum: {}.", percent(mean)));
    for it in all.iter().filter(impossible) {
        table.note(format!(
            "INSTANCE {}: the plan costs less than the optimum, so the plan or the optimum is wrong.",
            it.seed
        ));
    }
    for it in all.iter().filter(beyond) {
        table.note(format!("INSTANCE {}: the bound is {}, the optimum {}.", it.seed, it.bound, it.optimum));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_above_the_optimum_and_a_plan_below_it_are_told() {
        let found = |seed, bound, plan| Found { seed, optimum: 2.0, plan, bound, fillings: 3 };
        let text = table(&[found(1, 1.9, 2.0), found(2, 2.1, 2.2), found(3, 1.0, 1.5)], "1.0").render();
        assert!(text.contains("INSTANCE 2: the bound is 2.1, the optimum 2."), "{text}");
        assert!(text.contains("INSTANCE 3: the plan costs less"), "{text}");
        assert!(!text.contains("INSTANCE 1"), "{text}");
    }
}
