//! Spreads over domains in which no node can be launched.
//!
//! A topology spread constraint counts every domain that a NodePool lists. Limits, missing capacity, instance types,
//! volumes or pod affinity can make a domain unavailable. An unavailable domain stays empty and blocks the other pods
//! of the spread forever. kube-scheduler counts only domains of nodes that the spread's inclusion policies admit. A
//! domain without such nodes is therefore given up if this places more pods: one domain at a time, the one with the
//! fewest pods first. For pods that must be near others, all domains but one are given up, too. The spread still holds
//! over all other domains.

use super::{Attempt, Best, projection, spread_over, unplaced_by_shape, unplaced_pods};
use crate::retries;
use plimsoll_kubesched::spread;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, PodUid, ShapeId};
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::snapshot::{NodePool, PodShape, PodState, Snapshot, SnapshotIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Unplaced pods that are spread over the same key.
#[derive(PartialEq, Eq)]
struct Waiting {
    key: String,
    shapes: BTreeSet<ShapeId>,
    /// Number of all unplaced pods.
    unplaced: usize,
}

/// Gives up domains for the unplaced pods: for all pods of a key together, then for each workload separately, since
/// other pods may still need the domains.
pub(super) fn give_up(best: &mut Best<'_>) {
    if keys(best).is_empty() {
        return;
    }
    let index = SnapshotIndex::new(best.inputs.snapshot);
    let mut tried: Vec<Waiting> = Vec::new();
    while tried.len() < retries::SEVERAL {
        // A plan with more pods may leave others, or the same may need a domain of each of their keys to be given up.
        let is_known = |waiting: &Waiting| tried.iter().any(|one| one.key == waiting.key);
        let untried = keys(best).into_iter().filter(|waiting| !tried.contains(waiting));
        let Some(waiting) = untried.min_by_key(is_known) else { return };
        if !is_shared(best.inputs.snapshot, &waiting) {
            give_up_for(best, &index, &waiting, Scope::Pools);
        }
        for shape in waiting.shapes.iter().take(retries::FEW) {
            for scope in [Scope::Shapes, Scope::Related] {
                if unplaced_by_shape(best.inputs.snapshot, &best.plan).contains_key(shape) {
                    let own = Waiting { shapes: [shape.clone()].into(), key: waiting.key.clone(), ..waiting };
                    give_up_for(best, &index, &own, scope);
                }
            }
        }
        tried.push(waiting);
    }
}

/// Pods that are excluded from a domain that is given up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// All pods on new nodes, so that other pods do not open the domain either.
    Pools,
    /// Only pods of the spread.
    Shapes,
    /// Pods of the spread and pending pods whose own spreads count these. Otherwise, the other spreads still limit the
    /// pods by the domain.
    Related,
}

/// Whose domains are given up, and from where.
struct Closing<'w> {
    /// The snapshot with all domains.
    start: Snapshot,
    waiting: &'w Waiting,
    scope: Scope,
}

/// `index` is that of the original snapshot.
fn give_up_for(best: &mut Best<'_>, index: &SnapshotIndex, waiting: &Waiting, scope: Scope) {
    let closing = Closing { start: best.start(), waiting, scope };
    let before: BTreeSet<PodUid> = unplaced_pods(best.inputs.snapshot, &best.plan).into_iter().cloned().collect();
    let existing = counts(best.inputs.snapshot, index, waiting);
    let mut given_up: Vec<String> = Vec::new();
    let mut latest = best.plan.clone();
    // Number of domains that had to be given up for the current plan.
    let mut needed = 0;
    let waits = |best: &Best<'_>| {
        let unplaced = unplaced_by_shape(best.inputs.snapshot, &best.plan);
        waiting.shapes.iter().any(|shape| unplaced.contains_key(shape))
    };
    while given_up.len() < retries::SEVERAL && waits(best) {
        let rest = closable(best, &latest, waiting, &existing, &given_up);
        let Some(emptiest) = rest.into_iter().next() else { break };
        given_up.push(emptiest);
        match best.attempt(closing.without(&given_up), false) {
            Attempt::Accepted => {
                reopen(best, &closing, &mut given_up, needed);
                needed = given_up.len();
                latest = best.plan.clone();
            }
            Attempt::Rejected(tried) => latest = *tried,
            Attempt::OutOfWork => break,
        }
    }
    if waits(best) && follows(best.inputs.snapshot, waiting) {
        keep_one(best, &closing, &existing);
    }
    keep_domains(best, closing.start, &before);
}

/// Whether some of the pods must be near pending pods. Pods that run stay where they are.
fn follows(snapshot: &Snapshot, waiting: &Waiting) -> bool {
    let pending = pending_shapes(snapshot);
    let leaders: Vec<&PodShape> = snapshot.shapes.iter().filter(|shape| pending.contains(&shape.id)).collect();
    let mut shapes = snapshot.shapes.iter().filter(|shape| waiting.shapes.contains(&shape.id));
    shapes.any(|shape| {
        let mut terms = shape.pod_affinity.iter().filter(|one| !one.anti && one.weight.is_none());
        terms.any(|term| leaders.iter().any(|leader| term.selects(leader)))
    })
}

/// Gives up all domains but one, and not the one with the most pods. It may have these only because the pods that they
/// must be near are there, and these would find a place in the other domain, too.
fn keep_one(best: &mut Best<'_>, closing: &Closing<'_>, existing: &BTreeMap<String, usize>) {
    let all = closable(best, &best.plan, closing.waiting, existing, &[]);
    for kept in all.iter().take(all.len().saturating_sub(1)).take(retries::FEW) {
        let mut given_up: Vec<String> = all.iter().filter(|one| *one != kept).cloned().collect();
        match best.attempt(closing.without(&given_up), false) {
            Attempt::Accepted => {
                reopen(best, closing, &mut given_up, 0);
                return;
            }
            Attempt::Rejected(_) => {}
            Attempt::OutOfWork => return,
        }
    }
}

/// If pods that were placed `before` lose their place, only these pods may have made the domains unavailable. Keeps all
/// domains if the other pods are then placed without them, too.
fn keep_domains(best: &mut Best<'_>, start: Snapshot, before: &BTreeSet<PodUid>) {
    let snapshot = best.inputs.snapshot;
    let unplaced = unplaced_pods(snapshot, &best.plan);
    let lost = unplaced.iter().filter(|uid| !before.contains(**uid)).filter_map(|uid| snapshot.pod(uid));
    // A pod that runs, on an expired node, belongs to the removal of this node.
    let lost: BTreeSet<&ShapeId> = lost.filter(|pod| pod.state == PodState::Pending).map(|pod| &pod.shape).collect();
    if lost.is_empty() {
        return;
    }
    let mut without = start.clone();
    without
        .pods
        .retain(|pod| pod.state != PodState::Pending || !lost.contains(&pod.shape) || !unplaced.contains(&pod.uid));
    if let Attempt::Accepted = best.attempt(without, true) {
        // Later moves may place these pods.
        best.changed_snapshot = Some(start);
    }
}

/// Reopens domains that were given up unnecessarily: each after the first `needed`, except for the last one.
fn reopen(best: &mut Best<'_>, closing: &Closing<'_>, given_up: &mut Vec<String>, needed: usize) {
    let mut at = needed;
    while at + 1 < given_up.len() {
        let mut fewer = given_up.clone();
        fewer.remove(at);
        if let Attempt::Accepted = best.attempt(closing.without(&fewer), true) {
            *given_up = fewer;
        } else {
            at += 1;
        }
    }
}

/// Topology keys of unplaced pods, other than the hostname.
fn keys(best: &Best<'_>) -> Vec<Waiting> {
    let unplaced_by_shape = unplaced_by_shape(best.inputs.snapshot, &best.plan);
    let mut keys: BTreeMap<String, BTreeSet<ShapeId>> = BTreeMap::new();
    for shape in best.inputs.snapshot.shapes.iter().filter(|shape| unplaced_by_shape.contains_key(&shape.id)) {
        for key in spread_over(shape, true) {
            keys.entry(key.to_owned()).or_default().insert(shape.id.clone());
        }
    }
    let unplaced = unplaced_by_shape.values().sum();
    keys.into_iter().map(|(key, shapes)| Waiting { key, shapes, unplaced }).collect()
}

/// Whether pending pods of other workloads are spread over the same key, so that they may need the domains.
fn is_shared(snapshot: &Snapshot, waiting: &Waiting) -> bool {
    let pending = pending_shapes(snapshot);
    let others = snapshot.shapes.iter().filter(|one| pending.contains(&one.id) && !waiting.shapes.contains(&one.id));
    others.map(|shape| spread_over(shape, false)).any(|keys| keys.contains(waiting.key.as_str()))
}

/// Domains that no existing node opens, those in which the plan places the fewest pods of the spread first; among equal
/// domains the last by name. Empty if no other domain would remain.
fn closable(
    best: &Best<'_>,
    plan: &Plan,
    waiting: &Waiting,
    existing: &BTreeMap<String, usize>,
    given_up: &[String],
) -> Vec<String> {
    let open = domains(best.inputs.snapshot, best.inputs.catalogs, &waiting.key);
    let mut rest: Vec<String> =
        open.into_iter().filter(|one| !existing.contains_key(one) && !given_up.contains(one)).collect();
    // At least one domain must remain.
    if rest.is_empty() || rest.len() + existing.len() < 2 {
        return Vec::new();
    }
    let after = projection::project(best.inputs, plan);
    let pods = counts(&after, &SnapshotIndex::new(&after), waiting);
    rest.reverse();
    rest.sort_by_key(|one| pods.get(one).copied().unwrap_or(0));
    rest
}

/// Pods that the spreads of the unplaced pods count, in each domain that has a node which one of the spreads counts.
fn counts(snapshot: &Snapshot, index: &SnapshotIndex, waiting: &Waiting) -> BTreeMap<String, usize> {
    let mut pods: BTreeMap<String, usize> = BTreeMap::new();
    for shape in snapshot.shapes.iter().filter(|shape| waiting.shapes.contains(&shape.id)) {
        let over = |key: &str| label::normalized(key) == waiting.key;
        for spread in shape.topology_spread.iter().filter(|one| one.required && over(&one.topology_key)) {
            for (domain, count) in spread::counts(snapshot, index, shape, spread) {
                *pods.entry(domain).or_default() += count;
            }
        }
    }
    pods
}

/// Domains that NodePools list. These may include domains in which they cannot launch nodes.
fn domains(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, key: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for pool in snapshot.node_pools.iter().filter(|pool| pool.replicas.is_none()) {
        all.extend(
            pool.labels.iter().filter(|(name, _)| label::normalized(name) == key).map(|(_, value)| value.clone()),
        );
        let own = pool.requirements.iter().filter(|one| label::normalized(&one.key) == key);
        let listed = own.filter(|one| one.operator == Operator::In);
        all.extend(listed.flat_map(|one| one.values.iter().cloned()));
        let catalog = pool.catalog.as_ref().and_then(|id| catalogs.get(id));
        for kind in catalog.iter().flat_map(|catalog| &catalog.instance_types) {
            match key {
                label::ZONE => all.extend(kind.offerings.iter().map(|one| one.zone.clone())),
                label::CAPACITY_TYPE => {
                    all.extend(kind.offerings.iter().map(|one| one.capacity_type.as_str().to_owned()));
                }
                label::ARCH => drop(all.insert(kind.architecture.clone())),
                label::INSTANCE_TYPE => drop(all.insert(kind.name.clone())),
                _ => all.extend(kind.labels.get(key).cloned()),
            }
        }
    }
    all
}

impl Closing<'_> {
    /// The snapshot without these domains for the pods of the spread, so that the spread does not count the domains.
    fn without(&self, domains: &[String]) -> Snapshot {
        let Self { start, waiting, scope } = self;
        let mut changed_snapshot = start.clone();
        let elsewhere = NodeSelectorRequirement::new(waiting.key.clone(), Operator::NotIn, domains.iter().cloned());
        let related = if *scope == Scope::Related { related(start, waiting) } else { BTreeSet::new() };
        let is_excluded = |shape: &PodShape| waiting.shapes.contains(&shape.id) || related.contains(&shape.id);
        for shape in changed_snapshot.shapes.iter_mut().filter(|shape| is_excluded(shape)) {
            // If no pool has the domain any more, a spread that ignores node affinity does not count it either.
            require(shape, &elsewhere, *scope != Scope::Pools);
        }
        if *scope == Scope::Pools {
            let own = |pool: &&mut NodePool| pool.replicas.is_none() && has(pool, &waiting.key);
            let pools = changed_snapshot.node_pools.iter_mut().filter(own);
            pools.for_each(|pool| pool.requirements.push(elsewhere.clone()));
        }
        changed_snapshot
    }
}

/// Other pending pods with a required spread over the key that counts the waiting pods.
fn related<'s>(snapshot: &'s Snapshot, waiting: &Waiting) -> BTreeSet<&'s ShapeId> {
    let waits = |shape: &&PodShape| waiting.shapes.contains(&shape.id);
    let waiting_shapes: Vec<&PodShape> = snapshot.shapes.iter().filter(waits).collect();
    let counts = |shape: &&PodShape| {
        let over = shape.topology_spread.iter().filter(|one| one.required);
        let mut over = over.filter(|one| label::normalized(&one.topology_key) == waiting.key);
        over.any(|one| {
            let selects = |other: &&PodShape| {
                other.namespace == shape.namespace
                    && one.selector.as_ref().is_some_and(|selector| selector.matches(&other.labels))
            };
            waiting_shapes.iter().any(selects)
        })
    };
    let pending = pending_shapes(snapshot);
    snapshot.shapes.iter().filter(|shape| pending.contains(&shape.id)).filter(counts).map(|shape| &shape.id).collect()
}

fn pending_shapes(snapshot: &Snapshot) -> BTreeSet<&ShapeId> {
    snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending).map(|pod| &pod.shape).collect()
}

/// With `honored`, spreads over the key count only nodes that the pods may use.
fn require(shape: &mut PodShape, requirement: &NodeSelectorRequirement, honored: bool) {
    if shape.required_node_affinity.is_empty() {
        shape.required_node_affinity.push(NodeSelectorTerm::default());
    }
    for term in &mut shape.required_node_affinity {
        term.expressions.push(requirement.clone());
    }
    let over = |key: &str| label::normalized(key) == requirement.key;
    let spread = shape.topology_spread.iter_mut().filter(|one| honored && over(&one.topology_key));
    spread.for_each(|one| one.honor_node_affinity = true);
}

/// Whether nodes of the pool have this label.
fn has(pool: &NodePool, key: &str) -> bool {
    label::is_well_known(key)
        || pool.labels.contains_key(key)
        || pool.requirements.iter().any(|one| label::normalized(&one.key) == key)
}
