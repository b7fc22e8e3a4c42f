//! Records of claims and removals, and how they are restored from claims (safety rules 2, 7 and 12).

use super::quotas::of_quotas;
use crate::durable;
use plimsoll_model::identity::{ActionId, NodeName, NodePoolName, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::{USD_PER_HOUR_RESOURCE, annotation};
use plimsoll_model::plan::Launch;
use plimsoll_model::quantity::{format_amount, parse_resources};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_model::time::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The ledger's input from a NodeClaim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimSeed {
    /// Name.
    pub name: String,
    /// Pool.
    pub pool: NodePoolName,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// The claim's Node.
    pub node: Option<NodeName>,
    /// Labels of the Node, or those that it is certain to get.
    pub labels: BTreeMap<String, String>,
    /// Capacity from the status, including `nodes: 1`, once the claim is launched.
    pub capacity: Option<Resources>,
    /// The claim may have an instance, and its capacity is unreadable.
    pub unknown_usage: bool,
    /// The claim is initialized.
    pub initialized: bool,
    /// The claim was not initialized in time, and still is not.
    pub overdue: bool,
    /// The claim is being deleted.
    pub deleting: bool,
    /// The claim's instance is being terminated.
    pub terminating: bool,
    /// The node has drifted, and no other reason to delete it is recorded beside a removal.
    pub drifted: bool,
}

/// An unreadable annotation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("NodeClaim {claim}: annotation {annotation}: {message}")]
pub struct LedgerProblem {
    /// The claim.
    pub claim: String,
    /// The claim's pool.
    pub pool: NodePoolName,
    /// The annotation.
    pub annotation: &'static str,
    /// What is wrong with the annotation.
    pub message: String,
}

/// A claim in the ledger. A claim in flight and its Node share one record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ClaimRecord {
    pub(super) pool: NodePoolName,
    /// The action that created the claim.
    pub(crate) action: Option<ActionId>,
    pub(crate) node: Option<NodeName>,
    /// Resources that count against limits: the most the claim may become, or what it is.
    pub(super) counted: Resources,
    /// Labels of the Node, or those that it is certain to get.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) pods: BTreeSet<PodUid>,
    /// Virtual pods of the launch's plan.
    pub(super) virtual_pods: Arc<BTreeSet<PodUid>>,
    /// The launch accepts only offerings on probation.
    pub(super) probe: bool,
    /// The instance is known.
    pub(crate) launched: bool,
    pub(crate) initialized: bool,
    /// The node was not initialized in time.
    pub(super) overdue: bool,
    pub(crate) deleting: bool,
    /// The claim's instance is being terminated.
    pub(super) terminating: bool,
    /// See [`ClaimSeed::drifted`].
    pub(super) drifted: bool,
    /// When the reservations of pods expire; set when the node is initialized.
    pub(super) pods_until: Option<Timestamp>,
    /// The claim appeared without an admission after this term began to admit, or another claim has its pods. Its
    /// launch is not sent again.
    pub(super) late: bool,
}

impl ClaimRecord {
    /// The record of an admitted launch. `virtual_pods` has the virtual pods of the plan.
    pub(super) fn admitted(launch: &Launch, counted: Resources, virtual_pods: &Arc<BTreeSet<PodUid>>) -> Self {
        Self {
            pods: launch.pods.iter().map(|pod| pod.uid.clone()).collect(),
            labels: launch.labels.clone(),
            virtual_pods: Arc::clone(virtual_pods),
            ..Self::without_plan(&launch.node_pool, &launch.action_id, counted)
        }
    }

    /// The record of a launch that no plan proposed.
    pub(super) fn without_plan(pool: &NodePoolName, action: &ActionId, counted: Resources) -> Self {
        Self { pool: pool.clone(), action: Some(action.clone()), counted, ..Self::default() }
    }

    /// The pods that are currently reserved for the claim.
    pub(crate) fn pods(&self, now: Timestamp) -> impl Iterator<Item = &PodUid> {
        let over = self.pods_until.is_some_and(|until| until <= now);
        self.pods.iter().filter(move |_| !over)
    }

    /// Whether a reserved pod is a virtual one, of a CapacityBuffer. Unknown for claims of a former leader.
    pub(crate) fn is_virtual(&self, pod: &PodUid) -> bool {
        self.virtual_pods.contains(pod)
    }

    /// The price at which the claim counts, if it is recorded.
    pub(super) fn price(&self) -> Option<MicroUsdPerHour> {
        let counted = &self.counted;
        counted.contains(USD_PER_HOUR_RESOURCE).then(|| MicroUsdPerHour(counted.get(USD_PER_HOUR_RESOURCE)))
    }
}

/// A removal in progress. Stored as [`annotation::REMOVAL`] on the candidate claim, so that a new leader finishes or
/// undoes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// The action of the plan.
    pub action: ActionId,
    /// Node.
    pub node: NodeName,
    /// Disruption reason.
    pub reason: DisruptionReason,
    /// Launches whose nodes must be initialized first.
    pub replacements: Vec<ActionId>,
    /// Admitted but unfinished evictions by PodDisruptionBudget (`namespace/name`).
    pub evictions: BTreeMap<String, u32>,
    /// Resources reserved on other nodes.
    pub rooms: BTreeMap<NodeName, Resources>,
    /// Pods to reschedule. Pods that arrive later undo the removal (rule 10).
    #[serde(default)]
    pub pods: BTreeSet<PodUid>,
    /// When the removal was admitted. A removal that takes too long is undone.
    #[serde(default)]
    pub admitted: Timestamp,
}

fn read<T: DeserializeOwned>(seed: &ClaimSeed, annotation: &'static str) -> Result<Option<T>, LedgerProblem> {
    let Some(text) = seed.annotations.get(annotation) else { return Ok(None) };
    serde_json::from_str(text).map(Some).map_err(|error| problem(seed, annotation, error.to_string()))
}

fn problem(seed: &ClaimSeed, annotation: &'static str, message: String) -> LedgerProblem {
    LedgerProblem { claim: seed.name.clone(), pool: seed.pool.clone(), annotation, message }
}

/// Reserved amounts by resource, as Kubernetes quantities.
fn reserved(seed: &ClaimSeed) -> Result<Resources, LedgerProblem> {
    let amounts: BTreeMap<String, String> = read(seed, annotation::RESERVED)?.unwrap_or_default();
    let unreadable = |resource: &str, why: &str| problem(seed, annotation::RESERVED, format!("{resource}: {why}"));
    let amounts = parse_resources(&amounts).map_err(|(resource, error)| unreadable(&resource, &error.to_string()))?;
    // The wire has no negative amounts: one would fail all of a message, not only this claim.
    if let Some((resource, _)) = amounts.iter().find(|(_, amount)| *amount < 0) {
        return Err(unreadable(resource, "must not be negative"));
    }
    Ok(amounts)
}

/// What a launched claim counts: its capacity, at the price that was `reserved` for it if no other is recorded.
pub(super) fn with_price(mut capacity: Resources, reserved: &Resources) -> Resources {
    if !capacity.contains(USD_PER_HOUR_RESOURCE) && reserved.contains(USD_PER_HOUR_RESOURCE) {
        capacity.set(USD_PER_HOUR_RESOURCE, reserved.get(USD_PER_HOUR_RESOURCE));
    }
    capacity
}

/// What a claim counts that has just been launched: as [`with_price`], and the parts of quotas that were reserved,
/// until its labels are recorded.
pub(super) fn launched_usage(capacity: Resources, reserved: &Resources) -> Resources {
    let mut usage = with_price(capacity, reserved);
    of_quotas(reserved).for_each(|(name, amount)| usage.set(name, amount));
    usage
}

/// The value of [`annotation::RESERVED`].
#[must_use]
pub fn reserved_text(amounts: &Resources) -> String {
    let amounts: BTreeMap<&str, String> =
        amounts.iter().map(|(name, amount)| (name, format_amount(name, amount))).collect();
    serde_json::to_string(&amounts).unwrap_or_default()
}

pub(super) fn claim_record(seed: &ClaimSeed) -> Result<ClaimRecord, LedgerProblem> {
    let counted = match &seed.capacity {
        Some(capacity) => with_price(capacity.clone(), &reserved(seed).unwrap_or_default()),
        None if seed.unknown_usage && !seed.annotations.contains_key(annotation::RESERVED) => {
            let message = "missing, and the NodeClaim's capacity cannot be read".to_owned();
            return Err(problem(seed, annotation::RESERVED, message));
        }
        None => reserved(seed)?,
    };
    // An initialized node has its pods, or they are marked unschedulable again. One that is overdue or being deleted is
    // not waited for. Nothing is reserved any more.
    let is_over = seed.initialized || seed.overdue || seed.deleting;
    let pods = if is_over { BTreeSet::new() } else { read(seed, annotation::PODS)?.unwrap_or_default() };
    Ok(ClaimRecord {
        pool: seed.pool.clone(),
        action: seed.annotations.get(annotation::ACTION_ID).map(|id| ActionId::from(id.as_str())),
        node: seed.node.clone(),
        counted,
        labels: seed.labels.clone(),
        pods,
        launched: seed.capacity.is_some(),
        initialized: seed.initialized,
        overdue: seed.overdue,
        deleting: seed.deleting,
        terminating: seed.terminating,
        drifted: seed.drifted,
        ..ClaimRecord::default()
    })
}

/// The pods that a claim with an instance was launched for, also if its node is in service. The pods of one that is
/// overdue or being deleted are launched for again.
pub(super) fn pods_of_launched(seed: &ClaimSeed) -> BTreeSet<PodUid> {
    let has_place = seed.capacity.is_some() && !seed.overdue && !seed.deleting;
    let listed = has_place.then(|| read(seed, annotation::PODS).ok().flatten()).flatten();
    listed.unwrap_or_default()
}

pub(super) fn removal(seed: &ClaimSeed) -> Result<Option<Removal>, LedgerProblem> {
    let Some(text) = seed.annotations.get(annotation::REMOVAL) else { return Ok(None) };
    durable::read(text).map(Some).map_err(|error| problem(seed, annotation::REMOVAL, error.to_string()))
}
