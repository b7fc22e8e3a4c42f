//! Which nodes of one pool to buy for which lots: patterns (what one node of an offering takes), chosen by price of what is placed.

mod filling;
mod improve;
mod run;

use crate::custom::Narrowed;
use crate::duals;
use crate::intern::{Amounts, Bits, how_many};
use crate::limits::Headroom;
use crate::lots::Only;
use crate::offerings::{Alternative, PoolView};
use crate::world::World;
use std::cmp::Reverse;

/// Pods of one lot that want a place.
#[derive(Debug, Clone)]
pub(crate) struct Item<'l> {
    /// The caller's number.
    pub(crate) lot: usize,
    pub(crate) shape: usize,
    pub(crate) count: usize,
    pub(crate) only: Option<&'l Only>,
    pub(crate) whole: bool,
}

/// `copies` nodes with the same pods each.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) copies: usize,
    /// Lot and number of pods, per node.
    pub(crate) take: Vec<(usize, usize)>,
    pub(crate) load: Amounts,
    pub(crate) custom: Narrowed,
    /// What one node counts against limits at most, unless it is allowed more.
    pub(crate) charge: Amounts,
    /// Offerings that all pods accept and that have room, cheapest first by number; limits not looked at. Known once the packing is.
    pub(crate) accept: Bits,
    /// The cheapest of them within `charge`.
    pub(crate) price: i64,
}

/// One way to serve the items.
#[derive(Debug, Clone, Default)]
pub(crate) struct Packing {
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) placed: usize,
    pub(crate) cost: i64,
}

impl Packing {
    /// Most pods, then cheapest, then fewest nodes.
    fn rank(&self) -> (Reverse<usize>, i64, usize) {
        (Reverse(self.placed), self.cost, self.patterns.iter().map(|pattern| pattern.copies).sum())
    }
}

/// How patterns are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    /// Most worth per price.
    Efficient,
    /// The same, but each node must take the largest pod that is left.
    LargestFirst,
    /// Each lot for itself.
    PerLot,
    /// Most worth for what it takes of the pool's limits.
    Frugal,
}

/// The best of all strategies. `limit` is what the pool may still grow by.
pub(crate) fn pack(world: &World<'_>, pool: usize, items: &[Item<'_>], limit: &Headroom, work: &mut u64) -> Packing {
    let Some(packer) = Packer::new(world, pool, items, limit) else { return Packing::default() };
    let left: Vec<usize> = packer.items.iter().map(|item| item.count).collect();
    let best = packer.best_of(&left, limit, work);
    improve::improve(&packer, best, limit, work).named(&packer)
}

/// An item with all that fills look at.
struct Entry<'l> {
    item: Item<'l>,
    count: usize,
    /// Where it can run at all.
    any: Bits,
    /// By demand on open labels.
    alternatives: Vec<Alternative>,
    /// There is just one demand: none.
    plain: bool,
}

struct Packer<'w, 'a, 'l> {
    world: &'w World<'a>,
    view: &'w PoolView<'a>,
    /// Largest first.
    items: Vec<Entry<'l>>,
    /// Offerings worth trying, cheapest first.
    candidates: Vec<usize>,
    /// Worth of one pod of each item: at the prices of resources, and as its share of the best node of its own kind.
    by_resource: Vec<f64>,
    by_share: Vec<f64>,
    /// Candidates by the worth that their room can hold per price, the most first, with that worth.
    promising: Vec<(usize, f64)>,
}

impl<'w, 'a, 'l> Packer<'w, 'a, 'l> {
    fn new(world: &'w World<'a>, pool: usize, items: &[Item<'l>], limit: &Headroom) -> Option<Self> {
        let view = world.pools.get(pool)?;
        let mut entries: Vec<Entry<'l>> = items.iter().map(|item| entry(world, pool, item)).collect();
        entries.retain(|entry| !entry.any.is_empty());
        let mut packer = Self {
            world,
            view,
            items: entries,
            candidates: Vec::new(),
            by_resource: Vec::new(),
            by_share: Vec::new(),
            promising: Vec::new(),
        };
        if packer.items.is_empty() {
            return None;
        }
        packer.sort();
        packer.candidates = packer.candidates(limit);
        for index in 0..packer.items.len() {
            packer.fit_whole(index);
        }
        packer.weigh();
        Some(packer)
    }

    fn requests(&self, item: usize) -> &'w Amounts {
        &self.world.shapes[self.items[item].item.shape].requests
    }

    fn room(&self, offering: usize) -> &'w Amounts {
        &self.view.offerings[offering].room
    }

    /// Largest first, by the share of the largest room in any resource.
    fn sort(&mut self) {
        let mut most = vec![1; self.world.table.len()];
        for index in self.view.usable.iter() {
            most.iter_mut().zip(self.room(index)).for_each(|(top, room)| *top = (*top).max(*room));
        }
        let shapes = &self.world.shapes;
        let size = |entry: &Entry<'_>| {
            let shares = shapes[entry.item.shape].requests.iter().zip(&most);
            shares.map(|(need, top)| i128::from(*need) * 1_000_000_000 / i128::from(*top)).max().unwrap_or(0)
        };
        self.items.sort_by_key(|entry| (Reverse(size(entry)), entry.item.shape, entry.item.lot));
    }

    /// A whole lot that is too much for any node is cut to what one can take: the rest finds no place.
    fn fit_whole(&mut self, index: usize) {
        let entry = &self.items[index];
        if !entry.item.whole {
            return;
        }
        let requests = self.requests(index);
        let most = entry.any.iter().map(|offering| how_many(requests, self.room(offering), entry.count)).max();
        self.items[index].count = most.unwrap_or(0);
    }

    /// Offerings worth trying: one is left out if a cheaper one of at least its room suits all the same items.
    fn candidates(&self, limit: &Headroom) -> Vec<usize> {
        let limited: Vec<usize> = (0..limit.len()).filter(|index| limit[*index].is_some()).collect();
        let mut suits: Vec<Bits> = vec![Bits::none(self.items.len()); self.view.offerings.len()];
        for (index, entry) in self.items.iter().enumerate() {
            entry.any.iter().for_each(|offering| suits[offering].insert(index));
        }
        let mut kept: Vec<usize> = Vec::new();
        for offering in self.view.usable.iter().filter(|offering| !suits[*offering].is_empty()) {
            let this = &self.view.offerings[offering];
            let mine = &self.view.types[this.type_index].capacity;
            let worse = kept.iter().rev().any(|other| {
                let that = &self.view.offerings[*other];
                let theirs = &self.view.types[that.type_index].capacity;
                this.room.iter().zip(&that.room).all(|(mine, theirs)| mine <= theirs)
                    && suits[*other].covers(&suits[offering])
                    && limited.iter().all(|index| theirs[*index] <= mine[*index])
                    && that.ports.len() <= this.ports.len()
            });
            if !worse {
                kept.push(offering);
            }
        }
        kept
    }

    #[expect(clippy::cast_precision_loss, reason = "weights of a heuristic")]
    fn weigh(&mut self) {
        let mut demand = vec![0; self.world.table.len()];
        for (index, entry) in self.items.iter().enumerate() {
            crate::intern::add(&mut demand, self.requests(index), i64::try_from(entry.count).unwrap_or(i64::MAX));
        }
        let rows: Vec<(i64, &Amounts)> =
            self.candidates.iter().map(|index| (self.view.price(*index), self.room(*index))).collect();
        let prices = duals::resource_prices(&rows, &demand);
        self.by_resource = (0..self.items.len()).map(|item| duals::worth(&prices, self.requests(item))).collect();
        self.by_share = (0..self.items.len()).map(|item| self.share(item)).collect();
        let rate = |index: usize| duals::worth(&prices, self.room(index)) / self.view.price(index).max(1) as f64;
        self.promising = self.candidates.iter().map(|index| (*index, rate(*index))).collect();
        self.promising.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    }

    /// The least that one pod of the item pays on nodes of its own kind.
    #[expect(clippy::cast_precision_loss, reason = "weights of a heuristic")]
    fn share(&self, item: usize) -> f64 {
        let shape = &self.world.shapes[self.items[item].item.shape];
        let most = if shape.shape.host_ports.is_empty() { usize::MAX >> 16 } else { 1 };
        let most =
            most.min(crate::hosts::Tally::default().limit(&self.world.topology.host_rules, &shape.hosts, true)).max(1);
        let per_pod = |offering: usize| {
            let count = how_many(&shape.requests, self.room(offering), most).max(1);
            self.view.price(offering).max(1) as f64 / count as f64
        };
        let accepted = self.candidates.iter().filter(|offering| self.items[item].any.has(**offering));
        accepted.map(|offering| per_pod(*offering)).fold(f64::INFINITY, f64::min)
    }
}

fn entry<'l>(world: &World<'_>, pool: usize, item: &Item<'l>) -> Entry<'l> {
    let alternatives = world.narrowed(item.shape, pool, item.only);
    let mut any = Bits::none(world.pools[pool].offerings.len());
    alternatives.iter().for_each(|one| any.join(&one.offerings));
    let plain = alternatives.iter().all(|one| one.custom.is_empty());
    Entry { item: item.clone(), count: item.count, any, alternatives, plain }
}

impl Packing {
    /// With all offerings that would do, and the caller's numbers of lots instead of the packer's.
    fn named(mut self, packer: &Packer<'_, '_, '_>) -> Self {
        for pattern in &mut self.patterns {
            pattern.accept = packer.accept(pattern);
            pattern.take.iter_mut().for_each(|(item, _)| *item = packer.items[*item].item.lot);
        }
        self
    }
}
