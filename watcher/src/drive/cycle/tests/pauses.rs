use super::*;
use plimsoll_model::plan::Termination;
use plimsoll_model::snapshot::DisruptionReason;

#[test]
fn next_time_of_a_plan_requests_a_snapshot_at_the_next_time_step() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(300, ClusterState::default());
    harness.next(&snapshot, 300);
    let wait = |harness: &mut Harness, next_time: i64| {
        harness.record_plan(&snapshot, Plan { next_time: Some(Timestamp(next_time)), ..Plan::default() }, 300);
        match harness.next(&snapshot, 300) {
            Step::Wait(Some(until)) => (until - harness.start).as_millis(),
            step => panic!("{step:?}"),
        }
    };
    assert_eq!(wait(&mut harness, 4200), 5000, "a snapshot of 4.2 s would tell 4 s, and the plan would be the same");
    assert_eq!(wait(&mut harness, 5000), 5000);
    assert_eq!(wait(&mut harness, 0), 1000, "never the same step again");
    assert_eq!(harness.next(&snapshot, 1000), Step::Refresh);
}

#[test]
fn a_failed_plan_request_is_retried_with_growing_pauses() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState::default());
    let mut millis = 0;
    let mut pauses = Vec::new();
    for _ in 0..9 {
        assert_eq!(harness.next(&snapshot, millis), Step::Plan);
        let now = harness.at(millis);
        harness.cycle.record_plan(&snapshot, None, false, now);
        let Step::Wait(Some(until)) = harness.next(&snapshot, millis) else { panic!("no pause") };
        let next = u64::try_from((until - harness.start).as_millis()).unwrap();
        pauses.push(next - millis);
        millis = next;
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000, 2000]);
    harness.record_plan(&snapshot, Plan::default(), millis);
    let now = harness.at(millis);
    harness.cycle.record_plan(&snapshot, None, false, now);
    assert_eq!(harness.next(&snapshot, millis), Step::Wait(Some(harness.at(millis + 50))), "the first in a row");
}

#[test]
fn what_has_no_place_is_reported_although_every_plan_with_removals_fails() {
    let mut harness = Harness::new();
    harness.cycle = Cycle::new(7).with_disruption(true);
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    let plan_without = |harness: &mut Harness, millis: u64| {
        assert_eq!(harness.next(&snapshot, millis), Step::Plan);
        harness.record_plan(&snapshot, reasons("a"), millis);
    };
    let fail_with = |harness: &mut Harness, millis: u64| {
        assert_eq!(harness.next(&snapshot, millis), Step::PlanWithDisruption);
        let now = harness.at(millis);
        harness.cycle.record_plan(&snapshot, None, true, now);
        assert_eq!(harness.next(&snapshot, millis), Step::Wait(Some(harness.at(millis + 50))));
    };
    for millis in [0, 50] {
        plan_without(&mut harness, millis);
        fail_with(&mut harness, millis);
    }
    plan_without(&mut harness, 100);
    assert!(matches!(harness.next(&snapshot, 100), Step::Execute { .. }), "the reasons wait for no further plan");
    assert_eq!(harness.next(&snapshot, 100), Step::Wait(Some(harness.at(1050))), "a second after the second failure");
    fail_with(&mut harness, 1050);
    plan_without(&mut harness, 1100);
    assert_eq!(harness.next(&snapshot, 1100), Step::Wait(Some(harness.at(3050))));
}

#[test]
fn pauses_after_failed_executions_grow_until_the_actuator_answers_again() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    harness.record_plan(&snapshot, reasons("a"), 0);
    let ended = |result| Event::Ended { cycle_id: "7-1".to_owned(), result };
    let mut millis = 0;
    let mut fail = |harness: &mut Harness| {
        assert!(matches!(harness.next(&snapshot, millis), Step::Execute { .. }), "the reasons are told again");
        let now = harness.at(millis);
        harness.cycle.handle_event(ended(Err(tonic::Status::unavailable("gone"))), now);
        let Step::Wait(Some(until)) = harness.next(&snapshot, millis) else { panic!("no pause") };
        let pause = u64::try_from((until - now).as_millis()).unwrap();
        millis += pause;
        pause
    };
    assert_eq!([fail(&mut harness), fail(&mut harness), fail(&mut harness)], [50, 100, 200]);
    let start = harness.start;
    harness.cycle.handle_event(ended(Ok(())), start);
    assert_eq!([fail(&mut harness), fail(&mut harness)], [50, 100], "an execution has ended");
    harness.outcome("a", OutcomeStatus::Launched, 0, 0);
    assert_eq!(fail(&mut harness), 50, "an outcome has arrived");
}

#[test]
fn streams_that_break_together_count_as_one_failure() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState::default());
    let fail = |harness: &mut Harness, millis: u64| {
        let (now, result) = (harness.at(millis), Err(tonic::Status::unavailable("gone")));
        harness.cycle.handle_event(Event::Ended { cycle_id: "7-9".to_owned(), result }, now);
    };
    (0..50).for_each(|millis| fail(&mut harness, millis));
    assert_eq!(harness.next(&snapshot, 49), Step::Wait(Some(harness.at(50))));
    fail(&mut harness, 50);
    assert_eq!(harness.next(&snapshot, 50), Step::Wait(Some(harness.at(150))), "the second failure in a row");
}

#[test]
fn a_launch_that_was_admitted_or_has_ended_is_retried_as_if_for_the_first_time() {
    use OutcomeStatus::{Accepted, Failed, Launched, Rejected, Removed};
    for (statuses, pause) in [
        (&[Rejected, Rejected][..], 200),
        (&[Failed, Failed], 200),
        (&[Rejected, Accepted, Rejected], 0),
        (&[Rejected, Launched, Rejected], 0),
        (&[Rejected, Removed, Rejected], 0),
    ] {
        let mut harness = Harness::new();
        statuses.iter().for_each(|status| harness.outcome("a", *status, 0, 0));
        let until = harness.cycle.retries.until(&RetryKey::from(&ActionId::from("a")), harness.start);
        assert_eq!(until, (pause > 0).then(|| harness.at(pause)), "{statuses:?}");
    }
}

#[test]
fn a_replacement_waits_for_the_pause_of_its_removal() {
    let mut harness = Harness::new();
    let removal = Termination {
        action_id: "remove".into(),
        node: "n".into(),
        reason: DisruptionReason::Underutilized,
        pods: vec![PodRef { name: "a".to_owned(), uid: "a".into() }],
        replaced_by: vec![0],
        ..Termination::default()
    };
    // Virtual pods move with the node, and are no reason to launch the replacement without the removal.
    let plan = Plan { terminations: vec![removal], ..launches(&["av"]) };
    let snapshot = buffers::with_virtual_pod(&mut harness, 0, "");
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    harness.record_plan(&snapshot, plan.clone(), 0);
    assert_eq!(actions(&harness.next(&snapshot, 0)), ["av"]);
    for action in ["av", "remove"] {
        harness.outcome(action, OutcomeStatus::Accepted, 0, 1);
        harness.outcome(action, OutcomeStatus::Failed, 0, 2);
    }
    let snapshot = buffers::with_virtual_pod(&mut harness, 3, "");
    assert_eq!(harness.next(&snapshot, 3), Step::Plan);
    harness.record_plan(&snapshot, plan, 3);
    // A launch that failed once has no backoff of its own. It is not sent without the removal, so a newer snapshot
    // would lead to the same plan in an endless loop.
    assert_eq!(harness.next(&snapshot, 3), Step::Wait(Some(harness.at(10_002))));
}

/// The removal of a node without pods, with another action in each attempt.
fn removal_of_n(attempt: u32, reason: DisruptionReason) -> Termination {
    Termination {
        action_id: format!("remove-{attempt}").into(),
        node: "n".into(),
        reason,
        saving: MicroUsdPerHour(1),
        ..Termination::default()
    }
}

/// A cycle whose last plan wanted to remove node n. The actuator has rejected that twice, so it pauses until 200.
fn with_a_rejected_removal() -> Harness {
    let mut harness = Harness::new();
    harness.cycle = Cycle::new(7).with_disruption(true);
    let removal = |attempt| removal_of_n(attempt, DisruptionReason::Empty);
    // The first rejection is retried at once.
    for attempt in 0..2 {
        let snapshot = harness.snapshot(0, ClusterState::default());
        assert_eq!(harness.next(&snapshot, 0), Step::PlanWithDisruption);
        assert_eq!(harness.kept_nodes, [""; 0]);
        harness.record(&snapshot, Plan { terminations: vec![removal(attempt)], ..Plan::default() }, true, 0);
        assert!(matches!(harness.next(&snapshot, 0), Step::Execute { .. }));
        harness.outcome(&format!("remove-{attempt}"), OutcomeStatus::Rejected, 0, 0);
    }
    harness
}

#[test]
fn a_plan_without_removals_keeps_no_node_and_waits_for_none() {
    let mut harness = with_a_rejected_removal();
    let snapshot = harness.snapshot(1, ClusterState::default());
    assert_eq!(harness.next(&snapshot, 1), Step::PlanWithDisruption);
    assert_eq!(harness.kept_nodes, ["n"]);
    // No scheduler makes that plan in time.
    let until = harness.at(60_000);
    harness.cycle.pause_removals(until);
    let snapshot = harness.snapshot(2, ClusterState::default());
    assert_eq!(harness.next(&snapshot, 2), Step::Plan);
    assert_eq!(harness.kept_nodes, [""; 0]);
    harness.record_plan(&snapshot, Plan::default(), 2);
    for millis in [2, 201] {
        assert_eq!(harness.next(&snapshot, millis), Step::Wait(Some(until)), "the pause of n changes nothing");
    }
}

#[test]
fn a_node_whose_removal_pauses_is_kept_until_its_pause_ends() {
    let mut harness = with_a_rejected_removal();
    let snapshot = harness.snapshot(1, ClusterState::default());
    assert_eq!(harness.next(&snapshot, 1), Step::PlanWithDisruption);
    assert_eq!(harness.kept_nodes, ["n"], "others may use the budget");
    harness.record(&snapshot, Plan::default(), true, 1);
    assert_eq!(harness.next(&snapshot, 1), Step::Wait(Some(harness.at(200))));
    assert_eq!(harness.next(&snapshot, 200), Step::Refresh);
    let snapshot = harness.snapshot(201, ClusterState::default());
    assert_eq!(harness.next(&snapshot, 201), Step::PlanWithDisruption);
    assert_eq!(harness.kept_nodes, [""; 0]);
}

#[test]
fn a_removal_beyond_its_budget_is_planned_again_before_other_removals() {
    let mut harness = Harness::new();
    harness.cycle = Cycle::new(7).with_disruption(true);
    let removal = |attempt| removal_of_n(attempt, DisruptionReason::Underutilized);
    let reject = |harness: &mut Harness, attempt: u32, millis: u64| {
        let snapshot = harness.snapshot(millis, ClusterState::default());
        assert_eq!(harness.next(&snapshot, millis), Step::PlanWithDisruption);
        assert_eq!(harness.kept_nodes, [""; 0]);
        harness.record(&snapshot, Plan { terminations: vec![removal(attempt)], ..Plan::default() }, true, millis);
        assert!(matches!(harness.next(&snapshot, millis), Step::Execute { .. }));
        let reason = Some(OutcomeReason::BudgetExhausted);
        harness.outcome_for(&format!("remove-{attempt}"), OutcomeStatus::Rejected, reason, 0, millis);
    };
    reject(&mut harness, 0, 0);
    // The ledger may still count a node that is gone. Meanwhile, another node must not take the turn of this one.
    let snapshot = harness.snapshot(10, ClusterState::default());
    assert_eq!(harness.next(&snapshot, 10), Step::Plan);
    harness.record_plan(&snapshot, Plan::default(), 10);
    assert_eq!(harness.next(&snapshot, 10), Step::Wait(Some(harness.at(200))));
    reject(&mut harness, 1, 200);
    // The budget is used up in earnest.
    let snapshot = harness.snapshot(201, ClusterState::default());
    assert_eq!(harness.next(&snapshot, 201), Step::PlanWithDisruption);
    assert_eq!(harness.kept_nodes, ["n"], "others may use their budgets");
}
