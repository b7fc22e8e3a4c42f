//! Tests of the actuator with the life of a node, from the claim to its end.
#![allow(clippy::unwrap_used, reason = "needed only if helpers outside of tests use it")]

mod absences;
mod batches;
mod budgets;
mod counters;
mod delay;
mod drain;
mod evictions;
mod hidden;
mod lost_nodes;
mod prices;
mod unlaunched;
mod volumes;

use plimsoll_model::names::{annotation, label};
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{HOUR, MINUTE, Setup, limit_disruptions, running_on};
use serde_json::json;
use std::time::Duration;

fn is_gone(world: &World) -> bool {
    world.all(ResourceId::NODE_CLAIMS).is_empty()
        && world.all(ResourceId::NODES).is_empty()
        && world.living_instances().is_empty()
}

/// A claim whose instance boots for an hour.
async fn with_booting_instance() -> (FakeWatcher, String) {
    with_instance_that_boots_for(HOUR).await
}

async fn with_instance_that_boots_for(boot: Duration) -> (FakeWatcher, String) {
    let mut setup = Setup::default();
    setup.world.boot = boot;
    let watcher = FakeWatcher::begin(setup).await;
    let outcomes = watcher.send(watcher.plan(&[wanted("a-1")], Vec::new()).await).await;
    let claim = outcomes[0].node_claim.clone().unwrap();
    let is_launched = |world: &World| {
        world.get(ResourceId::NODE_CLAIMS, &claim).is_some_and(|claim| object::condition_is_true(&claim, "Launched"))
    };
    watcher.until("the instance is launched", MINUTE, is_launched).await;
    (watcher, claim)
}

/// A node with a pod that must not be evicted. Returns the names of claim and Node.
async fn with_protected_pod(watcher: &FakeWatcher) -> (String, String) {
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    limit_disruptions(&watcher.world, "maxUnavailable", 0);
    watcher.deploy("web", "100m").await;
    (claim, node)
}

#[tokio::test(start_paused = true)]
async fn a_claim_comes_into_service_as_karpenters_do() {
    let watcher = FakeWatcher::begin(Setup::with_pool(json!({"template": {
        "metadata": {"labels": {"team": "blue"}},
        "spec": {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]},
    }})))
    .await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    // The Events are written.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let events = watcher.world.events_of("NodeClaim", &claim);
    let registered = format!("Registered: registered as Node {node}");
    for expected in [registered, format!("Initialized: Node {node} is initialized")] {
        assert!(events.contains(&expected), "{expected}: {events:?}");
    }
    let claim = watcher.claim(&claim).unwrap();
    for condition in ["Launched", "Registered", "Initialized", "Ready"] {
        assert!(object::condition_is_true(&claim, condition), "{condition}: {claim:#}");
    }
    assert_eq!(object::items(&claim, &["metadata", "finalizers"]), [json!("karpenter.sh/termination")]);
    let node = watcher.world.get(ResourceId::NODES, &node).unwrap();
    let label = |key| object::label(&node, key);
    assert_eq!(label(label::REGISTERED), Some("true"));
    assert_eq!(label(label::INITIALIZED), Some("true"));
    assert_eq!(label(label::NODE_POOL), Some("default"));
    assert_eq!(label("team"), Some("blue"));
    let taints: Vec<&str> =
        object::items(&node, &["spec", "taints"]).iter().map(|taint| object::text(taint, &["key"])).collect();
    assert_eq!(taints, ["dedicated"], "karpenter.sh/unregistered is gone, the pool's own is there");
    assert_eq!(object::items(&node, &["metadata", "finalizers"]), [json!("karpenter.sh/termination")]);
    assert_eq!(object::text(&object::items(&node, &["metadata", "ownerReferences"])[0], &["kind"]), "NodeClaim");
    watcher
        .until("the pool counts it", MINUTE, |world| {
            let pool = world.get(ResourceId::NODE_POOLS, "default").unwrap();
            object::integer(&pool, &["status", "nodes"]) == Some(1)
                && object::text(&pool, &["status", "resources", "cpu"]) == "2"
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_claim_drains_and_takes_its_node_and_instance_along() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.world.deploy("web", 2, &json!({"cpu": "100m"}), &json!({})).unwrap();
    watcher.until("the pods run", MINUTE, |world| running_on(world, &node) == 2).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher
        .until("the node is tainted", MINUTE, |world| {
            let node = world.get(ResourceId::NODES, &node);
            node.is_some_and(|node| {
                object::items(&node, &["spec", "taints"]).iter().any(|it| it["key"] == "karpenter.sh/disrupted")
            })
        })
        .await;
    let took = watcher.until("claim, node and instance are deleted", 3 * MINUTE, is_gone).await;
    assert!(took >= Duration::from_secs(5), "a node is drained for five seconds at least, not {took:?}");
    assert_eq!(watcher.world.pending_pods(), 2, "its pods were created again");
}

/// Others write taints, too.
#[tokio::test(start_paused = true)]
async fn a_taint_that_somebody_adds_at_the_same_time_stays() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = with_protected_pod(&watcher).await;
    let gate = Gate::default();
    let patch = Matcher::of(Verb::Patch, "nodes");
    watcher.world.server().faults().next(1, patch, Effect::HoldBefore(gate.clone()));
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    gate.reached(1).await;
    let taints = json!({"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}});
    watcher.world.patch(ResourceId::NODES, &node, taints).unwrap();
    gate.open();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let node = watcher.world.get(ResourceId::NODES, &node).unwrap();
    let mut keys: Vec<&str> =
        object::items(&node, &["spec", "taints"]).iter().map(|taint| object::text(taint, &["key"])).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["karpenter.sh/disrupted", "maintenance"]);
}

/// A volume may be attached while the drain waits for a disruption budget.
#[tokio::test(start_paused = true)]
async fn a_volume_that_was_attached_during_the_drain_is_waited_for() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.world.deploy("web", 1, &json!({"cpu": "100m"}), &json!({})).unwrap();
    limit_disruptions(&watcher.world, "minAvailable", 1);
    watcher.until("the pod runs", MINUTE, |world| running_on(world, &node) == 1).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(running_on(&watcher.world, &node), 1, "the budget allows no eviction");
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "v"},
        "spec": {"attacher": "ebs.csi.aws.com", "nodeName": node, "source": {"persistentVolumeName": "v"}}});
    watcher.world.apply_object(&attachment).unwrap();
    watcher.world.delete(ResourceId::POD_DISRUPTION_BUDGETS, "web").unwrap();
    watcher.until("the pod is evicted", MINUTE, |world| running_on(world, &node) == 0).await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(watcher.world.living_instances().len(), 1, "the volume is still attached");
    watcher.world.delete(ResourceId::VOLUME_ATTACHMENTS, "v").unwrap();
    watcher.until("claim, node and instance are deleted", 3 * MINUTE, is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_takes_its_claim_along() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (_, node) = watcher.node(&wanted("a-1")).await;
    watcher.world.delete(ResourceId::NODES, &node).unwrap();
    watcher.until("claim, node and instance are deleted", 3 * MINUTE, is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_pool_was_deleted_expires() {
    let watcher = FakeWatcher::begin(Setup::with_pool(json!({"template": {"spec": {"expireAfter": "1h"}}}))).await;
    let (claim, _) = watcher.node(&wanted("a-1")).await;
    // As `kubectl delete --cascade=orphan` does.
    let orphaned = json!({"metadata": {"ownerReferences": null}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, orphaned).unwrap();
    watcher.world.delete(ResourceId::NODE_POOLS, "default").unwrap();
    tokio::time::sleep(50 * MINUTE).await;
    assert!(watcher.is_kept(&claim), "it has not expired yet");
    watcher.until("claim, node and instance are deleted", 15 * MINUTE, is_gone).await;
    assert!(watcher.counted("karpenter_nodeclaims_disrupted_total", &[("reason", "expired")]) > 0);
}

/// The drain of an expired node of a NodePool evicts such a pod, too.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_safe_to_evict_leaves_a_claim_that_expires_without_its_pool() {
    let watcher = FakeWatcher::begin(Setup::with_pool(json!({"template": {"spec": {"expireAfter": "1h"}}}))).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.deploy("web", "100m").await;
    let pods = watcher.world.all(ResourceId::PODS);
    for pod in &pods {
        let mark = json!({"metadata": {"annotations": {annotation::SAFE_TO_EVICT: "false"}}});
        watcher.world.patch(ResourceId::PODS, object::name(pod), mark).unwrap();
    }
    let orphaned = json!({"metadata": {"ownerReferences": null}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, orphaned).unwrap();
    watcher.world.delete(ResourceId::NODE_POOLS, "default").unwrap();
    tokio::time::sleep(50 * MINUTE).await;
    assert_eq!(running_on(&watcher.world, &node), 1, "it has not expired yet");
    watcher.until("claim, node and instance are deleted", 15 * MINUTE, is_gone).await;
    let mut events = pods.iter().flat_map(|pod| watcher.world.events_of("Pod", object::name(pod)));
    assert!(events.any(|event| event == "Evicted: evicted: Expired"));
}

/// Somebody may mend the NodePool, or create it again.
#[tokio::test(start_paused = true)]
async fn an_expired_claim_outlives_its_pool_by_ten_minutes() {
    let watcher = FakeWatcher::begin(Setup::with_pool(json!({"template": {"spec": {"expireAfter": "1h"}}}))).await;
    let (claim, _) = watcher.node(&wanted("a-1")).await;
    let orphaned = json!({"metadata": {"ownerReferences": null}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, orphaned).unwrap();
    tokio::time::sleep(65 * MINUTE).await;
    watcher.world.delete(ResourceId::NODE_POOLS, "default").unwrap();
    tokio::time::sleep(9 * MINUTE).await;
    assert!(watcher.is_kept(&claim), "nothing replaces its node first");
    watcher.until("claim, node and instance are deleted", 5 * MINUTE, is_gone).await;
}

/// Plans remove no such node.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_node_lost_the_label_of_its_pool_expires() {
    let watcher = FakeWatcher::begin(Setup::with_pool(json!({"template": {"spec": {"expireAfter": "1h"}}}))).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let unlabelled = json!({"metadata": {"labels": {label::NODE_POOL: null}}});
    watcher.world.patch(ResourceId::NODES, &node, unlabelled).unwrap();
    tokio::time::sleep(50 * MINUTE).await;
    assert!(watcher.is_kept(&claim), "it has not expired yet");
    watcher.until("claim, node and instance are deleted", 15 * MINUTE, is_gone).await;
}

/// Somebody has removed it, and another one keeps the claim.
#[tokio::test(start_paused = true)]
async fn a_deleted_claim_without_our_finalizer_keeps_its_node() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let finalizers = json!({"metadata": {"finalizers": ["example.com/keep"]}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, finalizers).unwrap();
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(5 * MINUTE).await;
    assert!(watcher.claim(&claim).is_some_and(|claim| object::is_deleting(&claim)));
    assert_eq!(watcher.world.living_instances().len(), 1);
    let node = watcher.world.get(ResourceId::NODES, &node).unwrap();
    assert!(object::items(&node, &["spec", "taints"]).is_empty() && !object::is_deleting(&node), "{node:#}");
}

/// It has no finalizer yet. Others delete it only once its kubelet has been silent for 50 s.
#[tokio::test(start_paused = true)]
async fn a_node_that_never_registered_is_deleted_with_its_claim() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let faults = watcher.world.server().faults();
    let registration = faults.always(Matcher::of(Verb::Patch, "nodes"), Effect::internal_error());
    let outcomes = watcher.send(watcher.plan(&[wanted("a-1")], Vec::new()).await).await;
    let claim = outcomes[0].node_claim.clone().unwrap();
    watcher.until("the Node is Ready", 2 * MINUTE, |world| world.ready_nodes() == 1).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    faults.remove(registration);
    // The registration would be tried again by then, and the instance takes 30 s to end.
    tokio::time::sleep(Duration::from_secs(25)).await;
    let nodes = watcher.world.all(ResourceId::NODES);
    let [node] = &nodes[..] else { panic!("one Node: {nodes:?}") };
    assert_eq!(object::label(node, label::REGISTERED), None, "the claim is being deleted");
    let is_claim_gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &claim).is_none();
    watcher.until("the claim is deleted", 2 * MINUTE, is_claim_gone).await;
    assert!(watcher.world.all(ResourceId::NODES).is_empty());
}

/// Pods may be bound to such a Node before it has its labels and taints.
#[tokio::test(start_paused = true)]
async fn a_node_that_pods_are_not_kept_away_from_until_it_registers_is_reported() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let faults = watcher.world.server().faults();
    let registration = faults.always(Matcher::of(Verb::Patch, "nodes"), Effect::internal_error());
    let outcomes = watcher.send(watcher.plan(&[wanted("a-1")], Vec::new()).await).await;
    let claim = outcomes[0].node_claim.clone().unwrap();
    watcher.until("the Node is Ready", 2 * MINUTE, |world| world.ready_nodes() == 1).await;
    let node = watcher.world.all(ResourceId::NODES).remove(0);
    watcher.world.patch(ResourceId::NODES, object::name(&node), json!({"spec": {"taints": null}})).unwrap();
    // The watch shows it by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    faults.remove(registration);
    let is_reported = |world: &World| {
        world.events_of("NodeClaim", &claim).iter().any(|event| event.starts_with("UnregisteredTaintMissing: "))
    };
    watcher.until("it is reported", MINUTE, is_reported).await;
}

#[tokio::test(start_paused = true)]
async fn a_disruption_budget_is_respected_until_the_nodes_time_is_over() {
    let spec = json!({"template": {"spec": {"terminationGracePeriod": "2m"}}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.world.deploy("web", 1, &json!({"cpu": "100m"}), &json!({})).unwrap();
    limit_disruptions(&watcher.world, "minAvailable", 1);
    watcher.until("the pod runs", MINUTE, |world| running_on(world, &node) == 1).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(Duration::from_secs(80)).await;
    assert_eq!(running_on(&watcher.world, &node), 1, "the budget allows no eviction");
    let events = watcher.world.events_of("Node", &node);
    let is_refusal = |event: &String| {
        // What the API server says, and nothing about the client.
        event.starts_with("FailedDraining: waiting for 1 pods: default/web-")
            && event.ends_with(": Cannot evict pod as it would violate the pod's disruption budget.")
            && !event.contains("ApiError")
    };
    assert!(events.iter().any(is_refusal), "{events:?}");
    let events = watcher.world.events_of("NodeClaim", &claim);
    assert!(events.iter().any(|event| event.contains("TerminationGracePeriodExpiring")), "{events:?}");
    watcher.until("claim, node and instance are deleted", 3 * MINUTE, is_gone).await;
    let events = watcher.world.events_of("Node", &node);
    assert!(events.iter().any(|event| event.contains("TerminationGracePeriodExpiring")), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn instances_that_never_become_nodes_are_given_up() {
    let mut setup = Setup::default();
    setup.world.boot = Duration::from_secs(3600);
    let watcher = FakeWatcher::begin(setup).await;
    let plan = watcher.plan(&[wanted("a-1"), wanted("a-2")], Vec::new()).await;
    watcher.send(plan).await;
    watcher.until("they are launched", MINUTE, |world| world.living_instances().len() == 2).await;
    let took = watcher.until("they are given up", 20 * MINUTE, is_gone).await;
    assert!(took >= 14 * MINUTE, "after a quarter of an hour, not {took:?}");
    let is_unhealthy = |world: &World| {
        let pool = world.get(ResourceId::NODE_POOLS, "default").unwrap();
        object::condition(&pool, "NodeRegistrationHealthy").is_some_and(|it| it["reason"] == "RegistrationFailed")
    };
    watcher.until("the pool says so", 2 * MINUTE, is_unhealthy).await;
}

/// The API server refuses the deletion once, because somebody has changed the claim.
#[tokio::test(start_paused = true)]
async fn a_claim_that_changes_when_it_is_given_up_is_given_up_later() {
    let (watcher, _) = with_booting_instance().await;
    watcher.world.server().faults().next(1, Matcher::of(Verb::Delete, "nodeclaims"), Effect::conflict());
    watcher.until("the instance is given up", 20 * MINUTE, is_gone).await;
    assert_eq!(watcher.counted("plimsoll_actuator_nodeclaims_failed_total", &[]), 1);
}

/// Its registration is late, and the deletion of its claim, which gets no response, is later.
#[tokio::test(start_paused = true)]
async fn an_instance_that_becomes_a_node_after_it_was_given_up_stays() {
    let (watcher, claim) = with_instance_that_boots_for(Duration::from_secs(15 * 60 + 10)).await;
    let deletion = Matcher::of(Verb::Delete, "nodeclaims");
    watcher.world.server().faults().always(deletion, Effect::Late(MINUTE));
    let is_initialized = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim);
        claim.is_some_and(|claim| object::condition_is_true(&claim, "Initialized"))
    };
    watcher.until("the node is in service", 17 * MINUTE, is_initialized).await;
    tokio::time::sleep(3 * MINUTE).await;
    let events = watcher.world.events_of("NodeClaim", &claim);
    assert!(events.iter().any(|event| event.contains("did not register")), "{events:?}");
    assert!(watcher.is_kept(&claim));
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_goes_on_with_a_drain() {
    let mut watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.deploy("web", "100m").await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher.until("it is drained", MINUTE, |world| running_on(world, &node) == 0).await;
    watcher.replace_actuator();
    watcher.until("claim, node and instance are deleted", 5 * MINUTE, is_gone).await;
}

/// Claims of another provider in the same cluster, such as EKS Auto Mode.
#[tokio::test(start_paused = true)]
async fn a_claim_of_another_provider_is_left_alone() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "foreign"},
        "spec": {
            "nodeClassRef": {"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"},
            "requirements": [],
        },
    });
    watcher.world.apply_object(&claim).unwrap();
    tokio::time::sleep(30 * MINUTE).await;
    let claim = watcher.claim("foreign").unwrap();
    assert!(object::items(&claim, &["metadata", "finalizers"]).is_empty(), "{claim:#}");
    assert_eq!(claim.get("status"), None, "{claim:#}");
}
