//! Does a plan mean what Kubernetes means? Random clusters and workloads are planned in this process; the planned nodes are made in a
//! real control plane, and the real kube-scheduler binds the pods. docs/agreement.md says what is compared and what was found.

mod anew;
mod board;
mod case;
mod isolate;
mod nodes;
mod nominate;
mod plane;
mod play;
mod probe;
mod report;
mod scene;
mod stage;
mod volumes;
mod witness;

use crate::harness::process::Guard;
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

/// Below `--help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask agree --cases 20                      a first look, in a minute
  cargo xtask agree --cases 2000 --dir agreement    all of it; the same command goes on where it was broken off
  cargo xtask agree --only 17,803 --dir agreement   these again, whatever came of them before
  cargo xtask agree --own-order --dir own-order     without nominated nodes
  cargo xtask agree --manifests case.yaml --catalog catalog.json

What disagrees is in DIR/report.txt, and its manifests, catalog and plan in DIR/seed-N.";

/// Between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// So many cases in a row that cannot be played mean that the control plane is gone.
const MAX_BROKEN: usize = 20;

/// What `cargo xtask agree` takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// How many cases.
    #[arg(long, default_value_t = 100, value_name = "N")]
    cases: u64,
    /// The first case's seed; the others follow it.
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Only these seeds, also if they were played before.
    #[arg(long, value_delimiter = ',', value_name = "SEED")]
    only: Vec<u64>,
    /// Where the outcomes are kept, for a run to go on where it was broken off.
    #[arg(long, default_value = "target/agree", value_name = "DIR")]
    dir: PathBuf,
    /// Cases in the control plane at once.
    #[arg(long, default_value_t = 32, value_name = "N")]
    together: usize,
    /// Pods come without nominated nodes: kube-scheduler alone says what goes where. Wants a DIR of its own.
    #[arg(long)]
    own_order: bool,
    /// Plan without these repairs, to see what they are worth (`cargo xtask moves`). Wants a DIR of its own.
    #[arg(long, value_delimiter = ',', value_name = "MOVE")]
    without: Vec<Move>,
    /// One case from files instead of random ones.
    #[arg(long, requires = "catalog", num_args = 1.., value_name = "FILE")]
    manifests: Vec<PathBuf>,
    /// What can be bought in that case.
    #[arg(long, requires = "manifests", value_name = "FILE")]
    catalog: Option<PathBuf>,
}

/// Plays the cases that were not played yet, and sums up.
///
/// # Errors
/// If the control plane cannot be started or is lost, or if plan and kube-scheduler disagree about any case.
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
        say(&format!("{} of {} cases were played before", seeds.len() - missing.len(), seeds.len()));
    }
    if !missing.is_empty() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(play_all(args, &missing, &mut state))?;
    }
    let summary = state.summary(&seeds)?;
    write!(std::io::stdout().lock(), "{summary}")?;
    let against = seeds.iter().filter(|seed| state.outcomes.get(seed).is_none_or(|it| !it.agrees())).count();
    if against > 0 {
        bail!("{against} of {} cases disagree or could not be played; see {}", seeds.len(), args.dir.display());
    }
    Ok(())
}

async fn play_all(args: &Args, seeds: &[u64], state: &mut State) -> Result<()> {
    let guard = Arc::new(Guard::start()?);
    let folder = tempfile::Builder::new().prefix("plimsoll-agree-").tempdir()?;
    say("starting the control plane");
    let (plane, client) = plane::start(&guard, folder.path()).await?;
    let mut shared = Shared { client: client.clone(), board: Arc::default(), own_order: args.own_order, again: false };
    // Without these two nothing is ever heard: their end is the end of the run.
    let mut followed = tokio::spawn(Arc::clone(&shared.board).follow(client.clone()));
    let mut provisioned = tokio::spawn(volumes::provision(client));
    let mut turns = async || {
        let broken = turn(args, &shared, seeds, state).await?;
        if broken.is_empty() {
            return Ok(());
        }
        say(&format!("{} cases could not be played, and are played once more", broken.len()));
        shared.again = true;
        turn(args, &shared, &broken, state).await.map(drop)
    };
    tokio::select! {
        done = turns() => done?,
        ended = &mut followed => return ended?.context("the board"),
        ended = &mut provisioned => return ended?.context("volumes"),
    }
    drop(plane);
    Ok(())
}

/// Plays these; those that could not be, mostly since the machine was too busy for the control plane.
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
            bail!("{in_a_row} cases in a row could not be played; see {}", args.dir.display());
        }
    }
    Ok(broken)
}

/// Draws, plans and plays one case.
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
    // A panic of the solver is an outcome as well.
    let planned = match tokio::task::spawn_blocking(move || to_plan.plan(&without)).await {
        Ok(Ok(planned)) => Arc::new(planned),
        Ok(Err(error)) => return (unplayed(&case.title, format!("{error:#}")), Case::clone(&case), None),
        Err(error) => return (unplayed(&case.title, error.to_string()), Case::clone(&case), None),
    };
    let outcome = play::play(shared, &planned, &case.title).await;
    (outcome, Case::clone(&case), Some(planned))
}

/// Tells how far the run is, now and then.
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
        say(&format!(
            "{} of {} cases, {} disagree; {rate:.2} cases/s, {:.0} min left",
            self.done,
            self.all,
            self.against,
            left / rate / 60.0
        ));
    }
}

/// One line of progress.
fn say(text: &str) {
    // Nobody to tell if stderr is closed.
    let _ = writeln!(std::io::stderr().lock(), "agree: {text}");
}
