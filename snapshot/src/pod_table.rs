//! Remembers what each pod contributes to a snapshot, so that the next snapshot looks only at pods that have changed.

use crate::Extra;
use crate::daemon_pods::DaemonPods;
use crate::pod_protection::PodProtection;
use crate::pod_states::{PodStates, StateContext};
use crate::pods::{self, CommonFields, PodIdentity};
use crate::problems::{Fault, Problem};
use crate::shapes::Shapes;
use crate::{pdbs::Budgets, problems::full_name_of, selected_labels};
use plimsoll_api::{Pod as KubePod, needs_claim};
use plimsoll_model::identity::{NodeName, PodUid, ShapeId};
use plimsoll_model::snapshot::{IgnoredPod, LabelSelector, PodShape, PodState, SharedPod};
use std::collections::{BTreeMap, BTreeSet};
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
    /// Keys of the labels that shapes keep.
    pub(crate) label_keys: BTreeSet<String>,
    /// Disruption budgets: namespace, name, selector, and whether unhealthy pods may always be evicted.
    pub(crate) budgets: Vec<(String, String, LabelSelector, bool)>,
}

/// What was read of a pod: its fields and its shape, or why it is invalid.
pub(crate) type ReadPod = Result<(CommonFields, Arc<PodShape>), Fault>;

/// What a pod contributes. The reason of an ignored pod and all problems are in the lists of [`PodTable`].
#[derive(Debug, PartialEq)]
enum Outcome {
    Nothing,
    Ignored,
    /// The state of an invalid pod, and why it is invalid.
    Unreadable(Box<(PodState, Fault)>),
    /// The pod, which snapshots share, its shape, and what protects the pod.
    Placed(SharedPod, Arc<PodShape>, PodProtection),
}

impl Outcome {
    /// Whether the outcome is that of a pod that was read, with this state and this protection.
    fn has(&self, state: &PodState, protection: PodProtection) -> bool {
        match self {
            Self::Nothing | Self::Ignored => false,
            Self::Unreadable(unreadable) => unreadable.0 == *state,
            Self::Placed(pod, _, known) => pod.state == *state && *known == protection,
        }
    }

    /// What was read of the pod from `object`. `None` if the outcome does not contain all of it.
    fn read(&self, object: &KubePod) -> Option<ReadPod> {
        match self {
            Self::Unreadable(unreadable) => Some(Err(unreadable.1.clone())),
            Self::Placed(pod, shape, protection) if protection.is_full() => {
                Some(Ok((CommonFields::of(pod, object), Arc::clone(shape))))
            }
            Self::Placed(..) | Self::Nothing | Self::Ignored => None,
        }
    }
}

#[derive(Debug)]
struct Entry {
    object: Arc<KubePod>,
    outcome: Outcome,
}

/// Contributions by position in the list of pods. A position holds the contribution of exactly the object that it was
/// read from: an object that was replaced or moved is read again.
#[derive(Debug, Default)]
pub(crate) struct PodTable {
    read_context: ReadContext,
    state_context: Option<StateContext>,
    entries: Vec<Entry>,
    /// Number of pods in each namespace.
    namespaces: BTreeMap<String, usize>,
    /// Keys of the labels by which pods select pods, with the number of selectors.
    label_keys: BTreeMap<String, usize>,
    daemon_pods: DaemonPods,
    /// Shapes with the number of pods that have them.
    shapes: BTreeMap<ShapeId, (Arc<PodShape>, usize)>,
    ignored: BTreeMap<usize, IgnoredPod>,
    problems: BTreeMap<usize, Vec<Problem>>,
    /// Nodes of unparsable pods, whose requests are unknown.
    unreadable_pod_nodes: BTreeMap<usize, NodeName>,
    /// Pods with volume claims. What they contribute also depends on other objects, so they are always read again.
    with_claims: BTreeSet<usize>,
}

/// Pods that a snapshot adds or removes.
#[derive(Debug, Default)]
pub(crate) struct PodChanges {
    /// May contain pods of `upserts`.
    pub(crate) removed: BTreeSet<PodUid>,
    pub(crate) upserts: BTreeMap<PodUid, SharedPod>,
    /// Whether several pods have the same UID.
    pub(crate) has_duplicates: bool,
}

impl PodChanges {
    pub(crate) fn insert(&mut self, pod: SharedPod) {
        self.has_duplicates |= self.upserts.insert(pod.uid.clone(), pod).is_some();
    }
}

impl PodTable {
    /// Replaces objects that have changed. Returns their positions.
    pub(crate) fn observe(&mut self, pods: &[Arc<KubePod>], changes: &mut PodChanges) -> BTreeSet<usize> {
        let mut changed = BTreeSet::new();
        while self.entries.len() > pods.len() {
            self.retract(self.entries.len() - 1, changes);
            if let Some(entry) = self.entries.pop() {
                self.with_claims.remove(&self.entries.len());
                self.forget(self.entries.len(), &entry.object);
            }
        }
        for (position, pod) in pods.iter().enumerate() {
            let known = self.entries.get(position).map(|entry| &entry.object);
            if known.is_some_and(|known| Arc::ptr_eq(known, pod)) {
                continue;
            }
            changed.insert(position);
            if let Some(known) = known.cloned() {
                self.retract(position, changes);
                self.forget(position, &known);
            }
            if let Some(namespace) = &pod.metadata.namespace {
                *self.namespaces.entry(namespace.clone()).or_default() += 1;
            }
            for key in pod.spec.iter().flat_map(|spec| selected_labels::keys(spec)) {
                *self.label_keys.entry(key.clone()).or_default() += 1;
            }
            self.daemon_pods.insert(position, pod);
            let entry = Entry { object: Arc::clone(pod), outcome: Outcome::Nothing };
            match self.entries.get_mut(position) {
                Some(known) => *known = entry,
                None => self.entries.push(entry),
            }
            // Another pod may have been at this position.
            if pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(needs_claim) {
                self.with_claims.insert(position);
            } else {
                self.with_claims.remove(&position);
            }
        }
        changed
    }

    /// Removes what a pod counts for, whatever it contributes.
    fn forget(&mut self, position: usize, pod: &KubePod) {
        if let Some(namespace) = &pod.metadata.namespace {
            decrement(&mut self.namespaces, namespace);
        }
        for key in pod.spec.iter().flat_map(|spec| selected_labels::keys(spec)) {
            decrement(&mut self.label_keys, key);
        }
        self.daemon_pods.remove(position, pod);
    }

    /// Namespaces that have pods.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &String> {
        self.namespaces.keys()
    }

    /// Keys of the labels by which pods select pods.
    pub(crate) fn label_keys(&self) -> impl Iterator<Item = &String> {
        self.label_keys.keys()
    }

    /// The pods of DaemonSets.
    pub(crate) fn daemon_pods(&self) -> &DaemonPods {
        &self.daemon_pods
    }

    /// Updates the contributions of the pods at the positions `changed`, or of all pods if what they depend on has
    /// changed.
    pub(crate) fn update(
        &mut self,
        changed: &BTreeSet<usize>,
        extra: &Extra,
        pod_states: &PodStates<'_>,
        (shapes, budgets): (&mut Shapes<'_>, &Budgets<'_>),
        changes: &mut PodChanges,
    ) {
        let context = shapes.read_context(budgets);
        let reread = self.read_context != context;
        let known_states = self.state_context.as_ref().is_some_and(|known| pod_states.is_same(known, extra.source));
        if !known_states {
            self.state_context = Some(pod_states.context(extra.source));
        }
        self.read_context = context;
        let positions: Vec<usize> = if reread || !known_states {
            (0..self.entries.len()).collect()
        } else {
            changed.union(&self.with_claims).copied().collect()
        };
        for position in positions {
            self.update_one(position, reread, extra, pod_states, (&mut *shapes, budgets), changes);
        }
    }

    fn update_one(
        &mut self,
        position: usize,
        reread: bool,
        extra: &Extra,
        pod_states: &PodStates<'_>,
        (shapes, budgets): (&mut Shapes<'_>, &Budgets<'_>),
        changes: &mut PodChanges,
    ) {
        let Some(entry) = self.entries.get(position) else { return };
        let pod = Arc::clone(&entry.object);
        let Some(spec) = pod.spec.as_ref().filter(|_| !pod.is_terminal()) else { return };
        let identity = PodIdentity::of(&pod);
        let state = match pods::pod_state(&pod, spec, &identity.uid, extra, pod_states) {
            Ok(state) => state,
            Err(reason) => {
                if entry.outcome != Outcome::Ignored
                    || self.ignored.get(&position).is_some_and(|known| known.reason != reason)
                {
                    self.retract(position, changes);
                    let name = full_name_of(&pod.metadata, &identity.name);
                    self.ignored.insert(position, IgnoredPod { uid: identity.uid, pod: name, reason });
                    self.set(position, Outcome::Ignored);
                }
                return;
            }
        };
        let protection = pod_states.protection(&state);
        let reread = reread || self.with_claims.contains(&position);
        if !reread && entry.outcome.has(&state, protection) {
            return;
        }
        let known = entry.outcome.read(&pod).filter(|_| !reread);
        let mut outcome = match known.unwrap_or_else(|| pods::read(&pod, spec, budgets, shapes)) {
            Ok((common, shape)) => Outcome::Placed(identity.pod(common, state, protection).into(), shape, protection),
            Err(fault) => Outcome::Unreadable(Box::new((state, fault))),
        };
        if entry.outcome == outcome {
            return;
        }
        self.retract(position, changes);
        let mut problems: Vec<Problem> = pods::ignored_annotations(&pod).collect();
        match &mut outcome {
            Outcome::Placed(placed, shape, _) => {
                changes.insert(placed.clone());
                let (shared, count) = self.shapes.entry(shape.id.clone()).or_insert_with(|| (Arc::clone(shape), 0));
                *count += 1;
                *shape = Arc::clone(shared);
            }
            Outcome::Unreadable(unreadable) => {
                let (state, fault) = (**unreadable).clone();
                problems.push(Problem::of("Pod", &pod.metadata, fault));
                self.unreadable_pod_nodes.extend(pods::node_of(state).map(|node| (position, node)));
            }
            Outcome::Nothing | Outcome::Ignored => {}
        }
        if !problems.is_empty() {
            self.problems.insert(position, problems);
        }
        self.set(position, outcome);
    }

    fn set(&mut self, position: usize, outcome: Outcome) {
        if let Some(entry) = self.entries.get_mut(position) {
            entry.outcome = outcome;
        }
    }

    /// Removes what the pod at `position` has contributed.
    fn retract(&mut self, position: usize, changes: &mut PodChanges) {
        let Some(entry) = self.entries.get_mut(position) else { return };
        let outcome = std::mem::replace(&mut entry.outcome, Outcome::Nothing);
        if let Outcome::Placed(pod, shape, _) = &outcome {
            changes.removed.insert(pod.uid.clone());
            if let Some((_, count)) = self.shapes.get_mut(&shape.id) {
                *count -= 1;
                if *count == 0 {
                    self.shapes.remove(&shape.id);
                }
            }
        }
        self.ignored.remove(&position);
        self.problems.remove(&position);
        self.unreadable_pod_nodes.remove(&position);
    }

    /// Shapes of all pods.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = &Arc<PodShape>> {
        self.shapes.values().map(|(shape, _)| shape)
    }

    /// Ignored pods, in no particular order.
    pub(crate) fn ignored(&self) -> impl Iterator<Item = &IgnoredPod> {
        self.ignored.values()
    }

    /// Problems of all pods.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.values().flatten()
    }

    /// Nodes of unparsable pods.
    pub(crate) fn unreadable_pod_nodes(&self) -> BTreeSet<NodeName> {
        self.unreadable_pod_nodes.values().cloned().collect()
    }
}

#[cfg(test)]
impl PodTable {
    /// The pods that snapshots have, by position of their object.
    pub(crate) fn placed(&self) -> impl Iterator<Item = &plimsoll_model::snapshot::Pod> {
        self.entries.iter().filter_map(|entry| match &entry.outcome {
            Outcome::Placed(pod, ..) => Some(&**pod),
            _ => None,
        })
    }
}

/// Counts one less for `key`, and removes it at zero.
fn decrement(counts: &mut BTreeMap<String, usize>, key: &str) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_position_is_read_each_time_only_while_its_pod_has_volume_claims() {
        let pod = |name: &str, volumes: &[&str]| -> Arc<KubePod> {
            let claims = volumes.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
            let spec = json!({"containers": [], "volumes": claims.collect::<Vec<_>>()});
            Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap())
        };
        let (mut table, mut changes) = (PodTable::default(), PodChanges::default());
        let (with, without) = (pod("db", &["data"]), pod("web", &[]));
        table.observe(&[Arc::clone(&without), Arc::clone(&with)], &mut changes);
        assert_eq!(table.with_claims, [1].into());
        // The last pod takes the position of one that is deleted.
        table.observe(&[Arc::clone(&with)], &mut changes);
        assert_eq!(table.with_claims, [0].into());
        table.observe(&[without], &mut changes);
        assert_eq!(table.with_claims, BTreeSet::new());
    }
}
