//! The environment of a scenario: control plane, EC2, kubelets and, if required, the services.

use super::cloud::{self, Cloud};
use super::cluster::Cluster;
use super::parts::Parts;
use super::process::{Guard, Process};
use super::services::Services;
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Time for Python to load its modules, and for one request to the API server.
const STAND_IN_START: Duration = Duration::from_secs(30);

/// Two slow calls of CreateFleet, and a controller's repetition after each.
const SEEDED_SLACK: Duration = Duration::from_secs(2 * (25 + 30));

/// Settings of an environment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    /// AWS region.
    pub(crate) region: &'a str,
    /// Name of the cluster, which is also in the queue and the discovery tags.
    pub(crate) cluster: &'a str,
    /// Whether custom resources, accounts and permissions of deploy/ are installed at the start; otherwise the chart
    /// installs them.
    pub(crate) installed: bool,
    /// Replicas of each service; 0 for an environment without services.
    pub(crate) replicas: usize,
    /// Time from a running instance to its Node; without one, there are no kubelets, and no instance becomes a Node.
    pub(crate) boot_delay: Option<Duration>,
    /// Additional flags of the control plane.
    pub(crate) control_plane: &'a [&'a str],
    /// Seed of EC2's slow calls, failures, throttling and delayed reads; without one, EC2 has none.
    pub(crate) ec2_seed: Option<u32>,
    /// Folder of EC2's answers about instance types, which all environments of a run share: each takes seconds.
    pub(crate) answers: Option<&'a Path>,
    /// Reports each component that starts.
    pub(crate) say: fn(&str),
}

/// Fields are dropped in this order: the services first, the cluster last.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) services: Option<Services>,
    kubelets: Option<Process>,
    ec2: Process,
    pub(crate) cloud: Cloud,
    pub(crate) cluster: Cluster,
    pub(crate) root: PathBuf,
    /// Python of the virtual environment.
    pub(crate) python: PathBuf,
    pub(crate) guard: Arc<Guard>,
    report: PathBuf,
    ec2_seed: Option<u32>,
}

impl World {
    /// Starts all components in a folder with a short path.
    ///
    /// # Errors
    /// If a component does not start in time, or the run is interrupted.
    pub(crate) fn start(parts: &Parts, guard: &Arc<Guard>, dir: &Path, setup: &Setup<'_>) -> Result<World> {
        let Setup { region, cluster: name, installed, replicas, boot_delay, control_plane, ec2_seed, answers, say } =
            *setup;
        say("starting the control plane: API server, scheduler, controller manager, etcd");
        let cluster = Cluster::start(parts, guard, dir, control_plane)?;
        if installed {
            cluster.install(&parts.root)?;
        }
        let prices = dir.join("prices.json");
        let prices = if replicas > 0 { catalog(parts, region, &prices, say)? } else { None };
        say("starting EC2 and the kubelets");
        let ec2 = cloud::Setup { region, cluster: name, prices: prices.as_deref(), seed: ec2_seed, answers };
        let (cloud, ec2) = Cloud::start(parts, guard, dir, &ec2)?;
        let report = dir.join("kubelets.json");
        let kubelets = match boot_delay {
            Some(delay) => Some(kubelets(parts, guard, dir, &cluster, &cloud, delay, &report)?),
            None => None,
        };
        let services = if replicas > 0 {
            say("starting the services");
            Some(Services::start(parts, guard, dir, &cluster, &cloud, replicas)?)
        } else {
            None
        };
        Ok(World {
            services,
            kubelets,
            ec2,
            cloud,
            cluster,
            root: parts.root.clone(),
            python: parts.python.clone(),
            guard: Arc::clone(guard),
            report,
            ec2_seed,
        })
    }

    /// The limit for what depends on EC2's answers: `usual`, or a longer one if EC2 has a seed. A seed makes a call of
    /// CreateFleet take up to 25 s, hides what it launched for up to 8 s, and may refuse or lose any call, which some
    /// controllers repeat after 30 s.
    pub(crate) fn with_slack(&self, usual: Duration) -> Duration {
        if self.ec2_seed.is_some() { usual + SEEDED_SLACK } else { usual }
    }

    /// Whether EC2 has a seed, and therefore refuses some calls.
    pub(crate) fn refuses_calls(&self) -> bool {
        self.ec2_seed.is_some()
    }

    /// Whether this number of calls is right. With a seed more calls are, because EC2 refuses or loses some.
    pub(crate) fn are_calls(&self, found: usize, expected: usize) -> bool {
        if self.refuses_calls() { found >= expected } else { found == expected }
    }

    /// Folder of the logs and configuration files.
    pub(crate) fn dir(&self) -> Result<PathBuf> {
        Ok(self.report.parent().context("the folder of the run is unknown")?.to_owned())
    }

    /// The services under test.
    pub(crate) fn services(&mut self) -> Result<&mut Services> {
        self.services.as_mut().context("this scenario has no services")
    }

    /// Stops the kubelets. Returns the errors of the kubelets and the services in the whole run.
    pub(crate) fn troubles(&mut self) -> Result<Vec<String>> {
        let mut troubles = match &mut self.services {
            Some(services) => services.troubles()?,
            None => Vec::new(),
        };
        // The stand-in exits with an error if the user data of an instance was wrong.
        if let Some(mut kubelets) = self.kubelets.take() {
            let status = kubelets.stop()?;
            if !status.success() {
                let told = std::fs::read_to_string(&self.report).unwrap_or_default();
                troubles.push(format!("kubelets ended with {status}; see kubelets.log; they report {told}"));
            }
        }
        Ok(troubles)
    }

    /// Name of a required component that has exited.
    pub(crate) fn ended_part(&mut self) -> Result<Option<String>> {
        let World { kubelets, ec2, cluster, .. } = self;
        for part in kubelets.iter_mut().chain([ec2, cluster.process()]) {
            if let Some(status) = part.status()? {
                return Ok(Some(format!("{} ended by itself: {status}", part.name)));
            }
        }
        Ok(None)
    }
}

fn kubelets(
    parts: &Parts,
    guard: &Arc<Guard>,
    dir: &Path,
    cluster: &Cluster,
    cloud: &Cloud,
    boot_delay: Duration,
    report: &Path,
) -> Result<Process> {
    let mut command = Command::new(&parts.python);
    command
        .current_dir(parts.root.join("tests/kubelet"))
        .args(["-m", "plimsoll_kubelet", "--cluster-name", &cloud.cluster, "--endpoint", &cloud.endpoint])
        .args(["--boot-seconds", &boot_delay.as_secs_f64().to_string()])
        .arg("--kubeconfig")
        .arg(&cluster.kubeconfig)
        .arg("--report")
        .arg(report);
    let mut kubelets = Process::start("kubelets", &mut command, dir, guard)?;
    kubelets.first_line(STAND_IN_START)?;
    Ok(kubelets)
}

/// Writes the built-in prices of the region, so that EC2 and Plimsoll have the same prices.
fn catalog(parts: &Parts, region: &str, to: &Path, say: fn(&str)) -> Result<Option<PathBuf>> {
    let program = parts.program("plimsoll")?;
    let output = Command::new(program)
        .args(["catalog", "--region", region, "-o", "json"])
        .output()
        .context("starting plimsoll catalog")?;
    if !output.status.success() {
        say(&format!(
            "plimsoll catalog failed, EC2 uses a price formula: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
        return Ok(None);
    }
    std::fs::write(to, output.stdout)?;
    Ok(Some(to.to_owned()))
}
