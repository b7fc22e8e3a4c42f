//! Tests of volumes, on-demand ratios and static pools.

use super::*;
use plimsoll_model::snapshot::{OnDemandMix, OnDemandRatio, VolumeTopology};

fn volume(zone: &str) -> VolumeTopology {
    let expression = NodeSelectorRequirement::new("failure-domain.beta.kubernetes.io/zone", Operator::In, [zone]);
    let term = NodeSelectorTerm { expressions: vec![expression], fields: Vec::new() };
    VolumeTopology { claim: String::new(), driver: "d".into(), alternatives: vec![term], problem: None }
}

fn require_on_demand(shape: &mut PodShape) {
    let mix = OnDemandMix { base: 1, percentage: 0 };
    shape.on_demand = Some(OnDemandRatio { workload: "Deployment/web".into(), mix });
}

#[test]
fn volumes_must_be_attachable_to_the_node() {
    accepted(|case| case.reshape("fits", |shape| shape.volumes.push(volume("zone-a"))));
    rejected("pod ns/fits cannot run on n1: a volume that cannot be attached there", |case| {
        case.reshape("fits", |shape| shape.volumes.push(volume("zone-b")));
    });
    rejected("pod ns/new cannot run on", |case| {
        case.reshape("new", |shape| shape.volumes.push(volume("zone-z")));
    });
}

#[test]
fn a_volume_with_a_problem_cannot_be_attached() {
    let problem = Some("persistent volume claim \"data\" not found".to_owned());
    let unknown = || VolumeTopology { alternatives: Vec::new(), problem: problem.clone(), ..volume("zone-a") };
    rejected("pod ns/fits cannot run on n1: a volume that cannot be attached there", |case| {
        case.reshape("fits", |shape| shape.volumes.push(unknown()));
    });
    rejected("pod ns/new cannot run on", |case| {
        case.reshape("new", |shape| shape.volumes.push(unknown()));
    });
}

#[test]
fn volume_attach_limits_are_respected() {
    let limit = |case: &mut Case, limit| {
        let node = case.snapshot.nodes.iter_mut().find(|node| node.name.as_str() == "n1").unwrap();
        node.allocatable.set("attachable-volumes-csi-d", limit);
        case.reshape("stays", |shape| shape.volumes.push(volume("zone-a")));
        case.reshape("fits", |shape| shape.volumes.push(volume("zone-a")));
    };
    accepted(|case| limit(case, 2));
    rejected("n1 has too little attachable-volumes-csi-d", |case| limit(case, 1));
    accepted(|case| {
        limit(case, 1);
        case.snapshot.shapes.iter_mut().flat_map(|shape| &mut shape.volumes).for_each(|one| one.claim = "both".into());
    });
}

#[test]
fn on_demand_ratios_are_respected() {
    rejected("workload /Deployment/web: 1 of 1 pods go where Spot may be, 1 have to run On-Demand", |case| {
        case.reshape("fits", require_on_demand);
    });
    accepted(|case| {
        case.reshape("fits", require_on_demand);
        let node = case.snapshot.nodes.iter_mut().find(|node| node.name.as_str() == "n1").unwrap();
        node.labels.insert(label::CAPACITY_TYPE.into(), "on-demand".into());
    });
    accepted(|case| case.reshape("new", require_on_demand));
}

#[test]
fn a_static_pool_does_not_exceed_its_replicas() {
    let fixed = |case: &mut Case, replicas| {
        case.snapshot.node_pools[0].replicas = Some(replicas);
        case.plan.placements[0].pods.push(pod_ref("new"));
        case.plan.launches[0].pods.clear();
    };
    // n1 stays, the other nodes are removed.
    accepted(|case| fixed(case, 2));
    rejected("pool default exceeds its limit of replicas", |case| fixed(case, 1));
    rejected("has no pods or no offerings", |case| {
        fixed(case, 2);
        case.snapshot.node_pools[0].replicas = None;
    });
}
