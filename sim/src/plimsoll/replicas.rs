//! Starts the services the way their binaries do on a real cluster.

use super::{ReplicaEnvironment, Role};
use crate::machines::NAMESPACE;
use plimsoll_actuator::args::lease_config;
use plimsoll_actuator::leadership;
use plimsoll_actuator::settings::ObjectName;
use plimsoll_model::names::lease;
use plimsoll_runtime::admin::Readiness;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::lease::LeaseConfig;
use plimsoll_runtime::memory::MemoryListener;
use plimsoll_runtime::metrics::Metrics;
use plimsoll_runtime::serve::Listener;
use plimsoll_runtime::shutdown::Shutdown;
use plimsoll_watcher::service::Recording;
use std::fmt::Display;
use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Cores of each simulated process, as in a small pod.
const CORES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// Maximum size of a recording.
const RECORDED_BYTES: u64 = 64 << 20;

impl ReplicaEnvironment {
    pub(super) fn spawn(
        &self,
        role: Role,
        port: &str,
        process: &str,
        clock: Clock,
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> JoinHandle<()> {
        let listener = self.network.listen(port, process);
        match role {
            Role::Scheduler => self.scheduler(process, listener, metrics, shutdown),
            Role::Actuator => self.actuator(port, process, clock, listener, metrics, shutdown),
            Role::Watcher => self.watcher(process, clock, listener, metrics, shutdown),
        }
    }

    fn scheduler(
        &self,
        process: &str,
        listener: MemoryListener,
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> JoinHandle<()> {
        let settings = plimsoll_scheduler::service::Settings {
            session_callers: vec![Role::Watcher.dns_name()],
            plan: self.options.plan,
            ..plimsoll_scheduler::service::Settings::for_cores(CORES)
        };
        let parts = plimsoll_scheduler::service::Parts {
            closed: Listener::Memory(listener),
            open: None,
            metrics,
            readiness: Readiness::default(),
            settings,
        };
        end(process, plimsoll_scheduler::service::run(parts, shutdown))
    }

    fn watcher(
        &self,
        process: &str,
        clock: Clock,
        listener: MemoryListener,
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> JoinHandle<()> {
        let settings = plimsoll_watcher::service::Settings {
            cluster: self.options.cluster_name.clone(),
            recording: self.options.record_to.clone().map(|folder| Recording {
                folder,
                bytes: RECORDED_BYTES,
                // Hours pass in a second, and the thread that writes does not run on virtual time.
                queue: 1_000_000,
            }),
            ..plimsoll_watcher::service::Settings::default()
        };
        let parts = plimsoll_watcher::service::Parts {
            client: self.server.client(process),
            clock,
            settings,
            scheduler: self.network.pool(process, &self.ports(Role::Scheduler)),
            actuator: self.network.pool(process, &self.ports(Role::Actuator)),
            lease: LeaseConfig::new(NAMESPACE, lease::WATCHER, process),
            listener: Listener::Memory(listener),
            metrics,
            readiness: Readiness::default(),
        };
        end(process, plimsoll_watcher::service::run(parts, shutdown))
    }

    fn actuator(
        &self,
        port: &str,
        process: &str,
        clock: Clock,
        listener: MemoryListener,
        metrics: Metrics,
        shutdown: Shutdown,
    ) -> JoinHandle<()> {
        let ec2 = Arc::new(self.ec2.as_client(process));
        let cloud = plimsoll_actuator::ports::Cloud {
            compute: ec2.clone(),
            parameters: ec2.clone(),
            profiles: ec2.clone(),
            prices: ec2.clone(),
            managed_resource: self.options.zonal_shift.then(|| ec2.clone() as _),
            queue: Some(ec2),
        };
        let settings = plimsoll_actuator::settings::Settings {
            cluster_name: self.options.cluster_name.clone(),
            cluster_endpoint: "https://api.cluster.invalid".to_owned(),
            // Base64 of "certificate authority". The simulation does not verify it.
            cluster_ca_bundle: "Y2VydGlmaWNhdGUgYXV0aG9yaXR5".to_owned(),
            service_cidr: Some("10.100.0.0/16".to_owned()),
            cluster_dns: Some("10.100.0.10".to_owned()),
            kubernetes_version: crate::cloud::KUBERNETES.to_owned(),
            region: self.region.clone(),
            nominate_nodes: self.options.nominate_nodes,
            bind_pods: self.options.bind_pods,
            node_repair: self.options.node_repair,
            act_on_rebalance: self.options.act_on_rebalance,
            shadow_report_interval: self.options.shadow_report_interval,
            callers: vec![Role::Watcher.dns_name()],
            watcher_lease: ObjectName::new(NAMESPACE, lease::WATCHER),
            ..plimsoll_actuator::settings::Settings::default()
        };
        let parts = plimsoll_actuator::service::Parts {
            client: self.server.client(process),
            cloud,
            clock,
            settings,
            lease: lease_config(NAMESPACE, leadership::holder(process, port, "1")),
            listener: Listener::Memory(listener),
            metrics,
            readiness: Readiness::default(),
        };
        end(process, plimsoll_actuator::service::run(parts, shutdown))
    }
}

/// Runs a service until it ends and logs the result.
fn end<E: Display>(process: &str, service: impl Future<Output = Result<(), E>> + Send + 'static) -> JoinHandle<()> {
    let process = process.to_owned();
    tokio::spawn(async move {
        match service.await {
            Ok(()) => tracing::info!(%process, "ended"),
            Err(error) => tracing::error!(%process, %error, "ended"),
        }
    })
}
