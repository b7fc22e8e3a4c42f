//! Nodes bought in fractions, each filled in one of its possible ways: the linear program of Gilmore and Gomory, solved by generating
//! its columns. Its duals say what a pod of each kind costs, its value is what no plan can cost less than, and its columns are
//! the fillings that good plans are made of.

mod knapsack;
mod master;
pub(crate) mod rules;
pub(crate) mod small;
#[cfg(test)]
mod tests;

use crate::duals;
use crate::intern::{Amounts, Bits, how_many};
use knapsack::{Knapsack, Offered};
use master::{Column, Master, number};

/// Kinds at most: the master's work grows with their square, and with more kinds the gain over prices of resources is small.
pub(crate) const MAX_KINDS: usize = 160;
/// Rounds of new columns at most; it usually converges in two dozen.
const MAX_ROUNDS: usize = 120;
/// New columns after which a round ends: prices change with each, so that most that are found beyond would be of little use.
const COLUMNS: usize = 24;
/// Steps of a search for one filling: a first look, and a thorough one once no first look finds anything.
const STEPS: [usize; 2] = [24, 400];
/// Relative gain that is not looked for.
const SLACK: f64 = 1e-3;
/// How often a step of a search looks at all kinds, about.
const LOOKS_PER_STEP: usize = 8;
/// Pivots per round and kind.
const PIVOTS_PER_KIND: usize = 8;

/// Pods that are alike.
pub(crate) struct Kind<'k> {
    pub(crate) requests: &'k [i64],
    pub(crate) count: usize,
    /// On one node at most.
    pub(crate) most: usize,
}

/// A node that can be bought.
pub(crate) struct Row {
    pub(crate) price: i64,
    pub(crate) room: Amounts,
    /// Kinds that can be on it.
    pub(crate) suits: Bits,
}

impl Row {
    /// Whether it has at least the room of `other`, for all the same kinds.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.suits.covers(&other.suits) && other.room.iter().zip(&self.room).all(|(theirs, mine)| theirs <= mine)
    }
}

/// A filling and how often the optimum in fractions uses it.
#[derive(Debug)]
pub(crate) struct Used {
    pub(crate) row: usize,
    pub(crate) take: Vec<(usize, usize)>,
    pub(crate) times: f64,
}

/// The optimum in fractions, as far as it was found.
#[derive(Debug)]
pub(crate) struct Fractional {
    /// No whole plan costs less.
    pub(crate) bound: f64,
    pub(crate) used: Vec<Used>,
}

/// Solves it. `None` if there are too many kinds, or one that no row can hold. `work` goes down by the rows looked at times kinds.
pub(crate) fn solve(kinds: &[Kind<'_>], rows: &[Row], work: &mut u64) -> Option<Fractional> {
    if kinds.is_empty() || kinds.len() > MAX_KINDS || *work == 0 {
        return None;
    }
    let scale = rows.iter().map(|row| row.price).max().unwrap_or(1).max(1);
    let prices: Vec<f64> = rows.iter().map(|row| money(row.price.max(1)) / money(scale)).collect();
    let mut load = vec![0; kinds[0].requests.len()];
    for kind in kinds {
        crate::intern::add(&mut load, kind.requests, i64::try_from(kind.count).unwrap_or(i64::MAX));
    }
    let offered: Vec<(i64, &Amounts)> = rows.iter().map(|row| (row.price, &row.room)).collect();
    let scarcity = duals::resource_prices(&offered, &load);
    let demand: Vec<f64> = kinds.iter().map(|kind| number(kind.count)).collect();
    let mut master = Master::new(alone(kinds, rows, &prices)?, &demand);
    let pricing = Pricing { kinds, rows, prices: &prices, scarcity: &scarcity, most: most(kinds, rows) };
    let (mut bound, mut thorough) = (0.0_f64, 0);
    for _ in 0..MAX_ROUNDS {
        master.optimise(PIVOTS_PER_KIND * kinds.len());
        let mut duals = master.duals();
        duals.iter_mut().for_each(|dual| *dual = dual.max(0.0));
        let value: f64 = duals.iter().zip(&demand).map(|(dual, count)| dual * count).sum();
        let found = pricing.fillings(&duals, STEPS[thorough]);
        // Only a round that looked at all rows says by how much the duals are wrong.
        if found.whole {
            bound = bound.max(value * found.least);
        }
        let looks = rows.len() + found.steps * LOOKS_PER_STEP;
        *work = work.saturating_sub(u64::try_from(looks * kinds.len()).unwrap_or(u64::MAX));
        if bound >= value * (1.0 - SLACK) || *work == 0 {
            break;
        }
        let fresh: Vec<Column> = found.columns.into_iter().filter(|one| !master.columns.contains(one)).collect();
        if fresh.is_empty() && found.whole {
            if thorough + 1 == STEPS.len() {
                break;
            }
            thorough += 1;
            continue;
        }
        thorough = 0;
        master.columns.extend(fresh);
    }
    let used = master.solution().into_iter().map(|(column, times)| {
        let column = &master.columns[column];
        Used { row: column.row, take: column.take.clone(), times }
    });
    // A margin for the arithmetic.
    Some(Fractional { bound: bound * money(scale) * (1.0 - 1e-7), used: used.collect() })
}

/// One column per kind: as many of it alone as the row takes that is cheapest per pod.
fn alone(kinds: &[Kind<'_>], rows: &[Row], prices: &[f64]) -> Option<Vec<Column>> {
    let best = |(index, kind): (usize, &Kind<'_>)| {
        let fits = rows.iter().enumerate().filter(|(_, row)| row.suits.has(index)).filter_map(|(number, row)| {
            let n = how_many(kind.requests, &row.room, kind.most.min(kind.count));
            (n > 0).then_some((number, n))
        });
        let each = |(row, n): &(usize, usize)| prices[*row] / number(*n);
        let (row, n) = fits.min_by(|a, b| each(a).total_cmp(&each(b)))?;
        Some(Column { row, price: prices[row], take: vec![(index, n)] })
    };
    kinds.iter().enumerate().map(best).collect()
}

/// Per row and kind: how many pods of it the row takes alone.
fn most(kinds: &[Kind<'_>], rows: &[Row]) -> Vec<f64> {
    let of_row = |row: &Row| -> Vec<f64> {
        let one = |(index, kind): (usize, &Kind<'_>)| match row.suits.has(index) {
            true => number(how_many(kind.requests, &row.room, kind.most.min(kind.count))),
            false => 0.0,
        };
        kinds.iter().enumerate().map(one).collect()
    };
    rows.iter().flat_map(of_row).collect()
}

/// The search for fillings that are worth more than their node costs.
struct Pricing<'p> {
    kinds: &'p [Kind<'p>],
    rows: &'p [Row],
    prices: &'p [f64],
    scarcity: &'p [f64],
    /// Per row and kind: how many pods of it alone.
    most: Vec<f64>,
}

struct Found {
    columns: Vec<Column>,
    /// All rows were looked at.
    whole: bool,
    /// By how much all duals have to shrink so that surely no filling is worth more than its node: 1 if there is none.
    least: f64,
    steps: usize,
}

impl Pricing<'_> {
    fn fillings(&self, duals: &[f64], steps: usize) -> Found {
        let mut found = Found { columns: Vec::new(), whole: true, least: 1.0, steps: 0 };
        // Best worth per part of the scarce resources first: one order does for a quick bound on all rows.
        let weight = |kind: usize| duals::worth(self.scarcity, self.kinds[kind].requests).max(f64::MIN_POSITIVE);
        let mut order: Vec<usize> = (0..self.kinds.len()).filter(|kind| duals[*kind] > 0.0).collect();
        order.sort_by(|a, b| (duals[*b] / weight(*b)).total_cmp(&(duals[*a] / weight(*a))).then(a.cmp(b)));
        let weights: Vec<f64> = (0..self.kinds.len()).map(weight).collect();
        // Those that promise most per price first.
        let quick = |number: usize| self.quick(number, duals, &order, &weights);
        let promise = |number: usize| (quick(number) / self.prices[number], number);
        let mut promising: Vec<(f64, usize)> =
            (0..self.rows.len()).map(promise).filter(|(rate, _)| *rate > 1.0).collect();
        promising.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (rate, number) in promising {
            if found.columns.len() >= COLUMNS {
                found.whole = false;
                break;
            }
            let (row, price) = (&self.rows[number], self.prices[number]);
            let offered: Vec<Offered<'_>> = order
                .iter()
                .filter(|kind| row.suits.has(**kind))
                .map(|kind| {
                    let one = &self.kinds[*kind];
                    (*kind, duals[*kind], one.requests, one.most.min(one.count))
                })
                .collect();
            let filling = Knapsack::new(&offered, &row.room, self.scarcity).search(steps, SLACK / 2.0);
            let bound = filling.bound.min(rate * price);
            found.steps += filling.steps + 1;
            if bound > price {
                found.least = found.least.min(price / bound);
            }
            if filling.worth > price * (1.0 + 1e-6) {
                found.columns.push(Column { row: number, price, take: filling.take });
            }
        }
        found
    }

    /// No filling of the row is worth more than this.
    fn quick(&self, row: usize, duals: &[f64], order: &[usize], weights: &[f64]) -> f64 {
        let (mut space, mut sum) = (duals::worth(self.scarcity, &self.rows[row].room), 0.0);
        let most = &self.most[row * self.kinds.len()..(row + 1) * self.kinds.len()];
        for kind in order.iter().copied() {
            let all = weights[kind] * most[kind];
            if all > space {
                return sum + duals[kind] * space / weights[kind];
            }
            sum += duals[kind] * most[kind];
            space -= all;
        }
        sum
    }
}

#[expect(clippy::cast_precision_loss, reason = "prices are far below 2^52")]
fn money(price: i64) -> f64 {
    price as f64
}
