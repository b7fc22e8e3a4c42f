//! The next step of a claim between launch and initialization. Pure functions.

use super::node::{self, MissingPrerequisite};
use super::partition;
use crate::launch::record::group_of;
use crate::ledger::failures::{INITIALIZATION_TIMEOUT, NOT_REGISTERED};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::condition::node_claim::{CONDITIONS, INITIALIZATION_TIMED_OUT, INITIALIZED, LAUNCHED, REGISTERED};
use plimsoll_api::condition::{self, Moment, Status};
use plimsoll_api::{NodeClaim, NodeClaimStatus};

/// A claim without an instance is deleted after this time.
pub const LAUNCH_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);
/// A claim without a Node is deleted after this time.
pub const REGISTRATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(15);

/// A snapshot of a claim and the Nodes of its instance.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// The claim, which is not being deleted.
    pub claim: &'a NodeClaim,
    /// Nodes whose providerID is the claim's.
    pub nodes: &'a [&'a Node],
    /// Whether the node belongs to a NodePool that plans know, or knew until recently.
    pub has_pool: bool,
    /// The current time.
    pub now: Timestamp,
}

/// Which timeout a claim exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedOut {
    /// The claim was not launched in time.
    Launch,
    /// The Node did not register in time.
    Registration,
}

impl TimedOut {
    /// The label value in metrics and the cause in the ledger.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Launch => "launch_timeout",
            Self::Registration => NOT_REGISTERED,
        }
    }
}

/// The next step: update the Node first, then the claim's status.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// Desired Node; `None` if it is already so.
    pub node: Option<Node>,
    /// The Node registered without the taint that keeps pods away, so unsuitable pods may be on it.
    pub taint_was_missing: bool,
    /// Desired status; `None` if it is already so.
    pub status: Option<NodeClaimStatus>,
    /// Conditions that become true.
    pub reached: Vec<&'static str>,
    /// The Node waits for the end of a taint that the claim does not declare: what to tell the user.
    pub undeclared_taint: Option<String>,
    /// What the Node still lacks as the time for its initialization ends. The claim stays, since pods may run there.
    pub not_initialized: Option<String>,
    /// The claim exceeded a timeout and is to be deleted.
    pub timed_out: Option<TimedOut>,
    /// The node belongs to no NodePool that plans know, and the claim has reached its `expireAfter`: it is to be
    /// deleted. Plans replace expired nodes of NodePools.
    pub expired: bool,
    /// Registration waits for the partition that EC2 has chosen.
    pub needs_partition: bool,
    /// When time alone may change the step.
    pub look_again: Option<Timestamp>,
}

impl Step {
    fn look_again_at(&mut self, time: Timestamp) {
        self.look_again = Some(self.look_again.map_or(time, |earlier| earlier.min(time)));
    }
}

/// Computes the next step.
#[must_use]
pub fn next(observed: &Observation<'_>) -> Step {
    let moment = Moment::of(&observed.claim.metadata, observed.now);
    let old = observed.claim.status.clone().unwrap_or_default();
    let mut status = old.clone();
    let mut step = Step::default();
    CONDITIONS.initialize(&mut status.conditions, moment);
    if condition::is_true(&status.conditions, LAUNCHED) {
        register(observed, moment, &mut status, &mut step);
        initialize(observed, moment, &mut status, &mut step);
    }
    live(observed.claim, &status, observed.now, &mut step);
    expire(observed, &mut step);
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

fn register(observed: &Observation<'_>, moment: Moment, status: &mut NodeClaimStatus, step: &mut Step) {
    let state = condition::get(&status.conditions, REGISTERED).map(|condition| condition.status.as_str());
    if matches!(state, Some("True" | "False")) {
        return;
    }
    match observed.nodes {
        [] => unknown(status, moment, REGISTERED, "NodeNotFound", "the instance has not registered as a Node yet"),
        [_] if partition::is_missing(observed.claim) => {
            let message = "EC2 has not said yet in which partition of its placement group the instance is";
            unknown(status, moment, REGISTERED, "PlacementGroupPartitionUnknown", message);
            step.needs_partition = true;
        }
        [node] => {
            let desired = node::registered(node, observed.claim);
            step.taint_was_missing = node::lacks_unregistered_taint(node);
            step.node = (desired != **node).then_some(desired);
            status.node_name.clone_from(&node.metadata.name);
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

fn initialize(observed: &Observation<'_>, moment: Moment, status: &mut NodeClaimStatus, step: &mut Step) {
    let registered = condition::get_true(&status.conditions, REGISTERED).map(|it| it.last_transition_time.0);
    let Some(registered) = registered.filter(|_| !condition::is_true(&status.conditions, INITIALIZED)) else { return };
    // An instance with several Nodes is never registered, so there is at most one.
    let Some(current) = step.node.as_ref().or_else(|| observed.nodes.first().copied()) else {
        unknown(status, moment, INITIALIZED, "NodeNotFound", "Node not found");
        return;
    };
    if let Some(missing) = node::missing_prerequisite(current, observed.claim, registered, observed.now) {
        let (reason, message) = (missing.reason(), missing.to_string());
        unknown(status, moment, INITIALIZED, reason, &message);
        if let MissingPrerequisite::UndeclaredTaint { until, .. } = missing {
            step.look_again_at(until);
            step.undeclared_taint = Some(message.clone());
        }
        let until = registered.saturating_add(INITIALIZATION_TIMEOUT).unwrap_or(Timestamp::MAX);
        if until > observed.now {
            step.look_again_at(until);
        } else if !condition::is_true(&status.conditions, INITIALIZATION_TIMED_OUT) {
            CONDITIONS.set(&mut status.conditions, moment, INITIALIZATION_TIMED_OUT, Status::True, reason, &message);
            step.not_initialized = Some(message);
        }
        return;
    }
    let desired = node::initialized(current);
    if observed.nodes.first().is_some_and(|node| **node != desired) {
        step.node = Some(desired);
    }
    CONDITIONS.set_true(&mut status.conditions, moment, INITIALIZED);
    status.conditions.retain(|condition| condition.type_ != INITIALIZATION_TIMED_OUT);
}

fn live(claim: &NodeClaim, status: &NodeClaimStatus, now: Timestamp, step: &mut Step) {
    // The launcher decides about claims of a launch group: it adopts instances or fails the claims. A claim whose group
    // is unreadable times out like any other.
    let of_group = group_of(claim).is_some();
    let launched = condition::get(&status.conditions, LAUNCHED);
    let has_instance = launched.filter(|condition| condition.status == "True").map(|it| it.last_transition_time.0);
    if of_group && has_instance.is_none() {
        return;
    }
    let waiting =
        [(LAUNCHED, LAUNCH_TIMEOUT, TimedOut::Launch), (REGISTERED, REGISTRATION_TIMEOUT, TimedOut::Registration)];
    for (name, limit, timed_out) in waiting {
        let Some(condition) = condition::get(&status.conditions, name).filter(|condition| condition.status != "True")
        else {
            continue;
        };
        // A launch that EC2 throttles may take minutes. The instance boots only then.
        let since = has_instance.into_iter().fold(condition.last_transition_time.0, Timestamp::max);
        let until = since.saturating_add(limit).unwrap_or(Timestamp::MAX);
        if until <= now {
            step.timed_out = step.timed_out.or(Some(timed_out));
        } else {
            step.look_again_at(until);
        }
    }
}

fn expire(observed: &Observation<'_>, step: &mut Step) {
    let &Observation { claim, has_pool, now, .. } = observed;
    let after = claim.spec.expire_after().value().filter(|_| !has_pool);
    let created = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let Some((after, created)) = after.zip(created) else { return };
    // An age beyond the calendar is never reached.
    let Ok(until) = created.checked_add(after) else { return };
    if until <= now { step.expired = true } else { step.look_again_at(until) }
}
