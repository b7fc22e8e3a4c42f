mod bounded;
mod buffers;
mod early;
mod outdated;
mod pauses;
mod waits;

use super::*;
use crate::samples::pod;
use crate::snapshots::TIME_STEP_MS;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, OfferingChoice, PodRef};
use plimsoll_model::snapshot::{Pod, PodState, Snapshot};
use plimsoll_model::time::Timestamp;

/// A cycle with a test clock in milliseconds.
struct Harness {
    cycle: Cycle,
    start: Instant,
    sequence: u64,
    /// Nodes that the last requested plan keeps.
    kept_nodes: Vec<String>,
}

/// A step without its snapshot.
#[derive(Debug, PartialEq)]
enum Step {
    Plan,
    PlanWithDisruption,
    Execute { plan: Box<Plan>, cycle_id: String },
    Refresh,
    Wait(Option<Instant>),
}

/// Content of a snapshot. Each letter is a pod; `incomplete` pods wait for others of their owner.
#[derive(Clone, Copy, Default)]
struct ClusterState {
    pods: &'static str,
    incomplete: &'static str,
    ledger: u64,
}

impl Harness {
    fn new() -> Self {
        Self { cycle: Cycle::new(7), start: Instant::now(), sequence: 0, kept_nodes: Vec::new() }
    }

    fn at(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis)
    }

    /// Builds a snapshot at `millis`.
    fn snapshot(&mut self, millis: u64, state: ClusterState) -> Arc<PublishedSnapshot> {
        self.sequence += 1;
        let time = Timestamp(i64::try_from(millis).unwrap());
        let pods = state.pods.chars().map(|letter| pod(&letter.to_string())).collect();
        let snapshot = Snapshot {
            sequence: self.sequence,
            ledger: position(state.ledger),
            now: Timestamp(time.0 - time.0 % TIME_STEP_MS),
            pods,
            ..Snapshot::default()
        };
        let incomplete = state.incomplete.chars().map(|letter| PodUid(letter.to_string())).collect();
        Arc::new(PublishedSnapshot {
            relevant_sequence: snapshot.sequence,
            snapshot: Arc::new(snapshot),
            checksum: 0,
            delta: None,
            incomplete,
            buffers: Vec::new(),
            started_at: self.at(millis),
            time,
        })
    }

    /// The next step. A request for a plan must carry `published`.
    fn next(&mut self, published: &Arc<PublishedSnapshot>, millis: u64) -> Step {
        let now = self.at(millis);
        let carries = |carried: &Arc<PublishedSnapshot>| assert!(Arc::ptr_eq(carried, published), "another snapshot");
        match self.cycle.next(published, now) {
            CycleStep::Plan { published, disruption, kept_nodes } => {
                carries(&published);
                self.kept_nodes = kept_nodes.into_iter().map(|node| node.0).collect();
                if disruption { Step::PlanWithDisruption } else { Step::Plan }
            }
            CycleStep::Execute { published, plan, cycle_id } => {
                assert_eq!(published.snapshot.sequence, plan.snapshot_sequence);
                Step::Execute { plan, cycle_id }
            }
            CycleStep::Refresh => Step::Refresh,
            CycleStep::Wait(until) => Step::Wait(until),
        }
    }

    fn record_plan(&mut self, published: &Arc<PublishedSnapshot>, plan: Plan, millis: u64) {
        self.record(published, plan, false, millis);
    }

    fn record(&mut self, published: &Arc<PublishedSnapshot>, plan: Plan, with_disruption: bool, millis: u64) {
        let plan = Plan { snapshot_sequence: published.snapshot.sequence, ..plan };
        self.cycle.record_plan(published, Some(plan), with_disruption, self.at(millis));
    }

    fn outcome(&mut self, action: &str, status: OutcomeStatus, ledger: u64, millis: u64) {
        let reason = (status == OutcomeStatus::Rejected).then_some(OutcomeReason::PodChanged);
        self.outcome_for(action, status, reason, ledger, millis);
    }

    fn outcome_for(
        &mut self,
        action: &str,
        status: OutcomeStatus,
        reason: Option<OutcomeReason>,
        ledger: u64,
        millis: u64,
    ) {
        let outcome = Outcome {
            action_id: action.into(),
            status,
            reason,
            message: String::new(),
            node_claim: None,
            ledger: position(ledger),
        };
        let now = self.at(millis);
        self.cycle.handle_event(Event::Outcome { cycle_id: "x".to_owned(), outcome }, now);
    }
}

fn position(sequence: u64) -> LedgerPosition {
    LedgerPosition { epoch: 1, sequence }
}

/// Returns a plan with one launch per word. The word is the action id and its letters are the pods.
fn launches(words: &[&str]) -> Plan {
    let launch = |word: &&str| Launch {
        action_id: (*word).into(),
        node_pool: "default".into(),
        node_class: "default".to_owned(),
        offerings: Arc::new(vec![OfferingChoice {
            instance_type: "c5.large".to_owned(),
            zone: "a".to_owned(),
            capacity_type: CapacityType::Spot,
            price: MicroUsdPerHour(1),
            reservation: None,
        }]),
        pods: word.chars().map(|letter| PodRef { name: letter.to_string(), uid: PodUid(letter.to_string()) }).collect(),
        ..Launch::default()
    };
    Plan { launches: words.iter().map(launch).collect(), ..Plan::default() }
}

fn reasons(uid: &str) -> Plan {
    let pod = PodRef { name: uid.to_owned(), uid: uid.into() };
    Plan { unschedulable: vec![Unschedulable { pod, reasons: Default::default() }], ..Plan::default() }
}

/// Action ids of an `Execute` step.
fn actions(step: &Step) -> Vec<&str> {
    let Step::Execute { plan, .. } = step else { panic!("{step:?}") };
    plan.launches.iter().map(|one| one.action_id.as_str()).collect()
}

#[test]
fn a_launch_for_complete_owners_is_sent_immediately() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    harness.record_plan(&snapshot, launches(&["a"]), 3);
    assert_eq!(actions(&harness.next(&snapshot, 3)), ["a"]);
}

#[test]
fn launches_wait_for_incomplete_owners_while_other_launches_are_sent() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "abc", incomplete: "ab", ledger: 0 });
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    harness.record_plan(&snapshot, launches(&["ab", "c"]), 0);
    assert_eq!(actions(&harness.next(&snapshot, 0)), ["c"]);
    harness.outcome("c", OutcomeStatus::Accepted, 1, 1);
    // Pod c is reserved now. The other pods still wait, until a second passes without a new pod.
    let snapshot = harness.snapshot(2, ClusterState { pods: "ab", incomplete: "ab", ledger: 1 });
    assert_eq!(harness.next(&snapshot, 2), Step::Plan);
    harness.record_plan(&snapshot, launches(&["ab"]), 2);
    assert_eq!(harness.next(&snapshot, 2), Step::Wait(Some(harness.at(1000))));
    assert_eq!(actions(&harness.next(&snapshot, 1000)), ["ab"], "the plan is ready, only the commit waited");
}

#[test]
fn the_wait_ends_when_the_last_pod_is_observed() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", incomplete: "a", ledger: 0 });
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    harness.record_plan(&snapshot, launches(&["a"]), 0);
    assert!(matches!(harness.next(&snapshot, 0), Step::Wait(_)));
    let snapshot = harness.snapshot(40, ClusterState { pods: "ab", ..ClusterState::default() });
    assert_eq!(harness.next(&snapshot, 40), Step::Plan);
    harness.record_plan(&snapshot, launches(&["ab"]), 41);
    assert_eq!(actions(&harness.next(&snapshot, 41)), ["ab"]);
}

#[test]
fn the_next_plan_waits_for_a_ledger_that_includes_the_last_outcomes() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    harness.next(&snapshot, 0);
    harness.record_plan(&snapshot, launches(&["a"]), 0);
    harness.next(&snapshot, 0);
    let newer = harness.snapshot(1, ClusterState { pods: "a", ..ClusterState::default() });
    assert_eq!(harness.next(&newer, 1), Step::Wait(Some(harness.at(10_000))), "admission is not known yet");
    harness.outcome("a", OutcomeStatus::Accepted, 5, 2);
    for ledger in [0, 4] {
        let stale = harness.snapshot(3, ClusterState { pods: "a", incomplete: "", ledger });
        assert!(matches!(harness.next(&stale, 3), Step::Wait(_)), "the ledger is at {ledger}");
    }
    let newest = harness.snapshot(4, ClusterState { pods: "a", incomplete: "", ledger: 5 });
    assert_eq!(harness.next(&newest, 4), Step::Plan);
}

#[test]
fn a_late_failure_also_requires_a_newer_ledger() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    harness.next(&snapshot, 0);
    harness.record_plan(&snapshot, launches(&["a"]), 0);
    harness.next(&snapshot, 0);
    harness.outcome("a", OutcomeStatus::Accepted, 1, 1);
    harness.outcome("a", OutcomeStatus::Failed, 2, 90);
    let stale = harness.snapshot(91, ClusterState { pods: "a", incomplete: "", ledger: 1 });
    assert!(matches!(harness.next(&stale, 91), Step::Wait(_)), "it would buy what has no capacity again");
    let newest = harness.snapshot(92, ClusterState { pods: "a", incomplete: "", ledger: 2 });
    assert_eq!(harness.next(&newest, 92), Step::Plan);
}

#[test]
fn a_rejected_action_is_retried_immediately_and_then_with_growing_pauses() {
    let mut harness = Harness::new();
    let mut millis = 0;
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let snapshot = harness.snapshot(millis, ClusterState { pods: "a", ..ClusterState::default() });
        assert_eq!(harness.next(&snapshot, millis), Step::Plan);
        harness.record_plan(&snapshot, launches(&["a"]), millis);
        let began = millis;
        while let Step::Wait(Some(until)) = harness.next(&snapshot, millis) {
            millis = u64::try_from((until - harness.start).as_millis()).unwrap();
            if harness.cycle.pending.is_some() {
                break;
            }
        }
        pauses.push(millis - began);
        harness.outcome("a", OutcomeStatus::Rejected, 0, millis);
        match harness.next(&snapshot, millis) {
            Step::Refresh => {}
            Step::Wait(Some(until)) => {
                let next = u64::try_from((until - harness.start).as_millis()).unwrap();
                pauses.push(next - millis);
                millis = next;
                assert_eq!(harness.next(&snapshot, millis), Step::Refresh);
            }
            step => panic!("{step:?}"),
        }
    }
    let pauses: Vec<_> = pauses.into_iter().filter(|pause| *pause > 0 && *pause < 10_000).collect();
    assert_eq!(pauses, [200, 400, 800]);
}

#[test]
fn a_failed_execution_is_planned_and_sent_again() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    harness.next(&snapshot, 0);
    harness.record_plan(&snapshot, launches(&["a"]), 0);
    harness.next(&snapshot, 0);
    let status = tonic::Status::unavailable("gone");
    let now = harness.at(20);
    let cycle_id = harness.cycle.id(snapshot.snapshot.sequence);
    harness.cycle.handle_event(Event::Ended { cycle_id, result: Err(status) }, now);
    assert_eq!(harness.next(&snapshot, 20), Step::Wait(Some(harness.at(70))), "not at once: the actuator is down");
    assert_eq!(harness.next(&snapshot, 70), Step::Plan);
    harness.record_plan(&snapshot, launches(&["a"]), 71);
    assert_eq!(actions(&harness.next(&snapshot, 71)), ["a"]);
}

#[test]
fn an_irrelevant_change_keeps_the_plan_and_each_part_has_its_own_cycle_id() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "ab", incomplete: "a", ledger: 0 });
    harness.next(&snapshot, 0);
    harness.record_plan(&snapshot, launches(&["a", "b"]), 0);
    let name = |step: Step| match step {
        Step::Execute { cycle_id, .. } => cycle_id,
        step => panic!("{step:?}"),
    };
    assert_eq!(name(harness.next(&snapshot, 0)), "7-1");
    harness.outcome("b", OutcomeStatus::Accepted, 0, 1);
    let mut again = harness.snapshot(20, ClusterState { pods: "ab", ..ClusterState::default() });
    Arc::get_mut(&mut again).unwrap().relevant_sequence = 1;
    let step = harness.next(&again, 20);
    assert_eq!(actions(&step), ["a"], "its owner is complete now");
    assert_eq!(name(step), "7-1.2");
    let now = harness.at(21);
    harness.cycle.handle_event(Event::Ended { cycle_id: "7-1".to_owned(), result: Ok(()) }, now);
    assert!(harness.cycle.pending.is_some(), "the end of the first part is not that of the second");
}

#[test]
fn an_early_part_is_sent_immediately_and_only_once() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "abc", incomplete: "b", ledger: 0 });
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    let now = harness.at(1);
    let early = Plan { snapshot_sequence: 1, ..launches(&["a", "b"]) };
    let (part, name) = harness.cycle.early_part(&snapshot, &early, now).unwrap();
    let sent: Vec<&str> = part.launches.iter().map(|one| one.action_id.as_str()).collect();
    assert_eq!((sent, name.as_str()), (vec!["a"], "7-1"), "the owner of b is not complete");
    let next = Plan { snapshot_sequence: 1, ..launches(&["c"]) };
    assert_eq!(harness.cycle.early_part(&snapshot, &next, now), None, "the first part is not admitted yet");
    harness.record_plan(&snapshot, launches(&["a", "b", "c"]), 2);
    assert!(matches!(harness.next(&snapshot, 2), Step::Wait(_)), "whether the first is admitted is not known");
    harness.outcome("a", OutcomeStatus::Accepted, 0, 3);
    assert_eq!(actions(&harness.next(&snapshot, 3)), ["c"]);
}

#[test]
fn removals_are_planned_once_no_pod_waits_for_a_plan() {
    let mut harness = Harness::new();
    harness.cycle = Cycle::new(7).with_disruption(true);
    let snapshot = harness.snapshot(0, ClusterState { pods: "ab", ..ClusterState::default() });
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    harness.record_plan(&snapshot, launches(&["a"]), 1);
    assert_eq!(actions(&harness.next(&snapshot, 1)), ["a"]);
    harness.outcome("a", OutcomeStatus::Accepted, 0, 2);
    assert_eq!(
        harness.next(&snapshot, 2),
        Step::PlanWithDisruption,
        "b is not placed, but nothing more can be done for it"
    );
    harness.record(&snapshot, launches(&["a"]), true, 3);
    assert!(matches!(harness.next(&snapshot, 3), Step::Wait(_)), "a was sent, and nothing is new");
    let calm = harness.snapshot(10, ClusterState::default());
    assert_eq!(harness.next(&calm, 10), Step::PlanWithDisruption);
}

#[test]
fn unschedulable_reasons_are_sent_once() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    harness.next(&snapshot, 0);
    harness.record_plan(&snapshot, reasons("a"), 0);
    assert!(matches!(harness.next(&snapshot, 0), Step::Execute { .. }));
    assert_eq!(harness.next(&snapshot, 1), Step::Wait(None));
    let again = harness.snapshot(5000, ClusterState { pods: "a", ..ClusterState::default() });
    harness.next(&again, 5000);
    harness.record_plan(&again, reasons("a"), 5000);
    assert_eq!(harness.next(&again, 5000), Step::Wait(None), "nothing new to tell");
    let other = harness.snapshot(6000, ClusterState { pods: "b", ..ClusterState::default() });
    harness.next(&other, 6000);
    harness.record_plan(&other, reasons("b"), 6000);
    assert!(matches!(harness.next(&other, 6000), Step::Execute { .. }));
}

#[test]
fn a_plan_that_does_nothing_is_not_sent() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState::default());
    harness.next(&snapshot, 0);
    harness.record_plan(&snapshot, Plan::default(), 0);
    assert_eq!(harness.next(&snapshot, 0), Step::Wait(None));
}
