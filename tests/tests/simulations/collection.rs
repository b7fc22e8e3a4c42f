//! Garbage collection: instances without claims, claims without instances (rule 14).

use plimsoll_actuator::ports::ZonalShift;
use plimsoll_model::names::{annotation, tag};
use plimsoll_sim::apiserver::faults::{Effect as ApiEffect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect, Machine};
use plimsoll_sim::plimsoll::{Options, Role};
use plimsoll_sim::world::World;
use plimsoll_tests::{HOUR, MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::json;
use std::time::Duration;

/// Launches an instance outside of Plimsoll, like the fleet call of a lost claim; returns its id.
pub(crate) fn stray(cluster: &TestCluster, owner: bool) -> String {
    strays(cluster, owner, 1).remove(0)
}

/// Launches instances in one fleet, as [`stray`] does.
fn strays(cluster: &TestCluster, owner: bool, count: u32) -> Vec<String> {
    cluster.world.ec2.with(|cloud, now| {
        let mut request = cloud.fleets()[0].request.clone();
        request.client_token = format!("stray-{owner}");
        request.total_target_capacity = count;
        if owner {
            assert_eq!(request.tags.get(tag::OWNER).map(String::as_str), Some(annotation::OWNER_VALUE));
            request.tags.insert(tag::LAUNCH_GROUP.to_owned(), "lost".to_owned());
            request.tags.insert(tag::NODE_CLAIM.to_owned(), "lost".to_owned());
        } else {
            request.tags.remove(tag::OWNER);
        }
        let answer = cloud.create_fleet(&request, now).unwrap();
        answer.instances.into_iter().map(|instance| instance.instance_id).collect()
    })
}

/// Value of a metric of the actuator that leads; empty if there is none.
fn metric(cluster: &TestCluster, series: &str) -> String {
    let leader = cluster.plimsoll.leader(Role::Actuator).unwrap();
    let text = cluster.plimsoll.metrics(&leader).unwrap().encode().unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(&format!("plimsoll_actuator_{series} ")));
    value.unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_ours_without_a_claim_goes_and_one_of_others_stays() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    let (ours, foreign) = (stray(&cluster, true), stray(&cluster, false));
    let node = cluster.world.living_instances()[&ours].private_dns_name.clone();
    let has_node = |world: &World| world.get(ResourceId::NODES, &node).is_some();
    cluster.until("the stray instance becomes a Node", MINUTE, has_node).await;
    let gone = move |world: &World| !world.living_instances().contains_key(&ours);
    cluster.until("the stray instance is terminated", 15 * MINUTE, gone).await;
    // The cloud controller would delete it once the instance has ended, after 30 s.
    cluster.until("its Node is deleted", Duration::from_secs(10), |world| !has_node(world)).await;
    cluster.pass(10 * MINUTE).await;
    assert!(cluster.world.living_instances().contains_key(&foreign), "another's instance is not ours to end");
    assert_eq!(metric(&cluster, "instances_collected_total{cause=\"unclaimed\"}"), "1");
    assert_eq!(cluster.world.running_pods(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_instance_vanished_goes_and_its_pods_get_another() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 2, 500);
    cluster.until_running(2, 3 * MINUTE).await;
    let before = cluster.claims();
    let id = cluster.world.living_instances().into_keys().next().unwrap();
    cluster.world.ec2.with(|cloud, now| cloud.terminate_instances(&[id], now));
    let name = object::name(&before[0]).to_owned();
    let replaced =
        move |world: &World| world.get(ResourceId::NODE_CLAIMS, &name).is_none() && world.running_pods() == 2;
    cluster.until("claim and node are deleted, the pods run elsewhere", 15 * MINUTE, replaced).await;
}

/// Somebody has stopped it, and there is no notice.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_instance_is_stopped_goes_and_its_pod_gets_another() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    let name = object::name(&cluster.claims()[0]).to_owned();
    let id = cluster.world.living_instances().into_keys().next().unwrap();
    cluster.world.ec2.with(|cloud, now| {
        cloud.settings.tells_states = false;
        cloud.stop(&id, now);
    });
    let replaced =
        move |world: &World| world.get(ResourceId::NODE_CLAIMS, &name).is_none() && world.running_pods() == 1;
    cluster.until("claim and node are deleted, the pod runs elsewhere", 15 * MINUTE, replaced).await;
    assert!(cluster.world.ec2.read(|cloud, now| !cloud.machines()[&id].state(now).is_alive()));
}

/// Claims from Karpenter have no owner annotation, and their instances no owner tag.
#[tokio::test(start_paused = true)]
async fn an_adopted_claim_goes_only_if_its_instance_has_vanished() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 2, 3000);
    cluster.until_running(2, 3 * MINUTE).await;
    let [lost, kept] = cluster.claims().try_into().unwrap();
    for claim in [&lost, &kept] {
        let patch = json!({"metadata": {"annotations": {annotation::OWNER: null}}});
        cluster.world.patch(ResourceId::NODE_CLAIMS, object::name(claim), patch).unwrap();
    }
    let id = object::text(&lost, &["status", "providerID"]).rsplit('/').next().unwrap().to_owned();
    cluster.world.ec2.with(|cloud, now| {
        cloud.remove_tag_of_all(tag::OWNER);
        cloud.terminate_instances(&[id], now)
    });
    let name = object::name(&lost).to_owned();
    let gone = move |world: &World| world.get(ResourceId::NODE_CLAIMS, &name).is_none();
    cluster.until("the claim is deleted", 15 * MINUTE, gone).await;
    cluster.pass(15 * MINUTE).await;
    assert!(cluster.world.get(ResourceId::NODE_CLAIMS, object::name(&kept)).is_some(), "{}", cluster.summary());
}

/// EC2 takes seconds for each page of 1,000 instances.
#[tokio::test(start_paused = true)]
async fn a_list_that_takes_a_minute_is_waited_for() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    let ours = stray(&cluster, true);
    cluster.world.ec2.faults(|faults| faults.inject(Action::DescribeInstances, Effect::Delay(MINUTE), u32::MAX));
    let gone = move |world: &World| !world.living_instances().contains_key(&ours);
    cluster.until("the stray instance is terminated", 30 * MINUTE, gone).await;
    assert_eq!(cluster.world.running_pods(), 1);
}

/// For example if claims were restored from an old backup.
#[tokio::test(start_paused = true)]
async fn more_unclaimed_instances_than_a_crash_leaves_are_all_kept() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    let mut strays = strays(&cluster, true, 40);
    // EC2 shows terminated instances for an hour. They are no share of the cluster.
    let ended = strays.split_off(7);
    cluster.world.ec2.with(|cloud, now| cloud.terminate_instances(&ended, now));
    cluster.pass(15 * MINUTE).await;
    let living = cluster.world.living_instances();
    assert!(strays.iter().all(|id| living.contains_key(id)), "{}", cluster.summary());
    let withheld = || metric(&cluster, "instances_withheld");
    assert_eq!(withheld(), "7");
    // Somebody terminates two of them. Five are not too many in any cluster.
    cluster.world.ec2.with(|cloud, now| cloud.terminate_instances(&strays[..2], now));
    let gone = |world: &World| world.living_instances().len() == 1;
    cluster.until("the other stray instances are terminated", 5 * MINUTE, gone).await;
    assert_eq!((cluster.world.running_pods(), withheld().as_str()), (1, "0"));
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_its_claim_does_not_know_yet_is_kept() {
    let cluster = TestCluster::usual().await;
    let status = Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") };
    let rule = cluster.world.server().faults().always(status, ApiEffect::internal_error());
    cluster.deploy("web", 1, 500);
    cluster.until("the instance is launched", MINUTE, |world| world.living_instances().len() == 1).await;
    // A claim without an instance is given up after 5 minutes.
    cluster.pass(Duration::from_secs(270)).await;
    cluster.world.server().faults().remove(rule);
    cluster.until_running(1, 2 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1, "{}", cluster.summary());
}

/// EC2 may not show the instances of an impaired zone, before the cluster is shifted away from it.
#[tokio::test(start_paused = true)]
async fn a_claim_with_a_ready_node_stays_although_ec2_does_not_show_its_instance() {
    let cluster = TestCluster::usual().await;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    let uids = || cluster.claims().iter().map(|claim| object::uid(claim).to_owned()).collect::<Vec<_>>();
    let before = uids();
    let zone = cluster.world.living_instances().into_values().next().unwrap().zone;
    cluster.world.ec2.with(|cloud, _| cloud.hidden_zones.insert(zone));
    cluster.pass(20 * MINUTE).await;
    assert_eq!(uids(), before, "{}", cluster.summary());
    assert!(cluster.claims().iter().all(|claim| !object::is_deleting(claim)), "{}", cluster.summary());
    assert_eq!((cluster.world.running_pods(), instances_ever_launched(&cluster.world).len()), (1, 1));
}

/// The answer is wrong, as that of another region, and the control plane cannot reach any node.
#[tokio::test(start_paused = true)]
async fn claims_stay_after_one_answer_without_any_instance() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    cluster.deploy("web", 8, 3000);
    cluster.until_running(8, 3 * MINUTE).await;
    // The claims are old enough to be collected.
    cluster.pass(3 * MINUTE).await;
    cluster.nodes_in_use().iter().for_each(|node| cluster.world.cluster.kubelets.stop(node));
    cluster.until("no node is ready", 2 * MINUTE, |world| world.ready_nodes() == 0).await;
    let reads = |world: &World| {
        world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::DescribeInstances).count())
    };
    let before = reads(&cluster.world);
    cluster.world.ec2.with(|cloud, _| {
        let zones: Vec<String> = cloud.subnets.values().map(|subnet| subnet.zone.clone()).collect();
        cloud.hidden_zones.extend(zones);
    });
    cluster.until("EC2 is asked", 2 * MINUTE, |world| reads(world) > before).await;
    // The next round is a minute after it.
    cluster.pass(Duration::from_secs(50)).await;
    cluster.world.ec2.with(|cloud, _| cloud.hidden_zones.clear());
    cluster.pass(2 * MINUTE).await;
    let kept = cluster.world.count(ResourceId::NODE_CLAIMS, |claim| !object::is_deleting(claim));
    assert_eq!(kept, 8, "{}", cluster.summary());
}

/// As when its kubelet has died, or Karpenter made the claim.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_instance_runs_stays_although_its_node_is_not_ready() {
    for is_adopted in [false, true] {
        // The pod moves, and the node is empty then.
        let cluster = TestCluster::begin(Setup::with_pool(json!({"disruption": {"consolidateAfter": "Never"}}))).await;
        cluster.deploy("web", 1, 500);
        cluster.until_running(1, 3 * MINUTE).await;
        let claim = object::name(&cluster.claims()[0]).to_owned();
        if is_adopted {
            let patch = json!({"metadata": {"annotations": {annotation::OWNER: null}}});
            cluster.world.patch(ResourceId::NODE_CLAIMS, &claim, patch).unwrap();
            cluster.world.ec2.with(|cloud, _| cloud.remove_tag_of_all(tag::OWNER));
        }
        let node = cluster.nodes_in_use().remove(0);
        cluster.world.cluster.kubelets.stop(&node);
        cluster.until("the node is not ready", 2 * MINUTE, |world| world.ready_nodes() == 0).await;
        cluster.pass(10 * MINUTE).await;
        let is_kept = cluster.world.get(ResourceId::NODE_CLAIMS, &claim).is_some_and(|it| !object::is_deleting(&it));
        assert!(is_kept, "adopted: {is_adopted}\n{}", cluster.summary());
    }
}

/// A cluster that follows zonal shifts, with an instance that boots for an hour. Without a Node: the cloud controller
/// would delete the Node of a lost instance, and that would delete the claim. Returns the name of the claim.
async fn with_booting_instance() -> (TestCluster, String, Machine) {
    let mut setup = Setup::default();
    setup.world.boot = HOUR;
    setup.options = Options { zonal_shift: true, ..setup.options };
    let cluster = TestCluster::begin(setup).await;
    cluster.deploy("web", 1, 500);
    let has_instance = |world: &World| {
        let claims = world.all(ResourceId::NODE_CLAIMS);
        claims.iter().any(|claim| !object::text(claim, &["status", "providerID"]).is_empty())
    };
    cluster.until("the instance is launched", MINUTE, has_instance).await;
    // The queue of interruptions tells nothing.
    cluster.world.ec2.with(|cloud, _| cloud.settings.tells_states = false);
    let name = object::name(&cluster.claims()[0]).to_owned();
    let machine = cluster.world.living_instances().into_values().next().unwrap();
    (cluster, name, machine)
}

/// Shifts the cluster away from the zone of an instance.
async fn shift_away(cluster: &TestCluster, machine: &Machine) {
    cluster.world.ec2.with(|cloud, _| {
        let zone_id = cloud.subnets[&machine.subnet_id].zone_id.clone();
        cloud.zonal_shifts = vec![ZonalShift { zone_id, expires: None }];
    });
    // The shifts are read.
    cluster.pass(MINUTE).await;
}

/// EC2 lists the instance as terminated, so that nothing is concluded from what it does not show.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_instance_was_terminated_goes_during_a_zonal_shift_too() {
    let (cluster, name, machine) = with_booting_instance().await;
    shift_away(&cluster, &machine).await;
    cluster.world.ec2.with(|cloud, now| cloud.terminate_instances(&[machine.id], now));
    // A claim that does not register is given up after 15 minutes.
    let gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &name).is_none();
    cluster.until("the claim is deleted", 8 * MINUTE, gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_instance_ec2_does_not_show_goes_unless_its_zone_is_shifted() {
    for is_shifted in [false, true] {
        let (cluster, name, machine) = with_booting_instance().await;
        if is_shifted {
            shift_away(&cluster, &machine).await;
        }
        cluster.world.ec2.with(|cloud, _| cloud.hidden_zones.insert(machine.zone));
        // A claim that does not register is given up after 15 minutes.
        cluster.pass(8 * MINUTE).await;
        let is_kept = cluster.world.get(ResourceId::NODE_CLAIMS, &name).is_some_and(|it| !object::is_deleting(&it));
        assert_eq!(is_kept, is_shifted, "{}", cluster.summary());
        let collected = metric(&cluster, "nodeclaims_collected_total{cause=\"instance_gone\"}");
        assert_eq!(collected.is_empty(), is_shifted, "{collected}");
    }
}

/// EC2 says little about an impaired zone.
#[tokio::test(start_paused = true)]
async fn an_instance_without_a_claim_stays_while_its_zone_is_shifted() {
    let (cluster, _, _) = with_booting_instance().await;
    let ours = stray(&cluster, true);
    let machine = cluster.world.living_instances()[&ours].clone();
    shift_away(&cluster, &machine).await;
    cluster.pass(8 * MINUTE).await;
    assert!(cluster.world.living_instances().contains_key(&ours), "{}", cluster.summary());
    cluster.world.ec2.with(|cloud, _| cloud.zonal_shifts.clear());
    let gone = move |world: &World| !world.living_instances().contains_key(&ours);
    cluster.until("it is terminated after the shift", 5 * MINUTE, gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_counts_as_collected_only_when_it_is_deleted() {
    let (cluster, name, machine) = with_booting_instance().await;
    let faults = cluster.world.server().faults();
    let refused = faults.always(Matcher::of(Verb::Delete, "nodeclaims"), ApiEffect::internal_error());
    cluster.world.ec2.with(|cloud, now| cloud.terminate_instances(&[machine.id], now));
    cluster.pass(8 * MINUTE).await;
    let collected = || metric(&cluster, "nodeclaims_collected_total{cause=\"instance_gone\"}");
    assert_eq!(collected(), "");
    faults.remove(refused);
    // A claim that does not register is given up after 15 minutes.
    let gone = |world: &World| world.get(ResourceId::NODE_CLAIMS, &name).is_none();
    cluster.until("the claim is deleted", 3 * MINUTE, gone).await;
    assert_eq!(collected(), "1");
    let leader = cluster.plimsoll.leader(Role::Actuator).unwrap();
    let text = cluster.plimsoll.metrics(&leader).unwrap().encode().unwrap();
    let mut disrupted = text.lines().filter(|line| line.starts_with("karpenter_nodeclaims_disrupted_total{"));
    let is_its = |line: &str| line.contains("reason=\"garbage_collected\"") && line.ends_with(" 1");
    assert!(disrupted.any(is_its), "{text}");
}

/// Somebody else keeps it.
#[tokio::test(start_paused = true)]
async fn a_claim_that_stays_after_its_deletion_counts_as_collected_once() {
    let (cluster, name, machine) = with_booting_instance().await;
    let finalizers = json!({"metadata": {"finalizers": ["karpenter.sh/termination", "example.com/wait"]}});
    cluster.world.patch(ResourceId::NODE_CLAIMS, &name, finalizers).unwrap();
    cluster.world.ec2.with(|cloud, now| cloud.terminate_instances(&[machine.id], now));
    let is_deleting =
        |world: &World| world.get(ResourceId::NODE_CLAIMS, &name).is_some_and(|claim| object::is_deleting(&claim));
    // A claim that does not register is given up after 15 minutes.
    cluster.until("the claim is deleted", 8 * MINUTE, is_deleting).await;
    // Five more rounds.
    cluster.pass(5 * MINUTE).await;
    assert!(is_deleting(&cluster.world));
    assert_eq!(metric(&cluster, "nodeclaims_collected_total{cause=\"instance_gone\"}"), "1");
}

/// Nothing is known of such a claim.
#[tokio::test(start_paused = true)]
async fn a_claim_with_another_owner_is_not_collected() {
    let (cluster, name, machine) = with_booting_instance().await;
    let owner = json!({"metadata": {"annotations": {annotation::OWNER: "another"}}});
    cluster.world.patch(ResourceId::NODE_CLAIMS, &name, owner).unwrap();
    cluster.world.ec2.with(|cloud, now| cloud.terminate_instances(&[machine.id], now));
    // A claim that does not register is given up after 15 minutes.
    cluster.pass(8 * MINUTE).await;
    let is_kept = cluster.world.get(ResourceId::NODE_CLAIMS, &name).is_some_and(|it| !object::is_deleting(&it));
    assert!(is_kept, "{}", cluster.summary());
}
