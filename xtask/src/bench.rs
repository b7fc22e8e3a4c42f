//! Time, memory and cost of plans, compared with Karpenter's scheduler (tests/peers/karpenter) on the same machine and
//! the same input. Each measurement runs in its own process, so that its peak memory is its own. Plimsoll is built in
//! the release profile.

mod child;
mod consolidation;
mod document;
mod exact;
mod gaps;
mod growth;
mod mix;
mod period;
mod scale;
mod sessions;
pub(crate) mod table;

use crate::progress::Reporter;
use anyhow::{Context as _, Result};
use child::Measure;
use clap::ValueEnum;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

const PROGRESS: Reporter = Reporter("bench");

/// A part of the benchmarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Karpenter's own mix of pods, on 400 synthetic types and on the real catalog.
    KarpenterMix,
    /// 100,000 pods of 300 shapes, all different, of one Deployment; many pools; a company; 5,000 nodes.
    Scale,
    /// Sessions with the process of the scheduler: one more pod in a warm session, a cold session over gRPC, the first
    /// launch of a burst.
    Sessions,
    /// Cost compared with Karpenter's and with the lower bound on 200 random instances.
    Gaps,
    /// Plan and lower bound compared with the optimum that HiGHS proves on 50 small instances (needs Python).
    Exact,
    /// Consolidation of underused clusters to the end, compared with Karpenter's disruption methods.
    Consolidation,
    /// A period in which pods come and go, compared with Karpenter's provisioner and disruption methods.
    Period,
    /// Time by number of pods, shapes, types and nodes, with the fitted exponents.
    Growth,
}

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  cargo xtask bench                                              everything, including Karpenter: hours
  cargo xtask bench --no-peer                                    only Plimsoll: minutes
  cargo xtask bench --only karpenter-mix --sizes 1000,5000       two sizes of Karpenter's mix
  cargo xtask bench --only gaps --instances 20 --no-peer
  cargo xtask bench --only consolidation --nodes 50 --clusters 20  twenty clusters of each kind
  cargo xtask bench --only consolidation --nodes 50 --kinds Spot
  cargo xtask bench --only period --days 2 --period-pods 300     two days of services and jobs
  cargo xtask bench --write docs/benchmarks.md                   also write the tables to this file
  cargo xtask bench --only sessions --write docs/benchmarks.md   only these tables; the others stay unchanged")]
pub(crate) struct Args {
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Pods of Karpenter's mix.
    #[arg(long, value_delimiter = ',', default_value = "1000,5000,10000,20000", value_name = "PODS")]
    sizes: Vec<usize>,
    /// Maximum number of pods of the mix for which Karpenter runs; ten thousand on the real catalog take minutes.
    #[arg(long, default_value_t = 20_000, value_name = "PODS")]
    peer_most: usize,
    /// Number of Karpenter's seeds; the best cost and the median time count.
    #[arg(long, default_value_t = 3, value_name = "N")]
    peer_seeds: u64,
    /// Maximum number of pods of the mix for which Karpenter's sorting and truncating of type lists after Solve is
    /// measured; for ten thousand on the real catalog that alone takes minutes.
    #[arg(long, default_value_t = 5_000, value_name = "PODS")]
    peer_cut_most: usize,
    /// From this number of pods of the mix on, Karpenter runs with one seed on the real catalog.
    #[arg(long, value_name = "PODS")]
    peer_once_from: Option<usize>,
    /// Number of random instances for cost.
    #[arg(long, default_value_t = 200, value_name = "N")]
    instances: u64,
    /// Number of small instances that are compared with their optimum.
    #[arg(long, default_value_t = 50, value_name = "N")]
    exact: u64,
    /// Sizes of the consolidated clusters.
    #[arg(long, value_delimiter = ',', default_value = "50,200", value_name = "NODES")]
    nodes: Vec<usize>,
    /// Length of the simulated period.
    #[arg(long, default_value_t = 1, value_name = "DAYS")]
    days: u64,
    /// Average number of pods in the simulated period.
    #[arg(long, default_value_t = 300, value_name = "PODS")]
    period_pods: u64,
    /// Number of consolidated clusters of each kind and size, and of simulated periods.
    #[arg(long, default_value_t = 3, value_name = "N")]
    clusters: u64,
    /// Only the kinds of consolidated clusters whose name contains one of these.
    #[arg(long, value_delimiter = ',', value_name = "TEXT")]
    kinds: Vec<String>,
    /// Seed of the first cluster.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    first_seed: u64,
    /// Bind the pods of removed nodes where kube-scheduler prefers, not on their planned nodes.
    #[arg(long)]
    kube_scheduler_landing: bool,
    /// Maximum number of nodes of a cluster that Karpenter consolidates.
    #[arg(long, default_value_t = 200, value_name = "NODES")]
    peer_most_nodes: usize,
    /// Time limit of Karpenter for one cluster.
    #[arg(long, default_value_t = 1_800, value_name = "SECONDS")]
    peer_wall: u64,
    /// Without Karpenter.
    #[arg(long)]
    no_peer: bool,
    /// Use plimsoll-measure from the target folder without building it.
    #[arg(long)]
    no_build: bool,
    /// Folder for the inputs (default: bench in cargo's target folder).
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write method, versions, date and tables to this file; tables of other parts stay unchanged.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Shared state of the parts.
struct Bench {
    measure: Measure,
    args: Args,
}

/// Measures, prints tables, and writes them if requested.
///
/// # Errors
/// If a build or a measurement fails.
pub(crate) fn run(args: Args) -> Result<()> {
    let (root, target) = crate::workspace::folders()?;
    let dir = args.dir.clone().unwrap_or_else(|| target.join("bench"));
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let measure = Measure::new(&root, &target, &dir, !args.no_peer, !args.no_build)?;
    let bench = Bench { measure, args };
    let started = Instant::now();
    let mut sections = Vec::new();
    for part in Part::value_variants() {
        if !bench.args.only.is_empty() && !bench.args.only.contains(part) {
            continue;
        }
        let stamp = bench.measure.stamp()?;
        let tables = match part {
            Part::KarpenterMix => mix::run(&bench)?,
            Part::Scale => scale::run(&bench)?,
            Part::Sessions => sessions::run(&bench)?,
            Part::Gaps => gaps::run(&bench)?,
            Part::Exact => exact::run(&bench)?,
            Part::Consolidation => consolidation::run(&bench)?,
            Part::Period => period::run(&bench)?,
            Part::Growth => growth::run(&bench)?,
        };
        for table in tables {
            let section = document::Section::new(&table, &stamp);
            print(&section.to_string())?;
            sections.push(section);
        }
        if let Some(path) = &bench.args.write {
            document::write(path, &bench.measure.method()?, &sections)?;
        }
    }
    PROGRESS.say(&format!("measured in {:.0} s", started.elapsed().as_secs_f64()));
    Ok(())
}

fn print(section: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{section}")?;
    out.flush()?;
    Ok(())
}
