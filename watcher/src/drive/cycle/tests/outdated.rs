//! Plans for snapshots that are no longer the newest.

use super::*;
use crate::samples::{node, pool};
use plimsoll_model::plan::Termination;
use plimsoll_model::snapshot::{DisruptionReason, UnavailableOffering};
use plimsoll_model::time::Millis;

/// Pods and nodes of a busy cluster: one pool, and a snapshot that always differs from the previous one.
pub(super) fn busy(
    harness: &mut Harness,
    millis: u64,
    pods: &'static str,
    change: impl FnOnce(&mut Snapshot),
) -> Published {
    let mut published = harness.snapshot(millis, ClusterState { pods, ..ClusterState::default() });
    let snapshot = Arc::make_mut(&mut Arc::get_mut(&mut published).unwrap().snapshot);
    snapshot.node_pools.push(pool("default"));
    change(snapshot);
    published
}

type Published = Arc<PublishedSnapshot>;

fn removal(name: &str) -> Plan {
    let termination = Termination {
        action_id: format!("remove-{name}").into(),
        node: name.into(),
        reason: DisruptionReason::Empty,
        saving: MicroUsdPerHour(1),
        ..Termination::default()
    };
    Plan { terminations: vec![termination], ..Plan::default() }
}

/// Actions that are sent of a plan for `before` once `after` is the newest snapshot.
fn sent(plan: Plan, before: impl FnOnce(&mut Snapshot), after: impl FnOnce(&mut Snapshot)) -> Vec<String> {
    let mut harness = Harness::new();
    let first = busy(&mut harness, 0, "ab", before);
    assert_eq!(harness.next(&first, 0), Step::Plan);
    harness.record_plan(&first, plan, 1);
    let second = busy(&mut harness, 1, "ab", after);
    match harness.next(&second, 1) {
        Step::Plan => Vec::new(),
        Step::Execute { plan, .. } => {
            let launches = plan.launches.iter().map(|launch| &launch.action_id);
            let removals = plan.terminations.iter().map(|termination| &termination.action_id);
            launches.chain(removals).map(|action| action.as_str().to_owned()).collect()
        }
        step => panic!("{step:?}"),
    }
}

#[test]
fn every_plan_of_a_busy_cluster_is_executed_as_far_as_it_still_holds() {
    let mut harness = Harness::new();
    let first = busy(&mut harness, 0, "ab", |_| {});
    assert_eq!(harness.next(&first, 0), Step::Plan);
    harness.record_plan(&first, launches(&["a", "b"]), 20);
    // While the plan was computed, b was bound and c was created.
    let second = busy(&mut harness, 10, "ac", |_| {});
    assert_eq!(actions(&harness.next(&second, 20)), ["a"]);
    harness.outcome("a", OutcomeStatus::Accepted, 0, 21);
    assert_eq!(harness.next(&second, 21), Step::Plan, "what is left of the plan is not used");
    harness.record_plan(&second, launches(&["c"]), 40);
    let third = busy(&mut harness, 30, "cd", |_| {});
    assert_eq!(actions(&harness.next(&third, 40)), ["c"]);
}

#[test]
fn reasons_and_placements_are_reported_although_other_pods_have_changed() {
    let mut harness = Harness::new();
    let first = busy(&mut harness, 0, "abcd", |_| {});
    harness.next(&first, 0);
    let unschedulable = [reasons("a"), reasons("b")].into_iter().flat_map(|plan| plan.unschedulable).collect();
    let on = |node: &str, pods: &[&str]| {
        let pods = pods.iter().map(|uid| PodRef { name: (*uid).to_owned(), uid: (*uid).into() }).collect();
        Placement { node: node.into(), pods }
    };
    let placements = vec![on("n1", &["c", "d"]), on("n2", &["c"])];
    harness.record_plan(&first, Plan { unschedulable, placements, ..Plan::default() }, 20);
    let second = busy(&mut harness, 10, "bd", |_| {});
    let Step::Execute { plan, .. } = harness.next(&second, 20) else { panic!("not sent") };
    assert_eq!(plan.unschedulable, reasons("b").unschedulable);
    assert_eq!(plan.placements, [on("n1", &["d"])]);
    assert_eq!(harness.next(&second, 20), Step::Plan, "once for each plan");
}

#[test]
fn a_launch_depends_on_its_pods_its_pool_and_the_capacity_of_its_offerings() {
    let launch = || launches(&["a"]);
    assert_eq!(sent(launch(), |_| {}, |_| {}), ["a"]);
    let none: [&str; 0] = [];
    assert_eq!(sent(launch(), |_| {}, |now| now.pods[0].terminating = true), none);
    assert_eq!(sent(launches(&["ab"]), |_| {}, |_| {}), ["ab"]);
    assert_eq!(sent(launches(&["ab"]), |_| {}, |now| now.pods[1].terminating = true), none, "one of two");
    assert_eq!(sent(launch(), |_| {}, |now| now.node_pools[0].weight = 7), none);
    assert_eq!(sent(launch(), |_| {}, |now| now.node_pools.clear()), none);
    let budget = |now: &mut Snapshot| now.node_pools[0].disruption.allowed = [(DisruptionReason::Empty, 1)].into();
    assert_eq!(sent(launch(), |_| {}, budget), ["a"], "the actuator checks budgets");
    let rollout = |now: &mut Snapshot| now.node_pools[0].disruption.rollout_limit = Some(1);
    assert_eq!(sent(launch(), |_| {}, rollout), ["a"], "and limits of rollouts");
    let next = |now: &mut Snapshot| now.node_pools[0].disruption.next_budget_change = Some(Timestamp(9));
    assert_eq!(sent(launch(), |_| {}, next), ["a"], "and when they change");
    assert_eq!(sent(launches(&["z"]), |_| {}, |_| {}), none, "its pod is in no snapshot");
    let exhausted = |instance_type: Option<&str>, zone: Option<&str>, capacity_type, remaining| {
        let unavailable = UnavailableOffering {
            instance_type: instance_type.map(str::to_owned),
            zone: zone.map(str::to_owned),
            capacity_type,
            remaining: Millis(remaining),
        };
        move |now: &mut Snapshot| now.unavailable_offerings.push(unavailable)
    };
    // The launch accepts c5.large, Spot, in zone a.
    let (spot, on_demand) = (CapacityType::Spot, CapacityType::OnDemand);
    assert_eq!(sent(launch(), |_| {}, exhausted(None, Some("a"), spot, 9)), none);
    assert_eq!(sent(launch(), |_| {}, exhausted(None, Some("b"), spot, 9)), ["a"]);
    assert_eq!(sent(launch(), |_| {}, exhausted(None, Some("a"), on_demand, 9)), ["a"]);
    assert_eq!(sent(launch(), |_| {}, exhausted(Some("c5.large"), None, spot, 9)), none);
    assert_eq!(sent(launch(), |_| {}, exhausted(Some("m5.large"), None, spot, 9)), ["a"]);
    assert_eq!(sent(launch(), exhausted(None, None, spot, 9), exhausted(None, None, spot, 8)), ["a"], "it was known");
    let both = |now: &mut Snapshot| {
        exhausted(None, Some("b"), spot, 9)(now);
        exhausted(None, Some("a"), spot, 9)(now);
    };
    assert_eq!(sent(launch(), |_| {}, both), none, "one of two");
    let (known, new) = (exhausted(None, None, on_demand, 9), exhausted(None, None, spot, 9));
    assert_eq!(sent(launch(), known, new), none, "only On-Demand was known");
}

#[test]
fn capacity_that_was_known_to_be_exhausted_is_no_change() {
    let launched = (Some("c5.large"), Some("a"));
    for (known, new, is_sent) in [
        ((None, None), launched, true),
        ((Some("c5.large"), None), launched, true),
        ((Some("m5.large"), None), launched, false),
        ((None, Some("a")), launched, true),
        ((None, Some("b")), launched, false),
        ((Some("c5.large"), None), (None, None), false),
        ((None, Some("a")), (None, None), false),
    ] {
        let offering = |(instance_type, zone): (Option<&str>, Option<&str>)| UnavailableOffering {
            instance_type: instance_type.map(str::to_owned),
            zone: zone.map(str::to_owned),
            capacity_type: CapacityType::Spot,
            remaining: Millis(9),
        };
        let before = |snapshot: &mut Snapshot| snapshot.unavailable_offerings.push(offering(known));
        let after = |snapshot: &mut Snapshot| snapshot.unavailable_offerings.push(offering(new));
        assert_eq!(sent(launches(&["a"]), before, after).len(), usize::from(is_sent), "{known:?}, then {new:?}");
    }
}

#[test]
fn a_removal_depends_on_its_node_and_the_pods_there() {
    let with_node = |snapshot: &mut Snapshot| snapshot.nodes.push(node("n1", "default"));
    assert_eq!(sent(removal("n1"), with_node, with_node), ["remove-n1"]);
    let none: [&str; 0] = [];
    let tainted = |now: &mut Snapshot| {
        with_node(now);
        now.nodes[0].cordoned = true;
    };
    assert_eq!(sent(removal("n1"), with_node, tainted), none);
    for state in [PodState::Bound("n1".into()), PodState::Reserved("n1".into())] {
        let used = |now: &mut Snapshot| {
            with_node(now);
            now.pods[0].state = state;
        };
        assert_eq!(sent(removal("n1"), with_node, used), none);
    }
    let with_another_pool = |snapshot: &mut Snapshot| {
        with_node(snapshot);
        snapshot.node_pools[0].weight = 7;
    };
    assert_eq!(sent(removal("n1"), with_node, with_another_pool), none);
    let moved = |name: &str| {
        let mut plan = removal("n1");
        plan.terminations[0].moved_to = vec![Placement { node: name.into(), pods: Vec::new() }];
        plan
    };
    assert_eq!(sent(moved("n1"), with_node, with_node), ["remove-n1"]);
    assert_eq!(sent(moved("n2"), with_node, with_node), none, "the node for its pods is gone");
}

#[test]
fn pods_whose_owner_has_become_complete_are_planned_together() {
    let mut harness = Harness::new();
    let mut first = busy(&mut harness, 0, "a", |_| {});
    Arc::get_mut(&mut first).unwrap().incomplete.insert("a".into());
    assert_eq!(harness.next(&first, 0), Step::Plan);
    harness.record_plan(&first, launches(&["a"]), 1);
    let second = busy(&mut harness, 40, "ab", |_| {});
    assert_eq!(harness.next(&second, 40), Step::Plan, "a alone would get a small node");
}

#[test]
fn pods_whose_owner_stays_incomplete_are_launched_when_their_wait_is_over() {
    let mut harness = Harness::new();
    let mut incomplete = |millis: u64| {
        let mut published = busy(&mut harness, millis, "a", |_| {});
        Arc::get_mut(&mut published).unwrap().incomplete.insert("a".into());
        published
    };
    let (first, second) = (incomplete(0), incomplete(1000));
    assert_eq!(harness.next(&first, 0), Step::Plan);
    harness.record_plan(&first, launches(&["a"]), 1);
    assert_eq!(actions(&harness.next(&second, 1000)), ["a"]);
}

#[test]
fn removals_get_their_turn_although_a_pod_stays_pending_in_a_busy_cluster() {
    let mut harness = Harness::new();
    harness.cycle = Cycle::new(7).with_disruption(true);
    let (mut planned, mut removed) = (Vec::new(), 0);
    // A new snapshot every 100 ms, while each plan takes 50 ms. Pod a is unschedulable.
    for millis in (0..60_000).step_by(100) {
        let with_node = |snapshot: &mut Snapshot| snapshot.nodes.push(node("empty", "default"));
        let snapshot = busy(&mut harness, millis, "a", with_node);
        let mut step = harness.next(&snapshot, millis);
        if let Step::Execute { plan, .. } = &step {
            removed += plan.terminations.len();
            for termination in &plan.terminations {
                harness.outcome(termination.action_id.as_str(), OutcomeStatus::Accepted, 0, millis);
            }
            step = harness.next(&snapshot, millis);
        }
        match step {
            Step::Plan => harness.record_plan(&snapshot, reasons("a"), millis + 50),
            Step::PlanWithDisruption => {
                planned.push(millis);
                let action = format!("remove-{millis}").into();
                let mut plan = Plan { unschedulable: reasons("a").unschedulable, ..removal("empty") };
                plan.terminations[0].action_id = action;
                harness.record(&snapshot, plan, true, millis + 50);
            }
            step => panic!("{step:?}"),
        }
    }
    assert_eq!(planned, [10_000, 20_100, 30_200, 40_300, 50_400], "after 10 s without a plan with removals");
    assert_eq!(removed, 5, "each is executed");
}
