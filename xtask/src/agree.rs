//! Checks plans against kube-scheduler. Random clusters and workloads are planned in this process, the planned nodes
//! are created in a real control plane, and the real kube-scheduler binds the pods. docs/agreement.md describes the
//! comparison and its results.

mod await_nodes;
mod case;
mod case_client;
mod case_objects;
mod control_plane;
mod isolate;
mod nodes;
mod nominate;
mod play;
mod pod_watch;
mod probe;
mod replan;
mod report;
mod volumes;

use crate::harness::process::Guard;
use crate::progress::Reporter;
use anyhow::{Context as _, Result, bail};
use case::{Case, Planned};
use futures::{StreamExt as _, stream};
use play::Shared;
use plimsoll_solver::Move;
use report::{Outcome, State};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PROGRESS: Reporter = Reporter("agree");

/// Examples in `--help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask agree --cases 20                      a short run of one minute
  cargo xtask agree --cases 2000 --dir agreement    the full run; the same command resumes an interrupted run
  cargo xtask agree --only 17,803 --dir agreement   run these cases again
  cargo xtask agree --own-order --dir own-order     without nominated nodes
  cargo xtask agree --manifests case.yaml --catalog catalog.json

Disagreements are in DIR/report.txt; their manifests, catalogs and plans are in DIR/seed-N.";

/// Interval between progress lines.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Number of consecutive failed cases after which the control plane counts as lost.
const MAX_BROKEN: usize = 20;

/// Arguments of `cargo xtask agree`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Number of cases.
    #[arg(long, default_value_t = 100, value_name = "N")]
    cases: u64,
    /// Seed of the first case; the others follow.
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Only these seeds, even if they were run before.
    #[arg(long, value_delimiter = ',', value_name = "SEED")]
    only: Vec<u64>,
    /// Folder for the outcomes. An interrupted run resumes from it.
    #[arg(long, default_value = "target/agree", value_name = "DIR")]
    dir: PathBuf,
    /// Number of cases in parallel.
    #[arg(long, default_value_t = 32, value_name = "N")]
    together: usize,
    /// Create pods without nominated nodes: kube-scheduler alone decides the order. Needs a separate DIR.
    #[arg(long)]
    own_order: bool,
    /// Plan without these repairs, to measure their effect (`cargo xtask moves`). Needs a separate DIR.
    #[arg(long, value_delimiter = ',', value_name = "MOVE")]
    without: Vec<Move>,
    /// One case from files instead of random cases.
    #[arg(long, requires = "catalog", num_args = 1.., value_name = "FILE")]
    manifests: Vec<PathBuf>,
    /// Catalog of that case.
    #[arg(long, requires = "manifests", value_name = "FILE")]
    catalog: Option<PathBuf>,
}

/// Runs the cases that were not run before, and summarizes all of them.
///
/// # Errors
/// If the control plane cannot be started or is lost, or if plan and kube-scheduler disagree on a case.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut state = State::open(&args.dir)?;
    let seeds: Vec<u64> = match (&args.manifests[..], &args.only[..]) {
        ([], []) => (args.seed..args.seed.saturating_add(args.cases)).collect(),
        ([], only) => only.to_vec(),
        _ => vec![0],
    };
    let chosen = !args.only.is_empty() || !args.manifests.is_empty();
    let missing: Vec<u64> = seeds.iter().copied().filter(|seed| chosen || !state.has(*seed)).collect();
    if missing.len() < seeds.len() {
        PROGRESS.say(&format!("{} of {} cases were run before", seeds.len() - missing.len(), seeds.len()));
    }
    if !missing.is_empty() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(play_all(args, &missing, &mut state))?;
    }
    let summary = state.summary(&seeds)?;
    write!(std::io::stdout().lock(), "{summary}")?;
    let against = seeds.iter().filter(|seed| state.outcomes.get(seed).is_none_or(|it| !it.agrees())).count();
    if against > 0 {
        bail!("{against} of {} cases disagree or failed to run; see {}", seeds.len(), args.dir.display());
    }
    Ok(())
}

async fn play_all(args: &Args, seeds: &[u64], state: &mut State) -> Result<()> {
    let guard = Arc::new(Guard::start()?);
    let folder = tempfile::Builder::new().prefix("plimsoll-agree-").tempdir()?;
    PROGRESS.say("starting the control plane");
    let (control_plane, client) = control_plane::start(&guard, folder.path()).await?;
    let mut shared =
        Shared { client: client.clone(), pod_watch: Arc::default(), own_order: args.own_order, again: false };
    // Without these two tasks no change is observed: the run ends when either ends.
    let mut followed = tokio::spawn(Arc::clone(&shared.pod_watch).follow(client.clone()));
    let mut provisioned = tokio::spawn(volumes::provision(client));
    let mut turns = async || {
        let broken = turn(args, &shared, seeds, state).await?;
        if broken.is_empty() {
            return Ok(());
        }
        PROGRESS.say(&format!("{} cases failed to run, and run once more", broken.len()));
        shared.again = true;
        turn(args, &shared, &broken, state).await.map(drop)
    };
    tokio::select! {
        done = turns() => done?,
        ended = &mut followed => return ended?.context("the watch of pods"),
        ended = &mut provisioned => return ended?.context("volumes"),
    }
    drop(control_plane);
    Ok(())
}

/// Runs these seeds. Returns the seeds that failed, mostly because the machine was too busy for the control plane.
async fn turn(args: &Args, shared: &Shared, seeds: &[u64], state: &mut State) -> Result<Vec<u64>> {
    let played = stream::iter(seeds).map(|seed| one(args, shared, *seed)).buffer_unordered(args.together.max(1));
    let mut played = std::pin::pin!(played);
    let mut progress = Progress::new(seeds.len());
    let (mut in_a_row, mut broken) = (0, Vec::new());
    while let Some((outcome, case, planned)) = played.next().await {
        if outcome.error.is_some() {
            in_a_row += 1;
            broken.push(outcome.seed);
        } else {
            in_a_row = 0;
        }
        progress.count(&outcome);
        state.keep(outcome, &case, planned.as_deref())?;
        if in_a_row >= MAX_BROKEN {
            bail!("{in_a_row} consecutive cases failed to run; see {}", args.dir.display());
        }
    }
    Ok(broken)
}

/// Generates, plans and runs one case.
async fn one(args: &Args, shared: &Shared, seed: u64) -> (Outcome, Case, Option<Arc<Planned>>) {
    let unplayed = |title: &str, error: String| {
        let mut outcome = Outcome::new(seed, title);
        outcome.error = Some(error);
        outcome
    };
    let drawn = match &args.catalog {
        Some(catalog) => Case::read(&args.manifests, catalog),
        None => Case::random(seed),
    };
    let case = match drawn {
        Ok(case) => Arc::new(case),
        Err(error) => return (unplayed("", format!("{error:#}")), Case::empty(seed), None),
    };
    let (to_plan, without) = (Arc::clone(&case), args.without.clone());
    // A panic of the solver is an outcome too.
    let planned = match tokio::task::spawn_blocking(move || to_plan.plan(&without)).await {
        Ok(Ok(planned)) => Arc::new(planned),
        Ok(Err(error)) => return (unplayed(&case.title, format!("{error:#}")), Case::clone(&case), None),
        Err(error) => return (unplayed(&case.title, error.to_string()), Case::clone(&case), None),
    };
    let outcome = play::play(shared, &planned, &case.title).await;
    (outcome, Case::clone(&case), Some(planned))
}

/// Prints the progress of the run at intervals.
struct Progress {
    all: usize,
    done: usize,
    against: usize,
    begun: Instant,
    told: Instant,
}

impl Progress {
    fn new(all: usize) -> Progress {
        let now = Instant::now();
        Progress { all, done: 0, against: 0, begun: now, told: now }
    }

    fn count(&mut self, outcome: &Outcome) {
        self.done += 1;
        if !outcome.agrees() {
            self.against += 1;
        }
        if self.told.elapsed() < TELL_EVERY && self.done < self.all {
            return;
        }
        self.told = Instant::now();
        #[expect(clippy::cast_precision_loss, reason = "thousands")]
        let (rate, left) = (self.done as f64 / self.begun.elapsed().as_secs_f64(), (self.all - self.done) as f64);
        PROGRESS.say(&format!(
            "{} of {} cases, {} disagree; {rate:.2} cases/s, {:.0} min left",
            self.done,
            self.all,
            self.against,
            left / rate / 60.0
        ));
    }
}
