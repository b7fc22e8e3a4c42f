//! `plimsoll-measure gaps`.

use crate::solve::figures;
use anyhow::{Context as _, Result};
use clap::Args;
use plimsoll_model::plan::PlanOptions;
use plimsoll_workloads::Rng;
use plimsoll_workloads::bench::{self, Types};
use std::path::PathBuf;
use std::time::Instant;

/// Pods of an instance; sizes are drawn evenly on a logarithmic scale.
const PODS: (f64, f64) = (10.0, 3000.0);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How many instances.
    #[arg(long, default_value_t = 200)]
    count: u64,
    /// Seed of the first; the others follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Most pods of an instance.
    #[arg(long, default_value_t = 3000)]
    pods_max: usize,
    /// Write the manifests of each into a folder named by its seed below this one, and the catalog, for other planners.
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    for seed in arguments.seed..arguments.seed.saturating_add(arguments.count) {
        let pods = pods(seed).min(arguments.pods_max);
        let case = bench::sizes(seed, pods, Types::BuiltIn);
        if let Some(dir) = &arguments.dir {
            write(&case, dir, seed)?;
        }
        let question = case.question()?;
        let started = Instant::now();
        let plan = plimsoll_solver::solve(&question.snapshot, &question.catalogs, &PlanOptions::default());
        let seconds = started.elapsed().as_secs_f64();
        let mut told = figures(&question.snapshot, &question.catalogs, &plan);
        told["seed"] = seed.into();
        told["solveSeconds"] = seconds.into();
        crate::tell(&told)?;
    }
    Ok(())
}

fn pods(seed: u64) -> usize {
    const STEPS: usize = 1_000_000;
    // Another stream than that of the instance itself.
    let share = Rng::new(!seed).range(0, STEPS) as f64 / STEPS as f64;
    let pods = (PODS.0.ln() + share * (PODS.1 / PODS.0).ln()).exp().round();
    // Between the bounds above, so that the conversion is exact.
    pods as usize
}

fn write(case: &plimsoll_workloads::Case, dir: &std::path::Path, seed: u64) -> Result<()> {
    let folder = dir.join(seed.to_string());
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let mut bytes = Vec::new();
    case.write_manifests(&mut bytes)?;
    std::fs::write(folder.join("cluster.json"), bytes)?;
    let catalog = dir.join("catalog.json");
    if !catalog.exists() {
        std::fs::write(catalog, case.catalog_json())?;
    }
    Ok(())
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
