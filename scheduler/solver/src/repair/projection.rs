//! Projects a plan onto the cluster, and counts pods per domain like kube-scheduler.

use super::{Inputs, Overlaid};
use crate::input::context::tolerated;
use crate::input::pool_requirements::holds;
use plimsoll_kubesched::ClusterState;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, NodeName, PodUid, ShapeId};
use plimsoll_model::names::{NODES_RESOURCE, label};
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::requirements::Operator;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{
    DaemonSet, LaunchLabels, Node, NodeState, Pod, PodShape, PodState, Snapshot, SnapshotIndex, quota_usage_of_launch,
};
use std::collections::{BTreeMap, BTreeSet};

/// Assumed capacity of launched nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CapacityAssumption {
    /// The least of all listed types.
    Least,
    /// The capacity of the cheapest type.
    Cheapest,
    /// The capacity of the dearest type, usually the largest one: limits are charged with it already.
    Dearest,
}

/// The cluster after the plan: launches are nodes, named by action id, and pods are bound to their nodes. A launched
/// node has the labels of its cheapest offering and the minimum capacity of all listed types.
pub(crate) fn project(inputs: Inputs<'_>, plan: &Plan) -> Snapshot {
    project_with_capacity(inputs, plan, CapacityAssumption::Least)
}

/// The cluster once the launches of the plan are nodes, each bought as its cheapest offering and named by its action id.
/// Pods that the plan places are bound; removals are left to the caller.
#[must_use]
pub fn launched(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, plan: &Plan) -> Snapshot {
    launched_with(Inputs { snapshot, catalogs, overlaid: &Overlaid::new() }, plan, CapacityAssumption::Cheapest)
}

/// Like [`project`], with the given capacity, and with the launched nodes charged to limits.
pub(super) fn launched_with(inputs: Inputs<'_>, plan: &Plan, capacity: CapacityAssumption) -> Snapshot {
    let mut after = project_with_capacity(inputs, plan, capacity);
    count_limits(inputs, plan, capacity, &mut after);
    after
}

/// Like [`project`], with the given capacity.
pub(super) fn project_with_capacity(inputs: Inputs<'_>, plan: &Plan, capacity: CapacityAssumption) -> Snapshot {
    let snapshot = inputs.snapshot;
    let mut after = inputs.with_raised_nodes();
    let mut places: BTreeMap<&PodUid, NodeName> = BTreeMap::new();
    for to in &plan.placements {
        places.extend(to.pods.iter().map(|pod| (&pod.uid, to.node.clone())));
    }
    for launch in &plan.launches {
        let Some(catalog) = inputs.catalog_of(launch) else { continue };
        let Some(node) = node(snapshot, catalog, launch, capacity) else { continue };
        places.extend(launch.pods.iter().map(|pod| (&pod.uid, node.name.clone())));
        after.pods.extend(daemons(snapshot, &node));
        after.nodes.push(node);
    }
    for pod in &mut after.pods {
        if let Some(node) = places.get(&pod.uid) {
            pod.state = PodState::Bound(node.clone());
        }
    }
    after.sort();
    after
}

/// Applies the removals of the plan to its projected cluster: moved pods are bound to their next nodes. Removed nodes
/// take no pods and are not removed again. Pods without another place stay there: only the removal could name one.
pub(crate) fn apply_removals(plan: &Plan, after: &mut Snapshot) {
    let moves = plan.terminations.iter().flat_map(|one| &one.moved_to);
    let places: BTreeMap<&PodUid, &NodeName> =
        moves.flat_map(|to| to.pods.iter().map(move |pod| (&pod.uid, &to.node))).collect();
    for pod in &mut after.pods {
        if let Some(node) = places.get(&pod.uid) {
            pod.state = PodState::Bound(NodeName::clone(node));
        }
    }
    let removed: BTreeSet<&NodeName> = plan.terminations.iter().map(|one| &one.node).collect();
    for node in after.nodes.iter_mut().filter(|node| removed.contains(&node.name)) {
        (node.cordoned, node.do_not_disrupt, node.expires) = (true, true, None);
    }
}

/// Name of the launch's node in a projected cluster.
pub(super) fn node_name(launch: &Launch) -> NodeName {
    NodeName(launch.action_id.0.clone())
}

/// The launch's node in a projected cluster, if the launch has one.
pub(super) fn node_of<'n>(nodes: &'n [Node], launch: &Launch) -> Option<&'n Node> {
    nodes.iter().find(|node| node.name.0 == launch.action_id.0)
}

fn node(snapshot: &Snapshot, catalog: &Catalog, launch: &Launch, capacity: CapacityAssumption) -> Option<Node> {
    let (kind, offering) = catalog.find(launch.offerings.first()?)?;
    let mut labels = launch.labels.clone();
    label_as(&mut labels, &LaunchLabels { launch, catalog, kind, offering });
    labels.insert(label::HOSTNAME.to_owned(), launch.action_id.0.clone());
    // Labels with several allowed values get the first.
    for asked in launch.requirements.iter().filter(|one| one.operator == Operator::In) {
        let same_key = || launch.requirements.iter().filter(|one| one.key == asked.key);
        let allowed = |value: &&String| same_key().all(|one| holds(one, Some(value)));
        if let Some(value) = asked.values.iter().filter(allowed).min() {
            labels.entry(asked.key.clone()).or_insert_with(|| value.clone());
        }
    }
    let types: BTreeSet<&str> = launch.offerings.iter().map(|one| one.instance_type.as_str()).collect();
    let capacities = types.into_iter().filter_map(|name| Some(catalog.get(name)?.allocatable()));
    let both = |least: Resources, other: Resources| {
        let mut both = Resources::new();
        least.iter().for_each(|(name, amount)| both.set(name, amount.min(other.get(name))));
        both
    };
    let allocatable = match capacity {
        CapacityAssumption::Least => capacities.reduce(both)?,
        CapacityAssumption::Cheapest => kind.allocatable(),
        CapacityAssumption::Dearest => catalog.find(launch.offerings.last()?)?.0.allocatable(),
    };
    Some(Node {
        name: node_name(launch),
        node_claim: None,
        node_pool: None,
        state: NodeState::InFlight,
        labels,
        taints: launch.taints.clone(),
        allocatable,
        limit_usage: Resources::new(),
        ready: true,
        cordoned: false,
        deleting: false,
        do_not_disrupt: false,
        created: snapshot.now,
        expires: None,
        idle_since: None,
        drifted: None,
        termination_grace_period: None,
    })
}

/// Gives a node the labels that the bought offering decides.
pub(super) fn label_as(labels: &mut BTreeMap<String, String>, bought: &LaunchLabels<'_>) {
    labels.extend(bought.decided().map(|(key, value)| (key.to_owned(), value.to_owned())));
}

/// Charges launched nodes to the limits of their pools, either as the largest listed type or as the cheapest.
pub(crate) fn count_limits(inputs: Inputs<'_>, plan: &Plan, capacity: CapacityAssumption, after: &mut Snapshot) {
    for launch in &plan.launches {
        let Some(catalog) = inputs.catalog_of(launch) else { continue };
        let mut usage = Resources::from([(NODES_RESOURCE, 1)]);
        let count = if capacity == CapacityAssumption::Cheapest { 1 } else { usize::MAX };
        for choice in launch.offerings.iter().take(count) {
            let Some((kind, offering)) = catalog.find(choice) else { continue };
            usage.raise_to(&kind.limit_usage(offering));
        }
        // A quota may select offerings other than the cheapest, whose labels the node has.
        usage.raise_to(&quota_usage_of_launch(&inputs.snapshot.capacity_quotas, launch, catalog, count));
        if let Some(node) = after.nodes.iter_mut().find(|node| node.name.0 == launch.action_id.0) {
            (node.node_pool, node.limit_usage) = (Some(launch.node_pool.clone()), usage);
        }
    }
}

/// Whether a DaemonSet whose pods have this shape runs on `node`, if the node has these labels.
pub(super) fn runs_daemon(shape: &PodShape, node: &Node, labels: &BTreeMap<String, String>) -> bool {
    tolerated(&node.taints, &shape.tolerations, true) && shape.selects_node(node.name.as_str(), labels)
}

/// Pods of DaemonSets on the node: selectors of other pods may match them.
fn daemons<'a>(snapshot: &'a Snapshot, node: &'a Node) -> impl Iterator<Item = Pod> + 'a {
    let shape = |daemon: &DaemonSet| snapshot.shapes.iter().find(|shape| shape.id == daemon.shape);
    let runs = move |daemon: &&DaemonSet| shape(daemon).is_some_and(|shape| runs_daemon(shape, node, &node.labels));
    let running = snapshot.daemon_sets.iter().filter(runs);
    running.map(|daemon| Pod {
        uid: PodUid::from(format!("{}/{}", daemon.uid, node.name.as_str())),
        namespace: daemon.namespace.clone(),
        name: format!("{}-{}", daemon.name, node.name.as_str()),
        shape: daemon.shape.clone(),
        state: PodState::Bound(node.name.clone()),
        created: snapshot.now,
        stays_with_node: true,
        terminating: false,
        returns: false,
        do_not_disrupt_until: None,
        eviction_cost_milli: 0,
        pod_disruption_budgets: Vec::new(),
        buffer: None,
    })
}

/// Shapes whose required spreads do not hold in `after` for their pods that are pending in `before`.
pub(super) fn uneven(before: &Snapshot, after: &Snapshot) -> BTreeSet<ShapeId> {
    let mut after = after.clone();
    after.nodes.retain(|node| !node.deleting);
    let waiting: BTreeSet<&PodUid> =
        before.pods.iter().filter(|pod| pod.state == PodState::Pending).map(|pod| &pod.uid).collect();
    let index = SnapshotIndex::new(&after);
    let mut placed: Vec<(usize, usize)> = Vec::new();
    for (place, pod) in after.pods.iter_mut().enumerate().filter(|(_, pod)| waiting.contains(&pod.uid)) {
        if let (Some(shape), Some(node), false) = (index.shape_of(place), index.node_of(place), pod.is_virtual()) {
            pod.state = PodState::Pending;
            placed.push((shape, node));
        }
    }
    let mut state = ClusterState::new(&after, &SnapshotIndex::new(&after));
    placed.iter().for_each(|(shape, node)| state.bind(*shape, *node));
    placed.retain(|(shape, node)| !state.spreads_hold(*shape, *node));
    placed.into_iter().filter_map(|(shape, _)| Some(after.shapes.get(shape)?.id.clone())).collect()
}
