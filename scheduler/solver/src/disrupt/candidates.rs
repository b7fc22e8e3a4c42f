//! Nodes that may be removed, with the reasons.

use super::{Removal, Removed, Successors, pod_age};
use crate::input::context::SolveContext;
use crate::place::pod_groups::is_protected;
use crate::place::static_pools;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::disruption::consolidates_at;
use plimsoll_model::index::Id;
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{ConsolidationPolicy, DisruptionReason, Node, NodePool, NodeState, Pod, PodState};
use plimsoll_model::time::Timestamp;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A node that may be removed.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) node: Id<Node>,
    pub(crate) pool: &'a NodePool,
    pub(crate) instance_type: String,
    pub(crate) is_spot: bool,
    /// Price of the node; zero if the catalog does not have it.
    pub(crate) price: i64,
    /// Pods that must move. They include virtual pods, since a node that is reserved for virtual pods is not empty, but
    /// not for surplus nodes of static pools.
    pub(crate) pods: Vec<&'a Pod>,
    /// In thousandths: 1000 for the node, plus the eviction cost of each pod.
    pub(crate) disturbance: i64,
    /// Cost of all evictions, in thousandths of that of an ordinary pod. The younger a pod, the more it costs, so that pods
    /// do not move again and again.
    pub(crate) evictions: i64,
    pub(crate) empty: bool,
    pub(crate) drifted: bool,
    pub(crate) underutilized: bool,
    /// Whether the node has a terminationGracePeriod, so that drift does not wait for its pods.
    pub(crate) has_grace_period: bool,
}

impl<'a> Candidate<'a> {
    /// Creates a candidate as if nothing blocked the node: empty or underutilized.
    fn new(context: &SolveContext<'a>, node: Id<Node>, pool: &'a NodePool, pods: Vec<&'a Pod>) -> Self {
        Self {
            node,
            pool,
            instance_type: label_of(context, node, label::INSTANCE_TYPE).to_owned(),
            is_spot: label_of(context, node, label::CAPACITY_TYPE) == CapacityType::Spot.as_str(),
            price: context.nodes[node].data.price,
            disturbance: disturbance(&pods),
            evictions: evictions(&pods, context.snapshot.now),
            empty: pods.is_empty(),
            drifted: false,
            underutilized: !pods.is_empty(),
            has_grace_period: false,
            pods,
        }
    }

    /// Highest price per disturbance first.
    pub(super) fn by_price_per_disturbance(&self, other: &Self) -> Ordering {
        let rate = |one: &Self, other: &Self| i128::from(one.price) * i128::from(other.disturbance);
        rate(other, self).cmp(&rate(self, other))
    }

    pub(super) fn removed(&self, reason: DisruptionReason) -> Removed<'a> {
        Removed { node: self.node, reason, price: self.price, pods: self.pods.clone() }
    }
}

/// Nodes whose NodeClaim has expired, except the `kept` ones. Neither budgets nor pods block these nodes. Their pods
/// include pods that cannot be evicted soon, although no capacity is launched for these yet. NodeClaims without Node
/// are omitted: they have their own timeouts, and there is no node to remove. So are nodes whose pool is not in the
/// snapshot: the actuator deletes their NodeClaims.
///
/// Nodes of static pools are replaced by nodes of the same pool as far as its limits, CapacityQuotas and the available
/// offerings allow, except for as many as the pool has beyond its `replicas`, including nodes that start. The second
/// value has these nodes, without the launches of their successors. Their pods need no other place.
pub(crate) fn expired<'a>(context: &SolveContext<'a>, kept: &BTreeSet<Id<Node>>) -> (Vec<Removed<'a>>, Successors) {
    let (mut found, mut successors, mut of_pool) = (Vec::new(), Successors::new(), BTreeMap::new());
    let mut shared = static_pools::shared_headroom(context, &[]);
    for (index, view) in context.nodes.iter_enumerated() {
        let Some(pool) = view.pool else { continue };
        let over = view.node.expires.is_some_and(|at| at <= context.snapshot.now);
        let exists = view.node.state != NodeState::InFlight;
        if !over || !exists || view.node.deleting || kept.contains(&index) {
            continue;
        }
        let pods = view.pods.iter().filter(|pod| pod.moves()).collect();
        found.push(Removed { node: index, reason: DisruptionReason::Expired, price: view.data.price, pods });
        let (excess, room) = of_pool.entry(pool.name.as_str()).or_insert_with(|| {
            (static_pools::excess(context.snapshot, pool), static_pools::successors(context.snapshot, pool))
        });
        if *excess > 0 {
            *excess -= 1;
        } else if *room > 0 && static_pools::has_offering(context, pool, &mut shared) {
            *room -= 1;
            successors.insert(index, None);
        }
    }
    (found, successors)
}

/// Candidates in the order of nodes, and the next time at which more nodes may become candidates without other changes.
pub(super) fn find<'a>(context: &SolveContext<'a>, removal: &Removal<'a>) -> (Vec<Candidate<'a>>, Option<Timestamp>) {
    let now = context.snapshot.now;
    let mut next: Option<Timestamp> = None;
    let mut found = Vec::new();
    for (index, view) in context.nodes.iter_enumerated() {
        let Some(pool) = view.pool else { continue };
        let idle_at = pool.disruption.consolidate_after.map(|_| consolidates_at(view.node, pool).unwrap_or(now));
        let protected = view.pods.iter().filter(|pod| !pod.terminating).map(|pod| pod.do_not_disrupt_until);
        let moments = protected.chain([view.node.expires, pool.disruption.next_budget_change, idle_at]);
        next = next.into_iter().chain(moments.flatten().filter(|at| *at > now)).min();
        if removal.busy.contains(&index) || !is_free(context, index) {
            continue;
        }
        let has_grace_period = view.node.termination_grace_period.is_some();
        // Nodes of static pools are only replaced.
        let mut idle = pool.replicas.is_none() && idle_at.is_some_and(|at| at <= now);
        // In most plans, most nodes stop here: all that follows looks at their pods.
        if !idle && view.node.drifted.is_none() {
            continue;
        }
        let blocked = is_blocked(context, index);
        idle &= !blocked;
        let buffer_pods = removal.placed_buffer_pods.get(&index).into_iter().flatten().copied();
        let all = Candidate::new(context, index, pool, moving(context, index).chain(buffer_pods).collect());
        let consolidates_underutilized = pool.disruption.policy != ConsolidationPolicy::WhenEmpty;
        let candidate = Candidate {
            empty: all.empty && idle,
            drifted: (!blocked || has_grace_period) && view.node.drifted.is_some(),
            underutilized: all.underutilized && idle && consolidates_underutilized && view.data.is_known,
            has_grace_period,
            ..all
        };
        if candidate.underutilized {
            // Also for kept nodes: they may be kept because their pods are young.
            next = next.into_iter().chain(next_fall(&candidate.pods, now)).min();
        }
        let is_removable = candidate.empty || candidate.drifted || candidate.underutilized;
        found.extend(Some(candidate).filter(|_| is_removable && !removal.kept.contains(&index)));
    }
    (found, next)
}

/// Nodes of a static pool that may be removed if there are too many.
pub(super) fn of_static<'a>(context: &SolveContext<'a>, pool: &'a NodePool) -> Vec<Candidate<'a>> {
    let own = |index: &Id<Node>| context.nodes[*index].node.node_pool.as_ref() == Some(&pool.name);
    let candidate = |index: Id<Node>| Candidate::new(context, index, pool, moving(context, index).collect());
    let free = |index: &Id<Node>| is_free(context, *index) && !is_blocked(context, *index);
    context.nodes.ids().filter(own).filter(free).map(candidate).collect()
}

fn label_of<'a>(context: &SolveContext<'a>, node: Id<Node>, key: &str) -> &'a str {
    context.nodes[node].node.labels.get(key).map_or("", String::as_str)
}

/// Existing pods that must move when the node is removed.
fn moving<'a>(context: &SolveContext<'a>, node: Id<Node>) -> impl Iterator<Item = &'a Pod> {
    context.nodes[node].pods.iter().filter(|pod| pod.moves())
}

/// Cost of removing a node with these pods, in thousandths.
pub(super) fn disturbance(pods: &[&Pod]) -> i64 {
    pods.iter().map(|pod| pod.eviction_cost_milli.max(0)).fold(1000, i64::saturating_add)
}

/// Cost of evicting these pods, in thousandths.
fn evictions(pods: &[&Pod], now: Timestamp) -> i64 {
    let cost = |pod: &&Pod| pod.eviction_cost_milli.max(0).saturating_mul(pod_age::factor(pod, now));
    pods.iter().filter(|pod| !pod.is_virtual()).map(cost).fold(0, i64::saturating_add)
}

/// When the cost of evicting these pods next falls by time alone.
fn next_fall(pods: &[&Pod], now: Timestamp) -> Option<Timestamp> {
    pods.iter().filter(|pod| !pod.is_virtual()).filter_map(|pod| pod_age::next_fall(pod, now)).min()
}

/// Whether the node is initialized, not deleting, and has neither do-not-disrupt nor reserved pods.
fn is_free(context: &SolveContext<'_>, index: Id<Node>) -> bool {
    let view = &context.nodes[index];
    view.node.state == NodeState::Initialized
        && !view.node.deleting
        && !view.node.do_not_disrupt
        && !view.pods.iter().any(|pod| matches!(pod.state, PodState::Reserved(_)))
}

/// Whether some pod of the node may not be evicted: it is protected by do-not-disrupt (including DaemonSet and static
/// pods), its PodDisruptionBudget allows no eviction, or it has two PodDisruptionBudgets, which the Eviction API does
/// not support.
fn is_blocked(context: &SolveContext<'_>, index: Id<Node>) -> bool {
    let evictable = |pod: &Pod| {
        let budgets = &pod.pod_disruption_budgets;
        let room =
            |name: &String| context.budget(name).is_some_and(|one| !one.fully_blocking && one.disruptions_allowed > 0);
        budgets.len() <= 1 && budgets.iter().all(room)
    };
    let pods = context.nodes[index].pods;
    // Draining evicts the pods of DaemonSets, too.
    let mut evicted = pods.iter().filter(|pod| !pod.terminating);
    pods.iter().any(|pod| is_protected(pod, context.snapshot.now)) || !evicted.all(evictable)
}
