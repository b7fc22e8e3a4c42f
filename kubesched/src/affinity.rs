//! InterPodAffinity: counts the pods that each affinity term matches, by domain.

use crate::domains::{Domains, is_set};
use plimsoll_model::snapshot::{Node, PodAffinityTerm, PodShape};
use std::rc::Rc;

/// Weight of a required term of a running pod when another pod is scored: kube-scheduler's default
/// hardPodAffinityWeight.
const HARD_WEIGHT: i32 = 1;

/// All required affinity terms of one shape.
#[derive(Debug, Clone)]
pub(crate) struct RequiredAffinity {
    /// By term: the pod counts by domain, and the domains.
    terms: Vec<(Vec<i64>, Domains)>,
    /// By shape: whether all terms match its pods. kube-scheduler counts only pods that match all terms.
    pub(crate) matched: Rc<[bool]>,
    /// By shape: whether some term matches its pods.
    pub(crate) matched_by_any: Rc<[bool]>,
    total: i64,
}

/// A required anti-affinity term.
#[derive(Debug, Clone)]
pub(crate) struct RequiredAntiAffinity {
    pub(crate) owner: usize,
    pub(crate) counts: TermCounts,
    /// Running pods that have the term, in all domains.
    pub(crate) owners: i64,
}

/// A term that counts in scores: a preference, or a required affinity term of running pods.
#[derive(Debug, Clone)]
pub(crate) struct ScoredTerm {
    pub(crate) owner: usize,
    weight: i64,
    /// Pending pods with the term score nodes by it as well. False for a required term, which filters them.
    preferred: bool,
    pub(crate) counts: TermCounts,
}

/// Pod counts of one term, by domain.
#[derive(Debug, Clone)]
pub(crate) struct TermCounts {
    domains: Domains,
    /// By shape: whether the term matches its pods.
    pub(crate) matched: Rc<[bool]>,
    /// By domain: the number of pods that the term matches, and the number of pods that have the term.
    counts: Vec<(i64, i64)>,
}

impl TermCounts {
    fn new(term: &PodAffinityTerm, shapes: &[PodShape], nodes: &[Node]) -> Self {
        let domains = Domains::new(&term.topology_key, nodes);
        let matched = shapes.iter().map(|shape| term.selects(shape)).collect();
        Self { matched, counts: vec![(0, 0); domains.count], domains }
    }

    /// Adds `change` pods of `shape` on `node`. `owned` tells whether these pods have the term. Returns whether the
    /// node has the topology label.
    pub(crate) fn add(&mut self, shape: usize, node: usize, owned: bool, change: i64) -> bool {
        let domain = self.domains.at(node);
        let Some((matched, owners)) = domain.and_then(|domain| self.counts.get_mut(domain)) else { return false };
        *matched += if is_set(&self.matched, shape) { change } else { 0 };
        *owners += if owned { change } else { 0 };
        true
    }

    /// Counts in the domain of `node`: pods that the term matches, and pods that have the term.
    pub(crate) fn at(&self, node: usize) -> Option<(i64, i64)> {
        self.counts.get(self.domains.at(node)?).copied()
    }
}

impl RequiredAffinity {
    /// Returns `None` if the shape has no required affinity term.
    pub(crate) fn new(owner: &PodShape, shapes: &[PodShape], nodes: &[Node]) -> Option<Self> {
        let terms: Vec<&PodAffinityTerm> =
            owner.pod_affinity.iter().filter(|term| !term.anti && term.weight.is_none()).collect();
        if terms.is_empty() {
            return None;
        }
        let empty = |domains: Domains| (vec![0; domains.count], domains);
        Some(Self {
            terms: terms.iter().map(|term| empty(Domains::new(&term.topology_key, nodes))).collect(),
            matched: shapes.iter().map(|shape| terms.iter().all(|term| term.selects(shape))).collect(),
            matched_by_any: shapes.iter().map(|shape| terms.iter().any(|term| term.selects(shape))).collect(),
            total: 0,
        })
    }

    /// Adds `change` pods of `shape` on `node`.
    pub(crate) fn add(&mut self, shape: usize, node: usize, change: i64) {
        if !is_set(&self.matched, shape) {
            return;
        }
        for (counts, domains) in &mut self.terms {
            if let Some(count) = domains.at(node).and_then(|domain| counts.get_mut(domain)) {
                *count += change;
                self.total += change;
            }
        }
    }

    /// Whether a pod of `shape` may run on `node` if the terms match `nominated` pods that are nominated to the node.
    /// If no pod matches yet, a pod that matches its own terms may run in any domain.
    pub(crate) fn permits(&self, shape: usize, node: usize, nominated: i64) -> bool {
        let near = |(counts, domains): &(Vec<i64>, Domains)| {
            let count = domains.at(node).and_then(|domain| counts.get(domain));
            count.is_some_and(|count| nominated > 0 || *count > 0)
        };
        let labelled = self.terms.iter().all(|(_, domains)| domains.at(node).is_some());
        let first = self.total == 0 && nominated == 0 && is_set(&self.matched, shape);
        labelled && (first || self.terms.iter().all(near))
    }
}

impl RequiredAntiAffinity {
    pub(crate) fn new(owner: usize, term: &PodAffinityTerm, shapes: &[PodShape], nodes: &[Node]) -> Self {
        Self { owner, counts: TermCounts::new(term, shapes, nodes), owners: 0 }
    }

    /// Whether pods of `shape` have the term or match it.
    pub(crate) fn concerns(&self, shape: usize) -> bool {
        self.owner == shape || is_set(&self.counts.matched, shape)
    }

    pub(crate) fn add(&mut self, shape: usize, node: usize, change: i64) {
        let owned = self.owner == shape;
        if self.counts.add(shape, node, owned, change) && owned {
            self.owners += change;
        }
    }
}

impl ScoredTerm {
    pub(crate) fn new(owner: usize, term: &PodAffinityTerm, shapes: &[PodShape], nodes: &[Node]) -> Self {
        let weight = i64::from(term.weight.unwrap_or(HARD_WEIGHT)) * if term.anti { -1 } else { 1 };
        Self { owner, weight, preferred: term.weight.is_some(), counts: TermCounts::new(term, shapes, nodes) }
    }

    pub(crate) fn add(&mut self, shape: usize, node: usize, change: i64) {
        if self.owner == shape || is_set(&self.counts.matched, shape) {
            self.counts.add(shape, node, self.owner == shape, change);
        }
    }

    /// The contribution of the term to the score of `node` for a pod of `shape`.
    pub(crate) fn score(&self, shape: usize, node: usize) -> i64 {
        let Some((matched, owners)) = self.counts.at(node) else { return 0 };
        let own = if self.preferred && self.owner == shape { matched } else { 0 };
        self.weight * (own + if is_set(&self.counts.matched, shape) { owners } else { 0 })
    }
}
