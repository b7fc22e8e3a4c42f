//! Drift: nodes with another image, subnet or security group than their class selects are replaced within the budgets,
//! and nothing is replaced because a fact is missing.

use crate::removal::most_at_once;
use plimsoll_actuator::ports::CloudError;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect, Machine};
use plimsoll_sim::world::World;
use plimsoll_tests::{HOUR, MINUTE, Scene, Setup, instances_ever_launched};
use serde_json::{Value, json};

/// Three nodes with one pod each. The budget is one node.
async fn three_nodes() -> Scene {
    let requirements = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.xlarge"]}]);
    let spec =
        json!({"template": {"spec": {"requirements": requirements}}, "disruption": {"budgets": [{"nodes": "1"}]}});
    let mut setup = Setup::with_pool(spec);
    setup.scenery.networks = vec!["demo".to_owned(), "other".to_owned()];
    let scene = Scene::begin(setup).await;
    scene.deploy("web", 3, 3000);
    scene.until_running(3, 3 * MINUTE).await;
    // The instances have been listed.
    scene.pass(2 * MINUTE).await;
    scene
}

fn change_class(scene: &Scene, spec: &Value) {
    scene.world.patch(ResourceId::EC2_NODE_CLASSES, "default", json!({ "spec": spec })).unwrap();
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

async fn all_are_replaced_once(scene: &Scene, what: &str, is_new: impl Fn(&Machine) -> bool) {
    let replaced = |world: &World| {
        assert!(world.running_pods() >= 2, "more than one pod is out of service");
        let instances = world.living_instances();
        instances.len() == 3 && instances.values().all(&is_new) && world.running_pods() == 3
    };
    scene.until(what, HOUR, replaced).await;
    scene.pass(20 * MINUTE).await;
    assert_eq!(most_at_once(scene), 1, "the budget allows one node at a time");
    assert_eq!(instances_ever_launched(&scene.world).len(), 6, "{}", scene.summary());
}

#[tokio::test(start_paused = true)]
async fn nodes_get_a_new_release_of_their_image_one_by_one() {
    let scene = three_nodes().await;
    let old: Vec<String> = scene.world.living_instances().into_values().map(|machine| machine.image_id).collect();
    scene.world.ec2.with(|cloud, now| cloud.release_images("v20260101", now));
    scene.until("the image has drifted", 15 * MINUTE, |world| drifted(world, "AMIDrift") > 0).await;
    let is_new = |machine: &Machine| !old.contains(&machine.image_id);
    all_are_replaced_once(&scene, "all nodes have the new image", is_new).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_move_to_the_subnets_and_security_groups_that_their_class_selects() {
    let scene = three_nodes().await;
    change_class(&scene, &other(&["subnetSelectorTerms", "securityGroupSelectorTerms"]));
    let seen = |world: &World| drifted(world, "SecurityGroupDrift") > 0;
    scene.until("the security groups have drifted", 15 * MINUTE, seen).await;
    let is_new =
        |machine: &Machine| machine.subnet_id.starts_with("subnet-other") && machine.security_group_ids == ["sg-other"];
    all_are_replaced_once(&scene, "all nodes are in the other network", is_new).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_in_subnets_that_are_no_longer_selected_are_replaced() {
    let scene = three_nodes().await;
    change_class(&scene, &other(&["subnetSelectorTerms"]));
    scene.until("the subnets have drifted", MINUTE, |world| drifted(world, "SubnetDrift") > 0).await;
    let is_new = |machine: &Machine| machine.subnet_id.starts_with("subnet-other");
    all_are_replaced_once(&scene, "all nodes are in the other subnets", is_new).await;
}

/// Data that is missing or incomplete does not count as drift.
#[tokio::test(start_paused = true)]
async fn nothing_drifts_while_instances_cannot_be_listed() {
    let scene = three_nodes().await;
    let refuse = || Effect::Refuse(CloudError::Throttled);
    scene.world.ec2.faults(|faults| faults.inject(Action::DescribeInstances, refuse(), u32::MAX));
    scene.pass(5 * MINUTE).await;
    change_class(&scene, &other(&["securityGroupSelectorTerms"]));
    scene.pass(20 * MINUTE).await;
    assert_eq!(drifted(&scene.world, "SecurityGroupDrift"), 0);
    assert_eq!(instances_ever_launched(&scene.world).len(), 3, "{}", scene.summary());
    scene.world.ec2.faults(plimsoll_sim::cloud::Faults::clear);
    let is_new = |machine: &Machine| machine.security_group_ids == ["sg-other"];
    all_are_replaced_once(&scene, "all nodes have the other security group", is_new).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_looked_up_is_no_drift() {
    let scene = three_nodes().await;
    let refuse = || Effect::Refuse(CloudError::Throttled);
    scene.world.ec2.faults(|faults| {
        faults.inject(Action::DescribeImages, refuse(), u32::MAX);
        faults.inject(Action::GetParameter, refuse(), u32::MAX);
    });
    scene.pass(HOUR).await;
    assert_eq!(scene.world.count(ResourceId::NODE_CLAIMS, |claim| object::condition_is_true(claim, "Drifted")), 0);
    assert_eq!(instances_ever_launched(&scene.world).len(), 3);
}

/// Without a value of the label, the node would not meet its pool's requirements, and neither would its successor.
#[tokio::test(start_paused = true)]
async fn nodes_of_a_pool_with_any_value_of_a_custom_label_do_not_drift() {
    let requirements = json!([{"key": "example.com/tenant", "operator": "Exists"},
                              {"key": "example.com/generation", "operator": "Gt", "values": ["2"]}]);
    let scene = Scene::begin(Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}}))).await;
    scene.deploy("web", 1, 3000);
    scene.until_running(1, 3 * MINUTE).await;
    scene.pass(HOUR).await;
    let labels = scene.claims()[0]["metadata"]["labels"].clone();
    assert_eq!((&labels["example.com/tenant"], &labels["example.com/generation"]), (&json!("0"), &json!("3")));
    assert_eq!(scene.world.count(ResourceId::NODE_CLAIMS, |claim| object::condition_is_true(claim, "Drifted")), 0);
    assert_eq!(instances_ever_launched(&scene.world).len(), 1, "{}", scene.summary());
}
