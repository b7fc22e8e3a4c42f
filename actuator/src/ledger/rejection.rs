//! Reasons for rejections.

use super::changes::Subject;
use plimsoll_model::identity::{ActionId, NodeName, NodePoolName, PodUid};
use plimsoll_model::names::USD_PER_HOUR_RESOURCE;
use plimsoll_model::quantity::format_amount;
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_model::time::Millis;
use std::time::Duration;

/// Why an action is rejected. The watcher plans again with this knowledge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The plan is not of the driver, as the Lease was last read.
    #[error("another watcher leads (lease transition {0})")]
    StaleDriver(u64),
    /// The plan rests on a position of another leader, or on one that this ledger cannot compare.
    #[error(
        "plan is based on ledger position {}.{}, which is unknown to the ledger at {}.{}",
        .known.epoch, .known.sequence, .here.epoch, .here.sequence
    )]
    StalePosition {
        /// The plan's position.
        known: LedgerPosition,
        /// This ledger's position.
        here: LedgerPosition,
    },
    /// A subject that the action rests on changed after the snapshot.
    #[error("{0} changed after the plan's snapshot")]
    Changed(Subject),
    /// An action that this one depends on was not admitted.
    #[error("action {0}, on which this action depends, is not in progress")]
    DependencyRejected(ActionId),
    /// The pool is unknown.
    #[error("NodePool {0} not found")]
    UnknownPool(NodePoolName),
    /// A claim of the pool has unreadable annotations, so the pool's limits cannot be checked.
    #[error("NodePool {pool} launches nothing: {problem}; fix the annotation or delete the NodeClaim")]
    PoolUnreadable {
        /// The pool.
        pool: NodePoolName,
        /// Claim and annotation.
        problem: String,
    },
    /// The launch names no instance type, or one that is not in the catalog.
    #[error("instance type {0:?} is not in the catalog")]
    UnknownInstanceType(String),
    /// The catalog of the node class lacks an offering of the launch.
    #[error("{0} is not in the catalog")]
    UnknownOffering(String),
    /// The pool limits the price of its nodes, and the price of one is unknown.
    #[error(
        "NodePool limits {USD_PER_HOUR_RESOURCE}, but the price of NodeClaim {0} is unknown; it is recorded once the \
         catalog has its instance type, zone and capacity type"
    )]
    PriceUnknown(String),
    /// A pod already has a launch or a replacement in progress.
    #[error("pod {pod} is reserved for NodeClaim {claim}")]
    PodReserved {
        /// The pod.
        pod: PodUid,
        /// The claim that the pod is reserved for.
        claim: String,
    },
    /// A claim with that name still exists, possibly being deleted.
    #[error("NodeClaim {0} still exists")]
    ClaimExists(String),
    /// The launch would exceed the pool's limit.
    #[error(
        "NodePool limit reached: {} of {} {resource} in use or reserved, the launch may need {}",
        format_amount(.resource, *.used), format_amount(.resource, *.limit), format_amount(.resource, *.asked)
    )]
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
    /// The launch would exceed a CapacityQuota.
    #[error(
        "CapacityQuota {quota} reached: {} of {} {resource} in use or reserved, the launch may need {}",
        format_amount(.resource, *.used), format_amount(.resource, *.limit), format_amount(.resource, *.asked)
    )]
    QuotaExceeded {
        /// The quota.
        quota: String,
        /// Resource.
        resource: String,
        /// The limit.
        limit: i64,
        /// Used and reserved now.
        used: i64,
        /// The most that this launch may use.
        asked: i64,
    },
    /// A claim has unreadable annotations, so the usage of a CapacityQuota is unknown.
    #[error("CapacityQuota {quota} admits no launch: {problem}; fix the annotation or delete the NodeClaim")]
    QuotaUnreadable {
        /// The quota.
        quota: String,
        /// Claim and annotation.
        problem: String,
    },
    /// No instance of a capacity reservation is free for the launch.
    #[error("capacity reservation {0} has no free instance")]
    ReservationFull(String),
    /// Launches of the pool failed recently.
    #[error("NodePool backs off after {cause}: next launch in {:?}", Duration::from_millis(.remaining.0))]
    BackOff {
        /// Cause.
        cause: String,
        /// Remaining pause.
        remaining: Millis,
    },
    /// The pool created too many claims within a minute.
    #[error("NodePool created too many NodeClaims within a minute: next launch in {:?}", Duration::from_millis(.0.0))]
    TooManyClaims(Millis),
    /// No claim in the ledger has this node.
    #[error("no NodeClaim is known for node {0}")]
    UnknownNode(NodeName),
    /// The claim has the annotation of a removal that was not admitted, so it is in no budget and has no reservations.
    #[error("removal of NodeClaim {0} was not admitted")]
    NotAdmitted(String),
    /// The node is already being removed.
    #[error("node {0} is already being removed")]
    AlreadyRemoving(NodeName),
    /// Pods are planned onto the node.
    #[error("pods are planned onto node {0}")]
    NodeIsDestination(NodeName),
    /// The node was launched for a pod that is not there yet. The reservation ends soon after the node is initialized,
    /// whether or not the pod comes.
    #[error("node {node} is reserved for pod {pod}, which is not there yet")]
    PodExpected {
        /// Node.
        node: NodeName,
        /// The pod.
        pod: PodUid,
    },
    /// The pool's disruption budget for this reason is used up.
    #[error("disruption budget exhausted: {removing} nodes are being removed, {allowed} allowed")]
    BudgetExhausted {
        /// Allowed at the same time.
        allowed: u32,
        /// Currently being removed.
        removing: u32,
    },
    /// The static pool has no more nodes than its replicas, beside those that are being removed.
    #[error("static NodePool has no surplus node: {staying} nodes stay, replicas is {replicas}")]
    NoSurplus {
        /// `spec.replicas`.
        replicas: u64,
        /// Nodes that stay if this one does.
        staying: u64,
    },
    /// The pool's rollout allows no further replacement for drift now.
    #[error("rollout limit reached: {replacing} drifted nodes are being replaced, {limit} allowed")]
    RolloutLimit {
        /// Allowed at the same time.
        limit: u32,
        /// Currently being replaced for drift.
        replacing: u32,
    },
    /// A PodDisruptionBudget allows no disruption.
    #[error("PodDisruptionBudget {0} allows no disruption")]
    NoDisruptionRoom(String),
    /// The destination of the pods lacks capacity or is unknown.
    #[error("insufficient {resource} on node {node}")]
    InsufficientResources {
        /// The destination.
        node: NodeName,
        /// The resource.
        resource: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_objects_and_amounts_as_kubernetes_writes_them() {
        let resource = "cpu".to_owned();
        let limit = Rejection::LimitExceeded { resource, limit: 10_000, used: 9_500, asked: 2_000 };
        let cause = "InsufficientCapacity".to_owned();
        let pause = Rejection::BackOff { cause, remaining: Millis(1_500) };
        let position = |epoch, sequence| LedgerPosition { epoch, sequence };
        let stale = Rejection::StalePosition { known: position(3, 9), here: position(4, 1) };
        for (rejection, expected) in [
            (limit, "NodePool limit reached: 9500m of 10 cpu in use or reserved, the launch may need 2"),
            (pause, "NodePool backs off after InsufficientCapacity: next launch in 1.5s"),
            (stale, "plan is based on ledger position 3.9, which is unknown to the ledger at 4.1"),
            (Rejection::Changed(Subject::Node("n-1".into())), "node n-1 changed after the plan's snapshot"),
            (Rejection::Changed(Subject::Pod("p-1".into())), "pod p-1 changed after the plan's snapshot"),
            (Rejection::Changed(Subject::Pool("a".into())), "NodePool a changed after the plan's snapshot"),
        ] {
            assert_eq!(rejection.to_string(), expected);
        }
    }
}
