//! The nomination gate: which pods may be nominated to one node (`status.nominatedNodeName`) at the same time.
//!
//! When kube-scheduler tries a pod on a node, it counts all pods of the same or a higher priority that are nominated to
//! that node. It does not count pods that are nominated to other nodes. If more pods are nominated than maxSkew allows,
//! these pods therefore keep each other from the node, possibly forever.

use std::cmp::Reverse;

/// Pods with the same rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// The required topology spread constraints of these pods.
    pub spreads: Vec<SpreadLimit>,
}

/// A topology spread constraint, applied to pods that are nominated to the same node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpreadLimit {
    /// Maximum number of nominated pods of the `counted` groups.
    pub max_skew: i64,
    /// Groups that the constraint counts and that may have to wait for a pod with the constraint.
    pub counted: Vec<usize>,
}

/// A pending pod that may be nominated to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Index of its group.
    pub group: usize,
    /// The pod's priority.
    pub priority: i32,
    /// Whether the pod is nominated to the node already.
    pub is_current: bool,
}

/// Returns which `candidates` for one node may be nominated at the same time. `candidates` are in the order of
/// kube-scheduler's queue.
///
/// Candidates of higher priority are admitted first. A current nomination is not withdrawn for another pod of the same
/// priority. Next are the pods whose constraints count most of the other candidates, since these candidates would block
/// them.
///
/// ```
/// use plimsoll_kubesched::nomination::{Candidate, Group, SpreadLimit, admissible};
///
/// // Pods of one Deployment, spread with maxSkew 2.
/// let web = Group { spreads: vec![SpreadLimit { max_skew: 2, counted: vec![0] }] };
/// let pod = Candidate { group: 0, priority: 0, is_current: false };
/// assert_eq!(admissible(&[web], &[pod; 3]), [true, true, false]);
/// ```
#[must_use]
pub fn admissible(groups: &[Group], candidates: &[Candidate]) -> Vec<bool> {
    let mut pods = vec![0_usize; groups.len()];
    for candidate in candidates {
        if let Some(count) = pods.get_mut(candidate.group) {
            *count += 1;
        }
    }
    let hindered_by = |group: usize| -> usize {
        let spreads = groups.get(group).into_iter().flat_map(|group| &group.spreads);
        let others = spreads.flat_map(|spread| &spread.counted).filter(|other| **other != group);
        others.filter_map(|other| pods.get(*other)).sum()
    };
    let mut order: Vec<(usize, &Candidate)> = candidates.iter().enumerate().collect();
    order.sort_by_key(|(_, candidate)| {
        (Reverse(candidate.priority), !candidate.is_current, Reverse(hindered_by(candidate.group)))
    });
    let mut admitted = vec![false; candidates.len()];
    let mut nominated = vec![0_i64; groups.len()];
    for (index, candidate) in order {
        change(&mut nominated, candidate.group, 1);
        let holds = |spread: &SpreadLimit| {
            let counted = spread.counted.iter().filter_map(|group| nominated.get(*group));
            counted.sum::<i64>() <= spread.max_skew
        };
        let mut present = groups.iter().zip(&nominated).filter(|(_, count)| **count > 0);
        if !present.all(|(group, _)| group.spreads.iter().all(holds)) {
            change(&mut nominated, candidate.group, -1);
        } else if let Some(admitted) = admitted.get_mut(index) {
            *admitted = true;
        }
    }
    admitted
}

fn change(counts: &mut [i64], group: usize, by: i64) {
    if let Some(count) = counts.get_mut(group) {
        *count += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(group: usize, priority: i32, is_current: bool) -> Candidate {
        Candidate { group, priority, is_current }
    }

    fn spread(max_skew: i64, counted: &[usize]) -> Group {
        Group { spreads: vec![SpreadLimit { max_skew, counted: counted.to_vec() }] }
    }

    #[test]
    fn at_most_max_skew_pods_of_a_spread_are_nominated() {
        let groups = [spread(2, &[0]), Group::default()];
        let candidates = [0, 1, 0, 0, 1].map(|group| candidate(group, 0, false));
        assert_eq!(admissible(&groups, &candidates), [true, true, true, false, true]);
    }

    #[test]
    fn priority_comes_first_then_current_nominations_then_pods_that_others_hinder() {
        let alone = [spread(1, &[0])];
        assert_eq!(admissible(&alone, &[candidate(0, 0, true), candidate(0, 7, false)]), [false, true]);
        assert_eq!(admissible(&alone, &[candidate(0, 0, false), candidate(0, 0, true)]), [false, true]);
        let counts_another = [Group::default(), spread(1, &[0, 1])];
        assert_eq!(admissible(&counts_another, &[candidate(0, 0, false), candidate(1, 0, false)]), [false, true]);
    }
}
