//! Local search over launches of several pools or domains.

use super::builder::*;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Plan, ReasonCode};
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::PodAffinityTerm;
use plimsoll_model::taints::TaintEffect;

fn pools(plan: &Plan) -> Vec<&str> {
    let mut all: Vec<&str> = plan.launches.iter().map(|one| one.node_pool.as_str()).collect();
    all.sort_unstable();
    all
}

#[test]
fn pods_share_the_nodes_of_a_pool_that_others_need() {
    // The pool that is first by name gets all pods that need not run in the other pool. The other pool's node has
    // capacity for them.
    let mut team = pool("a-team");
    team.taints = vec![taint("team", TaintEffect::NoSchedule)];
    team.labels.insert("team".into(), "a".into());
    let mut bound = shape(1000, 1);
    bound.node_selector.insert("team".into(), "a".into());
    bound.tolerations = vec![tolerate("team")];
    let mut free = shape(500, 1);
    free.tolerations = vec![tolerate("team")];
    let plan =
        Cluster::with([team.clone(), pool("z-any")]).pending("bound", 1, &bound).pending("free", 1, &free).plan();
    assert_eq!((pools(&plan), launched(&plan)), (vec!["a-team"], vec![("c5.large".to_owned(), 2)]));
    // Pods that do not tolerate the taint do not move.
    let plan =
        Cluster::with([team, pool("z-any")]).pending("bound", 1, &bound).pending("free", 1, &shape(500, 1)).plan();
    assert_eq!(pools(&plan), ["a-team", "z-any"]);
}

#[test]
fn nothing_moves_to_a_lighter_pool_that_no_pod_needs() {
    // The lighter pool is cheaper, but no pod needs it.
    let (mut heavy, mut light) = (pool("heavy"), pool("light"));
    heavy.weight = 10;
    heavy.requirements.push(requirement("karpenter.k8s.aws/instance-family", Operator::In, &["r5"]));
    light.requirements.push(requirement("karpenter.k8s.aws/instance-family", Operator::In, &["c5"]));
    let plan = Cluster::with([heavy, light]).pending("p", 3, &shape(1500, 1)).plan();
    assert!(pools(&plan).iter().all(|name| *name == "heavy"), "{plan:#?}");
}

#[test]
fn a_limit_holds_when_launches_are_put_together() {
    // One node of four cores for all pods would exceed the limit of three.
    let mut team = pool("a-team");
    team.taints = vec![taint("team", TaintEffect::NoSchedule)];
    team.labels.insert("team".into(), "a".into());
    team.limits.set("cpu", 3000);
    let mut bound = shape(1500, 1);
    bound.node_selector.insert("team".into(), "a".into());
    bound.tolerations = vec![tolerate("team")];
    let mut free = shape(1000, 1);
    free.tolerations = vec![tolerate("team")];
    let plan = Cluster::with([team, pool("z-any")]).pending("bound", 1, &bound).pending("free", 1, &free).plan();
    assert_eq!((pools(&plan), plan.unschedulable.len()), (vec!["a-team", "z-any"], 0));
}

#[test]
fn a_pod_whose_zone_is_open_goes_where_others_must() {
    // The spread pods may run in any zone, and one of the zones needs a node anyway.
    let mut spread_out = app("web", 500);
    spread_out.topology_spread = vec![spread(label::ZONE, 1)];
    let mut bound = shape(1000, 1);
    bound.node_selector.insert(label::ZONE.into(), "zone-b".into());
    let plan = Cluster::new().pending("web", 1, &spread_out).pending("bound", 1, &bound).plan();
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 2)]);
}

#[test]
fn a_group_that_starts_on_a_host_still_follows_those_it_must() {
    // The pods require affinity and anti-affinity to db at once, so they cannot be placed regardless of their
    // preferences.
    let preferred = |term| PodAffinityTerm { weight: Some(50), ..term };
    let mut broken = app("web", 500);
    broken.pod_affinity = vec![
        affinity(label::HOSTNAME, false, "db"),
        affinity(label::HOSTNAME, true, "db"),
        preferred(affinity(label::HOSTNAME, false, "web")),
    ];
    let plan = Cluster::new().pending("db", 2, &app("db", 500)).pending("web", 2, &broken).plan();
    assert_eq!((plan.unschedulable.len(), refused(&plan)), (2, vec![ReasonCode::TopologyUnsatisfiable]));
}

#[test]
fn preferences_leave_no_other_pod_unplaced() {
    // Three pods on three nodes, as they prefer, would leave no headroom of the limit for the last pod.
    let mut shy = app("web", 500);
    shy.pod_affinity = vec![PodAffinityTerm { weight: Some(1), ..affinity(label::HOSTNAME, true, "web") }];
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("cpu", 6000);
    assert_eq!(cluster.clone().pending("web", 3, &shy).plan().launches.len(), 3);
    let plan = cluster.pending("web", 3, &shy).pending("big", 1, &shape(1800, 1)).plan();
    assert_eq!(plan.unschedulable, []);
}

#[test]
fn a_preference_that_not_all_pods_can_have_costs_half_as_much_again_at_most() {
    let mut shy = app("web", 100);
    shy.pod_affinity = vec![PodAffinityTerm { weight: Some(1), ..affinity(label::ZONE, true, "web") }];
    // One node is enough for all pods. Nodes in three zones would cost three times as much, and the pods still could
    // not all be apart.
    let plan = Cluster::new().pending("web", 12, &shy).plan();
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (1, 0));
    // If all pods can be apart, they are.
    let plan = Cluster::new().pending("web", 3, &shy).plan();
    assert_eq!(plan.launches.len(), 3);
}
