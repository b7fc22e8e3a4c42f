//! Limits of rollouts, beside disruption budgets.

use super::builder::*;
use plimsoll_model::snapshot::DisruptionReason::{Drifted, Empty, Expired};
use plimsoll_model::snapshot::{Node, NodeState};

#[test]
fn the_limit_of_a_rollout_counts_only_removals_for_drift() {
    let mut cluster = Cluster::new();
    cluster.node("empty", "c5.large");
    cluster.node("old", "c5.large").expires = Some(NOW);
    for name in ["d1", "d2"] {
        cluster.node(name, "c5.xlarge").drifted = Some("AMIDrift".into());
        cluster.bound(&format!("p-{name}"), name, &shape(3000, 4));
    }
    assert_eq!(removed(&cluster.plan()), [("d1", Drifted), ("d2", Drifted), ("empty", Empty), ("old", Expired)]);
    cluster.pool().disruption.rollout_limit = Some(0);
    assert_eq!(removed(&cluster.plan()), [("empty", Empty), ("old", Expired)]);
    cluster.pool().disruption.rollout_limit = Some(1);
    assert_eq!(removed(&cluster.plan()), [("d1", Drifted), ("empty", Empty), ("old", Expired)]);
    // Budgets count all removals.
    cluster.allow(Drifted, 2);
    assert_eq!(removed(&cluster.plan()), [("empty", Empty), ("old", Expired)]);
    cluster.allow(Drifted, 3);
    assert_eq!(removed(&cluster.plan()), [("d1", Drifted), ("empty", Empty), ("old", Expired)]);
}

#[test]
fn a_drifted_node_that_was_not_initialized_in_time_does_not_stop_the_rollout_of_a_pool_at_its_limits() {
    let goes_on = |state: NodeState, change: fn(&mut Node)| {
        let mut cluster = Cluster::new();
        cluster.pool().disruption.consolidate_after = None;
        cluster.pool().limits.set("cpu", 9000);
        cluster.node("old", "c5.xlarge").drifted = Some("AMIDrift".into());
        cluster.bound("p", "old", &shape(3000, 4));
        let other = cluster.node("other", "c5.large");
        (other.state, other.cordoned, other.drifted) = (state, true, Some("AMIDrift".into()));
        change(other);
        removed(&cluster.plan()) == [("old", Drifted)]
    };
    assert!(goes_on(NodeState::Registered, |_| {}));
    assert!(goes_on(NodeState::InFlight, |_| {}), "its Node is gone");
    assert!(!goes_on(NodeState::Registered, |node| node.cordoned = false), "it starts");
    assert!(!goes_on(NodeState::Registered, |node| node.deleting = true), "its room is free soon");
    assert!(!goes_on(NodeState::Registered, |node| node.drifted = None), "it has the current specification");
}

#[test]
fn a_drifted_node_of_a_full_pool_waits_for_the_room_of_an_empty_one() {
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("nodes", 2);
    cluster.node("old", "c5.xlarge").drifted = Some("AMIDrift".into());
    cluster.bound("p", "old", &shape(3000, 4));
    cluster.node("other", "c5.large");
    assert_eq!(removed(&cluster.plan()), [("other", Empty)]);
    cluster.snapshot.nodes.pop();
    let plan = cluster.plan();
    assert_eq!((removed(&plan), plan.launches.len()), (vec![("old", Drifted)], 1));
    // Without an empty node, the drifted one is removed first.
    cluster.pool().limits.set("nodes", 1);
    let plan = cluster.plan();
    assert_eq!((removed(&plan), plan.launches.len()), (vec![("old", Drifted)], 0));
}
