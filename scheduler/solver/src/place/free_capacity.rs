//! Index of the maximum free capacity of blocks of nodes, so that a search can skip blocks of full nodes.

use crate::input::existing_nodes::NodeCapacity;
use crate::input::grid::Grid;
use crate::input::intern::fits;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::Node;
use std::sync::Arc;

/// Number of nodes in a block, and of blocks in an outer block.
const BLOCK: usize = 16;

/// Free amounts of each node, and their maximum per block and per outer block.
#[derive(Debug, Clone)]
pub(crate) struct FreeCapacityIndex {
    count: usize,
    nodes: Grid<Node, i64>,
    blocks: Grid<Block, i64>,
    outer: Grid<OuterBlock, i64>,
}

/// Consecutive nodes.
#[derive(Debug, Clone)]
enum Block {}

/// Consecutive blocks.
#[derive(Debug, Clone)]
enum OuterBlock {}

/// The block that contains a row of the level below.
fn block_of<T, B>(row: Id<T>) -> Id<B> {
    Id::new(row.number() / BLOCK)
}

/// Sets the row of `block` in `above` to the maximum of its rows.
fn lift<T, B>(rows: &Grid<T, i64>, block: Id<B>, above: &mut Grid<B, i64>) {
    let most = above.row_mut(block);
    most.fill(i64::MIN);
    for row in rows.rows_from(Id::new(block.number() * BLOCK)).take(BLOCK) {
        most.iter_mut().zip(row).for_each(|(most, free)| *most = (*most).max(*free));
    }
}

impl FreeCapacityIndex {
    /// Creates the index of all nodes, with amounts of `width` resources. Nodes for which `open` is false get no pods.
    pub(crate) fn new(
        rooms: &IndexVec<Node, Arc<NodeCapacity>>,
        width: usize,
        open: impl Fn(Id<Node>) -> bool,
    ) -> Self {
        let blocks = rooms.len().div_ceil(BLOCK);
        let outer_blocks = blocks.div_ceil(BLOCK);
        let mut nodes = Grid::filled(i64::MIN, rooms.len(), width);
        for (node, room) in rooms.iter_enumerated().filter(|(node, room)| !room.closed && open(*node)) {
            nodes.row_mut(node).copy_from_slice(&room.free);
        }
        let mut middle = Grid::filled(i64::MIN, blocks, width);
        (0..blocks).for_each(|block| lift(&nodes, Id::new(block), &mut middle));
        let mut outer = Grid::filled(i64::MIN, outer_blocks, width);
        (0..outer_blocks).for_each(|block| lift(&middle, Id::new(block), &mut outer));
        Self { count: rooms.len(), nodes, blocks: middle, outer }
    }

    /// Updates the free capacity of a node.
    pub(crate) fn note(&mut self, node: Id<Node>, room: &NodeCapacity) {
        let row = self.nodes.row_mut(node);
        if room.closed {
            row.fill(i64::MIN);
        } else {
            row.copy_from_slice(&room.free);
        }
        let block = block_of(node);
        lift(&self.nodes, block, &mut self.blocks);
        lift(&self.blocks, block_of(block), &mut self.outer);
    }

    /// The first node from number `from` on that has capacity for `requests`.
    pub(crate) fn next(&self, from: usize, requests: &[i64]) -> Option<Id<Node>> {
        let mut number = from;
        while number < self.count {
            let node = Id::new(number);
            let block = block_of(node);
            if number.is_multiple_of(BLOCK * BLOCK) && !fits(requests, self.outer.row(block_of(block))) {
                number += BLOCK * BLOCK;
            } else if number.is_multiple_of(BLOCK) && !fits(requests, self.blocks.row(block)) {
                number += BLOCK;
            } else if fits(requests, self.nodes.row(node)) {
                return Some(node);
            } else {
                number += 1;
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

    fn rooms(free: &[(i64, i64)]) -> IndexVec<Node, Arc<NodeCapacity>> {
        let room = |(cpu, memory): &(i64, i64)| NodeCapacity {
            free: vec![*cpu, *memory],
            ports: Vec::new(),
            tally: Tally::default(),
            closed: false,
        };
        free.iter().map(|free| Arc::new(room(free))).collect()
    }

    fn all(free_capacity: &FreeCapacityIndex, requests: &[i64]) -> Vec<usize> {
        let next = |from: usize| free_capacity.next(from, requests).map(Id::number);
        std::iter::successors(next(0), |node| next(node + 1)).collect()
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
            let mut free_capacity = FreeCapacityIndex::new(&rooms, 2, |node| open(node.number()));
            for (node, cpu, closed) in changes.into_iter().filter(|(node, ..)| *node < free.len() && open(*node)) {
                let room = Arc::make_mut(&mut rooms[Id::new(node)]);
                (room.free[0], room.closed) = (cpu, closed);
                free_capacity.note(Id::new(node), room);
            }
            let requests = [requests.0, requests.1];
            let roomy = |node: &usize| {
                let room = &rooms[Id::new(*node)];
                open(*node) && !room.closed && fits(&requests, &room.free)
            };
            prop_assert_eq!(all(&free_capacity, &requests), (0..rooms.len()).filter(roomy).collect::<Vec<usize>>());
        }
    }

    #[test]
    fn full_nodes_are_passed_over() {
        let mut free = vec![(0, 0); 1000];
        free[700] = (4, 4);
        let mut free_capacity = FreeCapacityIndex::new(&rooms(&free), 2, |_| true);
        assert_eq!(all(&free_capacity, &[2, 2]), [700]);
        free_capacity.note(Id::new(3), &rooms(&[(2, 2)])[Id::new(0)]);
        assert_eq!(all(&free_capacity, &[2, 2]), [3, 700]);
    }
}
