//! Preferences: required first, and given up by as few pods as possible.

use super::builder::*;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Plan, PlanOptions, PreferencePolicy, ReasonCode};
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{PodAffinityTerm, PodShape, PreferredTerm, TopologySpread};
use plimsoll_model::taints::TaintEffect;

fn prefers(weight: i32, key: &str, value: &str) -> PreferredTerm {
    PreferredTerm { weight, term: term(&[requirement(key, Operator::In, &[value])]) }
}

fn preferred(weight: i32, term: PodAffinityTerm) -> PodAffinityTerm {
    PodAffinityTerm { weight: Some(weight), ..term }
}

fn anyway(key: &str) -> TopologySpread {
    TopologySpread { required: false, ..spread(key, 1) }
}

fn zones(plan: &Plan) -> Vec<&str> {
    distinct(plan, |one| &one.zone)
}

fn alone(shape: &PodShape) -> Plan {
    Cluster::new().pending("p", 1, shape).plan()
}

#[test]
fn the_heaviest_preferred_term_that_is_possible_is_honoured() {
    let mut one = shape(500, 1);
    one.preferred_node_affinity = vec![prefers(10, label::ZONE, "zone-b"), prefers(90, label::ZONE, "zone-c")];
    assert_eq!(zones(&alone(&one)), ["zone-c"]);
    // No offering matches, so the next preference applies.
    one.preferred_node_affinity[1] = prefers(90, label::ZONE, "zone-x");
    assert_eq!(zones(&alone(&one)), ["zone-b"]);
    one.preferred_node_affinity.remove(0);
    assert_eq!(zones(&alone(&one)), ["zone-a", "zone-b", "zone-c"]);
    // An empty term has no effect.
    one.preferred_node_affinity = vec![PreferredTerm { weight: 100, term: term(&[]) }];
    assert_eq!(zones(&alone(&one)).len(), 3);
}

#[test]
fn a_preference_holds_together_with_each_of_the_required_terms() {
    let mut one = shape(500, 1);
    let family = |name| requirement("karpenter.k8s.aws/instance-family", Operator::In, &[name]);
    one.required_node_affinity = vec![term(&[family("m5")]), term(&[family("r5")])];
    one.preferred_node_affinity = vec![prefers(1, "karpenter.k8s.aws/instance-size", "xlarge")];
    let plan = alone(&one);
    assert_eq!(distinct(&plan, |one| &one.instance_type), ["m5.xlarge", "r5.xlarge"]);
}

#[test]
fn policy_ignore_makes_preferences_no_difference() {
    let mut one = app("web", 500);
    one.preferred_node_affinity = vec![prefers(90, label::ZONE, "zone-c")];
    one.topology_spread = vec![anyway(label::HOSTNAME)];
    let mut cluster = Cluster::new();
    let options = PlanOptions { preference_policy: PreferencePolicy::Ignore, ..PlanOptions::default() };
    let plan = cluster.pending("web", 3, &one).plan_by(&options);
    assert_eq!((launched(&plan), zones(&plan).len()), (vec![("c5.large".to_owned(), 3)], 3));
    let plan = cluster.plan();
    assert_eq!((plan.launches.len(), zones(&plan)), (3, vec!["zone-c"]));
}

#[test]
fn only_those_pods_give_in_that_find_no_place() {
    let mut web = app("web", 500);
    web.pod_affinity = vec![preferred(100, affinity(label::ZONE, true, "web"))];
    let plan = Cluster::new().pending("web", 5, &web).plan();
    // One pod in each zone. The other two share these nodes instead of getting nodes of their own.
    assert_eq!((plan.unschedulable.len(), plan.launches.len(), zones(&plan).len()), (0, 3, 3));
    assert_eq!(plan.launches.iter().map(|one| one.pods.len()).sum::<usize>(), 5);
}

#[test]
fn preferred_spread_is_kept_where_it_can_be() {
    let mut web = app("web", 500);
    web.topology_spread = vec![anyway(label::ZONE)];
    let plan = Cluster::new().pending("web", 6, &web).plan();
    let even: Vec<usize> = counts(&plan, |one| &one.zone).into_iter().map(|(_, count)| count).collect();
    assert_eq!(even, [2, 2, 2]);
    // A zone without capacity does not block the other pods.
    let mut cluster = Cluster::new();
    cluster.close_offerings(|one| one.zone == "zone-c");
    cluster.node("n1", "c5.large").labels.insert(label::ZONE.into(), "zone-c".into());
    cluster.bound("b", "n1", &shape(2000, 1));
    let plan = cluster.pending("web", 6, &web).plan();
    assert_eq!(plan.unschedulable, []);
}

#[test]
fn what_is_given_up_first_is_affinity_then_anti_affinity_then_node_affinity_then_spread() {
    // Each preference can be satisfied alone, but no two of them together.
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large").labels.insert(label::ZONE.into(), "zone-a".into());
    cluster.bound("db", "n1", &app("db", 2000));
    let mut web = app("web", 500);
    web.pod_affinity = vec![preferred(50, affinity(label::ZONE, false, "db"))];
    web.preferred_node_affinity = vec![prefers(1, label::ZONE, "zone-b")];
    assert_eq!(zones(&cluster.clone().pending("web", 1, &web).plan()), ["zone-b"], "affinity before node affinity");
    let mut shy = app("web", 500);
    shy.pod_affinity = vec![preferred(50, affinity(label::ZONE, true, "db"))];
    shy.preferred_node_affinity = vec![prefers(1, label::ZONE, "zone-a")];
    assert_eq!(
        zones(&cluster.clone().pending("web", 1, &shy).plan()),
        ["zone-a"],
        "anti-affinity before node affinity"
    );
    let mut both = app("web", 500);
    both.preferred_node_affinity = vec![prefers(100, label::ZONE, "zone-a")];
    both.topology_spread = vec![anyway(label::ZONE)];
    let plan = cluster.clone().pending("web", 3, &both).plan();
    assert_eq!(zones(&plan), ["zone-a", "zone-b", "zone-c"], "node affinity before spread");
}

#[test]
fn a_taint_to_be_avoided_is_given_way_on_last() {
    let mut tainted = pool("tainted");
    tainted.taints = vec![taint("old", TaintEffect::PreferNoSchedule)];
    tainted.requirements.push(requirement(label::ZONE, Operator::In, &["zone-a"]));
    let mut other = pool("other");
    other.requirements.push(requirement(label::ZONE, Operator::In, &["zone-b"]));
    let mut one = shape(500, 1);
    one.preferred_node_affinity = vec![prefers(1, label::ZONE, "zone-a")];
    let plan = Cluster::with([tainted.clone(), other]).pending("p", 1, &one).plan();
    assert_eq!((plan.launches[0].node_pool.as_str(), zones(&plan)), ("other", vec!["zone-b"]));
    let plan = Cluster::with([tainted]).pending("p", 1, &one).plan();
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (1, 0));
}

#[test]
fn preferred_anti_affinity_may_be_given_up() {
    let mut shy = app("shy", 100);
    shy.pod_affinity = vec![preferred(1, affinity(label::HOSTNAME, true, "web"))];
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.bound("shy", "n1", &shy);
    // Running pods are not affected. New pods avoid nodes with web pods.
    let plan = cluster.clone().pending("web", 1, &app("web", 100)).plan();
    assert_eq!(kept(&plan), [("n1", 1)]);
    cluster.bound("web", "n1", &app("web", 100));
    let plan = cluster.pending("late", 1, &shy).plan();
    assert_eq!((kept(&plan), plan.launches.len()), (vec![], 1));
}

#[test]
fn pods_that_have_no_place_at_all_still_say_why() {
    let mut one = app("web", 100_000);
    one.topology_spread = vec![anyway(label::ZONE), anyway(label::HOSTNAME)];
    one.pod_affinity = vec![preferred(3, affinity(label::ZONE, false, "web"))];
    one.preferred_node_affinity = vec![prefers(1, label::ZONE, "zone-a"), prefers(2, label::ZONE, "zone-b")];
    let plan = Cluster::new().pending("web", 3, &one).plan();
    assert_eq!((plan.unschedulable.len(), refused(&plan)), (3, vec![ReasonCode::InsufficientResources]));
    // Limits do not depend on preferences either.
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("cpu", 2000);
    one.requests.set("cpu", 1500);
    let plan = cluster.pending("web", 3, &one).plan();
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (1, 2));
}

#[test]
fn consolidation_does_not_take_away_what_pods_prefer() {
    let mut web = app("web", 500);
    web.pod_affinity = vec![preferred(1, affinity(label::HOSTNAME, true, "web"))];
    let mut cluster = Cluster::new();
    for name in ["n1", "n2"] {
        cluster.node(name, "c5.large");
        cluster.bound(&format!("p-{name}"), name, &web);
    }
    assert_eq!(removed(&cluster.plan()), []);
    let options = PlanOptions { preference_policy: PreferencePolicy::Ignore, ..PlanOptions::default() };
    assert_eq!(cluster.plan_by(&options).terminations.len(), 1);
    // A preference that cannot be satisfied does not block the removal of the node.
    let mut far = shape(500, 1);
    far.preferred_node_affinity = vec![prefers(1, label::ZONE, "zone-x")];
    let mut cluster = Cluster::new();
    for name in ["n1", "n2"] {
        cluster.node(name, "c5.large");
        cluster.bound(&format!("p-{name}"), name, &far);
    }
    assert_eq!(cluster.plan().terminations.len(), 1);
}

#[test]
fn pods_that_cannot_avoid_a_taint_share_nodes_with_those_that_need_not() {
    let mut tainted = pool("tainted");
    tainted.taints = vec![taint("old", TaintEffect::PreferNoSchedule)];
    let mut tolerant = shape(500, 1);
    tolerant.tolerations = vec![tolerate("old")];
    let mut cluster = Cluster::with([tainted.clone()]);
    let plan = cluster.pending("a", 2, &tolerant).pending("b", 2, &shape(500, 1)).plan();
    assert_eq!((launched(&plan), plan.unschedulable.len()), (vec![("c5.large".to_owned(), 4)], 0));
    // If there is another pool, it is used as long as its limits allow.
    let mut other = pool("other");
    other.limits.set("cpu", 2000);
    let plan = Cluster::with([tainted, other]).pending("b", 3, &shape(1500, 1)).plan();
    let mut pools: Vec<&str> = plan.launches.iter().map(|one| one.node_pool.as_str()).collect();
    pools.sort_unstable();
    assert_eq!((pools.first(), plan.unschedulable.len()), (Some(&"other"), 0));
}
