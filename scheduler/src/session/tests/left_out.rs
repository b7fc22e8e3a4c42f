//! Sessions whose planner fails for some pods.

use super::*;
use crate::samples::{PANICS, is_cursed, waiting_with_cursed};
use std::sync::Mutex;

/// Whether each plan since the test began had a cursed pod.
static CALLS: Mutex<Vec<bool>> = Mutex::new(Vec::new());

const COUNTS: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    CALLS.lock().unwrap().push(is_cursed(snapshot));
    PANICS.call(planner, snapshot, index, catalogs, options, early)
});

const ALWAYS_PANICS: PlanFn = PlanFn(|_, _, _, _, _, _| panic!("a bug"));

fn session(plan: PlanFn) -> Session {
    let mut session = started_session(SessionLimits::default()).with_plan(plan);
    send_all(&mut session, &waiting_with_cursed(), 100);
    session
}

#[test]
fn pods_that_are_left_out_are_named_and_counted_in_each_plan() {
    let mut session = session(PANICS);
    for plans in 1..=2 {
        let plan = plan_of_fragments(send(&mut session, plan_now(1)));
        assert_eq!(plan.launches.iter().map(|launch| launch.pods.len()).sum::<usize>(), 3);
        let names: Vec<&str> =
            plan.unschedulable.iter().filter_map(|it| Some(it.pod.as_ref()?.name.as_str())).collect();
        assert_eq!(names, ["default/c-0", "default/c-1"]);
        let counted = PlanFailure::CAUSES.map(|cause| session.metrics.left_out.with_label_values(&[cause]).get());
        assert_eq!(counted, [0, 2 * plans, 0]);
    }
    assert_eq!(session.metrics.invalid_plans.get(), 0);
}

#[test]
fn shapes_are_remembered_when_the_snapshot_is_sent_again() {
    let mut session = session(COUNTS);
    send(&mut session, plan_now(1));
    let answers = send(&mut session, plan_now(7));
    assert!(is_resync(&answers, "snapshot 7"), "{answers:?}");
    send_all(&mut session, &waiting_with_cursed(), 100);
    CALLS.lock().unwrap().clear();
    assert_eq!(plan_of_fragments(send(&mut session, plan_now(1))).unschedulable.len(), 2);
    assert_eq!(*CALLS.lock().unwrap(), [false]);
}

#[test]
fn a_planner_that_always_fails_is_told_to_the_client_as_a_withheld_plan() {
    let status = session(ALWAYS_PANICS).handle(request(plan_now(1))).unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Internal, "the planner panicked: a bug"));
    assert!(status.metadata().contains_key(plimsoll_runtime::client_pool::WITHHELD_HEADER));
}

#[test]
fn an_invalid_plan_is_counted_as_such() {
    let plan = PlanFn(|planner, snapshot, index, catalogs, options, early| {
        let mut plan = planner.solve_early(snapshot, index, catalogs, options, early);
        plan.hourly.0 += i64::from(is_cursed(snapshot));
        plan
    });
    let mut session = session(plan);
    send(&mut session, plan_now(1));
    assert_eq!(session.metrics.invalid_plans.get(), 1);
    assert_eq!(session.metrics.left_out.with_label_values(&["invalid"]).get(), 2);
}

#[test]
fn a_session_whose_client_is_gone_plans_nothing() {
    let mut session = session(PANICS);
    session.canceller().cancel();
    let status = session.handle(request(plan_now(1))).unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Cancelled, "the client is gone"));
}
