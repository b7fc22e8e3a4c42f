//! Evictions: errors of single pods, and how long a drain takes.

use super::{is_gone, with_protected_pod};
use plimsoll_model::names::{annotation, label, taint};
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher, RuleId};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ApiError, ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::{World, is_running};
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::{Value, json};
use std::time::Duration;

/// A node with a terminationGracePeriod of two minutes. Returns the names of claim and Node.
async fn with_grace_period() -> (FakeWatcher, String, String) {
    let spec = json!({"template": {"spec": {"terminationGracePeriod": "2m"}}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    (watcher, claim, node)
}

/// Runs a pod without an owner on the node.
pub(super) async fn run_pod(watcher: &FakeWatcher, name: &str, node: &str, annotations: &Value, grace_seconds: u32) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": grace_seconds,
            "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    watcher.world.apply_object(&pod).unwrap();
    let runs = |world: &World| world.get(ResourceId::PODS, name).is_some_and(|pod| is_running(&pod));
    watcher.until("the pod runs", MINUTE, runs).await;
}

/// Requests for the pod `b` are refused.
fn refuse_b(world: &World, refused: Matcher) {
    distort_b(world, refused, Effect::Refuse(ApiError::new(403, "Forbidden", "a webhook refuses it")));
}

fn distort_b(world: &World, requests: Matcher, effect: Effect) {
    let requests = Matcher { name: Some("b".to_owned()), ..requests };
    world.server().faults().always(requests, effect);
}

/// A node with the pods `a`, `b` and `c`, with these annotations, is deleted while requests for `b` are refused.
async fn without_b(refused: Matcher, annotations: &Value) -> FakeWatcher {
    let (watcher, claim, node) = with_grace_period().await;
    for name in ["a", "b", "c"] {
        run_pod(&watcher, name, &node, annotations, 30).await;
    }
    refuse_b(&watcher.world, refused);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher
}

/// Evictions of all pods.
pub(super) fn evictions() -> Matcher {
    Matcher { subresource: Some("eviction"), ..Matcher::of(Verb::Create, "pods") }
}

fn is_evicted(world: &World, pod: &str) -> bool {
    world.events_of("Pod", pod).iter().any(|event| event.contains("Evicted"))
}

pub(super) fn is_drained(world: &World, claim: &str) -> bool {
    world.get(ResourceId::NODE_CLAIMS, claim).is_some_and(|claim| object::condition_is_true(&claim, "Drained"))
}

fn only_b_is_left(world: &World) -> bool {
    let pods = world.all(ResourceId::PODS);
    pods.iter().map(|pod| object::name(pod)).eq(["b"])
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_eviction_is_refused_keeps_no_other_pod() {
    let watcher = without_b(evictions(), &json!({})).await;
    watcher
        .until("the other pods are evicted", Duration::from_secs(10), |world| {
            only_b_is_left(world) && is_evicted(world, "a") && is_evicted(world, "c")
        })
        .await;
}

/// The API server answers so if too many evictions change one PodDisruptionBudget. The pod still runs.
#[tokio::test(start_paused = true)]
async fn an_eviction_with_a_conflict_is_tried_again_with_pauses_and_counts_once() {
    let (watcher, claim, node) = with_grace_period().await;
    run_pod(&watcher, "a", &node, &json!({}), 1).await;
    let conflict = Effect::Refuse(ApiError::new(409, "Conflict", "the budget has been modified"));
    watcher.world.server().faults().next(3, evictions(), conflict);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher.until("the node is drained", MINUTE, |world| is_drained(world, &claim)).await;
    assert!(is_evicted(&watcher.world, "a"));
    let counted = |result: &str| watcher.counted("plimsoll_actuator_evictions_total", &[("result", result)]);
    assert_eq!((counted("refused"), counted("evicted")), (3, 1));
    assert_eq!(watcher.counted("karpenter_pods_drained_total", &[]), 1);
}

/// A StatefulSet gives the next pod the same name.
#[tokio::test(start_paused = true)]
async fn an_eviction_that_takes_effect_late_does_not_evict_the_next_pod_with_the_name() {
    let (watcher, claim, node) = with_grace_period().await;
    let (_, other) = watcher.node(&wanted("b-1")).await;
    run_pod(&watcher, "a", &node, &json!({}), 1).await;
    watcher.world.server().faults().next(1, evictions(), Effect::Late(Duration::from_secs(20)));
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let is_gone = |world: &World| world.get(ResourceId::PODS, "a").is_none();
    let took = watcher.until("the eviction that is sent again ends the pod", MINUTE, is_gone).await;
    assert!(took < Duration::from_secs(20), "the first eviction has not taken effect yet: {took:?}");
    run_pod(&watcher, "a", &other, &json!({}), 1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(watcher.world.get(ResourceId::PODS, "a").is_some_and(|pod| is_running(&pod)));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_deleted_when_the_nodes_time_is_over_keeps_no_other_pod() {
    let protected = json!({annotation::DO_NOT_DISRUPT: "true"});
    let watcher = without_b(Matcher::of(Verb::Delete, "pods"), &protected).await;
    watcher.until("the other pods are deleted", 2 * MINUTE, only_b_is_left).await;
}

/// kube-scheduler may bind a pod before it sees the taint.
#[tokio::test(start_paused = true)]
async fn an_empty_node_is_drained_for_five_seconds() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, _) = watcher.node(&wanted("a-1")).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let took = watcher.until("the node is drained", MINUTE, |world| is_drained(world, &claim)).await;
    // Times in Kubernetes have whole seconds.
    assert!((4..=7).contains(&took.as_secs()), "{took:?}");
}

/// It is drained for as long after the taint, too.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_tainted_late_is_drained_for_five_seconds() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let faults = watcher.world.server().faults();
    let rule = faults.always(Matcher::of(Verb::Patch, "nodes"), Effect::internal_error());
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    faults.remove(rule);
    let is_tainted = |world: &World| {
        let node = world.get(ResourceId::NODES, &node).unwrap();
        object::items(&node, &["spec", "taints"]).iter().any(|taint| taint["key"] == taint::DISRUPTED)
    };
    watcher.until("the node is tainted", MINUTE, is_tainted).await;
    let took = watcher.until("the node is drained", MINUTE, |world| is_drained(world, &claim)).await;
    assert!((4..=7).contains(&took.as_secs()), "{took:?}");
}

/// As Karpenter writes it, for users and for whoever comes next.
#[tokio::test(start_paused = true)]
async fn a_claim_says_when_its_nodes_time_is_over() {
    let (watcher, claim, node) = with_grace_period().await;
    run_pod(&watcher, "web", &node, &json!({annotation::DO_NOT_DISRUPT: "true"}), 30).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let waits = "FailedDraining: waiting for 1 pods: default/web: protected by annotation karpenter.sh/do-not-disrupt";
    let events = watcher.world.events_of("Node", &node);
    assert!(events.iter().any(|event| event == waits), "{events:?}");
    let claim = watcher.claim(&claim).unwrap();
    let time = |path: &[&str]| object::text(&claim, path).parse::<jiff::Timestamp>().unwrap();
    let over = time(&["metadata", "annotations", annotation::TERMINATION_TIMESTAMP]);
    assert_eq!(over.duration_since(time(&["metadata", "deletionTimestamp"])).as_secs(), 120);
}

/// The back-off of a pod is not that of its node.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_eviction_is_refused_delays_no_deletion() {
    let (watcher, claim, node) = with_grace_period().await;
    run_pod(&watcher, "b", &node, &json!({}), 5).await;
    run_pod(&watcher, "c", &node, &json!({annotation::DO_NOT_DISRUPT: "true"}), 20).await;
    refuse_b(&watcher.world, evictions());
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let is_deleted = |world: &World| forced_grace(world, "c").is_some();
    let took = watcher.until("the other pod is deleted", 3 * MINUTE, is_deleted).await;
    assert!((98..=102).contains(&took.as_secs()), "20 s before the end, not after {took:?}");
    let grace = forced_grace(&watcher.world, "c").unwrap();
    assert!((15..=20).contains(&grace), "{grace} s");
    let is_deleted = |world: &World| forced_grace(world, "b").is_some();
    let took = watcher.until("the refused pod is deleted", MINUTE, is_deleted).await;
    assert!((13..=18).contains(&took.as_secs()), "5 s before the end: {took:?} after the other pod");
    assert!(watcher.counted("plimsoll_actuator_evictions_total", &[("result", "forced")]) >= 2);
}

/// A call times out after four seconds.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_eviction_is_not_answered_delays_deletions_by_one_call() {
    let (watcher, claim, node) = with_grace_period().await;
    run_pod(&watcher, "b", &node, &json!({}), 5).await;
    run_pod(&watcher, "c", &node, &json!({annotation::DO_NOT_DISRUPT: "true"}), 20).await;
    distort_b(&watcher.world, evictions(), Effect::HoldBefore(Gate::default()));
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let is_deleted = |world: &World| forced_grace(world, "c").is_some();
    let took = watcher.until("the other pod is deleted", 3 * MINUTE, is_deleted).await;
    // The Event follows the answers to all calls of a pass.
    assert!((98..=109).contains(&took.as_secs()), "20 s before the end, not after {took:?}");
    let is_deleted = |world: &World| forced_grace(world, "b").is_some();
    watcher.until("the pod is deleted", Duration::from_secs(25), is_deleted).await;
}

/// Seconds of grace with which a pod was deleted since the time of its node is over, if it was.
fn forced_grace(world: &World, pod: &str) -> Option<u32> {
    let events = world.events_of("Pod", pod);
    let grace = events.iter().find_map(|event| event.split_once("grace period of ")?.1.split_once(' '));
    grace.map(|(seconds, _)| seconds.parse().unwrap())
}

/// For example by a webhook that is down.
#[tokio::test(start_paused = true)]
async fn a_node_ends_in_time_although_its_taint_or_its_claims_conditions_are_refused() {
    let of_claim = |part: &'static str| Matcher { subresource: Some(part), ..Matcher::of(Verb::Patch, "nodeclaims") };
    for refused in [Matcher::of(Verb::Patch, "nodes"), of_claim("status"), of_claim("")] {
        let (watcher, claim, node) = with_grace_period().await;
        run_pod(&watcher, "a", &node, &json!({}), 5).await;
        run_pod(&watcher, "c", &node, &json!({annotation::DO_NOT_DISRUPT: "true"}), 20).await;
        watcher.world.server().faults().always(refused.clone(), Effect::internal_error());
        watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
        let deleted = tokio::time::Instant::now();
        tokio::time::sleep(Duration::from_secs(2)).await;
        run_pod(&watcher, "successor", &node, &json!({}), 20).await;
        let is_deleted = |world: &World| forced_grace(world, "c").is_some();
        watcher.until("the pod is deleted", 3 * MINUTE, is_deleted).await;
        let took = deleted.elapsed();
        assert!((98..=102).contains(&took.as_secs()), "20 s before the end, not after {took:?}: {refused:?}");
        let is_kept = |pod| watcher.world.get(ResourceId::PODS, pod).is_some_and(|pod| !object::is_deleting(&pod));
        assert!(is_kept("a"), "its time is not over, and it could come back: {refused:?}");
        assert!(is_kept("successor"), "it came after the NodeClaim was deleted: {refused:?}");
        let is_over = |world: &World| world.living_instances().is_empty();
        watcher.until("the instance is terminated", 2 * MINUTE, is_over).await;
        let took = deleted.elapsed();
        assert!(took >= 2 * MINUTE - Duration::from_secs(1), "{refused:?}: after {took:?}");
        assert!(forced_grace(&watcher.world, "a").is_some(), "{refused:?}");
    }
}

/// From now on until the rule is removed, the actuator's watch of this resource shows nothing.
pub(super) fn hide(watcher: &FakeWatcher, actuator: &str, resource: &'static str) -> RuleId {
    let faults = watcher.world.server().faults();
    let watches = Matcher { client: Some(actuator.to_owned()), ..Matcher::of(Verb::Watch, resource) };
    let rule = faults.always(watches, Effect::Drop);
    faults.cut_watches([actuator]);
    rule
}

/// From now on, the actuator's watch of pods shows nothing.
pub(super) fn hide_pods(watcher: &FakeWatcher) {
    let actuator = watcher.plimsoll.processes(Role::Actuator).remove(0);
    hide(watcher, &actuator, "pods");
}

/// Waits until the pod `web` is evicted while its node runs, and then until its node is gone.
pub(super) async fn until_drained_and_gone(watcher: &FakeWatcher, claim: &str) {
    watcher.until("the pod is evicted", MINUTE, |world| is_evicted(world, "web")).await;
    assert_eq!(watcher.world.living_instances().len(), 1, "its node still runs");
    watcher.until("the node is drained", MINUTE, |world| is_drained(world, claim)).await;
    assert!(watcher.world.get(ResourceId::PODS, "web").is_none(), "the pod has stopped");
    watcher.until("claim, node and instance are deleted", 3 * MINUTE, is_gone).await;
}

/// The node looks empty in the watch cache.
#[tokio::test(start_paused = true)]
async fn a_pod_that_the_watch_does_not_show_is_evicted_before_its_node_ends() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    hide_pods(&watcher);
    run_pod(&watcher, "web", &node, &json!({}), 30).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    until_drained_and_gone(&watcher, &claim).await;
}

/// As after the API server's host has vanished: nothing ends the connection, and its watches show nothing.
#[tokio::test(start_paused = true)]
async fn a_claim_is_drained_although_the_watch_that_would_show_its_deletion_went_silent() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, _) = watcher.node(&wanted("a-1")).await;
    let actuator = watcher.plimsoll.processes(Role::Actuator).remove(0);
    let faults = watcher.world.server().faults();
    faults.lag_watches(actuator.as_str(), 60 * MINUTE);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The open watch still waits for the hour to pass. A new one shows the deletion at once.
    faults.lag_watches(actuator.as_str(), Duration::ZERO);
    watcher.until("the node is drained", 2 * MINUTE, |world| is_drained(world, &claim)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_without_its_finalizer_or_label_is_drained_before_its_instance_ends() {
    for removed in [json!({"finalizers": null}), json!({"labels": {label::REGISTERED: null}})] {
        let watcher = FakeWatcher::begin(Setup::default()).await;
        let (claim, node) = watcher.node(&wanted("a-1")).await;
        run_pod(&watcher, "web", &node, &json!({}), 30).await;
        watcher.world.patch(ResourceId::NODES, &node, json!({ "metadata": removed })).unwrap();
        // The watch shows it by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
        until_drained_and_gone(&watcher, &claim).await;
    }
}

/// The drain seems to begin in the future.
#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_the_clock_of_a_former_leader() {
    let mut watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, _) = with_protected_pod(&watcher).await;
    let leader = watcher.plimsoll.leader(Role::Actuator).unwrap();
    watcher.plimsoll.step_clock(&leader, 30 * MINUTE);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let has_begun = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim).unwrap();
        object::condition(&claim, "Drained").is_some_and(|condition| condition["status"] == "Unknown")
    };
    watcher.until("the drain has begun", MINUTE, has_begun).await;
    watcher.replace_actuator();
    watcher.world.delete(ResourceId::POD_DISRUPTION_BUDGETS, "web").unwrap();
    watcher.until("claim, node and instance are deleted", 5 * MINUTE, is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_ends_in_time_although_its_pods_cannot_be_listed() {
    let (watcher, claim, _) = with_grace_period().await;
    let denied = Effect::Refuse(ApiError::new(403, "Forbidden", "a right is missing"));
    watcher.world.server().faults().always(Matcher::of(Verb::List, "pods"), denied);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    // The list is tried again after half a minute at most, and the instance takes 30 s to end.
    let limit = 3 * MINUTE + Duration::from_secs(10);
    let took = watcher.until("claim, node and instance are deleted", limit, is_gone).await;
    assert!(took >= 2 * MINUTE - Duration::from_secs(1), "pods may run there, but it took {took:?}");
}

/// The watch cache leaves the pod out, too.
#[tokio::test(start_paused = true)]
async fn an_unreadable_pod_does_not_keep_its_node() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    watcher.unreadable_pod(&node);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher.until("claim, node and instance are deleted", 3 * MINUTE, is_gone).await;
}
