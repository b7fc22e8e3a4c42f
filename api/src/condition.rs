//! Status conditions: how they are set, and how `Ready` is computed from the others.
//!
//! Each kind has a root condition, dependents from which the root is computed, and independent conditions. Times are
//! truncated to seconds, as in Kubernetes.

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};

/// The root condition of every kind.
pub const READY: &str = "Ready";
/// Reason of a dependent that no controller has evaluated yet.
pub const AWAITING_RECONCILIATION: &str = "AwaitingReconciliation";
/// Reason of a root with a false dependent.
pub const UNHEALTHY_DEPENDENTS: &str = "UnhealthyDependents";
/// Reason of a root with a dependent that is unknown or outdated.
pub const RECONCILING_DEPENDENTS: &str = "ReconcilingDependents";

/// Conditions of a NodePool.
pub mod node_pool {
    /// The pool is valid.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// The pool's node class exists and is ready.
    pub const NODE_CLASS_READY: &str = "NodeClassReady";
    /// Recent instances of the pool have registered as nodes. Independent.
    pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";
    /// The replacement of the pool's drifted nodes goes on. Independent; specific to Plimsoll.
    pub const ROLLOUT_PROGRESSING: &str = "RolloutProgressing";
    /// Another autoscaler is active, so the pool is paused. Independent; specific to Plimsoll.
    pub const PAUSED: &str = "Paused";
    /// Dependents of `Ready`.
    pub const CONDITIONS: super::ConditionSet =
        super::ConditionSet { dependents: &[VALIDATION_SUCCEEDED, NODE_CLASS_READY] };
}

/// Conditions of a NodeClaim.
pub mod node_claim {
    /// The instance exists.
    pub const LAUNCHED: &str = "Launched";
    /// The Node exists.
    pub const REGISTERED: &str = "Registered";
    /// The Node has everything that the claim requires.
    pub const INITIALIZED: &str = "Initialized";
    /// The Node was not initialized in time and is not waited for. Independent; specific to Plimsoll.
    pub const INITIALIZATION_TIMED_OUT: &str = "InitializationTimedOut";
    /// The node may be consolidated. Independent.
    pub const CONSOLIDATABLE: &str = "Consolidatable";
    /// The node differs from its current spec. Independent.
    pub const DRIFTED: &str = "Drifted";
    /// The node has been drained. Independent.
    pub const DRAINED: &str = "Drained";
    /// The node's volumes are detached. Independent.
    pub const VOLUMES_DETACHED: &str = "VolumesDetached";
    /// The instance is being terminated. Independent.
    pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
    /// The node is consistent with the claim. Independent.
    pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
    /// Reason of the node's disruption. Independent.
    pub const DISRUPTION_REASON: &str = "DisruptionReason";
    /// Dependents of `Ready`.
    pub const CONDITIONS: super::ConditionSet =
        super::ConditionSet { dependents: &[LAUNCHED, REGISTERED, INITIALIZED] };
}

/// Conditions of a NodeOverlay.
pub mod node_overlay {
    /// The overlay is valid and does not conflict with another overlay.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// Dependents of `Ready`.
    pub const CONDITIONS: super::ConditionSet = super::ConditionSet { dependents: &[VALIDATION_SUCCEEDED] };
}

/// Conditions of an EC2NodeClass.
pub mod ec2_node_class {
    /// Images were found.
    pub const AMIS_READY: &str = "AMIsReady";
    /// Subnets were found.
    pub const SUBNETS_READY: &str = "SubnetsReady";
    /// Security groups were found.
    pub const SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
    /// The instance profile exists.
    pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
    /// The settings are valid and accepted by EC2.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// The placement group was found, if one is configured.
    pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
    /// Capacity reservations have been looked up.
    pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";
    /// Dependents of `Ready`.
    pub const CONDITIONS: super::ConditionSet = super::ConditionSet {
        dependents: &[
            AMIS_READY,
            SUBNETS_READY,
            SECURITY_GROUPS_READY,
            INSTANCE_PROFILE_READY,
            VALIDATION_SUCCEEDED,
            PLACEMENT_GROUP_READY,
        ],
    };
    /// Dependents of `Ready` if capacity reservations are used.
    pub const CONDITIONS_WITH_RESERVATIONS: super::ConditionSet = super::ConditionSet {
        dependents: &[
            AMIS_READY,
            SUBNETS_READY,
            SECURITY_GROUPS_READY,
            INSTANCE_PROFILE_READY,
            VALIDATION_SUCCEEDED,
            PLACEMENT_GROUP_READY,
            CAPACITY_RESERVATIONS_READY,
        ],
    };
}

/// Conditions of a CapacityBuffer, which has no root condition.
pub mod capacity_buffer {
    /// The buffer is resolved.
    pub const READY_FOR_PROVISIONING: &str = "ReadyForProvisioning";
    /// The capacity exists.
    pub const PROVISIONING: &str = "Provisioning";
    /// All conditions are independent.
    pub const CONDITIONS: super::ConditionSet = super::ConditionSet { dependents: &[] };
}

/// Conditions of CapacityQuotas, as Cluster Autoscaler publishes them. There is no root condition.
pub mod capacity_quota {
    /// All fields can be read, so the quota limits nodes.
    pub const VALID: &str = "Valid";
    /// All conditions are independent.
    pub const CONDITIONS: super::ConditionSet = super::ConditionSet { dependents: &[] };
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// It is unknown whether the condition holds.
    Unknown,
}

impl Status {
    /// Value in the object.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Object metadata and time that conditions depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// `metadata.generation` of the object.
    pub generation: i64,
    /// Creation time of the object.
    pub created: Timestamp,
    /// Whether the object is being deleted.
    pub deleting: bool,
    /// Current time.
    pub now: Timestamp,
}

impl Moment {
    /// Creates the value for an object. An object without creation timestamp counts as created now.
    #[must_use]
    pub fn of(metadata: &ObjectMeta, now: Timestamp) -> Self {
        Self {
            generation: metadata.generation.unwrap_or(0),
            created: metadata.creation_timestamp.as_ref().map_or(now, |time| time.0),
            deleting: metadata.deletion_timestamp.is_some(),
            now,
        }
    }
}

/// Error of clearing a dependent, which the root needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("condition {0} is one that Ready follows from and cannot be cleared")]
pub struct ClearError(pub String);

/// The root condition of a kind and its dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionSet {
    /// Conditions that determine `Ready`.
    pub dependents: &'static [&'static str],
}

impl ConditionSet {
    /// Adds missing dependents and the root as unknown since the object's creation. Returns whether anything changed.
    pub fn initialize(&self, conditions: &mut Vec<Condition>, moment: Moment) -> bool {
        let mut changed = false;
        for name in self.dependents.iter().chain([&READY]) {
            if get(conditions, name).is_none() {
                let message = "the object has not been looked at yet";
                changed |= self.upsert(conditions, moment, name, Status::Unknown, AWAITING_RECONCILIATION, message);
            }
        }
        changed
    }

    /// Sets a condition and recomputes the root. Returns whether anything changed.
    pub fn set(
        &self,
        conditions: &mut Vec<Condition>,
        moment: Moment,
        name: &str,
        status: Status,
        reason: &str,
        message: &str,
    ) -> bool {
        let mut changed = self.initialize(conditions, moment);
        changed |= self.upsert(conditions, moment, name, status, reason, message);
        if name != READY {
            changed |= self.recompute_root(conditions, moment);
        }
        changed
    }

    /// Sets a condition to true, with its name as reason. Returns whether anything changed.
    pub fn set_true(&self, conditions: &mut Vec<Condition>, moment: Moment, name: &str) -> bool {
        self.set(conditions, moment, name, Status::True, name, "")
    }

    /// Removes an independent condition. Returns whether it existed.
    pub fn clear(&self, conditions: &mut Vec<Condition>, moment: Moment, name: &str) -> Result<bool, ClearError> {
        if name == READY || self.dependents.contains(&name) {
            return Err(ClearError(name.to_owned()));
        }
        let before = conditions.len();
        conditions.retain(|condition| condition.type_ != name);
        let cleared = conditions.len() != before;
        if cleared {
            self.recompute_root(conditions, moment);
        }
        Ok(cleared)
    }

    /// Sets a condition of a kind without root. Returns whether anything changed.
    pub fn set_alone(
        &self,
        conditions: &mut Vec<Condition>,
        moment: Moment,
        name: &str,
        status: Status,
        reason: &str,
        message: &str,
    ) -> bool {
        self.upsert(conditions, moment, name, status, reason, message)
    }

    fn upsert(
        &self,
        conditions: &mut Vec<Condition>,
        moment: Moment,
        name: &str,
        status: Status,
        reason: &str,
        message: &str,
    ) -> bool {
        let existing = get(conditions, name);
        let last_transition_time = match existing {
            Some(existing) if existing.status == status.as_str() => existing.last_transition_time.clone(),
            Some(_) => seconds(moment.now),
            // A dependent has had its initial state since the object was created.
            None if self.dependents.contains(&name) || name == READY => seconds(moment.created),
            None => seconds(moment.now),
        };
        let new = Condition {
            type_: name.to_owned(),
            status: status.as_str().to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: Some(moment.generation),
            last_transition_time,
        };
        if existing == Some(&new) {
            return false;
        }
        conditions.retain(|condition| condition.type_ != name);
        if moment.deleting {
            // No other controller updates the conditions of a deleted object.
            for condition in conditions.iter_mut() {
                condition.observed_generation = Some(moment.generation);
            }
        }
        conditions.push(new);
        conditions.sort_by_key(|condition| (condition.type_ == READY, condition.last_transition_time.0));
        true
    }

    fn recompute_root(&self, conditions: &mut Vec<Condition>, moment: Moment) -> bool {
        let is_current = |condition: &Condition| condition.observed_generation == Some(moment.generation);
        let mut unhealthy: Vec<&Condition> = conditions
            .iter()
            .filter(|condition| self.dependents.contains(&condition.type_.as_str()))
            .filter(|condition| !(condition.status == Status::True.as_str() && is_current(condition)))
            .collect();
        if unhealthy.is_empty() {
            return self.upsert(conditions, moment, READY, Status::True, READY, "");
        }
        let position = |condition: &Condition| self.dependents.iter().position(|name| *name == condition.type_);
        unhealthy.sort_by_key(|condition| (std::cmp::Reverse(condition.last_transition_time.0), position(condition)));
        let names: Vec<String> =
            unhealthy.iter().map(|condition| format!("{}={}", condition.type_, condition.status)).collect();
        let any_false =
            unhealthy.iter().any(|condition| condition.status == Status::False.as_str() && is_current(condition));
        let (status, reason) =
            if any_false { (Status::False, UNHEALTHY_DEPENDENTS) } else { (Status::Unknown, RECONCILING_DEPENDENTS) };
        self.upsert(conditions, moment, READY, status, reason, &names.join(", "))
    }
}

/// Returns the condition with this name.
#[must_use]
pub fn get<'conditions>(conditions: &'conditions [Condition], name: &str) -> Option<&'conditions Condition> {
    conditions.iter().find(|condition| condition.type_ == name)
}

/// Returns the condition with this name, if it is true, regardless of its observed generation.
#[must_use]
pub fn get_true<'conditions>(conditions: &'conditions [Condition], name: &str) -> Option<&'conditions Condition> {
    get(conditions, name).filter(|condition| condition.status == Status::True.as_str())
}

/// Whether the condition is true, regardless of its observed generation.
#[must_use]
pub fn is_true(conditions: &[Condition], name: &str) -> bool {
    get_true(conditions, name).is_some()
}

/// Whether the condition is false, regardless of its observed generation.
#[must_use]
pub fn is_false(conditions: &[Condition], name: &str) -> bool {
    get(conditions, name).is_some_and(|condition| condition.status == Status::False.as_str())
}

/// Truncates to seconds, as Kubernetes does when it stores a time. Otherwise a stored condition would differ from the
/// new one.
fn seconds(time: Timestamp) -> Time {
    let whole_seconds = jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Floor);
    Time(time.round(whole_seconds).unwrap_or(time))
}

#[cfg(test)]
mod tests;
