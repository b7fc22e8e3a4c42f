//! What the loop learns from a new snapshot.

use super::Cycle;
use crate::snapshots::PublishedSnapshot;
use plimsoll_model::identity::PodUid;
use plimsoll_model::snapshot::{Pod, PodState, Snapshot};
use std::collections::BTreeSet;
use tokio::time::Instant;

impl Cycle {
    /// Updates the state with the pods and nodes of a new snapshot.
    pub(super) fn observe(&mut self, published: &PublishedSnapshot, now: Instant) {
        self.commit_wait.expire(now);
        if self.observed_sequence == Some(published.snapshot.sequence) {
            return;
        }
        self.observed_sequence = Some(published.snapshot.sequence);
        // A new leader of the actuators knows no notifications and no reports: it gets them again.
        if self.ledger_epoch.replace(published.snapshot.ledger.epoch) != Some(published.snapshot.ledger.epoch) {
            self.sent_notifications = None;
            self.sent_buffer_reports.clear();
        }
        self.observe_nodes(&published.snapshot, now);
        let virtual_pods = published.snapshot.pods.iter().filter(|pod| pod.is_virtual());
        self.virtual_pods = virtual_pods.map(|pod| pod.uid.clone()).collect();
        let (mut present, mut incomplete): (BTreeSet<&PodUid>, BTreeSet<&PodUid>) = Default::default();
        for pod in published.snapshot.pods.iter().filter(|pod| !pod.is_virtual()) {
            match pod.state {
                PodState::Bound(_) => continue,
                PodState::Pending if published.incomplete.contains(&pod.uid) => drop(incomplete.insert(&pod.uid)),
                PodState::Pending | PodState::Reserved(_) => {}
            }
            present.insert(&pod.uid);
        }
        self.commit_wait.observe(&present, &incomplete, now);
    }

    /// Records which removals were undone: their nodes were being removed, exist, and are not being removed any more.
    /// The outcome may never arrive, because a removal may be undone long after the stream of outcomes has ended, or
    /// after another replica has become the leader.
    fn observe_nodes(&mut self, snapshot: &Snapshot, now: Instant) {
        for node in snapshot.nodes.iter().filter(|node| !node.deleting) {
            if self.removing.contains(&node.name) {
                self.retries.undone_node(&node.name, now);
            }
        }
        let removing = snapshot.nodes.iter().filter(|node| node.deleting);
        self.removing = removing.map(|node| node.name.clone()).collect();
    }
}

fn is_waiting(pod: &Pod) -> bool {
    pod.state == PodState::Pending && !pod.is_virtual()
}

/// Whether a pod is pending. Virtual pods always are, so they do not count.
pub(in super::super) fn has_waiting_pods(snapshot: &Snapshot) -> bool {
    snapshot.pods.iter().any(is_waiting)
}

/// Whether a pod is pending in `newest` that is not in `planned`. A pod that has no place stays pending in all
/// snapshots, and is no reason to plan again.
pub(in super::super) fn has_new_waiting_pods(planned: &Snapshot, newest: &Snapshot) -> bool {
    let was_waiting = |pod: &Pod| planned.pod(&pod.uid).is_some_and(is_waiting);
    newest.pods.iter().any(|pod| is_waiting(pod) && !was_waiting(pod))
}
