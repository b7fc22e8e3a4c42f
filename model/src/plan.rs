//! The plan that a scheduler proposes. A plan has no effect by itself: the actuator decides whether to admit each
//! action.

use crate::catalog::CapacityType;
use crate::identity::{ActionId, NodeName, NodePoolName, PodUid};
use crate::money::MicroUsdPerHour;
use crate::requirements::NodeSelectorRequirement;
use crate::resources::Resources;
use crate::snapshot::{DisruptionReason, IgnoredPod, LedgerPosition};
use crate::taints::Taint;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// How preferences of pods are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum PreferencePolicy {
    /// Preferences are treated as required and relaxed if the pod cannot be placed.
    #[default]
    Respect,
    /// Preferences are ignored.
    Ignore,
}

impl PreferencePolicy {
    /// Parses Karpenter's name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Respect" => Some(Self::Respect),
            "Ignore" => Some(Self::Ignore),
            _ => None,
        }
    }
}

/// How a pool is treated whose `minValues` cannot be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum MinValuesPolicy {
    /// The pool launches nothing.
    #[default]
    Strict,
    /// The launch lists the available values.
    BestEffort,
}

impl MinValuesPolicy {
    /// Parses Karpenter's name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Strict" => Some(Self::Strict),
            "BestEffort" => Some(Self::BestEffort),
            _ => None,
        }
    }
}

/// Options of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOptions {
    /// Whether the plan may remove nodes.
    pub disruption: bool,
    /// Upper bound on the solver's work in its own units (one unit is about one shape tried on one set of offerings).
    /// Not a time.
    pub work_budget: u64,
    /// Treatment of preferences.
    pub preference_policy: PreferencePolicy,
    /// Treatment of unmet `minValues`.
    pub min_values_policy: MinValuesPolicy,
    /// If many pods are pending, the maximum percentage of them on one new node; 100 means no limit. The limit is
    /// ignored if pods could not be placed otherwise.
    pub max_share_per_node: u32,
    /// What the eviction of one ordinary pod has to save for consolidation to move it.
    pub min_saving_per_eviction: MicroUsdPerHour,
    /// Whether consolidation replaces Spot nodes by cheaper Spot nodes.
    #[serde(default)]
    pub spot_to_spot: bool,
    /// Nodes that the plan does not remove, such as nodes whose removal was rejected a short time ago. They use up no
    /// disruption budget. They still take pods.
    #[serde(default)]
    pub kept_nodes: BTreeSet<NodeName>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        // Sufficient for tens of thousands of pods of some hundreds of shapes.
        Self {
            disruption: true,
            work_budget: 200_000_000,
            preference_policy: PreferencePolicy::Respect,
            min_values_policy: MinValuesPolicy::Strict,
            // A limit increases the cost if the cheapest node fits all pods.
            max_share_per_node: 100,
            // About 0.40 USD a month. The cheapest nodes cost a few dollars a month, and hold a few dozen pods.
            min_saving_per_eviction: MicroUsdPerHour(500),
            // As Karpenter's feature gate.
            spot_to_spot: false,
            kept_nodes: BTreeSet::new(),
        }
    }
}

/// A plan for one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Sequence of the snapshot.
    pub snapshot_sequence: u64,
    /// The ledger position of that snapshot.
    pub ledger: LedgerPosition,
    /// Nodes to launch, sorted by (pool, first pod), after those of an early part of the plan.
    pub launches: Vec<Launch>,
    /// Pending pods that existing or in-flight nodes take, sorted by node.
    pub placements: Vec<Placement>,
    /// Nodes to remove, sorted by node.
    pub terminations: Vec<Termination>,
    /// Nodes that consolidation would remove together with `terminations` if disruption budgets allowed it, sorted.
    /// kube-scheduler should prefer other nodes for the pods of removed nodes.
    pub postponed_removals: Vec<NodeName>,
    /// Unschedulable pods, sorted by `namespace/name`.
    pub unschedulable: Vec<Unschedulable>,
    /// Pods that were not considered.
    pub ignored: Vec<IgnoredPod>,
    /// Pools that cannot launch nodes for any pod because of their own spec; sorted by pool.
    pub pool_problems: Vec<Reason>,
    /// Sum of the launches' prices.
    pub hourly: MicroUsdPerHour,
    /// Lower bound on the cost of any plan that places the same pods on launches.
    pub lower_bound: MicroUsdPerHour,
    /// Earliest time at which the plan would change without any other event.
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

/// An offering that a launch accepts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OfferingChoice {
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Price per hour.
    pub price: MicroUsdPerHour,
    /// Id of the capacity reservation of a reserved offering.
    pub reservation: Option<String>,
}

impl fmt::Display for OfferingChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instance_type, zone, capacity_type, .. } = self;
        write!(f, "{instance_type} in {zone} ({capacity_type}")?;
        self.reservation.iter().try_for_each(|id| write!(f, " {id}"))?;
        f.write_str(")")
    }
}

/// A node to launch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Launch {
    /// Id of the action.
    pub action_id: ActionId,
    /// The pool.
    pub node_pool: NodePoolName,
    /// The node class.
    pub node_class: String,
    /// Accepted offerings, cheapest first; never empty. Every listed type can hold all `pods` in every zone and
    /// capacity type listed for it. Shared, since thousands of launches accept the same hundreds of offerings.
    pub offerings: Arc<Vec<OfferingChoice>>,
    /// Requirements of the claim: those of pool and pods. Shared as well.
    pub requirements: Arc<Vec<NodeSelectorRequirement>>,
    /// Total requests of `pods` and of the node's DaemonSets.
    pub requests: Resources,
    /// Taints of the pool.
    pub taints: Vec<Taint>,
    /// Labels of the pool.
    pub labels: BTreeMap<String, String>,
    /// Pods for the node, sorted by name.
    pub pods: Vec<PodRef>,
    /// Whether the cloud must prefer offerings in this order instead of by its own prices, because the user has defined
    /// other costs.
    pub prioritized: bool,
    /// Bounded text that explains the choice of pool and offering.
    pub why: String,
}

impl Plan {
    /// Upper bound on the distance to the optimal cost, as a fraction of the lower bound. Zero if nothing is launched.
    /// `None` if no bound is known.
    #[must_use]
    pub fn gap(&self) -> Option<f64> {
        if self.hourly.0 == 0 {
            return Some(0.0);
        }
        (self.lower_bound.0 > 0).then(|| (self.hourly.usd() - self.lower_bound.usd()) / self.lower_bound.usd())
    }

    /// Pods of all launches.
    pub fn launched_pods(&self) -> impl Iterator<Item = &PodRef> {
        self.launches.iter().flat_map(|launch| &launch.pods)
    }

    /// Sorts the launches, and updates the indices by which terminations refer to them.
    pub fn sort_launches(&mut self) {
        let mut launches: Vec<(usize, Launch)> = std::mem::take(&mut self.launches).into_iter().enumerate().collect();
        launches.sort_by(|(_, a), (_, b)| a.in_plan_order(b));
        let places: BTreeMap<usize, usize> =
            launches.iter().enumerate().map(|(now, (before, _))| (*before, now)).collect();
        for termination in &mut self.terminations {
            let known = termination.replaced_by.iter().filter_map(|before| places.get(before).copied());
            termination.replaced_by = known.collect();
            termination.replaced_by.sort_unstable();
        }
        self.launches = launches.into_iter().map(|(_, launch)| launch).collect();
    }
}

impl Launch {
    /// Order of launches in a plan: by NodePool, then by first pod.
    #[must_use]
    pub fn in_plan_order(&self, other: &Self) -> Ordering {
        (&self.node_pool, self.pods.first()).cmp(&(&other.node_pool, other.pods.first()))
    }

    /// Price of the cheapest offering, which the plan assumes.
    #[must_use]
    pub fn price(&self) -> MicroUsdPerHour {
        self.offerings.first().map_or(MicroUsdPerHour(0), |offering| offering.price)
    }
}

/// Pods for an existing or in-flight node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Placement {
    /// The node.
    pub node: NodeName,
    /// Pods, sorted by name.
    pub pods: Vec<PodRef>,
}

/// A node to remove.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Termination {
    /// Id of the action.
    pub action_id: ActionId,
    /// The node.
    pub node: NodeName,
    /// Reason of the removal.
    pub reason: DisruptionReason,
    /// Pods that must move, sorted by name.
    pub pods: Vec<PodRef>,
    /// Launches that must be initialized first, as indices into [`Plan::launches`].
    pub replaced_by: Vec<usize>,
    /// Existing nodes that take pods of the removed node.
    pub moved_to: Vec<Placement>,
    /// Savings minus the cost of replacements. The cost of shared replacements is split by the prices of the removed
    /// nodes.
    pub saving: MicroUsdPerHour,
}

/// A pod that cannot be placed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Unschedulable {
    /// The pod.
    pub pod: PodRef,
    /// Reasons, at least one per pool. `node_pool` is empty if the reason is the pod itself. Shared, since thousands of
    /// pods of one shape may have the same dozens of reasons.
    pub reasons: Arc<Vec<Reason>>,
}

/// Reason why a pool cannot take a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Reason {
    /// The pool; empty if the reason is the pod itself.
    pub node_pool: String,
    /// Machine-readable code.
    pub code: ReasonCode,
    /// Human-readable message with figures.
    pub message: String,
}

/// Reason codes. The names are stable, since users and scripts match on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReasonCode {
    /// There is no NodePool.
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
    /// Suitable instance types have no offering in the allowed zones and capacity types.
    NoOffering,
    /// Suitable offerings are out of capacity.
    OutOfCapacity,
    /// The pool's limit is reached.
    LimitReached,
    /// The pod uses something that is not supported yet.
    NotSupported,
    /// The pod's volume cannot be attached anywhere.
    VolumeProblem,
    /// A host port of another pod conflicts.
    HostPortConflict,
    /// The pod's own fields contradict each other or are invalid.
    InvalidPod,
    /// The work budget was exhausted before this pod.
    BudgetExhausted,
    /// Topology spread, pod affinity or anti-affinity leaves no domain with capacity.
    TopologyUnsatisfiable,
    /// Too few distinct values remain for `minValues` of the pool.
    MinValuesNotMet,
    /// No existing node can take the pod.
    NoExistingNode,
}

impl ReasonCode {
    /// All codes.
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

    /// Name of the code, equal to the variant's name.
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
    fn the_gap_is_relative_to_the_lower_bound_and_unknown_without_one() {
        let gap = |hourly, bound| {
            let plan = Plan { hourly: MicroUsdPerHour(hourly), lower_bound: MicroUsdPerHour(bound), ..Plan::default() };
            plan.gap()
        };
        for (hourly, bound, expected) in [(1_100_000, 1_000_000, 0.1), (500, 500, 0.0), (0, 0, 0.0)] {
            let found = gap(hourly, bound).unwrap();
            assert!((found - expected).abs() < 1e-9, "{hourly} {bound}: {found}");
        }
        assert!(gap(500, 0).is_none());
    }
}
