//! A snapshot with everything looked up once: pools in order of preference, shapes, DaemonSets, nodes.

use crate::daemon;
use crate::existing::NodeView;
use crate::facts::{lookup, selects};
use crate::hosts::Membership;
use crate::intern::{Amounts, ResourceTable};
use crate::lots::Only;
use crate::offerings::{Alternative, PoolView};
use crate::preferences::Ladders;
use crate::topology::{self, Cells, Topology};
use crate::volumes;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, NodeName, ShapeId};
use plimsoll_model::plan::MinValuesPolicy;
use plimsoll_model::requirements::NodeSelectorTerm;
use plimsoll_model::snapshot::{Node, Pod, PodDisruptionBudget, PodShape, PodState, Snapshot};
use plimsoll_model::taints::{Taint, TaintEffect, Toleration};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// A shape and what it asks for.
pub(crate) struct ShapeView<'a> {
    pub(crate) shape: &'a PodShape,
    pub(crate) requests: Amounts,
    /// Per launchable pool: where it can run; empty where it cannot.
    pub(crate) fits: Vec<Vec<Alternative>>,
    /// Groups that decide with whom it shares a host.
    pub(crate) hosts: Membership,
}

/// Whether pods of a shape may go to a node, room aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Welcome {
    No,
    /// Only against a PreferNoSchedule taint.
    Unwanted,
    Yes,
}

/// What nodes of one class have in common: labels that shapes ask for, taints, and the name where it matters.
type Likeness<'n> = (Vec<Option<&'n str>>, &'n [Taint], Option<&'n str>);

/// A value, or none, for each of some keys.
type Domain = Vec<(String, Option<String>)>;

/// All of it.
pub(crate) struct World<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) table: ResourceTable,
    /// Pools that can launch: heavier first, then by name descending.
    pub(crate) pools: Vec<PoolView<'a>>,
    /// Static ones: they launch nothing for pods.
    pub(crate) fixed: Vec<PoolView<'a>>,
    pub(crate) shapes: Vec<ShapeView<'a>>,
    /// Only looked up, for every pod several times; never walked.
    shape_index: HashMap<&'a str, usize>,
    /// In the order in which they are filled.
    pub(crate) nodes: Vec<NodeView<'a>>,
    node_index: HashMap<&'a str, usize>,
    /// Per node: its class; nodes of a class differ in nothing that a shape asks for.
    classes: Vec<usize>,
    /// Per shape and class.
    welcome: Vec<Vec<Welcome>>,
    pub(crate) topology: Topology,
    /// Per shape, once asked for.
    cells: RefCell<BTreeMap<usize, Rc<Cells>>>,
    /// Offerings and nodes by their values of some keys, once asked for.
    onlys: RefCell<BTreeMap<Domain, Rc<Only>>>,
    /// Per spread group: the domains that count, once asked for.
    eligible: RefCell<BTreeMap<usize, Rc<BTreeSet<String>>>>,
    budgets: BTreeMap<&'a str, &'a PodDisruptionBudget>,
    /// What pods prefer.
    pub(crate) ladders: Ladders,
}

/// Whether pods with these tolerations may go where these taints are. `relaxed`: PreferNoSchedule does not count.
pub(crate) fn tolerated(taints: &[Taint], tolerations: &[Toleration], relaxed: bool) -> bool {
    taints.iter().all(|taint| {
        (relaxed && taint.effect == TaintEffect::PreferNoSchedule)
            || tolerations.iter().any(|toleration| toleration.tolerates(taint))
    })
}

impl<'a> World<'a> {
    /// Of `snapshot` with the rungs that `ladders` added to its shapes.
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        catalogs: &'a BTreeMap<CatalogId, Catalog>,
        ladders: Ladders,
        min_values: MinValuesPolicy,
    ) -> Self {
        let requests = snapshot.shapes.iter().map(|shape| &shape.requests);
        let limits = snapshot.node_pools.iter().map(|pool| &pool.limits);
        let drivers = volumes::limited_drivers(snapshot, catalogs);
        let table = ResourceTable::new(requests.chain(limits), drivers);
        let overlays = snapshot.node_pools.iter().flat_map(|pool| &pool.overlays);
        let table = table.with_own(overlays.flat_map(|overlay| overlay.capacity.iter().map(|(name, _)| name)));
        let mut pools: Vec<PoolView<'a>> = snapshot
            .node_pools
            .iter()
            .filter(|pool| pool.not_ready.is_none() && !pool.deleting)
            .filter_map(|pool| {
                let catalog = catalogs.get(pool.catalog.as_ref()?)?;
                Some(PoolView::new(pool, catalog, &snapshot.unavailable_offerings, &table, min_values))
            })
            .collect();
        pools.sort_by(|a, b| b.pool.weight.cmp(&a.pool.weight).then_with(|| b.pool.name.cmp(&a.pool.name)));
        for pool in &mut pools {
            daemon::reserve(pool, snapshot, &table);
        }
        let (fixed, pools): (Vec<_>, Vec<_>) = pools.into_iter().partition(|view| view.pool.replicas.is_some());
        let numbers: HashMap<&str, usize> =
            snapshot.shapes.iter().enumerate().map(|(index, shape)| (shape.id.as_str(), index)).collect();
        let pending = snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending);
        let waiting = pending.filter_map(|pod| numbers.get(pod.shape.as_str()).copied()).collect();
        let mut topology = Topology::new(&snapshot.shapes, &ladders, &waiting);
        let mut shapes: Vec<ShapeView<'a>> = snapshot
            .shapes
            .iter()
            .enumerate()
            .map(|(index, shape)| shape_view(shape, &pools, &table, ladders.is_bare(index)))
            .collect();
        topology.settle(&pools, &shapes, &ladders);
        shapes.iter_mut().zip(&topology.hosts).for_each(|(shape, hosts)| shape.hosts = hosts.clone());
        let budgets = snapshot.pod_disruption_budgets.iter().map(|one| (one.name.as_str(), one)).collect();
        let mut world = Self {
            snapshot,
            table,
            pools,
            fixed,
            shapes,
            shape_index: numbers,
            nodes: Vec::new(),
            node_index: HashMap::new(),
            classes: Vec::new(),
            welcome: Vec::new(),
            topology,
            cells: RefCell::default(),
            onlys: RefCell::default(),
            eligible: RefCell::default(),
            budgets,
            ladders,
        };
        world.nodes = crate::existing::views(&world);
        world.node_index =
            world.nodes.iter().enumerate().map(|(index, view)| (view.node.name.as_str(), index)).collect();
        world.classify();
        let possible: Vec<bool> = (0..world.shapes.len()).map(|shape| world.is_possible(shape)).collect();
        world.ladders.keep(|shape| possible[shape]);
        world
    }

    /// From now on pods that these spread groups only count are assigned to domains as well.
    pub(crate) fn tighten(&mut self, groups: BTreeSet<usize>) {
        self.topology.tighten(groups);
        self.cells.take();
    }

    /// Whether some offering or node could take pods of that shape at all.
    fn is_possible(&self, shape: usize) -> bool {
        self.shapes[shape].fits.iter().any(|fits| !fits.is_empty()) || self.welcome[shape].contains(&Welcome::Yes)
    }

    pub(crate) fn shape_of(&self, pod: &Pod) -> Option<usize> {
        self.shape_index.get(pod.shape.as_str()).copied()
    }

    /// The node of that name.
    pub(crate) fn node_number(&self, name: &NodeName) -> Option<usize> {
        self.node_index.get(name.as_str()).copied()
    }

    pub(crate) fn shape_number(&self, id: &ShapeId) -> Option<usize> {
        self.shape_index.get(id.as_str()).copied()
    }

    /// The disruption budget of that name.
    pub(crate) fn budget(&self, name: &str) -> Option<&'a PodDisruptionBudget> {
        self.budgets.get(name).copied()
    }

    /// Whether that disruption budget never allows any eviction.
    pub(crate) fn blocks(&self, name: &str) -> bool {
        self.budget(name).is_some_and(|budget| budget.fully_blocking)
    }

    pub(crate) fn welcome(&self, shape: usize, node: usize) -> Welcome {
        self.welcome[shape][self.classes[node]]
    }

    /// Where pods of `shape` can run in `pool`, within `only`.
    pub(crate) fn narrowed(&self, shape: usize, pool: usize, only: Option<&Only>) -> Vec<Alternative> {
        let bits = only.and_then(|only| Some((only.offerings.get(pool)?, only.demands.as_slice())));
        self.pools[pool].narrowed(&self.shapes[shape].fits[pool], bits)
    }

    /// The same for pods that need no room.
    pub(crate) fn roomless(&self, shape: usize, pool: usize, only: Option<&Only>) -> Vec<Alternative> {
        let view = &self.pools[pool];
        let mut all = view.reachable(self.shapes[shape].shape);
        all.iter_mut().for_each(|one| one.offerings.keep(&view.usable));
        all.retain(|one| !one.offerings.is_empty());
        let bits = only.and_then(|only| Some((only.offerings.get(pool)?, only.demands.as_slice())));
        view.narrowed(&all, bits)
    }

    /// The domains in which pods of `shape` could be.
    pub(crate) fn cells(&self, shape: usize) -> Rc<Cells> {
        let known = self.cells.borrow().get(&shape).map(Rc::clone);
        known.unwrap_or_else(|| {
            let cells = Rc::new(Cells::new(self, shape));
            self.cells.borrow_mut().insert(shape, Rc::clone(&cells));
            cells
        })
    }

    /// Offerings and nodes with these values of `keys`; `None` means that there is no such label.
    pub(crate) fn only(&self, keys: &BTreeSet<&str>, values: &[Option<String>]) -> Rc<Only> {
        let domain: Domain = keys.iter().map(|key| (*key).to_owned()).zip(values.iter().cloned()).collect();
        let known = self.onlys.borrow().get(&domain).map(Rc::clone);
        known.unwrap_or_else(|| {
            let only = Rc::new(topology::only(self, keys, values));
            self.onlys.borrow_mut().insert(domain, Rc::clone(&only));
            only
        })
    }

    /// The domains that a spread group counts.
    pub(crate) fn eligible(&self, group: usize) -> Rc<BTreeSet<String>> {
        let known = self.eligible.borrow().get(&group).map(Rc::clone);
        known.unwrap_or_else(|| {
            let domains = Rc::new(topology::eligible(self, group));
            self.eligible.borrow_mut().insert(group, Rc::clone(&domains));
            domains
        })
    }

    fn classify(&mut self) {
        let keys = asked_keys(self.snapshot);
        let by_name = self.snapshot.shapes.iter().any(|shape| terms(shape).any(|term| !term.fields.is_empty()));
        let mut known: BTreeMap<Likeness<'_>, usize> = BTreeMap::new();
        let mut examples: Vec<&Node> = Vec::new();
        let mut classes = Vec::with_capacity(self.nodes.len());
        for view in &self.nodes {
            let node = view.node;
            let labels = keys.iter().map(|key| lookup(&node.labels, key)).collect();
            let name = by_name.then_some(node.name.as_str());
            let class = *known.entry((labels, &node.taints, name)).or_insert_with(|| {
                examples.push(node);
                examples.len() - 1
            });
            classes.push(class);
        }
        let judge = |shape: &PodShape, node: &Node| {
            let name = node.name.as_str();
            if !tolerated(&node.taints, &shape.tolerations, true)
                || !selects(shape, name, &node.labels)
                || !volumes::attachable(shape, name, &node.labels)
            {
                return Welcome::No;
            }
            if tolerated(&node.taints, &shape.tolerations, false) { Welcome::Yes } else { Welcome::Unwanted }
        };
        self.welcome =
            self.snapshot.shapes.iter().map(|shape| examples.iter().map(|node| judge(shape, node)).collect()).collect();
        self.classes = classes;
    }
}

/// All terms of node selectors that a shape has, its volumes' included.
fn terms(shape: &PodShape) -> impl Iterator<Item = &NodeSelectorTerm> {
    shape.required_node_affinity.iter().chain(shape.volumes.iter().flat_map(|volume| &volume.alternatives))
}

/// Labels that any shape selects by.
fn asked_keys(snapshot: &Snapshot) -> BTreeSet<&str> {
    let mut keys = BTreeSet::new();
    for shape in &snapshot.shapes {
        keys.extend(shape.node_selector.keys().map(String::as_str));
        keys.extend(terms(shape).flat_map(|term| &term.expressions).map(|one| one.key.as_str()));
    }
    keys
}

/// `relaxed`: taints that are to be avoided do not count.
fn shape_view<'a>(shape: &'a PodShape, pools: &[PoolView<'a>], table: &ResourceTable, relaxed: bool) -> ShapeView<'a> {
    let requests = table.request(shape);
    let fits = pools
        .iter()
        .map(|pool| {
            if !tolerated(&pool.pool.taints, &shape.tolerations, relaxed) {
                return Vec::new();
            }
            let roomy = pool.roomy(&requests);
            let mut all = pool.reachable(shape);
            for one in &mut all {
                one.offerings.keep(&pool.usable);
                one.offerings.keep(&roomy);
            }
            all.retain(|one| !one.offerings.is_empty());
            all
        })
        .collect();
    ShapeView { shape, requests, fits, hosts: Membership::default() }
}
