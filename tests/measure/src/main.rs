//! Measures the scheduler, for `cargo xtask bench`. Prints one line of JSON for each measurement.

mod client;
mod consolidation;
mod figures;
mod landing;
mod month;
mod plan;
mod recorder;
mod server;
mod warm;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::snapshot::Snapshot;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Write as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Measure the scheduler.
///
/// Each measurement prints one line of JSON. A FOLDER contains `snapshot.json` and `catalogs.json` in the format of the
/// model; `cargo xtask bench` writes such folders.
#[derive(Parser, Debug)]
#[command(name = "plimsoll-measure", after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    measurement: Measurement,
}

const EXAMPLES: &str = "\
Examples:
  plimsoll-measure solve --repeat 5 FOLDER
  plimsoll-measure consolidate --seed 1 --nodes 50 --spot 50 --kube-scheduler-landing --trace
  plimsoll-measure month --seed 1 --days 2 --pods 1000 --record-to recording";

#[derive(Subcommand, Debug)]
enum Measurement {
    /// Plan without earlier state.
    ///
    /// With one folder, the peak memory of the process is that of one plan, including its input.
    Solve {
        /// Plans of each folder.
        #[arg(long, value_name = "N", default_value = "1")]
        repeat: NonZeroUsize,
        #[arg(required = true, value_name = "FOLDER")]
        folders: Vec<PathBuf>,
    },
    /// Add one pod per step in a session.
    Warm {
        /// Steps of each series.
        #[arg(long, value_name = "N", default_value = "200")]
        steps: NonZeroUsize,
        #[arg(required = true, value_name = "FOLDER")]
        folders: Vec<PathBuf>,
    },
    /// Plan in a session over gRPC on loopback, with a scheduler in its own process.
    Wire {
        /// Plan no removals.
        #[arg(long)]
        no_disruption: bool,
        #[arg(required = true, value_name = "FOLDER")]
        folders: Vec<PathBuf>,
    },
    Consolidate(consolidation::Args),
    Month(month::Args),
    /// Print where kube-scheduler would bind the pending pods of clusters.
    ///
    /// Reads the clusters from stdin, one JSON object per line.
    Land,
    /// Run this scheduler. Prints its address and ends with its stdin.
    Serve,
}

fn main() -> Result<()> {
    match Arguments::parse().measurement {
        Measurement::Solve { repeat, folders } => each(&folders, |folder| plan::measure(folder, repeat.get())),
        Measurement::Warm { steps, folders } => each(&folders, |folder| warm::measure(folder, steps.get())),
        Measurement::Wire { no_disruption, folders } => {
            each(&folders, |folder| client::measure(folder, !no_disruption))
        }
        Measurement::Consolidate(args) => print(&consolidation::run(&args)?),
        Measurement::Month(args) => print(&month::run(&args)?),
        Measurement::Land => landing::serve(),
        Measurement::Serve => server::serve(),
    }
}

/// Measures and prints one folder after the other.
fn each(folders: &[PathBuf], measure: impl Fn(&Path) -> Result<Value>) -> Result<()> {
    for folder in folders {
        print(&measure(folder).with_context(|| format!("measuring {}", folder.display()))?)?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_and_its_examples_are_valid() {
        Arguments::command().debug_assert();
        let examples: Vec<&str> = EXAMPLES.lines().skip(1).collect();
        assert!(!examples.is_empty());
        for example in examples {
            let parsed = Arguments::try_parse_from(example.split_whitespace());
            assert!(parsed.is_ok(), "{example}: {parsed:?}");
        }
    }
}
