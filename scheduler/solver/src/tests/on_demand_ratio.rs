//! Ratios of On-Demand to Spot capacity of NodePools and workloads.

use super::builder::*;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Plan, ReasonCode};
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{
    CapacityQuota, NodePool, OnDemandMix, OnDemandRatio, PodShape, UnavailableOffering, VolumeTopology,
};
use plimsoll_model::time::Millis;

const OD: CapacityType = CapacityType::OnDemand;
const SPOT: CapacityType = CapacityType::Spot;

/// A pool that may launch both.
fn both() -> NodePool {
    let mut pool = pool("default");
    pool.requirements = vec![requirement(label::ARCH, Operator::In, &["amd64"])];
    pool
}

fn with_ratio(base: u32, percentage: u32) -> PodShape {
    let ratio = OnDemandRatio { workload: "Deployment/web".into(), mix: OnDemandMix { base, percentage } };
    PodShape { on_demand: Some(ratio), ..shape(1000, 2) }
}

/// As large as the smallest node, and spread over zones.
fn spread_with_ratio(base: u32, percentage: u32) -> PodShape {
    let mut pod = PodShape { requests: shape(2000, 4).requests, ..with_ratio(base, percentage) };
    pod.labels.insert("app".into(), "web".into());
    pod.topology_spread = vec![spread(label::ZONE, 1)];
    pod
}

/// Number of pods on launches that are certainly On-Demand, and on other launches.
fn split(plan: &Plan) -> (usize, usize) {
    let (mut on_demand, mut other) = (0, 0);
    for launch in &plan.launches {
        let sure = launch.offerings.iter().all(|one| one.capacity_type == OD);
        *(if sure { &mut on_demand } else { &mut other }) += launch.pods.len();
    }
    (on_demand, other)
}

#[test]
fn a_workload_gets_its_share_on_demand_and_the_rest_on_spot() {
    for ((base, percentage), expected) in [((0, 30), (3, 7)), ((2, 0), (2, 8)), ((2, 50), (6, 4)), ((0, 0), (0, 10))] {
        // As large as the smallest node, so an On-Demand node has no capacity left for other pods.
        let pod = PodShape { requests: shape(2000, 4).requests, ..with_ratio(base, percentage) };
        let plan = Cluster::with([both()]).pending("p", 10, &pod).plan();
        assert_eq!((split(&plan), plan.unschedulable.len()), (expected, 0), "{base} and {percentage} %");
    }
}

#[test]
fn a_workload_that_is_spread_over_zones_gets_no_more_than_its_share_on_demand() {
    let plan = Cluster::with([both()]).pending("p", 10, &spread_with_ratio(0, 20)).plan();
    assert_eq!((split(&plan), plan.unschedulable.len()), ((2, 8), 0));
}

#[test]
fn a_spread_counts_the_pods_on_spot_beside_those_that_must_run_on_demand() {
    let pod = spread_with_ratio(1, 0);
    let mut cluster = Cluster::with([both()]);
    for (name, zone) in [("n1", "zone-a"), ("n2", "zone-a"), ("n3", "zone-b"), ("n4", "zone-c")] {
        cluster.node_of(name, "c5.large", "default", SPOT).labels.insert(label::ZONE.into(), zone.into());
        cluster.bound(&format!("on-{name}"), name, &pod);
    }
    // On-Demand is cheapest in the zone that has a pod more than the others.
    let offerings = cluster.catalog.instance_types.iter_mut().flat_map(|kind| &mut kind.offerings);
    offerings.filter(|one| one.zone == "zone-a" && one.capacity_type == OD).for_each(|one| one.price.0 /= 2);
    let plan = cluster.pending("p", 1, &pod).plan_with(false);
    assert_eq!((split(&plan), plan.unschedulable.len()), ((1, 0), 0));
    assert!(!distinct(&plan, |one| &one.zone).contains(&"zone-a"), "{plan:#?}");
}

#[test]
fn pods_that_run_count() {
    let mut cluster = Cluster::with([both()]);
    cluster.node_of("old", "m5.2xlarge", "default", OD);
    cluster.node_of("cheap", "m5.large", "default", SPOT);
    (0..4).for_each(|index| drop(cluster.bound(&format!("r{index}"), "old", &with_ratio(0, 50)).name.clone()));
    // All 4 existing pods run On-Demand, and 4 of 8 must. All new pods may run on Spot, but existing capacity is used
    // first.
    cluster.snapshot.nodes[0].cordoned = true;
    cluster.snapshot.nodes[1].cordoned = true;
    cluster.pending("p", 4, &with_ratio(0, 50));
    assert_eq!(split(&cluster.plan_with(false)), (0, 4));
    cluster.pending("q", 4, &with_ratio(0, 50));
    assert_eq!(split(&cluster.plan_with(false)), (2, 6));
}

#[test]
fn free_capacity_of_on_demand_nodes_is_for_the_pods_that_must_run_there() {
    // Several shapes, since otherwise hashes of shapes decide.
    for milli in 901..=908 {
        let mut cluster = Cluster::with([both()]);
        cluster.node_of("n", "c5.large", "default", OD);
        let pod = PodShape { requests: shape(milli, 2).requests, ..with_ratio(0, 50) };
        let plan = cluster.pending("p", 4, &pod).plan_with(false);
        assert_eq!((kept(&plan), split(&plan)), (vec![("n", 2)], (0, 2)), "{milli}m");
    }
}

#[test]
fn what_runs_on_demand_is_not_moved_to_spot_below_the_share() {
    let mut cluster = Cluster::with([both()]);
    cluster.node_of("n", "m5.large", "default", OD);
    cluster.bound("a", "n", &with_ratio(1, 0));
    let plan = cluster.plan();
    assert!(plan.launches.iter().all(|one| one.offerings.iter().all(|offer| offer.capacity_type == OD)), "{plan:#?}");
    cluster.snapshot.shapes.clear();
    cluster.snapshot.pods.clear();
    cluster.bound("a", "n", &shape(1000, 2));
    let plan = cluster.plan();
    assert_eq!(plan.launches[0].offerings[0].capacity_type, SPOT, "without a ratio, Spot is cheaper");
}

#[test]
fn workloads_count_apart() {
    let mut other = with_ratio(1, 0);
    other.on_demand.as_mut().unwrap().workload = "Deployment/api".into();
    let plan = Cluster::with([both()]).pending("p", 3, &with_ratio(1, 0)).pending("q", 3, &other).plan();
    assert_eq!(split(&plan), (2, 4));
}

#[test]
fn a_pool_says_it_for_all_pods_that_do_not() {
    let mut pool = both();
    pool.on_demand = Some(OnDemandMix { base: 1, percentage: 50 });
    let mut cluster = Cluster::with([pool]);
    cluster.pending("p", 3, &shape(1000, 2)).pending("q", 4, &shape(500, 2)).pending("own", 2, &with_ratio(0, 0));
    // The first of 7, and half of the other 6.
    assert_eq!(split(&cluster.plan()), (4, 5));
}

#[test]
fn a_pod_that_no_pool_can_run_takes_no_share_of_a_pool() {
    let lost = VolumeTopology {
        claim: "data".into(),
        driver: String::new(),
        alternatives: Vec::new(),
        problem: Some("persistent volume claim \"data\" not found".into()),
    };
    let small = PodShape { volumes: vec![lost], ..shape(500, 1) };
    let plan = Cluster::with([pool_with_ratio(1, 0)]).pending("a", 1, &small).pending("b", 1, &shape(2000, 4)).plan();
    assert_eq!((split(&plan), refused(&plan)), ((1, 0), vec![ReasonCode::VolumeProblem]));
}

/// A pool with a ratio.
fn pool_with_ratio(base: u32, percentage: u32) -> NodePool {
    NodePool { on_demand: Some(OnDemandMix { base, percentage }), ..both() }
}

/// A shape as large as the smallest node, with a node selector.
fn selecting(key: &str, value: &str) -> PodShape {
    PodShape { node_selector: [(key.to_owned(), value.to_owned())].into(), ..shape(2000, 4) }
}

#[test]
fn pods_of_a_pool_that_can_only_run_on_spot_do_so() {
    let free = shape(2000, 4);
    let mut cluster = Cluster::with([pool_with_ratio(0, 50)]);
    cluster.pending("a", 2, &selecting(label::CAPACITY_TYPE, "spot")).pending("b", 2, &free);
    let plan = cluster.plan();
    assert_eq!((split(&plan), plan.unschedulable.len()), ((2, 2), 0));
    let mut cluster = Cluster::with([pool_with_ratio(1, 0)]);
    cluster.close_offerings(|one| one.zone == "zone-b" && one.capacity_type == OD);
    let plan = cluster.pending("a", 1, &selecting(label::ZONE, "zone-b")).pending("b", 2, &free).plan();
    assert_eq!((split(&plan), plan.unschedulable.len()), ((1, 2), 0), "a zone without On-Demand");
}

#[test]
fn pods_that_can_only_run_on_demand_count_first() {
    let mut cluster = Cluster::with([pool_with_ratio(1, 0)]);
    cluster.pending("a", 1, &shape(2000, 4)).pending("b", 2, &selecting(label::CAPACITY_TYPE, "on-demand"));
    assert_eq!(split(&cluster.plan()), (2, 1));
}

#[test]
fn the_share_of_a_pool_is_taken_from_all_workloads_whatever_their_names() {
    for names in [["a", "b"], ["b", "a"]] {
        let mut cluster = Cluster::with([pool_with_ratio(0, 50)]);
        cluster.pending(names[0], 2, &shape(6000, 4)).pending(names[1], 2, &shape(500, 1));
        let plan = cluster.plan();
        // Each large pod needs a c5.2xlarge, and one of them is On-Demand. It has room for the small pods.
        assert_eq!((plan.hourly.0, plan.unschedulable.len()), (320_000 + 128_000, 0), "{names:?}");
    }
    // One of two pods: the smaller one.
    for names in [["a", "b"], ["b", "a"]] {
        let mut cluster = Cluster::with([pool_with_ratio(1, 0)]);
        cluster.pending(names[0], 1, &shape(7500, 15)).pending(names[1], 1, &shape(1500, 3));
        assert_eq!(cluster.plan().hourly.0, 80_000 + 128_000, "{names:?}");
    }
}

#[test]
fn of_different_pods_the_one_whose_most_expensive_request_costs_less_runs_on_demand() {
    let mut tiny = shape(0, 0);
    tiny.requests = [("memory", GIB / 16), ("pods", 1)].into_iter().collect();
    // Memory costs at least 7,875 per GiB, and a core 40,000.
    for (large, small, spot) in [(shape(7500, 15), tiny, 128_000), (shape(1000, 30), shape(1500, 1), 100_800)] {
        for names in [["a", "b"], ["b", "a"]] {
            let mut cluster = Cluster::with([pool_with_ratio(1, 0)]);
            cluster.pending(names[0], 1, &large).pending(names[1], 1, &small);
            assert_eq!(cluster.plan().hourly.0, 80_000 + spot, "{names:?}");
        }
    }
}

#[test]
fn the_share_of_the_cheapest_pool_applies_whatever_its_name() {
    for (name, other) in [("a", "b"), ("b", "a")] {
        // The other pool sells On-Demand only, so it is dearer than Spot.
        let shared = NodePool { name: name.into(), ..pool_with_ratio(0, 100) };
        let plan = Cluster::with([shared, pool(other)]).pending("p", 4, &shape(2000, 4)).plan();
        assert_eq!((split(&plan), plan.unschedulable.len()), ((4, 0), 0), "{name}");
        // Without a share, the cheaper pool may launch Spot nodes.
        let dearer = NodePool { on_demand: Some(OnDemandMix { base: 0, percentage: 100 }), ..pool(name) };
        let cheaper = NodePool { name: other.into(), ..both() };
        let plan = Cluster::with([dearer, cheaper]).pending("p", 4, &shape(2000, 4)).plan();
        assert_eq!((split(&plan), plan.unschedulable.len()), ((0, 4), 0), "{name}");
    }
}

#[test]
fn a_pool_at_its_limit_does_not_keep_pods_from_the_share_of_the_next_pool() {
    let mut first = NodePool { weight: 10, ..pool("a") };
    first.limits.set("cpu", 0);
    let next = NodePool { name: "b".into(), ..pool_with_ratio(0, 100) };
    let mut cluster = Cluster::with([first, next]);
    assert_eq!(split(&cluster.pending("p", 4, &shape(2000, 4)).plan()), (4, 0));
    // The limit leaves one core of two.
    cluster.pool().limits.set("cpu", 3000);
    cluster.node_of("n", "c5.large", "a", OD);
    cluster.bound("full", "n", &shape(2000, 4));
    assert_eq!(split(&cluster.plan_with(false)), (4, 0));
}

#[test]
fn a_pool_at_a_quota_does_not_hand_its_share_to_the_next_pool() {
    let first = NodePool { name: "a".into(), weight: 10, ..pool_with_ratio(0, 100) };
    let mut cluster = Cluster::with([first, NodePool { name: "b".into(), ..both() }]);
    cluster.pending("p", 4, &shape(2000, 4));
    assert_eq!(split(&cluster.plan()), (4, 0));
    let selector = vec![requirement(label::NODE_POOL, Operator::In, &["a"])];
    let limits = [("nodes", 1)].into_iter().collect();
    cluster.snapshot.capacity_quotas.push(CapacityQuota { name: "of-a".into(), selector, limits });
    cluster.node_of("n", "c5.large", "a", OD);
    cluster.bound("full", "n", &shape(2000, 4));
    assert_eq!(split(&cluster.plan_with(false)), (0, 4));
}

#[test]
fn a_temporary_lack_of_on_demand_capacity_leaves_pods_pending() {
    let mut cluster = Cluster::with([pool_with_ratio(1, 0)]);
    cluster.snapshot.unavailable_offerings.push(UnavailableOffering {
        instance_type: None,
        zone: None,
        capacity_type: OD,
        remaining: Millis(60_000),
    });
    let plan = cluster.pending("p", 2, &shape(2000, 4)).plan();
    assert_eq!((split(&plan), plan.unschedulable.len()), ((0, 1), 1));
}

#[test]
fn free_capacity_of_a_spot_node_is_not_for_pods_that_must_run_on_demand() {
    // A Spot node of any type has room for both pods.
    for (pool, pod) in [(pool_with_ratio(1, 0), shape(1000, 2)), (both(), with_ratio(1, 0))] {
        let mut cluster = Cluster::with([pool]);
        cluster.snapshot.unavailable_offerings.push(UnavailableOffering {
            instance_type: None,
            zone: None,
            capacity_type: OD,
            remaining: Millis(60_000),
        });
        let plan = cluster.pending("p", 2, &pod).plan();
        assert_eq!((split(&plan), plan.unschedulable.len()), ((0, 1), 1));
        cluster.node_of("n", "c5.xlarge", "default", SPOT);
        cluster.bound("a", "n", &pod);
        let plan = cluster.plan_with(false);
        let placed: usize = plan.placements.iter().map(|to| to.pods.len()).sum();
        assert_eq!((split(&plan), placed, plan.unschedulable.len()), ((0, 0), 1, 1), "on an existing node");
    }
}

#[test]
fn where_nothing_is_sold_on_demand_the_pod_is_told() {
    let mut pool = both();
    pool.requirements.push(requirement(label::CAPACITY_TYPE, Operator::In, &["spot"]));
    let plan = Cluster::with([pool]).pending("p", 2, &with_ratio(1, 0)).plan();
    assert_eq!((split(&plan), refused(&plan)), ((0, 1), vec![ReasonCode::RequirementsIncompatible]));
    let text = "no offering of the NodePool satisfies karpenter.sh/capacity-type In [on-demand, reserved] (there is spot); \
                plimsoll.dev/on-demand-base or plimsoll.dev/on-demand-percentage requires On-Demand for this pod";
    assert_eq!(message_of(&plan, ReasonCode::RequirementsIncompatible), text);
    let mut pool = pool_with_ratio(1, 0);
    pool.requirements.push(requirement(label::CAPACITY_TYPE, Operator::In, &["spot"]));
    let plan = Cluster::with([pool]).pending("p", 2, &shape(2000, 4)).plan();
    assert_eq!((split(&plan), plan.unschedulable.len()), ((0, 1), 1));
    assert_eq!(message_of(&plan, ReasonCode::RequirementsIncompatible), text);
    let mut cluster = Cluster::with([both()]);
    for kind in &mut cluster.catalog.instance_types {
        kind.offerings.iter_mut().for_each(|one| one.available = one.capacity_type == SPOT);
    }
    let plan = cluster.pending("p", 2, &with_ratio(1, 0)).plan();
    assert!(message_of(&plan, ReasonCode::NoOffering).ends_with(
        "; plimsoll.dev/on-demand-base or plimsoll.dev/on-demand-percentage requires On-Demand for this pod"
    ));
    // In one case, the ratio is not the cause. In the other, the pod has none.
    let mut elsewhere = with_ratio(9, 0);
    elsewhere.node_selector = [(label::ZONE.to_owned(), "zone-x".to_owned())].into();
    let mut own = shape(1000, 2);
    own.node_selector = [(label::CAPACITY_TYPE.to_owned(), "on-demand".to_owned())].into();
    for pod in [elsewhere, own] {
        let plan = cluster.clone().pending("q", 1, &pod).plan();
        let reasons =
            plan.unschedulable.iter().filter(|one| one.pod.name == "ns/q-0").flat_map(|one| one.reasons.iter());
        assert!(reasons.clone().count() == 1 && reasons.clone().all(|one| !one.message.contains("on-demand-base")));
    }
}

#[test]
fn the_order_of_pods_does_not_matter() {
    let mut cluster = Cluster::with([both()]);
    cluster.pending("p", 9, &with_ratio(1, 30));
    let plan = cluster.plan();
    cluster.snapshot.pods.reverse();
    cluster.snapshot.shapes.reverse();
    assert_eq!(cluster.plan(), plan);
}
