//! Patterns one after another, the best first.

use super::filling::Filled;
use super::{Packer, Packing, Strategy};
use crate::intern::{Amounts, Bits, add, fits};
use crate::limits::{self, Headroom};

/// Beyond this many (candidate, item) pairs only the strategy that looks at few candidates is tried.
const SMALL: usize = 20_000;
/// Relative difference below which two efficiencies count as equal.
const EQUAL: f64 = 1e-9;

impl Packer<'_, '_, '_> {
    /// The best packing of `left` by any strategy.
    pub(super) fn best_of(&self, left: &[usize], limit: &Headroom, work: &mut u64) -> Packing {
        let mut plans = vec![(Strategy::Efficient, true)];
        if left.iter().filter(|count| **count > 0).count() * self.candidates.len() <= SMALL {
            plans.extend([
                (Strategy::LargestFirst, true),
                (Strategy::Efficient, false),
                (Strategy::LargestFirst, false),
                (Strategy::PerLot, false),
            ]);
        }
        if limit.iter().any(Option::is_some) {
            plans.extend([(Strategy::Frugal, true), (Strategy::Frugal, false)]);
        }
        let mut best = Packing::default();
        for (strategy, by_resource) in plans {
            let found = self.run(strategy, by_resource, left.to_vec(), limit.clone(), work);
            if found.rank() < best.rank() {
                best = found;
            }
        }
        best
    }

    /// One packing. Wherever a single node could take all that is left, ending there is considered too.
    fn run(
        &self,
        strategy: Strategy,
        by_resource: bool,
        mut left: Vec<usize>,
        mut limit: Headroom,
        work: &mut u64,
    ) -> Packing {
        let mut packing = Packing::default();
        let mut complete: Option<Packing> = None;
        let mut banned = Bits::none(self.view.offerings.len());
        loop {
            if let Some(end) = self.last(&left, &limit, work) {
                let mut ended = packing.clone();
                self.push(&mut ended, end, &mut left.clone(), &mut limit.clone());
                if complete.as_ref().is_none_or(|known| ended.rank() < known.rank()) {
                    complete = Some(ended);
                }
            }
            let Some((offering, filled)) = self.next(strategy, by_resource, &left, &limit, &banned, work) else {
                break;
            };
            let copies = filled.times(&left).max(1);
            match self.pattern(offering, filled, copies, &limit) {
                Some(pattern) => self.push(&mut packing, pattern, &mut left, &mut limit),
                None => banned.insert(offering),
            }
        }
        complete.into_iter().chain([packing]).min_by_key(Packing::rank).unwrap_or_default()
    }

    fn push(&self, packing: &mut Packing, pattern: super::Pattern, left: &mut [usize], limit: &mut Headroom) {
        for (item, n) in &pattern.take {
            left[*item] -= n * pattern.copies;
            packing.placed += n * pattern.copies;
        }
        limits::take(limit, &pattern.charge, pattern.copies);
        let copies = i64::try_from(pattern.copies).unwrap_or(i64::MAX);
        packing.cost = packing.cost.saturating_add(pattern.price.saturating_mul(copies));
        packing.patterns.push(pattern);
    }

    /// The cheapest node that takes all that is left.
    fn last(&self, left: &[usize], limit: &Headroom, work: &mut u64) -> Option<super::Pattern> {
        let mut load: Amounts = vec![0; self.world.table.len()];
        for (item, count) in left.iter().enumerate().filter(|(_, count)| **count > 0) {
            add(&mut load, self.requests(item), i64::try_from(*count).unwrap_or(i64::MAX));
        }
        let wanted = || left.iter().enumerate().filter(|(_, count)| **count > 0);
        wanted().next()?;
        *work = work.saturating_sub(1);
        for offering in &self.candidates {
            if !fits(&load, self.room(*offering)) || !self.affordable(*offering, limit) {
                continue;
            }
            if !wanted().all(|(item, _)| self.items[item].any.has(*offering)) {
                continue;
            }
            let filled = self.fill(*offering, left, None);
            if filled.take.iter().map(|(_, n)| n).sum::<usize>() == left.iter().sum::<usize>() {
                return self.pattern(*offering, filled, 1, limit);
            }
        }
        None
    }

    fn affordable(&self, offering: usize, limit: &Headroom) -> bool {
        limits::allows(limit, &self.view.types[self.view.offerings[offering].type_index].capacity)
    }

    /// The largest part of what is left of any limit that a node of this offering takes.
    #[expect(clippy::cast_precision_loss, reason = "weights of a heuristic")]
    fn share_of_limits(&self, offering: usize, limit: &Headroom) -> f64 {
        let capacity = &self.view.types[self.view.offerings[offering].type_index].capacity;
        let shares = limit.iter().zip(capacity);
        shares.map(|(room, amount)| room.map_or(0.0, |room| *amount as f64 / room.max(1) as f64)).fold(EQUAL, f64::max)
    }

    /// The best node to buy next.
    #[expect(clippy::cast_precision_loss, reason = "weights of a heuristic")]
    fn next(
        &self,
        strategy: Strategy,
        by_resource: bool,
        left: &[usize],
        limit: &Headroom,
        banned: &Bits,
        work: &mut u64,
    ) -> Option<(usize, Filled)> {
        let largest = left.iter().position(|count| *count > 0)?;
        let only = (strategy == Strategy::PerLot).then_some(largest);
        let worth = if by_resource { &self.by_resource } else { &self.by_share };
        let mut best: Option<(f64, usize, Filled)> = None;
        for (offering, most) in &self.promising {
            // At prices of resources no node is worth more than its room.
            if by_resource && strategy != Strategy::Frugal && best.as_ref().is_some_and(|(known, _, _)| *most < *known)
            {
                break;
            }
            if banned.has(*offering) || !self.affordable(*offering, limit) {
                continue;
            }
            let forced = matches!(strategy, Strategy::LargestFirst | Strategy::PerLot);
            if forced && !self.items[largest].any.has(*offering) {
                continue;
            }
            *work = work.saturating_sub(left.len() as u64);
            if *work == 0 {
                break;
            }
            let filled = self.fill(*offering, left, only);
            if filled.take.is_empty() || (forced && !filled.takes(largest)) {
                continue;
            }
            let rate = match strategy {
                Strategy::Frugal => filled.worth(worth) / self.share_of_limits(*offering, limit),
                _ => filled.worth(worth) / self.view.price(*offering).max(1) as f64,
            };
            let better = |(known, other, _): &(f64, usize, Filled)| {
                rate > known * (1.0 + EQUAL) || (rate >= known * (1.0 - EQUAL) && offering < other)
            };
            if best.as_ref().is_none_or(better) {
                best = Some((rate, *offering, filled));
            }
        }
        best.map(|(_, offering, filled)| (offering, filled))
    }
}
