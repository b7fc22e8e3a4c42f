//! Constraint of one topology group on pods of one shape, evaluated per domain.

use super::domain_tuples::{Domain, DomainTuple, View};
use super::{DomainTuples, Group, GroupKind};
use crate::input::context::SolveContext;
use crate::place::State;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::PodShape;

/// Constraint of a group, updated while pods of the shape are assigned.
pub(super) struct GroupConstraint<'w> {
    kind: &'w GroupKind,
    view: Option<&'w View>,
    /// Whether the group constrains the shape.
    pub(super) owner: bool,
    /// Whether the group counts the shape's pods.
    pub(super) itself: bool,
    /// Members and owners per domain.
    counts: IndexVec<Domain, (i64, i64)>,
    /// For a spread: the fewest members in a domain that counts, or 0 if there are fewer than `minDomains` domains.
    least: i64,
    enough: bool,
    /// For PodAffinity: whether no pod of the shape may be the first one.
    any_member: bool,
    /// Members and owners that one more pod adds.
    adds: (i64, i64),
}

impl<'w> GroupConstraint<'w> {
    /// Constraint of `group` on pods of `shape`, which can run in `tuples`.
    pub(super) fn new(
        context: &'w SolveContext<'_>,
        state: &State,
        shape: Id<PodShape>,
        group: Id<Group>,
        tuples: &'w DomainTuples,
    ) -> Self {
        let membership = &context.topology.shapes[shape];
        let (owner, itself) = (membership.owns.contains(&group), membership.matches.contains(&group));
        let kind = &context.topology.groups[group].kind;
        let view = tuples.views.get(&group);
        let names = view.iter().flat_map(|view| &view.names);
        let counted = i64::from(!context.topology.uncounted.contains(&(shape, group)));
        let mut asked = Self {
            kind,
            view,
            owner,
            itself,
            counts: names.map(|domain| state.counts.both(group, domain)).collect(),
            least: 0,
            enough: false,
            any_member: matches!(kind, GroupKind::PodAffinity)
                && context.topology.is_started(&state.counts, shape, &context.topology.groups[group]),
            adds: (i64::from(itself) * counted, i64::from(owner) * counted),
        };
        if let (GroupKind::TopologySpread { min_domains, .. }, Some(eligible)) = (kind, tuples.eligible.get(&group)) {
            asked.enough = eligible.len() >= *min_domains;
        }
        asked.level();
        asked
    }

    /// Recomputes the fewest members in a domain.
    fn level(&mut self) {
        let Some(view) = self.view.filter(|_| self.enough) else { return };
        let counting = self.counts.iter().zip(&view.counts).filter(|(_, counts)| **counts);
        self.least = counting.map(|((members, _), _)| *members).min().unwrap_or(0);
    }

    fn domain(&self, tuple: Id<DomainTuple>) -> Option<Id<Domain>> {
        self.view.and_then(|view| view.of_tuple.try_get(tuple).copied().flatten())
    }

    pub(super) fn spreads(&self) -> bool {
        matches!(self.kind, GroupKind::TopologySpread { .. })
    }

    /// Number of members in the domain of the tuple if the group is a spread, otherwise 0.
    pub(super) fn domain_count(&self, tuple: Id<DomainTuple>) -> i64 {
        let full = |domain: Id<Domain>| self.counts[domain].0;
        if self.spreads() { self.domain(tuple).map_or(0, full) } else { 0 }
    }

    /// Whether no domain has more members than the group permits, if it is a spread that constrains the pods.
    pub(super) fn holds(&self) -> bool {
        let (GroupKind::TopologySpread { skew, .. }, Some(view), true) = (self.kind, self.view, self.owner) else {
            return true;
        };
        let mut counting = self.counts.iter().zip(&view.counts).filter(|(_, counts)| **counts);
        counting.all(|((members, _), _)| members - self.least <= *skew)
    }

    /// Records one more pod in the domain tuple.
    pub(super) fn add(&mut self, tuple: Id<DomainTuple>) {
        if let Some(domain) = self.domain(tuple) {
            let count = &mut self.counts[domain];
            *count = (count.0 + self.adds.0, count.1 + self.adds.1);
            self.any_member |= self.adds.0 > 0;
            self.level();
        }
    }

    /// Whether the group permits one more pod in the domain tuple. With `even`, every domain is treated as if it had
    /// pods that the group constrains.
    pub(super) fn permits(&self, tuple: Id<DomainTuple>, even: bool) -> bool {
        let Some(domain) = self.domain(tuple) else { return self.permits_no_label() };
        let counts = !self.owner || !self.spreads() || self.view.is_some_and(|view| view.counts[domain]);
        counts && self.permits_with(self.counts[domain], even)
    }

    /// Whether the group permits one more pod on a node without the label. Such nodes share no domain.
    pub(super) fn permits_no_label(&self) -> bool {
        !self.owner || matches!(self.kind, GroupKind::PodAntiAffinity { .. })
    }

    /// Whether the group permits one more pod in a domain with this number of members and owners.
    pub(super) fn permits_with(&self, (members, owners): (i64, i64), even: bool) -> bool {
        match self.kind {
            // A pod that the spread only counts is restricted only where constrained pods are, to keep the skew for
            // these.
            GroupKind::TopologySpread { skew, .. } if !self.owner => {
                (!even && owners == 0) || members + 1 - self.least <= *skew
            }
            GroupKind::TopologySpread { skew, .. } => members + i64::from(self.itself) - self.least <= *skew,
            GroupKind::PodAntiAffinity { mutual } => {
                (!self.owner || members == 0) && (!mutual || !self.itself || owners == 0)
            }
            GroupKind::PodAffinity => !self.owner || members > 0 || (self.itself && !self.any_member),
        }
    }
}
