//! What no plan can cost less than: a relaxation in which nodes can be bought in fractions.

use crate::duals;
use crate::intern::{Amounts, Bits, add};
use crate::world::World;
use plimsoll_model::money::MicroUsdPerHour;

/// Pods of one shape that a plan launches nodes for.
pub(crate) type Demand = (usize, usize);

/// Shapes that compete for the same offerings.
struct Component {
    /// Per pool.
    offerings: Vec<Bits>,
    load: Amounts,
    /// The most that one pod alone has to pay: some node must hold it.
    single: i64,
}

/// The bound: shapes that share no offering are independent, within a component any prices for resources that no node undercuts give a bound.
pub(crate) fn lower_bound(world: &World<'_>, demand: &[Demand]) -> MicroUsdPerHour {
    let mut components: Vec<Component> = Vec::new();
    for (shape, count) in demand.iter().filter(|(_, count)| *count > 0) {
        let mut merged = component(world, *shape, *count);
        let (meeting, apart): (Vec<Component>, Vec<Component>) = components
            .into_iter()
            .partition(|known| known.offerings.iter().zip(&merged.offerings).any(|(mine, theirs)| mine.meets(theirs)));
        for other in meeting {
            add(&mut merged.load, &other.load, 1);
            merged.single = merged.single.max(other.single);
            merged.offerings.iter_mut().zip(&other.offerings).for_each(|(mine, theirs)| mine.join(theirs));
        }
        components = apart;
        components.push(merged);
    }
    MicroUsdPerHour(components.iter().map(|component| bound_of(world, component)).sum())
}

fn component(world: &World<'_>, shape: usize, count: usize) -> Component {
    let view = &world.shapes[shape];
    let mut single: Option<i64> = None;
    let mut offerings = Vec::new();
    for (pool, fits) in world.pools.iter().zip(&view.fits) {
        let mut any = Bits::none(pool.offerings.len());
        fits.iter().for_each(|one| any.join(&one.offerings));
        single = single.into_iter().chain(any.first().map(|index| pool.price(index))).min();
        offerings.push(any);
    }
    let mut load = vec![0; view.requests.len()];
    add(&mut load, &view.requests, i64::try_from(count).unwrap_or(i64::MAX));
    Component { offerings, load, single: single.unwrap_or(0) }
}

#[expect(clippy::cast_possible_truncation, reason = "with a margin for the arithmetic")]
fn bound_of(world: &World<'_>, component: &Component) -> i64 {
    let mut rows: Vec<(i64, &Amounts)> = Vec::new();
    for (pool, bits) in world.pools.iter().zip(&component.offerings) {
        let mut kept: Vec<(i64, &Amounts)> = Vec::new();
        for index in bits.iter() {
            let room = &pool.offerings[index].room;
            // Cheapest first: one that is dearer and has no more of anything cannot lower the bound.
            if !kept.iter().rev().any(|(_, other)| room.iter().zip(*other).all(|(mine, theirs)| mine <= theirs)) {
                kept.push((pool.price(index), room));
            }
        }
        rows.extend(kept);
    }
    let prices = duals::resource_prices(&rows, &component.load);
    // Costs are whole numbers, so the bound may be rounded up.
    let fluid = duals::worth(&prices, &component.load) * (1.0 - 1e-9);
    (fluid.ceil() as i64).max(component.single)
}
