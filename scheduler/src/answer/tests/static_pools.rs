//! Why nodes of static NodePools stay.

use super::*;

/// Where its pods go is not planned.
#[test]
fn a_drifted_node_of_a_static_pool_says_when_it_is_replaced() {
    let mut snapshot = two_half_empty();
    snapshot.node_pools[0].replicas = Some(3);
    snapshot.nodes[0].drifted = Some("AMIDrift".into());
    let expected = "stays         it is replaced only while static NodePool default has exactly its replicas and can \
                    launch another node";
    assert_eq!(explain_node(&snapshot, "n0").pop().unwrap(), expected);
    snapshot.pods.remove(0);
    assert_eq!(explain_node(&snapshot, "n0").pop().unwrap(), expected, "it has no pods");
}

#[test]
fn a_surplus_node_of_a_static_pool_says_why_it_stays() {
    let mut snapshot = two_half_empty();
    snapshot.node_pools[0].replicas = Some(2);
    let stays = |snapshot: &Snapshot| explain_node(snapshot, "n0").pop().unwrap();
    assert_eq!(stays(&snapshot), "stays         NodePool default is static");
    snapshot.node_pools[0].replicas = Some(1);
    // Neither node takes the pod of the other one.
    snapshot.nodes.iter_mut().for_each(|node| node.cordoned = true);
    let expected = "stays         static NodePool default has 1 node beyond its replicas: other nodes go, or no other \
                    place was found for its pods";
    assert_eq!(stays(&snapshot), expected);
    snapshot.node_pools[0].disruption.allowed = [(DisruptionReason::Underutilized, 0)].into();
    let closed = "stays         the budgets of NodePool default allow no removal for Underutilized now";
    assert_eq!(stays(&snapshot), closed);
}
