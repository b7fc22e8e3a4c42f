use super::{Action, Capacity, Cloud, Disorder, Ec2, Effect, Outcome, Pool, Settings};
use crate::clock;
use plimsoll_actuator::ports::{
    CloudError, Compute, FleetRequest, Image, InstanceFilter, InstanceState, InstanceTypeFacts, InterruptionQueue,
    LaunchTemplateConfig, LaunchTemplateSpec, NetworkInterface, Override, SelectorTerm, Subnet, Tags,
};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::{annotation, tag};
use plimsoll_model::time::{Millis, Timestamp};
use serde_json::{Value, json};
use std::time::Duration;

const START: Timestamp = Timestamp(clock::START_SECONDS * 1000);

fn template() -> LaunchTemplateSpec {
    LaunchTemplateSpec {
        name: "template".to_owned(),
        image_id: "ami-1".to_owned(),
        user_data: "hello".to_owned(),
        instance_profile: "profile".to_owned(),
        tenancy: "default".to_owned(),
        network_interfaces: vec![NetworkInterface {
            security_group_ids: vec!["sg-2".to_owned(), "sg-1".to_owned()],
            ..NetworkInterface::default()
        }],
        capacity_type: CapacityType::Spot,
        ..LaunchTemplateSpec::default()
    }
}

/// Two types in two zones; `large` is dearer, and zone `b` is dearer than `a` for Spot.
fn cloud(settings: Settings) -> Cloud {
    let mut cloud = Cloud::new(1, settings);
    for (name, price) in [("m.small", 10), ("m.large", 40)] {
        let usage_classes = vec!["spot".to_owned(), "on-demand".to_owned()];
        let facts = InstanceTypeFacts { name: name.to_owned(), usage_classes, ..InstanceTypeFacts::default() };
        let spot = [("a", MicroUsdPerHour(price / 5)), ("b", MicroUsdPerHour(price / 5 + 1))];
        cloud.offer(facts, MicroUsdPerHour(price), &spot);
    }
    for zone in ["a", "b"] {
        let subnet = Subnet {
            id: format!("subnet-{zone}"),
            zone: zone.to_owned(),
            zone_id: format!("id-{zone}"),
            free_ipv4_addresses: 100,
            tags: Tags::new(),
        };
        cloud.subnets.insert(subnet.id.clone(), subnet);
    }
    let image = Image {
        id: "ami-1".to_owned(),
        name: "image".to_owned(),
        architecture: "x86_64".to_owned(),
        created: START,
        deprecated: false,
        tags: Tags::new(),
    };
    cloud.images.insert(image.id.clone(), image);
    cloud.ensure_launch_template(&template());
    cloud
}

/// Every offering, with priorities that prefer the dearest.
fn request(token: &str, count: u32) -> FleetRequest {
    let ways = [("m.small", "a", 4), ("m.small", "b", 3), ("m.large", "a", 2), ("m.large", "b", 1)];
    let overrides = ways.map(|(instance_type, zone, priority)| Override {
        instance_type: instance_type.to_owned(),
        zone: zone.to_owned(),
        subnet_id: Some(format!("subnet-{zone}")),
        image_id: "ami-1".to_owned(),
        priority,
    });
    let tags = [
        (format!("{}demo", tag::CLUSTER_PREFIX), "owned".to_owned()),
        (tag::OWNER.to_owned(), annotation::OWNER_VALUE.to_owned()),
        (tag::LAUNCH_GROUP.to_owned(), "group".to_owned()),
    ];
    FleetRequest {
        client_token: token.to_owned(),
        capacity_type: CapacityType::Spot,
        total_target_capacity: count,
        launch_template_configs: vec![LaunchTemplateConfig {
            launch_template_name: "template".to_owned(),
            version: 1,
            overrides: overrides.to_vec(),
            reservation: None,
        }],
        tags: tags.into(),
        ..FleetRequest::default()
    }
}

fn ec2(settings: Settings) -> Ec2 {
    Ec2::new(cloud(settings), clock::usual())
}

fn offerings(answer: &plimsoll_actuator::ports::FleetAnswer) -> Vec<(&str, &str)> {
    answer.instances.iter().map(|one| (one.instance_type.as_str(), one.zone.as_str())).collect()
}

#[test]
fn a_token_buys_once_and_is_never_forgotten() {
    let mut cloud = cloud(Settings::default());
    let first = cloud.create_fleet(&request("token", 2), START).unwrap();
    let ids: Vec<_> = first.instances.iter().map(|one| one.instance_id.clone()).collect();
    cloud.terminate_instances(&ids, START);
    cloud.delete_launch_templates(&["template".to_owned()]);
    let year_later = START.plus(Millis::from_seconds(31_536_000));
    assert_eq!(cloud.create_fleet(&request("token", 2), year_later).unwrap(), first);
    assert_eq!(cloud.ever_launched(), ids);
}

#[test]
fn a_token_with_other_parameters_buys_nothing() {
    let mut cloud = cloud(Settings::default());
    cloud.create_fleet(&request("token", 1), START).unwrap();
    assert_eq!(cloud.create_fleet(&request("token", 2), START), Err(CloudError::IdempotentParameterMismatch));
    assert_eq!(cloud.ever_launched().len(), 1);
    assert_eq!(cloud.create_fleet(&request("other", 1), START).unwrap().instances.len(), 1);
    assert_eq!(cloud.ever_launched().len(), 2);
}

#[test]
fn a_request_refused_as_a_whole_uses_no_token() {
    let mut cloud = cloud(Settings::default());
    let mut wrong = request("token", 1);
    wrong.launch_template_configs[0].launch_template_name = "missing".to_owned();
    let Err(CloudError::InvalidRequest { code, .. }) = cloud.create_fleet(&wrong, START) else {
        panic!("a missing template is refused");
    };
    assert_eq!(code, "InvalidLaunchTemplateName.NotFoundException");
    assert_eq!(cloud.create_fleet(&request("token", 1), START).unwrap().instances.len(), 1);
}

#[test]
fn price_chooses_unless_priorities_do() {
    let mut cloud = cloud(Settings::default());
    let cheapest = cloud.create_fleet(&request("price", 1), START).unwrap();
    assert_eq!(offerings(&cheapest), [("m.small", "a")]);
    let preferred = cloud.create_fleet(&FleetRequest { prioritized: true, ..request("priority", 1) }, START).unwrap();
    assert_eq!(offerings(&preferred), [("m.large", "b")]);
}

#[test]
fn what_one_pool_lacks_the_next_gives() {
    let mut cloud = cloud(Settings::default());
    cloud.limit(Pool::new("m.small", "a", CapacityType::Spot), Capacity::Instances(1));
    cloud.limit(Pool::new("m.small", "b", CapacityType::Spot), Capacity::Instances(0));
    let answer = cloud.create_fleet(&request("token", 3), START).unwrap();
    assert_eq!(offerings(&answer), [("m.small", "a"), ("m.large", "a"), ("m.large", "a")]);
    let errors: Vec<_> = answer
        .errors
        .iter()
        .map(|error| (error.instance_type.as_str(), error.zone.as_str(), error.code.as_str()))
        .collect();
    let code = "InsufficientInstanceCapacity";
    assert_eq!(errors, [("m.small", "a", code), ("m.small", "b", code)]);
    assert_eq!(cloud.subnets["subnet-a"].free_ipv4_addresses, 97);
    assert_eq!(cloud.subnets["subnet-b"].free_ipv4_addresses, 100);
}

#[test]
fn a_protected_instance_keeps_those_of_its_zone_from_being_terminated() {
    let mut cloud = cloud(Settings::default());
    cloud.create_fleet(&request("one", 2), START).unwrap();
    for instance_type in ["m.small", "m.large"] {
        cloud.limit(Pool::new(instance_type, "a", CapacityType::Spot), Capacity::Instances(0));
    }
    cloud.create_fleet(&request("two", 1), START).unwrap();
    let ids: Vec<String> = cloud.machines().keys().cloned().collect();
    let of_zone = |cloud: &Cloud, zone: &str| -> Vec<InstanceState> {
        cloud.machines().values().filter(|it| it.zone == zone).map(|it| it.state(START)).collect()
    };
    let first = cloud.machines().values().find(|it| it.zone == "a").map(|it| it.id.clone()).unwrap();
    cloud.protect(&first, true);
    assert!(cloud.try_terminate_instances(&ids, START).is_err());
    assert_eq!(of_zone(&cloud, "a"), [InstanceState::Pending; 2]);
    assert_eq!(of_zone(&cloud, "b"), [InstanceState::ShuttingDown]);
}

#[test]
fn ended_instances_give_capacity_and_address_back() {
    let mut cloud = cloud(Settings::default());
    let pool = Pool::new("m.small", "a", CapacityType::Spot);
    cloud.limit(pool.clone(), Capacity::Instances(1));
    let id = cloud.create_fleet(&request("one", 1), START).unwrap().instances[0].instance_id.clone();
    assert_eq!(cloud.limits[&pool], Capacity::Instances(0));
    for _ in 0..2 {
        let ended = cloud.terminate_instances(&[id.clone(), "i-unknown".to_owned()], START);
        assert_eq!(ended[0].state, Some(InstanceState::ShuttingDown));
        assert_eq!(ended[1].state, None);
    }
    assert_eq!(cloud.limits[&pool], Capacity::Instances(1));
    let term = SelectorTerm { id: Some("subnet-a".to_owned()), ..SelectorTerm::default() };
    assert_eq!(cloud.describe_subnets(&[term], START)[0].free_ipv4_addresses, 100);
}

#[test]
fn states_follow_the_time_and_reads_settle_late() {
    let mut cloud = cloud(Settings { settling: Millis(1500), ..Settings::default() });
    let id = cloud.create_fleet(&request("token", 1), START).unwrap().instances[0].instance_id.clone();
    let filter = InstanceFilter::LaunchGroup { cluster: "demo".to_owned(), group: "group".to_owned() };
    let at = |milliseconds| START.plus(Millis(milliseconds));
    let states = |cloud: &Cloud, time| -> Vec<_> {
        cloud.describe_instances(&filter, time).iter().map(|instance| instance.state).collect()
    };
    assert_eq!(states(&cloud, at(1499)), []);
    assert_eq!(states(&cloud, at(1500)), [InstanceState::Pending]);
    assert_eq!(states(&cloud, at(20_000)), [InstanceState::Running]);
    cloud.terminate_instances(&[id], at(40_000));
    assert_eq!(states(&cloud, at(40_000)), [InstanceState::ShuttingDown]);
    assert_eq!(states(&cloud, at(70_000)), [InstanceState::Terminated]);
    assert_eq!(states(&cloud, at(70_000 + 3_600_000)), [], "shown for an hour");
}

#[test]
fn filters_want_cluster_and_owner() {
    let mut cloud = cloud(Settings::default());
    let mut foreign = request("foreign", 1);
    foreign.tags.remove(tag::OWNER);
    cloud.create_fleet(&foreign, START).unwrap();
    let ours = cloud.create_fleet(&request("ours", 1), START).unwrap().instances[0].instance_id.clone();
    let found = |cluster: &str| -> Vec<_> {
        let filter = InstanceFilter::Cluster { cluster: cluster.to_owned() };
        cloud.describe_instances(&filter, START).into_iter().map(|instance| instance.id).collect()
    };
    assert_eq!(found("demo"), [ours]);
    assert!(found("another").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_by_asking_again() {
    let ec2 = ec2(Settings::default());
    ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::LoseAnswer, 1));
    let lost = ec2.create_fleet(&request("token", 1)).await;
    assert!(matches!(lost, Err(CloudError::Ambiguous { .. })), "{lost:?}");
    let launched = ec2.with(|cloud, _| cloud.ever_launched().to_vec());
    assert_eq!(launched.len(), 1);
    let answer = ec2.create_fleet(&request("token", 1)).await.unwrap();
    assert_eq!(answer.instances[0].instance_id, launched[0]);
    assert_eq!(ec2.with(|cloud, _| cloud.ever_launched().to_vec()), launched);
    let log = ec2.with(|cloud, _| cloud.log.clone());
    let seen: Vec<_> = log.iter().map(|call| (call.action, call.about.as_str(), call.outcome)).collect();
    let create = |outcome| (Action::CreateFleet, "token", outcome);
    assert_eq!(seen, [create(Outcome::AnswerLost), create(Outcome::Served)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_late_buys_no_second_instance() {
    let ec2 = ec2(Settings::default());
    let late = Effect::Late(Duration::from_secs(60));
    ec2.faults(|faults| faults.inject(Action::CreateFleet, late, 1));
    assert!(ec2.create_fleet(&request("token", 1)).await.is_err());
    assert_eq!(ec2.with(|cloud, _| cloud.ever_launched().len()), 0, "not yet");
    ec2.create_fleet(&request("token", 1)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(ec2.with(|cloud, _| cloud.ever_launched().len()), 1);
}

#[tokio::test(start_paused = true)]
async fn dropped_and_throttled_calls_do_nothing() {
    let ec2 = ec2(Settings::default());
    ec2.faults(|faults| {
        faults.inject(Action::CreateFleet, Effect::Drop, 1);
        faults.throttle(None, 2);
    });
    assert!(matches!(ec2.create_fleet(&request("token", 1)).await, Err(CloudError::Ambiguous { .. })));
    assert_eq!(ec2.describe_instance_types().await, Err(CloudError::Throttled));
    assert_eq!(ec2.create_fleet(&request("token", 1)).await, Err(CloudError::Throttled));
    assert!(ec2.with(|cloud, _| cloud.ever_launched().is_empty() && cloud.fleets().is_empty()));
    assert_eq!(ec2.create_fleet(&request("token", 1)).await.unwrap().instances.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_spot_warning_comes_two_minutes_before_the_end() {
    let ec2 = ec2(Settings { boot: Some(Millis(0)), tells_states: false, ..Settings::default() });
    let id = ec2.create_fleet(&request("token", 1)).await.unwrap().instances[0].instance_id.clone();
    assert!(ec2.with(|cloud, now| cloud.interrupt_spot(&id, now)));
    let messages = ec2.receive().await.unwrap();
    let body: Value = serde_json::from_str(&messages[0].body).unwrap();
    let event_id = body["id"].as_str().unwrap();
    let expected = json!({
        "version": "0",
        "id": event_id,
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "account": "123456789012",
        "time": "2026-01-05T00:00:00Z",
        "region": "us-west-2",
        "resources": [format!("arn:aws:ec2:a:instance/{id}")],
        "detail": { "instance-id": id, "instance-action": "terminate" },
    });
    assert_eq!(body, expected);
    let state = |at: u64| ec2.with(|cloud, _| cloud.machines()[&id].state(START.plus(Millis(at))));
    assert_eq!(state(119_999), InstanceState::Running);
    assert_eq!(state(120_000), InstanceState::ShuttingDown);
}

#[tokio::test(start_paused = true)]
async fn messages_come_again_until_they_are_deleted() {
    let ec2 = ec2(Settings { tells_states: false, ..Settings::default() });
    ec2.with(|cloud, now| cloud.queue.send("i-1", "hello", now));
    let first = ec2.receive().await.unwrap();
    let again = ec2.receive().await.unwrap();
    assert_eq!(ec2.now(), START.plus(Millis::from_seconds(20)), "hidden for 20 s");
    assert_eq!((first[0].body.as_str(), again[0].body.as_str()), ("hello", "hello"));
    assert_ne!(first[0].receipt, again[0].receipt);
    InterruptionQueue::delete(&ec2, std::slice::from_ref(&again[0].receipt)).await.unwrap();
    assert!(ec2.receive().await.unwrap().is_empty());
    assert_eq!(ec2.now(), START.plus(Millis::from_seconds(40)), "an empty queue is waited at for 20 s");
}

#[tokio::test(start_paused = true)]
async fn changes_of_state_are_told_when_they_happen() {
    let ec2 = ec2(Settings::default());
    let id = ec2.create_fleet(&request("token", 1)).await.unwrap().instances[0].instance_id.clone();
    ec2.terminate_instances(&[id]).await.unwrap();
    let mut told = Vec::new();
    for _ in 0..3 {
        for message in ec2.receive().await.unwrap() {
            let body: Value = serde_json::from_str(&message.body).unwrap();
            told.push((ec2.now().since(START).0, body["detail"]["state"].as_str().unwrap().to_owned()));
            InterruptionQueue::delete(&ec2, std::slice::from_ref(&message.receipt)).await.unwrap();
        }
    }
    let expected = [(0, "pending"), (0, "shutting-down"), (30_000, "terminated")];
    assert_eq!(told, expected.map(|(at, state)| (at, state.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_queue_in_disorder_sends_twice_and_late() {
    let ec2 = ec2(Settings { tells_states: false, ..Settings::default() });
    let disorder = Disorder { delay: Millis::from_seconds(10), twice: 1000 };
    ec2.with(|cloud, now| {
        cloud.queue.disorder = disorder;
        cloud.queue.send("i-1", "hello", now);
    });
    let mut bodies = Vec::new();
    while bodies.len() < 2 {
        let messages = ec2.receive().await.unwrap();
        assert!(ec2.now().since(START) < Millis::from_seconds(10), "both are visible by now");
        bodies.extend(messages.into_iter().map(|message| message.body));
    }
    assert_eq!(bodies, ["hello", "hello"]);
    assert!(ec2.now() > START, "with this seed, the second is delayed");
}

#[tokio::test(start_paused = true)]
async fn instances_can_be_missing_in_an_answer() {
    let ec2 = ec2(Settings::default());
    let launched = ec2.create_fleet(&request("token", 3)).await.unwrap().instances;
    let ids = InstanceFilter::Ids(launched.into_iter().map(|one| one.instance_id).collect());
    let shown = async || ec2.describe_instances(&ids).await.unwrap().len();
    ec2.faults(|faults| faults.miss_instances(1000));
    assert_eq!(shown().await, 0);
    ec2.faults(super::Faults::clear);
    assert_eq!(shown().await, 3);
}
