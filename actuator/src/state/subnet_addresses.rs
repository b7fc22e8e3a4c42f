//! Free addresses of subnets: what EC2 said last, less what was launched since (spec: AWS provider section 4.6). In
//! memory only, and an order of preference: EC2 decides whether a subnet has room.

use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of subnets: ten times EC2's default quota per VPC. Beyond it, further subnets are not counted.
const MAX_SUBNETS: usize = 2_000;

/// Free addresses by subnet. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct SubnetAddresses(Arc<Mutex<BTreeMap<String, i64>>>);

impl SubnetAddresses {
    /// Records what EC2 says now. What was launched before is part of it.
    pub fn described<'s>(&self, subnets: impl IntoIterator<Item = (&'s str, u32)>) {
        let mut free = self.0.lock();
        for (subnet, addresses) in subnets {
            if free.len() < MAX_SUBNETS || free.contains_key(subnet) {
                free.insert(subnet.to_owned(), i64::from(addresses));
            }
        }
    }

    /// Subtracts the addresses that a launched instance and its pods will use.
    pub fn launched(&self, subnet: &str, addresses: i64) {
        if let Some(free) = self.0.lock().get_mut(subnet) {
            *free = free.saturating_sub(addresses.max(1));
        }
    }

    /// The subnet with most free addresses, the first of several. Subnets that EC2 was not asked about come last.
    pub fn best<'s, S>(&self, subnets: impl Iterator<Item = &'s S>, id: impl Fn(&S) -> &str) -> Option<&'s S> {
        let free = self.0.lock();
        subnets.min_by_key(|subnet| Reverse(free.get(id(subnet)).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(addresses: &SubnetAddresses, subnets: &[&'static str]) -> Option<&'static str> {
        addresses.best(subnets.iter(), |subnet| *subnet).copied()
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
    fn the_number_of_subnets_is_bounded() {
        let addresses = SubnetAddresses::default();
        let names: Vec<String> = (0..=MAX_SUBNETS).map(|number| format!("subnet-{number}")).collect();
        addresses.described(names.iter().map(|name| (name.as_str(), 1)));
        assert_eq!(addresses.0.lock().len(), MAX_SUBNETS);
        addresses.described([("subnet-0", 7)]);
        assert_eq!(addresses.0.lock()["subnet-0"], 7);
    }
}
