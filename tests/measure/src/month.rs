//! A simulated period: services whose replicas follow the time of day and the week, and batch jobs.

use crate::recorder::Recorder;
use anyhow::{Context as _, Result};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, NodePoolName, PodUid, ShapeId};
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::{CPU, MEMORY};
use plimsoll_model::snapshot::{Pod, PodShape, Snapshot};
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_replay::simulate::{PoolNodes, Simulation};
use plimsoll_workloads::bench::{Underused, underused};
use plimsoll_workloads::{Case, Rng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Time from purchase to service of a node.
const BOOT: Millis = Millis::from_seconds(60);
/// Time between changes of the workload.
const STEP_MINUTES: u64 = 5;
/// Steps between two comparisons with a plan for the same pods without nodes.
const STEPS_PER_COMPARISON: u64 = 12;
/// Requests of pods: thousandths of a CPU, and MiB.
const SIZES: [(i64, i64); 8] =
    [(100, 256), (250, 512), (500, 1024), (500, 4096), (1000, 2048), (2000, 4096), (2000, 16_384), (4000, 8192)];

/// Simulate services that follow the time of day, and jobs.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Seed of the workload.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Length of the period.
    #[arg(long, default_value_t = 30)]
    days: u64,
    /// Pods on average, a tenth of them in jobs.
    #[arg(long, default_value_t = 1_000)]
    pods: u64,
    /// Record the plans to this folder, as the watcher does.
    #[arg(long, value_name = "FOLDER", conflicts_with = "write")]
    record_to: Option<PathBuf>,
    /// Write the workload to this folder for other programs, and simulate nothing.
    #[arg(long, value_name = "FOLDER")]
    write: Option<PathBuf>,
}

/// Simulates a period, or writes its workload.
pub(crate) fn run(args: &Args) -> Result<Value> {
    let Args { seed, days, pods, .. } = *args;
    match &args.write {
        Some(folder) => write(folder, seed, days, pods),
        None => simulate(seed, days, pods, args.record_to.as_deref()),
    }
}

/// A cluster with one NodePool, without nodes and pods.
fn cluster(seed: u64) -> Case {
    let mut cluster = underused(seed, Underused { nodes: 1, budget: 10, pools: 1, ..Underused::default() });
    cluster.objects.retain(|object| object["kind"] == "NodePool" || object["kind"] == "EC2NodeClass");
    cluster
}

/// Writes the NodePool, the catalog and the workload of the period, for other programs.
fn write(folder: &Path, seed: u64, days: u64, pods: u64) -> Result<Value> {
    cluster(seed).write(folder).with_context(|| format!("writing to {}", folder.display()))?;
    let mut workload = Workload::new(seed, pods);
    let count = |pods: Vec<(String, usize)>| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (name, size) in pods {
            *counts.entry(shape_of(&name, size).0).or_default() += 1;
        }
        counts
    };
    let steps: Vec<_> = (0..steps(days)).map(|step| count(workload.wanted(step))).collect();
    let requests = |shape: &PodShape| {
        let amount = |name: &str| format_amount(name, shape.requests.get(name));
        (shape.id.0.clone(), json!({"cpu": amount(CPU), "memory": amount(MEMORY)}))
    };
    let shapes: serde_json::Map<String, Value> = shapes().iter().map(requests).collect();
    let period = json!({
        "stepSeconds": STEP_MINUTES * 60, "bootSeconds": BOOT.0 / 1000, "shapes": shapes, "steps": steps,
    });
    let path = folder.join("workload.json");
    std::fs::write(&path, period.to_string()).with_context(|| format!("writing {}", path.display()))?;
    Ok(json!({"days": days, "steps": steps.len()}))
}

fn steps(days: u64) -> u64 {
    days * 24 * 60 / STEP_MINUTES
}

/// Simulates the period, and records its plans as a watcher does.
fn simulate(seed: u64, days: u64, pods: u64, record_to: Option<&Path>) -> Result<Value> {
    let cluster = cluster(seed);
    let question = cluster.question().context("the cluster")?;
    let base = question.snapshot;
    let mut workload = Workload::new(seed, pods);
    let options = PlanOptions::default();
    let objects = cluster.typed_objects().context("the cluster")?;
    // The budgets of the snapshot are those of a cluster without nodes.
    let pools = |snapshot: &Snapshot, nodes: &BTreeMap<NodePoolName, PoolNodes>| {
        let mut pools = snapshot.node_pools.clone();
        for pool in &mut pools {
            let name = Some(pool.name.as_str());
            let Some(own) = objects.node_pools.iter().find(|own| own.metadata.name.as_deref() == name) else {
                continue;
            };
            let PoolNodes { in_service, leaving } = nodes.get(&pool.name).copied().unwrap_or_default();
            pool.disruption.allowed = plimsoll_snapshot::allowed_disruptions(own, snapshot.now, (in_service, leaving));
        }
        pools
    };
    let mut recorder = record_to.map(|folder| Recorder::new(folder, &question.catalogs));
    let mut observe = |snapshot: Snapshot, options: &PlanOptions, plan: &Plan| {
        if let Some(recorder) = &mut recorder {
            recorder.planned(snapshot, options, plan);
        }
    };
    let mut simulation = Simulation::new(BOOT).observed(&mut observe);
    let (mut anew, mut compared, mut planning, mut most) = (0.0, 0, 0.0, 0);
    for step in 0..steps(days) {
        let snapshot = workload.at(&base, step);
        most = most.max(snapshot.pods.len());
        let began = Instant::now();
        simulation.follow(&snapshot, &question.catalogs, &pools, &options);
        planning += began.elapsed().as_secs_f64();
        if step % STEPS_PER_COMPARISON == 0 {
            anew += fresh(&snapshot, &question.catalogs);
            compared += 1;
        }
    }
    let figures = simulation.figures();
    recorder.map_or(Ok(()), |recorder| recorder.result).context("recording")?;
    let usd = |micro: i64| plimsoll_model::money::MicroUsdPerHour(micro).usd();
    Ok(json!({
        "days": days, "averagePods": workload.created_hours() / (days as f64 * 24.0), "mostPods": most,
        "createdPods": workload.created, "usd": usd(figures.micro_usd),
        "usdAnew": anew / f64::from(compared) * days as f64 * 24.0, "nodesAtEnd": figures.nodes,
        "launched": figures.launched, "removed": figures.removed, "evicted": figures.evicted,
        "waitedSecondsPerPod": figures.waited.0 as f64 / 1000.0 / workload.created as f64,
        "waitingAtEnd": figures.waiting, "seconds": planning,
    }))
}

/// Price of the nodes that would be launched for the pods in an empty cluster.
fn fresh(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>) -> f64 {
    let options = PlanOptions { disruption: false, ..PlanOptions::default() };
    plimsoll_solver::solve(snapshot, catalogs, &options).hourly.usd()
}

/// A Deployment whose replicas follow the time of day.
struct Service {
    replicas: f64,
    /// Fraction of the replicas that come and go.
    swing: f64,
    /// Hour of the day with the most replicas.
    peak: f64,
    size: usize,
}

/// Pods of a job, which end together.
struct Job {
    number: u64,
    pods: usize,
    until: u64,
    size: usize,
}

struct Workload {
    rng: Rng,
    services: Vec<Service>,
    jobs: Vec<Job>,
    last_job: u64,
    created: usize,
    running: BTreeMap<String, Timestamp>,
    pod_steps: u64,
}

impl Workload {
    /// About `pods` pods on average, a tenth of them in jobs.
    fn new(seed: u64, pods: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (mut services, mut sum) = (Vec::new(), 0.0);
        while sum < pods as f64 * 0.9 {
            let replicas = rng.range(2, 40) as f64;
            sum += replicas;
            let (swing, peak) = (rng.range(0, 60) as f64 / 100.0, rng.range(8, 20) as f64);
            services.push(Service { replicas, swing, peak, size: rng.range(0, SIZES.len() - 1) });
        }
        Self { rng, services, jobs: Vec::new(), last_job: pods, created: 0, running: BTreeMap::new(), pod_steps: 0 }
    }

    fn created_hours(&self) -> f64 {
        (self.pod_steps * STEP_MINUTES) as f64 / 60.0
    }

    /// The pods of a step, by name and size.
    fn wanted(&mut self, step: u64) -> Vec<(String, usize)> {
        let hours = (step * STEP_MINUTES) as f64 / 60.0;
        let is_weekend = (hours / 24.0) as u64 % 7 >= 5;
        let mut wanted: Vec<(String, usize)> = Vec::new();
        for (number, service) in self.services.iter().enumerate() {
            let day = ((hours - service.peak) / 24.0 * std::f64::consts::TAU).cos();
            let swing = if is_weekend { -service.swing } else { service.swing * day };
            let replicas = (service.replicas * (1.0 + swing)).round().max(1.0) as usize;
            wanted.extend((0..replicas).map(|pod| (format!("service-{number:04}-{pod:04}"), service.size)));
        }
        self.jobs.retain(|job| job.until > step);
        // Jobs last an hour on average, so a tenth of the pods start within that time.
        if self.rng.chance(30) {
            let share = usize::try_from(self.last_job).unwrap_or(0) / 40;
            let (pods, steps) = (self.rng.range(1, share.max(2)), self.rng.range(2, 24) as u64);
            let size = self.rng.range(0, SIZES.len() - 1);
            self.jobs.push(Job { number: step, pods, until: step + steps, size });
        }
        for job in &self.jobs {
            wanted.extend((0..job.pods).map(|pod| (format!("job-{:06}-{pod:04}", job.number), job.size)));
        }
        wanted
    }

    /// The snapshot of a step: all pods, as if none had a node.
    fn at(&mut self, base: &Snapshot, step: u64) -> Snapshot {
        let now = base.now.plus(Millis::from_seconds(step * STEP_MINUTES * 60));
        let wanted = self.wanted(step);
        let mut running = BTreeMap::new();
        for (name, _) in &wanted {
            let created = self.running.get(name).copied().unwrap_or_else(|| {
                self.created += 1;
                now
            });
            running.insert(name.clone(), created);
        }
        self.pod_steps += wanted.len() as u64;
        let pods = wanted.iter().map(|(name, size)| pod(name, *size, running.get(name).copied().unwrap_or(now)));
        let mut snapshot = Snapshot { sequence: step + 1, now, pods: pods.collect(), shapes: shapes(), ..base.clone() };
        self.running = running;
        snapshot.sort();
        snapshot
    }
}

fn shape_id(size: usize, is_service: bool) -> ShapeId {
    ShapeId(format!("{}-{size}", if is_service { "service" } else { "job" }))
}

fn shape_of(pod: &str, size: usize) -> ShapeId {
    shape_id(size, pod.starts_with("service"))
}

fn shapes() -> Vec<PodShape> {
    let mut shapes = Vec::new();
    for (size, (cpu, memory)) in SIZES.into_iter().enumerate() {
        for is_service in [false, true] {
            let mut shape = PodShape { id: shape_id(size, is_service), ..PodShape::default() };
            shape.requests.set("cpu", cpu);
            shape.requests.set("memory", memory << 20);
            shape.requests.set("pods", 1);
            shapes.push(shape);
        }
    }
    shapes
}

fn pod(name: &str, size: usize, created: Timestamp) -> Pod {
    Pod {
        uid: PodUid(name.to_owned()),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        shape: shape_of(name, size),
        created,
        eviction_cost_milli: 1000,
        ..Pod::default()
    }
}
