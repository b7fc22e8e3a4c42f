//! Which shapes selectors select. Found by one of the labels that they ask for, so that ten thousand workloads that each ask
//! for their own do not cost ten thousand times ten thousand looks.

use plimsoll_model::requirements::{Operator, Requirement};
use plimsoll_model::snapshot::{LabelSelector, PodAffinityTerm, PodShape};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Numbers of shapes, ascending.
pub(super) type Shapes = Rc<[usize]>;

pub(super) struct Selecting<'a> {
    pub(super) shapes: &'a [PodShape],
    by_namespace: HashMap<&'a str, Vec<usize>>,
    /// By namespace, label and value.
    by_label: HashMap<(&'a str, &'a str, &'a str), Vec<usize>>,
    known: BTreeMap<(&'a [String], &'a LabelSelector), Shapes>,
}

impl<'a> Selecting<'a> {
    pub(super) fn new(shapes: &'a [PodShape]) -> Self {
        let mut by_namespace: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut by_label: HashMap<(&str, &str, &str), Vec<usize>> = HashMap::new();
        for (number, shape) in shapes.iter().enumerate() {
            by_namespace.entry(&shape.namespace).or_default().push(number);
            for (key, value) in &shape.labels {
                by_label.entry((&shape.namespace, key, value)).or_default().push(number);
            }
        }
        Self { shapes, by_namespace, by_label, known: BTreeMap::new() }
    }

    /// Shapes in the namespaces that the selector selects; none without a selector.
    pub(super) fn members(&mut self, namespaces: &'a [String], selector: Option<&'a LabelSelector>) -> Shapes {
        let Some(selector) = selector else { return Shapes::from([]) };
        if let Some(known) = self.known.get(&(namespaces, selector)) {
            return Rc::clone(known);
        }
        let mut found: BTreeSet<usize> = BTreeSet::new();
        for namespace in namespaces {
            let candidates = self.candidates(namespace, selector).iter().copied();
            found.extend(candidates.filter(|number| selects(selector, &self.shapes[*number].labels)));
        }
        let found: Shapes = found.into_iter().collect();
        self.known.insert((namespaces, selector), Rc::clone(&found));
        found
    }

    fn candidates(&self, namespace: &'a str, selector: &'a LabelSelector) -> &[usize] {
        let with = |(key, value): (&'a String, &'a String)| {
            self.by_label.get(&(namespace, key.as_str(), value.as_str())).map_or(&[][..], Vec::as_slice)
        };
        let fewest = selector.match_labels.iter().map(with).min_by_key(|numbers| numbers.len());
        fewest.unwrap_or_else(|| self.by_namespace.get(namespace).map_or(&[], Vec::as_slice))
    }

    /// Shapes that match all required affinity terms of `shape`; none if it has no such term.
    pub(super) fn wanted(&mut self, shape: &'a PodShape) -> Shapes {
        let mut all: Option<Shapes> = None;
        for term in affinity(shape) {
            let members = self.members(&term.namespaces, term.selector.as_ref());
            all = Some(match all {
                None => members,
                Some(so_far) => so_far.iter().copied().filter(|one| members.binary_search(one).is_ok()).collect(),
            });
        }
        all.unwrap_or_else(|| Shapes::from([]))
    }
}

/// Required affinity to pods.
pub(super) fn affinity(shape: &PodShape) -> impl Iterator<Item = &PodAffinityTerm> {
    shape.pod_affinity.iter().filter(|one| !one.anti && one.weight.is_none())
}

/// Whether pods of `shape` want to be near those of `other`: these match all of its required terms.
pub(super) fn wants(shape: &PodShape, other: &PodShape) -> bool {
    let mut terms = affinity(shape).peekable();
    let holds = |one: &PodAffinityTerm| {
        one.namespaces.contains(&other.namespace)
            && one.selector.as_ref().is_some_and(|selector| selects(selector, &other.labels))
    };
    terms.peek().is_some() && terms.all(holds)
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(|one| {
            let value = labels.get(&one.key);
            match one.operator {
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::NotIn => value.is_none_or(|value| !one.values.contains(value)),
                _ => value.is_some_and(|value| Requirement::new(one).is_ok_and(|read| read.has(value))),
            }
        })
}
