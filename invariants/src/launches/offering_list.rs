//! Checks the offerings of launches against catalog and pool, and whether pods fit on each offering.

use super::launch_requirement;
use crate::Violation;
use crate::capacity_quotas;
use crate::facts::Facts;
use crate::labels::{label_problem, taint_problem};
use crate::offering_nodes::OfferingNode;
use plimsoll_model::names::{NODES_RESOURCE, USD_PER_HOUR_RESOURCE, label};
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::NodeSelectorRequirement;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{HostPort, NodePool, PodShape};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// The nodes of a list of offerings, shared by all launches with the same list.
pub(super) struct OfferingList<'a> {
    pool: &'a NodePool,
    nodes: Vec<ListedNode<'a>>,
    /// Distinct minimal free capacities of the nodes. Pods that fit into one of them also fit into larger ones, which
    /// are omitted.
    capacity_classes: Vec<CapacityClass>,
    /// The least allocatable amount of each resource among the nodes.
    min_allocatable: Option<Resources>,
    /// Problems of the offerings, independent of the pods.
    offering_problems: Vec<String>,
    launch_problems: Vec<String>,
    /// Maximum usage of pool limits by one launch.
    pub(super) max_usage: Resources,
    /// Maximum usage of each CapacityQuota by one launch.
    pub(super) max_quota_usage: Vec<Resources>,
    /// Problems by shape id: node index and message.
    shape_problems: BTreeMap<&'a str, Vec<(usize, String)>>,
}

/// Free capacity after DaemonSets.
struct CapacityClass {
    free: Resources,
    /// Resource whose capacity the DaemonSets alone exceed.
    daemon_excess: Option<String>,
    /// Index of a node with this capacity.
    example: usize,
}

/// A node that an offering would become.
struct ListedNode<'a> {
    node: Rc<OfferingNode<'a>>,
    /// Free capacity after DaemonSets.
    capacity: Rc<NodeCapacity<'a>>,
}

/// Capacity of a node that DaemonSets leave free.
pub(super) struct NodeCapacity<'a> {
    free: Resources,
    daemon_excess: Option<String>,
    /// Ports of DaemonSets.
    ports: Vec<&'a HostPort>,
    /// Problems by shape id.
    problems: RefCell<HashMap<&'a str, Option<String>>>,
}

/// By address of the node, which lives as long as the check. Never iterated, so hash order does not matter.
pub(super) type NodeCapacities<'a> = HashMap<usize, Rc<NodeCapacity<'a>>>;

impl ListedNode<'_> {
    fn place(&self) -> String {
        let (instance_type, offering) = (self.node.instance_type, self.node.offering);
        let reservation = offering.reservation_id().map(|id| format!(" {id}")).unwrap_or_default();
        format!("{} in {} ({}{reservation})", instance_type.name, offering.zone, offering.capacity_type)
    }
}

impl<'a> OfferingList<'a> {
    pub(super) fn new(
        facts: &Facts<'a>,
        capacities: &mut NodeCapacities<'a>,
        pool: &'a NodePool,
        launch: &'a Launch,
    ) -> Self {
        let (nodes, capacity_classes, shape_problems) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (offering_problems, launch_problems) = (Vec::new(), Vec::new());
        let mut list = Self {
            pool,
            nodes,
            capacity_classes,
            min_allocatable: None,
            offering_problems,
            launch_problems,
            max_usage: Resources::new(),
            max_quota_usage: vec![Resources::new(); facts.snapshot.capacity_quotas.len()],
            shape_problems,
        };
        if !launch.offerings.is_sorted_by_key(|offering| offering.price) {
            list.offering_problems.push("offerings are not cheapest first".to_owned());
        }
        let Some(catalog) = pool.catalog.as_ref().and_then(|id| facts.catalogs.get(id)) else {
            list.offering_problems.push("the pool has no catalog".to_owned());
            return list;
        };
        let launch_offerings = facts.offering_nodes.launch_offerings(catalog, pool, launch);
        for choice in launch.offerings.iter() {
            let node = launch_offerings.get(choice);
            match node.map_err(str::to_owned).and_then(|node| check_offering(facts, &node, choice).map(|()| node)) {
                Ok(node) => list.add(facts, capacities, node),
                Err(problem) => {
                    list.offering_problems.push(format!("{choice}: {problem}"));
                }
            }
        }
        list.check_min_values(launch);
        list.max_usage.set(NODES_RESOURCE, 1);
        list
    }

    fn add(&mut self, facts: &Facts<'a>, capacities: &mut NodeCapacities<'a>, node: Rc<OfferingNode<'a>>) {
        if self.nodes.last().is_none_or(|last| last.node.instance_type.name != node.instance_type.name) {
            self.max_usage.raise_to(&node.instance_type.capacity);
        }
        let dearest = self.max_usage.get(USD_PER_HOUR_RESOURCE).max(node.offering.list_price().0);
        self.max_usage.set(USD_PER_HOUR_RESOURCE, dearest);
        for (quota, usage) in facts.snapshot.capacity_quotas.iter().zip(&mut self.max_quota_usage) {
            if capacity_quotas::selects(quota, self.pool, |key| node.labels.get_for_pods(key)) {
                usage.raise_to(&node.instance_type.capacity);
                usage.set(NODES_RESOURCE, 1);
            }
        }
        let capacity = capacities
            .entry(Rc::as_ptr(&node) as usize)
            .or_insert_with(|| Rc::new(node_capacity(facts, self.pool, &node)));
        let listed = ListedNode { capacity: Rc::clone(capacity), node };
        if let Some(problem) = &listed.node.problem {
            self.offering_problems.push(format!("{}: {problem}", listed.place()));
        }
        self.lower_min_allocatable(listed.node.instance_type.allocatable());
        let number = self.nodes.len();
        self.add_capacity_class(&listed.capacity, number);
        self.nodes.push(listed);
    }

    fn lower_min_allocatable(&mut self, allocatable: Resources) {
        let Some(least) = self.min_allocatable.take() else {
            self.min_allocatable = Some(allocatable);
            return;
        };
        let mut lowered = Resources::new();
        least.iter().for_each(|(name, amount)| lowered.set(name, amount.min(allocatable.get(name))));
        self.min_allocatable = Some(lowered);
    }

    fn add_capacity_class(&mut self, capacity: &NodeCapacity<'_>, example: usize) {
        // Nodes whose DaemonSets alone request too much are all reported.
        let fits_within =
            |a: &CapacityClass, free: &Resources| a.daemon_excess.is_none() && a.free.first_excess(free).is_none();
        let is_covered = |class: &CapacityClass| {
            class.free == capacity.free || (capacity.daemon_excess.is_none() && fits_within(class, &capacity.free))
        };
        if self.capacity_classes.iter().any(is_covered) {
            return;
        }
        let class =
            CapacityClass { free: capacity.free.clone(), daemon_excess: capacity.daemon_excess.clone(), example };
        self.capacity_classes.retain(|other| other.daemon_excess.is_some() || !fits_within(&class, &other.free));
        self.capacity_classes.push(class);
    }

    /// Checks `minValues`.
    fn check_min_values(&mut self, launch: &Launch) {
        for wanted in &self.pool.requirements {
            let count = |requirement: &NodeSelectorRequirement| {
                requirement.min_values.and_then(|count| usize::try_from(count).ok())
            };
            let Some(original) = count(wanted) else { continue };
            let required = launch_requirement(wanted, launch).and_then(count).unwrap_or(original);
            let key = label::normalized(&wanted.key);
            let have = self.nodes.iter().filter_map(|node| node.node.labels.get(key)).collect::<BTreeSet<_>>().len();
            if have < required || (required < original && have > required) {
                self.launch_problems.push(format!("{have} values of {}, at least {required} are wanted", wanted.key));
            }
        }
    }

    /// Checks a launch with these offerings.
    pub(super) fn check(&mut self, facts: &Facts<'a>, launch: &Launch, violations: &mut Vec<Violation>) {
        let name = || launch.action_id.0.clone();
        let bad = |problem: &String| Violation::BadOffering { launch: name(), problem: problem.clone() };
        violations.extend(self.offering_problems.iter().map(bad));
        let bad = |problem: &String| Violation::BadLaunch { launch: name(), problem: problem.clone() };
        violations.extend(self.launch_problems.iter().map(bad));
        let requested_too_much = self.min_allocatable.as_ref().and_then(|least| launch.requests.first_excess(least));
        if let Some(resource) = requested_too_much {
            let problem = format!("it requests more {resource} than one of its instance types has");
            violations.push(Violation::BadLaunch { launch: name(), problem });
        }
        let shapes = facts.by_shape_of(&launch.pods);
        let (mut load, mut ports) = (Resources::new(), Vec::new());
        for (shape, count, pod) in shapes {
            load.add_times(&shape.requests, count);
            let conflicts = |port: &HostPort| count > 1 || ports.iter().any(|other: &&HostPort| other.conflicts(port));
            let port_conflict = shape.host_ports.iter().any(conflicts);
            ports.extend(&shape.host_ports);
            let problems = self
                .shape_problems
                .entry(shape.id.as_str())
                .or_insert_with(|| shape_problems(self.pool, &self.nodes, shape));
            if problems.is_empty() && !port_conflict {
                continue;
            }
            let mut add = |node: &ListedNode<'_>, problem: &str| {
                let (pod, place) = (pod.name.clone(), node.place());
                violations.push(Violation::PodDoesNotFit { pod, place, problem: problem.to_owned() });
            };
            for (node, problem) in problems.iter().filter_map(|(at, problem)| Some((self.nodes.get(*at)?, problem))) {
                add(node, problem);
            }
            if port_conflict {
                self.nodes.iter().for_each(|node| add(node, "host port"));
            }
        }
        for class in &self.capacity_classes {
            if let Some(resource) = load.first_excess(&class.free).or(class.daemon_excess.as_deref()) {
                let place = self.nodes.get(class.example).map_or_else(String::new, ListedNode::place);
                violations.push(Violation::Overcommitted { place, resource: resource.to_owned() });
            }
        }
    }
}

/// Capacity of a node that DaemonSets leave free.
fn node_capacity<'a>(facts: &Facts<'a>, pool: &NodePool, node: &OfferingNode<'a>) -> NodeCapacity<'a> {
    let (mut load, mut ports) = (Resources::new(), Vec::new());
    let daemons = facts.snapshot.daemon_sets.iter().filter_map(|daemon| facts.shape(daemon.shape.as_str()));
    for shape in daemons {
        if taint_problem(shape, &pool.taints).is_none()
            && label_problem(shape, "", |key| node.labels.get_for_pods(key)).is_none()
        {
            load.add(&shape.requests);
            ports.extend(&shape.host_ports);
        }
    }
    let mut free = node.instance_type.allocatable();
    let daemon_excess = load.first_excess(&free).map(str::to_owned);
    free.subtract(&load);
    NodeCapacity { free, daemon_excess, ports, problems: RefCell::default() }
}

/// Returns for each node why pods of the shape cannot run there, independent of other pods.
fn shape_problems<'a>(pool: &NodePool, nodes: &[ListedNode<'a>], shape: &'a PodShape) -> Vec<(usize, String)> {
    let taint = taint_problem(shape, &pool.taints);
    if taint.is_none() && is_unrestricted(shape) {
        return Vec::new();
    }
    let problem_on = |node: &ListedNode<'a>| {
        let port_conflict =
            || shape.host_ports.iter().any(|port| node.capacity.ports.iter().any(|other| other.conflicts(port)));
        let find = || {
            let labelled = taint.clone().or_else(|| label_problem(shape, "", |key| node.node.labels.get_for_pods(key)));
            labelled.or_else(|| port_conflict().then(|| "host port".to_owned()))
        };
        node.capacity.problems.borrow_mut().entry(shape.id.as_str()).or_insert_with(find).clone()
    };
    nodes.iter().enumerate().filter_map(|(at, node)| Some((at, problem_on(node)?))).collect()
}

/// Whether the shape can run on any untainted node.
fn is_unrestricted(shape: &PodShape) -> bool {
    shape.node_selector.is_empty()
        && shape.required_node_affinity.is_empty()
        && shape.volumes.iter().all(|volume| volume.alternatives.is_empty() && volume.problem.is_none())
        && shape.host_ports.is_empty()
}

/// Checks that the offering is available at the planned price.
fn check_offering(facts: &Facts<'_>, node: &OfferingNode<'_>, choice: &OfferingChoice) -> Result<(), String> {
    let unavailable = facts.snapshot.unavailable_offerings.iter().any(|entry| {
        entry.capacity_type == choice.capacity_type
            && entry.zone.as_ref().is_none_or(|zone| *zone == choice.zone)
            && entry.instance_type.as_ref().is_none_or(|name| *name == choice.instance_type)
    });
    if !node.offering.available || unavailable {
        return Err("not available".to_owned());
    }
    if node.offering.price != choice.price {
        return Err(format!("costs {}, the plan says {}", node.offering.price, choice.price));
    }
    Ok(())
}
