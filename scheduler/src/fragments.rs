//! A plan in pieces that fit into messages.

use plimsoll_model::plan::{Launch, Plan};
use plimsoll_proto::convert::{SharedLists, without_launches};
use plimsoll_proto::plan::v1 as wire;
use plimsoll_proto::scheduler::v1::PlanFragment;
use prost::Message;

/// About how many bytes a piece has: far below the largest message, and enough that a usual plan is one piece.
pub const FRAGMENT_BYTES: usize = 1 << 20;

/// The pieces of `plan` from launch number `from` on, each of about `bytes` at the most but for single actions that are larger; at least one.
/// Totals and time are in the last one alone. Within a piece, launches share their lists of offerings and requirements.
#[must_use]
pub fn fragments(plan: &Plan, from: usize, bytes: usize) -> Vec<PlanFragment> {
    let all = without_launches(plan);
    let header = wire::Plan { snapshot_sequence: all.snapshot_sequence, ledger: all.ledger, ..wire::Plan::default() };
    let mut pieces = Pieces { header: &header, bytes, done: Vec::new(), part: header.clone(), room: bytes };
    pieces.launches(plan.launches.get(from..).unwrap_or_default());
    pieces.split(all.placements, |part| &mut part.placements);
    pieces.split(all.terminations, |part| &mut part.terminations);
    pieces.split(all.unschedulable, |part| &mut part.unschedulable);
    pieces.split(all.ignored, |part| &mut part.ignored);
    let Pieces { mut done, mut part, .. } = pieces;
    part.hourly_micro_usd = all.hourly_micro_usd;
    part.lower_bound_micro_usd = all.lower_bound_micro_usd;
    part.next_time_unix_ms = all.next_time_unix_ms;
    // One for each pool at most: there are few.
    part.pool_problems = all.pool_problems;
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
            if self.is_full_for(size) {
                self.close();
            }
            self.put(size);
            list(&mut self.part).push(action);
        }
    }

    fn launches(&mut self, launches: &[Launch]) {
        let mut shared = SharedLists::default();
        for launch in launches {
            let mut next = shared.launch(launch);
            if self.is_full_for(next.encoded_len()) {
                self.close();
                // It is the first of its piece.
                shared = SharedLists::default();
                next = shared.launch(launch);
            }
            self.put(next.encoded_len());
            self.part.launches.push(next);
        }
    }

    /// A piece takes at least one action, however large.
    fn is_full_for(&self, size: usize) -> bool {
        size > self.room && self.room < self.bytes
    }

    fn close(&mut self) {
        self.done.push(std::mem::replace(&mut self.part, self.header.clone()));
        self.room = self.bytes;
    }

    fn put(&mut self, size: usize) {
        self.room = self.room.saturating_sub(size.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::CapacityType;
    use plimsoll_model::money::MicroUsdPerHour;
    use plimsoll_model::plan::{OfferingChoice, Placement, PodRef, Reason, ReasonCode, Termination, Unschedulable};
    use plimsoll_model::resources::Resources;
    use plimsoll_model::snapshot::{DisruptionReason, LedgerPosition};
    use plimsoll_proto::convert::append_fragment;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Lists of offerings that launches take in turn.
    const LISTS: usize = 3;

    fn pod(n: usize) -> PodRef {
        PodRef { name: format!("default/web-{n}"), uid: n.to_string().as_str().into() }
    }

    fn plan([launches, placements, terminations, unschedulable]: [usize; 4]) -> Plan {
        let offering = |list: usize| OfferingChoice {
            instance_type: format!("m{list}.large"),
            zone: "a".into(),
            capacity_type: CapacityType::OnDemand,
            price: MicroUsdPerHour(5),
        };
        let lists: Vec<_> = (0..LISTS).map(|list| Arc::new(vec![offering(list); 4])).collect();
        let requirements = Arc::default();
        let launch = |n: usize| Launch {
            action_id: n.to_string().as_str().into(),
            node_pool: "default".into(),
            node_class: "default".into(),
            offerings: Arc::clone(&lists[n % LISTS]),
            requirements: Arc::clone(&requirements),
            requests: Resources::default(),
            taints: Vec::new(),
            labels: [].into(),
            pods: vec![pod(n)],
            prioritized: false,
            why: String::new(),
        };
        let termination = |n: usize| Termination {
            action_id: format!("t{n}").as_str().into(),
            node: n.to_string().as_str().into(),
            reason: DisruptionReason::Empty,
            pods: Vec::new(),
            replaced_by: (0..launches.min(n)).collect(),
            moved_to: Vec::new(),
            saving: MicroUsdPerHour(1),
        };
        let reason = Reason { node_pool: "default".into(), code: ReasonCode::NoOffering, message: "none".into() };
        Plan {
            snapshot_sequence: 7,
            ledger: LedgerPosition { epoch: 1, sequence: 2 },
            launches: (0..launches).map(launch).collect(),
            placements: (0..placements)
                .map(|n| Placement { node: n.to_string().as_str().into(), pods: (0..n).map(pod).collect() })
                .collect(),
            terminations: (0..terminations).map(termination).collect(),
            unschedulable: (0..unschedulable)
                .map(|n| Unschedulable { pod: pod(n), reasons: vec![reason.clone()] })
                .collect(),
            pool_problems: vec![reason.clone()],
            hourly: MicroUsdPerHour(5),
            lower_bound: MicroUsdPerHour(4),
            next_time: Some(plimsoll_model::time::Timestamp(3)),
            ..Plan::default()
        }
    }

    fn parts(pieces: &[PlanFragment]) -> impl Iterator<Item = &wire::Plan> {
        pieces.iter().filter_map(|piece| piece.part.as_ref())
    }

    proptest! {
        #[test]
        fn pieces_add_up_to_the_plan_and_totals_come_last(counts in any::<[u8; 4]>(), bytes in 0..600_usize) {
            let whole = plan(counts.map(|count| usize::from(count % 12)));
            let pieces = fragments(&whole, 0, bytes);
            let mut sum = wire::Plan::default();
            let count = pieces.len();
            for (index, piece) in pieces.into_iter().enumerate() {
                prop_assert_eq!((piece.sequence, piece.last), (7, index + 1 == count));
                let part = piece.part.unwrap();
                prop_assert_eq!(part.hourly_micro_usd, if index + 1 == count { 5 } else { 0 });
                // Each piece's launches can be read by themselves.
                let alone = wire::Plan { terminations: Vec::new(), ..part.clone() };
                prop_assert_eq!(Plan::try_from(alone).unwrap().launches.len(), part.launches.len());
                append_fragment(&mut sum, part);
            }
            prop_assert_eq!(Plan::try_from(sum).unwrap(), whole);
        }
    }

    #[test]
    fn pieces_keep_to_their_size() {
        let pieces = fragments(&plan([0, 0, 0, 1000]), 0, 1000);
        assert!(pieces.len() > 10);
        let largest = parts(&pieces).map(Message::encoded_len).max().unwrap();
        // Each action has a tag and a length besides itself, and the last piece has the pool's problem and totals.
        assert!(largest < 1500, "{largest}");
        assert_eq!(fragments(&plan([1, 2, 1, 3]), 0, FRAGMENT_BYTES).len(), 1);
    }

    #[test]
    fn a_piece_lists_the_same_offerings_once() {
        let pieces = fragments(&plan([30, 0, 0, 0]), 2, 1000);
        assert!(pieces.len() > 1);
        let of = |part: &wire::Plan| part.launches.iter().filter(|launch| !launch.offerings.is_empty()).count();
        for part in parts(&pieces) {
            assert_eq!(of(part), part.launches.len().min(LISTS), "{part:?}");
        }
        assert_eq!(parts(&pieces).map(|part| part.launches.len()).sum::<usize>(), 28);
    }
}
