//! What is known of each node and its pods, kept from one plan to the next as long as neither changes.

use crate::input::context::{Admission, tolerated};
use crate::input::existing_nodes::Room;
use crate::input::intern::{Amounts, ResourceTable};
use crate::input::offerings::PoolView;
use crate::input::pool_requirements::{lookup, selects};
use crate::input::solve_index::SolveIndex;
use crate::input::volumes;
use crate::place::hostname_topology::Tally;
use crate::place::topology::{Counts, PodMarks};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{Node, NodePool, Pod, PodShape, Snapshot, SnapshotIndex};
use plimsoll_model::taints::Taint;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kinds of nodes that are remembered beyond twice as many as there are nodes: those of nodes that are gone.
const SPARE_CLASSES: usize = 256;

/// A node with its pods.
#[derive(Debug)]
pub(crate) struct NodeData {
    /// What is free at the time of the snapshot.
    pub(crate) room: Arc<Room>,
    /// Nodes of one class differ in nothing that a shape asks for.
    pub(crate) class: Id<NodeVerdict>,
    /// What it counts against its pool's limits.
    pub(crate) usage: Amounts,
    /// What it costs; zero if the catalog of its pool does not know.
    pub(crate) price: i64,
    /// Its pool launches for pods, has a catalog that knows its type, and its labels say how it was bought.
    pub(crate) is_known: bool,
    marks: PodMarks,
}

/// What nodes of one class have in common: labels that shapes ask for, taints, and the name where it matters.
type LikenessKey = (Vec<Option<String>>, Vec<Taint>, Option<String>);

/// Whether shapes may go to nodes of a class.
#[derive(Debug, Default)]
pub(crate) struct NodeVerdict {
    /// Nothing where no node has been of the class since the shape came.
    admission: IndexVec<PodShape, Option<Admission>>,
    /// Nothing is missing.
    complete: bool,
}

/// All nodes of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// With their revisions, in the order of the snapshot.
    known: Vec<(u64, NodeData)>,
    classes: BTreeMap<LikenessKey, Id<NodeVerdict>>,
    admission: IndexVec<NodeVerdict, NodeVerdict>,
    /// Of all pods on nodes.
    counts: Counts,
}

impl Nodes {
    /// Of no nodes.
    pub(crate) fn new(solve_index: &SolveIndex) -> Self {
        Self { counts: Counts::new(&solve_index.rules), ..Self::default() }
    }

    /// Shapes have other numbers from now on; `former` are those that they had, if they were there.
    pub(crate) fn renumber_shapes(&mut self, former: &IndexVec<PodShape, Option<Id<PodShape>>>) {
        for class in &mut self.admission {
            let known = |shape: &Option<Id<PodShape>>| shape.and_then(|shape| *class.admission.try_get(shape)?);
            class.admission = former.iter().map(known).collect();
            class.complete = false;
        }
    }

    /// Follows the snapshot: what has the same revision is the same.
    pub(crate) fn follow(
        &mut self,
        solve_index: &SolveIndex,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        catalogs: &BTreeMap<CatalogId, Catalog>,
    ) {
        let pools = Pools {
            launching: solve_index.views(snapshot, catalogs),
            fixed: solve_index.fixed_views(snapshot, catalogs),
        };
        if self.admission.len() > 2 * snapshot.nodes.len() + SPARE_CLASSES {
            *self = Self::new(solve_index);
        }
        // Both lists are in the order of names, and no revision comes back.
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
                    let data = self.look_at(solve_index, &pools, snapshot, index, (number, node));
                    self.counts.join(&data.marks, 1);
                    data
                }
            };
            self.known.push((revision, data));
        }
        former.for_each(|(_, gone)| self.counts.join(&gone.marks, -1));
    }

    /// What is known of the node of that revision; those before it are gone.
    fn skip_to(&mut self, former: &mut std::vec::IntoIter<(u64, NodeData)>, revision: u64) -> Option<NodeData> {
        for (other, data) in former {
            if other == revision {
                return Some(data);
            }
            self.counts.join(&data.marks, -1);
        }
        None
    }

    /// The node at that place in the snapshot that was followed.
    pub(crate) fn get(&self, place: usize) -> Option<&NodeData> {
        self.known.get(place).map(|(_, data)| data)
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
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
            room: Arc::new(Room { free, ports, tally, closed: false }),
            class: self.class(solve_index, node),
            usage: pools.usage(node, solve_index.table()),
            price: pools.price(node),
            is_known: pools.know(node),
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

/// What nodes can be of.
struct Pools<'a> {
    /// Those that launch for pods.
    launching: IndexVec<NodePool, PoolView<'a>>,
    fixed: Vec<PoolView<'a>>,
}

impl Pools<'_> {
    fn of(&self, node: &Node) -> Option<&PoolView<'_>> {
        let mut pools = self.launching.iter().chain(&self.fixed);
        pools.find(|one| Some(&one.pool.name) == node.node_pool.as_ref())
    }

    /// What a node counts against the limits of its pool.
    fn usage(&self, node: &Node, table: &ResourceTable) -> Amounts {
        self.of(node).map_or_else(|| table.vector(&node.limit_usage), |pool| pool.usage_of(node, table))
    }

    /// What a node costs; zero if the catalog does not know.
    fn price(&self, node: &Node) -> i64 {
        self.of(node).and_then(|pool| pool.price_of(&node.labels)).unwrap_or(0)
    }

    /// Whether the catalog of a pool that launches for pods knows the node's type, and its labels say how it was bought.
    fn know(&self, node: &Node) -> bool {
        let pool = self.launching.iter().find(|one| Some(&one.pool.name) == node.node_pool.as_ref());
        node.labels.contains_key(label::ZONE)
            && node.labels.contains_key(label::CAPACITY_TYPE)
            && pool.is_some_and(|pool| {
                let kind = node.labels.get(label::INSTANCE_TYPE);
                kind.is_some_and(|kind| pool.has_type(kind))
            })
    }
}

impl NodeVerdict {
    /// Judges all shapes that are missing for the class of `node`.
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

/// Whether pods of `shape` may go to `node`, room aside.
fn judge(shape: &PodShape, node: &Node) -> Admission {
    let name = node.name.as_str();
    if !tolerated(&node.taints, &shape.tolerations, true)
        || !selects(shape, name, &node.labels)
        || !volumes::attachable(shape, name, &node.labels)
    {
        return Admission::No;
    }
    if tolerated(&node.taints, &shape.tolerations, false) { Admission::Yes } else { Admission::Unwanted }
}
