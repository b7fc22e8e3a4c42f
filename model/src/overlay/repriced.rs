//! Launches whose prices are not the cloud's: where it chooses by its own, it must be told which offerings to prefer.

use crate::catalog::{Catalog, Offering};
use crate::identity::CatalogId;
use crate::plan::{Launch, OfferingChoice};
use crate::snapshot::{NodePool, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tells launches that count other prices than their catalog's, beyond what each node costs alike.
#[derive(Debug, Default)]
pub struct Repriced<'a> {
    /// Pools of which prices are changed, by name, with the catalogs as they were.
    pools: BTreeMap<&'a str, (&'a NodePool, &'a Catalog)>,
    /// By pool and shared list of offerings.
    known: BTreeMap<(&'a str, usize), bool>,
}

impl<'a> Repriced<'a> {
    /// Of plans for this snapshot, with what its pools buy from before overlays and costs are applied.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, catalogs: &'a BTreeMap<CatalogId, Catalog>) -> Self {
        let priced = |pool: &&NodePool| {
            !pool.costs.performance.is_empty() || pool.overlays.iter().any(|overlay| overlay.price.is_some())
        };
        let pools = snapshot.node_pools.iter().filter(priced);
        let known = pools.filter_map(|pool| Some((pool.name.as_str(), (pool, catalogs.get(pool.catalog.as_ref()?)?))));
        Self { pools: known.collect(), known: BTreeMap::new() }
    }

    /// Whether no launch is.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.pools.is_empty()
    }

    /// Whether `launch` is one. The lists of offerings of all launches that are asked about are there as long as this is.
    pub fn has(&mut self, launch: &Launch) -> bool {
        let Some((name, (pool, catalog))) = self.pools.get_key_value(launch.node_pool.as_str()) else { return false };
        let key = (*name, Arc::as_ptr(&launch.offerings) as usize);
        *self
            .known
            .entry(key)
            .or_insert_with(|| launch.offerings.iter().any(|choice| is_changed(choice, pool, catalog)))
    }

    /// Marks those of `launches` that are.
    pub fn mark(&mut self, launches: &mut [Launch]) {
        for launch in launches {
            launch.prioritized = self.has(launch);
        }
    }
}

fn is_changed(choice: &OfferingChoice, pool: &NodePool, catalog: &Catalog) -> bool {
    let same = |one: &&Offering| one.zone == choice.zone && one.capacity_type == choice.capacity_type;
    let sold = catalog.get(&choice.instance_type).and_then(|kind| kind.offerings.iter().find(same));
    sold.is_some_and(|sold| sold.price + pool.costs.per_node != choice.price)
}
