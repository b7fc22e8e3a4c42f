//! Nodes whose pods fit elsewhere, or on one cheaper node, one by one or several for one.

use super::Removal;
use super::allowance::Allowance;
use super::candidates::{Candidate, disturbance};
use crate::disrupt::single_node::{self, Offer};
use crate::input::context::SolveContext;
use crate::place::draft::Draft;
use crate::place::pod_groups::{self, PodGroup};
use crate::place::relaxation;
use crate::place::{Placed, Search, State, on_existing};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{ConsolidationPolicy, DisruptionReason};
use std::collections::{BTreeMap, BTreeSet};

/// Most nodes that one replacement is looked for; as in Karpenter.
const SEVERAL: usize = 100;
/// Commands of several nodes for one in one plan: each search costs some simulations of up to that many nodes.
const COMMANDS: usize = 16;

/// Where only nodes in service that are themselves settled take pods.
const SEARCH: Search = Search { in_service: true, settled: true };

/// Nodes without need of a new one first, then several for one, then one for one.
pub(super) fn consolidate<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    found: &[Candidate<'a>],
    allowance: &mut Allowance<'a>,
    removal: &mut Removal<'a>,
) {
    let totals = Totals::new(context);
    let movable = |one: &&Candidate<'a>| {
        one.underutilized
            && !one.pods.iter().any(|pod| {
                context
                    .shape_of(pod)
                    .is_none_or(|shape| crate::explain::unsupported(context.shapes[shape].shape).is_some())
            })
    };
    let mut order: Vec<&Candidate<'a>> = found.iter().filter(movable).collect();
    // Most price per disturbance first.
    order.sort_by(|a, b| {
        let rate = |one: &Candidate<'_>, other: &Candidate<'_>| i128::from(one.price) * i128::from(other.disturbance);
        rate(b, a).cmp(&rate(a, b)).then_with(|| a.node.cmp(&b.node))
    });
    let mut sweep = Sweep { context, totals, allowance, removal };
    for candidate in &order {
        sweep.attempt(state, &[candidate], false);
    }
    for _ in 0..COMMANDS {
        if !sweep.several(state, &order) {
            break;
        }
    }
    for candidate in &order {
        sweep.attempt(state, &[candidate], true);
    }
}

struct Sweep<'s, 'a> {
    context: &'s SolveContext<'a>,
    totals: Totals<'a>,
    allowance: &'s mut Allowance<'a>,
    removal: &'s mut Removal<'a>,
}

impl<'a> Sweep<'_, 'a> {
    fn is_open(&self, candidate: &Candidate<'a>) -> bool {
        !self.removal.is_gone(candidate.node) && !self.removal.busy.contains(&candidate.node)
    }

    /// Removes all of `nodes`, if that is allowed and pays.
    fn attempt(&mut self, state: &mut State, nodes: &[&Candidate<'a>], replace: bool) -> bool {
        if nodes.iter().any(|candidate| !self.is_open(candidate)) {
            return false;
        }
        let mut allowance = self.allowance.clone();
        for candidate in nodes {
            if !allowance.permits(self.context, candidate, DisruptionReason::Underutilized) {
                return false;
            }
            allowance.note(candidate);
        }
        if state.work == 0 {
            return false;
        }
        let Some(placed) = state.trial(|state| self.without(state, nodes, replace)) else { return false };
        *self.allowance = allowance;
        for candidate in nodes {
            self.removal.note(candidate, DisruptionReason::Underutilized);
        }
        self.removal.commit(self.context, placed);
        true
    }

    /// The most nodes, dearest for what they disturb first, that one new node replaces.
    fn several(&mut self, state: &mut State, order: &[&Candidate<'a>]) -> bool {
        let mut allowance = self.allowance.clone();
        let mut nodes: Vec<&Candidate<'a>> = Vec::new();
        for candidate in order {
            if nodes.len() == SEVERAL {
                break;
            }
            if self.is_open(candidate) && allowance.permits(self.context, candidate, DisruptionReason::Underutilized) {
                allowance.note(candidate);
                nodes.push(candidate);
            }
        }
        let (mut least, mut most, mut best) = (2, nodes.len(), None);
        while least <= most {
            let middle = usize::midpoint(least, most);
            let mut works = false;
            // Looked at only: nothing is kept.
            let _: Option<()> = state.trial(|state| {
                works = self.without(state, &nodes[..middle], true).is_some();
                None
            });
            if works {
                best = Some(middle);
                least = middle + 1;
            } else {
                most = middle - 1;
            }
        }
        best.is_some_and(|count| self.attempt(state, &nodes[..count], true))
    }

    /// Where the pods of `nodes` would go, with as much of what they prefer as there is a place for; `None` if not all have one, or it does
    /// not pay.
    fn without(&self, state: &mut State, nodes: &[&Candidate<'a>], replace: bool) -> Option<Placed<'a>> {
        let context = self.context;
        nodes.iter().for_each(|candidate| state.close(candidate.node));
        let pods = nodes.iter().flat_map(|candidate| &candidate.pods).copied();
        let own: Vec<PodGroup<'a>> = pod_groups::by_shape(context, pods);
        pod_groups::leave(context, state, &own);
        let mut pod_groups = relaxation::strictest(context, own);
        loop {
            let mut missed = BTreeSet::new();
            let placed = state.trial(|state| match self.served(state, nodes, replace, pod_groups.clone()) {
                Replacement::Placed(placed) => Some(Some(placed)),
                Replacement::TooDear => Some(None),
                Replacement::Left(left) => {
                    missed = relaxation::uids(&left);
                    None
                }
            });
            match placed {
                Some(placed) => return placed,
                None if state.work == 0 => return None,
                None => pod_groups = relaxation::relaxed(context, &pod_groups, &missed, &BTreeSet::new())?,
            }
        }
    }

    fn served(
        &self,
        state: &mut State,
        nodes: &[&Candidate<'a>],
        replace: bool,
        pod_groups: Vec<PodGroup<'a>>,
    ) -> Replacement<'a> {
        let context = self.context;
        let (pod_groups, nowhere) = crate::place::topology::assign(context, state, pod_groups);
        if !nowhere.is_empty() {
            return Replacement::Left(nowhere);
        }
        let total: i64 = nodes.iter().map(|candidate| candidate.price).sum();
        let mut placed = Placed { left: pod_groups, ..Placed::default() };
        on_existing(context, state, &mut placed, SEARCH);
        if !placed.left.is_empty() {
            state.work = state.work.saturating_sub(placed.left.len() as u64);
            let offers = if replace { single_node::offers(context, state, &placed.left) } else { Vec::new() };
            if !offers.is_empty() {
                let mut offers = offers.into_iter();
                let Some(launch) = offers.find_map(|offer| self.cheaper(state, nodes, offer, total, &placed.left))
                else {
                    return Replacement::TooDear;
                };
                placed.launches.push(launch);
                placed.left.clear();
            } else if placed.left.iter().any(|pod_group| {
                !context.relaxation.is_required_only(pod_group.shape) && alone(context, state, pod_group)
            }) {
                // New nodes would give them what they prefer: they do not give it up for the sake of the saving.
                return Replacement::TooDear;
            }
        }
        if !placed.left.is_empty() {
            return Replacement::Left(placed.left);
        }
        let saving = total - placed.launches.iter().map(|launch| launch.price(context)).sum::<i64>();
        if self.totals.approve(nodes, saving) { Replacement::Placed(placed) } else { Replacement::TooDear }
    }

    /// The launch of `offer`, narrowed to what costs less than what it replaces.
    fn cheaper(
        &self,
        state: &mut State,
        nodes: &[&Candidate<'a>],
        mut offer: Offer,
        total: i64,
        pod_groups: &[PodGroup<'a>],
    ) -> Option<Draft<'a>> {
        let view = &self.context.pools[offer.pool];
        let label_of = |candidate: &Candidate<'_>, key: &str| self.context.nodes[candidate.node].node.labels.get(key);
        let is_spot = |candidate: &&Candidate<'_>| {
            label_of(candidate, label::CAPACITY_TYPE).map(String::as_str) == Some(CapacityType::Spot.as_str())
        };
        let may_be_spot = offer.accept.iter().any(|index| view.offering(index).capacity_type == CapacityType::Spot);
        // Spot for spot is a race to the pool that is taken back first.
        if may_be_spot && nodes.iter().all(is_spot) {
            return None;
        }
        let mut below = total;
        if nodes.len() > 1 {
            // Not "a, a and b by b": then deleting the others was all there was to it.
            for candidate in nodes {
                let kind = label_of(candidate, label::INSTANCE_TYPE);
                if offer.accept.iter().any(|index| Some(view.type_name(index)) == kind.map(String::as_str)) {
                    below = below.min(candidate.price);
                }
            }
        }
        offer.accept.retain(|index| view.price(index) < below);
        single_node::launch(self.context, state, offer, pod_groups)
    }
}

/// How pods of nodes that are to go would be served.
enum Replacement<'a> {
    Placed(Placed<'a>),
    /// They would be, but it does not pay.
    TooDear,
    /// These have no place.
    Left(Vec<PodGroup<'a>>),
}

/// Whether a new node could take one pod of the pod group.
fn alone(context: &SolveContext<'_>, state: &State, pod_group: &PodGroup<'_>) -> bool {
    let one = PodGroup { pods: pod_group.pods.iter().copied().take(1).collect(), ..pod_group.clone() };
    !single_node::offers(context, state, &[one]).is_empty()
}

/// Price and disturbance of all nodes of a pool that weighs one against the other.
struct Totals<'a>(BTreeMap<&'a str, (i64, i64)>);

impl<'a> Totals<'a> {
    fn new(context: &SolveContext<'a>) -> Self {
        let balanced =
            |pool: &&plimsoll_model::snapshot::NodePool| pool.disruption.policy == ConsolidationPolicy::Balanced;
        let mut totals: BTreeMap<&str, (i64, i64)> =
            context.snapshot.node_pools.iter().filter(balanced).map(|pool| (pool.name.as_str(), (0, 0))).collect();
        for (index, view) in context.nodes.iter().enumerate() {
            let Some(total) = view.node.node_pool.as_ref().and_then(|name| totals.get_mut(name.as_str())) else {
                continue;
            };
            let pods: Vec<_> = view.pods.iter().filter(|pod| pod.moves()).collect();
            total.0 += context.nodes[index].data.price;
            total.1 += disturbance(&pods);
        }
        Self(totals)
    }

    /// Whether each pool with policy Balanced that loses nodes finds the saving worth at least half its share of the disturbance.
    fn approve(&self, nodes: &[&Candidate<'a>], saving: i64) -> bool {
        let all: i128 = nodes.iter().map(|one| i128::from(one.price)).sum();
        self.0.iter().all(|(pool, (cost, disturbance))| {
            let own = || nodes.iter().filter(|one| one.pool.name.as_str() == *pool);
            if own().next().is_none() {
                return true;
            }
            let source: i128 = own().map(|one| i128::from(one.price)).sum();
            let moved: i128 = own().map(|one| i128::from(one.disturbance)).sum();
            // saving x source/all / cost  >=  1/2 x moved / disturbance, without fractions.
            let gain = 2 * i128::from(saving) * source * i128::from(*disturbance);
            all > 0 && *cost > 0 && saving > 0 && gain >= moved * all * i128::from(*cost)
        })
    }
}
