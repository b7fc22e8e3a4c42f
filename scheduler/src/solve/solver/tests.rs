use super::*;
use crate::samples::{NOW, PANICS, catalogs, is_cursed, node, pod, shape, waiting, waiting_with_cursed};
use plimsoll_model::plan::{ReasonCode, Unschedulable};
use plimsoll_model::snapshot::{DisruptionReason, Node, PodDisruptionBudget, PodState};
use plimsoll_model::time::Timestamp;
use std::sync::Mutex;

/// Ends only once it is cancelled, for pods of the shape `cursed`.
const ENDLESS: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    while is_cursed(snapshot) && !planner.is_cancelled() {
        std::thread::yield_now();
    }
    planner.solve_early(snapshot, index, catalogs, options, early)
});

/// Panics if it may remove nodes.
const NO_REMOVALS: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    assert!(!options.disruption, "a bug of removals");
    planner.solve_early(snapshot, index, catalogs, options, early)
});

/// Gives a wrong reason for the removal of the node `n1`.
const MISJUDGES: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    let mut plan = planner.solve_early(snapshot, index, catalogs, options, early);
    for removal in plan.terminations.iter_mut().filter(|removal| removal.node.as_str() == "n1") {
        removal.reason = DisruptionReason::Drifted;
    }
    plan
});

/// Names pods that leave removed nodes a second time, as unschedulable.
const REPEATS_MOVES: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    let plan = planner.solve_early(snapshot, index, catalogs, options, early);
    let moved = plan.terminations.iter().flat_map(|removal| &removal.pods);
    let again = moved.map(|pod| Unschedulable { pod: pod.clone(), reasons: Default::default() });
    let unschedulable = plan.unschedulable.iter().cloned().chain(again).collect();
    Plan { unschedulable, ..plan }
});

/// Panics after it has reported its early launches.
const EARLY_THEN_PANICS: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    let plan = planner.solve_early(snapshot, index, catalogs, options, early);
    assert!(!is_cursed(snapshot), "a bug after {} launches", plan.launches.len());
    plan
});

/// Panics for pods of the shape `cursed` that leave their nodes.
const PANICS_FOR_LEAVING: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    let leaves = |name: &str| snapshot.pods.iter().any(|pod| pod.name == name && pod.state == bound_to_old());
    assert!(!leaves("c-0") && !leaves("c-1"), "a bug");
    planner.solve_early(snapshot, index, catalogs, options, early)
});

/// Names launched pods of the shape `cursed` a second time, as unschedulable.
const REPEATS: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    let plan = planner.solve_early(snapshot, index, catalogs, options, early);
    let cursed = plan.launched_pods().filter(|pod| pod.name.starts_with("default/c-"));
    let again = cursed.map(|pod| Unschedulable { pod: pod.clone(), reasons: Default::default() });
    let unschedulable = plan.unschedulable.iter().cloned().chain(again).collect();
    Plan { unschedulable, ..plan }
});

fn bound_to_old() -> PodState {
    PodState::Bound("old".into())
}

/// Three pending pods, and pods of the shape `cursed` on a node that is being deleted, of which `c-2` to `c-4` do not
/// leave yet.
fn leaving_with_cursed() -> Snapshot {
    let mut snapshot = waiting(3);
    snapshot.shapes.push(shape("cursed", 500));
    snapshot.nodes = vec![Node { deleting: true, ..node("old", "default") }];
    snapshot.pod_disruption_budgets =
        vec![PodDisruptionBudget { name: "default/all".to_owned(), disruptions_allowed: 0, fully_blocking: true }];
    let mut cursed = ["c-0", "c-1", "c-2", "c-3", "c-4"].map(|name| pod(name, "cursed", bound_to_old()));
    cursed[2].do_not_disrupt_until = Some(Timestamp(i64::MAX));
    cursed[3].pod_disruption_budgets = vec!["default/all".to_owned()];
    cursed[4].stays_with_node = true;
    snapshot.pods.extend(cursed);
    snapshot.sort();
    snapshot
}

fn solver(plan: PlanFn) -> Solver {
    Solver::new(plan, None, Cancel::default())
}

fn solve(solver: &mut Solver, snapshot: &Snapshot) -> Result<Solved, PlanFailure> {
    let index = SnapshotIndex::new(snapshot);
    solver.solve((snapshot, &index), &catalogs(), &PlanOptions::default(), &mut |_| {})
}

fn placed(plan: &Plan) -> Vec<&str> {
    let mut pods: Vec<&str> = plan.launched_pods().map(|pod| pod.name.as_str()).collect();
    pods.sort_unstable();
    pods
}

const WEB: [&str; 3] = ["default/web-0", "default/web-1", "default/web-2"];

fn is_left_out(plan: &Plan, text: &str) -> bool {
    let names: Vec<&str> = plan.unschedulable.iter().map(|pod| pod.pod.name.as_str()).collect();
    let reasons = || plan.unschedulable.iter().flat_map(|pod| pod.reasons.iter());
    names == ["default/c-0", "default/c-1"]
        && reasons().all(|reason| reason.code == ReasonCode::NotSupported && reason.message.contains(text))
}

#[test]
fn pods_that_the_planner_panics_for_are_left_out_and_all_others_are_placed() {
    let solved = solve(&mut solver(PANICS), &waiting_with_cursed()).unwrap();
    assert_eq!(placed(&solved.plan), WEB);
    assert!(is_left_out(&solved.plan, "the planner panicked for pods like this one: a bug"), "{:?}", solved.plan);
    assert_eq!(solved.left_out, BTreeMap::from([("panic", 2)]));
    assert_eq!(solved.replaced, Some(PlanFailure::Panicked("a bug".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_the_planner_never_ends_for_are_left_out_and_all_others_are_placed() {
    let limits = TimeLimits { first: Duration::from_millis(20), total: Duration::from_secs(3600) };
    // The search waits for a share of this.
    let limits = TimeLimits { total: limits.first * 100, ..limits };
    let run = move || solve(&mut Solver::new(ENDLESS, Some(limits), Cancel::default()), &waiting_with_cursed());
    let solved = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
    assert_eq!(placed(&solved.plan), WEB);
    assert!(is_left_out(&solved.plan, "the planner took more than"), "{:?}", solved.plan);
    assert_eq!(solved.left_out, BTreeMap::from([("timeout", 2)]));
    assert_eq!(solved.replaced, Some(PlanFailure::TimedOut(limits.first)));
}

#[test]
fn pods_of_an_invalid_plan_are_left_out_and_all_others_are_placed() {
    let forgetful = PlanFn(|planner, snapshot, index, catalogs, options, early| {
        let mut plan = planner.solve_early(snapshot, index, catalogs, options, early);
        plan.launches.iter_mut().for_each(|launch| launch.pods.retain(|pod| !pod.name.starts_with("default/c-")));
        plan
    });
    let solved = solve(&mut solver(forgetful), &waiting_with_cursed()).unwrap();
    assert_eq!(placed(&solved.plan), WEB);
    assert!(is_left_out(&solved.plan, "is neither placed nor unschedulable"), "{:?}", solved.plan);
    assert_eq!(solved.left_out, BTreeMap::from([("invalid", 2)]));
}

#[test]
fn pods_of_a_node_that_is_being_deleted_are_left_out_too_and_all_others_are_placed() {
    let cases = [(REPEATS, "invalid", "pod default/c-0 appears twice"), (PANICS_FOR_LEAVING, "panic", "a bug")];
    for (plan, cause, text) in cases {
        let mut solver = solver(plan);
        let first = solve(&mut solver, &leaving_with_cursed()).unwrap();
        assert!(first.replaced.is_some());
        let second = solve(&mut solver, &leaving_with_cursed()).unwrap();
        assert_eq!(second.replaced, None, "the shape is known");
        for solved in [first, second] {
            assert_eq!(placed(&solved.plan), WEB);
            assert!(is_left_out(&solved.plan, text), "{:?}", solved.plan);
            assert_eq!(solved.left_out, BTreeMap::from([(cause, 2)]));
        }
    }
}

#[test]
fn pods_that_only_wait_for_a_node_that_is_being_deleted_are_left_out_too() {
    let mut snapshot = leaving_with_cursed();
    for pod in &mut snapshot.pods {
        if pod.name.starts_with("c-") && !pod.stays_with_node {
            pod.state = PodState::Reserved("old".into());
        }
    }
    let solved = solve(&mut solver(REPEATS), &snapshot).unwrap();
    assert_eq!(placed(&solved.plan), WEB);
    assert_eq!(solved.left_out, BTreeMap::from([("invalid", 4)]), "nothing protects them");
}

#[test]
fn a_terminating_pod_of_a_shape_that_plans_fail_for_is_not_named() {
    let mut snapshot = waiting_with_cursed();
    let mut ends = pod("c-2", "cursed", PodState::Pending);
    ends.terminating = true;
    snapshot.pods.push(ends);
    snapshot.sort();
    let solved = solve(&mut solver(PANICS), &snapshot).unwrap();
    assert_eq!(placed(&solved.plan), WEB);
    assert!(is_left_out(&solved.plan, "a bug"), "{:?}", solved.plan);
    assert_eq!(solved.left_out, BTreeMap::from([("panic", 2)]));
}

/// Calls of [`COUNTS`] since the test began: whether a cursed pod was among the pods.
static CALLS: Mutex<Vec<bool>> = Mutex::new(Vec::new());

const COUNTS: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    CALLS.lock().unwrap().push(is_cursed(snapshot));
    PANICS.call(planner, snapshot, index, catalogs, options, early)
});

#[tokio::test(start_paused = true)]
async fn pods_are_remembered_until_they_are_gone_or_some_time_has_passed() {
    let mut solver = solver(COUNTS);
    let mut calls = |snapshot: &Snapshot| {
        CALLS.lock().unwrap().clear();
        let solved = solve(&mut solver, snapshot).unwrap();
        (solved, CALLS.lock().unwrap().clone())
    };
    let (_, searched) = calls(&waiting_with_cursed());
    assert!(searched.len() > 3 && searched[0], "{searched:?}");
    let (solved, once) = calls(&waiting_with_cursed());
    assert_eq!(once, [false], "the shape is known");
    assert_eq!((placed(&solved.plan), solved.replaced), (WEB.into(), None));
    assert!(is_left_out(&solved.plan, "a bug"));
    assert_eq!(solved.left_out, BTreeMap::from([("panic", 2)]));
    assert_eq!(solved.plan.next_time, Some(waiting_with_cursed().now.plus(millis(RETRY_AFTER))));
    let (solved, once) = calls(&waiting(3));
    assert_eq!((placed(&solved.plan), once, solved.left_out), (WEB.into(), vec![false], BTreeMap::new()));
    tokio::time::advance(RETRY_AFTER - Duration::from_secs(1)).await;
    let (solved, once) = calls(&waiting_with_cursed());
    assert_eq!(once, [false]);
    assert_eq!(solved.plan.next_time, Some(waiting_with_cursed().now.plus(Millis::from_seconds(1))));
    tokio::time::advance(Duration::from_secs(1)).await;
    let (_, again) = calls(&waiting_with_cursed());
    assert!(again[0], "the shape is planned again");
}

#[tokio::test(start_paused = true)]
async fn a_bounded_number_of_shapes_is_remembered_and_the_newest_of_them() {
    let mut solver = solver(PANICS);
    let later = Instant::now() + RETRY_AFTER * 2;
    for number in 0..MAX_REMEMBERED {
        let shape = format!("a{number:03}").as_str().into();
        let until = later - if number == 7 { RETRY_AFTER } else { Duration::ZERO };
        solver.remembered.insert(shape, (PlanFailure::Panicked(String::new()), until));
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    solve(&mut solver, &waiting_with_cursed()).unwrap();
    assert_eq!(solver.remembered.len(), MAX_REMEMBERED);
    assert!(solver.remembered.contains_key(&ShapeId::from("cursed")));
    assert!(!solver.remembered.contains_key(&ShapeId::from("a007")), "the entry that ends first");
}

#[test]
fn if_removals_make_the_planner_fail_no_pod_is_left_out() {
    let mut snapshot = waiting_with_cursed();
    snapshot.nodes = vec![node("n", "default")];
    let solved = solve(&mut solver(NO_REMOVALS), &snapshot).unwrap();
    assert!(solved.left_out.is_empty() && solved.plan.unschedulable.is_empty(), "{solved:?}");
    assert_eq!(solved.replaced, Some(PlanFailure::Panicked("a bug of removals".to_owned())));
    assert_eq!(solved.plan.next_time, Some(snapshot.now.plus(millis(REMOVALS_AFTER))), "removals are tried again");
    let (index, options) = (SnapshotIndex::new(&snapshot), PlanOptions { disruption: false, ..PlanOptions::default() });
    let solved = solver(PANICS).solve((&snapshot, &index), &catalogs(), &options, &mut |_| {}).unwrap();
    assert!(solved.plan.next_time > Some(snapshot.now.plus(millis(REMOVALS_AFTER))), "no removals were wanted");
}

/// A pending pod that needs a new node, an empty node `n1`, and an expired node `n2` with a pod.
fn with_removals() -> Snapshot {
    let mut snapshot = waiting(0);
    snapshot.shapes.push(shape("large", 7500));
    snapshot.pods.push(pod("large-0", "large", PodState::Pending));
    snapshot.pods.push(pod("web-0", "web", PodState::Bound("n2".into())));
    snapshot.nodes = vec![node("n1", "default"), Node { expires: Some(NOW), ..node("n2", "default") }];
    snapshot.sort();
    snapshot
}

fn removed(plan: &Plan) -> Vec<&str> {
    plan.terminations.iter().map(|removal| removal.node.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_removal_makes_plans_invalid_is_kept_and_other_nodes_are_removed() {
    let mut snapshot = with_removals();
    // Its pod could move to the empty node, which would then stay.
    snapshot.pods.retain(|pod| pod.name != "web-0");
    let mut solver = solver(MISJUDGES);
    let solved = solve(&mut solver, &snapshot).unwrap();
    assert_eq!((placed(&solved.plan), removed(&solved.plan)), (vec!["default/large-0"], vec!["n2"]));
    assert_eq!(solved.kept, [NodeName::from("n1")]);
    assert!(matches!(solved.replaced, Some(PlanFailure::Invalid(_))));
    assert_eq!(solved.plan.next_time, Some(snapshot.now.plus(millis(RETRY_AFTER))), "its removal is tried again");
    let solved = solve(&mut solver, &snapshot).unwrap();
    assert_eq!((removed(&solved.plan), solved.replaced), (vec!["n2"], None), "the node is known");
    tokio::time::advance(RETRY_AFTER).await;
    let solved = solve(&mut solver, &snapshot).unwrap();
    assert!(solved.replaced.is_some(), "its removal is planned again");
    assert_eq!(removed(&solved.plan), ["n2"]);
}

#[test]
fn an_expired_node_whose_pod_makes_plans_invalid_is_kept_and_other_nodes_are_removed() {
    let solved = solve(&mut solver(REPEATS_MOVES), &with_removals()).unwrap();
    assert_eq!((placed(&solved.plan), removed(&solved.plan)), (vec!["default/large-0"], vec!["n1"]));
    assert_eq!(solved.kept, [NodeName::from("n2")]);
    assert!(solved.plan.unschedulable.is_empty() && solved.left_out.is_empty(), "{solved:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bounded_number_of_nodes_is_kept() {
    let mut solver = solver(MISJUDGES);
    let later = Instant::now() + RETRY_AFTER;
    solver.kept = (0..MAX_REMEMBERED).map(|number| (NodeName(format!("a{number:03}")), later)).collect();
    let mut snapshot = with_removals();
    snapshot.pods.retain(|pod| pod.name != "web-0");
    let solved = solve(&mut solver, &snapshot).unwrap();
    assert_eq!((removed(&solved.plan), solver.kept.len()), (vec![], MAX_REMEMBERED), "a plan without removals");
}

#[test]
fn a_failure_after_early_launches_ends_the_plan_with_these_and_the_next_one_is_sent_when_it_is_complete() {
    let mut snapshot = waiting(20_000);
    snapshot.shapes.push(shape("cursed", 1000));
    snapshot.pods.push(pod("c-0", "cursed", PodState::Pending));
    snapshot.sort();
    let index = SnapshotIndex::new(&snapshot);
    let mut solver = solver(EARLY_THEN_PANICS);
    let mut early: Vec<Launch> = Vec::new();
    let mut solve = |early: &mut Vec<Launch>| {
        let mut sink = |part: Plan| early.extend(part.launches);
        solver.solve((&snapshot, &index), &catalogs(), &PlanOptions::default(), &mut sink).unwrap()
    };
    let solved = solve(&mut early);
    assert!(!early.is_empty());
    assert_eq!(solved.plan.launches, early);
    assert_eq!(solved.plan.next_time, Some(snapshot.now), "the rest is planned at once");
    assert_eq!((solved.plan.unschedulable.len(), solved.left_out.len()), (0, 0));
    early.clear();
    let solved = solve(&mut early);
    assert_eq!(early, []);
    assert_eq!(placed(&solved.plan).len(), 20_000);
    assert_eq!(solved.left_out, BTreeMap::from([("panic", 1)]));
    let solved = solve(&mut early);
    assert_eq!((placed(&solved.plan).len(), early.len()), (20_000, 0));
}

#[test]
fn a_search_that_does_not_end_continues_soon() {
    let every = PlanFn(|planner, snapshot, index, catalogs, options, early| {
        assert!(snapshot.pods.iter().all(|pod| pod.name.starts_with("web")), "a bug");
        planner.solve_early(snapshot, index, catalogs, options, early)
    });
    let mut snapshot = waiting(3);
    for number in 0..12 {
        let shape_id = format!("s{number:02}");
        snapshot.shapes.push(shape(&shape_id, 500));
        snapshot.pods.push(pod(&format!("p-{number:02}"), &shape_id, PodState::Pending));
    }
    snapshot.sort();
    let mut solver = solver(every);
    let first = solve(&mut solver, &snapshot).unwrap();
    assert!(placed(&first.plan).is_empty(), "web comes after the shapes that fail");
    assert_eq!(first.plan.next_time, Some(snapshot.now.plus(millis(CONTINUE_AFTER))));
    let second = solve(&mut solver, &snapshot).unwrap();
    assert_eq!(placed(&second.plan), WEB);
    assert_eq!(second.left_out, BTreeMap::from([("panic", 12)]));
}
