//! Matches instances with claims (safety rule 4). The match is deterministic: a new leader that reads the group's
//! instances by tag gets the same result.

use std::collections::{BTreeMap, BTreeSet};

/// The match of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Match {
    /// Instance by claim, including matches written before.
    pub assigned: BTreeMap<String, String>,
    /// Claims without an instance.
    pub unmatched: Vec<String>,
    /// Surplus instances, to be terminated.
    pub surplus: Vec<String>,
}

/// Matches a group. `claims` holds all claims of the group, each with the instance already written to it. A written
/// match is kept, even if its instance is not in `living` (reads are eventually consistent). The rest is paired in
/// order of name and id.
#[must_use]
pub fn match_instances(claims: &BTreeMap<String, Option<String>>, living: &BTreeSet<String>) -> Match {
    let assigned_before: BTreeSet<&String> = claims.values().flatten().collect();
    let mut free = living.iter().filter(|instance| !assigned_before.contains(instance));
    let mut result = Match::default();
    for (claim, instance) in claims {
        match instance.as_ref().or_else(|| free.next()) {
            Some(instance) => {
                result.assigned.insert(claim.clone(), instance.clone());
            }
            None => result.unmatched.push(claim.clone()),
        }
    }
    result.surplus = free.cloned().collect();
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claims(of: &[(&str, Option<&str>)]) -> BTreeMap<String, Option<String>> {
        of.iter().map(|(claim, instance)| ((*claim).to_owned(), instance.map(str::to_owned))).collect()
    }

    fn living(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn pairs_in_order_and_terminates_the_surplus() {
        let result = match_instances(&claims(&[("b", None), ("a", None)]), &living(&["i-3", "i-1", "i-2"]));
        assert_eq!(result.assigned["a"], "i-1");
        assert_eq!(result.assigned["b"], "i-2");
        assert_eq!(result.surplus, ["i-3"]);
    }

    #[test]
    fn written_matches_are_kept() {
        let result = match_instances(&claims(&[("a", Some("i-2")), ("b", None)]), &living(&["i-1", "i-2"]));
        assert_eq!(result.assigned["a"], "i-2");
        assert_eq!(result.assigned["b"], "i-1");
        assert!(result.surplus.is_empty());

        let unseen = match_instances(&claims(&[("a", Some("i-9")), ("b", None)]), &living(&["i-1"]));
        assert_eq!(unseen.assigned["a"], "i-9");
    }

    #[test]
    fn claims_without_an_instance_are_unmatched() {
        let result = match_instances(&claims(&[("a", None), ("b", None)]), &living(&["i-1"]));
        assert_eq!(result.unmatched, ["b"]);
    }

    proptest! {
        /// A leader may crash after writing any part of a match: the next leader completes the same match.
        #[test]
        fn partially_written_match_is_completed_to_the_same_match(count in 0_usize..8, bought in 0_usize..8, written in 0_u8..=255) {
            let names: Vec<String> = (0..count).map(|i| format!("claim-{i}")).collect();
            let ids: BTreeSet<String> = (0..bought).map(|i| format!("i-{i}")).collect();
            let unwritten: BTreeMap<_, _> = names.iter().map(|name| (name.clone(), None)).collect();
            let first = match_instances(&unwritten, &ids);
            let partly: BTreeMap<_, _> = names.iter().enumerate().map(|(i, name)| {
                let assigned = if written >> i & 1 == 1 { first.assigned.get(name).cloned() } else { None };
                (name.clone(), assigned)
            }).collect();
            prop_assert_eq!(&match_instances(&partly, &ids), &first);
            let used: BTreeSet<_> = first.assigned.values().collect();
            prop_assert_eq!(used.len(), first.assigned.len(), "no instance serves two claims");
            prop_assert_eq!(first.assigned.len() + first.surplus.len(), bought);
        }
    }
}
