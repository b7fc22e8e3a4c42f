//! All of Plimsoll in one process: the real watcher, scheduler and actuator on a [`World`], each replica a process that can be
//! stopped, killed and cut off by itself.

mod replicas;

use crate::apiserver::faults::Partition;
use crate::apiserver::store::Key;
use crate::apiserver::{ResourceId, object};
use crate::cloud::Cut;
use crate::machines::NAMESPACE;
use crate::network::Network;
use crate::world::World;
use plimsoll_model::names::lease;
use plimsoll_runtime::shutdown::Shutdown;
use std::collections::BTreeMap;
use std::fmt;
use tokio::task::JoinHandle;

/// A service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads the cluster and drives.
    Watcher,
    /// Plans.
    Scheduler,
    /// Writes and spends.
    Actuator,
}

impl Role {
    /// As in the names of its replicas.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Watcher => "watcher",
            Self::Scheduler => "scheduler",
            Self::Actuator => "actuator",
        }
    }

    /// The DNS name in its certificate, as in deploy/.
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

/// How many replicas, and how they are set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Watchers.
    pub watchers: usize,
    /// Schedulers.
    pub schedulers: usize,
    /// Actuators.
    pub actuators: usize,
    /// The cluster's name.
    pub cluster_name: String,
    /// Whether actuators tell kube-scheduler which node the plan has for a pod.
    pub nominate_nodes: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { watchers: 2, schedulers: 2, actuators: 2, cluster_name: "demo".to_owned(), nominate_nodes: true }
    }
}

/// A replica at work.
#[derive(Debug)]
struct Replica {
    role: Role,
    /// Where it listens: that of the replica in whose place it came.
    port: String,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

/// What replicas need of the world they live in.
#[derive(Clone)]
struct Surroundings {
    server: crate::apiserver::ApiServer,
    ec2: crate::cloud::Ec2,
    network: Network,
    clock: plimsoll_runtime::clock::Clock,
    region: String,
    options: Options,
}

/// All replicas. They end with this.
pub struct Plimsoll {
    surroundings: Surroundings,
    /// By process.
    replicas: BTreeMap<String, Replica>,
    /// Processes started so far at each port.
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
        let surroundings = Surroundings {
            server: world.server().clone(),
            ec2: world.ec2.clone(),
            network: Network::default(),
            clock: plimsoll_runtime::clock::Clock::starting_at(world.server().now()),
            region: world.scenery.region.clone(),
            options,
        };
        let mut plimsoll = Self { surroundings, replicas: BTreeMap::new(), started: BTreeMap::new() };
        for role in [Role::Scheduler, Role::Actuator, Role::Watcher] {
            for port in plimsoll.surroundings.ports(role) {
                plimsoll.start_at(role, &port);
            }
        }
        plimsoll
    }

    /// Starts a process at a port; returns its name.
    fn start_at(&mut self, role: Role, port: &str) -> String {
        let count = self.started.entry(port.to_owned()).or_default();
        *count += 1;
        let process = format!("{port}-{count}");
        let shutdown = Shutdown::new();
        self.surroundings.network.certify(&process, &role.dns_name());
        let task = self.surroundings.spawn(role, port, &process, shutdown.clone());
        self.replicas.insert(process.clone(), Replica { role, port: port.to_owned(), shutdown, task });
        process
    }

    /// The processes of a service that were started and neither killed nor stopped.
    #[must_use]
    pub fn processes(&self, role: Role) -> Vec<String> {
        self.replicas.iter().filter(|(_, replica)| replica.role == role).map(|(process, _)| process.clone()).collect()
    }

    /// The process that holds the service's Lease, as the API server has it.
    #[must_use]
    pub fn leader(&self, role: Role) -> Option<String> {
        let key = Key::new(NAMESPACE, role.lease()?);
        let lease = self.surroundings.server.read(|store| store.find(ResourceId::LEASES, &key))?;
        // An actuator's holder also says where it answers.
        let holder = object::text(&lease, &["spec", "holderIdentity"]).split('_').next().unwrap_or_default();
        self.replicas.contains_key(holder).then(|| holder.to_owned())
    }

    /// Kills a process: from now on nothing of it reaches anybody. What was sent arrives.
    pub fn kill(&mut self, process: &str) {
        let Some(replica) = self.replicas.remove(process) else { return };
        let Surroundings { server, ec2, network, .. } = &self.surroundings;
        network.kill(process);
        server.faults().partition(process, Partition::Silent);
        ec2.faults(|faults| faults.cut(process, Cut::Dead));
        replica.task.abort();
    }

    /// Stops a process as Kubernetes does before it kills: it may end what it does and give up its Lease.
    pub async fn stop(&mut self, process: &str) {
        let Some(mut replica) = self.replicas.remove(process) else { return };
        replica.shutdown.start();
        // However it ended, it is over.
        let _ = (&mut replica.task).await;
        self.surroundings.network.kill(process);
    }

    /// Kills a process and starts another in its place at once, as a kubelet does; returns its name, if there was such a process.
    pub fn replace(&mut self, process: &str) -> Option<String> {
        let (role, port) = self.replicas.get(process).map(|it| (it.role, it.port.clone()))?;
        self.kill(process);
        Some(self.start_at(role, &port))
    }

    /// Starts a process at the first port of a service where none is; returns its name, if there is such a port.
    pub fn start_another(&mut self, role: Role) -> Option<String> {
        let taken = |port: &String| self.replicas.values().any(|replica| replica.port == *port);
        let port = self.surroundings.ports(role).into_iter().find(|port| !taken(port))?;
        Some(self.start_at(role, &port))
    }

    /// Cuts a process off from everybody: the API server, the cloud, the other services. Nobody is told.
    pub fn isolate(&self, process: &str) {
        let Surroundings { server, ec2, network, .. } = &self.surroundings;
        network.silence(process);
        server.faults().partition(process, Partition::Silent);
        ec2.faults(|faults| faults.cut(process, Cut::NoAnswer));
    }

    /// Ends [`Plimsoll::isolate`].
    pub fn heal(&self, process: &str) {
        let Surroundings { server, ec2, network, .. } = &self.surroundings;
        network.heal(process);
        server.faults().heal(process);
        ec2.faults(|faults| faults.heal(process));
    }

    /// The connections between the services.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.surroundings.network
    }
}

impl Surroundings {
    /// Where the replicas of a service listen.
    fn ports(&self, role: Role) -> Vec<String> {
        let count = match role {
            Role::Watcher => self.options.watchers,
            Role::Scheduler => self.options.schedulers,
            Role::Actuator => self.options.actuators,
        };
        (0..count).map(|number| format!("{role}-{number}")).collect()
    }
}
