//! The services under test, as processes with the account that deploy/ gives them.

use super::cloud::Cloud;
use super::cluster::{Cluster, NAMESPACE};
use super::http;
use super::kubectl::Kubectl;
use super::parts::Parts;
use crate::harness::process::{Guard, Process, free_port};
use crate::harness::wait::until_true;
use anyhow::{Context as _, Result, bail};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The catalog is loaded, all watches are listed, a lease is taken.
const START: Duration = Duration::from_secs(90);
/// As a Deployment runs them.
pub(super) const WATCHERS: usize = 2;
pub(super) const SCHEDULERS: usize = 2;
pub(super) const ACTUATORS: usize = 2;

/// Which service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Watcher,
    Scheduler,
    Actuator,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Watcher => "watcher",
            Kind::Scheduler => "scheduler",
            Kind::Actuator => "actuator",
        }
    }
}

/// One replica. It can be killed and started again with the same ports, as a pod that restarts.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) kind: Kind,
    pub(super) index: usize,
    pub(super) listen: SocketAddr,
    /// Of a scheduler: Plan, `WhatIf` and Explain for everybody.
    pub(super) open: SocketAddr,
    health: SocketAddr,
    program: PathBuf,
    args: Vec<String>,
    /// None while it is down.
    process: Option<Process>,
}

impl Replica {
    /// As its lease and its logs name it.
    pub(super) fn name(&self) -> String {
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
        Ok(Replica { kind, index, listen, open, health, program, args, process: None })
    }
}

/// All replicas of all services.
#[derive(Debug)]
pub(super) struct Services {
    pub(super) replicas: Vec<Replica>,
    guard: Arc<Guard>,
    logs: PathBuf,
}

impl Services {
    /// Starts them in the order in which they need each other, and waits until each says that it is ready.
    pub(super) fn start(
        parts: &Parts,
        guard: &Arc<Guard>,
        dir: &Path,
        cluster: &Cluster,
        cloud: &Cloud,
    ) -> Result<Services> {
        let replicas = |kind: Kind, count: usize| {
            (0..count).map(move |i| Replica::new(parts, kind, i)).collect::<Result<Vec<_>>>()
        };
        let mut schedulers = replicas(Kind::Scheduler, SCHEDULERS)?;
        for scheduler in &mut schedulers {
            scheduler.args.push(format!("--open-listen={}", scheduler.open));
        }
        let mut actuators = replicas(Kind::Actuator, ACTUATORS)?;
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
        let mut watchers = replicas(Kind::Watcher, WATCHERS)?;
        let kubeconfig = cluster.kubeconfig_of("watcher", dir)?;
        for watcher in &mut watchers {
            watcher
                .args
                .extend([format!("--kubeconfig={}", kubeconfig.display()), format!("--lease-namespace={NAMESPACE}")]);
            watcher.args.extend(schedulers.iter().map(|s| format!("--scheduler={}", s.listen)));
            watcher.args.extend(actuators.iter().map(|a| format!("--actuator={}", a.listen)));
        }
        let replicas: Vec<_> = schedulers.into_iter().chain(actuators).chain(watchers).collect();
        let mut services = Services { replicas, guard: Arc::clone(guard), logs: dir.to_owned() };
        for index in 0..services.replicas.len() {
            services.up(index)?;
        }
        for index in 0..services.replicas.len() {
            services.wait_ready(index)?;
        }
        Ok(services)
    }

    /// Starts a replica that is down.
    pub(super) fn up(&mut self, index: usize) -> Result<()> {
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
        replica.process = Some(Process::start(&replica.name(), &mut command, &self.logs, &self.guard)?);
        Ok(())
    }

    fn wait_ready(&mut self, index: usize) -> Result<()> {
        let replica = &mut self.replicas[index];
        let (name, health) = (replica.name(), replica.health);
        until_true(&format!("{name} is ready"), START, || {
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

    /// As `kill -9`; the replica stays down until `up`.
    pub(super) fn kill(&mut self, index: usize) -> Result<String> {
        let replica = &mut self.replicas[index];
        let mut process = replica.process.take().with_context(|| format!("{} does not run", replica.name()))?;
        process.kill_hard()?;
        Ok(replica.name())
    }

    /// The replica that holds the Lease of its kind.
    pub(super) fn leader(&self, kind: Kind, kubectl: &Kubectl) -> Result<usize> {
        let lease = format!("plimsoll-{}", kind.name());
        let holder =
            kubectl.run(&["get", "lease", &lease, "-n", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}"])?;
        let found = self.replicas.iter().position(|r| r.kind == kind && holder.contains(&r.name()));
        found.with_context(|| format!("the lease {lease} is held by {holder:?}, which is none of the replicas"))
    }

    /// The index of the first replica of a kind.
    pub(super) fn first(&self, kind: Kind) -> Result<usize> {
        self.replicas.iter().position(|r| r.kind == kind).with_context(|| format!("no {}", kind.name()))
    }

    /// Names those that ended by themselves, or panicked and went on.
    pub(super) fn troubles(&mut self) -> Result<Vec<String>> {
        let mut troubles = Vec::new();
        for replica in &mut self.replicas {
            let name = replica.name();
            if let Some(process) = &mut replica.process
                && let Some(status) = process.status()?
            {
                troubles.push(format!("{name} ended by itself: {status}"));
            }
            for file in ["log", "out"] {
                let text = std::fs::read(self.logs.join(format!("{name}.{file}"))).unwrap_or_default();
                let text = String::from_utf8_lossy(&text);
                troubles.extend(text.lines().find(|l| l.contains("panicked at")).map(|l| format!("{name}: {l}")));
            }
        }
        Ok(troubles)
    }
}
