//! Spreads that count pods which they do not bind, and pods with both affinity and spread.

use super::builder::*;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::label;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::TopologySpread;
use std::collections::{BTreeMap, BTreeSet};

/// Pods of `name` by the zone of their launch. Each launch must have one zone.
fn zones(plan: &plimsoll_model::plan::Plan, name: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for launch in &plan.launches {
        let own = launch.pods.iter().filter(|pod| pod.name.starts_with(&format!("ns/{name}-"))).count();
        if own > 0 {
            let zone = &launch.offerings[0].zone;
            assert!(launch.offerings.iter().all(|one| one.zone == *zone), "{launch:?} is in several zones");
            *counts.entry(zone.clone()).or_default() += own;
        }
    }
    counts
}

#[test]
fn a_spread_holds_whoever_of_those_that_it_counts_comes_first() {
    // Five pods of one label, and one more pod of this label whose spread permits a skew of two.
    let plain = app("web", 300);
    let mut even = app("web", 400);
    even.topology_spread = vec![spread(label::ZONE, 2)];
    let plan = Cluster::new().pending("plain", 5, &plain).pending("even", 1, &even).plan();
    assert!(plan.unschedulable.is_empty());
    let (plain, even) = (zones(&plan, "plain"), zones(&plan, "even"));
    let in_zone = |zone: &str| plain.get(zone).copied().unwrap_or(0) + even.get(zone).copied().unwrap_or(0);
    let least = ["zone-a", "zone-b", "zone-c"].map(in_zone).into_iter().min().unwrap();
    assert!(even.keys().all(|zone| in_zone(zone) - least <= 2), "{plain:?} {even:?}");
}

#[test]
fn pods_that_a_spread_counts_stay_free_where_that_does_no_harm() {
    let plain = app("web", 300);
    let mut even = app("web", 400);
    even.topology_spread = vec![TopologySpread { max_skew: 9, ..spread(label::ZONE, 9) }];
    let plan = Cluster::new().pending("plain", 5, &plain).pending("even", 1, &even).plan();
    assert!(plan.unschedulable.is_empty());
    // One node for all pods, since nine pods in one zone are not too many.
    assert_eq!(plan.launches.len(), 1);
}

#[test]
fn a_spread_holds_whether_or_not_it_counts_the_nodes_of_other_pods() {
    // The spread counts only nodes of family r5. The other pods of this label run on any family.
    let family = |family| requirement("karpenter.k8s.aws/instance-family", Operator::In, &[family]);
    let plain = app("web", 7000);
    let mut even = app("web", 300);
    even.required_node_affinity = vec![term(&[family("r5")])];
    even.topology_spread = vec![spread(label::CAPACITY_TYPE, 1)];
    for others in 1..4 {
        let mut cluster = Cluster::new();
        cluster.pool().requirements[1].values.push("spot".into());
        let plan = cluster.pending("plain", others, &plain).pending("even", 4, &even).plan();
        assert!(plan.unschedulable.is_empty());
        // Counted pods by capacity type: those that are certain, and those that may be counted.
        let (mut sure, mut maybe) = (BTreeMap::new(), BTreeMap::new());
        for launch in &plan.launches {
            let counted = launch.offerings.iter().filter(|one| one.instance_type.starts_with("r5."));
            let domains: BTreeSet<CapacityType> = counted.clone().map(|one| one.capacity_type).collect();
            let always = counted.count() == launch.offerings.len() && domains.len() == 1;
            let tally = if always { &mut sure } else { &mut maybe };
            domains.into_iter().for_each(|domain| *tally.entry(domain).or_insert(0) += launch.pods.len());
        }
        let of = |tally: &BTreeMap<CapacityType, usize>, domain| tally.get(&domain).copied().unwrap_or(0);
        for (a, b) in [(CapacityType::Spot, CapacityType::OnDemand), (CapacityType::OnDemand, CapacityType::Spot)] {
            assert!(of(&sure, a) + of(&maybe, a) <= of(&sure, b) + 1, "{others}: {:#?}", plan.launches);
        }
    }
}

#[test]
fn pods_that_must_share_a_zone_are_not_held_back_by_a_spread_over_zones() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    web.pod_affinity = vec![affinity(label::ZONE, false, "web")];
    let plan = Cluster::new().pending("web", 6, &web).plan();
    // kube-scheduler counts only zones that have nodes, and there is only one.
    assert_eq!((plan.unschedulable.len(), zones(&plan, "web").into_values().collect::<Vec<usize>>()), (0, vec![6]));
}

#[test]
fn a_zone_without_a_type_that_is_large_enough_holds_nobody_back() {
    let mut web = app("web", 7000);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let mut cluster = Cluster::new();
    for kind in cluster.catalog.instance_types.iter_mut().filter(|kind| kind.name.ends_with("2xlarge")) {
        kind.offerings.retain(|one| one.zone != "zone-c");
    }
    let plan = cluster.pending("web", 6, &web).plan();
    assert_eq!((plan.unschedulable.len(), zones(&plan, "web").into_values().collect::<Vec<usize>>()), (0, vec![3, 3]));
    // Other spread pods have nodes in the third zone.
    let mut small = app("small", 500);
    small.topology_spread = vec![TopologySpread { selector: selector("small"), ..spread(label::ZONE, 1) }];
    let plan = cluster.pending("small", 3, &small).plan();
    assert_eq!((plan.unschedulable.len(), zones(&plan, "small").len()), (4, 3));
}

#[test]
fn a_node_in_another_zone_holds_them_back() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    web.pod_affinity = vec![affinity(label::ZONE, false, "web")];
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large").labels.insert(label::ZONE.into(), "zone-a".into());
    cluster.node("n2", "c5.large").labels.insert(label::ZONE.into(), "zone-b".into());
    let plan = cluster.pending("web", 6, &web).plan();
    assert_eq!(plan.unschedulable.len(), 5);
}

#[test]
fn zones_stay_open_for_others_that_spread_over_them() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    web.pod_affinity = vec![affinity(label::ZONE, false, "web")];
    let mut other = app("other", 500);
    other.topology_spread = vec![TopologySpread { selector: selector("other"), ..spread(label::ZONE, 1) }];
    let plan = Cluster::new().pending("web", 6, &web).pending("other", 3, &other).plan();
    assert_eq!((zones(&plan, "other").len(), plan.unschedulable.len()), (3, 5));
}

#[test]
fn labels_of_one_pool_are_no_labels_of_another() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread("rack", 1)];
    web.pod_affinity = vec![affinity("rack", false, "web")];
    let mut racks = pool("racks");
    racks.requirements.push(requirement("rack", Operator::In, &["r1", "r2"]));
    let mut cluster = Cluster::with([pool("default"), racks]);
    let plan = cluster.pending("web", 4, &web).pending("plain", 2, &app("plain", 500)).plan();
    assert!(plan.unschedulable.is_empty());
    for launch in &plan.launches {
        let named = launch.requirements.iter().any(|one| one.key == "rack");
        assert_eq!(named, launch.node_pool.as_str() == "racks", "{launch:?}");
    }
}

#[test]
fn pods_keep_away_from_those_of_daemon_sets() {
    // The DaemonSet runs on all nodes except those of a family that it does not select.
    let mut agent = app("agent", 100);
    agent.namespace = "ns".into();
    let small = requirement("karpenter.k8s.aws/instance-family", Operator::NotIn, &["r5"]);
    agent.required_node_affinity = vec![term(&[small])];
    let mut shy = app("shy", 500);
    shy.pod_affinity = vec![affinity(label::HOSTNAME, true, "agent")];
    let mut cluster = Cluster::new();
    cluster.daemon_set("agent", &agent);
    let plan = cluster.pending("shy", 2, &shy).plan();
    assert_eq!((launched(&plan), plan.unschedulable.len()), (vec![("r5.large".to_owned(), 2)], 0));
    let mut of_team = Cluster::new();
    of_team.pool().requirements.push(requirement("team", Operator::In, &["a", "b"]));
    agent.required_node_affinity.clear();
    agent.node_selector.insert("team".into(), "a".into());
    shy.node_selector.insert("team".into(), "b".into());
    let plan = of_team.daemon_set("agent", &agent).pending("shy", 1, &shy).plan();
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 1)], "the DaemonSet does not run there");
    shy.node_selector.clear();
    shy.pod_affinity = vec![affinity(label::ZONE, true, "agent")];
    cluster.pool().requirements.push(requirement("karpenter.k8s.aws/instance-family", Operator::NotIn, &["r5"]));
    cluster.snapshot.pods.clear();
    let plan = cluster.pending("shy", 1, &shy).plan();
    assert_eq!(refused(&plan), [plimsoll_model::plan::ReasonCode::TopologyUnsatisfiable]);
}
