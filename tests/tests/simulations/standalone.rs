//! NodeClaims that a user creates without a NodePool.

use plimsoll_model::names::{annotation, label};
use plimsoll_sim::apiserver::error::ApiError;
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::Object;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect as CloudEffect};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, TestCluster, instances_ever_launched};
use serde_json::{Value, json};

/// A NodeClaim `mine` for at least 3 CPUs of amd64, On-Demand; `spec` is merged into its spec.
fn claim(spec: &Value) -> Value {
    let mut claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "mine", "labels": {"team": "blue"}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": label::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]},
                {"key": label::ARCH, "operator": "In", "values": ["amd64"]},
            ],
            "resources": {"requests": {"cpu": "3"}},
            "taints": [{"key": "dedicated", "value": "mine", "effect": "NoSchedule"}],
            "expireAfter": "Never",
        },
    });
    json_patch::merge(&mut claim, &json!({ "spec": spec }));
    claim
}

fn mine(world: &World) -> Option<Object> {
    world.get(ResourceId::NODE_CLAIMS, "mine")
}

fn is_initialized(world: &World) -> bool {
    mine(world).is_some_and(|claim| object::condition_is_true(&claim, "Initialized"))
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_pool_gets_the_cheapest_node_that_satisfies_it_and_is_deleted_with_it() {
    let cluster = TestCluster::usual().await;
    cluster.world.apply_object(&claim(&json!({}))).unwrap();
    cluster.until("the claim is in service", 3 * MINUTE, is_initialized).await;
    let claim = mine(&cluster.world).unwrap();
    // 2 CPUs are too few, arm64 is cheaper but excluded, and memory is not requested.
    assert_eq!(object::label(&claim, label::INSTANCE_TYPE), Some("c6i.xlarge"), "{}", cluster.summary());
    let node = cluster.world.get(ResourceId::NODES, object::text(&claim, &["status", "nodeName"])).unwrap();
    assert_eq!((object::label(&node, "team"), object::label(&node, label::NODE_POOL)), (Some("blue"), None));
    let taints = object::items(&node, &["spec", "taints"]);
    let keys: Vec<&str> = taints.iter().map(|taint| object::text(taint, &["key"])).collect();
    assert_eq!(keys, ["dedicated"]);

    // Neither emptiness nor consolidation applies without a NodePool.
    cluster.pass(30 * MINUTE).await;
    assert!(is_initialized(&cluster.world), "{}", cluster.summary());
    cluster.world.delete(ResourceId::NODE_CLAIMS, "mine").unwrap();
    cluster.until_empty(10 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1);
}

/// EC2 does not know the resource. A NodeOverlay says that the node will have it.
#[tokio::test(start_paused = true)]
async fn a_claim_may_request_a_resource_of_a_node_overlay() {
    let cluster = TestCluster::usual().await;
    let overlay = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "slots"},
        "spec": {"capacity": {"example.com/slot": "2"}, "requirements": [
            {"key": label::INSTANCE_TYPE, "operator": "In", "values": ["c6i.xlarge"]}]},
    });
    cluster.world.apply_object(&overlay).unwrap();
    let requests = json!({"cpu": "3", "example.com/slot": "1"});
    cluster.world.apply_object(&claim(&json!({"resources": {"requests": requests}}))).unwrap();
    let is_launched =
        |world: &World| mine(world).is_some_and(|claim| !object::text(&claim, &["status", "providerID"]).is_empty());
    cluster.until("the claim is launched", 2 * MINUTE, is_launched).await;
}

/// The pods that it has room for wait for it, as they would for a node of a pool.
#[tokio::test(start_paused = true)]
async fn no_other_node_is_bought_while_a_node_without_a_pool_starts() {
    let cluster = TestCluster::usual().await;
    let agent = json!({"key": "example.com/agent", "effect": "NoSchedule"});
    cluster.world.apply_object(&claim(&json!({"taints": [], "startupTaints": [agent]}))).unwrap();
    let has_node = |world: &World| mine(world).is_some_and(|it| object::condition_is_true(&it, "Registered"));
    cluster.until("the node is registered", 3 * MINUTE, has_node).await;
    cluster.deploy("web", 1, 500);
    cluster.pass(2 * MINUTE).await;
    assert!(!is_initialized(&cluster.world));
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1, "{}", cluster.summary());

    // What the agent does in the end.
    let node = object::text(&mine(&cluster.world).unwrap(), &["status", "nodeName"]).to_owned();
    cluster.world.patch(ResourceId::NODES, &node, json!({"spec": {"taints": null}})).unwrap();
    cluster.until_running(1, MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1, "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_pool_expires() {
    let cluster = TestCluster::usual().await;
    cluster.world.apply_object(&claim(&json!({"expireAfter": "20m"}))).unwrap();
    cluster.until("the claim is in service", 3 * MINUTE, is_initialized).await;
    cluster.pass(15 * MINUTE).await;
    assert!(is_initialized(&cluster.world), "{}", cluster.summary());
    cluster.until_empty(10 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_nothing_satisfies_says_so_and_is_given_up() {
    let cluster = TestCluster::usual().await;
    cluster.world.apply_object(&claim(&json!({"resources": {"requests": {"cpu": "1000"}}}))).unwrap();
    let reason = |world: &World| {
        let claim = mine(world)?;
        let launched = object::items(&claim, &["status", "conditions"]).iter();
        let launched = launched.clone().find(|it| object::text(it, &["type"]) == "Launched")?;
        Some((object::text(launched, &["reason"]).to_owned(), object::text(launched, &["message"]).to_owned()))
    };
    let fails = move |world: &World| reason(world).is_some_and(|(reason, _)| reason == "LaunchFailed");
    cluster.until("the condition says so", MINUTE, fails).await;
    let (_, message) = reason(&cluster.world).unwrap();
    assert!(message.contains("no available offering of EC2NodeClass default satisfies"), "{message}");
    cluster.until("the claim is given up", 6 * MINUTE, |world| mine(world).is_none()).await;
    assert!(instances_ever_launched(&cluster.world).is_empty());
}

#[tokio::test(start_paused = true)]
async fn claims_of_other_providers_are_left_alone() {
    let cluster = TestCluster::usual().await;
    let reference = json!({"group": "example.com", "kind": "OtherNodeClass", "name": "default"});
    let misspelled = json!({"group": "karpenter.k8s.aws", "kind": "OtherNodeClass", "name": "default"});
    for reference in [reference, misspelled] {
        cluster.world.apply_object(&claim(&json!({"nodeClassRef": reference, "expireAfter": "10m"}))).unwrap();
        let before = mine(&cluster.world).unwrap();
        cluster.pass(20 * MINUTE).await;
        assert_eq!(mine(&cluster.world), Some(before), "{}", cluster.summary());
        cluster.world.delete(ResourceId::NODE_CLAIMS, "mine").unwrap();
        assert_eq!(mine(&cluster.world), None, "it has no finalizer");
    }
    assert!(instances_ever_launched(&cluster.world).is_empty());
}

async fn one_instance_and_then_none(cluster: &TestCluster) {
    cluster.until("the claim is in service", 10 * MINUTE, is_initialized).await;
    // Time for a delayed launch, and for the detection of surplus instances.
    cluster.pass(5 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1, "{}", cluster.summary());
    assert_eq!(cluster.world.living_instances().len(), 1, "{}", cluster.summary());
    cluster.world.delete(ResourceId::NODE_CLAIMS, "mine").unwrap();
    cluster.until_empty(10 * MINUTE).await;
}

/// The launch request is written and not sent.
#[tokio::test(start_paused = true)]
async fn the_actuator_dies_between_the_claim_and_the_fleet() {
    let mut cluster = TestCluster::usual().await;
    let gate = Gate::default();
    cluster.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, CloudEffect::HoldBefore(gate.clone()), 1));
    cluster.world.apply_object(&claim(&json!({}))).unwrap();
    gate.reached(1).await;
    let written = mine(&cluster.world).unwrap();
    assert!(object::annotation(&written, annotation::LAUNCH_REQUEST).is_some(), "{written:#}");
    cluster.plimsoll.kill(&cluster.plimsoll.leader(Role::Actuator).unwrap());
    gate.open();
    one_instance_and_then_none(&cluster).await;
}

/// The instance is launched, and the claim does not say so.
#[tokio::test(start_paused = true)]
async fn the_actuator_dies_between_the_fleet_and_the_status() {
    let mut cluster = TestCluster::usual().await;
    let gate = Gate::default();
    cluster.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, CloudEffect::HoldAfter(gate.clone()), 1));
    cluster.world.apply_object(&claim(&json!({}))).unwrap();
    gate.reached(1).await;
    assert_eq!(cluster.world.living_instances().len(), 1);
    cluster.plimsoll.kill(&cluster.plimsoll.leader(Role::Actuator).unwrap());
    gate.open();
    one_instance_and_then_none(&cluster).await;
}

/// The write of the launch request gets no response, although it took effect.
#[tokio::test(start_paused = true)]
async fn the_launch_request_is_written_but_not_confirmed() {
    let cluster = TestCluster::usual().await;
    // Among these are the finalizer and the launch request.
    let claims = Matcher { subresource: Some(""), ..Matcher::of(Verb::Patch, "nodeclaims") };
    cluster.world.server().faults().next(3, claims, Effect::LoseAnswer);
    cluster.world.apply_object(&claim(&json!({}))).unwrap();
    one_instance_and_then_none(&cluster).await;
}

/// A launch that was certainly not written holds nothing: its retry stays within the quota.
#[tokio::test(start_paused = true)]
async fn a_refused_write_does_not_count_against_the_retry() {
    let cluster = TestCluster::usual().await;
    let quota = json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityQuota",
        "metadata": {"name": "one"}, "spec": {"selector": {}, "limits": {"resources": {"nodes": 1}}}});
    cluster.world.apply_object(&quota).unwrap();
    let claims = Matcher { subresource: Some(""), ..Matcher::of(Verb::Patch, "nodeclaims") };
    let denied = Effect::Refuse(ApiError::new(403, "Forbidden", "a policy denies it"));
    let rule = cluster.world.server().faults().always(claims, denied);
    cluster.world.apply_object(&claim(&json!({}))).unwrap();
    cluster.pass(MINUTE / 6).await;
    cluster.world.server().faults().remove(rule);
    one_instance_and_then_none(&cluster).await;
}
