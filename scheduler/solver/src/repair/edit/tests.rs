//! Tests of the On-Demand share of edited plans.

use super::{Inputs, spot_pods};
use crate::repair::Overlaid;
use crate::tests::builder::Cluster;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::identity::{ActionId, NodePoolName, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, OfferingChoice, Placement, Plan, PodRef};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{NodePool, OnDemandMix};
use std::collections::BTreeMap;
use std::sync::Arc;

fn refs(pods: &[&str]) -> Vec<PodRef> {
    pods.iter().map(|name| PodRef { name: (*name).into(), uid: PodUid::from(*name) }).collect()
}

fn launch(capacity_types: &[CapacityType], pods: &[&str]) -> Launch {
    let offering = |capacity_type: &CapacityType| OfferingChoice {
        instance_type: "c5.large".into(),
        zone: "zone-a".into(),
        capacity_type: *capacity_type,
        price: MicroUsdPerHour(0),
        reservation: None,
    };
    Launch {
        action_id: ActionId("launch".into()),
        node_pool: NodePoolName::from("default"),
        node_class: "default".into(),
        offerings: Arc::new(capacity_types.iter().map(offering).collect()),
        requirements: Arc::default(),
        requests: Resources::new(),
        taints: Vec::new(),
        labels: BTreeMap::new(),
        pods: refs(pods),
        prioritized: false,
        why: String::new(),
    }
}

#[test]
fn pods_count_where_spot_may_be_in_node_pools_with_an_on_demand_share() {
    let (on_demand, spot) = (CapacityType::OnDemand, CapacityType::Spot);
    let elsewhere = Launch { node_pool: NodePoolName::from("other"), ..launch(&[spot], &["e"]) };
    let placement = |node: &str, pods: &[&str]| Placement { node: node.into(), pods: refs(pods) };
    let plan = Plan {
        launches: vec![
            launch(&[on_demand], &["a"]),
            launch(&[spot], &["b"]),
            launch(&[spot, on_demand], &["c", "d"]),
            elsewhere,
        ],
        placements: vec![
            placement("n1-spot", &["f", "g", "h"]),
            placement("n2-other", &["i"]),
            placement("n3-on-demand", &["j"]),
        ],
        ..Plan::default()
    };
    let catalogs = BTreeMap::new();
    let mut cluster = Cluster::new();
    cluster.node_of("n1-spot", "c5.large", "default", spot);
    cluster.node_of("n2-other", "c5.large", "other", spot);
    cluster.node_of("n3-on-demand", "c5.large", "default", on_demand);
    let mut snapshot = cluster.snapshot;
    let other = NodePool { name: NodePoolName::from("other"), ..snapshot.node_pools[0].clone() };
    snapshot.node_pools.push(other);
    for (share, pods) in [(None, 0), (Some(OnDemandMix { base: 1, percentage: 0 }), 6)] {
        snapshot.node_pools[0].on_demand = share;
        let inputs = Inputs { snapshot: &snapshot, catalogs: &catalogs, overlaid: &Overlaid::new() };
        assert_eq!(spot_pods(inputs, &plan), pods, "{share:?}");
    }
}
