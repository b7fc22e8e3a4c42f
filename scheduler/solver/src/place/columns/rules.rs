//! Models host rules as resources: if pods of several kinds may not share a node, each pod requests one unit of a
//! resource of which nodes have few. The model is exact if every pod of a rule both owns it and is selected by it.
//! Otherwise it is weaker than the rule.

use crate::place::hostname_topology::{HostRule, Membership};
use plimsoll_model::index::{Id, IndexVec};

/// Maximum number of rules. Each slows down every search for a filling a little.
const MAX_GROUPS: usize = 12;

/// A rule, and the number of its pods that a node can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shared {
    group: Id<HostRule>,
    most: i64,
}

/// The rules with at least `least` of these kinds, each given with its number of pods. Rules that need most nodes come
/// first.
pub(crate) fn shared<'m>(
    rules: &IndexVec<HostRule, HostRule>,
    kinds: impl Iterator<Item = (&'m Membership<HostRule>, usize)>,
    least: usize,
) -> Vec<Shared> {
    let mut parts = IndexVec::filled((0_usize, 0_usize), rules.len());
    for (kind, pods) in kinds {
        for group in kind.owns.iter().filter(|group| kind.matches.contains(group)) {
            if let Some(part) = parts.try_get_mut(*group) {
                *part = (part.0 + 1, part.1 + pods);
            }
        }
    }
    let mut found: Vec<(usize, Shared)> = Vec::new();
    for ((group, rule), (count, pods)) in rules.iter_enumerated().zip(parts) {
        let most = match rule {
            HostRule::MaxMembers(most) => *most,
            HostRule::Exclusive | HostRule::AvoidMembers => 1,
            HostRule::NeedsMember => continue,
        };
        if count >= least && count > 0 {
            found.push((pods / most.max(1), Shared { group, most: i64::try_from(most).unwrap_or(i64::MAX) }));
        }
    }
    found.sort_by_key(|(nodes, one)| (std::cmp::Reverse(*nodes), one.group));
    found.into_iter().map(|(_, one)| one).take(MAX_GROUPS).collect()
}

/// Requests, followed by one unit of each rule that applies to the kind.
pub(crate) fn requests(requests: &[i64], kind: &Membership<HostRule>, rules: &[Shared]) -> Vec<i64> {
    let part = |rule: &Shared| i64::from(kind.owns.contains(&rule.group) && kind.matches.contains(&rule.group));
    requests.iter().copied().chain(rules.iter().map(part)).collect()
}

/// Capacity of a node, followed by its units of each rule.
pub(crate) fn room(room: &[i64], rules: &[Shared]) -> Vec<i64> {
    room.iter().copied().chain(rules.iter().map(|rule| rule.most)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pods_that_have_a_rule_and_are_meant_by_it_take_part() {
        let ids = |numbers: &[usize]| numbers.iter().copied().map(Id::new).collect();
        let member = |owns: &[usize], matches: &[usize]| Membership { owns: ids(owns), matches: ids(matches) };
        let kinds = [member(&[0, 1], &[0, 1, 2]), member(&[0, 2], &[0]), member(&[1], &[0, 1]), member(&[], &[1])];
        let rules = vec![HostRule::Exclusive, HostRule::MaxMembers(2), HostRule::NeedsMember].into();
        let found = shared(&rules, kinds.iter().zip([5, 4, 9, 9]), 2);
        // Nine nodes are needed for the first rule, seven for the second.
        assert_eq!(found, [Shared { group: Id::new(0), most: 1 }, Shared { group: Id::new(1), most: 2 }]);
        let of = |kind: usize| requests(&[7], &kinds[kind], &found);
        assert_eq!([of(0), of(1), of(2), of(3)], [[7, 1, 1], [7, 1, 0], [7, 0, 1], [7, 0, 0]]);
        assert_eq!(room(&[9], &found), [9, 1, 2]);
        let alone = || kinds.iter().zip([3, 0, 0, 0]).take(1);
        assert_eq!(shared(&rules, alone(), 2), []);
        assert_eq!(shared(&rules, alone(), 1), found);
    }
}
