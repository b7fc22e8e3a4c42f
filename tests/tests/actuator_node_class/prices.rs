//! Reads of prices that fail or answer in part.

use super::{class, fixture, on_offer, with_class};
use plimsoll_actuator::ports::CloudError;
use plimsoll_model::catalog::{CapacityType, Catalog};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_tests::Setup;
use plimsoll_tests::fake_watcher::FakeWatcher;
use serde_json::json;
use std::time::Duration;

/// In some VPCs the price list is not reachable. This must not repeat the reads of Spot prices, which are hundreds of
/// pages.
#[tokio::test(start_paused = true)]
async fn prices_that_cannot_be_read_do_not_make_others_be_read_again() {
    let mut watcher = FakeWatcher::begin(Setup::default()).await;
    let denied = || Effect::Refuse(CloudError::Denied { message: "no endpoint".to_owned() });
    watcher.world.ec2.faults(|faults| faults.inject(Action::GetProducts, denied(), u32::MAX));
    let calls = |action: Action| {
        watcher.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == action).count())
    };
    let (spot, on_demand) = (calls(Action::DescribeSpotPriceHistory), calls(Action::GetProducts));
    watcher.replace_actuator();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let calls = |action: Action| {
        watcher.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == action).count())
    };
    assert_eq!(calls(Action::DescribeSpotPriceHistory) - spot, 1);
    // Immediately, and after delays of 2 s, 4 s, ... 1024 s, which are 2046 s in total; the next delay is 2048 s.
    let retried = calls(Action::GetProducts) - on_demand;
    assert_eq!(retried, 11);
}

/// An empty list is no answer: it would close all offerings for twelve hours.
#[tokio::test(start_paused = true)]
async fn offerings_stay_if_ec2_answers_with_empty_lists() {
    let fixture = with_class(&json!({})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let reads = |action: Action| {
        fixture.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == action).count())
    };
    let lists = [Action::DescribeSpotPriceHistory, Action::DescribeInstanceTypeOfferings];
    let (before, first) = (on_offer(&fixture.catalog().await.0), lists.map(reads));
    assert!(before.iter().any(|offer| offer.starts_with("m6i.large ")), "{before:?}");

    // The simulated EC2 derives both lists from this one.
    fixture.world.ec2.with(|cloud, _| cloud.offers.clear());
    tokio::time::sleep(Duration::from_secs(12 * 3600 + 60)).await;
    for (list, first) in lists.into_iter().zip(first) {
        // After 12 h, and after delays of 2 s, 4 s, 8 s and 16 s at least.
        assert!(reads(list) - first >= 5, "{list:?} is not asked for again soon: {}", reads(list) - first);
    }
    assert_eq!(on_offer(&fixture.catalog().await.0), before);
}

/// Types in preview have no price in the price list.
#[tokio::test(start_paused = true)]
async fn a_node_overlay_gives_a_price_to_a_type_without_one() {
    let fixture = fixture();
    fixture.world.ec2.with(|cloud, _| {
        let mut facts = cloud.types.get("m6i.large").unwrap().clone();
        facts.name = "m99.large".to_owned();
        cloud.offer(facts, MicroUsdPerHour(1), &[("us-west-2a", MicroUsdPerHour(20_000))]);
        cloud.on_demand.remove("m99.large").unwrap();
    });
    fixture.world.apply_object(&class(&json!({}))).unwrap();
    fixture.until_ready().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let prices = |catalog: &Catalog, capacity_type: CapacityType| -> Vec<i64> {
        let offerings = catalog.get("m99.large").unwrap().offerings.iter();
        offerings.filter(|it| it.available && it.capacity_type == capacity_type).map(|it| it.price.0).collect()
    };
    let before = fixture.catalog().await.0;
    assert_eq!(prices(&before, CapacityType::OnDemand), [0; 0]);
    assert_eq!(prices(&before, CapacityType::Spot), [20_000]);

    let types = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m99.large"]}]);
    let overlay = json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "preview"},
        "spec": {"price": "0.5", "requirements": types}});
    fixture.world.apply_object(&overlay).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = fixture.catalog().await.0;
    assert_eq!(prices(&after, CapacityType::OnDemand), [500_000]);
    assert_eq!(prices(&after, CapacityType::Spot), [20_000], "it has a price");
}
