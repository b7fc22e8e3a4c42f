//! Violations of plan invariants.

use std::fmt;

/// A violated invariant. Objects are named as in the plan.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// A pod appears more than once among launches, placements, moves and unschedulable pods.
    PodTwice(String),
    /// A pod of the plan is not in the snapshot or must not be placed.
    UnknownPod(String),
    /// A pending pod is neither placed nor reported as unschedulable.
    PodForgotten(String),
    /// An unschedulable pod has no reason.
    NoReason(String),
    /// A node of the plan is not in the snapshot.
    UnknownNode(String),
    /// A pool of the plan is not in the snapshot or cannot launch.
    UnknownPool(String),
    /// A launch (by action id) without pods or offerings.
    EmptyLaunch(String),
    /// A launch contradicts its pool, or has fewer values than `minValues` requires.
    BadLaunch {
        /// The launch's action id.
        launch: String,
        /// The error.
        problem: String,
    },
    /// An offering is not in the catalog at that price, is unavailable, or is not in order of price.
    BadOffering {
        /// The launch's action id.
        launch: String,
        /// Instance type, zone and capacity type, with the error.
        problem: String,
    },
    /// A pod cannot run where the plan puts it.
    PodDoesNotFit {
        /// The pod.
        pod: String,
        /// The node or offering.
        place: String,
        /// The reason.
        problem: String,
    },
    /// Requests on a node or offering exceed its resources.
    Overcommitted {
        /// The node or offering.
        place: String,
        /// The resource.
        resource: String,
    },
    /// A pool exceeds its limit.
    LimitExceeded {
        /// The pool.
        pool: String,
        /// The resource.
        resource: String,
    },
    /// More launches list a capacity reservation than it has free instances.
    ReservationExceeded {
        /// The resource that counts instances of the reservation.
        resource: String,
        /// Number of launches that list the reservation.
        launches: i64,
    },
    /// Nodes and launches exceed a CapacityQuota.
    QuotaExceeded {
        /// The quota.
        quota: String,
        /// The resource.
        resource: String,
    },
    /// A node must not be removed. The name is empty if several removals together exceed a budget.
    BadTermination {
        /// The node.
        node: String,
        /// The reason.
        problem: String,
    },
    /// Too many pods of a workload are on capacity that may be Spot.
    OnDemandRatioNotMet {
        /// The workload.
        workload: String,
        /// The error.
        problem: String,
    },
    /// Totals or bounds of the plan are inconsistent.
    BadSum(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodTwice(pod) => write!(f, "pod {pod} appears twice"),
            Self::UnknownPod(pod) => write!(f, "pod {pod} is not one to be placed"),
            Self::PodForgotten(pod) => write!(f, "pod {pod} is neither placed nor unschedulable"),
            Self::NoReason(pod) => write!(f, "pod {pod} is unschedulable without a reason"),
            Self::UnknownNode(node) => write!(f, "node {node} is not in the snapshot"),
            Self::UnknownPool(pool) => write!(f, "pool {pool} cannot launch nodes"),
            Self::EmptyLaunch(launch) => write!(f, "launch {launch} has no pods or no offerings"),
            Self::BadLaunch { launch, problem } | Self::BadOffering { launch, problem } => {
                write!(f, "launch {launch}: {problem}")
            }
            Self::PodDoesNotFit { pod, place, problem } => write!(f, "pod {pod} cannot run on {place}: {problem}"),
            Self::Overcommitted { place, resource } => write!(f, "{place} has too little {resource}"),
            Self::LimitExceeded { pool, resource } => write!(f, "pool {pool} exceeds its limit of {resource}"),
            Self::ReservationExceeded { resource, launches } => {
                write!(f, "{launches} launches list {resource}, more than it has free")
            }
            Self::QuotaExceeded { quota, resource } => write!(f, "CapacityQuota {quota} is exceeded: {resource}"),
            // A budget is exceeded by several nodes together.
            Self::BadTermination { node, problem } if node.is_empty() => f.write_str(problem),
            Self::BadTermination { node, problem } => write!(f, "node {node} must not be removed: {problem}"),
            Self::OnDemandRatioNotMet { workload, problem } => write!(f, "workload {workload}: {problem}"),
            Self::BadSum(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for Violation {}
