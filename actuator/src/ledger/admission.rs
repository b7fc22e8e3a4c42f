//! Requests to the ledger and its answers.

use super::Ledger;
use super::changes::Subject;
use super::outcomes::Outcome;
use super::record::ClaimRecord;
use super::rejection::Rejection;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{NodeName, NodePoolName, PodUid};
use plimsoll_model::names::USD_PER_HOUR_RESOURCE;
use plimsoll_model::plan::{Launch, PodRef};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{DisruptionReason, LedgerPosition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The watcher that drives the actuator (rule 17): read from its Lease, and sent with each plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Driver {
    /// Holder of the watcher's lease.
    pub holder: String,
    /// Transitions of that lease.
    pub transitions: u64,
}

/// Metadata of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanContext {
    /// The sender.
    pub driver: Driver,
    /// The ledger position that the plan's snapshot includes.
    pub position: LedgerPosition,
    /// Sequence of the plan's snapshot; identifies the plan among those of one driver.
    pub snapshot_sequence: u64,
    /// Virtual pods of CapacityBuffers. A plan that includes their former launch may launch for them again.
    pub virtual_pods: Arc<BTreeSet<PodUid>>,
    /// Nodes of static pools that the plan replaces. They do not count towards `replicas`.
    pub replaced: Arc<BTreeSet<NodeName>>,
}

/// Limits and budgets of a pool, from the watch cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolFacts {
    /// Limits; `nodes` counts nodes.
    pub limits: Resources,
    /// Allowed concurrent disruptions by reason, evaluated now. A missing reason has no limit.
    pub allowed: BTreeMap<DisruptionReason, u32>,
    /// Nodes that the pool's rollout allows to be replaced for drift at the same time. `None`: no limit.
    pub rollout_limit: Option<u32>,
    /// Number of nodes of a static pool.
    pub replicas: Option<u64>,
}

/// Result of an admission request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Admitted: the claim (for a removal, the candidate's), and the position from which snapshots include the action.
    Admitted {
        /// The claim's name.
        claim: String,
        /// Position after the admission.
        position: LedgerPosition,
    },
    /// The same action is in progress or done: nothing changed.
    Repeated(Outcome),
    /// Refused: nothing changed.
    Rejected(Rejection),
}

impl Ledger {
    /// Withdraws an admitted launch that is not executed after all. Nothing of it was written.
    pub fn withdraw(&mut self, claim: &str, plan: &PlanContext) {
        let pods = self.free_pods(claim);
        let Some(record) = self.claims.remove(claim) else { return };
        self.note(pods, Some(self.key(plan)));
        if let Some(action) = record.action {
            self.outcomes.set(&action, Outcome::Failed);
        }
    }

    /// Whether the usage of a pool is known: all of its claims are readable.
    pub(super) fn check_readable(&self, pool: &NodePoolName) -> Result<(), Rejection> {
        match self.unreadable.values().find(|problem| problem.pool == *pool) {
            Some(problem) => Err(Rejection::PoolUnreadable { pool: pool.clone(), problem: problem.to_string() }),
            None => Ok(()),
        }
    }

    /// Whether a static pool has fewer nodes than its `replicas`. Nodes that are being removed do not count, nor do
    /// those that a plan has `replaced`.
    pub(super) fn check_lacks_node(&self, pool: &NodePoolName, replaced: &BTreeSet<NodeName>) -> Result<(), Rejection> {
        let Some(limit) = self.pools.get(pool).and_then(|facts| facts.replicas) else { return Ok(()) };
        let stays = |(name, claim): &(&String, &ClaimRecord)| {
            let is_replaced = claim.node.as_ref().is_some_and(|node| replaced.contains(node));
            claim.pool == *pool && !claim.deleting && !is_replaced && !self.removals.contains_key(*name)
        };
        let (limit, used) = (i64::try_from(limit).unwrap_or(i64::MAX), self.claims.iter().filter(stays).count());
        let used = i64::try_from(used).unwrap_or(i64::MAX);
        if used >= limit {
            return Err(Rejection::LimitExceeded { resource: "replicas".to_owned(), limit, used, asked: 1 });
        }
        Ok(())
    }

    /// Whether the limits of a pool leave room for `reserve`. A claim whose price nobody recorded makes a limit of the
    /// price unknown.
    pub(super) fn check_limits(&self, pool: &NodePoolName, reserve: &Resources) -> Result<(), Rejection> {
        let limits = self.pools.get(pool).map(|facts| &facts.limits).filter(|limits| !limits.is_empty());
        // The usage is a sum over all claims.
        let Some(limits) = limits else { return Ok(()) };
        let used = self.used(pool);
        for (resource, limit) in limits.iter() {
            let is_unpriced = |(_, claim): &(&String, &ClaimRecord)| {
                resource == USD_PER_HOUR_RESOURCE && claim.pool == *pool && !claim.counted.contains(resource)
            };
            if let Some((claim, _)) = self.claims.iter().find(is_unpriced) {
                return Err(Rejection::PriceUnknown(claim.clone()));
            }
            let (used, asked) = (used.get(resource), reserve.get(resource));
            if asked > 0 && used.saturating_add(asked) > limit {
                return Err(Rejection::LimitExceeded { resource: resource.to_owned(), limit, used, asked });
            }
        }
        Ok(())
    }

    /// A virtual pod may be launched for again although it is reserved: a real pod has taken its place. The plan must
    /// include the former launch. Unlike for real pods, this also holds for earlier actions of the plan itself.
    pub(super) fn check_virtual(&self, pod: &PodRef, plan: &PlanContext) -> Result<(), Rejection> {
        let subject = Subject::Pod(pod.uid.clone());
        if self.changes.changed_since(&subject, plan.position) { Err(Rejection::Changed(subject)) } else { Ok(()) }
    }
}

/// The most that a launch may add to the pool's usage: the maximum of each resource over all accepted offerings, the
/// price included, and one instance of each capacity reservation.
pub(crate) fn max_usage(launch: &Launch, catalog: &Catalog) -> Result<Resources, Rejection> {
    let mut maximum = Resources::new();
    for choice in launch.offerings.iter() {
        let entry = catalog.get(&choice.instance_type);
        let entry = entry.ok_or_else(|| Rejection::UnknownInstanceType(choice.instance_type.clone()))?;
        let offering = entry.offerings.iter().find(|offering| offering.is(choice));
        let offering = offering.ok_or_else(|| Rejection::UnknownOffering(choice.to_string()))?;
        maximum.raise_to(&entry.limit_usage(offering));
    }
    if launch.offerings.is_empty() {
        return Err(Rejection::UnknownInstanceType(String::new()));
    }
    Ok(maximum)
}
