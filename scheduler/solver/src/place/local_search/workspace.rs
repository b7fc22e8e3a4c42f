//! The launches during local search, with an undo log.

use super::bins::{Bin, BinId, BinKind, BinKinds, Bins, Part};
use crate::input::context::SolveContext;
use crate::input::intern::how_many;
use crate::place::limits::{self, Headroom, give};
use crate::score::PER_NODE;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::NodePool;

/// Maximum number of price lookups, each of some microseconds. Small plans get more, since one node is a large part of
/// their cost. Larger plans must not take much longer because of the search.
const PRICE_LOOKUPS: (usize, usize) = (5_000, 2_000);

pub(super) struct Workspace<'w, 'a> {
    pub(super) context: &'w SolveContext<'a>,
    pub(super) kinds: BinKinds,
    pub(super) bins: Bins<'a>,
    pub(super) headroom: IndexVec<NodePool, Headroom>,
    pub(super) price_lookups: usize,
    /// Minimum price per pod of each kind, on nodes that run only this kind.
    pub(super) share: IndexVec<BinKind, i64>,
}

pub(super) struct Log<'a> {
    before: Vec<(BinId, Option<Bin<'a>>)>,
    headroom: IndexVec<NodePool, Headroom>,
    len: usize,
    /// Cost of all changes so far.
    pub(super) cost: i64,
}

/// A possible target of some pods.
struct Choice {
    /// An existing launch, or `None` for a new node of the pool.
    bin: Option<BinId>,
    pool: Id<NodePool>,
    n: usize,
    /// Price per pod, in thousandths of a micro-USD per hour.
    rate: i64,
}

impl<'w, 'a> Workspace<'w, 'a> {
    pub(super) fn new(
        context: &'w SolveContext<'a>,
        kinds: BinKinds,
        bins: Bins<'a>,
        headroom: IndexVec<NodePool, Headroom>,
        small: bool,
    ) -> Self {
        let share = kinds.iter().map(|kind| share(context, kind)).collect();
        let price_lookups = if small { PRICE_LOOKUPS.0 } else { PRICE_LOOKUPS.1 };
        Self { context, kinds, bins, headroom, price_lookups, share }
    }

    pub(super) fn log(&self) -> Log<'a> {
        Log { before: Vec::new(), headroom: self.headroom.clone(), len: self.bins.len(), cost: 0 }
    }

    pub(super) fn rollback(&mut self, log: Log<'a>) {
        for (index, bin) in log.before.into_iter().rev() {
            self.bins[index] = bin;
        }
        self.bins.as_mut_vec().truncate(log.len);
        self.headroom = log.headroom;
    }

    fn counts(&self, bin: &Bin<'_>) -> i64 {
        bin.price(self.context).saturating_add(PER_NODE)
    }

    /// Removes a launch and returns its pods.
    pub(super) fn remove(&mut self, index: BinId, log: &mut Log<'a>) -> Vec<Part<'a>> {
        let Some(bin) = self.bins[index].take() else { return Vec::new() };
        log.cost -= self.counts(&bin);
        give(&mut self.headroom[bin.pool], &bin.charge);
        limits::share(self.context, &mut self.headroom, bin.pool);
        let parts = bin.parts.clone();
        log.before.push((index, Some(bin)));
        parts
    }

    /// Replaces a removed launch, or appends a new one.
    pub(super) fn put(&mut self, index: Option<BinId>, bin: Bin<'a>, log: &mut Log<'a>) {
        log.cost += self.counts(&bin);
        limits::take(&mut self.headroom[bin.pool], &bin.charge, 1);
        limits::share(self.context, &mut self.headroom, bin.pool);
        match index {
            Some(index) => {
                log.before.push((index, None));
                self.bins[index] = Some(bin);
            }
            None => {
                self.bins.push(Some(bin));
            }
        }
    }

    /// Launches that were changed or added.
    pub(super) fn changed<'l>(&'l self, log: &'l Log<'a>) -> impl Iterator<Item = &'l Bin<'a>> + 'l {
        let old = log.before.iter().map(|(index, _)| *index).filter(|index| index.number() < log.len);
        old.chain(self.bins.ids().skip(log.len)).filter_map(|index| self.bins[index].as_ref())
    }

    /// Places the pods on `targets`, launches that were added, and new launches. Returns false if they do not all fit.
    pub(super) fn insert(&mut self, part: Part<'a>, targets: &[BinId], log: &mut Log<'a>) -> bool {
        let mut pods = part.pods;
        while !pods.is_empty() {
            let Some(choice) = self.choose(part.kind, pods.len(), targets, log.len) else { return false };
            let some = Part { kind: part.kind, pods: pods.drain(..choice.n).collect() };
            let mut bin = match choice.bin {
                Some(index) => {
                    let Some(bin) = self.bins[index].clone() else { return false };
                    self.remove(index, log);
                    bin
                }
                None => Bin::empty(self.context, choice.pool),
            };
            let room = &self.headroom[choice.pool];
            if bin.extend(self.context, &self.kinds, some).is_none()
                || bin.choose_offering(self.context, room).is_none()
            {
                return false;
            }
            self.put(choice.bin, bin, log);
        }
        true
    }

    /// The target with the lowest price per pod. Among equal targets, the one for the most pods, and existing launches
    /// before new ones.
    fn choose(&mut self, kind: Id<BinKind>, count: usize, targets: &[BinId], added: usize) -> Option<Choice> {
        let on_one_node = self.kinds[kind].on_one_node;
        let mut best: Option<Choice> = None;
        let mut offer = |choice: Choice| {
            let worse = |known: &Choice| (choice.rate, known.n) < (known.rate, choice.n);
            if choice.n > 0 && (!on_one_node || choice.n == count) && best.as_ref().is_none_or(worse) {
                best = Some(choice);
            }
        };
        let (context, kinds) = (self.context, &self.kinds);
        let requests = context.shapes[kinds[kind].shape].requests;
        for index in targets.iter().copied().chain(self.bins.ids().skip(added)) {
            let Some(bin) = &self.bins[index] else { continue };
            let most = bin.admission(context, &kinds[kind], count);
            if most == 0 {
                continue;
            }
            let mut room = self.headroom[bin.pool].clone();
            give(&mut room, &bin.charge);
            let spare = bin.spare(context, requests, most);
            let mut asked = vec![spare, most, 1];
            asked.dedup();
            for n in asked.into_iter().filter(|n| *n > 0) {
                self.price_lookups = self.price_lookups.saturating_sub(1);
                if let Some(offering) = bin.with(context, &kinds[kind], n, &room) {
                    let more = context.pools[bin.pool].price(offering) - bin.price(context);
                    offer(Choice { bin: Some(index), pool: bin.pool, n, rate: rate(more, n) });
                }
            }
        }
        if let Some(choice) = self.alone(kind, count) {
            offer(choice);
        }
        best
    }

    /// A new launch of the highest weight of pools that can have one. Of several such pools, that with the lowest price
    /// per pod.
    fn alone(&mut self, kind: Id<BinKind>, count: usize) -> Option<Choice> {
        let context = self.context;
        let one = &self.kinds[kind];
        let shape = &context.shapes[one.shape];
        let mut found: Option<Choice> = None;
        for (pool, fits) in one.fits.iter_enumerated() {
            let view = &context.pools[pool];
            if found.as_ref().is_some_and(|known| context.pools[known.pool].pool.weight > view.pool.weight) {
                break;
            }
            let most = Bin::empty(context, pool).admission(context, one, count);
            let mut best: Option<(i64, std::cmp::Reverse<usize>)> = None;
            for offering in fits.iter().flat_map(|one| one.offerings.iter()) {
                let room = &view.offerings[offering].room;
                let n = how_many(shape.requests, room, most);
                let fitting = if one.on_one_node { n == count } else { n > 0 };
                let allowed = || {
                    one.may_use(context, pool, offering)
                        && limits::allows(&self.headroom[pool], view.capacity(offering))
                };
                if fitting && allowed() {
                    let here = (rate(view.price(offering).saturating_add(PER_NODE), n), std::cmp::Reverse(n));
                    best = Some(best.map_or(here, |known| known.min(here)));
                }
            }
            self.price_lookups = self.price_lookups.saturating_sub(1);
            if let Some((rate, std::cmp::Reverse(n))) = best
                && found.as_ref().is_none_or(|known| (rate, known.n) < (known.rate, n))
            {
                found = Some(Choice { bin: None, pool, n, rate });
            }
        }
        found
    }
}

fn rate(cost: i64, n: usize) -> i64 {
    cost.saturating_mul(1000) / i64::try_from(n).unwrap_or(i64::MAX).max(1)
}

fn share(context: &SolveContext<'_>, kind: &BinKind) -> i64 {
    let shape = &context.shapes[kind.shape];
    let of_pool = |(pool, fits): (Id<NodePool>, &Vec<crate::input::offerings::Alternative>)| {
        let view = &context.pools[pool];
        let offerings = fits.iter().flat_map(|one| one.offerings.iter());
        let offerings = offerings.filter(|offering| kind.may_use(context, pool, *offering));
        let rates = offerings.filter_map(|index| {
            let n = how_many(shape.requests, &view.offerings[index].room, shape.most_alone);
            (n > 0).then(|| view.price(index) / i64::try_from(n).unwrap_or(i64::MAX))
        });
        rates.min()
    };
    kind.fits.iter_enumerated().filter_map(of_pool).min().unwrap_or(0)
}
