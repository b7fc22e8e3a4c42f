//! Offerings without capacity: the next offering is used at once, the first is skipped for a while, and failures back
//! off (rules 3 and 8).

use plimsoll_actuator::ports::CloudError;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::label;
use plimsoll_sim::cloud::{Action, Capacity, Effect, Pool};
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, claims_ever_launched, instances_ever_launched};
use serde_json::json;
use std::time::Duration;

const ZONES: [&str; 4] = ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"];

fn exhaust(cluster: &TestCluster, instance_type: &str) {
    cluster.world.ec2.with(|cloud, _| {
        for zone in ZONES {
            cloud.limit(Pool::new(instance_type, zone, CapacityType::OnDemand), Capacity::Instances(0));
        }
    });
}

fn bought(world: &World) -> bool {
    !instances_ever_launched(world).is_empty()
}

/// Types without capacity in the response, and requested types, for each call.
fn calls(cluster: &TestCluster) -> Vec<(Vec<String>, Vec<String>)> {
    cluster.world.ec2.read(|cloud, _| {
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names.dedup();
            names
        };
        let fleets = cloud.fleets().iter();
        fleets
            .map(|fleet| {
                let configs = fleet.request.launch_template_configs.iter();
                let requested = configs.flat_map(|config| &config.overrides).map(|way| way.instance_type.clone());
                let lacking = fleet.answer.errors.iter().map(|error| error.instance_type.clone());
                (sorted(lacking.collect()), sorted(requested.collect()))
            })
            .collect()
    })
}

#[tokio::test(start_paused = true)]
async fn the_next_offering_is_taken_within_a_second_and_the_first_left_alone() {
    let cluster = TestCluster::usual().await;
    // The cheapest type that fits the pod.
    exhaust(&cluster, "c6i.large");
    cluster.deploy("web", 1, 1500);
    let took = cluster.until("an instance is launched", MINUTE, bought).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
    cluster.until_running(1, 3 * MINUTE).await;
    let first = calls(&cluster);
    assert!(first.iter().any(|(lacking, _)| lacking.contains(&"c6i.large".to_owned())), "{first:?}");
    cluster.deploy("more", 3, 1500);
    cluster.until_running(4, 5 * MINUTE).await;
    let later = &calls(&cluster)[first.len()..];
    assert!(!later.is_empty());
    for (_, asked) in later {
        assert!(!asked.contains(&"c6i.large".to_owned()), "tried again: {later:?}");
    }
}

/// A cluster whose pool is of one type, as Spot or On-Demand. EC2 refuses it as Spot.
async fn without_spot(refusal: Capacity) -> TestCluster {
    let requirements = json!([{"key": label::CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]},
                              {"key": label::INSTANCE_TYPE, "operator": "In", "values": ["m6i.large"]}]);
    let setup = Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}}));
    let cluster = TestCluster::begin(setup).await;
    cluster.world.ec2.with(|cloud, _| {
        for zone in ZONES {
            cloud.limit(Pool::new("m6i.large", zone, CapacityType::Spot), refusal);
        }
    });
    cluster
}

/// Capacity types of the living instances.
fn paid(world: &World) -> Vec<CapacityType> {
    world.living_instances().values().map(|machine| machine.capacity_type).collect()
}

#[tokio::test(start_paused = true)]
async fn spot_that_ec2_does_not_sell_is_replaced_by_on_demand_at_once() {
    for refusal in [
        Capacity::Refused("SpotMaxPriceTooLow", "Your Spot request price is lower than the minimum"),
        Capacity::Refused("InvalidFleetConfiguration", "not supported in your requested Availability Zone"),
    ] {
        let cluster = without_spot(refusal).await;
        cluster.deploy("web", 1, 700);
        let took = cluster.until("an instance is launched", MINUTE, bought).await;
        assert!(took < Duration::from_secs(3), "{refusal:?}: {took:?}");
        assert_eq!(paid(&cluster.world), [CapacityType::OnDemand]);
    }
}

/// EC2 fails whenever it is asked for Spot, and does not say whether it launched anything.
#[tokio::test(start_paused = true)]
async fn spot_that_fails_inside_ec2_is_replaced_by_on_demand() {
    let requirements = json!([{"key": label::CAPACITY_TYPE, "operator": "In", "values": ["spot", "on-demand"]},
                              {"key": label::INSTANCE_TYPE, "operator": "In", "values": ["m6i.large"]},
                              {"key": label::ZONE, "operator": "In", "values": ["us-west-2a"]}]);
    let setup = Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}}));
    let cluster = TestCluster::begin(setup).await;
    let failure = CloudError::Ambiguous { message: "InternalError: An internal error has occurred".to_owned() };
    // As often as an attempt is sent.
    cluster.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::Refuse(failure), 7));
    cluster.deploy("web", 1, 700);
    let took = cluster.until("an instance is launched", 5 * MINUTE, bought).await;
    // A minute of requests, and two minutes of look-ups.
    assert!((180..=210).contains(&took.as_secs()), "{took:?}");
    assert_eq!(paid(&cluster.world), [CapacityType::OnDemand]);
    assert_eq!(instances_ever_launched(&cluster.world).len(), 1);
}

/// EC2 answers, and has an internal error for each offering of Spot. After three attempts within three seconds, the
/// offerings are skipped, and the pool pauses for a second.
#[tokio::test(start_paused = true)]
async fn spot_offerings_that_fail_inside_ec2_are_replaced_by_on_demand() {
    let cluster = without_spot(Capacity::Refused("InternalError", "An internal error has occurred")).await;
    cluster.deploy("web", 1, 700);
    let took = cluster.until("an instance is launched", MINUTE, bought).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert_eq!(paid(&cluster.world), [CapacityType::OnDemand]);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_could_be_had_is_kept_and_the_rest_is_planned_again() {
    let cluster = TestCluster::usual().await;
    cluster.world.ec2.with(|cloud, _| {
        for instance_type in ["c6i.large", "m6i.large", "c6i.xlarge", "m6i.2xlarge"] {
            for zone in ZONES {
                cloud.limit(Pool::new(instance_type, zone, CapacityType::OnDemand), Capacity::Instances(1));
            }
        }
    });
    cluster.deploy("web", 12, 1500);
    cluster.until_running(12, 10 * MINUTE).await;
    assert_eq!(instances_ever_launched(&cluster.world).len(), claims_ever_launched(&cluster.world).len());
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_had_calls_become_rare_and_it_goes_on_when_there_is_capacity() {
    let cluster = TestCluster::usual().await;
    let types = ["m6i.large", "m6i.xlarge", "m6i.2xlarge", "c6i.large", "c6i.xlarge"];
    for instance_type in types {
        exhaust(&cluster, instance_type);
    }
    cluster.deploy("web", 10, 700);
    cluster.pass(10 * MINUTE).await;
    let fleets =
        cluster.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::CreateFleet).count());
    assert!((1..=60).contains(&fleets), "{fleets} calls in ten minutes");
    assert!(cluster.claims().len() <= 10, "{}", cluster.summary());
    cluster.world.ec2.with(|cloud, _| cloud.limits.clear());
    cluster.until_running(10, 10 * MINUTE).await;
}

/// 90 minutes without capacity in one family, with 20 pods that accept no other family: few launches fail because of
/// them, and pods that accept other types do not wait for them.
#[tokio::test(start_paused = true)]
async fn one_family_without_capacity_costs_few_launches_and_delays_nobody_else() {
    let cluster = TestCluster::usual().await;
    for instance_type in ["c6i.large", "c6i.xlarge"] {
        exhaust(&cluster, instance_type);
    }
    let family = json!({"nodeSelector": {"karpenter.k8s.aws/instance-family": "c6i"}});
    cluster.world.deploy("picky", 20, &json!({"cpu": "700m"}), &family).unwrap();
    for round in 1..=9 {
        cluster.pass(8 * MINUTE).await;
        cluster.deploy(&format!("web-{round}"), 2, 1500);
        let running = |world: &World| world.running_pods() == 2 * round;
        cluster.until("the other pods run", 2 * MINUTE, running).await;
    }
    let lost = failed_launches(&cluster);
    assert!((1..=100).contains(&lost), "{lost} launches failed");
    cluster.world.ec2.with(|cloud, _| cloud.limits.clear());
    cluster.until_running(38, 10 * MINUTE).await;
}

/// Launches to which EC2 responded without an instance.
fn failed_launches(cluster: &TestCluster) -> u32 {
    cluster.world.ec2.read(|cloud, _| {
        let empty = cloud.fleets().iter().filter(|fleet| fleet.answer.instances.is_empty());
        empty.map(|fleet| fleet.request.total_target_capacity).sum()
    })
}

/// Rule 8: requests that EC2 rejects for another reason back off, although each plan is new.
#[tokio::test(start_paused = true)]
async fn what_ec2_refuses_is_asked_for_less_and_less() {
    let cluster = TestCluster::usual().await;
    let refusal = CloudError::InvalidRequest { code: "InvalidParameterValue".to_owned(), message: "no".to_owned() };
    cluster.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::Refuse(refusal), 100_000));
    cluster.deploy("web", 1, 700);
    cluster.pass(10 * MINUTE).await;
    let fleets =
        cluster.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::CreateFleet).count());
    // After 1, 2, 4 ... 128 and 180 s.
    assert!((5..=12).contains(&fleets), "{fleets} calls in ten minutes");
    cluster.world.ec2.faults(plimsoll_sim::cloud::Faults::clear);
    cluster.until_running(1, 10 * MINUTE).await;
}
