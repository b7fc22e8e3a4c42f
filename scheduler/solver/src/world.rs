//! A snapshot with everything looked up once: pools in order of preference, shapes, DaemonSets, nodes.

use crate::daemon;
use crate::existing::NodeView;
use crate::intern::{Amounts, ResourceTable};
use crate::offerings::{Alternative, PoolView};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, ShapeId};
use plimsoll_model::snapshot::{Pod, PodShape, Snapshot};
use plimsoll_model::taints::{Taint, TaintEffect, Toleration};
use std::collections::BTreeMap;

/// A shape and what it asks for.
pub(crate) struct ShapeView<'a> {
    pub(crate) shape: &'a PodShape,
    pub(crate) requests: Amounts,
    /// Per launchable pool: where it can run; empty where it cannot.
    pub(crate) fits: Vec<Vec<Alternative>>,
}

/// All of it.
pub(crate) struct World<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) table: ResourceTable,
    /// Pools that can launch: heavier first, then by name descending.
    pub(crate) pools: Vec<PoolView<'a>>,
    pub(crate) shapes: Vec<ShapeView<'a>>,
    pub(crate) shape_index: BTreeMap<&'a ShapeId, usize>,
    /// In the order in which they are filled.
    pub(crate) nodes: Vec<NodeView<'a>>,
}

/// Whether pods with these tolerations may go where these taints are. `relaxed`: PreferNoSchedule does not count.
pub(crate) fn tolerated(taints: &[Taint], tolerations: &[Toleration], relaxed: bool) -> bool {
    taints.iter().all(|taint| {
        (relaxed && taint.effect == TaintEffect::PreferNoSchedule)
            || tolerations.iter().any(|toleration| toleration.tolerates(taint))
    })
}

impl<'a> World<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, catalogs: &'a BTreeMap<CatalogId, Catalog>) -> Self {
        let requests = snapshot.shapes.iter().map(|shape| &shape.requests);
        let limits = snapshot.node_pools.iter().map(|pool| &pool.limits);
        let table = ResourceTable::new(requests.chain(limits));
        let mut pools: Vec<PoolView<'a>> = snapshot
            .node_pools
            .iter()
            .filter(|pool| pool.not_ready.is_none() && !pool.deleting && pool.replicas.is_none())
            .filter_map(|pool| {
                let catalog = catalogs.get(pool.catalog.as_ref()?)?;
                Some(PoolView::new(pool, catalog, &snapshot.unavailable_offerings, &table))
            })
            .collect();
        pools.sort_by(|a, b| b.pool.weight.cmp(&a.pool.weight).then_with(|| b.pool.name.cmp(&a.pool.name)));
        for pool in &mut pools {
            daemon::reserve(pool, snapshot, &table);
        }
        let shapes: Vec<ShapeView<'a>> =
            snapshot.shapes.iter().map(|shape| shape_view(shape, &pools, &table)).collect();
        let shape_index = snapshot.shapes.iter().enumerate().map(|(index, shape)| (&shape.id, index)).collect();
        let mut world = Self { snapshot, table, pools, shapes, shape_index, nodes: Vec::new() };
        world.nodes = crate::existing::views(&world);
        world
    }

    pub(crate) fn shape_of(&self, pod: &Pod) -> Option<usize> {
        self.shape_index.get(&pod.shape).copied()
    }
}

fn shape_view<'a>(shape: &'a PodShape, pools: &[PoolView<'a>], table: &ResourceTable) -> ShapeView<'a> {
    let requests = table.vector(&shape.requests);
    let fits = pools
        .iter()
        .map(|pool| {
            if !tolerated(&pool.pool.taints, &shape.tolerations, true) {
                return Vec::new();
            }
            let roomy = pool.roomy(&requests);
            let mut all = pool.alternatives(shape);
            for one in &mut all {
                one.offerings.keep(&pool.usable);
                one.offerings.keep(&roomy);
            }
            all.retain(|one| !one.offerings.is_empty());
            all
        })
        .collect();
    ShapeView { shape, requests, fits }
}
