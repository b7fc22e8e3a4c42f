//! Bounds of what the loop waits for: admissions that are never reported, and a ledger that lags.

use super::*;

/// A cycle that has sent action a for a snapshot at time 0.
fn with_a_sent() -> (Harness, Arc<PublishedSnapshot>) {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    harness.record_plan(&snapshot, launches(&["a"]), 0);
    assert_eq!(actions(&harness.next(&snapshot, 0)), ["a"]);
    (harness, snapshot)
}

#[test]
fn an_action_without_an_outcome_is_planned_again_after_the_admission_timeout() {
    let (mut harness, snapshot) = with_a_sent();
    assert_eq!(harness.next(&snapshot, 9_999), Step::Wait(Some(harness.at(10_000))));
    assert_eq!(harness.next(&snapshot, 10_000), Step::Refresh);
}

#[test]
fn an_action_without_an_outcome_is_planned_again_once_its_execution_ends() {
    for (outcome, expected) in [(None, Step::Refresh), (Some(OutcomeStatus::Accepted), Step::Wait(None))] {
        let (mut harness, snapshot) = with_a_sent();
        if let Some(status) = outcome {
            harness.outcome("a", status, 0, 10);
        }
        let (now, cycle_id) = (harness.at(20), harness.cycle.id(snapshot.snapshot.sequence));
        harness.cycle.handle_event(Event::Ended { cycle_id, result: Ok(()) }, now);
        assert_eq!(harness.next(&snapshot, 20), expected, "{outcome:?}");
    }
}

#[test]
fn the_wait_for_an_owner_ends_once_although_nothing_can_be_launched() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", incomplete: "a", ledger: 0 });
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    harness.record_plan(&snapshot, Plan::default(), 0);
    assert_eq!(harness.next(&snapshot, 0), Step::Wait(Some(harness.at(1000))));
    assert_eq!(harness.next(&snapshot, 1000), Step::Wait(None), "or the loop would turn without a pause");
}

#[test]
fn a_launch_waits_if_one_of_its_pods_does() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "ab", incomplete: "a", ledger: 0 });
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    harness.record_plan(&snapshot, launches(&["ab"]), 0);
    assert_eq!(harness.next(&snapshot, 0), Step::Wait(Some(harness.at(1000))));
}

#[test]
fn a_pod_whose_launch_failed_does_not_wait_for_its_owner_again() {
    let mut harness = Harness::new();
    let waiting = |ledger| ClusterState { pods: "a", incomplete: "a", ledger };
    let snapshot = harness.snapshot(0, waiting(0));
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    harness.record_plan(&snapshot, launches(&["a"]), 0);
    assert_eq!(harness.next(&snapshot, 0), Step::Wait(Some(harness.at(1000))));
    assert_eq!(actions(&harness.next(&snapshot, 1000)), ["a"]);
    harness.outcome("a", OutcomeStatus::Accepted, 1, 1001);
    let mut reserved = harness.snapshot(1002, ClusterState { pods: "a", incomplete: "", ledger: 1 });
    let published = Arc::get_mut(&mut reserved).unwrap();
    Arc::make_mut(&mut published.snapshot).pods[0].state = PodState::Reserved("n".into());
    assert_eq!(harness.next(&reserved, 1002), Step::Plan);
    harness.record_plan(&reserved, Plan::default(), 1002);
    harness.outcome("a", OutcomeStatus::Failed, 2, 1003);
    let failed = harness.snapshot(1004, waiting(2));
    assert_eq!(harness.next(&failed, 1004), Step::Plan);
    harness.record_plan(&failed, launches(&["a"]), 1004);
    assert_eq!(actions(&harness.next(&failed, 1004)), ["a"]);
}

#[test]
fn the_loop_wakes_at_the_earlier_of_two_times() {
    let start = Instant::now();
    let (sooner, later) = (Some(start), Some(start + Duration::from_secs(1)));
    for (a, b, expected) in [
        (sooner, later, sooner),
        (later, sooner, sooner),
        (None, later, later),
        (later, None, later),
        (None, None, None),
    ] {
        assert_eq!(earliest(a, b), expected);
    }
}

fn with_ledger(harness: &mut Harness, millis: u64, ledger: u64) -> Arc<PublishedSnapshot> {
    harness.snapshot(millis, ClusterState { ledger, ..ClusterState::default() })
}

#[test]
fn an_older_ledger_is_accepted_after_the_maximum_lag() {
    let mut harness = Harness::new();
    harness.outcome("a", OutcomeStatus::Accepted, 9, 0);
    let behind = with_ledger(&mut harness, 0, 0);
    assert_eq!(harness.next(&behind, 0), Step::Wait(Some(harness.at(60_000))));
    assert_eq!(harness.next(&behind, 60_000), Step::Plan);
    let next = with_ledger(&mut harness, 60_001, 0);
    assert_eq!(harness.next(&next, 60_001), Step::Plan, "the older position is accepted for good");
}

#[test]
fn each_lag_of_the_ledger_is_waited_for_in_full() {
    let mut harness = Harness::new();
    harness.outcome("a", OutcomeStatus::Accepted, 9, 0);
    let behind = with_ledger(&mut harness, 0, 0);
    assert_eq!(harness.next(&behind, 0), Step::Wait(Some(harness.at(60_000))));
    let caught_up = with_ledger(&mut harness, 50_000, 9);
    assert_eq!(harness.next(&caught_up, 50_000), Step::Plan);
    harness.outcome("b", OutcomeStatus::Accepted, 10, 50_000);
    assert_eq!(harness.next(&caught_up, 50_001), Step::Wait(Some(harness.at(110_001))));
    assert_eq!(harness.next(&caught_up, 110_001), Step::Plan, "the older position is accepted");
    harness.outcome("c", OutcomeStatus::Accepted, 11, 110_002);
    assert_eq!(harness.next(&caught_up, 110_003), Step::Wait(Some(harness.at(170_003))));
}

/// Outcomes of different executions arrive in any order.
#[test]
fn an_earlier_outcome_that_arrives_late_does_not_make_an_older_ledger_do() {
    let mut harness = Harness::new();
    harness.outcome("a", OutcomeStatus::Accepted, 9, 0);
    harness.outcome("b", OutcomeStatus::Launched, 4, 0);
    let behind = with_ledger(&mut harness, 0, 4);
    assert_eq!(harness.next(&behind, 0), Step::Wait(Some(harness.at(60_000))));
    let caught_up = with_ledger(&mut harness, 1, 9);
    assert_eq!(harness.next(&caught_up, 1), Step::Plan);
}

#[test]
fn the_end_of_an_admitted_action_delays_no_plan() {
    for end in [OutcomeStatus::Launched, OutcomeStatus::Removed] {
        let (mut harness, _) = with_a_sent();
        harness.outcome("a", OutcomeStatus::Accepted, 1, 1);
        harness.outcome("a", end, 5, 2);
        let newer = harness.snapshot(3, ClusterState { pods: "b", incomplete: "", ledger: 1 });
        assert_eq!(harness.next(&newer, 3), Step::Plan, "{end:?}: a has been admitted before");
        harness.record_plan(&newer, launches(&["b"]), 3);
        assert_eq!(actions(&harness.next(&newer, 3)), ["b"]);
        // A repeated action whose admission nobody remembers is admitted by its end.
        harness.outcome("b", end, 6, 4);
        let behind = harness.snapshot(5, ClusterState { pods: "c", incomplete: "", ledger: 5 });
        assert!(matches!(harness.next(&behind, 5), Step::Wait(_)), "{end:?}: whether b has a node is not known");
        let newest = harness.snapshot(6, ClusterState { pods: "c", incomplete: "", ledger: 6 });
        assert_eq!(harness.next(&newest, 6), Step::Plan, "{end:?}");
    }
}

#[test]
fn a_new_leader_of_the_actuators_is_told_again_what_has_no_place() {
    let mut harness = Harness::new();
    let state = ClusterState { pods: "a", ..ClusterState::default() };
    let first = harness.snapshot(0, state);
    harness.next(&first, 0);
    harness.record_plan(&first, reasons("a"), 0);
    assert!(matches!(harness.next(&first, 0), Step::Execute { .. }));
    assert_eq!(harness.next(&first, 1), Step::Wait(None));
    let mut led_by_another = harness.snapshot(1000, state);
    let published = Arc::get_mut(&mut led_by_another).unwrap();
    published.relevant_sequence = first.relevant_sequence;
    Arc::make_mut(&mut published.snapshot).ledger.epoch += 1;
    let Step::Execute { plan, .. } = harness.next(&led_by_another, 1000) else { panic!("nothing is sent") };
    assert_eq!(plan.unschedulable, reasons("a").unschedulable);
    assert_eq!(harness.next(&led_by_another, 1001), Step::Wait(None));
}
