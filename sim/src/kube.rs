//! Components that turn an API server into a cluster: controllers, a scheduler, kubelets. They run pods like a real
//! cluster.
//!
//! Each component is a `step` function on the store, driven by a small loop. Each sees a change shortly after it
//! happened, and a burst of changes in one step, as real components do.

mod disruption;
mod garbage;
mod kubelet;
mod mirror;
mod node_lifecycle;
mod quantity;
mod scheduler;
mod taint_eviction;
#[cfg(test)]
mod tests;
mod view;
mod workloads;

pub use disruption::DisruptionController;
pub use garbage::{GarbageCollector, PodCollector};
pub use kubelet::{COMPLETE_AFTER, Delays, KubeletController, Kubelets, NodeSpec, READY_AFTER, RUN_AFTER, STOP_AFTER};
pub use node_lifecycle::NodeLifecycle;
pub use quantity::Amounts;
pub use scheduler::Scheduler;
pub use taint_eviction::TaintEviction;
pub use workloads::Workloads;

use crate::apiserver::store::Store;
use crate::apiserver::{ApiServer, ResourceId};
use futures::FutureExt;
use futures::future::select_all;
use jiff::Timestamp;
use plimsoll_runtime::signal;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Delay between a change and the reaction of a controller. It is not zero, so that time advances even if two
/// controllers revert each other's changes forever.
const REACTION: Duration = Duration::from_millis(2);

/// A component of the cluster that watches some kinds and acts on changes.
pub trait Controller: Send {
    /// Kinds whose changes trigger a step.
    fn watches(&self) -> &'static [ResourceId];

    /// Another signal that triggers a step.
    fn wake(&self) -> Option<signal::Receiver> {
        None
    }

    /// Reads the store and acts in one step. Returns when to run again without a change.
    fn step(&mut self, store: &mut Store, now: Timestamp) -> Option<Timestamp>;
}

/// A running controller; dropping this value stops it.
#[derive(Debug)]
pub struct Running {
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs a controller on a server. Must be called within a tokio runtime.
#[must_use]
pub fn spawn(server: &ApiServer, controller: Box<dyn Controller>) -> Running {
    Running { task: tokio::spawn(run(server.clone(), controller)) }
}

async fn run(server: ApiServer, mut controller: Box<dyn Controller>) {
    let mut changes: Vec<_> = controller.watches().iter().map(|resource| server.subscribe(*resource)).collect();
    changes.extend(controller.wake());
    loop {
        for change in &mut changes {
            change.mark_unchanged();
        }
        let now = server.now();
        let next = server.write(|store| controller.step(store, now));
        let changed = select_all(changes.iter_mut().map(|change| change.changed().boxed()));
        match next {
            Some(next) => {
                let wait = Duration::try_from(next.duration_since(now)).unwrap_or_default();
                tokio::select! {
                    biased;
                    _ = changed => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
            None => drop(changed.await),
        }
        tokio::time::sleep(REACTION).await;
    }
}

/// A whole cluster: a server with all components running.
#[derive(Debug)]
pub struct Cluster {
    /// The API server.
    pub server: ApiServer,
    /// The machines' kubelets.
    pub kubelets: Kubelets,
    running: Vec<Running>,
}

impl Cluster {
    /// Starts every component. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(server: ApiServer, delays: Delays) -> Self {
        let kubelets = Kubelets::new(server.clock(), delays);
        let parts: Vec<Box<dyn Controller>> = vec![
            GarbageCollector::boxed(),
            Box::new(PodCollector::default()),
            Box::new(Workloads::default()),
            Box::new(Scheduler::default()),
            Box::new(KubeletController::new(kubelets.clone())),
            Box::new(NodeLifecycle::new(kubelets.clone())),
            Box::new(TaintEviction::default()),
            Box::new(DisruptionController::default()),
        ];
        let running = parts.into_iter().map(|part| spawn(&server, part)).collect();
        Self { server, kubelets, running }
    }

    /// Adds a custom component.
    pub fn add(&mut self, part: Box<dyn Controller>) {
        self.running.push(spawn(&self.server, part));
    }
}
