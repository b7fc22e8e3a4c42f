//! Determines whether a pod is bound, reserved or pending, and what protects it there.

use crate::pod_protection::PodProtection;
use crate::{Extra, Source};
use plimsoll_api::NodeClaim;
use plimsoll_model::execution::ClaimState;
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::snapshot::{Node, PodState};
use std::collections::BTreeMap;

/// Nodes by name, the node that each reserved pod waits for, and what protects pods on their nodes.
pub(crate) struct PodStates<'a> {
    nodes: BTreeMap<&'a str, &'a Node>,
    reserved: BTreeMap<&'a PodUid, &'a NodeName>,
    /// Nodes whose pods are not fully protected.
    protections: BTreeMap<&'a NodeName, PodProtection>,
}

/// What the states of pods depend on besides the pods.
#[derive(Debug)]
pub(crate) struct StateContext {
    source: Source,
    /// Nodes, and whether each is being removed.
    nodes: BTreeMap<NodeName, bool>,
    reserved: BTreeMap<PodUid, NodeName>,
    protections: BTreeMap<NodeName, PodProtection>,
}

impl<'a> PodStates<'a> {
    pub(crate) fn new(nodes: &'a [Node], claims: &[NodeClaim], extra: &'a Extra) -> Self {
        let by_name: BTreeMap<&str, &Node> = nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        let by_claim: BTreeMap<&str, &Node> =
            nodes.iter().filter_map(|node| Some((node.node_claim.as_deref()?, node))).collect();
        let mut reserved: BTreeMap<&PodUid, &NodeName> = BTreeMap::new();
        for (pod, name) in &extra.reserved_pods {
            let node = by_name.get(name.as_str()).or_else(|| by_claim.get(name.as_str()));
            reserved.insert(pod, node.map_or(name, |node| &node.name));
        }
        for claim in extra.in_flight.iter().filter(|claim| claim.state != ClaimState::Terminating) {
            let Some(node) = by_claim.get(claim.name.as_str()) else { continue };
            reserved.extend(claim.pods.iter().map(|pod| (&pod.uid, &node.name)));
        }
        let claims: BTreeMap<&str, &NodeClaim> =
            claims.iter().filter_map(|claim| Some((claim.metadata.name.as_deref()?, claim))).collect();
        let protection = |node: &'a Node| {
            let claim = node.node_claim.as_deref().and_then(|name| claims.get(name).copied());
            (&node.name, PodProtection::of(node, claim, extra.now))
        };
        let protections = nodes.iter().map(protection).filter(|(_, one)| !one.is_full()).collect();
        Self { nodes: by_name, reserved, protections }
    }

    pub(crate) fn context(&self, source: Source) -> StateContext {
        let reserved = self.reserved.iter().map(|(pod, node)| (PodUid::clone(pod), NodeName::clone(node)));
        let nodes = self.nodes.values().map(|node| (node.name.clone(), node.deleting));
        let protections = self.protections.iter().map(|(node, one)| (NodeName::clone(node), *one));
        StateContext {
            source,
            nodes: nodes.collect(),
            reserved: reserved.collect(),
            protections: protections.collect(),
        }
    }

    /// Whether `context` gives each pod the same state and protection.
    pub(crate) fn is_same(&self, context: &StateContext, source: Source) -> bool {
        let nodes = self.nodes.values().map(|node| (&node.name, &node.deleting));
        context.source == source
            && context.nodes.iter().eq(nodes)
            && context.reserved.iter().eq(self.reserved.iter().map(|(pod, node)| (*pod, *node)))
            && context.protections.iter().eq(self.protections.iter().map(|(node, one)| (*node, one)))
    }

    /// What protects a pod in this state.
    pub(crate) fn protection(&self, state: &PodState) -> PodProtection {
        match state {
            PodState::Bound(node) => self.protections.get(node).copied().unwrap_or_default(),
            PodState::Reserved(_) | PodState::Pending => PodProtection::default(),
        }
    }

    /// State of a pod on `node`. If the node is being removed and the pod has another reserved node, the pod counts as
    /// reserved there. A terminating pod does not: its replacement needs the reserved capacity.
    pub(crate) fn bound(&self, uid: &PodUid, node: &str, ends: bool) -> Result<PodState, String> {
        let Some(here) = self.nodes.get(node) else {
            return Err(format!("it runs on node {node:?}, which is not known"));
        };
        match self.reserved.get(uid) {
            Some(next) if !ends && here.deleting && next.as_str() != node && self.nodes.contains_key(next.as_str()) => {
                Ok(PodState::Reserved(NodeName::clone(next)))
            }
            _ => Ok(PodState::Bound(here.name.clone())),
        }
    }

    /// State of an unbound pod that has a reserved node.
    pub(crate) fn reserved(&self, uid: &PodUid) -> Option<Result<PodState, String>> {
        let node = self.reserved.get(uid)?;
        Some(if self.nodes.contains_key(node.as_str()) {
            Ok(PodState::Reserved(NodeName::clone(node)))
        } else {
            Err(format!("it waits for node {:?}, which is not known", node.as_str()))
        })
    }
}

#[cfg(test)]
mod tests;
