//! Nodes that are there or on their way, and how much room they have left.

use crate::daemon;
use crate::hosts::Tally;
use crate::intern::{Amounts, add, how_many};
use crate::lots::Lot;
use crate::volumes;
use crate::world::{Welcome, World};
use plimsoll_model::snapshot::{HostPort, Node, NodeState, Pod, PodState};
use std::collections::{BTreeSet, HashMap};

/// A node and its pods.
pub(crate) struct NodeView<'a> {
    pub(crate) node: &'a Node,
    /// Room at the time of the snapshot.
    pub(crate) free: Amounts,
    pub(crate) ports: Vec<HostPort>,
    /// All pods that are there, or reserved for it.
    pub(crate) pods: Vec<&'a Pod>,
    /// New pods may go there.
    pub(crate) open: bool,
    /// `consolidateAfter` of its pool has passed for it, or it has no pool that says so.
    pub(crate) settled: bool,
}

/// Room on a node as a plan goes on.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    pub(crate) free: Amounts,
    pub(crate) ports: Vec<HostPort>,
    /// By host groups.
    pub(crate) tally: Tally,
    /// The node is not to take pods any more.
    pub(crate) closed: bool,
}

/// All nodes in the order in which they are filled: in service first, then by name.
pub(crate) fn views<'a>(world: &World<'a>) -> Vec<NodeView<'a>> {
    let mut there: HashMap<&str, Vec<&'a Pod>> = HashMap::new();
    for pod in &world.snapshot.pods {
        if let PodState::Bound(name) | PodState::Reserved(name) = &pod.state {
            there.entry(name.as_str()).or_default().push(pod);
        }
    }
    let mut nodes: Vec<&'a Node> = world.snapshot.nodes.iter().collect();
    nodes.sort_by(|a, b| (b.state, &a.name).cmp(&(a.state, &b.name)));
    nodes.into_iter().map(|node| view(world, node, there.remove(node.name.as_str()).unwrap_or_default())).collect()
}

fn view<'a>(world: &World<'a>, node: &'a Node, pods: Vec<&'a Pod>) -> NodeView<'a> {
    let in_service = node.state == NodeState::Initialized;
    let mut free = world.table.room(&node.allocatable, |driver| volumes::usual_limit(driver, None, in_service));
    let mut shared: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut daemons = vec![0; free.len()];
    let mut ports = Vec::new();
    for pod in &pods {
        let Some(shape) = world.shape_of(pod).and_then(|index| world.shapes.get(index)) else { continue };
        add(&mut free, &shape.requests, -1);
        for volume in shape.shape.volumes.iter().filter(|volume| !volume.claim.is_empty()) {
            // Pods that share a claim share its attachment.
            if !shared.insert((&shape.shape.namespace, &volume.claim))
                && let Some(place) = world.table.attached(&volume.driver)
            {
                free[place] += 1;
            }
        }
        if pod.stays_with_node {
            add(&mut daemons, &shape.requests, 1);
        }
        ports.extend(shape.shape.host_ports.iter().cloned());
    }
    let missing = daemon::missing(world, node, &daemons);
    add(&mut free, &missing, -1);
    // A node in service that is not ready may not come back; one on its way is not expected to be ready yet.
    let lost = node.state == NodeState::Initialized && !node.ready;
    let pool =
        node.node_pool.as_ref().and_then(|name| world.snapshot.node_pools.iter().find(|pool| pool.name == *name));
    let after = pool.and_then(|pool| pool.disruption.consolidate_after);
    let since = node.idle_since.zip(after);
    let settled = since.is_none_or(|(since, after)| since.plus(after) <= world.snapshot.now);
    NodeView { node, free, ports, pods, open: !node.cordoned && !node.deleting && !lost, settled }
}

/// How many pods of `lot` node number `node` can take in its present state: all of them or none if they go as a whole.
pub(crate) fn takes(world: &World<'_>, node: usize, room: &Room, lot: &Lot<'_>) -> usize {
    let most = takes_some(world, node, room, lot);
    if lot.whole && most < lot.pods.len() { 0 } else { most }
}

/// How many it can take of them, whether they go as a whole or not.
pub(crate) fn takes_some(world: &World<'_>, node: usize, room: &Room, lot: &Lot<'_>) -> usize {
    let (view, pods) = (&world.nodes[node], &world.shapes[lot.shape]);
    if room.closed || !view.open || lot.only.as_ref().is_some_and(|only| !only.nodes.has(node)) {
        return 0;
    }
    let mut most = how_many(&pods.requests, &room.free, lot.pods.len());
    let welcome = world.welcome(lot.shape, node);
    if most == 0 || welcome == Welcome::No || (welcome == Welcome::Unwanted && !world.ladders.is_bare(lot.shape)) {
        return 0;
    }
    if !pods.shape.host_ports.is_empty() {
        let taken = pods.shape.host_ports.iter().any(|port| room.ports.iter().any(|other| other.conflicts(port)));
        most = if taken { 0 } else { most.min(1) };
    }
    if !pods.hosts.is_free() {
        most = most.min(room.tally.limit(&world.topology.host_rules, &pods.hosts, lot.whole));
    }
    most
}
