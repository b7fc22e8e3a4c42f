//! Static pools.

use super::builder::*;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::plan::{PlanOptions, ReasonCode};
use plimsoll_model::snapshot::{CapacityQuota, DisruptionReason, NodePool, NodeState, PodShape, VolumeTopology};
use std::collections::BTreeSet;

fn static_pool(replicas: u64) -> NodePool {
    NodePool { replicas: Some(replicas), ..pool("fixed") }
}

fn node<'c>(cluster: &'c mut Cluster, name: &str) -> &'c mut plimsoll_model::snapshot::Node {
    cluster.node_of(name, "m5.large", "fixed", CapacityType::OnDemand)
}

#[test]
fn a_static_pool_gets_its_nodes_without_pods() {
    let mut cluster = Cluster::with([static_pool(3)]);
    node(&mut cluster, "n1");
    let plan = cluster.plan();
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 0), ("c5.large".to_owned(), 0)]);
    let ids: BTreeSet<_> = plan.launches.iter().map(|launch| launch.action_id.clone()).collect();
    assert_eq!(ids.len(), 2, "action ids are distinct");
    assert_eq!((plan.hourly.0, plan.lower_bound.0), (160_000, 160_000));
    node(&mut cluster, "n2");
    node(&mut cluster, "n3");
    assert_eq!(cluster.plan().launches, []);
}

#[test]
fn nodes_on_their_way_out_are_replaced_within_the_limit() {
    let mut cluster = Cluster::with([static_pool(2)]);
    node(&mut cluster, "n1");
    node(&mut cluster, "n2").deleting = true;
    assert_eq!(cluster.plan().launches.len(), 1);
    cluster.pool().limits.set("nodes", 2);
    assert_eq!(cluster.plan().launches.len(), 0, "the node that is being deleted still counts");
}

#[test]
fn a_drifted_node_of_a_static_pool_is_replaced_without_work() {
    let mut cluster = Cluster::with([static_pool(1)]);
    node(&mut cluster, "n1").drifted = Some("AMIDrift".into());
    let plan = cluster.plan_by(&PlanOptions { work_budget: 0, ..PlanOptions::default() });
    assert_eq!((removed(&plan), plan.launches.len()), (vec![("n1", DisruptionReason::Drifted)], 1));
}

#[test]
fn a_static_pool_launches_nothing_for_pods_but_its_nodes_take_them() {
    let mut cluster = Cluster::with([static_pool(1)]);
    node(&mut cluster, "n1");
    cluster.pending("p", 2, &shape(1500, 1));
    let plan = cluster.plan();
    assert_eq!(
        (kept(&plan), plan.launches.len(), refused(&plan)),
        (vec![("n1", 1)], 0, vec![ReasonCode::NodePoolNotReady])
    );
}

#[test]
fn surplus_nodes_go_the_empty_ones_first() {
    let mut cluster = Cluster::with([static_pool(2)]);
    for name in ["n1", "n2", "n3"] {
        node(&mut cluster, name);
    }
    cluster.bound("a", "n1", &shape(500, 1));
    cluster.bound("b", "n3", &shape(500, 1));
    assert_eq!(removed(&cluster.plan()), [("n2", DisruptionReason::Empty)]);
    cluster.pool().replicas = Some(1);
    // A node with a pod is removed, too: its pod fits on the other node.
    let plan = cluster.plan();
    assert_eq!(plan.terminations.len(), 2, "{plan:#?}");
    assert_eq!(plan.launches.len(), 0);
    cluster.pool().disruption.allowed.insert(DisruptionReason::Empty, 0);
    cluster.pool().disruption.allowed.insert(DisruptionReason::Underutilized, 0);
    assert_eq!(cluster.plan().terminations.len(), 0, "budgets apply");
}

#[test]
fn a_surplus_node_that_is_not_in_service_goes_first_whatever_the_budgets_allow() {
    let mut cluster = Cluster::with([static_pool(2)]);
    for name in ["n1", "n2", "n3"] {
        node(&mut cluster, name);
    }
    node(&mut cluster, "n4").state = NodeState::Registered;
    cluster.pool().disruption.allowed.insert(DisruptionReason::Empty, 0);
    assert_eq!(removed(&cluster.plan()), [("n4", DisruptionReason::Empty)]);
    let mut complete = cluster.clone();
    complete.pool().replicas = Some(4);
    assert_eq!(removed(&complete.plan()), []);
    cluster.bound("a", "n4", &shape(500, 1));
    assert_eq!(removed(&cluster.plan()), [], "its pod would need another place");
}

#[test]
fn a_kept_node_that_is_not_in_service_stays_and_another_one_goes() {
    let mut cluster = Cluster::with([static_pool(1)]);
    for name in ["n1", "n2"] {
        node(&mut cluster, name).state = NodeState::Registered;
    }
    let keeping = PlanOptions { kept_nodes: ["n1".into()].into(), ..PlanOptions::default() };
    assert_eq!(removed(&cluster.plan()), [("n1", DisruptionReason::Empty)]);
    assert_eq!(removed(&cluster.plan_by(&keeping)), [("n2", DisruptionReason::Empty)]);
}

#[test]
fn a_static_pool_launches_no_type_that_daemon_sets_overfill() {
    let mut cluster = Cluster::with([static_pool(1)]);
    let plan = cluster.daemon_set("agent", &shape(100, 5)).plan();
    assert_eq!(launched(&plan), [("m5.large".to_owned(), 0)], "c5.large has 4 GiB");
}

#[test]
fn a_huge_number_of_replicas_is_taken_in_steps() {
    let cluster = Cluster::with([static_pool(u64::MAX)]);
    assert_eq!(cluster.plan().launches.len(), 500);
}

#[test]
fn an_expired_node_is_replaced_by_a_node_of_its_pool() {
    let mut cluster = Cluster::with([static_pool(2)]);
    node(&mut cluster, "n1").expires = Some(NOW);
    node(&mut cluster, "n2");
    cluster.bound("a", "n1", &shape(1500, 1));
    cluster.bound("b", "n2", &shape(1500, 1));
    // No other pool could take the pod.
    let plan = cluster.plan();
    assert_eq!(removed(&plan), [("n1", DisruptionReason::Expired)]);
    assert_eq!(plan.terminations[0].replaced_by, [0]);
    assert_eq!((launched(&plan), refused(&plan)), (vec![("c5.large".to_owned(), 0)], vec![]));
    // Without room for a successor, the node is removed first.
    cluster.pool().limits.set("nodes", 2);
    let plan = cluster.plan();
    assert_eq!(removed(&plan), [("n1", DisruptionReason::Expired)]);
    assert_eq!((plan.launches.len(), refused(&plan).len()), (0, 1));
}

#[test]
fn expired_nodes_are_removed_without_successors_if_none_can_be_launched() {
    let mut cluster = Cluster::with([static_pool(2)]);
    for name in ["n1", "n2"] {
        node(&mut cluster, name).expires = Some(NOW);
    }
    cluster.bound("a", "n1", &shape(1500, 1));
    let outcome = |cluster: &Cluster| {
        let plan = cluster.plan();
        (plan.terminations.len(), plan.launches.len(), plan.unschedulable.len())
    };
    assert_eq!(outcome(&cluster), (2, 2, 0));
    let mut scarce = cluster.clone();
    scarce.close_offerings(|_| true);
    assert_eq!(outcome(&scarce), (2, 0, 1));
    let limits = [("nodes", 2)].into_iter().collect();
    cluster.snapshot.capacity_quotas.push(CapacityQuota { name: "all".into(), selector: Vec::new(), limits });
    assert_eq!(outcome(&cluster), (2, 0, 1));
    // For one of them, there is room for a successor.
    cluster.snapshot.capacity_quotas[0].limits.set("nodes", 3);
    assert_eq!(outcome(&cluster), (2, 1, 0));
}

#[test]
fn a_surplus_node_that_expires_gets_no_successor() {
    let mut cluster = Cluster::with([static_pool(1)]);
    node(&mut cluster, "n1").expires = Some(NOW);
    node(&mut cluster, "n2");
    let plan = cluster.plan();
    assert_eq!((removed(&plan), plan.launches.len()), (vec![("n1", DisruptionReason::Expired)], 0));
}

#[test]
fn an_expired_node_gets_no_successor_while_a_node_beyond_the_replicas_starts() {
    for state in [NodeState::InFlight, NodeState::Registered] {
        let mut cluster = Cluster::with([static_pool(2)]);
        node(&mut cluster, "n1");
        node(&mut cluster, "n2").expires = Some(NOW);
        node(&mut cluster, "n3").state = state;
        let plan = cluster.plan();
        assert_eq!((removed(&plan), plan.launches.len()), (vec![("n2", DisruptionReason::Expired)], 0), "{state:?}");
    }
}

#[test]
fn a_node_beyond_the_replicas_takes_the_place_of_one_expired_node_only() {
    for state in [NodeState::InFlight, NodeState::Registered, NodeState::Initialized] {
        let mut cluster = Cluster::with([static_pool(3)]);
        for name in ["n1", "n2", "n3"] {
            node(&mut cluster, name).expires = Some(NOW);
        }
        node(&mut cluster, "n4").state = state;
        // One node is removed without a successor and one with a successor. The third one waits: the actuator admits
        // no second launch while the first node exists.
        let plan = cluster.plan();
        let mut successors: Vec<usize> = plan.terminations.iter().map(|one| one.replaced_by.len()).collect();
        successors.sort_unstable();
        assert_eq!((successors, plan.launches.len()), (vec![0, 1], 1), "{state:?}");
        // Both are gone, and the successor starts.
        let gone: Vec<_> = plan.terminations.iter().map(|one| one.node.clone()).collect();
        cluster.snapshot.nodes.retain(|node| !gone.contains(&node.name));
        node(&mut cluster, "n5").state = NodeState::InFlight;
        let plan = cluster.plan();
        assert_eq!((plan.terminations.len(), plan.launches.len()), (1, 1), "{state:?}");
        assert_eq!(plan.terminations[0].replaced_by, [0], "{state:?}");
    }
}

#[test]
fn a_surplus_node_whose_pods_cannot_be_planned_stays() {
    let unknown = VolumeTopology {
        claim: "data".into(),
        driver: String::new(),
        alternatives: Vec::new(),
        problem: Some("persistent volume claim \"data\" not found".into()),
    };
    let volume = PodShape { volumes: vec![unknown], ..shape(500, 1) };
    let devices = PodShape { resource_claims: vec!["gpu".into()], ..shape(500, 1) };
    for pod in [volume, devices] {
        let mut cluster = Cluster::with([static_pool(1), pool("default")]);
        for name in ["n1", "n2"] {
            node(&mut cluster, name);
            cluster.bound(&format!("on-{name}"), name, &pod);
        }
        assert_eq!(removed(&cluster.plan()), []);
        // The pod of the other node can be planned.
        cluster.snapshot.pods.pop();
        cluster.bound("plain", "n2", &shape(500, 1));
        assert_eq!(removed(&cluster.plan()), [("n2", DisruptionReason::Underutilized)]);
    }
}
