//! Which nodes of one pool to buy for which groups: patterns (what one node of an offering takes), chosen by price of what is placed.

use crate::custom::{Narrowed, combine};
use crate::intern::{Amounts, Bits, add, fits, how_many};
use crate::offerings::PoolView;
use crate::world::World;
use plimsoll_model::snapshot::HostPort;
use std::cmp::Reverse;

/// Pods of one shape that want a place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) shape: usize,
    pub(crate) count: usize,
}

/// `copies` nodes with the same pods each.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    /// The offering it was made for: what it counts against limits.
    pub(crate) offering: usize,
    pub(crate) copies: usize,
    /// Shape and number of pods, per node.
    pub(crate) take: Vec<(usize, usize)>,
    pub(crate) load: Amounts,
    pub(crate) custom: Narrowed,
    /// Offerings that all pods accept and that have room, cheapest first by number.
    pub(crate) accept: Bits,
}

/// One way to serve the items.
#[derive(Debug, Clone, Default)]
pub(crate) struct Packing {
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) placed: usize,
    pub(crate) cost: i64,
    pub(crate) exhausted: bool,
}

/// How patterns are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    /// Most worth per price, a pod's worth being its share of the best node of its own kind.
    Efficient,
    /// The same, but each node must take the largest pod that is left.
    LargestFirst,
    /// Each shape for itself.
    PerShape,
    /// The cheapest node that takes all that is left, or else the most efficient.
    FewNodes,
}

const STRATEGIES: [Strategy; 4] = [Strategy::Efficient, Strategy::LargestFirst, Strategy::PerShape, Strategy::FewNodes];

/// The best of all strategies: most pods, then cheapest, then fewest nodes. `limit` is what the pool may still grow by.
pub(crate) fn pack(
    world: &World<'_>,
    pool: usize,
    items: &[Item],
    limit: &[Option<i64>],
    work: &mut u64,
    below: Option<i64>,
) -> Packing {
    let Some(packer) = Packer::new(world, pool, items, limit, below) else { return Packing::default() };
    let mut best = Packing::default();
    for strategy in STRATEGIES {
        let found = packer.run(strategy, limit, work);
        let rank = |one: &Packing| {
            (Reverse(one.placed), one.cost, one.patterns.iter().map(|pattern| pattern.copies).sum::<usize>())
        };
        if rank(&found) < rank(&best) {
            best = found;
        }
        if *work == 0 {
            best.exhausted = true;
            break;
        }
    }
    best
}

struct Packer<'w, 'a> {
    world: &'w World<'a>,
    view: &'w PoolView<'a>,
    pool: usize,
    /// Largest first.
    items: Vec<Item>,
    /// Worth of one pod of each item.
    worth: Vec<f64>,
    candidates: Vec<usize>,
    below: Option<i64>,
}

/// What one node of an offering would take: indices into the packer's items.
struct Filled {
    take: Vec<(usize, usize)>,
    load: Amounts,
    custom: Narrowed,
}

impl<'w, 'a> Packer<'w, 'a> {
    fn new(
        world: &'w World<'a>,
        pool: usize,
        items: &[Item],
        limit: &[Option<i64>],
        below: Option<i64>,
    ) -> Option<Self> {
        let view = world.pools.get(pool)?;
        let mut items: Vec<Item> =
            items.iter().copied().filter(|item| !world.shapes[item.shape].fits[pool].is_empty()).collect();
        if items.is_empty() {
            return None;
        }
        let most =
            view.usable.iter().fold(vec![1; world.table.vector(&Default::default()).len()], |mut most, index| {
                for (top, room) in most.iter_mut().zip(&view.offerings[index].room) {
                    *top = (*top).max(*room);
                }
                most
            });
        let size = |item: &Item| {
            let shares = world.shapes[item.shape].requests.iter().zip(&most);
            shares.map(|(need, top)| i128::from(*need) * 1_000_000_000 / i128::from(*top)).max().unwrap_or(0)
        };
        items.sort_by_key(|item| (Reverse(size(item)), item.shape));
        let mut packer = Self { world, view, pool, items, worth: Vec::new(), candidates: Vec::new(), below };
        packer.candidates = packer.candidates(limit);
        packer.worth = (0..packer.items.len()).map(|item| packer.worth_of(item)).collect();
        Some(packer)
    }

    fn accepts(&self, item: usize, offering: usize) -> bool {
        let fits = &self.world.shapes[self.items[item].shape].fits[self.pool];
        fits.iter().any(|one| one.offerings.has(offering))
    }

    /// Offerings worth trying: one is left out if a cheaper one of at least its room suits all the same items.
    fn candidates(&self, limit: &[Option<i64>]) -> Vec<usize> {
        let limited = limit.iter().any(Option::is_some);
        let mut kept: Vec<(usize, Bits)> = Vec::new();
        for offering in self.view.usable.iter() {
            if self.below.is_some_and(|price| self.view.price(offering) >= price) {
                continue;
            }
            let suits = Bits::of(self.items.len(), |item| self.accepts(item, offering));
            let this = &self.view.offerings[offering];
            let worse = kept.iter().any(|(other, theirs)| {
                let other = &self.view.offerings[*other];
                theirs.covers(&suits)
                    && this.room.iter().zip(&other.room).all(|(mine, theirs)| mine <= theirs)
                    && (!limited
                        || self.view.types[other.type_index].capacity <= self.view.types[this.type_index].capacity)
                    && other.ports.len() <= this.ports.len()
            });
            if !suits.is_empty() && !worse {
                kept.push((offering, suits));
            }
        }
        kept.into_iter().map(|(offering, _)| offering).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "a heuristic's weight")]
    fn worth_of(&self, item: usize) -> f64 {
        let pods = &self.world.shapes[self.items[item].shape];
        let per_pod = |offering: usize| {
            let most = if pods.shape.host_ports.is_empty() { usize::MAX >> 16 } else { 1 };
            let count = how_many(&pods.requests, &self.view.offerings[offering].room, most).max(1);
            self.view.price(offering).max(1) as f64 / count as f64
        };
        let accepted = self.candidates.iter().filter(|offering| self.accepts(item, **offering));
        accepted.map(|offering| per_pod(*offering)).fold(f64::INFINITY, f64::min)
    }

    fn run(&self, strategy: Strategy, limit: &[Option<i64>], work: &mut u64) -> Packing {
        let mut left: Vec<usize> = self.items.iter().map(|item| item.count).collect();
        let mut limit = limit.to_vec();
        let mut packing = Packing::default();
        while let Some((offering, filled)) = self.best(strategy, &left, &limit, work) {
            let mut copies = filled.take.iter().map(|(item, n)| left[*item] / n).min().unwrap_or(0).max(1);
            let capacity = &self.view.types[self.view.offerings[offering].type_index].capacity;
            for (room, amount) in limit.iter().zip(capacity) {
                if let (Some(room), 1..) = (room, *amount) {
                    copies = copies.min(usize::try_from(room / amount).unwrap_or(0));
                }
            }
            let pattern = self.pattern(offering, filled, copies);
            let known = crate::select::acceptable(self.view, &pattern.accept);
            if copies == 0 || known.is_none() {
                packing.exhausted = *work == 0;
                break;
            }
            for (item, n) in left.iter_mut().enumerate() {
                let shape = self.items[item].shape;
                let taken = pattern.take.iter().find(|(one, _)| *one == shape).map_or(0, |(_, count)| count * copies);
                *n -= taken;
                packing.placed += taken;
            }
            for (room, amount) in limit.iter_mut().zip(capacity) {
                if let Some(room) = room {
                    *room = room.saturating_sub(amount.saturating_mul(i64::try_from(copies).unwrap_or(i64::MAX)));
                }
            }
            let price = if limit.iter().any(Option::is_some) {
                self.view.price(offering)
            } else {
                pattern.accept.iter().next().map_or(0, |cheapest| self.view.price(cheapest))
            };
            packing.cost = packing.cost.saturating_add(price.saturating_mul(i64::try_from(copies).unwrap_or(i64::MAX)));
            packing.patterns.push(pattern);
        }
        packing
    }

    #[expect(clippy::cast_precision_loss, reason = "a heuristic's weight")]
    fn best(
        &self,
        strategy: Strategy,
        left: &[usize],
        limit: &[Option<i64>],
        work: &mut u64,
    ) -> Option<(usize, Filled)> {
        let largest = left.iter().position(|count| *count > 0)?;
        let mut best: Option<(f64, usize, Filled)> = None;
        for offering in &self.candidates {
            let view = &self.view.offerings[*offering];
            let capacity = &self.view.types[view.type_index].capacity;
            if limit.iter().zip(capacity).any(|(room, amount)| *amount > 0 && room.is_some_and(|room| room < *amount)) {
                continue;
            }
            *work = work.saturating_sub(left.len() as u64);
            if *work == 0 {
                return None;
            }
            let only = (strategy == Strategy::PerShape).then_some(largest);
            let filled = self.fill(*offering, left, only);
            if filled.take.is_empty() || (strategy == Strategy::LargestFirst && !filled.takes(largest)) {
                continue;
            }
            let everything = left.iter().enumerate().all(|(item, n)| *n == 0 || filled.count(item) == *n);
            if strategy == Strategy::FewNodes && everything {
                // Candidates come cheapest first.
                return Some((*offering, filled));
            }
            let worth: f64 = filled.take.iter().map(|(item, n)| self.worth[*item] * *n as f64).sum();
            let efficiency = worth / self.view.price(*offering).max(1) as f64;
            if best.as_ref().is_none_or(|(known, _, _)| efficiency > known * (1.0 + 1e-9)) {
                best = Some((efficiency, *offering, filled));
            }
        }
        best.map(|(_, offering, filled)| (offering, filled))
    }

    fn fill(&self, offering: usize, left: &[usize], only: Option<usize>) -> Filled {
        let view = &self.view.offerings[offering];
        let mut room = view.room.clone();
        let mut ports: Vec<HostPort> = view.ports.clone();
        let mut filled = Filled { take: Vec::new(), load: vec![0; room.len()], custom: Narrowed::new() };
        for (item, count) in left.iter().enumerate() {
            if *count == 0 || only.is_some_and(|one| one != item) {
                continue;
            }
            let pods = &self.world.shapes[self.items[item].shape];
            let fitting = pods.fits[self.pool].iter().filter(|one| one.offerings.has(offering));
            let Some(custom) = fitting.filter_map(|one| combine(&filled.custom, &one.custom)).next() else { continue };
            let mut n = how_many(&pods.requests, &room, *count);
            if !pods.shape.host_ports.is_empty() && n > 0 {
                let taken = pods.shape.host_ports.iter().any(|port| ports.iter().any(|other| other.conflicts(port)));
                n = usize::from(!taken);
            }
            if n == 0 {
                continue;
            }
            let times = i64::try_from(n).unwrap_or(i64::MAX);
            add(&mut room, &pods.requests, -times);
            add(&mut filled.load, &pods.requests, times);
            ports.extend(pods.shape.host_ports.iter().cloned());
            filled.custom = custom;
            filled.take.push((item, n));
        }
        filled
    }

    fn pattern(&self, offering: usize, filled: Filled, copies: usize) -> Pattern {
        let mut accept = self.view.usable.clone();
        let mut ports: Vec<&HostPort> = Vec::new();
        for (item, _) in &filled.take {
            let pods = &self.world.shapes[self.items[*item].shape];
            let mut any = Bits::none(self.view.offerings.len());
            // Only alternatives that the bin's open labels, as narrowed so far, still satisfy.
            for one in &pods.fits[self.pool] {
                if combine(&filled.custom, &one.custom).as_ref() == Some(&filled.custom) {
                    any.join(&one.offerings);
                }
            }
            accept.keep(&any);
            ports.extend(&pods.shape.host_ports);
        }
        accept.keep(&Bits::of(self.view.offerings.len(), |index| {
            let view = &self.view.offerings[index];
            accept.has(index)
                && fits(&filled.load, &view.room)
                && self.below.is_none_or(|price| self.view.price(index) < price)
                && !ports.iter().any(|port| view.ports.iter().any(|other| other.conflicts(port)))
        }));
        let take = filled.take.iter().map(|(item, n)| (self.items[*item].shape, *n)).collect();
        Pattern { offering, copies, take, load: filled.load, custom: filled.custom, accept }
    }
}

impl Filled {
    fn takes(&self, item: usize) -> bool {
        self.take.iter().any(|(one, _)| *one == item)
    }

    fn count(&self, item: usize) -> usize {
        self.take.iter().find(|(one, _)| *one == item).map_or(0, |(_, n)| *n)
    }
}
