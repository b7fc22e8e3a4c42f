//! Finds the shapes that label selectors match. Candidates are looked up by one of the selector's labels, so that ten
//! thousand workloads with a label each do not cost a hundred million comparisons.

use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::requirements::{Operator, Requirement};
use plimsoll_model::snapshot::{LabelSelector, PodAffinityTerm, PodShape};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Shapes in ascending order.
pub(super) type ShapeNumbers = Rc<[Id<PodShape>]>;

pub(super) struct SelectorIndex<'a> {
    pub(super) shapes: IndexVec<PodShape, &'a PodShape>,
    by_namespace: HashMap<&'a str, Vec<Id<PodShape>>>,
    /// By namespace, label and value.
    by_label: HashMap<(&'a str, &'a str, &'a str), Vec<Id<PodShape>>>,
    cache: BTreeMap<(&'a [String], &'a LabelSelector), ShapeNumbers>,
}

impl<'a> SelectorIndex<'a> {
    pub(super) fn new(shapes: &'a [PodShape]) -> Self {
        let shapes: IndexVec<PodShape, &PodShape> = shapes.iter().collect();
        let mut by_namespace: HashMap<&str, Vec<Id<PodShape>>> = HashMap::new();
        let mut by_label: HashMap<(&str, &str, &str), Vec<Id<PodShape>>> = HashMap::new();
        for (number, shape) in shapes.iter_enumerated() {
            by_namespace.entry(&shape.namespace).or_default().push(number);
            for (key, value) in &shape.labels {
                by_label.entry((&shape.namespace, key, value)).or_default().push(number);
            }
        }
        Self { shapes, by_namespace, by_label, cache: BTreeMap::new() }
    }

    /// Shapes in `namespaces` that the selector matches; none without a selector.
    pub(super) fn members(&mut self, namespaces: &'a [String], selector: Option<&'a LabelSelector>) -> ShapeNumbers {
        let Some(selector) = selector else { return ShapeNumbers::from([]) };
        if let Some(cached) = self.cache.get(&(namespaces, selector)) {
            return Rc::clone(cached);
        }
        let mut members: BTreeSet<Id<PodShape>> = BTreeSet::new();
        for namespace in namespaces {
            let candidates = self.candidates(namespace, selector).iter().copied();
            members.extend(candidates.filter(|number| matches(selector, &self.shapes[*number].labels)));
        }
        let members: ShapeNumbers = members.into_iter().collect();
        self.cache.insert((namespaces, selector), Rc::clone(&members));
        members
    }

    fn candidates(&self, namespace: &'a str, selector: &'a LabelSelector) -> &[Id<PodShape>] {
        let with = |(key, value): (&'a String, &'a String)| {
            self.by_label.get(&(namespace, key.as_str(), value.as_str())).map_or(&[][..], Vec::as_slice)
        };
        let fewest = selector.match_labels.iter().map(with).min_by_key(|numbers| numbers.len());
        fewest.unwrap_or_else(|| self.by_namespace.get(namespace).map_or(&[], Vec::as_slice))
    }

    /// Shapes that match all required affinity terms of `shape`; none if it has no such term.
    pub(super) fn affinity_targets(&mut self, shape: &'a PodShape) -> ShapeNumbers {
        let mut targets: Option<ShapeNumbers> = None;
        for term in required_affinity(shape) {
            let members = self.members(&term.namespaces, term.selector.as_ref());
            targets = Some(match targets {
                None => members,
                Some(so_far) => so_far.iter().copied().filter(|number| members.binary_search(number).is_ok()).collect(),
            });
        }
        targets.unwrap_or_else(|| ShapeNumbers::from([]))
    }
}

/// Required pod affinity terms.
pub(super) fn required_affinity(shape: &PodShape) -> impl Iterator<Item = &PodAffinityTerm> {
    shape.pod_affinity.iter().filter(|term| !term.anti && term.weight.is_none())
}

fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match requirement.operator {
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::NotIn => value.is_none_or(|value| !requirement.values.contains(value)),
                _ => value.is_some_and(|value| Requirement::new(requirement).is_ok_and(|read| read.has(value))),
            }
        })
}
