//! Column generation for the linear program of Gilmore and Gomory: nodes are bought in fractions, and each column is a
//! way to fill a node. The duals are prices of pods by kind. The optimum is a lower bound of the cost of any plan. Good
//! plans consist of the columns that the optimum uses.

mod branch;
pub(crate) mod knapsack;
mod master;
mod pricing;
pub(crate) mod rules;
pub(crate) mod small;
#[cfg(test)]
mod tests;

use crate::bound::resource_prices;
use crate::input::intern::{Amounts, Bits, add, how_many};
pub(crate) use branch::tightened;
use master::{Column, Duals, Master};
use plimsoll_model::index::{Id, IndexVec};
use pricing::Pricing;

/// Maximum number of pod kinds. The work of the master grows with their square, and with more kinds the gain over
/// resource prices is small.
pub(crate) const MAX_KINDS: usize = 160;
/// Maximum number of rounds. The program usually converges in two dozen.
const MAX_ROUNDS: usize = 120;
/// Maximum steps of a search for one filling: a quick search, and a thorough one once no quick search finds anything.
const STEPS: [usize; 2] = [24, 400];
/// Relative gain that the search ignores.
const SLACK: f64 = 1e-3;
/// Approximate number of passes over all kinds per search step.
const LOOKS_PER_STEP: usize = 8;
/// Maximum number of pivots per round and kind.
const PIVOTS_PER_KIND: usize = 8;

/// Identical pods.
#[derive(Clone)]
pub(crate) struct PodKind {
    pub(crate) requests: Amounts,
    pub(crate) count: usize,
    /// Maximum number of these pods on one node.
    pub(crate) most: usize,
}

pub(crate) type KindId = Id<PodKind>;

/// All pod kinds of a program.
pub(crate) type PodKinds = IndexVec<PodKind, PodKind>;

/// Pod kinds with their number of pods; sorted, each kind at most once.
pub(crate) type Take = Vec<(KindId, usize)>;

/// An offering with its price and capacity.
pub(crate) struct Row {
    pub(crate) price: i64,
    pub(crate) room: Amounts,
    /// Kinds that can run on the node.
    pub(crate) suits: Bits<PodKind>,
}

impl Row {
    /// Whether the row has at least the capacity of `other`, and can run all kinds that `other` can run.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.suits.covers(&other.suits) && other.room.iter().zip(&self.room).all(|(theirs, mine)| theirs <= mine)
    }
}

/// A filling, and how often an optimum uses it.
#[derive(Debug, PartialEq)]
pub(crate) struct Used {
    pub(crate) row: Id<Row>,
    pub(crate) take: Take,
    pub(crate) times: f64,
}

/// The fractional optimum, as far as it was found.
#[derive(Debug)]
pub(crate) struct Fractional {
    /// Lower bound of the cost of any integral plan.
    pub(crate) bound: f64,
    /// Worth of a pod of each kind: no filling is worth more than its node and its caps. Empty if the bound is zero.
    pub(crate) worths: IndexVec<PodKind, f64>,
    pub(crate) used: Vec<Used>,
    /// All fillings that were generated.
    columns: Vec<Column>,
}

/// At most `most` nodes of these rows.
#[derive(Clone)]
pub(crate) struct Cap {
    pub(crate) rows: Bits<Row>,
    pub(crate) most: usize,
}

/// Initial columns.
#[derive(Clone, Copy)]
enum Start<'s> {
    /// One column per kind, which takes only this kind.
    Alone,
    /// Columns of another program for the same kinds, possibly followed by further kinds. Plans that cost at least this
    /// much are irrelevant.
    Known(&'s [Column], f64),
}

/// Solves the linear program. Returns `None` if there are too many kinds, or if no row can run some kind. `work`
/// decreases by the number of rows times the number of kinds in each round, and by the search steps.
pub(crate) fn solve(kinds: &PodKinds, rows: &IndexVec<Row, Row>, work: &mut u64) -> Option<Fractional> {
    relaxed(kinds, rows, &IndexVec::new(), Start::Alone, work)
}

/// Total requests of all pods.
pub(crate) fn load(kinds: &PodKinds) -> Amounts {
    let mut load = vec![0; kinds.iter().next().map_or(0, |kind| kind.requests.len())];
    for kind in kinds {
        add(&mut load, &kind.requests, i64::try_from(kind.count).unwrap_or(i64::MAX));
    }
    load
}

/// Prices of resources on these rows, for this demand.
pub(crate) fn prices_of(rows: &IndexVec<Row, Row>, load: &[i64]) -> Vec<f64> {
    let offered: Vec<(i64, &Amounts)> = rows.iter().map(|row| (row.price, &row.room)).collect();
    resource_prices::resource_prices(&offered, load)
}

fn relaxed(
    kinds: &PodKinds,
    rows: &IndexVec<Row, Row>,
    caps: &IndexVec<Cap, Cap>,
    start: Start<'_>,
    work: &mut u64,
) -> Option<Fractional> {
    if kinds.is_empty() || kinds.len() > MAX_KINDS || *work == 0 {
        return None;
    }
    let scale = money(rows.iter().map(|row| row.price).max().unwrap_or(1).max(1));
    let prices: IndexVec<Row, f64> = rows.iter().map(|row| money(row.price.max(1)) / scale).collect();
    let scarcity = prices_of(rows, &load(kinds));
    let demand: Duals = kinds.iter().map(|kind| number(kind.count)).collect();
    let most_nodes: IndexVec<Cap, f64> = caps.iter().map(|cap| number(cap.most)).collect();
    let (first, enough) = match start {
        Start::Alone => (alone(kinds, rows, &prices)?, f64::INFINITY),
        Start::Known(_, enough) => (anything(kinds, enough / scale), enough / scale),
    };
    let mut master = Master::new(first, &demand, &most_nodes);
    if let Start::Known(known, _) = start {
        master.columns.extend(known.iter().cloned());
    }
    let mut pricing = Pricing::new(kinds, rows, caps, prices, &scarcity);
    let mut bound = 0.0_f64;
    let mut worths = Duals::new();
    let mut steps = STEPS.iter();
    let mut nodes = steps.next().copied()?;
    for _ in 0..MAX_ROUNDS {
        master.optimise(PIVOTS_PER_KIND * kinds.len());
        let (duals, cap_duals) = master.duals();
        let value: f64 = duals.iter().zip(&demand).map(|(dual, count)| dual * count).sum();
        let cap_cost: f64 = cap_duals.iter().zip(&most_nodes).map(|(dual, most)| dual * most).sum();
        let found = pricing.fillings(&duals, &cap_duals, nodes);
        // Only a round that covers all rows bounds the error of the duals.
        let least = value * found.least - cap_cost;
        if found.whole && least > bound {
            bound = least;
            worths = duals.iter().map(|dual| dual * found.least).collect();
        }
        let looks = rows.len() + found.steps * LOOKS_PER_STEP;
        *work = work.saturating_sub(u64::try_from(looks * kinds.len()).unwrap_or(u64::MAX));
        if bound >= (value - cap_cost) * (1.0 - SLACK) || bound >= enough || *work == 0 {
            break;
        }
        let fresh: Vec<Column> =
            found.columns.into_iter().filter(|one| !master.columns.as_slice().contains(one)).collect();
        if fresh.is_empty() && found.whole {
            let Some(thorough) = steps.next() else { break };
            nodes = *thorough;
            continue;
        }
        steps = STEPS.iter();
        nodes = steps.next().copied()?;
        master.columns.extend(fresh);
    }
    let used = master.solution().into_iter().map(|(column, times)| (&master.columns[column], times));
    let used = used.filter(|(column, _)| rows.try_get(column.row).is_some());
    let used = used.map(|(column, times)| Used { row: column.row, take: column.take.clone(), times }).collect();
    // A margin for rounding errors.
    let scale = scale * (1.0 - 1e-7);
    worths.iter_mut().for_each(|worth| *worth *= scale);
    Some(Fractional { bound: bound * scale, worths, used, columns: master.columns.into_iter().collect() })
}

/// One column per kind: the row with the lowest price per pod, filled with this kind only.
fn alone(kinds: &PodKinds, rows: &IndexVec<Row, Row>, prices: &IndexVec<Row, f64>) -> Option<IndexVec<Column, Column>> {
    let best = |(index, kind): (KindId, &PodKind)| {
        let fits = rows.iter_enumerated().filter(|(_, row)| row.suits.has(index)).filter_map(|(number, row)| {
            let n = how_many(&kind.requests, &row.room, kind.most.min(kind.count));
            (n > 0).then_some((number, n))
        });
        let each = |(row, n): &(Id<Row>, usize)| prices[*row] / number(*n);
        let (row, n) = fits.min_by(|a, b| each(a).total_cmp(&each(b)))?;
        Some(Column { row, price: prices[row], take: vec![(index, n)], caps: Vec::new() })
    };
    kinds.iter_enumerated().map(best).collect()
}

/// One column per kind that takes all its pods, with a price above that of any relevant plan. It makes the program
/// feasible.
fn anything(kinds: &PodKinds, enough: f64) -> IndexVec<Column, Column> {
    let all = |(index, kind): (KindId, &PodKind)| Column {
        row: Id::new(usize::MAX),
        price: 1.0 + 2.0 * enough,
        take: vec![(index, kind.count)],
        caps: Vec::new(),
    };
    kinds.iter_enumerated().map(all).collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "prices are far below 2^52")]
pub(crate) fn money(price: i64) -> f64 {
    price as f64
}
