//! Settings of pools: requirements, custom labels, weights, limits, minValues, and offerings without capacity.

use super::builder::*;
use plimsoll_model::catalog::{CapacityType, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::plan::{MinValuesPolicy, PlanOptions, ReasonCode};
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{PoolProblem, PreferredTerm, UnavailableOffering};
use plimsoll_model::time::Millis;

fn narrowed(requirements: &[(&str, Operator, &[&str])]) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.pool().requirements.extend(requirements.iter().map(|(key, op, values)| requirement(key, *op, values)));
    cluster
}

#[test]
fn requirements_of_the_pool_bound_what_is_launched() {
    let generation = ("karpenter.k8s.aws/instance-generation", Operator::Gt, &["4"][..]);
    let category = ("karpenter.k8s.aws/instance-category", Operator::NotIn, &["c", "r"][..]);
    let plan = narrowed(&[generation, category]).pending("p", 1, &shape(1000, 1)).plan();
    assert_eq!(distinct(&plan, |one| &one.instance_type), ["m5.2xlarge", "m5.large", "m5.xlarge"]);
    let mut arm = Cluster::new();
    arm.pool().requirements[0].values = vec!["arm64".into()];
    assert_eq!(launched(&arm.pending("p", 1, &shape(1000, 1)).plan()), [("m6g.large".to_owned(), 1)]);
    let system = (label::OS, Operator::In, &["windows"][..]);
    assert_eq!(
        refused(&narrowed(&[system]).pending("p", 1, &shape(1, 0)).plan()),
        [ReasonCode::RequirementsIncompatible]
    );
}

#[test]
fn contradicting_requirements_leave_nothing() {
    let plan = narrowed(&[("team", Operator::In, &["a"]), ("team", Operator::In, &["b"])])
        .pending("p", 1, &shape(1, 0))
        .plan();
    assert_eq!(refused(&plan), [ReasonCode::RequirementsIncompatible]);
}

#[test]
fn an_open_label_takes_one_value_per_node() {
    let mut cluster = narrowed(&[("team", Operator::In, &["blue", "green"])]);
    for team in ["blue", "green", "red"] {
        let mut one = shape(500, 0);
        one.node_selector.insert("team".into(), team.into());
        cluster.pending(team, 1, &one);
    }
    let plan = cluster.pending("any", 1, &shape(500, 0)).plan();
    assert_eq!(plan.launches.len(), 2);
    assert_eq!(plan.unschedulable[0].pod.name, "ns/red-0");
    for launch in &plan.launches {
        let own = |pod: &&plimsoll_model::plan::PodRef| !pod.name.contains("any");
        let team =
            launch.pods.iter().find(own).unwrap().name.trim_start_matches("ns/").trim_end_matches("-0").to_owned();
        assert!(
            launch.requirements.contains(&requirement("team", Operator::In, &[&team])),
            "{:?}",
            launch.requirements
        );
    }
}

#[test]
fn exclusions_of_an_open_label_hold_for_all_pods_of_a_node() {
    let mut cluster = narrowed(&[("team", Operator::Exists, &[])]);
    let mut not_blue = shape(500, 0);
    not_blue.required_node_affinity = vec![term(&[requirement("team", Operator::NotIn, &["blue"])])];
    let mut blue = shape(500, 0);
    blue.node_selector.insert("team".into(), "blue".into());
    let mut any = shape(500, 0);
    any.required_node_affinity = vec![term(&[requirement("team", Operator::Exists, &[])])];
    let plan = cluster.pending("not", 1, &not_blue).pending("blue", 1, &blue).pending("any", 1, &any).plan();
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (2, 0));
}

#[test]
fn labels_of_the_template_can_be_selected() {
    let mut cluster = Cluster::new();
    cluster.pool().labels.insert("team".into(), "blue".into());
    let mut one = shape(500, 0);
    one.node_selector.insert("team".into(), "blue".into());
    one.node_selector.insert(label::NODE_POOL.into(), "default".into());
    assert_eq!(cluster.pending("p", 1, &one).plan().launches.len(), 1);
}

#[test]
fn the_heavier_pool_is_filled_first_and_the_next_takes_the_rest() {
    let mut first = pool("first");
    first.weight = 100;
    first.limits.set("cpu", 4000);
    let plan = Cluster::with([pool("second"), first]).pending("p", 2, &shape(3000, 1)).plan();
    let pools: Vec<&str> = plan.launches.iter().map(|one| one.node_pool.as_str()).collect();
    assert_eq!(pools, ["first", "second"]);
}

#[test]
fn limits_count_what_is_there_and_the_largest_type_that_a_launch_lists() {
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("cpu", 10_000);
    cluster.node("n1", "c5.large");
    cluster.bound("b", "n1", &shape(2000, 1));
    let plan = cluster.pending("p", 4, &shape(3000, 1)).plan();
    // 8 cores are left: exactly two nodes of 4 cores.
    assert_eq!(plan.launches.iter().map(|one| one.pods.len()).sum::<usize>(), 2);
    assert_eq!((plan.unschedulable.len(), refused(&plan)), (2, vec![ReasonCode::LimitReached]));
}

#[test]
fn a_limit_of_nodes_holds() {
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("nodes", 2);
    cluster.node("n1", "c5.large").deleting = true;
    let plan = cluster.pending("p", 30, &shape(1000, 1)).plan();
    assert_eq!(plan.launches.len(), 1, "nodes being deleted still count");
    assert_eq!(plan.launches[0].pods.len(), 8);
    assert_eq!(refused(&plan), [ReasonCode::LimitReached]);
}

#[test]
fn min_values_widen_what_a_launch_counts_and_fail_where_they_cannot() {
    let mut cluster = Cluster::new();
    let mut families = requirement("karpenter.k8s.aws/instance-family", Operator::Exists, &[]);
    families.min_values = Some(3);
    let mut sizes = requirement("karpenter.k8s.aws/instance-size", Operator::In, &["large", "xlarge", "2xlarge"]);
    sizes.min_values = Some(2);
    cluster.pool().requirements.extend([families, sizes]);
    cluster.pool().limits.set("cpu", 4000);
    // c5, m5 and r5 in large and xlarge: each launch is charged 4 cores.
    let plan = cluster.pending("p", 2, &shape(1900, 1)).plan();
    assert_eq!(
        (plan.launches.len(), plan.launches[0].pods.len()),
        (1, 1),
        "two pods would need 4 cores in one of two sizes"
    );
    assert_eq!(distinct(&plan, |one| &one.instance_type).len(), 6);
    cluster.pool().limits.set("cpu", 3000);
    assert_eq!(cluster.plan().launches.len(), 0);
    cluster.pool().limits.remove("cpu");
    let plan = cluster.plan();
    assert_eq!((plan.unschedulable.len(), plan.hourly.0), (0, 160_000));
}

#[test]
fn nodes_take_as_many_pods_as_min_values_permit() {
    let mut cluster = Cluster::new();
    // The smaller type is dearer, and only needed for the second value.
    cluster.catalog.instance_types =
        vec![instance("c5.4xlarge", 16, 64, 100_000), instance("m5.xlarge", 6, 64, 200_000)];
    let mut types = requirement(label::INSTANCE_TYPE, Operator::Exists, &[]);
    types.min_values = Some(2);
    cluster.pool().requirements.push(types);
    let plan = cluster.pending("p", 18, &shape(1000, 1)).plan();
    assert_eq!(launched(&plan), vec![("c5.4xlarge".to_owned(), 6); 3]);
}

#[test]
fn min_values_that_cannot_be_met_are_lowered_by_best_effort() {
    let mut cluster = Cluster::new();
    let mut families = requirement("karpenter.k8s.aws/instance-family", Operator::Exists, &[]);
    families.min_values = Some(9);
    cluster.pool().requirements.push(families.clone());
    cluster.pending("p", 2, &shape(1900, 1));
    assert_eq!(refused(&cluster.plan()), [ReasonCode::MinValuesNotMet]);
    let options = PlanOptions { min_values_policy: MinValuesPolicy::BestEffort, ..PlanOptions::default() };
    let plan = cluster.plan_by(&options);
    families.min_values = Some(3);
    assert_eq!((plan.unschedulable.len(), plan.launches[0].requirements.contains(&families)), (0, true));
    // minValues that can be met is kept.
    cluster.pool().requirements.pop();
    families.min_values = Some(2);
    cluster.pool().requirements.push(families.clone());
    assert!(cluster.plan_by(&options).launches[0].requirements.contains(&families));
}

#[test]
fn offerings_out_of_capacity_are_left_alone_until_their_time_is_over() {
    let mut cluster = Cluster::new();
    let out = |kind: Option<&str>, zone: Option<&str>, minutes: u64| UnavailableOffering {
        instance_type: kind.map(str::to_owned),
        zone: zone.map(str::to_owned),
        capacity_type: CapacityType::OnDemand,
        remaining: Millis::from_seconds(60 * minutes),
    };
    cluster.snapshot.unavailable_offerings = vec![out(Some("c5.large"), None, 3), out(None, Some("zone-a"), 2)];
    cluster.pending("p", 1, &shape(1000, 1));
    let plan = cluster.plan();
    assert_eq!(launched(&plan), [("m5.large".to_owned(), 1)]);
    assert_eq!(distinct(&plan, |one| &one.zone), ["zone-b", "zone-c"]);
    assert_eq!(plan.next_time, Some(NOW.plus(Millis::from_seconds(120))));
    cluster.snapshot.unavailable_offerings = vec![out(None, None, 1)];
    assert_eq!(refused(&cluster.plan()), [ReasonCode::OutOfCapacity]);
}

#[test]
fn offerings_that_cannot_be_asked_for_are_no_way_to_buy() {
    // The message names what all closed offerings share and no open one has.
    let reason = |closed: &dyn Fn(&InstanceType, &Offering) -> bool| {
        let mut cluster = Cluster::new();
        for kind in &mut cluster.catalog.instance_types {
            let seen = kind.clone();
            for (offering, of) in kind.offerings.iter_mut().zip(&seen.offerings) {
                offering.available = !closed(&seen, of);
            }
        }
        let mut one = shape(1000, 1);
        one.node_selector.insert(label::ZONE.into(), "zone-a".into());
        let plan = cluster.pending("p", 1, &one).plan();
        assert_eq!(refused(&plan), [ReasonCode::NoOffering]);
        message_of(&plan, ReasonCode::NoOffering).to_owned()
    };
    assert_eq!(reason(&|_, _| true), "none of the 9 matching offerings is available");
    assert_eq!(
        reason(&|kind, _| kind.architecture == "amd64"),
        "none of the 9 matching offerings is available, nor any other for amd64: the node class may have no image for \
         amd64 (status.amis)"
    );
    assert_eq!(
        reason(&|_, offering| offering.zone == "zone-a"),
        "none of the 9 matching offerings is available, nor any other in zone-a: the node class may have no subnet \
         there (status.subnets)"
    );
    // The cause is unknown: there are other offerings in the zone, and others for the architecture.
    assert_eq!(
        reason(&|kind, offering| kind.architecture == "amd64" && offering.zone == "zone-a"),
        "none of the 9 matching offerings is available"
    );
}

#[test]
fn pools_that_cannot_launch_say_why() {
    let mut missing = pool("class");
    missing.catalog = None;
    missing.not_ready = Some(PoolProblem { code: "NodeClassNotFound".into(), message: "default".into() });
    let mut fixed = pool("fixed");
    fixed.replicas = Some(2);
    let plan = Cluster::with([missing, fixed]).pending("p", 1, &shape(1000, 1)).plan();
    assert_eq!(refused(&plan), [ReasonCode::NodeClassNotFound, ReasonCode::NodePoolNotReady]);
    let plan = Cluster::with([]).pending("p", 1, &shape(1000, 1)).plan();
    assert_eq!(refused(&plan), [ReasonCode::NoNodePool]);
}

#[test]
fn no_launch_lists_more_than_it_needs_where_that_leaves_a_pod() {
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("cpu", 4000);
    let mut plain = shape(1500, 1);
    plain.node_selector.insert(label::ZONE.into(), "zone-a".into());
    // The pods prefer a larger node, which exceeds the limit. A node of two cores does not.
    let mut choosy = shape(1200, 1);
    choosy.node_selector.insert(label::ZONE.into(), "zone-b".into());
    let term = term(&[requirement("karpenter.k8s.aws/instance-size", Operator::In, &["xlarge"])]);
    choosy.preferred_node_affinity = vec![PreferredTerm { weight: 1, term }];
    let plan = cluster.pending("plain", 1, &plain).pending("choosy", 1, &choosy).plan();
    assert_eq!((plan.launches.len(), refused(&plan)), (2, vec![]));
}
