//! Places where pods are: nodes and launches, in columns of numbers instead of maps of labels.

use crate::facts::Facts;
use crate::labels::{Labels, aliased, value_of};
use crate::shelf::Ware;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::snapshot::Node;
use plimsoll_model::taints::Taint;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

enum Place<'a> {
    Node(&'a Node),
    /// With the number of its set of labels.
    Launch(&'a Launch, usize),
}

/// All nodes, in the order of the snapshot, then all launches in the order of the plan.
pub(super) struct Places<'a> {
    places: Vec<Place<'a>>,
    /// Nodes that the offerings of a launch would become, once for launches that list the same.
    wares: Vec<Vec<Rc<Ware<'a>>>>,
    first_launch: usize,
}

/// The values of a label at all places, as numbers.
pub(super) struct Column {
    /// By place; `None` where the label is missing.
    pub(super) values: Vec<Option<usize>>,
    /// How many values there are.
    pub(super) count: usize,
}

impl<'a> Places<'a> {
    pub(super) fn new(facts: &Facts<'a>, plan: &'a Plan) -> Self {
        let first_launch = facts.snapshot.nodes.len();
        let mut places: Vec<Place<'a>> = facts.snapshot.nodes.iter().map(Place::Node).collect();
        // Launches that buy the same have the same labels; the solver gives them one list.
        let (mut wares, mut known) = (Vec::new(), BTreeMap::new());
        for launch in &plan.launches {
            let key = (
                launch.node_pool.as_str(),
                Arc::as_ptr(&launch.requirements) as usize,
                Arc::as_ptr(&launch.offerings) as usize,
            );
            let set = *known.entry(key).or_insert_with(|| {
                wares.push(listed(facts, launch));
                wares.len() - 1
            });
            places.push(Place::Launch(launch, set));
        }
        Self { places, wares, first_launch }
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    pub(super) fn of_launch(&self, index: usize) -> usize {
        self.first_launch + index
    }

    /// As plans and texts name it.
    pub(super) fn name(&self, place: usize) -> String {
        match &self.places[place] {
            Place::Node(node) => node.name.0.clone(),
            Place::Launch(launch, _) => format!("launch {}", launch.action_id.0),
        }
    }

    pub(super) fn taints(&self, place: usize) -> &'a [Taint] {
        match self.places[place] {
            Place::Node(node) => &node.taints,
            Place::Launch(launch, _) => &launch.taints,
        }
    }

    /// All labels of a place, where the host has this name.
    pub(super) fn labels<'p>(&'p self, place: usize, host: &'p str) -> Labels<'p> {
        let mut labels = match self.places[place] {
            Place::Node(node) => aliased(&node.labels),
            Place::Launch(_, set) => common_labels(&self.wares[set]),
        };
        labels.insert(label::HOSTNAME, host);
        labels
    }

    /// The name of the host; of a launch one that no node has.
    pub(super) fn host(&self, place: usize) -> String {
        match self.places[place] {
            Place::Node(node) => node.name.0.clone(),
            Place::Launch(..) => format!("launch {place}"),
        }
    }

    /// The column of a label. Each place is a host of its own.
    pub(super) fn column(&self, key: &str) -> Column {
        let key = label::normalized(key);
        if key == label::HOSTNAME {
            return Column { values: (0..self.count()).map(Some).collect(), count: self.count() };
        }
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let of_sets: Vec<Option<&str>> = self.wares.iter().map(|wares| common_value(wares, key)).collect();
        let mut values = Vec::with_capacity(self.count());
        for place in &self.places {
            let value = match place {
                Place::Node(node) => value_of(&node.labels, key),
                Place::Launch(_, set) => of_sets[*set],
            };
            let next = numbers.len();
            values.push(value.map(|value| *numbers.entry(value).or_insert(next)));
        }
        let count = numbers.len();
        Column { values, count }
    }
}

/// What the launch may become.
fn listed<'a>(facts: &Facts<'a>, launch: &'a Launch) -> Vec<Rc<Ware<'a>>> {
    let pool = facts.pool(launch.node_pool.as_str());
    let catalog = pool.and_then(|pool| facts.catalogs.get(pool.catalog.as_ref()?));
    let Some((pool, catalog)) = pool.zip(catalog) else { return Vec::new() };
    let choice = facts.shelf.choice(catalog, pool, launch);
    launch.offerings.iter().filter_map(|one| choice.get(one).ok()).collect()
}

/// The value that a label has whichever of `wares` it becomes.
fn common_value<'w>(wares: &[Rc<Ware<'w>>], key: &str) -> Option<&'w str> {
    let (first, rest) = wares.split_first()?;
    let value = first.labels.get(key)?;
    rest.iter().all(|ware| ware.labels.get(key) == Some(value)).then_some(value)
}

/// Labels that are the same whichever of `wares` it becomes.
fn common_labels<'w>(wares: &[Rc<Ware<'w>>]) -> Labels<'w> {
    let Some((first, rest)) = wares.split_first() else { return Labels::new() };
    let mut common = first.labels.all();
    rest.iter().for_each(|ware| common.retain(|key, value| ware.labels.get(key) == Some(*value)));
    common
}
