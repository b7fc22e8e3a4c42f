//! Consolidation of nodes that are removed together without a launch.

use super::builder::*;
use plimsoll_model::catalog::CapacityType;

/// Spot nodes, so that none is replaced: 26 nodes with one pod and 100m free each, and four nodes with four small pods
/// each.
#[test]
fn nodes_that_are_little_used_go_together_although_they_have_more_pods() {
    let mut cluster = Cluster::new();
    cluster.pool().requirements[1].values.push("spot".into());
    for number in 0..4 {
        let name = format!("little-{number}");
        cluster.node_of(&name, "c5.large", "default", CapacityType::Spot);
        for pod in 0..4 {
            cluster.bound(&format!("{name}-{pod}"), &name, &shape(50, 0));
        }
    }
    for number in 0..26 {
        let name = format!("well-{number}");
        cluster.node_of(&name, "c5.large", "default", CapacityType::Spot);
        cluster.bound(&format!("p-{number}"), &name, &shape(1900, 1));
    }
    // One by one, one of the four nodes would take the pods of the others.
    let plan = cluster.plan();
    let gone: Vec<&str> = removed(&plan).into_iter().map(|(node, _)| node).collect();
    assert_eq!((gone, plan.launches.len()), (vec!["little-0", "little-1", "little-2", "little-3"], 0));
}
