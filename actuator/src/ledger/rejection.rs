//! Reasons for rejections.

use super::changes::Subject;
use plimsoll_model::identity::{ActionId, NodeName, NodePoolName, PodUid};
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_model::time::Millis;

/// Why an action is rejected. The watcher plans again with this knowledge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Another watcher is the driver.
    #[error("another watcher leads: lease transition {0}")]
    StaleDriver(u64),
    /// The plan's watcher is newer than the last read of the Lease: read it live, then ask again.
    #[error("lease transition {0} of the watcher was not seen yet")]
    UnknownDriver(u64),
    /// The plan rests on a position of another leader, or on one that this ledger cannot compare.
    #[error("the plan knows ledger position {known:?}, which cannot be compared with {here:?}")]
    StalePosition {
        /// The plan's position.
        known: LedgerPosition,
        /// This ledger's position.
        here: LedgerPosition,
    },
    /// A subject that the action rests on changed after the snapshot.
    #[error("{0:?} changed after the plan's snapshot")]
    Changed(Subject),
    /// An action that this one depends on was not admitted.
    #[error("depends on action {0}, which is not under way")]
    DependencyRejected(ActionId),
    /// The pool is unknown.
    #[error("node pool {0} is not known")]
    UnknownPool(NodePoolName),
    /// A claim of the pool has unreadable annotations, so the pool's limits cannot be checked.
    #[error("node pool {pool}: {problem}")]
    PoolUnreadable {
        /// The pool.
        pool: NodePoolName,
        /// Claim and annotation.
        problem: String,
    },
    /// The launch names no instance type, or one that is not in the catalog.
    #[error("instance type {0:?} is not in the catalog")]
    UnknownInstanceType(String),
    /// A pod already has a launch or a replacement in progress.
    #[error("pod {pod} is reserved by claim {claim}")]
    PodReserved {
        /// The pod.
        pod: PodUid,
        /// The claim that the pod is reserved for.
        claim: String,
    },
    /// A claim with that name still exists, possibly being deleted.
    #[error("claim {0} is still there")]
    ClaimExists(String),
    /// The launch would exceed the pool's limit.
    #[error("limit of {resource}: {used} used and reserved, {asked} asked for, {limit} allowed")]
    LimitExceeded {
        /// Resource.
        resource: String,
        /// The limit.
        limit: i64,
        /// Used and reserved now.
        used: i64,
        /// The most that this launch may use.
        asked: i64,
    },
    /// Launches of the pool failed recently.
    #[error("launches pause after {cause} for {remaining:?}")]
    BackOff {
        /// Cause.
        cause: String,
        /// Remaining pause.
        remaining: Millis,
    },
    /// The pool created too many claims within a minute.
    #[error("too many claims in a minute, wait {0:?}")]
    TooManyClaims(Millis),
    /// No claim in the ledger has this node.
    #[error("node {0} is not known")]
    UnknownNode(NodeName),
    /// The claim has the annotation of a removal that was not admitted, so it is in no budget and has no reservations.
    #[error("the removal of claim {0} was not admitted")]
    NotAdmitted(String),
    /// The node is already being removed.
    #[error("node {0} is being removed already")]
    AlreadyRemoving(NodeName),
    /// Pods are planned onto the node.
    #[error("node {0} is to take pods")]
    NodeIsDestination(NodeName),
    /// The pool's disruption budget for this reason is used up.
    #[error("the budget allows {allowed} at once, {removing} are being removed")]
    BudgetExhausted {
        /// Allowed at the same time.
        allowed: u32,
        /// Currently being removed.
        removing: u32,
    },
    /// A PodDisruptionBudget allows no disruption.
    #[error("pod disruption budget {0} has no room")]
    NoDisruptionRoom(String),
    /// The destination of the pods lacks capacity or is unknown.
    #[error("node {node} lacks {resource}")]
    InsufficientResources {
        /// The destination.
        node: NodeName,
        /// The resource.
        resource: String,
    },
}
