//! Consolidation until the end: plans are made and executed until a plan removes nothing.

mod cluster;
mod figures;

use crate::figures::peak_mib;
use anyhow::{Result, bail};
use cluster::{Cluster, Landing};
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_solver::Move;
use plimsoll_workloads::bench::{Underused, underused};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Instant;

/// Maximum number of rounds, far more than a cluster of thousands of nodes with budgets of 10 % needs.
const ROUNDS: usize = 400;

/// Consolidate a generated cluster until a plan removes nothing.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Seed of the cluster.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Nodes.
    #[arg(long, default_value_t = 50)]
    nodes: usize,
    /// Nodes with a pod that must not be disrupted, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    protected: usize,
    /// Spot nodes, in percent. The pool then allows both capacity types.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    spot: usize,
    /// Nodes that the pools' budgets allow to be disrupted at the same time, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    budget: usize,
    /// NodePools of the same weight.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pools: usize,
    /// Bind the pods of removed nodes where kube-scheduler would, not on their planned nodes.
    #[arg(long)]
    kube_scheduler_landing: bool,
    /// Plan without this move of the planner; may be repeated.
    #[arg(long, value_name = "MOVE")]
    without: Vec<Move>,
    /// Print one line on stderr for each round.
    #[arg(long)]
    trace: bool,
}

/// Consolidates a generated cluster.
pub(crate) fn run(args: &Args) -> Result<Value> {
    let Args { seed, nodes, protected, spot, budget, pools, .. } = *args;
    let landing = if args.kube_scheduler_landing { Landing::KubeScheduler } else { Landing::Planned };
    let cluster = Cluster::new(&underused(seed, Underused { nodes, protected, spot, budget, pools }), landing)?;
    measure(cluster, &args.without, args.trace)
}

/// Consolidates a cluster without some moves. With `trace`, one line on stderr for each round.
fn measure(mut cluster: Cluster, without: &[Move], trace: bool) -> Result<Value> {
    let question = cluster.question()?;
    let mut figures_json = figures::bounds(&question);
    let nodes = question.snapshot.nodes.len();
    let pods = question.snapshot.pods.len();
    let before = figures::hourly(&question).usd();
    let options = PlanOptions { disruption: true, ..PlanOptions::default() };
    let (mut seconds, mut first, mut slowest) = (0.0, 0.0, 0.0_f64);
    let (mut rounds, mut violations, mut stranded, mut elsewhere, mut launched) = (0, 0, 0, 0, 0);
    let mut moves: BTreeMap<String, u32> = BTreeMap::new();
    loop {
        let question = cluster.question()?;
        let started = Instant::now();
        let plan: Plan = plimsoll_solver::solve_without(&question.snapshot, &question.catalogs, &options, without);
        let took = started.elapsed().as_secs_f64();
        seconds += took;
        slowest = slowest.max(took);
        if rounds == 0 {
            first = took;
        }
        violations += plimsoll_invariants::check(&question.snapshot, &question.catalogs, &plan).len();
        if plan.terminations.is_empty() && plan.launches.is_empty() && plan.placements.is_empty() {
            break;
        }
        rounds += 1;
        if rounds > ROUNDS {
            bail!("still plans after {ROUNDS} rounds");
        }
        let done = cluster.carry_out(&plan)?;
        done.moved.iter().for_each(|pod| *moves.entry(pod.clone()).or_default() += 1);
        stranded += done.stranded;
        elsewhere += done.elsewhere;
        launched += plan.launches.len();
        if trace {
            let hourly = figures::hourly(&cluster.question()?).usd();
            let (removed, new, moved) = (plan.terminations.len(), plan.launches.len(), done.moved.len());
            let text = format!("{rounds}: -{removed} +{new} nodes, {moved} pods moved, {hourly:.3} USD/h, {took:.3} s");
            writeln!(std::io::stderr(), "{text}")?;
        }
    }
    let question = cluster.question()?;
    figures_json["nodesBefore"] = nodes.into();
    figures_json["pods"] = pods.into();
    figures_json["hourlyBefore"] = before.into();
    figures_json["nodesAfter"] = question.snapshot.nodes.len().into();
    figures_json["hourlyAfter"] = figures::hourly(&question).usd().into();
    figures_json["rounds"] = rounds.into();
    figures_json["launched"] = launched.into();
    figures_json["evictions"] = moves.values().sum::<u32>().into();
    figures_json["mostMoves"] = moves.values().max().copied().unwrap_or(0).into();
    figures_json["movedAgain"] = moves.values().filter(|times| **times > 1).count().into();
    figures_json["stranded"] = stranded.into();
    figures_json["elsewhere"] = elsewhere.into();
    figures_json["violations"] = violations.into();
    figures_json["seconds"] = json!({"all": seconds, "first": first, "slowest": slowest});
    figures_json["peakMib"] = peak_mib()?.into();
    Ok(figures_json)
}
