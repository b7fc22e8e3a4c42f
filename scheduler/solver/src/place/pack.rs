//! Which nodes of one pool to buy for which pod groups: patterns (what one node of an offering takes), chosen by price of what is placed.

mod accept;
mod filling;
mod improve;
mod items;
mod lazy;
mod left;
mod rounding;
mod run;

use crate::bound::resource_prices;
use crate::input::context::SolveContext;
use crate::input::custom_labels::Narrowed;
use crate::input::grid::Grid;
use crate::input::intern::{Amounts, Bits, how_many};
use crate::input::offerings::PoolView;
use crate::place::columns::rules;
use crate::place::limits::Headroom;
use crate::place::pod_groups::{Only, PodGroupId};
use crate::score::{PER_NODE, Score};
use items::{Class, Classes, Entry, Take};
use left::Left;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::{NodePool, PodShape};
use std::collections::BTreeMap;

/// Pods of one pod group that want a place.
#[derive(Debug, Clone)]
pub(crate) struct Item<'l> {
    pub(crate) pod_group: PodGroupId,
    pub(crate) shape: Id<PodShape>,
    pub(crate) count: usize,
    pub(crate) only: Option<&'l Only>,
    pub(crate) whole: bool,
}

/// `copies` nodes with the same pods each.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) copies: usize,
    /// Which pods, per node, and how many.
    pub(crate) take: Take,
    pub(crate) load: Amounts,
    pub(crate) custom: Narrowed,
    /// What one node counts against limits at most, unless it is allowed more.
    pub(crate) charge: Amounts,
    /// Offerings that all pods accept and that have room, cheapest first by number; limits not looked at. Known once the packing is.
    pub(crate) accept: Bits<Offering>,
    /// The cheapest of them within `charge`.
    pub(crate) price: i64,
}

/// One way to serve the items.
#[derive(Debug, Clone, Default)]
pub(crate) struct Packing {
    pub(crate) patterns: Vec<Pattern>,
    /// Pod groups whose pods differ in nothing that matters here, so that any of them may be taken.
    pub(crate) pod_groups: IndexVec<Entry, Vec<PodGroupId>>,
    pub(crate) placed: usize,
    pub(crate) cost: i64,
}

impl Packing {
    fn score(&self) -> Score {
        Score::of_placed(self.placed, self.cost, self.patterns.iter().map(|pattern| pattern.copies).sum())
    }
}

/// Cheaper offerings with which one is compared: those that are next to it in price, or else that would take longer than to try it.
const CLOSE: usize = 256;
/// Candidates up to which all of them are looked at.
const ALL: usize = 128;
/// Candidates that are looked at in any case where not all are.
const FEW: usize = 24;
/// Prices that are told apart then.
const PRICES: usize = 256;

/// A price among those that are told apart.
enum PriceStep {}

/// The step of a price: each is a fifth to a quarter more than the one before it.
fn about(price: i64) -> Id<PriceStep> {
    let price = price.max(4);
    let (doublings, rest) = (price.ilog2(), price >> (price.ilog2() - 2));
    Id::new(usize::try_from(i64::from(doublings) * 4 + (rest & 3)).unwrap_or(0))
}

/// How patterns are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    /// Most worth per price.
    Efficient,
    /// The same, but each node must take the largest pod that is left.
    LargestFirst,
    /// Most worth for what it takes of the pool's limits.
    Frugal,
    /// As Efficient, but pods that must share a host with other pods come first, with one of those pods on each node.
    JoinersFirst,
}

/// The best of all strategies. `limit` is what the pool may still grow by.
pub(crate) fn pack(
    context: &SolveContext<'_>,
    pool: Id<NodePool>,
    items: &[Item<'_>],
    limit: &Headroom,
    work: &mut u64,
) -> Packing {
    let Some(packer) = Packer::new(context, pool, items, limit) else { return Packing::default() };
    let left = Left::new(&packer, packer.items.iter().map(|item| item.count).collect());
    let mut best = packer.best_of(&left, limit, work);
    if let Some(rounded) = packer.rounded(&left, limit, work).filter(|one| one.score() < best.score()) {
        best = rounded;
    }
    let mut best = improve::improve(&packer, best, limit, work);
    packer.accept_all(&mut best, limit);
    best.pod_groups = packer.items.into_iter().map(|item| item.pod_groups).collect();
    best
}

struct Packer<'w, 'a> {
    context: &'w SolveContext<'a>,
    view: &'w PoolView<'a>,
    classes: Classes<'w>,
    /// Largest first.
    items: IndexVec<Entry, Entry>,
    requests: Grid<Entry, i64>,
    /// The least that any item from here on requests.
    least: Grid<Entry, i64>,
    width: usize,
    /// The most room that any offering has, by resource.
    most: Amounts,
    /// The part of it that a unit of each is.
    per_most: Vec<f64>,
    /// Offerings worth trying, cheapest first.
    candidates: Vec<Id<Offering>>,
    /// The classes that can be on it.
    suits: IndexVec<Offering, Bits<Class<'static>>>,
    /// Some resource is limited.
    limited: bool,
    /// Worth of one pod of each item: at the prices of resources, and as its share of the best node of its own kind.
    by_resource: IndexVec<Entry, f64>,
    by_share: IndexVec<Entry, f64>,
    /// Candidates by the worth that their room can hold per price, the most first, with that worth.
    promising: Vec<(Id<Offering>, f64)>,
    /// The same; where there are very many, only some: those first, and some of each size.
    few: Vec<(Id<Offering>, f64)>,
}

impl<'w, 'a> Packer<'w, 'a> {
    fn new(context: &'w SolveContext<'a>, pool: Id<NodePool>, items: &[Item<'_>], limit: &Headroom) -> Option<Self> {
        let view = context.pools.try_get(pool)?;
        let (classes, entries) = items::grouped(context, pool, items);
        if entries.is_empty() {
            return None;
        }
        let width = context.table.len();
        let mut packer = Self {
            context,
            view,
            classes,
            items: entries,
            requests: Grid::filled(0, 0, width),
            least: Grid::filled(0, 0, width),
            width,
            most: vec![1; width],
            per_most: Vec::new(),
            candidates: Vec::new(),
            suits: IndexVec::new(),
            limited: limit.iter().any(Option::is_some),
            by_resource: IndexVec::new(),
            by_share: IndexVec::new(),
            promising: Vec::new(),
            few: Vec::new(),
        };
        packer.sort();
        packer.suits = packer.suits();
        packer.candidates = packer.candidates(limit);
        for item in packer.items.ids() {
            packer.fit_whole(item);
        }
        packer.weigh();
        Some(packer)
    }

    fn requests(&self, item: Id<Entry>) -> &[i64] {
        self.requests.row(item)
    }

    fn room(&self, offering: Id<Offering>) -> &'w Amounts {
        &self.view.offerings[offering].room
    }

    /// What a node of that offering counts when packings are compared.
    fn counts(&self, offering: Id<Offering>) -> i64 {
        self.view.price(offering).max(0).saturating_add(PER_NODE)
    }

    fn class(&self, item: Id<Entry>) -> &Class<'w> {
        &self.classes[self.items[item].class]
    }

    /// The largest part of the largest room, over all resources. Whatever is more in one of them is no less here, rounding or not.
    #[expect(clippy::cast_precision_loss, reason = "the same for both that are compared")]
    fn size(&self, amounts: &[i64]) -> f64 {
        amounts.iter().zip(&self.per_most).map(|(need, part)| *need as f64 * part).fold(0.0, f64::max)
    }

    /// Largest first, by the share of the largest room in any resource.
    #[expect(clippy::cast_precision_loss, reason = "see `size`")]
    fn sort(&mut self) {
        for index in self.view.usable.iter() {
            let room = self.room(index);
            self.most.iter_mut().zip(room).for_each(|(top, room)| *top = (*top).max(*room));
        }
        self.per_most = self.most.iter().map(|top| 1.0 / *top as f64).collect();
        let mut items = std::mem::take(&mut self.items);
        for item in &mut items {
            item.size = self.size(self.context.shapes[item.shape].requests);
        }
        let relaxation = &self.context.relaxation;
        items.as_mut_vec().sort_by(|a, b| {
            let rest = |item: &Entry| (relaxation.order(item.shape), item.pod_groups.first().copied());
            b.size.total_cmp(&a.size).then_with(|| rest(a).cmp(&rest(b)))
        });
        let requests = items.iter().map(|item| self.context.shapes[item.shape].requests.as_slice());
        self.requests = Grid::from_rows(self.width, requests);
        self.least = self.requests.clone();
        let mut below = vec![i64::MAX; self.width];
        for row in self.least.rows_mut().rev() {
            for (least, below) in row.iter_mut().zip(&mut below) {
                *least = (*least).min(*below);
                *below = *least;
            }
        }
        self.items = items;
    }

    /// A whole pod group that is too much for any node is cut to what one can take: the rest finds no place.
    fn fit_whole(&mut self, item: Id<Entry>) {
        if !self.items[item].whole {
            return;
        }
        let (requests, count) = (self.requests(item), self.items[item].count);
        let most = self.class(item).any.iter().map(|offering| how_many(requests, self.room(offering), count)).max();
        self.items[item].count = most.unwrap_or(0);
    }

    fn suits(&self) -> IndexVec<Offering, Bits<Class<'static>>> {
        let mut suits = IndexVec::filled(Bits::none(self.classes.len()), self.view.offerings.len());
        for (id, class) in self.classes.iter_enumerated() {
            class.any.iter().for_each(|offering: Id<Offering>| suits[offering].insert(id));
        }
        suits
    }

    /// Whether whatever can be on `offering` can be on `other` as well, room not looked at.
    fn is_as_open(&self, other: Id<Offering>, offering: Id<Offering>) -> bool {
        self.suits[other].covers(&self.suits[offering])
            && self.view.offerings[other].ports.len() <= self.view.offerings[offering].ports.len()
    }

    /// Offerings worth trying: one is left out if a cheaper one of at least its room suits all the same items.
    fn candidates(&self, limit: &Headroom) -> Vec<Id<Offering>> {
        let mut kept: Vec<Id<Offering>> = Vec::new();
        for offering in self.view.usable.iter().filter(|offering| !self.suits[*offering].is_empty()) {
            let worse = kept.iter().rev().take(CLOSE).any(|other| {
                self.room(offering).iter().zip(self.room(*other)).all(|(mine, theirs)| mine <= theirs)
                    && self.is_as_open(*other, offering)
                    && self.counts_no_more(*other, self.view.capacity(offering), limit)
            });
            if !worse {
                kept.push(offering);
            }
        }
        kept
    }

    /// Whether a node of that offering counts at most `amounts` in what is limited.
    fn counts_no_more(&self, offering: Id<Offering>, amounts: &[i64], limit: &Headroom) -> bool {
        let mut pairs = limit.iter().zip(self.view.capacity(offering).iter().zip(amounts));
        !self.limited || pairs.all(|(limit, (mine, most))| limit.is_none() || mine <= most)
    }

    #[expect(clippy::cast_precision_loss, reason = "weights of a heuristic")]
    fn weigh(&mut self) {
        let shared = rules::shared(
            &self.context.topology.host_rules,
            self.items.iter().map(|item| (self.classes[item.class].hosts, item.count)),
            1,
        );
        let requests: Vec<Amounts> = self
            .items
            .ids()
            .map(|item| rules::requests(self.requests(item), self.class(item).hosts, &shared))
            .collect();
        let rooms: Vec<Amounts> = self.candidates.iter().map(|index| rules::room(self.room(*index), &shared)).collect();
        let mut demand = vec![0; self.width + shared.len()];
        for (requests, item) in requests.iter().zip(&self.items) {
            crate::input::intern::add(&mut demand, requests, i64::try_from(item.count).unwrap_or(i64::MAX));
        }
        let mut rows: Vec<(i64, &Amounts)> =
            self.candidates.iter().zip(&rooms).map(|(index, room)| (self.view.price(*index), room)).collect();
        // In each zone the same.
        rows.dedup();
        let prices = resource_prices::resource_prices(&rows, &demand);
        self.by_resource = requests.iter().map(|one| resource_prices::worth(&prices, one)).collect();
        self.by_share = self.shares();
        let rate = |(index, room): (&Id<Offering>, &Amounts)| {
            (*index, resource_prices::worth(&prices, room) / self.counts(*index) as f64)
        };
        self.promising = self.candidates.iter().zip(&rooms).map(rate).collect();
        self.promising.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let many = self.candidates.len() > ALL && self.items.len() * self.candidates.len() > run::SMALL;
        self.few = if many { self.few() } else { self.promising.clone() };
    }

    /// Of those that promise most the first, and for each class the first of about each price. What they promise is of pods that could be cut: which
    /// size really holds most for its price only shows when it is filled.
    fn few(&self) -> Vec<(Id<Offering>, f64)> {
        let mut seen: IndexVec<Class<'static>, Bits<PriceStep>> =
            IndexVec::filled(Bits::none(PRICES), self.classes.len());
        let mut kept: Vec<(Id<Offering>, f64)> = Vec::new();
        for (offering, rate) in &self.promising {
            let price = about(self.counts(*offering));
            let mut new = kept.len() < FEW;
            for class in self.suits[*offering].iter() {
                new |= !seen[class].has(price);
                seen[class].insert(price);
            }
            if new {
                kept.push((*offering, *rate));
            }
        }
        kept
    }

    /// By item: see [`Self::share`], which is worked out once for all that it is the same for.
    fn shares(&self) -> IndexVec<Entry, f64> {
        let mut known: BTreeMap<(&Bits<Offering>, usize, &[i64]), f64> = BTreeMap::new();
        let share = |item: Id<Entry>| {
            let class = self.class(item);
            let key = (&class.any, class.most_alone(&self.context.topology.host_rules), self.requests(item));
            *known.entry(key).or_insert_with(|| self.share(item))
        };
        self.items.ids().map(share).collect()
    }

    /// The least that one pod of the item pays on nodes of its own kind.
    #[expect(clippy::cast_precision_loss, reason = "weights of a heuristic")]
    fn share(&self, item: Id<Entry>) -> f64 {
        let (class, requests) = (self.class(item), self.requests(item));
        let most = class.most_alone(&self.context.topology.host_rules);
        let per_pod = |offering: Id<Offering>| {
            let count = how_many(requests, self.room(offering), most);
            (count > 0).then(|| self.counts(offering) as f64 / count as f64)
        };
        let accepted = self.candidates.iter().filter(|offering| class.any.has(**offering));
        accepted.filter_map(|offering| per_pod(*offering)).fold(f64::INFINITY, f64::min)
    }
}
