//! The snapshot by key. Everything is borrowed and found by search in sorted lists: a check must cost little beside a plan
//! that changes one pod of a hundred thousand.

use crate::resolved::Resolved;
use crate::shelf::Shelf;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::{Node, NodePool, Pod, PodShape, Snapshot, SnapshotIndex};
use std::collections::{BTreeMap, BTreeSet};

/// What a plan is judged by.
pub(crate) struct Facts<'a> {
    /// In canonical order.
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) index: &'a SnapshotIndex,
    pub(crate) catalogs: &'a BTreeMap<CatalogId, Catalog>,
    /// Nodes that are being deleted, or that the plan removes.
    pub(crate) leaving: BTreeSet<&'a str>,
    pub(crate) shelf: Shelf<'a>,
    /// Pods of the plan's lists, each looked up once.
    resolved: Resolved,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        index: &'a SnapshotIndex,
        catalogs: &'a BTreeMap<CatalogId, Catalog>,
        plan: &'a Plan,
    ) -> Self {
        let deleting = snapshot.nodes.iter().filter(|node| node.deleting).map(|node| node.name.as_str());
        let leaving = deleting.chain(plan.terminations.iter().map(|one| one.node.as_str())).collect();
        let resolved = Resolved::new(&snapshot.pods, plan);
        Self { snapshot, index, catalogs, leaving, shelf: Shelf::default(), resolved }
    }

    /// Pods that are bound to a node or reserved for it.
    pub(crate) fn there(&self, node: &str) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let residents = self.node_number(node).map_or(&[][..], |number| self.index.residents(number));
        let pods = &self.snapshot.pods;
        residents.iter().filter_map(|place| pods.get(*place as usize))
    }

    /// The number of a pod among those of the snapshot.
    pub(crate) fn pod_number(&self, uid: &str) -> Option<usize> {
        self.snapshot.pods.binary_search_by(|pod| pod.uid.as_str().cmp(uid)).ok()
    }

    /// The pods of one list of the plan with their numbers; those that the snapshot does not have are left out.
    pub(crate) fn numbered<'p>(&self, list: &'p [PodRef]) -> impl Iterator<Item = (usize, &'p PodRef)> {
        self.resolved(list).zip(list).filter_map(|(number, pod)| Some((number?, pod)))
    }

    /// The numbers of the pods of one list of the plan; `None` for those that the snapshot does not have.
    pub(crate) fn resolved(&self, list: &[PodRef]) -> impl Iterator<Item = Option<usize>> {
        self.resolved.of(list)
    }

    /// A pod by its UID.
    pub(crate) fn pod(&self, uid: &str) -> Option<&'a Pod> {
        self.snapshot.pods.get(self.pod_number(uid)?)
    }

    /// The number of a node among those of the snapshot.
    pub(crate) fn node_number(&self, name: &str) -> Option<usize> {
        self.snapshot.nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok()
    }

    /// A node by its name.
    pub(crate) fn node(&self, name: &str) -> Option<&'a Node> {
        self.snapshot.nodes.get(self.node_number(name)?)
    }

    /// A pool by its name.
    pub(crate) fn pool(&self, name: &str) -> Option<&'a NodePool> {
        let pools = &self.snapshot.node_pools;
        pools.get(pools.binary_search_by(|pool| pool.name.as_str().cmp(name)).ok()?)
    }

    /// The number of the shape of a pod by its UID.
    pub(crate) fn shape_number_of(&self, uid: &str) -> Option<usize> {
        self.index.shape_of(self.pod_number(uid)?)
    }

    /// The shape of a pod by its UID.
    pub(crate) fn shape_of(&self, uid: &str) -> Option<&'a PodShape> {
        self.snapshot.shapes.get(self.shape_number_of(uid)?)
    }

    /// A shape by its id.
    pub(crate) fn shape(&self, id: &str) -> Option<&'a PodShape> {
        let shapes = &self.snapshot.shapes;
        shapes.get(shapes.binary_search_by(|shape| shape.id.as_str().cmp(id)).ok()?)
    }

    /// How many of `pods` have each shape, with the first of them.
    pub(crate) fn by_shape<'p>(
        &self,
        pods: impl IntoIterator<Item = &'p PodRef>,
    ) -> Vec<(&'a PodShape, i64, &'p PodRef)> {
        self.counted(pods.into_iter().filter_map(|pod| Some((self.pod_number(pod.uid.as_str())?, pod))))
    }

    /// The same for one list of the plan.
    pub(crate) fn by_shape_of<'p>(&self, list: &'p [PodRef]) -> Vec<(&'a PodShape, i64, &'p PodRef)> {
        self.counted(self.numbered(list))
    }

    fn counted<'p>(&self, numbered: impl Iterator<Item = (usize, &'p PodRef)>) -> Vec<(&'a PodShape, i64, &'p PodRef)> {
        let mut found: BTreeMap<usize, (&PodShape, i64, &PodRef)> = BTreeMap::new();
        for (number, pod) in numbered {
            if let Some(shape) = self.index.shape_of(number) {
                found.entry(shape).or_insert((&self.snapshot.shapes[shape], 0, pod)).1 += 1;
            }
        }
        found.into_values().collect()
    }
}
