//! All of Plimsoll in one process: the real watcher, scheduler and actuator on a [`World`].
//!
//! Each replica acts as a process that tests can stop, kill and isolate separately.

mod replicas;

use crate::apiserver::faults::Partition;
use crate::apiserver::store::Key;
use crate::apiserver::{ResourceId, object};
use crate::cloud::Cut;
use crate::machines::NAMESPACE;
use crate::network::Network;
use crate::seed::Rng;
use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use plimsoll_actuator::settings::SHADOW_REPORT_INTERVAL;
use plimsoll_model::names::lease;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::metrics::Metrics;
use plimsoll_runtime::shutdown::Shutdown;
use plimsoll_scheduler::PlanFn;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A Plimsoll service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Watches the cluster and drives the other services.
    Watcher,
    /// Computes plans.
    Scheduler,
    /// Executes plans: writes to the cluster and launches instances.
    Actuator,
}

impl Role {
    /// Name of the service, as used in the names of its replicas.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Watcher => "watcher",
            Self::Scheduler => "scheduler",
            Self::Actuator => "actuator",
        }
    }

    /// DNS name in the service's certificate, as in deploy/.
    #[must_use]
    pub fn dns_name(self) -> String {
        format!("plimsoll-{self}.plimsoll-system.svc")
    }

    fn lease(self) -> Option<&'static str> {
        match self {
            Self::Watcher => Some(lease::WATCHER),
            Self::Actuator => Some(lease::ACTUATOR),
            Self::Scheduler => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Number of replicas and their settings.
#[derive(Debug, Clone)]
pub struct Options {
    /// Watcher replicas.
    pub watchers: usize,
    /// Scheduler replicas.
    pub schedulers: usize,
    /// Actuator replicas.
    pub actuators: usize,
    /// Name of the cluster.
    pub cluster_name: String,
    /// Whether actuators nominate the planned node of a pod to kube-scheduler.
    pub nominate_nodes: bool,
    /// What makes the plans of schedulers.
    pub plan: PlanFn,
    /// Whether actuators bind pods to their planned nodes.
    pub bind_pods: bool,
    /// Whether actuators replace nodes whose conditions have been bad for too long.
    pub node_repair: bool,
    /// Whether actuators follow zonal shifts.
    pub zonal_shift: bool,
    /// Whether actuators treat rebalance recommendations as interruptions.
    pub act_on_rebalance: bool,
    /// Time between two shadow reports of an actuator.
    pub shadow_report_interval: Duration,
    /// Folder in which watchers record their plans.
    pub record_to: Option<PathBuf>,
    /// Maximum deviation of the clock of a process from the clock of the cluster.
    pub clock_error: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            watchers: 2,
            schedulers: 2,
            actuators: 2,
            cluster_name: "demo".to_owned(),
            nominate_nodes: true,
            plan: PlanFn::default(),
            bind_pods: false,
            node_repair: false,
            zonal_shift: false,
            act_on_rebalance: false,
            shadow_report_interval: SHADOW_REPORT_INTERVAL,
            record_to: None,
            clock_error: Duration::ZERO,
        }
    }
}

/// A running replica.
#[derive(Debug)]
struct Replica {
    role: Role,
    /// Port it listens on. A replacement takes over the port of its predecessor.
    port: String,
    /// Milliseconds by which its clock was stepped.
    steps: &'static AtomicI64,
    metrics: Metrics,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

/// Parts of the world that replicas share.
#[derive(Clone)]
struct ReplicaEnvironment {
    server: crate::apiserver::ApiServer,
    ec2: crate::cloud::Ec2,
    network: Network,
    seed: u64,
    region: String,
    options: Options,
}

/// All replicas. Dropping this value kills them.
pub struct Plimsoll {
    environment: ReplicaEnvironment,
    /// By process name.
    replicas: BTreeMap<String, Replica>,
    /// Number of processes started at each port.
    started: BTreeMap<String, u32>,
}

impl fmt::Debug for Plimsoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plimsoll").field("replicas", &self.replicas.keys()).finish_non_exhaustive()
    }
}

impl Drop for Plimsoll {
    fn drop(&mut self) {
        for process in self.replicas.keys().cloned().collect::<Vec<_>>() {
            self.kill(&process);
        }
    }
}

impl Plimsoll {
    /// Starts all replicas. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(world: &World, options: Options) -> Self {
        let environment = ReplicaEnvironment {
            server: world.server().clone(),
            ec2: world.ec2.clone(),
            network: Network::default(),
            seed: world.config.seed,
            region: world.config.region.clone(),
            options,
        };
        let mut plimsoll = Self { environment, replicas: BTreeMap::new(), started: BTreeMap::new() };
        for role in [Role::Scheduler, Role::Actuator, Role::Watcher] {
            for port in plimsoll.environment.ports(role) {
                plimsoll.start_at(role, &port);
            }
        }
        plimsoll
    }

    /// Starts a process at a port, which must be free, and returns its name.
    pub fn start_at(&mut self, role: Role, port: &str) -> String {
        let count = self.started.entry(port.to_owned()).or_default();
        *count += 1;
        let process = format!("{port}-{count}");
        let shutdown = Shutdown::default();
        self.environment.network.certify(&process, &role.dns_name());
        // Leaked, because clocks are `Copy`; a simulation starts few processes.
        let steps: &'static AtomicI64 = Box::leak(Box::default());
        let clock = Clock::with_steps(self.environment.time_of(&process), steps);
        let metrics = Metrics::new(role.as_str());
        let task = self.environment.spawn(role, port, &process, clock, metrics.clone(), shutdown.clone());
        self.replicas.insert(process.clone(), Replica { role, port: port.to_owned(), steps, metrics, shutdown, task });
        process
    }

    /// Steps the clock of a process forward, for as long as the process lives.
    pub fn step_clock(&self, process: &str, by: Duration) {
        if let Some(replica) = self.replicas.get(process) {
            let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
            replica.steps.fetch_add(millis, Ordering::Relaxed);
        }
    }

    /// Processes of a service that are running: neither killed nor stopped.
    #[must_use]
    pub fn processes(&self, role: Role) -> Vec<String> {
        self.replicas.iter().filter(|(_, replica)| replica.role == role).map(|(process, _)| process.clone()).collect()
    }

    /// Metrics of a process that is running.
    #[must_use]
    pub fn metrics(&self, process: &str) -> Option<&Metrics> {
        self.replicas.get(process).map(|replica| &replica.metrics)
    }

    /// Process that holds the service's Lease, according to the API server.
    #[must_use]
    pub fn leader(&self, role: Role) -> Option<String> {
        let key = Key::new(NAMESPACE, role.lease()?);
        let lease = self.environment.server.read(|store| store.find(ResourceId::LEASES, &key))?;
        // The holder identity of an actuator also contains its address.
        let holder = object::text(&lease, &["spec", "holderIdentity"]).split('_').next().unwrap_or_default();
        self.replicas.contains_key(holder).then(|| holder.to_owned())
    }

    /// Kills a process. Messages that it has already sent still arrive, but it does nothing more.
    pub fn kill(&mut self, process: &str) {
        let Some(replica) = self.replicas.remove(process) else { return };
        let ReplicaEnvironment { server, ec2, network, .. } = &self.environment;
        network.kill(process);
        server.faults().partition(process, Partition::Silent);
        ec2.faults(|faults| faults.cut(process, Cut::Dead));
        replica.task.abort();
    }

    /// Stops a process gracefully, as Kubernetes does before killing it: the process can finish its work and release
    /// its Lease.
    pub async fn stop(&mut self, process: &str) {
        let Some(mut replica) = self.replicas.remove(process) else { return };
        replica.shutdown.start();
        // The result does not matter: the process has ended either way.
        let _ = (&mut replica.task).await;
        self.environment.network.kill(process);
    }

    /// Kills a process and immediately starts a replacement at the same port, as a kubelet does. Returns the new name,
    /// or `None` if there is no such process.
    pub fn replace(&mut self, process: &str) -> Option<String> {
        let (role, port) = self.replicas.get(process).map(|it| (it.role, it.port.clone()))?;
        self.kill(process);
        Some(self.start_at(role, &port))
    }

    /// Kills all processes of a service.
    pub fn kill_all(&mut self, role: Role) {
        for process in self.processes(role) {
            self.kill(&process);
        }
    }

    /// Replaces all processes of a service, one after the other.
    pub fn replace_all(&mut self, role: Role) {
        for process in self.processes(role) {
            self.replace(&process);
        }
    }

    /// Starts a process at the first free port of a service. Returns its name, or `None` if every port is in use.
    pub fn start_another(&mut self, role: Role) -> Option<String> {
        let taken = |port: &String| self.replicas.values().any(|replica| replica.port == *port);
        let port = self.environment.ports(role).into_iter().find(|port| !taken(port))?;
        Some(self.start_at(role, &port))
    }

    /// Silently cuts a process off from the API server, the cloud and the other services.
    pub fn isolate(&self, process: &str) {
        let ReplicaEnvironment { server, ec2, network, .. } = &self.environment;
        network.silence(process);
        server.faults().partition(process, Partition::Silent);
        ec2.faults(|faults| faults.cut(process, Cut::NoAnswer));
    }

    /// Undoes [`Plimsoll::isolate`].
    pub fn heal(&self, process: &str) {
        let ReplicaEnvironment { server, ec2, network, .. } = &self.environment;
        network.heal(process);
        server.faults().heal(process);
        ec2.faults(|faults| faults.heal(process));
    }

    /// Network between the services.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.environment.network
    }
}

impl ReplicaEnvironment {
    /// Time that the clock of a new process shows.
    fn time_of(&self, process: &str) -> Timestamp {
        let most = i64::try_from(self.options.clock_error.as_millis()).unwrap_or(i64::MAX / 2);
        let seed = process.bytes().fold(self.seed, |seed, byte| Rng::new(seed ^ u64::from(byte)).bits());
        let error = Rng::new(seed).below(most.unsigned_abs().saturating_mul(2).saturating_add(1));
        let error = i64::try_from(error).unwrap_or_default().saturating_sub(most);
        let now = self.server.now();
        now.checked_add(SignedDuration::from_millis(error)).unwrap_or(now)
    }

    /// Ports of the replicas of a service.
    fn ports(&self, role: Role) -> Vec<String> {
        let count = match role {
            Role::Watcher => self.options.watchers,
            Role::Scheduler => self.options.schedulers,
            Role::Actuator => self.options.actuators,
        };
        (0..count).map(|number| format!("{role}-{number}")).collect()
    }
}
