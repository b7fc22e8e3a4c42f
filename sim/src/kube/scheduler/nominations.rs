//! Pods that wait for a node which was nominated for them: their room is kept.

use crate::kube::view::PodView;
use std::collections::BTreeMap;

/// By the node's place in the list of rooms.
#[derive(Debug)]
pub(super) struct Nominations<'a>(BTreeMap<usize, Vec<&'a PodView>>);

impl<'a> Nominations<'a> {
    /// Of these pods; those whose node is not there keep nothing.
    pub(super) fn new(pods: impl Iterator<Item = &'a PodView>, index: &BTreeMap<&str, usize>) -> Self {
        let mut by_node: BTreeMap<usize, Vec<&PodView>> = BTreeMap::new();
        for pod in pods {
            if let Some(at) = index.get(pod.nominated.as_str()) {
                by_node.entry(*at).or_default().push(pod);
            }
        }
        Self(by_node)
    }

    /// Those whose room on a node a pod must leave alone.
    pub(super) fn beside(&self, pod: &PodView, at: usize) -> Vec<&'a PodView> {
        let others = self.0.get(&at).into_iter().flatten();
        others.filter(|other| other.uid != pod.uid && other.priority >= pod.priority).copied().collect()
    }

    /// The pod is bound, or fits nowhere.
    pub(super) fn end(&mut self, pod: &PodView) {
        self.0.values_mut().for_each(|pods| pods.retain(|other| other.uid != pod.uid));
    }
}
