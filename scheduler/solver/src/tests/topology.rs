//! Topology spread, affinity and anti-affinity.

use super::builder::*;
use plimsoll_model::names::label;
use plimsoll_model::plan::ReasonCode;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{DisruptionReason, HostPort, LabelSelector, PodAffinityTerm};
use plimsoll_model::taints::TaintEffect;

#[test]
fn pods_spread_over_zones() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let plan = Cluster::new().pending("web", 7, &web).plan();
    let counts: Vec<usize> = counts(&plan, |one| &one.zone).into_iter().map(|(_, count)| count).collect();
    assert_eq!((counts.iter().sum::<usize>(), counts.iter().min(), counts.iter().max()), (7, Some(&2), Some(&3)));
}

#[test]
fn running_pods_count_in_a_spread() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread("failure-domain.beta.kubernetes.io/zone", 1)];
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    for index in 0..3 {
        cluster.bound(&format!("b{index}"), "n1", &web);
    }
    let plan = cluster.pending("web", 4, &web).plan();
    assert_eq!(counts(&plan, |one| &one.zone), [("zone-b".to_owned(), 2), ("zone-c".to_owned(), 2)]);
}

#[test]
fn a_domain_without_room_holds_the_others_back() {
    let mut web = app("web", 1500);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let mut cluster = Cluster::new();
    cluster.close_offerings(|one| one.zone == "zone-c");
    // zone-c has no offerings, but a full node in zone-c makes it a domain.
    cluster.node("n1", "c5.large").labels.insert(label::ZONE.into(), "zone-c".into());
    cluster.bound("b", "n1", &shape(2000, 1));
    let plan = cluster.pending("web", 6, &web).plan();
    assert_eq!(counts(&plan, |one| &one.zone), [("zone-a".to_owned(), 1), ("zone-b".to_owned(), 1)]);
    assert_eq!((plan.unschedulable.len(), refused(&plan)), (4, vec![ReasonCode::NoOffering]));
}

#[test]
fn pods_spread_over_hosts_capacity_types_and_architectures() {
    let mut web = app("web", 100);
    web.topology_spread = vec![spread(label::HOSTNAME, 2)];
    let plan = Cluster::new().pending("web", 6, &web).plan();
    assert_eq!(launched(&plan).iter().map(|one| one.1).collect::<Vec<usize>>(), [2, 2, 2]);
    let mut cluster = Cluster::new();
    cluster.pool().requirements[0].values.push("arm64".into());
    cluster.pool().requirements[1].values.push("spot".into());
    web.topology_spread = vec![spread(label::CAPACITY_TYPE, 1)];
    let plan = cluster.pending("web", 4, &web).plan();
    let by_capacity = counts(&plan, |one| one.capacity_type.as_str());
    assert_eq!(by_capacity, [("on-demand".to_owned(), 2), ("spot".to_owned(), 2)]);
    web.topology_spread = vec![spread(label::ARCH, 1)];
    cluster.snapshot.pods.clear();
    let plan = cluster.pending("arch", 4, &web).plan();
    let by_family = counts(&plan, |one| if one.instance_type.starts_with("m6g") { "arm64" } else { "amd64" });
    assert_eq!(by_family, [("amd64".to_owned(), 2), ("arm64".to_owned(), 2)]);
}

#[test]
fn a_label_that_the_pool_leaves_open_is_a_domain_too() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread("ratio", 1)];
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement("ratio", Operator::In, &["1", "2", "3", "4"]));
    let plan = cluster.pending("web", 8, &web).plan();
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (4, 0));
    for value in ["1", "2", "3", "4"] {
        let pinned = requirement("ratio", Operator::In, &[value]);
        let own: Vec<usize> =
            plan.launches.iter().filter(|one| one.requirements.contains(&pinned)).map(|one| one.pods.len()).collect();
        assert_eq!(own, [2], "{value}");
    }
}

#[test]
fn pods_that_avoid_each_other_take_existing_nodes_first() {
    let mut web = app("web", 100);
    web.pod_affinity = vec![affinity(label::HOSTNAME, true, "web")];
    let mut cluster = Cluster::new();
    cluster.node("n1", "m5.xlarge");
    cluster.node("n2", "m5.xlarge");
    let plan = cluster.pending("web", 3, &web).plan();
    assert_eq!((kept(&plan), launched(&plan)), (vec![("n1", 1), ("n2", 1)], vec![("c5.large".to_owned(), 1)]));
}

#[test]
fn what_runs_may_keep_others_away() {
    let mut shy = app("shy", 100);
    shy.pod_affinity = vec![affinity(label::HOSTNAME, true, "web"), affinity(label::ZONE, true, "db")];
    let mut cluster = Cluster::new();
    cluster.node("n1", "m5.xlarge");
    cluster.bound("shy", "n1", &shy);
    let plan = cluster.pending("web", 1, &app("web", 100)).pending("db", 1, &app("db", 100)).plan();
    assert_eq!(plan.placements, []);
    assert!(plan.unschedulable.is_empty());
    let db = plan.launches.iter().find(|one| one.pods.iter().any(|pod| pod.name == "ns/db-0")).unwrap();
    assert!(db.offerings.iter().all(|one| one.zone != "zone-a"));
}

#[test]
fn zones_hold_one_pod_each_of_those_that_avoid_each_other_there() {
    let mut web = app("web", 100);
    web.pod_affinity = vec![affinity(label::ZONE, true, "web")];
    let plan = Cluster::new().pending("web", 4, &web).plan();
    assert_eq!(counts(&plan, |one| &one.zone).len(), 3);
    assert_eq!(plan.unschedulable.len(), 1);
}

#[test]
fn pods_that_want_each_other_share_a_host_or_a_zone() {
    let mut web = app("web", 500);
    web.pod_affinity = vec![affinity(label::HOSTNAME, false, "web")];
    let plan = Cluster::new().pending("web", 5, &web).plan();
    assert_eq!(launched(&plan), [("c5.xlarge".to_owned(), 5)]);
    web.pod_affinity = vec![affinity(label::ZONE, false, "web")];
    let plan = Cluster::new().pending("web", 30, &web).plan();
    assert_eq!(counts(&plan, |one| &one.zone).len(), 1);
    // The pods exceed the capacity of one host, so the rest remains unplaced.
    web.pod_affinity = vec![affinity(label::HOSTNAME, false, "web")];
    let plan = Cluster::new().pending("web", 17, &web).plan();
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (1, 1));
}

#[test]
fn a_pod_follows_another_to_its_node() {
    let mut follower = app("follower", 100);
    follower.pod_affinity = vec![affinity(label::HOSTNAME, false, "web")];
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.node("n2", "c5.large");
    cluster.bound("b", "n2", &app("web", 1000));
    let plan = cluster.pending("f", 1, &follower).plan();
    assert_eq!(kept(&plan), [("n2", 1)]);
    // If both are pending, one node runs both. The follower alone is unschedulable.
    let plan = Cluster::new().pending("f", 1, &follower).pending("web", 1, &app("web", 1900)).plan();
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 2)]);
    let plan = Cluster::new().pending("f", 1, &follower).plan();
    assert_eq!((plan.launches.len(), refused(&plan)), (0, vec![ReasonCode::TopologyUnsatisfiable]));
}

#[test]
fn consolidation_keeps_the_spread() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let mut cluster = Cluster::new();
    for (name, zone) in [("n1", "zone-a"), ("n2", "zone-a"), ("n3", "zone-b"), ("n4", "zone-c")] {
        cluster.node(name, "c5.large").labels.insert(label::ZONE.into(), zone.into());
        cluster.bound(&format!("p-{name}"), name, &web);
    }
    let plan = cluster.plan();
    // The two nodes of zone-a are merged. The others are alone in their zones.
    assert_eq!(plan.terminations.len(), 1);
    assert_eq!(plan.terminations[0].reason, DisruptionReason::Underutilized);
    assert!(["n1", "n2"].contains(&plan.terminations[0].node.as_str()));
}

#[test]
fn where_there_is_no_such_label_nobody_is_too_close() {
    let mut web = app("web", 100);
    web.pod_affinity = vec![affinity("rack", true, "web")];
    let plan = Cluster::new().pending("web", 2, &web).plan();
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 2)]);
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large").labels.insert("rack".into(), "r1".into());
    cluster.node("n2", "c5.large");
    cluster.bound("w", "n1", &web);
    // Running pods exclude other pods from their own rack only.
    assert_eq!(kept(&cluster.clone().pending("late", 2, &web).plan()), [("n2", 2)]);
    assert_eq!(kept(&cluster.pending("other", 1, &app("web", 100)).plan()), [("n2", 1)]);
}

#[test]
fn pods_on_nodes_that_are_not_for_the_owner_do_not_count_in_its_spread() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    for index in 0..3 {
        cluster.bound(&format!("b{index}"), "n1", &app("web", 100));
    }
    let mut web = app("web", 500);
    web.node_selector.insert("karpenter.k8s.aws/instance-family".into(), "m5".into());
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let by_zone = |cluster: &Cluster| counts(&cluster.plan(), |one| &one.zone);
    let one = |zone: &str| (zone.to_owned(), 1);
    let honoured = cluster.clone().pending("web", 3, &web).clone();
    assert_eq!(by_zone(&honoured), [one("zone-a"), one("zone-b"), one("zone-c")]);
    web.topology_spread[0].honor_node_affinity = false;
    let plan = cluster.pending("web", 2, &web);
    assert_eq!(by_zone(plan), [one("zone-b"), one("zone-c")], "three in zone-a count");
}

#[test]
fn domains_behind_a_taint_count_unless_the_spread_honours_taints() {
    let mut cluster = Cluster::new();
    for kind in &mut cluster.catalog.instance_types {
        kind.offerings.retain(|one| one.zone != "zone-c");
    }
    let node = cluster.node("n1", "c5.large");
    node.labels.insert(label::ZONE.into(), "zone-c".into());
    node.taints = vec![taint("dedicated", TaintEffect::NoSchedule)];
    let mut web = app("web", 500);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let plan = cluster.clone().pending("web", 4, &web).plan();
    assert_eq!((plan.unschedulable.len(), refused(&plan)), (2, vec![ReasonCode::TopologyUnsatisfiable]));
    web.topology_spread[0].honor_node_taints = true;
    let plan = cluster.pending("web", 4, &web).plan();
    let even = [("zone-a".to_owned(), 2), ("zone-b".to_owned(), 2)];
    assert_eq!(counts(&plan, |one| &one.zone), even);
}

#[test]
fn too_few_domains_hold_back_all_but_the_first_pods_of_each() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread(label::ZONE, 2)];
    web.topology_spread[0].min_domains = Some(4);
    let plan = Cluster::new().pending("web", 8, &web).plan();
    let counts: Vec<usize> = counts(&plan, |one| &one.zone).into_iter().map(|(_, count)| count).collect();
    assert_eq!((counts, plan.unschedulable.len()), (vec![2, 2, 2], 2));
    web.topology_spread[0].min_domains = Some(3);
    assert_eq!(Cluster::new().pending("web", 8, &web).plan().unschedulable, []);
}

#[test]
fn of_several_affinity_terms_one_pod_must_match_all() {
    let mut web = app("web", 100);
    let mut tier = affinity(label::ZONE, false, "db");
    tier.selector =
        Some(LabelSelector { match_labels: [("tier".into(), "back".into())].into(), ..LabelSelector::default() });
    web.pod_affinity = vec![affinity(label::ZONE, false, "db"), tier];
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    let mut back = app("cache", 1000);
    back.labels.insert("tier".into(), "back".into());
    cluster.bound("db", "n1", &app("db", 1000));
    cluster.bound("back", "n1", &back);
    let plan = cluster.clone().pending("web", 1, &web).plan();
    assert_eq!(refused(&plan), [ReasonCode::TopologyUnsatisfiable], "no pod matches both");
    cluster.node("n2", "c5.large").labels.insert(label::ZONE.into(), "zone-b".into());
    let mut both = app("db", 2000);
    both.labels.insert("tier".into(), "back".into());
    cluster.bound("both", "n2", &both);
    let plan = cluster.pending("web", 1, &web).plan();
    assert_eq!(distinct(&plan, |one| &one.zone), ["zone-b"]);
}

#[test]
fn a_spread_over_an_open_label_looks_at_the_values_its_pods_may_have() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread("ratio", 1)];
    web.required_node_affinity = vec![term(&[requirement("ratio", Operator::In, &["1", "2"])])];
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement("ratio", Operator::In, &["1", "2", "3", "4"]));
    let plan = cluster.pending("web", 6, &web).plan();
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (2, 0));
    assert!(plan.launches.iter().all(|one| one.pods.len() == 3));
}

#[test]
fn only_pods_of_the_named_namespaces_are_meant() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    let mut other = app("web", 100);
    other.namespace = "other".into();
    cluster.bound("w", "n1", &other);
    let mut shy = app("shy", 100);
    shy.pod_affinity = vec![affinity(label::HOSTNAME, true, "web")];
    assert_eq!(kept(&cluster.clone().pending("shy", 1, &shy).plan()), [("n1", 1)]);
    shy.pod_affinity[0].namespaces.push("other".into());
    assert_eq!(kept(&cluster.pending("shy", 1, &shy).plan()), []);
}

#[test]
fn zones_and_hosts_are_kept_at_once() {
    let mut web = app("web", 100);
    web.topology_spread = vec![spread(label::ZONE, 1), spread(label::HOSTNAME, 1)];
    let plan = Cluster::new().pending("web", 7, &web).plan();
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (7, 0));
    let by_zone: Vec<usize> = counts(&plan, |one| &one.zone).into_iter().map(|(_, count)| count).collect();
    assert_eq!(by_zone.iter().max(), Some(&3));
}

#[test]
fn what_ends_or_leaves_no_longer_counts() {
    let mut web = app("web", 100);
    web.pod_affinity = vec![affinity(label::HOSTNAME, true, "web")];
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.bound("w", "n1", &web).terminating = true;
    assert_eq!(kept(&cluster.pending("web", 1, &web).plan()), [("n1", 1)]);
}

#[test]
fn pods_follow_others_that_are_only_being_placed() {
    let mut web = app("web", 100);
    web.pod_affinity = vec![affinity(label::ZONE, false, "db")];
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement("karpenter.k8s.aws/instance-size", Operator::In, &["large"]));
    let plan = cluster.pending("db", 1, &app("db", 1900)).pending("web", 2, &web).plan();
    assert_eq!((plan.unschedulable.len(), distinct(&plan, |one| &one.zone).len()), (0, 1));
}

#[test]
fn members_that_can_only_be_in_one_domain_count_before_the_others_are_spread() {
    let mut web = app("web", 500);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let mut fixed = app("web", 500);
    fixed.node_selector.insert(label::ZONE.into(), "zone-b".into());
    let plan = Cluster::new().pending("fixed", 2, &fixed).pending("web", 4, &web).plan();
    let in_b = |launch: &&plimsoll_model::plan::Launch| launch.offerings[0].zone == "zone-b";
    let spread_in_b =
        plan.launches.iter().filter(in_b).flat_map(|one| &one.pods).filter(|pod| pod.name.contains("web"));
    assert_eq!((spread_in_b.count(), plan.unschedulable.len()), (0, 0));
}

#[test]
fn of_pods_that_must_share_a_host_as_many_go_as_it_takes() {
    let mut web = app("web", 100);
    web.pod_affinity = vec![affinity(label::HOSTNAME, false, "web"), affinity(label::HOSTNAME, true, "web")];
    let placed = |plan: &plimsoll_model::plan::Plan| {
        let existing: usize = plan.placements.iter().map(|one| one.pods.len()).sum();
        (existing, plan.launches.iter().map(|one| one.pods.len()).sum::<usize>(), plan.unschedulable.len())
    };
    assert_eq!(placed(&Cluster::new().pending("web", 2, &web).plan()), (0, 1, 1), "the first pod excludes the others");
    web.pod_affinity.pop();
    web.host_ports = vec![HostPort { ip: "0.0.0.0".into(), port: 80, protocol: "TCP".into() }];
    assert_eq!(placed(&Cluster::new().pending("web", 6, &web).plan()), (0, 1, 5));
    web.host_ports.clear();
    web.requests.set("cpu", 1000);
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("cpu", 4000);
    assert_eq!(placed(&cluster.pending("web", 6, &web).plan()), (0, 4, 2), "the limit permits only the smaller types");
    let mut cluster = Cluster::with([]);
    cluster.node("n1", "c5.large");
    cluster.node("n2", "c5.xlarge");
    assert_eq!(placed(&cluster.pending("web", 6, &web).plan()), (4, 0, 2), "the larger of two nodes");
}

#[test]
fn who_counts_others_on_a_host_finds_no_more_than_it_bears() {
    let mut wary = app("wary", 1000);
    wary.topology_spread = vec![spread(label::HOSTNAME, 1)];
    let mut cluster = Cluster::new();
    let plan = cluster.pending("wary", 1, &wary).pending("web", 4, &app("web", 100)).plan();
    let beside = plan.launches.iter().find(|one| one.pods.iter().any(|pod| pod.name.contains("wary"))).unwrap();
    assert!(beside.pods.iter().filter(|pod| pod.name.contains("web")).count() <= 1, "{beside:#?}");
    assert_eq!(plan.unschedulable, []);
    // The spread of a running pod no longer applies.
    let mut cluster = Cluster::with([]);
    cluster.node("n1", "c5.2xlarge");
    cluster.bound("wary", "n1", &wary);
    assert_eq!(kept(&cluster.pending("web", 4, &app("web", 100)).plan()), [("n1", 4)]);
}

#[test]
fn a_preference_for_a_label_that_no_node_has_leaves_no_pod_unplaced() {
    let mut web = app("web", 100);
    web.pod_affinity = vec![PodAffinityTerm { weight: Some(1), ..affinity("rack", false, "web") }];
    assert_eq!(Cluster::new().pending("web", 2, &web).plan().unschedulable, []);
}

#[test]
fn a_group_that_must_share_a_host_starts_on_one_host_alone() {
    let mut web = app("web", 5000);
    web.pod_affinity = vec![affinity(label::ZONE, false, "web"), affinity(label::HOSTNAME, false, "web")];
    web.requests.set("cpu", 3000);
    let plan = Cluster::new().pending("web", 7, &web).plan();
    assert_eq!((launched(&plan), plan.unschedulable.len()), (vec![("c5.2xlarge".to_owned(), 2)], 5));
    web.pod_affinity = vec![affinity(label::HOSTNAME, false, "web"), affinity(label::ZONE, true, "web")];
    let plan = Cluster::new().pending("web", 7, &web).plan();
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (1, 6));
}

#[test]
fn pods_that_must_share_a_host_are_not_split_over_two_that_are_cheaper() {
    // Five cores: an xlarge and a large would cost 0.24. One 2xlarge that runs all pods costs 0.32.
    let mut shape = app("db", 1000);
    shape.pod_affinity.push(affinity(label::HOSTNAME, false, "db"));
    let mut cluster = Cluster::new();
    cluster.pending("db", 5, &shape);
    assert_eq!(launched(&cluster.plan()), [("c5.2xlarge".to_owned(), 5)]);
}
