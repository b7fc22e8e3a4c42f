//! Removes many nodes at once: chooses the nodes that are not worth their price, and places their pods together.
//!
//! A node is worth its price if it can run pods that would cost as much on new nodes. Nodes are therefore ordered by
//! price per worth of their capacity, including the cost of evictions. All pods are placed together, so that each moves
//! only once.

mod choose;
mod delete;
mod parts;

use super::candidates::Candidate;
use super::consolidate::Rules;
use super::preferences;
use crate::bound::resource_prices::{resource_prices, worth};
use crate::input::context::{SolveContext, tolerated};
use crate::input::intern::{Amounts, add};
use crate::input::offerings::MOST_PRICE;
use crate::place::best_fit::best_fit;
use crate::place::columns::money;
use crate::place::draft::Draft;
use crate::place::pod_groups::PodGroup;
use crate::place::{self, Placed, State, local_search, pod_groups, topology};
use crate::score::PER_NODE;
pub(super) use parts::{Part, divide};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::PodShape;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Maximum cost of the evictions of a node: more than the removal of any node saves. The sum for a million nodes does
/// not overflow.
const MOST_EVICTIONS: i64 = 2 * MOST_PRICE;

/// Id of a candidate in the order of a [`Repack`].
type CandidateId = Id<Candidate<'static>>;

/// Candidates with their price per worth.
type Order<'s, 'a> = IndexVec<Candidate<'static>, (f64, &'s Candidate<'a>)>;

/// The nodes that may be removed, and the cost of their removal.
pub(super) struct Repack<'s, 'a> {
    context: &'s SolveContext<'a>,
    rules: Rules,
    /// Highest price per worth first, with this price.
    order: Order<'s, 'a>,
    prices: Rc<Vec<f64>>,
}

impl<'s, 'a> Repack<'s, 'a> {
    /// Creates a repack of `nodes`, all of which may be removed. `None` if there are too few.
    pub(super) fn new(
        context: &'s SolveContext<'a>,
        state: &State,
        nodes: Vec<&'s Candidate<'a>>,
        rules: Rules,
    ) -> Option<Self> {
        if nodes.len() < 2 {
            return None;
        }
        let prices = Rc::new(market_prices(context, &nodes));
        let key = |one: &Candidate<'a>| {
            let mut room: Amounts = state.room(one.node).free.clone();
            add_requests(context, &mut room, one);
            money(one.price - evictions(one, rules.per_eviction)) / worth(&prices, &room).max(1.0)
        };
        let mut order: Vec<(f64, &Candidate<'a>)> = nodes.into_iter().map(|one| (key(one), one)).collect();
        order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.node.cmp(&b.1.node)));
        Some(Self { context, rules, order: order.into(), prices })
    }

    /// Returns the nodes to remove, highest price per worth first. Empty if no removal pays.
    pub(super) fn choose(&mut self, state: &mut State) -> Vec<&'s Candidate<'a>> {
        let chosen = choose::choose(self, state);
        self.nodes(&chosen)
    }

    fn nodes(&self, ids: &[CandidateId]) -> Vec<&'s Candidate<'a>> {
        ids.iter().map(|id| self.order[*id].1).collect()
    }

    /// Removes nodes from the order whose pods cannot be placed elsewhere at all.
    fn drop_stuck(&mut self, state: &mut State, work: u64) {
        let all: Vec<CandidateId> = self.order.ids().collect();
        let nodes = self.nodes(&all);
        let left = self.tried(state, work, |state| self.place(state, &nodes, true).err()).unwrap_or_default();
        if !left.is_empty() {
            self.order.as_mut_vec().retain(|(_, one)| !one.pods.iter().any(|pod| left.contains(pod.uid.as_str())));
        }
    }

    /// Runs `attempt` with this work budget, and undoes all changes.
    fn tried<T>(&self, state: &mut State, work: u64, attempt: impl FnOnce(&mut State) -> Option<T>) -> Option<T> {
        let before = state.work;
        let given = before.min(work);
        state.work = given;
        let found = state.undone(attempt);
        state.work = before - (given - state.work);
        found
    }

    /// Change of cost if these nodes are removed, and the instance types of the launches. Uses at most this work.
    /// `None` if a pod cannot be placed.
    fn cost(&self, state: &mut State, nodes: &[CandidateId], work: u64) -> Option<(i64, BTreeMap<String, usize>)> {
        let nodes = self.nodes(nodes);
        self.tried(state, work, |state| {
            let placed = self.place(state, &nodes, true).ok()?;
            self.is_allowed(&nodes, &placed.launches, false)
                .then(|| (self.cost_of(&nodes, &placed.launches), self.types(&placed)))
        })
    }

    /// Whether new Spot nodes replace only On-Demand nodes, or if the rules allow it, a larger number of Spot nodes.
    /// Replacing Spot nodes one by one would lead to the capacity that is interrupted first. As long as launches are
    /// not `restricted`, reserved instances are no Spot nodes: see `restrict` in [`super::consolidate`].
    pub(super) fn is_allowed(&self, nodes: &[&Candidate<'a>], launches: &[Draft<'a>], restricted: bool) -> bool {
        let is_spot = |draft: &&Draft<'a>| {
            let view = &self.context.pools[draft.pool];
            let mut listed = draft.offerings.iter().map(|index| view.offering(*index).capacity_type);
            (restricted || !draft.is_reserved(self.context)) && listed.any(|bought| bought == CapacityType::Spot)
        };
        let replaced = nodes.iter().filter(|one| one.is_spot).count();
        let fewer = if self.rules.spot_to_spot { replaced.saturating_sub(1) } else { 0 };
        launches.iter().filter(is_spot).count() <= nodes.len() - replaced + fewer
    }

    /// Change of the hourly price, including the cost of evictions.
    pub(super) fn cost_of(&self, nodes: &[&Candidate<'a>], launches: &[Draft<'a>]) -> i64 {
        let launched: i64 = launches.iter().map(|draft| draft.price(self.context) + PER_NODE).sum();
        let removed = |one: &&Candidate<'a>| one.price + PER_NODE - evictions(one, self.rules.per_eviction);
        launched - nodes.iter().map(removed).sum::<i64>()
    }

    fn types(&self, placed: &Placed<'a>) -> BTreeMap<String, usize> {
        let mut types = BTreeMap::new();
        for draft in &placed.launches {
            let cheapest = draft.offerings.first().map(|one| self.context.pools[draft.pool].type_name(*one));
            *types.entry(cheapest.unwrap_or_default().to_owned()).or_default() += 1;
        }
        types
    }

    /// Closes `nodes` and places their pods, with as many preferences as can be satisfied: on remaining nodes, and on
    /// new nodes if it `may_launch`.
    ///
    /// # Errors
    /// UIDs of pods that cannot be placed.
    pub(super) fn place(
        &self,
        state: &mut State,
        nodes: &[&Candidate<'a>],
        may_launch: bool,
    ) -> Result<Placed<'a>, BTreeSet<&'a str>> {
        nodes.iter().for_each(|one| state.close(one.node));
        let own = pod_groups::by_shape(self.context, nodes.iter().flat_map(|one| &one.pods).copied());
        pod_groups::leave(self.context, state, &own);
        preferences::give_up(self.context, state, own, |state, pod_groups| {
            let (pod_groups, nowhere) = topology::assign(self.context, state, pod_groups);
            if !nowhere.is_empty() {
                return Err(nowhere);
            }
            if let Some(placed) = self.best_fit(state, &pod_groups) {
                return Ok(placed);
            }
            state.prices = Some(Rc::clone(&self.prices));
            let mut placed = if may_launch {
                place::place(self.context, state, pod_groups)
            } else {
                let mut placed = Placed { left: pod_groups, ..Placed::default() };
                place::on_existing(self.context, state, &mut placed);
                placed
            };
            state.prices = None;
            if !placed.left.is_empty() {
                return Err(placed.left);
            }
            local_search::improve(self.context, state, &mut placed);
            Ok(placed)
        })
    }

    /// Places all pods on remaining nodes. `None`, without a change, if they do not fit.
    fn best_fit(&self, state: &mut State, pod_groups: &[PodGroup<'a>]) -> Option<Placed<'a>> {
        state.trial(|state| {
            let mut placed = Placed { left: pod_groups.to_vec(), ..Placed::default() };
            best_fit(self.context, state, &mut placed, &self.prices);
            // Pods that follow others to their hosts.
            place::on_existing(self.context, state, &mut placed);
            placed.left.is_empty().then_some(placed)
        })
    }
}

/// Minimum saving for the evictions of a node, in micro-USD per hour.
pub(super) fn evictions(one: &Candidate<'_>, per_eviction: i64) -> i64 {
    least_saving(one.evictions, per_eviction)
}

/// Minimum saving for evictions that cost this many thousandths, at most [`MOST_EVICTIONS`].
fn least_saving(evictions: i64, per_eviction: i64) -> i64 {
    (evictions.saturating_mul(per_eviction) / 1000).min(MOST_EVICTIONS)
}

/// Prices of resources on new nodes for the pods of `nodes`, from the pools that any of the pods can use.
fn market_prices(context: &SolveContext<'_>, nodes: &[&Candidate<'_>]) -> Vec<f64> {
    let mut load: Amounts = vec![0; context.table.len()];
    nodes.iter().for_each(|one| add_requests(context, &mut load, one));
    let mut offers: Vec<(i64, &Amounts)> = Vec::new();
    let pods = nodes.iter().flat_map(|one| &one.pods);
    let shapes: BTreeSet<Id<PodShape>> = pods.filter_map(|pod| context.shape_of(pod)).collect();
    for (pool, view) in context.pools.iter_enumerated() {
        let tolerates =
            |shape: Id<PodShape>| tolerated(&view.pool.taints, &context.shapes[shape].shape.tolerations, true);
        if !shapes.iter().any(|shape| tolerates(*shape) && context.can_run(*shape, pool, None)) {
            continue;
        }
        offers.extend(view.usable.iter().map(|index| (view.price(index), &view.offerings[index].room)));
    }
    resource_prices(&offers, &load)
}

fn add_requests(context: &SolveContext<'_>, sum: &mut Amounts, one: &Candidate<'_>) {
    for shape in one.pods.iter().filter_map(|pod| context.shape_of(pod)) {
        add(sum, context.shapes[shape].requests, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_of_any_cost_are_summed_for_a_million_nodes() {
        assert_eq!(least_saving(2_000, 500), 1_000);
        let most = least_saving(i64::MAX, i64::MAX);
        assert!(most > MOST_PRICE, "no node saves as much");
        assert!(most.checked_mul(1_000_000).is_some());
    }
}
