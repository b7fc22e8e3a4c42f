//! Remembers what was read of each pod, so that the next snapshot reads only pods that have changed.

use crate::pods::CommonFields;
use crate::problems::Fault;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use plimsoll_model::snapshot::{LabelSelector, PodShape};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything besides the pod itself that affects how a pod without volume claims is read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ReadContext {
    /// Labels of each namespace.
    pub(crate) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Values of priority classes.
    pub(crate) priorities: BTreeMap<String, i32>,
    /// Priority of pods without a priority class.
    pub(crate) default_priority: i32,
    /// Disruption budgets: namespace, name, selector, and whether unhealthy pods may always be evicted.
    pub(crate) budgets: Vec<(String, String, LabelSelector, bool)>,
}

/// What was read of a pod: its fields and its shape, or why it is invalid.
pub(crate) type ReadPod = Result<(CommonFields, Arc<PodShape>), Fault>;

/// Results of reading pods, by position in the list of pods. A position holds a result of exactly the object that it
/// was read from: an object that was replaced or moved is read again.
#[derive(Debug, Default)]
pub(crate) struct PodCache {
    context: ReadContext,
    entries: Vec<Option<(Arc<Pod>, ReadPod)>>,
}

impl PodCache {
    /// Prepares the cache for `pods` pods that are read in `context`. Forgets everything if `context` is a new one.
    pub(crate) fn prepare(&mut self, context: ReadContext, pods: usize) {
        if self.context != context {
            self.entries.clear();
            self.context = context;
        }
        self.entries.resize_with(pods, || None);
    }

    /// What was read of `pod`, the object at `position`. Calls `read` if the object is a new one or if its shape
    /// depends on volume claims, which the context does not cover.
    pub(crate) fn get(&mut self, position: usize, pod: &Arc<Pod>, read: impl FnOnce() -> ReadPod) -> ReadPod {
        let Some(entry) = self.entries.get_mut(position) else { return read() };
        if let Some((object, result)) = entry
            && Arc::ptr_eq(object, pod)
        {
            return result.clone();
        }
        let result = read();
        *entry = (!pod.spec.as_ref().is_some_and(has_volume_claims)).then(|| (Arc::clone(pod), result.clone()));
        result
    }

    #[cfg(test)]
    pub(crate) fn replace_entry(&mut self, position: usize, read: ReadPod) {
        if let Some(Some((_, entry))) = self.entries.get_mut(position) {
            *entry = read;
        }
    }
}

fn has_volume_claims(spec: &PodSpec) -> bool {
    let mut volumes = spec.volumes.iter().flatten();
    volumes.any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some())
}
