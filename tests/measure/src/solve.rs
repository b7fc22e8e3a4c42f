//! `plimsoll-measure solve`.

use crate::make::REQUEST;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::{PodState, Snapshot};
use plimsoll_proto::plan::v1 as wire;
use plimsoll_proto::scheduler::v1::PlanRequest;
use prost::Message as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A folder that `make` wrote to.
    dir: PathBuf,
    /// How often to plan; the first may be slower than the others.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Check the plan; its time is told apart, its memory is not.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let path = arguments.dir.join(REQUEST);
    let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let started = Instant::now();
    let request = PlanRequest::decode(bytes.as_slice()).with_context(|| format!("{}", path.display()))?;
    drop(bytes);
    let decode = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let (snapshot, catalogs) = question(request)?;
    let convert = started.elapsed().as_secs_f64();
    let (mut seconds, mut plans) = (Vec::new(), Vec::new());
    for _ in 0..arguments.repeat {
        let started = Instant::now();
        plans.push(plimsoll_solver::solve(&snapshot, &catalogs, &PlanOptions::default()));
        seconds.push(started.elapsed().as_secs_f64());
        if plans.len() > 1 && plans.pop().as_ref() != plans.first() {
            bail!("two plans for the same snapshot differ");
        }
    }
    let plan = plans.pop().unwrap_or_default();
    // Before the answer is encoded and checked, which a solver does not do.
    let peak = peak_mib()?;
    let started = Instant::now();
    let answer = wire::Plan::from(&plan).encode_to_vec();
    let encode = started.elapsed().as_secs_f64();
    let mut told = figures(&snapshot, &catalogs, &plan);
    told["decodeSeconds"] = decode.into();
    told["convertSeconds"] = convert.into();
    told["solveSeconds"] = seconds.into();
    told["encodeSeconds"] = encode.into();
    told["answerBytes"] = answer.len().into();
    told["peakMib"] = peak.into();
    if arguments.check {
        let started = Instant::now();
        let violations = plimsoll_invariants::check(&snapshot, &catalogs, &plan);
        told["checkSeconds"] = started.elapsed().as_secs_f64().into();
        told["violations"] = violations.len().into();
        if let Some(first) = violations.first() {
            told["firstViolation"] = first.to_string().into();
        }
    }
    crate::tell(&told)
}

fn question(request: PlanRequest) -> Result<(Snapshot, BTreeMap<CatalogId, Catalog>)> {
    let snapshot = Snapshot::try_from(request.snapshot.unwrap_or_default())?;
    let catalogs = request.catalogs.into_iter().map(|wire| {
        let catalog = Catalog::try_from(wire)?;
        Ok((catalog.id(), catalog))
    });
    Ok((snapshot, catalogs.collect::<Result<_>>()?))
}

/// What a plan comes to.
pub(crate) fn figures(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, plan: &Plan) -> Value {
    let pending = snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending).count();
    let types: usize = catalogs.values().map(|catalog| catalog.instance_types.len()).sum();
    let reason = plan.unschedulable.first().and_then(|one| one.reasons.first());
    json!({
        "pods": pending,
        "shapes": snapshot.shapes.len(),
        "types": types,
        "nodes": snapshot.nodes.len(),
        "launches": plan.launches.len(),
        "onLaunches": plan.launches.iter().map(|launch| launch.pods.len()).sum::<usize>(),
        "onExisting": plan.placements.iter().map(|placement| placement.pods.len()).sum::<usize>(),
        "unschedulable": plan.unschedulable.len(),
        "firstReason": reason.map(|reason| format!("{}: {}", reason.code.as_str(), reason.message)),
        "terminations": plan.terminations.len(),
        "hourly": plan.hourly.usd(),
        "lowerBound": plan.lower_bound.usd(),
        "gap": gap(plan),
    })
}

/// How far above its lower bound the plan is, as a part of the bound.
fn gap(plan: &Plan) -> f64 {
    if plan.lower_bound.0 <= 0 { 0.0 } else { plan.hourly.usd() / plan.lower_bound.usd() - 1.0 }
}

/// The most memory this process had so far: Linux' high-water mark.
fn peak_mib() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("peak memory is read from Linux' /proc")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in /proc/self/status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}
