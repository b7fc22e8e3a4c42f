//! The deletion of the claim of a removal, and its outcome.

use super::{Removals, write_reason};
use crate::events::{Note, object, reason};
use crate::io::{UpdateResult, WriteError};
use crate::ledger::Removal;
use crate::metrics::node_claims::disruption_name;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::NodeClaim;
use plimsoll_model::execution::{Outcome, OutcomeStatus};
use plimsoll_model::names::annotation;

/// What a removal deletes.
pub(super) enum Target {
    /// This version of the claim.
    Version(Box<NodeClaim>),
    /// Nothing: the claim is gone or being deleted.
    Deleted,
    /// Nothing yet: the claim has another command, or none. The watch cache will show it.
    Changed,
}

/// Prepares the deletion of the claim of a removal.
///
/// The version that is deleted has the condition with the reason, which an undone removal clears first: a deletion
/// without a response has no effect after that. The version is read live, since the removal has just written the claim,
/// and the watch cache may not show that yet.
pub(super) async fn prepare(deps: &Removals, claim: &NodeClaim, command: &Removal) -> Result<Target, WriteError> {
    let stays =
        |live: &NodeClaim| live.metadata.uid == claim.metadata.uid && live.metadata.deletion_timestamp.is_none();
    let Some(live) = deps.writes.read_claim(&claim.name_any()).await?.filter(stays) else { return Ok(Target::Deleted) };
    if live.annotations().get(annotation::REMOVAL) != claim.annotations().get(annotation::REMOVAL) {
        // Somebody removed the command, or it is that of a later removal.
        return Ok(Target::Changed);
    }
    Ok(match write_reason(deps, &live, command).await? {
        UpdateResult::Unchanged => Target::Version(Box::new(live)),
        UpdateResult::Written(written) => Target::Version(written),
        UpdateResult::Gone => Target::Deleted,
    })
}

/// Records that the claim of a removal is deleted, and reports it.
pub(super) fn report_deleted(deps: &Removals, claim: &NodeClaim, node: Option<&Node>, command: &Removal) {
    let name = claim.name_any();
    let message = removing(command);
    tracing::info!(node_claim = name, node = command.node.as_str(), reason = command.reason.as_str(), "removing node");
    deps.events.publish(Note::normal(object(claim), reason::DISRUPTION_TERMINATING, message.as_str()));
    if let Some(node) = node {
        deps.events.publish(Note::normal(object(node), reason::DISRUPTION_TERMINATING, message.as_str()));
    }
    let pool = deps.stores.pools.get(claim.node_pool());
    let metrics = &deps.metrics;
    metrics.claims.disrupted(claim, disruption_name(command.reason), pool.as_deref(), command.pods.len());
    post_removed(deps, name, command);
}

fn removing(command: &Removal) -> String {
    format!("removing node: {}", command.reason.as_str())
}

/// Records that the claim of a removal is deleted, and posts the outcome. It counts no disruption, since somebody else
/// may have deleted the claim.
pub(super) fn post_removed(deps: &Removals, name: String, command: &Removal) {
    let position = deps.ledger.with(|ledger| {
        ledger.deleting(&name);
        ledger.position()
    });
    deps.metrics.actions.with_label_values(&["termination", "removed"]).inc();
    deps.outcomes.post(Outcome {
        action_id: command.action.clone(),
        status: OutcomeStatus::Removed,
        reason: None,
        message: removing(command),
        node_claim: Some(name),
        ledger: position,
    });
}
