//! Nodes bought in fractions, each filled in one of its possible ways: the linear program of Gilmore and Gomory, solved by generating
//! its columns. Its duals say what a pod of each kind costs, its value is what no plan can cost less than, and its columns are
//! the fillings that good plans are made of.

mod branch;
pub(crate) mod knapsack;
mod master;
mod pricing;
pub(crate) mod rules;
pub(crate) mod small;
#[cfg(test)]
mod tests;

use crate::bound::resource_prices;
use crate::input::intern::{Amounts, Bits, how_many};
pub(crate) use branch::tightened;
use master::{Column, Duals, Master, number};
use plimsoll_model::index::{Id, IndexVec};
use pricing::Pricing;

/// Kinds at most: the master's work grows with their square, and with more kinds the gain over prices of resources is small.
pub(crate) const MAX_KINDS: usize = 160;
/// Rounds of new columns at most; it usually converges in two dozen.
const MAX_ROUNDS: usize = 120;
/// Steps of a search for one filling: a first look, and a thorough one once no first look finds anything.
const STEPS: [usize; 2] = [24, 400];
/// Relative gain that is not looked for.
const SLACK: f64 = 1e-3;
/// How often a step of a search looks at all kinds, about.
const LOOKS_PER_STEP: usize = 8;
/// Pivots per round and kind.
const PIVOTS_PER_KIND: usize = 8;

/// Pods that are alike.
pub(crate) struct PodKind<'k> {
    pub(crate) requests: &'k [i64],
    pub(crate) count: usize,
    /// On one node at most.
    pub(crate) most: usize,
}

/// A kind of pods.
pub(crate) type KindId = Id<PodKind<'static>>;

/// All kinds of pods of a program.
pub(crate) type PodKinds<'k> = IndexVec<PodKind<'static>, PodKind<'k>>;

/// Kinds and numbers of pods; sorted, each kind once.
pub(crate) type Take = Vec<(KindId, usize)>;

/// A node that can be bought.
pub(crate) struct Row {
    pub(crate) price: i64,
    pub(crate) room: Amounts,
    /// Kinds that can be on it.
    pub(crate) suits: Bits<PodKind<'static>>,
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
    pub(crate) row: Id<Row>,
    pub(crate) take: Take,
    pub(crate) times: f64,
}

/// The optimum in fractions, as far as it was found.
#[derive(Debug)]
pub(crate) struct Fractional {
    /// No whole plan costs less.
    pub(crate) bound: f64,
    pub(crate) used: Vec<Used>,
    /// All fillings that were looked at.
    columns: Vec<Column>,
}

/// Of some rows no more nodes than this.
pub(crate) struct Cap {
    pub(crate) rows: Bits<Row>,
    pub(crate) most: usize,
}

/// Where the search for columns starts.
#[derive(Clone, Copy)]
enum Start<'s> {
    /// With each kind alone.
    Alone,
    /// With columns of another program for the same kinds, of which some may come after. No plan that costs as much as this matters.
    Known(&'s [Column], f64),
}

/// Solves it. `None` if there are too many kinds, or one that no row can hold. `work` goes down by the rows looked at times kinds.
pub(crate) fn solve(kinds: &PodKinds<'_>, rows: &IndexVec<Row, Row>, work: &mut u64) -> Option<Fractional> {
    relaxed(kinds, rows, &IndexVec::new(), Start::Alone, work)
}

fn relaxed(
    kinds: &PodKinds<'_>,
    rows: &IndexVec<Row, Row>,
    caps: &IndexVec<Cap, Cap>,
    start: Start<'_>,
    work: &mut u64,
) -> Option<Fractional> {
    let width = kinds.iter().next()?.requests.len();
    if kinds.len() > MAX_KINDS || *work == 0 {
        return None;
    }
    let scale = money(rows.iter().map(|row| row.price).max().unwrap_or(1).max(1));
    let prices: IndexVec<Row, f64> = rows.iter().map(|row| money(row.price.max(1)) / scale).collect();
    let mut load = vec![0; width];
    for kind in kinds {
        crate::input::intern::add(&mut load, kind.requests, i64::try_from(kind.count).unwrap_or(i64::MAX));
    }
    let offered: Vec<(i64, &Amounts)> = rows.iter().map(|row| (row.price, &row.room)).collect();
    let scarcity = resource_prices::resource_prices(&offered, &load);
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
    let mut steps = STEPS.iter();
    let mut nodes = steps.next().copied()?;
    for _ in 0..MAX_ROUNDS {
        master.optimise(PIVOTS_PER_KIND * kinds.len());
        let (duals, fees) = master.worths();
        let value: f64 = duals.iter().zip(&demand).map(|(dual, count)| dual * count).sum();
        let refund: f64 = fees.iter().zip(&most_nodes).map(|(fee, most)| fee * most).sum();
        let found = pricing.fillings(&duals, &fees, nodes);
        // Only a round that looked at all rows says by how much the duals are wrong.
        if found.whole {
            bound = bound.max(value * found.least - refund);
        }
        let looks = rows.len() + found.steps * LOOKS_PER_STEP;
        *work = work.saturating_sub(u64::try_from(looks * kinds.len()).unwrap_or(u64::MAX));
        if bound >= (value - refund) * (1.0 - SLACK) || bound >= enough || *work == 0 {
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
    // A margin for the arithmetic.
    Some(Fractional { bound: bound * scale * (1.0 - 1e-7), used, columns: master.columns.into_iter().collect() })
}

/// One column per kind: as many of it alone as the row takes that is cheapest per pod.
fn alone(
    kinds: &PodKinds<'_>,
    rows: &IndexVec<Row, Row>,
    prices: &IndexVec<Row, f64>,
) -> Option<IndexVec<Column, Column>> {
    let best = |(index, kind): (KindId, &PodKind<'_>)| {
        let fits = rows.iter_enumerated().filter(|(_, row)| row.suits.has(index)).filter_map(|(number, row)| {
            let n = how_many(kind.requests, &row.room, kind.most.min(kind.count));
            (n > 0).then_some((number, n))
        });
        let each = |(row, n): &(Id<Row>, usize)| prices[*row] / number(*n);
        let (row, n) = fits.min_by(|a, b| each(a).total_cmp(&each(b)))?;
        Some(Column { row, price: prices[row], take: vec![(index, n)], caps: Vec::new() })
    };
    kinds.iter_enumerated().map(best).collect()
}

/// One column per kind that takes all of it and is too dear to be part of any plan that costs less than `enough`.
fn anything(kinds: &PodKinds<'_>, enough: f64) -> IndexVec<Column, Column> {
    let all = |(index, kind): (KindId, &PodKind<'_>)| Column {
        row: Id::new(usize::MAX),
        price: 1.0 + 2.0 * enough,
        take: vec![(index, kind.count)],
        caps: Vec::new(),
    };
    kinds.iter_enumerated().map(all).collect()
}

#[expect(clippy::cast_precision_loss, reason = "prices are far below 2^52")]
fn money(price: i64) -> f64 {
    price as f64
}
