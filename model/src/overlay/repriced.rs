//! Finds launches whose prices differ from those of the cloud. The cloud must then be told which offerings to prefer.

use crate::catalog::Catalog;
use crate::identity::CatalogId;
use crate::plan::{Launch, OfferingChoice};
use crate::snapshot::{NodePool, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Finds launches with prices other than catalog price plus the pool's cost per node.
#[derive(Debug, Default)]
pub struct Repriced<'a> {
    /// Pools with changed prices, by name, with their original catalogs.
    pools: BTreeMap<&'a str, (&'a NodePool, &'a Catalog)>,
    /// Results by pool and shared list of offerings.
    cache: BTreeMap<(&'a str, usize), bool>,
}

impl<'a> Repriced<'a> {
    /// Creates a lookup for plans of this snapshot. `catalogs` must not have overlays and costs applied.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, catalogs: &'a BTreeMap<CatalogId, Catalog>) -> Self {
        let changes_prices = |pool: &&NodePool| {
            !pool.costs.performance.is_empty() || pool.overlays.iter().any(|overlay| overlay.price.is_some())
        };
        let pools = snapshot.node_pools.iter().filter(changes_prices);
        let by_name =
            pools.filter_map(|pool| Some((pool.name.as_str(), (pool, catalogs.get(pool.catalog.as_ref()?)?))));
        Self { pools: by_name.collect(), cache: BTreeMap::new() }
    }

    /// Whether no launch can have changed prices.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.pools.is_empty()
    }

    /// Whether `launch` has changed prices. Results are cached by address, so the offering lists of all launches must
    /// outlive this value.
    pub fn has(&mut self, launch: &Launch) -> bool {
        let Some((name, (pool, catalog))) = self.pools.get_key_value(launch.node_pool.as_str()) else { return false };
        let key = (*name, Arc::as_ptr(&launch.offerings) as usize);
        *self
            .cache
            .entry(key)
            .or_insert_with(|| launch.offerings.iter().any(|choice| is_changed(choice, pool, catalog)))
    }

    /// Sets `prioritized` of all `launches`.
    pub fn mark(&mut self, launches: &mut [Launch]) {
        for launch in launches {
            launch.prioritized = self.has(launch);
        }
    }
}

fn is_changed(choice: &OfferingChoice, pool: &NodePool, catalog: &Catalog) -> bool {
    catalog.find(choice).is_some_and(|(_, offering)| offering.price + pool.costs.per_node != choice.price)
}
