//! A snapshot with its indices: pools in order of preference, shapes, DaemonSets, nodes.

use crate::Cancel;
use crate::input::capacity_quotas;
use crate::input::devices::FreeDevices;
use crate::input::existing_nodes::NodeView;
use crate::input::intern::{Amounts, Bits, ResourceTable};
use crate::input::nodes::{NodeVerdict, Nodes, Pools};
use crate::input::offerings::{Alternative, PoolView};
use crate::input::pool_requirements::lookup;
use crate::input::solve_index::{Originals, SolveIndex};
use crate::place::hostname_topology::{HostRule, Membership, most_alone};
use crate::place::limits::{self, Headroom};
use crate::place::pod_groups::DomainRestriction;
use crate::place::relaxation::RelaxationLevels;
use crate::place::topology::{self, DomainTupleCache, DomainTuples, Group, GroupKind, NodeFilter, Topology};
use plimsoll_model::catalog::{Catalog, Offering};
use plimsoll_model::identity::{CatalogId, NodeName, NodePoolName};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::{
    Node, NodePool, Pod, PodDisruptionBudget, PodShape, Snapshot, SnapshotIndex, free_reservations,
};
use plimsoll_model::taints::{Taint, TaintEffect, Toleration};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A shape with its requests and constraints.
#[derive(Clone, Copy)]
pub(crate) struct ShapeView<'a> {
    pub(crate) shape: &'a PodShape,
    pub(crate) requests: &'a Amounts,
    /// Per launchable pool: offerings that can run the shape; empty if there are none.
    pub(crate) fits: &'a IndexVec<NodePool, Vec<Alternative>>,
    /// Host groups that determine which pods may share a host with the shape's pods.
    pub(crate) hosts: &'a Membership<HostRule>,
    /// Maximum number of the shape's pods on an otherwise empty host.
    pub(crate) most_alone: usize,
}

/// Whether pods of a shape may run on a node, regardless of capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    No,
    /// Only despite a PreferNoSchedule taint.
    Unwanted,
    Yes,
}

/// The value of each key, or `None` without such a label.
type Domain = Vec<(String, Option<String>)>;

/// The values of a label on all nodes, as numbers.
#[derive(Debug, Default)]
pub(crate) struct Column {
    values: Vec<String>,
    numbers: IndexVec<Node, Option<u32>>,
}

impl Column {
    fn new(nodes: &IndexVec<Node, NodeView<'_>>, key: &str) -> Self {
        let mut known: BTreeMap<&str, u32> = BTreeMap::new();
        let mut numbers = IndexVec::new();
        for view in nodes {
            let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
            numbers.push(lookup(&view.node.labels, key).map(|value| *known.entry(value).or_insert(next)));
        }
        let mut values: Vec<(u32, &str)> = known.into_iter().map(|(value, number)| (number, value)).collect();
        values.sort_unstable();
        Self { values: values.into_iter().map(|(_, value)| value.to_owned()).collect(), numbers }
    }

    /// The number of the node's value, if the node has the label.
    pub(crate) fn number(&self, node: Id<Node>) -> Option<u32> {
        self.numbers.try_get(node).copied().flatten()
    }

    pub(crate) fn value(&self, number: u32) -> &str {
        self.values.get(number as usize).map_or("", String::as_str)
    }

    /// The number of a value, if any node has the value.
    pub(crate) fn find(&self, value: &str) -> Option<u32> {
        self.values.iter().position(|one| one == value).and_then(|number| u32::try_from(number).ok())
    }

    pub(crate) fn values(&self) -> &[String] {
        &self.values
    }
}

/// Everything that the steps of a plan look up.
pub(crate) struct SolveContext<'a> {
    pub(crate) snapshot: &'a Snapshot,
    index: &'a SnapshotIndex,
    solve_index: &'a SolveIndex,
    pub(crate) table: &'a ResourceTable,
    /// Pools that can launch: heavier first, then by name descending.
    pub(crate) pools: IndexVec<NodePool, PoolView<'a>>,
    /// Headroom of limits before pods are placed.
    pub(crate) headroom: IndexVec<NodePool, Headroom>,
    /// Per pool: offerings that make exotic ones unnecessary, as far as `headroom` allows them.
    pub(crate) ordinary: IndexVec<NodePool, Bits<Offering>>,
    /// Static pools. They launch nothing for pods.
    pub(crate) static_pools: Vec<PoolView<'a>>,
    /// Shapes of the snapshot, followed by the relaxation levels of preferences.
    pub(crate) shapes: IndexVec<PodShape, ShapeView<'a>>,
    /// In the order in which nodes are filled.
    pub(crate) nodes: IndexVec<Node, NodeView<'a>>,
    pub(crate) free_devices: FreeDevices,
    /// By index in the snapshot.
    node_ids: Vec<Option<Id<Node>>>,
    pub(crate) known: &'a Nodes,
    pub(crate) topology: Topology<'a>,
    tuples: Cache<Id<PodShape>, DomainTuples>,
    domain_tuples: DomainTupleCache,
    /// Cache of offerings and nodes, by their values of some keys.
    restrictions: Cache<Domain, DomainRestriction>,
    columns: Cache<String, Column>,
    /// Cache of the eligible domains by key and node filter of a spread group.
    eligible: Cache<(String, NodeFilter), BTreeSet<String>>,
    budgets: BTreeMap<&'a str, &'a PodDisruptionBudget>,
    pub(crate) relaxation: RelaxationLevels,
    /// Capacity reservations as resource indices, with their numbers of free instances.
    pub(crate) reservations: Vec<(usize, i64)>,
    /// Limits of CapacityQuotas as resource indices, with what the nodes leave of them.
    pub(crate) quotas: Vec<(usize, i64)>,
    /// The shapes that On-Demand ratios changed.
    pub(crate) originals: Option<&'a Originals>,
    cancel: &'a Cancel,
    /// Work of packing so far, in all attempts.
    pub(crate) packing_work: Cell<u64>,
}

/// Whether pods with these tolerations may run on nodes with these taints. If `relaxed`, PreferNoSchedule taints are
/// ignored.
pub(crate) fn tolerated(taints: &[Taint], tolerations: &[Toleration], relaxed: bool) -> bool {
    taints.iter().all(|taint| {
        (relaxed && taint.effect == TaintEffect::PreferNoSchedule)
            || tolerations.iter().any(|toleration| toleration.tolerates(taint))
    })
}

impl<'a> SolveContext<'a> {
    /// Whether the caller no longer waits for the plan.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    pub(crate) fn new(
        snapshot: &'a Snapshot,
        index: &'a SnapshotIndex,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        solve_index: &'a SolveIndex,
        pools: Pools<'a>,
        nodes: &'a Nodes,
        cancel: &'a Cancel,
    ) -> Self {
        let waiting = index.pending().iter().filter_map(|place| index.shape_of(*place as usize)).map(Id::new).collect();
        let shapes = solve_index.shapes.iter_enumerated().map(|(id, data)| {
            let (shape, hosts) = (solve_index.shape(id), &solve_index.rules.hosts[id]);
            let most_alone = most_alone(&solve_index.rules.host_rules, hosts, &shape.host_ports);
            ShapeView { shape, requests: &data.requests, fits: &data.fits, hosts, most_alone }
        });
        let (views, node_ids) = crate::input::existing_nodes::views(snapshot, index, nodes);
        let mut context = Self {
            originals: None,
            cancel,
            packing_work: Cell::new(0),
            snapshot,
            index,
            solve_index,
            table: solve_index.table(),
            pools: pools.launching,
            headroom: IndexVec::new(),
            ordinary: IndexVec::new(),
            static_pools: pools.static_pools,
            shapes: shapes.collect(),
            free_devices: FreeDevices::new(&views, solve_index.table()),
            nodes: views,
            node_ids,
            known: nodes,
            topology: Topology::new(&solve_index.rules, &waiting),
            tuples: RefCell::default(),
            domain_tuples: DomainTupleCache::default(),
            restrictions: RefCell::default(),
            columns: RefCell::default(),
            eligible: RefCell::default(),
            budgets: snapshot.pod_disruption_budgets.iter().map(|one| (one.name.as_str(), one)).collect(),
            relaxation: solve_index.relaxation.clone(),
            reservations: Vec::new(),
            quotas: Vec::new(),
        };
        let free = free_reservations(snapshot, catalogs).into_iter();
        context.reservations = free.filter_map(|(name, free)| Some((context.table.place(&name)?, free))).collect();
        let usages = context.nodes.iter().map(|view| &view.data.usage);
        context.quotas = capacity_quotas::left(&snapshot.capacity_quotas, context.table, &usages);
        let left = |view: &PoolView<'a>| {
            limits::with_shared(view, limits::own(&context, view.pool), &context.reservations, &context.quotas)
        };
        context.headroom = context.pools.iter().map(left).collect();
        let views = context.pools.iter().zip(&context.headroom);
        context.ordinary = views.map(|(view, room)| view.ordinary(room)).collect();
        let possible = context.possible();
        context.relaxation.keep(|shape| possible[shape]);
        context
    }

    /// Assigns pods that these spread groups count but do not bind to domains as well.
    pub(crate) fn assign_counted(&mut self, groups: BTreeSet<Id<Group>>) {
        self.topology.assigned_spreads.extend(groups);
        self.tuples.take();
        self.domain_tuples.clear();
    }

    /// Per shape: whether some offering or node could run its pods at all.
    fn possible(&self) -> IndexVec<PodShape, bool> {
        let classes: BTreeSet<Id<NodeVerdict>> = self.nodes.iter().map(|view| view.data.class).collect();
        let admission = |shape| classes.iter().any(|class| self.known.admission(*class, shape) == Admission::Yes);
        let fits = |view: &ShapeView<'_>| view.fits.iter().any(|fits| !fits.is_empty());
        self.shapes.iter_enumerated().map(|(shape, view)| fits(view) || admission(shape)).collect()
    }

    /// Pods to place in the order of the snapshot, each with its shape if the snapshot has it.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (&'a Pod, Option<Id<PodShape>>)> + use<'a> {
        let (snapshot, index) = (self.snapshot, self.index);
        let pod =
            |place: &u32| Some((snapshot.pods.get(*place as usize)?, index.shape_of(*place as usize).map(Id::new)));
        index.pending().iter().filter_map(pod)
    }

    /// The shape before an On-Demand ratio required On-Demand for its pods; `None` if none does.
    pub(crate) fn original(&self, shape: Id<PodShape>) -> Option<&'a PodShape> {
        self.originals?.get(&self.shapes[self.relaxation.base(shape)].shape.id)
    }

    pub(crate) fn shape_of(&self, pod: &Pod) -> Option<Id<PodShape>> {
        self.solve_index.shape_number(&pod.shape)
    }

    pub(crate) fn node_id(&self, name: &NodeName) -> Option<Id<Node>> {
        let place = self.snapshot.nodes.binary_search_by(|node| node.name.cmp(name)).ok()?;
        self.node_ids.get(place).copied().flatten()
    }

    /// The pool with this name, if it launches nodes for pods.
    pub(crate) fn pool_id(&self, name: &NodePoolName) -> Option<Id<NodePool>> {
        self.pools.ids().find(|pool| self.pools[*pool].pool.name == *name)
    }

    pub(crate) fn budget(&self, name: &str) -> Option<&'a PodDisruptionBudget> {
        self.budgets.get(name).copied()
    }

    /// Whether the disruption budget never allows an eviction.
    pub(crate) fn blocks(&self, name: &str) -> bool {
        self.budget(name).is_some_and(|budget| budget.fully_blocking)
    }

    pub(crate) fn admission(&self, shape: Id<PodShape>, node: Id<Node>) -> Admission {
        self.known.admission(self.nodes[node].data.class, shape)
    }

    /// Offerings of `pool` that can run pods of `shape`, restricted to `only`.
    pub(crate) fn narrowed(
        &self,
        shape: Id<PodShape>,
        pool: Id<NodePool>,
        only: Option<&DomainRestriction>,
    ) -> Vec<Alternative> {
        self.pools[pool].narrowed(&self.shapes[shape].fits[pool], only.and_then(|only| only.in_pool(pool)))
    }

    /// Whether [`Self::narrowed`] has an offering.
    pub(crate) fn can_run(&self, shape: Id<PodShape>, pool: Id<NodePool>, only: Option<&DomainRestriction>) -> bool {
        let fits = &self.shapes[shape].fits[pool];
        !fits.is_empty() && (only.is_none() || !self.narrowed(shape, pool, only).is_empty())
    }

    /// Like [`Self::narrowed`], for pods that need no capacity.
    pub(crate) fn without_capacity(
        &self,
        shape: Id<PodShape>,
        pool: Id<NodePool>,
        only: Option<&DomainRestriction>,
    ) -> Vec<Alternative> {
        let view = &self.pools[pool];
        let mut all = view.reachable(self.shapes[shape].shape);
        all.iter_mut().for_each(|one| one.offerings.keep(&view.usable));
        all.retain(|one| !one.offerings.is_empty());
        view.narrowed(&all, only.and_then(|only| only.in_pool(pool)))
    }

    /// Domain tuples in which pods of `shape` could run.
    pub(crate) fn tuples(&self, shape: Id<PodShape>) -> Rc<DomainTuples> {
        memo(&self.tuples, shape, || self.domain_tuples.tuples(self, shape))
    }

    /// Offerings and nodes with these values of `keys`. `None` means that the label is missing.
    pub(crate) fn restriction(&self, keys: &BTreeSet<&str>, values: &[Option<String>]) -> Rc<DomainRestriction> {
        let domain: Domain = keys.iter().map(|key| (*key).to_owned()).zip(values.iter().cloned()).collect();
        memo(&self.restrictions, domain, || Rc::new(topology::restriction(self, keys, values)))
    }

    pub(crate) fn column(&self, key: &str) -> Rc<Column> {
        memo(&self.columns, key.to_owned(), || Rc::new(Column::new(&self.nodes, key)))
    }

    /// The domains that a spread group counts.
    pub(crate) fn eligible(&self, group: Id<Group>) -> Rc<BTreeSet<String>> {
        let Group { key, kind: GroupKind::TopologySpread { nodes, .. }, .. } = &*self.topology.groups[group] else {
            return Rc::default();
        };
        // Groups share a handful of keys and node filters.
        memo(&self.eligible, (key.clone(), nodes.clone()), || Rc::new(topology::eligible(self, key, nodes)))
    }
}

type Cache<K, V> = RefCell<BTreeMap<K, Rc<V>>>;

/// The cached value of `key`. If there is none, `new` computes it.
fn memo<K: Ord, V>(cache: &Cache<K, V>, key: K, new: impl FnOnce() -> Rc<V>) -> Rc<V> {
    if let Some(known) = cache.borrow().get(&key) {
        return Rc::clone(known);
    }
    let value = new();
    cache.borrow_mut().insert(key, Rc::clone(&value));
    value
}
