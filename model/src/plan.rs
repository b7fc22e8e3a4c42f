//! The plan: what a scheduler proposes. It changes nothing by itself; each action says what it rests on, and the actuator admits it or not.

use crate::catalog::CapacityType;
use crate::identity::{ActionId, NodeName, NodePoolName, PodUid};
use crate::money::MicroUsdPerHour;
use crate::requirements::NodeSelectorRequirement;
use crate::resources::Resources;
use crate::snapshot::{DisruptionReason, IgnoredPod, LedgerPosition};
use crate::taints::Taint;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is done about what pods only prefer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum PreferencePolicy {
    /// It is required first, and given up where there is no place.
    #[default]
    Respect,
    /// Nothing: what is only preferred makes no difference.
    Ignore,
}

impl PreferencePolicy {
    /// From Karpenter's word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Respect" => Some(Self::Respect),
            "Ignore" => Some(Self::Ignore),
            _ => None,
        }
    }
}

/// What is done where `minValues` of a pool cannot be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum MinValuesPolicy {
    /// Nothing is launched.
    #[default]
    Strict,
    /// The launch lists as many values as there are.
    BestEffort,
}

impl MinValuesPolicy {
    /// From Karpenter's word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Strict" => Some(Self::Strict),
            "BestEffort" => Some(Self::BestEffort),
            _ => None,
        }
    }
}

/// What a plan may do, and how hard it tries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOptions {
    /// Look for nodes to remove as well.
    pub disruption: bool,
    /// Upper bound on the solver's work, in its own units (one is about a shape tried on an offering set); never time.
    pub work_budget: u64,
    /// What pods only prefer.
    pub preference_policy: PreferencePolicy,
    /// Pools whose `minValues` cannot be met.
    pub min_values_policy: MinValuesPolicy,
    /// Where many pods wait, the most of them that one new node takes, in per cent; 100 sets no bound. It gives way where pods would be left.
    pub max_share_per_node: u32,
}

impl Default for PlanOptions {
    fn default() -> Self {
        // Enough for tens of thousands of pods of some hundreds of shapes.
        Self {
            disruption: true,
            work_budget: 200_000_000,
            preference_policy: PreferencePolicy::Respect,
            min_values_policy: MinValuesPolicy::Strict,
            // A bound costs money where the cheapest node takes them all.
            max_share_per_node: 100,
        }
    }
}

/// A plan for one frozen snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The snapshot it is for.
    pub snapshot_sequence: u64,
    /// The ledger position of that snapshot.
    pub ledger: LedgerPosition,
    /// Nodes to launch, sorted by (pool, first pod).
    pub launches: Vec<Launch>,
    /// Pending pods that existing or in-flight nodes will take, sorted by node.
    pub placements: Vec<Placement>,
    /// Nodes to remove, sorted by node.
    pub terminations: Vec<Termination>,
    /// Pods without a place, sorted by `namespace/name`.
    pub unschedulable: Vec<Unschedulable>,
    /// Pods that were not considered.
    pub ignored: Vec<IgnoredPod>,
    /// Pools that could launch nothing for any pod, by what they ask for themselves; sorted by pool.
    pub pool_problems: Vec<Reason>,
    /// Sum of the launches' prices.
    pub hourly: MicroUsdPerHour,
    /// No plan that places the same pods on launches can cost less.
    pub lower_bound: MicroUsdPerHour,
    /// The earliest time at which time alone would change this plan.
    pub next_time: Option<Timestamp>,
}

/// A pod in a plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodRef {
    /// `namespace/name`.
    pub name: String,
    /// UID.
    pub uid: PodUid,
}

/// One way to buy a launch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OfferingChoice {
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// How it is bought.
    pub capacity_type: CapacityType,
    /// Price per hour.
    pub price: MicroUsdPerHour,
}

/// A node to launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Names this action.
    pub action_id: ActionId,
    /// The pool.
    pub node_pool: NodePoolName,
    /// The node class.
    pub node_class: String,
    /// Offerings that are acceptable, cheapest first; never empty. Every type of it can hold all `pods`, in every zone and capacity type listed with it.
    /// Shared: thousands of launches accept the same hundreds.
    pub offerings: Arc<Vec<OfferingChoice>>,
    /// Requirements of the claim: pool and pods together. Shared as well.
    pub requirements: Arc<Vec<NodeSelectorRequirement>>,
    /// What `pods` and the DaemonSets of such a node request.
    pub requests: Resources,
    /// Taints of the pool.
    pub taints: Vec<Taint>,
    /// Labels of the pool.
    pub labels: BTreeMap<String, String>,
    /// Pods that it is for, sorted by name.
    pub pods: Vec<PodRef>,
    /// The offerings are to be preferred in this order, not by the prices that the cloud knows: the user says that they count otherwise.
    pub prioritized: bool,
    /// Why this pool and offering: bounded text.
    pub why: String,
}

impl Plan {
    /// How far the cost may be from the optimum, as a fraction of the lower bound; nothing where nothing is bought or no bound is known.
    #[must_use]
    pub fn gap(&self) -> f64 {
        if self.hourly.0 == 0 || self.lower_bound.0 <= 0 {
            return 0.0;
        }
        (self.hourly.usd() - self.lower_bound.usd()) / self.lower_bound.usd()
    }
}

impl Launch {
    /// The cheapest offering: what the plan counts.
    #[must_use]
    pub fn price(&self) -> MicroUsdPerHour {
        self.offerings.first().map_or(MicroUsdPerHour(0), |offering| offering.price)
    }
}

/// Pods for a node that is there or on its way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Placement {
    /// The node.
    pub node: NodeName,
    /// Pods, sorted by name.
    pub pods: Vec<PodRef>,
}

/// A node to remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Termination {
    /// Names this action.
    pub action_id: ActionId,
    /// The node.
    pub node: NodeName,
    /// Why.
    pub reason: DisruptionReason,
    /// Pods that have to go elsewhere, sorted by name.
    pub pods: Vec<PodRef>,
    /// Launches that must be Initialized first, as indices into [`Plan::launches`].
    pub replaced_by: Vec<usize>,
    /// Existing nodes that take pods of it.
    pub moved_to: Vec<Placement>,
    /// What it saves, net of replacements; those shared are split by the removed nodes' prices.
    pub saving: MicroUsdPerHour,
}

/// A pod without a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Unschedulable {
    /// The pod.
    pub pod: PodRef,
    /// Why, one per pool at least; `node_pool` empty where the reason is the pod's own.
    pub reasons: Vec<Reason>,
}

/// Why a pool cannot take a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Reason {
    /// The pool, empty where the reason is the pod's own.
    pub node_pool: String,
    /// What kind of cause.
    pub code: ReasonCode,
    /// Text for people, with figures.
    pub message: String,
}

/// Kinds of causes. Stable words: users and scripts match on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReasonCode {
    /// There is no pool at all.
    NoNodePool,
    /// The pool's node class is missing.
    NodeClassNotFound,
    /// The pool or its class is not ready.
    NodePoolNotReady,
    /// The pod does not tolerate a taint of the pool.
    TaintNotTolerated,
    /// The pod's selector or affinity contradicts the pool's requirements.
    RequirementsIncompatible,
    /// No instance type has what the pod requests.
    InsufficientResources,
    /// Types would do, but none is offered in the zones and capacity types allowed.
    NoOffering,
    /// Offerings would do, but are out of capacity for now.
    OutOfCapacity,
    /// The pool's limit is reached.
    LimitReached,
    /// The pod uses something that is not supported yet.
    NotSupported,
    /// The pod's volume cannot be attached anywhere.
    VolumeProblem,
    /// Another pod's port is in the way.
    HostPortConflict,
    /// The pod's own fields contradict each other or are invalid.
    InvalidPod,
    /// Work budget was used up before this pod.
    BudgetExhausted,
    /// Spread, affinity or anti-affinity of pods leaves no domain with room.
    TopologyUnsatisfiable,
    /// Too few different values are left for `minValues` of the pool.
    MinValuesNotMet,
    /// What keeps the pod from the nodes that are there.
    NoExistingNode,
}

impl ReasonCode {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::NoNodePool,
        Self::NodeClassNotFound,
        Self::NodePoolNotReady,
        Self::TaintNotTolerated,
        Self::RequirementsIncompatible,
        Self::InsufficientResources,
        Self::NoOffering,
        Self::OutOfCapacity,
        Self::LimitReached,
        Self::NotSupported,
        Self::VolumeProblem,
        Self::HostPortConflict,
        Self::InvalidPod,
        Self::BudgetExhausted,
        Self::TopologyUnsatisfiable,
        Self::MinValuesNotMet,
        Self::NoExistingNode,
    ];

    /// The word that users see: the variant's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoNodePool => "NoNodePool",
            Self::NodeClassNotFound => "NodeClassNotFound",
            Self::NodePoolNotReady => "NodePoolNotReady",
            Self::TaintNotTolerated => "TaintNotTolerated",
            Self::RequirementsIncompatible => "RequirementsIncompatible",
            Self::InsufficientResources => "InsufficientResources",
            Self::NoOffering => "NoOffering",
            Self::OutOfCapacity => "OutOfCapacity",
            Self::LimitReached => "LimitReached",
            Self::NotSupported => "NotSupported",
            Self::VolumeProblem => "VolumeProblem",
            Self::HostPortConflict => "HostPortConflict",
            Self::InvalidPod => "InvalidPod",
            Self::BudgetExhausted => "BudgetExhausted",
            Self::TopologyUnsatisfiable => "TopologyUnsatisfiable",
            Self::MinValuesNotMet => "MinValuesNotMet",
            Self::NoExistingNode => "NoExistingNode",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_above_the_bound_and_nothing_without_one() {
        let table = [(1_100_000, 1_000_000, 0.1), (500, 500, 0.0), (0, 0, 0.0), (500, 0, 0.0)];
        for (hourly, bound, gap) in table {
            let plan = Plan { hourly: MicroUsdPerHour(hourly), lower_bound: MicroUsdPerHour(bound), ..Plan::default() };
            assert!((plan.gap() - gap).abs() < 1e-9, "{hourly} {bound}: {}", plan.gap());
        }
    }
}
