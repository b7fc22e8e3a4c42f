use super::*;
use crate::stub::{Reply, Stub, config};
use plimsoll_actuator::ports::{
    InstanceMatchCriteria, InstanceState, LaunchTemplateConfig, MarketType, OfferingError, Override, ReservationSpec,
    ReservationTerm, ReservationType,
};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::time::Timestamp;

pub(super) fn ec2(stub: &Stub) -> Ec2 {
    Ec2::new(&stub.config(), Clock::system())
}

pub(super) fn request(capacity_type: CapacityType) -> FleetRequest {
    let way = |zone: &str, priority| Override {
        instance_type: "c6g.large".to_owned(),
        zone: zone.to_owned(),
        subnet_id: Some(format!("subnet-{zone}")),
        image_id: "ami-1".to_owned(),
        priority,
    };
    FleetRequest {
        client_token: "group-1".to_owned(),
        capacity_type,
        total_target_capacity: 3,
        launch_template_configs: vec![LaunchTemplateConfig {
            launch_template_name: "karpenter.k8s.aws/1".to_owned(),
            version: 4,
            overrides: vec![way("us-east-1a", 1), way("us-east-1b", 2)],
            reservation: None,
        }],
        tags: [("team".to_owned(), "a b".to_owned())].into(),
        ..FleetRequest::default()
    }
}

const FLEET: &str = "<CreateFleetResponse><requestId>1</requestId><fleetId>fleet-1</fleetId>\
    <fleetInstanceSet><item><instanceIds><item>i-1</item><item>i-2</item></instanceIds><instanceType>c6g.large</instanceType>\
    <lifecycle>spot</lifecycle><launchTemplateAndOverrides><overrides><instanceType>c6g.large</instanceType>\
    <availabilityZone>us-east-1a</availabilityZone><subnetId>subnet-us-east-1a</subnetId><imageId>ami-1</imageId></overrides>\
    </launchTemplateAndOverrides></item></fleetInstanceSet>\
    <errorSet><item><errorCode>InsufficientInstanceCapacity</errorCode><errorMessage>none left</errorMessage>\
    <lifecycle>spot</lifecycle><launchTemplateAndOverrides><overrides><instanceType>c6g.large</instanceType>\
    <availabilityZone>us-east-1b</availabilityZone><subnetId>subnet-us-east-1b</subnetId></overrides></launchTemplateAndOverrides>\
    </item></errorSet></CreateFleetResponse>";

#[tokio::test]
async fn create_fleet_sends_the_request_and_parses_the_whole_answer() {
    let stub = Stub::new(vec![Reply::ok(FLEET), Reply::ok(FLEET)]).await;
    let ec2 = ec2(&stub);
    let answer = ec2.create_fleet(&request(CapacityType::Spot)).await.unwrap();
    let ids: Vec<&str> = answer.instances.iter().map(|it| it.instance_id.as_str()).collect();
    assert_eq!(ids, ["i-1", "i-2"]);
    let first = &answer.instances[0];
    assert_eq!((first.zone.as_str(), first.image_id.as_str()), ("us-east-1a", "ami-1"));
    let refused = OfferingError {
        instance_type: "c6g.large".to_owned(),
        zone: "us-east-1b".to_owned(),
        subnet_id: "subnet-us-east-1b".to_owned(),
        capacity_type: CapacityType::Spot,
        code: "InsufficientInstanceCapacity".to_owned(),
        message: "none left".to_owned(),
    };
    assert_eq!(answer.errors, [refused]);

    ec2.create_fleet(&request(CapacityType::Spot)).await.unwrap();
    let sent = stub.requests();
    assert_eq!(sent[0], sent[1], "the same request is the same byte for byte");
    for part in [
        "Action=CreateFleet&",
        "&Type=instant",
        "&ClientToken=group-1",
        "&TargetCapacitySpecification.TotalTargetCapacity=3",
        "&TargetCapacitySpecification.DefaultTargetCapacityType=spot",
        "&SpotOptions.AllocationStrategy=price-capacity-optimized",
        "&LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version=4",
        "&LaunchTemplateConfigs.1.Overrides.2.SubnetId=subnet-us-east-1b",
        "&LaunchTemplateConfigs.1.Overrides.2.Priority=2",
        "&TagSpecification.3.ResourceType=volume",
        "&TagSpecification.3.Tag.1.Value=a%20b",
    ] {
        assert!(sent[0].contains(part), "{part} in {}", sent[0]);
    }
}

#[tokio::test]
async fn prioritized_on_demand_fleet_sets_the_allocation_strategy() {
    let stub = Stub::new(vec![Reply::ok(FLEET)]).await;
    let wanted = FleetRequest { prioritized: true, ..request(CapacityType::OnDemand) };
    let answer = ec2(&stub).create_fleet(&wanted).await.unwrap();
    assert_eq!(answer.instances[0].capacity_type, CapacityType::Spot, "as EC2 says, not as we asked");
    let sent = stub.requests().remove(0);
    assert!(sent.contains("&OnDemandOptions.AllocationStrategy=prioritized"), "{sent}");
    assert!(!sent.contains("SpotOptions"), "{sent}");
}

/// Classifies each failure. CreateFleet is sent only once, so that its answer is about a single request.
#[tokio::test]
async fn create_fleet_failures_are_classified_and_never_retried() {
    let message = |code: &str| format!("{code}: words");
    let cases = [
        (Reply::ec2_error(503, "RequestLimitExceeded"), CloudError::Throttled),
        (Reply::ec2_error(400, "IdempotentParameterMismatch"), CloudError::IdempotentParameterMismatch),
        (
            Reply::ec2_error(403, "UnauthorizedOperation"),
            CloudError::Denied { message: message("UnauthorizedOperation") },
        ),
        (
            Reply::ec2_error(400, "InvalidLaunchTemplateName.NotFoundException"),
            CloudError::InvalidRequest {
                code: "InvalidLaunchTemplateName.NotFoundException".to_owned(),
                message: message("InvalidLaunchTemplateName.NotFoundException"),
            },
        ),
        (Reply::ec2_error(503, "Unavailable"), CloudError::Unavailable { message: message("Unavailable") }),
        (Reply::ec2_error(500, "InternalError"), CloudError::Ambiguous { message: message("InternalError") }),
    ];
    for (reply, expected) in cases {
        let stub = Stub::new(vec![reply]).await;
        assert_eq!(ec2(&stub).create_fleet(&request(CapacityType::Spot)).await, Err(expected));
        assert_eq!(stub.requests().len(), 1);
    }
}

#[tokio::test]
async fn lost_response_is_ambiguous_and_failed_connect_is_unavailable() {
    let stub = Stub::new(vec![Reply::HangUp]).await;
    let lost = ec2(&stub).create_fleet(&request(CapacityType::Spot)).await.unwrap_err();
    assert!(matches!(lost, CloudError::Ambiguous { .. }), "{lost}");
    assert_eq!(stub.requests().len(), 1);

    // Bound and dropped, so that nobody listens on this address.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let ec2 = Ec2::new(&config(&url), Clock::system());
    let refused = ec2.create_fleet(&request(CapacityType::Spot)).await.unwrap_err();
    assert!(matches!(refused, CloudError::Unavailable { .. }), "{refused}");
}

fn reservation(id: &str, next: &str) -> Reply {
    Reply::ok(&format!(
        "<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>{id}</instanceId>\
         <instanceState><code>16</code><name>running</name></instanceState><instanceType>m5.large</instanceType>\
         <placement><availabilityZone>us-east-1a</availabilityZone></placement><instanceLifecycle>spot</instanceLifecycle>\
         <launchTime>1970-01-01T00:00:05.000Z</launchTime><groupSet><item><groupId>sg-2</groupId></item>\
         <item><groupId>sg-1</groupId></item></groupSet>\
         <stateReason><code>Client.Some</code><message>words</message></stateReason>\
         <tagSet><item><key>a</key><value>b</value></item></tagSet>\
         </item></instancesSet></item></reservationSet>{next}</DescribeInstancesResponse>"
    ))
}

#[tokio::test]
async fn lists_follow_pages_and_come_sorted() {
    let replies = vec![reservation("i-2", "<nextToken>more</nextToken>"), reservation("i-1", "")];
    let stub = Stub::new(replies).await;
    let filter = InstanceFilter::LaunchGroup { cluster: "demo".to_owned(), group: "g".to_owned() };
    let instances = ec2(&stub).describe_instances(&filter).await.unwrap();
    assert_eq!(instances.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["i-1", "i-2"]);
    let first = &instances[0];
    assert_eq!((first.state, first.capacity_type), (InstanceState::Running, CapacityType::Spot));
    assert_eq!(first.launched, Timestamp(5_000));
    assert_eq!(first.state_reason.as_ref().map(ToString::to_string).as_deref(), Some("Client.Some: words"));
    assert_eq!(first.security_group_ids, ["sg-1", "sg-2"]);
    assert_eq!(first.provider_id(), "aws:///us-east-1a/i-1");
    let sent = stub.requests();
    assert!(
        sent[0].contains("Filter.1.Name=tag%3Akubernetes.io%2Fcluster%2Fdemo&Filter.1.Value.1=owned"),
        "{}",
        sent[0]
    );
    assert!(sent[0].contains("=tag%3Aplimsoll.dev%2Flaunch-group&"), "{}", sent[0]);
    assert!(sent[1].contains("NextToken=more"), "{}", sent[1]);
}

#[tokio::test]
async fn refused_termination_returns_the_code_after_one_call() {
    let ids = ["i-1".to_owned(), "i-2".to_owned()];
    for code in ["InvalidInstanceID.NotFound", "OperationNotPermitted", "UnauthorizedOperation"] {
        let stub = Stub::new(vec![Reply::ec2_error(400, code)]).await;
        let error = ec2(&stub).terminate_instances(&ids).await.unwrap_err();
        assert!(error.nothing_happened() && !error.is_transient(), "{code}: {error:?}");
        assert!(error.to_string().contains(code), "{error}");
        assert_eq!(stub.requests().len(), 1, "{code}: the caller splits the batch, within its own time");
    }
}

#[tokio::test]
async fn terminate_returns_the_state_of_each_instance() {
    let stub = Stub::new(vec![Reply::ok(
        "<TerminateInstancesResponse><instancesSet><item><instanceId>i-2</instanceId><currentState><code>32</code>\
         <name>shutting-down</name></currentState></item></instancesSet></TerminateInstancesResponse>",
    )])
    .await;
    let result = ec2(&stub).terminate_instances(&["i-1".to_owned(), "i-2".to_owned()]).await.unwrap();
    let states: Vec<_> = result.iter().map(|it| (it.instance_id.as_str(), it.state)).collect();
    assert_eq!(states, [("i-1", None), ("i-2", Some(InstanceState::ShuttingDown))]);
}

#[tokio::test]
async fn retryable_calls_are_retried() {
    let answer = Reply::ok("<CreateTagsResponse><return>true</return></CreateTagsResponse>");
    let stub = Stub::new(vec![Reply::ec2_error(503, "RequestLimitExceeded"), answer]).await;
    ec2(&stub).create_tags(&["i-1".to_owned()], &[("Name".to_owned(), "node".to_owned())].into()).await.unwrap();
    assert_eq!(stub.requests().len(), 2);
}

fn template() -> LaunchTemplateSpec {
    let spec = serde_json::json!({
        "name": "karpenter.k8s.aws/1", "image_id": "ami-1", "user_data": "hello", "instance_profile": "profile",
        "block_devices": [{"device_name": "/dev/xvda", "size_gib": 20, "volume_type": "gp3", "iops": null,
            "throughput": null, "encrypted": true, "kms_key_id": null, "snapshot_id": null, "initialization_rate": null,
            "delete_on_termination": null}],
        "metadata": {"http_endpoint": "enabled", "http_protocol_ipv6": "disabled", "http_put_response_hop_limit": 1,
            "http_tokens": "required"},
        "detailed_monitoring": false, "nested_virtualization": null, "enclave": false, "tenancy": "default",
        "placement_group_id": null, "partition": null, "network_interfaces": [{"network_card_index": 0, "device_index": 0,
            "interface_type": null, "security_group_ids": ["sg-1"], "associate_public_ip": null, "ipv4_prefix_count": null,
            "ipv6_prefix_count": null, "ipv6_address_count": null, "primary_ipv6": null, "tcp_established_timeout": 100,
            "udp_stream_timeout": null, "udp_timeout": null}],
        "capacity_type": "spot", "reservation": null, "tags": {"karpenter.sh/nodepool": "general"},
    });
    serde_json::from_value(spec).unwrap()
}

#[tokio::test]
async fn concurrently_created_template_is_reused() {
    let none = || Reply::ok("<DescribeLaunchTemplatesResponse><launchTemplates/></DescribeLaunchTemplatesResponse>");
    let one = Reply::ok(
        "<DescribeLaunchTemplatesResponse><launchTemplates><item><launchTemplateId>lt-1</launchTemplateId>\
         <launchTemplateName>karpenter.k8s.aws/1</launchTemplateName><latestVersionNumber>1</latestVersionNumber></item>\
         </launchTemplates></DescribeLaunchTemplatesResponse>",
    );
    let exists = Reply::ec2_error(400, "InvalidLaunchTemplateName.AlreadyExistsException");
    let stub = Stub::new(vec![none(), exists, one]).await;
    let made = ec2(&stub).ensure_launch_template(&template()).await.unwrap();
    assert_eq!((made.id.as_str(), made.version), ("lt-1", 1));
    let sent = stub.requests().remove(1);
    for part in [
        "LaunchTemplateData.UserData=aGVsbG8%3D",
        "LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize=20",
        "LaunchTemplateData.NetworkInterface.1.ConnectionTrackingSpecification.TcpEstablishedTimeout=100",
        "LaunchTemplateData.MetadataOptions.InstanceMetadataTags=disabled",
        "LaunchTemplateData.TagSpecification.2.ResourceType=spot-instances-request",
        "TagSpecification.1.ResourceType=launch-template",
    ] {
        assert!(sent.contains(part), "{part} in {sent}");
    }
}

#[tokio::test]
async fn empty_selector_term_sends_no_query() {
    let stub = Stub::new(Vec::new()).await;
    assert_eq!(ec2(&stub).describe_subnets(&[SelectorTerm::default()]).await, Ok(Vec::new()));
    let images = ImageQuery::Terms(vec![SelectorTerm { owner: Some("self".to_owned()), ..SelectorTerm::default() }]);
    assert_eq!(ec2(&stub).describe_images(&images).await, Ok(Vec::new()));
    assert_eq!(stub.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn subnets_of_several_terms_are_deduplicated() {
    let answer = || {
        Reply::ok(
            "<DescribeSubnetsResponse><subnetSet><item><subnetId>subnet-1</subnetId><availabilityZone>us-east-1a</availabilityZone>\
             <availabilityZoneId>use1-az2</availabilityZoneId><availableIpAddressCount>7</availableIpAddressCount></item></subnetSet>\
             </DescribeSubnetsResponse>",
        )
    };
    let stub = Stub::new(vec![answer(), answer()]).await;
    let by_tags = SelectorTerm { tags: [("tier".to_owned(), "*".to_owned())].into(), ..SelectorTerm::default() };
    let by_id = SelectorTerm { id: Some("subnet-1".to_owned()), ..SelectorTerm::default() };
    let found = ec2(&stub).describe_subnets(&[by_tags, by_id]).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].zone_id.as_str(), found[0].free_ipv4_addresses), ("use1-az2", 7));
    let sent = stub.requests();
    assert!(sent[0].contains("Filter.1.Name=subnet-id&Filter.1.Value.1=subnet-1"), "{}", sent[0]);
    assert!(sent[1].contains("Filter.1.Name=tag-key&Filter.1.Value.1=tier"), "{}", sent[1]);
}

#[tokio::test]
async fn capacity_reservations_are_described_by_ids_and_by_filters() {
    let item = |id: &str, more: &str| {
        format!(
            "<item><capacityReservationId>{id}</capacityReservationId><ownerId>123456789012</ownerId>\
             <instanceType>p5.48xlarge</instanceType><availabilityZone>us-east-1a</availabilityZone>\
             <availableInstanceCount>3</availableInstanceCount><endDate>2026-01-02T03:00:00Z</endDate>{more}</item>"
        )
    };
    let answer = |items: &str| {
        let set = format!("<capacityReservationSet>{items}</capacityReservationSet>");
        Reply::ok(&format!("<DescribeCapacityReservationsResponse>{set}</DescribeCapacityReservationsResponse>"))
    };
    let block =
        "<instanceMatchCriteria>targeted</instanceMatchCriteria><reservationType>capacity-block</reservationType>";
    let open = "<instanceMatchCriteria>open</instanceMatchCriteria><instancePlatform>Windows</instancePlatform>";
    let unknown = "<instanceMatchCriteria>whoever</instanceMatchCriteria>";
    let stub = Stub::new(vec![
        answer(&item("cr-2", block)),
        answer(&(item("cr-2", block) + &item("cr-1", open) + &item("cr-3", unknown))),
    ])
    .await;
    let by_id = ReservationTerm { id: Some("cr-2".to_owned()), ..ReservationTerm::default() };
    let by_filters = ReservationTerm {
        id: None,
        owner_id: Some("123456789012".to_owned()),
        match_criteria: Some(InstanceMatchCriteria::Open),
        tags: [("team".to_owned(), "a".to_owned())].into(),
    };
    let found =
        ec2(&stub).describe_capacity_reservations(&[by_filters, by_id, ReservationTerm::default()]).await.unwrap();
    let shown: Vec<_> = found.iter().map(|it| (it.id.as_str(), it.kind, it.free)).collect();
    assert_eq!(shown, [("cr-1", ReservationType::Default, 3), ("cr-2", ReservationType::CapacityBlock, 3)]);
    assert_eq!(found[0].ends, Some(Timestamp(1_767_322_800_000)));
    assert_eq!([found[0].platform.as_str(), found[1].platform.as_str()], ["Windows", ""]);
    let sent = stub.requests();
    assert_eq!(sent.len(), 2, "an empty term would select everything");
    for (request, parts) in [
        (&sent[0], ["CapacityReservationId.1=cr-2", "Filter.1.Name=state&Filter.1.Value.1=active"]),
        (
            &sent[1],
            ["Name=owner-id&Filter.2.Value.1=123456789012", "Name=instance-match-criteria&Filter.3.Value.1=open"],
        ),
    ] {
        parts.iter().for_each(|part| assert!(request.contains(part), "{part} in {request}"));
    }
    assert!(!sent[0].contains("MaxResults"), "not allowed with ids: {}", sent[0]);
}

#[tokio::test]
async fn an_unknown_capacity_reservation_is_missing_and_other_errors_are_told() {
    let unknown = ["InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed"];
    let mut replies: Vec<Reply> = unknown.into_iter().map(|code| Reply::ec2_error(400, code)).collect();
    replies.push(Reply::ec2_error(403, "UnauthorizedOperation"));
    let stub = Stub::new(replies).await;
    let term = |id: &str| ReservationTerm { id: Some(id.to_owned()), ..ReservationTerm::default() };
    let found = ec2(&stub).describe_capacity_reservations(&[term("cr-1"), term("cr-2")]).await;
    assert_eq!(found, Ok(Vec::new()));
    let denied = ec2(&stub).describe_capacity_reservations(&[term("cr-3")]).await;
    assert!(matches!(denied, Err(CloudError::Denied { .. })), "{denied:?}");
    let sent = stub.requests();
    assert!(sent[1].contains("CapacityReservationId.1=cr-2"), "one call for each id: {}", sent[1]);
}

#[tokio::test]
async fn only_instances_that_asked_for_their_reservation_are_reserved() {
    let instance = |id: &str, preference: &str| {
        format!(
            "<item><instanceId>{id}</instanceId><capacityReservationId>cr-1</capacityReservationId>\
             <capacityReservationSpecification><capacityReservationPreference>{preference}</capacityReservationPreference>\
             </capacityReservationSpecification></item>"
        )
    };
    let instances = instance("i-1", "capacity-reservations-only") + &instance("i-2", "open");
    let set = format!("<reservationSet><item><instancesSet>{instances}</instancesSet></item></reservationSet>");
    let stub =
        Stub::new(vec![Reply::ok(&format!("<DescribeInstancesResponse>{set}</DescribeInstancesResponse>"))]).await;
    let filter = InstanceFilter::Cluster { cluster: "demo".to_owned() };
    let found = ec2(&stub).describe_instances(&filter).await.unwrap();
    let kinds: Vec<CapacityType> = found.iter().map(|it| it.capacity_type).collect();
    assert_eq!(kinds, [CapacityType::Reserved, CapacityType::OnDemand]);
}

#[tokio::test]
async fn fleet_of_an_interruptible_reservation_asks_for_reserved_capacity() {
    let stub = Stub::new(vec![Reply::ok(&FLEET.replace("spot", "on-demand"))]).await;
    let market_type = Some(MarketType::InterruptibleCapacityReservation);
    let mut wanted = request(CapacityType::Reserved);
    wanted.launch_template_configs[0].reservation =
        Some(ReservationSpec::Target { id: "cr-1".to_owned(), market_type });
    let answer = ec2(&stub).create_fleet(&wanted).await.unwrap();
    assert_eq!(answer.instances[0].capacity_type, CapacityType::Reserved, "EC2 calls it on-demand");
    let sent = stub.requests().remove(0);
    assert!(sent.contains("&TargetCapacitySpecification.DefaultTargetCapacityType=reserved-capacity"), "{sent}");
    assert!(sent.contains("&ReservedCapacityOptions.ReservationType.1=interruptible-capacity-reservation"), "{sent}");
    assert!(!sent.contains("OnDemandOptions"), "{sent}");
}
