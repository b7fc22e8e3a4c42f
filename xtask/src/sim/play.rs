//! Runs one seed in its own process.

use crate::workspace;
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::io::{Read as _, Seek as _};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Polling interval of a process.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The program that runs seeds.
#[derive(Debug)]
pub(super) struct SeedRunner {
    program: PathBuf,
    /// Time limit of a seed or a case.
    pub(super) timeout: Duration,
    /// Identifies the build.
    pub(super) id: String,
}

/// Outcome of a seed.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Kinds of random faults of the seed.
    pub(super) faults: Vec<String>,
    /// Kinds of events, once for each occurrence.
    pub(super) events: Vec<String>,
    /// Failure, if any.
    pub(super) failure: Option<String>,
}

impl Outcome {
    /// Each kind of fault and event once.
    pub(super) fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> = self.faults.iter().chain(&self.events).cloned().collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    fn read(text: &str, failure: Option<String>) -> Outcome {
        let mut outcome = Outcome { failure, ..Outcome::default() };
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("fault ") {
                outcome.faults.push(kind.to_owned());
            } else if let Some(kind) = line.strip_prefix("injected event ") {
                outcome.events.push(kind.to_owned());
            }
        }
        outcome
    }
}

impl SeedRunner {
    /// Builds the simulation in this profile, with the features that `cargo test` selects.
    pub(super) fn build(profile: &str, timeout: Duration) -> Result<SeedRunner> {
        let (root, _) = workspace::folders()?;
        let output = workspace::cargo()
            .current_dir(&root)
            .args(["test", "--locked", "--profile", profile, "--test", "simulations"])
            .args(["--no-run", "--message-format", "json-render-diagnostics"])
            .stderr(Stdio::inherit())
            .output()
            .context("starting cargo test")?;
        if !output.status.success() {
            bail!("the simulation does not compile");
        }
        let text = String::from_utf8(output.stdout)?;
        let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_target = |message: &Value| message["target"]["name"] == "simulations";
        let program = messages.filter(of_target).find_map(|message| message["executable"].as_str().map(PathBuf::from));
        let program = program.context("cargo reports no program of the simulation")?;
        let facts = std::fs::metadata(&program)?;
        let built = facts.modified()?.duration_since(std::time::UNIX_EPOCH)?.as_millis();
        Ok(SeedRunner { program, timeout, id: format!("{built:x}-{:x}", facts.len()) })
    }

    /// Runs a seed without these kinds of faults and events.
    pub(super) fn play(&self, seed: u64, without: &[String]) -> Result<Outcome> {
        let seeds = format!("{seed}..{}", seed + 1);
        let vars = [("PLIMSOLL_SEEDS", seeds), ("PLIMSOLL_WITHOUT", without.join(","))];
        let ended = self.test("swarm::seeds_asked_for", &vars, self.timeout)?;
        let failure = match ended.status {
            Some(status) if status.success() => None,
            Some(status) => Some(panic_of(&ended.text).unwrap_or_else(|| status.to_string())),
            None => Some(format!("hangs: no end after {} s", self.timeout.as_secs())),
        };
        Ok(Outcome::read(&ended.text, failure))
    }

    /// Runs one test of the program until it ends or the time limit is reached.
    pub(super) fn test(&self, name: &str, vars: &[(&str, String)], timeout: Duration) -> Result<Ended> {
        let mut output = tempfile::tempfile().context("a file for the output")?;
        let mut child = Command::new(&self.program)
            .args([name, "--exact", "--nocapture"])
            .envs(vars.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .spawn()
            .with_context(|| format!("starting {}", self.program.display()))?;
        let until = Instant::now() + timeout;
        let status = loop {
            match child.try_wait()? {
                Some(status) => break Some(status),
                None if Instant::now() > until => {
                    child.kill()?;
                    child.wait()?;
                    break None;
                }
                None => std::thread::park_timeout(LOOK_EVERY),
            }
        };
        let mut text = String::new();
        output.rewind()?;
        output.read_to_string(&mut text).context("the output of the simulation")?;
        Ok(Ended { status, text })
    }
}

/// Exit status and output of a process.
#[derive(Debug)]
pub(super) struct Ended {
    /// None if the process was killed at the time limit.
    pub(super) status: Option<ExitStatus>,
    pub(super) text: String,
}

/// The first line of the first panic.
pub(super) fn panic_of(text: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| !line.contains("panicked at"));
    let place = lines.next()?;
    let place = place.split("panicked at ").nth(1).unwrap_or(place).trim_end_matches(':');
    Some(format!("{} ({place})", lines.next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_tells_faults_events_and_the_first_panic() {
        let text = "seed 4\nfault Drop\ninjected event DeleteNode\ninjected event DeleteNode\n\
                    thread 'x' panicked at tests/src/test_cluster.rs:1:2:\nnot seen within 60s\n\
                    event web-1 FailedScheduling: of Kubernetes\n";
        let outcome = Outcome::read(text, panic_of(text));
        assert_eq!(outcome.kinds(), ["DeleteNode", "Drop"]);
        assert_eq!(outcome.events.len(), 2);
        assert_eq!(outcome.failure.as_deref(), Some("not seen within 60s (tests/src/test_cluster.rs:1:2)"));
    }
}
