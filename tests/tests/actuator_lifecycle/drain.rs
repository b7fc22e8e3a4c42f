//! Evictions: errors of single pods, and the disruption budgets that a drained node leaves to others.

use super::{is_gone, limit_disruptions, with_protected_pod};
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::names::annotation;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_sim::apiserver::faults::{Effect, Matcher, RuleId};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ApiError, ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::{World, is_running};
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, wanted};
use plimsoll_tests::{MINUTE, Setup, instance_of, running_on};
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
async fn run_pod(watcher: &FakeWatcher, name: &str, node: &str, annotations: &Value, grace_seconds: u32) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": grace_seconds,
            "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    watcher.world.apply_object(&pod).unwrap();
    let runs = |world: &World| world.get(ResourceId::PODS, name).is_some_and(|pod| is_running(&pod));
    watcher.until("the pod runs", MINUTE, runs).await;
}

fn refuse_b(world: &World, refused: Matcher) {
    let refused = Matcher { name: Some("b".to_owned()), ..refused };
    world.server().faults().always(refused, Effect::Refuse(ApiError::new(403, "Forbidden", "a webhook refuses it")));
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

fn evictions() -> Matcher {
    Matcher { subresource: Some("eviction"), ..Matcher::of(Verb::Create, "pods") }
}

fn is_evicted(world: &World, pod: &str) -> bool {
    world.events_of("Pod", pod).iter().any(|event| event.contains("Evicted"))
}

fn is_drained(world: &World, claim: &str) -> bool {
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

/// As Karpenter writes it, for users and for whoever comes next.
#[tokio::test(start_paused = true)]
async fn a_claim_says_when_its_nodes_time_is_over() {
    let (watcher, claim, node) = with_grace_period().await;
    run_pod(&watcher, "web", &node, &json!({annotation::DO_NOT_DISRUPT: "true"}), 30).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
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
fn hide(watcher: &FakeWatcher, actuator: &str, resource: &'static str) -> RuleId {
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
async fn until_drained_and_gone(watcher: &FakeWatcher, claim: &str) {
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

/// A node that the leader's watch does not show until the rule is removed. The leader was a standby, whose watch of
/// Nodes lags while that of NodeClaims does not. Also returns the names of claim and Node.
pub(super) async fn with_hidden_node() -> (FakeWatcher, RuleId, String, String) {
    let mut watcher = FakeWatcher::begin(Setup::default()).await;
    let standby = watcher.plimsoll.start_at(Role::Actuator, "actuator-1");
    // It has listed all kinds by then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let rule = hide(&watcher, &standby, "nodes");
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let leader = watcher.plimsoll.leader(Role::Actuator).unwrap();
    assert_ne!(leader, standby);
    watcher.plimsoll.kill(&leader);
    let leads = |_: &World| watcher.plimsoll.leader(Role::Actuator).is_some_and(|leader| leader == standby);
    watcher.until("the standby leads", MINUTE, leads).await;
    (watcher, rule, claim, node)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_the_watch_does_not_show_is_drained_before_its_instance_ends() {
    let (watcher, rule, claim, node) = with_hidden_node().await;
    run_pod(&watcher, "web", &node, &json!({}), 30).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(watcher.world.living_instances().len(), 1, "a pod runs there");
    watcher.world.server().faults().remove(rule);
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
async fn a_node_without_its_finalizer_is_drained_before_its_instance_ends() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    run_pod(&watcher, "web", &node, &json!({}), 30).await;
    watcher.world.patch(ResourceId::NODES, &node, json!({"metadata": {"finalizers": null}})).unwrap();
    // The watch shows it by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    until_drained_and_gone(&watcher, &claim).await;
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

/// Three nodes, the first two with a pod of `web` each. Returns the claim of the first one, and their names.
async fn with_web_on_two_nodes(watcher: &FakeWatcher) -> (String, [String; 3]) {
    let (claim, first) = watcher.node(&wanted("a-1")).await;
    watcher.world.deploy("web", 1, &json!({"cpu": "1"}), &json!({})).unwrap();
    watcher.until("the first pod runs", MINUTE, |world| running_on(world, &first) == 1).await;
    let (_, second) = watcher.node(&wanted("a-2")).await;
    watcher.world.scale("web", 2).unwrap();
    watcher.until("the second pod runs", MINUTE, |world| running_on(world, &second) == 1).await;
    let (_, third) = watcher.node(&Wanted { instance_type: "m6i.2xlarge", ..wanted("a-3") }).await;
    limit_disruptions(&watcher.world, 1);
    watcher.until("the budget allows a disruption", MINUTE, allows_one).await;
    (claim, [first, second, third])
}

/// Whether the budget of `web` allows a disruption.
fn allows_one(world: &World) -> bool {
    let budget = world.get(ResourceId::POD_DISRUPTION_BUDGETS, "web").unwrap();
    object::integer(&budget, &["status", "disruptionsAllowed"]) == Some(1)
}

/// Lets a new leader take over if it `is_replaced`, and waits until it has gone on with all terminations.
async fn replace_actuator_if(watcher: &mut FakeWatcher, is_replaced: bool) {
    if is_replaced {
        watcher.replace_actuator();
        tokio::time::sleep(2 * MINUTE).await;
    }
}

/// Evictions that are over are in the budget's own count.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_drained_leaves_its_disruption_budget_to_others() {
    for is_replaced in [false, true] {
        let mut watcher = FakeWatcher::begin(Setup::default()).await;
        let (claim, [first, second, third]) = with_web_on_two_nodes(&watcher).await;
        // The removal goes on while EC2 refuses to terminate the instance.
        let instance = instance_of(&watcher.world, &first);
        watcher.world.ec2.with(|cloud, _| cloud.protect(&instance, true));
        let reason = DisruptionReason::Underutilized;
        let outcome = watcher.remove("r-1", &first, reason, Some(&third)).await;
        assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
        let outcome = watcher.remove("r-2", &second, reason, Some(&third)).await;
        assert_eq!((outcome.status, outcome.reason), (OutcomeStatus::Rejected, Some(OutcomeReason::Blocked)));
        let has_moved =
            |world: &World| is_drained(world, &claim) && running_on(world, &third) == 1 && allows_one(world);
        watcher.until("the first node is drained", MINUTE, has_moved).await;
        replace_actuator_if(&mut watcher, is_replaced).await;
        let outcome = watcher.remove("r-3", &second, reason, Some(&third)).await;
        assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
        assert!(watcher.claim(&claim).is_some(), "the first removal is not over");
    }
}

/// The drain may go on for days, and a new leader reads the evictions as they were admitted.
#[tokio::test(start_paused = true)]
async fn a_pod_that_stays_holds_no_disruption_budget_of_pods_that_have_left_its_node() {
    for is_replaced in [false, true] {
        let mut watcher = FakeWatcher::begin(Setup::default()).await;
        let (claim, [first, second, third]) = with_web_on_two_nodes(&watcher).await;
        run_pod(&watcher, "batch", &first, &json!({annotation::DO_NOT_DISRUPT: "true"}), 30).await;
        let outcome = watcher.remove("r-1", &first, DisruptionReason::Expired, Some(&third)).await;
        assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
        let has_moved = |world: &World| running_on(world, &third) == 1 && allows_one(world);
        watcher.until("the evicted pod runs elsewhere", 2 * MINUTE, has_moved).await;
        // The watches show it by then.
        tokio::time::sleep(Duration::from_secs(5)).await;
        replace_actuator_if(&mut watcher, is_replaced).await;
        assert_eq!(running_on(&watcher.world, &first), 1, "the protected pod runs");
        let reason = DisruptionReason::Underutilized;
        let outcome = watcher.remove("r-2", &second, reason, Some(&third)).await;
        assert_eq!(outcome.status, OutcomeStatus::Accepted, "{outcome:?}");
        assert!(!is_drained(&watcher.world, &claim), "the first drain goes on");
    }
}
