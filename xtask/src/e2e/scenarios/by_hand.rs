//! `cargo xtask world`, used like a developer: start, commands, stop.

use super::super::objects::{self, SOON};
use super::super::{Context, Figure};
use crate::harness::kubectl::{Kubectl, condition, instance_of};
use crate::harness::process::Process;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Context as _, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Time limit for the start of all components.
const START: Duration = Duration::from_secs(180);

/// The program and its environment.
struct ByHand {
    program: PathBuf,
    home: PathBuf,
}

impl ByHand {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("world").args(args).env(crate::world::HOME, &self.home);
        command
    }

    /// Runs a subcommand and returns its output.
    fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).output().context("starting xtask")?;
        if !output.status.success() {
            bail!("world {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// File of this program. Cargo replaces the file on a new build, and Linux then marks the path of a running program as
/// deleted.
fn own_program() -> Result<PathBuf> {
    let path = std::env::current_exe()?;
    let replaced = path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(replaced.filter(|path| path.exists()).unwrap_or(path))
}

pub(super) fn play(context: &Context, world: &mut World) -> Result<Vec<Figure>> {
    // Separate from the scenario's own environment, which the command does not use.
    let folder = world.cluster.kubeconfig.parent().context("no folder")?.join("w");
    let by_hand = ByHand { program: own_program()?, home: folder.with_extension("home") };
    let begun = Instant::now();
    let keep = folder.to_str().context("the path is not UTF-8")?;
    let mut start = by_hand.command(&["--no-build", "--replicas=1", "--boot-delay=0s", "--keep", keep]);
    let logs = folder.parent().context("no folder")?;
    let mut owner = Process::start("world", &mut start, logs, &context.guard)?;
    owner.first_line(START)?;
    let ready = begun.elapsed();

    let kubectl = Kubectl::new(&folder.join("admin.kubeconfig"));
    kubectl.apply(&objects::deployment("web", 1, 1500))?;
    let first = instance_of_web(&kubectl, "")?;
    by_hand.run(&["terminate", &first])?;
    let second = instance_of_web(&kubectl, &first)?;
    let status = by_hand.run(&["status"])?;
    ensure!(
        status.contains(&second) && !status.contains(&first),
        "{first} was lost, {second} took over, but: {status}"
    );
    by_hand.run(&["capacity", "take", "*", "*", "*"])?;
    let refused = by_hand.run(&["capacity", "give", "spot", "*", "*"]);
    ensure!(refused.is_err(), "part of a rule was given back: {refused:?}");
    by_hand.run(&["restart", "scheduler", "--no-build"])?;

    let begun = Instant::now();
    by_hand.run(&["stop"])?;
    let stopped = begun.elapsed();
    let status = owner.stop()?;
    ensure!(status.success(), "the process of the world ended with {status}");
    let left = processes_that_name(&folder)?;
    ensure!(left.is_empty(), "remaining processes: {left:?}");
    let gone = by_hand.run(&["status"]).map_err(|error| format!("{error:#}"));
    ensure!(gone.as_ref().is_err_and(|error| error.contains("no world is running")), "{gone:?}");
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    Ok(vec![("start", seconds(ready)), ("stop", seconds(stopped))])
}

/// Instance of the node of the only pod of `web`, after the pod is ready on another instance than this. A node may have
/// the name of an earlier node.
fn instance_of_web(kubectl: &Kubectl, not: &str) -> Result<String> {
    let mut instance = String::new();
    until_true("the pod is ready on another instance", SOON, || {
        let pods = kubectl.list(&["pods", "-l", "app=web"])?;
        let ready = pods.iter().filter(|pod| condition(pod, "Ready"));
        let names: Vec<&str> = ready.filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
        let nodes = kubectl.list(&["nodes"])?;
        let nodes = nodes.iter().filter(|node| node["metadata"]["name"].as_str().is_some_and(|n| names.contains(&n)));
        instance = nodes.filter_map(instance_of).find(|id| *id != not).unwrap_or_default().to_owned();
        Ok((!instance.is_empty(), format!("ready on {names:?}")))
    })?;
    Ok(instance)
}

/// Command lines of processes that contain the folder.
fn processes_that_name(folder: &Path) -> Result<Vec<String>> {
    let folder = format!("{}/", folder.display());
    let mut command_lines = Vec::new();
    for entry in std::fs::read_dir("/proc").context("/proc")? {
        // A process may end while its files are read.
        let line = std::fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&folder) {
            command_lines.push(line);
        }
    }
    Ok(command_lines)
}
