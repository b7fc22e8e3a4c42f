//! Converts removed nodes to terminations of a plan.

use super::Removal;
use crate::input::context::SolveContext;
use crate::place::{buffer_pods, launch};
use plimsoll_model::identity::{ActionId, ContentHasher, NodeName};
use plimsoll_model::index::Id;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, Placement, Termination};
use plimsoll_model::snapshot::{DisruptionReason, Node, Pod};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of postponed removals in a plan. Each costs the actuator two writes of a Node.
const MAX_POSTPONED: usize = 500;

#[derive(Debug, Clone)]
pub(crate) struct Removed<'a> {
    pub(crate) node: Id<Node>,
    pub(crate) reason: DisruptionReason,
    /// Price of the node; zero if the catalog does not have it.
    pub(crate) price: i64,
    /// Pods that must move. Virtual pods are not evicted, but the node stays until other nodes have capacity for them.
    pub(crate) pods: Vec<&'a Pod>,
}

/// One termination per removed node. `launches` are all launches of the plan.
pub(crate) fn terminations(context: &SolveContext<'_>, removal: &Removal<'_>, launches: &[Launch]) -> Vec<Termination> {
    // Few pods of a burst are from removed nodes.
    let leaving: BTreeSet<&str> =
        removal.removed.iter().flat_map(|one| &one.pods).map(|pod| pod.uid.as_str()).collect();
    let mut launch_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, launch) in launches.iter().enumerate().filter(|_| !leaving.is_empty()) {
        let pods = launch.pods.iter().map(|pod| pod.uid.as_str());
        launch_of.extend(pods.filter(|uid| leaving.contains(uid)).map(|uid| (uid, index)));
    }
    let mut node_of: BTreeMap<&str, &NodeName> = BTreeMap::new();
    for (node, pods) in &removal.existing {
        node_of.extend(pods.iter().map(|pod| (pod.uid.as_str(), &context.nodes[*node].node.name)));
    }
    // Per launch: the total price of the removed nodes whose pods it runs, and the number of these pods.
    let mut shared: BTreeMap<usize, (i64, usize)> = BTreeMap::new();
    let replacements = |one: &Removed<'_>| -> BTreeSet<usize> {
        one.pods.iter().filter_map(|pod| launch_of.get(pod.uid.as_str()).copied()).collect()
    };
    for one in &removal.removed {
        for index in replacements(one) {
            let sum = shared.entry(index).or_default();
            sum.0 += one.price;
            sum.1 += one.pods.iter().filter(|pod| launch_of.get(pod.uid.as_str()) == Some(&index)).count();
        }
    }
    let termination = |one: &Removed<'_>| {
        let mut replaced_by = replacements(one);
        let parts = replaced_by.iter().map(|index| part(launches, *index, one, shared.get(index)));
        let mut cost: MicroUsdPerHour = parts.sum();
        if let Some(successor) = removal.successors.get(&one.node).copied().flatten() {
            replaced_by.insert(successor);
            cost = cost + launches.get(successor).map_or(MicroUsdPerHour(0), Launch::price);
        }
        let mut moved: BTreeMap<&NodeName, Vec<&Pod>> = BTreeMap::new();
        for pod in &one.pods {
            if let Some(node) = node_of.get(pod.uid.as_str()) {
                moved.entry(*node).or_default().push(pod);
            }
        }
        let moved = moved.into_iter().map(|(node, pods)| (node.clone(), launch::pod_refs(&pods)));
        let name = &context.nodes[one.node].node.name;
        let (evicted, _) = buffer_pods::apart(&one.pods);
        let pods = launch::pod_refs(&evicted);
        let mut hasher = ContentHasher::new("termination");
        hasher.text(&format!("{:?}", context.snapshot.ledger));
        hasher.text(name.as_str());
        hasher.text(one.reason.as_str());
        pods.iter().for_each(|pod| hasher.text(pod.uid.as_str()));
        Termination {
            action_id: ActionId(hasher.hex(16)),
            node: name.clone(),
            reason: one.reason,
            pods,
            replaced_by: replaced_by.into_iter().collect(),
            moved_to: moved.map(|(node, pods)| Placement { node, pods }).collect(),
            saving: MicroUsdPerHour(one.price) - cost,
        }
    };
    let mut all: Vec<Termination> = removal.removed.iter().map(termination).collect();
    all.sort_by(|a, b| a.node.cmp(&b.node));
    all
}

/// Nodes that consolidation postponed and that the plan neither removes nor gives pods, sorted. Empty if consolidation
/// removes nothing. Of more than [`MAX_POSTPONED`], those with the highest price per worth.
pub(crate) fn postponed(context: &SolveContext<'_>, removal: &Removal<'_>) -> Vec<NodeName> {
    if !removal.removed.iter().any(|one| one.reason == DisruptionReason::Underutilized) {
        return Vec::new();
    }
    let stays = |node: &&Id<Node>| !removal.is_gone(**node) && !removal.busy.contains(node);
    let nodes = removal.postponed.iter().filter(stays).take(MAX_POSTPONED);
    let mut names: Vec<NodeName> = nodes.map(|node| context.nodes[*node].node.name.clone()).collect();
    names.sort();
    names
}

/// Share of a launch's price for `one`: in proportion to the pods from removed nodes, split by the prices of these
/// nodes.
fn part(launches: &[Launch], index: usize, one: &Removed<'_>, shared: Option<&(i64, usize)>) -> MicroUsdPerHour {
    let (Some(launch), Some((prices, pods))) = (launches.get(index), shared) else { return MicroUsdPerHour(0) };
    let all = i128::try_from(launch.pods.len().max(1)).unwrap_or(1);
    let moved = i128::from(launch.price().0) * i128::try_from(*pods).unwrap_or(0) / all;
    let part = if *prices > 0 { moved * i128::from(one.price) / i128::from(*prices) } else { moved };
    MicroUsdPerHour(i64::try_from(part).unwrap_or(0))
}
