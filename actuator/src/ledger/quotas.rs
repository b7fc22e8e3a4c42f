//! CapacityQuotas: limits on the nodes that a selector matches, across NodePools.
//!
//! An admitted launch holds the most that it may add to each quota, as reserved resources, until its instance is
//! launched. From then on its labels and its capacity count. So plans of several schedulers together never exceed a
//! quota.

use super::Ledger;
use super::admission::max_usage;
use super::record::ClaimRecord;
use super::rejection::Rejection;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::NodeName;
use plimsoll_model::plan::Launch;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{CapacityQuota, quota_of_resource, quota_usage_of_launch};
use std::collections::BTreeMap;

/// A Node without NodeClaim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnmanagedNode {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Capacity, including `nodes: 1`.
    pub capacity: Resources,
}

/// Quotas, and what they count besides claims.
#[derive(Debug, Clone, Default)]
pub(super) struct Quotas {
    quotas: Vec<CapacityQuota>,
    unmanaged: BTreeMap<NodeName, UnmanagedNode>,
}

impl Ledger {
    /// Updates the quotas.
    pub fn set_quotas(&mut self, quotas: Vec<CapacityQuota>) {
        self.quotas.quotas = quotas;
    }

    /// The quotas.
    #[must_use]
    pub fn quotas(&self) -> &[CapacityQuota] {
        &self.quotas.quotas
    }

    /// Updates the Nodes that have no claim.
    pub fn set_unmanaged_nodes(&mut self, nodes: BTreeMap<NodeName, UnmanagedNode>) {
        self.quotas.unmanaged = nodes;
    }

    /// The Nodes that have no claim, as last recorded.
    #[must_use]
    pub fn unmanaged_nodes(&self) -> &BTreeMap<NodeName, UnmanagedNode> {
        &self.quotas.unmanaged
    }

    /// Records the labels of a claim or its Node. Once the claim is launched, its labels decide which quotas count it.
    pub fn labelled(&mut self, claim: &str, labels: BTreeMap<String, String>) {
        if let Some(record) = self.claims.get_mut(claim) {
            record.labels = labels;
            if record.launched {
                let reserved: Vec<String> = of_quotas(&record.counted).map(|(name, _)| name.to_owned()).collect();
                for name in reserved {
                    record.counted.remove(&name);
                }
            }
        }
    }

    /// The most that a launch may add to usage: the maximum of each resource over all accepted offerings, the price
    /// included, one instance of each capacity reservation, and its part of each quota.
    ///
    /// # Errors
    /// The catalog lacks an offering of the launch.
    pub fn max_usage(&self, launch: &Launch, catalog: &Catalog) -> Result<Resources, Rejection> {
        let mut maximum = max_usage(launch, catalog)?;
        let quotas = self.quotas();
        // Zeros say that a quota does not count the launch, whatever the labels of its claim are.
        quotas.iter().flat_map(CapacityQuota::resources).for_each(|(name, _, _)| maximum.set(&name, 0));
        maximum.raise_to(&quota_usage_of_launch(quotas, launch, catalog, usize::MAX));
        Ok(maximum)
    }

    /// Whether each quota leaves room for `reserve`. Beside an unreadable claim, this is unknown.
    pub(super) fn check_quotas(&self, reserve: &Resources) -> Result<(), Rejection> {
        for quota in self.quotas() {
            for (name, resource, limit) in quota.resources() {
                let asked = reserve.get(&name);
                if asked <= 0 {
                    continue;
                }
                // Its labels are unknown too, so that any quota may count it.
                if let Some(problem) = self.unreadable.values().next() {
                    return Err(Rejection::QuotaUnreadable { quota: quota.name.clone(), problem: problem.to_string() });
                }
                let used = self.used_of_quota(quota, &name, resource);
                if used.saturating_add(asked) > limit {
                    let (quota, resource) = (quota.name.clone(), resource.to_owned());
                    return Err(Rejection::QuotaExceeded { quota, resource, limit, used, asked });
                }
            }
        }
        Ok(())
    }

    /// What claims and other Nodes use of each limited resource of a quota, by resource. Admitted launches count what
    /// they may use at most.
    #[must_use]
    pub fn usage_of_quota(&self, quota: &CapacityQuota) -> Resources {
        let limited = quota.resources();
        limited.map(|(name, resource, _)| (resource, self.used_of_quota(quota, &name, resource))).collect()
    }

    /// What claims and other Nodes use of a limit of a quota. `name` is the resource that counts it.
    fn used_of_quota(&self, quota: &CapacityQuota, name: &str, resource: &str) -> i64 {
        let of_claim = |record: &ClaimRecord| match record.counted.contains(name) {
            true => record.counted.get(name),
            false if quota.may_match_claim(&record.labels) => record.counted.get(resource),
            false => 0,
        };
        let counted = self.quotas.unmanaged.values().filter(|node| quota.matches_labels(&node.labels));
        let unmanaged = counted.map(|node| node.capacity.get(resource));
        self.claims.values().map(of_claim).chain(unmanaged).fold(0, i64::saturating_add)
    }
}

/// The parts of quotas among reserved resources.
pub(super) fn of_quotas(reserved: &Resources) -> impl Iterator<Item = (&str, i64)> {
    reserved.iter().filter(|(name, _)| quota_of_resource(name).is_some())
}

#[cfg(test)]
mod tests;
