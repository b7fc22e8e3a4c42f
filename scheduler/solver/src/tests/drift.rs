//! Replacement of drifted nodes.

use super::builder::*;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::DisruptionReason::{Drifted, Underutilized};
use plimsoll_model::snapshot::NodePool;
use plimsoll_model::time::{Millis, Timestamp};

/// Drifted nodes of 4 cores with one pod of 900m each. They are not consolidated.
fn drifted(nodes: usize) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.pool().disruption.consolidate_after = None;
    for number in 0..nodes {
        let name = format!("n{number}");
        cluster.node(&name, "c5.xlarge").drifted = Some("AMIDrift".into());
        cluster.bound(&format!("p{number}"), &name, &shape(900, 1));
    }
    cluster
}

fn names(plan: &Plan) -> Vec<&str> {
    assert!(plan.terminations.iter().all(|one| one.reason == Drifted), "{plan:#?}");
    removed(plan).into_iter().map(|(node, _)| node).collect()
}

#[test]
fn drifted_nodes_share_new_nodes() {
    let plan = drifted(4).plan();
    // Four cores for the four pods, instead of two for each.
    assert_eq!((names(&plan), plan.hourly.0), (vec!["n0", "n1", "n2", "n3"], 160_000));
    assert!(plan.terminations.iter().all(|one| one.replaced_by.len() == 1 && one.moved_to.is_empty()));
}

#[test]
fn canaries_do_not_share_a_new_node() {
    let mut cluster = drifted(3);
    cluster.pool().disruption.rollout_limit = Some(2);
    let plan = cluster.plan();
    let alone = ("c5.large".to_owned(), 1);
    assert_eq!((names(&plan), launched(&plan)), (vec!["n0", "n1"], vec![alone.clone(), alone]));
}

#[test]
fn a_drifted_node_that_cannot_be_replaced_leaves_the_others_together() {
    let mut cluster = drifted(3);
    cluster.bound("too-large", "n1", &shape(9000, 1));
    let plan = cluster.plan();
    assert_eq!((names(&plan), launched(&plan)), (vec!["n0", "n2"], vec![("c5.large".to_owned(), 2)]));
}

#[test]
fn a_drifted_node_that_cannot_be_replaced_leaves_its_budget_to_others_together() {
    let mut cluster = drifted(3);
    cluster.node("a", "c5.xlarge").drifted = Some("AMIDrift".into());
    cluster.bound("too-large", "a", &shape(9000, 1));
    cluster.allow(Drifted, 2);
    let plan = cluster.plan();
    // Node a is first, together with n0, which is tried alone only after the others have used up the budget.
    assert_eq!((names(&plan), launched(&plan)), (vec!["n1", "n2"], vec![("c5.large".to_owned(), 2)]));
}

#[test]
fn as_many_drifted_nodes_are_replaced_as_limits_allow() {
    let mut cluster = drifted(3);
    // Two of 14 cores are left, for two of the pods.
    cluster.pool().limits.set("cpu", 14_000);
    let plan = cluster.plan();
    assert_eq!((names(&plan), launched(&plan)), (vec!["n0", "n1"], vec![("c5.large".to_owned(), 2)]));
}

#[test]
fn more_drifted_nodes_than_are_replaced_together_are_replaced_in_several_steps() {
    let plan = drifted(53).plan();
    assert_eq!(names(&plan).len(), 53);
    // 53 pods need 27 times two cores, the 50 and 3 pods of two steps at most 28 times.
    assert!(plan.hourly.0 <= 28 * 80_000, "{}", plan.hourly.0);
}

/// Moved pods by node.
fn moved(plan: &Plan) -> Vec<(&str, Vec<&str>)> {
    let all = plan.terminations.iter().flat_map(|one| &one.moved_to);
    all.map(|one| (one.node.as_str(), one.pods.iter().map(|pod| pod.name.as_str()).collect())).collect()
}

#[test]
fn pods_of_drifted_nodes_move_to_other_drifted_nodes_only_if_nothing_else_takes_them() {
    let mut cluster = drifted(4);
    cluster.allow(Drifted, 2);
    let plan = cluster.plan();
    // The two other nodes have room, but are replaced next.
    assert_eq!((names(&plan), launched(&plan)), (vec!["n0", "n1"], vec![("c5.large".to_owned(), 2)]));
    assert_eq!(moved(&plan), []);
    cluster.node("new", "c5.xlarge");
    cluster.bound("p-new", "new", &shape(2000, 1));
    let plan = cluster.plan();
    assert_eq!((names(&plan), moved(&plan)), (vec!["n0", "n1"], vec![("new", vec!["ns/p0"]), ("new", vec!["ns/p1"])]));
    // No new node is within the limits, and the other node has no room.
    cluster.bound("q-new", "new", &shape(2000, 1));
    cluster.pool().limits.set("cpu", 20_000);
    let plan = cluster.plan();
    assert_eq!((names(&plan), plan.launches.len()), (vec!["n0", "n2"], 0));
    assert_eq!(moved(&plan), [("n1", vec!["ns/p0"]), ("n1", vec!["ns/p2"])]);
}

#[test]
fn pods_of_consolidated_nodes_do_not_move_to_drifted_nodes_unless_these_stay() {
    let mut cluster = Cluster::new();
    cluster.node("little", "c5.large");
    cluster.bound("p", "little", &shape(500, 1));
    cluster.node("old", "c5.xlarge").drifted = Some("AMIDrift".into());
    cluster.bound("held", "old", &shape(3000, 1)).do_not_disrupt_until = Some(Timestamp(NOW.0 + 60_000));
    assert_eq!(removed(&cluster.plan()), []);
    let is_removed = |cluster: &Cluster| {
        let plan = cluster.plan();
        (removed(&plan), moved(&plan)) == (vec![("little", Underutilized)], vec![("old", vec!["ns/p"])])
    };
    let mut frozen = cluster.clone();
    frozen.allow(Drifted, 0);
    assert!(is_removed(&frozen), "a budget forbids drift");
    let mut halted = cluster.clone();
    halted.pool().disruption.rollout_limit = Some(0);
    assert!(is_removed(&halted), "the rollout is halted");
    let mut held = cluster.clone();
    held.snapshot.pods[1].do_not_disrupt_until = Some(Timestamp(i64::MAX));
    assert!(is_removed(&held), "the pod keeps the node without an end");
    held.snapshot.nodes[1].termination_grace_period = Some(Millis::from_seconds(3600));
    assert!(!is_removed(&held), "the node does not wait for the pod");
    let mut blocked = cluster.clone();
    blocked.snapshot.pods[1].pod_disruption_budgets = vec!["ns/never".into()];
    blocked.budget("never", 0).fully_blocking = true;
    assert!(is_removed(&blocked), "the pod can never be evicted");
    cluster.snapshot.nodes[1].do_not_disrupt = true;
    assert!(is_removed(&cluster), "the node must not be replaced");
}

/// More drifted nodes than the work budget of [`little_work`] allows to replace. Their pool is at its limits, and their
/// pods differ and fit on no other node.
fn full() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.pool().disruption.consolidate_after = None;
    cluster.pool().limits.set("cpu", 300 * 4000);
    for number in 0..300 {
        let name = format!("n{number}");
        cluster.node(&name, "c5.xlarge").drifted = Some("AMIDrift".into());
        cluster.bound(&format!("p{number}"), &name, &shape(3000 + number, 1));
    }
    cluster
}

/// Less than six batches of 50 nodes use up: each is charged for 300 nodes and 50 groups of pods.
fn little_work() -> PlanOptions {
    PlanOptions { work_budget: 6 * 50 * 300, ..PlanOptions::default() }
}

#[test]
fn batches_leave_work_for_a_pool_at_its_limits() {
    let plan = full().plan_by(&little_work());
    assert!(names(&plan).contains(&"n0"), "the first node is removed before its pod has another place");
    assert_eq!(plan.launches, []);
}

#[test]
fn drift_leaves_work_for_consolidation() {
    let mut cluster = full();
    cluster.snapshot.node_pools.push(NodePool { limits: [("cpu", 6000)].into(), ..pool("other") });
    for (name, kind, pods) in [("little", "c5.large", 500), ("large", "c5.xlarge", 2000)] {
        cluster.node_of(name, kind, "other", CapacityType::OnDemand);
        cluster.bound(&format!("p-{name}"), name, &shape(pods, 1));
    }
    let plan = cluster.plan_by(&little_work());
    assert!(removed(&plan).contains(&("little", Underutilized)), "{plan:#?}");
}
