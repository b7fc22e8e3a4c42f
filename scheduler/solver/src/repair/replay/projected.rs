//! A plan projected onto the cluster: its nodes exist, and its pods are pending.

use super::{Inputs, is_pod_slot};
use crate::input::intern::fits;
use crate::repair::edit::Targets;
use crate::repair::projection::{self, node_name};
use plimsoll_kubesched::{ClusterState, Machine, PodSlot};
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::plan::{Launch, Placement, Plan};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, NodeState, Pod, PodShape, PodState, Snapshot, SnapshotIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A pod that the plan places.
#[derive(Debug, Clone)]
pub(super) struct PlannedPod {
    pub(super) uid: PodUid,
    pub(super) shape: Id<PodShape>,
    pub(super) priority: i32,
    /// The node in the plan.
    pub(super) node: Id<Node>,
}

/// The node of each slot; `None` where kube-scheduler found none.
pub(super) type Assignment = IndexVec<PlannedPod, Option<Id<Node>>>;

/// A plan to replay. Ids of nodes and shapes are indices in `after`.
#[derive(Debug, Clone)]
pub(super) struct Replay {
    /// The cluster after the plan, with launches as nodes. Shared by replays that differ only in the nodes of
    /// slots.
    pub(super) after: Rc<Snapshot>,
    /// Cluster state before the plan's pods are bound, with each launch as its cheapest type.
    pub(super) state: Rc<ClusterState>,
    /// Possible machines of each node, cheapest first.
    pub(super) machines: Rc<IndexVec<Node, Vec<Machine>>>,
    /// In the order of kube-scheduler's queue.
    pub(super) slots: IndexVec<PlannedPod, PlannedPod>,
    /// Nodes that can run pods of each shape, regardless of other pods.
    pub(super) open: Rc<IndexVec<PodShape, Vec<Id<Node>>>>,
}

impl Replay {
    /// Pending pods that the plan places. Returns `None` if there is nothing to replay.
    pub(super) fn new(inputs: Inputs<'_>, plan: &Plan) -> Option<Self> {
        Self::of_pods(inputs, plan, &targets(inputs.snapshot, plan), &BTreeSet::new())
    }

    /// Pods of removed nodes, after the removal, and pods that kube-scheduler has not bound to their nodes yet. Returns
    /// `None` if there are none.
    pub(super) fn of_removals(inputs: Inputs<'_>, plan: &Plan) -> Option<Self> {
        let removed = plan.terminations.iter().map(|one| &one.node).collect();
        let mut targets = moves(plan);
        targets.extend(unbound(inputs.snapshot, &removed));
        Self::of_pods(inputs, plan, &targets, &removed)
    }

    fn of_pods(inputs: Inputs<'_>, plan: &Plan, targets: &Targets, removed: &BTreeSet<&NodeName>) -> Option<Self> {
        let mut after = projection::project(inputs, plan);
        remove_leaving(plan, &mut after, removed);
        after.pods.retain(|pod| !pod.is_virtual());
        // Limits of pools do not matter here.
        let mut before = Snapshot { node_pools: Vec::new(), ..after.clone() };
        let coming = before.pods.iter_mut().filter(|pod| targets.contains_key(&pod.uid));
        coming.for_each(|pod| pod.state = PodState::Pending);
        let mut state = ClusterState::new(&before, &SnapshotIndex::new(&before));
        let slots = slots(&before, &state, targets)?;
        let sizes = sizes(inputs, plan);
        let machines = before.nodes.iter().enumerate().map(|(number, node)| match sizes.get(&node.name) {
            Some(sizes) => sizes.iter().map(|size| state.resized(number, size)).collect(),
            None => vec![state.machine(number).clone()],
        });
        let machines: IndexVec<Node, Vec<Machine>> = machines.collect();
        for (node, machines) in machines.iter_enumerated() {
            if let Some(cheapest) = machines.first().filter(|cheapest| *cheapest != state.machine(node.number())) {
                state.resize(node.number(), cheapest.clone());
            }
        }
        let used: BTreeSet<Id<PodShape>> = slots.iter().map(|slot| slot.shape).collect();
        let open = |number: usize| -> Vec<Id<Node>> {
            if !used.contains(&Id::new(number)) {
                return Vec::new();
            }
            let requests = state.requests(number);
            let roomy = |machines: &[Machine]| machines.iter().any(|machine| fits(requests, machine.free()));
            let open = |node: Id<Node>| state.filter_node(number, node.number()).is_ok();
            let nodes = machines.iter_enumerated().filter(|(node, machines)| open(*node) && roomy(machines));
            nodes.map(|(node, _)| node).collect()
        };
        let open = (0..before.shapes.len()).map(open).collect();
        let (machines, open) = (Rc::new(machines), Rc::new(open));
        Some(Self { after: Rc::new(after), state: Rc::new(state), machines, slots, open })
    }

    /// Number of checks of pods against nodes if each pod is tried once.
    pub(super) fn looks(&self) -> usize {
        self.slots.iter().map(|slot| self.open[slot.shape].len()).sum()
    }

    pub(super) fn requests(&self, slot: &PlannedPod) -> &[i64] {
        self.state.requests(slot.shape.number())
    }

    /// The cluster after a run. Pods without a node are pending.
    pub(super) fn bound(&self, assignment: &Assignment) -> Snapshot {
        let mut after = Snapshot::clone(&self.after);
        let found = |slot: Id<PlannedPod>| assignment[slot].map(|node| self.state.node_name(node.number()).clone());
        let places: BTreeMap<&PodUid, Option<NodeName>> =
            self.slots.iter_enumerated().map(|(id, slot)| (&slot.uid, found(id))).collect();
        for pod in &mut after.pods {
            if let Some(place) = places.get(&pod.uid) {
                pod.state = place.clone().map_or(PodState::Pending, PodState::Bound);
            }
        }
        after
    }

    /// The same plan with slots on other nodes.
    pub(super) fn with(&self, nodes: &IndexVec<PlannedPod, Id<Node>>) -> Self {
        let mut other = self.clone();
        other.slots.iter_mut().zip(nodes).for_each(|(slot, node)| slot.node = *node);
        other
    }

    pub(super) fn targets(&self) -> Targets {
        let target = |slot: &PlannedPod| (slot.uid.clone(), self.state.node_name(slot.node.number()).clone());
        self.slots.iter().map(target).collect()
    }
}

/// Removes the `removed` nodes from the projected cluster, and the nodes that are being deleted, with the pods that the
/// plan leaves there. A node that is being deleted stays if it has pods that the plan does not move, such as protected
/// ones: kube-scheduler counts these pods as long as they run.
fn remove_leaving(plan: &Plan, after: &mut Snapshot, removed: &BTreeSet<&NodeName>) {
    let left: BTreeSet<&PodUid> = plan.unschedulable.iter().map(|one| &one.pod.uid).collect();
    after.pods.retain(|pod| pod.state == PodState::Pending || !left.contains(&pod.uid));
    let occupied: BTreeSet<NodeName> = {
        let deleting: BTreeSet<&NodeName> =
            after.nodes.iter().filter(|node| node.deleting).map(|node| &node.name).collect();
        let unmoved = after.pods.iter().filter(|pod| pod.moves() && !pod.is_virtual());
        let nodes = unmoved.filter_map(|pod| match &pod.state {
            PodState::Bound(node) if deleting.contains(node) => Some(node.clone()),
            _ => None,
        });
        nodes.collect()
    };
    after.nodes.retain(|node| !removed.contains(&node.name) && (!node.deleting || occupied.contains(&node.name)));
}

/// Nodes of the pods that kube-scheduler binds. Nodes of launches are named as in [`projection::project`].
fn targets(snapshot: &Snapshot, plan: &Plan) -> Targets {
    let slots: BTreeSet<&PodUid> = snapshot.pods.iter().filter(|pod| is_pod_slot(pod)).map(|pod| &pod.uid).collect();
    planned_nodes(plan, &plan.placements, &slots)
}

/// Planned nodes of the pods of removed nodes.
fn moves(plan: &Plan) -> Targets {
    let leaving: BTreeSet<&PodUid> = plan.terminations.iter().flat_map(|one| &one.pods).map(|pod| &pod.uid).collect();
    planned_nodes(plan, plan.terminations.iter().flat_map(|one| &one.moved_to), &leaving)
}

/// Nodes in service for which pods are reserved, except removed ones. kube-scheduler can bind these pods at any moment,
/// before or after the pods of removed nodes.
fn unbound(snapshot: &Snapshot, removed: &BTreeSet<&NodeName>) -> Targets {
    let in_service = |node: &&Node| node.state == NodeState::Initialized && !node.deleting;
    let nodes: BTreeSet<&NodeName> = snapshot.nodes.iter().filter(in_service).map(|node| &node.name).collect();
    let reserved = |pod: &Pod| match &pod.state {
        PodState::Reserved(node) if nodes.contains(node) && !removed.contains(node) && !pod.is_virtual() => {
            Some((pod.uid.clone(), node.clone()))
        }
        _ => None,
    };
    snapshot.pods.iter().filter_map(reserved).collect()
}

/// Nodes of the pods `uids` in `placements` and in the launches of the plan.
fn planned_nodes<'p>(
    plan: &'p Plan,
    placements: impl IntoIterator<Item = &'p Placement>,
    uids: &BTreeSet<&PodUid>,
) -> Targets {
    let existing = placements.into_iter().map(|to| (to.node.clone(), &to.pods));
    let launches = plan.launches.iter().map(|launch| (node_name(launch), &launch.pods));
    let mut targets = Targets::new();
    for (node, pods) in existing.chain(launches) {
        let own = pods.iter().filter(|pod| uids.contains(&pod.uid));
        targets.extend(own.map(|pod| (pod.uid.clone(), node.clone())));
    }
    targets
}

/// Slots in queue order. `None` if there are none, or if the node or shape of a slot is missing.
fn slots(before: &Snapshot, state: &ClusterState, targets: &Targets) -> Option<IndexVec<PlannedPod, PlannedPod>> {
    let nodes: BTreeMap<&NodeName, Id<Node>> =
        before.nodes.iter().enumerate().map(|(number, node)| (&node.name, Id::new(number))).collect();
    let slot = |PodSlot { uid, shape, priority }: &PodSlot| {
        let target = targets.get(uid)?;
        let (uid, shape, priority) = (uid.clone(), Id::new(*shape), *priority);
        Some(nodes.get(target).map(|node| PlannedPod { uid, shape, priority, node: *node }))
    };
    let slots: IndexVec<PlannedPod, PlannedPod> = state.pods().iter().filter_map(slot).collect::<Option<_>>()?;
    (!slots.is_empty() && slots.len() == targets.len()).then_some(slots)
}

/// Allocatable resources of each launch's node by listed type, cheapest first.
fn sizes(inputs: Inputs<'_>, plan: &Plan) -> BTreeMap<NodeName, Vec<Resources>> {
    let of_launch = |launch: &Launch| {
        let catalog = inputs.catalog_of(launch)?;
        let bought = launch.offerings.first()?.capacity_type;
        let listed = launch.offerings.iter().filter(|one| one.capacity_type == bought);
        let all: Vec<Resources> =
            listed.filter_map(|one| Some(catalog.get(&one.instance_type)?.allocatable())).collect();
        (!all.is_empty()).then(|| (node_name(launch), all))
    };
    plan.launches.iter().filter_map(of_launch).collect()
}
