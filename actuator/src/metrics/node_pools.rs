//! Metrics of NodePools: limits, usage, cost and budgets.

use super::view::{ClusterView, resource_type, units};
use crate::nodes::{is_ready, provider_id};
use crate::state::capacity::{capacity, shown};
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::budget::DisruptionReason;
use plimsoll_api::{NodeClaim, NodePool};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::annotation;
use plimsoll_model::resources::Resources;
use plimsoll_runtime::metrics::scrape::{Labels, Samples, Scraped};
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use std::collections::BTreeMap;

/// Metrics of NodePools. Clones share them.
#[derive(Debug, Clone)]
pub struct PoolMetrics {
    limit: Scraped,
    usage: Scraped,
    cost: Scraped,
    allowed: Scraped,
    consuming: Scraped,
    unpriced: Scraped,
}

/// What the claims of a pool add up to.
#[derive(Debug, Default)]
struct PoolSums {
    usage: Resources,
    cost: MicroUsdPerHour,
    unpriced: u32,
    in_service: u32,
    disrupted: u32,
}

impl PoolMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let karpenter = metrics.karpenter();
        let (of_resource, of_reason) = (["resource_type", "nodepool"], ["nodepool", "reason"]);
        Ok(Self {
            limit: karpenter.scraped("nodepools_limit", "Limit of a NodePool.", &of_resource)?,
            usage: karpenter.scraped("nodepools_usage", "Capacity of a NodePool's nodes.", &of_resource)?,
            cost: karpenter.scraped(
                "nodepools_cost_total",
                "Price of a NodePool's nodes in US dollars per hour.",
                &["nodepool"],
            )?,
            allowed: karpenter.scraped(
                "nodepools_allowed_disruptions",
                "Nodes of a NodePool that its budgets allow to be disrupted at once.",
                &of_reason,
            )?,
            consuming: karpenter.scraped(
                "nodepools_nodes_consuming_budgets",
                "Nodes of a NodePool that are being disrupted or are not ready.",
                &of_reason,
            )?,
            unpriced: metrics.scraped(
                "nodepool_nodes_without_price",
                "Nodes of a NodePool whose price is not known; karpenter_nodepools_cost_total leaves them out.",
                &["nodepool"],
            )?,
        })
    }

    /// Writes the gauges.
    pub(super) fn collect(&self, view: &ClusterView, samples: &mut Samples) {
        let mut sums = sums(view);
        for pool in &view.pools {
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            let of_pool = sums.remove(name).unwrap_or_default();
            let labels = Labels::of(&[("nodepool", name)]);
            self.resources(pool, &of_pool, &labels, samples);
            samples.put(&self.cost, &labels, of_pool.cost.usd());
            samples.put(&self.unpriced, &labels, f64::from(of_pool.unpriced));
            for reason in DisruptionReason::ALL {
                let labels = labels.with("reason", reason.as_str());
                let allowed = pool.spec.allowed_disruptions(reason, view.now, of_pool.in_service);
                samples.put(&self.allowed, &labels, f64::from(i32::try_from(allowed).unwrap_or(i32::MAX)));
                samples.put(&self.consuming, &labels, f64::from(of_pool.disrupted));
            }
        }
    }

    fn resources(&self, pool: &NodePool, sums: &PoolSums, labels: &Labels, samples: &mut Samples) {
        let of_resource = |name: &str| labels.with("resource_type", &resource_type(name));
        for (name, limit) in plimsoll_snapshot::limits(pool).unwrap_or_default().iter() {
            samples.put(&self.limit, &of_resource(name), units(name, limit));
        }
        for (name, amount) in shown(&sums.usage).iter() {
            samples.put(&self.usage, &of_resource(name), units(name, amount));
        }
    }
}

/// Price of the nodes of each pool. Nodes without a known price are left out.
pub(crate) fn costs(view: &ClusterView) -> BTreeMap<String, MicroUsdPerHour> {
    sums(view).into_iter().map(|(pool, sums)| (pool, sums.cost)).collect()
}

fn sums(view: &ClusterView) -> BTreeMap<String, PoolSums> {
    let nodes: BTreeMap<&str, &Node> =
        view.nodes.iter().filter_map(|node| Some((provider_id(node)?, &**node))).collect();
    let mut sums: BTreeMap<String, PoolSums> = BTreeMap::new();
    for claim in &view.claims {
        let pool = claim.node_pool();
        if pool.is_empty() {
            continue;
        }
        let sum = sums.entry(pool.to_owned()).or_default();
        let annotations = claim.metadata.annotations.as_ref();
        let deleting = claim.metadata.deletion_timestamp.is_some();
        // Budgets leave out nodes whose instance is being terminated.
        let terminating = claim.is_instance_terminating();
        let removing = deleting || annotations.is_some_and(|all| all.contains_key(annotation::REMOVAL));
        let in_service = !terminating && claim.is_initialized();
        let node = claim.provider_id().and_then(|id| nodes.get(id).copied());
        let not_ready = in_service && node.is_some_and(|node| !is_ready(node));
        sum.in_service += u32::from(in_service);
        sum.disrupted += u32::from(!terminating && (removing || not_ready));
        if claim.provider_id().is_none() {
            continue;
        }
        match price(view, claim) {
            Some(price) => sum.cost = sum.cost + price,
            None => sum.unpriced += 1,
        }
        if !deleting {
            sum.usage.add(&capacity(claim, node));
        }
    }
    sums
}

/// Price of a claim's instance, by the catalog of its node class.
pub(crate) fn price(view: &ClusterView, claim: &NodeClaim) -> Option<MicroUsdPerHour> {
    let entry = view.catalogs.get(&claim.spec.node_class_ref.name)?;
    let (_, catalog) = entry.catalog.as_ref()?;
    catalog.offering_of(claim.metadata.labels.as_ref()?).map(|offering| offering.price)
}

#[cfg(test)]
mod tests;
