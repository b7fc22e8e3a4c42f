//! Tells kube-scheduler which node the plan has for a pod: `status.nominatedNodeName` (KEP-5278).
//!
//! kube-scheduler tries that node first and keeps its room from pods of the same or a lower priority. Without it, pods that come
//! in another order than the plan's take each other's room. It is a hint: nothing waits for it, and what cannot be written is left.
//! A nomination of ours stands only as long as the plan does: left behind, it would keep its pod from being planned again.

mod step;
#[cfg(test)]
mod tests;

use crate::clock::Timestamped;
use crate::fencing::{CLUSTER_CALL, Fence};
use crate::io::Writes;
use crate::launch::record::annotation as read;
use crate::ledger::handle::LedgerHandle;
use crate::metrics::ActuatorMetrics;
use crate::pods;
use crate::settings::Settings;
use crate::state::nominations::Placed;
use crate::stores::{Kind, Stores, provider_id};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use plimsoll_model::identity::PodUid;
use plimsoll_model::names::{annotation, taint};
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_runtime::clock::Clock;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use step::Step;
use tokio_util::sync::CancellationToken;

/// Owns the field in `metadata.managedFields`: by it our nominations are told from those of kube-scheduler.
pub const FIELD_MANAGER: &str = "plimsoll-nomination";

/// Changes come in bursts and are looked at together. A Node is not Ready for seconds after it is there, so this is early enough.
const COALESCE: Duration = Duration::from_millis(100);
/// Everything is looked at anyway so often: reservations run out by time alone.
const TICK: Duration = Duration::from_secs(10);
/// Writes under way at once: they wait for the API server only.
const AT_ONCE: usize = 16;
/// Writes in one round: what comes next is worked out anew, since much of it may be over by then.
const PER_ROUND: usize = 200;
/// Times that one pod is nominated to one node. kube-scheduler takes a nomination back when it tries the pod before the node is
/// ready, with pauses of up to 10 s: this lasts for the start of a node. A pod that is refused beyond it does not fit there.
const MAX_TRIES: u32 = 10;
/// A write whose effect is not seen is made again after so long.
const AGAIN: Millis = Millis::from_seconds(10);

/// Nominates pods to the nodes that plans have for them.
#[derive(Clone)]
pub struct Nominations {
    /// Cluster as the watches show it.
    pub stores: Stores,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Where plans place pods, besides launches.
    pub placed: Placed,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Settings of the installation.
    pub settings: Arc<Settings>,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// The right to act.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}

/// What was written last about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tried {
    /// The pod's version that it was written on.
    version: Option<String>,
    at: Timestamp,
    node: Option<String>,
    /// Times that this node was written.
    count: u32,
}

/// One write.
#[derive(Debug)]
struct Write {
    pod: Arc<Pod>,
    step: Step,
}

/// What the API server said.
enum Answer {
    Done,
    /// Somebody else was faster: what is seen next decides.
    Overtaken,
    /// There is no right to it.
    Forbidden(String),
    Failed(String),
}

/// Nominates until `stop`, or until it turns out that there is no right to.
pub(crate) async fn run(deps: Nominations, stop: CancellationToken) {
    let nominate = async {
        deps.stores.wait_ready().await;
        let mut changes = deps.stores.changes(&[Kind::Pod, Kind::Node, Kind::NodeClaim]);
        let (mut ledger, mut placed) = (deps.ledger.subscribe(), deps.placed.subscribe());
        let mut nominator = Nominator::default();
        loop {
            ledger.mark_unchanged();
            placed.mark_unchanged();
            let allowed = deps.fence.check(CLUSTER_CALL).is_ok();
            let writes = if allowed { nominator.look(&deps) } else { Vec::new() };
            let more = writes.len() == PER_ROUND;
            if let Err(problem) = carry_out(&deps, writes).await {
                tracing::warn!(
                    problem,
                    "the right to patch pods/status is missing: pods are not nominated to the nodes that the plan has for them"
                );
                return;
            }
            if !more {
                tokio::select! {
                    biased;
                    () = changes.next() => {}
                    () = ledger.changed() => {}
                    () = placed.changed() => {}
                    () = tokio::time::sleep(TICK) => {}
                }
                tokio::time::sleep(COALESCE).await;
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = nominate => {}
    }
}

/// Remembers what was tried.
#[derive(Debug, Default)]
struct Nominator {
    tried: BTreeMap<PodUid, Tried>,
}

impl Nominator {
    /// What is to be written now: what is taken back first, then node by node.
    fn look(&mut self, deps: &Nominations) -> Vec<Write> {
        let now = deps.clock.timestamp();
        let all = deps.stores.pods.state();
        let waiting: BTreeMap<PodUid, Arc<Pod>> =
            all.into_iter().filter(|pod| step::waits(pod)).map(|pod| (PodUid(pods::uid(&pod)), pod)).collect();
        deps.placed.retain(|uid| waiting.contains_key(uid), now);
        self.tried.retain(|uid, _| waiting.contains_key(uid));
        if waiting.is_empty() {
            return Vec::new();
        }
        // Also where nothing is to be nominated: what an earlier start with other options nominated is taken back.
        let wanted = if deps.settings.nominate_nodes { wanted(deps, now) } else { BTreeMap::new() };
        let nodes = deps.stores.nodes.state();
        self.due(&waiting, &step::sparing(&waiting, &wanted, &nodes), now)
    }

    fn due(
        &mut self,
        waiting: &BTreeMap<PodUid, Arc<Pod>>,
        wanted: &BTreeMap<PodUid, String>,
        now: Timestamp,
    ) -> Vec<Write> {
        let mut writes: Vec<Write> = Vec::new();
        for (uid, pod) in waiting {
            let Some(step) = step::of(pod, wanted.get(uid).map(String::as_str)) else { continue };
            if self.may(uid, pod, &step, now) {
                writes.push(Write { pod: Arc::clone(pod), step });
            }
        }
        writes.sort_by_cached_key(|write| (write.step.clone(), pods::full_name(&write.pod)));
        writes.truncate(PER_ROUND);
        for write in &writes {
            self.note(write, now);
        }
        writes
    }

    fn may(&self, uid: &PodUid, pod: &Pod, step: &Step, now: Timestamp) -> bool {
        let Some(tried) = self.tried.get(uid) else { return true };
        let fresh = tried.version != pod.metadata.resource_version || tried.at.plus(AGAIN) <= now;
        let worn = step.node().is_some() && tried.node.as_deref() == step.node() && tried.count >= MAX_TRIES;
        fresh && !worn
    }

    fn note(&mut self, write: &Write, now: Timestamp) {
        let node = write.step.node().map(str::to_owned);
        let uid = PodUid(pods::uid(&write.pod));
        // Taking back does not begin a new count: it is the same node that comes again.
        let known = self.tried.get(&uid).map(|tried| (tried.node.clone(), tried.count));
        let (node, count) = match (known, node) {
            (Some((known, count)), Some(node)) if known.as_ref() == Some(&node) => (known, count + 1),
            (Some((known, count)), None) => (known, count),
            (_, node) => (node, 1),
        };
        let version = write.pod.metadata.resource_version.clone();
        self.tried.insert(uid, Tried { version, at: now, node, count });
    }
}

/// The node of each pod that some plan has for it: of launches once their Node is there, and of placements.
fn wanted(deps: &Nominations, now: Timestamp) -> BTreeMap<PodUid, String> {
    let nodes = deps.stores.nodes.state();
    let open: BTreeSet<&str> =
        nodes.iter().filter(|node| is_open(node)).filter_map(|node| node.metadata.name.as_deref()).collect();
    let (by_provider, mut by_claim, mut leaving) = (deps.stores.nodes_by_provider(), BTreeMap::new(), BTreeSet::new());
    for claim in deps.stores.claims.state() {
        let nodes = provider_id(&claim).and_then(|id| by_provider.get(id)).into_iter().flatten();
        let mut names = nodes.filter_map(|node| node.metadata.name.clone());
        let marked = [annotation::REMOVAL, annotation::INTERRUPTED].iter().any(|key| read(&claim, key).is_some());
        if marked || claim.metadata.deletion_timestamp.is_some() {
            leaving.extend(names);
        } else if let Some(name) = names.find(|name| open.contains(name.as_str())) {
            by_claim.insert(claim.name_any(), name);
        }
    }
    let of_place = |name: &str| match by_claim.get(name) {
        Some(node) => Some(node.clone()),
        None => open.get(name).filter(|name| !leaving.contains(**name)).map(|name| (*name).to_owned()),
    };
    let mut wanted = deps.placed.take(of_place, now);
    // What a launch reserves comes before what some plan placed in passing.
    deps.ledger.read(|ledger| {
        for claim in ledger.claims().filter(|claim| !claim.deleting) {
            let Some(node) = by_claim.get(claim.name) else { continue };
            wanted.extend(claim.pods(now).map(|pod| (pod.clone(), node.clone())));
        }
    });
    wanted
}

/// Whether pods may come to the node, now or once it is up.
fn is_open(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    node.metadata.deletion_timestamp.is_none() && !taints.iter().any(|it| it.key == taint::DISRUPTED)
}

/// Writes them.
///
/// # Errors
/// There is no right to.
async fn carry_out(deps: &Nominations, writes: Vec<Write>) -> Result<(), String> {
    let mut answers = futures::stream::iter(writes)
        .map(|it| async move {
            let answer = write(deps, &it).await;
            (it, answer)
        })
        .buffer_unordered(AT_ONCE);
    let (mut failed, mut example) = (0_u32, String::new());
    while let Some((Write { pod, step }, answer)) = answers.next().await {
        let result = match (&answer, &step) {
            (Answer::Done, Step::Nominate(_)) => "nominated",
            (Answer::Done, Step::TakeBack) => "taken_back",
            (Answer::Overtaken, _) => "overtaken",
            (Answer::Forbidden(_), _) => "forbidden",
            (Answer::Failed(_), _) => "failed",
        };
        deps.metrics.nominations.with_label_values(&[result]).inc();
        tracing::debug!(pod = pods::full_name(&pod), ?step, result, "nomination");
        match answer {
            Answer::Forbidden(problem) => return Err(problem),
            Answer::Failed(problem) => (failed, example) = (failed + 1, problem),
            Answer::Done | Answer::Overtaken => {}
        }
    }
    if failed > 0 {
        tracing::warn!(failed, example, "nominations were not written; kube-scheduler goes by its own order");
    }
    Ok(())
}

/// An apply: the API server itself refuses it where the field is another's, or the pod is not as it was seen.
async fn write(deps: &Nominations, Write { pod, step }: &Write) -> Answer {
    let (name, metadata) = (pod.name_any(), &pod.metadata);
    let namespace = metadata.namespace.clone().unwrap_or_default();
    let status = step.node().map_or_else(|| json!({}), |node| json!({ "nominatedNodeName": node }));
    let config = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": metadata.uid, "resourceVersion": metadata.resource_version},
        "status": status,
    });
    match deps.writes.nominate(pod, FIELD_MANAGER, &config).await {
        Ok(Ok(_)) => Answer::Done,
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Answer::Overtaken,
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => Answer::Forbidden(status.message.clone()),
        Ok(Err(error)) => Answer::Failed(error.to_string()),
        Err(error) => Answer::Failed(error.to_string()),
    }
}
