//! The snapshot: everything a scheduler receives about a cluster. Besides cluster objects it contains in-flight
//! launches, reserved pods, offerings without capacity and the time, since the scheduler keeps no state.

mod buffer;
mod capacity_quotas;
mod edits;
mod index;
mod launch_labels;
mod lookup;
pub mod merge;
mod on_demand;
mod pods;
mod reservations;
mod shape;

pub use buffer::BufferPod;
pub use capacity_quotas::{CapacityQuota, quota_of_resource, quota_resource, quota_usage, quota_usage_of_launch};
pub use edits::{Edits, SnapshotEdits};
pub use index::SnapshotIndex;
pub use launch_labels::LaunchLabels;
pub use on_demand::{OnDemandMix, OnDemandRatio};
pub use pods::{PodList, SharedPod};
pub use reservations::{ReservationCount, free_reservations};
pub use shape::{HostPort, LabelSelector, PodAffinityTerm, PodShape, PreferredTerm, TopologySpread, VolumeTopology};

use crate::catalog::CapacityType;
use crate::costs::NodeCosts;
use crate::identity::{CatalogId, NodeName, NodePoolName, PodUid, ShapeId};
use crate::overlay::NodeOverlay;
use crate::requirements::NodeSelectorRequirement;
use crate::resources::Resources;
use crate::taints::Taint;
use crate::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Position in the actuator's ledger. Positions of a later leader's epoch are greater than all positions of earlier
/// epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LedgerPosition {
    /// Epoch of the leader: transitions of its lease.
    pub epoch: u64,
    /// Number of changes in that epoch.
    pub sequence: u64,
}

/// A cluster at one moment. Lists are sorted by their key (uid, name, id), which is unique within the list; see
/// [`Snapshot::sort`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Sequence number of the watcher's snapshots, which plans refer to.
    pub sequence: u64,
    /// Ledger position that the snapshot includes.
    pub ledger: LedgerPosition,
    /// Time of the snapshot. Only the watcher sets it, so that all schedulers use the same time.
    pub now: Timestamp,
    /// Shapes that `pods` and `daemon_sets` refer to.
    pub shapes: Vec<PodShape>,
    /// Pods that are pending, reserved or bound.
    pub pods: PodList,
    /// Nodes, including claims without Node.
    pub nodes: Vec<Node>,
    /// NodePools.
    pub node_pools: Vec<NodePool>,
    /// DaemonSets, each represented by one pod shape.
    pub daemon_sets: Vec<DaemonSet>,
    /// PodDisruptionBudgets.
    pub pod_disruption_budgets: Vec<PodDisruptionBudget>,
    /// Offerings without capacity.
    pub unavailable_offerings: Vec<UnavailableOffering>,
    /// Free instances of capacity reservations. In-flight nodes that are not launched yet are among them: each counts
    /// in its `limit_usage`.
    pub reservations: Vec<ReservationCount>,
    /// CapacityQuotas.
    #[serde(default)]
    pub capacity_quotas: Vec<CapacityQuota>,
    /// Pods that are not planned, with the reason; copied to the plan.
    pub ignored: Vec<IgnoredPod>,
}

/// Scheduling state of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum PodState {
    /// kube-scheduler marked the pod as unschedulable; the plan must place it.
    #[default]
    Pending,
    /// The pod waits for a chosen or in-flight node. It uses resources there and is not placed again.
    Reserved(NodeName),
    /// The pod is bound to the node.
    Bound(NodeName),
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Pod {
    /// Key.
    pub uid: PodUid,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Shape.
    pub shape: ShapeId,
    /// Scheduling state.
    pub state: PodState,
    /// Creation time.
    pub created: Timestamp,
    /// Whether the pod belongs to its node, like pods of DaemonSets and static pods.
    pub stays_with_node: bool,
    /// Whether the object is being deleted.
    pub terminating: bool,
    /// Whether the owner recreates the pod under the same name, like a StatefulSet.
    pub returns: bool,
    /// Voluntary disruption is forbidden until this time; `Timestamp(i64::MAX)` means forever.
    pub do_not_disrupt_until: Option<Timestamp>,
    /// Eviction cost in thousandths: 1000 for an ordinary pod, from -10000 to 10000.
    pub eviction_cost_milli: i64,
    /// Names (`namespace/name`) of the PodDisruptionBudgets that cover the pod. Empty if draining its node does not
    /// evict the pod: a static pod, or a pod that tolerates the taint of disrupted nodes.
    pub pod_disruption_budgets: Vec<String>,
    /// Set only for a virtual pod.
    pub buffer: Option<BufferPod>,
}

impl Pod {
    /// `namespace/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether the pod, or its replacement, needs another node when its node is removed. For a pending pod: whether the
    /// plan must place it.
    #[must_use]
    pub fn moves(&self) -> bool {
        let ends = self.terminating && !(self.returns && self.state != PodState::Pending);
        !self.stays_with_node && !ends
    }
}

/// Lifecycle state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum NodeState {
    /// A claim without Node, written or launched.
    #[default]
    InFlight,
    /// A Node that does not have everything its claim requires yet.
    Registered,
    /// A Node in service. Nodes without a NodePool and without a NodeClaim of ours are always in this state.
    Initialized,
}

/// A node, or a claim without Node. For such a claim, the requests are the lower bound of its resources.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Node {
    /// Key.
    pub name: NodeName,
    /// Name of the NodeClaim, if there is one.
    pub node_claim: Option<String>,
    /// NodePool; `None` for nodes outside of pools, which are never removed.
    pub node_pool: Option<NodePoolName>,
    /// Lifecycle state.
    pub state: NodeState,
    /// Labels; for a claim, the labels that its node is certain to get.
    pub labels: BTreeMap<String, String>,
    /// Relevant taints. Startup, ephemeral and undeclared taints are omitted while the node starts.
    pub taints: Vec<Taint>,
    /// Allocatable resources.
    pub allocatable: Resources,
    /// Usage of the pool's limits, including `nodes: 1`. For a claim without instance, the maximum of its accepted
    /// instance types.
    pub limit_usage: Resources,
    /// Whether the Ready condition is true.
    pub ready: bool,
    /// `spec.unschedulable`, or true if the free resources are unknown because a pod on the node cannot be parsed.
    pub cordoned: bool,
    /// Whether the node is being removed, for any reason; its pods must move.
    pub deleting: bool,
    /// True if an annotation protects the node, its zone is shifted, or a pod on it cannot be parsed.
    pub do_not_disrupt: bool,
    /// Creation time of the claim, or of the Node without claim.
    pub created: Timestamp,
    /// Expiry time of the claim.
    pub expires: Option<Timestamp>,
    /// Start of `consolidateAfter`: the last pod event, initialization or creation. `None` if it is not known: the node
    /// then does not wait for `consolidateAfter`.
    pub idle_since: Option<Timestamp>,
    /// Drift reason, if the node has drifted.
    pub drifted: Option<String>,
    /// terminationGracePeriod of the claim.
    pub termination_grace_period: Option<Millis>,
}

/// A NodePool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NodePool {
    /// Key.
    pub name: NodePoolName,
    /// Weight; pools of higher weight are tried first.
    pub weight: i32,
    /// Labels of the template.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Taints that are removed while a node starts.
    pub startup_taints: Vec<Taint>,
    /// Requirements of the template.
    pub requirements: Vec<NodeSelectorRequirement>,
    /// Limits; the resource `nodes` is the number of nodes.
    pub limits: Resources,
    /// Fixed number of nodes of a static pool.
    pub replicas: Option<u64>,
    /// Name of the node class.
    pub node_class: String,
    /// Catalog of the pool; `None` if the pool is unusable, for the reason in `not_ready`.
    pub catalog: Option<CatalogId>,
    /// Reason why the pool cannot launch nodes, as code and message.
    pub not_ready: Option<PoolProblem>,
    /// Whether the object is being deleted.
    pub deleting: bool,
    /// Rules for removing nodes.
    pub disruption: Disruption,
    /// On-demand ratio of the pool's pods, except for workloads with their own ratio.
    pub on_demand: Option<OnDemandMix>,
    /// All NodeOverlays, including those that do not apply to this pool, sorted.
    pub overlays: Vec<NodeOverlay>,
    /// Additional costs of the pool's nodes.
    pub costs: NodeCosts,
}

/// Reason why a pool cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PoolProblem {
    /// Code: `NodeClassNotFound`, `NodeClassNotReady`, `NodePoolInvalid` or `CatalogMissing`.
    pub code: String,
    /// Human-readable message.
    pub message: String,
}

/// Which nodes may be removed to save cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum ConsolidationPolicy {
    /// Empty nodes.
    WhenEmpty,
    /// Empty nodes, and nodes whose pods fit elsewhere or on a cheaper node.
    #[default]
    WhenEmptyOrUnderutilized,
    /// Like `WhenEmptyOrUnderutilized`, if the saving justifies the disruption.
    Balanced,
}

/// Rules for removing nodes of a pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Disruption {
    /// Consolidation policy.
    pub policy: ConsolidationPolicy,
    /// How long a node must have been without pod events, at least
    /// [`LEAST_CONSOLIDATE_AFTER`](crate::disruption::LEAST_CONSOLIDATE_AFTER); `None` means never.
    pub consolidate_after: Option<Millis>,
    /// Maximum nodes that may be removed at once, by reason, evaluated at the snapshot's time. A missing reason has no
    /// limit.
    pub allowed: BTreeMap<DisruptionReason, u32>,
    /// Maximum nodes that may be removed at once for drift, if a rollout limits them. Unlike `allowed`, it counts only
    /// removals for drift.
    pub rollout_limit: Option<u32>,
    /// When a budget's window next opens or closes.
    pub next_budget_change: Option<Timestamp>,
}

/// Reason for removing a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum DisruptionReason {
    /// The node has only pods that belong to it.
    #[default]
    Empty,
    /// The node's pods fit elsewhere at lower cost.
    Underutilized,
    /// The node no longer matches its pool or node class.
    Drifted,
    /// The node is older than expireAfter.
    Expired,
    /// The cloud is about to reclaim the instance.
    Interrupted,
}

impl DisruptionReason {
    /// All reasons.
    pub const ALL: [Self; 5] = [Self::Empty, Self::Underutilized, Self::Drifted, Self::Expired, Self::Interrupted];

    /// Whether the removal ignores budgets and pod protection.
    #[must_use]
    pub fn is_forced(self) -> bool {
        matches!(self, Self::Expired | Self::Interrupted)
    }

    /// Karpenter's name of the reason.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Underutilized => "Underutilized",
            Self::Drifted => "Drifted",
            Self::Expired => "Expired",
            Self::Interrupted => "Interrupted",
        }
    }
}

/// A DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DaemonSet {
    /// Key: UID, or `namespace/name` from files.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Shape of its pods, including the tolerations that the controller adds.
    pub shape: ShapeId,
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodDisruptionBudget {
    /// Key: `namespace/name`.
    pub name: String,
    /// Evictions allowed now; zero if the status is older than the spec.
    pub disruptions_allowed: i32,
    /// Whether the budget never allows evictions: maxUnavailable 0 or minAvailable 100%.
    pub fully_blocking: bool,
}

/// An offering that was rejected for lack of capacity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnavailableOffering {
    /// Instance type; `None` means every type.
    pub instance_type: Option<String>,
    /// Zone; `None` means every zone.
    pub zone: Option<String>,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Remaining time until the offering may be tried again.
    pub remaining: Millis,
}

/// A pod that is not planned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IgnoredPod {
    /// Key.
    pub uid: PodUid,
    /// `namespace/name`.
    pub pod: String,
    /// The reason.
    pub reason: String,
}

impl Snapshot {
    /// Returns this snapshot if all lists are in canonical order, otherwise a sorted copy.
    #[must_use]
    pub fn sorted(&self) -> Cow<'_, Self> {
        if self.is_sorted() {
            return Cow::Borrowed(self);
        }
        let mut sorted = self.clone();
        sorted.sort();
        Cow::Owned(sorted)
    }

    fn is_sorted(&self) -> bool {
        self.pods.is_sorted_by(|a, b| a.uid <= b.uid)
            && self.shapes.is_sorted_by(|a, b| a.id <= b.id)
            && self.nodes.is_sorted_by(|a, b| a.name <= b.name)
            && self.node_pools.is_sorted_by(|a, b| a.name <= b.name)
            && self.daemon_sets.is_sorted_by(|a, b| a.uid <= b.uid)
            && self.pod_disruption_budgets.is_sorted_by(|a, b| a.name <= b.name)
            && self.unavailable_offerings.is_sorted()
            && self.reservations.is_sorted()
            && self.capacity_quotas.is_sorted_by(|a, b| a.name <= b.name)
            && self.ignored.is_sorted()
    }

    /// Sorts every list into its canonical order.
    pub fn sort(&mut self) {
        self.shapes.sort_by(|a, b| a.id.cmp(&b.id));
        self.pods.sort_by(|a, b| a.uid.cmp(&b.uid));
        self.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        self.node_pools.sort_by(|a, b| a.name.cmp(&b.name));
        self.daemon_sets.sort_by(|a, b| a.uid.cmp(&b.uid));
        self.pod_disruption_budgets.sort_by(|a, b| a.name.cmp(&b.name));
        self.unavailable_offerings.sort();
        self.reservations.sort();
        self.capacity_quotas.sort_by(|a, b| a.name.cmp(&b.name));
        self.ignored.sort();
    }
}
