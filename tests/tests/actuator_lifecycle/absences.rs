//! Instances that EC2 does not show (safety rule 14), and terminations that it has not accepted.

use super::drain::run_pod;
use super::with_booting_instance;
use plimsoll_actuator::ports::{CloudError, ZonalShift};
use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::plimsoll::Options;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup, instance_of};
use serde_json::json;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// The zone of the only instance.
fn zone(world: &World) -> String {
    world.living_instances().into_values().next().unwrap().zone
}

/// From now on, reads show the instances of the zone or do not.
fn hide(world: &World, zone: &str, is_hidden: bool) {
    world.ec2.with(|cloud, _| match is_hidden {
        true => cloud.hidden_zones.insert(zone.to_owned()),
        false => cloud.hidden_zones.remove(zone),
    });
}

/// Shifts the cluster away from a zone, and waits until that is known: shifts are read every 30 s.
async fn shift_away_from(world: &World, zone: &str) {
    world.ec2.with(|cloud, _| {
        let subnet = cloud.subnets.values().find(|subnet| subnet.zone == zone).unwrap();
        cloud.zonal_shifts = vec![ZonalShift { zone_id: subnet.zone_id.clone(), expires: None }];
    });
    tokio::time::sleep(40 * SECOND).await;
}

fn with_zonal_shift() -> Setup {
    Setup { options: Options { zonal_shift: true, ..Options::default() }, ..Setup::default() }
}

fn is_gone(world: &World, claim: &str) -> bool {
    world.get(ResourceId::NODE_CLAIMS, claim).is_none()
}

/// EC2 shows instances seconds after their launch.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_just_launched_stays_although_ec2_does_not_show_its_instance() {
    let (watcher, claim) = with_booting_instance().await;
    hide(&watcher.world, &zone(&watcher.world), true);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let took = watcher.until("the claim is deleted", 3 * MINUTE, |world| is_gone(world, &claim)).await;
    assert!(took >= 100 * SECOND, "{took:?}: two minutes after the launch");
}

/// Two reads must miss it, ten seconds apart, and none in between find it.
#[tokio::test(start_paused = true)]
async fn an_instance_that_a_read_shows_in_between_is_not_gone() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let (instance, zone) = (instance_of(&watcher.world, &node), zone(&watcher.world));
    tokio::time::sleep(3 * MINUTE).await;
    watcher.world.ec2.with(|cloud, _| cloud.protect(&instance, true));
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let is_refused = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim).unwrap();
        object::condition(&claim, "InstanceTerminating").is_some_and(|it| it["reason"] == "TerminationRefused")
    };
    watcher.until("EC2 refuses to terminate the instance", MINUTE, is_refused).await;
    let failures = "karpenter_cloudprovider_instance_termination_failures_total";
    assert!(watcher.counted(failures, &[("zone", &zone)]) > 0);
    for (is_hidden, seconds) in [(true, 6_u32), (false, 10), (true, 6), (false, 10)] {
        hide(&watcher.world, &zone, is_hidden);
        tokio::time::sleep(seconds * SECOND).await;
        assert!(!is_gone(&watcher.world, &claim));
    }
    hide(&watcher.world, &zone, true);
    watcher.until("the claim is deleted", 20 * SECOND, |world| is_gone(world, &claim)).await;
}

/// The kubelet may only be cut off from the API server.
#[tokio::test(start_paused = true)]
async fn a_node_whose_kubelet_is_silent_is_drained_while_its_instance_runs() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    run_pod(&watcher, "web", &node, &json!({annotation::DO_NOT_DISRUPT: "true"}), 30).await;
    watcher.world.cluster.kubelets.stop(&node);
    watcher.until("the Node is NotReady", 2 * MINUTE, |world| world.ready_nodes() == 0).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    // Kubernetes deletes the pod after five minutes.
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(watcher.world.living_instances().len(), 1, "the pod must not be disrupted");
}

/// Nothing is concluded from what EC2 does not show of such a zone (docs/zonal-shift.md).
#[tokio::test(start_paused = true)]
async fn a_node_without_its_claim_in_a_shifted_zone_is_drained_although_ec2_does_not_show_its_instance() {
    let watcher = FakeWatcher::begin(with_zonal_shift()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    run_pod(&watcher, "web", &node, &json!({annotation::DO_NOT_DISRUPT: "true"}), 30).await;
    let zone = zone(&watcher.world);
    shift_away_from(&watcher.world, &zone).await;
    watcher.world.cluster.kubelets.stop(&node);
    watcher.until("the Node is NotReady", 2 * MINUTE, |world| world.ready_nodes() == 0).await;
    hide(&watcher.world, &zone, true);
    let no_finalizers = json!({"metadata": {"finalizers": null}});
    watcher.world.patch(ResourceId::NODE_CLAIMS, &claim, no_finalizers).unwrap();
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher.world.delete(ResourceId::NODES, &node).unwrap();
    // Kubernetes deletes the pod after five minutes.
    tokio::time::sleep(3 * MINUTE).await;
    assert!(watcher.world.get(ResourceId::NODES, &node).is_some(), "the pod must not be disrupted");
}

/// No calls are made for instances of a shifted zone (docs/zonal-shift.md).
#[tokio::test(start_paused = true)]
async fn a_termination_that_ec2_has_not_accepted_is_not_tried_again_during_a_zonal_shift() {
    let watcher = FakeWatcher::begin(with_zonal_shift()).await;
    let (claim, _) = watcher.node(&wanted("a-1")).await;
    let unavailable = Effect::Refuse(CloudError::Unavailable { message: "no answer".to_owned() });
    watcher.world.ec2.faults(|faults| faults.inject(Action::TerminateInstances, unavailable, u32::MAX));
    let calls = |world: &World| {
        world.ec2.read(|cloud, _| cloud.log.iter().filter(|it| it.action == Action::TerminateInstances).count())
    };
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher.until("EC2 is asked", MINUTE, |world| calls(world) > 1).await;
    shift_away_from(&watcher.world, &zone(&watcher.world)).await;
    let before = calls(&watcher.world);
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!((calls(&watcher.world), watcher.world.living_instances().len()), (before, 1));
}
