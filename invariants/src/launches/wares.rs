//! What launches buy: offerings as in the catalog and as the pool asks, and whether pods fit on each of them.

use super::kept;
use crate::Violation;
use crate::facts::Facts;
use crate::labels::{label_problem, of_offering, pool_problem, taint_problem};
use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::{NODES_RESOURCE, label};
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::NodeSelectorRequirement;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{HostPort, NodePool, PodShape};
use std::collections::{BTreeMap, BTreeSet};

/// A list of offerings as nodes of a pool, for every launch that has it.
pub(super) struct Wares<'a> {
    pool: &'a NodePool,
    nodes: Vec<Future<'a>>,
    /// What nodes have room for: each room once.
    rooms: Vec<Room>,
    /// What is wrong whatever runs there: of offerings, and of the launch.
    offerings: Vec<String>,
    launch: Vec<String>,
    /// The most that one launch may count against limits.
    pub(super) most: Resources,
    /// Problems of shapes, by their id: example and problem.
    shapes: BTreeMap<&'a str, Vec<(usize, String)>>,
}

/// What is left beside the DaemonSets.
struct Room {
    left: Resources,
    /// What DaemonSets alone ask too much of.
    short: Option<String>,
    /// A node that has it.
    example: usize,
}

/// A node that an offering would become.
struct Future<'a> {
    place: String,
    labels: BTreeMap<String, String>,
    /// Ports of DaemonSets.
    ports: Vec<&'a HostPort>,
}

impl<'a> Wares<'a> {
    pub(super) fn new(facts: &Facts<'a>, pool: &'a NodePool, launch: &Launch) -> Self {
        let (nodes, rooms, shapes) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (offerings, problems) = (Vec::new(), Vec::new());
        let mut wares = Self { pool, nodes, rooms, offerings, launch: problems, most: Resources::new(), shapes };
        if launch.offerings.windows(2).any(|pair| pair[0].price > pair[1].price) {
            wares.offerings.push("offerings are not cheapest first".to_owned());
        }
        let Some(catalog) = pool.catalog.as_ref().and_then(|id| facts.catalogs.get(id)) else {
            wares.offerings.push("the pool has no catalog".to_owned());
            return wares;
        };
        for choice in launch.offerings.iter() {
            let place = format!("{} in {} ({})", choice.instance_type, choice.zone, choice.capacity_type);
            match known(facts, catalog, choice) {
                Ok((kind, offering)) => {
                    let labels = of_offering(catalog, pool, launch, kind, offering);
                    wares.offer(facts, kind, place, labels);
                }
                Err(problem) => wares.offerings.push(format!("{place}: {problem}")),
            }
        }
        wares.values(launch);
        wares.most.set(NODES_RESOURCE, 1);
        wares
    }

    fn offer(&mut self, facts: &Facts<'a>, kind: &InstanceType, place: String, labels: BTreeMap<String, String>) {
        self.most.raise_to(&kind.capacity);
        if let Some(problem) = pool_problem(self.pool, &labels) {
            self.offerings.push(format!("{place}: {problem}"));
        }
        let (allocatable, mut load, mut ports) = (kind.allocatable(), Resources::new(), Vec::new());
        let daemons = facts.snapshot.daemon_sets.iter().filter_map(|daemon| facts.shape(daemon.shape.as_str()));
        for shape in daemons {
            if taint_problem(shape, &self.pool.taints).is_none() && label_problem(shape, "", &labels).is_none() {
                load.add(&shape.requests);
                ports.extend(&shape.host_ports);
            }
        }
        let short = load.first_excess(&allocatable).map(str::to_owned);
        let mut left = allocatable;
        left.subtract(&load);
        if !self.rooms.iter().any(|known| known.left == left) {
            self.rooms.push(Room { left, short, example: self.nodes.len() });
        }
        self.nodes.push(Future { place, labels, ports });
    }

    /// Whether there are as many values as `minValues` wants.
    fn values(&mut self, launch: &Launch) {
        for wanted in &self.pool.requirements {
            let count = |one: &NodeSelectorRequirement| one.min_values.and_then(|least| usize::try_from(least).ok());
            let Some(most) = count(wanted) else { continue };
            let least = kept(wanted, launch).and_then(count).unwrap_or(most);
            let key = label::normalized(&wanted.key);
            let have = self.nodes.iter().filter_map(|node| node.labels.get(key)).collect::<BTreeSet<_>>().len();
            if have < least || (least < most && have > least) {
                self.launch.push(format!("{have} values of {}, at least {least} are wanted", wanted.key));
            }
        }
    }

    /// Checks one launch that buys these.
    pub(super) fn check(&mut self, facts: &Facts<'a>, launch: &Launch, found: &mut Vec<Violation>) {
        let name = || launch.action_id.0.clone();
        let bad = |problem: &String| Violation::BadOffering { launch: name(), problem: problem.clone() };
        found.extend(self.offerings.iter().map(bad));
        let bad = |problem: &String| Violation::BadLaunch { launch: name(), problem: problem.clone() };
        found.extend(self.launch.iter().map(bad));
        let shapes = facts.by_shape(&launch.pods);
        let (mut load, mut ports) = (Resources::new(), Vec::new());
        for (shape, count, pod) in shapes {
            load.add_times(&shape.requests, count);
            let clash = |port: &HostPort| count > 1 || ports.iter().any(|other: &&HostPort| other.conflicts(port));
            let among = shape.host_ports.iter().any(clash);
            ports.extend(&shape.host_ports);
            let problems =
                self.shapes.entry(shape.id.as_str()).or_insert_with(|| problems(self.pool, &self.nodes, shape));
            if problems.is_empty() && !among {
                continue;
            }
            let mut add = |at: usize, problem: &str| {
                let (pod, place) = (pod.name.clone(), self.nodes[at].place.clone());
                found.push(Violation::PodDoesNotFit { pod, place, problem: problem.to_owned() });
            };
            problems.iter().for_each(|(at, problem)| add(*at, problem));
            if among {
                (0..self.nodes.len()).for_each(|at| add(at, "host port"));
            }
        }
        for room in &self.rooms {
            if let Some(resource) = load.first_excess(&room.left).or(room.short.as_deref()) {
                let place = self.nodes[room.example].place.clone();
                found.push(Violation::Overcommitted { place, resource: resource.to_owned() });
            }
        }
    }
}

/// What keeps pods of a shape from these nodes, whatever else the launch is for.
fn problems(pool: &NodePool, nodes: &[Future<'_>], shape: &PodShape) -> Vec<(usize, String)> {
    let on = |node: &Future<'_>| {
        let clash = || shape.host_ports.iter().any(|port| node.ports.iter().any(|other| other.conflicts(port)));
        taint_problem(shape, &pool.taints)
            .or_else(|| label_problem(shape, "", &node.labels))
            .or_else(|| clash().then(|| "host port".to_owned()))
    };
    nodes.iter().enumerate().filter_map(|(at, node)| Some((at, on(node)?))).collect()
}

/// The offering in the catalog, if it can be bought at that price.
fn known<'a>(
    facts: &Facts<'_>,
    catalog: &'a Catalog,
    choice: &OfferingChoice,
) -> Result<(&'a InstanceType, &'a Offering), String> {
    let kind = catalog.get(&choice.instance_type).ok_or("no such type")?;
    let same = |one: &&Offering| one.zone == choice.zone && one.capacity_type == choice.capacity_type;
    let offering = kind.offerings.iter().find(same).ok_or("no such offering")?;
    let refused = facts.snapshot.unavailable_offerings.iter().any(|one| {
        one.capacity_type == choice.capacity_type
            && one.zone.as_ref().is_none_or(|zone| *zone == choice.zone)
            && one.instance_type.as_ref().is_none_or(|name| *name == choice.instance_type)
    });
    if !offering.available || refused {
        return Err("not available".to_owned());
    }
    if offering.price != choice.price {
        return Err(format!("costs {}, the plan says {}", offering.price, choice.price));
    }
    Ok((kind, offering))
}
