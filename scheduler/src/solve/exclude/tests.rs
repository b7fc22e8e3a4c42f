use super::*;
use crate::samples::{catalogs, pod, shape, waiting};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::PlanOptions;
use plimsoll_solver::Planner;
use std::cell::Cell;

/// Three web pods and two pods of the shape `cursed`.
fn cluster() -> Snapshot {
    let mut snapshot = waiting(3);
    snapshot.shapes.push(shape("cursed", 1000));
    snapshot.pods.extend(["c-0", "c-1"].map(|name| pod(name, "cursed", PodState::Pending)));
    snapshot.sort();
    snapshot
}

fn solve(snapshot: &Snapshot, index: &SnapshotIndex) -> Plan {
    let options = PlanOptions { disruption: false, ..PlanOptions::default() };
    Planner::default().solve_early(snapshot, index, &catalogs(), &options, &mut |_| {})
}

/// Replaces the plan of a planner that `spoil`s its plans. Also returns the number of plans that it made.
fn replace(snapshot: &Snapshot, spoil: impl Fn(&mut Plan)) -> (Result<Plan, InvalidPlan>, usize) {
    let index = SnapshotIndex::new(snapshot);
    let count = Cell::new(0);
    let mut planner = |snapshot: &Snapshot, index: &SnapshotIndex| {
        count.set(count.get() + 1);
        let mut plan = solve(snapshot, index);
        spoil(&mut plan);
        plan
    };
    let first = planner(snapshot, &index);
    let violations = plimsoll_invariants::check_indexed(snapshot, &index, &catalogs(), &first);
    assert!(!violations.is_empty(), "the plan is spoiled");
    let invalid = InvalidPlan { sequence: snapshot.sequence, violations };
    let result = plan_without_offenders((snapshot, &index), &catalogs(), (&first, &invalid), &mut planner);
    (result, count.get())
}

fn names<'p>(pods: impl IntoIterator<Item = &'p PodRef>) -> BTreeSet<&'p str> {
    pods.into_iter().map(|pod| pod.name.as_str()).collect()
}

fn is_cursed(pod: &PodRef) -> bool {
    pod.name.starts_with("default/c-")
}

#[test]
fn a_planner_that_forgets_pods_costs_only_these_pods() {
    let (result, plans) = replace(&cluster(), |plan| {
        plan.launches.iter_mut().for_each(|launch| launch.pods.retain(|pod| !is_cursed(pod)));
    });
    let plan = result.unwrap();
    assert_eq!(plans, 2, "one more plan");
    let placed = names(plan.launches.iter().flat_map(|launch| &launch.pods));
    assert_eq!(placed, ["default/web-0", "default/web-1", "default/web-2"].into());
    assert_eq!(names(plan.unschedulable.iter().map(|it| &it.pod)), ["default/c-0", "default/c-1"].into());
    let reason = &plan.unschedulable[0].reasons[0];
    assert_eq!(reason.code, ReasonCode::NotSupported);
    assert!(reason.message.contains("is neither placed nor unschedulable"), "{}", reason.message);
}

#[test]
fn all_pods_of_a_bad_launch_are_left_out_and_the_others_are_placed() {
    let mut snapshot = cluster();
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
    assert!(names(plan.launches.iter().flat_map(|launch| &launch.pods)).contains("default/large-0"));
    assert!(names(plan.unschedulable.iter().map(|it| &it.pod)).is_superset(&["default/c-0", "default/c-1"].into()));
}

#[test]
fn a_planner_that_is_always_wrong_is_given_up_with_its_first_violations() {
    let (result, plans) = replace(&cluster(), |plan| plan.hourly = MicroUsdPerHour(plan.hourly.0 + 1));
    assert!(matches!(result.unwrap_err().violations.as_slice(), [Violation::BadSum(_)]));
    assert_eq!(plans, 1, "the violation is not about pods");
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
