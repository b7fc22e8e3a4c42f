//! What claims record of their launch group, and how a new leader restores it (safety rules 2 and 3).
//!
//! The attempt and the only copy of the launch request are on the group's *primary claim*, the claim with the first
//! name. It is written last: if it exists, all claims of the group were written; if not, nothing was ever sent.

use super::LaunchGroup;
use super::attempt::Attempt;
use crate::durable;
use crate::ports::FleetRequest;
use crate::state::launch_group::GroupKey;
use plimsoll_api::NodeClaim;
use plimsoll_model::identity::ActionId;
use plimsoll_model::names::{annotation, label};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;

/// How an unfinished group goes on.
#[derive(Debug, Clone)]
pub enum Resumption {
    /// The group is complete and wanted. Its attempt may have been sent, and may be sent again.
    Send(Box<Attempt>),
    /// The primary claim was never written, so nothing was sent: the claims are deleted.
    Abandon,
    /// The group may have been sent and must not be sent again: its instances are looked up by tag.
    LookUp {
        /// Why the request is not sent again.
        problem: String,
    },
}

/// The name of a claim.
#[must_use]
pub fn name(claim: &NodeClaim) -> &str {
    claim.metadata.name.as_deref().unwrap_or_default()
}

/// The instance id recorded on a claim, `i-...`.
#[must_use]
pub fn instance(claim: &NodeClaim) -> Option<&str> {
    claim.provider_id()?.rsplit('/').next().filter(|id| !id.is_empty())
}

/// The action that created a claim.
#[must_use]
pub fn action(claim: &NodeClaim) -> Option<ActionId> {
    annotation(claim, annotation::ACTION_ID).map(ActionId::from)
}

/// Whether a claim is the primary claim of its group.
#[must_use]
pub fn is_primary(claim: &NodeClaim) -> bool {
    annotation(claim, annotation::LAUNCH_ATTEMPT).is_some()
}

/// An annotation of an object.
#[must_use]
pub fn annotation<'a>(claim: &'a NodeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether a claim is being removed: it is marked for its removal or because of an interruption, or is being deleted.
pub(crate) fn is_leaving(claim: &NodeClaim) -> bool {
    let is_marked = |key| annotation(claim, key).is_some();
    claim.metadata.deletion_timestamp.is_some() || is_marked(annotation::REMOVAL) || is_marked(annotation::INTERRUPTED)
}

/// Id of the placement group that the claim's instance is launched in.
pub(crate) fn placement_group(claim: &NodeClaim) -> Option<&str> {
    let id = claim.metadata.labels.as_ref()?.get(label::PLACEMENT_GROUP_ID)?;
    Some(id.as_str()).filter(|id| !id.is_empty())
}

/// The epoch of the leader that wrote a claim.
pub(crate) fn epoch_of(claim: &NodeClaim) -> Option<u64> {
    annotation(claim, annotation::EPOCH)?.parse().ok()
}

/// The launch group of a claim, if its annotation is present and readable.
#[must_use]
pub fn group_of(claim: &NodeClaim) -> Option<GroupKey> {
    durable::read(annotation(claim, annotation::LAUNCH_GROUP)?).ok()
}

/// Whether an attempt may be in progress for a claim: it belongs to a group and has no instance.
#[must_use]
pub fn awaits_instance(claim: &NodeClaim) -> bool {
    claim.provider_id().is_none() && annotation(claim, annotation::LAUNCH_GROUP).is_some()
}

/// The annotations of a primary claim.
#[must_use]
pub fn primary_annotations(attempt: &Attempt) -> BTreeMap<String, String> {
    // Cannot fail: ordered structs of strings and numbers.
    let text = durable::write(&attempt.request).unwrap_or_default();
    [
        (annotation::LAUNCH_REQUEST, text),
        (annotation::LAUNCH_ATTEMPT, attempt.number.to_string()),
        (annotation::LAUNCH_STARTED, attempt.started.0.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// How a group goes on; it must hold all its claims that exist. `may_send_again` is the ledger's answer for a claim by
/// name.
#[must_use]
pub fn read(group: &LaunchGroup, may_send_again: impl Fn(&str) -> bool) -> Resumption {
    let Some(primary) = group.primary() else {
        // A claim with an instance proves that the request was sent, even without the primary claim.
        let sent = group.claims.values().any(|claim| instance(claim).is_some());
        let problem = "its primary claim is gone".to_owned();
        return if sent { Resumption::LookUp { problem } } else { Resumption::Abandon };
    };
    if let Some(problem) = unwanted(group, may_send_again) {
        return Resumption::LookUp { problem };
    }
    let number = annotation(primary, annotation::LAUNCH_ATTEMPT).and_then(|text| text.parse().ok());
    let started = annotation(primary, annotation::LAUNCH_STARTED).and_then(|text| text.parse().ok());
    let request = annotation(primary, annotation::LAUNCH_REQUEST).map(durable::read::<FleetRequest>);
    let problem = match (number, started, request) {
        (Some(number), Some(started), Some(Ok(request))) => {
            return Resumption::Send(Box::new(Attempt::resumed(request, number, Timestamp(started))));
        }
        (_, _, Some(Err(error))) => format!("{}: {error}", annotation::LAUNCH_REQUEST),
        _ => "attempt, start or request is missing or wrong".to_owned(),
    };
    Resumption::LookUp { problem: format!("NodeClaim {}: {problem}", name(primary)) }
}

/// Why the request of a group, which covers all its claims, must not be sent again; `None` if it may be.
fn unwanted(group: &LaunchGroup, may_send_again: impl Fn(&str) -> bool) -> Option<String> {
    if u32::try_from(group.claims.len()).ok() != Some(group.key.size) {
        return Some(format!("{} of its {} NodeClaims are there", group.claims.len(), group.key.size));
    }
    if let Some(deleted) = group.claims.values().find(|claim| claim.metadata.deletion_timestamp.is_some()) {
        return Some(format!("NodeClaim {} is being deleted", name(deleted)));
    }
    // A claim with an instance was sent for; the ledger's answer matters only for claims without one.
    let stray = group.claims.values().find(|claim| instance(claim).is_none() && !may_send_again(name(claim)));
    stray.map(|claim| format!("NodeClaim {} was written late or its launch has failed", name(claim)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::CapacityType;

    fn claim(name: &str, annotations: BTreeMap<String, String>, provider_id: Option<&str>) -> NodeClaim {
        let mut claim = NodeClaim::new(name, plimsoll_api::NodeClaimSpec::default());
        claim.metadata.annotations = Some(annotations);
        let provider_id = provider_id.map(str::to_owned);
        claim.status = Some(plimsoll_api::NodeClaimStatus { provider_id, ..Default::default() });
        claim
    }

    fn plain(name: &str, provider_id: Option<&str>) -> NodeClaim {
        claim(name, BTreeMap::new(), provider_id)
    }

    /// A group of two, of which these claims exist.
    fn group(claims: impl IntoIterator<Item = NodeClaim>) -> LaunchGroup {
        let claims = claims.into_iter().map(|claim| (name(&claim).to_owned(), claim)).collect();
        let key = GroupKey { id: "g".to_owned(), size: 2 };
        LaunchGroup { key, claims, held: BTreeMap::new(), cycle_id: "c".to_owned() }
    }

    fn attempt() -> Attempt {
        let request = FleetRequest {
            client_token: "g-2".to_owned(),
            capacity_type: CapacityType::Spot,
            total_target_capacity: 2,
            ..FleetRequest::default()
        };
        Attempt { number: 2, started: Timestamp(7), sent: 3, throttled: 1, ..Attempt::first(request, Timestamp(0)) }
    }

    #[test]
    fn a_claim_of_a_group_awaits_an_instance_until_it_has_one() {
        let of_group = || BTreeMap::from([(annotation::LAUNCH_GROUP.to_owned(), "g".to_owned())]);
        assert!(awaits_instance(&claim("a", of_group(), None)));
        assert!(awaits_instance(&claim("a", of_group(), Some(""))));
        assert!(!awaits_instance(&claim("a", of_group(), Some("aws:///z/i-1"))));
        assert!(!awaits_instance(&plain("a", None)), "nobody launches it");
    }

    #[test]
    fn a_claim_that_is_marked_or_being_deleted_is_leaving() {
        let mut claims = vec![plain("a", None)];
        assert!(!is_leaving(&claims[0]));
        claims[0].metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        let marked = |key: &str| claim("a", [(key.to_owned(), String::new())].into(), None);
        claims.extend([annotation::REMOVAL, annotation::INTERRUPTED].map(marked));
        assert!(claims.iter().all(is_leaving));
    }

    #[test]
    fn what_is_written_to_a_claim_is_read() {
        let mut claim = plain("a", Some("aws:///z/i-1"));
        assert_eq!((instance(&claim), placement_group(&claim), epoch_of(&claim)), (Some("i-1"), None, None));
        let annotations = [(annotation::EPOCH, "3"), (annotation::LAUNCH_GROUP, r#"{"v":1,"id":"g","size":2}"#)];
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned()));
        claim.metadata.annotations = Some(annotations.into());
        assert_eq!(group_of(&claim), Some(GroupKey { id: "g".to_owned(), size: 2 }));
        assert_eq!(epoch_of(&claim), Some(3));
        for (id, expected) in [("pg-1", Some("pg-1")), ("", None)] {
            claim.metadata.labels = Some([(label::PLACEMENT_GROUP_ID.to_owned(), id.to_owned())].into());
            assert_eq!(placement_group(&claim), expected);
        }
        assert_eq!(instance(&plain("a", Some("aws:///z/"))), None);
    }

    #[test]
    fn primary_claim_round_trips() {
        let attempt = attempt();
        let group = group([claim("a", primary_annotations(&attempt), None), plain("b", None)]);
        let Resumption::Send(resumed) = read(&group, |_| true) else { panic!("not sent") };
        assert_eq!(*resumed, Attempt::resumed(attempt.request, 2, Timestamp(7)));
    }

    #[test]
    fn group_without_primary_claim_is_abandoned_unless_a_claim_has_an_instance() {
        let unsent = read(&group([plain("b", None)]), |_| true);
        assert!(matches!(unsent, Resumption::Abandon));
        let lost = read(&group([plain("b", Some("aws:///z/i-1")), plain("c", None)]), |_| true);
        assert!(matches!(lost, Resumption::LookUp { .. }));
        let mut broken = primary_annotations(&attempt());
        broken.insert(annotation::LAUNCH_REQUEST.to_owned(), "{".to_owned());
        let read = read(&group([claim("a", broken, None), plain("b", None)]), |_| true);
        assert!(
            matches!(read, Resumption::LookUp { problem, .. } if problem.contains("NodeClaim a: plimsoll.dev/launch-request"))
        );
    }

    #[test]
    fn unwanted_group_is_looked_up_and_not_sent() {
        let primary = || claim("a", primary_annotations(&attempt()), None);
        let problem =
            |group: LaunchGroup, may_send_again: bool| match read(&group, |name| name != "b" || may_send_again) {
                Resumption::LookUp { problem, .. } => problem,
                other => panic!("not looked up: {other:?}"),
            };
        assert_eq!(problem(group([primary()]), true), "1 of its 2 NodeClaims are there");
        let mut deleted = plain("b", None);
        deleted.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(problem(group([primary(), deleted]), true), "NodeClaim b is being deleted");
        let late = problem(group([primary(), plain("b", None)]), false);
        assert_eq!(late, "NodeClaim b was written late or its launch has failed");
        let bought = group([primary(), plain("b", Some("aws:///z/i-1"))]);
        assert!(matches!(read(&bought, |name| name != "b"), Resumption::Send(..)));
    }
}
