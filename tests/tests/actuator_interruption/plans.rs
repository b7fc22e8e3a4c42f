//! What a plan tells about the pods of an interrupted node: only a plan that names a pod has a place for it.

use super::{begin, interrupt, spot, with_pods};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::plan::{Placement, Unschedulable};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted};
use plimsoll_tests::{instances_ever_launched, running_on};
use serde_json::json;
use std::time::Duration;

/// Later than a drain without a delay, and before the pods have to stop (80 s after the notice).
const LOOK: Duration = Duration::from_secs(60);

/// Limits the pool to this many nodes of 2 CPUs, so that the actuator launches no replacement on its own.
fn allow_nodes(watcher: &FakeWatcher, count: u32) {
    let limits = json!({"spec": {"limits": {"cpu": (2 * count).to_string()}}});
    watcher.world.patch(ResourceId::NODE_POOLS, "default", limits).unwrap();
}

/// Gives notice, and lets the claim be marked.
async fn give_notice(watcher: &FakeWatcher, instance: &str) {
    interrupt(watcher, instance);
    tokio::time::sleep(Duration::from_secs(2)).await;
}

async fn assert_both_stay(watcher: &FakeWatcher, node: &str) {
    tokio::time::sleep(LOOK).await;
    assert_eq!(running_on(&watcher.world, node), 2, "pods without a place elsewhere");
}

fn is_initialized(world: &World, claim: &str) -> bool {
    world.get(ResourceId::NODE_CLAIMS, claim).is_some_and(|claim| object::condition_is_true(&claim, "Initialized"))
}

/// As the launches that a watcher sends before its plan is complete.
#[tokio::test(start_paused = true)]
async fn a_launch_for_other_pods_is_no_place() {
    let watcher = begin().await;
    let (_, node, instance) = with_pods(&watcher).await;
    allow_nodes(&watcher, 2);
    give_notice(&watcher, &instance).await;
    let outcomes = watcher.send(watcher.plan(&[spot("b-1")], Vec::new()).await).await;
    assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "{outcomes:?}");
    assert_both_stay(&watcher, &node).await;
}

#[tokio::test(start_paused = true)]
async fn a_rejected_launch_is_no_place() {
    let watcher = begin().await;
    let (_, node, instance) = with_pods(&watcher).await;
    allow_nodes(&watcher, 1);
    give_notice(&watcher, &instance).await;
    let wanted = Wanted { pods: watcher.pods_on(&node), ..spot("a-2") };
    let outcomes = watcher.send(watcher.plan(&[wanted], Vec::new()).await).await;
    assert_eq!(outcomes[0].status, OutcomeStatus::Rejected, "{outcomes:?}");
    assert_both_stay(&watcher, &node).await;
}

/// The pods were pending when the plan was made.
#[tokio::test(start_paused = true)]
async fn the_interrupted_node_itself_is_no_place() {
    let watcher = begin().await;
    let (_, node, instance) = with_pods(&watcher).await;
    allow_nodes(&watcher, 1);
    let mut plan = watcher.plan(&[], Vec::new()).await;
    plan.placements = vec![Placement { node: node.as_str().into(), pods: watcher.pods_on(&node) }];
    give_notice(&watcher, &instance).await;
    watcher.send(plan).await;
    assert_both_stay(&watcher, &node).await;
}

/// Its planner knows of the interruption, and the next plan has the other pod.
#[tokio::test(start_paused = true)]
async fn a_plan_that_names_one_of_the_pods_prevents_a_replacement() {
    let watcher = begin().await;
    let (_, node, instance) = with_pods(&watcher).await;
    give_notice(&watcher, &instance).await;
    let pod = watcher.pods_on(&node).remove(0);
    let mut plan = watcher.plan(&[], Vec::new()).await;
    plan.unschedulable = vec![Unschedulable { pod, reasons: Default::default() }];
    watcher.send(plan).await;
    tokio::time::sleep(LOOK).await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_plan_from_before_the_notice_prevents_no_replacement() {
    let watcher = begin().await;
    let (_, node, instance) = with_pods(&watcher).await;
    let plan = watcher.plan(&[spot("b-1")], Vec::new()).await;
    give_notice(&watcher, &instance).await;
    watcher.send(plan).await;
    let is_replaced = |world: &World| instances_ever_launched(world).len() == 3;
    watcher.until("a replacement is launched", Duration::from_secs(10), is_replaced).await;
    assert_eq!(running_on(&watcher.world, &node), 2, "no other node is in service");
}

#[tokio::test(start_paused = true)]
async fn pods_with_a_place_on_a_starting_node_run_until_it_is_in_service() {
    let watcher = begin().await;
    let (_, node, instance) = with_pods(&watcher).await;
    let outcomes = watcher.send(watcher.plan(&[spot("b-1")], Vec::new()).await).await;
    let claim = outcomes[0].node_claim.clone().unwrap();
    give_notice(&watcher, &instance).await;
    let mut plan = watcher.plan(&[], Vec::new()).await;
    plan.placements = vec![Placement { node: claim.as_str().into(), pods: watcher.pods_on(&node) }];
    watcher.send(plan).await;
    watcher
        .until("the other node is in service", LOOK, |world| {
            let is_initialized = is_initialized(world, &claim);
            assert!(is_initialized || running_on(world, &node) == 2, "pods are evicted while their node boots");
            is_initialized
        })
        .await;
    // Long before they have to stop.
    let moved = |world: &World| world.running_pods() == 2 && running_on(world, &node) == 0;
    watcher.until("the pods run on the other node", Duration::from_secs(20), moved).await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 2, "no replacement");
}

/// The next plan has the pods, if there is one. Otherwise, existing nodes are checked.
#[tokio::test(start_paused = true)]
async fn pods_whose_launch_is_lost_move_to_existing_nodes() {
    let watcher = begin().await;
    let (_, node, instance) = with_pods(&watcher).await;
    watcher.node(&Wanted { capacity_type: CapacityType::OnDemand, ..spot("b-1") }).await;
    give_notice(&watcher, &instance).await;
    let wanted = Wanted { instance_type: "m6i.xlarge", pods: watcher.pods_on(&node), ..spot("a-2") };
    let outcomes = watcher.send(watcher.plan(&[wanted], Vec::new()).await).await;
    assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "{outcomes:?}");
    let claim = outcomes[0].node_claim.clone().unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(running_on(&watcher.world, &node), 2, "their node is on its way");
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    // A plan is waited for during five seconds.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(running_on(&watcher.world, &node), 2, "the next plan may have another node for them");
    let moved = |world: &World| world.running_pods() == 2 && running_on(world, &node) == 0;
    watcher.until("the pods run elsewhere", Duration::from_secs(10), moved).await;
    assert_eq!(instances_ever_launched(&watcher.world).len(), 3, "no replacement");
}
