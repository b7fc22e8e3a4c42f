//! Plans from which kube-scheduler may deviate.
//!
//! In each of these clusters, four large and three small pods, both spread over two zones, fit on two nodes in one way
//! only. The small pods are scheduled first. If two of them are planned on one node, one is not nominated at first. If
//! this pod is bound to the other, emptier node, a large pod is stranded.

use super::builder::*;
use crate::place::launch::pod_ref;
use crate::repair::moves::Moves;
use crate::repair::replay::improve;
use crate::repair::{Inputs, Overlaid, Repair, Variant, Work};
use crate::{Cancel, ReplayReport, replay, solve};
use plimsoll_model::identity::NodeName;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Placement, Plan, PlanOptions, PodRef, Unschedulable};
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;
use std::sync::Arc;

/// Adds nodes with capacity for six cores in zone-a, and for five cores in zone-b, which has plenty of memory.
fn tight(mut cluster: Cluster) -> Cluster {
    for (name, cpu, gib, zone) in [("n-a", 6000, 8, "zone-a"), ("n-b", 5000, 64, "zone-b")] {
        let node = cluster.node(name, "m5.2xlarge");
        node.labels.insert(label::ZONE.into(), zone.into());
        node.allocatable.set("cpu", cpu);
        node.allocatable.set("memory", gib * GIB);
    }
    let spread_out = |name: &str, milli: i64| {
        let mut one = app(name, milli);
        one.topology_spread = vec![spread(label::ZONE, 1)];
        one.topology_spread[0].selector = selector(name);
        one
    };
    cluster.pending("a-small", 3, &spread_out("small", 1000)).pending("large", 4, &spread_out("large", 2000));
    cluster
}

fn replayed(cluster: &Cluster, plan: &Plan) -> ReplayReport {
    replay(&cluster.snapshot, &cluster.catalogs(), plan).unwrap()
}

/// A plan that places pods of the cluster on these nodes.
fn placed(cluster: &Cluster, places: &[(&str, &[&str])]) -> Plan {
    let pod = |name: &&str| {
        let found = cluster.snapshot.pods.iter().find(|pod| pod.name == **name).unwrap();
        PodRef { name: found.full_name(), uid: found.uid.clone() }
    };
    let placement = |(node, pods): &(&str, &[&str])| Placement {
        node: NodeName::from(*node),
        pods: pods.iter().map(pod).collect(),
    };
    Plan { placements: places.iter().map(placement).collect(), ..Plan::default() }
}

#[test]
fn where_nothing_can_be_bought_the_plan_stands_and_is_known_to_be_risky() {
    let cluster = tight(Cluster::with([]));
    let plan = cluster.plan();
    assert_eq!(kept(&plan), [("n-a", 4), ("n-b", 3)]);
    let report = replayed(&cluster, &plan);
    assert!(report.stranding > 0 && report.stranding < report.runs, "{report:?}");
    assert!(report.stranded.iter().any(|uid| uid.as_str().contains("large")), "{report:?}");
}

#[test]
fn a_node_is_bought_at_once_for_pods_that_would_often_be_stranded() {
    let mut zones = pool("default");
    zones.requirements.push(requirement(label::ZONE, Operator::In, &["zone-a", "zone-b"]));
    let cluster = tight(Cluster::with([zones]));
    let plan = cluster.plan_with(false);
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (1, 0), "{:?}", replayed(&cluster, &plan));
    let before = tight(Cluster::with([]));
    let risk = |cluster: &Cluster, plan: &Plan| replayed(cluster, plan).stranding;
    assert!(2 * risk(&cluster, &plan) < risk(&before, &before.plan()), "{plan:#?}");
    assert!(plan.launches[0].why.contains("kube-scheduler"), "{}", plan.launches[0].why);
}

#[test]
fn pods_go_to_other_nodes_of_the_plan_if_that_strands_none() {
    let mut cluster = tight(Cluster::with([]));
    // One more core in zone-b, which no large pod could use.
    let node = cluster.node("n-c", "c5.large");
    node.labels.insert(label::ZONE.into(), "zone-b".into());
    node.allocatable.set("cpu", 1000);
    cluster.snapshot.sort();
    let risky = placed(
        &cluster,
        &[("n-a", &["a-small-0", "a-small-2", "large-0", "large-2"]), ("n-b", &["a-small-1", "large-1", "large-3"])],
    );
    let catalogs = cluster.catalogs();
    let overlaid = Overlaid::new();
    let inputs = Inputs { snapshot: &cluster.snapshot, catalogs: &catalogs, overlaid: &overlaid };
    let (moves, cancel) = (Moves::default(), Cancel::default());
    let nothing_to_buy = |_: &_, _: Variant| Plan::default();
    let work = Work::new(&cancel);
    let repair = || Repair { inputs, moves: &moves, work: &work, replan: &nothing_to_buy };
    let better = improve(&repair(), &risky).unwrap();
    assert!(replayed(&cluster, &better).stranding < replayed(&cluster, &risky).stranding);
    assert_eq!(better.placements.iter().map(|one| one.pods.len()).sum::<usize>(), 7);
    assert!(better.placements.iter().any(|one| one.node.as_str() == "n-c"), "{better:#?}");
    // An optimal plan is not changed.
    if replayed(&cluster, &better).stranding == 0 {
        assert_eq!(improve(&repair(), &better), None);
    }
}

/// The first move, which gives up zones, uses all the work that it has. Another move finds the place on the node.
#[test]
fn a_move_leaves_work_for_the_others() {
    let mut web = app("web", 1000);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.pending("web", 1, &web).snapshot.sort();
    let pod = pod_ref(&cluster.snapshot.pods[0]);
    let nothing = Plan { unschedulable: vec![Unschedulable { pod, reasons: Arc::default() }], ..Plan::default() };
    let (catalogs, overlaid) = (cluster.catalogs(), Overlaid::new());
    let inputs = Inputs { snapshot: &cluster.snapshot, catalogs: &catalogs, overlaid: &overlaid };
    let (moves, cancel) = (Moves::default(), Cancel::default());
    let work = Work::new(&cancel);
    let replan = |other: &Snapshot, _: Variant| {
        if other.node_pools.is_empty() {
            return solve(other, &catalogs, &PlanOptions::default());
        }
        work.spend(usize::MAX);
        nothing.clone()
    };
    let repair = Repair { inputs, moves: &moves, work: &work, replan: &replan };
    let (plan, changed) = repair.run(nothing.clone(), false);
    assert_eq!((kept(&plan), changed), (vec![("n1", 1)], true));
}

#[test]
fn pods_that_are_all_nominated_at_once_need_no_replay() {
    let mut cluster = Cluster::with([]);
    cluster.node("n1", "m5.2xlarge");
    let plan = cluster.pending("web", 3, &app("web", 1000)).plan();
    assert_eq!(kept(&plan), [("n1", 3)]);
    assert_eq!(replay(&cluster.snapshot, &cluster.catalogs(), &plan), None);
}

/// The plan does not move `db`, which runs until it ends by itself.
#[test]
fn a_protected_pod_is_there_for_others_while_its_node_is_being_deleted() {
    let mut cluster = Cluster::with([]);
    cluster.node("n1", "m5.2xlarge");
    cluster.node("old", "c5.large").deleting = true;
    cluster.bound("db", "old", &app("db", 100)).do_not_disrupt_until = Some(Timestamp(i64::MAX));
    let mut web = app("web", 1000);
    web.pod_affinity = vec![affinity(label::ZONE, false, "db")];
    cluster.pending("web", 2, &web);
    let plan = placed(&cluster, &[("n1", &["web-0", "web-1"])]);
    assert_eq!(replayed(&cluster, &plan).stranding, 0);
}
