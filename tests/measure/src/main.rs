//! Measures the solver on snapshots that `cargo xtask bench` made: `plimsoll-measure [--repeat N] FOLDER...`.
//!
//! A folder has `snapshot.json` and `catalogs.json`, both in the model's own form. One line of JSON is printed for each. With one folder the
//! process's peak of memory is that of one plan, with what it was made from.

mod figures;

use anyhow::{Context as _, Result, bail};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::PlanOptions;
use plimsoll_model::snapshot::Snapshot;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

fn main() -> Result<()> {
    let (mut folders, mut repeat) = (Vec::new(), 1_usize);
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--repeat" {
            let count = arguments.next().and_then(|it| it.to_str()?.parse().ok()).filter(|it| *it > 0);
            repeat = count.context("--repeat needs a count")?;
        } else {
            folders.push(PathBuf::from(argument));
        }
    }
    if folders.is_empty() {
        bail!("usage: plimsoll-measure [--repeat N] FOLDER...");
    }
    for folder in &folders {
        let told = measure(folder, repeat).with_context(|| format!("measuring {}", folder.display()))?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{told}")?;
        out.flush()?;
    }
    Ok(())
}

/// Plans `repeat` times, always anew, and checks the plan afterwards.
fn measure(folder: &Path, repeat: usize) -> Result<Value> {
    let snapshot: Snapshot = read(&folder.join("snapshot.json"))?;
    let catalogs: Vec<Catalog> = read(&folder.join("catalogs.json"))?;
    let catalogs: BTreeMap<CatalogId, Catalog> = catalogs.into_iter().map(|catalog| (catalog.id(), catalog)).collect();
    let before = figures::peak_mib()?;
    let (mut seconds, mut first) = (Vec::new(), None);
    for _ in 0..repeat {
        let started = Instant::now();
        let plan = plimsoll_solver::solve(&snapshot, &catalogs, &PlanOptions::default());
        seconds.push(started.elapsed().as_secs_f64());
        match &first {
            None => first = Some(plan),
            Some(first) if *first == plan => {}
            Some(_) => bail!("two plans for the same snapshot differ"),
        }
    }
    let plan = first.unwrap_or_default();
    // Before the check, which is no part of planning.
    let peak = figures::peak_mib()?;
    let started = Instant::now();
    let violations = plimsoll_invariants::check(&snapshot, &catalogs, &plan);
    let mut told = figures::of(&snapshot, &catalogs, &plan);
    told["solveSeconds"] = seconds.into();
    told["checkSeconds"] = started.elapsed().as_secs_f64().into();
    told["inputMib"] = before.into();
    told["peakMib"] = peak.into();
    told["violations"] = violations.len().into();
    told["firstViolation"] = violations.first().map(ToString::to_string).into();
    Ok(told)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    serde_json::from_reader(BufReader::new(file)).with_context(|| format!("reading {}", path.display()))
}
