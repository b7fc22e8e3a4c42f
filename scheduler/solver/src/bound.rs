//! Lower bound of the cost of any plan: a relaxation in which nodes can be bought in fractions.

pub(crate) mod resource_prices;
mod usable;
mod zones;

use crate::input::context::SolveContext;
use crate::input::intern::{Amounts, Bits, add};
use crate::input::offerings::PoolView;
use crate::place::columns::{self, KindId, PodKind, PodKinds, Row, rules};
use crate::place::draft;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::snapshot::{NodePool, PodShape};
use std::collections::{BTreeMap, BTreeSet};
use usable::Granularity;

/// A shape, and the number of its pods that a plan launches nodes for.
type Demand = (Id<PodShape>, usize);

/// Work budget of the bound in addition to that of the plan. The bound is reported with each plan, but must not delay
/// it.
const WORK: u64 = 6_000_000;
/// Work budget for raising the bound towards the cost of whole nodes.
const CLOSER_WORK: u64 = 10_000_000;

/// Offerings that can run pods, by pool.
type Places = IndexVec<NodePool, Bits<Offering>>;

/// Shapes that compete for the same offerings.
struct Component {
    offerings: Places,
    demand: Vec<Demand>,
    load: Amounts,
    /// Maximum over the component's shapes of the cheapest price of a node for one pod: some node must run this pod.
    single: i64,
}

/// Computes the bound. Shapes that share no offering are independent. Within a component, no plan costs less than the
/// fractional optimum, nor less than the pods are worth in the zones that their spreads permit. `enough` is the cost of
/// the plan: the bound need not be higher.
pub(crate) fn lower_bound(
    context: &SolveContext<'_>,
    demand: &draft::Demand,
    enough: MicroUsdPerHour,
) -> MicroUsdPerHour {
    let mut components: Vec<Component> = Vec::new();
    // Shapes with the same offerings belong to the same component.
    let mut by_offerings: BTreeMap<Places, Vec<Demand>> = BTreeMap::new();
    let unreserved = unreserved(context);
    for (shape, launched) in demand.iter().filter(|(_, launched)| launched.pods > 0) {
        by_offerings.entry(places_of(context, *shape, &unreserved)).or_default().push((*shape, launched.pods));
    }
    // Pods that can only run on capacity reservations cost almost nothing.
    for (offerings, demand) in by_offerings.into_iter().filter(|(places, _)| places.iter().any(|any| !any.is_empty())) {
        let mut merged = component(context, offerings, demand);
        let (meeting, apart): (Vec<Component>, Vec<Component>) = components
            .into_iter()
            .partition(|known| known.offerings.iter().zip(&merged.offerings).any(|(mine, theirs)| mine.meets(theirs)));
        for other in meeting {
            add(&mut merged.load, &other.load, 1);
            merged.demand.extend(&other.demand);
            merged.single = merged.single.max(other.single);
            merged.offerings.iter_mut().zip(&other.offerings).for_each(|(mine, theirs)| mine.join(theirs));
        }
        components = apart;
        components.push(merged);
    }
    let mut work = WORK;
    let spreads = zones::spreads(context, demand);
    let mut zone_work = zones::WORK;
    let bound = |component: &Component| {
        let mut bound = bound_of(context, component, &unreserved, &mut work);
        let by_zone = zones::least(context, component, &unreserved, &spreads, &mut zone_work);
        bound.least = bound.least.max(by_zone);
        bound
    };
    let bounds: Vec<Bound> = components.iter().map(bound).collect();
    let mut sum: i64 = bounds.iter().map(|bound| bound.least).sum();
    let mut work = CLOSER_WORK;
    for bound in bounds {
        let least = bound.least;
        sum += bound.closer(enough.0 - (sum - least), &mut work) - least;
    }
    MicroUsdPerHour(sum)
}

/// Lower bound of a component.
struct Bound {
    least: i64,
    /// The fractional program and its optimum, if the bound can be raised further.
    fractional: Option<(Program, columns::Fractional)>,
}

impl Bound {
    fn of(least: i64) -> Self {
        Self { least, fractional: None }
    }

    /// Raises the bound towards `enough`, the cost of the component's nodes.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "with a margin for rounding errors"
    )]
    fn closer(self, enough: i64, work: &mut u64) -> i64 {
        let Some((program, root)) = self.fractional else { return self.least };
        let found = columns::tightened(&program.kinds, &program.rows, root, enough as f64, work);
        self.least.max((found.ceil() as i64).min(enough))
    }
}

/// All offerings except those of capacity reservations.
fn unreserved(context: &SolveContext<'_>) -> Places {
    let of_pool = |pool: &PoolView<'_>| Bits::of(pool.offerings.len(), |offering| !pool.is_reserved(offering));
    context.pools.iter().map(of_pool).collect()
}

/// Offerings that can run pods of the shape, out of `unreserved`.
fn places_of(context: &SolveContext<'_>, shape: Id<PodShape>, unreserved: &Places) -> Places {
    let view = &context.shapes[shape];
    let all = context.pools.iter().zip(view.fits).zip(unreserved);
    all.map(|((pool, fits), unreserved)| pool.any_of(fits).and(unreserved)).collect()
}

fn component(context: &SolveContext<'_>, offerings: Places, demand: Vec<Demand>) -> Component {
    let cheapest =
        context.pools.iter().zip(&offerings).filter_map(|(pool, any)| any.first().map(|one| pool.price(one)));
    let single = cheapest.min().unwrap_or(0);
    let mut load = vec![0; context.table.len()];
    for (shape, count) in &demand {
        add(&mut load, context.shapes[*shape].requests, i64::try_from(*count).unwrap_or(i64::MAX));
    }
    Component { offerings, demand, load, single }
}

#[expect(clippy::cast_possible_truncation, reason = "with a margin for rounding errors")]
fn bound_of(context: &SolveContext<'_>, component: &Component, unreserved: &Places, work: &mut u64) -> Bound {
    let reserved = free_instances(context, component);
    if !reserved.is_empty() {
        return Bound::of(beside_reservations(context, component, &reserved));
    }
    let Some(program) = program(context, component, unreserved) else { return Bound::of(fluid(context, component)) };
    let Program { kinds, rows } = &program;
    if let Some((optimum, _)) = columns::small::optimum(kinds, rows, work) {
        return Bound::of(optimum.max(component.single));
    }
    let least = value(rows, &columns::load(kinds)).max(component.single);
    let Some(found) = columns::solve(kinds, rows, work) else { return Bound::of(least) };
    Bound { least: least.max(found.bound.ceil() as i64), fractional: Some((program, found)) }
}

/// Bounds each resource separately, for components with too many pod kinds.
fn fluid(context: &SolveContext<'_>, component: &Component) -> i64 {
    let shared = shared(context, component);
    let mut load = vec![0; context.table.len() + shared.len()];
    for (shape, count) in &component.demand {
        let view = &context.shapes[*shape];
        let requests = rules::requests(view.requests, view.hosts, &shared);
        add(&mut load, &requests, i64::try_from(*count).unwrap_or(i64::MAX));
    }
    // Which pods can run on an offering is ignored, too.
    value(&rows(context, component, &shared, |_, _| Bits::default()), &load).max(component.single)
}

/// Free instances of a capacity reservation: their number, and the capacity of each of its offerings that can run pods
/// of a component.
type FreeInstances = (i64, Vec<Amounts>);

/// The capacity reservations that can run pods of the component.
fn free_instances(context: &SolveContext<'_>, component: &Component) -> Vec<FreeInstances> {
    let of_one = |(place, free): &(usize, i64)| {
        let mut rooms = Vec::new();
        for (id, pool) in context.pools.iter_enumerated().filter(|_| *free > 0) {
            let counts = |one: &Id<Offering>| pool.is_reserved(*one) && pool.capacity(*one).get(*place) == Some(&1);
            for offering in pool.usable.iter().filter(counts) {
                let runs =
                    |(shape, _): &Demand| context.shapes[*shape].fits[id].iter().any(|one| one.offerings.has(offering));
                if component.demand.iter().any(runs) {
                    // No node runs more than all pods.
                    let room = pool.offerings[offering].room.iter().zip(&component.load);
                    rooms.push(room.map(|(room, load)| *room.min(load)).collect());
                }
            }
        }
        (!rooms.is_empty()).then_some((*free, rooms))
    };
    context.reservations.iter().filter_map(of_one).collect()
}

/// Bounds each resource separately and subtracts the worth of free instances: whichever pods use them, the other pods
/// cost at least their worth.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "with a margin for rounding errors")]
fn beside_reservations(context: &SolveContext<'_>, component: &Component, reserved: &[FreeInstances]) -> i64 {
    let prices = columns::prices_of(&rows(context, component, &[], |_, _| Bits::default()), &component.load);
    let worth = |(free, rooms): &FreeInstances| {
        let each = rooms.iter().map(|room| resource_prices::worth(&prices, room));
        each.fold(0.0, f64::max) * *free as f64
    };
    let reserved: f64 = reserved.iter().map(worth).sum();
    let rest = resource_prices::worth(&prices, &component.load) * (1.0 - 1e-9) - reserved * (1.0 + 1e-9);
    rest.max(0.0).ceil() as i64
}

/// The offerings that are useful for the component. `suits` returns the kinds that can run on an offering.
fn rows(
    context: &SolveContext<'_>,
    component: &Component,
    shared: &[rules::Shared],
    suits: impl Fn(Id<NodePool>, Id<Offering>) -> Bits<PodKind>,
) -> IndexVec<Row, Row> {
    let requests = component.demand.iter().map(|(shape, _)| context.shapes[*shape].requests);
    let granularity = Granularity::of(component.load.len(), requests);
    let mut rows = IndexVec::new();
    for ((id, pool), bits) in context.pools.iter_enumerated().zip(&component.offerings) {
        let own = bits.iter().map(|index| {
            // No node needs more capacity than all pods request.
            let usable = granularity.usable(&pool.offerings[index].room);
            let room = usable.zip(&component.load).map(|(room, load)| room.min(*load));
            Row { price: pool.price(index), room: room.collect(), suits: suits(id, index) }
        });
        let mut kept = undominated(own);
        kept.iter_mut().for_each(|row| row.room = rules::room(&row.room, shared));
        rows.extend(kept);
    }
    rows
}

/// Removes rows that are more expensive than a row that has at least their capacity: they cannot lower the bound. The
/// rows must be sorted by price.
fn undominated(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut kept: Vec<Row> = Vec::new();
    for row in rows {
        if !kept.iter().rev().any(|other| other.covers(&row)) {
            kept.push(row);
        }
    }
    kept
}

/// Worth of `load` at prices at which no offering is worth more than its price. Prices are integers, so the result can
/// be rounded up.
#[expect(clippy::cast_possible_truncation, reason = "with a margin for rounding errors")]
fn value(rows: &IndexVec<Row, Row>, load: &[i64]) -> i64 {
    let prices = columns::prices_of(rows, load);
    (resource_prices::worth(&prices, load) * (1.0 - 1e-9)).ceil() as i64
}

fn shared(context: &SolveContext<'_>, component: &Component) -> Vec<rules::Shared> {
    let members = component.demand.iter().map(|(shape, count)| (context.shapes[*shape].hosts, *count));
    rules::shared(&context.topology.host_rules, members, 1)
}

/// A program whose nodes are bought in fractions. The requests of its kinds include host rules.
struct Program {
    kinds: PodKinds,
    rows: IndexVec<Row, Row>,
}

impl Program {
    /// Merges kinds with equal requests. A merged kind can run wherever one of its parts can, and a node may run as
    /// many of its pods as of all parts together, so each solution of the original program remains a solution.
    fn coarser(self) -> Self {
        let mut kinds = PodKinds::new();
        let mut known: BTreeMap<Amounts, KindId> = BTreeMap::new();
        let mut coarse: IndexVec<PodKind, KindId> = IndexVec::new();
        for PodKind { requests, count, most } in self.kinds {
            let one = known.entry(requests.clone());
            let id = *one.or_insert_with(|| kinds.push(PodKind { requests, count: 0, most: 0 }));
            let kind = &mut kinds[id];
            (kind.count, kind.most) = (kind.count + count, kind.most.saturating_add(most));
            coarse.push(id);
        }
        let mut rows = self.rows;
        for row in &mut rows {
            row.suits = Bits::from_ids(kinds.len(), row.suits.iter().map(|old| coarse[old]));
        }
        // Rows that differed only in their kinds may be equal now.
        rows.as_mut_vec().sort_by_key(|row| row.price);
        Self { kinds, rows: undominated(rows.into_iter()).into() }
    }
}

/// The program of a component: pods by requests and offerings, and the useful offerings. `None` if there are too many
/// kinds.
fn program(context: &SolveContext<'_>, component: &Component, unreserved: &Places) -> Option<Program> {
    let shared = shared(context, component);
    let mut sizes: BTreeSet<Amounts> = BTreeSet::new();
    for (shape, _) in &component.demand {
        let view = &context.shapes[*shape];
        sizes.insert(rules::requests(view.requests, view.hosts, &shared));
        if sizes.len() > columns::MAX_KINDS {
            return None;
        }
    }
    let mut kinds = PodKinds::new();
    let mut places: IndexVec<PodKind, Places> = IndexVec::new();
    let mut known: BTreeMap<(Amounts, Places, usize), KindId> = BTreeMap::new();
    let mut counted = BTreeSet::new();
    for (shape, count) in &component.demand {
        let view = &context.shapes[*shape];
        let own = places_of(context, *shape, unreserved);
        let requests = rules::requests(view.requests, view.hosts, &shared);
        let kind = *known.entry((requests.clone(), own.clone(), view.most_alone)).or_insert_with(|| {
            places.push(own);
            kinds.push(PodKind { requests, count: 0, most: 0 })
        });
        kinds[kind].count += count;
        // Shapes with other rules or host ports may share a node. Pods with the same ones count together.
        if counted.insert((kind, &view.hosts.owns, &view.hosts.matches, &view.shape.host_ports)) {
            kinds[kind].most = kinds[kind].most.saturating_add(view.most_alone);
        }
    }
    let suits = |pool: Id<NodePool>, index: Id<Offering>| Bits::of(kinds.len(), |kind| places[kind][pool].has(index));
    let rows = rows(context, component, &shared, suits);
    let program = Program { kinds, rows };
    Some(if program.kinds.len() > columns::MAX_KINDS { program.coarser() } else { program })
}
