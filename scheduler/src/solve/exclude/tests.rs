use super::*;
use crate::samples::{catalogs, pod, shape, waiting, waiting_with_cursed};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::PlanOptions;
use plimsoll_solver::Planner;
use std::cell::{Cell, RefCell};
use std::time::Duration;

fn solve(snapshot: &Snapshot, index: &SnapshotIndex) -> Plan {
    let options = PlanOptions { disruption: false, ..PlanOptions::default() };
    Planner::default().solve_early(snapshot, index, &catalogs(), &options, &mut |_| {})
}

/// Replaces the plan of a planner that `spoil`s its plans. Also returns the number of plans that it made.
fn replace(snapshot: &Snapshot, spoil: impl Fn(&mut Plan)) -> (Result<Plan, PlanFailure>, usize) {
    let (result, inputs) = replace_attempts(snapshot, &|snapshot, index| {
        let mut plan = solve(snapshot, index);
        spoil(&mut plan);
        Ok(plan)
    });
    (result.map(|replacement| replacement.plan), inputs.len())
}

type TestAttempt<'f> = &'f dyn Fn(&Snapshot, &SnapshotIndex) -> Result<Plan, PlanFailure>;

/// Replaces the first plan of a planner, which fails. Also returns the number of pending pods of each attempt.
fn replace_attempts(snapshot: &Snapshot, attempt: TestAttempt<'_>) -> (Result<Replacement, PlanFailure>, Vec<usize>) {
    let index = SnapshotIndex::new(snapshot);
    let inputs = RefCell::new(Vec::new());
    let attempt = |snapshot: &Snapshot, index: &SnapshotIndex| {
        inputs.borrow_mut().push(snapshot.pods.len());
        attempt(snapshot, index)
    };
    let failed = match attempt(snapshot, &index) {
        Err(failure) => Failed { plan: None, failure, removals: false },
        Ok(plan) => validated((snapshot, &index), &catalogs(), plan, false).unwrap_err(),
    };
    let mut again = |snapshot: &Snapshot, index: &SnapshotIndex, _| attempt(snapshot, index);
    let result = plan_without_offenders((snapshot, &index), &catalogs(), Excluded::new(), failed, &mut again);
    (result, inputs.into_inner())
}

fn names<'p>(pods: impl IntoIterator<Item = &'p PodRef>) -> BTreeSet<&'p str> {
    pods.into_iter().map(|pod| pod.name.as_str()).collect()
}

fn is_cursed(pod: &PodRef) -> bool {
    pod.name.starts_with("default/c-")
}

#[test]
fn a_planner_that_forgets_pods_costs_only_these_pods() {
    let (result, plans) = replace(&waiting_with_cursed(), |plan| {
        plan.launches.iter_mut().for_each(|launch| launch.pods.retain(|pod| !is_cursed(pod)));
    });
    let plan = result.unwrap();
    assert_eq!(plans, 2, "one more plan");
    let placed = names(plan.launched_pods());
    assert_eq!(placed, ["default/web-0", "default/web-1", "default/web-2"].into());
    assert_eq!(names(plan.unschedulable.iter().map(|it| &it.pod)), ["default/c-0", "default/c-1"].into());
    let reason = &plan.unschedulable[0].reasons[0];
    assert_eq!(reason.code, ReasonCode::NotSupported);
    assert!(reason.message.contains("is neither placed nor unschedulable"), "{}", reason.message);
}

#[test]
fn all_pods_of_a_bad_launch_are_left_out_and_the_others_are_placed() {
    let mut snapshot = waiting_with_cursed();
    // Too large to share a node with a cursed pod.
    snapshot.shapes.push(shape("large", 7500));
    snapshot.pods.push(pod("large-0", "large", PodState::Pending));
    snapshot.sort();
    let (result, _) = replace(&snapshot, |plan| {
        for launch in plan.launches.iter_mut().filter(|launch| launch.pods.iter().any(is_cursed)) {
            let mut offerings = launch.offerings.as_ref().clone();
            offerings[0].price = MicroUsdPerHour(1);
            launch.offerings = offerings.into();
        }
    });
    let plan = result.unwrap();
    assert!(names(plan.launched_pods()).contains("default/large-0"));
    assert!(names(plan.unschedulable.iter().map(|it| &it.pod)).is_superset(&["default/c-0", "default/c-1"].into()));
}

#[test]
fn a_planner_that_is_always_wrong_is_given_up_with_its_first_violations() {
    let (result, plans) = replace(&waiting_with_cursed(), |plan| plan.hourly = MicroUsdPerHour(plan.hourly.0 + 1));
    let PlanFailure::Invalid(invalid) = result.unwrap_err() else { panic!("the plan is invalid") };
    assert!(matches!(invalid.violations.as_slice(), [Violation::BadSum(_)]));
    assert_eq!(plans, 2, "the plan without any pending pod has the same violation");
    let mut snapshot = waiting(0);
    for number in 0..10 {
        snapshot.shapes.push(shape(&format!("s{number}"), 500));
        snapshot.pods.push(pod(&format!("p-{number}"), &format!("s{number}"), PodState::Pending));
    }
    snapshot.sort();
    // Each plan forgets one more shape.
    let (result, plans) = replace(&snapshot, |plan| {
        if let Some(launch) = plan.launches.iter_mut().find(|launch| launch.pods.len() > 1) {
            launch.pods.pop();
        }
    });
    assert!(result.is_err());
    assert_eq!(plans, 1 + MAX_ROUNDS);
}

/// `shapes` shapes with one pod each, `p-00`, `p-01`, and so on.
fn many(shapes: usize) -> Snapshot {
    let mut snapshot = waiting(0);
    for number in 0..shapes {
        snapshot.shapes.push(shape(&format!("s{number:02}"), 500));
        snapshot.pods.push(pod(&format!("p-{number:02}"), &format!("s{number:02}"), PodState::Pending));
    }
    snapshot.sort();
    snapshot
}

/// A planner that fails if a pod of these shapes is pending.
fn fails_for<'f>(
    bad: &'f [&'f str],
    failure: &'f PlanFailure,
) -> impl Fn(&Snapshot, &SnapshotIndex) -> Result<Plan, PlanFailure> + 'f {
    move |snapshot, index| {
        let is_bad = |pod: &Pod| bad.contains(&pod.shape.as_str());
        if snapshot.pods.iter().any(is_bad) { Err(failure.clone()) } else { Ok(solve(snapshot, index)) }
    }
}

fn placed(plan: &Plan) -> usize {
    plan.launches.iter().map(|launch| launch.pods.len()).sum()
}

fn panicked() -> PlanFailure {
    PlanFailure::Panicked("index out of bounds".to_owned())
}

#[test]
fn each_shape_that_the_planner_panics_for_is_found_wherever_it_is() {
    let snapshot = many(20);
    for number in 0..20 {
        let bad = format!("s{number:02}");
        let (result, attempts) = replace_attempts(&snapshot, &fails_for(&[&bad], &panicked()));
        let Replacement { plan, excluded, complete } = result.unwrap();
        assert_eq!(excluded, Excluded::from([(bad.as_str().into(), panicked())]));
        assert_eq!((placed(&plan), plan.unschedulable.len(), complete), (19, 1, true), "{bad}");
        assert_eq!(plan.unschedulable[0].pod.name, format!("default/p-{number:02}"));
        let message = &plan.unschedulable[0].reasons[0].message;
        assert!(message.ends_with("the planner panicked for pods like this one: index out of bounds"), "{message}");
        // The first, without pods, five halvings of 20 shapes, and the last.
        assert!(attempts.len() <= 8, "{attempts:?}");
    }
}

#[test]
fn shapes_of_a_planner_that_takes_too_long_are_found_too() {
    let slow = PlanFailure::TimedOut(Duration::from_secs(2));
    let (result, _) = replace_attempts(&many(9), &fails_for(&["s04"], &slow));
    let Replacement { plan, excluded, .. } = result.unwrap();
    assert_eq!((excluded.len(), placed(&plan)), (1, 8));
    let message = &plan.unschedulable[0].reasons[0].message;
    assert!(message.ends_with("the planner took more than 2s for pods like this one"), "{message}");
}

#[test]
fn several_shapes_are_found_one_after_the_other() {
    let bad = ["s02", "s03", "s11", "s19"];
    let (result, _) = replace_attempts(&many(20), &fails_for(&bad, &panicked()));
    let Replacement { plan, excluded, complete } = result.unwrap();
    assert_eq!(excluded.keys().map(ShapeId::as_str).collect::<Vec<_>>(), bad);
    assert_eq!((placed(&plan), complete), (16, true));
}

#[test]
fn a_search_is_bounded_and_keeps_the_plan_for_the_most_shapes() {
    let snapshot = many(20);
    let bad: Vec<String> = (4..20).map(|number| format!("s{number:02}")).collect();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    let (result, attempts) = replace_attempts(&snapshot, &fails_for(&bad, &panicked()));
    let Replacement { plan, excluded, complete } = result.unwrap();
    assert_eq!((placed(&plan), excluded.len(), complete), (4, MAX_ROUNDS, false));
    assert_eq!(plan.unschedulable.len(), 16);
    assert!(plan.unschedulable.iter().any(|pod| pod.reasons[0].message == SEARCHING));
    assert!(attempts.len() <= 2 + MAX_ROUNDS * 6, "{} attempts", attempts.len());
}

#[test]
fn a_planner_that_fails_without_pods_is_given_up() {
    let (result, attempts) = replace_attempts(&many(20), &|_, _| Err(panicked()));
    assert_eq!(result.unwrap_err(), panicked());
    assert_eq!(attempts, [20, 0]);
}

#[test]
fn an_invalid_plan_that_names_no_pod_costs_only_the_pods_that_make_it_so() {
    let (result, _) = replace_attempts(&many(6), &|snapshot, index| {
        let mut plan = solve(snapshot, index);
        if snapshot.pods.iter().any(|pod| pod.shape.as_str() == "s05") {
            plan.hourly = MicroUsdPerHour(plan.hourly.0 + 1);
        }
        Ok(plan)
    });
    let Replacement { plan, excluded, .. } = result.unwrap();
    assert_eq!(excluded.keys().map(ShapeId::as_str).collect::<Vec<_>>(), ["s05"]);
    assert_eq!(placed(&plan), 5);
}

#[test]
fn nothing_is_searched_once_the_client_is_gone() {
    let (result, attempts) = replace_attempts(&many(8), &|snapshot, index| match snapshot.pods.len() {
        8 => Err(panicked()),
        0 => Ok(solve(snapshot, index)),
        _ => Err(PlanFailure::Cancelled),
    });
    assert_eq!(attempts, [8, 0, 4]);
    assert_eq!(result.unwrap_err(), PlanFailure::Cancelled);
}

/// Replaces the plan of a planner that fails for `s02` and `s05` of 8 shapes. After `count` attempts it always fails.
fn fails_after(count: usize, end: &PlanFailure) -> Result<Replacement, PlanFailure> {
    let (bad, failure, attempts) = (["s02", "s05"], panicked(), Cell::new(0));
    let planner = fails_for(&bad, &failure);
    let (result, _) = replace_attempts(&many(8), &|snapshot, index| {
        attempts.set(attempts.get() + 1);
        if attempts.get() > count { Err(end.clone()) } else { planner(snapshot, index) }
    });
    result
}

#[test]
fn a_search_without_time_excludes_nothing_more() {
    assert_eq!(fails_after(1, &PlanFailure::NoTimeLeft).unwrap_err(), panicked());
    // The search needs five attempts for the first shape, three for the second, and one more for the complete plan.
    for count in 2..=9 {
        let Replacement { plan, excluded, complete } = fails_after(count, &PlanFailure::NoTimeLeft).unwrap();
        let found: Vec<&str> = excluded.keys().map(ShapeId::as_str).collect();
        let expected: &[&str] = match count {
            0..=4 => &[],
            5..=7 => &["s02"],
            _ => &["s02", "s05"],
        };
        assert_eq!(found, expected, "{count} attempts");
        assert_eq!(complete, count == 9, "{count} attempts");
        assert_eq!(placed(&plan) + plan.unschedulable.len(), 8, "{count} attempts");
    }
}

#[test]
fn a_search_of_a_client_that_is_gone_is_cancelled_at_each_attempt() {
    for count in 1..=8 {
        assert_eq!(
            fails_after(count, &PlanFailure::Cancelled).unwrap_err(),
            PlanFailure::Cancelled,
            "{count} attempts"
        );
    }
    assert!(fails_after(9, &PlanFailure::Cancelled).unwrap().complete);
    let (snapshot, failure) = (many(8), panicked());
    let (index, failed) = (SnapshotIndex::new(&snapshot), Failed { plan: None, failure, removals: true });
    let mut gone =
        |_: &Snapshot, _: &SnapshotIndex, _: u32| -> Result<Plan, PlanFailure> { Err(PlanFailure::Cancelled) };
    let result = plan_without_offenders((&snapshot, &index), &catalogs(), Excluded::new(), failed, &mut gone);
    assert_eq!(result.unwrap_err(), PlanFailure::Cancelled);
}
