//! Drift: nodes with another image, subnet or security group than their class selects are replaced within the budgets,
//! and nothing is replaced because a fact is missing.

use crate::removal::most_at_once;
use plimsoll_actuator::ports::CloudError;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect, Machine};
use plimsoll_sim::world::World;
use plimsoll_tests::{HOUR, MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::{Value, json};

/// Three nodes with one pod each. The budget is one node.
async fn three_nodes() -> TestCluster {
    let requirements = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.xlarge"]}]);
    let spec =
        json!({"template": {"spec": {"requirements": requirements}}, "disruption": {"budgets": [{"nodes": "1"}]}});
    let mut setup = Setup::with_pool(spec);
    setup.world.networks = vec!["demo".to_owned(), "other".to_owned()];
    let cluster = TestCluster::begin(setup).await;
    cluster.deploy("web", 3, 3000);
    cluster.until_running(3, 3 * MINUTE).await;
    // The instances have been listed.
    cluster.pass(2 * MINUTE).await;
    cluster
}

fn change_class(cluster: &TestCluster, spec: &Value) {
    cluster.world.patch(ResourceId::EC2_NODE_CLASSES, "default", json!({ "spec": spec })).unwrap();
}

/// Selector terms for another network.
fn other(kinds: &[&str]) -> Value {
    let terms = json!([{"tags": {"karpenter.sh/discovery": "other"}}]);
    kinds.iter().map(|kind| ((*kind).to_owned(), terms.clone())).collect()
}

fn drifted(world: &World, reason: &str) -> usize {
    let is_drifted = |claim: &Value| {
        let conditions = object::items(claim, &["status", "conditions"]);
        conditions.iter().any(|it| it["type"] == "Drifted" && it["status"] == "True" && it["reason"] == reason)
    };
    world.count(ResourceId::NODE_CLAIMS, is_drifted)
}

async fn all_are_replaced_once(cluster: &TestCluster, what: &str, is_new: impl Fn(&Machine) -> bool) {
    let replaced = |world: &World| {
        assert!(world.running_pods() >= 2, "more than one pod is out of service");
        let instances = world.living_instances();
        instances.len() == 3 && instances.values().all(&is_new) && world.running_pods() == 3
    };
    cluster.until(what, HOUR, replaced).await;
    cluster.pass(20 * MINUTE).await;
    assert_eq!(most_at_once(cluster), 1, "the budget allows one node at a time");
    assert_eq!(instances_ever_launched(&cluster.world).len(), 6, "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn nodes_get_a_new_release_of_their_image_one_by_one() {
    let cluster = three_nodes().await;
    let old: Vec<String> = cluster.world.living_instances().into_values().map(|machine| machine.image_id).collect();
    cluster.world.ec2.with(|cloud, now| cloud.release_images("v20260101", now));
    cluster.until("the image has drifted", 15 * MINUTE, |world| drifted(world, "AMIDrift") > 0).await;
    let is_new = |machine: &Machine| !old.contains(&machine.image_id);
    all_are_replaced_once(&cluster, "all nodes have the new image", is_new).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_move_to_the_subnets_and_security_groups_that_their_class_selects() {
    let cluster = three_nodes().await;
    change_class(&cluster, &other(&["subnetSelectorTerms", "securityGroupSelectorTerms"]));
    let seen = |world: &World| drifted(world, "SecurityGroupDrift") > 0;
    cluster.until("the security groups have drifted", 15 * MINUTE, seen).await;
    let is_new =
        |machine: &Machine| machine.subnet_id.starts_with("subnet-other") && machine.security_group_ids == ["sg-other"];
    all_are_replaced_once(&cluster, "all nodes are in the other network", is_new).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_in_subnets_that_are_no_longer_selected_are_replaced() {
    let cluster = three_nodes().await;
    change_class(&cluster, &other(&["subnetSelectorTerms"]));
    cluster.until("the subnets have drifted", MINUTE, |world| drifted(world, "SubnetDrift") > 0).await;
    let is_new = |machine: &Machine| machine.subnet_id.starts_with("subnet-other");
    all_are_replaced_once(&cluster, "all nodes are in the other subnets", is_new).await;
}

/// Data that is missing or incomplete does not count as drift.
#[tokio::test(start_paused = true)]
async fn nothing_drifts_while_instances_cannot_be_listed() {
    let cluster = three_nodes().await;
    let refuse = || Effect::Refuse(CloudError::Throttled);
    cluster.world.ec2.faults(|faults| faults.inject(Action::DescribeInstances, refuse(), u32::MAX));
    cluster.pass(5 * MINUTE).await;
    change_class(&cluster, &other(&["securityGroupSelectorTerms"]));
    cluster.pass(20 * MINUTE).await;
    assert_eq!(drifted(&cluster.world, "SecurityGroupDrift"), 0);
    assert_eq!(instances_ever_launched(&cluster.world).len(), 3, "{}", cluster.summary());
    cluster.world.ec2.faults(plimsoll_sim::cloud::Faults::clear);
    let is_new = |machine: &Machine| machine.security_group_ids == ["sg-other"];
    all_are_replaced_once(&cluster, "all nodes have the other security group", is_new).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_looked_up_is_no_drift() {
    let cluster = three_nodes().await;
    let refuse = || Effect::Refuse(CloudError::Throttled);
    cluster.world.ec2.faults(|faults| {
        faults.inject(Action::DescribeImages, refuse(), u32::MAX);
        faults.inject(Action::GetParameter, refuse(), u32::MAX);
    });
    cluster.pass(HOUR).await;
    assert_eq!(cluster.world.count(ResourceId::NODE_CLAIMS, |claim| object::condition_is_true(claim, "Drifted")), 0);
    assert_eq!(instances_ever_launched(&cluster.world).len(), 3);
}

/// Without a value of the label, the node would not meet its pool's requirements, and neither would its successor.
#[tokio::test(start_paused = true)]
async fn nodes_of_a_pool_with_any_value_of_a_custom_label_do_not_drift() {
    let requirements = json!([{"key": "example.com/tenant", "operator": "Exists"},
                              {"key": "example.com/generation", "operator": "Gt", "values": ["2"]}]);
    let cluster =
        TestCluster::begin(Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}}))).await;
    cluster.deploy("web", 1, 3000);
    cluster.until_running(1, 3 * MINUTE).await;
    cluster.pass(HOUR).await;
    let labels = cluster.claims()[0]["metadata"]["labels"].clone();
    assert_eq!((&labels["example.com/tenant"], &labels["example.com/generation"]), (&json!("0"), &json!("3")));
    assert_eq!(cluster.world.count(ResourceId::NODE_CLAIMS, |claim| object::condition_is_true(claim, "Drifted")), 0);
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1, "{}", cluster.summary());
}
