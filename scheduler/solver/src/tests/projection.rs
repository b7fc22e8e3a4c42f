//! The cluster after a plan, for which pods that are left are planned again.

use super::builder::*;
use crate::repair::projection;
use plimsoll_model::snapshot::PodState;

#[test]
fn removals_leave_no_room_for_further_pods_where_moved_pods_go() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.xlarge").expires = Some(NOW);
    cluster.bound("moves", "n1", &shape(500, 1));
    let mut elsewhere = shape(300, 1);
    elsewhere.node_selector.insert("example.com/rack".into(), "r1".into());
    cluster.bound("stays", "n1", &elsewhere);
    cluster.node("n2", "c5.xlarge");
    cluster.bound("large", "n2", &shape(3400, 4));
    let plan = cluster.plan();
    assert_eq!(plan.terminations[0].moved_to[0].pods[0].name, "ns/moves");
    let mut after = cluster.clone();
    projection::apply_removals(&plan, &mut after.snapshot);
    let states: Vec<&PodState> = after.snapshot.pods.iter().map(|pod| &pod.state).collect();
    let on = |node: &str| PodState::Bound(node.into());
    assert_eq!(states, [&on("n2"), &on("n1"), &on("n2")]);
    // The other node is full now, and the removed one takes no pods.
    let plan = after.pending("p", 1, &shape(300, 1)).plan();
    assert_eq!((kept(&plan), removed(&plan), launched(&plan)), (vec![], vec![], vec![("c5.large".to_owned(), 1)]));
}
