//! Builds the snapshots of a changing cluster, one after the other, each with what has changed.

use crate::checked_pools::CheckedPools;
use crate::pod_states::PodStates;
use crate::pod_table::{PodChanges, PodTable};
use crate::problems::Problem;
use crate::{Context, Extra, Objects, buffers};
use plimsoll_model::execution::BufferReport;
use plimsoll_model::identity::PodUid;
use plimsoll_model::snapshot::{Edits, Pod, PodList, SharedPod, Snapshot, SnapshotEdits, merge};
use plimsoll_model::time::Timestamp;
use std::sync::Arc;

/// How often a builder checks itself, in milliseconds. The check costs one full build, which takes some seconds for
/// 100,000 pods.
const AUDIT_INTERVAL_MS: i64 = 30 * 60 * 1000;

/// Builds snapshots and remembers what each pod contributes. The result is the same as that of [`build`].
///
/// ```
/// use plimsoll_snapshot::{Builder, Extra, Objects, build};
///
/// let (objects, extra) = (Objects::default(), Extra::default());
/// let mut builder = Builder::default();
/// assert_eq!(*builder.build(&objects, &extra).snapshot, build(&objects, &extra).0);
/// ```
///
/// [`build`]: crate::build
#[derive(Debug, Default)]
pub struct Builder {
    state: State,
    /// Number of the last build.
    number: u64,
    last_audit: Option<Timestamp>,
    failed_audits: u64,
}

/// What a builder remembers of the last build.
#[derive(Debug, Default)]
struct State {
    /// Whether `pods` contains what the pods of `current` contribute.
    has_read: bool,
    pods: PodTable,
    virtual_pods: Vec<Pod>,
    checked_pools: CheckedPools,
    current: Arc<Snapshot>,
}

/// A snapshot, and what has changed since the previous build.
#[derive(Debug, Clone)]
pub struct Built {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Changes since the snapshot of the build before.
    pub edits: SnapshotEdits,
    /// Number of this build. Numbers are consecutive, so that a caller can tell whether it has seen the build before.
    pub number: u64,
    /// Objects that were left out, and fields that were ignored.
    pub problems: Vec<Problem>,
    /// Reports for the status of CapacityBuffers, as of [`buffers::reports`].
    pub buffers: Vec<BufferReport>,
}

/// Changes of a list of pods.
struct PodPatch {
    removed: Vec<PodUid>,
    upserts: Vec<SharedPod>,
    /// Pods that were read again and have not changed. Those of the list are dropped for them, so that each is in
    /// memory once.
    same: Vec<SharedPod>,
}

impl PodPatch {
    /// Drops changes that change nothing. Returns `None` if several pods have the same UID.
    fn new(changes: PodChanges, pods: &PodList) -> Option<Self> {
        let PodChanges { mut removed, mut upserts, has_duplicates } = changes;
        let find = |uid: &PodUid| {
            let position = pods.binary_search_by(|pod| pod.uid.cmp(uid)).ok()?;
            pods.get(position)
        };
        let exists_twice = |uid: &PodUid| !removed.contains(uid) && find(uid).is_some();
        if has_duplicates || upserts.keys().any(exists_twice) {
            return None;
        }
        let mut same = Vec::new();
        upserts.retain(|uid, pod| {
            removed.remove(uid);
            let is_same = find(uid).is_some_and(|known| *known == **pod);
            if is_same {
                same.push(pod.clone());
            }
            !is_same
        });
        Some(Self { removed: removed.into_iter().collect(), upserts: upserts.into_values().collect(), same })
    }

    /// Applies the changes; `None` if a removed pod is not there.
    fn apply(self, pods: &mut PodList) -> Option<Edits> {
        for pod in self.same {
            let position = pods.binary_search_by(|known| known.uid.cmp(&pod.uid)).ok()?;
            *pods.get_mut(position)? = pod;
        }
        let uid = |pod: &SharedPod| pod.uid.clone();
        merge::merge(pods, &self.removed, self.upserts, uid, |_| 0, &mut 0).ok()
    }
}

impl Builder {
    /// Builds the snapshot of `objects`. Only pods whose object has changed since the previous call are read.
    #[must_use]
    pub fn build(&mut self, objects: &Objects, extra: &Extra) -> Built {
        self.number += 1;
        // If building panics, the next call starts anew.
        let state = std::mem::take(&mut self.state);
        let current = Arc::clone(&state.current);
        let last_audit = *self.last_audit.get_or_insert(extra.now);
        let is_due = extra.now.0.saturating_sub(last_audit.0) >= AUDIT_INTERVAL_MS;
        let next = match state.next(objects, extra, self.number) {
            Some((state, built)) if !is_due => {
                self.state = state;
                return built;
            }
            next => next,
        };
        // Otherwise most pods would be in memory twice.
        let known = next.as_ref().map_or(&current, |(_, built)| &built.snapshot);
        let (full, full_problems) = crate::build_sharing(objects, extra, &known.pods);
        if is_due {
            self.last_audit = Some(extra.now);
            match next {
                Some((state, built)) if *built.snapshot == full && built.problems == full_problems => {
                    self.state = state;
                    return built;
                }
                Some(_) => self.failed_audits = self.failed_audits.saturating_add(1),
                None => {}
            }
        }
        let edits = SnapshotEdits::between(&current, &full);
        let snapshot = Arc::new(full);
        // The next build reads every pod again, and compares it with this snapshot.
        self.state = State { current: Arc::clone(&snapshot), ..State::default() };
        let buffers = buffers::reports(objects);
        Built { snapshot, edits, number: self.number, problems: full_problems, buffers }
    }

    /// Number of audits in which a snapshot differed from a full build. Any value but 0 is a bug.
    #[must_use]
    pub fn failed_audits(&self) -> u64 {
        self.failed_audits
    }
}

impl State {
    /// Returns the state after `objects` were read, and the result of this build. `None` if only a full build can tell:
    /// pods are stored by workload, or several pods have the same UID.
    fn next(mut self, objects: &Objects, extra: &Extra, number: u64) -> Option<(Self, Built)> {
        if !objects.replicas.is_empty() {
            return None;
        }
        let mut changes = PodChanges::default();
        if !self.has_read {
            if !self.current.pods.is_sorted_by(|a, b| a.uid < b.uid) {
                return None;
            }
            changes.removed.extend(self.current.pods.iter().map(|pod| pod.uid.clone()));
        }
        let changed = self.pods.observe(&objects.pods, &mut changes);
        let mut context = Context::new(objects, extra, self.pods.namespaces(), self.pods.label_keys());
        let pod_states = PodStates::new(&context.nodes, &objects.node_claims, extra);
        self.pods.update(&changed, extra, &pod_states, (&mut context.shapes, &context.budgets), &mut changes);
        self.pods.shapes().for_each(|shape| context.shapes.mark_used(shape));
        let virtual_pods = context.buffer_pods(objects, extra);
        let buffers = buffers::reports_of(&context.buffers);
        if self.virtual_pods != virtual_pods {
            changes.removed.extend(self.virtual_pods.iter().map(|pod| pod.uid.clone()));
            virtual_pods.iter().for_each(|pod| changes.insert(pod.clone().into()));
        }
        self.virtual_pods = virtual_pods;
        context.problems.extend(self.pods.problems().cloned());
        let ignored = self.pods.ignored().cloned().collect();
        let unreadable_pod_nodes = self.pods.unreadable_pod_nodes();
        let (checked, daemon_pods) = (&mut self.checked_pools, self.pods.daemon_pods());
        let (mut next, problems) = context.finish(objects, extra, checked, daemon_pods, ignored, &unreadable_pod_nodes);
        let patch = PodPatch::new(changes, &self.current.pods)?;
        let mut pods = self.current.pods.clone();
        let edits =
            SnapshotEdits { pods: patch.apply(&mut pods)?, ..SnapshotEdits::besides_pods(&self.current, &next) };
        next.pods = pods;
        self.current = Arc::new(next);
        self.has_read = true;
        let built = Built { snapshot: Arc::clone(&self.current), edits, number, problems, buffers };
        Some((self, built))
    }
}

#[cfg(test)]
mod tests;
