//! Edits a plan: moves its pods, adds launches and leaves pods.

use super::projected::Targets;
use super::{Inputs, placed};
use crate::repair::action_names::renamed;
use crate::repair::fill_nodes::reorder;
use crate::repair::narrow::{keep_fitting, narrow};
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::overlay::{self, Repriced};
use plimsoll_model::plan::{Launch, OfferingChoice, Placement, Plan, PodRef, Unschedulable};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, PodShape};
use std::collections::{BTreeMap, BTreeSet};

/// Changes to a plan.
#[derive(Default)]
pub(super) struct Change {
    /// New node per pod UID. Pods not in the map keep their node.
    pub(super) targets: Targets,
    /// Launches to add.
    pub(super) further: Vec<Launch>,
    /// Pods to leave.
    pub(super) left: Vec<Unschedulable>,
}

impl From<Targets> for Change {
    fn from(targets: Targets) -> Self {
        Self { targets, ..Self::default() }
    }
}

/// Applies `change` to `plan`. `nodes` include the nodes of its launches. `None` if the result is invalid, or if
/// the launches of `plan` itself cost more than before.
pub(super) fn with(inputs: Inputs<'_>, plan: &Plan, nodes: &[Node], change: &Change) -> Option<Plan> {
    let overlaid = overlay::applied(inputs.snapshot, inputs.catalogs);
    let facts = overlaid.as_ref().map_or(inputs, |(snapshot, catalogs)| Inputs { snapshot, catalogs });
    let more: i64 = change.further.iter().map(|launch| launch.price().0).sum();
    // First with all listed types, then with the node that the replay used alone.
    [false, true].into_iter().find_map(|sure| {
        let mut other = moved(facts, plan, nodes, change, sure)?;
        other.launches.extend(change.further.iter().cloned());
        other.unschedulable.extend(change.left.iter().cloned());
        other.unschedulable.sort();
        judged(inputs, plan, other, more)
    })
}

/// Enlarges launches by `more`, keyed by node name. `None` if nothing changes or the result is invalid.
pub(super) fn with_room(
    inputs: Inputs<'_>,
    plan: &Plan,
    nodes: &[Node],
    more: &BTreeMap<&NodeName, Resources>,
) -> Option<Plan> {
    let overlaid = overlay::applied(inputs.snapshot, inputs.catalogs);
    let facts = overlaid.as_ref().map_or(inputs, |(snapshot, catalogs)| Inputs { snapshot, catalogs });
    let mut other = plan.clone();
    for launch in &mut other.launches {
        let Some(more) = more.get(&NodeName(launch.action_id.0.clone())) else { continue };
        let node = nodes.iter().find(|node| node.name.0 == launch.action_id.0)?;
        let before = launch.requests.clone();
        launch.requests.add(more);
        keep_fitting((facts.snapshot, facts.catalogs), launch, node, &BTreeSet::new());
        launch.requests = before;
        rename(launch, "launch with more room");
    }
    judged(inputs, plan, other, i64::MAX).filter(|other| other.hourly > plan.hourly)
}

/// Sets the sums of `other`. `None` if it is invalid or costs more than `more` in addition.
fn judged(inputs: Inputs<'_>, plan: &Plan, mut other: Plan, more: i64) -> Option<Plan> {
    reorder(&mut other);
    Repriced::new(inputs.snapshot, inputs.catalogs).mark(&mut other.launches);
    other.hourly = other.launches.iter().map(Launch::price).sum();
    // The bound of `plan` is for other pods or nodes.
    other.lower_bound = MicroUsdPerHour(0);
    let right = other.hourly.0.saturating_sub(plan.hourly.0) <= more
        && plimsoll_invariants::check(inputs.snapshot, inputs.catalogs, &other).is_empty();
    right.then_some(other)
}

fn rename(launch: &mut Launch, what: &str) {
    let pods = launch.pods.iter().map(|pod| pod.uid.as_str().to_owned());
    let offering = |one: &OfferingChoice| format!("{}/{}/{}", one.instance_type, one.zone, one.capacity_type);
    launch.action_id = renamed(&launch.action_id, what, pods.chain(launch.offerings.iter().map(offering)));
}

/// Moves the pods and removes launches without pods.
fn moved(facts: Inputs<'_>, plan: &Plan, nodes: &[Node], change: &Change, sure: bool) -> Option<Plan> {
    let Change { targets, further, left } = change;
    let goes = |pod: &PodRef| targets.contains_key(&pod.uid) || left.iter().any(|one| one.pod.uid == pod.uid);
    let names = placed(plan).map(|pod| (&pod.uid, pod));
    let mut coming: BTreeMap<&NodeName, Vec<PodRef>> = BTreeMap::new();
    for (uid, pod) in names.collect::<BTreeMap<&PodUid, &PodRef>>() {
        if let Some(node) = targets.get(uid) {
            coming.entry(node).or_default().push(pod.clone());
        }
    }
    let shape_ids: BTreeMap<&PodUid, _> = facts.snapshot.pods.iter().map(|pod| (&pod.uid, &pod.shape)).collect();
    let shapes: BTreeMap<_, &PodShape> = facts.snapshot.shapes.iter().map(|shape| (&shape.id, shape)).collect();
    let shape_of = |pod: &PodRef| shape_ids.get(&pod.uid).and_then(|id| shapes.get(id)).copied();
    let mut other = plan.clone();
    let mut stays: BTreeMap<NodeName, Vec<PodRef>> = BTreeMap::new();
    let mut empty = BTreeSet::new();
    for launch in &mut other.launches {
        let mut pods: Vec<PodRef> = launch.pods.iter().filter(|pod| !goes(pod)).cloned().collect();
        pods.extend(coming.remove(&NodeName(launch.action_id.0.clone())).unwrap_or_default());
        pods.sort();
        if pods == launch.pods {
            continue;
        }
        if pods.is_empty() {
            empty.insert(launch.action_id.clone());
            continue;
        }
        launch.pods.iter().filter_map(shape_of).for_each(|shape| launch.requests.subtract(&shape.requests));
        let wanted: BTreeSet<&PodShape> = pods.iter().filter_map(shape_of).collect();
        pods.iter().filter_map(shape_of).for_each(|shape| launch.requests.add(&shape.requests));
        let node = nodes.iter().find(|node| node.name.0 == launch.action_id.0)?;
        if sure {
            narrow(launch, node);
        }
        keep_fitting((facts.snapshot, facts.catalogs), launch, node, &wanted);
        launch.pods = pods;
        rename(launch, "launch with other pods");
    }
    other.launches.retain(|launch| !empty.contains(&launch.action_id));
    for launch in further {
        coming.remove(&NodeName(launch.action_id.0.clone()));
    }
    for to in std::mem::take(&mut other.placements) {
        let stay = to.pods.into_iter().filter(|pod| !goes(pod));
        stays.entry(to.node).or_default().extend(stay);
    }
    for (node, pods) in coming {
        stays.entry(node.clone()).or_default().extend(pods);
    }
    other.placements = stays.into_iter().map(|(node, pods)| Placement { node, pods }).collect();
    other.placements.iter_mut().for_each(|to| to.pods.sort());
    other.placements.retain(|to| !to.pods.is_empty());
    Some(other)
}
