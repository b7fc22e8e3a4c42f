//! What no plan can cost less than: a relaxation in which nodes can be bought in fractions.

use crate::columns::{self, Kind, Row};
use crate::duals;
use crate::hosts::Tally;
use crate::intern::{Amounts, Bits, add};
use crate::world::World;
use plimsoll_model::money::MicroUsdPerHour;
use std::collections::BTreeMap;

/// Pods of one shape that a plan launches nodes for.
pub(crate) type Demand = (usize, usize);

/// Work that the bound may take beside that of the plan: it is reported with each plan, but must not delay it.
const WORK: u64 = 20_000_000;

/// Shapes that compete for the same offerings.
struct Component {
    /// Per pool.
    offerings: Vec<Bits>,
    demand: Vec<Demand>,
    load: Amounts,
    /// The most that one pod alone has to pay: some node must hold it.
    single: i64,
}

/// The bound: shapes that share no offering are independent, within a component no plan beats the optimum in fractions.
pub(crate) fn lower_bound(world: &World<'_>, demand: &[Demand]) -> MicroUsdPerHour {
    let mut components: Vec<Component> = Vec::new();
    // Shapes that can run at the same places meet the same components.
    let mut alike: BTreeMap<Vec<Bits>, Vec<Demand>> = BTreeMap::new();
    for (shape, count) in demand.iter().filter(|(_, count)| *count > 0) {
        alike.entry(places(world, *shape)).or_default().push((*shape, *count));
    }
    for (offerings, demand) in alike {
        let mut merged = component(world, offerings, demand);
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
    MicroUsdPerHour(components.iter().map(|component| bound_of(world, component, &mut work)).sum())
}

/// Per pool: where pods of the shape can run.
fn places(world: &World<'_>, shape: usize) -> Vec<Bits> {
    let view = &world.shapes[shape];
    let any = |(pool, fits): (&crate::offerings::PoolView<'_>, &Vec<crate::offerings::Alternative>)| {
        let mut any = Bits::none(pool.offerings.len());
        fits.iter().for_each(|one| any.join(&one.offerings));
        any
    };
    world.pools.iter().zip(&view.fits).map(any).collect()
}

fn component(world: &World<'_>, offerings: Vec<Bits>, demand: Vec<Demand>) -> Component {
    let cheapest = world.pools.iter().zip(&offerings).filter_map(|(pool, any)| any.first().map(|one| pool.price(one)));
    let single = cheapest.min().unwrap_or(0);
    let mut load = vec![0; world.table.len()];
    for (shape, count) in &demand {
        add(&mut load, &world.shapes[*shape].requests, i64::try_from(*count).unwrap_or(i64::MAX));
    }
    Component { offerings, demand, load, single }
}

#[expect(clippy::cast_possible_truncation, reason = "with a margin for the arithmetic")]
fn bound_of(world: &World<'_>, component: &Component, work: &mut u64) -> i64 {
    let (kinds, rows) = program(world, component);
    let offered: Vec<(i64, &Amounts)> = rows.iter().map(|row| (row.price, &row.room)).collect();
    let prices = duals::resource_prices(&offered, &component.load);
    // Costs are whole numbers, so the bound may be rounded up.
    let fluid = duals::worth(&prices, &component.load) * (1.0 - 1e-9);
    let fractional = columns::solve(&kinds, &rows, work).map_or(0.0, |found| found.bound);
    (fluid.max(fractional).ceil() as i64).max(component.single)
}

/// Pods by what they request and where they can run, and the offerings that are worth a look.
fn program<'w>(world: &'w World<'_>, component: &Component) -> (Vec<Kind<'w>>, Vec<Row>) {
    let mut kinds: Vec<Kind<'w>> = Vec::new();
    let mut places: Vec<Vec<Bits>> = Vec::new();
    let mut known: BTreeMap<(&'w [i64], Vec<Bits>, usize), usize> = BTreeMap::new();
    for (shape, count) in &component.demand {
        let view = &world.shapes[*shape];
        let ports = if view.shape.host_ports.is_empty() { usize::MAX >> 16 } else { 1 };
        let most = ports.min(Tally::default().limit(&world.topology.host_rules, &view.hosts, true)).max(1);
        let own = self::places(world, *shape);
        let next = kinds.len();
        let number = *known.entry((&view.requests, own.clone(), most)).or_insert(next);
        if number == next {
            kinds.push(Kind { requests: &view.requests, count: 0, most });
            places.push(own);
        }
        kinds[number].count += count;
    }
    let mut rows: Vec<Row> = Vec::new();
    for (number, (pool, bits)) in world.pools.iter().zip(&component.offerings).enumerate() {
        let mut suits: Vec<Bits> = vec![Bits::none(kinds.len()); pool.offerings.len()];
        for (kind, places) in places.iter().enumerate() {
            places[number].iter().for_each(|offering| suits[offering].insert(kind));
        }
        let mut kept: Vec<Row> = Vec::new();
        for index in bits.iter() {
            // No node holds more than there is.
            let room: Amounts =
                pool.offerings[index].room.iter().zip(&component.load).map(|(a, b)| *a.min(b)).collect();
            let row = Row { price: pool.price(index), room, suits: suits[index].clone() };
            // Cheapest first: one that is dearer and has no more of anything cannot lower the bound.
            if !kept.iter().rev().any(|other| other.covers(&row)) {
                kept.push(row);
            }
        }
        rows.extend(kept);
    }
    (kinds, rows)
}
