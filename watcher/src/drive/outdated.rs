//! Determines which parts of a plan for an older snapshot may still be sent.
//!
//! In a busy cluster every plan is outdated by the time it is complete. An action remains valid if nothing that it
//! depends on has changed. The actuator checks each action again and rejects stale ones, so this filter saves
//! rejections but is not needed for safety.

use crate::snapshots::PublishedSnapshot;
use plimsoll_model::identity::{NodeName, NodePoolName};
use plimsoll_model::plan::{Launch, Plan, PodRef, Termination};
use plimsoll_model::snapshot::{Disruption, NodePool, Pod, PodState, Snapshot, UnavailableOffering};
use std::collections::{BTreeMap, BTreeSet};

/// Compares what a plan depends on in the snapshot that it was made for and in the newest one.
#[derive(Debug)]
pub(super) struct Unchanged<'a> {
    planned: &'a PublishedSnapshot,
    newest: &'a PublishedSnapshot,
    pools: BTreeSet<&'a NodePoolName>,
    /// Nodes of the plan's removals that have the same pods in both snapshots.
    same_pods: BTreeSet<&'a NodeName>,
    /// Offerings that had capacity when the plan was made.
    exhausted: Vec<&'a UnavailableOffering>,
}

impl<'a> Unchanged<'a> {
    pub(super) fn new(plan: &'a Plan, planned: &'a PublishedSnapshot, newest: &'a PublishedSnapshot) -> Self {
        let (before, now) = (&planned.snapshot, &newest.snapshot);
        let is_unchanged = |pool: &&NodePool| now.node_pool(&pool.name).is_some_and(|other| is_same(pool, other));
        let was_exhausted =
            |offering: &UnavailableOffering| before.unavailable_offerings.iter().any(|other| covers(other, offering));
        Self {
            planned,
            newest,
            pools: before.node_pools.iter().filter(is_unchanged).map(|pool| &pool.name).collect(),
            same_pods: nodes_with_same_pods(plan, before, now),
            exhausted: now.unavailable_offerings.iter().filter(|offering| !was_exhausted(offering)).collect(),
        }
    }

    /// Whether the pods of the launch and its pool are unchanged, and none of its offerings has run out of capacity.
    /// Pods whose owner has just become complete are planned again, together with the others of that owner.
    pub(super) fn launch(&self, launch: &Launch) -> bool {
        let has_capacity = || {
            self.exhausted.iter().all(|exhausted| {
                !launch.offerings.iter().any(|offering| {
                    exhausted.capacity_type == offering.capacity_type
                        && exhausted.instance_type.as_ref().is_none_or(|name| *name == offering.instance_type)
                        && exhausted.zone.as_ref().is_none_or(|name| *name == offering.zone)
                })
            })
        };
        let just_completed =
            |pod: &PodRef| self.planned.incomplete.contains(&pod.uid) && !self.newest.incomplete.contains(&pod.uid);
        self.pools.contains(&launch.node_pool)
            && launch.pods.iter().all(|pod| self.pod(pod) && !just_completed(pod))
            && has_capacity()
    }

    /// Whether the node, its pods, its pool, and the nodes that take its pods are unchanged.
    pub(super) fn termination(&self, termination: &Termination) -> bool {
        let pool = self.planned.snapshot.node(&termination.node).and_then(|node| node.node_pool.as_ref());
        pool.is_some_and(|pool| self.pools.contains(pool))
            && self.node(&termination.node)
            && self.same_pods.contains(&termination.node)
            && termination.moved_to.iter().all(|placement| self.node(&placement.node))
    }

    /// Whether the pod is unchanged.
    pub(super) fn pod(&self, pod: &PodRef) -> bool {
        let planned = self.planned.snapshot.pod(&pod.uid);
        planned.is_some() && planned == self.newest.snapshot.pod(&pod.uid)
    }

    fn node(&self, name: &NodeName) -> bool {
        let planned = self.planned.snapshot.node(name);
        planned.is_some() && planned == self.newest.snapshot.node(name)
    }
}

/// Whether two versions of a pool are equal, except for the disruptions that its budgets and its rollout allow now:
/// those change with every node that becomes ready, and the actuator checks them.
fn is_same(pool: &NodePool, other: &NodePool) -> bool {
    let Disruption { allowed, rollout_limit, next_budget_change, .. } = other.disruption.clone();
    let disruption = Disruption { allowed, rollout_limit, next_budget_change, ..pool.disruption.clone() };
    NodePool { disruption, ..pool.clone() } == *other
}

/// Whether `list` makes `offering` unavailable as well. The remaining time does not matter.
fn covers(list: &UnavailableOffering, offering: &UnavailableOffering) -> bool {
    list.capacity_type == offering.capacity_type
        && (list.instance_type.is_none() || list.instance_type == offering.instance_type)
        && (list.zone.is_none() || list.zone == offering.zone)
}

fn nodes_with_same_pods<'a>(plan: &'a Plan, planned: &'a Snapshot, newest: &'a Snapshot) -> BTreeSet<&'a NodeName> {
    let nodes: BTreeSet<&NodeName> = plan.terminations.iter().map(|termination| &termination.node).collect();
    if nodes.is_empty() {
        return nodes;
    }
    let (before, now) = (pods_of(&nodes, planned), pods_of(&nodes, newest));
    nodes.into_iter().filter(|node| before.get(node) == now.get(node)).collect()
}

fn pods_of<'a>(nodes: &BTreeSet<&NodeName>, snapshot: &'a Snapshot) -> BTreeMap<&'a NodeName, Vec<&'a Pod>> {
    let mut pods: BTreeMap<&NodeName, Vec<&Pod>> = BTreeMap::new();
    for pod in &snapshot.pods {
        if let PodState::Bound(node) | PodState::Reserved(node) = &pod.state
            && nodes.contains(node)
        {
            pods.entry(node).or_default().push(pod);
        }
    }
    pods
}
