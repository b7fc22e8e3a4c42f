//! Spreads that leave pods for a domain that they cannot use.
//!
//! A spread counts all domains that pools could open. Where its pods cannot go to one of them, since no type there is large enough or since they
//! must be near others elsewhere, it stays empty and holds the others back for ever. kube-scheduler counts the domains that have nodes,
//! and binds them all as long as that one has none. So where pods are left for this, all is planned once more as if pools could open
//! only the domains that these pods are in; where other pods spread over the same key, and workload by workload where that does not do, as
//! if these pods alone could be nowhere else.

pub(crate) mod carried;
mod hosts;
pub(crate) mod named;
pub(crate) mod narrow;
mod ration;
pub(crate) mod top_up;

use crate::facts::{lookup, one_of};
use crate::topology;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, PodUid, ShapeId};
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, Plan, PodRef};
use plimsoll_model::requirements::NodeSelectorTerm;
use plimsoll_model::snapshot::{Node, NodePool, Pod, PodShape, PodState, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Pods and nodes of a cluster that is looked at once more as it will be, for any pod that is left: some milliseconds. In larger ones the plan for the nodes, once they
/// are there, finds the same.
const PODS: usize = 1_000;
const NODES: usize = 200;
/// Sets of domains that are tried: each costs a plan. All that are in use, then one by one for pods that must be near others.
const TRIES: usize = 3;

/// A key over which pods are spread, some of which have no place.
struct Torn {
    /// Shapes of those without.
    shapes: BTreeSet<ShapeId>,
    /// Others spread over it as well, and need the other domains.
    shared: bool,
}

/// A plan that leaves fewer pods, and none that `plan` does not leave; else `plan`. `again` plans for another snapshot. What is returned has a lower bound only
/// if it is `plan`.
pub(crate) fn gathered(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    plan: Plan,
    again: impl Fn(&Snapshot) -> Plan,
) -> Plan {
    improved(snapshot, catalogs, plan, &again, |best| {
        confine(best);
        hosts::join(best);
        top_up::top_up(best);
        if is_small(best.snapshot) && ration::ration(best) {
            top_up::top_up(best);
        }
    })
}

/// `plan` with those pods that it leaves on its nodes for which these have room after all.
pub(crate) fn topped_up(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    plan: Plan,
    again: impl Fn(&Snapshot) -> Plan,
) -> Plan {
    improved(snapshot, catalogs, plan, &again, top_up::top_up)
}

/// `plan` after `steps`, unless there is nothing to look for: no pod is left, or capacity is short for a while, for which pods wait rather than pile up elsewhere.
fn improved(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    plan: Plan,
    again: &dyn Fn(&Snapshot) -> Plan,
    steps: impl FnOnce(&mut Best<'_>),
) -> Plan {
    if left(snapshot, &plan).is_empty() || !snapshot.unavailable_offerings.is_empty() {
        return plan;
    }
    let mut best = Best { snapshot, catalogs, again, plan, facts: None };
    steps(&mut best);
    best.plan
}

fn is_small(snapshot: &Snapshot) -> bool {
    snapshot.pods.len() <= PODS && snapshot.nodes.len() <= NODES
}

/// Plans once more as if pods without a place could be in fewer domains.
fn confine(best: &mut Best<'_>) {
    let (snapshot, catalogs) = (best.snapshot, best.catalogs);
    for (key, torn) in torn(snapshot, &best.plan) {
        let all: Vec<String> = domains(snapshot, &best.plan, &key, &torn.shapes).into_iter().collect();
        let each = all.iter().map(|value| vec![value.clone()]).filter(|_| all.len() > 1);
        let narrower = |values: &Vec<String>| !values.is_empty() && !is_all(catalogs, &key, values);
        for values in std::iter::once(all.clone()).filter(narrower).chain(each).take(TRIES) {
            best.attempt(|facts| {
                if torn.shared {
                    let own = facts.shapes.iter_mut().filter(|shape| torn.shapes.contains(&shape.id));
                    own.for_each(|shape| restrict(shape, &key, &values));
                } else {
                    let pools = facts.node_pools.iter_mut().filter(|pool| pool.replicas.is_none() && has(pool, &key));
                    pools.for_each(|pool| pool.requirements.push(one_of(&key, values.clone())));
                }
            });
        }
        // Then each workload for itself, where it is: others may need the other domains, and have nodes there that it does not look at.
        for shape in torn.shapes.iter().take(TRIES) {
            if !without(snapshot, &best.plan).contains_key(shape) {
                continue;
            }
            let own = BTreeSet::from([shape.clone()]);
            let values: Vec<String> = domains(snapshot, &best.plan, &key, &own).into_iter().collect();
            if narrower(&values) {
                best.attempt(|facts| {
                    let own = facts.shapes.iter_mut().filter(|one| one.id == *shape);
                    own.for_each(|one| restrict(one, &key, &values));
                });
            }
        }
    }
}

/// The best plan so far.
struct Best<'a> {
    snapshot: &'a Snapshot,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
    again: &'a dyn Fn(&Snapshot) -> Plan,
    plan: Plan,
    /// What it was made for, if that is not the snapshot.
    facts: Option<Snapshot>,
}

impl Best<'_> {
    /// Plans for facts that are changed once more, and takes that plan if it leaves fewer pods, none that has a place now, and holds for the
    /// snapshot as it is. What was tried is returned if it was not taken.
    fn attempt(&mut self, change: impl FnOnce(&mut Snapshot)) -> Option<Plan> {
        let mut facts = self.facts.as_ref().unwrap_or(self.snapshot).clone();
        change(&mut facts);
        let mut tried = (self.again)(&facts);
        // Some may have been left out.
        let is_asked = |uid: &PodUid| facts.pods.binary_search_by(|pod| pod.uid.cmp(uid)).is_ok();
        let known = self.plan.unschedulable.iter().filter(|one| !is_asked(&one.pod.uid));
        tried.unschedulable.extend(known.cloned());
        tried.unschedulable.sort();
        if !self.is_fewer(&tried) {
            return Some(tried);
        }
        let told = told_by(tried, &self.plan);
        if !self.is_right(&told) {
            return Some(told);
        }
        (self.plan, self.facts) = (told, Some(facts));
        None
    }

    /// Takes a plan that was made from the present one, under the same conditions.
    fn accept(&mut self, plan: Plan) -> bool {
        let right = self.is_fewer(&plan) && self.is_right(&plan);
        if right {
            self.plan = plan;
        }
        right
    }

    fn is_fewer(&self, plan: &Plan) -> bool {
        let (left, known) = (left(self.snapshot, plan), left(self.snapshot, &self.plan));
        left.len() < known.len() && left.is_subset(&known)
    }

    fn is_right(&self, plan: &Plan) -> bool {
        let after = |plan: &Plan| carried::out(self.snapshot, self.catalogs, plan);
        let is_uneven = |after: &Snapshot, owner: &&PodShape| !carried::is_even(self.snapshot, after, owner);
        let owners = without(self.snapshot, &self.plan);
        let owners = self.snapshot.shapes.iter().filter(|shape| owners.contains_key(&shape.id));
        let then = after(plan);
        let uneven: Vec<&PodShape> = owners.filter(|owner| is_uneven(&then, owner)).collect();
        let was_so = || {
            let now = after(&self.plan);
            uneven.iter().all(|owner| is_uneven(&now, owner))
        };
        // A spread that counts pods which it does not bind may have become uneven by them.
        (uneven.is_empty() || was_so()) && plimsoll_invariants::check(self.snapshot, self.catalogs, plan).is_empty()
    }
}

/// Keys over which pods without a place are spread.
fn torn(snapshot: &Snapshot, plan: &Plan) -> BTreeMap<String, Torn> {
    let mut keys: BTreeMap<String, Torn> = BTreeMap::new();
    let without = without(snapshot, plan);
    for shape in snapshot.shapes.iter().filter(|shape| without.contains_key(&shape.id)) {
        for key in spread_over(shape, true) {
            let torn = keys.entry(key.to_owned()).or_insert_with(|| Torn { shapes: BTreeSet::new(), shared: false });
            torn.shapes.insert(shape.id.clone());
        }
    }
    if !keys.is_empty() {
        let pending = snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending);
        let used: BTreeSet<&ShapeId> = pending.map(|pod| &pod.shape).collect();
        let others = || snapshot.shapes.iter().filter(|shape| used.contains(&shape.id));
        for (key, torn) in &mut keys {
            torn.shared = others()
                .any(|shape| !torn.shapes.contains(&shape.id) && spread_over(shape, false).contains(key.as_str()));
        }
    }
    keys
}

/// How many pending pods the plan leaves, by shape.
fn without<'a>(snapshot: &'a Snapshot, plan: &Plan) -> BTreeMap<&'a ShapeId, usize> {
    let left = left(snapshot, plan);
    let mut shapes = BTreeMap::new();
    for pod in snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending && left.contains(&pod.uid)) {
        *shapes.entry(&pod.shape).or_default() += 1;
    }
    shapes
}

/// Keys, other than the host, over which the shape is spread: where it must, or also where it only should.
fn spread_over(shape: &PodShape, required: bool) -> BTreeSet<&str> {
    let spread = shape.topology_spread.iter().filter(|one| one.required || !required);
    spread.map(|one| label::normalized(&one.topology_key)).filter(|key| *key != label::HOSTNAME).collect()
}

/// Pods of the shape go to these domains alone, and their spread counts no others.
fn restrict(shape: &mut PodShape, key: &str, values: &[String]) {
    if shape.required_node_affinity.is_empty() {
        shape.required_node_affinity.push(NodeSelectorTerm::default());
    }
    for term in &mut shape.required_node_affinity {
        term.expressions.push(one_of(key, values.to_vec()));
    }
    let spread = shape.topology_spread.iter_mut().filter(|one| label::normalized(&one.topology_key) == key);
    spread.for_each(|one| one.honor_node_affinity = true);
}

/// Where the plan has pods of those shapes; where it has nodes at all if it has none of them.
fn domains(snapshot: &Snapshot, plan: &Plan, key: &str, shapes: &BTreeSet<ShapeId>) -> BTreeSet<String> {
    let pods: BTreeSet<&PodUid> =
        snapshot.pods.iter().filter(|pod| shapes.contains(&pod.shape)).map(|pod| &pod.uid).collect();
    let own = |coming: &[PodRef]| coming.iter().any(|pod| pods.contains(&pod.uid));
    let of_node = |node: &Node| lookup(&node.labels, key).map(str::to_owned);
    let of_launch =
        |launch: &Launch| -> Vec<String> { topology::domains(launch, key).into_iter().map(str::to_owned).collect() };
    let mut found = BTreeSet::new();
    for launch in plan.launches.iter().filter(|one| own(&one.pods)) {
        found.extend(of_launch(launch));
    }
    for to in plan.placements.iter().filter(|one| own(&one.pods)) {
        let node = snapshot.nodes.iter().find(|node| node.name == to.node);
        found.extend(node.and_then(of_node));
    }
    if found.is_empty() {
        found.extend(snapshot.nodes.iter().filter(|node| !node.deleting).filter_map(of_node));
        found.extend(plan.launches.iter().flat_map(of_launch));
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

/// Pods that the plan leaves. Virtual ones are nobody's reason for another plan.
fn left<'p>(snapshot: &Snapshot, plan: &'p Plan) -> BTreeSet<&'p PodUid> {
    let find = |uid: &PodUid| snapshot.pods.binary_search_by(|pod| pod.uid.cmp(uid)).ok();
    let is_virtual = |uid: &PodUid| find(uid).and_then(|at| snapshot.pods.get(at)).is_some_and(Pod::is_virtual);
    plan.unschedulable.iter().map(|one| &one.pod.uid).filter(|uid| !is_virtual(uid)).collect()
}

/// `plan` with what `known`, made without the changes, says about pools and pods.
pub(crate) fn told_by(mut plan: Plan, known: &Plan) -> Plan {
    let mut told = known.unschedulable.clone();
    let still: BTreeSet<&PodUid> = plan.unschedulable.iter().map(|one| &one.pod.uid).collect();
    told.retain(|one| still.contains(&one.pod.uid));
    // Of virtual pods it may leave others.
    let before: BTreeSet<PodUid> = told.iter().map(|one| one.pod.uid.clone()).collect();
    told.extend(plan.unschedulable.into_iter().filter(|one| !before.contains(&one.pod.uid)));
    told.sort();
    plan.unschedulable = told;
    plan.pool_problems.clone_from(&known.pool_problems);
    plan
}
