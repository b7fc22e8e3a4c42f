//! Order of assignment if the placement of some pods determines that of others.

use super::builder::*;
use plimsoll_model::names::label;
use plimsoll_model::plan::ReasonCode;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{HostPort, PreferredTerm};

#[test]
fn members_of_a_spread_that_have_no_choice_come_before_its_owners() {
    let mut free = app("web", 250);
    free.node_selector.insert(label::ZONE.into(), "zone-b".into());
    let mut bound = free.clone();
    bound.topology_spread = vec![spread(label::ZONE, 1)];
    bound.topology_spread[0].honor_node_affinity = false;
    let mut cluster = Cluster::new();
    // If another zone has a node, kube-scheduler counts that zone, too.
    cluster.node("n1", "c5.large");
    let plan = cluster.pending("bound", 1, &bound).pending("free", 1, &free).plan();
    assert_eq!(plan.unschedulable[0].pod.name, "ns/bound-0");
    assert_eq!(refused(&plan), [ReasonCode::TopologyUnsatisfiable], "one pod in zone-b, none in the other two zones");
    // Without such a node, both pods are bound.
    let plan = Cluster::new().pending("bound", 1, &bound).pending("free", 1, &free).plan();
    assert_eq!((plan.unschedulable.len(), distinct(&plan, |one| &one.zone)), (0, vec!["zone-b"]));
}

#[test]
fn followers_wait_for_those_they_follow_whatever_they_prefer() {
    let mut leader = app("db", 250);
    leader.node_selector.insert(label::ZONE.into(), "zone-b".into());
    let mut follower = app("db", 250);
    follower.pod_affinity = vec![affinity(label::ZONE, false, "db")];
    let zone = term(&[requirement(label::ZONE, Operator::In, &["zone-c"])]);
    follower.preferred_node_affinity = vec![PreferredTerm { weight: 1, term: zone }];
    let plan = Cluster::new().pending("leader", 1, &leader).pending("follower", 1, &follower).plan();
    assert_eq!((plan.unschedulable.len(), distinct(&plan, |one| &one.zone)), (0, vec!["zone-b"]));
    // If all pods follow each other, the pods with the fewest possible zones determine the zone.
    leader.pod_affinity.clone_from(&follower.pod_affinity);
    let plan = Cluster::new().pending("a", 2, &follower).pending("b", 1, &leader).plan();
    assert_eq!((plan.unschedulable.len(), distinct(&plan, |one| &one.zone)), (0, vec!["zone-b"]));
}

#[test]
fn of_pods_that_must_share_a_zone_as_many_go_as_limits_allow() {
    let mut web = app("web", 1500);
    web.pod_affinity = vec![affinity(label::ZONE, false, "web")];
    web.host_ports = vec![HostPort { ip: "0.0.0.0".into(), port: 80, protocol: "TCP".into() }];
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("cpu", 6000);
    let plan = cluster.pending("web", 5, &web).plan();
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (3, 2));
    // A zone without capacity does not attract the pods: only zone-b has capacity here.
    let mut cluster = Cluster::with([]);
    cluster.node("n1", "c5.large");
    cluster.bound("full", "n1", &shape(2000, 1));
    cluster.node("n2", "c5.large").labels.insert(label::ZONE.into(), "zone-b".into());
    assert_eq!(kept(&cluster.pending("web", 2, &web).plan()), [("n2", 1)]);
}

#[test]
fn pods_that_follow_others_to_their_hosts_share_these() {
    let mut follower = app("follower", 500);
    follower.pod_affinity = vec![affinity(label::HOSTNAME, false, "leader")];
    let mut cluster = Cluster::new();
    cluster.catalog.instance_types = vec![instance("c5.2xlarge", 8, 32, 400_000), instance("c5.large", 2, 8, 100_000)];
    for kind in &mut cluster.catalog.instance_types {
        kind.offerings.retain(|one| one.zone == "zone-a");
    }
    let plan = cluster.pending("leader", 2, &app("leader", 1000)).pending("follower", 4, &follower).plan();
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 3), ("c5.large".to_owned(), 3)]);
    assert_eq!((plan.hourly.0, plan.lower_bound.0), (200_000, 200_000));
}

/// The running pod counts for one of the terms, so kube-scheduler accepts no first pod in any zone.
#[test]
fn a_pod_that_matches_all_affinity_terms_in_some_domain_excludes_a_first_pod() {
    for (counted, runs) in [(true, 0), (false, 2)] {
        let mut web = app("web", 100);
        web.pod_affinity = vec![affinity(label::CAPACITY_TYPE, false, "web"), affinity(label::ZONE, false, "web")];
        let mut cluster = Cluster::new();
        let labels = &mut cluster.node("n1", "c5.large").labels;
        labels.retain(|label, _| label != label::ZONE && (counted || label != label::CAPACITY_TYPE));
        cluster.bound("running", "n1", &app("web", 100));
        let plan = cluster.pending("web", 2, &web).plan();
        assert_eq!(2 - plan.unschedulable.len(), runs, "{counted}: {plan:#?}");
    }
}

/// kube-scheduler binds neither of two pods that need each other first, wherever a plan puts them.
#[test]
fn pods_that_need_each_other_start_only_beside_pods_that_run() {
    let mut db = app("db", 500);
    db.pod_affinity = vec![affinity(label::HOSTNAME, false, "web")];
    let needs = |name: &str, other: &str| {
        let mut one = app(name, 1500);
        one.pod_affinity = vec![affinity(label::ZONE, false, other)];
        one
    };
    let cluster = |running: i64| {
        let mut cluster = Cluster::new();
        cluster.node("n1", "c5.large");
        cluster.bound("running", "n1", &app("web", running));
        cluster.pending("db", 1, &db);
        cluster
    };
    // The node of the running pod is full.
    let plan = cluster(1800).pending("web", 1, &needs("web", "db")).plan();
    assert_eq!((plan.unschedulable.len(), launched(&plan)), (2, vec![]));
    let plan = cluster(1800).pending("web", 1, &needs("web", "api")).pending("api", 1, &needs("api", "db")).plan();
    assert_eq!((plan.unschedulable.len(), launched(&plan)), (3, vec![]));
    // If it has room, one of the pods follows the running pod, and the other follows the first.
    let plan = cluster(1000).pending("web", 1, &needs("web", "db")).plan();
    assert_eq!((kept(&plan), launched(&plan)), (vec![("n1", 1)], vec![("c5.large".to_owned(), 1)]));
    assert_eq!(distinct(&plan, |one| &one.zone), ["zone-a"]);
}

/// None of these pods needs to be assigned before the others: all follow the first, or the pod that runs.
#[test]
fn pods_of_several_workloads_that_need_each_other_share_one_host() {
    let zone = |milli| {
        let mut one = app("web", milli);
        one.pod_affinity = vec![affinity(label::ZONE, false, "web")];
        one
    };
    let add = |cluster: &mut Cluster| {
        for milli in [501, 502, 503, 504] {
            let mut one = zone(milli);
            one.pod_affinity.push(affinity(label::HOSTNAME, false, "web"));
            cluster.pending(&format!("web-{milli}"), 1, &one);
        }
    };
    let mut empty = Cluster::new();
    add(&mut empty);
    let plan = empty.plan();
    assert_eq!((plan.unschedulable.len(), launched(&plan)), (0, vec![("c5.xlarge".to_owned(), 4)]));
    let mut running = Cluster::new();
    running.node("n1", "c5.2xlarge");
    running.bound("running", "n1", &app("web", 100));
    add(&mut running);
    let plan = running.plan();
    assert_eq!((plan.unschedulable.len(), launched(&plan), kept(&plan)), (0, vec![], vec![("n1", 4)]));
    // One of them may run on any host of the zone.
    let mut free = Cluster::new();
    add(&mut free);
    let plan = free.pending("free", 1, &zone(500)).plan();
    assert_eq!((plan.unschedulable.len(), plan.launches.len()), (0, 1));
}

/// The node in the other zone has room for the leader, but not for its followers.
#[test]
fn pods_do_not_start_on_a_node_in_a_zone_where_their_followers_have_no_place() {
    let mut follower = app("follower", 1500);
    follower.pod_affinity = vec![affinity(label::ZONE, false, "leader")];
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement(label::ZONE, Operator::In, &["zone-a"]));
    cluster.node("n1", "c5.large").labels.insert(label::ZONE.into(), "zone-b".into());
    cluster.bound("running", "n1", &shape(1000, 1));
    cluster.pending("leader", 1, &app("leader", 500)).pending("follower", 3, &follower);
    let plan = cluster.plan_with(false);
    assert_eq!((plan.unschedulable.len(), kept(&plan)), (0, vec![]));
}

/// The zone that the leader comes to first has room for one follower only. The others would wait for that zone.
#[test]
fn followers_keep_the_zone_that_has_room_for_all_of_them() {
    let in_zone = |name: &str, zone: &str| {
        let mut one = pool(name);
        one.requirements.push(requirement(label::ZONE, Operator::In, &[zone]));
        one
    };
    let mut small = in_zone("small", "zone-a");
    small.limits.set("cpu", 2000);
    let mut follower = app("web", 1500);
    follower.topology_spread = vec![spread(label::ZONE, 1)];
    follower.pod_affinity = vec![affinity(label::ZONE, false, "leader")];
    let mut cluster = Cluster::with([small, in_zone("large", "zone-b")]);
    let plan = cluster.pending("leader", 1, &app("leader", 300)).pending("follower", 3, &follower).plan();
    assert_eq!((plan.unschedulable.len(), distinct(&plan, |one| &one.zone)), (0, vec!["zone-b"]));
}
