//! Measures the scheduler on snapshots from `cargo xtask bench`. A folder contains `snapshot.json` and `catalogs.json`
//! in the format of the model. Prints one line of JSON for each.
//!
//! - `plimsoll-measure [--repeat N] FOLDER...`: plans without earlier state. With one folder, the peak memory of the
//!   process is that of one plan, including its input.
//! - `plimsoll-measure warm [--steps N] FOLDER`: adds one pod per step in a session.
//! - `plimsoll-measure wire [--no-disruption] FOLDER`: a session over gRPC on loopback with a scheduler in its own
//!   process.
//! - `plimsoll-measure consolidate [--seed N] [--nodes N] [--protected %] [--spot %] [--budget %] [--pools N]
//!   [--kube-scheduler-landing] [--without MOVE] [--trace]`: consolidates a generated cluster until a plan removes
//!   nothing.
//! - `plimsoll-measure month [--seed N] [--days N] [--pods N]`: simulates services that follow the time of day, and jobs.
//!   With `--record-to FOLDER`, records the plans as the watcher does; with `--write FOLDER`, writes the workload for other
//!   programs instead.
//! - `plimsoll-measure land`: reads clusters from stdin, one JSON object per line, and prints where kube-scheduler would
//!   bind their pending pods.
//! - `plimsoll-measure serve`: runs this scheduler; it prints its address and ends with its stdin.

mod client;
mod consolidation;
mod figures;
mod landing;
mod month;
mod plan;
mod recorder;
mod server;
mod warm;

use anyhow::{Context as _, Result, bail};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::snapshot::Snapshot;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};

const USAGE: &str = "usage: plimsoll-measure [warm | wire | consolidate | month | land | serve] [--repeat N] [--steps N] [--no-disruption] FOLDER...";

/// Default number of deltas in a warm session.
const STEPS: usize = 200;

/// Measures what its arguments describe, without a folder.
type Generated = fn(&[String]) -> Result<Value>;

/// Parsed arguments.
struct Arguments {
    mode: String,
    repeat: usize,
    steps: usize,
    disruption: bool,
    folders: Vec<PathBuf>,
}

fn main() -> Result<()> {
    let mut rest = std::env::args_os().skip(1);
    let mode = rest.next();
    let asked: Option<Generated> = match mode.as_ref().and_then(|mode| mode.to_str()) {
        Some("consolidate") => Some(consolidation::asked),
        Some("month") => Some(month::asked),
        _ => None,
    };
    if let Some(asked) = asked {
        let rest: Vec<String> = rest.map(|argument| argument.to_string_lossy().into_owned()).collect();
        return print(&asked(&rest)?);
    }
    let Arguments { mode, repeat, steps, disruption, folders } = arguments()?;
    match mode.as_str() {
        "serve" => return server::serve(),
        "land" => return landing::serve(),
        _ => {}
    }
    if folders.is_empty() {
        bail!(USAGE);
    }
    for folder in &folders {
        let result = match mode.as_str() {
            "warm" => warm::measure(folder, steps),
            "wire" => client::measure(folder, disruption),
            _ => plan::measure(folder, repeat),
        };
        print(&result.with_context(|| format!("measuring {}", folder.display()))?)?;
    }
    Ok(())
}

fn arguments() -> Result<Arguments> {
    let mut all = Arguments { mode: String::new(), repeat: 1, steps: STEPS, disruption: true, folders: Vec::new() };
    let mut rest = std::env::args_os().skip(1).peekable();
    if let Some(mode) =
        rest.peek().and_then(|it| it.to_str()).filter(|it| ["warm", "wire", "land", "serve"].contains(it))
    {
        all.mode = mode.to_owned();
        rest.next();
    }
    while let Some(argument) = rest.next() {
        let mut count = || rest.next().and_then(|it| it.to_str()?.parse().ok()).filter(|it| *it > 0);
        match argument.to_str() {
            Some("--repeat") => all.repeat = count().context("--repeat needs a count")?,
            Some("--steps") => all.steps = count().context("--steps needs a count")?,
            Some("--no-disruption") => all.disruption = false,
            _ => all.folders.push(PathBuf::from(argument)),
        }
    }
    Ok(all)
}

/// Prints a line on stdout.
fn print(told: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{told}")?;
    out.flush()?;
    Ok(())
}

/// The snapshot of a folder, in canonical order, and its catalogs.
fn question(folder: &Path) -> Result<(Snapshot, BTreeMap<CatalogId, Catalog>)> {
    let mut snapshot: Snapshot = read(&folder.join("snapshot.json"))?;
    snapshot.sort();
    let catalogs: Vec<Catalog> = read(&folder.join("catalogs.json"))?;
    Ok((snapshot, catalogs.into_iter().map(|catalog| (catalog.id(), catalog)).collect()))
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    serde_json::from_reader(BufReader::new(file)).with_context(|| format!("reading {}", path.display()))
}
