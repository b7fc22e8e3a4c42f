//! Room that CapacityBuffers keep.

use super::*;
use plimsoll_model::execution::{BufferProvisioning, BufferReady};
use plimsoll_model::snapshot::BufferPod;

#[test]
fn nobody_waits_for_room() {
    let mut scene = Scene::new();
    scene.cycle = Cycle::new(7).sweeping(true);
    let with_room = |scene: &mut Scene, millis: u64, pods: &'static str| {
        let mut seen = scene.snapshot(millis, Seen { pods, incomplete: pods, ledger: 0 });
        let buffer = Some(BufferPod { buffer: "spare".to_owned(), node: None });
        seen.snapshot.pods.push(Pod { buffer, ..pod("v") });
        seen.incomplete.insert("v".into());
        seen
    };
    let seen = with_room(&mut scene, 0, "");
    assert_eq!(scene.next(&seen, 0), Step::Sweep, "nodes are looked at as if nothing were pending");
    let now = scene.at(1);
    scene.cycle.planned(1, Some(Plan { snapshot_sequence: 1, ..Plan::default() }), true, now);
    assert_eq!(scene.next(&seen, 1), Step::Wait(None), "a place that it has causes no plan and no call");
    let mut again = with_room(&mut scene, 5000, "");
    again.relevant = 1;
    assert_eq!(scene.next(&again, 5000), Step::Wait(None));
    // What is launched for it waits for nobody either.
    let seen = with_room(&mut scene, 6000, "");
    assert_eq!(scene.next(&seen, 6000), Step::Sweep);
    let now = scene.at(6001);
    scene.cycle.planned(3, Some(Plan { snapshot_sequence: 3, ..launches(&["v"]) }), true, now);
    assert_eq!(actions(&scene.next(&seen, 6001)), ["v"]);
}

#[test]
fn what_buffers_come_to_is_told_once_and_again_where_nobody_heard_it() {
    let mut scene = Scene::new();
    let report = |provisioning| BufferReport {
        namespace: "shop".to_owned(),
        name: "spare".to_owned(),
        uid: "b".to_owned(),
        strategy: String::new(),
        pod_template: None,
        pod_template_generation: None,
        replicas: 1,
        ready: BufferReady::Resolved,
        message: String::new(),
        provisioning: Some(provisioning),
        room: String::new(),
    };
    let planned = |scene: &mut Scene, seen: &Published, provisioning, millis| {
        scene.cycle.reported(vec![report(provisioning)]);
        scene.planned(seen, Plan::default(), millis);
    };
    let first = scene.snapshot(0, Seen::default());
    scene.next(&first, 0);
    planned(&mut scene, &first, BufferProvisioning::RequiresNewCapacity, 0);
    assert!(matches!(scene.next(&first, 0), Step::Execute { .. }));
    assert_eq!(scene.next(&first, 1), Step::Wait(None));
    let same = scene.snapshot(5000, Seen::default());
    scene.next(&same, 5000);
    planned(&mut scene, &same, BufferProvisioning::RequiresNewCapacity, 5000);
    assert_eq!(scene.next(&same, 5000), Step::Wait(None), "nothing new to tell");
    let other = scene.snapshot(6000, Seen::default());
    scene.next(&other, 6000);
    planned(&mut scene, &other, BufferProvisioning::FitsExistingCapacity, 6000);
    assert!(matches!(scene.next(&other, 6000), Step::Execute { .. }));
    let (now, cycle_id) = (scene.at(6010), scene.cycle.id(other.snapshot.sequence));
    scene.cycle.heard(Event::Ended { cycle_id, result: Err(tonic::Status::unavailable("gone")) }, now);
    assert!(matches!(scene.next(&other, 6500), Step::Execute { .. }), "the actuator was down");
}
