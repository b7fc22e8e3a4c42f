//! Measures the three services, as release programs, on a large cluster: the real control plane with existing nodes and
//! running pods, a stream of pod changes, killed leaders, and a burst of pods. There are no kubelets: a launched
//! instance never becomes a node.

mod burst;
mod churn;
mod client;
mod instances;
mod population;
mod probes;
mod usage;

use crate::bench::table::Table;
use crate::harness::parts::{self, Parts};
use crate::harness::process::Guard;
use crate::harness::services::{Kind, REPLICAS, Services};
use crate::harness::wait::until_true;
use crate::harness::world::{Setup, World};
use crate::progress::Reporter;
use anyhow::{Context as _, Result, bail};
use client::ApiClient;
use instances::Facts;
use population::Population;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::park_timeout;
use std::time::{Duration, Instant};
use usage::Usage;

const PROGRESS: Reporter = Reporter("scale");

/// Examples in `--help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask scale --nodes 500 --minutes 2           a short run of about 8 minutes
  cargo xtask scale --nodes 5000 --minutes 10         the full run of about 35 minutes

The cluster needs about 4 GiB of memory for 5,000 nodes, and 2 cores. The programs are built in the release profile.";

const REGION: &str = "us-east-1";
const CLUSTER: &str = "scale";
/// Instances and nodes are created within seconds; the rest of the time is for a busy machine.
const SOON: Duration = Duration::from_secs(180);
/// Nodes have no kubelet that renews their Leases, so the control plane must not wait for any.
const CONTROL_PLANE: [&str; 3] = [
    "-kcm-arg=--node-monitor-grace-period=8760h",
    "-kcm-arg=--node-startup-grace-period=8760h",
    "-apiserver-arg=--event-ttl=5m",
];
/// Nodes of the base pool are never replaced: it allows one type, and the nodes are full.
const POOLS: &str = include_str!("scale/pools.yaml");

/// Arguments of `cargo xtask scale`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Number of existing nodes.
    #[arg(long, default_value_t = 500, value_name = "N")]
    nodes: usize,
    /// Number of running pods per node.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pods: usize,
    /// Number of pod changes per second: half are new pods, half are deleted pods.
    #[arg(long, default_value_t = 200, value_name = "N")]
    changes: usize,
    /// Minutes of the steady phase with changes.
    #[arg(long, default_value_t = 2, value_name = "N")]
    minutes: u64,
    /// Number of pods of the burst.
    #[arg(long, default_value_t = 2000, value_name = "N")]
    burst: usize,
    /// Use the programs in this folder instead of building them in the release profile.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Keep the work folder with all logs.
    #[arg(long)]
    keep: bool,
}

/// Runs all phases and prints one table per phase.
///
/// # Errors
/// If a component does not start, a phase does not end in time, or an instance was launched twice.
pub(crate) fn run(args: &Args) -> Result<()> {
    let guard = Arc::new(Guard::start()?);
    let mut parts = Parts::find(&guard, false, |text| PROGRESS.say(text))?;
    if let Some(programs) = &args.programs {
        parts.programs = std::path::absolute(programs)?;
    } else {
        parts.programs = parts.programs.with_file_name("release");
        PROGRESS.say("building the programs in the release profile; the first time this takes 15 minutes on 2 cores");
        parts::build_release(&parts.root, &guard)?;
    }
    let folder = tempfile::Builder::new().prefix("plimsoll-scale-").tempdir()?;
    let dir = folder.path().to_owned();
    PROGRESS.say(&format!("logs are in {}", dir.display()));
    let kept = if args.keep { Some(folder.keep()) } else { None };
    let setup = Setup {
        region: REGION,
        cluster: CLUSTER,
        installed: true,
        replicas: REPLICAS,
        boot_delay: None,
        control_plane: &CONTROL_PLANE,
        ec2_seed: None,
        answers: None,
        say: |text| PROGRESS.say(text),
    };
    let mut world = World::start(&parts, &guard, &dir, &setup)?;
    phases(args, &parts, &mut world)?;
    if let Some(kept) = kept {
        PROGRESS.say(&format!("logs are kept in {}", kept.display()));
    }
    Ok(())
}

fn phases(args: &Args, parts: &Parts, world: &mut World) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let cluster = runtime.block_on(ApiClient::connect(&world.cluster.kubeconfig))?;
    PROGRESS.say("applying the NodePools");
    world.cluster.kubectl.apply(&POOLS.replace("CLUSTER", CLUSTER))?;
    let facts = facts(world)?;
    // A NodeClaim that has no instance for a moment would be launched by the actuator.
    world.services = None;

    let begun = Instant::now();
    PROGRESS.say(&format!("creating {} nodes with {} pods", args.nodes, args.nodes * args.pods));
    let mut population = runtime.block_on(Population::create(&cluster, &world.cloud, &facts, args.nodes, args.pods))?;
    PROGRESS.say(&format!("created in {} s", begun.elapsed().as_secs()));

    let dir = world.dir()?;
    let begun = Instant::now();
    world.services = Some(Services::start(parts, &world.guard, &dir, &world.cluster, &world.cloud, REPLICAS)?);
    let mut usage = Usage::default();
    let mut summary = Table::new("Phases", &["phase", "figure", "value"]);
    summary.row(vec!["start".to_owned(), "all replicas ready after".to_owned(), seconds(begun.elapsed())]);
    probes::first(world, &runtime, &cluster)?;
    summary.row(vec!["start".to_owned(), "first launch after".to_owned(), seconds(begun.elapsed())]);
    show(&usage.phase("start", world)?)?;

    PROGRESS.say("idle: no changes for 30 s");
    pause(world, &mut usage, Duration::from_secs(30))?;
    show(&usage.phase("idle", world)?)?;

    PROGRESS.say(&format!("steady: {} pod changes per second for {} min", args.changes, args.minutes));
    let churn = churn::start(&runtime, &cluster, &mut population, args.changes);
    let delays = probes::steady(world, &runtime, &cluster, &mut usage, Duration::from_secs(60 * args.minutes))?;
    show(&usage.phase("steady", world)?)?;
    probes::report(&delays, &mut summary)?;

    PROGRESS.say("the leaders are killed");
    for kind in [Kind::Actuator, Kind::Watcher] {
        let took = restart_leader(world, &runtime, &cluster, kind)?;
        let figure = format!("{} killed: next launch after", kind.name());
        summary.row(vec!["leaders killed".to_owned(), figure, seconds(took)]);
    }
    show(&usage.phase("leaders killed", world)?)?;

    PROGRESS.say(&format!("burst: {} pods, and the actuator's leader is killed", args.burst));
    burst::run(world, &runtime, &cluster, &mut usage, args.burst, &mut summary)?;
    show(&usage.phase("burst", world)?)?;

    let changes = runtime.block_on(churn.stop())?;
    summary.row(vec!["steady to burst".to_owned(), "pod changes".to_owned(), changes.to_string()]);
    let ended = world.services()?.ended()?;
    if !ended.is_empty() {
        bail!("{}", ended.join("; "));
    }
    show(&summary)
}

/// Prints a table.
fn show(table: &Table) -> Result<()> {
    writeln!(std::io::stdout().lock(), "## {}\n\n{}\n", table.heading(), table.render())?;
    Ok(())
}

/// What EC2NodeClass and its image say about instances, once the actuator has resolved the class.
fn facts(world: &World) -> Result<Facts> {
    let mut found = None;
    until_true("the EC2NodeClass is Ready", SOON, || {
        let class = world.cluster.kubectl.list(&["ec2nodeclass", "default"])?.into_iter().next();
        let class = class.context("no EC2NodeClass")?;
        let ready = crate::harness::kubectl::condition(&class, "Ready");
        if ready {
            found = Some(Facts::read(&class)?);
        }
        Ok((ready, class["status"]["conditions"].to_string()))
    })?;
    found.context("the EC2NodeClass has no status")
}

/// Kills the leader of a kind, starts it again, and waits for the next launch. Returns the time until that launch.
fn restart_leader(
    world: &mut World,
    runtime: &tokio::runtime::Runtime,
    cluster: &ApiClient,
    kind: Kind,
) -> Result<Duration> {
    let kubectl = world.cluster.kubectl.clone();
    let services = world.services()?;
    let leader = services.leader(kind, &kubectl)?;
    services.kill(leader)?;
    let begun = Instant::now();
    services.up(leader)?;
    probes::first(world, runtime, cluster)?;
    let took = begun.elapsed();
    world.services()?.wait_ready(leader)?;
    Ok(took)
}

/// Waits while usage is sampled.
fn pause(world: &World, usage: &mut Usage, time: Duration) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < time {
        usage.sample(world)?;
        // Nothing unparks this thread.
        park_timeout(usage::EVERY);
    }
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
