//! Contents of a launch other than its pods.

use super::builder::*;
use crate::solve;
use plimsoll_model::names::label;
use plimsoll_model::overlay::{NodeOverlay, PriceChange};
use plimsoll_model::plan::{PlanOptions, ReasonCode};
use plimsoll_model::requirements::Operator;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{CapacityQuota, LedgerPosition, NodeState, PodShape};
use plimsoll_model::taints::TaintEffect;

#[test]
fn a_launch_lists_every_offering_that_would_do_cheapest_first() {
    let plan = Cluster::new().pending("p", 1, &shape(3000, 1)).plan();
    let launch = &plan.launches[0];
    assert_eq!(launch.offerings.len(), 6 * 3);
    assert!(launch.offerings.is_sorted_by_key(|one| one.price));
    let types = ["c5.2xlarge", "c5.xlarge", "m5.2xlarge", "m5.xlarge", "r5.2xlarge", "r5.xlarge"];
    assert!(launch.requirements.contains(&requirement(label::INSTANCE_TYPE, Operator::In, &types)));
    assert!(launch.requirements.contains(&requirement(label::CAPACITY_TYPE, Operator::In, &["on-demand"])));
}

#[test]
fn a_launch_carries_taints_labels_and_the_daemon_sets_share() {
    let mut cluster = Cluster::new();
    cluster.pool().taints = vec![taint("t", TaintEffect::PreferNoSchedule)];
    cluster.pool().labels.insert("team".into(), "blue".into());
    let plan = cluster.daemon_set("agent", &shape(100, 0)).pending("p", 2, &shape(500, 1)).plan();
    let launch = &plan.launches[0];
    assert_eq!((&launch.taints, &launch.labels), (&cluster.pool().taints.clone(), &cluster.pool().labels.clone()));
    assert_eq!((launch.requests.get("cpu"), launch.requests.get("pods")), (1100, 3));
    assert!(launch.why.starts_with("NodePool default (weight 0) takes 2 pods; of "), "{}", launch.why);
}

#[test]
fn at_most_sixty_types_are_listed() {
    let mut cluster = Cluster::new();
    cluster.catalog.instance_types =
        (0..80).map(|index| instance(&format!("c5.{index:02}xl"), 4, 8, 100_000 + index)).collect();
    let plan = cluster.pending("p", 1, &shape(1000, 1)).plan();
    assert_eq!(distinct(&plan, |one| &one.instance_type).len(), 60);
    assert_eq!(plan.hourly.0, 100_000);
}

#[test]
fn action_ids_depend_on_what_is_done_and_on_the_ledger() {
    let mut cluster = Cluster::new();
    cluster.pending("p", 1, &shape(1000, 1));
    let id = |cluster: &Cluster| {
        solve(&cluster.snapshot, &cluster.catalogs(), &PlanOptions::default()).launches[0].action_id.clone()
    };
    let first = id(&cluster);
    cluster.snapshot.sequence = 7;
    assert_eq!(id(&cluster), first);
    cluster.snapshot.ledger = LedgerPosition { epoch: 1, sequence: 0 };
    assert_ne!(id(&cluster), first);
}

#[test]
fn overlays_change_prices_and_capacity() {
    let overlay = |name: &str, family: &str, price| NodeOverlay {
        name: name.into(),
        weight: 0,
        requirements: vec![requirement("karpenter.k8s.aws/instance-family", Operator::In, &[family])],
        price,
        capacity: Resources::new(),
    };
    let mut cluster = Cluster::new();
    cluster.pending("p", 1, &shape(1000, 2));
    cluster.pool().overlays = vec![overlay("cheap", "r5", Some(PriceChange::ByShare(-900_000)))];
    let plan = cluster.plan();
    assert_eq!((launched(&plan), plan.hourly.0), (vec![("r5.large".to_owned(), 1)], 12_600));
    assert!(plan.launches[0].prioritized, "EC2 does not know the price");
    let mut slots = overlay("slots", "m5", None);
    slots.capacity = Resources::from([("example.com/slot", 2)]);
    let mut wanting = shape(100, 1);
    wanting.requests.set("example.com/slot", 1);
    let mut cluster = Cluster::new();
    cluster.pending("p", 3, &wanting);
    assert_eq!(refused(&cluster.plan()), [ReasonCode::InsufficientResources]);
    cluster.pool().overlays = vec![slots];
    let plan = cluster.plan();
    assert_eq!(launched(&plan), [("m5.large".to_owned(), 1), ("m5.large".to_owned(), 2)]);
    // The node is in service only once it has the resource.
    for launch in &plan.launches {
        assert_eq!(usize::try_from(launch.requests.get("example.com/slot")), Ok(launch.pods.len()));
    }
}

#[test]
fn nodes_that_start_have_what_overlays_add() {
    let mut wanting = shape(100, 1);
    wanting.requests.set("example.com/slot", 1);
    let mut cluster = Cluster::new();
    cluster.pool().overlays = vec![NodeOverlay {
        name: "slots".into(),
        weight: 0,
        requirements: vec![requirement("karpenter.k8s.aws/instance-family", Operator::In, &["m5"])],
        price: None,
        capacity: Resources::from([("example.com/slot", 2)]),
    }];
    cluster.node("n1", "m5.large").state = NodeState::InFlight;
    cluster.pending("p", 2, &wanting);
    // The node knows of the slot that it was launched for.
    cluster.snapshot.nodes[0].allocatable.set("example.com/slot", 1);
    let plan = cluster.plan();
    assert_eq!((launched(&plan), plan.placements[0].pods.len()), (vec![], 2));
}

#[test]
fn huge_pages_of_overlays_are_taken_from_the_memory_of_nodes_that_start() {
    let mut cluster = Cluster::new();
    cluster.pool().overlays = vec![NodeOverlay {
        name: "pages".into(),
        weight: 0,
        requirements: vec![requirement("karpenter.k8s.aws/instance-family", Operator::In, &["m5"])],
        price: None,
        capacity: Resources::from([("hugepages-2Mi", 4 << 30)]),
    }];
    cluster.node("n1", "m5.large").state = NodeState::Registered;
    cluster.pending("p", 1, &shape(100, 5));
    assert_eq!(cluster.plan().launches.len(), 1);
    cluster.pool().overlays.clear();
    assert_eq!(launched(&cluster.plan()), []);
}

/// A cluster with a GPU type of 4 cores and a bare metal type of 16 that are cheaper than all others.
fn with_exotic_types() -> Cluster {
    let mut cluster = Cluster::new();
    let mut gpu = instance("g5.xlarge", 4, 16, 10_000);
    gpu.capacity.set("nvidia.com/gpu", 1);
    cluster.catalog.instance_types.extend([gpu, instance("c5.metal", 16, 32, 20_000)]);
    cluster.catalog.instance_types.sort_by(|a, b| a.name.cmp(&b.name));
    cluster
}

fn wanting_gpu() -> PodShape {
    let mut wanting = shape(100, 1);
    wanting.requests.set("nvidia.com/gpu", 1);
    wanting
}

#[test]
fn exotic_types_are_for_pods_that_need_them() {
    let mut cluster = with_exotic_types();
    let plan = cluster.pending("p", 8, &shape(1000, 2)).plan();
    assert_eq!((plan.hourly.0, plan.unschedulable.len()), (320_000, 0), "c5 costs 40,000 for each core");
    assert!(distinct(&plan, |one| &one.instance_type).iter().all(|name| name.starts_with(['c', 'm', 'r'])));
    assert!(!distinct(&plan, |one| &one.instance_type).contains(&"c5.metal"));

    // No other type has the capacity.
    let plan = with_exotic_types().pending("p", 1, &shape(12_000, 2)).plan();
    assert_eq!(launched(&plan), [("c5.metal".to_owned(), 1)]);
    let selected = requirement("karpenter.k8s.aws/instance-family", Operator::In, &["g5"]);
    let mut cluster = with_exotic_types();
    cluster.pool().requirements.push(selected);
    assert_eq!(launched(&cluster.pending("p", 1, &shape(1000, 2)).plan()), [("g5.xlarge".to_owned(), 1)]);
}

#[test]
fn other_pods_share_an_exotic_node_that_is_needed_anyway() {
    let mut cluster = with_exotic_types();
    let plan = cluster.pending("gpu", 1, &wanting_gpu()).pending("p", 3, &shape(1000, 2)).plan();
    assert_eq!((launched(&plan), plan.hourly.0), (vec![("g5.xlarge".to_owned(), 4)], 10_000));
    // Of eleven other pods three fit there. Each of the eight cores for the rest costs 40,000.
    let mut cluster = with_exotic_types();
    let plan = cluster.pending("gpu", 1, &wanting_gpu()).pending("p", 11, &shape(1000, 2)).plan();
    assert_eq!((plan.hourly.0, plan.unschedulable.len()), (330_000, 0));
}

#[test]
fn pods_that_need_an_exotic_type_only_together_get_one() {
    let mut follower = app("follower", 5000);
    follower.pod_affinity = vec![affinity(label::HOSTNAME, false, "leader")];
    let mut cluster = with_exotic_types();
    cluster.pending("leader", 1, &app("leader", 5000)).pending("follower", 1, &follower);
    let plan = cluster.plan();
    assert_eq!((launched(&plan), plan.unschedulable.len()), (vec![("c5.metal".to_owned(), 2)], 0));
    // Other pods are no reason for another exotic node.
    let plan = cluster.pending("p", 2, &shape(6500, 2)).plan();
    let ordinary = ("c5.2xlarge".to_owned(), 1);
    assert_eq!(launched(&plan), [ordinary.clone(), ordinary, ("c5.metal".to_owned(), 2)]);
}

#[test]
fn ordinary_types_beyond_the_limits_exclude_no_exotic_type() {
    let limited = |cpu: i64, by_quota: bool| {
        let mut cluster = with_exotic_types();
        let types = requirement(label::INSTANCE_TYPE, Operator::In, &["g5.xlarge", "m5.2xlarge"]);
        cluster.pool().requirements.push(types);
        if by_quota {
            let limits = [("cpu", cpu)].into_iter().collect();
            cluster.snapshot.capacity_quotas.push(CapacityQuota { name: "all".into(), selector: Vec::new(), limits });
        } else {
            cluster.pool().limits.set("cpu", cpu);
        }
        cluster
    };
    for (cpu, name) in [(6000, "g5.xlarge"), (8000, "m5.2xlarge")] {
        for by_quota in [false, true] {
            let plan = limited(cpu, by_quota).pending("p", 1, &shape(1000, 2)).plan();
            assert_eq!(launched(&plan), [(name.to_owned(), 1)], "quota: {by_quota}");
        }
        let mut cluster = limited(cpu, true);
        cluster.pool().replicas = Some(1);
        assert_eq!(launched(&cluster.plan()), [(name.to_owned(), 0)]);
    }
}

#[test]
fn a_node_for_pods_that_need_exotic_types_takes_no_longer_if_there_are_many() {
    let mut cluster = with_exotic_types();
    cluster.pool().requirements.push(requirement("karpenter.k8s.aws/instance-family", Operator::In, &["g5"]));
    cluster.pool().requirements.push(requirement(label::ZONE, Operator::In, &["zone-a"]));
    for number in 0..500 {
        let mut one = wanting_gpu();
        one.requests.set("cpu", 100 + number);
        cluster.pending(&format!("p{number}"), 1, &one);
    }
    // Each node takes one pod. One packing that looks at all others for each node takes 125,000.
    let work = cluster.packing_work();
    assert!(work < 100_000, "{work}");
}

#[test]
fn min_values_may_need_exotic_types() {
    let mut cluster = with_exotic_types();
    let mut families = requirement("karpenter.k8s.aws/instance-family", Operator::In, &["g5", "m5"]);
    families.min_values = Some(2);
    cluster.pool().requirements.push(families);
    let plan = cluster.pending("p", 1, &shape(1000, 2)).plan();
    assert_eq!(launched(&plan), [("g5.xlarge".to_owned(), 1)]);
    assert!(distinct(&plan, |one| &one.instance_type).contains(&"m5.large"));
}

#[test]
fn exotic_types_replace_no_node_of_ordinary_pods() {
    let mut cluster = with_exotic_types();
    cluster.node("n1", "m5.2xlarge");
    cluster.bound("p", "n1", &shape(3000, 4));
    assert_eq!(launched(&cluster.plan()), [("c5.xlarge".to_owned(), 1)]);
    let mut cluster = with_exotic_types();
    cluster.node("n1", "c5.xlarge");
    cluster.bound("p", "n1", &shape(3000, 4));
    assert_eq!(launched(&cluster.plan()), []);
}

#[test]
fn a_node_counts_all_that_it_costs_for_what_it_does() {
    // c5.large costs 0.08, m5.large 0.096.
    let mut cluster = Cluster::new();
    cluster.pending("p", 1, &shape(1000, 2));
    cluster.pool().costs.per_node.0 = 10_000;
    let plan = cluster.plan();
    assert_eq!((launched(&plan), plan.hourly.0), (vec![("c5.large".to_owned(), 1)], 90_000));
    assert!(!plan.launches[0].prioritized, "the order of prices is the same");
    cluster.pool().costs.performance.insert("m5".into(), 2_000_000);
    let plan = cluster.plan();
    assert_eq!(
        (launched(&plan), plan.hourly.0, plan.lower_bound.0),
        (vec![("m5.large".to_owned(), 1)], 53_000, 53_000)
    );
    assert!(plan.launches[0].prioritized, "by price alone EC2 would launch c5.large");
}
