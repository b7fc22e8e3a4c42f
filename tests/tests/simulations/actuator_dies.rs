//! The leading actuator crashes, is partitioned, or gets no response, at points where something could be launched twice
//! or lost (rules 1 to 4, 14 and 16).

use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect as CloudEffect};
use plimsoll_sim::plimsoll::Role;
use plimsoll_tests::{MINUTE, Setup, TestCluster, claims_ever_launched, instances_ever_launched};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Nodes that the burst needs: one per pod.
const NODES: u32 = 8;

/// Checks that every pod runs, and that exactly the instances of the claims were launched.
async fn nothing_was_bought_twice_or_lost(cluster: &TestCluster) {
    cluster.until_running(NODES as usize, 10 * MINUTE).await;
    // Time for a delayed launch, and for the detection of surplus instances.
    cluster.pass(5 * MINUTE).await;
    let claimed: BTreeSet<String> = claims_ever_launched(&cluster.world).into_values().collect();
    assert_eq!(instances_ever_launched(&cluster.world), claimed, "{}", cluster.summary());
    assert_eq!(cluster.world.living_instances().len(), NODES as usize, "{}", cluster.summary());
    cluster.scale("web", 0);
    cluster.until_empty(15 * MINUTE).await;
}

fn leader(cluster: &TestCluster) -> String {
    cluster.plimsoll.leader(Role::Actuator).unwrap()
}

/// A cluster with a burst of pods, in which the fleet call for their nodes is held.
async fn held_in_fleet_call(hold: fn(Gate) -> CloudEffect) -> (TestCluster, Gate) {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let gate = Gate::default();
    cluster.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, hold(gate.clone()), 1));
    cluster.deploy("web", NODES, 3000);
    gate.reached(1).await;
    (cluster, gate)
}

#[tokio::test(start_paused = true)]
async fn dies_when_a_claim_is_written() {
    let mut cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let gate = Gate::default();
    let claims = Matcher::of(Verb::Create, "nodeclaims");
    let rule = cluster.world.server().faults().always(claims, Effect::HoldAfter(gate.clone()));
    cluster.deploy("web", NODES, 3000);
    gate.reached(1).await;
    cluster.plimsoll.kill(&leader(&cluster));
    cluster.world.server().faults().remove(rule);
    gate.open();
    nothing_was_bought_twice_or_lost(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn dies_before_the_fleet_call_arrives() {
    let (mut cluster, gate) = held_in_fleet_call(CloudEffect::HoldBefore).await;
    cluster.plimsoll.kill(&leader(&cluster));
    gate.open();
    nothing_was_bought_twice_or_lost(&cluster).await;
}

/// A user who may write NodeClaims must not select the image of nodes through a stored request.
#[tokio::test(start_paused = true)]
async fn a_stored_request_for_an_image_that_the_class_does_not_select_is_not_sent() {
    let (mut cluster, gate) = held_in_fleet_call(CloudEffect::HoldBefore).await;
    cluster.plimsoll.kill(&leader(&cluster));
    let images = cluster.world.ec2.with(|cloud, _| {
        let known: Vec<String> = cloud.images.keys().cloned().collect();
        let mut image = cloud.images.values().next().cloned().unwrap();
        image.id = "ami-forged".to_owned();
        cloud.images.insert(image.id.clone(), image);
        known
    });
    let request = |claim: &_| object::annotation(claim, annotation::LAUNCH_REQUEST).map(str::to_owned);
    let primary = cluster.claims().into_iter().find(|claim| request(claim).is_some()).unwrap();
    let mut forged = request(&primary).unwrap();
    for image in images {
        forged = forged.replace(&image, "ami-forged");
    }
    assert!(forged.contains("ami-forged"), "{forged}");
    let patch = json!({"metadata": {"annotations": {annotation::LAUNCH_REQUEST: forged}}});
    cluster.world.patch(ResourceId::NODE_CLAIMS, object::name(&primary), patch).unwrap();
    gate.open();
    cluster.until_running(NODES as usize, 10 * MINUTE).await;
    let sent = cluster.world.ec2.read(|cloud, _| {
        let ways = cloud.fleets().iter().flat_map(|fleet| fleet.request.overrides()).map(|way| way.image_id.clone());
        ways.collect::<BTreeSet<_>>()
    });
    assert!(!sent.contains("ami-forged"), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn dies_when_the_fleet_is_bought_and_the_answer_on_its_way() {
    let (mut cluster, gate) = held_in_fleet_call(CloudEffect::HoldAfter).await;
    assert!(!instances_ever_launched(&cluster.world).is_empty());
    cluster.plimsoll.kill(&leader(&cluster));
    gate.open();
    nothing_was_bought_twice_or_lost(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn dies_when_the_answer_is_there_but_not_written_down() {
    let mut cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let gate = Gate::default();
    let status = Matcher { verb: Some(Verb::Patch), resource: Some("nodeclaims"), ..Matcher::default() };
    let rule = cluster.world.server().faults().always(status, Effect::HoldBefore(gate.clone()));
    cluster.deploy("web", NODES, 3000);
    let bought = |world: &plimsoll_sim::world::World| !instances_ever_launched(world).is_empty();
    cluster.until("an instance is launched", 2 * MINUTE, bought).await;
    cluster.plimsoll.kill(&leader(&cluster));
    cluster.world.server().faults().remove(rule);
    gate.open();
    nothing_was_bought_twice_or_lost(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn is_not_answered() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    cluster.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, CloudEffect::LoseAnswer, 2));
    cluster.deploy("web", NODES, 3000);
    nothing_was_bought_twice_or_lost(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn is_not_answered_because_its_call_comes_late() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let late = CloudEffect::Late(Duration::from_secs(90));
    cluster.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, late, 1));
    cluster.deploy("web", NODES, 3000);
    nothing_was_bought_twice_or_lost(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn is_cut_off_while_its_call_is_on_its_way_and_comes_back_when_another_leads() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let old = leader(&cluster);
    let late = CloudEffect::Late(Duration::from_secs(40));
    cluster.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, late, 1));
    cluster.deploy("web", NODES, 3000);
    let called = |world: &plimsoll_sim::world::World| {
        world.ec2.read(|cloud, _| cloud.log.iter().any(|call| call.action == Action::CreateFleet))
    };
    cluster.until("a fleet is called", 2 * MINUTE, called).await;
    cluster.plimsoll.isolate(&old);
    cluster.pass(MINUTE).await;
    let new = leader(&cluster);
    assert_ne!(old, new, "the other took over within a minute");
    cluster.plimsoll.heal(&old);
    nothing_was_bought_twice_or_lost(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn dies_and_is_replaced_again_and_again() {
    let mut cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    cluster.deploy("web", NODES, 3000);
    for _ in 0..6 {
        cluster.pass(Duration::from_secs(7)).await;
        if let Some(leader) = cluster.plimsoll.leader(Role::Actuator) {
            cluster.plimsoll.replace(&leader).unwrap();
        }
    }
    nothing_was_bought_twice_or_lost(&cluster).await;
}

/// A group is launched and its leader crashes before the match is written. Meanwhile users delete some of its claims.
async fn bought_and_claims_deleted(deleted: usize) -> TestCluster {
    let (mut cluster, gate) = held_in_fleet_call(CloudEffect::HoldAfter).await;
    assert_eq!(cluster.world.living_instances().len(), NODES as usize, "one group");
    cluster.plimsoll.kill_all(Role::Actuator);
    gate.open();
    for claim in cluster.claims().iter().take(deleted) {
        cluster.world.delete(ResourceId::NODE_CLAIMS, object::name(claim)).unwrap();
    }
    cluster
}

/// Rules 3 and 14: no claim waits for another. Instances are adopted and removed with their claims.
#[tokio::test(start_paused = true)]
async fn claims_of_a_group_that_are_deleted_while_nobody_leads_go_with_their_instances() {
    let mut cluster = bought_and_claims_deleted(NODES as usize).await;
    cluster.scale("web", 0);
    cluster.plimsoll.start_another(Role::Actuator);
    cluster.until_empty(15 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), NODES as usize, "{}", cluster.summary());
}

/// The remaining claims keep their instances; the pod of the deleted claim gets another node.
#[tokio::test(start_paused = true)]
async fn one_deleted_claim_of_a_group_keeps_nobody_waiting() {
    let mut cluster = bought_and_claims_deleted(1).await;
    cluster.plimsoll.start_another(Role::Actuator);
    nothing_was_bought_twice_or_lost(&cluster).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), NODES as usize + 1, "{}", cluster.summary());
}

/// No request was sent for the group: a claim that is being deleted is not launched.
#[tokio::test(start_paused = true)]
async fn nothing_is_bought_for_a_claim_that_was_deleted_while_nobody_led() {
    let (mut cluster, _gate) = held_in_fleet_call(CloudEffect::HoldBefore).await;
    cluster.plimsoll.kill_all(Role::Actuator);
    cluster.scale("web", 0);
    for claim in &cluster.claims() {
        cluster.world.delete(ResourceId::NODE_CLAIMS, object::name(claim)).unwrap();
    }
    cluster.plimsoll.start_another(Role::Actuator);
    cluster.until_empty(15 * MINUTE).await;
    assert!(instances_ever_launched(&cluster.world).is_empty(), "{}", cluster.summary());
}
