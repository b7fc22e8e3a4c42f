//! The pricing problem: finds fillings whose worth exceeds the price of their node, at given prices of pods.

use super::knapsack::{Knapsack, Offered};
use super::master::{Column, Duals};
use super::{Cap, KindId, PodKind, PodKinds, Row, SLACK, number};
use crate::bound::resource_prices;
use crate::input::intern::how_many;
use plimsoll_model::index::{Id, IndexVec};

/// Number of new columns after which a round ends. Prices change with each column, so further columns would be of
/// little use.
const COLUMNS: usize = 24;

/// Per row and kind: the maximum number of pods of this kind alone.
fn most(kinds: &PodKinds, rows: &IndexVec<Row, Row>) -> IndexVec<Row, Duals> {
    let of_row = |row: &Row| {
        let one = |(index, kind): (KindId, &PodKind)| match row.suits.has(index) {
            true => number(how_many(&kind.requests, &row.room, kind.most.min(kind.count))),
            false => 0.0,
        };
        kinds.iter_enumerated().map(one).collect()
    };
    rows.iter().map(of_row).collect()
}

pub(super) struct Pricing<'p> {
    kinds: &'p PodKinds,
    rows: &'p IndexVec<Row, Row>,
    prices: IndexVec<Row, f64>,
    /// Prices including the duals of the row's caps.
    asked: IndexVec<Row, f64>,
    caps: IndexVec<Row, Vec<Id<Cap>>>,
    scarcity: &'p [f64],
    /// Per row and kind: the maximum number of pods of this kind alone.
    most: IndexVec<Row, Duals>,
}

pub(super) struct Found {
    pub(super) columns: Vec<Column>,
    /// Whether all rows were searched.
    pub(super) whole: bool,
    /// Factor by which the duals must shrink so that no filling is worth more than its node; 1 if there is no such
    /// filling.
    pub(super) least: f64,
    pub(super) steps: usize,
}

impl<'p> Pricing<'p> {
    pub(super) fn new(
        kinds: &'p PodKinds,
        rows: &'p IndexVec<Row, Row>,
        caps: &IndexVec<Cap, Cap>,
        prices: IndexVec<Row, f64>,
        scarcity: &'p [f64],
    ) -> Self {
        let under = |row| caps.iter_enumerated().filter(|(_, cap)| cap.rows.has(row)).map(|(id, _)| id).collect();
        let caps = rows.ids().map(under).collect();
        Self { kinds, rows, asked: prices.clone(), prices, caps, scarcity, most: most(kinds, rows) }
    }

    /// Searches for fillings. `duals` is the worth of a pod of each kind, `cap_duals` the additional price of a node
    /// under each cap.
    pub(super) fn fillings(&mut self, duals: &Duals, cap_duals: &IndexVec<Cap, f64>, steps: usize) -> Found {
        for (row, asked) in self.asked.iter_enumerated_mut() {
            *asked = self.prices[row] + self.caps[row].iter().map(|cap| cap_duals[*cap]).sum::<f64>();
        }
        let mut found = Found { columns: Vec::new(), whole: true, least: 1.0, steps: 0 };
        // Highest worth per part of the scarce resources first. This order gives a quick bound for each row.
        let weight =
            |kind: KindId| resource_prices::worth(self.scarcity, &self.kinds[kind].requests).max(f64::MIN_POSITIVE);
        let mut order: Vec<KindId> = self.kinds.ids().filter(|kind| duals[*kind] > 0.0).collect();
        order.sort_by(|a, b| (duals[*b] / weight(*b)).total_cmp(&(duals[*a] / weight(*a))).then(a.cmp(b)));
        let weights: Duals = self.kinds.ids().map(weight).collect();
        // Rows with the highest bound per price first.
        let quick = |number: Id<Row>| self.quick(number, duals, &order, &weights);
        let bound_of = |number: Id<Row>| (quick(number) / self.asked[number], number);
        let mut promising: Vec<(f64, Id<Row>)> =
            self.rows.ids().map(bound_of).filter(|(rate, _)| *rate > 1.0).collect();
        promising.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (rate, number) in promising {
            if found.columns.len() >= COLUMNS {
                found.whole = false;
                break;
            }
            let (row, price) = (&self.rows[number], self.asked[number]);
            let offered: Vec<Offered<'_, PodKind>> = order
                .iter()
                .filter(|kind| row.suits.has(**kind))
                .map(|kind| {
                    let one = &self.kinds[*kind];
                    (*kind, duals[*kind], one.requests.as_slice(), one.most.min(one.count))
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

    /// Upper bound of the worth of any filling of the row.
    fn quick(&self, row: Id<Row>, duals: &Duals, order: &[KindId], weights: &Duals) -> f64 {
        let (mut space, mut sum) = (resource_prices::worth(self.scarcity, &self.rows[row].room), 0.0);
        let most = &self.most[row];
        for kind in order.iter().copied() {
            let all = weights[kind] * most[kind];
            // Kinds that need nothing scarce come first and count in full, even if the row has nothing scarce.
            if weights[kind] > f64::MIN_POSITIVE && all > space {
                return sum + duals[kind] * space / weights[kind];
            }
            sum += duals[kind] * most[kind];
            space -= all;
        }
        sum
    }
}
