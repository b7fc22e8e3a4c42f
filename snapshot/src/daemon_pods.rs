//! Remembers the newest pod of each DaemonSet.

use crate::pods::PodIdentity;
use crate::{annotations, kube_time};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::PodSpec;
use plimsoll_api::Pod as KubePod;
use plimsoll_model::identity::PodUid;
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of the template. The API server maintains this annotation of DaemonSets.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
/// Label with the number of the template that a pod was created from.
const POD_TEMPLATE_GENERATION: &str = "pod-template-generation";

/// When the pod was created, its UID, and its position in the list of pods.
type Key = (Timestamp, PodUid, usize);

/// Pods of DaemonSets, by the UID of the DaemonSet, oldest first. A pod that moves in the list of pods may be there
/// twice for a while, so its position is part of the key.
#[derive(Debug, Default)]
pub(crate) struct DaemonPods {
    pods: BTreeMap<String, BTreeMap<Key, Arc<KubePod>>>,
}

impl DaemonPods {
    /// The DaemonSets' pods among `pods`.
    pub(crate) fn of(pods: &[Arc<KubePod>]) -> Self {
        let mut daemon_pods = Self::default();
        pods.iter().enumerate().for_each(|(position, pod)| daemon_pods.insert(position, pod));
        daemon_pods
    }

    /// Adds the pod at `position`, if a DaemonSet owns it.
    pub(crate) fn insert(&mut self, position: usize, pod: &Arc<KubePod>) {
        if let Some(owner) = owner(pod) {
            self.pods.entry(owner.to_owned()).or_default().insert(key(position, pod), Arc::clone(pod));
        }
    }

    /// Removes the pod at `position`.
    pub(crate) fn remove(&mut self, position: usize, pod: &KubePod) {
        let Some(owner) = owner(pod) else { return };
        if let Some(pods) = self.pods.get_mut(owner) {
            pods.remove(&key(position, pod));
            if pods.is_empty() {
                self.pods.remove(owner);
            }
        }
    }

    /// The spec of the newest pod of `daemon_set`; `None` if that pod is of an earlier template.
    pub(crate) fn newest(&self, daemon_set: &DaemonSet) -> Option<&PodSpec> {
        let (_, pod) = self.pods.get(daemon_set.metadata.uid.as_deref()?)?.last_key_value()?;
        let template = annotations::text(&daemon_set.metadata, TEMPLATE_GENERATION);
        let used = pod.labels.get(POD_TEMPLATE_GENERATION);
        let is_current = template.zip(used).is_none_or(|(template, used)| template == used);
        pod.spec.as_deref().filter(|_| is_current)
    }
}

fn owner(pod: &KubePod) -> Option<&str> {
    let mut owners = pod.owners.iter();
    let owner = owners.find(|owner| owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/"))?;
    Some(&owner.uid)
}

fn key(position: usize, pod: &KubePod) -> Key {
    (kube_time::created(&pod.metadata), PodIdentity::of(pod).uid, position)
}
