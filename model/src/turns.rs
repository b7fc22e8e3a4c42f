//! Which of the pods that wait for a node may be nominated to it beside each other. What counts for that is the same for the actuator, which has Pods, and
//! for the solver, which has shapes.

use std::cmp::Reverse;

/// Pods that nothing tells apart here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kind {
    /// For each spread of such a pod: `maxSkew`, and the kinds that it counts and that may have to wait for such a pod.
    pub spreads: Vec<(i64, Vec<usize>)>,
}

/// A pod that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Number of its kind.
    pub kind: usize,
    /// Its priority.
    pub priority: i32,
    /// It is nominated to that node now.
    pub stands: bool,
}

/// Which of the pods that wait for one node may be nominated to it at once, in their order: the oldest first, to which kube-scheduler comes first. A kind of
/// which more are nominated than its spreads bear keeps itself out. Higher priorities come first; nothing that stands is taken back for another pod of its
/// priority; then come those whose spreads count most of the others, which would keep them out.
#[must_use]
pub fn at_once(kinds: &[Kind], waiting: &[Waiting]) -> Vec<bool> {
    let mut pods = vec![0_usize; kinds.len()];
    waiting.iter().for_each(|one| pods[one.kind] += 1);
    let hindered = |kind: usize| -> usize {
        let counted = kinds[kind].spreads.iter().flat_map(|(_, counted)| counted);
        counted.filter(|other| **other != kind).map(|other| pods[*other]).sum()
    };
    let mut order: Vec<usize> = (0..waiting.len()).collect();
    order.sort_by_key(|index| {
        let one = waiting[*index];
        (Reverse(one.priority), !one.stands, Reverse(hindered(one.kind)))
    });
    let mut may = vec![false; waiting.len()];
    let mut there = vec![0_i64; kinds.len()];
    for index in order {
        let kind = waiting[index].kind;
        there[kind] += 1;
        let holds = |(most, counted): &(i64, Vec<usize>)| counted.iter().map(|kind| there[*kind]).sum::<i64>() <= *most;
        let mut present = kinds.iter().zip(&there).filter(|(_, count)| **count > 0);
        may[index] = present.all(|(kind, _)| kind.spreads.iter().all(holds));
        there[kind] -= i64::from(!may[index]);
    }
    may
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(kind: usize, priority: i32, stands: bool) -> Waiting {
        Waiting { kind, priority, stands }
    }

    #[test]
    fn no_kind_is_nominated_beyond_what_its_spreads_bear() {
        let kinds = [Kind { spreads: vec![(2, vec![0])] }, Kind::default()];
        let waiting = [one(0, 0, false), one(1, 0, false), one(0, 0, false), one(0, 0, false), one(1, 0, false)];
        assert_eq!(at_once(&kinds, &waiting), [true, true, true, false, true]);
    }

    #[test]
    fn priorities_come_first_then_what_stands_then_those_that_others_hinder() {
        let alone = [Kind { spreads: vec![(1, vec![0])] }];
        assert_eq!(at_once(&alone, &[one(0, 0, true), one(0, 7, false)]), [false, true]);
        assert_eq!(at_once(&alone, &[one(0, 0, false), one(0, 0, true)]), [false, true]);
        let counts_another = [Kind::default(), Kind { spreads: vec![(1, vec![0, 1])] }];
        assert_eq!(at_once(&counts_another, &[one(0, 0, false), one(1, 0, false)]), [false, true]);
    }
}
