//! The snapshot: all that a scheduler is told about a cluster. It carries what the cluster itself does not show as well
//! (launches in flight, reserved pods, offerings without capacity, the time), since the scheduler keeps nothing.

mod buffer;
mod index;
mod on_demand;
mod shape;

pub use buffer::BufferPod;
pub use index::{Edits, SnapshotIndex};
pub use on_demand::{OnDemandMix, OnDemandWish};
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

/// Up to which change of the actuator's ledger somebody knows (safety rule 18). Ordered: a later leader's epoch is newer than any sequence of an older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LedgerPosition {
    /// The leader's epoch: transitions of its lease.
    pub epoch: u64,
    /// Changes in that epoch.
    pub sequence: u64,
}

/// A cluster at one moment. Lists are sorted by their key (uid, name, id) and name each key once; [`Snapshot::sort`] does so.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Counts the watcher's snapshots; what a plan's actions refer to.
    pub sequence: u64,
    /// Up to which ledger change this is known.
    pub ledger: LedgerPosition,
    /// The time, stamped by the watcher alone (rule 23).
    pub now: Timestamp,
    /// Scheduling shapes that `pods` and `daemon_sets` refer to.
    pub shapes: Vec<PodShape>,
    /// Pods that are to be placed or run on a node.
    pub pods: Vec<Pod>,
    /// Nodes, and claims that have no Node yet.
    pub nodes: Vec<Node>,
    /// Pools.
    pub node_pools: Vec<NodePool>,
    /// DaemonSets, by one representative pod each.
    pub daemon_sets: Vec<DaemonSet>,
    /// Disruption budgets of pods.
    pub pod_disruption_budgets: Vec<PodDisruptionBudget>,
    /// Offerings known to have no capacity.
    pub unavailable_offerings: Vec<UnavailableOffering>,
    /// Pods that nobody is to place, and why; passed on to the plan.
    pub ignored: Vec<IgnoredPod>,
}

/// Where a pod is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PodState {
    /// kube-scheduler marked it Unschedulable; it is to be placed.
    Pending,
    /// It waits for a node that is on its way or was chosen for it: takes room there, is not placed again (rule 7).
    Reserved(NodeName),
    /// It runs on the node.
    Bound(NodeName),
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Pod {
    /// Key.
    pub uid: PodUid,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Shape.
    pub shape: ShapeId,
    /// Where it is.
    pub state: PodState,
    /// When it was made.
    pub created: Timestamp,
    /// Of a DaemonSet or a static pod: stays with its node.
    pub stays_with_node: bool,
    /// Being deleted.
    pub terminating: bool,
    /// Of a StatefulSet, which makes it anew under its name once it is gone.
    pub returns: bool,
    /// Voluntary disruption is not allowed until then; `Timestamp(i64::MAX)` means ever.
    pub do_not_disrupt_until: Option<Timestamp>,
    /// Cost of evicting it in thousandths: 1000 for an ordinary pod (spec: core section 7.2), -10000 to 10000.
    pub eviction_cost_milli: i64,
    /// Names (`namespace/name`) of the disruption budgets that cover it.
    pub pod_disruption_budgets: Vec<String>,
    /// Set for a virtual pod.
    pub buffer: Option<BufferPod>,
}

impl Pod {
    /// `namespace/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it, or the pod that follows it, needs another place when its node goes; a pending one, whether it is to be placed.
    #[must_use]
    pub fn moves(&self) -> bool {
        let ends = self.terminating && !(self.returns && self.state != PodState::Pending);
        !self.stays_with_node && !ends
    }
}

/// How far a node has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NodeState {
    /// A claim without a Node: written or launched.
    InFlight,
    /// A Node that is not ready for all its claim asked for.
    Registered,
    /// A Node in service. Nodes that no pool made are always so.
    Initialized,
}

/// A node, or a claim on its way to one. What a claim without Node will have is what it asked for at the least.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Node {
    /// Key.
    pub name: NodeName,
    /// The NodeClaim, if there is one.
    pub node_claim: Option<String>,
    /// The pool; `None` for nodes that no pool made: those are never removed.
    pub node_pool: Option<NodePoolName>,
    /// How far it has come.
    pub state: NodeState,
    /// Labels; for a claim those it is sure to get.
    pub labels: BTreeMap<String, String>,
    /// Taints that count: without start-up and ephemeral ones while the node comes up.
    pub taints: Vec<Taint>,
    /// What pods may use in all.
    pub allocatable: Resources,
    /// What it counts against its pool's limits, `nodes: 1` included; for a claim without instance the most that its accepted types have (rule 7).
    pub limit_usage: Resources,
    /// Kubelet says Ready.
    pub ready: bool,
    /// `spec.unschedulable`, or its room is not known: a pod on it cannot be read.
    pub cordoned: bool,
    /// Marked for deletion, by anybody: its pods must go elsewhere.
    pub deleting: bool,
    /// `karpenter.sh/do-not-disrupt` is on the node, or a pod on it cannot be read.
    pub do_not_disrupt: bool,
    /// When the claim (or the Node) was made.
    pub created: Timestamp,
    /// When its claim expires.
    pub expires: Option<Timestamp>,
    /// From when `consolidateAfter` counts: the last pod event, or initialisation. `None`: it has passed.
    pub idle_since: Option<Timestamp>,
    /// Reason of drift, if it has drifted.
    pub drifted: Option<String>,
    /// terminationGracePeriod of its claim.
    pub termination_grace_period: Option<Millis>,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodePool {
    /// Key.
    pub name: NodePoolName,
    /// Higher is tried first.
    pub weight: i32,
    /// Labels of the template.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Taints that go away while a node comes up.
    pub startup_taints: Vec<Taint>,
    /// Requirements of the template.
    pub requirements: Vec<NodeSelectorRequirement>,
    /// Limits; `nodes` counts nodes.
    pub limits: Resources,
    /// Fixed number of nodes, for a static pool.
    pub replicas: Option<u64>,
    /// The node class by name.
    pub node_class: String,
    /// What it can buy; `None` if the pool cannot be used now, for the reason in `not_ready`.
    pub catalog: Option<CatalogId>,
    /// Why nothing can be launched: code and message, `NodeClassNotFound: ...`.
    pub not_ready: Option<PoolProblem>,
    /// Being deleted.
    pub deleting: bool,
    /// How nodes of it may be removed.
    pub disruption: Disruption,
    /// How many of its pods run On-Demand at the least, but for those of workloads that say so themselves.
    pub on_demand: Option<OnDemandMix>,
    /// All NodeOverlays, whether or not they are about this pool, sorted.
    pub overlays: Vec<NodeOverlay>,
    /// What its nodes cost beside their price.
    pub costs: NodeCosts,
}

/// Why a pool cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PoolProblem {
    /// `NodeClassNotFound`, `NodeClassNotReady`, `NodePoolInvalid`, `CatalogMissing`.
    pub code: String,
    /// Text for people.
    pub message: String,
}

/// Which nodes may be removed for cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConsolidationPolicy {
    /// Empty ones.
    WhenEmpty,
    /// Empty ones, and those whose pods fit elsewhere or on something cheaper.
    WhenEmptyOrUnderutilized,
    /// As above, where the saving is worth the disturbance.
    Balanced,
}

/// How nodes of a pool may be removed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Disruption {
    /// Which.
    pub policy: ConsolidationPolicy,
    /// How long a node must have been left alone; `None` means never.
    pub consolidate_after: Option<Millis>,
    /// How many nodes may be on their way out at once, by reason, with budgets' windows already evaluated at the snapshot's time.
    /// A reason that is missing has no limit.
    pub allowed: BTreeMap<DisruptionReason, u32>,
    /// When a budget's window next opens or closes.
    pub next_budget_change: Option<Timestamp>,
}

/// Why a node is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DisruptionReason {
    /// No pods but those that stay with their node.
    Empty,
    /// Its pods fit elsewhere for less.
    Underutilized,
    /// It no longer is what its pool or node class asks for.
    Drifted,
    /// It is older than expireAfter.
    Expired,
    /// Its capacity is about to be taken back.
    Interrupted,
}

impl DisruptionReason {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Empty, Self::Underutilized, Self::Drifted, Self::Expired, Self::Interrupted];

    /// Whether the node goes whatever budgets and its pods say: its time is over.
    #[must_use]
    pub fn is_forced(self) -> bool {
        matches!(self, Self::Expired | Self::Interrupted)
    }

    /// Karpenter's word.
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
    /// Shape of its pods, with the tolerations that its controller adds.
    pub shape: ShapeId,
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodDisruptionBudget {
    /// Key: `namespace/name`.
    pub name: String,
    /// Evictions it allows now; none if its status lags behind its spec (rule 11).
    pub disruptions_allowed: i32,
    /// It never allows any: maxUnavailable 0, or minAvailable 100%.
    pub fully_blocking: bool,
}

/// An offering that was refused for lack of capacity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnavailableOffering {
    /// Instance type; `None` means every type.
    pub instance_type: Option<String>,
    /// Zone; `None` means every zone.
    pub zone: Option<String>,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// How much longer it is left alone.
    pub remaining: Millis,
}

/// A pod that nobody is to place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IgnoredPod {
    /// Key.
    pub uid: PodUid,
    /// `namespace/name`.
    pub pod: String,
    /// Why.
    pub reason: String,
}

impl Snapshot {
    /// This snapshot if every list is in canonical order, else a copy that is.
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
            && self.ignored.is_sorted()
    }

    /// Brings every list into its canonical order.
    pub fn sort(&mut self) {
        self.shapes.sort_by(|a, b| a.id.cmp(&b.id));
        self.pods.sort_by(|a, b| a.uid.cmp(&b.uid));
        self.nodes.sort_by(|a, b| a.name.cmp(&b.name));
        self.node_pools.sort_by(|a, b| a.name.cmp(&b.name));
        self.daemon_sets.sort_by(|a, b| a.uid.cmp(&b.uid));
        self.pod_disruption_budgets.sort_by(|a, b| a.name.cmp(&b.name));
        self.unavailable_offerings.sort();
        self.ignored.sort();
    }
}
