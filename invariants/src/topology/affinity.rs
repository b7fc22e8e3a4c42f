//! Required pod affinity: kube-scheduler binds one pod after another, and each needs pods that are bound before it.
//!
//! A plan is valid if there is such an order. Pods that need no others can be bound at any time, so they never keep a
//! pod from being the first of a group, and are always there for pods that need them. So are pods of leaving nodes that
//! the plan does not move.

use super::TopologyCheck;
use super::selectors::{ShapeNumbers, required_affinity};
use super::targets::{Column, Domain, Place};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::names::label;
use plimsoll_model::snapshot::PodShape;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Placed pods that cannot be bound in any order, by shape and target, with the topology key of an unmet term.
pub(super) type Unmet<'a> = BTreeMap<(Id<PodShape>, Id<Place>), &'a str>;

/// All required affinity terms of one or more shapes. kube-scheduler counts only pods that match all of them.
struct Group {
    /// Shapes whose pods match.
    targets: ShapeNumbers,
    terms: Vec<Term>,
    /// Whether a matching pod runs, or was bound, on a node with one of the topology labels. No pod may be the first
    /// one then.
    started: bool,
    waiting: Vec<Id<Waiting>>,
}

struct Term {
    column: Rc<Column>,
    /// Only domains in which pods wait.
    domains: BTreeMap<Id<Domain>, WaitingDomain>,
}

#[derive(Default)]
struct WaitingDomain {
    has_match: bool,
    waiting: Vec<Id<Waiting>>,
}

/// Placed pods of one shape on one target that need other pods.
#[derive(Clone, Copy)]
struct Waiting {
    shape: Id<PodShape>,
    place: Id<Place>,
    group: Id<Group>,
    bound: bool,
}

/// The order in which kube-scheduler can bind the placed pods.
#[derive(Default)]
struct BindingOrder {
    groups: IndexVec<Group, Group>,
    waiting: IndexVec<Waiting, Waiting>,
    /// Groups that the pods of a shape match.
    matching: BTreeMap<Id<PodShape>, Vec<Id<Group>>>,
    /// Pods of which a term has been met.
    next: Vec<Id<Waiting>>,
}

/// Binds the placed pods in an order that kube-scheduler permits, and returns the rest.
pub(super) fn unmet<'a>(check: &mut TopologyCheck<'a>) -> Unmet<'a> {
    let mut order = BindingOrder::new(check);
    order.count_others(check);
    order.bind_first_pods();
    order.bind_followers();
    let rest = order.waiting.iter().filter(|one| !one.bound);
    let with_key = |one: &Waiting| {
        let term = order.groups[one.group].unmet(one.place)?;
        let own = required_affinity(check.selectors.shapes[one.shape]).nth(term)?;
        Some(((one.shape, one.place), own.topology_key.as_str()))
    };
    rest.filter_map(with_key).collect()
}

impl Group {
    /// Whether the target has one of the topology labels. kube-scheduler does not see pods on other nodes.
    fn sees(&self, place: Id<Place>) -> bool {
        self.terms.iter().any(|term| term.column.values[place].is_some())
    }

    /// The number of the first term without a matching pod in the domain of `place`.
    fn unmet(&self, place: Id<Place>) -> Option<usize> {
        let is_met = |term: &Term| {
            let domain = term.column.values[place].and_then(|domain| term.domains.get(&domain));
            domain.is_some_and(|domain| domain.has_match)
        };
        self.terms.iter().position(|term| !is_met(term))
    }

    /// Whether a pod of `shape` at `place` may be the first that matches, unless the group is started.
    fn may_start(&self, shape: Id<PodShape>, place: Id<Place>) -> bool {
        self.targets.binary_search(&shape).is_ok()
            && self.terms.iter().all(|term| term.column.values[place].is_some())
            && self.unmet(place).is_some()
    }

    /// Whether a matching pod at one of these places is in all domains of the other.
    fn are_together(&self, one: Id<Place>, other: Id<Place>) -> bool {
        self.terms.iter().all(|term| term.column.values[one] == term.column.values[other])
    }

    /// Notes a matching pod, and adds the pods to `next` that wait in its domains.
    fn note(&mut self, place: Id<Place>, next: &mut Vec<Id<Waiting>>) {
        for term in &mut self.terms {
            let domain = term.column.values[place].and_then(|domain| term.domains.get_mut(&domain));
            if let Some(domain) = domain.filter(|domain| !domain.has_match) {
                domain.has_match = true;
                next.extend_from_slice(&domain.waiting);
            }
        }
    }
}

impl BindingOrder {
    /// The pods that need others, none of them bound.
    fn new<'a>(check: &mut TopologyCheck<'a>) -> Self {
        let mut order = Self::default();
        // Workloads with the same terms share a group.
        let mut known: BTreeMap<(ShapeNumbers, Vec<&'a str>), Id<Group>> = BTreeMap::new();
        for shape in check.counts.checked_shapes.clone() {
            let owner = check.selectors.shapes[shape];
            let keys: Vec<&'a str> =
                required_affinity(owner).map(|term| label::normalized(&term.topology_key)).collect();
            let placed = check.counts.by_shape[shape].iter().filter(|count| count.placed > 0);
            let places: Vec<Id<Place>> = placed.map(|count| count.place).collect();
            if keys.is_empty() || places.is_empty() {
                continue;
            }
            let terms = (check.selectors.affinity_targets(owner), keys);
            let group = match known.get(&terms) {
                Some(group) => *group,
                None => {
                    let group = order.add_group(check, &terms);
                    known.insert(terms, group);
                    group
                }
            };
            places.into_iter().for_each(|place| order.add_waiting(Waiting { shape, place, group, bound: false }));
        }
        order
    }

    fn add_group<'a>(
        &mut self,
        check: &mut TopologyCheck<'a>,
        (targets, keys): &(ShapeNumbers, Vec<&'a str>),
    ) -> Id<Group> {
        let term = |key: &'a str| Term { column: check.column(key), domains: BTreeMap::new() };
        let terms = keys.iter().copied().map(term).collect();
        let group = Group { targets: Rc::clone(targets), terms, started: false, waiting: Vec::new() };
        let group = self.groups.push(group);
        targets.iter().for_each(|target| self.matching.entry(*target).or_default().push(group));
        group
    }

    fn add_waiting(&mut self, one: Waiting) {
        let number = self.waiting.push(one);
        let group = &mut self.groups[one.group];
        group.waiting.push(number);
        for term in &mut group.terms {
            if let Some(domain) = term.column.values[one.place] {
                term.domains.entry(domain).or_default().waiting.push(number);
            }
        }
    }

    /// Counts the pods that need no others: pods that stay or are not moved, and placed pods without affinity.
    fn count_others(&mut self, check: &TopologyCheck<'_>) {
        for (shape, groups) in &self.matching {
            let waits = required_affinity(check.selectors.shapes[*shape]).next().is_some();
            for count in &check.counts.by_shape[*shape] {
                for group in groups {
                    let group = &mut self.groups[*group];
                    group.started |= count.kept > 0 && group.sees(count.place);
                    if count.kept > 0 || count.unmoved > 0 || (count.placed > 0 && !waits) {
                        group.note(count.place, &mut self.next);
                    }
                }
            }
        }
    }

    /// Binds the first pod of each group that has none. It ends the exception for the other groups that it matches, so
    /// pods come first that take no other group's chance. If there is none, any order may be wrong.
    fn bind_first_pods(&mut self) {
        let mut groups: VecDeque<Id<Group>> = self.groups.ids().collect();
        // Each group is bound once, and tried at most once for each other group before that. Few groups have common
        // members, so that nearly all are bound at once.
        let mut in_vain = 0;
        while let Some(group) = groups.pop_front() {
            let Some(first) = self.first_pod(group) else { continue };
            if in_vain < groups.len() && self.hinders_others(first) {
                groups.push_back(group);
                in_vain += 1;
            } else {
                self.bind(first);
                in_vain = 0;
            }
        }
    }

    /// A pod that may be the first of the group. Of several, the one that was added first, even if another one would
    /// hinder fewer groups.
    fn first_pod(&self, group: Id<Group>) -> Option<Id<Waiting>> {
        let group = &self.groups[group];
        if group.started {
            return None;
        }
        let may_start = |number: &&Id<Waiting>| {
            let one = &self.waiting[**number];
            group.may_start(one.shape, one.place)
        };
        group.waiting.iter().find(may_start).copied()
    }

    /// Whether the first pod of another group could no longer be bound after these pods.
    fn hinders_others(&self, number: Id<Waiting>) -> bool {
        let one = self.waiting[number];
        let matching = self.matching.get(&one.shape).into_iter().flatten().filter(|group| **group != one.group);
        matching.copied().any(|group| {
            let first = self.first_pod(group);
            first.is_some_and(|first| !self.groups[group].are_together(one.place, self.waiting[first].place))
        })
    }

    /// Binds the pods whose terms are met, and those that they make room for.
    fn bind_followers(&mut self) {
        // Pods are added at most once for each of their terms.
        while let Some(number) = self.next.pop() {
            let one = self.waiting[number];
            if !one.bound && self.groups[one.group].unmet(one.place).is_none() {
                self.bind(number);
            }
        }
    }

    fn bind(&mut self, number: Id<Waiting>) {
        let one = &mut self.waiting[number];
        one.bound = true;
        for group in self.matching.get(&one.shape).into_iter().flatten() {
            let group = &mut self.groups[*group];
            group.started |= group.sees(one.place);
            group.note(one.place, &mut self.next);
        }
    }
}
