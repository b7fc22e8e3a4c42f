//! What claims record of their launch group, and how a new leader restores it (safety rules 2 and 3).
//!
//! The attempt and the only copy of the launch request are on the group's *primary claim*, the claim with the first
//! name. It is written last: if it exists, all claims of the group were written; if not, nothing was ever sent.

use super::attempt::Attempt;
use crate::durable;
use crate::ports::FleetRequest;
use crate::state::launch_group::LaunchGroup;
use plimsoll_api::NodeClaim;
use plimsoll_model::identity::ActionId;
use plimsoll_model::names::annotation;
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;

/// A claim of a launch group.
#[derive(Debug, Clone)]
pub struct Member {
    /// The object as last seen or written.
    pub claim: NodeClaim,
    /// The action that created the claim.
    pub action: Option<ActionId>,
}

impl Member {
    /// Creates a member from an object.
    #[must_use]
    pub fn of(claim: NodeClaim) -> Self {
        let action = annotation(&claim, annotation::ACTION_ID).map(ActionId::from);
        Self { claim, action }
    }

    /// The claim's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.claim.metadata.name.as_deref().unwrap_or_default()
    }

    /// The instance id recorded on the claim, `i-...`.
    #[must_use]
    pub fn instance(&self) -> Option<&str> {
        let id = self.claim.status.as_ref()?.provider_id.as_deref()?;
        id.rsplit('/').next().filter(|id| !id.is_empty())
    }
}

/// A launch group with its request.
#[derive(Debug, Clone)]
pub struct Group {
    /// Id and size.
    pub group: LaunchGroup,
    /// The request.
    pub request: FleetRequest,
    /// Claims by name.
    pub members: BTreeMap<String, Member>,
    /// Correlation id of the planning cycle, for logs.
    pub cycle_id: String,
}

/// The state of a launch group in the cluster.
#[derive(Debug, Clone)]
pub enum GroupState {
    /// The group is complete and wanted. It may have been sent, and may be sent again.
    Whole(Box<Group>, Attempt),
    /// The primary claim was never written, so nothing was sent.
    Unsent(BTreeMap<String, Member>),
    /// The group may have been sent and must not be sent again: its instances are looked up by tag.
    LookUp {
        /// The group.
        group: LaunchGroup,
        /// Claims by name.
        members: BTreeMap<String, Member>,
        /// Why the request is not sent again.
        problem: String,
    },
}

/// An annotation of an object.
#[must_use]
pub fn annotation<'a>(claim: &'a NodeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The epoch of the leader that wrote a claim.
pub(crate) fn epoch_of(claim: &NodeClaim) -> Option<u64> {
    annotation(claim, annotation::EPOCH)?.parse().ok()
}

/// The launch group of a claim, if its annotation is present and readable.
#[must_use]
pub fn group_of(claim: &NodeClaim) -> Option<LaunchGroup> {
    durable::read(annotation(claim, annotation::LAUNCH_GROUP)?).ok()
}

/// Whether an attempt may be in progress for a claim: it belongs to a group and has no instance.
#[must_use]
pub fn awaits_instance(claim: &NodeClaim) -> bool {
    let provider_id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref());
    provider_id.is_none_or(str::is_empty) && annotation(claim, annotation::LAUNCH_GROUP).is_some()
}

/// The annotations of a primary claim.
#[must_use]
pub fn primary_annotations(request: &FleetRequest, attempt: &Attempt) -> BTreeMap<String, String> {
    // Cannot fail: ordered structs of strings and numbers.
    let text = durable::write(request).unwrap_or_default();
    [
        (annotation::LAUNCH_REQUEST, text),
        (annotation::LAUNCH_ATTEMPT, attempt.number.to_string()),
        (annotation::LAUNCH_STARTED, attempt.started.0.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// Restores a group from its claims; `members` must hold all that exist. `may_send_again` is the ledger's answer for a
/// claim by name.
#[must_use]
pub fn read(
    group: LaunchGroup,
    members: BTreeMap<String, Member>,
    cycle_id: &str,
    may_send_again: impl Fn(&str) -> bool,
) -> GroupState {
    let primary = members.values().find(|member| annotation(&member.claim, annotation::LAUNCH_ATTEMPT).is_some());
    let Some(primary) = primary else {
        // A claim with an instance proves that the request was sent, even without the primary claim.
        let sent = members.values().any(|member| member.instance().is_some());
        let problem = "its primary claim is gone".to_owned();
        return if sent { GroupState::LookUp { group, members, problem } } else { GroupState::Unsent(members) };
    };
    if let Some(problem) = unwanted(&group, &members, may_send_again) {
        return GroupState::LookUp { group, members, problem };
    }
    let claim = &primary.claim;
    let number = annotation(claim, annotation::LAUNCH_ATTEMPT).and_then(|text| text.parse().ok());
    let started = annotation(claim, annotation::LAUNCH_STARTED).and_then(|text| text.parse().ok());
    let request = annotation(claim, annotation::LAUNCH_REQUEST).map(durable::read::<FleetRequest>);
    match (number, started, request) {
        (Some(number), Some(started), Some(Ok(request))) => {
            let attempt = Attempt::resumed(number, Timestamp(started));
            GroupState::Whole(Box::new(Group { group, request, members, cycle_id: cycle_id.to_owned() }), attempt)
        }
        (_, _, Some(Err(error))) => {
            let problem = format!("NodeClaim {}: {}: {error}", primary.name(), annotation::LAUNCH_REQUEST);
            GroupState::LookUp { group, members, problem }
        }
        _ => {
            let problem = format!("NodeClaim {}: attempt, start or request is missing or wrong", primary.name());
            GroupState::LookUp { group, members, problem }
        }
    }
}

/// Why the request of a group, which covers all its claims, must not be sent again; `None` if it may be.
fn unwanted(
    group: &LaunchGroup,
    members: &BTreeMap<String, Member>,
    may_send_again: impl Fn(&str) -> bool,
) -> Option<String> {
    if u32::try_from(members.len()).ok() != Some(group.size) {
        return Some(format!("{} of its {} NodeClaims are there", members.len(), group.size));
    }
    if let Some(deleted) = members.values().find(|member| member.claim.metadata.deletion_timestamp.is_some()) {
        return Some(format!("NodeClaim {} is being deleted", deleted.name()));
    }
    // A claim with an instance was sent for; the ledger's answer matters only for claims without one.
    let stray = members.values().find(|member| member.instance().is_none() && !may_send_again(member.name()));
    stray.map(|member| format!("NodeClaim {} was written late or its launch has failed", member.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::CapacityType;

    fn member(name: &str, annotations: BTreeMap<String, String>, provider_id: Option<&str>) -> (String, Member) {
        let mut claim = NodeClaim::new(name, plimsoll_api::NodeClaimSpec::default());
        claim.metadata.annotations = Some(annotations);
        let provider_id = provider_id.map(str::to_owned);
        claim.status = Some(plimsoll_api::NodeClaimStatus { provider_id, ..Default::default() });
        (name.to_owned(), Member::of(claim))
    }

    fn group() -> LaunchGroup {
        LaunchGroup { id: "g".to_owned(), size: 2 }
    }

    fn request() -> FleetRequest {
        FleetRequest {
            client_token: "g-2".to_owned(),
            capacity_type: CapacityType::Spot,
            total_target_capacity: 2,
            launch_template_configs: Vec::new(),
            prioritized: false,
            context: None,
            tags: BTreeMap::new(),
        }
    }

    #[test]
    fn primary_claim_round_trips() {
        let attempt = Attempt { number: 2, started: Timestamp(7), maybe_bought: false, sent: 3 };
        let primary = member("a", primary_annotations(&request(), &attempt), None);
        let members = [primary, member("b", BTreeMap::new(), None)].into();
        let GroupState::Whole(found, resumed) = read(group(), members, "c", |_| true) else { panic!("not whole") };
        assert_eq!((found.request, found.members.len()), (request(), 2));
        assert_eq!(resumed, Attempt::resumed(2, Timestamp(7)));
    }

    #[test]
    fn group_without_primary_claim_is_unsent_unless_a_claim_has_an_instance() {
        let unsent = read(group(), [member("b", BTreeMap::new(), None)].into(), "c", |_| true);
        assert!(matches!(unsent, GroupState::Unsent(_)));
        let lost = read(
            group(),
            [member("b", BTreeMap::new(), Some("aws:///z/i-1")), member("c", BTreeMap::new(), None)].into(),
            "c",
            |_| true,
        );
        assert!(matches!(lost, GroupState::LookUp { .. }));
        let mut broken = primary_annotations(&request(), &Attempt::first(Timestamp(1)));
        broken.insert(annotation::LAUNCH_REQUEST.to_owned(), "{".to_owned());
        let members = [member("a", broken, None), member("b", BTreeMap::new(), None)].into();
        let read = read(group(), members, "c", |_| true);
        assert!(
            matches!(read, GroupState::LookUp { problem, .. } if problem.contains("NodeClaim a: plimsoll.dev/launch-request"))
        );
    }

    #[test]
    fn unwanted_group_is_looked_up_and_not_sent() {
        let primary = || member("a", primary_annotations(&request(), &Attempt::first(Timestamp(1))), None);
        let problem =
            |members: BTreeMap<String, Member>, may_send_again: bool| match read(group(), members, "c", |name| {
                name != "b" || may_send_again
            }) {
                GroupState::LookUp { problem, .. } => problem,
                other => panic!("not looked up: {other:?}"),
            };
        assert_eq!(problem([primary()].into(), true), "1 of its 2 NodeClaims are there");
        let mut deleted = member("b", BTreeMap::new(), None);
        deleted.1.claim.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(problem([primary(), deleted].into(), true), "NodeClaim b is being deleted");
        let late = problem([primary(), member("b", BTreeMap::new(), None)].into(), false);
        assert_eq!(late, "NodeClaim b was written late or its launch has failed");
        let bought = [primary(), member("b", BTreeMap::new(), Some("aws:///z/i-1"))].into();
        assert!(matches!(read(group(), bought, "c", |name| name != "b"), GroupState::Whole(..)));
    }
}
