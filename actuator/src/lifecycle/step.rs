//! What a claim's next step is, from its launch until its node is in service (spec: core section 6.1). Pure.

use super::node;
use crate::launch::record::group_of;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::condition::node_claim::{CONDITIONS, INITIALIZED, LAUNCHED, REGISTERED};
use plimsoll_api::condition::{self, Moment, Status};
use plimsoll_api::{NodeClaim, NodeClaimStatus};

/// A claim without instance after so long is given up.
pub const LAUNCH_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);
/// A claim without Node after so long is given up.
pub const REGISTRATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(15);

/// A claim and the Nodes of its instance, at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// The claim; not being deleted.
    pub claim: &'a NodeClaim,
    /// Nodes whose providerID is the claim's.
    pub nodes: &'a [&'a Node],
    /// The time.
    pub now: Timestamp,
}

/// Why a claim is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedOut {
    /// No instance came.
    Launch,
    /// No Node came.
    Registration,
}

impl TimedOut {
    /// The word in metrics and in the ledger.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Launch => "launch_timeout",
            Self::Registration => "registration_timeout",
        }
    }
}

/// What to do: the Node first, then the claim's status.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// The Node as it should be, if that is not what it is.
    pub node: Option<Node>,
    /// The Node came without the taint that keeps pods away until it is known: pods may be on it that do not belong there.
    pub taint_was_missing: bool,
    /// The status as it should be, if that is not what it is.
    pub status: Option<NodeClaimStatus>,
    /// Conditions that become true.
    pub reached: Vec<&'static str>,
    /// The claim is given up: it is to be deleted.
    pub timed_out: Option<TimedOut>,
    /// When time alone may change this.
    pub look_again: Option<Timestamp>,
}

/// The next step.
#[must_use]
pub fn next(seen: &Observation<'_>) -> Step {
    let moment = Moment::of(&seen.claim.metadata, seen.now);
    let old = seen.claim.status.clone().unwrap_or_default();
    let mut status = old.clone();
    let mut step = Step::default();
    CONDITIONS.initialize(&mut status.conditions, moment);
    if condition::is_true(&status.conditions, LAUNCHED) {
        register(seen, moment, &mut status, &mut step);
        initialize(seen, moment, &mut status, &mut step);
    }
    live(seen.claim, &status, seen.now, &mut step);
    for name in [REGISTERED, INITIALIZED] {
        if condition::is_true(&status.conditions, name) && !condition::is_true(&old.conditions, name) {
            step.reached.push(name);
        }
    }
    step.status = (status != old).then_some(status);
    step
}

fn unknown(status: &mut NodeClaimStatus, moment: Moment, name: &str, reason: &str, message: &str) {
    CONDITIONS.set(&mut status.conditions, moment, name, Status::Unknown, reason, message);
}

fn register(seen: &Observation<'_>, moment: Moment, status: &mut NodeClaimStatus, step: &mut Step) {
    let state = condition::get(&status.conditions, REGISTERED).map(|condition| condition.status.as_str());
    if matches!(state, Some("True" | "False")) {
        return;
    }
    match seen.nodes {
        [] => unknown(status, moment, REGISTERED, "NodeNotFound", "the instance has not become a Node yet"),
        [found] => {
            let wanted = node::registered(found, seen.claim);
            step.taint_was_missing = node::lacks_unregistered_taint(found);
            step.node = (wanted != **found).then_some(wanted);
            status.node_name.clone_from(&found.metadata.name);
            CONDITIONS.set_true(&mut status.conditions, moment, REGISTERED);
        }
        several => {
            let names: Vec<&str> = several.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
            let message = format!("Nodes {} all have this claim's providerID", names.join(", "));
            let reason = "MultipleNodesFound";
            CONDITIONS.set(&mut status.conditions, moment, REGISTERED, Status::False, reason, &message);
        }
    }
}

fn initialize(seen: &Observation<'_>, moment: Moment, status: &mut NodeClaimStatus, step: &mut Step) {
    if !condition::is_true(&status.conditions, REGISTERED) || condition::is_true(&status.conditions, INITIALIZED) {
        return;
    }
    // Several Nodes of one instance were never registered, so there is at most one.
    let Some(found) = step.node.as_ref().or_else(|| seen.nodes.first().copied()) else {
        unknown(status, moment, INITIALIZED, "NodeNotFound", "the Node is gone");
        return;
    };
    if let Some(lack) = node::lacks(found, seen.claim) {
        unknown(status, moment, INITIALIZED, lack.reason(), &lack.to_string());
        return;
    }
    let wanted = node::initialized(found);
    if seen.nodes.first().is_some_and(|node| **node != wanted) {
        step.node = Some(wanted);
    }
    CONDITIONS.set_true(&mut status.conditions, moment, INITIALIZED);
}

fn live(claim: &NodeClaim, status: &NodeClaimStatus, now: Timestamp, step: &mut Step) {
    // What was or was not bought for a launch group is found out by whoever launches it, who adopts or fails its claims.
    // One whose group cannot be read is nobody's, and times out as any other.
    let of_group = group_of(claim).is_some();
    let waiting =
        [(LAUNCHED, LAUNCH_TIMEOUT, TimedOut::Launch), (REGISTERED, REGISTRATION_TIMEOUT, TimedOut::Registration)];
    for (name, limit, timed_out) in waiting {
        let Some(found) = condition::get(&status.conditions, name).filter(|found| found.status != "True") else {
            continue;
        };
        if of_group && timed_out == TimedOut::Launch {
            continue;
        }
        let until = found.last_transition_time.0.saturating_add(limit).unwrap_or(Timestamp::MAX);
        if until <= now {
            step.timed_out = step.timed_out.or(Some(timed_out));
        } else {
            step.look_again = Some(step.look_again.map_or(until, |earlier| earlier.min(until)));
        }
    }
}
