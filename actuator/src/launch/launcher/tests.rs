use super::*;
use crate::ports::FleetRequest;
use crate::state::launch_group::GroupKey;
use plimsoll_model::catalog::CapacityType;
use serde_json::json;

#[test]
fn a_claim_is_new_for_ten_seconds_in_the_term_that_wrote_it() {
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let claim: NodeClaim = serde_json::from_value(json!({
        "metadata": {"name": "c", "creationTimestamp": "1970-01-01T00:01:00Z",
            "annotations": {annotation::EPOCH: "3"}},
        "spec": {"nodeClassRef": class, "requirements": []},
    }))
    .unwrap();
    let is_new_after = |millis: i64, epoch: u64| is_new(&claim, epoch, Timestamp(60_000 + millis));
    assert_eq!([0, 9_999, 10_000].map(|millis| is_new_after(millis, 3)), [true, true, false]);
    assert!(!is_new_after(0, 4), "its launcher has ended, and the first scan finds it");
}

fn group(id: &str) -> (LaunchGroup, Attempt) {
    let key = GroupKey { id: id.to_owned(), size: 1 };
    let request = FleetRequest {
        client_token: key.client_token(1),
        capacity_type: CapacityType::Spot,
        total_target_capacity: 1,
        ..FleetRequest::default()
    };
    let group = LaunchGroup { key, claims: BTreeMap::new(), held: BTreeMap::new(), cycle_id: "c".to_owned() };
    (group, Attempt::first(request, Timestamp(0)))
}

/// A second worker for a group would send its request while the first one does.
#[test]
fn a_group_is_active_for_one_worker_at_a_time() {
    let (queue, _groups) = LaunchQueue::new();
    assert!(!queue.is_active("g"));
    let writing = queue.activate("g").unwrap();
    assert!(queue.is_active("g") && queue.activate("g").is_none() && !queue.is_active("other"));
    drop(writing);
    assert!(!queue.is_active("g"), "its claim was not written");
    let (written, attempt) = group("g");
    queue.activate("g").unwrap().launch(written, attempt);
    assert!(queue.is_active("g"), "until the launcher has executed it");
}

#[test]
fn a_group_for_which_the_queue_has_no_room_is_left_to_the_scan() {
    let (queue, _groups) = LaunchQueue::new();
    assert!(queue.reserve(QUEUE + 1).is_none());
    let slots = queue.reserve(QUEUE).unwrap();
    assert!(queue.reserve(1).is_none());
    let (written, attempt) = group("g");
    queue.activate("g").unwrap().launch(written, attempt);
    assert!(!queue.is_active("g"), "the scan skips active groups");
    drop(slots);
    assert!(queue.reserve(QUEUE).is_some());
}
