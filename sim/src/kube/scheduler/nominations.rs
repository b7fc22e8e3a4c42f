//! Pods that wait for a node which was nominated for them: their room is kept.

use super::cluster::SchedulerCluster;
use crate::kube::view::PodView;
use plimsoll_kubesched::Nominated;
use std::collections::BTreeMap;

/// A nominated pod: shape, UID, priority.
type Waiting = (usize, String, i64);

/// By the node's index.
#[derive(Debug)]
pub(super) struct Nominations(BTreeMap<usize, Vec<Waiting>>);

impl Nominations {
    /// Of these pods, each with its shape; those whose node is not there keep nothing.
    pub(super) fn new(pods: &[(usize, &PodView)], cluster: &SchedulerCluster<'_>) -> Self {
        let mut by_node: BTreeMap<usize, Vec<Waiting>> = BTreeMap::new();
        for (shape, pod) in pods.iter().filter(|(_, pod)| !pod.nominated.is_empty()) {
            if let Some(node) = cluster.node(&pod.nominated) {
                by_node.entry(node).or_default().push((*shape, pod.uid.clone(), pod.priority));
            }
        }
        Self(by_node)
    }

    /// Pods whose room on a node a pod must leave alone.
    pub(super) fn beside(&self, pod: &PodView, node: usize) -> Nominated {
        let mut nominated = Nominated::default();
        let others = self.0.get(&node).into_iter().flatten();
        let others = others.filter(|(_, uid, priority)| *uid != pod.uid && *priority >= pod.priority);
        others.for_each(|(shape, ..)| nominated.add(*shape));
        nominated
    }

    /// The pod is bound, or fits nowhere.
    pub(super) fn end(&mut self, pod: &PodView) {
        self.0.values_mut().for_each(|pods| pods.retain(|(_, uid, _)| *uid != pod.uid));
    }
}
