//! Which fillings of which nodes are worth more than they cost, at given prices of pods.

use super::knapsack::{Knapsack, Offered};
use super::master::{Column, Duals, number};
use super::{Cap, KindId, PodKind, PodKinds, Row, SLACK};
use crate::bound::resource_prices;
use crate::input::intern::how_many;
use plimsoll_model::index::{Id, IndexVec};

/// New columns after which a round ends: prices change with each, so that most that are found beyond would be of little use.
const COLUMNS: usize = 24;

/// Per row and kind: how many pods of it the row takes alone.
fn most(kinds: &PodKinds<'_>, rows: &IndexVec<Row, Row>) -> IndexVec<Row, IndexVec<PodKind<'static>, f64>> {
    let of_row = |row: &Row| {
        let one = |(index, kind): (KindId, &PodKind<'_>)| match row.suits.has(index) {
            true => number(how_many(kind.requests, &row.room, kind.most.min(kind.count))),
            false => 0.0,
        };
        kinds.iter_enumerated().map(one).collect()
    };
    rows.iter().map(of_row).collect()
}

/// The search for fillings that are worth more than their node costs.
pub(super) struct Pricing<'p> {
    kinds: &'p PodKinds<'p>,
    rows: &'p IndexVec<Row, Row>,
    prices: IndexVec<Row, f64>,
    /// Prices with the fees of the caps that a row is under.
    asked: IndexVec<Row, f64>,
    /// The caps that a row is under.
    caps: IndexVec<Row, Vec<Id<Cap>>>,
    scarcity: &'p [f64],
    /// How many pods of a kind a row takes alone.
    most: IndexVec<Row, IndexVec<PodKind<'static>, f64>>,
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
        kinds: &'p PodKinds<'p>,
        rows: &'p IndexVec<Row, Row>,
        caps: &IndexVec<Cap, Cap>,
        prices: IndexVec<Row, f64>,
        scarcity: &'p [f64],
    ) -> Self {
        let under = |row| caps.iter_enumerated().filter(|(_, cap)| cap.rows.has(row)).map(|(id, _)| id).collect();
        let caps = rows.ids().map(under).collect();
        Self { kinds, rows, asked: prices.clone(), prices, caps, scarcity, most: most(kinds, rows) }
    }

    /// `duals`: what a pod of each kind is worth; `fees`: what a node more costs under each cap.
    pub(super) fn fillings(&mut self, duals: &Duals, fees: &IndexVec<Cap, f64>, steps: usize) -> Found {
        for (row, asked) in self.asked.iter_enumerated_mut() {
            *asked = self.prices[row] + self.caps[row].iter().map(|cap| fees[*cap]).sum::<f64>();
        }
        let mut found = Found { columns: Vec::new(), whole: true, least: 1.0, steps: 0 };
        // Best worth per part of the scarce resources first: one order does for a quick bound on all rows.
        let weight =
            |kind: KindId| resource_prices::worth(self.scarcity, self.kinds[kind].requests).max(f64::MIN_POSITIVE);
        let mut order: Vec<KindId> = self.kinds.ids().filter(|kind| duals[*kind] > 0.0).collect();
        order.sort_by(|a, b| (duals[*b] / weight(*b)).total_cmp(&(duals[*a] / weight(*a))).then(a.cmp(b)));
        let weights: Duals = self.kinds.ids().map(weight).collect();
        // Those that promise most per price first.
        let quick = |number: Id<Row>| self.quick(number, duals, &order, &weights);
        let promise = |number: Id<Row>| (quick(number) / self.asked[number], number);
        let mut promising: Vec<(f64, Id<Row>)> = self.rows.ids().map(promise).filter(|(rate, _)| *rate > 1.0).collect();
        promising.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (rate, number) in promising {
            if found.columns.len() >= COLUMNS {
                found.whole = false;
                break;
            }
            let (row, price) = (&self.rows[number], self.asked[number]);
            let offered: Vec<Offered<'_, PodKind<'static>>> = order
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
    fn quick(&self, row: Id<Row>, duals: &Duals, order: &[KindId], weights: &Duals) -> f64 {
        let (mut space, mut sum) = (resource_prices::worth(self.scarcity, &self.rows[row].room), 0.0);
        let most = &self.most[row];
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
