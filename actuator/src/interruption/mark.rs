//! Effects of a notice on a claim.

use super::Interruption;
use super::drain_delay::{MAX_WITHOUT_END, is_recommendation, notice_of};
use super::messages::NoticeKind;
use crate::clock::Timestamped;
use crate::events::{Note, Severity, object, reason};
use crate::interruption::Interruptions;
use crate::io::{ObjectPart, WriteError};
use crate::pods;
use crate::state::insufficient_capacity::Key;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::NodeClaim;
use plimsoll_api::condition::Status;
use plimsoll_api::condition::node_claim::DISRUPTION_REASON;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::{annotation, label};
use plimsoll_model::time::Timestamp;
use std::sync::Arc;

/// Urgency of the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// The pods are evicted.
    Drain,
    /// The node is broken: its pods are deleted regardless of any protection.
    Force,
}

fn event_reason(kind: NoticeKind) -> &'static str {
    match kind {
        NoticeKind::SpotInterrupted => reason::SPOT_INTERRUPTED,
        NoticeKind::RebalanceRecommendation => reason::SPOT_REBALANCE,
        NoticeKind::ScheduledChange => reason::INSTANCE_UNHEALTHY,
        NoticeKind::InstanceStopped => reason::INSTANCE_STOPPING,
        NoticeKind::InstanceTerminated => reason::INSTANCE_TERMINATING,
        NoticeKind::CapacityReservationInterrupted => reason::RESERVATION_INTERRUPTED,
    }
}

/// A recommendation asks for nothing. All other notices cost the node.
fn severity(kind: NoticeKind) -> Severity {
    match kind {
        NoticeKind::RebalanceRecommendation => Severity::Normal,
        _ => Severity::Warning,
    }
}

/// Publishes the notice as Events on the claim and its Node.
pub(super) fn publish_notice(deps: &Interruptions, claim: &NodeClaim, kind: NoticeKind) {
    let message = format!("notice from EC2 for the instance: {}", kind.as_str());
    publish(deps, claim, (severity(kind), event_reason(kind)), &message);
}

/// Publishes on the claim and its Node that the instance is unhealthy.
pub(super) fn publish_unhealthy(deps: &Interruptions, claim: &NodeClaim, message: &str) {
    publish(deps, claim, (Severity::Warning, reason::INSTANCE_UNHEALTHY), message);
}

fn publish(deps: &Interruptions, claim: &NodeClaim, kind: (Severity, &'static str), message: &str) {
    for note in notes(claim, &deps.stores.nodes_of(claim), kind, message) {
        deps.events.publish(note);
    }
}

/// One Event for each Node of the claim, and one for the claim.
fn notes(
    claim: &NodeClaim,
    nodes: &[Arc<Node>],
    (severity, reason): (Severity, &'static str),
    message: &str,
) -> Vec<Note> {
    let targets = nodes.iter().map(|node| object(&**node)).chain([object(claim)]);
    targets.map(|target| Note { severity, ..Note::normal(target, reason, message) }).collect()
}

/// Records that the offering of an interrupted Spot instance lacks capacity, or that the owner of a capacity
/// reservation takes it back.
pub(super) fn learn(deps: &Interruptions, claim: &NodeClaim, kind: NoticeKind) {
    if let Some(id) = claim.labels().get(label::CAPACITY_RESERVATION_ID)
        && kind == NoticeKind::CapacityReservationInterrupted
    {
        deps.ledger.with(|ledger| ledger.reservation_exhausted(id));
    }
    if kind != NoticeKind::SpotInterrupted {
        return;
    }
    let label = |key: &str| claim.labels().get(key).cloned();
    let (instance_type, zone) = (label(label::INSTANCE_TYPE), label(label::ZONE));
    if instance_type.is_some() && zone.is_some() {
        let key = Key { capacity_type: CapacityType::Spot, instance_type, zone, placement_group: None };
        deps.insufficient_capacity.lock().mark(key, deps.clock.timestamp());
        deps.ledger.wake();
    }
}

/// Durably marks the claim and deletes it, so that its Node is drained. A claim that is already being deleted is only
/// told when its instance stops, or that its node is broken: its drain may be waiting for pods that will never end.
pub(super) async fn mark_and_delete(
    deps: &Interruptions,
    claim: &NodeClaim,
    kind: &str,
    ends: Option<Timestamp>,
    urgency: Urgency,
) -> Result<(), WriteError> {
    let interruption = Interruption { kind: kind.to_owned(), heard: deps.clock.timestamp(), ends };
    if claim.metadata.deletion_timestamp.is_some() {
        return match urgency {
            Urgency::Force => force_drain(deps, claim).await,
            Urgency::Drain => shorten(deps, claim, &interruption).await,
        };
    }
    let now = deps.clock.now();
    let mark = |claim: &mut NodeClaim| {
        annotate(claim, &interruption);
        if urgency == Urgency::Force {
            claim.annotations_mut().insert(annotation::TERMINATION_TIMESTAMP.to_owned(), now.to_string());
        }
    };
    if !deps.writes.update(claim, ObjectPart::Main, mark).await?.exists() {
        return Ok(());
    }
    deps.writes.delete(claim, None).await?;
    let pods = deps.stores.pods_of(claim).iter().filter(|pod| pods::is_reschedulable(pod)).count();
    deps.metrics.claims.disrupted(claim, kind, None, pods);
    let name = claim.name_any();
    deps.ledger.with(|ledger| ledger.deleting(&name));
    tracing::info!(node_claim = name, kind, "deleting NodeClaim on interruption");
    let message = format!("terminating node on interruption: {kind}");
    publish(deps, claim, (Severity::Warning, reason::TERMINATING_ON_INTERRUPTION), &message);
    let why = |claim: &mut NodeClaim| {
        claim.set_condition(now, DISRUPTION_REASON, Status::True, "Interrupted", kind);
    };
    // The condition is informational: a failure must not cause the message to be redelivered.
    if let Err(error) = deps.writes.update(claim, ObjectPart::Status, why).await {
        tracing::debug!(node_claim = name, %error, "the reason is not shown on the claim");
    }
    Ok(())
}

/// Records the interruption. The first notice stays, with the earliest end of all notices, unless it gives way.
fn annotate(claim: &mut NodeClaim, notice: &Interruption) {
    let ends = |known: &Interruption| known.ends.into_iter().chain(notice.ends).min();
    let known = notice_of(claim).filter(|known| !gives_way(known, notice));
    let known = known.map(|known| Interruption { ends: ends(&known), ..known });
    if let Ok(text) = crate::durable::write(known.as_ref().unwrap_or(notice)) {
        claim.annotations_mut().insert(annotation::INTERRUPTED.to_owned(), text);
    }
}

/// Records on a claim that is being deleted that its instance stops earlier than known. The drain may have another
/// reason, and wait for pods that have no other place yet.
async fn shorten(deps: &Interruptions, claim: &NodeClaim, later: &Interruption) -> Result<(), WriteError> {
    if !stops_earlier(notice_of(claim).as_ref(), later) {
        return Ok(());
    }
    deps.writes.update(claim, ObjectPart::Main, |claim| annotate(claim, later)).await?;
    tracing::info!(node_claim = claim.name_any(), kind = later.kind, "instance stops earlier than known before");
    Ok(())
}

/// Whether the notice leaves less time than what is known. Of a claim without a notice, only an end soon matters: each
/// instance that is terminated after its drain causes notices that it has stopped, and a drain that goes on must not
/// begin to wait until an end that is far away.
fn stops_earlier(known: Option<&Interruption>, later: &Interruption) -> bool {
    let Some(ends) = later.ends else { return known.is_some_and(|known| gives_way(known, later)) };
    let is_near = ends > later.heard && ends <= later.heard.plus(MAX_WITHOUT_END);
    known.map_or(is_near, |known| known.ends.is_none_or(|known| ends < known))
}

/// Whether the known notice is replaced by a later one. Both have no end, and only after a recommendation to rebalance
/// do pods wait for another place without a limit.
fn gives_way(known: &Interruption, later: &Interruption) -> bool {
    known.ends.or(later.ends).is_none() && is_recommendation(known) && !is_recommendation(later)
}

/// Ends the drain of a claim that is being deleted: its pods are deleted from now on, whatever protects them.
async fn force_drain(deps: &Interruptions, claim: &NodeClaim) -> Result<(), WriteError> {
    let now = deps.clock.now();
    let mark = |claim: &mut NodeClaim| {
        let deadline = claim.annotations().get(annotation::TERMINATION_TIMESTAMP).and_then(|text| text.parse().ok());
        if deadline.is_none_or(|deadline: jiff::Timestamp| deadline > now) {
            claim.annotations_mut().insert(annotation::TERMINATION_TIMESTAMP.to_owned(), now.to_string());
        }
    };
    deps.writes.update(claim, ObjectPart::Main, mark).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_api::node_claim::NodeClaimSpec;
    use serde_json::json;

    #[test]
    fn only_a_recommendation_is_no_warning() {
        let warnings = [
            NoticeKind::SpotInterrupted,
            NoticeKind::ScheduledChange,
            NoticeKind::InstanceStopped,
            NoticeKind::InstanceTerminated,
            NoticeKind::CapacityReservationInterrupted,
        ];
        assert!(warnings.into_iter().all(|kind| severity(kind) == Severity::Warning));
        assert_eq!(severity(NoticeKind::RebalanceRecommendation), Severity::Normal);
    }

    #[test]
    fn the_first_notice_stays_with_the_earliest_end_of_all() {
        let notice = |kind: &str, ends: Option<i64>| Interruption {
            kind: kind.to_owned(),
            heard: Timestamp(0),
            ends: ends.map(Timestamp),
        };
        let mut claim = NodeClaim::new("claim", NodeClaimSpec::default());
        let mut ends_after = |ends: Option<i64>, kind: &str| {
            annotate(&mut claim, &notice(kind, ends));
            let known = notice_of(&claim).unwrap();
            assert_eq!(known.kind, "rebalance");
            known.ends
        };
        assert_eq!(ends_after(None, "rebalance"), None);
        assert_eq!(ends_after(Some(5000), "scheduled"), Some(Timestamp(5000)));
        assert_eq!(ends_after(Some(2000), "spot"), Some(Timestamp(2000)));
        assert_eq!(ends_after(Some(9000), "scheduled"), Some(Timestamp(2000)));
        assert_eq!(ends_after(None, "stopped"), Some(Timestamp(2000)));
    }

    #[test]
    fn a_recommendation_gives_way_to_another_notice_without_an_end() {
        let recommendation = NoticeKind::RebalanceRecommendation.as_str();
        let notice = |kind: &str, heard: i64, ends: Option<i64>| Interruption {
            kind: kind.to_owned(),
            heard: Timestamp(heard),
            ends: ends.map(Timestamp),
        };
        for (first_end, later, expected) in [
            (None, notice("scheduled_change", 1000, None), ("scheduled_change", 1000)),
            (None, notice(recommendation, 1000, None), (recommendation, 0)),
            (None, notice("spot_interrupted", 1000, Some(2000)), (recommendation, 0)),
            (Some(5000), notice("scheduled_change", 1000, None), (recommendation, 0)),
        ] {
            let mut claim = NodeClaim::new("claim", NodeClaimSpec::default());
            let first = notice(recommendation, 0, first_end);
            annotate(&mut claim, &first);
            annotate(&mut claim, &later);
            let known = notice_of(&claim).unwrap();
            assert_eq!((known.kind.as_str(), known.heard.0), expected, "{first:?} {later:?}");
            let is_recorded = stops_earlier(Some(&first), &later);
            assert_eq!(is_recorded, known != first, "a claim that is being deleted learns the same: {later:?}");
        }
    }

    #[test]
    fn a_claim_that_is_being_deleted_learns_only_of_a_near_end() {
        const MINUTE: i64 = 60_000;
        const HOUR: i64 = 60 * MINUTE;
        let notice = |heard: i64, ends: Option<i64>| Interruption {
            kind: "spot".to_owned(),
            heard: Timestamp(heard),
            ends: ends.map(Timestamp),
        };
        for (known, later, expected) in [
            (None, notice(1000, Some(2000)), true),
            (None, notice(1000, Some(1000)), false),
            (None, notice(1000, Some(1000 + 15 * MINUTE)), true),
            (None, notice(1000, Some(1000 + HOUR)), false),
            (None, notice(1000, Some(1000 + 21 * 24 * HOUR)), false),
            (None, notice(1000, None), false),
            (Some(notice(0, None)), notice(1000, Some(1000)), true),
            (Some(notice(0, Some(2000))), notice(1000, Some(1500)), true),
            (Some(notice(0, Some(2000))), notice(1000, Some(2000)), false),
            (Some(notice(0, Some(2000))), notice(1000, None), false),
        ] {
            assert_eq!(stops_earlier(known.as_ref(), &later), expected, "{known:?} {later:?}");
        }
    }

    #[test]
    fn events_are_about_the_claim_and_its_node() {
        let claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "claim"},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": []},
        }))
        .unwrap();
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "node"}})).unwrap();
        let kind = (Severity::Warning, reason::TERMINATING_ON_INTERRUPTION);
        let published = notes(&claim, &[Arc::new(node)], kind, "why");
        let about: Vec<_> = published.iter().filter_map(|note| note.object.kind.as_deref()).collect();
        assert_eq!(about, ["Node", "NodeClaim"]);
        assert!(published.iter().all(|note| (note.severity, note.reason) == kind && note.message == "why"));
    }
}
