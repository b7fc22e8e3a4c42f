//! Instances whose launch was not recorded are found, and launched only once (rules 3, 4 and 14).

use plimsoll_actuator::ports::{LaunchTemplateFilter, Tags};
use plimsoll_model::names::{annotation, label, tag};
use plimsoll_sim::apiserver::faults::Gate;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Cloud, Effect};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, claims_ever_launched, instances_ever_launched};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Launches the node of one pod and holds the response.
async fn bought_and_not_told(cluster: &TestCluster) -> Gate {
    let gate = Gate::default();
    cluster.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::HoldAfter(gate.clone()), 1));
    cluster.deploy("web", 1, 3000);
    gate.reached(1).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1);
    gate
}

/// Rule 4: tags are part of the launch, and they are enough to find an instance that no process remembers.
#[tokio::test(start_paused = true)]
async fn an_instance_that_nobody_remembers_is_found_by_the_tags_of_its_launch() {
    let mut cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let gate = bought_and_not_told(&cluster).await;
    let claim = object::name(&cluster.claims()[0]).to_owned();
    let tags = cluster.world.living_instances().into_values().next().unwrap().tags;
    for (key, value) in [
        (tag::OWNER, annotation::OWNER_VALUE),
        ("kubernetes.io/cluster/demo", "owned"),
        (tag::NODE_POOL, "default"),
        (tag::NODE_CLAIM, claim.as_str()),
        (tag::LAUNCH_ATTEMPT, "1"),
    ] {
        assert_eq!(tags.get(key).map(String::as_str), Some(value), "{key} of {tags:?}");
    }
    assert!(tags.contains_key(tag::LAUNCH_GROUP));
    let leader = cluster.plimsoll.leader(Role::Actuator).unwrap();
    cluster.plimsoll.kill(&leader);
    gate.open();
    // The claim was removed together with its finalizer.
    cluster.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    cluster.world.patch(ResourceId::NODE_CLAIMS, &claim, json!({"metadata": {"finalizers": null}})).unwrap();
    cluster.scale("web", 0);
    cluster.until_empty(15 * MINUTE).await;
}

/// Rule 3: EC2 expires tokens. An attempt that is older than ten minutes is looked up, not sent again.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_too_old_is_looked_up_and_not_sent_again() {
    let mut cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let gate = bought_and_not_told(&cluster).await;
    cluster.plimsoll.kill_all(Role::Actuator);
    gate.open();
    cluster.pass(12 * MINUTE).await;
    cluster.world.ec2.with(|cloud, _| Cloud::forget_tokens(cloud));
    cluster.plimsoll.start_another(Role::Actuator);
    cluster.until_running(1, 10 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1, "{}", cluster.summary());
    assert_eq!(claims_ever_launched(&cluster.world).len(), 1);
}

/// EC2 shows a terminated instance for about an hour.
#[tokio::test(start_paused = true)]
async fn an_instance_that_was_terminated_meanwhile_is_not_adopted() {
    let mut cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let gate = bought_and_not_told(&cluster).await;
    cluster.plimsoll.kill_all(Role::Actuator);
    gate.open();
    let terminated = cluster.world.ec2.with(|cloud, now| {
        let ids = cloud.ever_launched().to_vec();
        cloud.terminate_instances(&ids, now);
        ids
    });
    cluster.pass(12 * MINUTE).await;
    cluster.plimsoll.start_another(Role::Actuator);
    cluster.until_running(1, 15 * MINUTE).await;
    let adopted = claims_ever_launched(&cluster.world);
    assert!(!adopted.values().any(|id| terminated.contains(id)), "{terminated:?}: {adopted:?}");
}

/// Rule 14: a claim that is deleted while its call may be in flight stays until the result is known.
#[tokio::test(start_paused = true)]
async fn a_deleted_claim_stays_while_its_call_may_still_be_on_its_way() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let late = Effect::Late(Duration::from_secs(60));
    cluster.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, late, 1000));
    cluster.deploy("web", 1, 3000);
    let called =
        |world: &World| world.ec2.read(|cloud, _| cloud.log.iter().any(|call| call.action == Action::CreateFleet));
    cluster.until("a fleet is called", MINUTE, called).await;
    let claim = object::name(&cluster.claims()[0]).to_owned();
    cluster.scale("web", 0);
    cluster.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    cluster.pass(Duration::from_secs(55)).await;
    assert!(instances_ever_launched(&cluster.world).is_empty(), "the call is still on its way");
    assert!(cluster.world.get(ResourceId::NODE_CLAIMS, &claim).is_some(), "{}", cluster.summary());
    cluster.pass(Duration::from_secs(10)).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1);
    assert!(cluster.world.get(ResourceId::NODE_CLAIMS, &claim).is_some(), "{}", cluster.summary());
    cluster.until_empty(15 * MINUTE).await;
}

/// A user deletes launch templates that are in use, such as Karpenter's clean-up during a migration.
#[tokio::test(start_paused = true)]
async fn a_deleted_launch_template_costs_one_launch() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    cluster.deploy("web", 1, 3000);
    cluster.until_running(1, 3 * MINUTE).await;
    cluster.world.ec2.with(|cloud, _| {
        let templates = cloud.list_launch_templates(&LaunchTemplateFilter { tags: Tags::new() });
        let names: Vec<String> = templates.into_iter().map(|template| template.name).collect();
        assert!(!names.is_empty());
        cloud.delete_launch_templates(&names);
    });
    cluster.deploy("more", 1, 3000);
    let again = |world: &World| instances_ever_launched(world).len() == 2;
    cluster.until("another instance is launched", Duration::from_secs(10), again).await;
    assert_eq!(claims_ever_launched(&cluster.world).len(), 2, "{}", cluster.summary());
}

/// EC2 allows ten CreateTags calls per second.
#[tokio::test(start_paused = true)]
async fn a_burst_does_not_wait_for_its_tags() {
    const NODES: usize = 120;
    let requirements = json!([{"key": label::INSTANCE_TYPE, "operator": "In", "values": ["m6i.large"]}]);
    let cluster =
        TestCluster::begin(Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}}))).await;
    cluster.deploy("web", u32::try_from(NODES).unwrap(), 1200);
    let launched = |world: &World| {
        world.count(ResourceId::NODE_CLAIMS, |claim| !object::text(claim, &["status", "providerID"]).is_empty())
    };
    cluster.until("the first is launched", MINUTE, |world| launched(world) > 0).await;
    let took = cluster.until("all are launched", MINUTE, |world| launched(world) == NODES).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
    let is_tagged = |tags: &BTreeMap<String, String>| tags.contains_key(tag::NODE_CLAIM) && tags.contains_key("Name");
    let tagged = |world: &World| world.living_instances().values().filter(|machine| is_tagged(&machine.tags)).count();
    cluster.until("all are tagged", 5 * MINUTE, |world| tagged(world) == NODES).await;
    let times: Vec<i64> = cluster.world.ec2.read(|cloud, _| {
        let calls = cloud.log.iter().filter(|call| call.action == Action::CreateTags);
        calls.map(|call| call.at.0).collect()
    });
    let within_a_second = |from: &i64| times.iter().filter(|at| (*from..from + 1000).contains(*at)).count();
    let most = times.iter().map(within_a_second).max().unwrap();
    assert!(most <= 60, "fifty at once and ten a second, not {most}");
}
