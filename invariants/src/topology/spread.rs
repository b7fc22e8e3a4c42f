//! How evenly the pods of a spread are, by domain.

use super::cells::Cells;
use super::places::{Column, Places};
use super::{Selecting, View};
use crate::labels::{label_problem, taint_problem};
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{PodShape, TopologySpread};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Places that no node selector and no toleration of judged shapes tells apart.
pub(super) struct Kinds {
    of_place: Vec<usize>,
    /// One place of each.
    examples: Vec<usize>,
}

impl Kinds {
    pub(super) fn new(places: &Places<'_>, shapes: &[PodShape], cells: &Cells<'_>) -> Self {
        let spread = cells.judged.iter().map(|number| &shapes[*number]);
        let spread = spread.filter(|shape| shape.topology_spread.iter().any(|one| one.required));
        let keys: BTreeSet<&str> = spread.flat_map(|shape| keys(shape).into_iter().chain(spread_over(shape))).collect();
        let columns: Vec<Column> = keys.into_iter().map(|key| places.column(key)).collect();
        let mut known = BTreeMap::new();
        let mut kinds = Self { of_place: Vec::with_capacity(places.count()), examples: Vec::new() };
        for place in 0..places.count() {
            let values: Vec<Option<usize>> = columns.iter().map(|column| column.values[place]).collect();
            let kind = *known.entry((values, places.taints(place))).or_insert(kinds.examples.len());
            if kind == kinds.examples.len() {
                kinds.examples.push(place);
            }
            kinds.of_place.push(kind);
        }
        kinds
    }

    /// By kind: whether its domains count for the spread.
    fn eligible(&self, places: &Places<'_>, shape: &PodShape, spread: &TopologySpread) -> Vec<bool> {
        let over: Vec<Column> = spread_over(shape).map(|key| places.column(key)).collect();
        let chooses = !keys(shape).is_empty();
        let labelled = |place: usize| {
            let host = places.host(place);
            let labels = places.labels(place, &host);
            label_problem(shape, &places.name(place), |key| labels.get(key).copied()).is_none()
        };
        let counts = |place: &usize| {
            (!spread.honor_node_affinity || !chooses || labelled(*place))
                && over.iter().all(|column| column.values[*place].is_some())
                && (!spread.honor_node_taints || taint_problem(shape, places.taints(*place)).is_none())
        };
        self.examples.iter().map(counts).collect()
    }
}

/// Labels by which a shape chooses nodes; that of the host where it chooses by name.
fn keys(shape: &PodShape) -> BTreeSet<&str> {
    let mut keys: BTreeSet<&str> = shape.node_selector.keys().map(|key| label::normalized(key)).collect();
    let terms = shape.required_node_affinity.iter().chain(shape.volumes.iter().flat_map(|one| &one.alternatives));
    for term in terms {
        keys.extend(term.expressions.iter().map(|one| label::normalized(&one.key)));
        if !term.fields.is_empty() {
            keys.insert(label::HOSTNAME);
        }
    }
    keys
}

/// Labels without any of which a node is in no domain of the shape's spreads, but for those that all nodes of pools have.
fn spread_over(shape: &PodShape) -> impl Iterator<Item = &str> {
    let required = shape.topology_spread.iter().filter(|one| one.required);
    required
        .map(|one| label::normalized(&one.topology_key))
        .filter(|key| *key != label::HOSTNAME && !label::is_well_known(key))
}

/// Pods of a spread, counted.
pub(super) struct Tally {
    /// By domain: those that are there before the spread's own last pod.
    firm: Vec<i64>,
    /// The least of all domains that count.
    least: i64,
}

/// Tallies by namespace, spread and eligible kinds of places.
pub(super) type Tallies<'a> = BTreeMap<(&'a str, &'a TopologySpread, Vec<bool>), Rc<Tally>>;

/// A required spread of a shape, with what it is judged by.
pub(super) struct Bound<'a> {
    pub(super) spread: &'a TopologySpread,
    column: Rc<Column>,
    tally: Rc<Tally>,
}

impl Bound<'_> {
    /// Whether it holds for pods that the plan puts on `place`.
    pub(super) fn is_even(&self, place: usize) -> bool {
        let own = self.column.values[place];
        own.is_some_and(|own| self.tally.firm[own] - self.tally.least <= i64::from(self.spread.max_skew))
    }
}

impl<'a> View<'a> {
    /// The required spreads of a shape; those without a selector bind nobody.
    pub(super) fn spreads(&mut self, shape: &'a PodShape) -> Vec<Bound<'a>> {
        let binding = shape.topology_spread.iter().filter(|one| one.required && one.selector.is_some());
        let bound = binding.map(|spread| {
            let column = self.column(&spread.topology_key);
            Bound { spread, tally: self.tally(shape, spread, &column), column }
        });
        bound.collect()
    }

    fn tally(&mut self, shape: &'a PodShape, spread: &'a TopologySpread, column: &Column) -> Rc<Tally> {
        let eligible = self.kinds.eligible(&self.places, shape, spread);
        let key = (shape.namespace.as_str(), spread, eligible);
        if let Some(known) = self.tallies.get(&key) {
            return Rc::clone(known);
        }
        let tally = Rc::new(count(&self.kinds, &self.cells, &mut self.selecting, (shape, spread), column, &key.2));
        self.tallies.insert(key, Rc::clone(&tally));
        tally
    }
}

fn count<'a>(
    kinds: &Kinds,
    cells: &Cells<'_>,
    selecting: &mut Selecting<'a>,
    (shape, spread): (&'a PodShape, &'a TopologySpread),
    column: &Column,
    eligible: &[bool],
) -> Tally {
    let mut counts: Vec<Option<i64>> = vec![None; column.count];
    for (kind, domain) in kinds.of_place.iter().zip(&column.values) {
        if let Some(domain) = domain.filter(|_| eligible[*kind]) {
            counts[domain] = Some(0);
        }
    }
    let mut firm = vec![0; column.count];
    let namespace = std::slice::from_ref(&shape.namespace);
    for member in selecting.members(namespace, spread.selector.as_ref()).iter() {
        // Members that the spread does not bind may come once its own pods are there.
        let first = selecting.shapes[*member].topology_spread.contains(spread);
        for cell in cells.of_shape[*member].iter().filter(|cell| eligible[kinds.of_place[cell.place]]) {
            let Some(domain) = column.values[cell.place] else { continue };
            firm[domain] += cell.kept + if first { cell.placed } else { 0 };
            if let Some(count) = &mut counts[domain] {
                *count += cell.stay() + cell.leaving;
            }
        }
    }
    let domains = counts.iter().flatten().count();
    let few = spread.min_domains.and_then(|least| usize::try_from(least).ok()).unwrap_or(1) > domains;
    let least = if few { 0 } else { counts.into_iter().flatten().min().unwrap_or(0) };
    Tally { firm, least }
}
