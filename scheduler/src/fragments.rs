//! Splits a plan into fragments that fit into messages.

use plimsoll_model::plan::{Launch, Plan, Unschedulable};
use plimsoll_proto::convert::{SharedLists, SharedReasons, without_sharers};
use plimsoll_proto::plan::v1 as wire;
use plimsoll_proto::scheduler::v1::PlanFragment;
use prost::Message;

/// Approximate maximum size of a fragment: far below the maximum message size, but large enough for a typical plan.
pub const FRAGMENT_BYTES: usize = 1 << 20;

/// Splits `plan`, starting with launch number `from`, into fragments of about `max_bytes`. A fragment with a single
/// action may be larger. Returns at least one fragment. Only the last fragment has totals and time. Launches in one
/// fragment share their lists of offerings and requirements, and with `share_reasons` unschedulable pods their reasons.
#[must_use]
pub fn fragments(plan: &Plan, from: usize, max_bytes: usize, share_reasons: bool) -> Vec<PlanFragment> {
    let wire_plan = without_sharers(plan);
    let header = wire::Plan {
        snapshot_sequence: wire_plan.snapshot_sequence,
        ledger: wire_plan.ledger,
        ..wire::Plan::default()
    };
    let mut builder = FragmentBuilder {
        header: &header,
        max_bytes,
        done: Vec::new(),
        part: header.clone(),
        remaining_bytes: max_bytes,
    };
    builder.launches(plan.launches.get(from..).unwrap_or_default());
    builder.split(wire_plan.placements, |part| &mut part.placements);
    builder.split(wire_plan.terminations, |part| &mut part.terminations);
    builder.unschedulable(&plan.unschedulable, share_reasons);
    builder.split(wire_plan.ignored, |part| &mut part.ignored);
    let FragmentBuilder { mut done, mut part, .. } = builder;
    part.hourly_micro_usd = wire_plan.hourly_micro_usd;
    part.lower_bound_micro_usd = wire_plan.lower_bound_micro_usd;
    part.next_time_unix_ms = wire_plan.next_time_unix_ms;
    // There is at most one problem per pool.
    part.pool_problems = wire_plan.pool_problems;
    // There are at most some hundreds.
    part.postponed_removals = wire_plan.postponed_removals;
    done.push(part);
    let (sequence, count) = (header.snapshot_sequence, done.len());
    let fragment = |(index, part)| PlanFragment { sequence, last: index + 1 == count, part: Some(part) };
    done.into_iter().enumerate().map(fragment).collect()
}

struct FragmentBuilder<'a> {
    header: &'a wire::Plan,
    max_bytes: usize,
    done: Vec<wire::Plan>,
    part: wire::Plan,
    remaining_bytes: usize,
}

impl FragmentBuilder<'_> {
    fn split<T: Message>(&mut self, actions: Vec<T>, list: impl Fn(&mut wire::Plan) -> &mut Vec<T>) {
        for action in actions {
            let size = action.encoded_len();
            if self.is_full_for(size) {
                self.close();
            }
            self.reserve(size);
            list(&mut self.part).push(action);
        }
    }

    fn launches(&mut self, launches: &[Launch]) {
        let mut shared = SharedLists::default();
        for launch in launches {
            let mut next = shared.launch(launch);
            if self.is_full_for(next.encoded_len()) {
                self.close();
                // The launch is the first of a new fragment and must contain its lists.
                shared = SharedLists::default();
                next = shared.launch(launch);
            }
            self.reserve(next.encoded_len());
            self.part.launches.push(next);
        }
    }

    fn unschedulable<'p>(&mut self, pods: &'p [Unschedulable], share_reasons: bool) {
        let mut shared = share_reasons.then(SharedReasons::default);
        let convert = |shared: &mut Option<SharedReasons<'p>>, pod: &'p Unschedulable| match shared {
            Some(shared) => shared.pod(pod),
            None => pod.into(),
        };
        for pod in pods {
            let mut next = convert(&mut shared, pod);
            if self.is_full_for(next.encoded_len()) {
                self.close();
                // The pod is the first of a new fragment and must contain its reasons.
                shared = share_reasons.then(SharedReasons::default);
                next = convert(&mut shared, pod);
            }
            self.reserve(next.encoded_len());
            self.part.unschedulable.push(next);
        }
    }

    /// Whether `size` does not fit. A fragment takes at least one action, however large.
    fn is_full_for(&self, size: usize) -> bool {
        size > self.remaining_bytes && self.remaining_bytes < self.max_bytes
    }

    fn close(&mut self) {
        self.done.push(std::mem::replace(&mut self.part, self.header.clone()));
        self.remaining_bytes = self.max_bytes;
    }

    fn reserve(&mut self, size: usize) {
        self.remaining_bytes = self.remaining_bytes.saturating_sub(size.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::CapacityType;
    use plimsoll_model::money::MicroUsdPerHour;
    use plimsoll_model::plan::{OfferingChoice, Placement, PodRef, Reason, ReasonCode, Termination, Unschedulable};
    use plimsoll_model::snapshot::{DisruptionReason, LedgerPosition};
    use plimsoll_proto::convert::append_fragment;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Number of distinct offering lists of the test launches.
    const OFFERING_LISTS: usize = 3;

    fn pod(n: usize) -> PodRef {
        PodRef { name: format!("default/web-{n}"), uid: n.to_string().as_str().into() }
    }

    fn plan([launches, placements, terminations, unschedulable]: [usize; 4]) -> Plan {
        let offering = |list: usize| OfferingChoice {
            instance_type: format!("m{list}.large"),
            zone: "a".into(),
            capacity_type: CapacityType::OnDemand,
            price: MicroUsdPerHour(5),
            reservation: None,
        };
        let lists: Vec<_> = (0..OFFERING_LISTS).map(|list| Arc::new(vec![offering(list); 4])).collect();
        let requirements = Arc::default();
        let launch = |n: usize| Launch {
            action_id: n.to_string().as_str().into(),
            node_pool: "default".into(),
            node_class: "default".into(),
            offerings: Arc::clone(&lists[n % OFFERING_LISTS]),
            requirements: Arc::clone(&requirements),
            pods: vec![pod(n)],
            ..Launch::default()
        };
        let termination = |n: usize| Termination {
            action_id: format!("t{n}").as_str().into(),
            node: n.to_string().as_str().into(),
            reason: DisruptionReason::Empty,
            replaced_by: (0..launches.min(n)).collect(),
            saving: MicroUsdPerHour(1),
            ..Termination::default()
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
                .map(|n| Unschedulable { pod: pod(n), reasons: vec![reason.clone()].into() })
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
        fn fragments_add_up_to_the_plan_and_the_last_has_the_totals(
            counts in any::<[u8; 4]>(),
            max_bytes in 0..600_usize,
            share_reasons in any::<bool>(),
        ) {
            let whole = plan(counts.map(|count| usize::from(count % 12)));
            let pieces = fragments(&whole, 0, max_bytes, share_reasons);
            let mut sum = wire::Plan::default();
            let count = pieces.len();
            for (index, piece) in pieces.into_iter().enumerate() {
                prop_assert_eq!((piece.sequence, piece.last), (7, index + 1 == count));
                let part = piece.part.unwrap();
                prop_assert_eq!(part.hourly_micro_usd, if index + 1 == count { 5 } else { 0 });
                // The launches of each fragment can be decoded separately.
                let alone = wire::Plan { terminations: Vec::new(), ..part.clone() };
                prop_assert_eq!(Plan::try_from(alone).unwrap().launches.len(), part.launches.len());
                append_fragment(&mut sum, part);
            }
            prop_assert_eq!(Plan::try_from(sum).unwrap(), whole);
        }
    }

    #[test]
    fn fragments_respect_the_maximum_size() {
        let pieces = fragments(&plan([0, 0, 0, 1000]), 0, 1000, false);
        assert!(pieces.len() > 10);
        let largest = parts(&pieces).map(Message::encoded_len).max().unwrap();
        // Each action adds a tag and a length, and the last fragment adds the pool problem and totals.
        assert!(largest < 1500, "{largest}");
        assert_eq!(fragments(&plan([1, 2, 1, 3]), 0, FRAGMENT_BYTES, false).len(), 1);
    }

    #[test]
    fn a_fragment_contains_the_reasons_of_each_shape_once() {
        let reason = |pool: usize| Reason {
            node_pool: format!("pool-{pool:02}"),
            code: ReasonCode::LimitReached,
            message: "x".repeat(200),
        };
        let reasons = Arc::new((0..60).map(reason).collect::<Vec<_>>());
        let one = |n: usize| Unschedulable { pod: pod(n), reasons: Arc::clone(&reasons) };
        let whole = Plan { unschedulable: (0..1000).map(one).collect(), ..Plan::default() };
        let sizes = |share_reasons: bool| {
            let pieces = fragments(&whole, 0, FRAGMENT_BYTES, share_reasons);
            parts(&pieces).map(Message::encoded_len).collect::<Vec<_>>()
        };
        assert!(sizes(false).len() > 10);
        assert!(matches!(sizes(true)[..], [size] if size < 100_000), "{:?}", sizes(true));
    }

    #[test]
    fn a_fragment_contains_each_offering_list_once() {
        let pieces = fragments(&plan([30, 0, 0, 0]), 2, 1000, true);
        assert!(pieces.len() > 1);
        let count_lists =
            |part: &wire::Plan| part.launches.iter().filter(|launch| !launch.offerings.is_empty()).count();
        for part in parts(&pieces) {
            assert_eq!(count_lists(part), part.launches.len().min(OFFERING_LISTS), "{part:?}");
        }
        assert_eq!(parts(&pieces).map(|part| part.launches.len()).sum::<usize>(), 28);
    }
}
