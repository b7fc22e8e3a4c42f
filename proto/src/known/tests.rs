use super::*;
use crate::convert::strategies::snapshot;
use crate::delta::{checksum, checksum_known};
use crate::snapshot::v1 as wire;
use plimsoll_model::snapshot::Snapshot;
use proptest::prelude::*;
use std::fmt::Write as _;

const POD: &str = "plimsoll.snapshot.v1.Pod";

/// As if protocol 3 had added the name of a pod, and protocol 2 the value of a taint.
const LATER: [AddedField; 2] = [
    AddedField { since: 3, message: POD, field: 3 },
    AddedField { since: 2, message: "plimsoll.snapshot.v1.Taint", field: 2 },
];

fn pod() -> wire::Pod {
    wire::Pod { uid: "u".into(), namespace: "n".into(), name: "web".into(), ..wire::Pod::default() }
}

fn reread(protocol: u32, pod: &wire::Pod) -> wire::Pod {
    wire::Pod::decode(&*Known::of(protocol, &LATER).reencoded(&pod.encode_to_vec(), POD)).unwrap()
}

#[test]
fn fields_that_the_other_side_does_not_know_are_left_out() {
    assert_eq!(reread(2, &pod()), wire::Pod { name: String::new(), ..pod() });
    assert_eq!(reread(3, &pod()), pod());
    let all = |protocol| Known::of(protocol, &LATER).all();
    assert_eq!([1, 2, 3, 4].map(all), [false, false, true, true]);
}

#[test]
fn fields_in_messages_within_messages_are_left_out_too() {
    let taint = wire::Taint { key: "k".into(), value: "v".into(), ..wire::Taint::default() };
    let node = wire::Node { name: "n".into(), taints: vec![taint.clone()], cordoned: true, ..wire::Node::default() };
    let bytes = Known::of(1, &LATER).reencoded(&node.encode_to_vec(), "plimsoll.snapshot.v1.Node");
    let taint = wire::Taint { value: String::new(), ..taint };
    assert_eq!(wire::Node::decode(&*bytes).unwrap(), wire::Node { taints: vec![taint], ..node });
}

#[test]
fn malformed_bytes_are_refused() {
    for bytes in [&[0x0a][..], &[0x0a, 5, 1], &[0x08, 0x80], &[0x0b], &[0x09, 1], &[0x0d, 1]] {
        assert_eq!(rewrite(bytes, POD, &|_, _| true, &[]), None, "{bytes:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_checksum_covers_what_both_sides_know(original in snapshot()) {
        prop_assert_eq!(checksum_known(&original, Known::of(3, &LATER)), checksum(&original));
        let mut seen_by_an_older_side = original.clone();
        seen_by_an_older_side.pods.iter_mut().for_each(|pod| pod.name.clear());
        prop_assert_eq!(checksum_known(&original, Known::of(2, &LATER)), checksum(&seen_by_an_older_side));
    }

    /// Protocol 3 added the list of CapacityQuotas, and protocol 4 the limits of rollouts.
    #[test]
    fn what_later_protocols_added_is_left_out_for_earlier_sides(original in snapshot()) {
        let mut third = original.clone();
        third.node_pools.iter_mut().for_each(|pool| pool.disruption.rollout_limit = None);
        let first = Snapshot { capacity_quotas: Vec::new(), ..third.clone() };
        for (protocol, known) in [(1, &first), (2, &first), (3, &third), (4, &original)] {
            prop_assert_eq!(checksum_known(&original, Known::to(protocol)), checksum(known));
        }
    }

    #[test]
    fn a_suffix_is_added_to_each_message_and_read_by_nobody(original in snapshot()) {
        let message = wire::Snapshot::from(&original);
        // Field 15,000, a varint.
        let suffix = [0xc0, 0xa9, 0x07, 0x01];
        let bytes = rewrite(&message.encode_to_vec(), "plimsoll.snapshot.v1.Snapshot", &|_, _| true, &suffix).unwrap();
        let messages = 1 + original.pods.len() + original.nodes.len() + original.shapes.len();
        prop_assert!(bytes.len() >= message.encoded_len() + messages * suffix.len());
        prop_assert_eq!(wire::Snapshot::decode(&*bytes).unwrap(), message);
    }
}

/// All fields of snapshots, a line each.
fn fields_of_snapshots() -> String {
    let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let mut lines = Vec::new();
    for file in files.file.iter().filter(|file| file.package() == "plimsoll.snapshot.v1") {
        let mut open: Vec<_> = file.message_type.iter().map(|it| (file.package().to_owned(), it)).collect();
        while let Some((parent, message)) = open.pop() {
            let name = format!("{parent}.{}", message.name());
            lines.extend(message.field.iter().map(|field| format!("{name} {} {}", field.number(), field.name())));
            open.extend(message.nested_type.iter().map(|it| (name.clone(), it)));
        }
    }
    lines.sort();
    let mut text = String::new();
    lines.iter().for_each(|line| writeln!(text, "{line}").unwrap());
    text
}

/// A field that is in neither list would be in checksums that an older side cannot compute.
#[test]
fn each_field_of_snapshots_is_of_protocol_1_or_listed() {
    const FIRST: &str = include_str!("protocol-1.txt");
    if std::env::var_os("PLIMSOLL_UPDATE_PROTOCOL_1").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/known/protocol-1.txt"), fields_of_snapshots())
            .unwrap();
    }
    let is_listed = |line: &str| {
        let mut words = line.split(' ');
        let (message, number) = (words.next().unwrap(), words.next().unwrap());
        ADDED.iter().any(|added| added.message == message && added.field.to_string() == number)
    };
    let fields = fields_of_snapshots();
    let unlisted: Vec<&str> =
        fields.lines().filter(|line| !is_listed(line) && !FIRST.lines().any(|it| it == *line)).collect();
    assert!(unlisted.is_empty(), "raise PROTOCOL and add these to ADDED: {unlisted:?}");
    let now: Vec<&str> = fields.lines().collect();
    let gone: Vec<&str> = FIRST.lines().filter(|line| !now.contains(line)).collect();
    assert!(gone.is_empty(), "protocol {} is still supported: {gone:?}", crate::protocol::OLDEST_PROTOCOL);
}
