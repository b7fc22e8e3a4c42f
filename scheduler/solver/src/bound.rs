//! What no plan can cost less than: a relaxation in which nodes can be bought in fractions.

pub(crate) mod resource_prices;

use crate::input::context::SolveContext;
use crate::input::intern::{Amounts, Bits, add};
use crate::input::offerings::{Alternative, PoolView};
use crate::place::columns::{self, KindId, PodKind, PodKinds, Row, rules};
use crate::place::draft;
use crate::place::hostname_topology::most_alone;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::snapshot::{NodePool, PodShape};
use std::collections::{BTreeMap, BTreeSet};

/// Pods of one shape that a plan launches nodes for.
type Demand = (Id<PodShape>, usize);

/// Work that the bound may take beside that of the plan: it is reported with each plan, but must not delay it.
const WORK: u64 = 6_000_000;
/// Work for what takes the bound nearer to the cost of whole nodes.
const CLOSER_WORK: u64 = 10_000_000;

/// Where pods can run.
type Places = IndexVec<NodePool, Bits<Offering>>;

/// Shapes that compete for the same offerings.
struct Component {
    offerings: Places,
    demand: Vec<Demand>,
    load: Amounts,
    /// The most that one pod alone has to pay: some node must hold it.
    single: i64,
}

/// The bound: shapes that share no offering are independent, within a component no plan beats the optimum in fractions.
/// `enough` is what the plan costs: no bound has to be higher.
pub(crate) fn lower_bound(
    context: &SolveContext<'_>,
    demand: &draft::Demand,
    enough: MicroUsdPerHour,
) -> MicroUsdPerHour {
    let mut components: Vec<Component> = Vec::new();
    // Shapes that can run at the same places meet the same components.
    let mut alike: BTreeMap<Places, Vec<Demand>> = BTreeMap::new();
    for (shape, count) in demand.iter().filter(|(_, count)| **count > 0) {
        alike.entry(places(context, *shape)).or_default().push((*shape, *count));
    }
    // Pods for which there are only capacity reservations cost next to nothing.
    for (offerings, demand) in alike.into_iter().filter(|(places, _)| places.iter().any(|any| !any.is_empty())) {
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
    let bounds: Vec<Bound> = components.iter().map(|component| bound_of(context, component, &mut work)).collect();
    let mut sum: i64 = bounds.iter().map(|bound| bound.least).sum();
    let mut work = CLOSER_WORK;
    for bound in bounds {
        let least = bound.least;
        sum += bound.closer(enough.0 - (sum - least), &mut work) - least;
    }
    MicroUsdPerHour(sum)
}

/// What the pods of a component cost at least.
struct Bound {
    least: i64,
    /// The program in fractions behind it, and its optimum, if there may be more to it.
    fractional: Option<(Program, columns::Fractional)>,
}

impl Bound {
    fn of(least: i64) -> Self {
        Self { least, fractional: None }
    }

    /// A bound nearer to `enough`, what the component's nodes cost.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "with a margin for the arithmetic"
    )]
    fn closer(self, enough: i64, work: &mut u64) -> i64 {
        let Some((program, root)) = self.fractional else { return self.least };
        let found = columns::tightened(&program.kinds(), &program.rows, root, enough as f64, work);
        self.least.max((found.ceil() as i64).min(enough))
    }
}

/// Where pods of the shape can run, capacity reservations aside.
fn places(context: &SolveContext<'_>, shape: Id<PodShape>) -> Places {
    let view = &context.shapes[shape];
    let any = |(pool, fits): (&PoolView<'_>, &Vec<Alternative>)| {
        let mut any = pool.any_of(fits);
        any.retain(|offering| !pool.is_reserved(offering));
        any
    };
    context.pools.iter().zip(view.fits).map(any).collect()
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

#[expect(clippy::cast_possible_truncation, reason = "with a margin for the arithmetic")]
fn bound_of(context: &SolveContext<'_>, component: &Component, work: &mut u64) -> Bound {
    if context.reservations.iter().any(|(_, free)| *free > 0) {
        return Bound::of(beside_reservations(context, component));
    }
    let Some(program) = program(context, component) else { return Bound::of(fluid(context, component)) };
    let kinds = program.kinds();
    if let Some((optimum, _)) = columns::small::optimum(&kinds, &program.rows, work) {
        return Bound::of(optimum.max(component.single));
    }
    let mut load = vec![0; kinds.iter().next().map_or(0, |kind| kind.requests.len())];
    for kind in &kinds {
        add(&mut load, kind.requests, i64::try_from(kind.count).unwrap_or(i64::MAX));
    }
    let offered: Vec<(i64, &Amounts)> = program.rows.iter().map(|row| (row.price, &row.room)).collect();
    let least = value(&offered, &load).max(component.single);
    let Some(found) = columns::solve(&kinds, &program.rows, work) else { return Bound::of(least) };
    Bound { least: least.max(found.bound.ceil() as i64), fractional: Some((program, found)) }
}

/// Each resource by itself, for more kinds of pods than can be told apart.
fn fluid(context: &SolveContext<'_>, component: &Component) -> i64 {
    let shared = shared(context, component);
    let mut load = vec![0; context.table.len() + shared.len()];
    for (shape, count) in &component.demand {
        let view = &context.shapes[*shape];
        let requests = rules::requests(view.requests, view.hosts, &shared);
        add(&mut load, &requests, i64::try_from(*count).unwrap_or(i64::MAX));
    }
    // Who may be where is not told apart either.
    let rows = rows(context, component, &shared, |_, _| Bits::default());
    let offered: Vec<(i64, &Amounts)> = rows.iter().map(|row| (row.price, &row.room)).collect();
    value(&offered, &load).max(component.single)
}

/// Each resource by itself, less what the free instances of all capacity reservations are worth: whatever pods they take,
/// the rest costs at least its worth.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "with a margin for the arithmetic")]
fn beside_reservations(context: &SolveContext<'_>, component: &Component) -> i64 {
    let rows = rows(context, component, &[], |_, _| Bits::default());
    let offered: Vec<(i64, &Amounts)> = rows.iter().map(|row| (row.price, &row.room)).collect();
    let prices = resource_prices::resource_prices(&offered, &component.load);
    let mut reserved = 0.0;
    for (place, free) in &context.reservations {
        let offerings = context.pools.iter().flat_map(|pool| pool.usable.iter().map(move |one| (pool, one)));
        let own = offerings.filter(|(pool, one)| pool.is_reserved(*one) && pool.capacity(*one).get(*place) == Some(&1));
        let worth = own.map(|(pool, one)| resource_prices::worth(&prices, &pool.offerings[one].room));
        reserved += worth.fold(0.0, f64::max) * (*free).max(0) as f64;
    }
    let rest = resource_prices::worth(&prices, &component.load) * (1.0 - 1e-9) - reserved * (1.0 + 1e-9);
    rest.max(0.0).ceil() as i64
}

/// The offerings that are worth a look, with the kinds that `suits` gives by pool and offering.
fn rows(
    context: &SolveContext<'_>,
    component: &Component,
    shared: &[rules::Shared],
    suits: impl Fn(Id<NodePool>, Id<Offering>) -> Bits<PodKind<'static>>,
) -> IndexVec<Row, Row> {
    let mut rows = IndexVec::new();
    for ((id, pool), bits) in context.pools.iter_enumerated().zip(&component.offerings) {
        let own = bits.iter().map(|index| {
            // No node holds more than there is.
            let room = pool.offerings[index].room.iter().zip(&component.load).map(|(room, load)| *room.min(load));
            Row { price: pool.price(index), room: room.collect(), suits: suits(id, index) }
        });
        let mut kept = undominated(own);
        kept.iter_mut().for_each(|row| row.room = rules::room(&row.room, shared));
        rows.extend(kept);
    }
    rows
}

/// Rows, which come cheapest first, without those that are dearer than one that has no less of anything: they cannot lower the bound.
fn undominated(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut kept: Vec<Row> = Vec::new();
    for row in rows {
        if !kept.iter().rev().any(|other| other.covers(&row)) {
            kept.push(row);
        }
    }
    kept
}

/// What `load` is worth at prices at which no offering is worth more than it costs. Costs are whole numbers, so that may be rounded up.
#[expect(clippy::cast_possible_truncation, reason = "with a margin for the arithmetic")]
fn value(offered: &[(i64, &Amounts)], load: &[i64]) -> i64 {
    let prices = resource_prices::resource_prices(offered, load);
    (resource_prices::worth(&prices, load) * (1.0 - 1e-9)).ceil() as i64
}

fn shared(context: &SolveContext<'_>, component: &Component) -> Vec<rules::Shared> {
    let members = component.demand.iter().map(|(shape, count)| (context.shapes[*shape].hosts, *count));
    rules::shared(&context.topology.host_rules, members, 1)
}

/// Requests with rules about hosts, pods, and how many of them alone a node takes.
type OwnedKind = (Amounts, usize, usize);

/// What is bought in fractions.
struct Program {
    kinds: IndexVec<PodKind<'static>, OwnedKind>,
    rows: IndexVec<Row, Row>,
}

impl Program {
    fn kinds(&self) -> PodKinds<'_> {
        self.kinds.iter().map(|(requests, count, most)| PodKind { requests, count: *count, most: *most }).collect()
    }

    /// Of pods that request the same each can go wherever one of them can: fewer kinds, and whatever serves the old ones serves the new.
    fn coarser(self) -> Self {
        let mut kinds: IndexVec<PodKind<'static>, OwnedKind> = IndexVec::new();
        let mut known: BTreeMap<Amounts, KindId> = BTreeMap::new();
        let mut coarse: IndexVec<PodKind<'static>, KindId> = IndexVec::new();
        for (requests, count, most) in self.kinds {
            let id = *known.entry(requests.clone()).or_insert_with(|| kinds.push((requests, 0, 0)));
            let kind = &mut kinds[id];
            (kind.1, kind.2) = (kind.1 + count, kind.2.max(most));
            coarse.push(id);
        }
        let mut rows = self.rows;
        for row in &mut rows {
            let mut suits = Bits::none(kinds.len());
            row.suits.iter().for_each(|old| suits.insert(coarse[old]));
            row.suits = suits;
        }
        // What differed only in whom it suits may not differ any more.
        rows.as_mut_vec().sort_by_key(|row| row.price);
        Self { kinds, rows: undominated(rows.into_iter()).into() }
    }
}

/// Pods by what they request and where they can run, and the offerings that are worth a look; `None` if that is too much to look at.
fn program(context: &SolveContext<'_>, component: &Component) -> Option<Program> {
    let shared = shared(context, component);
    let mut sizes: BTreeSet<Amounts> = BTreeSet::new();
    for (shape, _) in &component.demand {
        let view = &context.shapes[*shape];
        sizes.insert(rules::requests(view.requests, view.hosts, &shared));
        if sizes.len() > columns::MAX_KINDS {
            return None;
        }
    }
    let mut kinds: IndexVec<PodKind<'static>, OwnedKind> = IndexVec::new();
    let mut places: IndexVec<PodKind<'static>, Places> = IndexVec::new();
    let mut known: BTreeMap<(Amounts, Places, usize), KindId> = BTreeMap::new();
    for (shape, count) in &component.demand {
        let view = &context.shapes[*shape];
        let most = most_alone(&context.topology.host_rules, view.hosts, &view.shape.host_ports).max(1);
        let own = self::places(context, *shape);
        let requests = rules::requests(view.requests, view.hosts, &shared);
        let kind = *known.entry((requests.clone(), own.clone(), most)).or_insert_with(|| {
            places.push(own);
            kinds.push((requests, 0, most))
        });
        kinds[kind].1 += count;
    }
    let suits = |pool: Id<NodePool>, index: Id<Offering>| Bits::of(kinds.len(), |kind| places[kind][pool].has(index));
    let rows = rows(context, component, &shared, suits);
    let program = Program { kinds, rows };
    Some(if program.kinds.len() > columns::MAX_KINDS { program.coarser() } else { program })
}
