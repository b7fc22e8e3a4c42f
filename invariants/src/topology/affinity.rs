//! Required pod affinity: kube-scheduler binds one pod after another, and each needs pods that are bound already.

use super::TopologyCheck;
use super::counts::ShapeCount;
use super::selectors::required_affinity;
use super::targets::{Column, Domain, Place};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::PodShape;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Placed pods that cannot be bound in any order, by shape and target, with the topology key of an unmet term.
pub(super) type Unmet<'a> = BTreeMap<(Id<PodShape>, Id<Place>), &'a str>;

/// A required affinity term.
struct Term<'a> {
    key: &'a str,
    column: Rc<Column>,
    /// Bound pods that match all terms of the shape.
    bound: IndexVec<Domain, i64>,
}

/// A shape with required affinity terms and placed pods.
struct Owner<'a> {
    shape: Id<PodShape>,
    /// Whether the shape's pods match all of its terms.
    matches_itself: bool,
    terms: Vec<Term<'a>>,
    /// Bound pods that match all terms, once for each term whose label their node has.
    total: i64,
}

impl<'a> Owner<'a> {
    fn bind(&mut self, place: Id<Place>, count: i64) {
        for term in &mut self.terms {
            if let Some(domain) = term.column.values[place] {
                term.bound[domain] += count;
                self.total += count;
            }
        }
    }

    /// The topology key of the first term without a matching pod in the domain of `place`.
    fn unmet(&self, place: Id<Place>) -> Option<&'a str> {
        let is_met = |term: &&Term<'_>| term.column.values[place].is_some_and(|domain| term.bound[domain] > 0);
        self.terms.iter().find(|term| !is_met(term)).map(|term| term.key)
    }

    /// Whether a pod may be the first of a group of pods with affinity to each other. kube-scheduler does not see pods
    /// on nodes that have none of the topology keys.
    fn may_be_first(&self, place: Id<Place>) -> bool {
        self.matches_itself && self.total == 0 && self.terms.iter().all(|term| term.column.values[place].is_some())
    }
}

/// Binds the placed pods in the order that kube-scheduler permits, and returns the rest.
pub(super) fn unmet<'a>(check: &mut TopologyCheck<'a>) -> Unmet<'a> {
    let mut owners: Vec<Owner<'a>> = Vec::new();
    // Owners whose terms match the pods of a shape.
    let mut matching: BTreeMap<Id<PodShape>, Vec<Id<Owner<'a>>>> = BTreeMap::new();
    for shape in check.counts.checked_shapes.clone() {
        let owner = check.selectors.shapes[shape];
        let is_placed = check.counts.by_shape[shape].iter().any(|count| count.placed > 0);
        if !is_placed || required_affinity(owner).next().is_none() {
            continue;
        }
        let targets = check.selectors.affinity_targets(owner);
        targets.iter().for_each(|target| matching.entry(*target).or_default().push(Id::new(owners.len())));
        let term = |key: &'a str| {
            let column = check.column(key);
            Term { key, bound: IndexVec::filled(0, column.count), column }
        };
        let terms = required_affinity(owner).map(|one| one.topology_key.as_str()).map(term).collect();
        owners.push(Owner { shape, matches_itself: targets.binary_search(&shape).is_ok(), terms, total: 0 });
    }
    let mut owners: IndexVec<Owner<'a>, Owner<'a>> = owners.into();
    let mut waiting: Vec<(Id<Owner<'a>>, ShapeCount<'a>)> = Vec::new();
    for (number, owner) in owners.iter_enumerated() {
        let placed = check.counts.by_shape[owner.shape].iter().filter(|count| count.placed > 0);
        waiting.extend(placed.map(|count| (number, *count)));
    }
    for (shape, numbers) in &matching {
        let waits = owners.iter().any(|owner| owner.shape == *shape);
        for count in &check.counts.by_shape[*shape] {
            let bound = count.kept + if waits { 0 } else { count.placed };
            numbers.iter().for_each(|number| owners[*number].bind(count.place, bound));
        }
    }
    let bind = |owners: &mut IndexVec<Owner<'a>, Owner<'a>>, (number, count): (Id<Owner<'a>>, ShapeCount<'a>)| {
        let shape = owners[number].shape;
        for other in matching.get(&shape).into_iter().flatten() {
            owners[*other].bind(count.place, count.placed);
        }
    };
    loop {
        let before = waiting.len();
        waiting.retain(|(number, count)| {
            let is_met = owners[*number].unmet(count.place).is_none();
            if is_met {
                bind(&mut owners, (*number, *count));
            }
            !is_met
        });
        if waiting.len() < before {
            continue;
        }
        let first = waiting.iter().position(|(number, count)| owners[*number].may_be_first(count.place));
        let Some(first) = first else { break };
        bind(&mut owners, waiting.remove(first));
    }
    let rest = waiting.into_iter();
    rest.filter_map(|(number, count)| Some(((owners[number].shape, count.place), owners[number].unmet(count.place)?)))
        .collect()
}
