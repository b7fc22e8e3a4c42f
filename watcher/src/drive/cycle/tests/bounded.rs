//! Plans that do not fit into one execution, and removals that end unseen.

use super::*;
use crate::samples::node;
use plimsoll_model::plan::{Reason, ReasonCode};
use plimsoll_model::snapshot::IgnoredPod;

#[test]
fn the_rest_of_a_large_plan_is_sent_once_the_first_part_is_admitted() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState::default());
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    let ids: Vec<String> = (0..600).map(|n| format!("{n:03}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    harness.record_plan(&snapshot, launches(&ids), 0);
    let first = harness.next(&snapshot, 0);
    assert_eq!(actions(&first), ids[..512], "as many as the actuator admits");
    for id in &ids[..512] {
        harness.outcome(id, OutcomeStatus::Accepted, 0, 1);
    }
    assert_eq!(actions(&harness.next(&snapshot, 1)), ids[512..]);
}

#[test]
fn ignored_pods_are_not_sent() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    harness.next(&snapshot, 0);
    let ignored = vec![IgnoredPod { uid: "b".into(), pod: "shop/b".to_owned(), reason: "gated".to_owned() }];
    harness.record_plan(&snapshot, Plan { ignored, ..launches(&["a"]) }, 0);
    let Step::Execute { plan, .. } = harness.next(&snapshot, 0) else { panic!("not sent") };
    assert_eq!((plan.launches.len(), plan.ignored.len()), (1, 0));
}

#[test]
fn all_reasons_are_told_in_turn_and_then_no_more() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    harness.next(&snapshot, 0);
    // About 1 kB each: 3 MB in all, twice what one execution has room for.
    let reason = Reason { node_pool: String::new(), code: ReasonCode::NoOffering, message: "x".repeat(1000) };
    let one = |n: u32| {
        let pod = PodRef { name: n.to_string(), uid: n.to_string().as_str().into() };
        Unschedulable { pod, reasons: vec![reason.clone()].into() }
    };
    harness.record_plan(&snapshot, Plan { unschedulable: (0..3000).map(one).collect(), ..Plan::default() }, 0);
    let mut told = 0;
    for _ in 0..2 {
        let Step::Execute { plan, .. } = harness.next(&snapshot, 0) else { panic!("not sent") };
        assert_eq!(plan.unschedulable.len(), 3000);
        told += plan.unschedulable.iter().filter(|one| !one.reasons.is_empty()).count();
    }
    assert!(told >= 3000, "{told}");
    assert_eq!(harness.next(&snapshot, 0), Step::Wait(None));
    // An execution fails while a part of them is untold. Then all pods have a place.
    harness.record_plan(&snapshot, Plan { unschedulable: (1..3000).map(one).collect(), ..Plan::default() }, 0);
    assert!(matches!(harness.next(&snapshot, 0), Step::Execute { .. }));
    let (now, result) = (harness.at(0), Err(tonic::Status::unavailable("gone")));
    harness.cycle.handle_event(Event::Ended { cycle_id: "7-1".to_owned(), result }, now);
    harness.record_plan(&snapshot, Plan::default(), 50);
    assert_eq!(harness.next(&snapshot, 50), Step::Wait(None), "nothing is left to tell");
}

#[test]
fn placements_that_do_not_fit_are_not_sent() {
    let mut harness = Harness::new();
    let snapshot = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    harness.next(&snapshot, 0);
    // More than 100 bytes each: 4 MB in all, and 1 MiB fits.
    let on = |n: u32| {
        let pod = PodRef { name: format!("shop/{n:0100}"), uid: n.to_string().as_str().into() };
        Placement { node: "n".into(), pods: vec![pod] }
    };
    let placements: Vec<Placement> = (0..40_000).map(on).collect();
    harness.record_plan(&snapshot, Plan { placements: placements.clone(), ..launches(&["a"]) }, 0);
    let Step::Execute { plan, .. } = harness.next(&snapshot, 0) else { panic!("not sent") };
    assert!(plan.placements.len() < 11_000, "{} placements", plan.placements.len());
    assert_eq!(plan.placements, placements[..plan.placements.len()]);
}

/// A snapshot with node `n`.
fn with_node(harness: &mut Harness, millis: u64, removing: bool) -> Arc<PublishedSnapshot> {
    let mut published = harness.snapshot(millis, ClusterState::default());
    let snapshot = Arc::make_mut(&mut Arc::get_mut(&mut published).unwrap().snapshot);
    snapshot.nodes.push(node("n", "default"));
    snapshot.nodes[0].deleting = removing;
    published
}

#[test]
fn a_removal_that_is_seen_to_be_undone_pauses_without_an_outcome() {
    let mut harness = Harness::new();
    // A new leader has sent nothing. It sees a removal that its predecessor has asked for.
    harness.cycle = Cycle::new(8).with_disruption(true);
    let snapshot = with_node(&mut harness, 0, true);
    assert_eq!(harness.next(&snapshot, 0), Step::PlanWithDisruption);
    assert_eq!(harness.kept_nodes, [""; 0]);
    harness.record(&snapshot, Plan::default(), true, 0);
    let undone = with_node(&mut harness, 1_200_000, false);
    assert_eq!(harness.next(&undone, 1_200_000), Step::PlanWithDisruption);
    assert_eq!(harness.kept_nodes, ["n"], "its replacements would be bought again");
    harness.record(&undone, Plan::default(), true, 1_200_000);
    assert_eq!(harness.next(&undone, 1_200_000), Step::Wait(Some(harness.at(1_210_000))));
    assert_eq!(harness.next(&undone, 1_210_000), Step::Refresh);
}

#[test]
fn a_removal_that_goes_on_is_not_undone() {
    let mut harness = Harness::new();
    harness.cycle = Cycle::new(8).with_disruption(true);
    for millis in [0, 100] {
        let snapshot = with_node(&mut harness, millis, true);
        assert_eq!(harness.next(&snapshot, millis), Step::PlanWithDisruption);
        assert_eq!(harness.kept_nodes, [""; 0]);
        harness.record(&snapshot, Plan::default(), true, millis);
    }
}

#[test]
fn a_node_that_is_gone_has_no_undone_removal() {
    let mut harness = Harness::new();
    harness.cycle = Cycle::new(8).with_disruption(true);
    let snapshot = with_node(&mut harness, 0, true);
    harness.next(&snapshot, 0);
    harness.record(&snapshot, Plan::default(), true, 0);
    let gone = harness.snapshot(100, ClusterState::default());
    assert_eq!(harness.next(&gone, 100), Step::PlanWithDisruption);
    assert_eq!(harness.kept_nodes, [""; 0]);
}

#[test]
fn only_a_newly_pending_pod_ends_a_search_for_removals() {
    let mut harness = Harness::new();
    let mut with = |pods| harness.snapshot(0, ClusterState { pods, ..ClusterState::default() }).snapshot.clone();
    let planned = with("ac");
    assert!(!has_new_waiting_pods(&planned, &with("ac")), "they fit nowhere");
    assert!(!has_new_waiting_pods(&planned, &with("a")));
    assert!(has_new_waiting_pods(&planned, &with("abc")));
    let mut bound = with("abc");
    Arc::make_mut(&mut bound).pods[1].state = PodState::Bound("n".into());
    assert!(!has_new_waiting_pods(&planned, &bound));
    assert!(has_new_waiting_pods(&bound, &with("abc")), "its launch failed");
}

#[test]
fn a_search_for_removals_is_completed_at_last_although_pods_keep_arriving() {
    let mut harness = Harness::new();
    harness.cycle = Cycle::new(7).with_disruption(true);
    let busy = harness.snapshot(0, ClusterState { pods: "a", ..ClusterState::default() });
    assert_eq!(harness.next(&busy, 0), Step::Plan);
    assert!(harness.cycle.may_abandon_removals(harness.at(10_000)), "none was wanted before");
    // Each search is abandoned after a second.
    for millis in (0..10_000).step_by(1000) {
        let snapshot = harness.snapshot(millis, ClusterState::default());
        assert_eq!(harness.next(&snapshot, millis), Step::PlanWithDisruption);
        assert!(harness.cycle.may_abandon_removals(harness.at(millis)), "{millis}");
    }
    let snapshot = harness.snapshot(10_000, ClusterState::default());
    assert_eq!(harness.next(&snapshot, 10_000), Step::PlanWithDisruption);
    assert!(!harness.cycle.may_abandon_removals(harness.at(10_000)));
    harness.record(&snapshot, Plan::default(), true, 15_000);
    assert!(harness.cycle.may_abandon_removals(harness.at(15_000)), "the next one is not late");
}
