//! Facts about a node to be removed, from the watch cache: its pods, their requests, and their destinations.

use crate::ledger::RemovalFacts;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use plimsoll_api::{NillableDuration, NodeClaim, Pod};
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::names::taint;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{DisruptionReason, Node as NodeView, NodeState, Pod as PodView, PodState, Snapshot};
use plimsoll_model::time::Timestamp;
use plimsoll_snapshot::{Extra, Objects};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The objects that a removal rests on.
#[derive(Debug, Clone, Default)]
pub struct RemovalObjects {
    /// The name of the node to be removed.
    pub node: NodeName,
    /// The node and the destinations of its pods.
    pub nodes: Vec<Node>,
    /// Claims of these nodes.
    pub claims: Vec<NodeClaim>,
    /// Pods on these nodes.
    pub pods: Vec<Arc<Pod>>,
    /// All PodDisruptionBudgets. Shared, since most concern no pod on these nodes.
    pub budgets: Vec<Arc<PodDisruptionBudget>>,
    /// Requests of the pods that a launch reserved a destination for and that are not there yet.
    pub expected: BTreeMap<NodeName, Resources>,
    /// Zones that the cluster is shifted away from. Nodes there are not removed.
    pub shifted_zones: BTreeSet<String>,
    /// The current time.
    pub now: Timestamp,
}

impl RemovalObjects {
    /// The same with these pods of a live list, each in place of the same pod in the watch cache.
    #[must_use]
    pub fn with_live_pods(mut self, live: Vec<Pod>) -> Self {
        let listed: BTreeSet<Option<&str>> = live.iter().map(|pod| pod.metadata.uid.as_deref()).collect();
        self.pods.retain(|pod| !listed.contains(&pod.metadata.uid.as_deref()));
        self.pods.extend(live.into_iter().map(Arc::new));
        self
    }
}

/// Why a node cannot be removed now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The node does not exist or is not initialized.
    #[error("node {0} is not in service")]
    NotInService(NodeName),
    /// The node has the do-not-disrupt annotation, or its zone is shifted.
    #[error("the node must not be disrupted")]
    ProtectedNode,
    /// A pod has the do-not-disrupt annotation.
    #[error("pod {1} must not be disrupted")]
    ProtectedPod(PodUid, String),
    /// Several PodDisruptionBudgets cover a pod, so the Eviction API refuses it.
    #[error("pod {1} has several PodDisruptionBudgets")]
    SeveralBudgets(PodUid, String),
    /// A pod arrived that the plan did not know.
    #[error("pod {1} was bound after the plan was made")]
    NewPod(PodUid, String),
    /// A pod cannot be parsed, so its needs are unknown.
    #[error("{0}")]
    Unreadable(String),
}

/// The parsed objects of a removal.
#[derive(Debug, Clone)]
pub struct RemovalView {
    snapshot: Snapshot,
    problems: Vec<String>,
    node: NodeName,
    expected: BTreeMap<NodeName, Resources>,
    now: Timestamp,
}

impl RemovalView {
    /// Parses the objects.
    #[must_use]
    pub fn of(removal_objects: RemovalObjects) -> Self {
        let RemovalObjects { node, nodes, mut claims, pods, budgets, expected, shifted_zones, now } = removal_objects;
        // Once a node has expired, less protects its pods. A voluntary removal that began before must not evict them.
        claims.iter_mut().for_each(|claim| claim.spec.expire_after = Some(NillableDuration::never()));
        // A budget of another namespace says nothing, and must not block the removal if it cannot be read.
        let namespaces: BTreeSet<Option<&str>> = pods.iter().map(|pod| pod.metadata.namespace.as_deref()).collect();
        let concerns = |budget: &Arc<PodDisruptionBudget>| namespaces.contains(&budget.metadata.namespace.as_deref());
        let budgets = budgets.into_iter().filter(concerns).map(Arc::unwrap_or_clone).collect();
        let objects =
            Objects { nodes, node_claims: claims, pods, pod_disruption_budgets: budgets, ..Objects::default() };
        let (snapshot, problems) =
            plimsoll_snapshot::build(&objects, &Extra { now, shifted_zones, ..Extra::default() });
        let problems = problems.iter().filter(|problem| problem.left_out).map(ToString::to_string).collect();
        Self { snapshot, problems, node, expected, now }
    }

    fn node(&self, name: &NodeName) -> Option<&NodeView> {
        self.snapshot.nodes.iter().find(|node| node.name == *name)
    }

    fn pods_on(&self, name: &NodeName) -> impl Iterator<Item = &PodView> {
        self.snapshot.pods.iter().filter(move |pod| matches!(&pod.state, PodState::Bound(node) if node == name))
    }

    fn requests(&self, pod: &PodView) -> Resources {
        let shape = self.snapshot.shapes.iter().find(|shape| shape.id == pod.shape);
        shape.map(|shape| shape.requests.clone()).unwrap_or_default()
    }

    /// Checks that the node can be removed, and that its pods to reschedule are in `known`. A forced removal has no
    /// obstacles: its drain waits as necessary, and unknown pods are planned once the node is being deleted.
    ///
    /// # Errors
    /// The first obstacle.
    pub fn check(&self, planned: &BTreeSet<PodUid>, reason: DisruptionReason) -> Result<(), Obstacle> {
        if reason.is_forced() {
            return Ok(());
        }
        // The ledger decides whether a node that is not in service is surplus.
        let may_start = reason == DisruptionReason::Empty && planned.is_empty();
        let node = self.node(&self.node).filter(|node| may_start || node.state == NodeState::Initialized);
        let node = node.ok_or_else(|| Obstacle::NotInService(self.node.clone()))?;
        if let Some(problem) = self.problems.first() {
            return Err(Obstacle::Unreadable(problem.clone()));
        }
        if node.do_not_disrupt {
            return Err(Obstacle::ProtectedNode);
        }
        // A grace period bounds how long a pod can delay the drain, so drift need not wait for the pod.
        let bounded = reason == DisruptionReason::Drifted && node.termination_grace_period.is_some();
        for pod in self.pods_on(&self.node) {
            let protected = !pod.terminating && pod.do_not_disrupt_until.is_some_and(|until| until > self.now);
            if protected && !bounded {
                return Err(Obstacle::ProtectedPod(pod.uid.clone(), pod.full_name()));
            }
            if !pod.terminating && pod.pod_disruption_budgets.len() > 1 && !bounded {
                return Err(Obstacle::SeveralBudgets(pod.uid.clone(), pod.full_name()));
            }
            if pod.moves() && !planned.contains(&pod.uid) {
                return Err(Obstacle::NewPod(pod.uid.clone(), pod.full_name()));
            }
        }
        Ok(())
    }

    /// Requests of the pods that move, by destination node.
    #[must_use]
    pub fn moves(&self, to: &BTreeMap<NodeName, BTreeSet<PodUid>>) -> BTreeMap<NodeName, Resources> {
        let requests = |pods: &BTreeSet<PodUid>| {
            let mut sum = Resources::new();
            for pod in self.pods_on(&self.node).filter(|pod| pods.contains(&pod.uid)) {
                sum.add(&self.requests(pod));
            }
            sum
        };
        to.iter().map(|(node, pods)| (node.clone(), requests(pods))).collect()
    }

    /// Facts for the ledger. `moves` holds the requests by destination.
    #[must_use]
    pub fn facts(&self, claim: &str, moves: BTreeMap<NodeName, Resources>) -> RemovalFacts {
        let mut evictions: BTreeMap<String, u32> = BTreeMap::new();
        let leaving = self.pods_on(&self.node).filter(|pod| !pod.terminating);
        for budget in leaving.flat_map(|pod| &pod.pod_disruption_budgets) {
            *evictions.entry(budget.clone()).or_default() += 1;
        }
        let budgets = self.snapshot.pod_disruption_budgets.iter();
        let allowed = budgets.filter(|budget| evictions.contains_key(&budget.name));
        let disruptions_allowed = allowed
            .map(|budget| (budget.name.clone(), u32::try_from(budget.disruptions_allowed).unwrap_or(0)))
            .collect();
        let free = moves.keys().filter_map(|name| Some((name.clone(), self.free(name)?))).collect();
        let node = self.node(&self.node);
        let bounded = node.is_some_and(|node| node.termination_grace_period.is_some());
        RemovalFacts {
            claim: claim.to_owned(),
            evictions,
            disruptions_allowed,
            moves,
            free,
            bounded,
            starting: node.is_some_and(|node| node.state != NodeState::Initialized),
            now: self.now,
            ..RemovalFacts::default()
        }
    }

    /// Resources of a node that neither its pods nor the pods that it is reserved for use; `None` if it accepts no
    /// pods.
    fn free(&self, name: &NodeName) -> Option<Resources> {
        let takes_pods = |node: &&NodeView| {
            let closed = node.taints.iter().any(|taint| taint.key == taint::DISRUPTED);
            node.ready && !node.cordoned && !node.deleting && !closed
        };
        let node = self.node(name).filter(takes_pods)?;
        let mut free = node.allocatable.clone();
        for pod in self.pods_on(name) {
            free.subtract(&self.requests(pod));
        }
        self.expected.get(name).into_iter().for_each(|requests| free.subtract(requests));
        Some(free)
    }
}

#[cfg(test)]
mod tests;
