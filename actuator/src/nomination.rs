//! Nominates the planned node of each pod to kube-scheduler: `status.nominatedNodeName` (KEP-5278).
//!
//! kube-scheduler tries the nominated node first and reserves its capacity against pods of the same or a lower
//! priority. Without a nomination, pods that kube-scheduler tries in another order take each other's capacity. A
//! nomination is a hint: nothing waits for it, and a failed write is not reported.
//! A nomination must not outlive its plan, since it would prevent the pod from being planned again.

pub(crate) mod binding;
mod rounds;
mod step;
#[cfg(test)]
mod tests;

use crate::clock::Timestamped;
use crate::fencing::Fence;
use crate::io::Writes;
use crate::launch::record::is_leaving;
use crate::ledger::handle::LedgerHandle;
use crate::metrics::ActuatorMetrics;
use crate::pods::{self, NOMINATION_FIELD_MANAGER};
use crate::settings::Settings;
use crate::state::nominations::Placements;
use crate::stores::Stores;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::Pod;
use plimsoll_model::identity::PodUid;
use plimsoll_model::names::taint;
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_runtime::clock::Clock;
use rounds::{CONCURRENT_WRITES, Kind, PER_ROUND, Round, WriteResult};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use step::Step;
use tokio_util::sync::CancellationToken;

/// What this controller writes.
const KIND: Kind = Kind { name: "nominations", right: "patch of pods/status" };
/// Attempts to nominate one node for a pod. kube-scheduler clears a nomination when it tries the pod before the node is
/// ready, with pauses of up to 10 s; this many attempts cover the start of a node. A pod that is still refused does not
/// fit there.
const MAX_TRIES: u32 = 10;
/// Delay before a write without a visible effect is repeated.
const RETRY_DELAY: Millis = Millis::from_seconds(10);

/// Dependencies of the controller.
#[derive(Clone)]
pub struct Nominations {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Planned placements on existing and starting nodes, besides launches.
    pub placements: Placements,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Settings of the installation.
    pub settings: Arc<Settings>,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Fence of the term.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}

/// The last write for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Attempt {
    /// The pod's resourceVersion at the write.
    version: Option<String>,
    at: Timestamp,
    node: Option<String>,
    /// Number of writes for this node.
    count: u32,
}

/// A write of one pod's nomination.
#[derive(Debug)]
struct NominationWrite {
    pod: Arc<Pod>,
    step: Step,
}

/// Nominates until `stop`.
pub(crate) async fn run(deps: Nominations, stop: CancellationToken) {
    let mut nominator = Nominator::default();
    let due = || nominator.due_writes(&deps);
    rounds::run(&deps, &stop, KIND, due, |writes| perform(&deps, writes)).await;
}

/// Remembers past attempts.
#[derive(Debug, Default)]
struct Nominator {
    attempts: BTreeMap<PodUid, Attempt>,
}

impl Nominator {
    /// Computes the writes that are due: withdrawals first, then nominations in order of nodes.
    fn due_writes(&mut self, deps: &Nominations) -> Vec<NominationWrite> {
        let now = deps.clock.timestamp();
        let pods = deps.stores.pods.unbound();
        let waiting: BTreeMap<PodUid, Arc<Pod>> =
            pods.into_iter().filter(|pod| step::is_waiting(pod)).map(|pod| (PodUid(pods::uid(&pod)), pod)).collect();
        deps.placements.retain(|uid| waiting.contains_key(uid), now);
        self.attempts.retain(|uid, _| waiting.contains_key(uid));
        if waiting.is_empty() {
            return Vec::new();
        }
        // Withdrawals happen even if nominations are disabled: an earlier start may have nominated nodes.
        let planned = if deps.settings.nominate_nodes { planned_nodes(deps, now) } else { BTreeMap::new() };
        let nodes = deps.stores.nodes.state();
        self.due(&waiting, &step::without_conflicts(&waiting, &planned, &nodes), now)
    }

    fn due(
        &mut self,
        waiting: &BTreeMap<PodUid, Arc<Pod>>,
        wanted: &BTreeMap<PodUid, String>,
        now: Timestamp,
    ) -> Vec<NominationWrite> {
        let mut writes: Vec<NominationWrite> = Vec::new();
        for (uid, pod) in waiting {
            let Some(step) = step::of(pod, wanted.get(uid).map(String::as_str)) else { continue };
            if self.is_due(uid, pod, &step, now) {
                writes.push(NominationWrite { pod: Arc::clone(pod), step });
            }
        }
        writes.sort_by_cached_key(|write| (write.step.clone(), pods::full_name(&write.pod)));
        writes.truncate(PER_ROUND);
        for write in &writes {
            self.note(write, now);
        }
        writes
    }

    fn is_due(&self, uid: &PodUid, pod: &Pod, step: &Step, now: Timestamp) -> bool {
        let Some(attempt) = self.attempts.get(uid) else { return true };
        let retry_due = attempt.version != pod.metadata.resource_version || attempt.at.plus(RETRY_DELAY) <= now;
        let exhausted = step.node().is_some() && attempt.node.as_deref() == step.node() && attempt.count >= MAX_TRIES;
        retry_due && !exhausted
    }

    fn note(&mut self, write: &NominationWrite, now: Timestamp) {
        let node = write.step.node().map(str::to_owned);
        let uid = PodUid(pods::uid(&write.pod));
        // A withdrawal keeps the count, since the same node is nominated next.
        let previous = self.attempts.get(&uid).map(|attempt| (attempt.node.clone(), attempt.count));
        let (node, count) = match (previous, node) {
            (Some((previous, count)), Some(node)) if previous.as_ref() == Some(&node) => (previous, count + 1),
            (Some((previous, count)), None) => (previous, count),
            (_, node) => (node, 1),
        };
        let version = write.pod.metadata.resource_version.clone();
        self.attempts.insert(uid, Attempt { version, at: now, node, count });
    }
}

/// The planned node of each pod: the nodes of launches once they exist, and the nodes of placements.
fn planned_nodes(deps: &Nominations, now: Timestamp) -> BTreeMap<PodUid, String> {
    let nodes = deps.stores.nodes.state();
    let open: BTreeSet<&str> =
        nodes.iter().filter(|node| is_open(node)).filter_map(|node| node.metadata.name.as_deref()).collect();
    let (mut by_claim, mut leaving) = (BTreeMap::new(), BTreeSet::new());
    for claim in deps.stores.claims.state() {
        let mut names = deps.stores.nodes_of(&claim).into_iter().filter_map(|node| node.metadata.name.clone());
        if is_leaving(&claim) {
            leaving.extend(names);
        } else if let Some(name) = names.find(|name| open.contains(name.as_str())) {
            by_claim.insert(claim.name_any(), name);
        }
    }
    let of_place = |name: &str| match by_claim.get(name) {
        Some(node) => Some(node.clone()),
        None => open.get(name).filter(|name| !leaving.contains(**name)).map(|name| (*name).to_owned()),
    };
    let mut planned = deps.placements.resolve(of_place, now);
    // Reservations of launches take precedence over placements.
    deps.ledger.read(|ledger| {
        for (name, claim) in ledger.claims().filter(|(_, claim)| !claim.deleting) {
            let Some(node) = by_claim.get(name) else { continue };
            planned.extend(claim.pods(now).map(|pod| (pod.clone(), node.clone())));
        }
    });
    planned
}

/// Whether the node accepts pods, now or once it is ready.
fn is_open(node: &Node) -> bool {
    node.metadata.deletion_timestamp.is_none()
        && !crate::nodes::taints(node).iter().any(|it| it.key == taint::DISRUPTED)
}

/// Performs the writes.
async fn perform(deps: &Nominations, writes: Vec<NominationWrite>) -> Round {
    let mut answers = futures::stream::iter(writes)
        .map(|pending| async move {
            let answer = write(deps, &pending).await;
            (pending, answer)
        })
        .buffer_unordered(CONCURRENT_WRITES);
    let mut round = Round::default();
    while let Some((NominationWrite { pod, step }, answer)) = answers.next().await {
        let result = answer.label(match step {
            Step::Nominate(_) => "nominated",
            Step::TakeBack => "taken_back",
        });
        deps.metrics.nominations.with_label_values(&[result]).inc();
        tracing::debug!(pod = pods::full_name(&pod), ?step, result, "nomination");
        round.note(&pod, answer);
    }
    round
}

/// Server-side apply. The API server rejects the write if another manager owns the field or the pod changed.
async fn write(deps: &Nominations, NominationWrite { pod, step }: &NominationWrite) -> WriteResult {
    let (name, metadata) = (pod.name_any(), &pod.metadata);
    let namespace = metadata.namespace.clone().unwrap_or_default();
    let status = step.node().map_or_else(|| json!({}), |node| json!({ "nominatedNodeName": node }));
    let config = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": metadata.uid, "resourceVersion": metadata.resource_version},
        "status": status,
    });
    WriteResult::of(deps.writes.nominate(pod, NOMINATION_FIELD_MANAGER, &config).await)
}
