//! The snapshot by key. Everything is borrowed and found by search in sorted lists: a check must cost little beside a plan
//! that changes one pod of a hundred thousand.

use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::{Node, NodePool, Pod, PodShape, PodState, Snapshot};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Objects sorted by their key.
pub(crate) struct Sorted<'a, T> {
    items: Vec<&'a T>,
    key: fn(&T) -> &str,
}

impl<'a, T> Sorted<'a, T> {
    fn new(items: &'a [T], key: fn(&T) -> &str) -> Self {
        let mut items: Vec<&T> = items.iter().collect();
        if !items.is_sorted_by(|a, b| key(a) <= key(b)) {
            items.sort_by(|a, b| key(a).cmp(key(b)));
        }
        Self { items, key }
    }

    /// Where the object with this key is.
    pub(crate) fn position(&self, key: &str) -> Option<usize> {
        self.items.binary_search_by(|item| (self.key)(item).cmp(key)).ok()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a T> {
        self.position(key).and_then(|at| self.items.get(at).copied())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a T> {
        self.items.iter().copied()
    }
}

/// What a plan is judged by.
pub(crate) struct Facts<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) catalogs: &'a BTreeMap<CatalogId, Catalog>,
    pub(crate) pods: Sorted<'a, Pod>,
    pub(crate) nodes: Sorted<'a, Node>,
    pub(crate) pools: Sorted<'a, NodePool>,
    /// Nodes that are being deleted, or that the plan removes.
    pub(crate) leaving: BTreeSet<&'a str>,
    /// Shapes by id, with their places in the snapshot's list. Only looked up, never walked.
    shapes: HashMap<&'a str, usize>,
    /// Bound or reserved pods by node, for nodes of the plan alone.
    there: BTreeMap<&'a str, Vec<&'a Pod>>,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, catalogs: &'a BTreeMap<CatalogId, Catalog>, plan: &'a Plan) -> Self {
        let deleting = snapshot.nodes.iter().filter(|node| node.deleting).map(|node| node.name.as_str());
        let moved = plan.terminations.iter().flat_map(|one| &one.moved_to);
        let taking = plan.placements.iter().chain(moved).map(|one| one.node.as_str());
        let removed = plan.terminations.iter().map(|one| one.node.as_str());
        let mut there: BTreeMap<&str, Vec<&Pod>> = taking.chain(removed).map(|node| (node, Vec::new())).collect();
        if !there.is_empty() {
            for pod in &snapshot.pods {
                if let Some(pods) = place(pod).and_then(|node| there.get_mut(node)) {
                    pods.push(pod);
                }
            }
        }
        Self {
            snapshot,
            catalogs,
            pods: Sorted::new(&snapshot.pods, |pod| pod.uid.as_str()),
            nodes: Sorted::new(&snapshot.nodes, |node| node.name.as_str()),
            pools: Sorted::new(&snapshot.node_pools, |pool| pool.name.as_str()),
            leaving: deleting.chain(plan.terminations.iter().map(|one| one.node.as_str())).collect(),
            shapes: snapshot.shapes.iter().enumerate().map(|(number, shape)| (shape.id.as_str(), number)).collect(),
            there,
        }
    }

    /// Pods that are bound to a node of the plan or reserved for it.
    pub(crate) fn there(&self, node: &str) -> &[&'a Pod] {
        self.there.get(node).map_or(&[], Vec::as_slice)
    }

    /// The number of a shape among those of the snapshot.
    pub(crate) fn shape_number(&self, id: &str) -> Option<usize> {
        self.shapes.get(id).copied()
    }

    /// A shape by its id.
    pub(crate) fn shape(&self, id: &str) -> Option<&'a PodShape> {
        self.snapshot.shapes.get(self.shape_number(id)?)
    }

    /// The shape of a pod by its UID.
    pub(crate) fn shape_of(&self, uid: &str) -> Option<&'a PodShape> {
        self.shape(self.pods.get(uid)?.shape.as_str())
    }

    /// How many of `pods` have each shape, with the first of them.
    pub(crate) fn by_shape<'p>(
        &self,
        pods: impl IntoIterator<Item = &'p PodRef>,
    ) -> Vec<(&'a PodShape, i64, &'p PodRef)> {
        let mut found: BTreeMap<&str, (&PodShape, i64, &PodRef)> = BTreeMap::new();
        for pod in pods {
            if let Some(shape) = self.shape_of(pod.uid.as_str()) {
                found.entry(shape.id.as_str()).or_insert((shape, 0, pod)).1 += 1;
            }
        }
        found.into_values().collect()
    }
}

/// The node that a pod is bound to or reserved for.
pub(crate) fn place(pod: &Pod) -> Option<&str> {
    match &pod.state {
        PodState::Bound(node) | PodState::Reserved(node) => Some(node.as_str()),
        PodState::Pending => None,
    }
}
