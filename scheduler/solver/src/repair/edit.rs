//! Edits a plan: moves pods, adds launches and drops pods.

#[cfg(test)]
mod tests;

use super::narrow::{keep_fitting, narrow};
use super::projection::{node_name, node_of};
use super::{Inputs, shapes_of_pods};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::identity::{ActionId, ContentHasher, NodeName, NodePoolName, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::overlay::Repriced;
use plimsoll_model::plan::{Launch, OfferingChoice, Placement, Plan, PodRef, Unschedulable};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, PodShape};
use std::collections::{BTreeMap, BTreeSet};

pub(super) type Targets = BTreeMap<PodUid, NodeName>;

/// Changes to a plan.
#[derive(Default)]
pub(super) struct Change {
    /// New node per pod UID. Pods not in the map keep their node.
    pub(super) targets: Targets,
    /// Launches to add.
    pub(super) further: Vec<Launch>,
    /// Pods to drop.
    pub(super) left: Vec<Unschedulable>,
}

impl Change {
    /// Adds a launch for its pods.
    pub(super) fn launch(&mut self, launch: Launch) {
        let node = node_name(&launch);
        self.targets.extend(launch.pods.iter().map(|pod| (pod.uid.clone(), node.clone())));
        self.further.push(launch);
    }
}

/// Applies `change` to `plan`. `nodes` include the nodes of its launches. `None` if the result is invalid, or if
/// the launches of `plan` itself cost more than before.
pub(super) fn with(inputs: Inputs<'_>, plan: &Plan, nodes: &[Node], change: &Change) -> Option<Plan> {
    let more = change.further.iter().map(Launch::price).sum::<MicroUsdPerHour>().0;
    // First with all listed types, then restricted to the nodes that the replay assumed.
    [false, true]
        .into_iter()
        .find_map(|narrowed| validated(inputs, plan, moved(inputs, plan, nodes, change, narrowed), more))
}

/// Enlarges launches by `more`, keyed by node name. `None` if nothing changes or the result is invalid.
pub(super) fn with_room(
    inputs: Inputs<'_>,
    plan: &Plan,
    nodes: &[Node],
    more: &BTreeMap<&NodeName, Resources>,
) -> Option<Plan> {
    let shapes = shapes_of_pods(inputs.snapshot);
    let mut other = plan.clone();
    for launch in &mut other.launches {
        let Some(more) = more.get(&node_name(launch)) else { continue };
        let node = node_of(nodes, launch)?;
        let mut load = load(launch.pods.iter().filter_map(|pod| shapes.get(&pod.uid).copied()));
        load.add(more);
        keep_fitting(inputs, launch, node, (&load, &BTreeSet::new()));
        rename(launch, "launch with more room");
    }
    validated(inputs, plan, other, i64::MAX).filter(|other| other.hourly > plan.hourly)
}

/// Total requests of pods of these shapes.
fn load<'s>(shapes: impl Iterator<Item = &'s PodShape>) -> Resources {
    let mut load = Resources::new();
    shapes.for_each(|shape| load.add(&shape.requests));
    load
}

/// Sets the sums of `other`. `None` if it is invalid, costs more than `more` in addition, or takes pods from the
/// On-Demand share of NodePools.
fn validated(inputs: Inputs<'_>, plan: &Plan, mut other: Plan, more: i64) -> Option<Plan> {
    other.sort_launches();
    price(inputs, &mut other);
    // The bound of `plan` is for other pods or nodes.
    other.lower_bound = MicroUsdPerHour(0);
    let right = other.hourly.0.saturating_sub(plan.hourly.0) <= more
        && spot_pods(inputs, &other) <= spot_pods(inputs, plan)
        && inputs.is_valid(&other);
    right.then_some(other)
}

/// Number of pods that the plan puts where Spot may be, in NodePools with an On-Demand share: the validity of a plan
/// covers only the shares of workloads.
fn spot_pods(inputs: Inputs<'_>, plan: &Plan) -> usize {
    let pools = inputs.snapshot.node_pools.iter().filter(|pool| pool.on_demand.is_some());
    let pools: BTreeSet<&NodePoolName> = pools.map(|pool| &pool.name).collect();
    if pools.is_empty() {
        return 0;
    }
    let may_be_spot = |launch: &&Launch| {
        pools.contains(&launch.node_pool) && launch.offerings.iter().any(|one| one.capacity_type == CapacityType::Spot)
    };
    let is_spot = |to: &&Placement| {
        let has_share = |node: &&Node| node.node_pool.as_ref().is_some_and(|pool| pools.contains(pool));
        let node = inputs.snapshot.node(&to.node).filter(has_share);
        let value = node.and_then(|node| node.labels.get(label::CAPACITY_TYPE));
        value.is_some_and(|value| CapacityType::parse(value) == Some(CapacityType::Spot))
    };
    let launched: usize = plan.launches.iter().filter(may_be_spot).map(|launch| launch.pods.len()).sum();
    let placed: usize = plan.placements.iter().filter(is_spot).map(|to| to.pods.len()).sum();
    launched + placed
}

/// Sets what depends on the prices of the launches.
pub(super) fn price(inputs: Inputs<'_>, plan: &mut Plan) {
    Repriced::new(inputs.snapshot, inputs.catalogs).mark(&mut plan.launches);
    plan.hourly = plan.launches.iter().map(Launch::price).sum();
}

/// The action id of the launch `id` after the change `what`. `parts` distinguish launches with the same change.
fn renamed(id: &ActionId, what: &str, parts: impl IntoIterator<Item = impl AsRef<str>>) -> ActionId {
    let mut hasher = ContentHasher::new(what);
    hasher.text(&id.0);
    parts.into_iter().for_each(|text| hasher.text(text.as_ref()));
    ActionId(hasher.hex(16))
}

/// The action id of a second launch for the same pods.
pub(super) fn anew(id: &ActionId, what: &str) -> ActionId {
    renamed(id, what, [""; 0])
}

fn rename(launch: &mut Launch, what: &str) {
    let pods = launch.pods.iter().map(|pod| pod.uid.as_str().to_owned());
    let offering = |one: &OfferingChoice| format!("{}/{}/{}", one.instance_type, one.zone, one.capacity_type);
    launch.action_id = renamed(&launch.action_id, what, pods.chain(launch.offerings.iter().map(offering)));
}

/// Moves the pods, including pods that were unplaced, removes launches without pods, and applies the rest of `change`.
/// If `narrowed`, launches with changed pods are narrowed to their nodes in `nodes`.
pub(super) fn moved(inputs: Inputs<'_>, plan: &Plan, nodes: &[Node], change: &Change, narrowed: bool) -> Plan {
    let Change { targets, further, left } = change;
    let leaves_node = |pod: &PodRef| targets.contains_key(&pod.uid) || left.iter().any(|one| one.pod.uid == pod.uid);
    let all = placed(plan).chain(plan.unschedulable.iter().map(|one| &one.pod));
    let mut coming: BTreeMap<&NodeName, Vec<PodRef>> = BTreeMap::new();
    for (uid, pod) in all.map(|pod| (&pod.uid, pod)).collect::<BTreeMap<&PodUid, &PodRef>>() {
        if let Some(node) = targets.get(uid) {
            coming.entry(node).or_default().push(pod.clone());
        }
    }
    let shapes = shapes_of_pods(inputs.snapshot);
    let shape_of = |pod: &PodRef| shapes.get(&pod.uid).copied();
    let mut other = plan.clone();
    for launch in &mut other.launches {
        let mut pods: Vec<PodRef> = launch.pods.iter().filter(|pod| !leaves_node(pod)).cloned().collect();
        pods.extend(coming.remove(&node_name(launch)).unwrap_or_default());
        pods.sort();
        if pods == launch.pods {
            continue;
        }
        launch.requests.subtract(&load(launch.pods.iter().filter_map(shape_of)));
        launch.pods = pods;
        let wanted: BTreeSet<&PodShape> = launch.pods.iter().filter_map(shape_of).collect();
        let load = load(launch.pods.iter().filter_map(shape_of));
        launch.requests.add(&load);
        if let Some(node) = node_of(nodes, launch) {
            if narrowed {
                narrow(launch, node);
            }
            keep_fitting(inputs, launch, node, (&load, &wanted));
        }
        rename(launch, "launch with other pods");
    }
    let before: BTreeSet<&ActionId> =
        plan.launches.iter().filter(|launch| launch.pods.is_empty()).map(|launch| &launch.action_id).collect();
    other.launches.retain(|launch| !launch.pods.is_empty() || before.contains(&launch.action_id));
    for launch in further {
        coming.remove(&node_name(launch));
    }
    other.launches.extend(further.iter().cloned());
    let mut stays: BTreeMap<NodeName, Vec<PodRef>> = BTreeMap::new();
    for to in std::mem::take(&mut other.placements) {
        stays.entry(to.node).or_default().extend(to.pods.into_iter().filter(|pod| !leaves_node(pod)));
    }
    for (node, pods) in coming {
        stays.entry(node.clone()).or_default().extend(pods);
    }
    other.placements = stays.into_iter().map(|(node, pods)| Placement { node, pods }).collect();
    other.placements.iter_mut().for_each(|to| to.pods.sort());
    other.placements.retain(|to| !to.pods.is_empty());
    other.unschedulable.retain(|one| !targets.contains_key(&one.pod.uid));
    other.unschedulable.extend(left.iter().cloned());
    other.unschedulable.sort();
    other
}

pub(super) fn placed(plan: &Plan) -> impl Iterator<Item = &PodRef> {
    plan.launched_pods().chain(plan.placements.iter().flat_map(|to| &to.pods))
}
