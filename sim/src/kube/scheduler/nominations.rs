//! Capacity reservations of nominated pods.

use super::cluster::SchedulerCluster;
use crate::kube::view::PodView;
use plimsoll_kubesched::Nominated;
use std::collections::BTreeMap;

/// A nominated pod: shape, UID, priority.
type Waiting = (usize, String, i64);

/// By index of the node.
#[derive(Debug)]
pub(super) struct Nominations(BTreeMap<usize, Vec<Waiting>>);

impl Nominations {
    /// Reservations of these pods, each with its shape. Pods whose node does not exist reserve nothing.
    pub(super) fn new(pods: &[(usize, &PodView)], cluster: &SchedulerCluster<'_>) -> Self {
        let mut by_node: BTreeMap<usize, Vec<Waiting>> = BTreeMap::new();
        for (shape, pod) in pods.iter().filter(|(_, pod)| !pod.nominated.is_empty()) {
            if let Some(node) = cluster.node(&pod.nominated) {
                by_node.entry(node).or_default().push((*shape, pod.uid.clone(), pod.priority));
            }
        }
        Self(by_node)
    }

    /// Pods on a node whose reservations `pod` must respect.
    pub(super) fn beside(&self, pod: &PodView, node: usize) -> Nominated {
        let mut nominated = Nominated::default();
        let others = self.0.get(&node).into_iter().flatten();
        let others = others.filter(|(_, uid, priority)| *uid != pod.uid && *priority >= pod.priority);
        others.for_each(|(shape, ..)| nominated.add(*shape));
        nominated
    }

    /// Ends the nomination of a pod that was bound or fits nowhere.
    pub(super) fn end(&mut self, pod: &PodView) {
        self.0.values_mut().for_each(|pods| pods.retain(|(_, uid, _)| *uid != pod.uid));
    }
}
