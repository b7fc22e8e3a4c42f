//! Placement groups: found, used within their limits, and left when the class selects another one.

use plimsoll_actuator::ports::{PlacementGroup, PlacementStrategy};
use plimsoll_model::names::label;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Machine};
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn group(id: &str, strategy: PlacementStrategy, partition_count: Option<i32>) -> PlacementGroup {
    PlacementGroup {
        id: id.to_owned(),
        name: "own".to_owned(),
        state: PlacementGroup::AVAILABLE.to_owned(),
        strategy: Some(strategy),
        partition_count,
    }
}

/// A cluster whose class selects this group by name. The pool's requirements are added to.
async fn cluster_in(group: PlacementGroup, requirements: &[Value]) -> TestCluster {
    let mut all = vec![
        json!({"key": label::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}),
        json!({"key": label::ARCH, "operator": "In", "values": ["amd64"]}),
    ];
    all.extend_from_slice(requirements);
    let pool = json!({"template": {"spec": {"requirements": all}}, "disruption": {"consolidationPolicy": "WhenEmpty"}});
    let cluster = TestCluster::begin(Setup::with_pool(pool)).await;
    let id = group.id.clone();
    cluster.world.ec2.with(|cloud, _| cloud.add_placement_group(group));
    select(&cluster, &json!({"name": "own"}));
    let is_found = move |world: &World| {
        let class = world.get(ResourceId::EC2_NODE_CLASSES, "default").unwrap();
        let is_ready = object::condition_is_true(&class, "PlacementGroupReady");
        is_ready && object::text(&class, &["status", "placementGroup", "id"]) == id
    };
    cluster.until("the class lists its group", 2 * MINUTE, is_found).await;
    cluster
}

fn select(cluster: &TestCluster, selector: &Value) {
    let patch = json!({"spec": {"placementGroupSelector": selector}});
    cluster.world.patch(ResourceId::EC2_NODE_CLASSES, "default", patch).unwrap();
}

/// Living instances by group, partition and zone.
fn places(world: &World) -> BTreeMap<(Option<String>, Option<u32>, String), usize> {
    let mut counts = BTreeMap::new();
    for Machine { placement_group_id, partition, zone, .. } in world.living_instances().into_values() {
        *counts.entry((placement_group_id, partition, zone)).or_default() += 1;
    }
    counts
}

fn by_group(world: &World) -> BTreeMap<Option<String>, usize> {
    let mut counts = BTreeMap::new();
    for ((group, ..), count) in places(world) {
        *counts.entry(group).or_default() += count;
    }
    counts
}

/// Values of a label of all Nodes, sorted.
fn labels(world: &World, key: &str) -> Vec<String> {
    let mut values: Vec<String> = world
        .all(ResourceId::NODES)
        .iter()
        .map(|node| object::text(node, &["metadata", "labels", key]).to_owned())
        .collect();
    values.sort();
    values
}

fn refusals(cluster: &TestCluster) -> BTreeSet<String> {
    cluster.world.ec2.read(|cloud, _| {
        cloud.fleets().iter().flat_map(|fleet| &fleet.answer.errors).map(|error| error.code.clone()).collect()
    })
}

/// Pods each on a node of its own.
fn deploy_apart(cluster: &TestCluster, name: &str, replicas: u32) {
    let labels = json!({"app": name});
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}});
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let requests = json!({"cpu": "500m", "memory": "256Mi"});
    cluster.world.deploy(name, replicas, &requests, &json!({ "affinity": affinity })).unwrap();
}

#[tokio::test(start_paused = true)]
async fn nodes_of_a_partition_group_have_the_partition_that_ec2_chose() {
    let cluster = cluster_in(group("pg-1", PlacementStrategy::Partition, Some(3)), &[]).await;
    deploy_apart(&cluster, "web", 3);
    cluster.until_running(3, 5 * MINUTE).await;
    assert_eq!(by_group(&cluster.world), [(Some("pg-1".to_owned()), 3)].into(), "{}", cluster.summary());
    let nodes = labels(&cluster.world, label::PLACEMENT_GROUP_PARTITION);
    let mut partitions: Vec<String> = places(&cluster.world)
        .into_iter()
        .flat_map(|((_, partition, _), count)| vec![partition.unwrap().to_string(); count])
        .collect();
    partitions.sort();
    assert_eq!(nodes, partitions, "{}", cluster.summary());
    assert_eq!(labels(&cluster.world, label::PLACEMENT_GROUP_ID), ["pg-1", "pg-1", "pg-1"]);
}

#[tokio::test(start_paused = true)]
async fn pods_are_spread_over_the_partitions_that_the_pool_lists() {
    let partitions = json!({"key": label::PLACEMENT_GROUP_PARTITION, "operator": "In", "values": ["1", "2", "3"]});
    let cluster = cluster_in(group("pg-1", PlacementStrategy::Partition, Some(3)), &[partitions]).await;
    let spread = json!([{"maxSkew": 1, "topologyKey": label::PLACEMENT_GROUP_PARTITION,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let requests = json!({"cpu": "500m", "memory": "256Mi"});
    cluster.world.deploy("web", 3, &requests, &json!({ "topologySpreadConstraints": spread })).unwrap();
    let is_spread =
        |world: &World| world.running_pods() == 3 && labels(world, label::PLACEMENT_GROUP_PARTITION) == ["1", "2", "3"];
    cluster.until("a node in each partition", 10 * MINUTE, is_spread).await;
    assert_eq!(refusals(&cluster), BTreeSet::new());
}

#[tokio::test(start_paused = true)]
async fn a_full_spread_group_leaves_the_zone_and_closes_nothing_for_others() {
    let zones = json!({"key": label::ZONE, "operator": "In", "values": ["us-west-2a", "us-west-2b"]});
    let cluster = cluster_in(group("pg-1", PlacementStrategy::Spread, None), &[zones]).await;
    deploy_apart(&cluster, "web", 15);
    cluster.until("the group is full", 10 * MINUTE, |world| world.running_pods() == 14).await;
    let in_zone = |zone: &str| ((Some("pg-1".to_owned()), None, zone.to_owned()), 7);
    assert_eq!(places(&cluster.world), [in_zone("us-west-2a"), in_zone("us-west-2b")].into(), "{}", cluster.summary());
    assert_eq!(refusals(&cluster), ["InstanceLimitExceeded".to_owned()].into());
    // The same offerings outside of the group.
    let mut other = plimsoll_tests::node_class();
    other["metadata"]["name"] = json!("other");
    cluster.world.apply_object(&other).unwrap();
    let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "other"});
    let template = json!({"metadata": {"labels": {"team": "other"}}, "spec": {"nodeClassRef": reference}});
    cluster.world.apply_object(&plimsoll_tests::node_pool("other", &json!({ "template": template }))).unwrap();
    let elsewhere = |world: &World| world.running_pods() == 15 && by_group(world).get(&None) == Some(&1);
    cluster.until("the last pod runs outside of the group", 5 * MINUTE, elsewhere).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_stays_in_one_zone() {
    let cluster = cluster_in(group("pg-1", PlacementStrategy::Cluster, None), &[]).await;
    deploy_apart(&cluster, "web", 3);
    cluster.until_running(3, 5 * MINUTE).await;
    deploy_apart(&cluster, "more", 2);
    cluster.until_running(5, 10 * MINUTE).await;
    let zones: BTreeSet<String> = places(&cluster.world).into_keys().map(|(.., zone)| zone).collect();
    assert_eq!(zones.len(), 1, "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn nodes_of_another_group_are_replaced_and_a_missing_group_removes_none() {
    let cluster = cluster_in(group("pg-1", PlacementStrategy::Spread, None), &[]).await;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 5 * MINUTE).await;
    let deleting = PlacementGroup { state: "deleting".to_owned(), ..group("pg-1", PlacementStrategy::Spread, None) };
    cluster.world.ec2.with(|cloud, _| cloud.add_placement_group(deleting));
    let refused = |world: &World| {
        let class = world.get(ResourceId::EC2_NODE_CLASSES, "default").unwrap();
        let condition = object::condition(&class, "PlacementGroupReady").cloned().unwrap_or_default();
        condition["reason"] == "PlacementGroupNotFound"
            && condition["message"] == "spec.placementGroupSelector: placement group pg-1 is in state deleting"
            && !object::condition_is_true(&class, "Ready")
    };
    cluster.until("the class says what is wrong", 3 * MINUTE, refused).await;
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(by_group(&cluster.world), [(Some("pg-1".to_owned()), 1)].into(), "a missing fact is no drift");
    cluster.world.ec2.with(|cloud, _| cloud.add_placement_group(group("pg-2", PlacementStrategy::Spread, None)));
    let drifted = |world: &World| {
        world.count(ResourceId::NODE_CLAIMS, |claim| {
            let conditions = object::items(claim, &["status", "conditions"]);
            conditions.iter().any(|one| object::text(one, &["reason"]) == "PlacementGroupDrift")
        }) > 0
    };
    cluster.until("the node has drifted", 10 * MINUTE, drifted).await;
    let moved = |world: &World| by_group(world) == [(Some("pg-2".to_owned()), 1)].into() && world.running_pods() == 1;
    cluster.until("the pod runs in the other group", 10 * MINUTE, moved).await;
}

#[tokio::test(start_paused = true)]
async fn dedicated_tenancy_in_a_spread_group_is_reported_before_ec2_is_asked() {
    let dedicated = json!({"key": label::INSTANCE_TENANCY, "operator": "In", "values": ["dedicated"]});
    let cluster = cluster_in(group("pg-1", PlacementStrategy::Spread, None), &[dedicated]).await;
    let asked = || {
        let is_dry_run = |action| matches!(action, Action::DryRunCreateFleet | Action::DryRunRunInstances);
        cluster.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| is_dry_run(call.action)).count())
    };
    let before = asked();
    let reported = |world: &World| {
        let class = world.get(ResourceId::EC2_NODE_CLASSES, "default").unwrap();
        let condition = object::condition(&class, "ValidationSucceeded").cloned().unwrap_or_default();
        let message = object::text(&condition, &["message"]);
        condition["reason"] == "SpecValidationFailed"
            && message.starts_with("spec.placementGroupSelector: spread placement group pg-1 ")
            && message.contains("NodePool default")
    };
    cluster.until("the class says what EC2 would refuse", 2 * MINUTE, reported).await;
    cluster.deploy("web", 1, 500);
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!((asked(), cluster.world.living_instances().len()), (before, 0), "{}", cluster.summary());
    assert!(reported(&cluster.world));
}
