//! The same plan with its pods elsewhere, and with further nodes.

use super::stage::Targets;
use super::{Question, placed};
use crate::facts::{one_of, selects};
use crate::gather::top_up::{narrow, reorder};
use crate::volumes;
use plimsoll_model::identity::{ActionId, ContentHasher, NodeName, PodUid};
use plimsoll_model::names::label;
use plimsoll_model::overlay::{self, Repriced};
use plimsoll_model::plan::{Launch, OfferingChoice, Placement, Plan, PodRef};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, PodShape};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// `plan` with its pods where `targets` has them, on `nodes` (of which its launches are) and on `further` launches; if that is valid, and its own launches
/// cost no more than before.
pub(super) fn with(
    question: Question<'_>,
    plan: &Plan,
    nodes: &[Node],
    (targets, further): (&Targets, &[Launch]),
) -> Option<Plan> {
    let overlaid = overlay::applied(question.snapshot, question.catalogs);
    let facts = overlaid.as_ref().map_or(question, |(snapshot, catalogs)| Question { snapshot, catalogs });
    let more: i64 = further.iter().map(|launch| launch.price().0).sum();
    // Where it matters what the node of a launch will be, it is said.
    [false, true].into_iter().find_map(|sure| {
        let mut other = moved(facts, plan, nodes, (targets, further), sure)?;
        other.launches.extend(further.iter().cloned());
        judged(question, plan, other, more)
    })
}

/// `plan` with launches that have room for so much `more`, by the names that their nodes have; if that is another plan, and a valid one.
pub(super) fn with_room(
    question: Question<'_>,
    plan: &Plan,
    nodes: &[Node],
    more: &BTreeMap<&NodeName, Resources>,
) -> Option<Plan> {
    let overlaid = overlay::applied(question.snapshot, question.catalogs);
    let facts = overlaid.as_ref().map_or(question, |(snapshot, catalogs)| Question { snapshot, catalogs });
    let mut other = plan.clone();
    for launch in &mut other.launches {
        let Some(more) = more.get(&NodeName(launch.action_id.0.clone())) else { continue };
        let node = nodes.iter().find(|node| node.name.0 == launch.action_id.0)?;
        let before = launch.requests.clone();
        launch.requests.add(more);
        keep_fitting(facts, launch, node, &BTreeSet::new());
        launch.requests = before;
        rename(launch, "launch with more room");
    }
    judged(question, plan, other, i64::MAX).filter(|other| other.hourly > plan.hourly)
}

/// With its sums, if it is valid and costs at most so much more.
fn judged(question: Question<'_>, plan: &Plan, mut other: Plan, more: i64) -> Option<Plan> {
    reorder(&mut other);
    Repriced::new(question.snapshot, question.catalogs).mark(&mut other.launches);
    other.hourly = other.launches.iter().map(Launch::price).sum();
    let right = other.hourly.0.saturating_sub(plan.hourly.0) <= more
        && plimsoll_invariants::check(question.snapshot, question.catalogs, &other).is_empty();
    right.then_some(other)
}

fn rename(launch: &mut Launch, what: &str) {
    let mut hasher = ContentHasher::new(what);
    hasher.text(&launch.action_id.0);
    launch.pods.iter().for_each(|pod| hasher.text(pod.uid.as_str()));
    launch
        .offerings
        .iter()
        .for_each(|one| hasher.text(&format!("{}/{}/{}", one.instance_type, one.zone, one.capacity_type)));
    launch.action_id = ActionId(hasher.hex(16));
}

/// `None` if a node of the plan would have no pod.
fn moved(
    facts: Question<'_>,
    plan: &Plan,
    nodes: &[Node],
    (targets, further): (&Targets, &[Launch]),
    sure: bool,
) -> Option<Plan> {
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
    for launch in &mut other.launches {
        let mut pods: Vec<PodRef> = launch.pods.iter().filter(|pod| !targets.contains_key(&pod.uid)).cloned().collect();
        pods.extend(coming.remove(&NodeName(launch.action_id.0.clone())).unwrap_or_default());
        pods.sort();
        if pods == launch.pods {
            continue;
        }
        if pods.is_empty() {
            return None;
        }
        launch.pods.iter().filter_map(shape_of).for_each(|shape| launch.requests.subtract(&shape.requests));
        let wanted: BTreeSet<&PodShape> = pods.iter().filter_map(shape_of).collect();
        pods.iter().filter_map(shape_of).for_each(|shape| launch.requests.add(&shape.requests));
        let node = nodes.iter().find(|node| node.name.0 == launch.action_id.0)?;
        if sure {
            narrow(launch, node);
        }
        keep_fitting(facts, launch, node, &wanted);
        launch.pods = pods;
        rename(launch, "launch with other pods");
    }
    for launch in further {
        coming.remove(&NodeName(launch.action_id.0.clone()));
    }
    for to in std::mem::take(&mut other.placements) {
        let stay = to.pods.into_iter().filter(|pod| !targets.contains_key(&pod.uid));
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

/// Keeps what can hold the launch's pods, of these shapes.
fn keep_fitting(facts: Question<'_>, launch: &mut Launch, node: &Node, wanted: &BTreeSet<&PodShape>) {
    let pool = facts.snapshot.node_pools.iter().find(|pool| pool.name == launch.node_pool);
    let Some(catalog) = pool.and_then(|pool| facts.catalogs.get(pool.catalog.as_ref()?)) else { return };
    let fits = |one: &&OfferingChoice| {
        let Some(kind) = catalog.get(&one.instance_type) else { return false };
        let mut labels = node.labels.clone();
        labels.extend(kind.labels.clone());
        for (key, value) in [
            (label::ZONE, one.zone.as_str()),
            (label::CAPACITY_TYPE, one.capacity_type.as_str()),
            (label::INSTANCE_TYPE, &kind.name),
            (label::ARCH, &kind.architecture),
        ] {
            labels.insert(key.to_owned(), value.to_owned());
        }
        let name = node.name.as_str();
        launch.requests.fits_in(&kind.allocatable())
            && wanted.iter().all(|shape| selects(shape, name, &labels) && volumes::attachable(shape, name, &labels))
    };
    let kept: Vec<OfferingChoice> = launch.offerings.iter().filter(fits).cloned().collect();
    if kept.len() == launch.offerings.len() {
        return;
    }
    let distinct = |value: fn(&OfferingChoice) -> String| -> Vec<String> {
        kept.iter().map(value).collect::<BTreeSet<String>>().into_iter().collect()
    };
    let requirements = Arc::make_mut(&mut launch.requirements);
    requirements.push(one_of(label::INSTANCE_TYPE, distinct(|one| one.instance_type.clone())));
    requirements.push(one_of(label::ZONE, distinct(|one| one.zone.clone())));
    requirements.push(one_of(label::CAPACITY_TYPE, distinct(|one| one.capacity_type.to_string())));
    requirements.sort();
    requirements.dedup();
    launch.offerings = Arc::new(kept);
}
