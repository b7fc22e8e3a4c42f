//! Launches of a new class: permissions are asked for before the first one, and nothing waits for slow lists of EC2.

use super::{CLASSES, class, fixture, on_offer, with_class};
use plimsoll_actuator::ports::CloudError;
use plimsoll_sim::apiserver::object;
use plimsoll_sim::cloud::{Action, Effect};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

const DENIED: &str = "UnauthorizedOperation: User: arn:aws:sts::1:actuator is not authorized to perform: iam:PassRole on \
                      resource: arn:aws:iam::1:role/node";

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_told_and_asked_for_again_soon() {
    let fixture = fixture();
    let denied = || Effect::Refuse(CloudError::Denied { message: DENIED.to_owned() });
    fixture.world.ec2.faults(|faults| faults.inject(Action::DryRunRunInstances, denied(), u32::MAX));
    fixture.world.apply_object(&class(&json!({}))).unwrap();
    let (reason, message) = fixture.refusal("ValidationSucceeded").await;
    assert_eq!(reason, "RunInstancesAuthCheckFailed");
    assert!(message.starts_with("the actuator's role lacks iam:PassRole: "), "{message}");
    assert_eq!(fixture.refusal("Ready").await.0, "UnhealthyDependents");
    // Somebody grants the permission, and changes nothing else.
    fixture.world.ec2.faults(|faults| faults.clear());
    tokio::time::sleep(Duration::from_secs(200)).await;
    let start = Instant::now();
    fixture.until_ready().await;
    assert!(
        start.elapsed() > Duration::from_secs(50),
        "a refusal is valid for 300 s, or EC2 would be asked all the time"
    );
}

#[tokio::test(start_paused = true)]
async fn a_class_with_another_annotation_is_asked_about_at_once() {
    let fixture = fixture();
    let denied = || Effect::Refuse(CloudError::Denied { message: DENIED.to_owned() });
    fixture.world.ec2.faults(|faults| faults.inject(Action::DryRunRunInstances, denied(), u32::MAX));
    fixture.world.apply_object(&class(&json!({}))).unwrap();
    fixture.refusal("ValidationSucceeded").await;
    fixture.world.ec2.faults(|faults| faults.clear());
    let start = Instant::now();
    let touched = json!({"metadata": {"annotations": {"example.com/touched": "1"}}});
    fixture.world.patch(CLASSES, "default", touched).unwrap();
    fixture.until_ready().await;
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn throttling_delays_a_new_class_by_seconds_and_a_valid_one_not_at_all() {
    let fixture = fixture();
    let throttled = || Effect::Refuse(CloudError::Throttled);
    fixture.world.ec2.faults(|faults| faults.inject(Action::DryRunCreateFleet, throttled(), 2));
    let start = Instant::now();
    fixture.world.apply_object(&class(&json!({}))).unwrap();
    fixture
        .until("it waits for EC2", |class| {
            object::condition(class, "ValidationSucceeded").is_some_and(|it| it["reason"] == "DryRunFailed")
        })
        .await;
    fixture.until_ready().await;
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    let calls = || {
        fixture.world.ec2.read(|cloud, _| cloud.log.iter().filter(|it| it.action == Action::DryRunCreateFleet).count())
    };
    let before = (calls(), fixture.class()["status"].clone());
    fixture.world.ec2.faults(|faults| faults.inject(Action::DryRunCreateFleet, throttled(), u32::MAX));
    tokio::time::sleep(Duration::from_secs(1700)).await;
    assert_eq!(calls(), before.0, "the answer is valid for 30 minutes");
    tokio::time::sleep(Duration::from_secs(1700)).await;
    assert!(calls() > before.0);
    assert_eq!(fixture.class()["status"], before.1, "the last verdict stands");
    let changed = json!({"spec": {"tags": {"team": "shop"}}});
    fixture.world.patch(CLASSES, "default", changed).unwrap();
    fixture
        .until("of the changed class nothing is known", |class| {
            object::condition(class, "ValidationSucceeded").is_some_and(|it| it["reason"] == "DryRunFailed")
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn launches_do_not_wait_for_the_list_of_instance_types() {
    let fixture = fixture();
    let slow = Effect::Delay(Duration::from_secs(60));
    fixture.world.ec2.faults(|faults| {
        faults.inject(Action::DescribeInstanceTypes, slow.clone(), u32::MAX);
        faults.inject(Action::DescribeSpotPriceHistory, slow, u32::MAX);
    });
    let start = Instant::now();
    fixture.world.apply_object(&class(&json!({}))).unwrap();
    fixture.until_ready().await;
    let (catalog, problem) = fixture.catalog().await;
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(problem, None);
    let offered = on_offer(&catalog);
    assert!(offered.iter().any(|offer| offer.starts_with("m6i.large ")));
    assert!(
        offered.iter().any(|offer| offer.starts_with("c6i.large ")),
        "the built-in list has more types than this EC2"
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    let types: Vec<String> = fixture.catalog().await.0.instance_types.into_iter().map(|it| it.name).collect();
    assert_eq!(types, ["g5.xlarge", "m6g.large", "m6i.large"], "EC2 has answered");
}

/// Nothing is asked about a class that cannot be launched, and an old answer keeps the controller from nothing.
#[tokio::test(start_paused = true)]
async fn a_class_that_loses_its_subnets_is_looked_at_at_the_pace_of_its_parts() {
    let fixture = with_class(&json!({})).await;
    let calls = |action: Action| {
        fixture.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == action).count())
    };
    let subnets = fixture.world.ec2.with(|cloud, _| std::mem::take(&mut cloud.subnets));
    assert_eq!(fixture.refusal("SubnetsReady").await.0, "SubnetsNotFound");
    let before = [Action::DryRunCreateFleet, Action::DescribeSubnets].map(calls);
    // The answer of the dry run is valid for 30 minutes.
    tokio::time::sleep(Duration::from_secs(2400)).await;
    let [asked, looked_up] = [Action::DryRunCreateFleet, Action::DescribeSubnets].map(calls);
    assert_eq!(asked, before[0]);
    let looked_up = looked_up - before[1];
    assert!((75..=81).contains(&looked_up), "what was not found is looked up every 30 s: {looked_up}");
    fixture.world.ec2.with(|cloud, _| cloud.subnets = subnets);
    fixture.until_ready().await;
    assert!(calls(Action::DryRunCreateFleet) > before[0], "the old answer has expired");
}

/// EC2's smallest bucket: five calls, and two more a second.
#[tokio::test(start_paused = true)]
async fn many_new_classes_do_not_exhaust_the_calls_of_the_account() {
    let fixture = fixture();
    for number in 0..9 {
        let mut another = class(&json!({}));
        another["metadata"]["name"] = json!(format!("class-{number}"));
        fixture.world.apply_object(&another).unwrap();
    }
    fixture.world.apply_object(&class(&json!({}))).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let times: Vec<i64> = fixture.world.ec2.read(|cloud, _| {
        let calls = cloud.log.iter().filter(|call| call.action == Action::DryRunRunInstances);
        calls.map(|call| call.at.0).collect()
    });
    assert!(times.len() >= 10, "{times:?}");
    let within_a_second = |from: &i64| times.iter().filter(|at| (*from..from + 1000).contains(*at)).count();
    let most = times.iter().map(within_a_second).max().unwrap();
    assert!(most <= 7, "{most} in a second");
}
