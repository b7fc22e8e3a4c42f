//! Runs enumerated cases, many in one process, because each has its own virtual clock.

use super::PROGRESS;
use super::play::{SeedRunner, panic_of};
use anyhow::{Context as _, Result, ensure};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Cases per process: enough that the start of the process does not matter, few enough that all cores are busy until
/// the end.
const CASES: usize = 24;

/// Remaining cases, and failed cases with their causes.
#[derive(Debug, Default)]
struct Progress {
    left: Vec<Vec<String>>,
    total: usize,
    played: BTreeMap<String, usize>,
    failed: BTreeMap<String, String>,
}

impl Progress {
    /// Tenths of the cases that have been played.
    fn tenths(&self) -> usize {
        self.played.values().sum::<usize>() * 10 / self.total.max(1)
    }
}

/// Runs some cases of the flows, or of all flows: one in so many, after so many at the beginning.
///
/// # Errors
/// If the simulation cannot be started, or a case fails.
pub(super) fn run(
    runner: &SeedRunner,
    flows: &[String],
    (skip, one_in): (usize, NonZeroUsize),
    jobs: usize,
) -> Result<()> {
    let started = Instant::now();
    let vars = [("PLIMSOLL_FLOWS", flows.join(","))];
    let listed = runner.test("enumeration::list", &vars, runner.timeout.saturating_mul(8))?;
    let is_listed = listed.status.is_some_and(|status| status.success());
    ensure!(is_listed, "a run without faults fails: {}", panic_of(&listed.text).unwrap_or(listed.text));
    let cases: Vec<String> = named(&listed.text, "case ").skip(skip).step_by(one_in.get()).map(str::to_owned).collect();
    ensure!(!cases.is_empty(), "no such case");
    PROGRESS.say(&format!("{} cases", cases.len()));
    let left = cases.chunks(CASES).rev().map(<[String]>::to_vec).collect();
    let progress = Mutex::new(Progress { left, total: cases.len(), ..Progress::default() });
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(|| work(runner, &progress))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker broke"))?)
    })?;
    let progress = progress.into_inner().map_err(|_| anyhow::anyhow!("a worker broke"))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{:<16} cases", "flow").context("stdout")?;
    for (flow, count) in &progress.played {
        writeln!(out, "{flow:<16} {count}").context("stdout")?;
    }
    writeln!(out, "{} cases in {} s", cases.len(), started.elapsed().as_secs()).context("stdout")?;
    ensure!(progress.failed.is_empty(), "{} of {} cases failed", progress.failed.len(), cases.len());
    Ok(())
}

fn named<'a>(text: &'a str, what: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.strip_prefix(what))
}

/// Runs cases until none are left.
fn work(runner: &SeedRunner, progress: &Mutex<Progress>) -> Result<()> {
    loop {
        let broke = |_| anyhow::anyhow!("another worker broke");
        let Some(cases) = progress.lock().map_err(broke)?.left.pop() else { return Ok(()) };
        let outcome = play(runner, &cases)?;
        let mut progress = progress.lock().map_err(broke)?;
        // A case that hangs also stops the cases after it.
        let unplayed = cases.get(outcome.len()..).unwrap_or_default();
        if !unplayed.is_empty() {
            progress.left.push(unplayed.to_vec());
        }
        let tenths_before = progress.tenths();
        for (case, failure) in outcome {
            let flow = case.split('/').next().unwrap_or_default().to_owned();
            *progress.played.entry(flow).or_default() += 1;
            if let Some(failure) = failure {
                PROGRESS.say(&format!("{case} FAILED: {failure}"));
                progress.failed.insert(case, failure);
            }
        }
        let tenths = progress.tenths();
        if tenths > tenths_before {
            PROGRESS.say(&format!("{} % of the cases played, {} failed", tenths * 10, progress.failed.len()));
        }
    }
}

/// Results of the cases, in order, at least one.
fn play(runner: &SeedRunner, cases: &[String]) -> Result<Vec<(String, Option<String>)>> {
    let mut file = tempfile::NamedTempFile::new().context("a file for names of cases")?;
    writeln!(file, "{}", cases.join("\n")).context("names of cases")?;
    let vars = [("PLIMSOLL_CASES", file.path().display().to_string())];
    let count = u32::try_from(cases.len()).unwrap_or(u32::MAX);
    let ended = runner.test("enumeration::cases_asked_for", &vars, time_of(runner.timeout, count))?;
    Ok(read(&ended.text))
}

/// Time limit for this number of cases: one may hang, and the others are as fast as a seed.
fn time_of(timeout: Duration, cases: u32) -> Duration {
    timeout.saturating_add(Duration::from_secs(10).saturating_mul(cases))
}

/// Parses the output of a process. A case that was started and did not end hangs.
fn read(text: &str) -> Vec<(String, Option<String>)> {
    let mut parts = text.split("\ncase ");
    parts.next();
    parts
        .map(|part| {
            let case = part.lines().next().unwrap_or_default().to_owned();
            let failure = if part.contains(&format!("passed {case}")) {
                None
            } else {
                Some(panic_of(part).unwrap_or_else(|| "hangs".to_owned()))
            };
            (case, failure)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_process_tells_what_became_of_each_case() {
        let text = "\nrunning 1 test\ncase launch/a\npassed launch/a\ncase launch/b\n\
                    thread 'x' panicked at a.rs:1:2:\nnot seen\nfailed launch/b\ncase launch/c\n";
        let failed = |text: &str| Some(text.to_owned());
        let expected = [
            ("launch/a".to_owned(), None),
            ("launch/b".to_owned(), failed("not seen (a.rs:1:2)")),
            ("launch/c".to_owned(), failed("hangs")),
        ];
        assert_eq!(read(text), expected);
    }
}
