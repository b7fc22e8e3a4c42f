//! Consolidation: removes nodes whose pods fit on other or cheaper nodes. Nodes are first removed together, then one by
//! one.

use super::Removal;
use super::candidates::{Candidate, disturbance};
use super::preferences;
use super::repack::{self, Part, Repack};
use crate::disrupt::single_node;
use crate::input::context::SolveContext;
use crate::input::intern::Bits;
use crate::input::offerings::PoolView;
use crate::place::draft::Draft;
use crate::place::launch;
use crate::place::local_search::bins::Bin;
use crate::place::pod_groups::{self, PodGroup};
use crate::place::{Placed, State, on_existing};
use crate::retries;
use plimsoll_model::catalog::{CapacityType, Offering};
use plimsoll_model::index::Id;
use plimsoll_model::plan::PlanOptions;
use plimsoll_model::snapshot::{ConsolidationPolicy, DisruptionReason, Node};
use std::collections::{BTreeMap, BTreeSet};

/// Number of instance types that must be cheaper than a Spot node that another Spot node replaces, as in Karpenter.
const SPOT_TYPES: usize = 15;

/// Removes nodes together first. Spot nodes, and nodes whose joint removal does not pay, are then considered one by
/// one: first without a replacement, then with one new node each.
pub(super) fn consolidate<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    found: &[Candidate<'a>],
    removal: &mut Removal<'a>,
    options: &PlanOptions,
) {
    let rules = Rules { per_eviction: options.min_saving_per_eviction.0, spot_to_spot: options.spot_to_spot };
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
    order.sort_by(|a, b| a.by_price_per_disturbance(b).then_with(|| a.node.cmp(&b.node)));
    let mut consolidation = Consolidation { single: Single { context, totals, rules }, removal };
    consolidation.repack(state, &order);
    for replace in [false, true] {
        order.iter().for_each(|candidate| consolidation.attempt(state, candidate, replace));
    }
}

/// Which moves consolidation may make.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// Minimum saving per eviction and hour, in micro-USD.
    pub(super) per_eviction: i64,
    /// Whether Spot nodes may be replaced by cheaper Spot nodes.
    pub(super) spot_to_spot: bool,
}

struct Consolidation<'s, 'a> {
    single: Single<'s, 'a>,
    removal: &'s mut Removal<'a>,
}

impl<'a> Consolidation<'_, 'a> {
    /// Removes the node if this is allowed and pays.
    fn attempt(&mut self, state: &mut State, candidate: &Candidate<'a>, replace: bool) {
        let Self { single, removal } = self;
        let (context, reason) = (single.context, DisruptionReason::Underutilized);
        removal.attempt(context, state, candidate, reason, |state| single.without(state, candidate, replace));
    }

    /// Removes the most profitable set of nodes, without the parts that do not pay on their own. Nodes that budgets do
    /// not allow to remove yet take no pods. They are postponed if only this removal uses these budgets up.
    fn repack(&mut self, state: &mut State, order: &[&Candidate<'a>]) {
        let context = self.single.context;
        let open = order.iter().copied().filter(|one| self.removal.is_open(one)).collect();
        let Some(mut repack) = Repack::new(context, state, open, self.single.rules) else { return };
        let (mut nodes, mut later) = (Vec::new(), Vec::new());
        let mut allowance = self.removal.allowance.clone();
        let reason = DisruptionReason::Underutilized;
        for candidate in repack.choose(state) {
            if allowance.permits(context, candidate, reason) {
                allowance.note(context, candidate, reason);
                nodes.push(candidate);
            } else {
                later.push(candidate);
            }
        }
        let Some((nodes, placed)) = self.replaced(state, &repack, nodes, &later) else { return };
        later.retain(|one| self.removal.allowance.permits(context, one, reason));
        for candidate in nodes {
            self.removal.note(context, candidate, reason);
        }
        later.retain(|one| !self.removal.allowance.permits(context, one, reason));
        self.removal.postponed.extend(later.iter().map(|one| one.node));
        self.removal.commit(context, placed);
    }

    /// Places the pods of those `nodes` elsewhere whose removal pays, and returns these nodes. Nodes that are removed
    /// `later` take no pods.
    fn replaced<'s>(
        &self,
        state: &mut State,
        repack: &Repack<'s, 'a>,
        mut nodes: Vec<&'s Candidate<'a>>,
        later: &[&'s Candidate<'a>],
    ) -> Option<(Vec<&'s Candidate<'a>>, Placed<'a>)> {
        let mut closed = later.to_vec();
        // Each attempt drops all parts that do not pay. The rest usually pays at once.
        for _ in 0..retries::FEW {
            if nodes.is_empty() {
                return None;
            }
            let attempt = state.attempt(|state| {
                closed.iter().for_each(|one| state.close(one.node));
                match repack.place(state, &nodes, true) {
                    Ok(mut placed) => {
                        let dropped = self.unprofitable(state, repack, &nodes, &mut placed);
                        if dropped.is_empty() { Ok(placed) } else { Err(dropped) }
                    }
                    Err(left) => {
                        let is_stuck =
                            |one: &&&Candidate<'a>| one.pods.iter().any(|pod| left.contains(pod.uid.as_str()));
                        Err(nodes.iter().filter(is_stuck).map(|one| one.node).collect())
                    }
                }
            });
            let dropped = match attempt {
                Ok(placed) => return Some((nodes, placed)),
                Err(dropped) if dropped.is_empty() => return None,
                Err(dropped) => dropped,
            };
            let (stay, go): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|one| dropped.contains(&one.node));
            nodes = go;
            // Nodes that do not pay without those of their pool that budgets postpone may pay together with them later.
            let waits = |one: &&Candidate<'a>| later.iter().any(|other| other.pool.name == one.pool.name);
            closed.extend(stay.into_iter().filter(waits));
        }
        None
    }

    /// Nodes of the parts that do not pay on their own. The launches of all other parts are restricted: see
    /// [`Self::pays`].
    fn unprofitable(
        &self,
        state: &State,
        repack: &Repack<'_, 'a>,
        nodes: &[&Candidate<'a>],
        placed: &mut Placed<'a>,
    ) -> BTreeSet<Id<Node>> {
        let mut dropped = BTreeSet::new();
        let mut paying: Vec<Part<'_, 'a>> = Vec::new();
        for mut part in repack::divide(nodes, std::mem::take(&mut placed.launches)) {
            if self.pays(state, repack, &mut part) {
                paying.push(part);
            } else {
                dropped.extend(part.nodes.iter().map(|one| one.node));
            }
        }
        // On-Demand nodes of one part permit Spot nodes in another. If they are too few, each part needs its own.
        let disallowed = paying.iter().filter(|part| !repack.is_allowed(&part.nodes, &part.launches, true));
        let disallowed: Vec<Id<Node>> = disallowed.flat_map(|part| &part.nodes).map(|one| one.node).collect();
        let all: Vec<&Candidate<'a>> = paying.iter().flat_map(|part| part.nodes.iter().copied()).collect();
        placed.launches = paying.into_iter().flat_map(|part| part.launches).collect();
        if !repack.is_allowed(&all, &placed.launches, true) {
            dropped.extend(disallowed);
        }
        dropped
    }

    /// Whether the part pays on its own. If so, each of its launches lists only offerings with which all of them
    /// together cost less than the nodes.
    fn pays(&self, state: &State, repack: &Repack<'_, 'a>, part: &mut Part<'_, 'a>) -> bool {
        let context = self.single.context;
        let total: i64 = part.nodes.iter().map(|one| one.price).sum();
        let launched: i64 = part.launches.iter().map(|draft| draft.price(context)).sum();
        let saving = total - launched;
        let has_spot = part.nodes.iter().any(|one| one.is_spot);
        let followed = &self.removal.followed;
        repack.cost_of(&part.nodes, &part.launches) < 0
            && self.single.totals.approve(&part.nodes, saving)
            && part.nodes.iter().all(|one| followed.permits(context, state, one.node))
            && restrict(context, &mut part.launches, saving, has_spot)
    }
}

/// Restricts each launch to offerings that cost less than its price and an equal share of the saving. If they replace
/// Spot nodes, reserved instances have no alternatives unless `minValues` needs them: Spot would be one. Returns
/// whether all launches have such offerings.
fn restrict(context: &SolveContext<'_>, launches: &mut [Draft<'_>], saving: i64, has_spot: bool) -> bool {
    let share = saving / i64::try_from(launches.len().max(1)).unwrap_or(i64::MAX);
    launches.iter_mut().all(|draft| {
        let view = &context.pools[draft.pool];
        let most = draft.price(context) + share;
        let cheap = draft.offerings.iter().copied().filter(|one| view.price(*one) < most);
        let mut cheap = Bits::from_ids(view.offerings.len(), cheap);
        if has_spot && draft.is_reserved(context) {
            keep_reserved(view, &mut cheap);
        }
        let Some(offerings) = launch::acceptable(view, &cheap) else { return false };
        (draft.offerings, draft.spare) = (offerings, None);
        true
    })
}

/// Decides whether the removal of a single node pays.
struct Single<'s, 'a> {
    context: &'s SolveContext<'a>,
    totals: Totals<'a>,
    rules: Rules,
}

impl<'a> Single<'_, 'a> {
    /// Places the pods of the node elsewhere, with as many preferences as can be satisfied. `None` if not all pods can
    /// be placed, or if the removal does not pay.
    fn without(&self, state: &mut State, candidate: &Candidate<'a>, replace: bool) -> Option<Placed<'a>> {
        let context = self.context;
        let own: Vec<PodGroup<'a>> = pod_groups::by_shape(context, candidate.pods.iter().copied());
        pod_groups::leave(context, state, &own);
        let served = preferences::give_up(context, state, own, |state, pod_groups| {
            self.served(state, candidate, replace, pod_groups)
        });
        served.ok().flatten()
    }

    /// Places these pods. `None` if this does not pay.
    ///
    /// # Errors
    /// The pods that cannot be placed.
    fn served(
        &self,
        state: &mut State,
        candidate: &Candidate<'a>,
        replace: bool,
        pod_groups: Vec<PodGroup<'a>>,
    ) -> Result<Option<Placed<'a>>, Vec<PodGroup<'a>>> {
        let context = self.context;
        let (pod_groups, nowhere) = crate::place::topology::assign(context, state, pod_groups);
        if !nowhere.is_empty() {
            return Err(nowhere);
        }
        let mut placed = Placed { left: pod_groups, ..Placed::default() };
        on_existing(context, state, &mut placed);
        if !placed.left.is_empty() {
            state.work = state.work.saturating_sub(placed.left.len() as u64);
            let offers = if replace { single_node::offers(context, state, &placed.left) } else { Vec::new() };
            if !offers.is_empty() {
                let mut offers = offers.into_iter();
                let Some(launch) = offers.find_map(|offer| self.cheaper(state, candidate, offer, &placed.left)) else {
                    return Ok(None);
                };
                placed.launches.push(launch);
                placed.left.clear();
            } else if placed.left.iter().any(|pod_group| {
                !context.relaxation.is_required_only(pod_group.shape) && alone(context, state, pod_group)
            }) {
                // New nodes would satisfy their preferences. A saving does not justify giving these up.
                return Ok(None);
            }
        }
        if !placed.left.is_empty() {
            return Err(placed.left);
        }
        let saving = candidate.price - placed.launches.iter().map(|launch| launch.price(context)).sum::<i64>();
        let pays = saving >= repack::evictions(candidate, self.rules.per_eviction);
        Ok(Some(placed).filter(|_| pays && self.totals.approve(&[candidate], saving)))
    }

    /// The launch of `offer`, restricted to offerings that cost less than the replaced node.
    fn cheaper(
        &self,
        state: &mut State,
        candidate: &Candidate<'a>,
        mut offer: Bin<'a>,
        pod_groups: &[PodGroup<'a>],
    ) -> Option<Draft<'a>> {
        let view = &self.context.pools[offer.pool];
        if candidate.is_spot && offer.accept.first().is_some_and(|cheapest| view.is_reserved(cheapest)) {
            // Without Spot as an alternative, the rules for Spot do not apply.
            keep_reserved(view, &mut offer.accept);
        }
        let may_be_spot = offer.accept.iter().any(|index| view.offering(index).capacity_type == CapacityType::Spot);
        let is_spot_to_spot = may_be_spot && candidate.is_spot;
        if is_spot_to_spot && !self.rules.spot_to_spot {
            return None;
        }
        offer.accept.retain(|index| view.price(index) < candidate.price);
        if is_spot_to_spot && !keep_spot_types(view, &mut offer.accept) {
            return None;
        }
        single_node::launch(self.context, state, offer, pod_groups)
    }
}

/// Restricts a launch to reserved offerings if these alone meet `minValues`.
fn keep_reserved(view: &PoolView<'_>, accept: &mut Bits<Offering>) {
    let mut reserved = accept.clone();
    reserved.retain(|index| view.is_reserved(index));
    if launch::acceptable(view, &reserved).is_some() {
        *accept = reserved;
    }
}

/// Restricts the replacement of a Spot node to the cheapest Spot types. Returns whether there are enough: replacing Spot
/// nodes by the cheapest type would lead to the capacity that is interrupted first. Karpenter has the same rule.
fn keep_spot_types(view: &PoolView<'_>, accept: &mut Bits<Offering>) -> bool {
    accept.retain(|index| view.offering(index).capacity_type == CapacityType::Spot);
    let mut types = BTreeSet::new();
    // Cheapest first. With minValues, all types may be necessary.
    let all = view.pool.requirements.iter().any(|requirement| requirement.min_values.is_some());
    for index in accept.iter() {
        if all || types.len() < SPOT_TYPES {
            types.insert(view.offerings[index].type_index);
        }
    }
    accept.retain(|index| types.contains(&view.offerings[index].type_index));
    types.len() >= SPOT_TYPES
}

/// Whether a new node could run one pod of the group.
fn alone<'a>(context: &SolveContext<'a>, state: &State, pod_group: &PodGroup<'a>) -> bool {
    let one = PodGroup { pods: pod_group.pods.iter().copied().take(1).collect(), ..pod_group.clone() };
    !single_node::offers(context, state, &[one]).is_empty()
}

/// Total price and disturbance of each pool with policy Balanced.
struct Totals<'a>(BTreeMap<&'a str, (i64, i64)>);

impl<'a> Totals<'a> {
    fn new(context: &SolveContext<'a>) -> Self {
        let balanced =
            |pool: &&plimsoll_model::snapshot::NodePool| pool.disruption.policy == ConsolidationPolicy::Balanced;
        let mut totals: BTreeMap<&str, (i64, i64)> =
            context.snapshot.node_pools.iter().filter(balanced).map(|pool| (pool.name.as_str(), (0, 0))).collect();
        for view in &context.nodes {
            let Some(total) = view.node.node_pool.as_ref().and_then(|name| totals.get_mut(name.as_str())) else {
                continue;
            };
            let pods: Vec<_> = view.pods.iter().filter(|pod| pod.moves()).collect();
            total.0 += view.data.price;
            total.1 = total.1.saturating_add(disturbance(&pods));
        }
        Self(totals)
    }

    /// Whether each pool with policy Balanced that loses nodes saves at least half as much, relative to its total
    /// price, as its share of the disturbance.
    fn approve(&self, nodes: &[&Candidate<'a>], saving: i64) -> bool {
        let all: i128 = nodes.iter().map(|one| i128::from(one.price)).sum();
        self.0.iter().all(|(pool, (cost, disturbance))| {
            let own = || nodes.iter().filter(|one| one.pool.name.as_str() == *pool);
            if own().next().is_none() {
                return true;
            }
            let source: i128 = own().map(|one| i128::from(one.price)).sum();
            let moved: i128 = own().map(|one| i128::from(one.disturbance)).sum();
            // saving x source/all / cost >= 1/2 x moved / disturbance, without fractions. Prices of a million USD per
            // hour make both sides too large for thousands of nodes.
            let gain = i128::from(saving).saturating_mul(2 * source).saturating_mul(i128::from(*disturbance));
            let least = moved.saturating_mul(all).saturating_mul(i128::from(*cost));
            all > 0 && *cost > 0 && saving > 0 && gain >= least
        })
    }
}
