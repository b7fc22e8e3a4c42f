//! Placement targets: existing nodes and launches. Labels are stored as columns of numbers instead of maps.

use crate::facts::Facts;
use crate::labels::{Labels, aliased, value_of};
use crate::offering_nodes::OfferingNode;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::snapshot::Node;
use plimsoll_model::taints::Taint;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// What a place is: a node or a launch.
enum Target<'a> {
    Node(&'a Node),
    /// A launch and its label set.
    Launch(&'a Launch, Id<LabelSet<'static>>),
}

/// Nodes that a launch may become.
pub(super) type LabelSet<'a> = Vec<Rc<OfferingNode<'a>>>;

/// Counts the targets of a plan.
pub(super) enum Place {}

/// Counts the domains of a topology key.
pub(super) enum Domain {}

/// All nodes in snapshot order, followed by all launches in plan order.
pub(super) struct PlacementTargets<'a> {
    targets: IndexVec<Place, Target<'a>>,
    /// Once for launches with the same offerings.
    label_sets: IndexVec<LabelSet<'static>, LabelSet<'a>>,
    first_launch: usize,
}

/// Values of a label on all targets, as numbers.
pub(super) struct Column {
    /// By target; `None` if the label is missing.
    pub(super) values: IndexVec<Place, Option<Id<Domain>>>,
    /// Number of distinct values.
    pub(super) count: usize,
}

impl<'a> PlacementTargets<'a> {
    pub(super) fn new(facts: &Facts<'a>, plan: &'a Plan) -> Self {
        let first_launch = facts.snapshot.nodes.len();
        let mut targets: IndexVec<Place, Target<'a>> = facts.snapshot.nodes.iter().map(Target::Node).collect();
        // Launches with the same offerings have the same labels; the solver shares one list among them.
        let (mut label_sets, mut known) = (IndexVec::new(), BTreeMap::new());
        for launch in &plan.launches {
            let key = (
                launch.node_pool.as_str(),
                Arc::as_ptr(&launch.requirements) as usize,
                Arc::as_ptr(&launch.offerings) as usize,
            );
            let set = *known.entry(key).or_insert_with(|| label_sets.push(launch_nodes(facts, launch)));
            targets.push(Target::Launch(launch, set));
        }
        Self { targets, label_sets, first_launch }
    }

    pub(super) fn places(&self) -> impl Iterator<Item = Id<Place>> {
        self.targets.ids()
    }

    pub(super) fn of_launch(&self, index: usize) -> Id<Place> {
        Id::new(self.first_launch + index)
    }

    /// Name in plans and messages.
    pub(super) fn name(&self, place: Id<Place>) -> String {
        match &self.targets[place] {
            Target::Node(node) => node.name.0.clone(),
            Target::Launch(launch, _) => format!("launch {}", launch.action_id.0),
        }
    }

    pub(super) fn taints(&self, place: Id<Place>) -> &'a [Taint] {
        match self.targets[place] {
            Target::Node(node) => &node.taints,
            Target::Launch(launch, _) => &launch.taints,
        }
    }

    /// The label set of a launch.
    pub(super) fn label_set(&self, place: Id<Place>) -> Option<Id<LabelSet<'static>>> {
        match self.targets[place] {
            Target::Node(_) => None,
            Target::Launch(_, set) => Some(set),
        }
    }

    /// By label set: one node for each combination of values of the labels `keys`.
    pub(super) fn variants(&self, keys: &BTreeSet<&str>) -> IndexVec<LabelSet<'static>, LabelSet<'a>> {
        let values =
            |node: &OfferingNode<'a>| -> Vec<Option<&'a str>> { keys.iter().map(|key| node.labels.get(key)).collect() };
        let distinct = |nodes: &LabelSet<'a>| -> LabelSet<'a> {
            let by_values: BTreeMap<Vec<Option<&str>>, Rc<OfferingNode<'a>>> =
                nodes.iter().map(|node| (values(node), Rc::clone(node))).collect();
            by_values.into_values().collect()
        };
        self.label_sets.iter().map(distinct).collect()
    }

    /// All labels of an existing node, with the given hostname. A launch has none.
    pub(super) fn node_labels<'p>(&'p self, place: Id<Place>, host: &'p str) -> Labels<'p> {
        let mut labels = match self.targets[place] {
            Target::Node(node) => aliased(&node.labels),
            Target::Launch(..) => Labels::new(),
        };
        labels.insert(label::HOSTNAME, host);
        labels
    }

    /// Hostname of the target; for a launch, a name that no node has.
    pub(super) fn host(&self, place: Id<Place>) -> String {
        match self.targets[place] {
            Target::Node(node) => node.name.0.clone(),
            Target::Launch(..) => format!("launch {place:?}"),
        }
    }

    /// Returns the column of a label. Each target is a host of its own.
    pub(super) fn column(&self, key: &str) -> Column {
        let key = label::normalized(key);
        if key == label::HOSTNAME {
            let count = self.targets.len();
            return Column { values: (0..count).map(|host| Some(Id::new(host))).collect(), count };
        }
        let mut numbers: HashMap<&str, Id<Domain>> = HashMap::new();
        let set_values: IndexVec<LabelSet<'static>, Option<&str>> =
            self.label_sets.iter().map(|nodes| common_value(nodes, key)).collect();
        let mut values = IndexVec::new();
        for target in &self.targets {
            let value = match target {
                Target::Node(node) => value_of(&node.labels, key),
                Target::Launch(_, set) => set_values[*set],
            };
            let next = Id::new(numbers.len());
            values.push(value.map(|value| *numbers.entry(value).or_insert(next)));
        }
        let count = numbers.len();
        Column { values, count }
    }

    /// By target: whether it has the label. A launch has it if every node that it may become has it, with any value.
    pub(super) fn labelled(&self, key: &str) -> IndexVec<Place, bool> {
        let every = |nodes: &LabelSet<'_>| nodes.iter().all(|node| node.labels.get(key).is_some());
        let sets: IndexVec<LabelSet<'static>, bool> = self.label_sets.iter().map(every).collect();
        let has_label = |target: &Target<'_>| match target {
            Target::Node(node) => value_of(&node.labels, key).is_some(),
            Target::Launch(_, set) => sets[*set],
        };
        self.targets.iter().map(has_label).collect()
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
pub(super) fn common_value<'w>(offering_nodes: &[Rc<OfferingNode<'w>>], key: &str) -> Option<&'w str> {
    let (first, rest) = offering_nodes.split_first()?;
    let value = first.labels.get(key)?;
    rest.iter().all(|node| node.labels.get(key) == Some(value)).then_some(value)
}
