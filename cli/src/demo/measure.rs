//! When pods became pending, noted as it happens, so that the time until their launch can be told.

use parking_lot::Mutex;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// When a pod was first marked Unschedulable: by the cluster's clock in milliseconds, and by the runtime's.
type Pending = BTreeMap<String, (i64, Instant)>;

/// The notes.
#[derive(Debug, Clone)]
pub(super) struct Measures {
    /// By the pod's UID.
    pending: Arc<Mutex<Pending>>,
}

impl Measures {
    /// Begins to watch.
    pub(super) fn start(world: &Arc<World>) -> Self {
        let pending: Arc<Mutex<Pending>> = Arc::default();
        let (world, notes) = (world.clone(), pending.clone());
        tokio::spawn(async move {
            let mut changes = world.server().subscribe(ResourceId::PODS);
            loop {
                changes.changed().await;
                let now = (world.server().now().as_millisecond(), Instant::now());
                for pod in world.all(ResourceId::PODS).iter().filter(|pod| is_unschedulable(pod)) {
                    notes.lock().entry(object::uid(pod).to_owned()).or_insert(now);
                }
            }
        });
        Self { pending }
    }

    /// The longest time from pending to launch among the pods that became pending since `since` and now have a node that was
    /// launched after that.
    pub(super) fn longest_to_launch(&self, world: &World, since: Instant) -> Option<Duration> {
        let launched: BTreeMap<String, i64> = world.ec2.read(|cloud, _| {
            let machines = cloud.machines().values();
            machines.map(|machine| (machine.private_dns_name.clone(), machine.launched.0)).collect()
        });
        let notes = self.pending.lock();
        let waited = world.all(ResourceId::PODS).into_iter().filter_map(|pod| {
            let (pending, at) = *notes.get(object::uid(&pod))?;
            let launched = *launched.get(object::text(&pod, &["spec", "nodeName"]))?;
            let waited = u64::try_from(launched - pending).ok()?;
            (at >= since).then_some(Duration::from_millis(waited))
        });
        waited.max()
    }
}

fn is_unschedulable(pod: &Value) -> bool {
    object::condition(pod, "PodScheduled")
        .is_some_and(|condition| object::text(condition, &["reason"]) == "Unschedulable")
}
