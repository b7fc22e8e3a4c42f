//! Placement targets: existing nodes and launches. Labels are stored as columns of numbers instead of maps.

use crate::facts::Facts;
use crate::labels::{Labels, aliased, value_of};
use crate::offering_nodes::OfferingNode;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::snapshot::Node;
use plimsoll_model::taints::Taint;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

enum Target<'a> {
    Node(&'a Node),
    /// A launch and the number of its label set.
    Launch(&'a Launch, usize),
}

/// All nodes in snapshot order, followed by all launches in plan order.
pub(super) struct PlacementTargets<'a> {
    targets: Vec<Target<'a>>,
    /// Nodes that a launch may become, once for launches with the same offerings.
    offering_nodes: Vec<Vec<Rc<OfferingNode<'a>>>>,
    first_launch: usize,
}

/// Values of a label on all targets, as numbers.
pub(super) struct Column {
    /// By target; `None` if the label is missing.
    pub(super) values: Vec<Option<usize>>,
    /// Number of distinct values.
    pub(super) count: usize,
}

impl<'a> PlacementTargets<'a> {
    pub(super) fn new(facts: &Facts<'a>, plan: &'a Plan) -> Self {
        let first_launch = facts.snapshot.nodes.len();
        let mut targets: Vec<Target<'a>> = facts.snapshot.nodes.iter().map(Target::Node).collect();
        // Launches with the same offerings have the same labels; the solver shares one list among them.
        let (mut offering_nodes, mut sets) = (Vec::new(), BTreeMap::new());
        for launch in &plan.launches {
            let key = (
                launch.node_pool.as_str(),
                Arc::as_ptr(&launch.requirements) as usize,
                Arc::as_ptr(&launch.offerings) as usize,
            );
            let set = *sets.entry(key).or_insert_with(|| {
                offering_nodes.push(launch_nodes(facts, launch));
                offering_nodes.len() - 1
            });
            targets.push(Target::Launch(launch, set));
        }
        Self { targets, offering_nodes, first_launch }
    }

    pub(super) fn count(&self) -> usize {
        self.targets.len()
    }

    pub(super) fn of_launch(&self, index: usize) -> usize {
        self.first_launch + index
    }

    /// Name in plans and messages.
    pub(super) fn name(&self, place: usize) -> String {
        match &self.targets[place] {
            Target::Node(node) => node.name.0.clone(),
            Target::Launch(launch, _) => format!("launch {}", launch.action_id.0),
        }
    }

    pub(super) fn taints(&self, place: usize) -> &'a [Taint] {
        match self.targets[place] {
            Target::Node(node) => &node.taints,
            Target::Launch(launch, _) => &launch.taints,
        }
    }

    /// All labels of a target, with the given hostname.
    pub(super) fn labels<'p>(&'p self, place: usize, host: &'p str) -> Labels<'p> {
        let mut labels = match self.targets[place] {
            Target::Node(node) => aliased(&node.labels),
            Target::Launch(_, set) => common_labels(&self.offering_nodes[set]),
        };
        labels.insert(label::HOSTNAME, host);
        labels
    }

    /// Hostname of the target; for a launch, a name that no node has.
    pub(super) fn host(&self, place: usize) -> String {
        match self.targets[place] {
            Target::Node(node) => node.name.0.clone(),
            Target::Launch(..) => format!("launch {place}"),
        }
    }

    /// Returns the column of a label. Each target is a host of its own.
    pub(super) fn column(&self, key: &str) -> Column {
        let key = label::normalized(key);
        if key == label::HOSTNAME {
            return Column { values: (0..self.count()).map(Some).collect(), count: self.count() };
        }
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let set_values: Vec<Option<&str>> =
            self.offering_nodes.iter().map(|offering_nodes| common_value(offering_nodes, key)).collect();
        let mut values = Vec::with_capacity(self.count());
        for place in &self.targets {
            let value = match place {
                Target::Node(node) => value_of(&node.labels, key),
                Target::Launch(_, set) => set_values[*set],
            };
            let next = numbers.len();
            values.push(value.map(|value| *numbers.entry(value).or_insert(next)));
        }
        let count = numbers.len();
        Column { values, count }
    }
}

/// Nodes that the launch may become.
fn launch_nodes<'a>(facts: &Facts<'a>, launch: &'a Launch) -> Vec<Rc<OfferingNode<'a>>> {
    let pool = facts.pool(launch.node_pool.as_str());
    let catalog = pool.and_then(|pool| facts.catalogs.get(pool.catalog.as_ref()?));
    let Some((pool, catalog)) = pool.zip(catalog) else { return Vec::new() };
    let resolver = facts.offering_nodes.launch_offerings(catalog, pool, launch);
    launch.offerings.iter().filter_map(|offering| resolver.get(offering).ok()).collect()
}

/// Value of a label if all nodes have the same value.
fn common_value<'w>(offering_nodes: &[Rc<OfferingNode<'w>>], key: &str) -> Option<&'w str> {
    let (first, rest) = offering_nodes.split_first()?;
    let value = first.labels.get(key)?;
    rest.iter().all(|node| node.labels.get(key) == Some(value)).then_some(value)
}

/// Labels that have the same value on all nodes.
fn common_labels<'w>(offering_nodes: &[Rc<OfferingNode<'w>>]) -> Labels<'w> {
    let Some((first, rest)) = offering_nodes.split_first() else { return Labels::new() };
    let mut common = first.labels.all();
    rest.iter().for_each(|node| common.retain(|key, value| node.labels.get(key) == Some(*value)));
    common
}
