//! Nodes that leave the simulated cluster.

use super::Cluster;
use crate::figures::Figures;
use plimsoll_model::identity::{NodeName, NodePoolName};
use plimsoll_model::snapshot::{NodePool, PodState};
use plimsoll_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

impl Cluster {
    /// Marks the nodes of NodePools that do not exist, since their claims are deleted with the pool. Returns whether
    /// there are new ones.
    pub(in crate::simulate) fn delete_nodes_without_pool(&mut self, pools: &[NodePool]) -> bool {
        let pools: BTreeSet<&NodePoolName> = pools.iter().map(|pool| &pool.name).collect();
        let mut has_new = false;
        for node in self.nodes.values_mut().filter(|node| !node.deleting) {
            if node.node_pool.as_ref().is_some_and(|pool| !pools.contains(pool)) {
                (node.deleting, node.cordoned, has_new) = (true, true, true);
            }
        }
        has_new
    }

    /// Lets deleted nodes leave once the nodes that the plan has for their pods are in service. Returns whether there
    /// are new ones.
    pub(super) fn let_deleted_nodes_leave(&mut self) -> bool {
        // Nodes outside of pools go as recorded.
        let deleted = self.nodes.values().filter(|node| node.deleting && node.node_pool.is_some());
        let new = deleted.filter(|node| !self.leaving.contains_key(&node.name));
        let mut new: BTreeMap<NodeName, BTreeSet<NodeName>> =
            new.map(|node| (node.name.clone(), BTreeSet::new())).collect();
        for pod in self.pods.values() {
            let (PodState::Bound(node), Some(target)) = (&pod.state, self.targets.get(&pod.uid)) else { continue };
            if let Some(waits_for) = new.get_mut(node) {
                waits_for.insert(target.clone());
            }
        }
        let has_new = !new.is_empty();
        self.leaving.append(&mut new);
        has_new
    }

    pub(super) fn finish_removals(&mut self, now: Timestamp, figures: &mut Figures) {
        let boots = |node: &NodeName| self.ready.contains_key(node);
        let done = self.leaving.extract_if(.., |_, waits_for| !waits_for.iter().any(boots));
        for node in done.map(|(node, _)| node).collect::<Vec<_>>() {
            figures.removed += 1;
            figures.evicted += self.remove(&node, now);
        }
    }

    /// Removes a node. Its pods wait for another one, those of DaemonSets are gone. Returns how many wait. An evicted
    /// pod is as old as a new one, since its controller creates another in its place.
    pub(super) fn remove(&mut self, name: &NodeName, now: Timestamp) -> usize {
        self.nodes.remove(name);
        self.ready.remove(name);
        let (bound, reserved) = (PodState::Bound(name.clone()), PodState::Reserved(name.clone()));
        self.pods.retain(|_, pod| !(pod.stays_with_node && pod.state == bound));
        let mut moved = 0;
        for pod in self.pods.values_mut() {
            if pod.state == bound {
                moved += usize::from(pod.buffer.is_none());
                self.evicted.insert(pod.uid.clone());
                (pod.state, pod.created) = (PodState::Pending, now);
            } else if pod.state == reserved {
                pod.state = PodState::Pending;
            }
        }
        self.targets.retain(|_, node| node != name);
        moved
    }
}
