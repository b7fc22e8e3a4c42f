//! Subnets of one zone: launches between two reads of the free addresses are spread over them.

use plimsoll_model::names::label;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Instances by subnet.
fn by_subnet(world: &World) -> BTreeMap<String, usize> {
    let mut subnets = BTreeMap::new();
    for machine in world.living_instances().into_values() {
        *subnets.entry(machine.subnet_id).or_default() += 1;
    }
    subnets
}

#[tokio::test(start_paused = true)]
async fn launches_between_two_reads_are_spread_over_the_subnets_of_a_zone() {
    let requirements = json!([
        {"key": label::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]},
        {"key": label::INSTANCE_TYPE, "operator": "In", "values": ["m6i.large"]},
        {"key": label::ZONE, "operator": "In", "values": ["us-west-2a"]},
    ]);
    let mut setup = Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}}));
    setup.world.networks = vec!["demo".to_owned(), "more".to_owned()];
    let cluster = TestCluster::begin(setup).await;
    let terms = ["demo", "more"].map(|tag| json!({"tags": {"karpenter.sh/discovery": tag}}));
    let spec = json!({"spec": {"subnetSelectorTerms": terms}});
    cluster.world.patch(ResourceId::EC2_NODE_CLASSES, "default", spec).unwrap();
    cluster.pass(2 * MINUTE).await;
    // Each pod needs a node of its own.
    for number in 1..=4 {
        cluster.deploy(&format!("web-{number}"), 1, 1500);
        let bought = move |world: &World| instances_ever_launched(world).len() == number;
        cluster.until("the next instance is launched", MINUTE, bought).await;
        cluster.pass(Duration::from_millis(500)).await;
    }
    let expected = ["demo", "more"].map(|network| (format!("subnet-{network}-us-west-2a"), 2));
    assert_eq!(by_subnet(&cluster.world), expected.into(), "{}", cluster.summary());
}
