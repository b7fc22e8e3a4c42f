//! What no plan can cost less than: a relaxation in which nodes can be bought in fractions.

use crate::intern::{Amounts, Bits, add};
use crate::world::World;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::resources::{CPU, MEMORY, PODS};

/// Steps between "all weight on one resource" and "all on the other".
const STEPS: u32 = 32;

/// Pods of one shape that a plan launches nodes for.
pub(crate) type Demand = (usize, usize);

struct Component {
    /// Per pool.
    offerings: Vec<Bits>,
    load: Amounts,
}

/// The bound: shapes that share no offering are independent, within a component any prices for resources that no node undercuts give a bound.
pub(crate) fn lower_bound(world: &World<'_>, demand: &[Demand]) -> MicroUsdPerHour {
    let mut components: Vec<Component> = Vec::new();
    for (shape, count) in demand {
        let view = &world.shapes[*shape];
        let offerings: Vec<Bits> = world
            .pools
            .iter()
            .zip(&view.fits)
            .map(|(pool, fits)| {
                let mut any = Bits::none(pool.offerings.len());
                fits.iter().for_each(|one| any.join(&one.offerings));
                any
            })
            .collect();
        let mut merged = Component { offerings, load: vec![0; view.requests.len()] };
        add(&mut merged.load, &view.requests, i64::try_from(*count).unwrap_or(i64::MAX));
        let (meeting, apart): (Vec<Component>, Vec<Component>) = components
            .into_iter()
            .partition(|known| known.offerings.iter().zip(&merged.offerings).any(|(mine, theirs)| mine.meets(theirs)));
        for other in meeting {
            add(&mut merged.load, &other.load, 1);
            merged.offerings.iter_mut().zip(&other.offerings).for_each(|(mine, theirs)| mine.join(theirs));
        }
        components = apart;
        components.push(merged);
    }
    MicroUsdPerHour(components.iter().map(|component| bound_of(world, component)).sum())
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "rounded down, with a margin for the arithmetic"
)]
fn bound_of(world: &World<'_>, component: &Component) -> i64 {
    let mut rows: Vec<(i64, &Amounts)> = Vec::new();
    for (pool, bits) in world.pools.iter().zip(&component.offerings) {
        rows.extend(bits.iter().map(|index| (pool.price(index), &pool.offerings[index].room)));
    }
    // At least one node is bought.
    let cheapest = rows.iter().map(|(price, _)| *price).min().unwrap_or(0);
    let weigh = |weights: &[(usize, f64)]| {
        let value = |amounts: &Amounts| -> f64 {
            weights.iter().map(|(resource, weight)| amounts[*resource].max(0) as f64 * weight).sum()
        };
        let rate = rows
            .iter()
            .filter(|(_, room)| value(room) > 0.0)
            .map(|(price, room)| *price as f64 / value(room))
            .fold(f64::INFINITY, f64::min);
        if rate.is_finite() { rate * value(&component.load) } else { 0.0 }
    };
    let mut best = 0.0_f64;
    for resource in 0..component.load.len() {
        best = best.max(weigh(&[(resource, 1.0)]));
    }
    let index = |name| world.table.index(name);
    let pairs = [(index(CPU), index(MEMORY)), (index(CPU), index(PODS)), (index(MEMORY), index(PODS))];
    for (a, b) in pairs.into_iter().filter_map(|(a, b)| a.zip(b)) {
        let top = |resource: usize| rows.iter().map(|(_, room)| room[resource]).max().unwrap_or(1).max(1) as f64;
        for step in 1..STEPS {
            let share = f64::from(step) / f64::from(STEPS);
            best = best.max(weigh(&[(a, share / top(a)), (b, (1.0 - share) / top(b))]));
        }
    }
    ((best * (1.0 - 1e-9)).floor() as i64).max(cheapest)
}
