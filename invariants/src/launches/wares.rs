//! What launches buy: offerings as in the catalog and as the pool asks, and whether pods fit on each of them.

use super::kept;
use crate::Violation;
use crate::facts::Facts;
use crate::labels::{label_problem, taint_problem};
use crate::shelf::Ware;
use plimsoll_model::names::{NODES_RESOURCE, label};
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::NodeSelectorRequirement;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{HostPort, NodePool, PodShape};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// A list of offerings as nodes of a pool, for every launch that has it.
pub(super) struct Wares<'a> {
    pool: &'a NodePool,
    nodes: Vec<Future<'a>>,
    /// What nodes have room for. What fits in one of these fits in all that are larger, which are left out.
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
    ware: Rc<Ware<'a>>,
    /// What it has beside the DaemonSets, and their ports.
    bare: Rc<Bare<'a>>,
}

/// What DaemonSets leave of a node.
pub(super) struct Bare<'a> {
    left: Resources,
    short: Option<String>,
    /// Ports of DaemonSets.
    ports: Vec<&'a HostPort>,
    /// Problems of shapes there, by their id.
    problems: RefCell<HashMap<&'a str, Option<String>>>,
}

/// By the ware's address: each is kept for as long as the check takes. Only looked up, never walked.
pub(super) type Bares<'a> = HashMap<usize, Rc<Bare<'a>>>;

impl Future<'_> {
    fn place(&self) -> String {
        let (kind, offering) = (self.ware.kind, self.ware.offering);
        format!("{} in {} ({})", kind.name, offering.zone, offering.capacity_type)
    }
}

impl<'a> Wares<'a> {
    pub(super) fn new(facts: &Facts<'a>, bares: &mut Bares<'a>, pool: &'a NodePool, launch: &'a Launch) -> Self {
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
        let shelf = facts.shelf.choice(catalog, pool, launch);
        for choice in launch.offerings.iter() {
            let ware = shelf.get(choice);
            match ware.map_err(str::to_owned).and_then(|ware| for_sale(facts, &ware, choice).map(|()| ware)) {
                Ok(ware) => wares.offer(facts, bares, ware),
                Err(problem) => {
                    let place = format!("{} in {} ({})", choice.instance_type, choice.zone, choice.capacity_type);
                    wares.offerings.push(format!("{place}: {problem}"));
                }
            }
        }
        wares.values(launch);
        wares.most.set(NODES_RESOURCE, 1);
        wares
    }

    fn offer(&mut self, facts: &Facts<'a>, bares: &mut Bares<'a>, ware: Rc<Ware<'a>>) {
        if self.nodes.last().is_none_or(|last| last.ware.kind.name != ware.kind.name) {
            self.most.raise_to(&ware.kind.capacity);
        }
        let bare = bares.entry(Rc::as_ptr(&ware) as usize).or_insert_with(|| Rc::new(bare(facts, self.pool, &ware)));
        let node = Future { bare: Rc::clone(bare), ware };
        if let Some(problem) = &node.ware.problem {
            self.offerings.push(format!("{}: {problem}", node.place()));
        }
        let number = self.nodes.len();
        self.room(&node.bare, number);
        self.nodes.push(node);
    }

    fn room(&mut self, bare: &Bare<'_>, example: usize) {
        // Where DaemonSets ask too much already, it is told of each.
        let within = |a: &Room, left: &Resources| a.short.is_none() && a.left.first_excess(left).is_none();
        let known = |room: &Room| room.left == bare.left || (bare.short.is_none() && within(room, &bare.left));
        if self.rooms.iter().any(known) {
            return;
        }
        let room = Room { left: bare.left.clone(), short: bare.short.clone(), example };
        self.rooms.retain(|known| known.short.is_some() || !within(&room, &known.left));
        self.rooms.push(room);
    }

    /// Whether there are as many values as `minValues` wants.
    fn values(&mut self, launch: &Launch) {
        for wanted in &self.pool.requirements {
            let count = |one: &NodeSelectorRequirement| one.min_values.and_then(|least| usize::try_from(least).ok());
            let Some(most) = count(wanted) else { continue };
            let least = kept(wanted, launch).and_then(count).unwrap_or(most);
            let key = label::normalized(&wanted.key);
            let have = self.nodes.iter().filter_map(|node| node.ware.labels.get(key)).collect::<BTreeSet<_>>().len();
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
        let shapes = facts.by_shape_of(&launch.pods);
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
                let (pod, place) = (pod.name.clone(), self.nodes[at].place());
                found.push(Violation::PodDoesNotFit { pod, place, problem: problem.to_owned() });
            };
            problems.iter().for_each(|(at, problem)| add(*at, problem));
            if among {
                (0..self.nodes.len()).for_each(|at| add(at, "host port"));
            }
        }
        for room in &self.rooms {
            if let Some(resource) = load.first_excess(&room.left).or(room.short.as_deref()) {
                let place = self.nodes[room.example].place();
                found.push(Violation::Overcommitted { place, resource: resource.to_owned() });
            }
        }
    }
}

/// What DaemonSets leave of a node.
fn bare<'a>(facts: &Facts<'a>, pool: &NodePool, ware: &Ware<'a>) -> Bare<'a> {
    let (mut load, mut ports) = (Resources::new(), Vec::new());
    let daemons = facts.snapshot.daemon_sets.iter().filter_map(|daemon| facts.shape(daemon.shape.as_str()));
    for shape in daemons {
        if taint_problem(shape, &pool.taints).is_none()
            && label_problem(shape, "", |key| ware.labels.get(key)).is_none()
        {
            load.add(&shape.requests);
            ports.extend(&shape.host_ports);
        }
    }
    let mut left = ware.kind.allocatable();
    let short = load.first_excess(&left).map(str::to_owned);
    left.subtract(&load);
    Bare { left, short, ports, problems: RefCell::default() }
}

/// What keeps pods of a shape from these nodes, whatever else the launch is for.
fn problems<'a>(pool: &NodePool, nodes: &[Future<'a>], shape: &'a PodShape) -> Vec<(usize, String)> {
    let tainted = taint_problem(shape, &pool.taints);
    if tainted.is_none() && asks_nothing(shape) {
        return Vec::new();
    }
    let on = |node: &Future<'a>| {
        let clash = || shape.host_ports.iter().any(|port| node.bare.ports.iter().any(|other| other.conflicts(port)));
        let found = || {
            let labelled = tainted.clone().or_else(|| label_problem(shape, "", |key| node.ware.labels.get(key)));
            labelled.or_else(|| clash().then(|| "host port".to_owned()))
        };
        node.bare.problems.borrow_mut().entry(shape.id.as_str()).or_insert_with(found).clone()
    };
    nodes.iter().enumerate().filter_map(|(at, node)| Some((at, on(node)?))).collect()
}

/// Whether any node suits the shape.
fn asks_nothing(shape: &PodShape) -> bool {
    shape.node_selector.is_empty()
        && shape.required_node_affinity.is_empty()
        && shape.volumes.iter().all(|volume| volume.alternatives.is_empty())
        && shape.host_ports.is_empty()
}

/// Whether the offering can be bought at that price.
fn for_sale(facts: &Facts<'_>, ware: &Ware<'_>, choice: &OfferingChoice) -> Result<(), String> {
    let refused = facts.snapshot.unavailable_offerings.iter().any(|one| {
        one.capacity_type == choice.capacity_type
            && one.zone.as_ref().is_none_or(|zone| *zone == choice.zone)
            && one.instance_type.as_ref().is_none_or(|name| *name == choice.instance_type)
    });
    if !ware.offering.available || refused {
        return Err("not available".to_owned());
    }
    if ware.offering.price != choice.price {
        return Err(format!("costs {}, the plan says {}", ware.offering.price, choice.price));
    }
    Ok(())
}
