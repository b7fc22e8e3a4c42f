//! Replacement of drifted nodes.

use super::builder::*;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::DisruptionReason::Drifted;

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
fn a_drifted_node_that_cannot_be_replaced_leaves_the_others_together() {
    let mut cluster = drifted(3);
    cluster.bound("too-large", "n1", &shape(9000, 1));
    let plan = cluster.plan();
    assert_eq!((names(&plan), launched(&plan)), (vec!["n0", "n2"], vec![("c5.large".to_owned(), 2)]));
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
