//! Spreads that leave pods for a domain that they cannot use.
//!
//! A spread counts all domains that pools could open. Where its pods cannot go to one of them, since no type there is large enough or since they
//! must be near others elsewhere, it stays empty and holds the others back for ever. kube-scheduler counts the domains that have nodes,
//! and binds them all as long as that one has none. So where pods are left for this, all is planned once more as if pools could open
//! only the domains that these pods are in.

use crate::facts::{lookup, one_of};
use crate::topology;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, PodUid, ShapeId};
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{NodePool, PodShape, PodState, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Sets of domains that are tried: each costs a plan. All that are in use, then one by one for pods that must be near others.
const TRIES: usize = 3;

/// A plan that leaves fewer pods, and none that `plan` does not leave; else `plan`. `again` plans for another snapshot.
pub(crate) fn gathered(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    plan: Plan,
    again: impl Fn(&Snapshot) -> Plan,
) -> Plan {
    let mut best = plan;
    for (key, shapes) in torn(snapshot, &best) {
        let all: Vec<String> = domains(snapshot, &best, &key, &shapes).into_iter().collect();
        let each = all.iter().map(|value| vec![value.clone()]).filter(|_| all.len() > 1);
        let narrower = |values: &Vec<String>| !values.is_empty() && !is_all(catalogs, &key, values);
        for values in std::iter::once(all.clone()).filter(narrower).chain(each).take(TRIES) {
            let mut narrowed = snapshot.clone();
            let pools = narrowed.node_pools.iter_mut().filter(|pool| pool.replicas.is_none() && has(pool, &key));
            pools.for_each(|pool| pool.requirements.push(one_of(&key, values.clone())));
            let tried = again(&narrowed);
            if left(&tried).len() < left(&best).len() && left(&tried).is_subset(&left(&best)) {
                best = told_by(tried, best);
            }
        }
    }
    best
}

/// Keys over which pods without a place are spread, with the shapes of such pods; no key over which other pods spread, which would
/// open the other domains.
fn torn(snapshot: &Snapshot, plan: &Plan) -> BTreeMap<String, BTreeSet<ShapeId>> {
    let mut keys: BTreeMap<String, BTreeSet<ShapeId>> = BTreeMap::new();
    // Where capacity is short for a while, pods wait for it rather than pile up elsewhere.
    if plan.unschedulable.is_empty() || !snapshot.unavailable_offerings.is_empty() {
        return keys;
    }
    let left = left(plan);
    let pending = || snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending);
    let without: BTreeSet<&ShapeId> = pending().filter(|pod| left.contains(&pod.uid)).map(|pod| &pod.shape).collect();
    for shape in snapshot.shapes.iter().filter(|shape| without.contains(&shape.id)) {
        for key in spread_over(shape, true) {
            keys.entry(key.to_owned()).or_default().insert(shape.id.clone());
        }
    }
    if !keys.is_empty() {
        let used: BTreeSet<&ShapeId> = pending().map(|pod| &pod.shape).collect();
        let others = || snapshot.shapes.iter().filter(|shape| used.contains(&shape.id));
        keys.retain(|key, own| {
            !others().any(|shape| !own.contains(&shape.id) && spread_over(shape, false).contains(key.as_str()))
        });
    }
    keys
}

/// Keys, other than the host, over which the shape is spread: where it must, or also where it only should.
fn spread_over(shape: &PodShape, required: bool) -> BTreeSet<&str> {
    let spread = shape.topology_spread.iter().filter(|one| one.required || !required);
    spread.map(|one| label::normalized(&one.topology_key)).filter(|key| *key != label::HOSTNAME).collect()
}

/// Where the plan has pods of those shapes.
fn domains(snapshot: &Snapshot, plan: &Plan, key: &str, shapes: &BTreeSet<ShapeId>) -> BTreeSet<String> {
    let pods: BTreeSet<&PodUid> =
        snapshot.pods.iter().filter(|pod| shapes.contains(&pod.shape)).map(|pod| &pod.uid).collect();
    let mut found = BTreeSet::new();
    for launch in plan.launches.iter().filter(|one| one.pods.iter().any(|pod| pods.contains(&pod.uid))) {
        found.extend(topology::domains(launch, key).into_iter().map(str::to_owned));
    }
    for to in plan.placements.iter().filter(|one| one.pods.iter().any(|pod| pods.contains(&pod.uid))) {
        let node = snapshot.nodes.iter().find(|node| node.name == to.node);
        found.extend(node.and_then(|node| lookup(&node.labels, key)).map(str::to_owned));
    }
    found
}

/// Whether that is every zone, or every capacity type, in which anything is sold: planning for these alone would change nothing.
fn is_all(catalogs: &BTreeMap<CatalogId, Catalog>, key: &str, values: &[String]) -> bool {
    let has = |value: &str| values.iter().any(|one| one == value);
    let mut sold = catalogs.values().flat_map(|catalog| &catalog.instance_types).flat_map(|kind| &kind.offerings);
    match key {
        label::ZONE => sold.all(|offering| has(&offering.zone)),
        label::CAPACITY_TYPE => sold.all(|offering| has(offering.capacity_type.as_str())),
        _ => false,
    }
}

/// Whether nodes of the pool have that label.
fn has(pool: &NodePool, key: &str) -> bool {
    label::is_well_known(key)
        || pool.labels.contains_key(key)
        || pool.requirements.iter().any(|one| label::normalized(&one.key) == key)
}

fn left(plan: &Plan) -> BTreeSet<&PodUid> {
    plan.unschedulable.iter().map(|one| &one.pod.uid).collect()
}

/// `plan` with what `known`, made without the narrowing, says about pools and pods.
fn told_by(mut plan: Plan, known: Plan) -> Plan {
    let still: BTreeSet<PodUid> = left(&plan).into_iter().cloned().collect();
    plan.unschedulable = known.unschedulable;
    plan.unschedulable.retain(|one| still.contains(&one.pod.uid));
    plan.pool_problems = known.pool_problems;
    // It is the bound of a smaller demand, but of all that pools could open.
    plan.lower_bound = plan.lower_bound.min(known.lower_bound);
    plan
}
