use super::*;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::{Driver, Execution};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, OfferingChoice, PodRef, ReasonCode};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_proto::actuator::v1::ExecuteRequest;

fn pod(uid: &str) -> PodRef {
    PodRef { name: format!("some-namespace/some-deployment-{uid}"), uid: uid.into() }
}

/// 360 offerings: 60 types in 3 zones and 2 capacity types.
fn offerings() -> Vec<OfferingChoice> {
    let offering = |index: usize| OfferingChoice {
        instance_type: format!("c{}gd.24xlarge", index % 60),
        zone: format!("eu-central-1{}", index % 3),
        capacity_type: if index.is_multiple_of(2) { CapacityType::Spot } else { CapacityType::OnDemand },
        price: MicroUsdPerHour(1_000_000),
        reservation: None,
    };
    (0..360).map(offering).collect()
}

/// A launch for the pod with the same name, with a requirement of this value and lists of its own.
fn launch(id: &str, value: &str) -> Launch {
    Launch {
        action_id: id.into(),
        node_pool: "default".into(),
        node_class: "default".to_owned(),
        offerings: Arc::new(offerings()),
        requirements: Arc::new(vec![NodeSelectorRequirement::new("example.com/team", Operator::In, [value])]),
        pods: vec![pod(id)],
        ..Launch::default()
    }
}

fn removal(id: &str, replaced_by: &[usize], pods: &[&str]) -> Termination {
    Termination {
        action_id: id.into(),
        node: id.into(),
        reason: DisruptionReason::Drifted,
        pods: pods.iter().map(|uid| pod(uid)).collect(),
        replaced_by: replaced_by.to_vec(),
        ..Termination::default()
    }
}

fn size(plan: &Plan) -> usize {
    let driver = Driver { identity: "w".to_owned(), transitions: 1 };
    let execution = Execution {
        driver,
        plan: plan.clone(),
        cycle_id: "c".to_owned(),
        virtual_pods: BTreeSet::new(),
        buffers: Vec::new(),
    };
    encoded_size(&ExecuteRequest::from(&execution))
}

#[test]
fn equal_lists_are_sent_once_although_each_launch_has_its_own() {
    let plan = Plan { launches: (0..1200).map(|n| launch(&n.to_string(), "a")).collect(), ..Plan::default() };
    assert!(size(&plan) < 1 << 20, "{} bytes", size(&plan));
    let part = first_actions(plan, |_| false);
    assert_eq!(part.launches.len(), MAX_LAUNCHES);
    assert_eq!(part.launches[0].action_id.as_str(), "0", "the first ones");
}

#[test]
fn launches_with_different_lists_are_bounded_by_their_size() {
    let launches = (0..1300).map(|n| launch(&n.to_string(), &n.to_string())).collect();
    let plan = Plan { launches, ..Plan::default() };
    assert!(size(&plan) > 16 << 20, "{} bytes", size(&plan));
    let part = first_actions(plan, |_| false);
    assert!(part.launches.len() > 100, "{} launches", part.launches.len());
    // Each launch adds a tag and a length.
    assert!(size(&part) < MAX_LAUNCH_BYTES + 10_000, "{} bytes", size(&part));
}

#[test]
fn a_removal_is_sent_with_all_of_its_replacements() {
    let mut launches: Vec<Launch> = (0..1000).map(|n| launch(&n.to_string(), "a")).collect();
    launches[0].pods = vec![pod("moved")];
    launches[999].pods = vec![pod("moved too")];
    let late = removal("late", &[998], &["998"]);
    let terminations = vec![removal("both", &[0, 999], &["moved", "moved too"]), removal("alone", &[], &[]), late];
    let part = first_actions(Plan { launches, terminations, ..Plan::default() }, |_| false);
    let removals: Vec<&str> = part.terminations.iter().map(|it| it.action_id.as_str()).collect();
    assert_eq!(removals, ["both", "alone"], "the replacement of the third does not fit");
    assert_eq!(part.launches.len(), MAX_LAUNCHES);
    let replaced_by: Vec<&str> =
        part.terminations[0].replaced_by.iter().map(|index| part.launches[*index].action_id.as_str()).collect();
    assert_eq!(replaced_by, ["0", "999"]);
}

#[test]
fn removals_are_bounded_by_their_number() {
    let terminations: Vec<Termination> = (0..6000).map(|n| removal(&n.to_string(), &[], &[])).collect();
    let part = first_actions(Plan { terminations: terminations.clone(), ..Plan::default() }, |_| false);
    assert_eq!(part.terminations.len(), 5000, "fewer than the actuator accepts in one plan");
    assert_eq!(part.terminations, terminations[..5000], "the first ones");
}

#[test]
fn removals_of_nodes_with_many_pods_are_bounded_by_their_size() {
    let pods: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    let plan =
        Plan { terminations: (0..200).map(|n| removal(&n.to_string(), &[], &pods)).collect(), ..Plan::default() };
    let (whole, one) = (size(&plan), size(&plan) / 200);
    assert!(whole > 2 * MAX_TERMINATION_BYTES, "{whole} bytes");
    let part = first_actions(plan, |_| false);
    // Each removal adds a tag and a length.
    let bytes = size(&part);
    assert!(bytes < MAX_TERMINATION_BYTES + 1000 && bytes > MAX_TERMINATION_BYTES - 2 * one, "{bytes} bytes");
}

#[test]
fn the_first_action_is_sent_although_it_does_not_fit() {
    let launches: Vec<Launch> = (0..601).map(|n| launch(&n.to_string(), "a")).collect();
    let replacements: Vec<usize> = (0..600).collect();
    let terminations = vec![removal("large", &replacements, &[])];
    let part = first_actions(Plan { launches, terminations, ..Plan::default() }, |_| false);
    assert_eq!((part.launches.len(), part.terminations.len()), (600, 1));
    let pods: Vec<String> = (0..80_000).map(|n| n.to_string()).collect();
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    let plan = Plan { terminations: ["large", "next"].map(|id| removal(id, &[], &pods)).into(), ..Plan::default() };
    assert!(size(&plan) > 2 * MAX_TERMINATION_BYTES);
    let part = first_actions(plan, |_| false);
    assert_eq!(part.terminations.iter().map(|it| it.action_id.as_str()).collect::<Vec<_>>(), ["large"]);
}

#[test]
fn removals_whose_replacements_do_not_fit_take_up_no_room() {
    let launches = (0..600).map(|n| launch(&n.to_string(), "a")).collect();
    let mut terminations: Vec<Termination> = (0..6000).map(|n| removal(&n.to_string(), &[599], &[])).collect();
    terminations.push(removal("alone", &[], &[]));
    let part = first_actions(Plan { launches, terminations, ..Plan::default() }, |_| false);
    assert_eq!(part.terminations.iter().map(|it| it.action_id.as_str()).collect::<Vec<_>>(), ["alone"]);
}

#[test]
fn a_replacement_for_virtual_pods_waits_for_its_removal() {
    let pods: Vec<String> = (0..40_000).map(|n| n.to_string()).collect();
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    let plan = Plan {
        launches: vec![launch("a", "a"), launch("b", "b")],
        terminations: vec![removal("first", &[0], &pods), removal("second", &[1], &pods)],
        ..Plan::default()
    };
    let launches = |virtual_pod: &str| {
        let part = first_actions(plan.clone(), |uid| uid.as_str() == virtual_pod);
        assert_eq!(part.terminations.len(), 1, "the second does not fit");
        part.launches.len()
    };
    assert_eq!((launches("b"), launches("none")), (1, 2), "pods of its own are a reason to launch it now");
}

#[test]
fn as_many_items_fit_as_have_room_and_always_one() {
    let fitting_of = |sizes: &[usize]| fitting(sizes.iter().copied(), 10);
    for (sizes, expected) in [(&[4, 6, 1][..], 2), (&[4, 7], 1), (&[11, 1], 1), (&[11], 1), (&[], 0)] {
        assert_eq!(fitting_of(sizes), expected, "{sizes:?}");
    }
}

#[test]
fn placements_are_bounded_by_their_size() {
    let on = |n: u32| Placement { node: format!("node-{n}").as_str().into(), pods: vec![pod(&n.to_string())] };
    let placements: Vec<Placement> = (0..40_000).map(on).collect();
    let of = |placements| size(&Plan { placements, ..Plan::default() });
    assert!(of(placements.clone()) > 2 << 20);
    let first = first_placements(placements.clone());
    assert_eq!(first, placements[..first.len()]);
    // Each placement adds a tag and a length.
    let bytes = of(first.clone()) - 2 * first.len();
    assert!(bytes < MAX_PLACEMENT_BYTES + 1000 && bytes > MAX_PLACEMENT_BYTES - 1000, "{bytes} bytes");
}

#[test]
fn a_small_plan_is_sent_whole() {
    let plan = Plan {
        launches: vec![launch("a", "a"), launch("b", "b")],
        terminations: vec![removal("r", &[1], &["b"])],
        lower_bound: MicroUsdPerHour(5),
        ..Plan::default()
    };
    assert_eq!(first_actions(plan.clone(), |_| false), plan);
}

/// Pods with 20 reasons of 100 bytes each.
fn unschedulable(pods: usize) -> Vec<Unschedulable> {
    let reason = |pool: usize| Reason {
        node_pool: format!("pool-{pool:02}"),
        code: ReasonCode::InsufficientResources,
        message: "x".repeat(93),
    };
    (0..pods)
        .map(|n| Unschedulable { pod: pod(&n.to_string()), reasons: Arc::new((0..20).map(reason).collect()) })
        .collect()
}

fn with_reasons(list: &[Unschedulable]) -> Vec<usize> {
    let given = list.iter().enumerate().filter(|(_, one)| !one.reasons.is_empty());
    given.map(|(index, _)| index).collect()
}

#[test]
fn all_unschedulable_pods_are_sent_and_take_turns_with_their_reasons() {
    let (mut cursor, list) = (ReasonCursor::default(), unschedulable(7000));
    assert!(size(&Plan { unschedulable: list.clone(), ..Plan::default() }) > 14_000_000);
    cursor.restart(7000);
    let (mut told, mut sent) = (Vec::new(), 0);
    while !cursor.is_complete() {
        let next = cursor.next(list.clone());
        assert_eq!(next.len(), 7000, "a pod that is not in the list has room");
        let bytes = size(&Plan { unschedulable: next.clone(), ..Plan::default() });
        assert!(bytes < MAX_UNSCHEDULABLE_BYTES + MAX_REASON_BYTES + 100_000, "{bytes} bytes");
        // An Event shows 1024 bytes, so ten reasons of 100 bytes are enough.
        assert!(next.iter().all(|one| one.reasons.is_empty() || one.reasons.len() == 10));
        told.extend(with_reasons(&next));
        sent += 1;
        assert!(sent < 20, "it ends");
    }
    told.sort_unstable();
    told.dedup();
    assert_eq!(told, (0..7000).collect::<Vec<_>>());
}

#[test]
fn turns_go_on_when_the_list_changes() {
    let mut cursor = ReasonCursor::default();
    cursor.restart(7000);
    let first = with_reasons(&cursor.next(unschedulable(7000)));
    cursor.restart(7001);
    let second = with_reasons(&cursor.next(unschedulable(7001)));
    assert_eq!(second.first().copied(), first.last().map(|last| last + 1));
}

#[test]
fn few_reasons_are_sent_at_once() {
    let mut cursor = ReasonCursor::default();
    cursor.restart(3);
    assert_eq!(with_reasons(&cursor.next(unschedulable(3))), [0, 1, 2]);
    assert!(cursor.is_complete());
    assert_eq!(with_reasons(&cursor.next(unschedulable(3))), [0, 1, 2], "another part tells them again");
    assert!(cursor.next(Vec::new()).is_empty());
}

#[test]
fn more_unschedulable_pods_than_fit_are_not_sent() {
    let of = |n: u32| Unschedulable { pod: pod(&n.to_string()), reasons: Default::default() };
    let list: Vec<Unschedulable> = (0..80_000).map(of).collect();
    let mut cursor = ReasonCursor::default();
    cursor.restart(list.len());
    let first = cursor.next(list.clone());
    assert_eq!(first, list[..first.len()]);
    // Each pod adds a tag and a length.
    let bytes = size(&Plan { unschedulable: first.clone(), ..Plan::default() }) - 2 * first.len();
    assert!(bytes < MAX_UNSCHEDULABLE_BYTES + 1000 && bytes > MAX_UNSCHEDULABLE_BYTES - 1000, "{bytes} bytes");
    assert!(cursor.is_complete(), "the others are not waited for");
}
