//! End-to-end tests: the three services as separate processes, against a real control plane (tests/controlplane),
//! moto's EC2 (tests/ec2) and a simulated kubelet (tests/kubelet). Each scenario has its own environment on free
//! loopback ports, which is always removed at the end.

mod checks;
mod objects;
mod parallel;
mod scenarios;

use anyhow::{Context as _, Result, bail};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::harness::parts::Parts;
use crate::harness::process::Guard;
use crate::harness::services::REPLICAS;
use crate::harness::world::{Setup, World};
use crate::progress::Reporter;
use scenarios::{Plimsoll, SCENARIOS, Scenario};

const PROGRESS: Reporter = Reporter("e2e");

/// Subfolder of EC2's answers about instance types, for all scenarios of the run.
const ANSWERS: &str = "answers";

/// Arguments of `cargo xtask e2e`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only these scenarios, by name.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// List the scenarios and exit.
    #[arg(long)]
    list: bool,
    /// Keep the work folder of a scenario, with the logs of all processes, after success too.
    #[arg(long)]
    keep: bool,
    /// Work folder (default: a new folder in the system's temporary folder). The path must be short, because it
    /// contains a socket.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Number of single pods for measuring the latency.
    #[arg(long, default_value_t = 30, value_name = "N")]
    latency_pods: usize,
    /// Run a scenario that failed this many times again, with nothing beside it; the last result counts. All results
    /// are reported, because a single failure needs analysis too.
    #[arg(long, default_value_t = 0, value_name = "N")]
    again: u32,
    /// Run up to N scenarios at a time. Those that assert times of a few seconds run alone.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    jobs: u8,
    /// EC2 has slow calls, rare failures, throttling and delayed reads that depend on this seed: tests/ec2/README.md.
    #[arg(long, value_name = "SEED")]
    ec2_seed: Option<u32>,
    /// Use the programs in the target folder without building them.
    #[arg(long)]
    no_build: bool,
}

/// Shared state of the scenarios: the components, and the options of the caller.
#[derive(Debug)]
struct Context {
    parts: Parts,
    guard: Arc<Guard>,
    latency_pods: usize,
    ec2_seed: Option<u32>,
    /// Folder of the run.
    folder: PathBuf,
    /// Whether the folder of a scenario that passed is removed.
    remove: bool,
}

/// A figure of a scenario: name and value.
type Figure = (&'static str, String);

struct Outcome {
    scenario: &'static Scenario,
    took: Duration,
    result: Result<Vec<Figure>>,
}

/// Runs the scenarios.
///
/// # Errors
/// If a component cannot be built or found, or if a scenario fails; each failure is reported when it happens.
pub(crate) fn run(args: Args) -> Result<()> {
    let Args { only, list, keep, dir, latency_pods, again, jobs, ec2_seed, no_build } = args;
    let chosen = choose(&only)?;
    if list {
        return print_list();
    }
    let build = !no_build && chosen.iter().any(|s| s.plimsoll != Plimsoll::Absent);
    let guard = Arc::new(Guard::start()?);
    let parts = Parts::find(&guard, build, |text| PROGRESS.say(text))?;
    let (folder, temporary) = work_folder(dir)?;
    PROGRESS.say(&format!("logs are in {}", folder.display()));
    let remove = temporary && !keep;
    let context = Context { parts, guard, latency_pods, ec2_seed, folder, remove };
    let mut outcomes = parallel::run(&chosen, jobs.into(), |scenario| play(&context, scenario, scenario.name))?;
    for outcome in &mut outcomes {
        let scenario = outcome.scenario;
        for number in 1..=again {
            if outcome.result.is_ok() {
                break;
            }
            PROGRESS.say(&format!("{}: once more", scenario.name));
            *outcome = play(&context, scenario, &format!("{}-{number}", scenario.name))?;
        }
    }
    let failed = outcomes.iter().filter(|o| o.result.is_err()).count();
    summary(&outcomes, ec2_seed)?;
    if failed > 0 {
        bail!("{failed} of {} scenarios failed; logs are in {}", outcomes.len(), context.folder.display());
    }
    if context.remove {
        remove_folder(&context.folder)?;
    }
    Ok(())
}

fn choose(only: &[String]) -> Result<Vec<&'static Scenario>> {
    for name in only {
        if !SCENARIOS.iter().any(|s| s.name == name) {
            let names: Vec<_> = SCENARIOS.iter().map(|s| s.name).collect();
            bail!("no scenario is called {name}; these are: {}", names.join(", "));
        }
    }
    Ok(SCENARIOS.iter().filter(|s| only.is_empty() || only.iter().any(|n| n == s.name)).collect())
}

fn print_list() -> Result<()> {
    let mut out = std::io::stdout().lock();
    for scenario in SCENARIOS {
        writeln!(out, "{:<20} {}", scenario.name, scenario.shows)?;
    }
    Ok(())
}

/// The folder, and whether this program may remove it.
fn work_folder(dir: Option<PathBuf>) -> Result<(PathBuf, bool)> {
    match dir {
        Some(dir) => {
            std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
            let answers = dir.join(ANSWERS);
            if answers.exists() {
                // Of an earlier run, perhaps of another version of moto.
                remove_folder(&answers)?;
            }
            Ok((std::path::absolute(dir)?, false))
        }
        None => Ok((tempfile::Builder::new().prefix("plimsoll-e2e-").tempdir()?.keep(), true)),
    }
}

fn remove_folder(folder: &Path) -> Result<()> {
    std::fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))
}

/// Plays a scenario in a folder of this name.
fn play(context: &Context, scenario: &'static Scenario, name: &str) -> Result<Outcome> {
    let dir = context.folder.join(name);
    PROGRESS.say(&format!("{}: {}", scenario.name, scenario.shows));
    let begun = Instant::now();
    std::fs::create_dir_all(&dir)?;
    let answers = context.folder.join(ANSWERS);
    let setup = Setup {
        region: scenario.region,
        cluster: scenario.cluster,
        installed: scenario.installed,
        replicas: if scenario.plimsoll == Plimsoll::Running { REPLICAS } else { 0 },
        boot_delay: Some(Duration::ZERO),
        control_plane: &[],
        ec2_seed: context.ec2_seed,
        answers: Some(&answers),
        say: |_| (),
    };
    let result = World::start(&context.parts, &context.guard, &dir, &setup).and_then(|mut world| {
        let figures = (scenario.play)(context, &mut world)?;
        world.check_always()?;
        Ok(figures)
    });
    let took = begun.elapsed();
    match &result {
        Ok(_) => PROGRESS.say(&format!("{}: passed in {} s", scenario.name, took.as_secs())),
        Err(error) => {
            PROGRESS.say(&format!(
                "{}: FAILED after {} s: {error:#}\n  logs: {}",
                scenario.name,
                took.as_secs(),
                dir.display()
            ));
        }
    }
    if context.remove && result.is_ok() {
        // All scenarios together write more than 1 GB, mostly etcd's: a small disk would be full.
        remove_folder(&dir)?;
    }
    Ok(Outcome { scenario, took, result })
}

fn summary(outcomes: &[Outcome], ec2_seed: Option<u32>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out)?;
    if let Some(seed) = ec2_seed {
        writeln!(out, "EC2 with seed {seed}")?;
    }
    for outcome in outcomes {
        let word = if outcome.result.is_ok() { "ok" } else { "FAILED" };
        writeln!(out, "{word:<7} {:<20} {:>5.1} s", outcome.scenario.name, outcome.took.as_secs_f64())?;
        match &outcome.result {
            Ok(figures) => {
                for (what, how_much) in figures {
                    writeln!(out, "          {what}: {how_much}")?;
                }
            }
            Err(error) => writeln!(out, "          {error:#}")?,
        }
    }
    Ok(())
}
