//! CapacityQuotas limit nodes by their labels, across NodePools.

use super::builder::*;
use super::properties::any_social_cluster;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Plan, PlanOptions, ReasonCode};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::snapshot::{CapacityQuota, NodePool, NodeState, SnapshotIndex, quota_resource};
use proptest::prelude::*;

fn limit(cluster: &mut Cluster, name: &str, selector: &[NodeSelectorRequirement], limits: &[(&str, i64)]) {
    cluster.snapshot.capacity_quotas.push(CapacityQuota {
        name: name.into(),
        selector: selector.to_vec(),
        limits: limits.iter().copied().collect(),
    });
}

/// A pool whose nodes have the label team=`team`, of one type.
fn team(name: &str, team: &str) -> NodePool {
    let mut pool = pool(name);
    pool.labels.insert("team".into(), team.into());
    pool.requirements.push(requirement(label::INSTANCE_TYPE, Operator::In, &["m5.xlarge"]));
    pool
}

fn of_team(value: &str) -> Vec<NodeSelectorRequirement> {
    vec![requirement("team", Operator::In, &[value])]
}

/// Launches by pool, sorted.
fn by_pool(plan: &Plan) -> Vec<&str> {
    let mut pools: Vec<&str> = plan.launches.iter().map(|launch| launch.node_pool.as_str()).collect();
    pools.sort_unstable();
    pools
}

fn reasons(plan: &Plan) -> Vec<(ReasonCode, &str)> {
    let reasons = plan.unschedulable.iter().flat_map(|one| one.reasons.iter());
    reasons.map(|reason| (reason.code, reason.message.as_str())).collect()
}

#[test]
fn a_quota_is_shared_by_all_pools_of_any_weight() {
    for weight in [0, 1] {
        let mut other = team("other", "b");
        other.weight = weight;
        let mut cluster = Cluster::with([team("default", "a"), other]);
        limit(&mut cluster, "all", &[], &[("nodes", 3)]);
        for (name, value) in [("a", "a"), ("b", "b")] {
            let mut one = shape(3000, 7);
            one.node_selector.insert("team".into(), value.into());
            cluster.pending(name, 2, &one);
        }
        let plan = cluster.plan();
        assert_eq!((plan.launches.len(), plan.unschedulable.len()), (3, 1), "weight {weight}");
    }
}

#[test]
fn pods_go_to_pools_that_the_quota_does_not_count() {
    for weight in [0, 1] {
        let mut preferred = team("a", "a");
        preferred.weight = weight;
        let mut cluster = Cluster::with([preferred, team("b", "b")]);
        limit(&mut cluster, "team-a", &of_team("a"), &[("cpu", 4000)]);
        let plan = cluster.pending("p", 3, &shape(3000, 7)).plan();
        assert_eq!((plan.launches.len(), plan.unschedulable.len()), (3, 0));
        let of_a = by_pool(&plan).iter().filter(|pool| **pool == "a").count();
        assert!(of_a <= 1, "{plan:#?}");
        assert!(weight == 0 || of_a == 1, "the preferred pool first: {plan:#?}");
    }
}

#[test]
fn nodes_count_whatever_their_pool_also_those_that_start_or_go() {
    let mut cluster = Cluster::with([team("default", "a")]);
    limit(&mut cluster, "team-a", &of_team("a"), &[("cpu", 16_000)]);
    for (name, state) in [("going", NodeState::Initialized), ("starting", NodeState::InFlight)] {
        let node = cluster.node(name, "m5.xlarge");
        node.labels.insert("team".into(), "a".into());
        (node.cordoned, node.state, node.deleting) = (true, state, name == "going");
    }
    let foreign = cluster.node("foreign", "m5.xlarge");
    foreign.labels.insert("team".into(), "a".into());
    (foreign.cordoned, foreign.node_pool, foreign.node_claim) = (true, None, None);
    // Not of the team.
    cluster.node("other", "m5.2xlarge").cordoned = true;
    let plan = cluster.pending("p", 2, &shape(3000, 7)).plan_with(false);
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (1, 1));
    let message = "CapacityQuota team-a: spec.limits.resources.cpu is 16, 16 in use; the smallest matching instance \
                   type has 4: raise it to 20 or more";
    assert_eq!(reasons(&plan)[0], (ReasonCode::LimitReached, message));
}

#[test]
fn the_largest_listed_type_counts() {
    let mut cluster = Cluster::new();
    limit(&mut cluster, "all", &[], &[("cpu", 8000)]);
    let plan = cluster.pending("p", 2, &shape(3000, 7)).plan();
    assert_eq!(plan.launches.len(), 1, "both pods share a node");
    let mut cluster = Cluster::new();
    limit(&mut cluster, "all", &[], &[("cpu", 4000)]);
    let plan = cluster.pending("p", 1, &shape(500, 1)).plan();
    let sizes = plan.launches[0].offerings.iter().map(|one| cluster.catalog.get(&one.instance_type).unwrap());
    assert!(sizes.clone().all(|kind| kind.capacity.get("cpu") <= 4000), "{plan:#?}");
}

#[test]
fn a_quota_of_a_capacity_type_counts_launches_that_may_become_it() {
    let mut any = team("default", "a");
    any.requirements[1] = requirement(label::CAPACITY_TYPE, Operator::In, &["spot", "on-demand"]);
    let mut cluster = Cluster::with([any]);
    let spot = requirement(label::CAPACITY_TYPE, Operator::In, &["spot"]);
    limit(&mut cluster, "spot", &[spot], &[("nodes", 1)]);
    let plan = cluster.pending("p", 3, &shape(3000, 7)).plan();
    let cheapest = plan.launches.iter().map(|launch| launch.offerings[0].capacity_type);
    let spot = cheapest.filter(|bought| *bought == CapacityType::Spot).count();
    assert_eq!((plan.launches.len(), spot), (3, 1), "{plan:#?}");
    let may_be_spot = |launch: &&plimsoll_model::plan::Launch| {
        launch.offerings.iter().any(|one| one.capacity_type == CapacityType::Spot)
    };
    assert_eq!(plan.launches.iter().filter(may_be_spot).count(), 1);
}

#[test]
fn a_claim_holds_what_its_launch_may_become() {
    let zone_a = || requirement(label::ZONE, Operator::In, &["zone-a"]);
    let plan = |held: Option<i64>| {
        let mut cluster = Cluster::with([team("default", "a")]);
        limit(&mut cluster, "zone-a", &[zone_a()], &[("nodes", 1)]);
        let node = cluster.node("launching", "m5.xlarge");
        (node.state, node.cordoned) = (NodeState::InFlight, true);
        node.labels.remove(label::ZONE);
        if let Some(held) = held {
            node.limit_usage.set(&quota_resource("zone-a", "nodes"), held);
        }
        let mut one = shape(3000, 7);
        one.node_selector.insert(label::ZONE.into(), "zone-a".into());
        cluster.pending("p", 1, &one).plan_with(false).launches.len()
    };
    assert_eq!([plan(None), plan(Some(1)), plan(Some(0))], [0, 0, 1]);
}

#[test]
fn a_replacement_has_to_fit_beside_the_node_that_it_replaces() {
    let launches = |nodes: i64| {
        let mut cluster = Cluster::new();
        limit(&mut cluster, "all", &[], &[("nodes", nodes)]);
        cluster.node("large", "m5.2xlarge");
        cluster.bound("p", "large", &shape(500, 1));
        cluster.plan().launches.len()
    };
    assert_eq!([launches(1), launches(2)], [0, 1]);
}

#[test]
fn static_pools_stay_within_quotas_beside_other_launches() {
    let mut fixed = team("fixed", "a");
    fixed.replicas = Some(5);
    let mut cluster = Cluster::with([team("default", "a"), fixed]);
    limit(&mut cluster, "team-a", &of_team("a"), &[("cpu", 12_000)]);
    let plan = cluster.pending("p", 1, &shape(3000, 7)).plan();
    assert_eq!(by_pool(&plan), ["default", "fixed", "fixed"]);
}

#[test]
fn a_changed_quota_holds_in_the_next_plan_of_a_planner() {
    let mut cluster = Cluster::with([team("default", "a")]);
    cluster.pending("p", 3, &shape(3000, 7));
    let mut planner = crate::Planner::default();
    for (nodes, expected) in [(None, 3), (Some(1), 1), (Some(2), 2), (None, 3)] {
        cluster.snapshot.capacity_quotas.clear();
        nodes.into_iter().for_each(|nodes| limit(&mut cluster, "all", &[], &[("nodes", nodes)]));
        let snapshot = cluster.snapshot.sorted();
        let index = SnapshotIndex::new(&snapshot);
        let plan = planner.solve(&snapshot, &index, &cluster.catalogs(), &PlanOptions::default());
        assert_eq!(plan.launches.len(), expected, "{nodes:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// `plan` checks that no quota is exceeded.
    #[test]
    fn no_quota_is_exceeded(
        cluster in any_social_cluster(),
        quotas in prop::collection::vec((0..5_usize, 0..12_i64, 0..40_i64), 1..4),
    ) {
        let mut cluster = cluster;
        for pool in &mut cluster.snapshot.node_pools {
            pool.requirements[1].values.push("spot".into());
        }
        let selectors = [
            vec![],
            vec![requirement(label::ZONE, Operator::In, &["zone-a"])],
            vec![requirement(label::CAPACITY_TYPE, Operator::NotIn, &["on-demand"])],
            vec![requirement("karpenter.k8s.aws/instance-family", Operator::In, &["m5", "r5"])],
            vec![requirement(label::NODE_POOL, Operator::Exists, &[]), requirement("team", Operator::DoesNotExist, &[])],
        ];
        for (number, (selector, nodes, cpu)) in quotas.into_iter().enumerate() {
            limit(&mut cluster, &format!("q-{number}"), &selectors[selector], &[("nodes", nodes), ("cpu", cpu * 1000)]);
        }
        let plan = cluster.plan();
        prop_assert!(plan.lower_bound <= plan.hourly);
    }
}
