//! Nodes that pools could launch, to test whether an unschedulable pod could have been bound to one of them.
//!
//! The nodes that a pool allows are derived only from its requirements, limits and taints. kube-scheduler decides
//! whether the pod fits.

use super::case::Planned;
use super::case_objects::{CaseObjects, Left};
use super::nodes::CaseNode;
use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::{NODES_RESOURCE, label};
use plimsoll_model::requirements::{Operator, Requirement};
use plimsoll_model::resources::{PODS, Resources};
use plimsoll_model::snapshot::{NodePool, PodShape, Snapshot};
use plimsoll_model::taints::TaintEffect;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of tested shapes per case, because each takes seconds.
const MAX_SHAPES: usize = 4;
/// Maximum number of tested nodes for a shape among those that match selector, affinity and taints.
const MAX_LIKELY: usize = 8;
/// Maximum number of tested nodes among the others, for which kube-scheduler decides as well.
const MAX_UNLIKELY: usize = 2;
/// Maximum number of combinations of label values that a pool leaves open.
const MAX_OPEN: usize = 8;

/// One pod of each shape, because pods of one shape have the same result.
pub(super) fn one_of_each_shape(left: &[Left]) -> Vec<&Left> {
    let mut shapes = BTreeSet::new();
    left.iter().filter(|it| shapes.insert(it.shape)).take(MAX_SHAPES).collect()
}

/// Custom labels of the pool.
type Own = BTreeMap<String, String>;

/// A node that could be launched, and how often the pod's requests fit on it.
struct Candidate {
    made: CaseNode,
    ratio: f64,
    price: i64,
}

/// Nodes to test for a shape: for each zone, capacity type and value of a label that the pod selects, the type with the
/// most capacity for the pod.
pub(super) fn candidates(planned: &Planned, case_objects: &CaseObjects, shape: usize) -> Vec<CaseNode> {
    let Some(shape) = planned.snapshot.shapes.get(shape) else { return Vec::new() };
    let keys = asked_keys(shape);
    let mut best: BTreeMap<(String, Vec<Option<String>>), Candidate> = BTreeMap::new();
    for pool in planned.snapshot.node_pools.iter().filter(|pool| can_launch(pool)) {
        let Some(catalog) = pool.catalog.as_ref().and_then(|id| planned.catalogs.get(id)) else { continue };
        let headroom = headroom(planned, case_objects, pool, catalog);
        let possible_nodes = of_pool(planned, pool, catalog, shape);
        if lacks_variety(pool, &possible_nodes) {
            continue;
        }
        for (kind, candidate) in possible_nodes {
            let mut capacity = kind.capacity.clone();
            capacity.set(NODES_RESOURCE, 1);
            if headroom.iter().any(|(name, left)| capacity.get(name) > left) {
                continue;
            }
            let values = keys.iter().map(|key| candidate.made.labels.get(*key).cloned()).collect();
            let group = (pool.name.0.clone(), values);
            let better = |known: &Candidate| {
                candidate.ratio > known.ratio || (candidate.ratio >= known.ratio && candidate.price < known.price)
            };
            if best.get(&group).is_none_or(better) {
                best.insert(group, candidate);
            }
        }
    }
    let (likely, unlikely): (Vec<CaseNode>, Vec<CaseNode>) =
        best.into_values().map(|it| it.made).partition(|made| seems_fit(made, shape));
    let mut chosen = spaced(likely, MAX_LIKELY);
    chosen.extend(spaced(unlikely, MAX_UNLIKELY));
    chosen.iter_mut().enumerate().for_each(|(number, made)| made.rename(&format!("probe-{number}")));
    chosen
}

/// At most this many nodes, evenly selected from the list.
fn spaced(all: Vec<CaseNode>, most: usize) -> Vec<CaseNode> {
    let step = all.len().div_ceil(most.max(1)).max(1);
    all.into_iter().step_by(step).collect()
}

fn asked_keys(shape: &PodShape) -> BTreeSet<&str> {
    let mut keys = BTreeSet::from([label::ZONE, label::CAPACITY_TYPE]);
    keys.extend(shape.node_selector.keys().map(String::as_str));
    keys.extend(shape.required_node_affinity.iter().flat_map(|it| &it.expressions).map(|it| it.key.as_str()));
    keys.extend(shape.topology_spread.iter().map(|it| it.topology_key.as_str()));
    keys.extend(shape.pod_affinity.iter().map(|it| it.topology_key.as_str()));
    keys.extend(
        shape.volumes.iter().flat_map(|it| &it.alternatives).flat_map(|it| &it.expressions).map(|it| it.key.as_str()),
    );
    keys.remove(label::HOSTNAME);
    keys
}

fn can_launch(pool: &NodePool) -> bool {
    pool.not_ready.is_none() && !pool.deleting && pool.replicas.is_none()
}

/// Remaining limits of a pool: minus its nodes, and minus the launched nodes of the plan.
fn headroom(planned: &Planned, case_objects: &CaseObjects, pool: &NodePool, catalog: &Catalog) -> Resources {
    let mut used = Resources::new();
    let of_pool = planned.snapshot.nodes.iter().filter(|node| node.node_pool.as_ref() == Some(&pool.name));
    of_pool.for_each(|node| used.add(&node.limit_usage));
    for (number, launch) in planned.plan.launches.iter().enumerate() {
        let name = format!("launch-{number}");
        let made = case_objects.nodes.iter().find(|it| it.name == name && launch.node_pool == pool.name);
        let kind = made.and_then(|it| it.labels.get(label::INSTANCE_TYPE)).and_then(|it| catalog.get(it));
        let Some(kind) = kind else { continue };
        used.add(&kind.capacity);
        used.add(&Resources::from([(NODES_RESOURCE, 1)]));
    }
    let mut remaining = Resources::new();
    pool.limits.iter().for_each(|(name, limit)| remaining.set(name, limit - used.get(name)));
    remaining
}

/// All nodes that a pool can launch now.
fn of_pool<'a>(
    planned: &Planned,
    pool: &NodePool,
    catalog: &'a Catalog,
    shape: &PodShape,
) -> Vec<(&'a InstanceType, Candidate)> {
    let mut candidates = Vec::new();
    let Some(open) = open_labels(pool, catalog, shape) else { return candidates };
    for kind in &catalog.instance_types {
        let room = kind.allocatable();
        let ratio = ratio(&shape.requests, &room);
        for offering in kind.offerings.iter().filter(|it| it.available && !is_closed(&planned.snapshot, kind, it)) {
            for own in &open {
                let made = CaseNode::possible("probe", pool, own, (kind, offering), &catalog.region);
                if pool_allows(pool, &made.labels) {
                    candidates.push((kind, Candidate { made, ratio, price: offering.price.0 }));
                }
            }
        }
    }
    candidates
}

/// How often the requests fit into the scarcest resource.
fn ratio(requests: &Resources, room: &Resources) -> f64 {
    let requested = requests.iter().filter(|(name, amount)| *amount > 0 && *name != PODS);
    #[expect(clippy::cast_precision_loss, reason = "only compared with each other")]
    let ratios = requested.map(|(name, amount)| room.get(name) as f64 / amount as f64);
    ratios.fold(f64::MAX, f64::min)
}

fn is_closed(snapshot: &Snapshot, kind: &InstanceType, offering: &Offering) -> bool {
    snapshot.unavailable_offerings.iter().any(|it| {
        it.capacity_type == offering.capacity_type
            && it.zone.as_ref().is_none_or(|zone| *zone == offering.zone)
            && it.instance_type.as_ref().is_none_or(|name| *name == kind.name)
    })
}

/// Requirements of the pool by key; `None` if one is invalid.
fn requirements(pool: &NodePool) -> Option<Vec<(Operator, Requirement)>> {
    pool.requirements.iter().map(|it| Some((it.operator, Requirement::new(it).ok()?))).collect()
}

fn pool_allows(pool: &NodePool, labels: &BTreeMap<String, String>) -> bool {
    let Some(all) = requirements(pool) else { return false };
    all.iter().all(|(operator, requirement)| match labels.get(&requirement.key) {
        Some(value) => *operator != Operator::DoesNotExist && requirement.has(value),
        None => requirement.allows_absence(),
    })
}

/// Values of labels that neither types nor the template define: those that the pool lists, or those that the pod
/// selects.
fn open_labels(pool: &NodePool, catalog: &Catalog, shape: &PodShape) -> Option<Vec<Own>> {
    let of_types: BTreeSet<&str> =
        catalog.instance_types.iter().flat_map(|it| it.labels.keys()).map(String::as_str).collect();
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, requirement) in requirements(pool)? {
        let key = requirement.key.as_str();
        if label::is_well_known(key) || of_types.contains(key) || pool.labels.contains_key(key) {
            continue;
        }
        let listed: Vec<String> = match requirement.complement {
            false => requirement.values.iter().cloned().collect(),
            true => asked_values(shape, key).into_iter().filter(|value| requirement.has(value)).collect(),
        };
        values.insert(requirement.key.clone(), listed);
    }
    let mut all = vec![Own::new()];
    for (key, listed) in values.into_iter().filter(|(_, listed)| !listed.is_empty()) {
        let with = |own: &Own, value: &String| {
            let mut own = own.clone();
            own.insert(key.clone(), value.clone());
            own
        };
        all = all.iter().flat_map(|own| listed.iter().map(|value| with(own, value)).collect::<Vec<_>>()).collect();
        all.truncate(MAX_OPEN);
    }
    Some(all)
}

fn asked_values(shape: &PodShape, key: &str) -> BTreeSet<String> {
    let selected = shape.node_selector.get(key).cloned();
    let terms = shape.required_node_affinity.iter().flat_map(|it| &it.expressions).filter(|it| it.key == key);
    terms.flat_map(|it| it.values.clone()).chain(selected).collect()
}

/// Whether a pool with `minValues` has too few values with types that fit the pod.
fn lacks_variety(pool: &NodePool, all: &[(&InstanceType, Candidate)]) -> bool {
    pool.requirements.iter().any(|it| {
        let Some(least) = it.min_values else { return false };
        let roomy = all.iter().filter(|(_, candidate)| candidate.ratio >= 1.0);
        let values: BTreeSet<_> = roomy.filter_map(|(_, candidate)| candidate.made.labels.get(&it.key)).collect();
        values.len() < usize::try_from(least).unwrap_or(usize::MAX)
    })
}

/// Only determines which nodes are tested first.
fn seems_fit(made: &CaseNode, shape: &PodShape) -> bool {
    let selected = shape.node_selector.iter().all(|(key, value)| made.labels.get(key) == Some(value));
    let terms = &shape.required_node_affinity;
    let matched = terms.is_empty() || terms.iter().any(|term| term.matches_labels(&made.labels));
    let mut hard = made.taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
    selected && matched && hard.all(|taint| shape.tolerations.iter().any(|it| it.tolerates(taint)))
}
