//! Data of each node and its pods, cached from one plan to the next until either changes.

use crate::input::context::{Admission, tolerated};
use crate::input::existing_nodes::NodeCapacity;
use crate::input::intern::{Amounts, ResourceTable};
use crate::input::offerings::PoolView;
use crate::input::pool_requirements::lookup;
use crate::input::solve_index::SolveIndex;
use crate::place::hostname_topology::Tally;
use crate::place::topology::{Counts, PodMarks};
use plimsoll_model::catalog::is_accelerator;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{CapacityQuota, Node, NodePool, Pod, PodShape, Snapshot, SnapshotIndex, quota_usage};
use plimsoll_model::taints::Taint;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of classes that are cached in addition to twice the number of nodes. Classes of deleted nodes use this
/// margin.
const SPARE_CLASSES: usize = 256;

/// A node with its pods.
#[derive(Debug)]
pub(crate) struct NodeData {
    /// Free capacity at the time of the snapshot.
    pub(crate) room: Arc<NodeCapacity>,
    /// The class of the node. Nodes of one class do not differ in anything that shapes select by.
    pub(crate) class: Id<NodeVerdict>,
    /// Usage of the pool's limits and of CapacityQuotas.
    pub(crate) usage: Amounts,
    /// Price of the node; zero if its pool's catalog does not have it.
    pub(crate) price: i64,
    /// Whether its pool launches nodes for pods, the pool's catalog has its type, and its labels contain zone and
    /// capacity type.
    pub(crate) is_known: bool,
    /// Whether the node has an accelerator that is not in the table of resources.
    pub(crate) has_idle_accelerator: bool,
    marks: PodMarks,
}

/// Common properties of the nodes of a class: labels that shapes select by, taints, and the name if shapes select by
/// name.
type NodeKey = (Vec<Option<String>>, Vec<Taint>, Option<String>);

/// Whether nodes of a class admit pods of each shape.
#[derive(Debug, Default)]
pub(crate) struct NodeVerdict {
    /// `None` if no node of the class was evaluated since the shape was added.
    admission: IndexVec<PodShape, Option<Admission>>,
    /// Whether all shapes are evaluated.
    complete: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// Data by node with its revision, in the order of the snapshot.
    known: Vec<(u64, NodeData)>,
    classes: BTreeMap<NodeKey, Id<NodeVerdict>>,
    admission: IndexVec<NodeVerdict, NodeVerdict>,
    /// Counts of all pods on nodes.
    pub(crate) counts: Counts,
}

impl Nodes {
    pub(crate) fn new(solve_index: &SolveIndex) -> Self {
        Self { counts: Counts::new(&solve_index.rules), ..Self::default() }
    }

    /// Changes shape numbers. `former` contains the previous number of each shape, if it existed.
    pub(crate) fn renumber_shapes(&mut self, former: &IndexVec<PodShape, Option<Id<PodShape>>>) {
        for class in &mut self.admission {
            let known = |shape: &Option<Id<PodShape>>| shape.and_then(|shape| *class.admission.try_get(shape)?);
            class.admission = former.iter().map(known).collect();
            class.complete = false;
        }
    }

    /// Updates the cache to the snapshot. Nodes with the same revision are unchanged.
    pub(crate) fn follow(
        &mut self,
        solve_index: &SolveIndex,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        pools: &Pools<'_>,
    ) {
        if self.admission.len() > 2 * snapshot.nodes.len() + SPARE_CLASSES {
            *self = Self::new(solve_index);
        }
        // Both lists are sorted by name, and revisions are never reused.
        let newest = self.known.iter().map(|(revision, _)| *revision).max();
        let mut former = std::mem::take(&mut self.known).into_iter();
        for (number, node) in snapshot.nodes.iter().enumerate() {
            let revision = index.revision(number);
            let was_there = newest.is_some_and(|newest| revision <= newest);
            let known = was_there.then(|| self.skip_to(&mut former, revision)).flatten();
            let data = match known {
                Some(data) => {
                    self.admission[data.class].look_at(solve_index, node);
                    data
                }
                None => {
                    let data = self.look_at(solve_index, pools, snapshot, index, (number, node));
                    self.counts.join(&data.marks, 1);
                    data
                }
            };
            self.known.push((revision, data));
        }
        former.for_each(|(_, gone)| self.counts.join(&gone.marks, -1));
    }

    /// Returns the cached node with this revision. The nodes before it are deleted.
    fn skip_to(&mut self, former: &mut std::vec::IntoIter<(u64, NodeData)>, revision: u64) -> Option<NodeData> {
        for (other, data) in former {
            if other == revision {
                return Some(data);
            }
            self.counts.join(&data.marks, -1);
        }
        None
    }

    /// The node at this index of the current snapshot.
    pub(crate) fn get(&self, place: usize) -> Option<&NodeData> {
        self.known.get(place).map(|(_, data)| data)
    }

    pub(crate) fn admission(&self, class: Id<NodeVerdict>, shape: Id<PodShape>) -> Admission {
        self.admission[class].admission.try_get(shape).copied().flatten().unwrap_or(Admission::No)
    }

    fn look_at(
        &mut self,
        solve_index: &SolveIndex,
        pools: &Pools<'_>,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        (number, node): (usize, &Node),
    ) -> NodeData {
        let residents = index.residents(number).iter().map(|place| *place as usize);
        let pods = residents.filter_map(|place| Some((snapshot.pods.get(place)?, Id::new(index.shape_of(place)?))));
        let pods: Vec<(&Pod, Id<PodShape>)> = pods.collect();
        let mut staying: BTreeMap<Id<PodShape>, i64> = BTreeMap::new();
        for (_, shape) in pods.iter().filter(|(pod, _)| !pod.terminating) {
            *staying.entry(*shape).or_default() += 1;
        }
        let mut tally = Tally::default();
        for (shape, count) in &staying {
            let count = usize::try_from(*count).unwrap_or(0);
            tally.add_bound(&solve_index.rules.host_rules, &solve_index.rules.hosts[*shape], count);
        }
        let requested = |number| (solve_index.shape(number), &solve_index.shapes[number].requests);
        let there = pods.iter().map(|(pod, number)| {
            let (shape, requests) = requested(*number);
            (*pod, shape, requests)
        });
        let daemons = snapshot.daemon_sets.iter().filter_map(|daemon| solve_index.shape_number(&daemon.shape));
        let (free, ports) = plimsoll_kubesched::free_capacity(solve_index.table(), node, there, daemons.map(requested));
        NodeData {
            room: Arc::new(NodeCapacity { free, ports, tally, closed: false }),
            class: self.class(solve_index, node),
            usage: pools.usage(node, solve_index.table(), solve_index.quotas()),
            price: pools.price(node),
            is_known: pools.know(node),
            has_idle_accelerator: has_idle_accelerator(node, solve_index.table()),
            marks: PodMarks::new(&solve_index.rules, node, &staying),
        }
    }

    fn class(&mut self, solve_index: &SolveIndex, node: &Node) -> Id<NodeVerdict> {
        let labels = solve_index.keys.iter().map(|key| lookup(&node.labels, key).map(str::to_owned)).collect();
        let name = solve_index.by_name.then(|| node.name.0.clone());
        let verdicts = &mut self.admission;
        let class = self.classes.entry((labels, node.taints.clone(), name));
        let class = *class.or_insert_with(|| verdicts.push(NodeVerdict::default()));
        self.admission[class].look_at(solve_index, node);
        class
    }
}

/// Pools that nodes may belong to.
pub(crate) struct Pools<'a> {
    /// Pools that launch nodes for pods.
    pub(crate) launching: IndexVec<NodePool, PoolView<'a>>,
    pub(crate) static_pools: Vec<PoolView<'a>>,
}

impl Pools<'_> {
    fn of(&self, node: &Node) -> Option<&PoolView<'_>> {
        let mut pools = self.launching.iter().chain(&self.static_pools);
        pools.find(|one| Some(&one.pool.name) == node.node_pool.as_ref())
    }

    /// What a node counts against the limits of its pool and against CapacityQuotas.
    fn usage(&self, node: &Node, table: &ResourceTable, quotas: &[CapacityQuota]) -> Amounts {
        let of_pool = self.of(node);
        let mut usage = of_pool.map_or_else(|| table.vector(&node.limit_usage), |pool| pool.usage_of(node, table));
        for (name, counted) in quota_usage(quotas, node).iter() {
            table.place(name).and_then(|place| usage.get_mut(place)).into_iter().for_each(|amount| *amount = counted);
        }
        usage
    }

    /// Price of a node; zero if the catalog does not have it.
    fn price(&self, node: &Node) -> i64 {
        self.of(node).and_then(|pool| pool.price_of(&node.labels)).unwrap_or(0)
    }

    /// Whether the catalog of a pool that launches nodes for pods has the node's type, and the node's labels contain
    /// zone and capacity type.
    fn know(&self, node: &Node) -> bool {
        let pool = self.launching.iter().find(|one| Some(&one.pool.name) == node.node_pool.as_ref());
        let known = pool.zip(node.labels.get(label::INSTANCE_TYPE)).and_then(|(pool, kind)| pool.catalog.get(kind));
        known.is_some() && node.labels.contains_key(label::ZONE) && node.labels.contains_key(label::CAPACITY_TYPE)
    }
}

impl NodeVerdict {
    /// Evaluates all missing shapes for the class of `node`.
    fn look_at(&mut self, solve_index: &SolveIndex, node: &Node) {
        if self.complete {
            return;
        }
        self.admission.as_mut_vec().resize(solve_index.shapes.len(), None);
        for (shape, known) in self.admission.iter_enumerated_mut() {
            known.get_or_insert_with(|| judge(solve_index.shape(shape), node));
        }
        self.complete = true;
    }
}

/// Whether the node has an accelerator that is not in the table, since neither pods nor limits name it.
fn has_idle_accelerator(node: &Node, table: &ResourceTable) -> bool {
    let is_idle = |name: &str| is_accelerator(name) && table.place(name).is_none();
    node.allocatable.iter().any(|(name, amount)| amount > 0 && is_idle(name))
}

/// Whether pods of `shape` may run on `node`, regardless of capacity.
fn judge(shape: &PodShape, node: &Node) -> Admission {
    let name = node.name.as_str();
    if !tolerated(&node.taints, &shape.tolerations, true)
        || !shape.selects_node(name, &node.labels)
        || !shape.attaches_to_node(name, &node.labels)
    {
        return Admission::No;
    }
    if tolerated(&node.taints, &shape.tolerations, false) { Admission::Yes } else { Admission::Unwanted }
}
