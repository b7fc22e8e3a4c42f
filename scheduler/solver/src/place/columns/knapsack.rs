//! Knapsack: the pods of given worth that fit on one node and are worth most together.

use super::number;
use crate::input::intern::{Amounts, how_many};
use plimsoll_model::index::{Id, IndexVec};

/// Weights up to this are zero. Kinds without weight come first in the order of a surrogate and count in full.
const WEIGHTLESS: f64 = 1e-12;

/// A node, and the kinds of pods that may run on it.
pub(crate) struct Knapsack<'k, T> {
    /// Kinds in search order: highest worth per part of the capacity first.
    order: Order<'k, T>,
    /// Surrogate knapsacks with one dimension, used as bounds.
    views: Vec<View>,
    room: Amounts,
}

/// Kinds in search order.
type Order<'k, T> = IndexVec<Place, Candidate<'k, T>>;

/// A position in search order.
enum Place {}

struct Candidate<'k, T> {
    kind: Id<T>,
    worth: f64,
    requests: &'k [i64],
    most: usize,
}

/// A weighted sum of all resources: a knapsack with one dimension, which is easy to bound.
struct View {
    weights: IndexVec<Place, f64>,
    per_resource: Vec<f64>,
    by_density: Vec<Id<Place>>,
}

/// Result of a search.
pub(crate) struct Filling<T> {
    /// Kinds and numbers of pods, sorted.
    pub(crate) take: Vec<(Id<T>, usize)>,
    pub(crate) worth: f64,
    /// Upper bound of the worth of any filling.
    pub(crate) bound: f64,
    pub(crate) steps: usize,
}

/// A kind with its id, the worth of a pod, the requests of a pod, and the maximum number on the node.
pub(crate) type Offered<'k, T> = (Id<T>, f64, &'k [i64], usize);

impl<'k, T> Knapsack<'k, T> {
    /// Creates the knapsack of a node with `room`. `scarcity` is the worth of a unit of each resource, which determines
    /// the search order.
    pub(crate) fn new(offered: &[Offered<'k, T>], room: &Amounts, scarcity: &[f64]) -> Self {
        let weights = surrogate_weights(offered, room, scarcity);
        let first = weights.first().map_or(&[][..], Vec::as_slice);
        let density = |one: &Offered<'_, T>| density(one.1, weigh(first, one.2));
        let mut sorted: Vec<&Offered<'k, T>> = offered.iter().filter(|one| one.1 > 0.0).collect();
        sorted.sort_by(|a, b| density(b).total_cmp(&density(a)).then(a.0.cmp(&b.0)));
        let order: Order<'k, T> = sorted
            .into_iter()
            .map(|(kind, worth, requests, most)| Candidate {
                kind: *kind,
                worth: *worth,
                requests,
                most: how_many(requests, room, *most),
            })
            .filter(|one| one.most > 0)
            .collect();
        let views = weights.into_iter().map(|weights| view(&order, weights)).collect();
        Self { order, views, room: room.clone() }
    }

    /// Searches with at most `nodes` steps. Improvements of less than `slack`, relatively, are not searched for.
    pub(crate) fn search(&self, nodes: usize, slack: f64) -> Filling<T> {
        let mut search =
            Search { knapsack: self, best: IndexVec::new(), worth: 0.0, missed: 0.0, left: nodes, slack: 1.0 + slack };
        let mut take = IndexVec::filled(0, self.order.len());
        let whole = self.bound(Id::FIRST, &self.room, f64::INFINITY);
        search.descend(Id::FIRST, 0.0, &mut self.room.clone(), &mut take);
        let bound = (search.worth * (1.0 + slack)).max(search.missed).min(whole);
        let mut chosen: Vec<(Id<T>, usize)> =
            search.best.iter().zip(&self.order).filter(|(n, _)| **n > 0).map(|(n, one)| (one.kind, *n)).collect();
        chosen.sort_unstable();
        Filling { take: chosen, worth: search.worth, bound, steps: nodes - search.left }
    }

    /// Upper bound of the worth of kinds from position `from` on in `room`. Stops early once the bound is below
    /// `enough`.
    fn bound(&self, from: Id<Place>, room: &Amounts, enough: f64) -> f64 {
        let mut least = f64::INFINITY;
        for (number, view) in self.views.iter().enumerate() {
            let sum = if number == 0 { self.first_bound(from, room) } else { self.bound_in(view, from, room) };
            least = least.min(sum);
            if least < enough {
                break;
            }
        }
        least
    }

    /// The bound of the first surrogate, whose order is the search order.
    fn first_bound(&self, from: Id<Place>, room: &Amounts) -> f64 {
        let Some(view) = self.views.first() else { return f64::INFINITY };
        Self::fractional(self.order.iter().zip(&view.weights).skip(from.number()), weigh(&view.per_resource, room))
    }

    fn bound_in(&self, view: &View, from: Id<Place>, room: &Amounts) -> f64 {
        let places = view.by_density.iter().copied().filter(|place| *place >= from);
        let weighted = places.map(|place| (&self.order[place], &view.weights[place]));
        Self::fractional(weighted, weigh(&view.per_resource, room))
    }

    /// The most worth of kinds with their weights, sorted by density, that fit into `space` if the last pod may be cut.
    /// Kinds without weight fit even if no space is left.
    fn fractional<'a>(kinds: impl Iterator<Item = (&'a Candidate<'k, T>, &'a f64)>, mut space: f64) -> f64
    where
        'k: 'a,
        T: 'a,
    {
        let mut sum = 0.0;
        for (one, weight) in kinds {
            let all = weight * number(one.most);
            if *weight > WEIGHTLESS && all > space {
                return sum + one.worth * space.max(0.0) / weight;
            }
            sum += one.worth * number(one.most);
            space -= all;
        }
        sum
    }
}

struct Search<'s, 'k, T> {
    knapsack: &'s Knapsack<'k, T>,
    best: IndexVec<Place, usize>,
    worth: f64,
    /// Upper bound of the worth of branches that were cut off because the steps ran out.
    missed: f64,
    left: usize,
    slack: f64,
}

impl<T> Search<'_, '_, T> {
    fn descend(&mut self, place: Id<Place>, worth: f64, room: &mut Amounts, take: &mut IndexVec<Place, usize>) {
        if worth > self.worth {
            self.worth = worth;
            self.best.clone_from(take);
        }
        let Some(one) = self.knapsack.order.try_get(place) else { return };
        let next = Id::new(place.number() + 1);
        let target = (self.worth * self.slack - worth).max(0.0);
        let open = self.knapsack.bound(place, room, target);
        if open <= target {
            return;
        }
        if self.left == 0 {
            self.missed = self.missed.max(worth + open);
            return;
        }
        self.left -= 1;
        let most = how_many(one.requests, room, one.most);
        // Most pods first: the first leaf is the greedy filling.
        for n in (0..=most).rev() {
            let by = i64::try_from(n).unwrap_or(i64::MAX);
            crate::input::intern::add(room, one.requests, -by);
            take[place] = n;
            self.descend(next, worth + one.worth * number(n), room, take);
            crate::input::intern::add(room, one.requests, by);
            if n > 0 {
                // Bound with one pod less. Fewer pods only lose more: this kind has the highest density.
                let target = (self.worth * self.slack - worth).max(0.0);
                let fewer = one.worth * number(n - 1);
                crate::input::intern::add(room, one.requests, 1 - by);
                let open = self.knapsack.first_bound(next, room);
                crate::input::intern::add(room, one.requests, by - 1);
                if fewer + open <= target {
                    break;
                }
            }
            if self.left == 0 {
                self.missed = self.missed.max(worth + self.knapsack.bound(place, room, f64::NEG_INFINITY));
                break;
            }
        }
        take[place] = 0;
    }
}

/// Weights per resource of each surrogate: by scarcity, even, and each resource alone.
fn surrogate_weights<T>(offered: &[Offered<'_, T>], room: &Amounts, scarcity: &[f64]) -> Vec<Vec<f64>> {
    let mut is_used = vec![false; room.len()];
    for (.., requests, _) in offered {
        is_used.iter_mut().zip(*requests).for_each(|(used, amount)| *used |= *amount > 0);
    }
    let used = || is_used.iter().enumerate().filter(|(_, used)| **used).map(|(index, _)| index);
    let scarcities = scarcity.iter().copied().chain(std::iter::repeat(0.0));
    let mixed = is_used.iter().zip(scarcities).map(|(used, scarcity)| if *used { scarcity } else { 0.0 });
    let mixed: Vec<f64> = mixed.collect();
    let parts = is_used.iter().zip(mixed.iter().zip(room)).filter(|(used, _)| **used);
    let total: f64 = parts.map(|(_, (weight, room))| weight * amount(*room)).sum();
    let even = |room: &i64| 1.0 / amount(*room).max(1.0);
    let mut weights: Vec<Vec<f64>> = Vec::new();
    if total > 0.0 {
        weights.push(mixed.iter().map(|weight| weight / total).collect());
    }
    let count = number(used().count());
    let all = is_used.iter().zip(room).map(|(used, room)| if *used { even(room) / count } else { 0.0 });
    weights.push(all.collect());
    for index in used() {
        let one = room.iter().enumerate().map(|(other, room)| if other == index { even(room) } else { 0.0 });
        weights.push(one.collect());
    }
    weights
}

fn view<T>(order: &Order<'_, T>, per_resource: Vec<f64>) -> View {
    let weights: IndexVec<Place, f64> = order.iter().map(|one| weigh(&per_resource, one.requests)).collect();
    let mut by_density: Vec<Id<Place>> = order.ids().collect();
    let density = |place: Id<Place>| density(order[place].worth, weights[place]);
    by_density.sort_by(|a, b| density(*b).total_cmp(&density(*a)).then(a.cmp(b)));
    View { weights, per_resource, by_density }
}

/// Worth per weight. Higher for each kind without weight than for any other kind.
fn density(worth: f64, weight: f64) -> f64 {
    // Far above the ratio of any two worths or weights that matter, and far below infinity.
    if weight > WEIGHTLESS { worth / weight } else { worth * 1e100 }
}

fn weigh(per_resource: &[f64], amounts: &[i64]) -> f64 {
    per_resource.iter().zip(amounts).map(|(weight, one)| weight * amount(*one)).sum()
}

#[expect(clippy::cast_precision_loss, reason = "only compared, or bounded with a margin")]
fn amount(value: i64) -> f64 {
    value.max(0) as f64
}
