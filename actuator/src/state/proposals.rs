//! What plans proposed while another autoscaler runs, and what that would cost, per NodePool.
//!
//! A plan is repeated in each cycle until somebody acts on it. So proposals are counted by what they are about: a
//! launch by its pods, a removal by its node. Costs are never added up over plans; they are those of the last plan.

use super::catalogs::Entries;
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, Plan};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum pods, and maximum nodes, that one period remembers: as many as the largest clusters have. Proposals about
/// others are not counted, and the report says so.
const MAX_REMEMBERED: usize = 100_000;

/// Report on one NodePool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolReport {
    /// Name of the NodePool.
    pub pool: String,
    /// Nodes that would have been launched in the period.
    pub launches: usize,
    /// Nodes that would have been removed in the period.
    pub removals: usize,
    /// Whether there were more proposals than are remembered.
    pub incomplete: bool,
    /// Price of the nodes of the pool.
    pub current: MicroUsdPerHour,
    /// The same once the last plan is executed; `None` if there was no plan in the period.
    pub planned: Option<MicroUsdPerHour>,
}

/// Proposals of a period.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    counts: BTreeMap<String, Counts>,
    pods: BTreeSet<PodUid>,
    nodes: BTreeSet<NodeName>,
    incomplete: bool,
    last: Option<LastPlan>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    launches: usize,
    removals: usize,
    /// Most launches without pods in one plan, such as those of a static pool.
    without_pods: usize,
}

/// Actions of the last plan.
#[derive(Debug, Default)]
struct LastPlan {
    launched: BTreeMap<String, MicroUsdPerHour>,
    removed: BTreeSet<NodeName>,
}

impl Proposals {
    /// Adds the proposals of a plan. `pool_of` tells the NodePool of a node. Launches have the prices of `catalogs`, as
    /// nodes do: a plan's prices include NodeOverlays and node costs.
    pub(crate) fn note(&mut self, plan: &Plan, catalogs: &Entries, pool_of: impl Fn(&NodeName) -> Option<String>) {
        let mut last = LastPlan::default();
        let mut without_pods: BTreeMap<&str, usize> = BTreeMap::new();
        for launch in &plan.launches {
            let hourly = last.launched.entry(launch.node_pool.0.clone()).or_default();
            *hourly = *hourly + list_price(catalogs, launch).unwrap_or_else(|| launch.price());
            if launch.pods.is_empty() {
                *without_pods.entry(&launch.node_pool.0).or_default() += 1;
            } else if self.is_new(launch) {
                self.of_pool(&launch.node_pool.0).launches += 1;
            }
        }
        for (pool, launches) in without_pods {
            let counts = self.of_pool(pool);
            counts.without_pods = counts.without_pods.max(launches);
        }
        for termination in &plan.terminations {
            last.removed.insert(termination.node.clone());
            if self.nodes.contains(&termination.node) {
                continue;
            }
            if self.nodes.len() >= MAX_REMEMBERED {
                self.incomplete = true;
            } else if let Some(pool) = pool_of(&termination.node) {
                self.nodes.insert(termination.node.clone());
                self.of_pool(&pool).removals += 1;
            }
        }
        self.last = Some(last);
    }

    /// Whether no earlier launch of the period was for a pod of `launch`. Remembers its pods.
    fn is_new(&mut self, launch: &Launch) -> bool {
        let mut is_new = true;
        for pod in &launch.pods {
            if self.pods.contains(&pod.uid) {
                is_new = false;
            } else if self.pods.len() >= MAX_REMEMBERED {
                self.incomplete = true;
                is_new = false;
            } else {
                self.pods.insert(pod.uid.clone());
            }
        }
        is_new
    }

    fn of_pool(&mut self, pool: &str) -> &mut Counts {
        self.counts.entry(pool.to_owned()).or_default()
    }

    /// Reports on `pools`. `current` is the price of each pool's nodes, `price_of` the pool and price of one node.
    pub(crate) fn report(
        &self,
        pools: impl IntoIterator<Item = String>,
        current: &BTreeMap<String, MicroUsdPerHour>,
        price_of: impl Fn(&NodeName) -> Option<(String, MicroUsdPerHour)>,
    ) -> Vec<PoolReport> {
        let mut removed: BTreeMap<String, MicroUsdPerHour> = BTreeMap::new();
        for (pool, price) in self.last.iter().flat_map(|last| &last.removed).filter_map(price_of) {
            let sum = removed.entry(pool).or_default();
            *sum = *sum + price;
        }
        let of_pool = |pool: String| {
            let counts = self.counts.get(&pool).copied().unwrap_or_default();
            let current = current.get(&pool).copied().unwrap_or_default();
            let planned = self.last.as_ref().map(|last| {
                let launched = last.launched.get(&pool).copied().unwrap_or_default();
                let removed = removed.get(&pool).copied().unwrap_or_default();
                MicroUsdPerHour(current.0.saturating_add(launched.0).saturating_sub(removed.0))
            });
            let (launches, removals) = (counts.launches + counts.without_pods, counts.removals);
            PoolReport { pool, launches, removals, incomplete: self.incomplete, current, planned }
        };
        pools.into_iter().map(of_pool).collect()
    }
}

/// List price of the offering that a launch counts; `None` if the catalog of its node class lacks it.
fn list_price(catalogs: &Entries, launch: &Launch) -> Option<MicroUsdPerHour> {
    let choice = launch.offerings.first()?;
    let (_, catalog) = catalogs.get(&launch.node_class)?.catalog.as_ref()?;
    catalog.find(choice).map(|(_, offering)| offering.list_price())
}

#[cfg(test)]
mod tests;
