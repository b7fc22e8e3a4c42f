//! Places where pods are: nodes and launches, in columns of numbers instead of maps of labels.

use crate::facts::Facts;
use crate::labels::{aliased, of_offering, value_of};
use plimsoll_model::catalog::Offering;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::snapshot::Node;
use plimsoll_model::taints::Taint;
use std::collections::{BTreeMap, HashMap};

enum Place<'a> {
    Node(&'a Node),
    /// With the number of its set of labels.
    Launch(&'a Launch, usize),
}

/// All nodes, by name, then all launches in the order of the plan.
pub(super) struct Places<'a> {
    places: Vec<Place<'a>>,
    /// Labels that every offering of a launch gives its node, but for the host name.
    labels: Vec<BTreeMap<String, String>>,
    nodes: HashMap<&'a str, usize>,
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
        let nodes: Vec<&Node> = facts.nodes.iter().collect();
        let by_name = nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
        let first_launch = nodes.len();
        let mut places: Vec<Place<'a>> = nodes.into_iter().map(Place::Node).collect();
        // Launches that buy the same have the same labels; the solver gives them one list.
        let (mut labels, mut known) = (Vec::new(), BTreeMap::new());
        for launch in &plan.launches {
            let key = (launch.node_pool.as_str(), &launch.requirements, launch.offerings.as_ptr() as usize);
            let set = *known.entry(key).or_insert_with(|| {
                labels.push(common_labels(facts, launch));
                labels.len() - 1
            });
            places.push(Place::Launch(launch, set));
        }
        Self { places, labels, nodes: by_name, first_launch }
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    pub(super) fn of_node(&self, name: &str) -> Option<usize> {
        self.nodes.get(name).copied()
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

    /// All labels of a place.
    pub(super) fn labels(&self, place: usize) -> BTreeMap<String, String> {
        let (mut labels, name) = match self.places[place] {
            Place::Node(node) => (aliased(&node.labels), node.name.0.clone()),
            Place::Launch(_, set) => (self.labels[set].clone(), host(place)),
        };
        labels.insert(label::HOSTNAME.to_owned(), name);
        labels
    }

    /// The column of a label. Each place is a host of its own.
    pub(super) fn column(&self, key: &str) -> Column {
        let key = label::normalized(key);
        if key == label::HOSTNAME {
            return Column { values: (0..self.count()).map(Some).collect(), count: self.count() };
        }
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let of_sets: Vec<Option<&str>> = self.labels.iter().map(|labels| value_of(labels, key)).collect();
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

/// A name that no node has.
fn host(place: usize) -> String {
    format!("launch {place}")
}

/// Labels that every offering of the launch gives its node.
fn common_labels(facts: &Facts<'_>, launch: &Launch) -> BTreeMap<String, String> {
    let mut common: Option<BTreeMap<String, String>> = None;
    let pool = facts.pools.get(launch.node_pool.as_str());
    let catalog = pool.and_then(|pool| facts.catalogs.get(pool.catalog.as_ref()?));
    if let Some((pool, catalog)) = pool.zip(catalog) {
        for choice in launch.offerings.iter() {
            let Some(kind) = catalog.get(&choice.instance_type) else { continue };
            let same = |one: &&Offering| one.zone == choice.zone && one.capacity_type == choice.capacity_type;
            let Some(offering) = kind.offerings.iter().find(same) else { continue };
            let labels = of_offering(catalog, pool, launch, kind, offering);
            match &mut common {
                Some(known) => known.retain(|key, value| labels.get(key) == Some(value)),
                None => common = Some(labels),
            }
        }
    }
    common.unwrap_or_default()
}
