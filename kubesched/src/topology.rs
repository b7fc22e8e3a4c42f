//! Rules that depend on where other pods run: topology spread, pod affinity and anti-affinity.

use crate::affinity::{RequiredAffinity, RequiredAntiAffinity, ScoredTerm};
use crate::domains::is_set;
use crate::filter::{Nominated, Rejection};
use crate::nomination::{Group, SpreadLimit};
use crate::spread::{Refusal, Spread};
use plimsoll_model::snapshot::Snapshot;
use std::rc::Rc;

/// All constraints with their pod counts. Shapes and nodes are identified by their index in the snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Topology {
    /// Constraints of pending pods only, since running pods are not filtered.
    spreads: Vec<Spread>,
    /// By shape, only for pending pods.
    affinity: Vec<Option<RequiredAffinity>>,
    /// Terms of all pods, since the anti-affinity of running pods also rejects pods.
    anti_affinity: Vec<RequiredAntiAffinity>,
    scored: Vec<ScoredTerm>,
    /// By shape: indices of its constraints in `spreads`.
    own_spreads: Rc<[Vec<usize>]>,
    /// By shape: indices of the anti-affinity terms that it has or that match it.
    concerned: Rc<[Vec<usize>]>,
    priorities: Rc<[i32]>,
}

impl Topology {
    /// Creates the constraints without any pods. `pending` tells for each shape whether it has pending pods.
    pub(crate) fn new(snapshot: &Snapshot, pending: &[bool]) -> Self {
        let (shapes, nodes) = (&snapshot.shapes, &snapshot.nodes);
        let (mut own_spreads, mut affinity) = (Vec::new(), Vec::new());
        let (mut spreads, mut anti_affinity, mut scored) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (shape, pending)) in shapes.iter().zip(pending).enumerate() {
            let first = spreads.len();
            let constraints = shape.topology_spread.iter().filter(|_| *pending);
            spreads.extend(constraints.map(|constraint| Spread::new(shape, constraint, shapes, nodes)));
            own_spreads.push((first..spreads.len()).collect());
            affinity.push(if *pending { RequiredAffinity::new(shape, shapes, nodes) } else { None });
            for term in &shape.pod_affinity {
                if term.anti && term.weight.is_none() {
                    anti_affinity.push(RequiredAntiAffinity::new(number, term, shapes, nodes));
                } else {
                    scored.push(ScoredTerm::new(number, term, shapes, nodes));
                }
            }
        }
        let concerned = |shape: usize| {
            let terms: &[RequiredAntiAffinity] = &anti_affinity;
            let terms = terms.iter().enumerate().filter(|(_, term)| term.concerns(shape));
            terms.map(|(number, _)| number).collect()
        };
        let concerned = (0..shapes.len()).map(concerned).collect();
        let priorities = shapes.iter().map(|shape| shape.priority).collect();
        Self { spreads, affinity, anti_affinity, scored, own_spreads: own_spreads.into(), concerned, priorities }
    }

    /// Counts a pod of `shape` on `node`.
    pub(crate) fn add(&mut self, shape: usize, node: usize) {
        self.spreads.iter_mut().for_each(|spread| spread.add(shape, node));
        self.change(shape, node, 1);
    }

    /// Counts a pod of `shape` on `node` for affinity and anti-affinity only.
    pub(crate) fn add_to_affinity(&mut self, shape: usize, node: usize) {
        self.change(shape, node, 1);
    }

    /// Removes a pod of `shape` from the counts of `node`.
    pub(crate) fn remove(&mut self, shape: usize, node: usize) {
        self.spreads.iter_mut().for_each(|spread| spread.remove(shape, node));
        self.change(shape, node, -1);
    }

    fn change(&mut self, shape: usize, node: usize, change: i64) {
        self.affinity.iter_mut().flatten().for_each(|terms| terms.add(shape, node, change));
        self.scored.iter_mut().for_each(|term| term.add(shape, node, change));
        for term in self.concerned.get(shape).into_iter().flatten() {
            if let Some(term) = self.anti_affinity.get_mut(*term) {
                term.add(shape, node, change);
            }
        }
    }

    /// Checks whether a pod of `shape` may run on `node`, in addition to the pods that are `nominated` to the node.
    pub(crate) fn filter(&self, shape: usize, node: usize, nominated: &Nominated) -> Result<(), Rejection> {
        for spread in self.required_spreads(shape) {
            spread.filter(shape, node, nominated.count(&spread.selected)).map_err(|refusal| match refusal {
                Refusal::MissingLabel => Rejection::MissingTopologyLabel,
                Refusal::Skew => Rejection::TopologySpread,
            })?;
        }
        if let Some(terms) = self.affinity_of(shape)
            && !terms.permits(shape, node, nominated.count(&terms.matched))
        {
            return Err(Rejection::PodAffinity);
        }
        let counts_nominated = nominated.is_empty() || self.counts_nominated_owners(shape);
        for term in self.terms_about(shape) {
            let Some((matched, owners)) = term.counts.at(node) else { continue };
            if term.owner == shape && matched + nominated.count(&term.counts.matched) > 0 {
                return Err(Rejection::PodAntiAffinity);
            }
            let nominated_owners = if counts_nominated { nominated.of(term.owner) } else { 0 };
            if is_set(&term.counts.matched, shape) && owners + nominated_owners > 0 {
                return Err(Rejection::ExistingPodAntiAffinity);
            }
        }
        Ok(())
    }

    /// Whether kube-scheduler counts the anti-affinity of nominated pods for a pod of `shape`. If the pod has no
    /// required terms and no term of a running pod excludes it from a domain, the plugin's `PreFilter` returns `Skip`.
    /// Nominated pods are not added then.
    fn counts_nominated_owners(&self, shape: usize) -> bool {
        let any = |term: &RequiredAntiAffinity| {
            term.owner == shape || (is_set(&term.counts.matched, shape) && term.owners > 0)
        };
        self.affinity_of(shape).is_some() || self.terms_about(shape).any(any)
    }

    fn spreads_of(&self, shape: usize) -> impl Iterator<Item = &Spread> {
        self.own_spreads.get(shape).into_iter().flatten().filter_map(|number| self.spreads.get(*number))
    }

    fn required_spreads(&self, shape: usize) -> impl Iterator<Item = &Spread> {
        self.spreads_of(shape).filter(|spread| spread.required)
    }

    /// Whether the required topology spread constraints of `shape` hold for its pods on `node`.
    pub(crate) fn spreads_hold(&self, shape: usize, node: usize) -> bool {
        self.required_spreads(shape).all(|spread| spread.holds(node))
    }

    fn affinity_of(&self, shape: usize) -> Option<&RequiredAffinity> {
        self.affinity.get(shape)?.as_ref()
    }

    /// The anti-affinity terms that the shape has or that match it.
    fn terms_about(&self, shape: usize) -> impl Iterator<Item = &RequiredAntiAffinity> {
        self.concerned.get(shape).into_iter().flatten().filter_map(|number| self.anti_affinity.get(*number))
    }

    /// Whether any number of pods of `shape` may be nominated to a node at the same time.
    pub(crate) fn is_always_admissible(&self, shape: usize) -> bool {
        !self.required_spreads(shape).any(Spread::can_skew)
    }

    /// Groups for [`nomination::admissible`](crate::nomination::admissible), one for each of `shapes`.
    pub(crate) fn nomination_groups(&self, shapes: &[usize]) -> Vec<Group> {
        let follows = |pod: usize, other: usize| {
            self.affinity_of(pod).is_some_and(|affinity| is_set(&affinity.matched_by_any, other))
        };
        let waits_for = |pod: usize, other: usize| {
            self.required_spreads(pod).any(|spread| is_set(&spread.selected, other)) || follows(pod, other)
        };
        let group = |shape: &usize| {
            let limit = |spread: &Spread| {
                let counted = |other: usize| {
                    self.priorities.get(other) >= self.priorities.get(*shape)
                        && is_set(&spread.selected, other)
                        && waits_for(other, *shape)
                };
                let counted = shapes.iter().enumerate().filter(|(_, other)| counted(**other));
                let counted = counted.map(|(number, _)| number).collect();
                SpreadLimit { max_skew: spread.max_skew, counted }
            };
            Group { spreads: self.required_spreads(*shape).filter(|spread| spread.can_skew()).map(limit).collect() }
        };
        shapes.iter().map(group).collect()
    }

    /// The raw InterPodAffinity score; higher is better.
    pub(crate) fn affinity_score(&self, shape: usize, node: usize) -> i64 {
        self.scored.iter().map(|term| term.score(shape, node)).sum()
    }

    /// The raw PodTopologySpread score: the number of pods in the node's domains; lower is better.
    /// `None` for a node without one of the topology keys.
    pub(crate) fn spread_score(&self, shape: usize, node: usize) -> Option<i64> {
        let preferred = self.spreads_of(shape).filter(|spread| !spread.required);
        preferred.map(|spread| spread.count_at(node)).sum()
    }
}
