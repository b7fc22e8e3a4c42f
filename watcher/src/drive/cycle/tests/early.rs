//! Launches that are sent before the rest of their plan is made.

use super::*;
use plimsoll_model::execution::BufferProvisioning;
use plimsoll_model::plan::{Reason, ReasonCode};

/// Receives these launches early. Returns those that are sent, and the id of their execution.
fn early(
    harness: &mut Harness,
    snapshot: &Arc<PublishedSnapshot>,
    words: &[&str],
    millis: u64,
) -> Option<(Vec<String>, String)> {
    let part = Plan { snapshot_sequence: snapshot.snapshot.sequence, ..launches(words) };
    let now = harness.at(millis);
    let (part, cycle_id) = harness.cycle.early_part(snapshot, &part, now)?;
    Some((part.launches.into_iter().map(|launch| launch.action_id.0).collect(), cycle_id))
}

#[test]
fn an_early_part_does_not_repeat_what_was_reported() {
    let mut harness = Harness::new();
    let first = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    harness.next(&first, 0);
    harness.record_plan(&first, reasons("a"), 0);
    assert!(matches!(harness.next(&first, 0), Step::Execute { .. }));
    let second = harness.snapshot(1, ClusterState { pods: "ab", ..ClusterState::default() });
    assert_eq!(harness.next(&second, 1), Step::Plan);
    assert!(early(&mut harness, &second, &["b"], 2).is_some());
    harness.outcome("b", OutcomeStatus::Accepted, 0, 3);
    harness.record_plan(&second, Plan { unschedulable: reasons("a").unschedulable, ..launches(&["b"]) }, 4);
    assert_eq!(harness.next(&second, 4), Step::Wait(None), "b was sent, and the reasons of a are known");
}

#[test]
fn an_early_part_of_which_nothing_may_be_sent_is_not_sent() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "ab", incomplete: "b", ledger: 0 });
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    assert_eq!(early(&mut harness, &snapshot, &["b"], 1), None, "its owner is not complete");
    assert_eq!(early(&mut harness, &snapshot, &["a"], 2), Some((vec!["a".to_owned()], "7-1".to_owned())));
}

/// An action that failed is retried with the next snapshot.
#[test]
fn an_early_part_of_a_plan_with_removals_repeats_nothing_of_the_plan_without_removals() {
    let mut harness = Harness::new();
    harness.cycle = Cycle::new(7).with_disruption(true);
    let snapshot = harness.snapshot(0, ClusterState { pods: "ab", ..ClusterState::default() });
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    harness.record_plan(&snapshot, launches(&["a"]), 0);
    assert_eq!(actions(&harness.next(&snapshot, 0)), ["a"]);
    harness.outcome("a", OutcomeStatus::Rejected, 0, 1);
    assert_eq!(harness.next(&snapshot, 1), Step::PlanWithDisruption);
    let sent = early(&mut harness, &snapshot, &["a", "b"], 2);
    assert_eq!(sent, Some((vec!["b".to_owned()], "7-1.2".to_owned())));
}

/// As when a pod becomes pending: the rest of the plan with removals is not waited for.
#[test]
fn an_abandoned_plan_of_which_an_early_part_was_sent_leaves_nothing_of_the_plan_before_it() {
    let mut harness = Harness::new();
    harness.cycle = Cycle::new(7).with_disruption(true);
    let with_waiting = |harness: &mut Harness, millis: u64, pods: &'static str| {
        let mut snapshot = outdated::busy(harness, millis, pods, |_| {});
        Arc::get_mut(&mut snapshot).unwrap().incomplete.insert("b".into());
        snapshot
    };
    let first = with_waiting(&mut harness, 0, "abc");
    assert_eq!(harness.next(&first, 0), Step::Plan);
    harness.record_plan(&first, launches(&["a", "b"]), 0);
    assert_eq!(actions(&harness.next(&first, 0)), ["a"], "b waits for others of its owner");
    harness.outcome("a", OutcomeStatus::Accepted, 0, 1);
    assert_eq!(harness.next(&first, 1), Step::PlanWithDisruption);
    assert_eq!(early(&mut harness, &first, &["c"], 500), Some((vec!["c".to_owned()], "7-1.2".to_owned())));
    harness.outcome("c", OutcomeStatus::Accepted, 0, 501);
    let second = with_waiting(&mut harness, 1000, "abcd");
    assert_eq!(harness.next(&second, 1000), Step::Plan, "the wait of b is over, but it may fit on the node for c");
}

#[test]
fn an_early_part_leaves_untold_reasons_to_the_plan() {
    let mut harness = Harness::new();
    let with_pods = |harness: &mut Harness, millis: u64| {
        let mut snapshot = harness.snapshot(millis, ClusterState::default());
        let pods = (0..4500).map(|number| pod(&format!("{number:04}"))).collect();
        Arc::make_mut(&mut Arc::get_mut(&mut snapshot).unwrap().snapshot).pods = pods;
        snapshot
    };
    // About 1 kB each: 4.5 MB in all, and one execution has room for 1.5 MB.
    let reason = Reason { node_pool: String::new(), code: ReasonCode::NoOffering, message: "x".repeat(1000) };
    let one = |number: usize| {
        let uid = format!("{number:04}");
        let pod = PodRef { name: uid.clone(), uid: uid.into() };
        Unschedulable { pod, reasons: vec![reason.clone()].into() }
    };
    let unschedulable: Vec<Unschedulable> = (0..4500).map(one).collect();
    let told = |step: &Step| {
        let Step::Execute { plan, .. } = step else { panic!("{step:?}") };
        plan.unschedulable.iter().filter(|one| !one.reasons.is_empty()).count()
    };
    let first = with_pods(&mut harness, 0);
    assert_eq!(harness.next(&first, 0), Step::Plan);
    harness.record_plan(&first, Plan { unschedulable: unschedulable.clone(), ..Plan::default() }, 0);
    let mut sum = told(&harness.next(&first, 0));
    let second = with_pods(&mut harness, 1);
    sum += told(&harness.next(&second, 1));
    assert_eq!(harness.next(&second, 1), Step::Plan);
    assert!(early(&mut harness, &second, &["z"], 2).is_some());
    harness.outcome("z", OutcomeStatus::Accepted, 0, 3);
    harness.record_plan(&second, Plan { unschedulable, ..launches(&["z"]) }, 4);
    assert!(sum < 4500, "{sum}");
    sum += told(&harness.next(&second, 4));
    assert!(sum >= 4500, "{sum}");
}

#[test]
fn an_early_part_does_not_carry_the_status_of_buffers() {
    let mut harness = Harness::new();
    let gone = |harness: &mut Harness, millis: u64| {
        let (now, result) = (harness.at(millis), Err(tonic::Status::unavailable("gone")));
        harness.cycle.handle_event(Event::Ended { cycle_id: "7-1".to_owned(), result }, now);
    };
    harness.cycle.set_buffer_reports(vec![buffers::report(BufferProvisioning::RequiresNewCapacity)]);
    let first = harness.snapshot(0, ClusterState::default());
    assert_eq!(harness.next(&first, 0), Step::Plan);
    harness.record_plan(&first, Plan::default(), 0);
    assert!(matches!(harness.next(&first, 0), Step::Execute { .. }));
    gone(&mut harness, 0);
    let second = harness.snapshot(50, ClusterState::default());
    assert!(matches!(harness.next(&second, 50), Step::Execute { .. }), "it is sent again");
    gone(&mut harness, 50);
    assert_eq!(harness.next(&second, 150), Step::Plan);
    assert!(early(&mut harness, &second, &["z"], 150).is_some());
    harness.outcome("z", OutcomeStatus::Accepted, 0, 151);
    harness.record_plan(&second, launches(&["z"]), 152);
    assert!(matches!(harness.next(&second, 152), Step::Execute { .. }), "the actuator still has not got it");
}
