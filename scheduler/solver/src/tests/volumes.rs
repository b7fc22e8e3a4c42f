//! Volumes: their zones, several volumes per pod, and limits of drivers.

use super::builder::*;
use plimsoll_model::names::label;
use plimsoll_model::plan::ReasonCode;
use plimsoll_model::requirements::{NodeSelectorTerm, Operator};
use plimsoll_model::snapshot::{NodeState, PodShape, TopologySpread, VolumeTopology};

const EBS: &str = "ebs.csi.aws.com";

/// A volume that can be attached in any of `zones`, with one term each.
fn volume(zones: &[&str]) -> VolumeTopology {
    let zone = |zone: &&str| term(&[requirement(label::ZONE, Operator::In, &[*zone])]);
    VolumeTopology {
        claim: String::new(),
        driver: EBS.into(),
        alternatives: zones.iter().map(zone).collect(),
        problem: None,
    }
}

fn with(volumes: impl IntoIterator<Item = VolumeTopology>) -> PodShape {
    PodShape { volumes: volumes.into_iter().collect(), ..shape(1000, 2) }
}

#[test]
fn a_node_is_bought_in_the_zone_of_the_volume() {
    let plan = Cluster::new().pending("p", 2, &with([volume(&["zone-b"])])).plan();
    assert_eq!((plan.unschedulable.len(), distinct(&plan, |one| &one.zone)), (0, vec!["zone-b"]));
}

#[test]
fn old_names_of_the_zone_mean_the_same() {
    for key in ["failure-domain.beta.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"] {
        let mut there = volume(&[]);
        there.alternatives = vec![term(&[requirement(key, Operator::In, &["zone-c"])])];
        let mut cluster = Cluster::new();
        cluster.node("elsewhere", "m5.large");
        let plan = cluster.pending("p", 1, &with([there])).plan_with(false);
        assert_eq!((kept(&plan), distinct(&plan, |one| &one.zone)), (vec![], vec!["zone-c"]), "{key}");
    }
}

#[test]
fn alternatives_of_several_volumes_are_met_together() {
    let plan =
        Cluster::new().pending("p", 1, &with([volume(&["zone-a", "zone-b"]), volume(&["zone-b", "zone-c"])])).plan();
    assert_eq!(distinct(&plan, |one| &one.zone), ["zone-b"]);
}

#[test]
fn volumes_in_different_zones_and_outside_the_pool_are_told() {
    let plan = Cluster::new().pending("p", 1, &with([volume(&["zone-a"]), volume(&["zone-b"])])).plan();
    assert_eq!(refused(&plan), [ReasonCode::VolumeProblem]);
    let message = &plan.unschedulable[0].reasons[0].message;
    assert!(message.contains("zone-a") && message.contains("zone-b"), "{message}");
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement(label::ZONE, Operator::In, &["zone-a"]));
    assert_eq!(refused(&cluster.pending("p", 1, &with([volume(&["zone-b"])])).plan()), [ReasonCode::VolumeProblem]);
}

#[test]
fn a_node_that_is_there_takes_pods_whose_volumes_are_in_its_zone_only() {
    let mut cluster = Cluster::new();
    cluster.node("here", "m5.large");
    cluster.pending("near", 1, &with([volume(&["zone-a"])])).pending("far", 1, &with([volume(&["zone-b"])]));
    let plan = cluster.plan_with(false);
    assert_eq!((kept(&plan), launched(&plan).len()), (vec![("here", 1)], 1));
    assert_eq!(plan.placements[0].pods[0].name, "ns/near-0");
}

#[test]
fn a_volume_on_a_nodes_own_disk_takes_its_pod_to_that_node_or_nowhere() {
    let mut local = volume(&[]);
    local.driver = String::new();
    local.alternatives = vec![term(&[requirement(label::HOSTNAME, Operator::In, &["n2"])])];
    let mut cluster = Cluster::new();
    cluster.pending("p", 1, &with([local]));
    assert_eq!(refused(&cluster.plan()), [ReasonCode::VolumeProblem]);
    cluster.node("n1", "m5.large");
    cluster.node("n2", "m5.large");
    assert_eq!(kept(&cluster.plan_with(false)), [("n2", 1)]);
}

#[test]
fn the_attach_limit_of_a_node_counts_what_is_attached() {
    let mut cluster = Cluster::new();
    cluster.node("full", "m5.2xlarge").allocatable.set("attachable-volumes-csi-ebs.csi.aws.com", 3);
    cluster.bound("a", "full", &with([volume(&["zone-a"]), volume(&["zone-a"])]));
    cluster.pending("p", 2, &with([volume(&["zone-a"])]));
    let plan = cluster.plan_with(false);
    assert_eq!((kept(&plan), launched(&plan).len()), (vec![("full", 1)], 1));
}

#[test]
fn the_volumes_of_daemon_sets_are_counted() {
    let of = |count: usize, zones: &[&str]| PodShape {
        requests: shape(100, 0).requests,
        ..with((0..count).map(|_| volume(zones)))
    };
    let mut cluster = Cluster::new();
    cluster.pending("p", 2, &of(10, &["zone-a"]));
    assert_eq!(cluster.plan().launches.len(), 1, "20 of 25 volumes");
    cluster.daemon_set("agent", &of(8, &[]));
    assert_eq!(cluster.plan().launches.len(), 2, "18 of 25 volumes on each");
    let mut cluster = Cluster::new();
    cluster.node("n", "m5.2xlarge").allocatable.set("attachable-volumes-csi-ebs.csi.aws.com", 18);
    cluster.daemon_set("agent", &of(8, &[]));
    cluster.pending("p", 1, &of(10, &["zone-a"]));
    assert_eq!(kept(&cluster.plan_with(false)), [("n", 1)]);
    cluster.bound("agent", "n", &of(8, &[])).stays_with_node = true;
    assert_eq!(kept(&cluster.plan_with(false)), [("n", 1)], "the pod of the DaemonSet counts once");
}

#[test]
fn pods_that_share_a_claim_share_its_attachment() {
    let mut shared = volume(&["zone-a"]);
    shared.claim = "data".into();
    let mut cluster = Cluster::new();
    cluster.node("n", "m5.2xlarge").allocatable.set("attachable-volumes-csi-ebs.csi.aws.com", 2);
    cluster.bound("a", "n", &with([shared.clone()]));
    cluster.bound("b", "n", &with([shared]));
    assert_eq!(kept(&cluster.pending("p", 1, &with([volume(&["zone-a"])])).plan_with(false)), [("n", 1)]);
}

#[test]
fn a_node_in_service_whose_driver_names_no_limit_has_none() {
    let mut cluster = Cluster::new();
    cluster.node("n", "m5.2xlarge");
    let many = with((0..30).map(|_| volume(&["zone-a"])));
    assert_eq!(kept(&cluster.pending("p", 1, &many).plan_with(false)), [("n", 1)]);
    cluster.snapshot.nodes[0].state = NodeState::Registered;
    let plan = cluster.plan_with(false);
    assert_eq!((kept(&plan), refused(&plan)), (vec![], vec![ReasonCode::InsufficientResources]));
    let message = &plan.unschedulable[0].reasons[0].message;
    assert_eq!(
        message,
        "insufficient attachable-volumes-csi-ebs.csi.aws.com: 30 requested, the largest instance type of the NodePool has 25"
    );
}

#[test]
fn new_nodes_take_as_many_volumes_as_their_type() {
    let two = with((0..10).map(|_| volume(&["zone-a"])));
    let mut cluster = Cluster::new();
    cluster.pending("p", 6, &PodShape { requests: shape(100, 0).requests, ..two });
    let plan = cluster.plan();
    let mut pods: Vec<usize> = launched(&plan).into_iter().map(|(_, pods)| pods).collect();
    pods.sort_unstable();
    assert_eq!(pods, [2, 2, 2], "25 volumes on one node, 10 for each pod");
    assert!(plan.launches.iter().all(|one| !one.requests.iter().any(|(name, _)| name.starts_with("attachable"))));
    for kind in &mut cluster.catalog.instance_types {
        kind.capacity.set("attachable-volumes-csi-ebs.csi.aws.com", 60);
    }
    assert_eq!(cluster.plan().launches.len(), 1);
}

#[test]
fn a_spread_counts_zones_in_which_the_volume_is_not() {
    // As in kube-scheduler, node affinity restricts the domains of a spread, but volumes do not. Zone b has a node and
    // stays empty, so zone a gets one pod and no second one.
    let mut spread = with([volume(&["zone-a"])]);
    spread.labels.insert("app".into(), "db".into());
    let selector =
        plimsoll_model::snapshot::LabelSelector { match_labels: spread.labels.clone(), ..Default::default() };
    spread.topology_spread = vec![TopologySpread {
        topology_key: label::ZONE.into(),
        max_skew: 1,
        min_domains: None,
        required: true,
        selector: Some(selector),
        honor_node_affinity: true,
        honor_node_taints: false,
    }];
    let mut cluster = Cluster::new();
    cluster.pending("p", 2, &spread);
    let alone = cluster.plan();
    cluster.node("n1", "c5.large").labels.insert(label::ZONE.into(), "zone-b".into());
    let plan = cluster.plan();
    // Without n1, only zone a has nodes.
    assert_eq!([alone.unschedulable.len(), plan.unschedulable.len()], [0, 1]);
}

#[test]
fn a_volume_may_ask_for_a_label_that_the_pool_leaves_open() {
    let mut racked = volume(&[]);
    racked.alternatives = vec![
        NodeSelectorTerm { expressions: vec![requirement("rack", Operator::In, &["r9"])], fields: Vec::new() },
        NodeSelectorTerm { expressions: vec![requirement("rack", Operator::In, &["r2"])], fields: Vec::new() },
    ];
    let mut cluster = Cluster::new();
    cluster.pool().requirements.push(requirement("rack", Operator::In, &["r1", "r2"]));
    let plan = cluster.pending("p", 1, &with([racked])).plan();
    assert!(plan.launches[0].requirements.contains(&requirement("rack", Operator::In, &["r2"])), "{plan:#?}");
}
