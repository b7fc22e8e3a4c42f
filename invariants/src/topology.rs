//! Checks required topology spread, pod affinity and pod anti-affinity of the pods that the plan places.
//!
//! If the order of a plan's actions is open, for example pods that leave while others arrive, the more permissive order
//! is assumed. Pods are counted once per selector and domain, so the cost grows with pods and targets, not with pairs
//! of pods.

mod affinity;
mod counts;
mod selectors;
mod spread;
mod targets;

use crate::Violation;
use crate::facts::Facts;
use affinity::Unmet;
use counts::{ShapeCount, ShapeCounts};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{PodAffinityTerm, PodShape};
use selectors::{SelectorIndex, ShapeNumbers};
use spread::{DomainCountsCache, EquivalenceClasses};
use std::collections::BTreeMap;
use std::rc::Rc;
use targets::{Column, Domain, Place, PlacementTargets};

pub(crate) fn check<'a>(facts: &Facts<'a>, plan: &'a Plan, violations: &mut Vec<Violation>) {
    let has_constraints = |shape: &PodShape| !shape.topology_spread.is_empty() || !shape.pod_affinity.is_empty();
    if !facts.snapshot.shapes.iter().any(has_constraints) {
        return;
    }
    let mut check = TopologyCheck::new(facts, plan);
    check.unmet_affinity = affinity::unmet(&mut check);
    for number in check.counts.checked_shapes.clone() {
        for (place, pod, problem) in check.problems(number) {
            let pod = facts.pod(pod).map_or_else(String::new, |pod| pod.full_name());
            violations.push(Violation::PodDoesNotFit { pod, place: check.targets.name(place), problem });
        }
    }
}

/// Pods that a term selects, by domain.
struct Members {
    kept: IndexVec<Domain, i64>,
    placed: IndexVec<Domain, i64>,
}

/// Lookup tables of the check, each computed once.
struct TopologyCheck<'a> {
    targets: PlacementTargets<'a>,
    counts: ShapeCounts<'a>,
    selectors: SelectorIndex<'a>,
    classes: EquivalenceClasses<'a>,
    columns: BTreeMap<&'a str, Rc<Column>>,
    /// By selected shapes and topology key.
    members: BTreeMap<(ShapeNumbers, &'a str), Rc<Members>>,
    domain_counts: DomainCountsCache<'a>,
    unmet_affinity: Unmet<'a>,
}

impl<'a> TopologyCheck<'a> {
    fn new(facts: &Facts<'a>, plan: &'a Plan) -> Self {
        let targets = PlacementTargets::new(facts, plan);
        let mut selectors = SelectorIndex::new(&facts.snapshot.shapes);
        let counts = ShapeCounts::new(facts, &targets, plan, &mut selectors);
        let classes = EquivalenceClasses::new(&targets, &selectors, &counts);
        let (columns, members, domain_counts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let unmet_affinity = Unmet::new();
        Self { targets, counts, selectors, classes, columns, members, domain_counts, unmet_affinity }
    }

    fn column(&mut self, key: &'a str) -> Rc<Column> {
        let key = label::normalized(key);
        Rc::clone(self.columns.entry(key).or_insert_with(|| Rc::new(self.targets.column(key))))
    }

    fn members(&mut self, shapes: &ShapeNumbers, key: &'a str) -> Rc<Members> {
        let key = label::normalized(key);
        if let Some(cached) = self.members.get(&(Rc::clone(shapes), key)) {
            return Rc::clone(cached);
        }
        let column = self.column(key);
        let mut members =
            Members { kept: IndexVec::filled(0, column.count), placed: IndexVec::filled(0, column.count) };
        for count in shapes.iter().flat_map(|shape| &self.counts.by_shape[*shape]) {
            if let Some(domain) = column.values[count.place] {
                members.kept[domain] += count.kept;
                members.placed[domain] += count.placed;
            }
        }
        let members = Rc::new(members);
        self.members.insert((Rc::clone(shapes), key), Rc::clone(&members));
        members
    }

    /// Returns constraints of the shape that the plan violates: target, first affected pod and problem.
    fn problems(&mut self, number: Id<PodShape>) -> Vec<(Id<Place>, &'a str, String)> {
        let mut problems = Vec::new();
        let shape = self.selectors.shapes[number];
        let spreads = self.spreads(shape);
        for count in self.counts.by_shape[number].clone() {
            let ShapeCount { place, kept, first_kept, placed, first_placed, .. } = count;
            if kept > 0 {
                let problem = self.affinity_problem(number, shape, place, false);
                problems.extend(problem.map(|problem| (place, first_kept, problem)));
            }
            if placed > 0 {
                let uneven = || spreads.iter().find(|spread| !spread.satisfies_skew(place));
                let problem = self.affinity_problem(number, shape, place, true);
                let problem = problem
                    .or_else(|| uneven().map(|spread| format!("topology spread over {}", spread.spread.topology_key)));
                problems.extend(problem.map(|problem| (place, first_placed, problem)));
            }
        }
        problems
    }

    /// Returns the first affinity or anti-affinity term that does not hold for pods of the shape at `place`.
    fn affinity_problem(
        &mut self,
        number: Id<PodShape>,
        shape: &'a PodShape,
        place: Id<Place>,
        placed: bool,
    ) -> Option<String> {
        for term in shape.pod_affinity.iter().filter(|term| term.anti && term.weight.is_none()) {
            if self.violates_anti_affinity(number, term, place, placed) {
                return Some(format!("podAntiAffinity over {}", term.topology_key));
            }
        }
        let unmet = self.unmet_affinity.get(&(number, place)).filter(|_| placed);
        unmet.map(|key| format!("podAffinity over {key}"))
    }

    /// Whether the plan put a pod of the shape and a pod selected by its anti-affinity term into one domain.
    fn violates_anti_affinity(
        &mut self,
        number: Id<PodShape>,
        term: &'a PodAffinityTerm,
        place: Id<Place>,
        placed: bool,
    ) -> bool {
        let Some(domain) = self.column(&term.topology_key).values[place] else { return false };
        let shapes = self.selectors.members(&term.namespaces, term.selector.as_ref());
        let members = self.members(&shapes, &term.topology_key);
        if placed {
            let itself = i64::from(shapes.binary_search(&number).is_ok());
            members.kept[domain] + members.placed[domain] > itself
        } else {
            members.placed[domain] > 0
        }
    }
}
