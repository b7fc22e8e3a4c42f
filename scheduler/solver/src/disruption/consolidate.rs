//! Nodes whose pods fit elsewhere, or on one cheaper node, one by one or several for one.

use super::Removal;
use super::allowance::Allowance;
use super::candidates::{Candidate, disturbance};
use crate::draft::Draft;
use crate::lots::{self, Lot};
use crate::place::{Placed, Search, State, on_existing};
use crate::preferences;
use crate::single::{self, Offer};
use crate::world::World;
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
    world: &World<'a>,
    state: &mut State,
    found: &[Candidate<'a>],
    allowance: &mut Allowance<'a>,
    removal: &mut Removal<'a>,
) {
    let totals = Totals::new(world);
    let movable = |one: &&Candidate<'a>| {
        one.underutilized
            && !one.pods.iter().any(|pod| {
                world.shape_of(pod).is_none_or(|shape| crate::reasons::unsupported(world.shapes[shape].shape).is_some())
            })
    };
    let mut order: Vec<&Candidate<'a>> = found.iter().filter(movable).collect();
    // Most price per disturbance first.
    order.sort_by(|a, b| {
        let rate = |one: &Candidate<'_>, other: &Candidate<'_>| i128::from(one.price) * i128::from(other.disturbance);
        rate(b, a).cmp(&rate(a, b)).then_with(|| a.node.cmp(&b.node))
    });
    let mut sweep = Sweep { world, totals, allowance, removal };
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
    world: &'s World<'a>,
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
            if !allowance.permits(self.world, candidate, DisruptionReason::Underutilized) {
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
        self.removal.commit(self.world, placed);
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
            if self.is_open(candidate) && allowance.permits(self.world, candidate, DisruptionReason::Underutilized) {
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
        let world = self.world;
        nodes.iter().for_each(|candidate| state.close(candidate.node));
        let pods = nodes.iter().flat_map(|candidate| &candidate.pods).copied();
        let own: Vec<Lot<'a>> = lots::by_shape(world, pods);
        lots::leave(world, state, &own);
        let mut lots = preferences::hardest(world, own);
        loop {
            let mut missed = BTreeSet::new();
            let placed = state.trial(|state| match self.served(state, nodes, replace, lots.clone()) {
                Served::Placed(placed) => Some(Some(placed)),
                Served::TooDear => Some(None),
                Served::Left(left) => {
                    missed = preferences::uids(&left);
                    None
                }
            });
            match placed {
                Some(placed) => return placed,
                None if state.work == 0 => return None,
                None => lots = preferences::lowered(world, &lots, &missed, &BTreeSet::new())?,
            }
        }
    }

    fn served(&self, state: &mut State, nodes: &[&Candidate<'a>], replace: bool, lots: Vec<Lot<'a>>) -> Served<'a> {
        let world = self.world;
        let (lots, nowhere) = crate::topology::assign(world, state, lots);
        if !nowhere.is_empty() {
            return Served::Left(nowhere);
        }
        let total: i64 = nodes.iter().map(|candidate| candidate.price).sum();
        let mut placed = Placed { left: lots, ..Placed::default() };
        on_existing(world, state, &mut placed, SEARCH);
        if !placed.left.is_empty() {
            state.work = state.work.saturating_sub(placed.left.len() as u64);
            let offers = if replace { single::offers(world, state, &placed.left) } else { Vec::new() };
            if !offers.is_empty() {
                let mut offers = offers.into_iter();
                let Some(launch) = offers.find_map(|offer| self.cheaper(state, nodes, offer, total, &placed.left))
                else {
                    return Served::TooDear;
                };
                placed.launches.push(launch);
                placed.left.clear();
            } else if placed.left.iter().any(|lot| !world.ladders.is_bare(lot.shape) && alone(world, state, lot)) {
                // New nodes would give them what they prefer: they do not give it up for the sake of the saving.
                return Served::TooDear;
            }
        }
        if !placed.left.is_empty() {
            return Served::Left(placed.left);
        }
        let saving = total - placed.launches.iter().map(|launch| launch.price(world)).sum::<i64>();
        if self.totals.approve(nodes, saving) { Served::Placed(placed) } else { Served::TooDear }
    }

    /// The launch of `offer`, narrowed to what costs less than what it replaces.
    fn cheaper(
        &self,
        state: &mut State,
        nodes: &[&Candidate<'a>],
        mut offer: Offer,
        total: i64,
        lots: &[Lot<'a>],
    ) -> Option<Draft<'a>> {
        let view = &self.world.pools[offer.pool];
        let label_of = |candidate: &Candidate<'_>, key: &str| self.world.nodes[candidate.node].node.labels.get(key);
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
        single::launch(self.world, state, offer, lots)
    }
}

/// How pods of nodes that are to go would be served.
enum Served<'a> {
    Placed(Placed<'a>),
    /// They would be, but it does not pay.
    TooDear,
    /// These have no place.
    Left(Vec<Lot<'a>>),
}

/// Whether a new node could take one pod of the lot.
fn alone(world: &World<'_>, state: &State, lot: &Lot<'_>) -> bool {
    let one = Lot { pods: lot.pods.iter().copied().take(1).collect(), ..lot.clone() };
    !single::offers(world, state, &[one]).is_empty()
}

/// Price and disturbance of all nodes of a pool that weighs one against the other.
struct Totals<'a>(BTreeMap<&'a str, (i64, i64)>);

impl<'a> Totals<'a> {
    fn new(world: &World<'a>) -> Self {
        let balanced =
            |pool: &&plimsoll_model::snapshot::NodePool| pool.disruption.policy == ConsolidationPolicy::Balanced;
        let mut totals: BTreeMap<&str, (i64, i64)> =
            world.snapshot.node_pools.iter().filter(balanced).map(|pool| (pool.name.as_str(), (0, 0))).collect();
        for (index, view) in world.nodes.iter().enumerate() {
            let Some(total) = view.node.node_pool.as_ref().and_then(|name| totals.get_mut(name.as_str())) else {
                continue;
            };
            let pods: Vec<_> = view.pods.iter().filter(|pod| pod.moves()).collect();
            total.0 += world.nodes[index].data.price;
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
