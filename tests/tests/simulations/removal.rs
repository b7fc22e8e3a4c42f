//! Voluntary removals: budgets, disruption budgets of pods, do-not-disrupt, and races with new pods (rules 9 to 12).

use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::ChangeKind;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::{World, is_running};
use plimsoll_tests::{MINUTE, Setup, TestCluster, instances_ever_launched, limit_disruptions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// One pod of 3 CPUs fills a node of 4.
fn one_to_a_node(disruption: &Value) -> Setup {
    let requirements = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.xlarge"]}]);
    let mut spec = json!({"template": {"spec": {"requirements": requirements}}});
    json_patch::merge(&mut spec, &json!({ "disruption": disruption }));
    Setup::with_pool(spec)
}

/// Maximum number of nodes whose claims were being removed at one time and whose instances were not being terminated.
pub(super) fn most_at_once(cluster: &TestCluster) -> usize {
    cluster.world.server().read(|store| {
        let (mut leaving, mut most) = (BTreeSet::new(), 0);
        for event in store.events_after(ResourceId::NODE_CLAIMS, 0).unwrap() {
            let uid = object::uid(&event.object).to_owned();
            let is_over = object::condition_is_true(&event.object, "InstanceTerminating");
            if event.kind == ChangeKind::Deleted || is_over {
                leaving.remove(&uid);
            } else if object::is_deleting(&event.object) {
                leaving.insert(uid);
            }
            most = most.max(leaving.len());
        }
        most
    })
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_one_node_lets_one_go_at_a_time() {
    let cluster = TestCluster::begin(one_to_a_node(&json!({"budgets": [{"nodes": "1"}]}))).await;
    cluster.deploy("web", 4, 3000);
    cluster.until_running(4, 3 * MINUTE).await;
    cluster.scale("web", 0);
    cluster.until_empty(20 * MINUTE).await;
    assert_eq!(most_at_once(&cluster), 1);
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_none_keeps_all() {
    let cluster = TestCluster::begin(one_to_a_node(&json!({"budgets": [{"nodes": "0"}]}))).await;
    cluster.deploy("web", 2, 3000);
    cluster.until_running(2, 3 * MINUTE).await;
    cluster.scale("web", 0);
    cluster.pass(10 * MINUTE).await;
    assert_eq!(cluster.world.living_instances().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn consolidate_after_is_waited_for() {
    let cluster = TestCluster::begin(one_to_a_node(&json!({"consolidateAfter": "5m"}))).await;
    cluster.deploy("web", 1, 3000);
    cluster.until_running(1, 3 * MINUTE).await;
    cluster.scale("web", 0);
    cluster.until("the pod is deleted", MINUTE, |world| world.all(ResourceId::PODS).is_empty()).await;
    cluster.pass(5 * MINUTE - Duration::from_secs(5)).await;
    assert_eq!(most_at_once(&cluster), 0, "not yet");
    cluster.until_empty(3 * MINUTE).await;
}

/// The node has been unchanged for longer than that when its pod goes, and its claim does not show it yet.
#[tokio::test(start_paused = true)]
async fn consolidate_after_is_waited_for_although_the_last_pod_event_is_written_late() {
    let cluster = TestCluster::begin(one_to_a_node(&json!({"consolidateAfter": "5m"}))).await;
    cluster.deploy("web", 1, 3000);
    cluster.until_running(1, 3 * MINUTE).await;
    cluster.pass(10 * MINUTE).await;
    let status = Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") };
    let faults = cluster.world.server().faults();
    let rule = faults.always(status, Effect::internal_error());
    cluster.scale("web", 0);
    cluster.until("the pod is deleted", MINUTE, |world| world.all(ResourceId::PODS).is_empty()).await;
    cluster.pass(Duration::from_secs(20)).await;
    faults.remove(rule);
    cluster.pass(4 * MINUTE).await;
    assert_eq!(most_at_once(&cluster), 0, "not yet");
    cluster.until_empty(5 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_too_large_move_to_a_cheaper_one_without_an_interval() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 5, 1200);
    cluster.until_running(5, 3 * MINUTE).await;
    let cost = cluster.world.hourly_cost();
    cluster.scale("web", 1);
    cluster
        .until("one cheaper node remains", 15 * MINUTE, move |world| {
            // Cheaper than one of the two nodes.
            2 * world.hourly_cost().0 < cost.0 && world.living_instances().len() == 1 && world.running_pods() == 1
        })
        .await;
    // The state is stable: later plans do not reverse an executed plan.
    let staying = |cluster: &TestCluster| -> Vec<String> {
        let claims = cluster.claims();
        let staying = claims.iter().filter(|claim| !object::is_deleting(claim));
        staying.map(|claim| object::name(claim).to_owned()).collect()
    };
    let before = staying(&cluster);
    cluster.pass(15 * MINUTE).await;
    assert_eq!(staying(&cluster), before);
}

#[tokio::test(start_paused = true)]
async fn do_not_disrupt_keeps_a_node() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 5, 1200);
    cluster.until_running(5, 3 * MINUTE).await;
    for pod in cluster.world.all(ResourceId::PODS) {
        let mark = json!({"metadata": {"annotations": {annotation::DO_NOT_DISRUPT: "true"}}});
        cluster.world.patch(ResourceId::PODS, object::name(&pod), mark).unwrap();
    }
    let before = cluster.nodes_in_use();
    cluster.scale("web", 1);
    cluster.pass(10 * MINUTE).await;
    let after = cluster.nodes_in_use();
    assert_eq!(after.len(), 1);
    assert!(before.contains(&after[0]), "the pod was moved");
}

#[tokio::test(start_paused = true)]
async fn a_disruption_budget_of_pods_is_kept_when_nodes_are_deleted() {
    let cluster = TestCluster::begin(one_to_a_node(&json!({}))).await;
    cluster.deploy("web", 3, 3000);
    limit_disruptions(&cluster.world, "minAvailable", 2);
    cluster.until_running(3, 3 * MINUTE).await;
    for claim in cluster.claims() {
        cluster.world.delete(ResourceId::NODE_CLAIMS, object::name(&claim)).unwrap();
    }
    let old: BTreeSet<String> = cluster.world.living_instances().into_keys().collect();
    let replaced = move |world: &World| {
        let running = world.running_pods();
        assert!(running >= 2, "only {running} run");
        running == 3 && world.living_instances().keys().all(|id| !old.contains(id))
    };
    cluster.until("all run on other nodes", 20 * MINUTE, replaced).await;
}

/// A terminationGracePeriod limits the time that a PodDisruptionBudget can block a drain, so drift does not wait for
/// the budget.
#[tokio::test(start_paused = true)]
async fn drift_under_a_termination_grace_period_buys_one_replacement_however_long_the_drain_waits() {
    let mut setup = one_to_a_node(&json!({"consolidateAfter": "0s"}));
    json_patch::merge(&mut setup.pool, &json!({"template": {"spec": {"terminationGracePeriod": "1h"}}}));
    let cluster = TestCluster::begin(setup).await;
    cluster.deploy("web", 1, 3000);
    limit_disruptions(&cluster.world, "minAvailable", 1);
    cluster.until_running(1, 3 * MINUTE).await;
    let old = object::name(&cluster.claims()[0]).to_owned();
    let label = json!({"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}});
    cluster.world.patch(ResourceId::NODE_POOLS, "default", label).unwrap();
    let leaving = |world: &World| world.get(ResourceId::NODE_CLAIMS, &old).is_none_or(|it| object::is_deleting(&it));
    cluster.until("the drifted claim is deleted", 15 * MINUTE, leaving).await;
    cluster.pass(20 * MINUTE).await;
    let bought = instances_ever_launched(&cluster.world).len();
    assert!(bought <= 2, "{bought} instances were launched\n{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_boots_for_eleven_minutes_is_waited_for() {
    let mut setup = one_to_a_node(&json!({"consolidateAfter": "0s"}));
    setup.world.boot = 11 * MINUTE;
    let cluster = TestCluster::begin(setup).await;
    cluster.deploy("web", 1, 3000);
    cluster.until_running(1, 15 * MINUTE).await;
    let old = object::name(&cluster.claims()[0]).to_owned();
    let label = json!({"spec": {"template": {"metadata": {"labels": {"team": "a"}}}}});
    cluster.world.patch(ResourceId::NODE_POOLS, "default", label).unwrap();
    let gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &old).is_none();
    cluster.until("the drifted claim is replaced", 40 * MINUTE, gone).await;
    cluster.until_running(1, 15 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 2, "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_while_its_node_is_being_removed_is_not_killed() {
    let cluster = TestCluster::begin(one_to_a_node(&json!({}))).await;
    cluster.deploy("web", 1, 3000);
    cluster.until_running(1, 3 * MINUTE).await;
    let node = cluster.nodes_in_use().remove(0);
    let gate = Gate::default();
    // The taint is the first write to the node.
    let taint = Matcher { verb: Some(Verb::Patch), resource: Some("nodes"), ..Matcher::default() };
    cluster.scale("web", 0);
    cluster.until("the pod is deleted", MINUTE, |world| world.all(ResourceId::PODS).is_empty()).await;
    cluster.world.server().faults().next(1, taint, Effect::HoldBefore(gate.clone()));
    gate.reached(1).await;
    // Bound at the last moment, as by a scheduler that had not seen the taint.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late", "annotations": {annotation::DO_NOT_DISRUPT: "true"}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    cluster.world.apply_object(&pod).unwrap();
    gate.open();
    cluster.pass(10 * MINUTE).await;
    let pod = cluster.world.get(ResourceId::PODS, "late").expect("the pod still exists");
    assert!(is_running(&pod), "{}", cluster.summary());
    let node = cluster.world.get(ResourceId::NODES, &node).unwrap();
    let taints = object::items(&node, &["spec", "taints"]);
    assert!(taints.is_empty(), "the taint is removed: {taints:?}");
}

#[tokio::test(start_paused = true)]
async fn a_removal_is_finished_or_undone_by_the_next_leader() {
    let mut cluster = TestCluster::usual().await;
    cluster.deploy("web", 5, 1200);
    cluster.until_running(5, 3 * MINUTE).await;
    cluster.scale("web", 1);
    let marked = |world: &World| {
        world.count(ResourceId::NODE_CLAIMS, |claim| object::annotation(claim, annotation::REMOVAL).is_some()) > 0
    };
    cluster.until("a removal is admitted", 5 * MINUTE, marked).await;
    let leader = cluster.plimsoll.leader(Role::Actuator).unwrap();
    cluster.plimsoll.kill(&leader);
    cluster
        .until("it settles", 20 * MINUTE, |world| {
            world.living_instances().len() == 1
                && world.running_pods() == 1
                && world
                    .count(ResourceId::NODE_CLAIMS, |claim| object::annotation(claim, annotation::REMOVAL).is_some())
                    == 0
        })
        .await;
    let nodes = cluster.world.all(ResourceId::NODES);
    assert!(nodes.iter().all(|node| object::items(node, &["spec", "taints"]).is_empty()), "{}", cluster.summary());
}
