//! Pods, counted: those of one shape at one place are judged alike.

use super::places::Places;
use super::selecting::{Selecting, affinity};
use crate::facts::Facts;
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::PodShape;
use std::collections::{BTreeSet, HashMap};

/// Pods of one shape at one place.
#[derive(Default)]
pub(super) struct Cell<'a> {
    pub(super) place: usize,
    /// Those that are there and stay, with the UID of the first.
    pub(super) kept: i64,
    pub(super) first_kept: &'a str,
    /// Those that the plan puts there.
    pub(super) placed: i64,
    pub(super) first_placed: &'a str,
    /// Those that go with their node.
    pub(super) leaving: i64,
}

impl Cell<'_> {
    /// All that will be there.
    pub(super) fn stay(&self) -> i64 {
        self.kept + self.placed
    }
}

/// By number of the shape; only of shapes that matter.
pub(super) struct Cells<'a> {
    pub(super) of_shape: Vec<Vec<Cell<'a>>>,
    /// Shapes whose pods are to be judged.
    pub(super) judged: BTreeSet<usize>,
}

/// Whether pods of the shape look at others.
fn looks(shape: &PodShape) -> bool {
    shape.topology_spread.iter().any(|one| one.required) || shape.pod_affinity.iter().any(|one| one.weight.is_none())
}

/// Pods of one shape that the plan puts at one place.
struct Group<'a> {
    shape: usize,
    place: usize,
    count: i64,
    first: &'a str,
}

/// What the plan puts where.
fn placed<'a>(facts: &Facts<'a>, places: &Places<'a>, plan: &'a Plan) -> Vec<Group<'a>> {
    let mut all: Vec<Group<'_>> = Vec::new();
    let mut put = |pods: &'a [PodRef], place: usize| {
        let before = all.len();
        // Virtual pods are none for kube-scheduler: nothing rests on where they are.
        let exist = |(number, _): &(usize, &PodRef)| !facts.snapshot.pods[*number].is_virtual();
        for (number, pod) in facts.numbered(pods).filter(exist) {
            let Some(shape) = facts.index.shape_of(number) else { continue };
            match all[before..].iter_mut().find(|group| group.shape == shape) {
                Some(group) => group.count += 1,
                None => all.push(Group { shape, place, count: 1, first: pod.uid.as_str() }),
            }
        }
    };
    let moved = plan.terminations.iter().flat_map(|one| &one.moved_to);
    for to in plan.placements.iter().chain(moved) {
        if let Some(place) = facts.node_number(to.node.as_str()) {
            put(&to.pods, place);
        }
    }
    for (index, launch) in plan.launches.iter().enumerate() {
        put(&launch.pods, places.of_launch(index));
    }
    all
}

impl<'a> Cells<'a> {
    /// Counts what the plan places and whatever that has to do with.
    pub(super) fn new(facts: &Facts<'a>, places: &Places<'a>, plan: &'a Plan, selecting: &mut Selecting<'a>) -> Self {
        let shapes = selecting.shapes;
        let placed = placed(facts, places, plan);
        let new: BTreeSet<usize> = placed.iter().map(|group| group.shape).collect();
        let mut judged: BTreeSet<usize> = new.iter().copied().filter(|shape| looks(&shapes[*shape])).collect();
        let mut counted = new.clone();
        for number in &new {
            let shape = &shapes[*number];
            for term in shape.pod_affinity.iter().filter(|one| one.anti && one.weight.is_none()) {
                counted.extend(selecting.members(&term.namespaces, term.selector.as_ref()).iter());
            }
            if affinity(shape).next().is_some() {
                counted.extend(selecting.wanted(shape).iter());
            }
            for spread in shape.topology_spread.iter().filter(|one| one.required) {
                let namespace = std::slice::from_ref(&shape.namespace);
                counted.extend(selecting.members(namespace, spread.selector.as_ref()).iter());
            }
        }
        // Pods that are there may not want the new ones near them.
        for (number, shape) in shapes.iter().enumerate() {
            for term in shape.pod_affinity.iter().filter(|one| one.anti && one.weight.is_none()) {
                let members = selecting.members(&term.namespaces, term.selector.as_ref());
                if members.iter().any(|one| new.contains(one)) {
                    judged.insert(number);
                    counted.insert(number);
                }
            }
        }
        let mut cells = Self { of_shape: Vec::new(), judged };
        cells.of_shape.resize_with(shapes.len(), Vec::new);
        if !cells.judged.is_empty() {
            cells.count(facts, &placed, &counted);
        }
        cells
    }

    fn count(&mut self, facts: &Facts<'a>, placed: &[Group<'a>], counted: &BTreeSet<usize>) {
        let mut wanted = vec![false; self.of_shape.len()];
        counted.iter().for_each(|shape| wanted[*shape] = true);
        let mut known: HashMap<(usize, usize), usize> = HashMap::new();
        let of_shape = &mut self.of_shape;
        let mut cell = |shape: usize, place: usize, change: &dyn Fn(&mut Cell<'a>)| {
            let cells = &mut of_shape[shape];
            let at = *known.entry((shape, place)).or_insert(cells.len());
            if at == cells.len() {
                cells.push(Cell { place, ..Cell::default() });
            }
            change(&mut cells[at]);
        };
        for (number, pod) in facts.snapshot.pods.iter().enumerate() {
            let Some(shape) = facts.index.shape_of(number).filter(|shape| wanted[*shape]) else { continue };
            // Nodes are the first places, in the order of the snapshot.
            let Some(place) = facts.index.node_of(number).filter(|_| !pod.terminating) else { continue };
            let leaving = facts.leaving.contains(facts.snapshot.nodes[place].name.as_str());
            cell(shape, place, &|cell| {
                if leaving {
                    cell.leaving += 1;
                } else {
                    cell.first_kept = if cell.kept == 0 { pod.uid.as_str() } else { cell.first_kept };
                    cell.kept += 1;
                }
            });
        }
        for group in placed.iter().filter(|group| wanted[group.shape]) {
            cell(group.shape, group.place, &|cell| {
                cell.first_placed = if cell.placed == 0 { group.first } else { cell.first_placed };
                cell.placed += group.count;
            });
        }
    }
}
