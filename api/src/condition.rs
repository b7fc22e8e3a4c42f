//! Status conditions: how they are set, and how `Ready` follows from the others.
//!
//! Each kind has a root condition, its dependents, from which the root is computed, and others that stand alone.
//! Times are kept in whole seconds, as Kubernetes writes them.

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};

/// The root condition of every kind.
pub const READY: &str = "Ready";
/// Reason of a dependent that nobody has looked at yet.
pub const AWAITING_RECONCILIATION: &str = "AwaitingReconciliation";
/// Reason of a root of which a dependent is false.
pub const UNHEALTHY_DEPENDENTS: &str = "UnhealthyDependents";
/// Reason of a root of which a dependent is not known, or known of an older generation only.
pub const RECONCILING_DEPENDENTS: &str = "ReconcilingDependents";

/// Conditions of a NodePool.
pub mod node_pool {
    /// The pool is valid.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// The pool's node class is there and ready.
    pub const NODE_CLASS_READY: &str = "NodeClassReady";
    /// Instances of the pool lately became nodes. Stands alone.
    pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";
    /// Another autoscaler is at work: nothing is done for the pool. Stands alone; Plimsoll's own.
    pub const PAUSED: &str = "Paused";
    /// What `Ready` follows from.
    pub const CONDITIONS: super::ConditionSet =
        super::ConditionSet { dependents: &[VALIDATION_SUCCEEDED, NODE_CLASS_READY] };
}

/// Conditions of a NodeClaim.
pub mod node_claim {
    /// There is an instance.
    pub const LAUNCHED: &str = "Launched";
    /// There is a Node.
    pub const REGISTERED: &str = "Registered";
    /// The Node has all that was asked for.
    pub const INITIALIZED: &str = "Initialized";
    /// The node may be consolidated. Stands alone.
    pub const CONSOLIDATABLE: &str = "Consolidatable";
    /// The node differs from what is now asked for. Stands alone.
    pub const DRIFTED: &str = "Drifted";
    /// The node's pods are gone. Stands alone.
    pub const DRAINED: &str = "Drained";
    /// The node's volumes are gone. Stands alone.
    pub const VOLUMES_DETACHED: &str = "VolumesDetached";
    /// The instance was told to end. Stands alone.
    pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
    /// The node is what the claim says. Stands alone.
    pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
    /// Why the node is being disrupted. Stands alone.
    pub const DISRUPTION_REASON: &str = "DisruptionReason";
    /// What `Ready` follows from.
    pub const CONDITIONS: super::ConditionSet =
        super::ConditionSet { dependents: &[LAUNCHED, REGISTERED, INITIALIZED] };
}

/// Conditions of a NodeOverlay.
pub mod node_overlay {
    /// The overlay is valid and does not contradict another.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// What `Ready` follows from.
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
    /// The instance profile is there.
    pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
    /// Settings are valid and EC2 would take them.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// The placement group was found, if one is asked for.
    pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
    /// Capacity reservations were looked for.
    pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";
    /// What `Ready` follows from.
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
    /// The same where capacity reservations are used.
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

/// Conditions of a CapacityBuffer, which has no root.
pub mod capacity_buffer {
    /// It is known what room to keep.
    pub const READY_FOR_PROVISIONING: &str = "ReadyForProvisioning";
    /// The room is there.
    pub const PROVISIONING: &str = "Provisioning";
    /// None is more than the other.
    pub const CONDITIONS: super::ConditionSet = super::ConditionSet { dependents: &[] };
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It does.
    True,
    /// It does not.
    False,
    /// That is not known.
    Unknown,
}

impl Status {
    /// The word in the object.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What of an object its conditions depend on, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The object's `metadata.generation`.
    pub generation: i64,
    /// When the object was created.
    pub created: Timestamp,
    /// Whether the object is being deleted.
    pub deleting: bool,
    /// The time.
    pub now: Timestamp,
}

impl Moment {
    /// Of an object with this `metadata`. One that no API server has seen yet counts as created now.
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

/// A dependent cannot be taken away: its root would rest on nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("condition {0} is one that Ready follows from and cannot be cleared")]
pub struct ClearError(pub String);

/// The root condition of a kind and what it follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionSet {
    /// Conditions that `Ready` follows from.
    pub dependents: &'static [&'static str],
}

impl ConditionSet {
    /// Adds dependents and the root where they are missing, as not known since the object's creation. Whether anything changed.
    pub fn initialize(&self, conditions: &mut Vec<Condition>, moment: Moment) -> bool {
        let mut changed = false;
        for name in self.dependents.iter().chain([&READY]) {
            if get(conditions, name).is_none() {
                let message = "the object has not been looked at yet";
                changed |= self.put(conditions, moment, name, Status::Unknown, AWAITING_RECONCILIATION, message);
            }
        }
        changed
    }

    /// Sets a condition and computes the root anew. Whether anything changed.
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
        changed |= self.put(conditions, moment, name, status, reason, message);
        if name != READY {
            changed |= self.recompute_root(conditions, moment);
        }
        changed
    }

    /// Sets a condition to true, with its own name as reason. Whether anything changed.
    pub fn set_true(&self, conditions: &mut Vec<Condition>, moment: Moment, name: &str) -> bool {
        self.set(conditions, moment, name, Status::True, name, "")
    }

    /// Takes away a condition that stands alone. Whether it was there.
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

    /// Sets a condition of a kind that has no root. Whether anything changed.
    pub fn set_alone(
        &self,
        conditions: &mut Vec<Condition>,
        moment: Moment,
        name: &str,
        status: Status,
        reason: &str,
        message: &str,
    ) -> bool {
        self.put(conditions, moment, name, status, reason, message)
    }

    fn put(
        &self,
        conditions: &mut Vec<Condition>,
        moment: Moment,
        name: &str,
        status: Status,
        reason: &str,
        message: &str,
    ) -> bool {
        let old = get(conditions, name);
        let since = match old {
            Some(old) if old.status == status.as_str() => old.last_transition_time.clone(),
            Some(_) => seconds(moment.now),
            // What the root follows from was in this state since there is an object.
            None if self.dependents.contains(&name) || name == READY => seconds(moment.created),
            None => seconds(moment.now),
        };
        let new = Condition {
            type_: name.to_owned(),
            status: status.as_str().to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: Some(moment.generation),
            last_transition_time: since,
        };
        if old == Some(&new) {
            return false;
        }
        conditions.retain(|condition| condition.type_ != name);
        if moment.deleting {
            // Nothing else will look at the conditions of an object that goes.
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
            return self.put(conditions, moment, READY, Status::True, READY, "");
        }
        let place = |condition: &Condition| self.dependents.iter().position(|name| *name == condition.type_);
        unhealthy.sort_by_key(|condition| (std::cmp::Reverse(condition.last_transition_time.0), place(condition)));
        let names: Vec<String> =
            unhealthy.iter().map(|condition| format!("{}={}", condition.type_, condition.status)).collect();
        let any_false =
            unhealthy.iter().any(|condition| condition.status == Status::False.as_str() && is_current(condition));
        let (status, reason) =
            if any_false { (Status::False, UNHEALTHY_DEPENDENTS) } else { (Status::Unknown, RECONCILING_DEPENDENTS) };
        self.put(conditions, moment, READY, status, reason, &names.join(", "))
    }
}

/// The condition of this name.
#[must_use]
pub fn get<'conditions>(conditions: &'conditions [Condition], name: &str) -> Option<&'conditions Condition> {
    conditions.iter().find(|condition| condition.type_ == name)
}

/// Whether the condition of this name is true, whichever generation it is about.
#[must_use]
pub fn is_true(conditions: &[Condition], name: &str) -> bool {
    get(conditions, name).is_some_and(|condition| condition.status == Status::True.as_str())
}

/// Whether the condition of this name is false, whichever generation it is about.
#[must_use]
pub fn is_false(conditions: &[Condition], name: &str) -> bool {
    get(conditions, name).is_some_and(|condition| condition.status == Status::False.as_str())
}

/// Kubernetes drops parts of seconds when it writes a time; what was not written must not count as a change.
fn seconds(time: Timestamp) -> Time {
    let whole = jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Floor);
    Time(time.round(whole).unwrap_or(time))
}

#[cfg(test)]
mod tests;
