//! Lookups in the snapshot by key. Everything is borrowed and found by binary search, so that checking a plan for one
//! pod of a hundred thousand is cheap.

use crate::offering_nodes::OfferingNodeCache;
use crate::pod_numbers::PodNumbers;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::{Node, NodePool, Pod, PodShape, Snapshot, SnapshotIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Data that a plan is checked against.
pub(crate) struct Facts<'a> {
    /// Snapshot in canonical order.
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) index: &'a SnapshotIndex,
    pub(crate) catalogs: &'a BTreeMap<CatalogId, Catalog>,
    /// Nodes that are being deleted or that the plan removes.
    pub(crate) leaving: BTreeSet<&'a str>,
    pub(crate) offering_nodes: OfferingNodeCache<'a>,
    /// Snapshot numbers of the pods in the plan's lists.
    pod_numbers: PodNumbers,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        index: &'a SnapshotIndex,
        catalogs: &'a BTreeMap<CatalogId, Catalog>,
        plan: &'a Plan,
    ) -> Self {
        let deleting = snapshot.nodes.iter().filter(|node| node.deleting).map(|node| node.name.as_str());
        let leaving = deleting.chain(plan.terminations.iter().map(|termination| termination.node.as_str())).collect();
        let pod_numbers = PodNumbers::new(&snapshot.pods, plan);
        Self { snapshot, index, catalogs, leaving, offering_nodes: OfferingNodeCache::default(), pod_numbers }
    }

    /// Pods that are bound to a node or reserved on it.
    pub(crate) fn pods_on(&self, node: &str) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let residents = self.node_number(node).map_or(&[][..], |number| self.index.residents(number));
        let pods = &self.snapshot.pods;
        residents.iter().filter_map(|number| pods.get(*number as usize))
    }

    /// Number of a pod in the snapshot.
    pub(crate) fn pod_number(&self, uid: &str) -> Option<usize> {
        self.snapshot.pods.binary_search_by(|pod| pod.uid.as_str().cmp(uid)).ok()
    }

    /// Pods of one list of the plan with their numbers, without pods that are not in the snapshot.
    pub(crate) fn numbered<'p>(&self, list: &'p [PodRef]) -> impl Iterator<Item = (usize, &'p PodRef)> {
        self.pod_numbers(list).zip(list).filter_map(|(number, pod)| Some((number?, pod)))
    }

    /// Numbers of the pods of one list of the plan; `None` for pods that are not in the snapshot.
    pub(crate) fn pod_numbers(&self, list: &[PodRef]) -> impl Iterator<Item = Option<usize>> {
        self.pod_numbers.of(list)
    }

    /// Returns a pod by UID.
    pub(crate) fn pod(&self, uid: &str) -> Option<&'a Pod> {
        self.snapshot.pods.get(self.pod_number(uid)?)
    }

    /// Number of a node in the snapshot.
    pub(crate) fn node_number(&self, name: &str) -> Option<usize> {
        self.snapshot.nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok()
    }

    /// Returns a node by name.
    pub(crate) fn node(&self, name: &str) -> Option<&'a Node> {
        self.snapshot.nodes.get(self.node_number(name)?)
    }

    /// Returns a pool by name.
    pub(crate) fn pool(&self, name: &str) -> Option<&'a NodePool> {
        let pools = &self.snapshot.node_pools;
        pools.get(pools.binary_search_by(|pool| pool.name.as_str().cmp(name)).ok()?)
    }

    /// Number of a pod's shape, by the pod's UID.
    pub(crate) fn shape_number_of(&self, uid: &str) -> Option<usize> {
        self.index.shape_of(self.pod_number(uid)?)
    }

    /// Shape of a pod, by the pod's UID.
    pub(crate) fn shape_of(&self, uid: &str) -> Option<&'a PodShape> {
        self.snapshot.shapes.get(self.shape_number_of(uid)?)
    }

    /// Returns a shape by id.
    pub(crate) fn shape(&self, id: &str) -> Option<&'a PodShape> {
        let shapes = &self.snapshot.shapes;
        shapes.get(shapes.binary_search_by(|shape| shape.id.as_str().cmp(id)).ok()?)
    }

    /// Counts `pods` by shape, with the first pod of each shape.
    pub(crate) fn by_shape<'p>(
        &self,
        pods: impl IntoIterator<Item = &'p PodRef>,
    ) -> Vec<(&'a PodShape, i64, &'p PodRef)> {
        self.count_shapes(pods.into_iter().filter_map(|pod| Some((self.pod_number(pod.uid.as_str())?, pod))))
    }

    /// Like `by_shape`, for one list of the plan.
    pub(crate) fn by_shape_of<'p>(&self, list: &'p [PodRef]) -> Vec<(&'a PodShape, i64, &'p PodRef)> {
        self.count_shapes(self.numbered(list))
    }

    fn count_shapes<'p>(
        &self,
        numbered: impl Iterator<Item = (usize, &'p PodRef)>,
    ) -> Vec<(&'a PodShape, i64, &'p PodRef)> {
        let mut groups: BTreeMap<usize, (&PodShape, i64, &PodRef)> = BTreeMap::new();
        for (number, pod) in numbered {
            let Some(number) = self.index.shape_of(number) else { continue };
            if let Some(shape) = self.snapshot.shapes.get(number) {
                groups.entry(number).or_insert((shape, 0, pod)).1 += 1;
            }
        }
        groups.into_values().collect()
    }
}
