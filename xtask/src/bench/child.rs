//! The measured processes.

use super::PROGRESS;
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use plimsoll_workloads::Case;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

fn build(root: &Path) -> Result<()> {
    PROGRESS.say("building plimsoll-measure in the release profile");
    let status = workspace::cargo()
        .current_dir(root)
        .args(["build", "--quiet", "--release", "--locked", "--package", "plimsoll-measure"])
        .status()
        .context("starting cargo")?;
    if !status.success() {
        bail!("cargo build: {status}");
    }
    Ok(())
}

/// Writes the input of plimsoll-measure. Returns the seconds that the snapshot took (in the profile of this program).
pub(super) fn prepare(case: &Case, dir: &Path) -> Result<f64> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let started = Instant::now();
    let question = case.question()?;
    let took = started.elapsed().as_secs_f64();
    let mut file = BufWriter::new(File::create(dir.join("snapshot.json"))?);
    serde_json::to_writer(&mut file, &question.snapshot)?;
    file.flush()?;
    let catalogs: Vec<_> = question.catalogs.values().collect();
    std::fs::write(dir.join("catalogs.json"), serde_json::to_vec(&catalogs)?)?;
    Ok(took)
}

/// The programs and the folder of their files.
pub(super) struct Measure {
    program: PathBuf,
    peer: Option<PathBuf>,
    pub(super) dir: PathBuf,
    pub(super) root: PathBuf,
}

impl Measure {
    /// Finds the programs; with `fresh`, builds them first.
    pub(super) fn new(root: &Path, target: &Path, dir: &Path, with_peer: bool, fresh: bool) -> Result<Self> {
        if fresh {
            build(root)?;
        }
        let peer =
            if with_peer { Some(workspace::script(&root.join("tests/peers/karpenter/build.sh"))?) } else { None };
        let program = target.join("release/plimsoll-measure");
        Ok(Self { program, peer, dir: dir.to_owned(), root: root.to_owned() })
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    pub(super) fn peer(&self) -> Option<&Path> {
        self.peer.as_deref()
    }

    pub(super) fn with_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Generates a workload and plans it `repeat` times without earlier state.
    pub(super) fn plan(&self, case: &Case, repeat: u32, manifests: bool) -> Result<Value> {
        let dir = self.dir.join("workload");
        if manifests {
            case.write(&dir)?;
        }
        let prepared = prepare(case, &dir)?;
        let mut figures = self.solve(&[dir], repeat)?.pop().context("plimsoll-measure printed nothing")?;
        figures["snapshotSeconds"] = prepared.into();
        if figures["violations"] != 0 {
            // The figures have little value then; tables mark them.
            PROGRESS.say(&format!("{}: the plan is NOT VALID: {}", case.title(), figures["firstViolation"]));
        }
        Ok(figures)
    }

    /// Plans the inputs of [`prepare`] in the folders; returns one object for each.
    pub(super) fn solve(&self, folders: &[PathBuf], repeat: u32) -> Result<Vec<Value>> {
        self.run(&["solve", "--repeat", &repeat.to_string()], folders)
    }

    /// Runs plimsoll-measure on these folders.
    pub(super) fn run(&self, arguments: &[&str], folders: &[PathBuf]) -> Result<Vec<Value>> {
        let mut command = Command::new(&self.program);
        command.args(arguments).args(folders).stderr(Stdio::inherit());
        let output = command.output().with_context(|| format!("starting {}", self.program.display()))?;
        if !output.status.success() {
            bail!("plimsoll-measure: {}", output.status);
        }
        let text = String::from_utf8(output.stdout)?;
        text.lines().map(|line| serde_json::from_str(line).map_err(Into::into)).collect()
    }

    /// Runs Karpenter on the manifests of the last workload. Type lists are sorted and truncated after Solve for at
    /// most the first seed (`cut`): on the real catalog that takes longer than Solve, and it changes neither nodes nor
    /// prices.
    pub(super) fn ask_peer(&self, seeds: u64, cut: bool) -> Result<Value> {
        let dir = self.dir.join("workload");
        let about = [(dir.join("manifests"), dir.join("catalog.json"))];
        let mut answer = self.ask(&about, 0..1, cut)?.pop().context("no answer")?;
        if seeds > 1 {
            let others = self.ask(&about, 1..seeds, false)?.pop().context("no answer")?;
            let results = answer["results"].as_array_mut().context("an answer without results")?;
            results.extend(others["results"].as_array().into_iter().flatten().cloned());
        }
        Ok(answer)
    }

    /// Karpenter's results for manifests and catalogs, from one process, without a time limit and without the plans.
    pub(super) fn ask(&self, about: &[(PathBuf, PathBuf)], seeds: Range<u64>, truncate: bool) -> Result<Vec<Value>> {
        let peer = self.peer.as_ref().context("Karpenter is disabled")?;
        let mut child = Command::new(peer)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", peer.display()))?;
        let mut to = child.stdin.take().context("the peer has no stdin")?;
        for (input, catalog) in about {
            let question = json!({
                "input": input, "catalog": catalog, "seeds": seeds.clone().collect::<Vec<_>>(), "summary": true,
                "noTruncate": !truncate, "timeoutSeconds": 0,
            });
            // Requests and responses are short, so that those of a run fit into both pipes.
            writeln!(to, "{question}")?;
        }
        drop(to);
        let output = child.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let answers: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        if answers.len() != about.len() {
            bail!("Karpenter answered {} of {} questions: {}", answers.len(), about.len(), output.status);
        }
        match answers.iter().find_map(|answer| answer["error"].as_str()) {
            Some(error) => bail!("Karpenter: {error}"),
            None => Ok(answers),
        }
    }

    /// What Karpenter makes of the cluster in `dir` with its command `mode`, which gets these `flags` too.
    pub(super) fn run_peer(&self, mode: &str, dir: &Path, flags: &[&OsStr]) -> Result<Value> {
        let peer = self.peer.as_ref().context("Karpenter is disabled")?;
        let output = Command::new(peer)
            .arg(mode)
            .arg("-catalog")
            .arg(dir.join("catalog.json"))
            .arg("-input")
            .arg(dir.join("manifests"))
            .args(flags)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("starting {}", peer.display()))?;
        if !output.status.success() {
            bail!("Karpenter: {}", output.status);
        }
        let result: Value = serde_json::from_slice(&output.stdout)?;
        for anomaly in result["anomalies"].as_array().into_iter().flatten() {
            PROGRESS.say(&format!("Karpenter: {anomaly}"));
        }
        Ok(result)
    }

    /// Date, commit and load of the machine.
    pub(super) fn stamp(&self) -> Result<String> {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or("unknown");
        let commit = self.tell("git", &["rev-parse", "--short", "HEAD"])?;
        // Changes of documents, one of which is being written, do not affect the figures.
        let changes = self.tell("git", &["status", "--porcelain", "--", ".", ":!docs"])?;
        let changed = if changes.is_empty() { "" } else { " with changes" };
        let cores = std::thread::available_parallelism()?.get();
        Ok(format!(
            "Measured on {}, commit {commit}{changed}; load average of the {cores} cores at the start: {load}.",
            jiff::Zoned::now().date(),
        ))
    }

    fn tell(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = Command::new(program).args(arguments).current_dir(&self.root).output();
        let output = output.with_context(|| format!("starting {program}"))?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Machine, versions and method.
    pub(super) fn method(&self) -> Result<String> {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
        let cores = std::thread::available_parallelism()?.get();
        let module = std::fs::read_to_string(self.root.join("tests/peers/karpenter/go.mod"))?;
        let karpenter = module.lines().find_map(|line| line.trim().strip_prefix("sigs.k8s.io/karpenter "));
        Ok(format!(
            "Generated by `cargo xtask bench --write docs/benchmarks.md`. The line above each table gives its date, its commit and the load of the \
             machine. `--only PART` measures single parts again.\n\n\
             - Machine: {cores} cores, {}.\n\
             - Plimsoll: {}, release profile, one thread per plan.\n\
             - Karpenter: `sigs.k8s.io/karpenter` {} as a library ({}), tests/peers/karpenter, with its default of one worker and without its time-out. \
             Its time is the time of `Scheduler.Solve` only. Sorting and truncating type lists after Solve is reported separately, for some sizes and one seed. \
             Over several seeds, the median time and the lowest cost count. Ratios compare times measured one after the other in the same run.\n\
             - Plimsoll's time is the time of `solve` on a snapshot in memory: the whole plan with its lower bound, without building the snapshot and checking the plan. \
             Sessions are measured from message to message, including the check.\n\
             - Each measurement runs in its own process on the same input. Memory is the high-water mark of the process (VmHWM); for Plimsoll it includes the snapshot.\n\
             - Workloads come from tests/workloads with fixed seeds.\n",
            model.trim_start_matches([' ', '\t', ':']),
            self.tell("rustc", &["--version"])?,
            karpenter.unwrap_or("unknown"),
            self.tell("go", &["version"])?,
        ))
    }
}
