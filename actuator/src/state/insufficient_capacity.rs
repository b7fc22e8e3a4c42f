//! Cache of offerings refused for lack of capacity, kept for three minutes. After that, one launch at a time tries them
//! until one succeeds. In memory only: a restart costs one failed call per offering.

use crate::ports::OfferingError;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::plan::OfferingChoice;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// How long an offering without capacity is skipped, as in Karpenter.
pub const TTL: Millis = Millis::from_seconds(180);
/// How long after [`TTL`] an offering stays on probation: long enough that an outage of hours costs one failed launch
/// per [`TTL`], short enough that an old refusal slows no burst down.
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
    /// The placement group that lacks capacity. `None` if EC2 refuses the offering outside of placement groups too.
    pub placement_group: Option<String>,
}

/// An offering that is to be launched in a placement group, or in none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Instance type.
    pub instance_type: &'a str,
    /// Zone.
    pub zone: &'a str,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Id of the placement group.
    pub placement_group: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    /// An offering of a launch.
    #[must_use]
    pub fn of(choice: &'a OfferingChoice, placement_group: Option<&'a str>) -> Self {
        let OfferingChoice { instance_type, zone, capacity_type, .. } = choice;
        Self { instance_type, zone, capacity_type: *capacity_type, placement_group }
    }

    /// The offering that an error of a launch names.
    #[must_use]
    pub fn named_by(error: &'a OfferingError, placement_group: Option<&'a str>) -> Self {
        let OfferingError { instance_type, zone, capacity_type, .. } = error;
        Self { instance_type, zone, capacity_type: *capacity_type, placement_group }
    }
}

impl Key {
    /// Whether a launch must skip the offering.
    #[must_use]
    pub fn covers(&self, wanted: Wanted<'_>) -> bool {
        let is = |set: &Option<String>, value: Option<&str>| set.is_none() || set.as_deref() == value;
        self.capacity_type == wanted.capacity_type
            && is(&self.instance_type, Some(wanted.instance_type))
            && is(&self.zone, Some(wanted.zone))
            && is(&self.placement_group, wanted.placement_group)
    }
}

/// Cache of refused offerings and full subnets.
#[derive(Debug, Clone, Default)]
pub struct InsufficientCapacity {
    offerings: BTreeMap<Key, Timestamp>,
    /// End of the probation of offerings that EC2 refused.
    probation: BTreeMap<Key, Timestamp>,
    subnets: BTreeMap<String, Timestamp>,
    /// Notified when a placement group lacks capacity, or a subnet is full.
    changed: Arc<Notify>,
}

impl InsufficientCapacity {
    /// Records a refusal of a launch in `placement_group`, or in none. Refusals that are not about capacity are
    /// ignored. Returns whether something was recorded.
    pub fn learn(&mut self, error: &OfferingError, placement_group: Option<&str>, now: Timestamp) -> bool {
        if error.is_spot_role_missing() {
            let capacity_type = CapacityType::Spot;
            self.mark(Key { capacity_type, instance_type: None, zone: None, placement_group: None }, now);
            return true;
        }
        if !error.is_capacity() {
            return false;
        }
        if error.is_subnet_full() && !error.subnet_id.is_empty() {
            self.subnets.insert(error.subnet_id.clone(), now.plus(TTL));
            self.changed.notify_one();
        }
        // Without type and zone, the entry would block a whole capacity type, which the refusal does not say.
        if error.instance_type.is_empty() || error.zone.is_empty() {
            return false;
        }
        let key = offering(&error.instance_type, &error.zone, error.capacity_type, placement_group);
        if error.is_group_full() && placement_group.is_some() {
            // The group takes no instance of any type, however it is paid for.
            for capacity_type in CapacityType::ALL {
                self.refused(Key { capacity_type, instance_type: None, ..key.clone() }, now);
            }
        } else {
            self.refused(key, now);
        }
        true
    }

    /// Records that EC2 could not launch an offering, although it does not say why.
    pub fn skip(&mut self, wanted: Wanted<'_>, now: Timestamp) {
        let Wanted { instance_type, zone, capacity_type, placement_group } = wanted;
        self.refused(offering(instance_type, zone, capacity_type, placement_group), now);
    }

    fn refused(&mut self, key: Key, now: Timestamp) {
        self.probation.insert(key.clone(), now.plus(TTL).plus(PROBATION));
        self.mark(key, now);
    }

    /// Records that an instance was launched, which ends the probation of its offering, and of its placement group for
    /// all capacity types.
    pub fn succeeded(&mut self, launched: Wanted<'_>) {
        let is_over = |key: &Key| {
            // Of all types, only a full placement group is on probation.
            let capacity_type = if key.instance_type.is_none() { key.capacity_type } else { launched.capacity_type };
            key.covers(Wanted { capacity_type, ..launched })
        };
        self.probation.retain(|key, _| !is_over(key));
    }

    /// Whether an offering was refused and none of its kind was launched since. A launch that accepts nothing else must
    /// not be tried beside another one.
    #[must_use]
    pub fn on_probation(&self, wanted: Wanted<'_>, now: Timestamp) -> bool {
        is_covered(&self.probation, wanted, now)
    }

    /// Marks an offering for [`TTL`] from `now`. Marking it again extends the time.
    pub fn mark(&mut self, key: Key, now: Timestamp) {
        self.offerings.retain(|_, until| *until > now);
        self.probation.retain(|_, until| *until > now);
        self.subnets.retain(|_, until| *until > now);
        evict_oldest(&mut self.offerings);
        evict_oldest(&mut self.probation);
        if key.placement_group.is_some() {
            self.changed.notify_one();
        }
        self.offerings.insert(key, now.plus(TTL));
    }

    /// Whether an offering is to be skipped.
    #[must_use]
    pub fn contains(&self, wanted: Wanted<'_>, now: Timestamp) -> bool {
        is_covered(&self.offerings, wanted, now)
    }

    /// Whether a subnet recently had no free address.
    #[must_use]
    pub fn subnet_is_full(&self, subnet_id: &str, now: Timestamp) -> bool {
        self.subnets.get(subnet_id).is_some_and(|until| *until > now)
    }

    /// The entries for all node classes with their remaining time, sorted. Durations are sent over the wire rather than
    /// points in time (safety rule 23).
    pub fn remaining(&self, now: Timestamp) -> impl Iterator<Item = (&Key, Millis)> {
        self.left(now).filter(|(key, _)| key.placement_group.is_none())
    }

    /// The entries of placement groups with their remaining time, sorted. They are part of the catalogs of the node
    /// classes that select these groups.
    pub fn in_groups(&self, now: Timestamp) -> impl Iterator<Item = (&Key, Millis)> {
        self.left(now).filter(|(key, _)| key.placement_group.is_some())
    }

    /// Subnets that recently had no free address with their remaining time, sorted. They close zones in the catalogs of
    /// the node classes that have no other subnet there.
    pub fn full_subnets(&self, now: Timestamp) -> impl Iterator<Item = (&str, Millis)> {
        let left = self.subnets.iter().map(move |(id, until)| (id.as_str(), until.since(now)));
        left.filter(|(_, left)| left.0 > 0)
    }

    fn left(&self, now: Timestamp) -> impl Iterator<Item = (&Key, Millis)> {
        self.offerings.iter().map(move |(key, until)| (key, until.since(now))).filter(|(_, left)| left.0 > 0)
    }

    /// Notified when a placement group lacks capacity, or a subnet is full.
    #[must_use]
    pub fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }
}

fn offering(instance_type: &str, zone: &str, capacity_type: CapacityType, group: Option<&str>) -> Key {
    Key {
        capacity_type,
        instance_type: Some(instance_type.to_owned()),
        zone: Some(zone.to_owned()),
        placement_group: group.map(str::to_owned),
    }
}

fn is_covered(known: &BTreeMap<Key, Timestamp>, wanted: Wanted<'_>, now: Timestamp) -> bool {
    known.iter().any(|(key, until)| *until > now && key.covers(wanted))
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
    use futures::FutureExt;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn wanted<'a>(
        instance_type: &'a str,
        zone: &'a str,
        capacity_type: CapacityType,
        placement_group: Option<&'a str>,
    ) -> Wanted<'a> {
        Wanted { instance_type, zone, capacity_type, placement_group }
    }

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
        assert!(memory.learn(&refusal("InsufficientInstanceCapacity"), None, NOW));
        let contains = |zone, kind, at| memory.contains(wanted("m5.large", zone, kind, None), at);
        assert!(contains("us-east-1a", CapacityType::OnDemand, NOW.plus(Millis(TTL.0 - 1))));
        assert!(!contains("us-east-1a", CapacityType::OnDemand, NOW.plus(TTL)));
        assert!(!contains("us-east-1b", CapacityType::OnDemand, NOW));
        assert!(!contains("us-east-1a", CapacityType::Spot, NOW));
        let remaining: Vec<_> = memory.remaining(NOW.plus(Millis(1000))).map(|(_, remaining)| remaining).collect();
        assert_eq!(remaining, [Millis(TTL.0 - 1000)]);
        assert!(!memory.subnet_is_full("subnet-1", NOW));
        let dear = OfferingError { capacity_type: CapacityType::Spot, ..refusal("SpotMaxPriceTooLow") };
        assert!(memory.learn(&dear, None, NOW));
        assert!(memory.contains(wanted("m5.large", "us-east-1a", CapacityType::Spot, None), NOW));
        let message = "Your requested instance type (m5.large) is not supported in your requested Availability Zone";
        let (zone, message) = ("us-east-1c".to_owned(), message.to_owned());
        let not_sold = OfferingError { zone, message, ..refusal("InvalidFleetConfiguration") };
        assert!(memory.learn(&not_sold, None, NOW));
        assert!(memory.contains(wanted("m5.large", "us-east-1c", CapacityType::OnDemand, None), NOW));
    }

    #[test]
    fn refused_offering_is_on_probation_until_one_is_launched() {
        let mut memory = InsufficientCapacity::default();
        assert!(memory.learn(&refusal("InsufficientInstanceCapacity"), None, NOW));
        let on_probation = |memory: &InsufficientCapacity, zone: &str, at| {
            memory.on_probation(wanted("m5.large", zone, CapacityType::OnDemand, None), at)
        };
        let later = NOW.plus(TTL);
        assert!(on_probation(&memory, "us-east-1a", later), "it may be tried again, by one launch");
        assert!(!on_probation(&memory, "us-east-1b", later));
        assert!(!on_probation(&memory, "us-east-1a", later.plus(PROBATION)), "the refusal is too old");
        memory.succeeded(wanted("m5.large", "us-east-1a", CapacityType::OnDemand, None));
        assert!(!on_probation(&memory, "us-east-1a", later));
        let interrupted = offering("m5.large", "us-east-1a", CapacityType::OnDemand, None);
        memory.mark(interrupted, NOW);
        assert!(!on_probation(&memory, "us-east-1a", later), "an interruption is no refusal");
    }

    #[test]
    fn refusals_without_capacity_cause_are_ignored() {
        let mut memory = InsufficientCapacity::default();
        assert!(!memory.learn(&refusal("UnauthorizedOperation"), None, NOW));
        let nowhere = OfferingError { zone: String::new(), ..refusal("UnfulfillableCapacity") };
        assert!(!memory.learn(&nowhere, None, NOW));
        assert_eq!(memory.remaining(NOW).count(), 0);
    }

    #[test]
    fn missing_role_marks_spot_and_full_subnet_is_remembered() {
        let mut memory = InsufficientCapacity::default();
        assert!(memory.learn(&refusal("AuthFailure.ServiceLinkedRoleCreationNotPermitted"), None, NOW));
        assert!(memory.contains(wanted("any.type", "any-zone", CapacityType::Spot, None), NOW));
        assert!(!memory.contains(wanted("any.type", "any-zone", CapacityType::OnDemand, None), NOW));
        assert!(memory.learn(&refusal("InsufficientFreeAddressesInSubnet"), None, NOW));
        assert!(memory.subnet_is_full("subnet-1", NOW));
        assert!(!memory.subnet_is_full("subnet-1", NOW.plus(TTL)));
        let full: Vec<_> = memory.full_subnets(NOW.plus(Millis(1000))).collect();
        assert_eq!(full, [("subnet-1", Millis(TTL.0 - 1000))]);
        assert_eq!(memory.full_subnets(NOW.plus(TTL)).count(), 0);
    }

    #[test]
    fn refusals_in_a_placement_group_are_about_that_group_alone() {
        let mut memory = InsufficientCapacity::default();
        assert!(memory.learn(&refusal("InsufficientInstanceCapacity"), Some("pg-1"), NOW));
        let contains = |memory: &InsufficientCapacity, kind: &str, group| {
            memory.contains(wanted(kind, "us-east-1a", CapacityType::OnDemand, group), NOW)
        };
        assert!(contains(&memory, "m5.large", Some("pg-1")));
        assert!(!contains(&memory, "m5.large", Some("pg-2")) && !contains(&memory, "m5.large", None));
        assert!(!contains(&memory, "c5.large", Some("pg-1")));
        assert_eq!((memory.remaining(NOW).count(), memory.in_groups(NOW).count()), (0, 1));
        let mut full = refusal("InstanceLimitExceeded");
        full.message = "Spread placement group pg-1: limit of 7 running instances per Availability Zone".to_owned();
        assert!(memory.learn(&full, Some("pg-1"), NOW));
        assert!(contains(&memory, "c5.large", Some("pg-1")), "a full group takes no type in this zone");
        for capacity_type in CapacityType::ALL {
            assert!(memory.contains(wanted("c5.large", "us-east-1a", capacity_type, Some("pg-1")), NOW));
        }
        assert!(!contains(&memory, "c5.large", None));
        assert!(memory.learn(&full, None, NOW), "the launch is not known to be in a group");
        assert!(contains(&memory, "m5.large", None) && !contains(&memory, "c5.large", None));
        let on_probation = |memory: &InsufficientCapacity, kind: &str| {
            memory.on_probation(wanted(kind, "us-east-1a", CapacityType::OnDemand, Some("pg-1")), NOW.plus(TTL))
        };
        assert!(on_probation(&memory, "c5.large"));
        memory.succeeded(wanted("c5.large", "us-east-1a", CapacityType::OnDemand, Some("pg-1")));
        assert!(!on_probation(&memory, "c5.large") && on_probation(&memory, "m5.large"));
        let spot = wanted("c5.large", "us-east-1a", CapacityType::Spot, Some("pg-1"));
        assert!(!memory.on_probation(spot, NOW.plus(TTL)), "the group has room again");
    }

    #[test]
    fn an_instance_ends_the_probation_of_its_own_capacity_type_alone() {
        let mut memory = InsufficientCapacity::default();
        for group in [None, Some("pg-1")] {
            assert!(memory.learn(&refusal("InsufficientInstanceCapacity"), group, NOW));
            memory.succeeded(wanted("m5.large", "us-east-1a", CapacityType::Spot, group));
            let refused = wanted("m5.large", "us-east-1a", CapacityType::OnDemand, group);
            assert!(memory.on_probation(refused, NOW), "{group:?}");
        }
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let mut memory = InsufficientCapacity::default();
        assert!(memory.learn(&refusal("InsufficientFreeAddressesInSubnet"), None, NOW));
        let other = || offering("c5.large", "us-east-1b", CapacityType::Spot, None);
        memory.mark(other(), NOW.plus(TTL));
        assert_eq!((memory.offerings.len(), memory.probation.len(), memory.subnets.len()), (1, 1, 0));
        assert_eq!(memory.remaining(NOW.plus(TTL).plus(TTL)).count(), 0);
        memory.mark(other(), NOW.plus(TTL).plus(PROBATION));
        assert!(memory.probation.is_empty());
    }

    #[test]
    fn of_too_many_entries_the_oldest_is_forgotten() {
        let mut memory = InsufficientCapacity::default();
        let key = |number: u64| offering(&number.to_string(), "a", CapacityType::Spot, None);
        let all = || (1..).take(MAX_ENTRIES).map(|number| (key(number), NOW.plus(Millis(number)))).collect();
        (memory.offerings, memory.probation) = (all(), all());
        assert!(memory.learn(&refusal("InsufficientInstanceCapacity"), None, NOW));
        for entries in [&memory.offerings, &memory.probation] {
            assert_eq!(entries.len(), MAX_ENTRIES);
            assert!(!entries.contains_key(&key(1)) && entries.contains_key(&key(2)));
        }
    }

    /// Catalogs are built again for these. Watchers hear of other offerings from the ledger.
    #[test]
    fn placement_groups_without_capacity_and_full_subnets_are_told() {
        let mut memory = InsufficientCapacity::default();
        let changed = memory.changed();
        for (code, group, expected) in [
            ("InsufficientInstanceCapacity", None, false),
            ("InsufficientInstanceCapacity", Some("pg-1"), true),
            ("InsufficientFreeAddressesInSubnet", None, true),
        ] {
            assert!(memory.learn(&refusal(code), group, NOW));
            assert_eq!(changed.notified().now_or_never().is_some(), expected, "{code} {group:?}");
        }
    }
}
