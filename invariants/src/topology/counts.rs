//! Counts pods by shape and target, since pods of one shape on one target are checked alike.

use super::selectors::{SelectorIndex, required_affinity};
use super::targets::{Place, PlacementTargets};
use crate::facts::Facts;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::PodShape;
use std::collections::{BTreeSet, HashMap};

/// Pods of one shape on one target.
#[derive(Clone, Copy)]
pub(super) struct ShapeCount<'a> {
    pub(super) place: Id<Place>,
    /// Pods that are there and stay, with the UID of the first.
    pub(super) kept: i64,
    pub(super) first_kept: &'a str,
    /// Pods that the plan puts there, with the UID of the first.
    pub(super) placed: i64,
    pub(super) first_placed: &'a str,
    /// Pods that leave with their node.
    pub(super) leaving: i64,
    /// Those of them that the plan puts nowhere else: they run until their node is gone.
    pub(super) unmoved: i64,
}

impl ShapeCount<'_> {
    fn none_at(place: Id<Place>) -> Self {
        Self { place, kept: 0, first_kept: "", placed: 0, first_placed: "", leaving: 0, unmoved: 0 }
    }

    /// Number of pods after the plan.
    pub(super) fn remaining(&self) -> i64 {
        self.kept + self.placed
    }
}

/// Counts by shape, only for relevant shapes.
pub(super) struct ShapeCounts<'a> {
    pub(super) by_shape: IndexVec<PodShape, Vec<ShapeCount<'a>>>,
    /// Shapes whose constraints must be checked.
    pub(super) checked_shapes: BTreeSet<Id<PodShape>>,
}

/// Whether the shape has required constraints that involve other pods.
fn has_required_constraints(shape: &PodShape) -> bool {
    shape.topology_spread.iter().any(|spread| spread.required)
        || shape.pod_affinity.iter().any(|term| term.weight.is_none())
}

/// Pods of one shape that the plan puts on one target.
struct PlacedGroup<'a> {
    shape: Id<PodShape>,
    place: Id<Place>,
    count: i64,
    first: &'a str,
}

/// Pods that the plan places.
struct PlacedPods<'a> {
    groups: Vec<PlacedGroup<'a>>,
    /// Snapshot numbers of those that are on a node now.
    moved: BTreeSet<usize>,
}

fn placed_pods<'a>(facts: &Facts<'a>, targets: &PlacementTargets<'a>, plan: &'a Plan) -> PlacedPods<'a> {
    let mut groups: Vec<PlacedGroup<'_>> = Vec::new();
    let mut moved: BTreeSet<usize> = BTreeSet::new();
    let mut add = |pods: &'a [PodRef], place: Id<Place>| {
        let before = groups.len();
        // Virtual pods do not exist for kube-scheduler and affect no constraint.
        let is_real = |(number, _): &(usize, &PodRef)| {
            let pod = facts.snapshot.pods.get(*number);
            pod.is_some_and(|pod| !pod.is_virtual())
        };
        for (number, pod) in facts.numbered(pods).filter(is_real) {
            if facts.index.node_of(number).is_some() {
                moved.insert(number);
            }
            let Some(shape) = facts.index.shape_of(number).map(Id::new) else { continue };
            match groups.iter_mut().skip(before).find(|group| group.shape == shape) {
                Some(group) => group.count += 1,
                None => groups.push(PlacedGroup { shape, place, count: 1, first: pod.uid.as_str() }),
            }
        }
    };
    let moves = plan.terminations.iter().flat_map(|termination| &termination.moved_to);
    for placement in plan.placements.iter().chain(moves) {
        if let Some(place) = facts.node_number(placement.node.as_str()) {
            add(&placement.pods, Id::new(place));
        }
    }
    for (index, launch) in plan.launches.iter().enumerate() {
        add(&launch.pods, targets.of_launch(index));
    }
    PlacedPods { groups, moved }
}

impl<'a> ShapeCounts<'a> {
    /// Counts the pods that the plan places and all pods that their constraints involve.
    pub(super) fn new(
        facts: &Facts<'a>,
        targets: &PlacementTargets<'a>,
        plan: &'a Plan,
        selectors: &mut SelectorIndex<'a>,
    ) -> Self {
        let shapes = selectors.shapes.clone();
        let placed = placed_pods(facts, targets, plan);
        let new: BTreeSet<Id<PodShape>> = placed.groups.iter().map(|group| group.shape).collect();
        let mut checked_shapes: BTreeSet<Id<PodShape>> =
            new.iter().copied().filter(|shape| has_required_constraints(shapes[*shape])).collect();
        let mut counted = new.clone();
        for number in &new {
            let shape = shapes[*number];
            for term in shape.pod_affinity.iter().filter(|term| term.anti && term.weight.is_none()) {
                counted.extend(selectors.members(&term.namespaces, term.selector.as_ref()).iter());
            }
            if required_affinity(shape).next().is_some() {
                counted.extend(selectors.affinity_targets(shape).iter());
            }
            for spread in shape.topology_spread.iter().filter(|spread| spread.required) {
                let namespace = std::slice::from_ref(&shape.namespace);
                counted.extend(selectors.members(namespace, spread.selector.as_ref()).iter());
            }
        }
        // Existing pods may have anti-affinity to the placed pods.
        for (number, shape) in shapes.iter_enumerated() {
            for term in shape.pod_affinity.iter().filter(|term| term.anti && term.weight.is_none()) {
                let members = selectors.members(&term.namespaces, term.selector.as_ref());
                if members.iter().any(|member| new.contains(member)) {
                    checked_shapes.insert(number);
                    counted.insert(number);
                }
            }
        }
        let by_shape = shapes.iter().map(|_| Vec::new()).collect();
        let mut counts = Self { by_shape, checked_shapes };
        if !counts.checked_shapes.is_empty() {
            counts.count(facts, &placed, &counted);
        }
        counts
    }

    fn count(&mut self, facts: &Facts<'a>, placed: &PlacedPods<'a>, counted: &BTreeSet<Id<PodShape>>) {
        let mut is_counted: IndexVec<PodShape, bool> = IndexVec::filled(false, self.by_shape.len());
        counted.iter().for_each(|shape| is_counted[*shape] = true);
        let mut positions: HashMap<(Id<PodShape>, Id<Place>), usize> = HashMap::new();
        let by_shape = &mut self.by_shape;
        let mut entry = |shape: Id<PodShape>, place: Id<Place>, change: &dyn Fn(&mut ShapeCount<'a>)| {
            let counts = &mut by_shape[shape];
            let at = *positions.entry((shape, place)).or_insert(counts.len());
            if at == counts.len() {
                counts.push(ShapeCount::none_at(place));
            }
            if let Some(count) = counts.get_mut(at) {
                change(count);
            }
        };
        for (number, pod) in facts.snapshot.pods.iter().enumerate() {
            let shape = facts.index.shape_of(number).map(Id::new);
            let Some(shape) = shape.filter(|shape| is_counted[*shape]) else { continue };
            // Target numbers of nodes equal their numbers in the snapshot.
            let Some(place) = facts.index.node_of(number).filter(|_| !pod.terminating) else { continue };
            let node = facts.snapshot.nodes.get(place);
            let leaving = node.is_some_and(|node| facts.leaving.contains(node.name.as_str()));
            let unmoved = leaving && !placed.moved.contains(&number);
            entry(shape, Id::new(place), &|entry| {
                if leaving {
                    entry.leaving += 1;
                    entry.unmoved += i64::from(unmoved);
                } else {
                    entry.first_kept = if entry.kept == 0 { pod.uid.as_str() } else { entry.first_kept };
                    entry.kept += 1;
                }
            });
        }
        for group in placed.groups.iter().filter(|group| is_counted[group.shape]) {
            entry(group.shape, group.place, &|entry| {
                entry.first_placed = if entry.placed == 0 { group.first } else { entry.first_placed };
                entry.placed += group.count;
            });
        }
    }
}
