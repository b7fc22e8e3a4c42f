//! Launch groups.

use super::purchase::Purchase;
use super::record;
use crate::state::launch_group::GroupKey;
use crate::state::subnet_addresses::HeldAddresses;
use plimsoll_api::NodeClaim;
use std::collections::BTreeMap;

/// Maximum number of claims in a group. EC2 accepts more, but a single answer should not decide about everything.
const MAX_GROUP: usize = 200;

/// A fixed set of NodeClaims that a single CreateFleet request launches.
#[derive(Debug)]
pub struct LaunchGroup {
    /// Id and size.
    pub key: GroupKey,
    /// Claims by name, as last seen or written.
    pub claims: BTreeMap<String, NodeClaim>,
    /// Addresses that are held for claims without an instance, by claim. A resumed group holds none.
    pub held: BTreeMap<String, HeldAddresses>,
    /// Correlation id of the planning cycle, for logs.
    pub cycle_id: String,
}

impl LaunchGroup {
    /// The group's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.key.id
    }

    /// The name of the claim in a group of one.
    #[must_use]
    pub fn only_claim(&self) -> Option<&str> {
        self.claims.keys().next().filter(|_| self.claims.len() == 1).map(String::as_str)
    }

    /// The primary claim (see [`record`]), if it exists.
    #[must_use]
    pub fn primary(&self) -> Option<&NodeClaim> {
        self.claims.values().find(|claim| record::is_primary(claim))
    }
}

/// Puts launches with equal purchases together, in order, at most [`MAX_GROUP`] per group.
pub(super) fn by_purchase<T>(launches: impl IntoIterator<Item = (Purchase, T)>) -> Vec<(Purchase, Vec<T>)> {
    let mut groups: Vec<(Purchase, Vec<T>)> = Vec::new();
    for (purchase, launch) in launches {
        match groups.iter_mut().find(|(other, members)| members.len() < MAX_GROUP && *other == purchase) {
            Some((_, members)) => members.push(launch),
            None => groups.push((purchase, vec![launch])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_api::NodeClaimSpec;

    /// EC2 gives all instances of a request the same tags.
    #[test]
    fn only_a_group_of_one_names_its_claim_in_tags() {
        let group = |names: &[&str]| LaunchGroup {
            key: GroupKey { id: "g".to_owned(), size: u32::try_from(names.len()).unwrap() },
            claims: names.iter().map(|it| ((*it).to_owned(), NodeClaim::new(it, NodeClaimSpec::default()))).collect(),
            held: BTreeMap::new(),
            cycle_id: String::new(),
        };
        assert_eq!(group(&["a"]).only_claim(), Some("a"));
        assert_eq!(group(&["a", "b"]).only_claim(), None);
        assert!(group(&["a"]).primary().is_none(), "no attempt is written");
    }
}
