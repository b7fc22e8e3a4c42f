//! The integral optimum for few pods, by enumeration of all ways to split them over nodes.

use super::{PodKinds, Row, Used};
use crate::input::intern::{add, fits};
use plimsoll_model::index::{Id, IndexVec};

/// Maximum number of ways to split a subset of the pods into one node and the rest; takes about a millisecond. Nine
/// different pods have about as many.
const MAX_SPLITS: usize = 20_000;

/// Returns the cheapest nodes for all pods, and their cost. `None` if there are too many pods, or no row can run one of
/// them.
pub(crate) fn optimum(kinds: &PodKinds, rows: &IndexVec<Row, Row>, work: &mut u64) -> Option<(i64, Vec<Used>)> {
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
    // By set: the cost of its cheapest nodes, and the pods on one of these nodes.
    let mut best: IndexVec<Set, (i64, Id<Set>)> = vec![(0, EMPTY)].into();
    for set in nodes.ids().skip(1) {
        best.push(sets.split(set, &nodes, &best));
    }
    let (cost, _) = *best.iter().last()?;
    if cost == i64::MAX {
        return None;
    }
    let (mut set, mut found) = (Id::new(sets.count - 1), Vec::new());
    while set != EMPTY {
        let one = best[set].1;
        let take = sets.digits(one).into_iter().enumerate().filter(|(_, n)| *n > 0);
        let take = take.map(|(kind, n)| (Id::new(kind), n)).collect();
        found.push(Used { row: nodes[one]?.1, take, times: 1.0 });
        set = minus(set, one);
    }
    Some((cost, found))
}

/// A set of pods.
#[derive(Debug)]
enum Set {}

const EMPTY: Id<Set> = Id::FIRST;

/// The pods of `all` that are not in `part`.
fn minus(all: Id<Set>, part: Id<Set>) -> Id<Set> {
    Id::new(all.number() - part.number())
}

/// Encodes sets of pods as mixed-radix numbers: the count of each kind is a digit, the first kind's digit is the
/// lowest. The difference of two sets is the difference of their numbers.
struct Sets {
    /// Per kind: the number of the set with one such pod.
    steps: Vec<usize>,
    count: usize,
}

impl Sets {
    fn new(kinds: &PodKinds) -> Self {
        let mut count = 1;
        let mut steps = Vec::with_capacity(kinds.len());
        for kind in kinds {
            steps.push(count);
            count *= kind.count + 1;
        }
        Self { steps, count }
    }

    fn digits(&self, set: Id<Set>) -> Vec<usize> {
        let next = self.steps.iter().skip(1).copied().chain([self.count]);
        self.steps.iter().zip(next).map(|(step, next)| set.number() % next / step).collect()
    }

    /// Price and row of the cheapest node that can run a set.
    fn cheapest(&self, kinds: &PodKinds, rows: &IndexVec<Row, Row>) -> IndexVec<Set, Option<(i64, Id<Row>)>> {
        let mut order: Vec<Id<Row>> = rows.ids().collect();
        order.sort_by_key(|row| (rows[*row].price, *row));
        let width = kinds.iter().next().map_or(0, |kind| kind.requests.len());
        let node = |set: Id<Set>| {
            let digits = self.digits(set);
            let mut load = vec![0; width];
            for (kind, n) in kinds.iter().zip(&digits) {
                if *n > kind.most {
                    return None;
                }
                add(&mut load, &kind.requests, i64::try_from(*n).unwrap_or(i64::MAX));
            }
            let holds = |row: &Id<Row>| {
                let row = &rows[*row];
                fits(&load, &row.room) && kinds.ids().zip(&digits).all(|(kind, n)| *n == 0 || row.suits.has(kind))
            };
            order.iter().copied().find(holds).map(|row| (rows[row].price, row))
        };
        (0..self.count).map(Id::new).map(node).collect()
    }

    /// The cheapest split of a set into a node with at least one pod of the set's last kind, and nodes for the rest.
    fn split(
        &self,
        set: Id<Set>,
        nodes: &IndexVec<Set, Option<(i64, Id<Row>)>>,
        best: &IndexVec<Set, (i64, Id<Set>)>,
    ) -> (i64, Id<Set>) {
        let digits = self.digits(set);
        let last = digits.iter().rposition(|n| *n > 0).unwrap_or(0);
        let (mut part, mut number) = (vec![0; digits.len()], self.steps.get(last).copied().unwrap_or(1));
        if let Some(one) = part.get_mut(last) {
            *one = 1;
        }
        let mut found = (i64::MAX, set);
        loop {
            let node = Id::new(number);
            if let Some((price, _)) = nodes[node] {
                found = found.min((price.saturating_add(best[minus(set, node)].0), node));
            }
            // Counts up to the next part. The last digit never becomes zero.
            let places = part.iter_mut().zip(&digits).zip(&self.steps).take(last + 1);
            let mut counted_up = false;
            for ((n, most), step) in places {
                if *n < *most {
                    *n += 1;
                    number += step;
                    counted_up = true;
                    break;
                }
                number -= std::mem::take(n) * step;
            }
            if !counted_up {
                return found;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::intern::Bits;
    use crate::place::columns::PodKind;

    const FREE: usize = 100;

    fn row(price: i64, room: [i64; 2], kinds: usize) -> Row {
        Row { price, room: room.to_vec(), suits: Bits::all(kinds) }
    }

    #[test]
    fn the_cheapest_nodes_are_found() {
        let (a, b) = (vec![2, 1], vec![1, 3]);
        let kinds: PodKinds =
            vec![PodKind { requests: a, count: 2, most: FREE }, PodKind { requests: b, count: 1, most: FREE }].into();
        // Offerings: one pod of each kind for 5, two of the first for 4, three pods for 12, one of the first for 3, one
        // of the second for 4.
        let rows =
            vec![row(5, [3, 4], 2), row(4, [4, 2], 2), row(12, [5, 5], 2), row(3, [2, 1], 2), row(4, [1, 3], 2)].into();
        let (cost, nodes) = optimum(&kinds, &rows, &mut 1_000).unwrap();
        assert_eq!(cost, 8);
        let take: usize = nodes.iter().flat_map(|node| &node.take).map(|(_, n)| n).sum();
        assert_eq!((take, nodes.iter().map(|node| rows[node.row].price).sum::<i64>()), (3, 8));
    }

    #[test]
    fn what_a_kind_bears_and_where_it_can_go_holds() {
        let kind = |count, most| PodKind { requests: vec![1, 1], count, most };
        let kinds: PodKinds = vec![kind(2, 1), kind(1, FREE)].into();
        let mut rows: IndexVec<Row, Row> = vec![row(2, [9, 9], 2), row(1, [9, 9], 2)].into();
        rows[Id::new(1)].suits = Bits::of(2, |kind| kind == Id::new(1));
        // The first kind needs two nodes. The other pod shares one of them.
        assert_eq!(optimum(&kinds, &rows, &mut 1_000).unwrap().0, 4);
        assert_eq!(optimum(&kinds, &vec![row(1, [0, 9], 2)].into(), &mut 1_000), None);
        let many: PodKinds = vec![kind(5_000, FREE)].into();
        assert_eq!(optimum(&many, &rows, &mut 1_000), None);
    }
}
