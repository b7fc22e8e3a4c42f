//! Nodes that a plan keeps: those that the options name, those whose pods have just changed, and those whose removal
//! would save little, because kube-scheduler binds the pods to other nodes than planned.

use super::builder::*;
use crate::{Move, solve_without};
use plimsoll_model::identity::NodeName;
use plimsoll_model::plan::PlanOptions;
use plimsoll_model::snapshot::DisruptionReason::{Drifted, Empty, Expired, Underutilized};
use plimsoll_model::snapshot::PodState;
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;

/// The large pod of n1 fits on n2 only, and its small pods fit on n2 and n3. kube-scheduler prefers n2 for each pod, since
/// more of it is free: the large pod finds room there only if it comes first.
fn cluster(small: usize) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.xlarge");
    cluster.bound("large", "n1", &shape(3100, 1));
    for number in 0..small {
        cluster.bound(&format!("small-{number}"), "n1", &shape(200, 0));
    }
    for (name, kind, used) in [("n2", "m5.2xlarge", 4800), ("n3", "c5.xlarge", 2500)] {
        cluster.node(name, kind).do_not_disrupt = true;
        cluster.bound(&format!("on-{name}"), name, &shape(used, 1));
    }
    cluster
}

#[test]
fn a_node_stays_if_its_pods_would_need_another_one() {
    let cluster = cluster(4);
    assert_eq!(removed(&cluster.plan()), []);
    let catalogs = BTreeMap::from([("test".into(), cluster.catalog.clone())]);
    let plan = solve_without(&cluster.snapshot, &catalogs, &PlanOptions::default(), &[Move::KeepNodes]);
    assert_eq!(removed(&plan), [("n1", Underutilized)], "a plan can place the pods");
}

#[test]
fn a_node_goes_if_its_pods_find_room_in_any_order() {
    assert_eq!(removed(&cluster(0).plan()), [("n1", Underutilized)]);
}

/// In about half of the orders, the only small pod takes the place of the large one.
#[test]
fn a_node_with_young_pods_stays_if_they_find_no_room_in_some_orders() {
    let mut cluster = cluster(1);
    assert_eq!(removed(&cluster.plan()), [("n1", Underutilized)], "the pods are old");
    let now = cluster.snapshot.now;
    cluster.snapshot.pods.iter_mut().filter(|pod| pod.name == "large").for_each(|pod| pod.created = now);
    assert_eq!(removed(&cluster.plan()), []);
}

/// The pods of n1 fit on n2 and n3 beside the pod on n2, one on each. kube-scheduler prefers n2 for both. A pod for
/// which n2 was launched, and which kube-scheduler has not bound yet, then finds no room.
#[test]
fn a_node_stays_if_its_pods_would_take_the_place_of_a_pod_that_is_not_bound_yet() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.xlarge");
    for (name, kind, used) in [("n2", "m5.2xlarge", 3800), ("n3", "c5.xlarge", 2500)] {
        cluster.node(name, kind).do_not_disrupt = true;
        cluster.bound(&format!("on-{name}"), name, &shape(used, 1));
    }
    for name in ["one", "two"] {
        cluster.bound(name, "n1", &shape(1000, 0));
    }
    cluster.bound("waiting", "n2", &shape(2300, 1));
    assert_eq!(removed(&cluster.plan()), [("n1", Underutilized)], "the pod is bound");
    let now = cluster.snapshot.now;
    let waiting = cluster.snapshot.pods.iter_mut().find(|pod| pod.name == "waiting").unwrap();
    (waiting.state, waiting.created) = (PodState::Reserved(NodeName::from("n2")), now);
    assert_eq!(removed(&cluster.plan()), []);
}

fn keeping(node: &str) -> PlanOptions {
    PlanOptions { kept_nodes: [node.into()].into(), ..PlanOptions::default() }
}

#[test]
fn a_kept_node_does_not_stop_the_rollout_of_a_pool_at_its_limits() {
    let mut cluster = Cluster::new();
    cluster.pool().disruption.consolidate_after = None;
    for name in ["n1", "n2"] {
        cluster.node(name, "c5.xlarge").drifted = Some("AMIDrift".into());
        cluster.bound(&format!("p-{name}"), name, &shape(3000, 4));
    }
    cluster.pool().limits.set("cpu", 9000);
    let plan = cluster.plan_by(&keeping("n1"));
    assert_eq!((removed(&plan), launched(&plan)), (vec![("n2", Drifted)], vec![]));
}

#[test]
fn a_kept_node_that_has_expired_uses_up_no_budget_and_its_pods_need_no_place() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large").expires = Some(NOW);
    cluster.node("n2", "c5.large");
    cluster.allow(Empty, 1);
    assert_eq!(removed(&cluster.plan()), [("n1", Expired)]);
    assert_eq!(removed(&cluster.plan_by(&keeping("n1"))), [("n2", Empty)]);

    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large").expires = Some(NOW);
    cluster.bound("old", "n1", &shape(1000, 1));
    cluster.pending("new", 1, &shape(1500, 1));
    let plan = cluster.plan_by(&keeping("n1"));
    let pods: Vec<&str> = plan.launched_pods().map(|pod| pod.name.as_str()).collect();
    assert_eq!(pods, ["ns/new-0"]);
}

/// A pod that has gone may be about to get a successor.
#[test]
fn a_node_stays_for_three_seconds_after_a_pod_event_although_consolidate_after_is_shorter() {
    let idle = |milliseconds: i64| Some(Timestamp(NOW.0 - milliseconds));
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large").idle_since = idle(2999);
    let plan = cluster.plan();
    assert_eq!((removed(&plan), plan.next_time), (vec![], Some(Timestamp(NOW.0 + 1))));
    cluster.snapshot.nodes[0].idle_since = idle(3000);
    assert_eq!(removed(&cluster.plan()), [("n1", Empty)]);
    cluster.snapshot.nodes[0].idle_since = idle(0);
    cluster.snapshot.nodes[0].drifted = Some("AMIDrift".into());
    assert_eq!(removed(&cluster.plan()), [("n1", Drifted)], "drift does not wait");

    // n2 has room for the pod of n1, also right after it has received another one.
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.xlarge").idle_since = idle(2999);
    cluster.bound("small", "n1", &shape(500, 1));
    let other = cluster.node("n2", "c5.xlarge");
    (other.idle_since, other.do_not_disrupt) = (idle(0), true);
    cluster.bound("large", "n2", &shape(3000, 4));
    assert_eq!(removed(&cluster.plan()), []);
    cluster.snapshot.nodes[0].idle_since = idle(3000);
    assert_eq!(removed(&cluster.plan()), [("n1", Underutilized)]);
}
