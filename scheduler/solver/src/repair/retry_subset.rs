//! Pods that get a place only if fewer pods are planned.
//!
//! Under a limit, pods of a spread may take the nodes that its other domains need. Pods with required pod affinity wait
//! for pods that get no place. The plan is made again without some of the pods that have no place.

use super::{Best, left, without};
use plimsoll_model::identity::{PodUid, ShapeId};
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{Pod, PodShape, PodState, Snapshot};
use std::collections::BTreeSet;

/// Of the pods of a shape that are left, one in so many is tried for: each costs a plan.
const PARTS: [usize; 3] = [2, 4, 8];
/// Shapes of which fewer pods are tried.
const SHAPES: usize = 3;

/// Takes a plan made without some of these pods if that leaves fewer; whether there was one.
pub(super) fn retry(best: &mut Best<'_>) -> bool {
    let mut found = false;
    let snapshot = best.snapshot;
    let hopeless = hopeless(snapshot, &best.plan);
    let waiting = without(snapshot, &best.plan);
    // Those that follow others may be without a place for that reason alone.
    let (following, others): (Vec<&PodShape>, Vec<&PodShape>) =
        snapshot.shapes.iter().filter(|shape| waiting.contains_key(&shape.id)).partition(|shape| follows(shape));
    let gone: BTreeSet<&ShapeId> = others.iter().map(|shape| &shape.id).filter(|id| hopeless.contains(id)).collect();
    if !following.is_empty() && !gone.is_empty() {
        let left = owned(left(snapshot, &best.plan));
        let stays = |pod: &Pod| !gone.contains(&pod.shape) || !left.contains(&pod.uid);
        found |= best.attempt(|facts| facts.pods.retain(stays)).is_none();
    }
    for shape in limited(snapshot, &best.plan).into_iter().take(SHAPES) {
        for part in PARTS {
            let left = owned(left(snapshot, &best.plan));
            let own = snapshot.pods.iter().filter(|pod| pod.shape == shape && left.contains(&pod.uid));
            let own: Vec<&PodUid> = own.map(|pod| &pod.uid).collect();
            let gone: BTreeSet<&PodUid> = own.iter().skip(own.len().div_ceil(part)).copied().collect();
            if !gone.is_empty() {
                let tried = best.attempt(|facts| {
                    // Not those that an attempt before left out.
                    facts.pods.clone_from(&snapshot.pods);
                    facts.pods.retain(|pod| !gone.contains(&pod.uid));
                });
                found |= tried.is_none();
            }
        }
    }
    found
}

fn follows(shape: &PodShape) -> bool {
    shape.pod_affinity.iter().any(|one| !one.anti && one.weight.is_none())
}

fn owned(left: BTreeSet<&PodUid>) -> BTreeSet<PodUid> {
    left.into_iter().cloned().collect()
}

/// Shapes with pods to place of which none has a place.
fn hopeless<'a>(snapshot: &'a Snapshot, plan: &Plan) -> BTreeSet<&'a ShapeId> {
    let left = left(snapshot, plan);
    let is_placed = |pod: &&Pod| pod.state == PodState::Pending && !pod.is_virtual() && !left.contains(&pod.uid);
    let placed: BTreeSet<&ShapeId> = snapshot.pods.iter().filter(is_placed).map(|pod| &pod.shape).collect();
    without(snapshot, plan).into_keys().filter(|shape| !placed.contains(shape)).collect()
}

/// Shapes that are spread over something else than hosts, with pods that are left, where there are limits: the spread
/// is what is told of those that others took the limit's room from.
fn limited(snapshot: &Snapshot, plan: &Plan) -> Vec<ShapeId> {
    if snapshot.node_pools.iter().all(|pool| pool.limits.is_empty()) {
        return Vec::new();
    }
    let waiting = without(snapshot, plan);
    let is_spread = |shape: &&PodShape| {
        let mut keys = shape.topology_spread.iter().filter(|one| one.required);
        waiting.contains_key(&shape.id) && keys.any(|one| label::normalized(&one.topology_key) != label::HOSTNAME)
    };
    snapshot.shapes.iter().filter(is_spread).map(|shape| shape.id.clone()).collect()
}
