//! What makes a cluster of an API server: controllers, a scheduler, kubelets. Good enough to run pods as a real cluster would.
//!
//! Each is a plain `step` over the store, driven by a small loop. All of them see a change a little after it happened, as
//! real ones do, and in one step for a burst.

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
pub use quantity::{Amounts, parse_quantity};
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

/// How long after a change a controller acts on it. Not zero, so that time moves on even where two controllers disagree for ever.
const REACTION: Duration = Duration::from_millis(2);

/// A part of the cluster that watches some kinds and acts on what it sees.
pub trait Controller: Send {
    /// The kinds whose changes it acts on.
    fn watches(&self) -> &'static [ResourceId];

    /// Another thing whose changes it acts on.
    fn wake(&self) -> Option<signal::Receiver> {
        None
    }

    /// Looks, and acts in one go. Returns when to look again even if nothing changes.
    fn step(&mut self, store: &mut Store, now: Timestamp) -> Option<Timestamp>;
}

/// A controller at work; it stops when this is dropped.
#[derive(Debug)]
pub struct Running {
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lets a controller work on a server. Must be called within a tokio runtime.
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

/// A whole cluster: a server with everything at work on it.
#[derive(Debug)]
pub struct Cluster {
    /// The API server.
    pub server: ApiServer,
    /// The machines' kubelets.
    pub kubelets: Kubelets,
    running: Vec<Running>,
}

impl Cluster {
    /// Starts every part. Must be called within a tokio runtime.
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

    /// Adds a part of one's own.
    pub fn add(&mut self, part: Box<dyn Controller>) {
        self.running.push(spawn(&self.server, part));
    }
}
