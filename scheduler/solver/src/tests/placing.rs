//! Basic placement: resources, selectors, affinity, taints, ports, and existing nodes.

use super::builder::*;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::identity::NodeName;
use plimsoll_model::names::label;
use plimsoll_model::plan::ReasonCode;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{HostPort, NodeState, PodState, PreferredTerm, TopologySpread, VolumeTopology};
use plimsoll_model::taints::TaintEffect;

#[test]
fn the_cheapest_type_that_fits_is_chosen() {
    let plan = Cluster::new().pending("p", 1, &shape(3000, 12)).plan();
    assert_eq!(launched(&plan), [("m5.xlarge".to_owned(), 1)]);
    assert_eq!((plan.hourly.0, plan.lower_bound.0), (192_000, 192_000));
    assert_eq!(distinct(&plan, |one| &one.zone), ["zone-a", "zone-b", "zone-c"]);
}

#[test]
fn pods_share_nodes_by_price_and_not_by_size() {
    // Eight pods of 1 core and 2 GiB fill c5 nodes of any size exactly.
    let plan = Cluster::new().pending("p", 8, &shape(1000, 2)).plan();
    assert_eq!(plan.hourly.0, 320_000);
    assert_eq!(plan.lower_bound, plan.hourly);
}

#[test]
fn a_node_takes_no_more_pods_than_it_has_places_for() {
    // 21 tiny pods. A node can run 20 pods.
    let plan = Cluster::new().pending("p", 21, &shape(10, 0)).plan();
    let mut pods: Vec<usize> = launched(&plan).into_iter().map(|(_, pods)| pods).collect();
    pods.sort_unstable();
    assert_eq!((plan.launches.len(), pods.iter().sum::<usize>()), (2, 21));
    assert_eq!(plan.hourly.0, 160_000);
}

#[test]
fn a_pod_larger_than_any_type_is_told_so_with_figures() {
    let plan = Cluster::new().pending("p", 1, &shape(12_000, 1)).plan();
    assert_eq!(refused(&plan), [ReasonCode::InsufficientResources]);
    let message = &plan.unschedulable[0].reasons[0].message;
    assert_eq!(message, "insufficient cpu: 12 requested, the largest instance type of the NodePool has 8");
}

#[test]
fn node_selectors_choose_types_zones_and_nothing_unknown() {
    let mut cluster = Cluster::new();
    let mut one = shape(1000, 1);
    one.node_selector.insert("karpenter.k8s.aws/instance-family".into(), "r5".into());
    one.node_selector.insert("failure-domain.beta.kubernetes.io/zone".into(), "zone-b".into());
    let plan = cluster.pending("p", 1, &one).plan();
    assert_eq!(launched(&plan), [("r5.large".to_owned(), 1)]);
    assert_eq!(distinct(&plan, |one| &one.zone), ["zone-b"]);
    let mut other = shape(1000, 1);
    other.node_selector.insert("team".into(), "blue".into());
    let plan = Cluster::new().pending("p", 1, &other).plan();
    assert_eq!(refused(&plan), [ReasonCode::RequirementsIncompatible]);
}

#[test]
fn any_term_of_required_affinity_will_do() {
    let mut one = shape(1000, 1);
    one.required_node_affinity = vec![
        term(&[requirement(label::ARCH, Operator::In, &["s390x"])]),
        term(&[
            requirement("karpenter.k8s.aws/instance-cpu", Operator::Gt, &["2"]),
            requirement("karpenter.k8s.aws/instance-cpu", Operator::Lt, &["8"]),
            requirement(label::ZONE, Operator::NotIn, &["zone-a", "zone-b"]),
        ]),
    ];
    let plan = Cluster::new().pending("p", 1, &one).plan();
    assert_eq!(distinct(&plan, |one| &one.instance_type), ["c5.xlarge", "m5.xlarge", "r5.xlarge"]);
    assert_eq!(distinct(&plan, |one| &one.zone), ["zone-c"]);
}

#[test]
fn a_term_by_name_selects_existing_nodes_only() {
    let mut one = shape(1000, 1);
    let mut by_name = term(&[]);
    by_name.fields = vec![requirement("metadata.name", Operator::In, &["n2"])];
    one.required_node_affinity = vec![by_name];
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.node("n2", "c5.large");
    let plan = cluster.pending("p", 3, &one).plan();
    assert_eq!(kept(&plan), [("n2", 2)]);
    assert_eq!(refused(&plan), [ReasonCode::RequirementsIncompatible]);
}

#[test]
fn taints_keep_pods_off_unless_tolerated() {
    let mut cluster = Cluster::new();
    cluster.pool().taints = vec![taint("gpu", TaintEffect::NoSchedule)];
    let mut tolerant = shape(1000, 1);
    tolerant.tolerations = vec![tolerate("gpu")];
    let plan = cluster.pending("no", 1, &shape(1000, 1)).pending("yes", 1, &tolerant).plan();
    assert_eq!(plan.launches[0].pods[0].name, "ns/yes-0");
    assert_eq!(refused(&plan), [ReasonCode::TaintNotTolerated]);
    assert!(plan.unschedulable[0].reasons[0].message.contains("gpu=yes:NoSchedule"));
}

#[test]
fn a_prefer_no_schedule_taint_is_avoided_while_there_is_another_way() {
    let mut soft = pool("soft");
    soft.weight = 10;
    soft.taints = vec![taint("soft", TaintEffect::PreferNoSchedule)];
    let plan = Cluster::with([soft.clone(), pool("plain")]).pending("p", 1, &shape(1000, 1)).plan();
    assert_eq!(plan.launches[0].node_pool.as_str(), "plain");
    let plan = Cluster::with([soft]).pending("p", 1, &shape(1000, 1)).plan();
    assert_eq!(plan.launches[0].node_pool.as_str(), "soft");
}

#[test]
fn preferences_never_make_a_pod_unschedulable() {
    let mut one = shape(1000, 1);
    let nowhere = term(&[requirement(label::ZONE, Operator::In, &["zone-z"])]);
    one.preferred_node_affinity = vec![PreferredTerm { weight: 100, term: nowhere }];
    one.topology_spread = vec![TopologySpread {
        topology_key: label::ZONE.into(),
        max_skew: 1,
        min_domains: None,
        required: false,
        selector: None,
        honor_node_affinity: true,
        honor_node_taints: false,
    }];
    let plan = Cluster::new().pending("p", 5, &one).plan();
    assert_eq!((plan.hourly.0, plan.unschedulable.len()), (240_000, 0));
}

#[test]
fn host_ports_need_a_node_each() {
    let mut one = shape(100, 0);
    one.host_ports = vec![HostPort { ip: "0.0.0.0".into(), port: 80, protocol: "TCP".into() }];
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    let plan = cluster.pending("p", 3, &one).plan();
    assert_eq!((kept(&plan), plan.launches.len()), (vec![("n1", 1)], 2));
}

#[test]
fn room_that_is_paid_for_is_used_first() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.bound("b", "n1", &shape(1000, 1));
    cluster.node("n2", "m5.large").state = NodeState::InFlight;
    let plan = cluster.pending("p", 4, &shape(1000, 1)).plan();
    assert_eq!(kept(&plan), [("n1", 1), ("n2", 2)]);
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 1)]);
}

#[test]
fn pods_leave_nodes_with_devices_to_those_that_need_them() {
    let mut wanting = shape(1000, 1);
    wanting.requests.set("nvidia.com/gpu", 1);
    for name in ["a", "z"] {
        let mut cluster = Cluster::new();
        cluster.node(name, "c5.large").allocatable.set("nvidia.com/gpu", 1);
        cluster.node("m", "c5.large");
        cluster.pending("gpu", 1, &wanting).pending("cpu", 3, &shape(900, 1));
        let plan = cluster.plan();
        // The pod with the GPU leaves room for one other.
        let mut expected = [("m", 2), (name, 2)];
        expected.sort_unstable();
        assert_eq!((kept(&plan), launched(&plan)), (expected.to_vec(), vec![]));
        // Nobody asks for the GPU.
        cluster.snapshot.pods.clear();
        cluster.snapshot.shapes.clear();
        let plan = cluster.pending("cpu", 1, &shape(900, 1)).plan();
        assert_eq!((kept(&plan), launched(&plan)), (vec![("m", 1)], vec![]));
    }
}

#[test]
fn nodes_with_devices_that_most_nodes_have_are_not_left_free() {
    let mut wanting = shape(100, 1);
    wanting.requests.set("nvidia.com/gpu", 1);
    let mut cluster = Cluster::new();
    for name in ["a", "b"] {
        cluster.node(name, "c5.large").allocatable.set("nvidia.com/gpu", 1);
    }
    cluster.node("m", "c5.large");
    // Nobody asks for the GPUs.
    let plan = cluster.clone().pending("cpu", 1, &shape(900, 1)).plan();
    assert_eq!((kept(&plan), launched(&plan)), (vec![("a", 1)], vec![]));
    let plan = cluster.pending("gpu", 1, &wanting).pending("cpu", 1, &shape(900, 1)).plan();
    assert_eq!((kept(&plan), launched(&plan)), (vec![("a", 2)], vec![]));
}

#[test]
fn pods_that_need_a_gpu_come_before_larger_ones_even_if_all_nodes_have_gpus() {
    let mut wanting = shape(1000, 1);
    wanting.requests.set("nvidia.com/gpu", 1);
    let mut cluster = Cluster::new();
    for name in ["a", "b"] {
        cluster.node(name, "c5.large").allocatable.set("nvidia.com/gpu", 1);
    }
    // The larger pods do not fit beside them. No type of the catalog has a GPU.
    let plan = cluster.pending("cpu", 2, &shape(1500, 1)).pending("gpu", 2, &wanting).plan();
    assert_eq!((kept(&plan), plan.unschedulable.len()), (vec![("a", 1), ("b", 1)], 0));
}

#[test]
fn pods_that_need_a_device_of_which_all_nodes_have_plenty_do_not_come_before_larger_ones() {
    let mut wanting = shape(100, 1);
    wanting.requests.set("vpc.amazonaws.com/pod-eni", 1);
    let mut cluster = Cluster::new();
    for name in ["a", "b"] {
        cluster.node(name, "c5.large").allocatable.set("vpc.amazonaws.com/pod-eni", 9);
    }
    // If both small pods went to one node, only one large pod would fit.
    let plan = cluster.pending("large", 2, &shape(1850, 1)).pending("small", 2, &wanting).plan();
    assert_eq!((kept(&plan), launched(&plan)), (vec![("a", 2), ("b", 2)], vec![]));
}

#[test]
fn reserved_pods_hold_room_and_are_not_placed_again() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large").state = NodeState::InFlight;
    cluster.bound("waits", "n1", &shape(1500, 1)).state = PodState::Reserved(NodeName::from("n1"));
    let plan = cluster.pending("p", 1, &shape(1000, 1)).plan();
    assert_eq!((plan.placements.len(), launched(&plan)), (0, vec![("c5.large".to_owned(), 1)]));
    assert_eq!(plan.launches[0].pods[0].name, "ns/p-0");
}

#[test]
fn nodes_that_take_no_pods_get_none() {
    let mut cluster = Cluster::new();
    cluster.node("cordoned", "c5.large").cordoned = true;
    cluster.node("lost", "c5.large").ready = false;
    cluster.node("tainted", "c5.large").taints = vec![taint("t", TaintEffect::NoExecute)];
    cluster.node("full", "c5.large");
    cluster.bound("b", "full", &shape(2000, 1));
    let plan = cluster.pending("p", 1, &shape(1000, 1)).plan();
    assert_eq!((plan.placements.len(), plan.launches.len()), (0, 1));
}

#[test]
fn pods_of_a_node_that_is_being_deleted_get_a_place_at_once() {
    let mut cluster = Cluster::new();
    cluster.node("going", "m5.xlarge").deleting = true;
    cluster.bound("moves", "going", &shape(1500, 1));
    cluster.bound("daemon", "going", &shape(100, 0)).stays_with_node = true;
    cluster.bound("ends", "going", &shape(100, 0)).terminating = true;
    cluster.bound("held", "going", &shape(100, 0)).do_not_disrupt_until =
        Some(NOW.plus(plimsoll_model::time::Millis(1)));
    cluster.bound("blocked", "going", &shape(100, 0)).pod_disruption_budgets = vec!["ns/never".into()];
    cluster.budget("never", 0).fully_blocking = true;
    let plan = cluster.plan();
    let pods: Vec<&str> = plan.launches[0].pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(pods, ["ns/moves"]);
    assert_eq!((launched(&plan), plan.terminations.len()), (vec![("c5.large".to_owned(), 1)], 0));
    let next = Some(NOW.plus(plimsoll_model::time::Millis(1)));
    assert_eq!(plan.next_time, next, "a later plan finds a place for the protected pod");
    assert_eq!(cluster.plan_with(false).next_time, next, "also if plans remove no nodes");
    cluster.snapshot.nodes[0].node_pool = None;
    assert_eq!(cluster.plan().next_time, next, "also if the node has no NodePool");
}

#[test]
fn daemon_sets_take_their_room_where_they_will_run() {
    let mut daemon = shape(500, 0);
    daemon.tolerations = vec![tolerate("")];
    let plan = Cluster::new().daemon_set("agent", &daemon).pending("p", 1, &shape(1600, 1)).plan();
    assert_eq!(launched(&plan), [("c5.xlarge".to_owned(), 1)]);
    assert_eq!(plan.launches[0].requests.get("cpu"), 2100);
    // A DaemonSet that selects other nodes uses no resources.
    daemon.node_selector.insert("team".into(), "blue".into());
    let plan = Cluster::new().daemon_set("agent", &daemon).pending("p", 1, &shape(1600, 1)).plan();
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 1)]);
}

#[test]
fn daemon_sets_that_select_different_values_of_a_label_do_not_add_up() {
    let cluster = |operator: Operator| {
        let mut cluster = Cluster::new();
        cluster.pool().requirements.push(requirement("team", Operator::In, &["a", "b", "c"]));
        for team in ["a", "b", "c"] {
            let mut agent = shape(1500, 0);
            agent.required_node_affinity = vec![term(&[requirement("team", operator, &[team])])];
            cluster.daemon_set(team, &agent);
        }
        cluster
    };
    let mut one = shape(6000, 1);
    one.node_selector.insert("team".into(), "a".into());
    let plan = cluster(Operator::In).pending("p", 1, &one).plan();
    assert_eq!(launched(&plan), [("c5.2xlarge".to_owned(), 1)]);
    assert_eq!(plan.launches[0].requests.get("cpu"), 7500);
    // All of these run on a node without the label.
    let fits = |milli: i64| cluster(Operator::NotIn).pending("p", 1, &shape(milli, 1)).plan().launches.len();
    assert_eq!((fits(3500), fits(3600)), (1, 0));
}

#[test]
fn a_host_port_of_a_daemon_set_is_free_on_nodes_that_it_does_not_select() {
    let of_team = |team: &str, milli: i64| {
        let mut one = shape(milli, 0);
        one.node_selector.insert("team".into(), team.into());
        one.host_ports = vec![HostPort { ip: "0.0.0.0".into(), port: 80, protocol: "TCP".into() }];
        one
    };
    let teams = || {
        let mut cluster = Cluster::new();
        cluster.pool().requirements.push(requirement("team", Operator::In, &["a", "b"]));
        cluster
    };
    let plan = |team: &str| teams().daemon_set("agent", &of_team("a", 100)).pending("p", 1, &of_team(team, 500)).plan();
    assert_eq!(launched(&plan("b")), [("c5.large".to_owned(), 1)]);
    assert_eq!(refused(&plan("a")), [ReasonCode::HostPortConflict]);
    let mut keeps_away = of_team("b", 500);
    keeps_away.pod_affinity = vec![affinity(label::HOSTNAME, true, "guard")];
    let mut cluster = teams();
    cluster.daemon_set("agent", &of_team("a", 100)).daemon_set("guard", &app("guard", 100));
    assert_eq!(refused(&cluster.pending("p", 1, &keeps_away).plan()), [ReasonCode::TopologyUnsatisfiable]);
    for (zone, reason) in [("zone-a", ReasonCode::HostPortConflict), ("zone-x", ReasonCode::VolumeProblem)] {
        let mut attached = of_team("a", 500);
        attached.volumes = vec![VolumeTopology {
            claim: String::new(),
            driver: String::new(),
            alternatives: vec![term(&[requirement(label::ZONE, Operator::In, &[zone])])],
            problem: None,
        }];
        let plan = teams().daemon_set("agent", &of_team("a", 100)).pending("p", 1, &attached).plan();
        assert_eq!(refused(&plan), [reason]);
    }
}

#[test]
fn a_type_that_daemon_sets_overfill_takes_no_pods() {
    // The pod itself requests no memory.
    let plan = Cluster::new().daemon_set("agent", &shape(100, 5)).pending("p", 1, &shape(1000, 0)).plan();
    assert_eq!(launched(&plan), [("m5.large".to_owned(), 1)], "c5.large has 4 GiB");
    assert!(plan.launches[0].offerings.iter().all(|offering| offering.instance_type != "c5.large"));
    let plan = Cluster::new().daemon_set("agent", &shape(100, 65)).pending("p", 1, &shape(1000, 0)).plan();
    assert_eq!(refused(&plan), [ReasonCode::InsufficientResources]);
}

#[test]
fn a_launch_requests_what_daemon_sets_use_on_each_of_its_offerings() {
    let mut daemon = shape(300, 0);
    daemon.node_selector.insert("karpenter.k8s.aws/instance-family".into(), "c5".into());
    let plan = Cluster::new().daemon_set("agent", &daemon).pending("p", 1, &shape(1700, 1)).plan();
    let launch = &plan.launches[0];
    assert_eq!(launch.offerings[0].instance_type, "c5.large", "the cheapest, on which the DaemonSet runs");
    assert!(launch.offerings.iter().any(|offering| offering.instance_type == "m5.large"));
    assert_eq!(launch.requests.get("cpu"), 1700);
}

#[test]
fn a_node_on_its_way_keeps_room_for_daemon_sets_that_are_not_there_yet() {
    let mut cluster = Cluster::new();
    let daemon = shape(500, 0);
    cluster.daemon_set("agent", &daemon);
    cluster.node("n1", "c5.large").state = NodeState::Registered;
    cluster.node("n2", "c5.large");
    cluster.bound("agent-n2", "n2", &daemon).stays_with_node = true;
    let plan = cluster.pending("p", 3, &shape(700, 0)).plan();
    assert_eq!(kept(&plan), [("n1", 1), ("n2", 2)]);
    let mut cluster = Cluster::new();
    cluster.daemon_set("agent", &daemon).node("n1", "c5.large");
    let plan = cluster.pending("p", 1, &shape(1600, 0)).plan();
    assert_eq!(plan.placements.len(), 0);
}

#[test]
fn what_is_not_supported_is_said_and_the_rest_is_placed() {
    let mut spread = shape(1000, 1);
    spread.resource_claims = vec!["gpu".into()];
    let plan = Cluster::new().pending("claim", 1, &spread).pending("p", 1, &shape(1000, 1)).plan();
    assert_eq!(refused(&plan), [ReasonCode::NotSupported]);
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 1)]);
}

#[test]
fn a_pod_whose_shape_is_missing_is_reported() {
    let mut cluster = Cluster::new();
    cluster.pending("p", 1, &shape(1000, 1)).snapshot.shapes.clear();
    assert_eq!(refused(&cluster.plan()), [ReasonCode::InvalidPod]);
}

#[test]
fn spot_is_taken_where_the_pool_allows_both() {
    let mut cluster = Cluster::new();
    cluster.pool().requirements[1].values.push("spot".into());
    let plan = cluster.pending("p", 1, &shape(1000, 1)).plan();
    assert_eq!(plan.launches[0].offerings[0].capacity_type, CapacityType::Spot);
    assert_eq!(plan.hourly.0, 32_000);
    let mut on_demand = shape(1000, 1);
    on_demand.node_selector.insert(label::CAPACITY_TYPE.into(), "on-demand".into());
    cluster.snapshot.pods.clear();
    assert_eq!(cluster.pending("q", 1, &on_demand).plan().hourly.0, 80_000);
}
