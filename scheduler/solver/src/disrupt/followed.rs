//! Pods on which the domains of other pods in this plan depend. A removal must not move them away: the other pods are
//! bound only if they are still there.

use crate::input::context::SolveContext;
use crate::input::pool_requirements::lookup;
use crate::place::topology::{Group, GroupKind};
use crate::place::{Placed, State};
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::{Node, PodShape};
use std::collections::BTreeSet;

/// Groups, other than those by hostname, that pods placed by this plan own. A node that takes pods stays anyway, so that
/// hostname groups need no check.
#[derive(Default)]
pub(crate) struct Followed {
    /// Required pod affinity. A member must stay in each domain with owners.
    affinity: BTreeSet<Id<Group>>,
    /// Spreads that count pods which they do not constrain. Such pods may land in any domain, so they stay.
    spreads: BTreeSet<Id<Group>>,
}

impl Followed {
    /// The groups of the pending pods.
    pub(crate) fn new(context: &SolveContext<'_>) -> Self {
        let owned = context.pending().filter_map(|(_, shape)| shape);
        let owned = owned.flat_map(|shape| &context.topology.shapes[shape].owns).copied().collect();
        let spreads = context.topology.mixed.intersection(&owned).copied().collect();
        Self { affinity: context.topology.sought.clone(), spreads }
    }

    /// Adds the groups of pods that removals have moved.
    pub(super) fn add(&mut self, context: &SolveContext<'_>, placed: &Placed<'_>) {
        let existing = placed.existing.values().flatten().filter_map(|pod| context.shape_of(pod));
        let launched = placed.launches.iter().flat_map(|draft| &draft.pod_groups);
        let shapes: BTreeSet<Id<PodShape>> =
            existing.chain(launched.map(|pod_group| context.relaxation.base(pod_group.shape))).collect();
        let owned = || shapes.iter().flat_map(|shape| &context.topology.shapes[*shape].owns).copied();
        self.affinity.extend(owned().filter(|group| context.topology.groups[*group].kind == GroupKind::PodAffinity));
        let mixed = &context.topology.mixed;
        self.spreads.extend(owned().filter(|group| mixed.contains(group)));
    }

    /// Whether the pods of `node` may move. `state` has the pods in their new places.
    pub(super) fn permits(&self, context: &SolveContext<'_>, state: &State, node: Id<Node>) -> bool {
        let view = &context.nodes[node];
        let shapes: BTreeSet<Id<PodShape>> = view.pods.iter().filter_map(|pod| context.shape_of(pod)).collect();
        let loses =
            |group: &Id<Group>| shapes.iter().any(|shape| context.topology.shapes[*shape].matches.contains(group));
        let counts_beside = |group: &Id<Group>| {
            let group_counts = context.topology.groups[*group].counts(view.node);
            let beside = |shape: &Id<PodShape>| {
                let membership = &context.topology.shapes[*shape];
                membership.matches.contains(group) && !membership.owns.contains(group)
            };
            group_counts && shapes.iter().any(beside)
        };
        if self.spreads.iter().any(counts_beside) {
            return false;
        }
        self.affinity.iter().filter(|group| loses(group)).all(|group| {
            let Some(domain) = lookup(&view.node.labels, &context.topology.groups[*group].key) else { return true };
            let (members, owners) = state.counts.both(*group, domain);
            members > 0 || owners == 0
        })
    }
}
