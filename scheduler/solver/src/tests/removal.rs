//! Nodes that are removed, and nodes that must not be removed.

use super::builder::*;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::identity::NodeName;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::DisruptionReason::{Drifted, Empty, Expired, Underutilized};
use plimsoll_model::snapshot::{ConsolidationPolicy, NodeState, PodState};
use plimsoll_model::time::{Millis, Timestamp};

const LATER: Timestamp = Timestamp(NOW.0 + 60_000);

/// Two nodes. The first is nearly empty, and the second has capacity for its pod.
fn two() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.xlarge");
    cluster.bound("small", "n1", &shape(500, 1));
    cluster.node("n2", "c5.xlarge");
    cluster.bound("large", "n2", &shape(3400, 4));
    cluster
}

fn moved(plan: &Plan) -> Vec<(&str, Vec<&str>)> {
    let all = plan.terminations.iter().flat_map(|one| &one.moved_to);
    all.map(|one| (one.node.as_str(), one.pods.iter().map(|pod| pod.name.as_str()).collect())).collect()
}

#[test]
fn empty_nodes_go_at_once() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.node("n2", "c5.large");
    cluster.bound("agent", "n2", &shape(100, 0)).stays_with_node = true;
    let plan = cluster.plan();
    assert_eq!(removed(&plan), [("n1", Empty), ("n2", Empty)]);
    assert_eq!(plan.terminations[0].saving.0, 80_000);
    assert_eq!(cluster.plan_with(false).terminations.len(), 0);
}

#[test]
fn a_node_that_is_to_be_kept_leaves_the_budget_to_others() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.node("n2", "c5.large");
    cluster.pool().disruption.allowed.insert(Empty, 1);
    assert_eq!(removed(&cluster.plan()), [("n1", Empty)]);
    let options = PlanOptions { kept_nodes: ["n1".into()].into(), ..PlanOptions::default() };
    assert_eq!(removed(&cluster.plan_by(&options)), [("n2", Empty)]);
}

#[test]
fn an_empty_node_that_pending_pods_use_stays() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.node("n2", "c5.large");
    let plan = cluster.pending("p", 1, &shape(1000, 1)).plan();
    assert_eq!((kept(&plan), removed(&plan)), (vec![("n1", 1)], vec![("n2", Empty)]));
}

#[test]
fn consolidate_after_is_waited_for() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large").idle_since = Some(Timestamp(NOW.0 - 20_000));
    cluster.pool().disruption.consolidate_after = Some(Millis::from_seconds(30));
    let plan = cluster.plan();
    assert_eq!((removed(&plan), plan.next_time), (vec![], Some(Timestamp(NOW.0 + 10_000))));
    cluster.snapshot.nodes[0].idle_since = Some(Timestamp(NOW.0 - 30_000));
    assert_eq!(removed(&cluster.plan()), [("n1", Empty)]);
    cluster.pool().disruption.consolidate_after = None;
    assert_eq!(removed(&cluster.plan()), []);
}

#[test]
fn a_node_whose_pods_fit_elsewhere_goes() {
    let plan = two().plan();
    assert_eq!(removed(&plan), [("n1", Underutilized)]);
    assert_eq!(moved(&plan), [("n2", vec!["ns/small"])]);
    assert_eq!((plan.terminations[0].saving.0, plan.launches.len()), (160_000, 0));
}

#[test]
fn a_node_with_young_pods_is_planned_again_when_these_are_older() {
    const HOUR: i64 = 3_600_000;
    let aged = |millis: i64| {
        let mut cluster = two();
        cluster.snapshot.nodes[1].do_not_disrupt = true;
        let small = &mut cluster.snapshot.pods[0];
        (small.created, small.eviction_cost_milli) = (Timestamp(NOW.0 - millis), 100_000);
        let plan = cluster.plan();
        (plan.terminations.len(), plan.next_time)
    };
    // NOW is 400 s after a multiple of ten minutes.
    let next = |seconds: u64| (0_usize, Some(NOW.plus(Millis::from_seconds(seconds))));
    assert_eq!(aged(4 * HOUR), next(200), "the factor falls from 12 to 11");
    assert_eq!(aged(4 * HOUR - 199_999), next(200));
    assert_eq!(aged(4 * HOUR - 200_000), next(800));
    assert_eq!(aged(HOUR), next(2 * 3600 + 200), "the factor is 16 for three hours");
    assert_eq!(aged(20 * HOUR).0, 1, "the factor is 2");
    assert_eq!(aged(60 * HOUR).0, 1);
}

#[test]
fn when_empty_keeps_nodes_with_pods() {
    let mut cluster = two();
    cluster.pool().disruption.policy = ConsolidationPolicy::WhenEmpty;
    assert_eq!(removed(&cluster.plan()), []);
}

#[test]
fn a_destination_that_is_not_settled_itself_takes_nothing() {
    let mut cluster = two();
    cluster.pool().disruption.consolidate_after = Some(Millis::from_seconds(30));
    cluster.snapshot.nodes[1].idle_since = Some(NOW);
    let plan = cluster.plan();
    // The pod does not move to n2, but a smaller new node is cheaper.
    assert_eq!((moved(&plan), launched(&plan)), (vec![], vec![("c5.large".to_owned(), 1)]));
}

#[test]
fn a_node_is_replaced_by_a_cheaper_one() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "m5.2xlarge");
    cluster.bound("p", "n1", &shape(3000, 4));
    let plan = cluster.plan();
    assert_eq!((removed(&plan), launched(&plan)), (vec![("n1", Underutilized)], vec![("c5.xlarge".to_owned(), 1)]));
    assert_eq!((plan.terminations[0].replaced_by.as_slice(), plan.terminations[0].saving.0), (&[0][..], 224_000));
    assert!(plan.launches[0].offerings.iter().all(|one| one.price.0 < 384_000), "each is cheaper than the node");
}

#[test]
fn a_node_of_the_right_size_stays() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.xlarge");
    cluster.bound("p", "n1", &shape(3000, 4));
    assert_eq!(removed(&cluster.plan()), []);
}

#[test]
fn several_nodes_are_replaced_by_one() {
    let mut cluster = Cluster::new();
    for name in ["n1", "n2", "n3"] {
        cluster.node(name, "r5.large");
        cluster.bound(&format!("p-{name}"), name, &shape(1200, 2));
    }
    // Each node could be replaced by a c5.large for 80,000. One c5.xlarge for all three costs 160,000.
    let plan = cluster.plan();
    assert_eq!(removed(&plan), [("n1", Underutilized), ("n2", Underutilized), ("n3", Underutilized)]);
    assert_eq!(launched(&plan), [("c5.xlarge".to_owned(), 3)]);
    let savings: i64 = plan.terminations.iter().map(|one| one.saving.0).sum();
    assert_eq!(savings, 3 * 126_000 - 160_000 + 1, "one millionth is lost in the split");
}

#[test]
fn several_nodes_are_not_replaced_by_one_of_their_own() {
    let mut cluster = Cluster::new();
    for (name, kind, milli) in [("n1", "c5.xlarge", 1300), ("n2", "c5.xlarge", 1300), ("n3", "c5.large", 1300)] {
        cluster.node(name, kind);
        cluster.bound(&format!("p-{name}"), name, &shape(milli, 1));
    }
    // All pods fit on one c5.xlarge, so two nodes are removed and none is launched.
    let plan = cluster.plan();
    assert_eq!((plan.launches.len(), plan.terminations.len()), (0, 2));
}

#[test]
fn spot_is_not_replaced_by_spot() {
    let mut cluster = Cluster::new();
    cluster.pool().requirements[1].values.push("spot".into());
    cluster.node_of("n1", "m5.2xlarge", "default", CapacityType::Spot);
    cluster.bound("p", "n1", &shape(1000, 1));
    assert_eq!(removed(&cluster.plan()), []);
    // An On-Demand node would be replaced.
    cluster.snapshot.nodes.clear();
    cluster.node("n1", "m5.2xlarge");
    let plan = cluster.plan();
    assert_eq!(plan.launches[0].offerings[0].capacity_type, CapacityType::Spot);
    // If the pool no longer permits Spot, the Spot node may be replaced by a cheaper node.
    cluster.pool().requirements[1].values.pop();
    cluster.snapshot.nodes.clear();
    cluster.node_of("n1", "m5.2xlarge", "default", CapacityType::Spot);
    assert_eq!(launched(&cluster.plan()), [("c5.large".to_owned(), 1)]);
}

#[test]
fn a_spot_node_replaces_an_on_demand_node_together_with_spot_nodes() {
    let mut cluster = Cluster::new();
    cluster.pool().requirements[1].values.push("spot".into());
    for name in ["n1", "n2"] {
        cluster.node_of(name, "r5.large", "default", CapacityType::Spot);
        cluster.bound(&format!("p-{name}"), name, &shape(1200, 2));
    }
    assert_eq!(removed(&cluster.plan()), [], "one c5.xlarge on Spot would be cheaper than both");
    cluster.node("n3", "r5.large");
    cluster.bound("p-n3", "n3", &shape(1200, 2));
    let plan = cluster.plan();
    assert_eq!((removed(&plan).len(), launched(&plan)), (3, vec![("c5.xlarge".to_owned(), 3)]));
    assert_eq!(plan.launches[0].price().0, 64_000);
}

#[test]
fn what_is_marked_do_not_disrupt_stays() {
    let mut cluster = two();
    cluster.snapshot.nodes[0].do_not_disrupt = true;
    cluster.snapshot.nodes[1].do_not_disrupt = true;
    assert_eq!(removed(&cluster.plan()), []);
    let mut cluster = two();
    cluster.pool().disruption.consolidate_after = Some(Millis(0));
    cluster.snapshot.pods[0].do_not_disrupt_until = Some(LATER);
    cluster.snapshot.pods[1].do_not_disrupt_until = Some(Timestamp(i64::MAX));
    let plan = cluster.plan();
    assert_eq!((removed(&plan), plan.next_time), (vec![], Some(LATER)));
    // A protected pod of a DaemonSet blocks the node. A terminating pod does not.
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.bound("agent", "n1", &shape(100, 0)).stays_with_node = true;
    cluster.snapshot.pods[0].do_not_disrupt_until = Some(LATER);
    assert_eq!(removed(&cluster.plan()), []);
    cluster.snapshot.pods[0].terminating = true;
    assert_eq!(removed(&cluster.plan()), [("n1", Empty)]);
}

#[test]
fn budgets_bound_what_leaves_a_pool_at_once() {
    let mut cluster = Cluster::new();
    for name in ["n1", "n2", "n3"] {
        cluster.node(name, "c5.large");
    }
    assert_eq!(cluster.allow(Empty, 2).plan().terminations.len(), 2);
    assert_eq!(cluster.allow(Empty, 0).plan().terminations.len(), 0);
    // A removal for one reason counts against the budgets of other reasons.
    cluster.node("n4", "c5.2xlarge");
    cluster.bound("p", "n4", &shape(1000, 1));
    let plan = cluster.allow(Empty, 2).allow(Underutilized, 2).plan();
    assert_eq!(plan.terminations.len(), 2);
}

#[test]
fn disruption_budgets_hold_over_the_whole_plan() {
    let mut cluster = Cluster::new();
    for name in ["n1", "n2", "n3"] {
        cluster.node(name, "c5.2xlarge");
        for index in 0..2 {
            cluster.bound(&format!("{name}-{index}"), name, &shape(700, 1)).pod_disruption_budgets =
                vec!["ns/app".into()];
        }
    }
    cluster.budget("app", 0);
    assert_eq!(cluster.plan().terminations.len(), 0);
    // The budget allows one eviction: one node is drained pod by pod, but not two.
    cluster.snapshot.pod_disruption_budgets[0].disruptions_allowed = 1;
    assert_eq!(cluster.plan().terminations.len(), 1);
    cluster.snapshot.pod_disruption_budgets[0].disruptions_allowed = 3;
    assert_eq!(cluster.plan().terminations.len(), 2);
    cluster.snapshot.pod_disruption_budgets[0].fully_blocking = true;
    assert_eq!(cluster.plan().terminations.len(), 0);
    // The Eviction API rejects pods with two budgets.
    cluster.snapshot.pod_disruption_budgets[0].fully_blocking = false;
    cluster.budget("other", 9);
    for pod in &mut cluster.snapshot.pods {
        pod.pod_disruption_budgets.push("ns/other".into());
    }
    assert_eq!(cluster.plan().terminations.len(), 0);
}

#[test]
fn nodes_that_somebody_waits_for_or_nobody_made_stay() {
    let mut cluster = Cluster::new();
    cluster.node("waited-for", "c5.large");
    cluster.bound("r", "waited-for", &shape(100, 0)).state = PodState::Reserved(NodeName::from("waited-for"));
    cluster.node("own", "c5.large").node_pool = None;
    cluster.node("new", "c5.large").state = NodeState::Registered;
    cluster.node("going", "c5.large").deleting = true;
    assert_eq!(removed(&cluster.plan()), []);
}

#[test]
fn drifted_nodes_are_replaced_whatever_it_costs() {
    let mut cluster = Cluster::new();
    cluster.pool().disruption.consolidate_after = None;
    cluster.node("n1", "c5.xlarge").drifted = Some("AMIDrift".into());
    cluster.bound("p", "n1", &shape(3000, 4));
    let plan = cluster.plan();
    assert_eq!((removed(&plan), launched(&plan)), (vec![("n1", Drifted)], vec![("c5.xlarge".to_owned(), 1)]));
    assert_eq!((plan.terminations[0].replaced_by.as_slice(), plan.terminations[0].saving.0), (&[0][..], 0));
    // A node of the same size has no room beside it: it goes first.
    cluster.pool().limits.set("cpu", 5000);
    let plan = cluster.plan();
    assert_eq!((removed(&plan), launched(&plan)), (vec![("n1", Drifted)], vec![]));
    // If its pods cannot be placed even then, it stays.
    cluster.pool().limits.set("cpu", 3000);
    assert_eq!(removed(&cluster.plan()), []);
}

#[test]
fn drift_waits_for_pods_unless_there_is_a_termination_grace_period() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.xlarge").drifted = Some("AMIDrift".into());
    cluster.bound("held", "n1", &shape(3000, 4)).do_not_disrupt_until = Some(LATER);
    cluster.bound("free", "n1", &shape(500, 1));
    assert_eq!(removed(&cluster.plan()), []);
    cluster.snapshot.nodes[0].termination_grace_period = Some(Millis::from_seconds(3600));
    let plan = cluster.plan();
    assert_eq!((removed(&plan), launched(&plan)), (vec![("n1", Drifted)], vec![("c5.large".to_owned(), 1)]));
}

#[test]
fn expired_nodes_go_whatever_they_run_and_whatever_budgets_say() {
    let mut cluster = Cluster::new();
    cluster.allow(Expired, 0);
    for name in ["n1", "n2"] {
        cluster.node(name, "c5.xlarge").expires = Some(NOW);
    }
    cluster.snapshot.nodes[0].do_not_disrupt = true;
    cluster.bound("held", "n1", &shape(500, 1)).do_not_disrupt_until = Some(LATER);
    cluster.bound("budgeted", "n1", &shape(500, 1)).pod_disruption_budgets = vec!["ns/app".into()];
    cluster.budget("app", 0);
    cluster.bound("too-large", "n2", &shape(9000, 1));
    cluster.node("n3", "c5.xlarge");
    cluster.bound("p", "n3", &shape(3000, 1));
    let plan = cluster.plan();
    assert_eq!(removed(&plan), [("n1", Expired), ("n2", Expired)]);
    assert_eq!(moved(&plan), [("n3", vec!["ns/budgeted"])]);
    assert_eq!(plan.unschedulable[0].pod.name, "ns/too-large");
    let known: Vec<_> = plan.terminations[0].pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(known, ["ns/budgeted", "ns/held"], "the removal lists pods that cannot be evicted yet, too");
}

#[test]
fn pods_of_expired_nodes_share_launches_with_pending_ones() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large").expires = Some(NOW);
    cluster.bound("p", "n1", &shape(1000, 1));
    let plan = cluster.pending("q", 1, &shape(1000, 1)).plan();
    assert_eq!((removed(&plan), launched(&plan)), (vec![("n1", Expired)], vec![("c5.large".to_owned(), 2)]));
    assert_eq!((plan.terminations[0].replaced_by.as_slice(), plan.terminations[0].saving.0), (&[0][..], 40_000));
}

#[test]
fn a_balanced_pool_weighs_the_saving_against_the_disturbance() {
    let mut cluster = Cluster::new();
    cluster.pool().disruption.policy = ConsolidationPolicy::Balanced;
    cluster.node("n1", "c5.large");
    cluster.node("n2", "c5.2xlarge");
    cluster.bound("large", "n2", &shape(5000, 4));
    for index in 0..10 {
        cluster.bound(&format!("tiny-{index}"), "n1", &shape(50, 0));
    }
    // A fifth of the cost for 11 of 13 parts of the disturbance is not worth it.
    assert_eq!(removed(&cluster.plan()), []);
    cluster.pool().disruption.policy = ConsolidationPolicy::WhenEmptyOrUnderutilized;
    assert_eq!(removed(&cluster.plan()), [("n1", Underutilized)]);
}

#[test]
fn a_pod_that_is_not_supported_keeps_its_node() {
    let mut cluster = two();
    let mut claims = shape(500, 1);
    claims.resource_claims = vec!["gpu".into()];
    cluster.bound("claims", "n1", &claims);
    assert_eq!(removed(&cluster.plan()), []);
}

#[test]
fn a_pod_that_its_stateful_set_makes_anew_holds_its_node_and_needs_room_elsewhere() {
    let restarting = |cluster: &mut Cluster| {
        let pod = cluster.bound("db", "n1", &shape(3000, 1));
        (pod.terminating, pod.returns) = (true, true);
        // The pod is not evicted, so an exhausted budget does not block the node.
        pod.pod_disruption_budgets = vec!["ns/app".into()];
        cluster.budget("app", 0);
    };
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.xlarge");
    restarting(&mut cluster);
    assert_eq!(removed(&cluster.plan()), [], "the node is not empty, and no cheaper node has capacity");
    cluster.node("n2", "c5.2xlarge");
    cluster.bound("p", "n2", &shape(4000, 1));
    let plan = cluster.plan();
    assert_eq!((removed(&plan), moved(&plan)), (vec![("n1", Underutilized)], vec![("n2", vec!["ns/db"])]));
    cluster.bound("q", "n2", &shape(2500, 1));
    assert_eq!(removed(&cluster.plan()), [], "no capacity elsewhere");

    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.xlarge").deleting = true;
    restarting(&mut cluster);
    cluster.bound("gone", "n1", &shape(500, 1)).terminating = true;
    // No budget keeps a pod that ends already.
    for never in [false, true] {
        cluster.snapshot.pod_disruption_budgets[0].fully_blocking = never;
        assert_eq!(
            launched(&cluster.plan()),
            [("c5.xlarge".to_owned(), 1)],
            "the replacement of one pod needs a node, that of the other does not"
        );
    }
}
