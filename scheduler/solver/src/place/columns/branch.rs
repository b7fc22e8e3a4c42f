//! Raises the lower bound by branch and bound: in each branch the number of nodes of some rows is bounded from above or
//! from below. Each branch is solved in fractions, and the branch with the lowest bound is split next. The lowest bound
//! of the open branches is a lower bound of any plan.

use super::master::Column;
use super::{Cap, Fractional, KindId, PodKind, PodKinds, Row, Start, Take, Used};
use crate::input::intern::{Amounts, Bits};
use plimsoll_model::index::{Id, IndexVec};
use std::collections::BTreeSet;

/// Maximum number of branches that are solved. Each takes a few milliseconds.
const MAX_BRANCHES: usize = 400;
/// Maximum depth of the search. Each level enlarges the program of its branches.
const DEPTH: usize = 24;
/// Maximum number of fillings that later branches start with.
const KNOWN: usize = 4_000;
/// Numbers of nodes this close to an integer count as integral.
const WHOLE: f64 = 1e-4;
/// The search ends once the bound is this close to the cost of a plan, relatively.
const NEAR: f64 = 0.02;

/// A branch: a set of plans.
#[derive(Default)]
struct Branch {
    /// Minimum number of nodes of these rows.
    floors: Vec<(Bits<Row>, usize)>,
    caps: IndexVec<Cap, Cap>,
    /// Lower bound of the cost of these plans.
    bound: f64,
    used: Vec<Used>,
}

/// Raises the bound of `root`, the fractional optimum of these kinds and rows. The result is at most `enough`, the cost
/// of an integral plan.
pub(crate) fn tightened(
    kinds: &PodKinds,
    rows: &IndexVec<Row, Row>,
    root: Fractional,
    enough: f64,
    work: &mut u64,
) -> f64 {
    let mut search = Search { kinds, rows, enough, known: Vec::new(), seen: BTreeSet::new() };
    search.learn(root.columns);
    let mut open = vec![Branch { bound: root.bound, used: root.used, ..Branch::default() }];
    for _ in 0..MAX_BRANCHES / 2 {
        let cheapest = open.iter().enumerate().min_by(|(_, a), (_, b)| a.bound.total_cmp(&b.bound));
        let Some((place, branch)) = cheapest else { return enough };
        let least = branch.bound;
        if least >= enough * (1.0 - NEAR) || *work == 0 || branch.floors.len() + branch.caps.len() >= DEPTH {
            return least.min(enough);
        }
        let Some((set, below)) = search.branching_set(&branch.used) else { return least.min(enough) };
        let branch = open.swap_remove(place);
        let (floors, caps) = (branch.floors.clone(), branch.caps.clone());
        let mut fewer = Branch { floors, caps, bound: branch.bound, used: Vec::new() };
        fewer.caps.push(Cap { rows: set.clone(), most: below });
        let mut more = branch;
        more.floors.push((set, below + 1));
        for mut branch in [fewer, more] {
            search.solve(&mut branch, work);
            if branch.bound < enough {
                open.push(branch);
            }
        }
    }
    open.iter().map(|branch| branch.bound).fold(enough, f64::min)
}

struct Search<'s> {
    kinds: &'s PodKinds,
    rows: &'s IndexVec<Row, Row>,
    enough: f64,
    /// Fillings, without the additional kinds of a branch.
    known: Vec<Column>,
    seen: BTreeSet<(Id<Row>, Take)>,
}

impl Search<'_> {
    fn learn(&mut self, columns: Vec<Column>) {
        for mut column in columns.into_iter().filter(|column| self.rows.try_get(column.row).is_some()) {
            column.take.retain(|(kind, _)| self.kinds.try_get(*kind).is_some());
            column.caps.clear();
            if self.known.len() < KNOWN && self.seen.insert((column.row, column.take.clone())) {
                self.known.push(column);
            }
        }
    }

    /// The set of rows whose number of nodes is furthest from an integer, and this number rounded down.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of nodes")]
    fn branching_set(&self, used: &[Used]) -> Option<(Bits<Row>, usize)> {
        let width = self.rows.iter().next().map_or(0, |row| row.room.len());
        let mut best: Option<(f64, Bits<Row>, usize)> = None;
        for family in 0..=width {
            let resource = family.checked_sub(1);
            let key = |row: &Row| resource.map_or(row.price, |index| row.room.get(index).copied().unwrap_or(0));
            let values: BTreeSet<i64> = used.iter().map(|one| key(&self.rows[one.row])).collect();
            for value in values {
                let nodes: f64 = used.iter().filter(|one| key(&self.rows[one.row]) >= value).map(|one| one.times).sum();
                let apart = (nodes - nodes.round()).abs();
                if apart > WHOLE && best.as_ref().is_none_or(|(known, ..)| apart > known + WHOLE) {
                    let set = Bits::of(self.rows.len(), |row| key(&self.rows[row]) >= value);
                    best = Some((apart, set, nodes.floor() as usize));
                }
            }
        }
        best.map(|(_, set, below)| (set, below))
    }

    fn solve(&mut self, branch: &mut Branch, work: &mut u64) {
        let own = self.kinds.len();
        let nothing: Amounts = self.kinds.iter().next().map_or_else(Vec::new, |kind| vec![0; kind.requests.len()]);
        // A minimum number of nodes is modelled as one more pod kind: its pods request nothing, and each needs a node
        // of its own.
        let floor = |least: usize| PodKind { requests: nothing.clone(), count: least, most: 1 };
        let floors = branch.floors.iter().map(|(_, least)| floor(*least));
        let kinds: PodKinds = self.kinds.iter().cloned().chain(floors).collect();
        let with_floors = |(index, row): (Id<Row>, &Row)| {
            let on = |kind: KindId| match kind.number().checked_sub(own) {
                None => row.suits.has(kind),
                Some(floor) => branch.floors.get(floor).is_some_and(|(rows, _)| rows.has(index)),
            };
            Row { price: row.price, room: row.room.clone(), suits: Bits::of(kinds.len(), on) }
        };
        let rows: IndexVec<Row, Row> = self.rows.iter_enumerated().map(with_floors).collect();
        let mut known = self.known.clone();
        for column in &mut known {
            let of_it = (own..).zip(&branch.floors).filter(|(_, (rows, _))| rows.has(column.row));
            column.take.extend(of_it.map(|(kind, _)| (Id::new(kind), 1)));
            let under = branch.caps.iter_enumerated().filter(|(_, cap)| cap.rows.has(column.row));
            column.caps = under.map(|(cap, _)| cap).collect();
        }
        let found = super::relaxed(&kinds, &rows, &branch.caps, Start::Known(&known, self.enough), work);
        if let Some(found) = found {
            branch.bound = branch.bound.max(found.bound);
            branch.used = found.used;
            self.learn(found.columns);
        }
    }
}
