//! Domains of pods that removals move.

use super::builder::*;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::DisruptionReason::Underutilized;
use plimsoll_model::snapshot::{Node, PodShape};

/// Spread over zones with `maxSkew` 3.
fn spread_pod(name: &str, milli: i64) -> PodShape {
    let mut one = app(name, milli);
    one.topology_spread = vec![spread(label::ZONE, 3)];
    one.topology_spread[0].selector = selector(name);
    one
}

/// Adds a Spot node, which can only be deleted, not replaced.
fn spot<'c>(cluster: &'c mut Cluster, name: &str, kind: &str, zone: &str) -> &'c mut Node {
    let node = cluster.node_of(name, kind, "default", CapacityType::Spot);
    node.labels.insert(label::ZONE.into(), zone.into());
    node
}

/// The node of each moved pod.
fn moved(plan: &Plan) -> Vec<(&str, &str)> {
    let to = plan.terminations.iter().flat_map(|one| &one.moved_to);
    let mut all: Vec<(&str, &str)> =
        to.flat_map(|to| to.pods.iter().map(move |pod| (pod.name.as_str(), to.node.as_str()))).collect();
    all.sort_unstable();
    all
}

/// Spot nodes in zone-a with one pod each. Only zone-c has room for these pods.
fn room_in_one_zone(nodes: usize) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.pool().requirements[1].values.push("spot".into());
    let web = spread_pod("web", 500);
    for number in 0..nodes {
        let name = format!("a{number}");
        spot(&mut cluster, &name, "c5.large", "zone-a");
        cluster.bound(&format!("p{number}"), &name, &web);
    }
    spot(&mut cluster, "c0", "c5.xlarge", "zone-c").do_not_disrupt = true;
    cluster.bound("there", "c0", &web);
    cluster
}

#[test]
fn a_pod_moves_to_a_zone_with_room_that_is_not_the_emptiest() {
    // Zones a and b have fewer pods, but no room.
    let plan = room_in_one_zone(1).plan();
    assert_eq!((removed(&plan), moved(&plan)), (vec![("a0", Underutilized)], vec![("ns/p0", "c0")]));
}

#[test]
fn nodes_are_removed_together_into_a_zone_with_room_as_far_as_the_spread_permits() {
    let plan = room_in_one_zone(2).plan();
    assert_eq!((removed(&plan).len(), moved(&plan)), (2, vec![("ns/p0", "c0"), ("ns/p1", "c0")]));
    // A fourth pod in zone-c would be one too many beside a zone without pods.
    let plan = room_in_one_zone(3).plan();
    assert_eq!((removed(&plan).len(), moved(&plan).len(), plan.launches.len()), (2, 2, 0));
}

#[test]
fn pods_of_two_workloads_do_not_count_on_the_same_room() {
    let mut cluster = Cluster::new();
    cluster.pool().requirements[1].values.push("spot".into());
    let (web, api) = (spread_pod("web", 500), spread_pod("api", 500));
    spot(&mut cluster, "a0", "c5.large", "zone-a");
    cluster.bound("p-web", "a0", &web);
    cluster.bound("p-api", "a0", &api);
    // Both zones have room for one pod. Zone-c has no pods of the workloads.
    for (name, zone) in [("b0", "zone-b"), ("c0", "zone-c")] {
        spot(&mut cluster, name, "c5.large", zone).do_not_disrupt = true;
        cluster.bound(&format!("full-{name}"), name, &shape(if name == "b0" { 400 } else { 1400 }, 1));
    }
    cluster.bound("web-b", "b0", &web);
    cluster.bound("api-b", "b0", &api);
    let plan = cluster.plan();
    let nodes: Vec<&str> = moved(&plan).into_iter().map(|(_, node)| node).collect();
    assert_eq!((removed(&plan), nodes.len()), (vec![("a0", Underutilized)], 2));
    assert_ne!(nodes[0], nodes[1]);
}

#[test]
fn pods_that_must_stay_together_go_to_a_zone_where_one_node_has_room_for_all() {
    let mut cluster = Cluster::new();
    cluster.pool().requirements[1].values.push("spot".into());
    let mut web = spread_pod("web", 500);
    web.pod_affinity = vec![affinity(label::HOSTNAME, false, "web")];
    spot(&mut cluster, "a0", "c5.large", "zone-a");
    cluster.bound("p0", "a0", &web);
    cluster.bound("p1", "a0", &web);
    // The nodes of zone-b have room for one of the two pods each.
    for (name, kind, zone, used) in
        [("b0", "c5.large", "zone-b", 1400), ("b1", "c5.large", "zone-b", 1400), ("c0", "c5.xlarge", "zone-c", 1000)]
    {
        spot(&mut cluster, name, kind, zone).do_not_disrupt = true;
        cluster.bound(&format!("other-{name}"), name, &shape(used, 1));
    }
    let plan = cluster.plan();
    assert_eq!((removed(&plan), moved(&plan)), (vec![("a0", Underutilized)], vec![("ns/p0", "c0"), ("ns/p1", "c0")]));
}

#[test]
fn pods_do_not_leave_the_emptiest_zone_if_the_others_are_too_full_beside_it() {
    let mut cluster = Cluster::new();
    cluster.pool().requirements[1].values.push("spot".into());
    let web = spread_pod("web", 500);
    for (name, zone, pods) in [("a0", "zone-a", 4), ("b0", "zone-b", 1), ("c0", "zone-c", 1)] {
        spot(&mut cluster, name, "c5.xlarge", zone).do_not_disrupt = name != "b0";
        for number in 0..pods {
            cluster.bound(&format!("{name}-{number}"), name, &web);
        }
    }
    // Without the pod of zone-b, four pods in zone-a would be one too many.
    assert_eq!(removed(&cluster.plan()), []);
}
