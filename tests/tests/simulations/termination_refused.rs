//! Instances that EC2 refuses to terminate: they block no other instances, and their claims give the reason.

use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::Action;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster};
use serde_json::json;

/// Number of nodes that are removed together.
const NODES: usize = 16;

/// Number of calls of TerminateInstances so far.
fn calls(world: &World) -> usize {
    world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::TerminateInstances).count())
}

/// Messages of the condition InstanceTerminating, by claim.
fn said(world: &World) -> Vec<(String, String)> {
    let claims = world.all(ResourceId::NODE_CLAIMS);
    let conditions = claims.iter().flat_map(|claim| object::items(claim, &["status", "conditions"]));
    let terminating = conditions.filter(|condition| object::text(condition, &["type"]) == "InstanceTerminating");
    terminating
        .map(|it| (object::text(it, &["reason"]).to_owned(), object::text(it, &["message"]).to_owned()))
        .collect()
}

/// Creates one pod per node and protects `protected` instances from termination; then deletes the workload.
async fn all_may_go(protected: usize) -> (TestCluster, Vec<String>) {
    let requirements = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.xlarge"]}]);
    let cluster =
        TestCluster::begin(Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}}))).await;
    cluster.deploy("web", u32::try_from(NODES).unwrap(), 3000);
    cluster.until_running(NODES, 5 * MINUTE).await;
    let ids: Vec<String> = cluster.world.living_instances().into_keys().take(protected).collect();
    cluster.world.ec2.with(|cloud, _| ids.iter().for_each(|id| cloud.protect(id, true)));
    cluster.scale("web", 0);
    (cluster, ids)
}

#[tokio::test(start_paused = true)]
async fn a_protected_instance_keeps_no_other_and_its_claim_says_why() {
    let (cluster, protected) = all_may_go(1).await;
    let remaining = protected.clone();
    let only = move |world: &World| world.living_instances().into_keys().collect::<Vec<_>>() == remaining;
    cluster.until("only the protected instance remains", 5 * MINUTE, only).await;
    let has_reason = |world: &World| said(world).iter().any(|(reason, _)| reason == "TerminationRefused");
    cluster.until("its claim has the reason", MINUTE, has_reason).await;
    let (_, message) = said(&cluster.world).remove(0);
    for part in [protected[0].as_str(), "OperationNotPermitted", "may not be terminated"] {
        assert!(message.contains(part), "{message:?} does not name {part}");
    }
    // The termination is retried with increasing delay.
    let before = calls(&cluster.world);
    cluster.pass(30 * MINUTE).await;
    let again = calls(&cluster.world) - before;
    assert!((5..=14).contains(&again), "{again} calls in half an hour");
    cluster.world.ec2.with(|cloud, _| cloud.protect(&protected[0], false));
    cluster.until_empty(10 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn several_protected_instances_are_found_with_few_calls() {
    let (cluster, protected) = all_may_go(3).await;
    let before = calls(&cluster.world);
    let mut remaining = protected.clone();
    remaining.sort();
    let only = move |world: &World| world.living_instances().into_keys().collect::<Vec<_>>() == remaining;
    cluster.until("only the protected instances remain", 5 * MINUTE, only).await;
    let made = calls(&cluster.world) - before;
    assert!(made <= 3 * NODES, "{made} calls");
    cluster.world.ec2.with(|cloud, _| protected.iter().for_each(|id| cloud.protect(id, false)));
    cluster.until_empty(10 * MINUTE).await;
}

/// Garbage collection terminates instances without a claim through the same call.
#[tokio::test(start_paused = true)]
async fn a_protected_instance_without_claim_keeps_no_other() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    let stray = |number: u32| {
        cluster.world.ec2.with(|cloud, now| {
            let mut request = cloud.fleets()[0].request.clone();
            request.client_token = format!("stray-{number}");
            request.total_target_capacity = 1;
            request.tags.insert(plimsoll_model::names::tag::LAUNCH_GROUP.to_owned(), format!("lost-{number}"));
            cloud.create_fleet(&request, now).unwrap().instances[0].instance_id.clone()
        })
    };
    let strays: Vec<String> = (0..3).map(stray).collect();
    cluster.world.ec2.with(|cloud, _| cloud.protect(&strays[0], true));
    let node = cluster.world.living_instances()[&strays[0]].private_dns_name.clone();
    let uid = |world: &World| world.get(ResourceId::NODES, &node).map(|node| object::uid(&node).to_owned());
    cluster.until("it becomes a Node", MINUTE, |world| uid(world).is_some()).await;
    let before = uid(&cluster.world);
    let others = strays[1..].to_vec();
    let gone = move |world: &World| others.iter().all(|id| !world.living_instances().contains_key(id));
    cluster.until("the other strays are terminated", 15 * MINUTE, gone).await;
    // Two more rounds.
    cluster.pass(2 * MINUTE).await;
    assert!(cluster.world.living_instances().contains_key(&strays[0]));
    assert_eq!(uid(&cluster.world), before, "the Node of an instance that runs");
    assert_eq!(
        cluster.claims().iter().filter(|claim| object::annotation(claim, annotation::OWNER).is_some()).count(),
        1
    );
}
