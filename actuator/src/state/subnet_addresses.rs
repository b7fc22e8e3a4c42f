//! Free addresses of subnets: what EC2 said last, less what was launched since and what launches under way may need. In
//! memory only, and an order of preference: EC2 decides whether a subnet has room.

use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of subnets: ten times EC2's default quota per VPC. Beyond it, further subnets are not counted.
const MAX_SUBNETS: usize = 2_000;
/// Maximum number of addresses held for one node: those of the largest subnet, a /16.
const MAX_HELD: i64 = 65_536;

/// Free addresses by subnet. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct SubnetAddresses(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// What EC2 said, less what was launched since.
    free: BTreeMap<String, i64>,
    /// Sums of [`HeldAddresses`]. A subnet without any has no entry.
    held: BTreeMap<String, i64>,
}

impl Known {
    /// Sort key of a subnet: whether EC2 was asked about it, then how many addresses are left.
    fn left(&self, subnet: &str) -> (bool, i64) {
        let free = self.free.get(subnet).copied();
        let held = self.held.get(subnet).copied().unwrap_or(0);
        (free.is_some(), free.unwrap_or(0).saturating_sub(held))
    }
}

/// Addresses that a launch under way may need. They are free for other launches again when this is dropped, so none
/// stays held, however the launch ends.
#[derive(Debug)]
#[must_use]
pub struct HeldAddresses {
    subnets: SubnetAddresses,
    held: BTreeMap<String, i64>,
}

impl HeldAddresses {
    /// Whether addresses are held in this subnet.
    #[must_use]
    pub fn is_in(&self, subnet: &str) -> bool {
        self.held.contains_key(subnet)
    }
}

impl Drop for HeldAddresses {
    fn drop(&mut self) {
        let mut known = self.subnets.0.lock();
        for (subnet, addresses) in &self.held {
            let Some(sum) = known.held.get_mut(subnet) else { continue };
            *sum = sum.saturating_sub(*addresses);
            if *sum <= 0 {
                known.held.remove(subnet);
            }
        }
    }
}

impl SubnetAddresses {
    /// Records what EC2 says now. What was launched before is part of it. What is held stays so: its instances may not
    /// exist yet. An instance that does counts twice until its launch has ended, which only changes the preference.
    pub fn described<'s>(&self, subnets: impl IntoIterator<Item = (&'s str, u32)>) {
        let free = &mut self.0.lock().free;
        for (subnet, addresses) in subnets {
            if free.len() < MAX_SUBNETS || free.contains_key(subnet) {
                free.insert(subnet.to_owned(), i64::from(addresses));
            }
        }
    }

    /// Subtracts the addresses that a launched instance and its pods will use.
    pub fn launched(&self, subnet: &str, addresses: i64) {
        if let Some(free) = self.0.lock().free.get_mut(subnet) {
            *free = free.saturating_sub(addresses.max(1));
        }
    }

    /// Chooses one subnet of each list, and holds this number of addresses in it. It is the one with most addresses
    /// left, the first of several. Subnets that EC2 was not asked about come last. No other launch chooses in between:
    /// a request has one subnet per zone.
    pub fn hold<'s>(&self, choices: impl IntoIterator<Item = (Vec<&'s str>, i64)>) -> HeldAddresses {
        let mut held = BTreeMap::new();
        let mut known = self.0.lock();
        for (subnets, addresses) in choices {
            if let Some(best) = subnets.into_iter().min_by_key(|subnet| Reverse(known.left(subnet))) {
                held.insert(best.to_owned(), addresses.clamp(1, MAX_HELD));
            }
        }
        for (subnet, addresses) in &held {
            let sum = known.held.entry(subnet.clone()).or_default();
            *sum = sum.saturating_add(*addresses);
        }
        drop(known);
        HeldAddresses { subnets: self.clone(), held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(addresses: &SubnetAddresses, subnets: &[&'static str]) -> Option<&'static str> {
        let held = addresses.hold([(subnets.to_vec(), 1)]);
        subnets.iter().copied().find(|subnet| held.is_in(subnet))
    }

    #[test]
    fn launches_count_until_ec2_is_asked_again() {
        let addresses = SubnetAddresses::default();
        assert_eq!(best(&addresses, &["a", "b"]), Some("a"), "nothing is known");
        addresses.described([("a", 100), ("b", 90)]);
        assert_eq!(best(&addresses, &["b", "a", "c"]), Some("a"));
        addresses.launched("a", 11);
        assert_eq!(best(&addresses, &["a", "b"]), Some("b"));
        addresses.launched("b", 1);
        assert_eq!(best(&addresses, &["a", "b"]), Some("a"), "of equal ones the first");
        addresses.launched("a", 0);
        assert_eq!(best(&addresses, &["a", "b"]), Some("b"), "an instance uses at least one address");
        addresses.launched("b", 500);
        addresses.launched("unknown", 1);
        assert_eq!(best(&addresses, &["b", "a", "unknown"]), Some("a"));
        addresses.described([("b", 95)]);
        assert_eq!(best(&addresses, &["a", "b"]), Some("b"));
        assert_eq!(best(&addresses, &[]), None);
    }

    #[test]
    fn launches_under_way_are_spread_and_leave_nothing_behind() {
        let addresses = SubnetAddresses::default();
        addresses.described([("a", 250), ("b", 249)]);
        let launches: Vec<HeldAddresses> = (0..20).map(|_| addresses.hold([(vec!["a", "b"], 29)])).collect();
        let in_a: Vec<bool> = launches.iter().map(|held| held.is_in("a")).collect();
        let alternating: Vec<bool> = (0..20).map(|number| number % 2 == 0).collect();
        assert_eq!(in_a, alternating, "a is ahead of b by one address whenever both have the same number of launches");
        drop(launches);
        assert_eq!(best(&addresses, &["b", "a"]), Some("a"));
        assert!(addresses.0.lock().held.is_empty());
    }

    #[test]
    fn held_addresses_count_although_ec2_is_asked_again() {
        let addresses = SubnetAddresses::default();
        addresses.described([("a", 100), ("b", 90)]);
        let held = addresses.hold([(vec!["a", "b"], 20)]);
        assert_eq!(best(&addresses, &["a", "b"]), Some("b"), "80 in a");
        addresses.described([("a", 100), ("b", 90)]);
        assert_eq!(best(&addresses, &["a", "b"]), Some("b"), "the instance does not exist yet");
        addresses.launched("a", 20);
        drop(held);
        assert_eq!(best(&addresses, &["a", "b"]), Some("b"), "80 in a, and not 60");
        addresses.launched("b", 11);
        assert_eq!(best(&addresses, &["a", "b"]), Some("a"), "79 in b");
    }

    #[test]
    fn a_subnet_of_each_zone_is_held_even_if_nothing_is_known_of_it() {
        let addresses = SubnetAddresses::default();
        let choices = || [(vec!["a1", "a2"], 5), (vec!["b1"], 0), (Vec::new(), 5)];
        let first = addresses.hold(choices());
        assert!(first.is_in("a1") && first.is_in("b1") && !first.is_in("a2"));
        assert_eq!(addresses.0.lock().held, [("a1".to_owned(), 5), ("b1".to_owned(), 1)].into());
        let second = addresses.hold(choices());
        assert!(second.is_in("a2") && second.is_in("b1") && !second.is_in("a1"));
        addresses.described([("a3", 0)]);
        assert_eq!(best(&addresses, &["a1", "a3"]), Some("a3"), "known ones come first");
        drop(first);
        assert_eq!(addresses.0.lock().held, [("a2".to_owned(), 5), ("b1".to_owned(), 1)].into());
    }

    #[test]
    fn the_number_of_subnets_is_bounded() {
        let addresses = SubnetAddresses::default();
        let names: Vec<String> = (0..=MAX_SUBNETS).map(|number| format!("subnet-{number}")).collect();
        addresses.described(names.iter().map(|name| (name.as_str(), 1)));
        assert_eq!(addresses.0.lock().free.len(), MAX_SUBNETS);
        addresses.described([("subnet-0", 7)]);
        assert_eq!(addresses.0.lock().free["subnet-0"], 7);
    }
}
