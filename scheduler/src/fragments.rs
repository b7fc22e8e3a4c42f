//! A plan in pieces that fit into messages.

use plimsoll_proto::plan::v1 as wire;
use plimsoll_proto::scheduler::v1::PlanFragment;
use prost::Message;

/// About how many bytes a piece has: far below the largest message, and enough that a usual plan is one piece.
pub const FRAGMENT_BYTES: usize = 1 << 20;

/// The pieces of `plan`, each of about `bytes` at the most but for single actions that are larger; at least one. Totals and
/// time are in the last one alone.
#[must_use]
pub fn fragments(plan: wire::Plan, bytes: usize) -> Vec<PlanFragment> {
    let totals = wire::Plan {
        launches: Vec::new(),
        placements: Vec::new(),
        terminations: Vec::new(),
        unschedulable: Vec::new(),
        ignored: Vec::new(),
        ..plan
    };
    let header = wire::Plan {
        hourly_micro_usd: 0,
        lower_bound_micro_usd: 0,
        next_time_unix_ms: None,
        pool_problems: Vec::new(),
        ..totals.clone()
    };
    let mut pieces = Pieces { header: &header, bytes, done: Vec::new(), part: header.clone(), room: bytes };
    pieces.split(plan.launches, |part| &mut part.launches);
    pieces.split(plan.placements, |part| &mut part.placements);
    pieces.split(plan.terminations, |part| &mut part.terminations);
    pieces.split(plan.unschedulable, |part| &mut part.unschedulable);
    pieces.split(plan.ignored, |part| &mut part.ignored);
    let Pieces { mut done, mut part, .. } = pieces;
    part.hourly_micro_usd = totals.hourly_micro_usd;
    part.lower_bound_micro_usd = totals.lower_bound_micro_usd;
    part.next_time_unix_ms = totals.next_time_unix_ms;
    // One for each pool at most: there are few.
    part.pool_problems = totals.pool_problems;
    done.push(part);
    let (sequence, count) = (header.snapshot_sequence, done.len());
    let fragment = |(index, part)| PlanFragment { sequence, last: index + 1 == count, part: Some(part) };
    done.into_iter().enumerate().map(fragment).collect()
}

struct Pieces<'a> {
    header: &'a wire::Plan,
    bytes: usize,
    done: Vec<wire::Plan>,
    part: wire::Plan,
    room: usize,
}

impl Pieces<'_> {
    fn split<T: Message>(&mut self, actions: Vec<T>, list: impl Fn(&mut wire::Plan) -> &mut Vec<T>) {
        for action in actions {
            let size = action.encoded_len();
            // A piece takes at least one action, however large.
            if size > self.room && self.room < self.bytes {
                self.done.push(std::mem::replace(&mut self.part, self.header.clone()));
                self.room = self.bytes;
            }
            self.room = self.room.saturating_sub(size.max(1));
            list(&mut self.part).push(action);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_proto::convert::append_fragment;
    use proptest::prelude::*;

    fn plan(counts: [usize; 5]) -> wire::Plan {
        let pod = |n: usize| wire::PodRef { name: format!("default/web-{n}"), uid: n.to_string() };
        let [launches, placements, terminations, unschedulable, ignored] = counts;
        wire::Plan {
            snapshot_sequence: 7,
            ledger: Some(plimsoll_proto::snapshot::v1::LedgerPosition { epoch: 1, sequence: 2 }),
            launches: (0..launches).map(|n| wire::Launch { action_id: n.to_string(), ..Default::default() }).collect(),
            placements: (0..placements)
                .map(|n| wire::Placement { node: n.to_string(), pods: (0..n).map(pod).collect() })
                .collect(),
            terminations: (0..terminations)
                .map(|n| wire::Termination { node: n.to_string(), ..Default::default() })
                .collect(),
            unschedulable: (0..unschedulable)
                .map(|n| wire::Unschedulable { pod: Some(pod(n)), reasons: Vec::new() })
                .collect(),
            ignored: (0..ignored).map(|_| Default::default()).collect(),
            hourly_micro_usd: 5,
            lower_bound_micro_usd: 4,
            next_time_unix_ms: Some(3),
            pool_problems: vec![wire::Reason::default()],
        }
    }

    proptest! {
        #[test]
        fn pieces_add_up_to_the_plan_and_totals_come_last(counts in any::<[u8; 5]>(), bytes in 0..300_usize) {
            let whole = plan(counts.map(|count| usize::from(count % 12)));
            let pieces = fragments(whole.clone(), bytes);
            let mut sum = wire::Plan::default();
            let count = pieces.len();
            for (index, piece) in pieces.into_iter().enumerate() {
                prop_assert_eq!((piece.sequence, piece.last), (7, index + 1 == count));
                let part = piece.part.unwrap();
                prop_assert_eq!(part.hourly_micro_usd, if index + 1 == count { 5 } else { 0 });
                append_fragment(&mut sum, part);
            }
            prop_assert_eq!(sum, whole);
        }
    }

    #[test]
    fn pieces_keep_to_their_size() {
        let pieces = fragments(plan([0, 0, 0, 1000, 0]), 1000);
        assert!(pieces.len() > 10);
        let largest = pieces.iter().map(|piece| piece.part.as_ref().unwrap().encoded_len()).max().unwrap();
        // Each action has a tag and a length besides itself.
        assert!(largest < 1500, "{largest}");
        assert_eq!(fragments(plan([1, 2, 1, 3, 0]), FRAGMENT_BYTES).len(), 1);
    }
}
