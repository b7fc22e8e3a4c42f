//! Rounds the fractional optimum to whole nodes: fillings that the optimum uses often enough are bought, the other pods
//! are packed as usual.

use super::items::{Entry, Take};
use super::left::Left;
use super::{Packer, Packing};
use crate::input::intern::{Amounts, Bits};
use crate::place::columns::{self, PodKind, PodKinds, Row, Used, rules};
use crate::place::limits::Headroom;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};

/// Work budget of the fractional optimum, about 50 ms: the result by then is accurate enough as a guide.
const WORK: u64 = 10_000_000;
/// Fractions from which on the number of nodes of a filling is rounded up.
const THRESHOLDS: [f64; 4] = [1.0, 0.7, 0.5, 0.3];

/// A filling of an offering, and how often it is used.
type Bought = (Id<Offering>, Take, f64);

impl Packer<'_, '_> {
    /// The best integral packing near the fractional optimum; `None` if there are too many pod kinds.
    pub(super) fn rounded(&self, left: &Left, limit: &Headroom, work: &mut u64) -> Option<Packing> {
        // Pod groups that must share one node cannot be split. They are packed with the remaining pods.
        let items: IndexVec<PodKind, Id<Entry>> = left.items().filter(|item| !self.items[*item].on_one_node).collect();
        if items.len() > columns::MAX_KINDS {
            return None;
        }
        let members = items.iter().map(|item| (self.class(*item).hosts, left.counts[*item]));
        let shared = rules::shared(&self.context.topology.host_rules, members, 2);
        let kind = |item: &Id<Entry>| {
            let class = self.class(*item);
            let requests = rules::requests(self.requests(*item), class.hosts, &shared);
            PodKind { requests, count: left.counts[*item], most: class.most_alone }
        };
        let kinds: PodKinds = items.iter().map(kind).collect();
        let (offerings, mut rows) = self.rows(&items, left, limit);
        rows.iter_mut().for_each(|row| row.room = rules::room(&row.room, &shared));
        let exact = columns::small::optimum(&kinds, &rows, work);
        let is_exact = exact.is_some();
        let used = match exact {
            Some((_, nodes)) => nodes,
            None => {
                let mut own = WORK.min(*work);
                *work -= own;
                let found = columns::solve(&kinds, &rows, &mut own);
                *work += own;
                found?.used
            }
        };
        let own = |Used { row, take, times }: Used| {
            (offerings[row], take.into_iter().map(|(kind, n)| (items[kind], n)).collect::<Take>(), times)
        };
        let mut used: Vec<Bought> = used.into_iter().map(own).collect();
        // Fillings that are used most come first: rounding changes them least.
        used.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.0.cmp(&b.0)));
        let thresholds = THRESHOLDS.iter().take(if is_exact { 1 } else { THRESHOLDS.len() });
        thresholds.map(|threshold| self.bought(&used, *threshold, left, limit, work)).min_by_key(Packing::score)
    }

    /// Candidates that are useful for these items, with their rows.
    fn rows(
        &self,
        items: &IndexVec<PodKind, Id<Entry>>,
        left: &Left,
        limit: &Headroom,
    ) -> (IndexVec<Row, Id<Offering>>, IndexVec<Row, Row>) {
        let (mut offerings, mut rows): (IndexVec<Row, Id<Offering>>, IndexVec<Row, Row>) = Default::default();
        for offering in self.candidates.iter().copied().filter(|one| self.affordable(*one, limit)) {
            let suits = Bits::of(items.len(), |kind| self.class(items[kind]).any.has(offering));
            // No node needs more capacity than all pods request.
            let room: Amounts =
                self.room(offering).iter().zip(&left.load).map(|(room, load)| *room.min(load)).collect();
            let row = Row { price: self.counts(offering), room, suits };
            if self.limited || !rows.iter().rev().any(|other| other.covers(&row)) {
                offerings.push(offering);
                rows.push(row);
            }
        }
        (offerings, rows)
    }

    fn bought(&self, used: &[Bought], threshold: f64, left: &Left, limit: &Headroom, work: &mut u64) -> Packing {
        let mut packing = Packing::default();
        let (mut left, mut limit) = (left.clone(), limit.clone());
        for (offering, take, times) in used {
            let copies = whole(*times, threshold).min(left.times(take));
            if copies == 0 {
                continue;
            }
            let mut counts = IndexVec::filled(0, self.items.len());
            take.iter().for_each(|(item, n)| counts[*item] = *n);
            let filled = self.fill(*offering, &Left::new(self, counts), work);
            // Pods that may not share a host may fill less. They are packed as usual.
            let whole = filled.take.len() == take.len() && filled.take.iter().all(|one| take.contains(one));
            if let Some(pattern) = self.pattern(*offering, &filled, copies, &limit).filter(|_| whole) {
                packing.push(self, &mut left, &mut limit, pattern);
            }
        }
        let rest = self.best_of(&left, &limit, work);
        packing.placed += rest.placed;
        packing.cost = packing.cost.saturating_add(rest.cost);
        packing.patterns.extend(rest.patterns);
        packing
    }
}

/// Number of nodes of a filling that is used `times`: rounded up if the fraction is at least `threshold`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of nodes, not negative")]
fn whole(times: f64, threshold: f64) -> usize {
    (times + 1.0 - threshold + 1e-6).max(0.0) as usize
}
