//! Virtual pods and status of CapacityBuffers.

use super::*;
use plimsoll_model::execution::{BufferProvisioning, BufferReady};
use plimsoll_model::plan::Termination;
use plimsoll_model::snapshot::{BufferPod, DisruptionReason};

/// A snapshot with virtual pod `v` and these pods, all of which wait for others of their owner.
pub(super) fn with_virtual_pod(harness: &mut Harness, millis: u64, pods: &'static str) -> Arc<PublishedSnapshot> {
    let mut snapshot = harness.snapshot(millis, ClusterState { pods, incomplete: pods, ledger: 0 });
    let buffer = Some(BufferPod { buffer: "spare".to_owned(), node: None });
    let published = Arc::get_mut(&mut snapshot).unwrap();
    Arc::make_mut(&mut published.snapshot).pods.push(Pod { buffer, ..pod("v") });
    published.incomplete.insert("v".into());
    snapshot
}

/// Status of a buffer for one pod.
pub(super) fn report(provisioning: BufferProvisioning) -> BufferReport {
    BufferReport {
        namespace: "shop".to_owned(),
        name: "spare".to_owned(),
        uid: "b".to_owned(),
        replicas: 1,
        ready: BufferReady::Resolved,
        provisioning: Some(provisioning),
        ..BufferReport::default()
    }
}

#[test]
fn virtual_pods_neither_wait_nor_delay_removals() {
    let mut harness = Harness::new();
    harness.cycle = Cycle::new(7).with_disruption(true);
    let snapshot = with_virtual_pod(&mut harness, 0, "");
    assert_eq!(harness.next(&snapshot, 0), Step::PlanWithDisruption, "nodes are looked at as if nothing were pending");
    harness.record(&snapshot, Plan::default(), true, 1);
    assert_eq!(harness.next(&snapshot, 1), Step::Wait(None), "a place that it has causes no plan and no call");
    let mut again = with_virtual_pod(&mut harness, 5000, "");
    Arc::get_mut(&mut again).unwrap().relevant_sequence = 1;
    assert_eq!(harness.next(&again, 5000), Step::Wait(None));
    // Launches for virtual pods are sent without delay.
    let snapshot = with_virtual_pod(&mut harness, 6000, "");
    assert_eq!(harness.next(&snapshot, 6000), Step::PlanWithDisruption);
    harness.record(&snapshot, launches(&["v"]), true, 6001);
    assert_eq!(actions(&harness.next(&snapshot, 6001)), ["v"]);
}

#[test]
fn buffer_status_is_sent_once_and_again_after_a_failed_execution_or_to_a_new_leader() {
    let mut harness = Harness::new();
    let planned = |harness: &mut Harness, snapshot: &Arc<PublishedSnapshot>, provisioning, millis| {
        harness.cycle.set_buffer_reports(vec![report(provisioning)]);
        harness.record_plan(snapshot, Plan::default(), millis);
    };
    let first = harness.snapshot(0, ClusterState::default());
    harness.next(&first, 0);
    planned(&mut harness, &first, BufferProvisioning::RequiresNewCapacity, 0);
    assert!(matches!(harness.next(&first, 0), Step::Execute { .. }));
    assert_eq!(harness.next(&first, 1), Step::Wait(None));
    let same = harness.snapshot(5000, ClusterState::default());
    harness.next(&same, 5000);
    planned(&mut harness, &same, BufferProvisioning::RequiresNewCapacity, 5000);
    assert_eq!(harness.next(&same, 5000), Step::Wait(None), "nothing new to tell");
    let other = harness.snapshot(6000, ClusterState::default());
    harness.next(&other, 6000);
    planned(&mut harness, &other, BufferProvisioning::FitsExistingCapacity, 6000);
    assert!(matches!(harness.next(&other, 6000), Step::Execute { .. }));
    let (now, cycle_id) = (harness.at(6010), harness.cycle.id(other.snapshot.sequence));
    harness.cycle.handle_event(Event::Ended { cycle_id, result: Err(tonic::Status::unavailable("gone")) }, now);
    assert!(matches!(harness.next(&other, 6500), Step::Execute { .. }), "the actuator was down");
    assert_eq!(harness.next(&other, 6501), Step::Wait(None));
    let mut led_by_another = harness.snapshot(7000, ClusterState::default());
    let published = Arc::get_mut(&mut led_by_another).unwrap();
    published.relevant_sequence = other.relevant_sequence;
    Arc::make_mut(&mut published.snapshot).ledger.epoch += 1;
    assert!(matches!(harness.next(&led_by_another, 7000), Step::Execute { .. }), "a new leader has no reports");
    assert_eq!(harness.next(&led_by_another, 7001), Step::Wait(None));
}

#[test]
fn a_replacement_for_virtual_pods_waits_for_a_removal_that_does_not_fit() {
    let mut harness = Harness::new();
    let snapshot = with_virtual_pod(&mut harness, 0, "");
    assert_eq!(harness.next(&snapshot, 0), Step::Plan);
    // About 3 MB each: the second removal does not fit into the execution.
    let pod = |number: u32| PodRef { name: format!("shop/{number:060}"), uid: number.to_string().into() };
    let removal = |node: &str, replacement: usize| Termination {
        action_id: format!("remove-{node}").into(),
        node: node.into(),
        reason: DisruptionReason::Underutilized,
        pods: (0..40_000).map(pod).collect(),
        replaced_by: vec![replacement],
        ..Termination::default()
    };
    let terminations = vec![removal("n1", 0), removal("n2", 1)];
    harness.record_plan(&snapshot, Plan { terminations, ..launches(&["a", "v"]) }, 0);
    let step = harness.next(&snapshot, 0);
    assert_eq!(actions(&step), ["a"]);
    let Step::Execute { plan, .. } = step else { panic!("not sent") };
    assert_eq!(plan.terminations.iter().map(|it| it.node.as_str()).collect::<Vec<_>>(), ["n1"]);
}
