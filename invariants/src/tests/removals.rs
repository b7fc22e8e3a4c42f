//! Tests of removals.

use super::*;

fn budget(allowed: i32) -> PodDisruptionBudget {
    PodDisruptionBudget { name: "ns/app".into(), disruptions_allowed: allowed, fully_blocking: false }
}

#[test]
fn only_removable_nodes_are_removed() {
    rejected("node n9 is not in the snapshot", |case| case.removal("n3").node = NodeName::from("n9"));
    rejected("node n3 must not be removed: it is removed twice", |case| {
        let again = case.removal("n3").clone();
        case.plan.terminations.push(again);
    });
    rejected("node n3 must not be removed: no pool made it", |case| case.node("n3").node_pool = None);
    rejected("node n3 must not be removed: it is being deleted already", |case| case.node("n3").deleting = true);
    rejected("node n3 must not be removed: it is marked do-not-disrupt", |case| case.node("n3").do_not_disrupt = true);
    rejected("node n2 must not be removed: it is not Empty", |case| {
        case.removal("n2").reason = DisruptionReason::Empty;
    });
    rejected("node n2 must not be removed: it is not Drifted", |case| {
        case.removal("n2").reason = DisruptionReason::Drifted;
    });
    rejected("node n2 must not be removed: it is not Interrupted", |case| {
        case.removal("n2").reason = DisruptionReason::Interrupted;
    });
    rejected("node n2 must not be removed: it is not Expired", |case| {
        case.node("n2").expires = Some(Timestamp(NOW.0 + 1));
        case.removal("n2").reason = DisruptionReason::Expired;
    });
}

#[test]
fn every_pod_of_a_removed_node_has_another_place() {
    rejected("node n2 must not be removed: pod ns/moves has no other place", |case| {
        case.removal("n2").moved_to.clear();
    });
    rejected("node n2 must not be removed: it names a launch that the plan does not have", |case| {
        case.removal("n2").replaced_by.push(1);
    });
    rejected("node n3 must not be removed: pod ns/stays has no other place", |case| {
        case.pod("stays").state = PodState::Bound(NodeName::from("n3"));
    });
    accepted(|case| {
        case.removal("n2").moved_to.clear();
        case.removal("n2").replaced_by.push(0);
        case.plan.launches[0].pods.push(pod_ref("moves"));
    });
    accepted(|case| {
        case.pod("stays").state = PodState::Bound(NodeName::from("n3"));
        case.pod("stays").stays_with_node = true;
    });
}

#[test]
fn protected_pods_keep_their_node() {
    rejected("node n2 must not be removed: pod ns/moves is marked do-not-disrupt", |case| {
        case.pod("moves").do_not_disrupt_until = Some(Timestamp(NOW.0 + 1));
    });
    rejected("node n3 must not be removed: pod ns/stays is marked do-not-disrupt", |case| {
        let daemon = case.pod("stays");
        daemon.state = PodState::Bound(NodeName::from("n3"));
        daemon.stays_with_node = true;
        daemon.do_not_disrupt_until = Some(Timestamp(i64::MAX));
    });
    accepted(|case| case.pod("moves").do_not_disrupt_until = Some(NOW));
    let expired = |case: &mut Case| {
        case.pod("moves").do_not_disrupt_until = Some(Timestamp(i64::MAX));
        case.node("n2").expires = Some(NOW);
        *case.removal("n2") = termination("n2", DisruptionReason::Expired, &[], None);
    };
    accepted(expired);
    rejected("node n2 must not be removed: pod ns/moves has no other place", |case| {
        expired(case);
        // It only waits for the node.
        case.pod("moves").state = PodState::Reserved(NodeName::from("n2"));
    });
}

#[test]
fn pod_disruption_budgets_are_respected() {
    for allowed in [0, -1] {
        rejected("PodDisruptionBudget ns/app allows", |case| {
            case.snapshot.pod_disruption_budgets.push(budget(allowed));
            case.pod("moves").pod_disruption_budgets.push("ns/app".into());
        });
    }
    rejected("PodDisruptionBudget ns/app allows 0 evictions", |case| {
        case.snapshot.pod_disruption_budgets.push(PodDisruptionBudget { fully_blocking: true, ..budget(5) });
        case.pod("moves").pod_disruption_budgets.push("ns/app".into());
    });
    rejected("node n2 must not be removed: pod ns/moves has no other place", |case| {
        // A terminating pod of a StatefulSet is not evicted, but is made anew.
        case.snapshot.pod_disruption_budgets.push(PodDisruptionBudget { fully_blocking: true, ..budget(0) });
        let pod = case.pod("moves");
        pod.pod_disruption_budgets.push("ns/app".into());
        (pod.terminating, pod.returns) = (true, true);
        case.removal("n2").moved_to.clear();
    });
    rejected("PodDisruptionBudget ns/gone allows 0 evictions", |case| {
        case.pod("moves").pod_disruption_budgets.push("ns/gone".into());
    });
    rejected("pod ns/moves has two PodDisruptionBudgets", |case| {
        case.snapshot.pod_disruption_budgets.push(budget(5));
        case.pod("moves").pod_disruption_budgets = vec!["ns/app".into(), "ns/app2".into()];
    });
    // A node may exceed the budget alone, since it is drained pod by pod. A second node may not.
    let two = |case: &mut Case, allowed| {
        case.snapshot.pod_disruption_budgets.push(budget(allowed));
        case.node("n1").allocatable.set("cpu", 9000);
        for (name, at) in [("m2", "n2"), ("m3", "n3"), ("m4", "n3")] {
            case.snapshot.pods.push(pod(name, PodState::Bound(NodeName::from(at))));
        }
        for name in ["moves", "m2", "m3", "m4"] {
            case.pod(name).pod_disruption_budgets.push("ns/app".into());
        }
        case.plan.terminations = vec![
            termination("n2", DisruptionReason::Underutilized, &["moves", "m2"], Some("n1")),
            termination("n3", DisruptionReason::Underutilized, &["m3", "m4"], Some("n1")),
        ];
    };
    rejected("PodDisruptionBudget ns/app allows 2 evictions", |case| two(case, 2));
    accepted(|case| two(case, 3));
    accepted(|case| {
        two(case, 1);
        case.plan.terminations.pop();
    });
}

#[test]
fn pool_budgets_apply_across_all_reasons() {
    let allow = |case: &mut Case, reason, count| {
        case.snapshot.node_pools[0].disruption.allowed.insert(reason, count);
    };
    rejected("pool default allows 1 removals at once", |case| {
        allow(case, DisruptionReason::Empty, 1);
        allow(case, DisruptionReason::Underutilized, 1);
    });
    rejected("pool default allows 0 removals at once", |case| allow(case, DisruptionReason::Empty, 0));
    accepted(|case| allow(case, DisruptionReason::Empty, 1));
    // No single node breaks the budget, so the message names none.
    let mut case = valid();
    allow(&mut case, DisruptionReason::Empty, 0);
    let violations: Vec<String> = case.check().iter().map(ToString::to_string).collect();
    assert!(violations.iter().any(|one| one.starts_with("pool default allows 0 removals")), "{violations:#?}");
}

#[test]
fn the_limit_of_a_rollout_counts_only_removals_for_drift() {
    let drifted = |case: &mut Case, nodes: &[&str], limit: u32| {
        case.snapshot.node_pools[0].disruption.rollout_limit = Some(limit);
        for node in nodes {
            case.node(node).drifted = Some("Drift".into());
            case.removal(node).reason = DisruptionReason::Drifted;
        }
    };
    accepted(|case| drifted(case, &["n2"], 1));
    accepted(|case| drifted(case, &["n2", "n3"], 2));
    rejected("the rollout of pool default allows 1 removals for drift, not 2", |case| {
        drifted(case, &["n2", "n3"], 1);
    });
}

#[test]
fn an_expired_node_ignores_protection_and_budgets() {
    let expired = |case: &mut Case| {
        case.node("n2").expires = Some(NOW);
        case.node("n2").do_not_disrupt = true;
        case.removal("n2").reason = DisruptionReason::Expired;
        case.snapshot.node_pools[0].disruption.allowed.insert(DisruptionReason::Expired, 0);
        case.snapshot.pod_disruption_budgets.push(budget(0));
        case.pod("moves").pod_disruption_budgets.push("ns/app".into());
    };
    accepted(expired);
    // Its pods must still be accounted for.
    rejected("pod ns/moves has no other place", |case| {
        expired(case);
        case.removal("n2").moved_to.clear();
    });
    accepted(|case| {
        expired(case);
        case.removal("n2").moved_to.clear();
        let reasons = case.plan.unschedulable[0].reasons.clone();
        case.plan.unschedulable.push(Unschedulable { pod: pod_ref("moves"), reasons });
    });
    // The expired node counts against the pool's budget.
    rejected("pool default allows 1 removals at once", |case| {
        expired(case);
        case.snapshot.node_pools[0].disruption.allowed.insert(DisruptionReason::Empty, 1);
    });
}

#[test]
fn drift_with_a_termination_grace_period_ignores_protected_pods() {
    let drifted = |case: &mut Case, patient: bool| {
        case.node("n2").drifted = Some("Drift".into());
        case.node("n2").termination_grace_period = patient.then_some(Millis(1));
        case.removal("n2").reason = DisruptionReason::Drifted;
        case.removal("n2").moved_to.clear();
        case.removal("n2").pods.clear();
        case.pod("moves").do_not_disrupt_until = Some(Timestamp(i64::MAX));
    };
    accepted(|case| drifted(case, true));
    rejected("pod ns/moves is marked do-not-disrupt", |case| drifted(case, false));
}
