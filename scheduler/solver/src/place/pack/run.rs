//! Builds a packing greedily: the best pattern first.

use super::filling::Filled;
use super::items::{Entry, worth_of};
use super::left::Left;
use super::{Packer, Packing, Pattern, Strategy};
use crate::input::intern::{Bits, fits};
use crate::place::limits::{self, Headroom};
use crate::score::Score;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::Id;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Number of (candidate, item) pairs beyond which only strategies that evaluate few candidates are tried.
pub(super) const SMALL: usize = 20_000;
/// Relative difference below which two efficiencies are equal.
const EQUAL: f64 = 1e-9;

struct Run {
    strategy: Strategy,
    by_resource: bool,
    left: Left,
    limit: Headroom,
    packing: Packing,
    /// The best candidate first. The number of unplaced pods only decreases, so the worth only decreases. Only the
    /// first candidate must be evaluated again.
    bounds: BinaryHeap<CandidateBound>,
    /// The item that the next node must run, if any; `bounds` were made for it.
    forced: Option<Id<Entry>>,
    /// Whether only `Packer::few` candidates are considered. False once these are exhausted.
    few: bool,
}

/// A candidate with an upper bound of its worth per price.
struct CandidateBound {
    rate: f64,
    offering: Id<Offering>,
    /// Its filling, if it was computed.
    filled: Option<Filled>,
}

impl PartialEq for CandidateBound {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for CandidateBound {}

impl PartialOrd for CandidateBound {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CandidateBound {
    fn cmp(&self, other: &Self) -> Ordering {
        // Among equal candidates, the cheaper one comes first.
        self.rate.total_cmp(&other.rate).then(other.offering.cmp(&self.offering))
    }
}

impl Packer<'_, '_> {
    /// The best packing of `left` by any strategy.
    pub(super) fn best_of(&self, left: &Left, limit: &Headroom, work: &mut u64) -> Packing {
        let mut plans = vec![(Strategy::Efficient, true)];
        if *work > 0 {
            plans.push((Strategy::Efficient, false));
            if left.items().count() * self.candidates.len() <= SMALL {
                plans.extend([(Strategy::LargestFirst, true), (Strategy::LargestFirst, false)]);
            }
            if self.limited {
                plans.extend([(Strategy::Frugal, true), (Strategy::Frugal, false)]);
            }
        }
        let mut best = Packing::default();
        for (strategy, by_resource) in plans {
            let found = self.run(strategy, by_resource, left.clone(), limit.clone(), work);
            if found.score() < best.score() {
                best = found;
            }
        }
        // Without a strategy for them, pods that others must join may all be placed on nodes without capacity for
        // those.
        if *work > 0 && best.placed < left.pods && left.items().any(|item| self.class(item).seeks_host) {
            let found = self.run(Strategy::JoinersFirst, true, left.clone(), limit.clone(), work);
            if found.score() < best.score() {
                best = found;
            }
        }
        best
    }

    /// Builds one packing. Whenever a single node could run all remaining pods, the packing that ends with this node is
    /// considered, too.
    fn run(&self, strategy: Strategy, by_resource: bool, left: Left, limit: Headroom, work: &mut u64) -> Packing {
        let pods = left.pods;
        let mut run = Run {
            strategy,
            by_resource,
            left,
            limit,
            packing: Packing::default(),
            bounds: BinaryHeap::new(),
            forced: None,
            few: self.few.len() < self.promising.len(),
        };
        self.initialize_bounds(&mut run);
        let mut nodes = 0;
        // One node for all pods that remain after a number of patterns.
        let mut best: Option<(Score, usize, Pattern)> = None;
        loop {
            if let Some(last) = self.last(&run.left, &run.limit) {
                let cost = run.packing.cost.saturating_add(last.price);
                let score = Score::of_placed(pods, cost, nodes + 1);
                if best.as_ref().is_none_or(|(known, ..)| score < *known) {
                    best = Some((score, run.packing.patterns.len(), last));
                }
            }
            let Some((offering, filled)) = self.next(&mut run, work) else { break };
            let copies = run.left.times(&filled.take).max(1);
            if let Some(pattern) = self.pattern(offering, &filled, copies, &run.limit) {
                nodes += pattern.copies;
                run.packing.push(self, &mut run.left, &mut run.limit, pattern);
                run.bounds.push(CandidateBound { rate: filled.rate, offering, filled: Some(filled) });
            }
        }
        let mut packing = run.packing;
        if let Some((score, patterns, last)) = best.filter(|(score, ..)| *score < packing.score()) {
            packing.patterns.truncate(patterns);
            packing.patterns.push(last);
            (packing.placed, packing.cost) = (pods, score.price());
        }
        packing
    }

    /// The cheapest node that can run all remaining pods.
    fn last(&self, left: &Left, limit: &Headroom) -> Option<Pattern> {
        if left.pods == 0 || !fits(&left.load, &self.most) {
            return None;
        }
        for offering in &self.candidates {
            if !fits(&left.load, self.room(*offering)) || !self.affordable(*offering, limit) {
                continue;
            }
            if !left.items().all(|item| self.class(item).any.has(*offering)) {
                continue;
            }
            let filled = self.fill(*offering, left, &mut 0);
            if filled.take.iter().map(|(_, n)| n).sum::<usize>() == left.pods {
                return self.pattern(*offering, &filled, 1, limit);
            }
        }
        None
    }

    pub(super) fn affordable(&self, offering: Id<Offering>, limit: &Headroom) -> bool {
        limits::allows(limit, self.view.capacity(offering))
    }

    /// The largest fraction of any limit's headroom that a node of the offering uses.
    #[expect(clippy::cast_precision_loss, reason = "weights of a heuristic")]
    fn share_of_limits(&self, offering: Id<Offering>, limit: &Headroom) -> f64 {
        let shares = limit.iter().zip(self.view.capacity(offering));
        shares.map(|(room, amount)| room.map_or(0.0, |room| *amount as f64 / room.max(1) as f64)).fold(EQUAL, f64::max)
    }

    /// Initializes the upper bounds of all candidates.
    fn initialize_bounds(&self, run: &mut Run) {
        run.bounds.clear();
        run.forced = match run.strategy {
            Strategy::LargestFirst => run.left.largest(),
            Strategy::Efficient | Strategy::Frugal | Strategy::JoinersFirst => None,
        };
        let known = run.by_resource && run.strategy != Strategy::Frugal;
        let idle = self.idle(&run.left);
        let looked = if run.few { &self.few } else { &self.promising };
        for (offering, most) in looked.iter().filter(|(offering, _)| !idle.has(*offering)) {
            if run.forced.is_none_or(|item| self.class(item).any.has(*offering)) {
                // At resource prices, no filling is worth more than the node's capacity.
                let rate = if known { *most } else { f64::INFINITY };
                run.bounds.push(CandidateBound { rate, offering: *offering, filled: None });
            }
        }
    }

    /// Candidates that are not needed, because a cheaper one can run all remaining pods, too.
    fn idle(&self, left: &Left) -> Bits<Offering> {
        let mut idle = Bits::none(self.view.offerings.len());
        // With limits, the smaller node may be better.
        if self.limited {
            return idle;
        }
        let mut enough: Vec<Id<Offering>> = Vec::new();
        for offering in self.candidates.iter().copied().filter(|one| fits(&left.load, self.room(*one))) {
            if enough.iter().any(|other| self.is_as_open(*other, offering)) {
                idle.insert(offering);
            } else {
                enough.push(offering);
            }
        }
        idle
    }

    fn next(&self, run: &mut Run, work: &mut u64) -> Option<(Id<Offering>, Filled)> {
        let found = self.next_of(run, work);
        if found.is_some() || !run.few || run.left.pods == 0 {
            return found;
        }
        // The remaining pods may need another candidate.
        run.few = false;
        self.initialize_bounds(run);
        self.next_of(run, work)
    }

    /// The best node of the current candidates.
    fn next_of(&self, run: &mut Run, work: &mut u64) -> Option<(Id<Offering>, Filled)> {
        let largest = run.left.largest()?;
        if run.forced.is_some_and(|item| item != largest) {
            self.initialize_bounds(run);
        }
        while let Some(bound) = run.bounds.pop() {
            if !self.affordable(bound.offering, &run.limit) {
                continue;
            }
            // A cached filling of the frugal strategy may be outdated, since its rate depends on the headroom.
            if let Some(filled) = bound.filled.filter(|_| run.strategy != Strategy::Frugal)
                && run.left.times(&filled.take) > 0
                && run.forced.is_none_or(|item| filled.takes(item))
            {
                return Some((bound.offering, filled));
            }
            let mut filled = match run.strategy {
                Strategy::JoinersFirst => self.fill_joiners_first(bound.offering, &run.left, work),
                _ => self.fill(bound.offering, &run.left, work),
            };
            if filled.take.is_empty() || run.forced.is_some_and(|item| !filled.takes(item)) {
                continue;
            }
            filled.rate = self.rate(run, bound.offering, &filled);
            if run.bounds.peek().is_none_or(|next| filled.rate >= next.rate) {
                return Some((bound.offering, filled));
            }
            run.bounds.push(CandidateBound { rate: filled.rate, offering: bound.offering, filled: Some(filled) });
        }
        None
    }

    #[expect(clippy::cast_precision_loss, reason = "weights of a heuristic")]
    fn rate(&self, run: &Run, offering: Id<Offering>, filled: &Filled) -> f64 {
        let worth = worth_of(&filled.take, if run.by_resource { &self.by_resource } else { &self.by_share });
        match run.strategy {
            Strategy::Frugal => worth / self.share_of_limits(offering, &run.limit),
            // All joining pods having a place is worth more than a low price.
            Strategy::JoinersFirst => self.joined_share(run, filled).powi(4) * worth / self.counts(offering) as f64,
            Strategy::Efficient | Strategy::LargestFirst => worth / self.counts(offering) as f64,
        }
    }

    /// At most 1: how many joining pods a node takes, compared with how many each node with a pod that they join has to
    /// take so that all of them have a place.
    #[expect(clippy::cast_precision_loss, reason = "weights of a heuristic")]
    fn joined_share(&self, run: &Run, filled: &Filled) -> f64 {
        let taken = |wanted: Id<Entry>| filled.take.iter().find(|(item, _)| *item == wanted).map_or(0, |(_, n)| *n);
        let share = |joiner: Id<Entry>| {
            let joined = self.joined_by(joiner, &run.left).next()?;
            let nodes = if self.items[joined].on_one_node { 1 } else { run.left.counts[joined] / taken(joined).max(1) };
            (taken(joined) > 0).then(|| (taken(joiner) * nodes) as f64 / run.left.counts[joiner] as f64)
        };
        let joiners = run.left.items().filter(|item| self.class(*item).seeks_host);
        joiners.filter_map(share).fold(1.0, f64::min)
    }
}

impl Packing {
    pub(super) fn push(&mut self, packer: &Packer<'_, '_>, left: &mut Left, limit: &mut Headroom, pattern: Pattern) {
        left.take(packer, &pattern.take, pattern.copies);
        self.placed += pattern.take.iter().map(|(_, n)| n * pattern.copies).sum::<usize>();
        limits::take(limit, &pattern.charge, pattern.copies);
        let copies = i64::try_from(pattern.copies).unwrap_or(i64::MAX);
        self.cost = self.cost.saturating_add(pattern.price.saturating_mul(copies));
        self.patterns.push(pattern);
    }
}
