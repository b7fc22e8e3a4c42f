//! Packs pod groups on nodes of one pool. The result consists of patterns (the pods of one node, and the number of such
//! nodes), chosen by price of the placed pods.

mod accept;
mod exotic;
mod filling;
mod improve;
mod items;
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
use crate::place::pod_groups::{PodGroup, PodGroupId};
use crate::score::{PER_NODE, Score};
use items::{Class, ClassId, Classes, Entry, Take};
use left::Left;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::NodePool;
use std::collections::BTreeMap;

/// `copies` nodes with the same pods each.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) copies: usize,
    /// Pods per node, by item.
    pub(crate) take: Take,
    pub(crate) load: Amounts,
    pub(crate) custom: Narrowed,
    /// Maximum usage of limits by one node, unless more is allowed later.
    pub(crate) charge: Amounts,
    /// Offerings that all pods accept and that have enough capacity, cheapest first, regardless of limits. Computed at
    /// the end of the packing.
    pub(crate) accept: Bits<Offering>,
    /// Price of the cheapest of these offerings within `charge`.
    pub(crate) price: i64,
}

/// A set of patterns that places items.
#[derive(Debug, Clone, Default)]
pub(crate) struct Packing {
    pub(crate) patterns: Vec<Pattern>,
    /// Pod groups whose pods are interchangeable here.
    pub(crate) pod_groups: IndexVec<Entry, Vec<PodGroupId>>,
    pub(crate) placed: usize,
    pub(crate) cost: i64,
}

impl Packing {
    fn score(&self) -> Score {
        Score::of_placed(self.placed, self.cost, self.patterns.iter().map(|pattern| pattern.copies).sum())
    }
}

/// Maximum number of cheaper offerings with which an offering is compared. The nearest in price are used; more
/// comparisons would take longer than trying the offering.
const CLOSE: usize = 256;
/// Number of candidates up to which all are tried.
const ALL: usize = 128;
/// Minimum number of candidates that are tried if there are more.
const FEW: usize = 24;
/// Maximum number of price steps among them.
const PRICES: usize = 256;

enum PriceStep {}

/// The step of a price. Steps differ by a fifth to a quarter of the price.
fn about(price: i64) -> Id<PriceStep> {
    let price = price.max(4);
    let (doublings, rest) = (price.ilog2(), price >> (price.ilog2() - 2));
    Id::new(usize::try_from(i64::from(doublings) * 4 + (rest & 3)).unwrap_or(0))
}

/// How patterns are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    /// Highest worth per price.
    Efficient,
    /// Highest worth per price, but each node must run the largest remaining pod.
    LargestFirst,
    /// Highest worth per usage of the pool's limits.
    Frugal,
    /// As Efficient, but pods that must share a host with other pods come first, with one of those pods on each node.
    JoinersFirst,
}

/// Returns the best packing of all strategies. `limit` is the headroom of the pool's limits.
pub(crate) fn pack(
    context: &SolveContext<'_>,
    pool: Id<NodePool>,
    pod_groups: &[(PodGroupId, &PodGroup<'_>)],
    limit: &Headroom,
    work: &mut u64,
) -> Packing {
    let Some(mut packer) = Packer::new(context, pool, pod_groups, limit) else { return Packing::default() };
    let left = Left::new(&packer, packer.items.iter().map(|item| item.count).collect());
    let mut best = packer.packed(&left, limit, work);
    let joiners = if *work > 0 { packer.joiners_without_host(&left, &best) } else { Vec::new() };
    if !joiners.is_empty() {
        packer.note_needs(&joiners);
        packer.candidates = packer.candidates(limit);
        packer.weigh();
        let other = packer.packed(&left, limit, work);
        if other.placed > best.placed {
            best = other;
        }
    }
    best.pod_groups = packer.items.into_iter().map(|item| item.pod_groups).collect();
    best
}

struct Packer<'w, 'a> {
    context: &'w SolveContext<'a>,
    view: &'w PoolView<'a>,
    /// Offerings that make exotic ones unnecessary.
    ordinary: &'w Bits<Offering>,
    classes: Classes<'w>,
    /// Largest first.
    items: IndexVec<Entry, Entry>,
    requests: Grid<Entry, i64>,
    /// Minimum requests of all items from this one on.
    least: Grid<Entry, i64>,
    width: usize,
    /// Maximum capacity of all offerings, by resource.
    most: Amounts,
    /// Fraction of `most` that one unit of each resource uses.
    per_most: Vec<f64>,
    /// Items that need an exotic offering, largest first.
    needing: Vec<Id<Entry>>,
    /// Minimum requests of these items, by class.
    least_needing: BTreeMap<ClassId, Amounts>,
    /// Offerings worth trying, cheapest first.
    candidates: Vec<Id<Offering>>,
    /// Classes that can run on each offering.
    suits: IndexVec<Offering, Bits<Class<'static>>>,
    limited: bool,
    /// Worth of one pod of each item: at resource prices, and as its share of the price of the best node for its own
    /// kind.
    by_resource: IndexVec<Entry, f64>,
    by_share: IndexVec<Entry, f64>,
    /// Candidates by worth that their capacity can hold per price, highest first, with this worth.
    promising: Vec<(Id<Offering>, f64)>,
    /// Like `promising`. If there are very many candidates, only the first ones and some of each size.
    few: Vec<(Id<Offering>, f64)>,
}

impl<'w, 'a> Packer<'w, 'a> {
    fn new(
        context: &'w SolveContext<'a>,
        pool: Id<NodePool>,
        pod_groups: &[(PodGroupId, &PodGroup<'_>)],
        limit: &Headroom,
    ) -> Option<Self> {
        let (view, ordinary) = context.pools.try_get(pool).zip(context.ordinary.try_get(pool))?;
        let (classes, entries) = items::grouped(context, pool, pod_groups);
        if entries.is_empty() {
            return None;
        }
        let width = context.table.len();
        let mut packer = Self {
            context,
            view,
            ordinary,
            classes,
            items: entries,
            requests: Grid::filled(0, 0, width),
            least: Grid::filled(0, 0, width),
            width,
            most: vec![1; width],
            per_most: Vec::new(),
            needing: Vec::new(),
            least_needing: BTreeMap::new(),
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
        for item in packer.items.ids() {
            packer.fit_on_one_node(item);
        }
        let needing: Vec<Id<Entry>> = packer.items.ids().filter(|item| packer.needs_exotic(*item)).collect();
        packer.note_needs(&needing);
        packer.candidates = packer.candidates(limit);
        packer.weigh();
        Some(packer)
    }

    fn packed(&self, left: &Left, limit: &Headroom, work: &mut u64) -> Packing {
        let mut best = self.best_of(left, limit, work);
        if let Some(rounded) = self.rounded(left, limit, work).filter(|one| one.score() < best.score()) {
            best = rounded;
        }
        let mut best = improve::improve(self, best, limit, work);
        self.accept_all(&mut best);
        best
    }

    fn requests(&self, item: Id<Entry>) -> &[i64] {
        self.requests.row(item)
    }

    fn room(&self, offering: Id<Offering>) -> &'w Amounts {
        &self.view.offerings[offering].room
    }

    /// Cost of a node of the offering when packings are compared.
    fn counts(&self, offering: Id<Offering>) -> i64 {
        self.view.price(offering).max(0).saturating_add(PER_NODE)
    }

    fn class(&self, item: Id<Entry>) -> &Class<'w> {
        &self.classes[self.items[item].class]
    }

    /// The largest fraction of the maximum capacity, over all resources. Monotonic in each amount, even with rounding.
    #[expect(clippy::cast_precision_loss, reason = "both compared values are rounded alike")]
    fn size(&self, amounts: &[i64]) -> f64 {
        amounts.iter().zip(&self.per_most).map(|(need, part)| *need as f64 * part).fold(0.0, f64::max)
    }

    /// Sorts items by size, largest first.
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

    /// Cuts a pod group that must share one node to the number of pods that fit. The remaining pods cannot be placed.
    fn fit_on_one_node(&mut self, item: Id<Entry>) {
        if !self.items[item].on_one_node {
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

    /// Whether all pods that can run on `offering` can run on `other` as well, regardless of capacity.
    fn is_as_open(&self, other: Id<Offering>, offering: Id<Offering>) -> bool {
        self.suits[other].covers(&self.suits[offering])
            && (self.view.is_exotic(offering) || !self.view.is_exotic(other))
            && self.view.offerings[other].ports.iter().all(|port| self.view.offerings[offering].ports.contains(port))
    }

    /// Offerings worth trying. An offering is omitted if a cheaper one has at least its capacity and can run all the
    /// same items.
    fn candidates(&self, limit: &Headroom) -> Vec<Id<Offering>> {
        let mut kept: Vec<Id<Offering>> = Vec::new();
        let suits = |offering: &Id<Offering>| !self.suits[*offering].is_empty() && self.is_needed(*offering);
        for offering in self.view.usable.iter().filter(suits) {
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

    /// Whether a node of the offering uses at most `amounts` of the limited resources.
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
        // Offerings are the same in each zone.
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

    /// The candidates with the highest worth per price, and for each class the first of about each price. The worth
    /// assumes that pods can be split. Only filling shows which size has the highest worth for its price.
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

    /// By item: [`Self::share`], computed once for items with the same inputs.
    fn shares(&self) -> IndexVec<Entry, f64> {
        let mut known: BTreeMap<(&Bits<Offering>, usize, &[i64]), f64> = BTreeMap::new();
        let share = |item: Id<Entry>| {
            let class = self.class(item);
            let key = (&class.any, class.most_alone, self.requests(item));
            *known.entry(key).or_insert_with(|| self.share(item))
        };
        self.items.ids().map(share).collect()
    }

    /// Minimum price per pod of the item, on nodes that run only its own kind.
    #[expect(clippy::cast_precision_loss, reason = "weights of a heuristic")]
    fn share(&self, item: Id<Entry>) -> f64 {
        let (class, requests) = (self.class(item), self.requests(item));
        let per_pod = |offering: Id<Offering>| {
            let count = how_many(requests, self.room(offering), class.most_alone);
            (count > 0).then(|| self.counts(offering) as f64 / count as f64)
        };
        let is_allowed = |one: Id<Offering>| self.items[item].needs_exotic || !self.view.is_exotic(one);
        let accepted = self.candidates.iter().filter(|one| class.any.has(**one) && is_allowed(**one));
        accepted.filter_map(|offering| per_pod(*offering)).fold(f64::INFINITY, f64::min)
    }
}
