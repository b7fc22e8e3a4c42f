//! The optimum in whole nodes, where pods are so few that all ways to split them over nodes can be gone through.

use super::{PodKind, Row};
use crate::input::intern::{add, fits};

/// Ways to split some of the pods into one node and the rest, at most: a millisecond. Nine pods that all differ have so many.
const MAX_SPLITS: usize = 20_000;

/// A node that holds so many pods of each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) row: usize,
    /// PodKind and number of pods, sorted.
    pub(crate) take: Vec<(usize, usize)>,
}

/// The cheapest nodes for all pods, and what they cost; `None` where pods are too many or no row can hold one of them.
pub(crate) fn optimum(kinds: &[PodKind<'_>], rows: &[Row], work: &mut u64) -> Option<(i64, Vec<Node>)> {
    if kinds.is_empty() {
        return None;
    }
    let mut splits = 1_usize;
    for kind in kinds {
        splits = splits.checked_mul((kind.count + 1).checked_mul(kind.count + 2)? / 2)?;
        if splits > MAX_SPLITS {
            return None;
        }
    }
    *work = work.saturating_sub(u64::try_from(splits).unwrap_or(u64::MAX));
    let sets = Sets::new(kinds);
    let nodes = sets.cheapest(kinds, rows);
    // By set: what its nodes cost, and the set on one of them.
    let mut best: Vec<(i64, usize)> = vec![(0, 0)];
    for set in 1..sets.count {
        best.push(sets.split(set, &nodes, &best));
    }
    let (cost, _) = *best.last()?;
    if cost == i64::MAX {
        return None;
    }
    let (mut set, mut found) = (sets.count - 1, Vec::new());
    while set > 0 {
        let one = best[set].1;
        let take = sets.digits(one).into_iter().enumerate().filter(|(_, n)| *n > 0).collect();
        found.push(Node { row: nodes[one]?.1, take });
        set -= one;
    }
    Some((cost, found))
}

/// Sets of pods as numbers: the count of each kind is a digit, the first kind's the lowest. The difference of two sets is that of their numbers.
struct Sets {
    /// Per kind: the number of the set of one such pod.
    steps: Vec<usize>,
    count: usize,
}

impl Sets {
    fn new(kinds: &[PodKind<'_>]) -> Self {
        let mut count = 1;
        let mut steps = Vec::with_capacity(kinds.len());
        for kind in kinds {
            steps.push(count);
            count *= kind.count + 1;
        }
        Self { steps, count }
    }

    fn digits(&self, set: usize) -> Vec<usize> {
        let next = self.steps.iter().skip(1).copied().chain([self.count]);
        self.steps.iter().zip(next).map(|(step, next)| set % next / step).collect()
    }

    /// By set: price and row of the cheapest node that holds it.
    fn cheapest(&self, kinds: &[PodKind<'_>], rows: &[Row]) -> Vec<Option<(i64, usize)>> {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|row| (rows[*row].price, *row));
        let width = kinds.first().map_or(0, |kind| kind.requests.len());
        let node = |set: usize| {
            let digits = self.digits(set);
            let mut load = vec![0; width];
            for (kind, n) in kinds.iter().zip(&digits) {
                if *n > kind.most {
                    return None;
                }
                add(&mut load, kind.requests, i64::try_from(*n).unwrap_or(i64::MAX));
            }
            let holds = |row: &usize| {
                let row = &rows[*row];
                fits(&load, &row.room) && digits.iter().enumerate().all(|(kind, n)| *n == 0 || row.suits.has(kind))
            };
            order.iter().copied().find(holds).map(|row| (rows[row].price, row))
        };
        (0..self.count).map(node).collect()
    }

    /// The cheapest way to have a node with one of the set's last pods at the least, and nodes for the rest.
    fn split(&self, set: usize, nodes: &[Option<(i64, usize)>], best: &[(i64, usize)]) -> (i64, usize) {
        let digits = self.digits(set);
        let last = digits.iter().rposition(|n| *n > 0).unwrap_or(0);
        let (mut part, mut number) = (vec![0; digits.len()], self.steps.get(last).copied().unwrap_or(1));
        if let Some(one) = part.get_mut(last) {
            *one = 1;
        }
        let mut found = (i64::MAX, set);
        loop {
            if let Some((price, _)) = nodes[number] {
                found = found.min((price.saturating_add(best[set - number].0), number));
            }
            // The next part, counted up like a number; the last digit never falls to nothing.
            let Some(kind) = (0..=last).find(|kind| part[*kind] < digits[*kind]) else { return found };
            for (n, step) in part.iter_mut().zip(&self.steps).take(kind) {
                number -= std::mem::take(n) * step;
            }
            part[kind] += 1;
            number += self.steps[kind];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::intern::Bits;

    const FREE: usize = 100;

    fn row(price: i64, room: [i64; 2], kinds: usize) -> Row {
        Row { price, room: room.to_vec(), suits: Bits::all(kinds) }
    }

    #[test]
    fn the_cheapest_nodes_are_found() {
        let (a, b) = ([2, 1], [1, 3]);
        let kinds = [PodKind { requests: &a, count: 2, most: FREE }, PodKind { requests: &b, count: 1, most: FREE }];
        // One pod of each for 5, two of the first for 4, all three for 12, one of the first for 3, one of the second for 4.
        let rows = [row(5, [3, 4], 2), row(4, [4, 2], 2), row(12, [5, 5], 2), row(3, [2, 1], 2), row(4, [1, 3], 2)];
        let (cost, nodes) = optimum(&kinds, &rows, &mut 1_000).unwrap();
        assert_eq!(cost, 8);
        let take: usize = nodes.iter().flat_map(|node| &node.take).map(|(_, n)| n).sum();
        assert_eq!((take, nodes.iter().map(|node| rows[node.row].price).sum::<i64>()), (3, 8));
    }

    #[test]
    fn what_a_kind_bears_and_where_it_can_go_holds() {
        let one = [1, 1];
        let kinds = [PodKind { requests: &one, count: 2, most: 1 }, PodKind { requests: &one, count: 1, most: FREE }];
        let mut rows = [row(2, [9, 9], 2), row(1, [9, 9], 2)];
        rows[1].suits = Bits::of(2, |kind| kind == 1);
        // Two nodes for the first kind; the other pod shares one of them.
        assert_eq!(optimum(&kinds, &rows, &mut 1_000).unwrap().0, 4);
        assert_eq!(optimum(&kinds, &[row(1, [0, 9], 2)], &mut 1_000), None);
        let many = [PodKind { requests: &one, count: 5_000, most: FREE }];
        assert_eq!(optimum(&many, &rows, &mut 1_000), None);
    }
}
