//! The end of a removal that is not carried out: its node is in service again.

use super::deletion::{post_removed, report_deleted};
use super::lookup::node_of;
use super::{POLL_INTERVAL, Removals, write_reason};
use crate::controller_loop::Requeue;
use crate::events::{Note, object, reason};
use crate::io::{ObjectPart, UpdateResult, WriteError};
use crate::ledger::Removal;
use crate::nodes::remove_taint;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::NodeClaim;
use plimsoll_api::condition::Moment;
use plimsoll_api::condition::node_claim::{CONDITIONS, DISRUPTION_REASON};
use plimsoll_model::execution::{Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_model::names::{annotation, taint};

/// Clears the condition first, so that no deletion takes effect any more, then removes the taint, then the command. If
/// the process stops in between, the next leader finds the command, with or without the taint, and continues or undoes
/// the removal too.
pub(super) async fn undo(
    deps: &Removals,
    claim: &NodeClaim,
    command: Option<&Removal>,
    cause: &str,
) -> Result<Requeue, WriteError> {
    let name = claim.name_any();
    let live = deps.writes.read_claim(&name).await?;
    if live.as_ref().is_some_and(|live| live.metadata.uid != claim.metadata.uid) {
        // Another claim has the name now, and what the ledger has under it.
        return Ok(Some(POLL_INTERVAL));
    }
    let cleared = match live {
        Some(live) if live.metadata.deletion_timestamp.is_none() => clear_reason(deps, live).await?,
        deleted => deleted,
    };
    let Some(current) = cleared.as_ref().filter(|current| current.metadata.deletion_timestamp.is_none()) else {
        // The deletion got no response, and the watch cache may not show it yet: nothing is left to undo.
        conclude_deleted(deps, claim, command, cleared.as_ref()).await?;
        return Ok(Some(POLL_INTERVAL));
    };
    tracing::info!(node_claim = name, cause, "removal undone");
    if let Some(node) = node_of(deps, claim).filter(|node| node.metadata.deletion_timestamp.is_none()) {
        let untaint = |node: &mut Node| remove_taint(node, taint::DISRUPTED);
        deps.writes.update(&*node, ObjectPart::Main, untaint).await?;
    }
    let forget = |claim: &mut NodeClaim| {
        claim.annotations_mut().remove(annotation::REMOVAL);
    };
    deps.writes.update(current, ObjectPart::Main, forget).await?;
    report_undone(deps, claim, command, cause);
    Ok(None)
}

/// Concludes a removal whose claim is `deleted` or gone.
async fn conclude_deleted(
    deps: &Removals,
    claim: &NodeClaim,
    command: Option<&Removal>,
    deleted: Option<&NodeClaim>,
) -> Result<(), WriteError> {
    let name = claim.name_any();
    match (command, deleted) {
        (Some(command), Some(deleted)) => {
            // The deletion may have arrived before the condition was cleared. An interruption's reason stays.
            if deleted.true_condition(DISRUPTION_REASON).is_none() {
                write_reason(deps, deleted, command).await?;
            }
            report_deleted(deps, claim, node_of(deps, claim).as_deref(), command);
        }
        (Some(command), None) if deps.outcomes.is_open(&command.action) => post_removed(deps, name, command),
        _ => deps.ledger.with(|ledger| ledger.deleting(&name)),
    }
    Ok(())
}

/// Tells ledger, users and watcher that a removal was undone.
fn report_undone(deps: &Removals, claim: &NodeClaim, command: Option<&Removal>, cause: &str) {
    let name = claim.name_any();
    let position = deps.ledger.with(|ledger| {
        ledger.removal_undone(&name);
        ledger.position()
    });
    let message = format!("removal undone: {cause}");
    deps.events.publish(Note::warning(object(claim), reason::DISRUPTION_BLOCKED, message).with_cause("undone"));
    deps.metrics.actions.with_label_values(&["termination", "failed"]).inc();
    if let Some(command) = command {
        deps.metrics.disruption.undone(command.reason, !command.replacements.is_empty());
        deps.outcomes.post(Outcome {
            action_id: command.action.clone(),
            status: OutcomeStatus::Failed,
            reason: Some(OutcomeReason::NodeChanged),
            message: cause.to_owned(),
            node_claim: Some(name),
            ledger: position,
        });
    }
}

/// Clears the condition of a removal. Returns the claim after that, unless it is gone. It may be being deleted by then.
///
/// Each deletion of a removal is for a version with the condition. Without the condition no deletion was sent, or
/// somebody else has changed the claim since. In both cases no deletion takes effect any more.
async fn clear_reason(deps: &Removals, live: NodeClaim) -> Result<Option<NodeClaim>, WriteError> {
    let now = deps.clock.now();
    let clear = |claim: &mut NodeClaim| {
        let moment = Moment::of(&claim.metadata, now);
        if let Some(status) = claim.status.as_mut() {
            // No other condition depends on it, so it can be cleared.
            let _cleared = CONDITIONS.clear(&mut status.conditions, moment, DISRUPTION_REASON);
        }
    };
    Ok(match deps.writes.update(&live, ObjectPart::Status, clear).await? {
        UpdateResult::Unchanged => Some(live),
        UpdateResult::Written(cleared) => Some(*cleared),
        UpdateResult::Gone => None,
    })
}
