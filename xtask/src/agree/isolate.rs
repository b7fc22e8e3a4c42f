//! Isolates cases that share a control plane: with their own names, a label on their nodes that their pods select, and
//! a label on their namespaces that their namespace selectors select. This does not change the meaning of a case.

use k8s_openapi::api::core::v1::{
    Affinity, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod,
    PodAffinityTerm, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_model::names::label;
use std::collections::{BTreeMap, BTreeSet};

/// Label with the case of an object.
pub(super) const CASE: &str = "plimsoll.test/case";
/// Label of every namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Prefix of the priority classes that every cluster has.
const SYSTEM: &str = "system-";

/// Names of one case.
#[derive(Debug, Clone, Default)]
pub(super) struct Isolation {
    seed: u64,
    /// Names of nodes that objects may refer to.
    nodes: BTreeMap<String, String>,
    /// Default storage class and priority class. They are not set in the cluster, because cases would mix.
    pub(super) default_storage_class: Option<String>,
    pub(super) default_priority_class: Option<String>,
    /// Topology keys of constraints that ignore a pod's node affinity: nodes of other cases must not have them.
    private: BTreeSet<String>,
}

impl Isolation {
    pub(super) fn new(seed: u64, nodes: impl IntoIterator<Item = String>) -> Isolation {
        let mut it = Isolation { seed, ..Isolation::default() };
        it.nodes = nodes.into_iter().map(|name| (name.clone(), it.name(&name))).collect();
        it
    }

    /// Prefix of the names of the objects of a case.
    pub(super) fn prefix(seed: u64) -> String {
        format!("c{seed}-")
    }

    /// Seed of the case that an object with this name belongs to.
    pub(super) fn seed_of(name: &str) -> Option<u64> {
        name.strip_prefix('c')?.split_once('-')?.0.parse().ok()
    }

    pub(super) fn name(&self, name: &str) -> String {
        format!("{}{name}", Self::prefix(self.seed))
    }

    /// Name of an object in the manifests of the case. Objects that were created later have only one name.
    pub(super) fn plain<'n>(&self, name: &'n str) -> &'n str {
        name.strip_prefix(&Self::prefix(self.seed)).unwrap_or(name)
    }

    pub(super) fn label(&self) -> (String, String) {
        (CASE.to_owned(), self.seed.to_string())
    }

    /// Records keys that must be private, before nodes are created.
    pub(super) fn note_private_keys(&mut self, spec: &PodSpec) {
        for spread in spec.topology_spread_constraints.iter().flatten() {
            if spread.node_affinity_policy.as_deref() == Some("Ignore") {
                self.private.insert(spread.topology_key.clone());
            }
        }
    }

    fn private_key(&self, key: &str) -> String {
        format!("c{}.plimsoll.test/{}", self.seed, key.replace('/', "."))
    }

    /// Labels of a node.
    pub(super) fn node_labels(&self, labels: &mut BTreeMap<String, String>) {
        if let Some(name) = labels.get_mut(label::HOSTNAME) {
            *name = self.nodes.get(name).cloned().unwrap_or_else(|| self.name(name));
        }
        for key in &self.private {
            if let Some(value) = labels.get(key).cloned() {
                labels.insert(self.private_key(key), value);
            }
        }
        labels.extend([self.label()]);
    }

    /// Metadata without the fields that only a server writes, with the name of the case.
    pub(super) fn metadata(&self, from: &ObjectMeta) -> ObjectMeta {
        let mut labels = from.labels.clone().unwrap_or_default();
        labels.extend([self.label()]);
        ObjectMeta {
            name: from.name.as_deref().map(|name| self.name(name)),
            labels: Some(labels),
            annotations: from.annotations.clone(),
            ..ObjectMeta::default()
        }
    }

    /// Metadata of a namespaced object: the namespace is renamed for the case, and the name is not.
    fn in_namespace(&self, from: &ObjectMeta) -> ObjectMeta {
        ObjectMeta {
            name: from.name.clone(),
            namespace: from.namespace.as_deref().map(|name| self.name(name)),
            labels: from.labels.clone(),
            ..ObjectMeta::default()
        }
    }

    /// The pod, unbound and without scheduling conditions.
    pub(super) fn pod(&self, from: &Pod) -> Pod {
        let mut spec = from.spec.clone().unwrap_or_default();
        self.pod_spec(&mut spec);
        Pod { metadata: self.in_namespace(&from.metadata), spec: Some(spec), status: None::<PodStatus> }
    }

    /// The pod, bound to the node with this name.
    pub(super) fn pod_on(&self, from: &Pod, node: &str) -> Pod {
        let mut pod = self.pod(from);
        if let Some(spec) = pod.spec.as_mut() {
            spec.node_name = Some(node.to_owned());
        }
        pod
    }

    fn pod_spec(&self, spec: &mut PodSpec) {
        let selector = spec.node_selector.get_or_insert_default();
        for (key, value) in selector.iter_mut() {
            if key == label::HOSTNAME {
                *value = self.host(value);
            }
        }
        selector.extend([self.label()]);
        if let Some(affinity) = spec.affinity.as_mut() {
            self.affinity(affinity);
        }
        for spread in spec.topology_spread_constraints.iter_mut().flatten() {
            if spread.node_affinity_policy.as_deref() == Some("Ignore") {
                spread.topology_key = self.private_key(&spread.topology_key);
            }
        }
        for volume in spec.volumes.iter_mut().flatten() {
            let template = volume.ephemeral.as_mut().and_then(|it| it.volume_claim_template.as_mut());
            if let Some(template) = template {
                self.claim_spec(&mut template.spec);
            }
        }
        let named = spec.priority_class_name.take().filter(|name| !name.is_empty());
        spec.priority_class_name = named.or_else(|| self.default_priority_class.clone()).map(|name| match name {
            system if system.starts_with(SYSTEM) => system,
            own => self.name(&own),
        });
        // The API server derives these fields from the class, and rejects other values.
        (spec.priority, spec.preemption_policy) = (None, None);
        // The constraints have the same meaning for any scheduler. The overhead is set, but its runtime class does not
        // exist.
        (spec.node_name, spec.scheduler_name, spec.runtime_class_name, spec.service_account_name) =
            (None, None, None, None);
    }

    fn affinity(&self, affinity: &mut Affinity) {
        if let Some(nodes) = affinity.node_affinity.as_mut() {
            let required = nodes.required_during_scheduling_ignored_during_execution.as_mut();
            required.into_iter().flat_map(|it| &mut it.node_selector_terms).for_each(|it| self.node_term(it));
            let preferred = nodes.preferred_during_scheduling_ignored_during_execution.iter_mut().flatten();
            preferred.for_each(|it| self.node_term(&mut it.preference));
        }
        let together = affinity.pod_affinity.as_mut().map(|it| {
            (
                &mut it.required_during_scheduling_ignored_during_execution,
                &mut it.preferred_during_scheduling_ignored_during_execution,
            )
        });
        let apart = affinity.pod_anti_affinity.as_mut().map(|it| {
            (
                &mut it.required_during_scheduling_ignored_during_execution,
                &mut it.preferred_during_scheduling_ignored_during_execution,
            )
        });
        for (required, preferred) in together.into_iter().chain(apart) {
            required.iter_mut().flatten().for_each(|it| self.pod_term(it));
            preferred.iter_mut().flatten().for_each(|it| self.pod_term(&mut it.pod_affinity_term));
        }
    }

    fn node_term(&self, term: &mut NodeSelectorTerm) {
        let names = term.match_fields.iter_mut().flatten();
        let hosts = term.match_expressions.iter_mut().flatten().filter(|it| it.key == label::HOSTNAME);
        for value in names.chain(hosts).flat_map(|it| it.values.iter_mut().flatten()) {
            *value = self.host(value);
        }
    }

    fn host(&self, name: &str) -> String {
        self.nodes.get(name).cloned().unwrap_or_else(|| self.name(name))
    }

    fn pod_term(&self, term: &mut PodAffinityTerm) {
        term.namespaces.iter_mut().flatten().for_each(|name| *name = self.name(name));
        if let Some(selector) = term.namespace_selector.as_mut() {
            let labels = selector.match_labels.get_or_insert_default();
            if let Some(name) = labels.get_mut(NAMESPACE_NAME) {
                *name = self.name(name);
            }
            labels.extend([self.label()]);
            let by_name = selector.match_expressions.iter_mut().flatten().filter(|it| it.key == NAMESPACE_NAME);
            by_name.flat_map(|it| it.values.iter_mut().flatten()).for_each(|name| *name = self.name(name));
        }
    }

    pub(super) fn claim(&self, from: &PersistentVolumeClaim) -> PersistentVolumeClaim {
        let mut spec = from.spec.clone().unwrap_or_default();
        self.claim_spec(&mut spec);
        PersistentVolumeClaim { metadata: self.in_namespace(&from.metadata), spec: Some(spec), status: None }
    }

    fn claim_spec(&self, spec: &mut PersistentVolumeClaimSpec) {
        spec.volume_name = spec.volume_name.as_deref().filter(|name| !name.is_empty()).map(|name| self.name(name));
        let named = spec.storage_class_name.take().or_else(|| self.default_storage_class.clone());
        spec.storage_class_name = named.map(|name| if name.is_empty() { name } else { self.name(&name) });
    }

    pub(super) fn volume(&self, from: &PersistentVolume) -> PersistentVolume {
        let mut spec = from.spec.clone().unwrap_or_default();
        let class = spec.storage_class_name.take().filter(|name| !name.is_empty());
        spec.storage_class_name = class.map(|name| self.name(&name));
        if let Some(claim) = spec.claim_ref.as_mut() {
            claim.namespace = claim.namespace.as_deref().map(|name| self.name(name));
            (claim.uid, claim.resource_version) = (None, None);
        }
        let required = spec.node_affinity.as_mut().and_then(|it| it.required.as_mut());
        required.into_iter().flat_map(|it| &mut it.node_selector_terms).for_each(|it| self.node_term(it));
        PersistentVolume { metadata: self.metadata(&from.metadata), spec: Some(spec), status: None }
    }
}

#[cfg(test)]
mod tests;
