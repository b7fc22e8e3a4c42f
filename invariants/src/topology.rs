//! Who may share a domain with whom, for what the plan places: required spread, affinity and anti-affinity of pods.
//!
//! Where a plan's order of events is open (pods that leave while others come), the view that allows more is taken. Pods are
//! counted once for each selector and domain, so that the work grows with pods and places, not with pairs of pods.

mod cells;
mod places;
mod selecting;
mod spread;

use crate::Violation;
use crate::facts::Facts;
use cells::{Cell, Cells};
use places::{Column, Places};
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{PodAffinityTerm, PodShape};
use selecting::{Selecting, Shapes, wants};
use spread::{Kinds, Tallies};
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) fn check<'a>(facts: &Facts<'a>, plan: &'a Plan, found: &mut Vec<Violation>) {
    let looks = |shape: &PodShape| !shape.topology_spread.is_empty() || !shape.pod_affinity.is_empty();
    if !facts.snapshot.shapes.iter().any(looks) {
        return;
    }
    let mut view = View::new(facts, plan);
    for number in view.cells.judged.clone() {
        for (place, pod, problem) in view.problems(number, &facts.snapshot.shapes[number]) {
            let pod = facts.pod(pod).map_or_else(String::new, |pod| pod.full_name());
            found.push(Violation::PodDoesNotFit { pod, place: view.places.name(place), problem });
        }
    }
}

/// Members of a term, by domain.
struct Members {
    kept: Vec<i64>,
    placed: Vec<i64>,
}

/// What is known of places and pods, each question answered once.
struct View<'a> {
    places: Places<'a>,
    cells: Cells<'a>,
    selecting: Selecting<'a>,
    kinds: Kinds,
    columns: BTreeMap<&'a str, Rc<Column>>,
    /// By shapes and topology key.
    members: BTreeMap<(Shapes, &'a str), Rc<Members>>,
    tallies: Tallies<'a>,
}

impl<'a> View<'a> {
    fn new(facts: &Facts<'a>, plan: &'a Plan) -> Self {
        let places = Places::new(facts, plan);
        let mut selecting = Selecting::new(&facts.snapshot.shapes);
        let cells = Cells::new(facts, &places, plan, &mut selecting);
        let kinds = Kinds::new(&places, selecting.shapes, &cells);
        let (columns, members, tallies) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { places, cells, selecting, kinds, columns, members, tallies }
    }

    fn column(&mut self, key: &'a str) -> Rc<Column> {
        let key = label::normalized(key);
        Rc::clone(self.columns.entry(key).or_insert_with(|| Rc::new(self.places.column(key))))
    }

    fn members(&mut self, shapes: &Shapes, key: &'a str) -> Rc<Members> {
        let key = label::normalized(key);
        if let Some(known) = self.members.get(&(Rc::clone(shapes), key)) {
            return Rc::clone(known);
        }
        let column = self.column(key);
        let mut members = Members { kept: vec![0; column.count], placed: vec![0; column.count] };
        for cell in shapes.iter().flat_map(|shape| &self.cells.of_shape[*shape]) {
            if let Some(domain) = column.values[cell.place] {
                members.kept[domain] += cell.kept;
                members.placed[domain] += cell.placed;
            }
        }
        let members = Rc::new(members);
        self.members.insert((Rc::clone(shapes), key), Rc::clone(&members));
        members
    }

    /// What the plan did wrong by where pods of this shape are, or by what it put beside them: place, first pod, problem.
    fn problems(&mut self, number: usize, shape: &'a PodShape) -> Vec<(usize, &'a str, String)> {
        let mut found = Vec::new();
        let spreads = self.spreads(shape);
        for at in 0..self.cells.of_shape[number].len() {
            let Cell { place, kept, first_kept, placed, first_placed, .. } = self.cells.of_shape[number][at];
            if kept > 0 {
                let problem = self.company(number, shape, place, false);
                found.extend(problem.map(|problem| (place, first_kept, problem)));
            }
            if placed > 0 {
                let uneven = || spreads.iter().find(|one| !one.is_even(place));
                let problem = self.company(number, shape, place, true);
                let problem =
                    problem.or_else(|| uneven().map(|one| format!("topology spread over {}", one.spread.topology_key)));
                found.extend(problem.map(|problem| (place, first_placed, problem)));
            }
        }
        found
    }

    /// The first term of affinity or anti-affinity that does not hold for pods of the shape at `place`.
    fn company(&mut self, number: usize, shape: &'a PodShape, place: usize, placed: bool) -> Option<String> {
        for term in shape.pod_affinity.iter().filter(|one| one.weight.is_none()) {
            if term.anti && self.has_unwanted(number, term, place, placed) {
                return Some(format!("podAntiAffinity over {}", term.topology_key));
            }
            if !term.anti && placed && !self.has_wanted(number, shape, term, place) {
                return Some(format!("podAffinity over {}", term.topology_key));
            }
        }
        None
    }

    /// Whether the plan brought a pod of the shape and one that it does not want near into one domain.
    fn has_unwanted(&mut self, number: usize, term: &'a PodAffinityTerm, place: usize, placed: bool) -> bool {
        let Some(own) = self.column(&term.topology_key).values[place] else { return false };
        let shapes = self.selecting.members(&term.namespaces, term.selector.as_ref());
        let members = self.members(&shapes, &term.topology_key);
        if placed {
            let itself = i64::from(shapes.binary_search(&number).is_ok());
            members.kept[own] + members.placed[own] > itself
        } else {
            members.placed[own] > 0
        }
    }

    /// Whether a pod that the plan placed has one near that matches all its terms at once, as kube-scheduler wants it, or may
    /// be the first of those that want each other.
    fn has_wanted(&mut self, number: usize, shape: &'a PodShape, term: &'a PodAffinityTerm, place: usize) -> bool {
        let Some(own) = self.column(&term.topology_key).values[place] else { return false };
        let shapes = self.selecting.wanted(shape);
        let members = self.members(&shapes, &term.topology_key);
        let itself = i64::from(shapes.binary_search(&number).is_ok());
        if members.kept[own] + members.placed[own] > itself {
            return true;
        }
        if itself == 0 {
            return false;
        }
        // Of pods that want each other, one alone can be the first.
        let before = |other: &usize| {
            let mutual = wants(&self.selecting.shapes[*other], shape);
            self.cells.of_shape[*other].iter().map(|cell| cell.kept + if mutual { cell.placed } else { 0 }).sum::<i64>()
        };
        shapes.iter().map(before).sum::<i64>() == itself
    }
}
