//! What a period cost: money, evictions and waiting.

use plimsoll_model::catalog::{Catalog, Offering};
use plimsoll_model::identity::{CatalogId, NodeName};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label::{INSTANCE_TYPE, ZONE};
use plimsoll_model::snapshot::{Node, NodePool};
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::BTreeMap;

const MILLIS_PER_HOUR: i128 = 3_600_000;

/// Figures of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Cost of the nodes of NodePools, in millionths of a US dollar.
    pub micro_usd: i64,
    /// Price of these nodes at the end.
    pub hourly: MicroUsdPerHour,
    /// Nodes at the end.
    pub nodes: usize,
    /// Nodes that were launched.
    pub launched: usize,
    /// Nodes that were removed.
    pub removed: usize,
    /// Pods that were evicted.
    pub evicted: usize,
    /// Time for which pods waited for a node, of all pods together.
    pub waited: Millis,
    /// Pods that wait at the end.
    pub waiting: usize,
}

/// Adds up prices and waiting over time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter {
    pub(crate) figures: Figures,
    since: Option<Timestamp>,
    /// Price of each node at last.
    last: BTreeMap<NodeName, MicroUsdPerHour>,
    /// Millionths of a US dollar per hour, times milliseconds.
    spent: i128,
}

impl Meter {
    /// Counts the time since the last call, with the prices and the waiting pods that were set then.
    pub(crate) fn pass(&mut self, now: Timestamp) {
        let passed = self.since.map_or(0, |since| now.since(since).0);
        self.since = Some(self.since.map_or(now, |since| since.max(now)));
        self.spent += i128::from(self.figures.hourly.0) * i128::from(passed);
        self.figures.micro_usd = i64::try_from(self.spent / MILLIS_PER_HOUR).unwrap_or(i64::MAX);
        let waiting = u64::try_from(self.figures.waiting).unwrap_or(u64::MAX);
        self.figures.waited = Millis(self.figures.waited.0.saturating_add(passed.saturating_mul(waiting)));
    }

    /// Sets the nodes and the waiting pods from now on.
    pub(crate) fn set<'a>(&mut self, nodes: impl Iterator<Item = &'a Node>, prices: &Prices<'_>, waiting: usize) {
        // A catalog may no longer have what a node was bought as, and a NodePool may have no catalog for a while.
        let price = |node: &Node| prices.of(node).or_else(|| self.last.get(&node.name).copied()).unwrap_or_default();
        let counted = nodes.filter(|node| is_counted(node));
        self.last = counted.map(|node| (node.name.clone(), price(node))).collect();
        let hourly = self.last.values().fold(0_i64, |sum, price| sum.saturating_add(price.0));
        let hourly = MicroUsdPerHour(hourly);
        (self.figures.nodes, self.figures.hourly, self.figures.waiting) = (self.last.len(), hourly, waiting);
    }
}

/// Prices of the nodes of NodePools.
pub(crate) struct Prices<'a>(BTreeMap<&'a str, &'a Catalog>);

impl<'a> Prices<'a> {
    pub(crate) fn new(pools: &'a [NodePool], catalogs: &'a BTreeMap<CatalogId, Catalog>) -> Self {
        let catalog = |pool: &'a NodePool| Some((pool.name.as_str(), catalogs.get(pool.catalog.as_ref()?)?));
        Self(pools.iter().filter_map(catalog).collect())
    }

    /// The price of a node, if a catalog has what it was bought as.
    fn of(&self, node: &Node) -> Option<MicroUsdPerHour> {
        let pool = node.node_pool.as_ref()?;
        // A pool that is gone still has nodes, which any catalog may price.
        let own = self.0.get(pool.as_str()).copied();
        let offering = own.into_iter().chain(self.0.values().copied()).find_map(|one| one.offering_of(&node.labels));
        offering.map(Offering::list_price)
    }
}

/// Whether a node costs something here: not one outside of pools, nor a claim whose instance is not known yet.
fn is_counted(node: &Node) -> bool {
    node.node_pool.is_some() && [INSTANCE_TYPE, ZONE].iter().all(|label| node.labels.contains_key(*label))
}
