//! Room that CapacityBuffers keep: virtual pods, which are planned for when everybody else has a place.
//!
//! They take what others leave, of nodes and of limits. Other pods never see them: kube-scheduler does not know of them, so no spread and no
//! affinity of a pod that exists may rest on where they are.

use crate::existing::takes_some;
use crate::favour;
use crate::lots::Lot;
use crate::place::{Placed, State, put};
use crate::refit;
use crate::select;
use crate::world::World;
use plimsoll_model::plan::{Placement, Plan};
use plimsoll_model::snapshot::Pod;
use std::collections::BTreeMap;

/// Virtual pods by the number of the node that has room for them.
pub(crate) type Guests<'a> = BTreeMap<usize, Vec<&'a Pod>>;

/// Takes virtual pods out of `wanted`.
pub(crate) fn split<'a>(wanted: &mut Vec<Lot<'a>>) -> Vec<Lot<'a>> {
    let mut rooms = Vec::new();
    for lot in wanted.iter_mut().filter(|lot| lot.pods.iter().any(|pod| pod.is_virtual())) {
        let (pods, virtual_pods) = apart(&lot.pods);
        rooms.push(Lot::plain(lot.shape, virtual_pods));
        lot.pods = pods;
    }
    wanted.retain(|lot| !lot.pods.is_empty());
    rooms
}

/// Finds places for virtual pods in what `placed` leaves, and adds launches to it. They share nodes to launch with other pods where that is cheaper.
pub(crate) fn place<'a>(
    world: &World<'a>,
    state: &mut State,
    rooms: Vec<Lot<'a>>,
    placed: &mut Placed<'a>,
) -> Guests<'a> {
    if rooms.is_empty() {
        return Guests::new();
    }
    let counts = state.counts.clone();
    let mut guests = Guests::new();
    let rest = at_home(world, state, rooms, &mut guests);
    let more = favour::place(world, state, rest);
    for (node, pods) in more.existing {
        guests.entry(node).or_default().extend(pods);
    }
    placed.left.extend(more.left);
    if !more.launches.is_empty() {
        placed.launches.extend(more.launches);
        refit::refit(world, state, placed);
    }
    // Whoever moves to another node does not count them either.
    state.counts = counts;
    guests
}

/// Leaves pods on the nodes that were launched for them, as far as there is room. Gives back all others.
fn at_home<'a>(world: &World<'a>, state: &mut State, lots: Vec<Lot<'a>>, guests: &mut Guests<'a>) -> Vec<Lot<'a>> {
    let mut rest = Vec::new();
    for lot in lots {
        let mut away = Vec::new();
        for pod in lot.pods {
            let home = pod.buffer.as_ref().and_then(|buffer| world.node_number(buffer.node.as_ref()?));
            let one = Lot::plain(lot.shape, vec![pod]);
            match home.filter(|node| takes_some(world, *node, state.room(*node), &one) > 0) {
                Some(node) => {
                    put(world, state, node, lot.shape, 1);
                    state.counts.enter(world, pod, node);
                    guests.entry(node).or_default().push(pod);
                }
                None => away.push(pod),
            }
        }
        if !away.is_empty() {
            rest.push(Lot::plain(lot.shape, away));
        }
    }
    rest
}

/// Names the nodes that have room for virtual pods, beside what they take otherwise.
pub(crate) fn settle(world: &World<'_>, plan: &mut Plan, guests: &Guests<'_>) {
    for (node, pods) in guests {
        let (node, pods) = (&world.nodes[*node].node.name, select::pod_refs(pods));
        match plan.placements.iter_mut().find(|placement| placement.node == *node) {
            Some(placement) => {
                placement.pods.extend(pods);
                placement.pods.sort();
            }
            None => plan.placements.push(Placement { node: node.clone(), pods }),
        }
    }
    plan.placements.sort();
}

/// Pods that exist, and virtual ones.
pub(crate) fn apart<'a>(pods: &[&'a Pod]) -> (Vec<&'a Pod>, Vec<&'a Pod>) {
    pods.iter().copied().partition(|pod| !pod.is_virtual())
}
