//! Which fillings of which nodes are worth more than they cost, at given prices of pods.

use super::knapsack::{Knapsack, Offered};
use super::master::{Column, number};
use super::{Cap, PodKind, Row, SLACK};
use crate::bound::resource_prices;
use crate::input::intern::how_many;

/// New columns after which a round ends: prices change with each, so that most that are found beyond would be of little use.
const COLUMNS: usize = 24;

/// Per row and kind: how many pods of it the row takes alone.
fn most(kinds: &[PodKind<'_>], rows: &[Row]) -> Vec<f64> {
    let of_row = |row: &Row| -> Vec<f64> {
        let one = |(index, kind): (usize, &PodKind<'_>)| match row.suits.has(index) {
            true => number(how_many(kind.requests, &row.room, kind.most.min(kind.count))),
            false => 0.0,
        };
        kinds.iter().enumerate().map(one).collect()
    };
    rows.iter().flat_map(of_row).collect()
}

/// The search for fillings that are worth more than their node costs.
pub(super) struct Pricing<'p> {
    kinds: &'p [PodKind<'p>],
    rows: &'p [Row],
    prices: Vec<f64>,
    /// Prices with the fees of the caps that a row is under.
    asked: Vec<f64>,
    /// Per row: the caps that it is under.
    caps: Vec<Vec<usize>>,
    scarcity: &'p [f64],
    /// Per row and kind: how many pods of it alone.
    most: Vec<f64>,
}

pub(super) struct Found {
    pub(super) columns: Vec<Column>,
    /// All rows were looked at.
    pub(super) whole: bool,
    /// By how much all duals have to shrink so that surely no filling is worth more than its node: 1 if there is none.
    pub(super) least: f64,
    pub(super) steps: usize,
}

impl<'p> Pricing<'p> {
    pub(super) fn new(
        kinds: &'p [PodKind<'p>],
        rows: &'p [Row],
        caps: &[Cap],
        prices: Vec<f64>,
        scarcity: &'p [f64],
    ) -> Self {
        let under = |row: usize| (0..caps.len()).filter(|cap| caps[*cap].rows.has(row)).collect();
        let caps = (0..rows.len()).map(under).collect();
        Self { kinds, rows, asked: prices.clone(), prices, caps, scarcity, most: most(kinds, rows) }
    }

    /// `duals`: what a pod of each kind is worth; `fees`: what a node more costs under each cap.
    pub(super) fn fillings(&mut self, duals: &[f64], fees: &[f64], steps: usize) -> Found {
        for (row, asked) in self.asked.iter_mut().enumerate() {
            *asked = self.prices[row] + self.caps[row].iter().map(|cap| fees[*cap]).sum::<f64>();
        }
        let mut found = Found { columns: Vec::new(), whole: true, least: 1.0, steps: 0 };
        // Best worth per part of the scarce resources first: one order does for a quick bound on all rows.
        let weight =
            |kind: usize| resource_prices::worth(self.scarcity, self.kinds[kind].requests).max(f64::MIN_POSITIVE);
        let mut order: Vec<usize> = (0..self.kinds.len()).filter(|kind| duals[*kind] > 0.0).collect();
        order.sort_by(|a, b| (duals[*b] / weight(*b)).total_cmp(&(duals[*a] / weight(*a))).then(a.cmp(b)));
        let weights: Vec<f64> = (0..self.kinds.len()).map(weight).collect();
        // Those that promise most per price first.
        let quick = |number: usize| self.quick(number, duals, &order, &weights);
        let promise = |number: usize| (quick(number) / self.asked[number], number);
        let mut promising: Vec<(f64, usize)> =
            (0..self.rows.len()).map(promise).filter(|(rate, _)| *rate > 1.0).collect();
        promising.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (rate, number) in promising {
            if found.columns.len() >= COLUMNS {
                found.whole = false;
                break;
            }
            let (row, price) = (&self.rows[number], self.asked[number]);
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
                let (price, caps) = (self.prices[number], self.caps[number].clone());
                found.columns.push(Column { row: number, price, take: filling.take, caps });
            }
        }
        found
    }

    /// No filling of the row is worth more than this.
    fn quick(&self, row: usize, duals: &[f64], order: &[usize], weights: &[f64]) -> f64 {
        let (mut space, mut sum) = (resource_prices::worth(self.scarcity, &self.rows[row].room), 0.0);
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
