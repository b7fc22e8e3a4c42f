//! Why an action is refused.

use super::changes::Subject;
use plimsoll_model::identity::{ActionId, NodeName, NodePoolName, PodUid};
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_model::time::Millis;

/// Why an action is refused. The watcher plans again on what it tells.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Another watcher leads.
    #[error("another watcher leads: lease transition {0}")]
    StaleDriver(u64),
    /// The plan's watcher is newer than the Lease that was read last: read it live, then ask again.
    #[error("lease transition {0} of the watcher was not seen yet")]
    UnknownDriver(u64),
    /// The plan rests on a position of another leader, or on one that this ledger cannot judge.
    #[error("the plan knows ledger position {known:?}, which cannot be compared with {here:?}")]
    StalePosition {
        /// The plan's.
        known: LedgerPosition,
        /// This ledger's.
        here: LedgerPosition,
    },
    /// Something that the action rests on has changed since.
    #[error("{0:?} changed after the plan's snapshot")]
    Changed(Subject),
    /// An action that this one depends on was not admitted.
    #[error("depends on action {0}, which is not under way")]
    DependencyRejected(ActionId),
    /// The pool does not exist here.
    #[error("node pool {0} is not known")]
    UnknownPool(NodePoolName),
    /// A claim of the pool has annotations that cannot be read, so that its limits cannot be judged.
    #[error("node pool {pool}: {problem}")]
    PoolUnreadable {
        /// The pool.
        pool: NodePoolName,
        /// Which claim and annotation.
        problem: String,
    },
    /// The launch names no instance type, or one that the catalog lacks.
    #[error("instance type {0:?} is not in the catalog")]
    UnknownInstanceType(String),
    /// A pod already has a launch or a removal's replacement on its way.
    #[error("pod {pod} is reserved by claim {claim}")]
    PodReserved {
        /// The pod.
        pod: PodUid,
        /// Whose it is.
        claim: String,
    },
    /// A claim of that name is still there, perhaps on its way out.
    #[error("claim {0} is still there")]
    ClaimExists(String),
    /// The pool's limit would be passed.
    #[error("limit of {resource}: {used} used and reserved, {asked} asked for, {limit} allowed")]
    LimitExceeded {
        /// Resource.
        resource: String,
        /// The limit.
        limit: i64,
        /// Used and reserved now.
        used: i64,
        /// The most that this launch may take.
        asked: i64,
    },
    /// Launches of the pool failed of late.
    #[error("launches pause after {cause} for {remaining:?}")]
    BackOff {
        /// Cause.
        cause: String,
        /// How much longer.
        remaining: Millis,
    },
    /// The pool made too many claims in a minute.
    #[error("too many claims in a minute, wait {0:?}")]
    TooManyClaims(Millis),
    /// No claim of ours makes this node.
    #[error("node {0} is not known")]
    UnknownNode(NodeName),
    /// A removal is written on this claim that was not admitted: it counts in no budget and has no room reserved.
    #[error("the removal of claim {0} was not admitted")]
    NotAdmitted(String),
    /// The node is being removed already.
    #[error("node {0} is being removed already")]
    AlreadyRemoving(NodeName),
    /// Pods are on their way to the node.
    #[error("node {0} is to take pods")]
    NodeWanted(NodeName),
    /// The pool's budget for this reason is used up.
    #[error("the budget allows {allowed} at once, {removing} are being removed")]
    BudgetExhausted {
        /// Allowed at once.
        allowed: u32,
        /// Being removed.
        removing: u32,
    },
    /// A PodDisruptionBudget has no room.
    #[error("pod disruption budget {0} has no room")]
    NoDisruptionRoom(String),
    /// The room where pods are to go is taken or was never there.
    #[error("node {node} lacks {resource}")]
    NoRoom {
        /// Where.
        node: NodeName,
        /// What.
        resource: String,
    },
}
