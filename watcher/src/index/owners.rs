//! Compares the number of pods that owners want with the number observed.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
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
    fn wanted<'o>(&'o self, objects: &'o Objects) -> BTreeMap<&'o str, i64> {
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
    i64::from(spec.completions.map_or(at_once, |completions| at_once.min(completions.saturating_sub(succeeded))))
}

/// The UID of the pod's controller.
fn controller(pod: &Pod) -> Option<&str> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|name| !name.is_empty())
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    is_ending(&pod.metadata) || matches!(phase, Some("Succeeded" | "Failed"))
}

/// Unbound pods whose owner wants more pods than have been observed and considered by their scheduler. If the owner is
/// unknown, its pod count is unknown too, so its pods count as incomplete. A pod without an owner is complete.
pub(super) fn incomplete(objects: &Objects, workloads: &Workloads) -> BTreeSet<PodUid> {
    let pods = &objects.pods;
    let mut waiting: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !is_bound(pod) && !has_ended(pod)) {
        if let Some(owner) = controller(pod) {
            waiting.entry(owner).or_default().push(pod);
        }
    }
    if waiting.is_empty() {
        return BTreeSet::new();
    }
    let mut seen: BTreeMap<&str, i64> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !has_ended(pod) && plimsoll_snapshot::is_decided(pod)) {
        if let Some(owner) = controller(pod).filter(|owner| waiting.contains_key(owner)) {
            *seen.entry(owner).or_default() += 1;
        }
    }
    let wanted = workloads.wanted(objects);
    let is_complete =
        |owner: &str| wanted.get(owner).is_some_and(|wanted| seen.get(owner).copied().unwrap_or(0) >= *wanted);
    waiting
        .into_iter()
        .filter(|(owner, _)| !is_complete(owner))
        .flat_map(|(_, pods)| pods)
        .filter_map(|pod| pod.metadata.uid.clone().map(PodUid))
        .collect()
}
