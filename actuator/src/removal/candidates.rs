//! The removals to look at, and what a look depends on.

use super::Removals;
use crate::controller_loop::{Candidate, version_of};
use crate::ledger::Removal;
use crate::nodes::{provider_id, taints};
use crate::termination::is_disrupted;
use kube::ResourceExt;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::annotation;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Claims with a command, written or only admitted, and claims whose node has the disruption taint without a command.
/// Of deleted claims, those whose removal has no outcome yet.
///
/// A removal is looked at again once its claim, its Node, a destination, the pods there, their PodDisruptionBudgets or
/// a replacement changes, and at each poll. Hundreds of nodes may wait for their replacements: a look at all of them
/// after each change of any object would take all of a core.
pub(super) fn candidates(deps: &Removals) -> Vec<Candidate<Arc<NodeClaim>>> {
    let nodes = deps.stores.nodes.state();
    let stray: BTreeSet<&str> = nodes
        .iter()
        .filter(|node| node.metadata.deletion_timestamp.is_none() && is_disrupted(taints(node)))
        .filter_map(|node| provider_id(node))
        .collect();
    let admitted: BTreeMap<String, Removal> = deps
        .ledger
        .read(|ledger| ledger.removals().map(|(claim, removal)| (claim.to_owned(), removal.clone())).collect());
    let is_concerned = |claim: &&Arc<NodeClaim>| {
        let command = claim.metadata.name.as_ref().and_then(|name| admitted.get(name));
        if claim.metadata.deletion_timestamp.is_some() {
            return command.is_some_and(|command| deps.outcomes.is_open(&command.action));
        }
        command.is_some()
            || claim.annotations().contains_key(annotation::REMOVAL)
            || claim.provider_id().is_some_and(|id| stray.contains(id))
    };
    let all = deps.stores.claims.state();
    let concerned: Vec<&Arc<NodeClaim>> = all.iter().filter(is_concerned).collect();
    if concerned.is_empty() {
        return Vec::new();
    }
    let versions = Versions::new(deps, &all, &admitted);
    let candidate = |claim: &Arc<NodeClaim>| {
        let key = claim.name_any();
        // Only a command that the ledger has says what the removal depends on.
        let version = admitted.get(&key).map(|command| versions.of(deps, claim, command));
        Candidate { key, version, input: Arc::clone(claim) }
    };
    concerned.into_iter().map(candidate).collect()
}

/// Versions of the objects that removals depend on.
struct Versions {
    /// Nodes of removals and destinations, each with its pods.
    nodes: BTreeMap<String, u64>,
    /// Claims by the action that launched them.
    replacements: BTreeMap<String, Option<String>>,
    /// PodDisruptionBudgets by namespace and name.
    budgets: BTreeMap<String, Option<String>>,
}

impl Versions {
    fn new(deps: &Removals, claims: &[Arc<NodeClaim>], admitted: &BTreeMap<String, Removal>) -> Self {
        let names: BTreeSet<&str> = admitted
            .values()
            .flat_map(|command| command.rooms.keys().chain([&command.node]))
            .map(|name| name.as_str())
            .collect();
        let of_node = |name: &str| {
            let (node, pods) = (deps.stores.nodes.get(name), deps.stores.pods.on_node(name));
            let node = node.as_ref().map(|node| &node.metadata.resource_version);
            let pods: Vec<_> = pods.iter().map(|pod| (&pod.metadata.uid, &pod.metadata.resource_version)).collect();
            (name.to_owned(), version_of(&(node, pods)))
        };
        let nodes = names.into_iter().map(of_node).collect();
        let actions: BTreeSet<&str> =
            admitted.values().flat_map(|command| &command.replacements).map(|action| action.0.as_str()).collect();
        let of_action = |claim: &Arc<NodeClaim>| {
            let action = claim.annotations().get(annotation::ACTION_ID)?;
            actions.contains(action.as_str()).then(|| (action.clone(), claim.metadata.resource_version.clone()))
        };
        let budgets = deps.stores.budgets.state();
        let budgets = budgets.iter().map(|budget| {
            let name = format!("{}/{}", budget.namespace().unwrap_or_default(), budget.name_any());
            (name, budget.metadata.resource_version.clone())
        });
        Self { budgets: budgets.collect(), nodes, replacements: claims.iter().filter_map(of_action).collect() }
    }

    fn of(&self, deps: &Removals, claim: &NodeClaim, command: &Removal) -> u64 {
        let nodes = command.rooms.keys().chain([&command.node]);
        let nodes: Vec<_> = nodes.map(|node| self.nodes.get(node.as_str())).collect();
        let budgets: Vec<_> = command.evictions.keys().map(|budget| self.budgets.get(budget)).collect();
        let is_under_way = |action| deps.ledger.read(|ledger| ledger.is_under_way(action));
        let replacements = command.replacements.iter();
        let replacements: Vec<_> =
            replacements.map(|action| (self.replacements.get(&action.0), is_under_way(action))).collect();
        version_of(&(&claim.metadata.resource_version, nodes, budgets, replacements))
    }
}
