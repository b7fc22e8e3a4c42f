//! Full subnets.

use crate::fixture::{launch, plan, start};
use plimsoll_actuator::ports::{Subnet, Tags};
use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};
use plimsoll_model::plan::Launch;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_tests::fake_watcher::FakeWatcher;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const SMALL: &str = "subnet-small";
/// A full subnet is skipped for three minutes.
const SKIPPED: Duration = Duration::from_secs(181);
const LIMIT: Duration = Duration::from_secs(300);

/// Adds a class `small` with new subnets of this zone, each with its number of free addresses, and a NodePool of this
/// class.
async fn add_small_class(watcher: &FakeWatcher, zone: &str, subnets: &[(&str, u32)]) {
    watcher.world.ec2.with(|cloud, _| {
        let other = cloud.subnets.values().find(|subnet| subnet.zone == zone).unwrap().clone();
        for (id, free_ipv4_addresses) in subnets.iter().copied() {
            let small = Subnet { id: id.to_owned(), tags: Tags::new(), free_ipv4_addresses, ..other.clone() };
            cloud.subnets.insert(id.to_owned(), small);
        }
    });
    let mut class = plimsoll_tests::node_class();
    class["metadata"]["name"] = json!("small");
    class["spec"]["subnetSelectorTerms"] = subnets.iter().map(|(id, _)| json!({ "id": id })).collect();
    watcher.world.apply_object(&class).unwrap();
    let spec = json!({"template": {"spec": {"nodeClassRef": {"name": "small"}}}});
    watcher.world.apply_object(&plimsoll_tests::node_pool("small", &spec)).unwrap();
    let start = tokio::time::Instant::now();
    let is_ready =
        || object::condition_is_true(&watcher.world.get(ResourceId::EC2_NODE_CLASSES, "small").unwrap(), "Ready");
    while !is_ready() {
        assert!(start.elapsed() < LIMIT, "the class is not ready");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // The actuator sees its own write soon after.
    tokio::time::sleep(Duration::from_secs(1)).await;
}

fn set_addresses(watcher: &FakeWatcher, addresses: u32) {
    watcher.world.ec2.with(|cloud, _| cloud.subnets.get_mut(SMALL).unwrap().free_ipv4_addresses = addresses);
}

#[tokio::test(start_paused = true)]
async fn a_full_subnet_of_a_class_closes_no_zone_for_another_class() {
    use OutcomeStatus::{Failed, Launched, Rejected};
    let watcher = start();
    let catalog = watcher.catalog().await;
    let zone = launch(&catalog, "a", &["m6i.large"], "p").offerings[0].zone.clone();
    add_small_class(&watcher, &zone, &[(SMALL, 100)]).await;
    set_addresses(&watcher, 0);
    let last = async |class: &str, action: &str, kind: &str| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut launch = launch(&catalog, action, &[kind], action);
        Arc::make_mut(&mut launch.offerings).retain(|choice| choice.zone == zone);
        let launch = Launch { node_pool: class.into(), node_class: class.to_owned(), ..launch };
        let position = watcher.position().await;
        let outcomes = watcher.execute(plan(position, vec![launch])).await.unwrap();
        let last = outcomes.last().unwrap();
        (last.status, last.reason)
    };
    let no_capacity = Some(OutcomeReason::NoCapacity);
    // EC2 says that the subnet is full. After that, the zone is closed in the catalog of the class.
    assert_eq!(last("small", "a", "m6i.large").await, (Failed, no_capacity));
    assert_eq!(last("small", "b", "c6i.large").await, (Rejected, no_capacity));
    assert_eq!(last("default", "c", "c6i.large").await, (Launched, None));
    set_addresses(&watcher, 10);
    tokio::time::sleep(SKIPPED).await;
    assert_eq!(last("small", "d", "c6i.large").await, (Launched, None), "the zone is open again");
}

/// EC2 is asked again only a minute later. A node and its pods need up to 29 addresses.
#[tokio::test(start_paused = true)]
async fn the_addresses_of_a_launched_node_are_not_free_for_the_next_one() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let zone = launch(&catalog, "a", &["m6i.large"], "p").offerings[0].zone.clone();
    add_small_class(&watcher, &zone, &[("subnet-1", 50), ("subnet-2", 45)]).await;
    for action in ["a", "b"] {
        let mut launch = launch(&catalog, action, &["m6i.large"], action);
        Arc::make_mut(&mut launch.offerings).retain(|choice| choice.zone == zone);
        let launch = Launch { node_pool: "small".into(), node_class: "small".to_owned(), ..launch };
        let position = watcher.position().await;
        let outcomes = watcher.execute(plan(position, vec![launch])).await.unwrap();
        assert_eq!(outcomes.last().unwrap().status, OutcomeStatus::Launched, "{outcomes:?}");
    }
    let used: BTreeSet<String> =
        watcher.world.ec2.read(|cloud, _| cloud.machines().values().map(|machine| machine.subnet_id.clone()).collect());
    assert_eq!(used, ["subnet-1", "subnet-2"].map(str::to_owned).into());
}

/// EC2 has said so to the first launch, and is asked for the numbers of free addresses only a minute later.
#[tokio::test(start_paused = true)]
async fn a_launch_uses_another_subnet_of_its_zone_while_one_is_full() {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let zone = launch(&catalog, "a", &["m6i.large"], "p").offerings[0].zone.clone();
    add_small_class(&watcher, &zone, &[(SMALL, 100), ("subnet-other", 50)]).await;
    set_addresses(&watcher, 0);
    for (kind, status) in [("m6i.large", OutcomeStatus::Failed), ("c6i.large", OutcomeStatus::Launched)] {
        let mut launch = launch(&catalog, kind, &[kind], kind);
        Arc::make_mut(&mut launch.offerings).retain(|choice| choice.zone == zone);
        let launch = Launch { node_pool: "small".into(), node_class: "small".to_owned(), ..launch };
        let position = watcher.position().await;
        let outcomes = watcher.execute(plan(position, vec![launch])).await.unwrap();
        assert_eq!(outcomes.last().unwrap().status, status, "{outcomes:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let used = watcher.world.ec2.read(|cloud, _| cloud.machines().values().next().unwrap().subnet_id.clone());
    assert_eq!(used, "subnet-other");
}
