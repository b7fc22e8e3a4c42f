use super::*;
use plimsoll_proto::catalog::v1 as catalog_wire;
use plimsoll_proto::scheduler::v1 as wire;
use plimsoll_proto::snapshot::v1 as snapshot_wire;
use tonic::Code;

const PLAN: &str = "/plimsoll.scheduler.v1.SchedulerService/Plan";

/// A reader of requests for plans.
fn reader() -> Reader {
    Reader::new(&SCHEMA, SCHEMA.inputs[PLAN])
}

/// Estimated size of the field of a request for a plan with this path of field numbers.
fn estimate(path: &[u32]) -> usize {
    let (mut message, mut size) = (Some(SCHEMA.inputs[PLAN]), 0);
    for number in path {
        let field = SCHEMA.messages[message.unwrap()][number];
        (message, size) = (field.message, field.size);
    }
    size
}

/// A frame of gRPC.
fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[0], length.to_be_bytes().as_slice(), message].concat()
}

/// A request for a plan with this encoded snapshot.
fn plan_frame(snapshot: &[u8]) -> Vec<u8> {
    let mut message = vec![0x0a];
    prost::encoding::encode_varint(u64::try_from(snapshot.len()).unwrap(), &mut message);
    message.extend_from_slice(snapshot);
    frame(&message)
}

#[test]
fn the_estimate_is_at_least_the_size_of_the_struct() {
    let sizes = [
        (estimate(&[1]), size_of::<snapshot_wire::Snapshot>()),
        (estimate(&[1, 4]), size_of::<snapshot_wire::PodShape>()),
        (estimate(&[1, 4, 3]), size_of::<(String, String)>()),
        (estimate(&[1, 4, 4]), size_of::<snapshot_wire::ResourceAmount>()),
        (estimate(&[1, 4, 7]), size_of::<snapshot_wire::PreferredTerm>()),
        (estimate(&[1, 4, 10]), size_of::<snapshot_wire::TopologySpread>()),
        (estimate(&[1, 4, 11]), size_of::<snapshot_wire::PodAffinityTerm>()),
        (estimate(&[1, 4, 11, 5]), size_of::<String>()),
        (estimate(&[1, 4, 12]), size_of::<snapshot_wire::VolumeTopology>()),
        (estimate(&[1, 5]), size_of::<snapshot_wire::Pod>()),
        (estimate(&[1, 6]), size_of::<snapshot_wire::Node>()),
        (estimate(&[1, 7]), size_of::<snapshot_wire::NodePool>()),
        (estimate(&[1, 7, 15]), size_of::<snapshot_wire::NodeOverlay>()),
        (estimate(&[1, 10]), size_of::<snapshot_wire::UnavailableOffering>()),
        (estimate(&[2]), size_of::<catalog_wire::Catalog>()),
        (estimate(&[2, 3]), size_of::<catalog_wire::InstanceType>()),
        (estimate(&[2, 3, 7]), size_of::<catalog_wire::Offering>()),
    ];
    for (index, (estimate, size)) in sizes.into_iter().enumerate() {
        assert!((size..4 * size).contains(&estimate), "{index}: {estimate} for {size}");
    }
}

#[test]
fn empty_objects_are_rejected_from_the_limit_on_in_each_message_anew() {
    // The list of one pod has room for more.
    let pods = (MAX_DECODED_BYTES - estimate(&[1])) / estimate(&[1, 5]) - (LIST_ROOM - 1);
    let most = plan_frame(&[0x2a, 0].repeat(pods));
    let mut reader = reader();
    let decoded = estimate(&[1]) + (pods + LIST_ROOM - 1) * estimate(&[1, 5]);
    assert_eq!(reader.read(&most).unwrap(), most.len() + decoded);
    assert_eq!(reader.decoded, decoded);
    assert_eq!(reader.read(&most).unwrap(), 2 * (most.len() + decoded), "of all messages together");
    let status = reader.read(&plan_frame(&[0x2a, 0].repeat(pods + 1))).unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
}

#[test]
fn the_room_of_lists_and_maps_counts() {
    let shape = snapshot_wire::PodShape {
        labels: [("a".to_owned(), "b".to_owned())].into(),
        tolerations: vec![snapshot_wire::Toleration::default(); 2],
        resource_claims: vec!["gpu".to_owned()],
        ..Default::default()
    };
    let room = |shape: snapshot_wire::PodShape| {
        let snapshot = snapshot_wire::Snapshot { shapes: vec![shape], ..Default::default() };
        let mut reader = reader();
        reader.read(&plan_frame(&snapshot.encode_to_vec())).unwrap();
        reader.decoded - estimate(&[1]) - LIST_ROOM * estimate(&[1, 4])
    };
    assert_eq!(room(snapshot_wire::PodShape::default()), 0);
    let labels = MAP_ROOM * estimate(&[1, 4, 3]) + 2 * TEXT_BYTES;
    let tolerations = (LIST_ROOM + 1) * estimate(&[1, 4, 8]);
    let claims = LIST_ROOM * size_of::<String>() + TEXT_BYTES;
    assert_eq!(room(shape), labels + tolerations + claims);
}

#[test]
fn a_hundred_thousand_different_pods_take_less_than_the_limit() {
    // A tenth of the pods, for a fast test.
    const PODS: usize = 10_000;
    let text = || "x".repeat(20);
    let labels: BTreeMap<String, String> = (0..5).map(|label| (format!("{}{label}", text()), text())).collect();
    let shape = snapshot_wire::PodShape {
        id: text(),
        labels,
        requests: vec![snapshot_wire::ResourceAmount { name: "cpu".into(), amount: 1 }; 3],
        tolerations: vec![snapshot_wire::Toleration { key: "x".into(), ..Default::default() }],
        ..Default::default()
    };
    let pod = snapshot_wire::Pod { uid: text(), name: text(), shape: text(), ..Default::default() };
    let snapshot = snapshot_wire::Snapshot { shapes: vec![shape; PODS], pods: vec![pod; PODS], ..Default::default() };
    let request = wire::PlanRequest { snapshot: Some(snapshot), ..Default::default() };
    let bytes = frame(&request.encode_to_vec());
    assert!(10 * bytes.len() > MAX_REQUEST_BYTES, "as many pods as fit: {}", bytes.len());
    let mut whole = reader();
    whole.read(&bytes).unwrap();
    assert!(10 * whole.decoded < MAX_DECODED_BYTES, "{}", whole.decoded);

    let mut split = reader();
    for byte in &bytes {
        split.read(&[*byte]).unwrap();
    }
    assert_eq!(split.decoded, whole.decoded, "the same in pieces");
}

#[test]
fn malformed_requests_are_rejected() {
    let malformed = [
        // A compressed message.
        vec![1, 0, 0, 0, 0],
        // A group.
        plan_frame(&[0x0b]),
        // A pod that is longer than the snapshot.
        plan_frame(&[0x2a, 2, 0]),
        // A value that is longer than the snapshot: the next byte is of another message.
        [plan_frame(&[0x08, 0x80]), frame(&[])].concat(),
        // A length of more than ten bytes.
        plan_frame(&[&[0x2a], [0x80; 10].as_slice(), &[0]].concat()),
    ];
    for (index, bytes) in malformed.iter().enumerate() {
        let status = reader().read(bytes).expect_err(&index.to_string());
        assert_eq!(status.code(), Code::InvalidArgument, "{index}");
    }
}

#[test]
fn requests_of_all_services_are_inspected_but_not_those_of_others() {
    for method in ["scheduler.v1.SchedulerService/Session", "objects.v1.ObjectPlannerService/PlanObjects"] {
        assert!(inspect(&format!("/plimsoll.{method}")).is_some(), "{method}");
    }
    assert!(inspect("/grpc.health.v1.Health/Check").is_none());
}
