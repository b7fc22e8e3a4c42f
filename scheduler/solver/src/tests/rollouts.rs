//! Limits of rollouts, beside disruption budgets.

use super::builder::*;
use plimsoll_model::snapshot::DisruptionReason::{Drifted, Empty, Expired};

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
