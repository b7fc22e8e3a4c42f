//! Effect of each repair of the solver: random cases are planned with all moves, and without each of them.

use anyhow::Result;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_solver::{Move, replay, solve_without};
use plimsoll_workloads::{Profile, Question};
use std::io::Write as _;

/// Arguments of `cargo xtask moves`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  cargo xtask moves                              500 cases from seed 1
  cargo xtask moves --cases 2000 --seed 30001    unseen cases
  cargo xtask moves --only fill-nodes            one move; `cargo xtask agree --without fill-nodes` runs kube-scheduler

A move that changes fewer than 1 of 1,000 plans should be removed.")]
pub(crate) struct Args {
    /// Number of cases.
    #[arg(long, default_value_t = 500, value_name = "N")]
    cases: u64,
    /// Seed of the first case; the others follow.
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Only these moves.
    #[arg(long, value_delimiter = ',', value_name = "MOVE")]
    only: Vec<Move>,
}

/// Loss without one move, over all cases.
#[derive(Default, Clone)]
struct Loss {
    changed: Vec<u64>,
    /// Pods placed.
    pods: i64,
    /// Micro-USD per hour, for plans that place the same number of pods.
    cost: i64,
    /// Plans in which kube-scheduler strands a pod in more than one run of 48.
    stranding: i64,
}

/// Plans and prints a table.
///
/// # Errors
/// If a case cannot be generated.
pub(crate) fn run(args: &Args) -> Result<()> {
    let moves = if args.only.is_empty() { Move::ALL.map(|(one, _)| one).to_vec() } else { args.only.clone() };
    let mut losses = vec![Loss::default(); moves.len()];
    for seed in args.seed..args.seed.saturating_add(args.cases) {
        let question = plimsoll_workloads::case(seed, &Profile::kubernetes()).question()?;
        let with = Figures::of(&question, &[]);
        for (removed, loss) in moves.iter().zip(&mut losses) {
            let without = Figures::of(&question, &[*removed]);
            if without.plan == with.plan {
                continue;
            }
            loss.changed.push(seed);
            loss.pods += with.pods - without.pods;
            loss.stranding += i64::from(without.strands) - i64::from(with.strands);
            if with.pods == without.pods {
                loss.cost += without.plan.hourly.0 - with.plan.hourly.0;
            }
        }
        let done = seed - args.seed + 1;
        if done.is_multiple_of(100) {
            writeln!(std::io::stderr().lock(), "moves: {done} of {} cases", args.cases)?;
        }
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "| without | plans changed | pods lost | dearer, USD/h | more plans that strand | seeds |")?;
    writeln!(out, "|---|---:|---:|---:|---:|---|")?;
    for (removed, loss) in moves.iter().zip(&losses) {
        let dollars = loss.cost as f64 / 1e6;
        let seeds: Vec<String> = loss.changed.iter().take(6).map(u64::to_string).collect();
        let (changed, seeds) = (loss.changed.len(), seeds.join(", "));
        writeln!(out, "| {removed} | {changed} | {} | {dollars:.3} | {} | {seeds} |", loss.pods, loss.stranding)?;
    }
    Ok(())
}

/// Figures of a plan.
struct Figures {
    plan: Plan,
    pods: i64,
    strands: bool,
}

impl Figures {
    fn of(question: &Question, without: &[Move]) -> Self {
        let options = PlanOptions { disruption: false, ..PlanOptions::default() };
        let mut plan = solve_without(&question.snapshot, &question.catalogs, &options, without);
        // The lower bound takes time and does not depend on moves.
        plan.lower_bound = plan.hourly;
        let launched: usize = plan.launches.iter().map(|launch| launch.pods.len()).sum();
        let kept: usize = plan.placements.iter().map(|to| to.pods.len()).sum();
        let shown = replay(&question.snapshot, &question.catalogs, &plan);
        let strands = shown.is_some_and(|shown| shown.stranding * 48 > shown.runs);
        Self { pods: i64::try_from(launched + kept).unwrap_or(i64::MAX), strands, plan }
    }
}
