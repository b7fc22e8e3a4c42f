//! `cargo xtask sim`: runs many seeds of the swarm simulation, one process each, and reduces the seeds that fail.

mod coverage;
mod enumerate;
mod play;

use crate::progress::Reporter;
use crate::workspace;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args as ClapArgs;
use coverage::Coverage;
use play::{Outcome, SeedRunner};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PROGRESS: Reporter = Reporter("sim");

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask sim --seeds 0..500             a typical check
  cargo xtask sim --seeds 1..10001 --jobs 8  a long search; the same command resumes an interrupted run
  cargo xtask sim --seeds 0..500 --within 600   as many of these seeds as ten minutes allow
  cargo xtask sim --seeds 42..43             one seed again, with the failure and the faults that it needs
  cargo xtask sim --enumerate --flow launch  every write of a launch, with each fault";

/// Number of seeds between progress lines.
const TELL_EVERY: usize = 50;

/// Arguments of `cargo xtask sim`.
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// The seeds, as a half-open range.
    #[arg(long, value_name = "A..B", value_parser = range, required_unless_present = "enumerate")]
    seeds: Option<Range<u64>>,
    /// Instead of seeds, run every write of each service and every watched kind with each fault.
    #[arg(long, conflicts_with = "seeds")]
    enumerate: bool,
    /// Flows to enumerate [default: all].
    #[arg(long, value_name = "FLOW", requires = "enumerate", value_delimiter = ',')]
    flow: Vec<String>,
    /// Run only one in this many of the enumerated cases.
    #[arg(long, value_name = "N", requires = "enumerate", default_value_t = NonZeroUsize::MIN)]
    one_in: NonZeroUsize,
    /// Skip this many of the enumerated cases first.
    #[arg(long, value_name = "K", requires = "enumerate", default_value_t = 0)]
    skip: usize,
    /// Number of parallel processes [default: the number of cores].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Seconds after which a seed counts as hanging. A normal seed takes three.
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    timeout: u64,
    /// Start no seed after this many seconds. The same command continues later.
    #[arg(long, value_name = "SECONDS", requires = "seeds")]
    within: Option<u64>,
    /// Build profile. `dev` is less optimised, but `cargo test` has compiled most of it already.
    #[arg(long, default_value = "sim", value_parser = ["sim", "dev"])]
    profile: String,
    /// Do not reduce the faults of seeds that fail.
    #[arg(long)]
    no_reduce: bool,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("must be of the form 100..200")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err("has no seed".to_owned()) } else { Ok(range) }
}

/// Runs the seeds.
///
/// # Errors
/// If the simulation cannot be built or started, or a seed fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let runner = SeedRunner::build(&args.profile, Duration::from_secs(args.timeout))?;
    let jobs = args.jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1).max(1);
    let Some(seeds) = args.seeds.clone() else {
        return enumerate::run(&runner, &args.flow, (args.skip, args.one_in), jobs);
    };
    let (_, target) = workspace::folders()?;
    let passed = Passed::open(&target.join("sim"), &runner.id)?;
    let todo: Vec<u64> = seeds.clone().filter(|seed| !passed.known.contains(seed)).collect();
    let skipped = usize::try_from(seeds.end - seeds.start).unwrap_or(usize::MAX) - todo.len();
    if skipped > 0 {
        PROGRESS.say(&format!("{skipped} seeds have passed before with the same program"));
    }
    let played = Played { started: Instant::now(), coverage: Coverage::default(), failed: Vec::new(), passed, done: 0 };
    let Played { started, coverage, mut failed, done, .. } =
        play_all(&runner, &todo, jobs, args.within.map(Duration::from_secs), played)?;
    failed.sort_by_key(|(seed, _)| *seed);
    print(&coverage, started.elapsed())?;
    if done < todo.len() {
        PROGRESS.say(&format!("the time was up: {} of {} seeds were not run", todo.len() - done, todo.len()));
    }
    for (seed, outcome) in &failed {
        let failure = outcome.failure.as_deref().unwrap_or_default();
        PROGRESS.say(&format!("seed {seed}: {failure}"));
        if !args.no_reduce {
            PROGRESS.say(&format!("seed {seed}: the fewest faults that fail: {}", runner.reduce(*seed, outcome)?));
        }
    }
    ensure!(failed.is_empty(), "{} of {} seeds failed", failed.len(), todo.len());
    Ok(())
}

/// The seeds that were run.
struct Played {
    started: Instant,
    coverage: Coverage,
    failed: Vec<(u64, Outcome)>,
    passed: Passed,
    done: usize,
}

impl Played {
    fn add(&mut self, seed: u64, outcome: Outcome) -> Result<()> {
        self.coverage.add(&outcome);
        self.done += 1;
        match &outcome.failure {
            None => self.passed.add(seed)?,
            Some(failure) => {
                PROGRESS.say(&format!("seed {seed} FAILED: {failure}"));
                self.failed.push((seed, outcome));
            }
        }
        Ok(())
    }
}

/// Runs the seeds in `jobs` processes at a time, and begins none once the time `within` is over.
fn play_all(
    runner: &SeedRunner,
    todo: &[u64],
    jobs: usize,
    within: Option<Duration>,
    played: Played,
) -> Result<Played> {
    let started = played.started;
    let (next, broken) = (AtomicU64::new(0), AtomicBool::new(false));
    let shared = Mutex::new(played);
    let is_time_up = || within.is_some_and(|within| started.elapsed() >= within);
    let work = || -> Result<()> {
        while !broken.load(Ordering::Relaxed) && !is_time_up() {
            let at = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
            let Some(seed) = todo.get(at).copied() else { break };
            let outcome = runner.play(seed, &[]).inspect_err(|_| broken.store(true, Ordering::Relaxed))?;
            let mut played = shared.lock().map_err(|_| anyhow::anyhow!("another worker broke"))?;
            played.add(seed, outcome)?;
            if played.done.is_multiple_of(TELL_EVERY) {
                let (done, seconds, failures) = (played.done, started.elapsed().as_secs(), played.failed.len());
                PROGRESS.say(&format!("{done} of {} seeds in {seconds} s, {failures} failed", todo.len()));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker broke"))?)
    })?;
    shared.into_inner().map_err(|_| anyhow::anyhow!("a worker broke"))
}

fn print(coverage: &Coverage, took: Duration) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{coverage}{} seeds in {} s", coverage.seeds(), took.as_secs()).context("stdout")
}

/// Seeds that passed with this program, in a file of the target folder.
#[derive(Debug)]
struct Passed {
    file: fs::File,
    known: BTreeSet<u64>,
}

impl Passed {
    fn open(folder: &Path, program: &str) -> Result<Passed> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let path = folder.join(format!("passed-{program}.txt"));
        let known = match fs::read_to_string(&path) {
            Ok(text) => text.lines().filter_map(|line| line.parse().ok()).collect(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => bail!("{}: {error}", path.display()),
        };
        let file = fs::OpenOptions::new().create(true).append(true).open(&path);
        Ok(Passed { file: file.with_context(|| path.display().to_string())?, known })
    }

    fn add(&mut self, seed: u64) -> Result<()> {
        writeln!(self.file, "{seed}").context("writing the list of seeds that have passed")
    }
}

impl SeedRunner {
    /// Removes each kind of fault and event that the failure does not need.
    fn reduce(&self, seed: u64, outcome: &Outcome) -> Result<String> {
        let mut without: Vec<String> = Vec::new();
        for kind in outcome.kinds() {
            without.push(kind.clone());
            if self.play(seed, &without)?.failure.is_none() {
                without.pop();
            }
        }
        let needed: Vec<String> = outcome.kinds().into_iter().filter(|kind| !without.contains(kind)).collect();
        let again = format!("PLIMSOLL_SEEDS={seed}..{} PLIMSOLL_WITHOUT={}", seed + 1, without.join(","));
        let needed = if needed.is_empty() { "none".to_owned() } else { needed.join(", ") };
        Ok(format!("{needed}\n  {again} cargo test -p plimsoll-tests --test simulations swarm::seeds_asked_for"))
    }
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn seeds_are_a_range() {
        assert_eq!(range("1..10001"), Ok(1..10_001));
        for bad in ["5", "5..5", "6..5", "a..5", "1..-1"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }
}
