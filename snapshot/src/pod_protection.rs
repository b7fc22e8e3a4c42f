//! What protects the pods of a node from its removal.

use crate::expiry::was_expired;
use crate::rollout::removal_reason;
use crate::{annotations, kube_time};
use plimsoll_api::NodeClaim;
use plimsoll_model::names::annotation;
use plimsoll_model::snapshot::{DisruptionReason, Node};
use plimsoll_model::time::Timestamp;

/// Milliseconds before the end of a node from which on all its pods need another place: a new node boots meanwhile.
const LEAD_MS: i64 = 5 * 60 * 1000;

/// What protects the pods of a node. The default is full protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PodProtection {
    /// Whether the node is removed in any case, so that Cluster Autoscaler's annotation protects nothing.
    pub(crate) forced: bool,
    /// From when on no annotation protects, since the pods are about to be deleted.
    pub(crate) ends: Option<Timestamp>,
}

impl PodProtection {
    /// Protection of the pods on `node`, which belongs to `claim`.
    pub(crate) fn of(node: &Node, claim: Option<&NodeClaim>, now: Timestamp) -> Self {
        let value = |key: &str| annotations::text(&claim?.metadata, key);
        let notice = value(annotation::INTERRUPTED);
        let deadline = value(annotation::TERMINATION_TIMESTAMP);
        let deadline = deadline.and_then(|text| text.parse().ok()).map(kube_time::moment);
        let ends = notice.and_then(end_of_notice).into_iter().chain(deadline).min().filter(|_| node.deleting);
        Self {
            forced: is_forced(node, claim, notice.is_some(), now),
            ends: ends.map(|ends| Timestamp(ends.0.saturating_sub(LEAD_MS))),
        }
    }

    pub(crate) fn is_full(self) -> bool {
        self == Self::default()
    }
}

/// Whether the node is removed whatever its pods are. A node that is being removed for another reason may expire
/// meanwhile: its drain still waits.
fn is_forced(node: &Node, claim: Option<&NodeClaim>, interrupted: bool, now: Timestamp) -> bool {
    if !node.deleting {
        return node.expires.is_some_and(|at| at <= now);
    }
    let expired = DisruptionReason::Expired.as_str();
    let is_planned = |claim: &NodeClaim| removal_reason(claim).is_some_and(|reason| reason == expired);
    interrupted || claim.is_some_and(|claim| is_planned(claim) || was_expired(claim))
}

/// When the instance of an interrupted claim stops, if the notice tells. The actuator writes milliseconds.
fn end_of_notice(notice: &str) -> Option<Timestamp> {
    let fields: serde_json::Value = serde_json::from_str(notice).ok()?;
    fields.get("ends")?.as_i64().map(Timestamp)
}
