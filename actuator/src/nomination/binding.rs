//! Binds pods to their planned nodes (`--bind-pods`), as soon as the nodes accept them. Without it, kube-scheduler
//! binds them, after its own back-off.
//!
//! A pod is bound only where kube-scheduler could bind it now: each round replays kube-scheduler's filters on the watch
//! cache. The API server binds a pod at most once; whoever comes second gets a conflict, which is an answer and no
//! error. Pods with volumes or resource claims are left to kube-scheduler, which prepares these before it binds, pods
//! of a scheduling group too, since it binds all of a group or none, and pods of other schedulers to these.

use super::rounds::{self, CONCURRENT_WRITES, Kind, PER_ROUND, Round, WriteResult};
use super::{Nominations, is_open, planned_nodes, step};
use crate::clock::Timestamped;
use crate::namespace_selectors;
use crate::nodes;
use crate::pods;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::{Pod, needs_claim};
use plimsoll_kubesched::{ClusterState, Nominated};
use plimsoll_model::identity::PodUid;
use plimsoll_model::names::taint;
use plimsoll_model::snapshot::SnapshotIndex;
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_snapshot::{Extra, Objects, Source};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What this controller writes.
const KIND: Kind = Kind { name: "bindings", right: "create of pods/binding" };
/// kube-scheduler's name in pods.
const KUBE_SCHEDULER: &str = "default-scheduler";
/// Delay before a binding without a visible effect is repeated.
const RETRY_DELAY: Millis = Millis::from_seconds(10);

/// A pod and its planned node.
#[derive(Debug, Clone)]
struct Binding {
    pod: Arc<Pod>,
    node: String,
}

/// Binds until `stop`.
pub(crate) async fn run(deps: Nominations, stop: CancellationToken) {
    if !deps.settings.bind_pods {
        return;
    }
    let mut sent = Sent::default();
    rounds::run(&deps, &stop, KIND, || sent.due(&deps), |bindings| perform(&deps, bindings)).await;
}

/// Recent bindings, which the watch cache may not show yet: the node of each pod, and when it was sent.
#[derive(Debug, Default)]
struct Sent(BTreeMap<PodUid, (String, Timestamp)>);

impl Sent {
    /// The bindings that are due, in order of nodes and pods.
    fn due(&mut self, deps: &Nominations) -> Vec<Binding> {
        let now = deps.clock.timestamp();
        self.0.retain(|_, (_, at)| at.plus(RETRY_DELAY) > now);
        if !deps.stores.pods.unbound().iter().any(|pod| is_bindable(pod)) {
            return Vec::new();
        }
        let pods = deps.stores.pods.state();
        let nodes = deps.stores.nodes.state();
        let bindings = self.bindable(&pods, &nodes, &planned_nodes(deps, now), now);
        self.0.extend(bindings.iter().map(|it| (uid(&it.pod), (it.node.clone(), now))));
        bindings
    }

    /// The planned pods that kube-scheduler could bind to their nodes now, one after another.
    fn bindable(
        &self,
        pods: &[Arc<Pod>],
        nodes: &[Arc<Node>],
        planned: &BTreeMap<PodUid, String>,
        now: Timestamp,
    ) -> Vec<Binding> {
        let open = nodes.iter().filter(|node| accepts_pods(node));
        let open: BTreeMap<&str, &Node> =
            open.filter_map(|node| Some((node.metadata.name.as_deref()?, &**node))).collect();
        let mut candidates: BTreeMap<PodUid, Binding> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| is_bindable(pod)) {
            let uid = uid(pod);
            let node = planned.get(&uid).filter(|_| !self.0.contains_key(&uid));
            let Some((name, node)) = node.and_then(|name| open.get_key_value(name.as_str())) else { continue };
            // Another node may have been chosen for the pod, such as one where kube-scheduler preempts pods.
            let is_elsewhere = pod.nominated_node().is_some_and(|nominated| nominated != *name);
            if !is_elsewhere && tolerates(pod, node) {
                candidates.insert(uid, Binding { pod: Arc::clone(pod), node: (*name).to_owned() });
            }
        }
        if candidates.is_empty() {
            return Vec::new();
        }
        let mut admitted = self.admitted(pods, nodes, candidates, now);
        admitted.sort_by_cached_key(|binding| (binding.node.clone(), pods::full_name(&binding.pod)));
        admitted.truncate(PER_ROUND);
        admitted
    }

    /// The candidates that pass kube-scheduler's filters beside the bound pods, the pods sent before, and the
    /// candidates before them.
    fn admitted(
        &self,
        pods: &[Arc<Pod>],
        nodes: &[Arc<Node>],
        mut candidates: BTreeMap<PodUid, Binding>,
        now: Timestamp,
    ) -> Vec<Binding> {
        // Nominations of these pods must not count beside the pods themselves.
        let pending = |pod: &Arc<Pod>| {
            let (uid, mut pod) = (uid(pod), Arc::clone(pod));
            let is_ours = candidates.contains_key(&uid) || self.0.contains_key(&uid);
            if is_ours {
                Arc::make_mut(&mut pod).status.nominated_node_name = None;
            }
            namespace_selectors::widen_anti_affinity(&mut pod);
            pod
        };
        let objects = Objects {
            nodes: nodes.iter().map(|node| (**node).clone()).collect(),
            pods: pods.iter().map(pending).collect(),
            ..Objects::default()
        };
        // Every unbound pod counts as pending, also while kube-scheduler has not marked it again.
        let extra = Extra { now, source: Source::Files, ..Extra::default() };
        let (snapshot, _) = plimsoll_snapshot::build(&objects, &extra);
        let index = SnapshotIndex::new(&snapshot);
        let mut state = ClusterState::new(&snapshot, &index).with_terminating_pods(&snapshot, &index);
        let places: BTreeMap<String, usize> =
            (0..state.nodes()).map(|node| (state.node_name(node).0.clone(), node)).collect();
        let slots = state.pods().to_vec();
        for slot in &slots {
            let sent = self.0.get(&slot.uid).and_then(|(node, _)| places.get(node));
            sent.into_iter().for_each(|node| state.bind(slot.shape, *node));
        }
        let mut admitted = Vec::new();
        for slot in &slots {
            let Some(binding) = candidates.remove(&slot.uid) else { continue };
            let Some(node) = places.get(&binding.node).copied() else { continue };
            if state.filter(slot.shape, node, &Nominated::default()).is_ok() {
                state.bind(slot.shape, node);
                admitted.push(binding);
            }
        }
        admitted
    }
}

fn uid(pod: &Pod) -> PodUid {
    PodUid(pods::uid(pod))
}

/// Whether nothing but a node is missing to a pod.
fn is_bindable(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let scheduler = spec.scheduler_name.as_deref().filter(|name| !name.is_empty());
    step::is_waiting(pod)
        && scheduler.is_none_or(|name| name == KUBE_SCHEDULER)
        && !namespace_selectors::needs_namespaces(spec)
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
        && spec.resource_claims.as_ref().is_none_or(Vec::is_empty)
        && spec.scheduling_group.is_none()
        && !spec.volumes.iter().flatten().any(needs_claim)
}

/// Whether the node is in service and not cordoned. Taints are compared with each pod.
fn accepts_pods(node: &Node) -> bool {
    let spec = node.spec.as_ref();
    let is_cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or(false);
    let is_registered = !nodes::taints(node).iter().any(|it| it.key == taint::UNREGISTERED);
    is_open(node) && nodes::is_ready(node) && !is_cordoned && is_registered
}

/// Whether the pod tolerates all taints of the node, startup taints included.
fn tolerates(pod: &Pod, node: &Node) -> bool {
    let mut taints = nodes::taints(node).iter().filter(|it| matches!(it.effect.as_str(), "NoSchedule" | "NoExecute"));
    taints.all(|taint| pod.tolerates(taint))
}

/// Sends the bindings.
async fn perform(deps: &Nominations, bindings: Vec<Binding>) -> Round {
    let mut answers = futures::stream::iter(bindings)
        .map(|binding| async move {
            let answer = WriteResult::of(deps.writes.bind(&binding.pod, &binding.node).await);
            (binding, answer)
        })
        .buffer_unordered(CONCURRENT_WRITES);
    let mut round = Round::default();
    while let Some((Binding { pod, node }, answer)) = answers.next().await {
        let result = answer.label("bound");
        deps.metrics.bindings.with_label_values(&[result]).inc();
        tracing::debug!(pod = pods::full_name(&pod), node, result, "binding");
        round.note(&pod, answer);
    }
    round
}

#[cfg(test)]
mod tests;
