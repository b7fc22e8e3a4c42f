//! Measures the scheduler on snapshots that `cargo xtask bench` made. A folder has `snapshot.json` and `catalogs.json`, both in the model's own
//! form; one line of JSON is printed for each.
//!
//! - `plimsoll-measure [--repeat N] FOLDER...`: plans, always anew. With one folder the process's peak of memory is that of one plan, with
//!   what it was made from.
//! - `plimsoll-measure warm [--steps N] FOLDER`: one pod more, again and again, in a session.
//! - `plimsoll-measure wire [--no-disruption] FOLDER`: a session over gRPC on loopback, with a scheduler in a process of its own.
//! - `plimsoll-measure consolidate [--seed N] [--nodes N] [--protected %] [--spot %] [--budget %] [--pools N] [--trace]`: a generated cluster,
//!   consolidated until a plan removes nothing.
//! - `plimsoll-measure serve`: that scheduler; it prints its address and ends with its stdin.

mod client;
mod consolidation;
mod figures;
mod plan;
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

const USAGE: &str =
    "usage: plimsoll-measure [warm | wire | consolidate | serve] [--repeat N] [--steps N] [--no-disruption] FOLDER...";

/// Deltas that are sent to a warm session unless said otherwise.
const STEPS: usize = 200;

/// What is asked for.
struct Arguments {
    mode: String,
    repeat: usize,
    steps: usize,
    disruption: bool,
    folders: Vec<PathBuf>,
}

fn main() -> Result<()> {
    let mut rest = std::env::args_os().skip(1);
    if rest.next().is_some_and(|mode| mode == "consolidate") {
        let rest: Vec<String> = rest.map(|one| one.to_string_lossy().into_owned()).collect();
        return print(&consolidation::asked(&rest)?);
    }
    let Arguments { mode, repeat, steps, disruption, folders } = arguments()?;
    if mode == "serve" {
        return server::serve();
    }
    if folders.is_empty() {
        bail!(USAGE);
    }
    for folder in &folders {
        let told = match mode.as_str() {
            "warm" => warm::measure(folder, steps),
            "wire" => client::measure(folder, disruption),
            _ => plan::measure(folder, repeat),
        };
        print(&told.with_context(|| format!("measuring {}", folder.display()))?)?;
    }
    Ok(())
}

fn arguments() -> Result<Arguments> {
    let mut all = Arguments { mode: String::new(), repeat: 1, steps: STEPS, disruption: true, folders: Vec::new() };
    let mut rest = std::env::args_os().skip(1).peekable();
    if let Some(mode) = rest.peek().and_then(|it| it.to_str()).filter(|it| ["warm", "wire", "serve"].contains(it)) {
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

/// A line on stdout.
fn print(told: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{told}")?;
    out.flush()?;
    Ok(())
}

/// A folder's snapshot, in canonical order, and its catalogs.
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
