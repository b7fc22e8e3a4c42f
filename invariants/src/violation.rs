//! What can be wrong with a plan.

use std::fmt;

/// One thing that is wrong. Texts name objects as the plan does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// A pod appears more than once among launches, placements, moves and unschedulable pods.
    PodTwice(String),
    /// A pod of the plan is not in the snapshot, or not one that is to be placed.
    UnknownPod(String),
    /// A pending pod is neither placed nor said to be unschedulable.
    PodForgotten(String),
    /// An unschedulable pod comes without a reason.
    NoReason(String),
    /// A node of the plan is not in the snapshot.
    UnknownNode(String),
    /// A pool of the plan is not in the snapshot or cannot launch.
    UnknownPool(String),
    /// A launch (by action id) without pods or offerings.
    EmptyLaunch(String),
    /// A launch that is not what its pool says, or that has fewer values than `minValues` wants.
    BadLaunch {
        /// The launch's action id.
        launch: String,
        /// What is wrong.
        problem: String,
    },
    /// An offering that the catalog does not have at that price, that is not available or not cheapest first.
    BadOffering {
        /// The launch's action id.
        launch: String,
        /// Type, zone and capacity type, and what is wrong.
        problem: String,
    },
    /// A pod cannot run where the plan puts it.
    PodDoesNotFit {
        /// The pod.
        pod: String,
        /// The node or offering.
        place: String,
        /// What is in the way.
        problem: String,
    },
    /// Requests on a node or offering exceed what it has.
    Overcommitted {
        /// The node or offering.
        place: String,
        /// The resource.
        resource: String,
    },
    /// A pool grows beyond its limit.
    LimitExceeded {
        /// The pool.
        pool: String,
        /// The resource.
        resource: String,
    },
    /// A node must not be removed.
    BadTermination {
        /// The node.
        node: String,
        /// Why not.
        problem: String,
    },
    /// Pods that a workload wants On-Demand are put elsewhere.
    MixBroken {
        /// The workload.
        workload: String,
        /// What is wrong.
        problem: String,
    },
    /// Sums or bounds of the plan do not agree with its parts.
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
            Self::BadTermination { node, problem } => write!(f, "node {node} must not be removed: {problem}"),
            Self::MixBroken { workload, problem } => write!(f, "workload {workload}: {problem}"),
            Self::BadSum(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for Violation {}
