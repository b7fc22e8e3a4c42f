//! What our own view says of a node that is to be removed: its pods, what they ask for, and where they are to go.

use crate::ledger::RemovalFacts;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use plimsoll_api::NodeClaim;
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::names::taint;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{DisruptionReason, Node as NodeView, NodeState, Pod as PodView, PodState, Snapshot};
use plimsoll_model::time::Timestamp;
use plimsoll_snapshot::{Extra, Objects};
use std::collections::{BTreeMap, BTreeSet};

/// A node and those around it, as far as a removal rests on them.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The node's name.
    pub node: NodeName,
    /// It and the nodes that take its pods.
    pub nodes: Vec<Node>,
    /// Their claims.
    pub claims: Vec<NodeClaim>,
    /// Their pods.
    pub pods: Vec<Pod>,
    /// All budgets.
    pub budgets: Vec<PodDisruptionBudget>,
    /// The time.
    pub now: Timestamp,
}

/// What keeps a node where it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// It is not there, or not in service.
    #[error("node {0} is not in service")]
    NotInService(NodeName),
    /// It says that it must not be disrupted.
    #[error("the node must not be disrupted")]
    ProtectedNode,
    /// A pod says that it must not be disrupted.
    #[error("pod {1} must not be disrupted")]
    ProtectedPod(PodUid, String),
    /// A pod came that the plan did not know.
    #[error("pod {1} came after the plan")]
    NewPod(PodUid, String),
    /// A pod cannot be read, so nobody knows what it needs.
    #[error("{0}")]
    Unreadable(String),
}

/// What is seen of a removal's surroundings.
#[derive(Debug, Clone)]
pub struct View {
    snapshot: Snapshot,
    problems: Vec<String>,
    node: NodeName,
    now: Timestamp,
}

impl View {
    /// Reads the objects.
    #[must_use]
    pub fn of(surroundings: Surroundings) -> Self {
        let Surroundings { node, nodes, claims, pods, budgets, now } = surroundings;
        let objects =
            Objects { nodes, node_claims: claims, pods, pod_disruption_budgets: budgets, ..Objects::default() };
        let (snapshot, problems) = plimsoll_snapshot::build(&objects, &Extra { now, ..Extra::default() });
        let problems = problems.iter().filter(|problem| problem.left_out).map(ToString::to_string).collect();
        Self { snapshot, problems, node, now }
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

    /// What stands against taking the node away, if its pods are to be at most `known`. Against a forced removal nothing does: its drain
    /// waits for what it must, and pods that the plan did not know are planned for once the node is on its way out.
    ///
    /// # Errors
    /// The first obstacle.
    pub fn check(&self, known: &BTreeSet<PodUid>, reason: DisruptionReason) -> Result<(), Obstacle> {
        if reason.is_forced() {
            return Ok(());
        }
        let node = self.node(&self.node).filter(|node| node.state == NodeState::Initialized);
        let node = node.ok_or_else(|| Obstacle::NotInService(self.node.clone()))?;
        if let Some(problem) = self.problems.first() {
            return Err(Obstacle::Unreadable(problem.clone()));
        }
        if node.do_not_disrupt {
            return Err(Obstacle::ProtectedNode);
        }
        // A grace period bounds what a pod can hold up; then drift need not wait for it.
        let bounded = reason == DisruptionReason::Drifted && node.termination_grace_period.is_some();
        for pod in self.pods_on(&self.node) {
            let protected = !pod.terminating && pod.do_not_disrupt_until.is_some_and(|until| until > self.now);
            if protected && !bounded {
                return Err(Obstacle::ProtectedPod(pod.uid.clone(), pod.full_name()));
            }
            if pod.moves() && !known.contains(&pod.uid) {
                return Err(Obstacle::NewPod(pod.uid.clone(), pod.full_name()));
            }
        }
        Ok(())
    }

    /// What pods ask for that are to go to other nodes.
    #[must_use]
    pub fn moves(&self, to: &BTreeMap<NodeName, BTreeSet<PodUid>>) -> BTreeMap<NodeName, Resources> {
        let asked = |pods: &BTreeSet<PodUid>| {
            let mut sum = Resources::new();
            for pod in self.pods_on(&self.node).filter(|pod| pods.contains(&pod.uid)) {
                sum.add(&self.requests(pod));
            }
            sum
        };
        to.iter().map(|(node, pods)| (node.clone(), asked(pods))).collect()
    }

    /// What the ledger has to know. `moves` is what goes where.
    #[must_use]
    pub fn facts(&self, claim: &str, moves: BTreeMap<NodeName, Resources>) -> RemovalFacts {
        let mut evictions: BTreeMap<String, u32> = BTreeMap::new();
        let leaving = self.pods_on(&self.node).filter(|pod| !pod.stays_with_node && !pod.terminating);
        for budget in leaving.flat_map(|pod| &pod.pod_disruption_budgets) {
            *evictions.entry(budget.clone()).or_default() += 1;
        }
        let budgets = self.snapshot.pod_disruption_budgets.iter();
        let allowed = budgets.filter(|budget| evictions.contains_key(&budget.name));
        let disruptions_allowed =
            allowed.map(|it| (it.name.clone(), u32::try_from(it.disruptions_allowed).unwrap_or(0))).collect();
        let free = moves.keys().filter_map(|name| Some((name.clone(), self.free(name)?))).collect();
        let bounded = self.node(&self.node).is_some_and(|node| node.termination_grace_period.is_some());
        RemovalFacts { claim: claim.to_owned(), evictions, disruptions_allowed, moves, free, bounded, now: self.now }
    }

    /// What a node has free; `None` if it takes no pods.
    fn free(&self, name: &NodeName) -> Option<Resources> {
        let takes_pods = |node: &&NodeView| {
            let closed = node.taints.iter().any(|it| it.key == taint::DISRUPTED);
            node.ready && !node.cordoned && !node.deleting && !closed
        };
        let node = self.node(name).filter(takes_pods)?;
        let mut free = node.allocatable.clone();
        for pod in self.pods_on(name) {
            free.subtract(&self.requests(pod));
        }
        Some(free)
    }
}

#[cfg(test)]
mod tests;
