//! Pods beside which this plan places other pods because of their required pod affinity. A removal must not move them
//! away: the other pods are bound only if they are still there.

use crate::input::context::SolveContext;
use crate::input::pool_requirements::lookup;
use crate::place::topology::{Group, GroupKind};
use crate::place::{Placed, State};
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::{Node, PodShape};
use std::collections::BTreeSet;

/// Pod affinity groups, other than those by hostname, that pods placed by this plan own. A node that takes pods stays
/// anyway, so that hostname groups need no check.
pub(crate) struct Followed(BTreeSet<Id<Group>>);

impl Followed {
    /// The groups of the pending pods.
    pub(crate) fn new(context: &SolveContext<'_>) -> Self {
        Self(context.topology.sought().clone())
    }

    /// Adds the groups of pods that removals have moved.
    pub(super) fn add(&mut self, context: &SolveContext<'_>, placed: &Placed<'_>) {
        let existing = placed.existing.values().flatten().filter_map(|pod| context.shape_of(pod));
        let launched = placed.launches.iter().flat_map(|draft| &draft.pod_groups);
        let shapes: BTreeSet<Id<PodShape>> =
            existing.chain(launched.map(|pod_group| context.relaxation.base(pod_group.shape))).collect();
        let owned = shapes.into_iter().flat_map(|shape| &context.topology.shapes[shape].owns).copied();
        self.0.extend(owned.filter(|group| context.topology.groups[*group].kind == GroupKind::PodAffinity));
    }

    /// Whether every domain that pods have left with `node` still has a pod of each group with owners there. `state`
    /// has the pods in their new places.
    pub(super) fn permits(&self, context: &SolveContext<'_>, state: &State, node: Id<Node>) -> bool {
        let view = &context.nodes[node];
        let shapes: BTreeSet<Id<PodShape>> = view.pods.iter().filter_map(|pod| context.shape_of(pod)).collect();
        let loses =
            |group: &Id<Group>| shapes.iter().any(|shape| context.topology.shapes[*shape].matches.contains(group));
        self.0.iter().filter(|group| loses(group)).all(|group| {
            let Some(domain) = lookup(&view.node.labels, &context.topology.groups[*group].key) else { return true };
            let (members, owners) = state.counts.both(*group, domain);
            members > 0 || owners == 0
        })
    }
}
