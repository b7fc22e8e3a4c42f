//! What can only be seen by comparing the cluster with its past: how long pods waited, and changes of conditions.

use super::ActuatorMetrics;
use super::conditions::ConditionChanges;
use super::pods::PodWaits;
use super::view::{ClusterView, Sources};
use crate::pacing::{interval_passed, until};
use crate::stores::WatchedKind;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval of the passes. A pass over 5,000 nodes and 100,000 pods costs some tens of milliseconds; nothing waits for
/// it.
const INTERVAL: Duration = Duration::from_secs(5);

/// Observes changes during a term of leadership, until `stop`.
pub(crate) async fn run(metrics: ActuatorMetrics, sources: Sources, stop: CancellationToken) {
    let kinds =
        [WatchedKind::Pod, WatchedKind::Node, WatchedKind::NodeClaim, WatchedKind::NodePool, WatchedKind::EC2NodeClass];
    let mut changes = sources.stores.changes(&kinds);
    let (mut waits, mut conditions) = (PodWaits::default(), ConditionChanges::default());
    loop {
        let view = ClusterView::of(&sources);
        waits.pass(&metrics.pods, &view.pods, view.now);
        conditions.pass(&metrics.conditions, &view);
        drop(view);
        // Nothing is compared while nothing changes.
        if !interval_passed(&stop, INTERVAL).await || until(&stop, changes.next()).await.is_none() {
            return;
        }
    }
}
