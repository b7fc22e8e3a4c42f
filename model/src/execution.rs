//! What those who carry a plan out tell those who ask for it: outcomes of actions, what is in flight, what can be bought.

use crate::catalog::Catalog;
use crate::identity::{ActionId, CatalogId, NodePoolName, PodUid};
use crate::plan::{Plan, PodRef};
use crate::resources::Resources;
use crate::snapshot::{LedgerPosition, UnavailableOffering};
use crate::taints::Taint;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Who drives: the watcher that holds the lease (safety rule 17).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Driver {
    /// Holder identity in the watcher's lease. Never empty.
    pub identity: String,
    /// Transitions of that lease.
    pub transitions: u64,
}

/// A plan to carry out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// Who asks for it.
    pub driver: Driver,
    /// The plan.
    pub plan: Plan,
    /// Names this round in logs. Never empty.
    pub cycle_id: String,
    /// Which pods of the plan's launches are virtual: nothing is reserved for them for good.
    pub virtual_pods: BTreeSet<PodUid>,
    /// What all CapacityBuffers come to; empty: as before.
    pub buffers: Vec<BufferReport>,
}

/// What a CapacityBuffer comes to, for its status.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BufferReport {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its strategy.
    pub strategy: String,
    /// The PodTemplate that the room is for, if it is for one.
    pub pod_template: Option<String>,
    /// `metadata.generation` of that.
    pub pod_template_generation: Option<i64>,
    /// How many pods there is to be room for.
    pub replicas: u32,
    /// Whether that is known.
    pub ready: BufferReady,
    /// Why not, or why they are fewer than were asked for; may be empty.
    pub message: String,
    /// Whether the room is there; `None`: nobody has looked.
    pub provisioning: Option<BufferProvisioning>,
    /// How many pods have room, for people; may be empty.
    pub room: String,
}

/// Whether it is known what room a CapacityBuffer keeps. Karpenter's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BufferReady {
    /// It is.
    Resolved,
    /// There is no such PodTemplate.
    PodTemplateNotFound,
    /// There is no such workload.
    ScalableRefNotFound,
    /// It says too little, or what it names cannot be used.
    ResolutionFailed,
}

/// Whether the room of a CapacityBuffer is there. Karpenter's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BufferProvisioning {
    /// Nodes in service have it.
    FitsExistingCapacity,
    /// Nodes are on their way for it, or none can be had.
    RequiresNewCapacity,
    /// It is not known what room to keep.
    NotReadyForProvisioning,
    /// No room is asked for.
    BufferEmpty,
}

impl BufferReady {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resolved => "Resolved",
            Self::PodTemplateNotFound => "PodTemplateNotFound",
            Self::ScalableRefNotFound => "ScalableRefNotFound",
            Self::ResolutionFailed => "ResolutionFailed",
        }
    }
}

impl BufferProvisioning {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FitsExistingCapacity => "FitsExistingCapacity",
            Self::RequiresNewCapacity => "RequiresNewCapacity",
            Self::NotReadyForProvisioning => "NotReadyForProvisioning",
            Self::BufferEmpty => "BufferEmpty",
        }
    }
}

/// How far an action has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OutcomeStatus {
    /// Admitted: the ledger counts it.
    Accepted,
    /// Not admitted; nothing was done.
    Rejected,
    /// The instance is there.
    Launched,
    /// Admitted, but it could not be done; the ledger no longer counts it.
    Failed,
    /// The node is on its way out, or gone.
    Removed,
}

impl OutcomeStatus {
    /// Nothing more will come for the action.
    #[must_use]
    pub fn is_final(self) -> bool {
        self != Self::Accepted
    }
}

/// Why an action was rejected or failed. Stable words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OutcomeReason {
    /// The plan rests on a ledger position that is too old.
    StaleSnapshot,
    /// A pod of it is gone, has a place or waits for another node.
    PodChanged,
    /// The node is gone or no longer what the plan took it for.
    NodeChanged,
    /// The pool is gone, not ready or no longer what the plan took it for.
    PoolChanged,
    /// The pool's limit would be passed.
    LimitReached,
    /// The pool's disruption budget is used up.
    BudgetExhausted,
    /// A PodDisruptionBudget or do-not-disrupt is in the way.
    Blocked,
    /// An action that this one needs was rejected or failed.
    Dependency,
    /// There is no capacity for any of the offerings.
    NoCapacity,
    /// The cloud refused for another reason.
    CloudRefused,
    /// The Kubernetes API refused.
    ClusterRefused,
    /// The action is malformed.
    Invalid,
}

/// What became of an action. Several may come for one action, in the order in which it went on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Outcome {
    /// The action.
    pub action_id: ActionId,
    /// How far it has come.
    pub status: OutcomeStatus,
    /// What is wrong, if anything is.
    pub reason: Option<OutcomeReason>,
    /// Text for people; may be empty.
    pub message: String,
    /// The NodeClaim made or removed.
    pub node_claim: Option<String>,
    /// The ledger after this.
    pub ledger: LedgerPosition,
}

/// How far a claim has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ClaimState {
    /// Admitted; there may be an instance or not.
    Launching,
    /// The instance is known; no Node yet.
    Launched,
    /// The Node is there, but not in service.
    Registered,
    /// On its way out.
    Terminating,
}

/// A claim that is on its way in or out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InFlightClaim {
    /// Key: the NodeClaim's name.
    pub name: String,
    /// Its UID; empty until the API server has given one.
    pub uid: String,
    /// Its pool.
    pub node_pool: NodePoolName,
    /// The action that made it.
    pub action_id: Option<ActionId>,
    /// Pods that it is reserved for.
    pub pods: Vec<PodRef>,
    /// What it counts against its pool's limits, `nodes: 1` included.
    pub limit_usage: Resources,
    /// Labels that its node is sure to get.
    pub labels: BTreeMap<String, String>,
    /// Taints that its node will keep.
    pub taints: Vec<Taint>,
    /// What pods may use of its node, at the least.
    pub allocatable: Resources,
    /// How far it has come.
    pub state: ClaimState,
    /// When its instance was launched; `None`: not yet, as far as is known.
    pub launched: Option<Timestamp>,
}

/// A change of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LedgerUpdate {
    /// The ledger after this.
    pub position: LedgerPosition,
    /// Claims that are new or different.
    pub upserted: Vec<InFlightClaim>,
    /// Names of claims that are no longer in flight.
    pub removed: Vec<String>,
    /// Every offering known to have no capacity; `None`: as before.
    pub unavailable_offerings: Option<Vec<UnavailableOffering>>,
    /// The whole ledger has been sent: what was known before and has not come again is gone.
    pub complete: bool,
}

/// What one node class can buy has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CatalogUpdate {
    /// The node class by name; empty where there are only unavailable offerings or `complete`.
    pub node_class: String,
    /// `metadata.generation` of the node class that this was worked out from.
    pub generation: i64,
    /// The node class is gone; catalog and problem are not set.
    pub removed: bool,
    /// Its catalog; `None` if it has none, for the reason in `problem`.
    pub catalog_id: Option<CatalogId>,
    /// The catalog's content; `None` if the receiver has it already.
    pub catalog: Option<Catalog>,
    /// Why it cannot be used.
    pub problem: Option<String>,
    /// Every offering known to have no capacity; `None`: as before.
    pub unavailable_offerings: Option<Vec<UnavailableOffering>>,
    /// Every node class has been sent: from here on there are changes only.
    pub complete: bool,
}
