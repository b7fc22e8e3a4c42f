//! Cache of offerings refused for lack of capacity, kept for three minutes. After that, one launch at a time tries them
//! until one succeeds. In memory only: a restart costs one failed call per offering.

use crate::ports::OfferingError;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::BTreeMap;

/// How long an offering is skipped (spec: AWS provider section 4.8).
pub const TTL: Millis = Millis::from_seconds(180);
/// How long after [`TTL`] an offering stays on probation: long enough that an outage of hours costs one failed launch per
/// [`TTL`], short enough that an old refusal slows no burst down.
pub const PROBATION: Millis = Millis::from_seconds(30 * 60);
/// Maximum number of entries: more than a region has offerings (about 1000 types in 6 zones and 3 capacity types). When
/// exceeded, the oldest are evicted.
const MAX_ENTRIES: usize = 20_000;

/// What lacks capacity. `None` means every type or zone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Instance type.
    pub instance_type: Option<String>,
    /// Zone.
    pub zone: Option<String>,
}

/// Cache of refused offerings and full subnets.
#[derive(Debug, Clone, Default)]
pub struct InsufficientCapacity {
    offerings: BTreeMap<Key, Timestamp>,
    /// End of the probation of offerings that EC2 refused.
    probation: BTreeMap<Key, Timestamp>,
    subnets: BTreeMap<String, Timestamp>,
}

impl InsufficientCapacity {
    /// Records a refusal. Refusals that are not about capacity are ignored. Returns whether something was recorded.
    pub fn learn(&mut self, error: &OfferingError, now: Timestamp) -> bool {
        if error.is_spot_role_missing() {
            self.mark(Key { capacity_type: CapacityType::Spot, instance_type: None, zone: None }, now);
            return true;
        }
        if !error.is_capacity() {
            return false;
        }
        if error.is_subnet_full() && !error.subnet_id.is_empty() {
            self.subnets.insert(error.subnet_id.clone(), now.plus(TTL));
        }
        // Without type and zone, the entry would block a whole capacity type, which the refusal does not say.
        if error.instance_type.is_empty() || error.zone.is_empty() {
            return false;
        }
        let key = offering(&error.instance_type, &error.zone, error.capacity_type);
        self.probation.insert(key.clone(), now.plus(TTL).plus(PROBATION));
        self.mark(key, now);
        true
    }

    /// Records that an instance was launched, which ends the probation of its offering.
    pub fn succeeded(&mut self, instance_type: &str, zone: &str, capacity_type: CapacityType) {
        self.probation.remove(&offering(instance_type, zone, capacity_type));
    }

    /// Whether an offering was refused and none of its kind was launched since. A launch that accepts nothing else must
    /// not be tried beside another one.
    #[must_use]
    pub fn on_probation(&self, instance_type: &str, zone: &str, capacity_type: CapacityType, now: Timestamp) -> bool {
        self.probation.get(&offering(instance_type, zone, capacity_type)).is_some_and(|until| *until > now)
    }

    /// Marks an offering for [`TTL`] from `now`. Marking it again extends the time.
    pub fn mark(&mut self, key: Key, now: Timestamp) {
        self.offerings.retain(|_, until| *until > now);
        self.probation.retain(|_, until| *until > now);
        self.subnets.retain(|_, until| *until > now);
        evict_oldest(&mut self.offerings);
        evict_oldest(&mut self.probation);
        self.offerings.insert(key, now.plus(TTL));
    }

    /// Whether an offering is to be skipped.
    #[must_use]
    pub fn contains(&self, instance_type: &str, zone: &str, capacity_type: CapacityType, now: Timestamp) -> bool {
        let is = |set: &Option<String>, value: &str| set.as_ref().is_none_or(|set| set == value);
        self.offerings.iter().any(|(key, until)| {
            *until > now
                && key.capacity_type == capacity_type
                && is(&key.instance_type, instance_type)
                && is(&key.zone, zone)
        })
    }

    /// Whether a subnet recently had no free address.
    #[must_use]
    pub fn subnet_is_full(&self, subnet_id: &str, now: Timestamp) -> bool {
        self.subnets.get(subnet_id).is_some_and(|until| *until > now)
    }

    /// The entries with their remaining time, sorted. Durations are sent over the wire rather than points in time
    /// (safety rule 23).
    pub fn remaining(&self, now: Timestamp) -> impl Iterator<Item = (&Key, Millis)> {
        self.offerings.iter().map(move |(key, until)| (key, until.since(now))).filter(|(_, left)| left.0 > 0)
    }
}

fn offering(instance_type: &str, zone: &str, capacity_type: CapacityType) -> Key {
    Key { capacity_type, instance_type: Some(instance_type.to_owned()), zone: Some(zone.to_owned()) }
}

fn evict_oldest(entries: &mut BTreeMap<Key, Timestamp>) {
    if entries.len() >= MAX_ENTRIES
        && let Some(oldest) = entries.iter().min_by_key(|(_, until)| **until).map(|(key, _)| key.clone())
    {
        entries.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn refusal(code: &str) -> OfferingError {
        OfferingError {
            instance_type: "m5.large".to_owned(),
            zone: "us-east-1a".to_owned(),
            subnet_id: "subnet-1".to_owned(),
            capacity_type: CapacityType::OnDemand,
            code: code.to_owned(),
            message: String::new(),
        }
    }

    #[test]
    fn refused_offering_is_skipped_for_three_minutes() {
        let mut memory = InsufficientCapacity::default();
        assert!(memory.learn(&refusal("InsufficientInstanceCapacity"), NOW));
        let contains = |zone, kind, at| memory.contains("m5.large", zone, kind, at);
        assert!(contains("us-east-1a", CapacityType::OnDemand, NOW.plus(Millis(TTL.0 - 1))));
        assert!(!contains("us-east-1a", CapacityType::OnDemand, NOW.plus(TTL)));
        assert!(!contains("us-east-1b", CapacityType::OnDemand, NOW));
        assert!(!contains("us-east-1a", CapacityType::Spot, NOW));
        let remaining: Vec<_> = memory.remaining(NOW.plus(Millis(1000))).map(|(_, remaining)| remaining).collect();
        assert_eq!(remaining, [Millis(TTL.0 - 1000)]);
        assert!(!memory.subnet_is_full("subnet-1", NOW));
    }

    #[test]
    fn refused_offering_is_on_probation_until_one_is_launched() {
        let mut memory = InsufficientCapacity::default();
        assert!(memory.learn(&refusal("InsufficientInstanceCapacity"), NOW));
        let on_probation = |memory: &InsufficientCapacity, zone: &str, at| {
            memory.on_probation("m5.large", zone, CapacityType::OnDemand, at)
        };
        let later = NOW.plus(TTL);
        assert!(on_probation(&memory, "us-east-1a", later), "it may be tried again, by one launch");
        assert!(!on_probation(&memory, "us-east-1b", later));
        assert!(!on_probation(&memory, "us-east-1a", later.plus(PROBATION)), "the refusal is too old");
        memory.succeeded("m5.large", "us-east-1a", CapacityType::OnDemand);
        assert!(!on_probation(&memory, "us-east-1a", later));
        let interrupted = offering("m5.large", "us-east-1a", CapacityType::OnDemand);
        memory.mark(interrupted, NOW);
        assert!(!on_probation(&memory, "us-east-1a", later), "an interruption is no refusal");
    }

    #[test]
    fn refusals_without_capacity_cause_are_ignored() {
        let mut memory = InsufficientCapacity::default();
        assert!(!memory.learn(&refusal("UnauthorizedOperation"), NOW));
        let nowhere = OfferingError { zone: String::new(), ..refusal("UnfulfillableCapacity") };
        assert!(!memory.learn(&nowhere, NOW));
        assert_eq!(memory.remaining(NOW).count(), 0);
    }

    #[test]
    fn missing_role_marks_spot_and_full_subnet_is_remembered() {
        let mut memory = InsufficientCapacity::default();
        assert!(memory.learn(&refusal("AuthFailure.ServiceLinkedRoleCreationNotPermitted"), NOW));
        assert!(memory.contains("any.type", "any-zone", CapacityType::Spot, NOW));
        assert!(!memory.contains("any.type", "any-zone", CapacityType::OnDemand, NOW));
        assert!(memory.learn(&refusal("InsufficientFreeAddressesInSubnet"), NOW));
        assert!(memory.subnet_is_full("subnet-1", NOW));
        assert!(!memory.subnet_is_full("subnet-1", NOW.plus(TTL)));
    }
}
