//! The services under test, as processes with their accounts of deploy/.

use super::cloud::Cloud;
use super::cluster::{Cluster, NAMESPACE};
use super::http;
use super::kubectl::Kubectl;
use super::parts::Parts;
use super::process::{Guard, Process, free_port};
use super::wait::until_true;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Time to load the catalog, list all watches and take a lease.
const START: Duration = Duration::from_secs(90);
/// Replicas of each service, as in its Deployment.
pub(crate) const REPLICAS: usize = 2;

/// Kind of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Reads the cluster.
    Watcher,
    /// Computes plans.
    Scheduler,
    /// Executes plans.
    Actuator,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Watcher => "watcher",
            Kind::Scheduler => "scheduler",
            Kind::Actuator => "actuator",
        }
    }

    /// The package with its program.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Kind::Watcher => "plimsoll-watcher",
            Kind::Scheduler => "plimsoll-scheduler",
            Kind::Actuator => "plimsoll-actuator-aws",
        }
    }
}

/// One replica. It can be killed and restarted with the same ports, like a pod.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) kind: Kind,
    pub(crate) index: usize,
    pub(crate) listen: SocketAddr,
    /// Open port of a scheduler: Plan, `WhatIf` and Explain for all callers.
    pub(crate) open: SocketAddr,
    pub(crate) health: SocketAddr,
    pub(crate) metrics: SocketAddr,
    program: PathBuf,
    pub(crate) args: Vec<String>,
    /// `None` while the replica is down.
    process: Option<Process>,
}

impl Replica {
    /// Open port for plans; only schedulers have one.
    pub(crate) fn open_to_all(&self) -> Option<SocketAddr> {
        (self.kind == Kind::Scheduler).then_some(self.open)
    }

    /// Process ID, while the replica is up.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Name in its lease and its logs.
    pub(crate) fn name(&self) -> String {
        format!("plimsoll-{}-{}", self.kind.name(), self.index)
    }

    fn new(parts: &Parts, kind: Kind, index: usize) -> Result<Replica> {
        let address = || Ok::<_, anyhow::Error>(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)));
        let (listen, open, health, metrics) = (address()?, address()?, address()?, address()?);
        let args = vec![
            format!("--listen={listen}"),
            format!("--metrics-listen={metrics}"),
            format!("--health-listen={health}"),
        ];
        let program = parts.program(&format!("plimsoll-{}", kind.name()))?;
        Ok(Replica { kind, index, listen, open, health, metrics, program, args, process: None })
    }
}

/// All replicas of all services.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) replicas: Vec<Replica>,
    guard: Arc<Guard>,
    /// Folder of the logs.
    pub(crate) dir: PathBuf,
}

impl Services {
    /// Starts the services in the order of their dependencies, and waits until each is ready.
    pub(crate) fn start(
        parts: &Parts,
        guard: &Arc<Guard>,
        dir: &Path,
        cluster: &Cluster,
        cloud: &Cloud,
        count: usize,
    ) -> Result<Services> {
        let replicas = |kind: Kind| (0..count).map(move |i| Replica::new(parts, kind, i)).collect::<Result<Vec<_>>>();
        let mut schedulers = replicas(Kind::Scheduler)?;
        for scheduler in &mut schedulers {
            scheduler.args.push(format!("--open-listen={}", scheduler.open));
        }
        let mut actuators = replicas(Kind::Actuator)?;
        let kubeconfig = cluster.kubeconfig_of("actuator", dir)?;
        for actuator in &mut actuators {
            actuator.args.extend([
                format!("--kubeconfig={}", kubeconfig.display()),
                format!("--lease-namespace={NAMESPACE}"),
                format!("--watcher-lease={NAMESPACE}/plimsoll-watcher"),
                format!("--cluster-name={}", cloud.cluster),
                format!("--cluster-endpoint={}", cluster.server),
                format!("--cluster-ca-file={}", cluster.authority.display()),
                format!("--region={}", cloud.region),
                format!("--aws-endpoint-url={}", cloud.endpoint),
                format!("--interruption-queue={}", cloud.cluster),
            ]);
        }
        let mut watchers = replicas(Kind::Watcher)?;
        let kubeconfig = cluster.kubeconfig_of("watcher", dir)?;
        for watcher in &mut watchers {
            watcher
                .args
                .extend([format!("--kubeconfig={}", kubeconfig.display()), format!("--lease-namespace={NAMESPACE}")]);
            watcher.args.extend(schedulers.iter().map(|s| format!("--scheduler={}", s.listen)));
            watcher.args.extend(actuators.iter().map(|a| format!("--actuator={}", a.listen)));
        }
        let replicas: Vec<_> = schedulers.into_iter().chain(actuators).chain(watchers).collect();
        let mut services = Services { replicas, guard: Arc::clone(guard), dir: dir.to_owned() };
        for index in 0..services.replicas.len() {
            services.up(index)?;
        }
        for index in 0..services.replicas.len() {
            services.wait_ready(index)?;
        }
        Ok(services)
    }

    /// Starts a replica that is down.
    pub(crate) fn up(&mut self, index: usize) -> Result<()> {
        let replica = &mut self.replicas[index];
        let mut command = Command::new(&replica.program);
        command
            .args(&replica.args)
            .env("POD_NAME", replica.name())
            .env("POD_NAMESPACE", NAMESPACE)
            .env("POD_IP", Ipv4Addr::LOCALHOST.to_string())
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("RUST_BACKTRACE", "1");
        replica.process = Some(Process::start(&replica.name(), &mut command, &self.dir, &self.guard)?);
        Ok(())
    }

    /// Waits until a replica is ready.
    pub(crate) fn wait_ready(&mut self, index: usize) -> Result<()> {
        let replica = &mut self.replicas[index];
        let (name, health) = (replica.name(), replica.health);
        until_true(&format!("{name} is ready"), START, || {
            self.guard.check()?;
            if let Some(status) = replica.process.as_mut().and_then(|p| p.status().transpose()) {
                bail!("{name} ended while starting: {}", status?);
            }
            Ok(match http::send(health, "GET", "/readyz", &[], "") {
                Ok(answer) => {
                    (answer.status == 200, format!("/readyz answers {}: {}", answer.status, answer.body.trim()))
                }
                Err(error) => (false, format!("{error:#}")),
            })
        })
    }

    /// Kills the replica as `kill -9` does; the replica stays down until `up`.
    pub(crate) fn kill(&mut self, index: usize) -> Result<String> {
        let replica = &mut self.replicas[index];
        let mut process = replica.process.take().with_context(|| format!("{} does not run", replica.name()))?;
        process.kill_hard()?;
        Ok(replica.name())
    }

    /// Stops and restarts the replicas of a kind one by one.
    pub(crate) fn restart(&mut self, kind: Kind) -> Result<()> {
        let indices: Vec<usize> = (0..self.replicas.len()).filter(|i| self.replicas[*i].kind == kind).collect();
        for index in indices {
            if let Some(mut process) = self.replicas[index].process.take() {
                process.stop()?;
            }
            self.up(index)?;
            self.wait_ready(index)?;
        }
        Ok(())
    }

    /// Removes replicas that exited, and returns how each ended.
    pub(crate) fn ended(&mut self) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        for replica in &mut self.replicas {
            let name = replica.name();
            if let Some(process) = &mut replica.process
                && let Some(status) = process.status()?
            {
                replica.process = None;
                ended.push(format!("{name} ended by itself: {status}; see {}.log", self.dir.join(&name).display()));
            }
        }
        Ok(ended)
    }

    /// The replica that holds the Lease of its kind.
    pub(crate) fn leader(&self, kind: Kind, kubectl: &Kubectl) -> Result<usize> {
        let lease = format!("plimsoll-{}", kind.name());
        let holder =
            kubectl.run(&["get", "lease", &lease, "-n", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}"])?;
        let found = self.replicas.iter().position(|r| r.kind == kind && holder.contains(&r.name()));
        found.with_context(|| format!("the lease {lease} is held by {holder:?}, which is none of the replicas"))
    }

    /// The index of the first replica of a kind.
    pub(crate) fn first(&self, kind: Kind) -> Result<usize> {
        self.replicas.iter().position(|r| r.kind == kind).with_context(|| format!("no {}", kind.name()))
    }

    /// Replicas that exited unexpectedly, or panicked and continued.
    pub(crate) fn troubles(&mut self) -> Result<Vec<String>> {
        let mut troubles = Vec::new();
        for replica in &mut self.replicas {
            let name = replica.name();
            if let Some(process) = &mut replica.process
                && let Some(status) = process.status()?
            {
                troubles.push(format!("{name} ended by itself: {status}"));
            }
            for file in ["log", "out"] {
                let text = std::fs::read(self.dir.join(format!("{name}.{file}"))).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                troubles.extend(text.lines().find(|l| l.contains("panicked at")).map(|l| format!("{name}: {l}")));
            }
        }
        Ok(troubles)
    }
}

impl Drop for Services {
    /// Ends all replicas at the same time.
    fn drop(&mut self) {
        for process in self.replicas.iter_mut().filter_map(|r| r.process.as_mut()) {
            // If this fails, the process gets another signal when it is dropped.
            let _ = process.terminate();
        }
    }
}
