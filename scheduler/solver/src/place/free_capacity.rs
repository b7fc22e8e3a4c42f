//! What nodes have free at the most, many of them at a time, so that a pod need not ask each full node by itself.

use crate::input::existing_nodes::Room;
use crate::input::intern::fits;
use std::sync::Arc;

/// Nodes that are looked at together, and blocks of them.
const BLOCK: usize = 16;

/// Amounts that nodes have free: of each node, the most of any in a block, and the most of any in a block of blocks.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreeCapacityIndex {
    count: usize,
    width: usize,
    nodes: Level,
    blocks: Level,
    outer: Level,
}

/// Amounts in rows of `width`.
#[derive(Debug, Clone, Default)]
struct Level(Vec<i64>);

impl Level {
    fn row(&self, width: usize, index: usize) -> &[i64] {
        &self.0[index * width..(index + 1) * width]
    }

    fn row_mut(&mut self, width: usize, index: usize) -> &mut [i64] {
        &mut self.0[index * width..(index + 1) * width]
    }

    /// The most of each resource in block number `block` of this level goes to the level above.
    fn lift(&self, width: usize, block: usize, above: &mut Self) {
        let most = above.row_mut(width, block);
        most.fill(i64::MIN);
        let rows = self.0[block * BLOCK * width..].chunks(width.max(1)).take(BLOCK);
        for row in rows {
            most.iter_mut().zip(row).for_each(|(most, free)| *most = (*most).max(*free));
        }
    }
}

impl FreeCapacityIndex {
    /// Of all nodes, each with amounts of `width` resources; nothing can be put where `open` says so.
    pub(crate) fn new(rooms: &[Arc<Room>], width: usize, open: impl Fn(usize) -> bool) -> Self {
        let level = |count: usize| Level(vec![i64::MIN; count * width]);
        let blocks = rooms.len().div_ceil(BLOCK);
        let mut free_capacity = Self {
            count: rooms.len(),
            width,
            nodes: level(rooms.len()),
            blocks: level(blocks),
            outer: level(blocks.div_ceil(BLOCK)),
        };
        for (node, room) in rooms.iter().enumerate().filter(|(node, room)| !room.closed && open(*node)) {
            free_capacity.nodes.row_mut(width, node).copy_from_slice(&room.free);
        }
        (0..blocks).for_each(|block| free_capacity.nodes.lift(width, block, &mut free_capacity.blocks));
        (0..blocks.div_ceil(BLOCK)).for_each(|outer| free_capacity.blocks.lift(width, outer, &mut free_capacity.outer));
        free_capacity
    }

    /// Takes in that `room` of a node is different now.
    pub(crate) fn note(&mut self, node: usize, room: &Room) {
        let row = self.nodes.row_mut(self.width, node);
        if room.closed {
            row.fill(i64::MIN);
        } else {
            row.copy_from_slice(&room.free);
        }
        self.nodes.lift(self.width, node / BLOCK, &mut self.blocks);
        self.blocks.lift(self.width, node / BLOCK / BLOCK, &mut self.outer);
    }

    /// The first node from number `from` on that has room for `requests`.
    pub(crate) fn next(&self, from: usize, requests: &[i64]) -> Option<usize> {
        let mut node = from;
        while node < self.count {
            let block = node / BLOCK;
            if node.is_multiple_of(BLOCK * BLOCK) && !fits(requests, self.outer.row(self.width, block / BLOCK)) {
                node += BLOCK * BLOCK;
            } else if node.is_multiple_of(BLOCK) && !fits(requests, self.blocks.row(self.width, block)) {
                node += BLOCK;
            } else if fits(requests, self.nodes.row(self.width, node)) {
                return Some(node);
            } else {
                node += 1;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::hostname_topology::Tally;
    use proptest::prelude::*;

    fn rooms(free: &[(i64, i64)]) -> Vec<Arc<Room>> {
        let room = |(cpu, memory): &(i64, i64)| Room {
            free: vec![*cpu, *memory],
            ports: Vec::new(),
            tally: Tally::default(),
            closed: false,
        };
        free.iter().map(|free| Arc::new(room(free))).collect()
    }

    fn all(free_capacity: &FreeCapacityIndex, requests: &[i64]) -> Vec<usize> {
        std::iter::successors(free_capacity.next(0, requests), |node| free_capacity.next(node + 1, requests)).collect()
    }

    proptest! {
        #[test]
        fn all_nodes_with_room_are_found_and_no_others(
            free in prop::collection::vec((-2..9_i64, -2..9_i64), 0..600),
            changes in prop::collection::vec((0..600_usize, -2..9_i64, any::<bool>()), 0..20),
            requests in (0..9_i64, 1..9_i64),
        ) {
            let mut rooms = rooms(&free);
            let open = |node: usize| node % 7 != 3;
            let mut free_capacity = FreeCapacityIndex::new(&rooms, 2, open);
            for (node, cpu, closed) in changes.into_iter().filter(|(node, ..)| *node < free.len() && open(*node)) {
                let room = Arc::make_mut(&mut rooms[node]);
                (room.free[0], room.closed) = (cpu, closed);
                free_capacity.note(node, room);
            }
            let requests = [requests.0, requests.1];
            let roomy = |node: &usize| open(*node) && !rooms[*node].closed && fits(&requests, &rooms[*node].free);
            prop_assert_eq!(all(&free_capacity, &requests), (0..rooms.len()).filter(roomy).collect::<Vec<usize>>());
        }
    }

    #[test]
    fn full_nodes_are_passed_over() {
        let mut free = vec![(0, 0); 1000];
        free[700] = (4, 4);
        let mut free_capacity = FreeCapacityIndex::new(&rooms(&free), 2, |_| true);
        assert_eq!(all(&free_capacity, &[2, 2]), [700]);
        free_capacity.note(3, &rooms(&[(2, 2)])[0]);
        assert_eq!(all(&free_capacity, &[2, 2]), [3, 700]);
    }
}
