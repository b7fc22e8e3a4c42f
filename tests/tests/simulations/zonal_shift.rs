//! AWS ARC zonal shift: no launches into a shifted zone and no calls for its instances, until the shift is over.

use plimsoll_actuator::ports::{CloudError, ZonalShift};
use plimsoll_model::names::{label, tag};
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect, Machine};
use plimsoll_sim::plimsoll::{Options, Role};
use plimsoll_sim::world::{World, is_running};
use plimsoll_tests::{HOUR, MINUTE, Setup, TestCluster};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The zone of the shifts.
const SHIFTED: &str = "us-west-2a";
/// Longer than the interval at which the shifts are read.
const READ: Duration = Duration::from_secs(40);

/// A cluster with nodes for one pod of 3 CPUs in three zones.
async fn cluster() -> TestCluster {
    let zones = json!({"key": label::ZONE, "operator": "In", "values": [SHIFTED, "us-west-2b", "us-west-2c"]});
    let large = json!({"key": label::INSTANCE_TYPE, "operator": "In", "values": ["m6i.xlarge"]});
    let mut setup = Setup::with_pool(json!({"template": {"spec": {"requirements": [zones, large]}}}));
    setup.options = Options { zonal_shift: true, ..setup.options };
    TestCluster::begin(setup).await
}

/// Shifts the cluster away from [`SHIFTED`], until a time or an autoshift's end.
fn shift(cluster: &TestCluster, expires: Option<Timestamp>) {
    cluster.world.ec2.with(|cloud, _| {
        let subnet = cloud.subnets.values().find(|subnet| subnet.zone == SHIFTED).unwrap();
        cloud.zonal_shifts = vec![ZonalShift { zone_id: subnet.zone_id.clone(), expires }];
    });
}

fn in_an_hour(cluster: &TestCluster) -> Option<Timestamp> {
    Some(cluster.world.ec2.now().plus(Millis::from_seconds(3600)))
}

fn cancel(cluster: &TestCluster) {
    cluster.world.ec2.with(|cloud, _| cloud.zonal_shifts.clear());
}

/// Pods that are spread over the zones, each on a node of its own.
fn deploy_spread(cluster: &TestCluster, name: &str, replicas: u32) {
    let spread = json!([{"maxSkew": 1, "topologyKey": label::ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": name}}}]);
    let requests = json!({"cpu": "3", "memory": "1Gi"});
    cluster.world.deploy(name, replicas, &requests, &json!({ "topologySpreadConstraints": spread })).unwrap();
}

/// Living instances by zone.
fn by_zone(world: &World) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for Machine { zone, .. } in world.living_instances().into_values() {
        *counts.entry(zone).or_default() += 1;
    }
    counts
}

fn zones(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
    counts.iter().map(|(zone, count)| ((*zone).to_owned(), *count)).collect()
}

fn running(world: &World, app: &str) -> usize {
    let is_its = |pod: &Value| object::text(pod, &["metadata", "labels", "app"]) == app && is_running(pod);
    world.count(ResourceId::PODS, is_its)
}

/// Instances of the shifted zone.
fn there(world: &World) -> BTreeSet<String> {
    let living = world.living_instances().into_values().filter(|machine| machine.zone == SHIFTED);
    living.map(|machine| machine.id).collect()
}

/// Number of TerminateInstances and CreateTags calls about these instances so far.
fn calls_about(world: &World, ids: &BTreeSet<String>) -> usize {
    world.ec2.read(|cloud, _| {
        let changes = |action| matches!(action, Action::TerminateInstances | Action::CreateTags);
        let calls = cloud.log.iter().filter(|call| changes(call.action));
        calls.filter(|call| call.about.split(' ').any(|id| ids.contains(id))).count()
    })
}

fn claim_of(world: &World, instance: &str) -> Option<String> {
    let claims = world.all(ResourceId::NODE_CLAIMS);
    let its = claims.iter().find(|claim| object::text(claim, &["status", "providerID"]).ends_with(instance));
    its.map(|claim| object::name(claim).to_owned())
}

#[tokio::test(start_paused = true)]
async fn spread_pods_get_nodes_in_the_other_zones_and_all_zones_after_the_shift() {
    let cluster = cluster().await;
    shift(&cluster, in_an_hour(&cluster));
    cluster.pass(READ).await;
    deploy_spread(&cluster, "web", 4);
    cluster.until_running(4, 5 * MINUTE).await;
    assert_eq!(by_zone(&cluster.world), zones(&[("us-west-2b", 2), ("us-west-2c", 2)]), "{}", cluster.summary());
    let events = || cluster.world.events_of("NodePool", "default").join("\n");
    assert_eq!(events().matches("ZonalShiftActive").count(), 1, "{}", events());
    cancel(&cluster);
    cluster.pass(READ).await;
    assert_eq!(events().matches("ZonalShiftCleared").count(), 1, "{}", events());
    cluster.scale("web", 6);
    cluster.until_running(6, 5 * MINUTE).await;
    let even = zones(&[(SHIFTED, 2), ("us-west-2b", 2), ("us-west-2c", 2)]);
    assert_eq!(by_zone(&cluster.world), even, "{}", cluster.summary());
}

/// kube-scheduler counts the zones of existing nodes, so that a full node in the shifted zone keeps its count at 0.
#[tokio::test(start_paused = true)]
async fn a_node_in_the_shifted_zone_counts_in_a_spread_until_the_shift_ends() {
    let cluster = cluster().await;
    deploy_spread(&cluster, "old", 3);
    cluster.until_running(3, 5 * MINUTE).await;
    shift(&cluster, Some(cluster.world.ec2.now().plus(Millis::from_seconds(1200))));
    cluster.pass(READ).await;
    deploy_spread(&cluster, "new", 4);
    cluster.pass(15 * MINUTE).await;
    assert_eq!(running(&cluster.world, "new"), 2, "{}", cluster.summary());
    let during = zones(&[(SHIFTED, 1), ("us-west-2b", 2), ("us-west-2c", 2)]);
    assert_eq!(by_zone(&cluster.world), during, "{}", cluster.summary());
    cluster.until("the other pods run after the shift", 10 * MINUTE, |world| running(world, "new") == 4).await;
    assert!(there(&cluster.world).len() >= 2, "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn nodes_of_the_shifted_zone_are_neither_removed_nor_tagged_until_it_is_over() {
    let cluster = cluster().await;
    deploy_spread(&cluster, "web", 6);
    cluster.until_running(6, 5 * MINUTE).await;
    cluster.pass(MINUTE).await;
    let kept = there(&cluster.world);
    let before = calls_about(&cluster.world, &kept);
    shift(&cluster, in_an_hour(&cluster));
    cluster.pass(READ).await;
    cluster.scale("web", 0);
    let only_there = |world: &World| by_zone(world) == zones(&[(SHIFTED, 2)]);
    cluster.until("the empty nodes of the other zones are removed", 10 * MINUTE, only_there).await;
    // Somebody deletes a node all the same.
    let deleted = kept.first().unwrap();
    let claim = claim_of(&cluster.world, deleted).unwrap();
    cluster.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    cluster.pass(20 * MINUTE).await;
    assert_eq!(
        (there(&cluster.world), calls_about(&cluster.world, &kept)),
        (kept.clone(), before),
        "{}",
        cluster.summary()
    );
    let deleting = cluster.claims().iter().filter(|claim| object::is_deleting(claim)).count();
    assert_eq!(deleting, 1, "no other removal has begun: {}", cluster.summary());
    let claim = cluster.world.get(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let condition = object::condition(&claim, "InstanceTerminating").cloned().unwrap_or_default();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("ZonalShift")));
    cancel(&cluster);
    cluster.until_empty(10 * MINUTE).await;
}

/// EC2 may not show what is in an impaired zone.
#[tokio::test(start_paused = true)]
async fn instances_of_the_shifted_zone_that_ec2_does_not_show_are_not_given_up() {
    let cluster = cluster().await;
    deploy_spread(&cluster, "web", 3);
    cluster.until_running(3, 5 * MINUTE).await;
    shift(&cluster, in_an_hour(&cluster));
    cluster.pass(READ).await;
    let [instance] = there(&cluster.world).into_iter().collect::<Vec<_>>().try_into().unwrap();
    let claim = claim_of(&cluster.world, &instance).unwrap();
    // An instance whose claim is lost, like one that garbage collection terminates.
    cluster.world.ec2.with(|cloud, now| {
        let mut request = cloud.fleets()[0].request.clone();
        let ways = request.launch_template_configs.iter_mut().flat_map(|config| &mut config.overrides);
        ways.for_each(|way| {
            way.zone = SHIFTED.to_owned();
            way.subnet_id = Some(format!("subnet-demo-{SHIFTED}"));
        });
        (request.client_token, request.total_target_capacity) = ("stray".to_owned(), 1);
        request.tags.insert(tag::LAUNCH_GROUP.to_owned(), "lost".to_owned());
        cloud.create_fleet(&request, now).unwrap();
    });
    cluster.pass(20 * MINUTE).await;
    assert_eq!(there(&cluster.world).len(), 2, "{}", cluster.summary());
    cluster.world.ec2.with(|cloud, _| cloud.hidden_zones.insert(SHIFTED.to_owned()));
    cluster.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    cluster.pass(20 * MINUTE).await;
    assert!(cluster.world.get(ResourceId::NODE_CLAIMS, &claim).is_some(), "{}", cluster.summary());
    cluster.world.ec2.with(|cloud, _| cloud.hidden_zones.clear());
    cancel(&cluster);
    let one = |world: &World| claim_of(world, &instance).is_none() && !there(world).contains(&instance);
    cluster.until("the deleted node is gone", 10 * MINUTE, one).await;
    let none_lost = |world: &World| there(world).iter().all(|id| claim_of(world, id).is_some());
    cluster.until("the stray instance is gone", 10 * MINUTE, none_lost).await;
    cluster.until_running(3, 10 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn known_shifts_count_while_arc_does_not_answer_and_launches_go_on() {
    let mut cluster = cluster().await;
    shift(&cluster, in_an_hour(&cluster));
    cluster.pass(READ).await;
    let refused = || Effect::Refuse(CloudError::Unavailable { message: "no answer".to_owned() });
    cluster.world.ec2.faults(|faults| faults.inject(Action::GetManagedResource, refused(), u32::MAX));
    cancel(&cluster);
    deploy_spread(&cluster, "web", 2);
    cluster.until_running(2, 5 * MINUTE).await;
    assert_eq!(by_zone(&cluster.world), zones(&[("us-west-2b", 1), ("us-west-2c", 1)]), "{}", cluster.summary());
    cluster.pass(HOUR).await;
    cluster.scale("web", 3);
    cluster.until_running(3, 5 * MINUTE).await;
    assert_eq!(there(&cluster.world).len(), 1, "the shift has expired: {}", cluster.summary());
    // A new process launches although it cannot learn of shifts.
    cluster.plimsoll.replace_all(Role::Actuator);
    cluster.scale("web", 6);
    cluster.until_running(6, 5 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_process_launches_nothing_in_a_zone_that_is_shifted_already() {
    let mut cluster = cluster().await;
    cluster.plimsoll.kill_all(Role::Actuator);
    shift(&cluster, None);
    deploy_spread(&cluster, "web", 4);
    cluster.plimsoll.start_another(Role::Actuator).unwrap();
    cluster.until_running(4, 5 * MINUTE).await;
    assert_eq!(by_zone(&cluster.world), zones(&[("us-west-2b", 2), ("us-west-2c", 2)]), "{}", cluster.summary());
}
