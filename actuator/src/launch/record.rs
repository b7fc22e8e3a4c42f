//! What claims say of their launch group, and how a new leader reads it back (safety rules 2 and 3).
//!
//! The attempt and the one copy of the launch request are on the group's *keeper*, the claim whose name is first. It is
//! written last: where it is there, all claims of the group were, and where it is not, nothing was ever sent.

use super::attempt::Attempt;
use super::group::LaunchGroup;
use crate::ports::FleetRequest;
use plimsoll_api::NodeClaim;
use plimsoll_model::identity::ActionId;
use plimsoll_model::names::annotation;
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;

/// A claim of a group.
#[derive(Debug, Clone)]
pub struct Member {
    /// The object as it was last seen or written.
    pub claim: NodeClaim,
    /// The action that made it.
    pub action: Option<ActionId>,
}

impl Member {
    /// From an object.
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

    /// The instance that is written on it, `i-...`.
    #[must_use]
    pub fn instance(&self) -> Option<&str> {
        let id = self.claim.status.as_ref()?.provider_id.as_deref()?;
        id.rsplit('/').next().filter(|id| !id.is_empty())
    }
}

/// A group with all that is needed to buy it.
#[derive(Debug, Clone)]
pub struct Group {
    /// Id and size.
    pub group: LaunchGroup,
    /// What is sent.
    pub request: FleetRequest,
    /// Its claims by name.
    pub members: BTreeMap<String, Member>,
    /// Names the round in logs.
    pub cycle_id: String,
}

/// What is left of a group in the cluster.
#[derive(Debug, Clone)]
pub enum Found {
    /// It was written whole: it may have been sent.
    Whole(Box<Group>, Attempt),
    /// Its keeper was never written, so nothing was sent.
    Unsent(BTreeMap<String, Member>),
    /// Its keeper cannot be read: look up by tag only.
    Unreadable {
        /// The group.
        group: LaunchGroup,
        /// Its claims.
        members: BTreeMap<String, Member>,
        /// What is wrong.
        problem: String,
    },
}

/// An annotation of an object.
#[must_use]
pub fn annotation<'a>(claim: &'a NodeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The group that a claim belongs to, if it says so readably.
#[must_use]
pub fn group_of(claim: &NodeClaim) -> Option<LaunchGroup> {
    serde_json::from_str(annotation(claim, annotation::LAUNCH_GROUP)?).ok()
}

/// Whether an attempt is, or may be, under way for a claim: it belongs to a group and has no instance.
#[must_use]
pub fn awaits_instance(claim: &NodeClaim) -> bool {
    let provider_id = claim.status.as_ref().and_then(|status| status.provider_id.as_deref());
    provider_id.is_none_or(str::is_empty) && annotation(claim, annotation::LAUNCH_GROUP).is_some()
}

/// The annotations of a keeper.
#[must_use]
pub fn keeper_annotations(request: &FleetRequest, attempt: &Attempt) -> BTreeMap<String, String> {
    // Ordered structs of texts and numbers: nothing that could fail.
    let text = serde_json::to_string(request).unwrap_or_default();
    [
        (annotation::LAUNCH_REQUEST, text),
        (annotation::LAUNCH_ATTEMPT, attempt.number.to_string()),
        (annotation::LAUNCH_STARTED, attempt.started.0.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// Reads a group back from its claims, all those that are there.
#[must_use]
pub fn read(group: LaunchGroup, members: BTreeMap<String, Member>, cycle_id: &str) -> Found {
    let keeper = members.values().find(|member| annotation(&member.claim, annotation::LAUNCH_ATTEMPT).is_some());
    let Some(keeper) = keeper else {
        // A claim with an instance was sent for, whatever became of the keeper.
        let sent = members.values().any(|member| member.instance().is_some());
        let problem = "its keeper is gone".to_owned();
        return if sent { Found::Unreadable { group, members, problem } } else { Found::Unsent(members) };
    };
    let claim = &keeper.claim;
    let number = annotation(claim, annotation::LAUNCH_ATTEMPT).and_then(|text| text.parse().ok());
    let started = annotation(claim, annotation::LAUNCH_STARTED).and_then(|text| text.parse().ok());
    let request = annotation(claim, annotation::LAUNCH_REQUEST).map(serde_json::from_str::<FleetRequest>);
    match (number, started, request) {
        (Some(number), Some(started), Some(Ok(request))) => {
            let attempt = Attempt::resumed(number, Timestamp(started));
            Found::Whole(Box::new(Group { group, request, members, cycle_id: cycle_id.to_owned() }), attempt)
        }
        (_, _, Some(Err(error))) => {
            let problem = format!("NodeClaim {}: {}: {error}", keeper.name(), annotation::LAUNCH_REQUEST);
            Found::Unreadable { group, members, problem }
        }
        _ => {
            let problem = format!("NodeClaim {}: attempt, start or request is missing or wrong", keeper.name());
            Found::Unreadable { group, members, problem }
        }
    }
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
    fn what_a_keeper_says_is_read_back_as_it_was() {
        let attempt = Attempt { number: 2, started: Timestamp(7), maybe_bought: false, sent: 3 };
        let keeper = member("a", keeper_annotations(&request(), &attempt), None);
        let Found::Whole(found, resumed) = read(group(), [keeper, member("b", BTreeMap::new(), None)].into(), "c")
        else {
            panic!("not whole")
        };
        assert_eq!((found.request, found.members.len()), (request(), 2));
        assert_eq!(resumed, Attempt::resumed(2, Timestamp(7)));
    }

    #[test]
    fn a_group_without_keeper_was_never_sent_unless_an_instance_says_otherwise() {
        let unsent = read(group(), [member("b", BTreeMap::new(), None)].into(), "c");
        assert!(matches!(unsent, Found::Unsent(_)));
        let lost = read(
            group(),
            [member("b", BTreeMap::new(), Some("aws:///z/i-1")), member("c", BTreeMap::new(), None)].into(),
            "c",
        );
        assert!(matches!(lost, Found::Unreadable { .. }));
        let mut broken = keeper_annotations(&request(), &Attempt::first(Timestamp(1)));
        broken.insert(annotation::LAUNCH_REQUEST.to_owned(), "{".to_owned());
        assert!(matches!(read(group(), [member("a", broken, None)].into(), "c"), Found::Unreadable { .. }));
    }
}
