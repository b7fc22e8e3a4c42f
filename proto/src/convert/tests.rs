mod fields;

use super::strategies::{catalog, snapshot};
use super::{
    ConvertError, append_fragment, check_catalogs, check_snapshot, encoded_size, unshared_sizes, with_shared_lists,
    with_shared_reasons,
};
use crate::{catalog::v1 as catalog_wire, plan::v1 as plan_wire, snapshot::v1 as wire};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::plan::{Plan, Unschedulable};
use plimsoll_model::snapshot::{BufferPod, PodState, Snapshot};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn snapshots_round_trip(model in snapshot()) {
        prop_assert_eq!(Snapshot::try_from(wire::Snapshot::from(&model)), Ok(model));
    }

    #[test]
    fn check_snapshot_accepts_what_conversion_accepts(model in snapshot()) {
        prop_assert_eq!(check_snapshot(&model), Ok(()));
    }

    #[test]
    fn catalogs_round_trip(model in catalog()) {
        prop_assert_eq!(Catalog::try_from(catalog_wire::Catalog::from(&model)), Ok(model));
    }
}

fn amount(name: &str, amount: i64) -> wire::ResourceAmount {
    wire::ResourceAmount { name: name.into(), amount }
}

fn valid() -> wire::Snapshot {
    let shape = wire::PodShape { id: "s".into(), requests: vec![amount("cpu", 1)], ..Default::default() };
    let bound = wire::pod::State::BoundTo("n".into());
    let pod = wire::Pod { uid: "p".into(), shape: "s".into(), state: Some(bound), ..Default::default() };
    let node = wire::Node { name: "n".into(), state: 3, ..Default::default() };
    let disruption = wire::Disruption { policy: 1, ..Default::default() };
    let pool = wire::NodePool {
        name: "a".into(),
        catalog: Some("c".into()),
        disruption: Some(disruption),
        ..Default::default()
    };
    wire::Snapshot {
        shapes: vec![shape],
        pods: vec![pod],
        nodes: vec![node],
        node_pools: vec![pool],
        ..Default::default()
    }
}

type Change<T> = fn(&mut T);

fn error_of(change: Change<wire::Snapshot>) -> String {
    let mut snapshot = valid();
    change(&mut snapshot);
    Snapshot::try_from(snapshot).err().map(|error| error.to_string()).unwrap_or_default()
}

fn node_costs(per_node: i64, work: u32) -> wire::NodeCosts {
    wire::NodeCosts { per_node_micro_usd_per_hour: per_node, performance_millionths: [("m7i".to_owned(), work)].into() }
}

#[test]
fn invalid_snapshots_are_rejected_with_the_path() {
    assert_eq!(error_of(|_| ()), "");
    let costs = "snapshot.node_pools[0].costs";
    let no_fee = format!("{costs}.per_node_micro_usd_per_hour: is negative: -1");
    let no_work = format!("{costs}.performance_millionths[\"m7i\"]: is 0");
    let cases: [(Change<wire::Snapshot>, &str); 11] = [
        (|it| it.pods[0].shape = "x".into(), "snapshot.pods[0].shape: no shape \"x\""),
        (|it| it.nodes.clear(), "snapshot.pods[0].bound_to: no node \"n\""),
        (|it| it.pods[0].state = None, "snapshot.pods[0].state: is not set"),
        (|it| it.pods[0].uid.clear(), "snapshot.pods[0].uid: is empty"),
        (|it| it.pods.push(it.pods[0].clone()), "snapshot.pods[1].uid: is there twice"),
        (|it| it.shapes[0].requests[0].amount = -1, "snapshot.shapes[0].requests[0].amount: is negative: -1"),
        (|it| it.shapes[0].requests.push(amount("cpu", 2)), "snapshot.shapes[0].requests[1].name: is there twice"),
        (|it| it.nodes[0].state = 9, "snapshot.nodes[0].state: unknown value 9"),
        (|it| it.node_pools[0].disruption = None, "snapshot.node_pools[0].disruption: is not set"),
        (|it| it.node_pools[0].costs = Some(node_costs(-1, 1)), &no_fee),
        (|it| it.node_pools[0].costs = Some(node_costs(0, 0)), &no_work),
    ];
    for (change, expected) in cases {
        assert_eq!(error_of(change), expected);
    }
}

fn buffer(name: &str) -> Option<BufferPod> {
    Some(BufferPod { buffer: name.to_owned(), node: None })
}

#[test]
fn check_snapshot_rejects_what_conversion_rejects() -> Result<(), ConvertError> {
    let cases: [(&str, Change<Snapshot>); 10] = [
        ("snapshot.pods[0].uid: is empty", |it| it.pods[0].uid = "".into()),
        ("snapshot.pods[0].shape: is empty", |it| it.pods[0].shape = "".into()),
        ("snapshot.pods[0].shape: no shape \"x\"", |it| it.pods[0].shape = "x".into()),
        ("snapshot.pods[0].bound_to: is empty", |it| it.pods[0].state = PodState::Bound("".into())),
        ("snapshot.pods[0].reserved_on: no node", |it| it.pods[0].state = PodState::Reserved("x".into())),
        ("snapshot.pods[0].buffer: is set for a pod", |it| it.pods[0].buffer = buffer("b")),
        ("snapshot.pods[0].buffer.buffer: is empty", |it| {
            (it.pods[0].state, it.pods[0].buffer) = (PodState::Pending, buffer(""));
        }),
        ("snapshot.pods[0].buffer.node: is empty", |it| {
            let nameless = BufferPod { buffer: "b".to_owned(), node: Some("".into()) };
            (it.pods[0].state, it.pods[0].buffer) = (PodState::Pending, Some(nameless));
        }),
        ("snapshot.pods[1].uid: is there twice", |it| it.pods.push(it.pods[0].clone())),
        ("snapshot.nodes[0].name: is empty", |it| it.nodes[0].name = "".into()),
    ];
    for (expected, change) in cases {
        let mut snapshot = Snapshot::try_from(valid())?;
        change(&mut snapshot);
        let converted = Snapshot::try_from(wire::Snapshot::from(&snapshot)).err();
        let checked = check_snapshot(&snapshot).err();
        assert!(
            checked.as_ref().is_some_and(|error| error.to_string().starts_with(expected)),
            "{expected}: {checked:?}"
        );
        assert_eq!(checked, converted);
    }
    Ok(())
}

#[test]
fn pools_need_a_known_catalog() -> Result<(), ConvertError> {
    let snapshot = Snapshot::try_from(valid())?;
    assert_eq!(check_catalogs(&snapshot, &BTreeSet::from(["c".into()])), Ok(()));
    let path = check_catalogs(&snapshot, &BTreeSet::new()).err().map(|error| error.path);
    assert_eq!(path.as_deref(), Some("snapshot.node_pools[0].catalog"));
    Ok(())
}

#[test]
fn a_catalog_must_match_its_id() {
    let wrong = catalog_wire::Catalog { id: "x".into(), ..Default::default() };
    assert_eq!(Catalog::try_from(wrong).err().map(|error| error.path).as_deref(), Some("catalog.id"));
}

fn plan() -> plan_wire::Plan {
    let offering = plan_wire::OfferingChoice {
        instance_type: "c6g.large".into(),
        zone: "a".into(),
        capacity_type: 2,
        price_micro_usd_per_hour: 5,
        reservation: None,
    };
    let launch = plan_wire::Launch {
        action_id: "l".into(),
        node_pool: "p".into(),
        offerings: vec![offering],
        requests: vec![amount("cpu", 1)],
        ..Default::default()
    };
    let termination = plan_wire::Termination {
        action_id: "t".into(),
        node: "n".into(),
        reason: 2,
        replaced_by: vec![0],
        saving_micro_usd_per_hour: -3,
        ..Default::default()
    };
    let pod = plan_wire::PodRef { name: "shop/web-0".into(), uid: "u".into() };
    let reason = plan_wire::Reason { node_pool: "p".into(), code: 1, message: "m".into() };
    let unschedulable = plan_wire::Unschedulable { pod: Some(pod), reasons: vec![reason], like: None };
    plan_wire::Plan {
        ledger: Some(wire::LedgerPosition::default()),
        launches: vec![launch],
        terminations: vec![termination],
        unschedulable: vec![unschedulable],
        ..Default::default()
    }
}

#[test]
fn a_virtual_pod_is_pending_and_names_its_buffer() {
    let with = |buffer: &str, state: wire::pod::State| {
        let buffer = wire::BufferPod { buffer: buffer.into(), node: Some("n".into()) };
        let mut snapshot = valid();
        let pod = &mut snapshot.pods[0];
        (pod.buffer, pod.state) = (Some(buffer), Some(state));
        Snapshot::try_from(snapshot).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let pending = || wire::pod::State::Pending(wire::PodPending {});
    assert_eq!(with("spare", pending()), "");
    assert_eq!(with("", pending()), "snapshot.pods[0].buffer.buffer: is empty");
    let bound = wire::pod::State::BoundTo("n".into());
    assert_eq!(with("spare", bound), "snapshot.pods[0].buffer: is set for a pod that is not pending");
}

#[test]
fn plans_round_trip() -> Result<(), ConvertError> {
    assert_eq!(plan_wire::Plan::from(&Plan::try_from(plan())?), plan());
    Ok(())
}

#[test]
fn sizes_without_shared_lists_are_known_before_the_message() -> Result<(), ConvertError> {
    let mut plan = Plan::try_from(plan())?;
    let (launch, pod) = (plan.launches[0].clone(), plan.unschedulable[0].clone());
    plan.launches.extend(vec![launch; 200]);
    plan.unschedulable.extend(vec![pod; 200]);
    let message = plan_wire::Plan::from(&plan);
    let without_launches = plan_wire::Plan { launches: Vec::new(), ..message.clone() };
    let without_both = plan_wire::Plan { unschedulable: Vec::new(), ..without_launches.clone() };
    let [whole, pods, rest] = [&message, &without_launches, &without_both].map(encoded_size);
    assert_eq!(unshared_sizes(&plan), (whole - pods, pods - rest));
    Ok(())
}

#[test]
fn invalid_plans_are_rejected_with_the_path() {
    let cases: [(Change<plan_wire::Plan>, &str); 9] = [
        (|it| it.launches[0].offerings.clear(), "plan.launches[0].offerings: is empty"),
        (
            |it| {
                it.launches[0].offerings.clear();
                it.launches[0].like = Some(0);
            },
            "plan.launches[0].like: launch 0 is not an earlier one",
        ),
        (|it| it.launches[0].like = Some(0), "plan.launches[0].like: is set beside offerings or requirements"),
        (|it| it.unschedulable[0].like = Some(0), "plan.unschedulable[0].like: is set beside reasons"),
        (
            |it| {
                it.unschedulable[0].reasons.clear();
                it.unschedulable[0].like = Some(0);
            },
            "plan.unschedulable[0].like: pod 0 is not an earlier one",
        ),
        (|it| it.terminations[0].replaced_by[0] = 1, "plan.terminations[0].replaced_by[0]: there are only 1 launches"),
        (|it| it.terminations[0].reason = 0, "plan.terminations[0].reason: is not set"),
        (|it| it.terminations[0].reason = 5, "plan.terminations[0].reason: is not a reason of plans: Interrupted"),
        (|it| it.hourly_micro_usd = -1, "plan.hourly_micro_usd: is negative: -1"),
    ];
    for (change, expected) in cases {
        let mut bad = plan();
        change(&mut bad);
        assert_eq!(Plan::try_from(bad).err().map(|error| error.to_string()).as_deref(), Some(expected));
    }
}

#[test]
fn fragments_add_up_to_the_plan() {
    let mut sum = plan_wire::Plan::default();
    append_fragment(&mut sum, plan_wire::Plan { terminations: vec![], hourly_micro_usd: 1, ..plan() });
    append_fragment(
        &mut sum,
        plan_wire::Plan { launches: vec![], unschedulable: vec![], hourly_micro_usd: 5, ..plan() },
    );
    assert_eq!(sum, plan_wire::Plan { hourly_micro_usd: 5, ..plan() });
}

#[test]
fn launches_of_one_message_share_their_lists() -> Result<(), ConvertError> {
    let two = |first: &str| {
        let mut two = plan();
        two.terminations.clear();
        two.launches.push(plan_wire::Launch { action_id: format!("{first}2"), ..two.launches[0].clone() });
        two.launches[0].action_id = format!("{first}1");
        two
    };
    let mut expected = Plan::try_from(two("a"))?;
    let first = expected.launches[0].clone();
    (expected.launches[1].offerings, expected.launches[1].requirements) = (first.offerings, first.requirements);
    let sent = with_shared_lists(&expected);
    let lists: Vec<_> = sent.launches.iter().map(|launch| (launch.offerings.len(), launch.like)).collect();
    assert_eq!(lists, [(1, None), (0, Some(0))]);
    let back = Plan::try_from(sent.clone())?;
    assert!(Arc::ptr_eq(&back.launches[0].offerings, &back.launches[1].offerings));
    assert_eq!(back, expected);
    // Equal lists are shared although each launch has its own.
    let mut own_lists = expected.clone();
    own_lists.launches[1].requirements = Arc::new(expected.launches[0].requirements.to_vec());
    own_lists.launches[1].offerings = Arc::new(expected.launches[0].offerings.to_vec());
    assert_eq!(with_shared_lists(&own_lists), sent);
    // After another fragment, the indices of its launches change.
    let mut sum = two("b");
    append_fragment(&mut sum, sent);
    assert_eq!(sum.launches[3].like, Some(2));
    assert_eq!(Plan::try_from(sum)?.launches[2..], expected.launches);
    Ok(())
}

#[test]
fn unschedulable_pods_of_one_message_share_their_reasons() -> Result<(), ConvertError> {
    let mut expected = Plan::try_from(plan())?;
    let first = expected.unschedulable[0].clone();
    // The same list, an equal one, and another one.
    expected.unschedulable.push(first.clone());
    expected.unschedulable.push(Unschedulable { reasons: Arc::new(first.reasons.to_vec()), ..first.clone() });
    expected.unschedulable.push(Unschedulable { reasons: Arc::new(vec![first.reasons[0].clone(); 2]), ..first });
    let sent = with_shared_reasons(&expected);
    let lists: Vec<_> = sent.unschedulable.iter().map(|pod| (pod.reasons.len(), pod.like)).collect();
    assert_eq!(lists, [(1, None), (0, Some(0)), (0, Some(0)), (2, None)]);
    let back = Plan::try_from(sent.clone())?;
    assert!(Arc::ptr_eq(&back.unschedulable[0].reasons, &back.unschedulable[2].reasons));
    assert_eq!(back.unschedulable, expected.unschedulable);
    // After another fragment, the indices of its pods change.
    let mut sum = plan_wire::Plan { launches: vec![], terminations: vec![], ..plan() };
    append_fragment(&mut sum, sent);
    assert_eq!(sum.unschedulable[2].like, Some(1));
    assert_eq!(Plan::try_from(sum)?.unschedulable[1..], expected.unschedulable);
    Ok(())
}
