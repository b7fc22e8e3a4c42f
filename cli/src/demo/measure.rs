//! Measures how long pods wait for a node.

use parking_lot::Mutex;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::{World, is_running};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A pod without a node.
#[derive(Debug, Clone, Copy)]
struct Wait {
    /// When the pod was first marked Unschedulable.
    since: Instant,
    /// `None` while the pod is pending.
    until_running: Option<Duration>,
}

/// Measured waits.
#[derive(Debug, Clone)]
pub(super) struct Measures {
    /// By UID of the pod.
    waits: Arc<Mutex<BTreeMap<String, Wait>>>,
}

impl Measures {
    /// Starts to watch the pods.
    pub(super) fn start(world: &Arc<World>) -> Self {
        let waits: Arc<Mutex<BTreeMap<String, Wait>>> = Arc::default();
        let (world, notes) = (world.clone(), waits.clone());
        tokio::spawn(async move {
            let mut changes = world.server().subscribe(ResourceId::PODS);
            loop {
                changes.changed().await;
                let now = Instant::now();
                let mut notes = notes.lock();
                for pod in &world.all(ResourceId::PODS) {
                    if is_unschedulable(pod) {
                        let wait = Wait { since: now, until_running: None };
                        notes.entry(object::uid(pod).to_owned()).or_insert(wait);
                    } else if is_running(pod)
                        && let Some(wait) = notes.get_mut(object::uid(pod))
                    {
                        wait.until_running.get_or_insert(now - wait.since);
                    }
                }
            }
        });
        Self { waits }
    }

    /// The longest time from pending to running of the pods that became pending since `since` and run.
    pub(super) fn longest_to_running(&self, since: Instant) -> Option<Duration> {
        self.waits.lock().values().filter(|wait| wait.since >= since).filter_map(|wait| wait.until_running).max()
    }
}

fn is_unschedulable(pod: &Value) -> bool {
    object::condition(pod, "PodScheduled")
        .is_some_and(|condition| object::text(condition, &["reason"]) == "Unschedulable")
}
