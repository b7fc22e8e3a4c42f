//! Existing and starting nodes, and their free capacity.

use crate::input::context::{Admission, SolveContext};
use crate::input::intern::{Amounts, how_many};
use crate::input::nodes::{NodeData, Nodes};
use crate::place::hostname_topology::Tally;
use crate::place::pod_groups::PodGroup;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::{
    DisruptionReason, HostPort, Node, NodePool, NodeState, Pod, PodList, Snapshot, SnapshotIndex,
};
use plimsoll_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// A node with its pods.
#[derive(Clone, Copy)]
pub(crate) struct NodeView<'a> {
    pub(crate) node: &'a Node,
    pub(crate) data: &'a NodeData,
    /// Its pool, if the snapshot has it.
    pub(crate) pool: Option<&'a NodePool>,
    pub(crate) pods: PodsOnNode<'a>,
    /// Whether the node accepts new pods.
    pub(crate) open: bool,
    /// Whether `consolidateAfter` of the node's pool has passed for the node, so that it takes pods of removed nodes.
    /// Always true if the pool has no such setting. Unlike for its own removal, there is no least time.
    pub(crate) settled: bool,
    /// Whether the node has drifted and is about to be removed: its pool allows that now, and no pod keeps the node
    /// without an end.
    pub(crate) leaves: bool,
}

/// All pods that are bound to a node or reserved on it.
#[derive(Clone, Copy)]
pub(crate) struct PodsOnNode<'a> {
    pods: &'a PodList,
    places: &'a [u32],
}

impl<'a> PodsOnNode<'a> {
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a Pod> {
        self.places.iter().filter_map(move |place| self.pods.get(*place as usize))
    }
}

/// Capacity of a node while pods are placed.
#[derive(Debug, Clone)]
pub(crate) struct NodeCapacity {
    pub(crate) free: Amounts,
    pub(crate) ports: Vec<HostPort>,
    /// Pods by host group.
    pub(crate) tally: Tally,
    /// Whether the node accepts no more pods.
    pub(crate) closed: bool,
}

/// All nodes in the order in which they are filled: initialized nodes first, then by name. Also returns the id of each
/// node by its index in the snapshot.
pub(crate) fn views<'a>(
    snapshot: &'a Snapshot,
    index: &'a SnapshotIndex,
    nodes: &'a Nodes,
) -> (IndexVec<Node, NodeView<'a>>, Vec<Option<Id<Node>>>) {
    let pools: BTreeMap<&str, &NodePool> = snapshot.node_pools.iter().map(|pool| (pool.name.as_str(), pool)).collect();
    let never = snapshot.pod_disruption_budgets.iter().filter(|budget| budget.fully_blocking);
    let never: BTreeSet<&str> = never.map(|budget| budget.name.as_str()).collect();
    let mut order: Vec<(usize, &Node)> = snapshot.nodes.iter().enumerate().collect();
    // The nodes are sorted by name already, and the sort is stable.
    order.sort_by_key(|(_, node)| std::cmp::Reverse(node.state));
    let mut ids = vec![None; order.len()];
    let mut views = IndexVec::new();
    for (place, node) in order {
        let Some(data) = nodes.get(place) else { continue };
        // An initialized node that is not ready may never recover. A starting node is not expected to be ready yet.
        let lost = node.state == NodeState::Initialized && !node.ready;
        let pool = node.node_pool.as_ref().and_then(|name| pools.get(name.as_str()).copied());
        let after = pool.and_then(|pool| pool.disruption.consolidate_after);
        let settled = node.idle_since.zip(after).is_none_or(|(since, after)| since.plus(after) <= snapshot.now);
        let pods = PodsOnNode { pods: &snapshot.pods, places: index.residents(place) };
        let may_leave = || node.termination_grace_period.is_some() || !pods.iter().any(|pod| keeps_node(pod, &never));
        let id = views.push(NodeView {
            node,
            data,
            pool,
            pods,
            open: !node.cordoned && !node.deleting && !lost,
            settled,
            leaves: node.drifted.is_some() && !node.do_not_disrupt && pool.is_some_and(replaces_drifted) && may_leave(),
        });
        if let Some(entry) = ids.get_mut(place) {
            *entry = Some(id);
        }
    }
    (views, ids)
}

/// Whether the pool may replace a drifted node now.
fn replaces_drifted(pool: &NodePool) -> bool {
    let disruption = &pool.disruption;
    disruption.allowed.get(&DisruptionReason::Drifted) != Some(&0) && disruption.rollout_limit != Some(0)
}

/// Whether the pod keeps its node from being replaced, without a known end. The budgets in `never` allow no eviction.
fn keeps_node(pod: &Pod, never: &BTreeSet<&str>) -> bool {
    let budgets = &pod.pod_disruption_budgets;
    let protected = pod.do_not_disrupt_until == Some(Timestamp(i64::MAX));
    !pod.terminating && (protected || budgets.len() > 1 || budgets.iter().any(|name| never.contains(name.as_str())))
}

/// The number of pods of `pod_group` that fit on the node now. If the group must stay together, this is all of them or
/// none.
pub(crate) fn takes(
    context: &SolveContext<'_>,
    node: Id<Node>,
    room: &NodeCapacity,
    pod_group: &PodGroup<'_>,
) -> usize {
    let most = takes_some(context, node, room, pod_group);
    if pod_group.on_one_node && most < pod_group.pods.len() { 0 } else { most }
}

/// The number of pods of `pod_group` that fit on the node now, even if the group must stay together.
pub(crate) fn takes_some(
    context: &SolveContext<'_>,
    node: Id<Node>,
    room: &NodeCapacity,
    pod_group: &PodGroup<'_>,
) -> usize {
    let (view, pods) = (&context.nodes[node], &context.shapes[pod_group.shape]);
    if room.closed || !view.open || pod_group.only.as_ref().is_some_and(|only| !only.nodes.has(node)) {
        return 0;
    }
    let most = how_many(pods.requests, &room.free, pod_group.pods.len());
    let admission = context.admission(pod_group.shape, node);
    if most == 0
        || admission == Admission::No
        || (admission == Admission::Unwanted && !context.relaxation.is_required_only(pod_group.shape))
    {
        return 0;
    }
    let rules = &context.topology.host_rules;
    room.tally.most_beside(rules, (pods.hosts, &pods.shape.host_ports), &room.ports, pod_group.on_one_node, most)
}
