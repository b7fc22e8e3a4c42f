//! Messages of the actuator to its clients: outcomes of actions, in-flight claims and catalogs.

use crate::catalog::Catalog;
use crate::identity::{ActionId, CatalogId, NodePoolName, PodUid};
use crate::plan::{Plan, PodRef};
use crate::resources::Resources;
use crate::snapshot::{LedgerPosition, ReservationCount, UnavailableOffering};
use crate::taints::Taint;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The watcher that holds the lease and may send plans.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Driver {
    /// Holder identity in the watcher's lease; never empty.
    pub identity: String,
    /// Transitions of the lease.
    pub transitions: u64,
}

/// A plan to execute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// The sender.
    pub driver: Driver,
    /// The plan.
    pub plan: Plan,
    /// Id of the cycle in logs; never empty.
    pub cycle_id: String,
    /// Virtual pods in the plan's launches. They get no permanent reservations.
    pub virtual_pods: BTreeSet<PodUid>,
    /// Status of all CapacityBuffers; empty means unchanged.
    pub buffers: Vec<BufferReport>,
}

/// Status of a CapacityBuffer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct BufferReport {
    /// Namespace of the buffer.
    pub namespace: String,
    /// Name of the buffer.
    pub name: String,
    /// UID of the buffer.
    pub uid: String,
    /// Provisioning strategy.
    pub strategy: String,
    /// PodTemplate of the buffer, if it refers to one.
    pub pod_template: Option<String>,
    /// `metadata.generation` of the PodTemplate.
    pub pod_template_generation: Option<i64>,
    /// Number of pods to reserve capacity for.
    pub replicas: u32,
    /// Whether the buffer could be resolved.
    pub ready: BufferReady,
    /// Reason why the buffer is not resolved, or why there are fewer pods than requested; may be empty.
    pub message: String,
    /// Whether the capacity exists; `None` if it has not been evaluated.
    pub provisioning: Option<BufferProvisioning>,
    /// Human-readable number of pods that fit; may be empty.
    pub room: String,
}

/// Whether a CapacityBuffer could be resolved. Uses Karpenter's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum BufferReady {
    /// The buffer is resolved.
    #[default]
    Resolved,
    /// The PodTemplate does not exist.
    PodTemplateNotFound,
    /// The workload does not exist.
    ScalableRefNotFound,
    /// The spec is incomplete, or the referenced object cannot be used.
    ResolutionFailed,
}

/// Whether the capacity of a CapacityBuffer exists. Uses Karpenter's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BufferProvisioning {
    /// Nodes in service have the capacity.
    FitsExistingCapacity,
    /// Nodes are being launched for the buffer, or none is available.
    RequiresNewCapacity,
    /// The buffer is not resolved.
    NotReadyForProvisioning,
    /// The buffer requests no pods.
    BufferEmpty,
}

impl BufferReady {
    /// Name in the API.
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
    /// Name in the API.
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

/// Progress of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OutcomeStatus {
    /// The action was admitted and is in the ledger.
    Accepted,
    /// The action was not admitted and had no effect.
    Rejected,
    /// The instance was launched.
    Launched,
    /// The action was admitted but failed; it is no longer in the ledger.
    Failed,
    /// The node is terminating or gone.
    Removed,
}

impl OutcomeStatus {
    /// Whether no further outcome follows for the action.
    #[must_use]
    pub fn is_final(self) -> bool {
        self != Self::Accepted
    }
}

/// Reason why an action was rejected or failed. The names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OutcomeReason {
    /// The ledger position of the plan is too old.
    StaleSnapshot,
    /// A pod of the action is gone, placed or reserved elsewhere.
    PodChanged,
    /// The node is gone or differs from the plan.
    NodeChanged,
    /// The pool is gone, not ready or differs from the plan.
    PoolChanged,
    /// The action would exceed the pool's limit.
    LimitReached,
    /// The pool's disruption budget is used up.
    BudgetExhausted,
    /// A PodDisruptionBudget or do-not-disrupt blocks the action.
    Blocked,
    /// An action that this action depends on was rejected or failed.
    Dependency,
    /// None of the offerings has capacity.
    NoCapacity,
    /// The cloud rejected the request for another reason.
    CloudRefused,
    /// The Kubernetes API rejected the request.
    ClusterRefused,
    /// The action is malformed.
    Invalid,
}

/// Outcome of an action. An action may have several outcomes, which arrive in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Outcome {
    /// The action.
    pub action_id: ActionId,
    /// Current progress.
    pub status: OutcomeStatus,
    /// Reason of a rejection or failure.
    pub reason: Option<OutcomeReason>,
    /// Text for people; may be empty.
    pub message: String,
    /// The created or removed NodeClaim.
    pub node_claim: Option<String>,
    /// Ledger position that includes the change.
    pub ledger: LedgerPosition,
}

/// Progress of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum ClaimState {
    /// The claim is admitted; the instance may not exist yet.
    #[default]
    Launching,
    /// The instance exists; there is no Node yet.
    Launched,
    /// The Node exists but is not in service.
    Registered,
    /// The claim is terminating.
    Terminating,
}

/// A claim that is launching or terminating.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct InFlightClaim {
    /// Key: the NodeClaim's name.
    pub name: String,
    /// UID; empty until the API server has assigned one.
    pub uid: String,
    /// NodePool.
    pub node_pool: NodePoolName,
    /// The action that created the claim.
    pub action_id: Option<ActionId>,
    /// Pods that are reserved on the claim.
    pub pods: Vec<PodRef>,
    /// Usage of the pool's limits, including `nodes: 1`.
    pub limit_usage: Resources,
    /// Labels that the node is certain to get.
    pub labels: BTreeMap<String, String>,
    /// Taints that the node will keep.
    pub taints: Vec<Taint>,
    /// Lower bound of the node's allocatable resources.
    pub allocatable: Resources,
    /// Current progress.
    pub state: ClaimState,
    /// Launch time of the instance; `None` if it is not known to be launched.
    pub launched: Option<Timestamp>,
}

/// A change of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LedgerUpdate {
    /// Ledger position that includes the change.
    pub position: LedgerPosition,
    /// New and changed claims.
    pub upserted: Vec<InFlightClaim>,
    /// Names of claims that are no longer in flight.
    pub removed: Vec<String>,
    /// All offerings without capacity; `None` means unchanged.
    pub unavailable_offerings: Option<Vec<UnavailableOffering>>,
    /// Free instances of all capacity reservations; `None` means unchanged.
    pub reservations: Option<Vec<ReservationCount>>,
    /// Marks the end of the full ledger. Claims that were not sent again are gone.
    pub complete: bool,
}

/// A change of a node class's catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CatalogUpdate {
    /// Name of the node class; empty if the update only has unavailable offerings or `complete`.
    pub node_class: String,
    /// `metadata.generation` of the node class that the catalog was computed for.
    pub generation: i64,
    /// Whether the node class is gone; `catalog_id` and `problem` are not set then.
    pub removed: bool,
    /// Id of the catalog; `None` if there is none, for the reason in `problem`. It is the sender's: that of another
    /// version may cover other fields, so that it differs from the id of `catalog`.
    pub catalog_id: Option<CatalogId>,
    /// Content of the catalog; `None` if the receiver has it already.
    pub catalog: Option<Catalog>,
    /// Reason why the node class has no catalog.
    pub problem: Option<String>,
    /// All offerings without capacity; `None` means unchanged.
    pub unavailable_offerings: Option<Vec<UnavailableOffering>>,
    /// Marks the end of the full list. Only changes follow.
    pub complete: bool,
    /// All zones that the cluster is shifted away from; `None` means unchanged.
    pub shifted_zones: Option<BTreeSet<String>>,
}
