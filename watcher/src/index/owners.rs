//! Compares the number of pods that owners want with the number observed.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_api::Pod;
use plimsoll_model::identity::PodUid;
use plimsoll_snapshot::Objects;
use std::collections::{BTreeMap, BTreeSet};

/// Owners of pods that are only needed for their pod count.
#[derive(Debug, Default)]
pub struct Workloads {
    /// Jobs.
    pub jobs: Vec<Job>,
    /// ReplicationControllers.
    pub replication_controllers: Vec<ReplicationController>,
}

impl Workloads {
    /// Number of concurrent pods each owner wants, by the owner's UID.
    pub(super) fn wanted<'o>(&'o self, objects: &'o Objects) -> BTreeMap<&'o str, i64> {
        let replica_sets = objects
            .replica_sets
            .iter()
            .map(|set| (&set.metadata, replicas(set.spec.as_ref().and_then(|spec| spec.replicas))));
        let stateful_sets = objects.stateful_sets.iter().map(|set| (&set.metadata, wanted_by_stateful_set(set)));
        let jobs = self.jobs.iter().map(|job| (&job.metadata, wanted_by_job(job)));
        let controllers = self
            .replication_controllers
            .iter()
            .map(|owner| (&owner.metadata, replicas(owner.spec.as_ref().and_then(|spec| spec.replicas))));
        replica_sets
            .chain(stateful_sets)
            .chain(jobs)
            .chain(controllers)
            .filter_map(|(metadata, wanted)| {
                Some((metadata.uid.as_deref()?, if is_ending(metadata) { 0 } else { wanted }))
            })
            .collect()
    }
}

fn is_ending(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
}

fn replicas(number: Option<i32>) -> i64 {
    i64::from(number.unwrap_or(1))
}

/// An ordered StatefulSet creates the next pod only when the previous pod runs, so there is nothing to wait for.
fn wanted_by_stateful_set(set: &StatefulSet) -> i64 {
    let Some(spec) = &set.spec else { return 0 };
    if spec.pod_management_policy.as_deref() == Some("Parallel") { replicas(spec.replicas) } else { 0 }
}

fn wanted_by_job(job: &Job) -> i64 {
    let Some(spec) = &job.spec else { return 0 };
    if spec.suspend == Some(true) {
        return 0;
    }
    let succeeded = job.status.as_ref().and_then(|status| status.succeeded).unwrap_or(0);
    let at_once = spec.parallelism.unwrap_or(1);
    i64::from(match spec.completions {
        Some(completions) => at_once.min(completions.saturating_sub(succeeded)),
        // A work queue: once a pod has succeeded, no further pods are created.
        None if succeeded > 0 => 0,
        None => at_once,
    })
}

/// The UID of the pod's controller.
fn controller(pod: &Pod) -> Option<&str> {
    pod.owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

fn has_ended(pod: &Pod) -> bool {
    is_ending(&pod.metadata) || pod.is_terminal()
}

/// Pods of each owner that have not ended, kept up to date with each change of a pod.
#[derive(Debug, Default)]
pub struct OwnerPods {
    by_owner: BTreeMap<String, PodCounts>,
}

#[derive(Debug, Default)]
struct PodCounts {
    /// Unbound pods.
    waiting: BTreeSet<PodUid>,
    /// Pods that their scheduler has considered.
    decided: i64,
}

impl OwnerPods {
    /// Counts a pod that was inserted, replaced or removed.
    pub(super) fn replace(&mut self, before: Option<&Pod>, after: Option<&Pod>) {
        for (pod, change) in before.map(|pod| (pod, -1)).into_iter().chain(after.map(|pod| (pod, 1))) {
            let Some(owner) = controller(pod).filter(|_| !has_ended(pod)) else { continue };
            let counts = self.by_owner.entry(owner.to_owned()).or_default();
            if plimsoll_snapshot::is_decided(pod) {
                counts.decided += change;
            }
            if let Some(uid) = pod.metadata.uid.clone().map(PodUid).filter(|_| pod.node_name.is_none()) {
                let _present = if change > 0 { counts.waiting.insert(uid) } else { counts.waiting.remove(&uid) };
            }
            if counts.decided == 0 && counts.waiting.is_empty() {
                self.by_owner.remove(owner);
            }
        }
    }

    /// Unbound pods whose owner wants more pods than have been observed and considered by their scheduler; `wanted` are
    /// pod counts by owner. If the owner is unknown, its pod count is unknown too, so its pods count as incomplete. A
    /// pod without an owner is complete.
    pub(super) fn incomplete(&self, wanted: &BTreeMap<&str, i64>) -> BTreeSet<PodUid> {
        let is_complete =
            |owner: &str, counts: &PodCounts| wanted.get(owner).is_some_and(|wanted| counts.decided >= *wanted);
        let incomplete = self.by_owner.iter().filter(|(owner, counts)| !is_complete(owner, counts));
        incomplete.flat_map(|(_, counts)| &counts.waiting).cloned().collect()
    }
}
