//! Which fields of the wire an older version knows. A checksum covers what both sides know, since a receiver drops all
//! other fields.

use crate::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint, encode_varint};
use prost_types::FileDescriptorSet;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A field that a protocol number has added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddedField {
    /// The first number with the field.
    pub since: u32,
    /// Full name of the message.
    pub message: &'static str,
    /// Number of the field.
    pub field: u32,
}

/// Fields of snapshots that were added after protocol 1.
pub const ADDED: &[AddedField] = &[
    added(3, "plimsoll.snapshot.v1.Snapshot", 13),
    added(3, "plimsoll.snapshot.v1.Removals", 10),
    added(3, "plimsoll.snapshot.v1.CapacityQuota", 1),
    added(3, "plimsoll.snapshot.v1.CapacityQuota", 2),
    added(3, "plimsoll.snapshot.v1.CapacityQuota", 3),
    added(4, "plimsoll.snapshot.v1.Disruption", 5),
];

const fn added(since: u32, message: &'static str, field: u32) -> AddedField {
    AddedField { since, message, field }
}

/// Messages by full name: the nested messages by field number.
static NESTED: LazyLock<BTreeMap<String, BTreeMap<u32, String>>> = LazyLock::new(nested);

fn nested() -> BTreeMap<String, BTreeMap<u32, String>> {
    let mut messages = BTreeMap::new();
    let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap_or_default();
    for file in files.file {
        let package = file.package().to_owned();
        let mut open: Vec<_> = file.message_type.into_iter().map(|it| (package.clone(), it)).collect();
        while let Some((parent, message)) = open.pop() {
            let name = format!("{parent}.{}", message.name());
            let fields = message.field.iter().filter(|field| !field.type_name().is_empty());
            let is_message = |field: &&prost_types::FieldDescriptorProto| {
                field.r#type() == prost_types::field_descriptor_proto::Type::Message
            };
            let fields = fields.filter(is_message).map(|field| {
                (
                    u32::try_from(field.number()).unwrap_or_default(),
                    field.type_name().trim_start_matches('.').to_owned(),
                )
            });
            messages.insert(name.clone(), fields.collect());
            open.extend(message.nested_type.into_iter().map(|it| (name.clone(), it)));
        }
    }
    messages
}

/// What a version with a protocol number knows.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    protocol: u32,
    added: &'a [AddedField],
}

impl Known<'static> {
    /// What the version with this number knows.
    #[must_use]
    pub fn to(protocol: u32) -> Self {
        Known { protocol, added: ADDED }
    }
}

impl<'a> Known<'a> {
    #[cfg(test)]
    pub(crate) fn of(protocol: u32, added: &'a [AddedField]) -> Self {
        Self { protocol, added }
    }

    /// Whether it knows all fields that this version knows.
    #[must_use]
    pub fn all(self) -> bool {
        self.added.iter().all(|field| field.since <= self.protocol)
    }

    pub(crate) fn knows(self, message: &str, number: u32) -> bool {
        let is = |field: &&AddedField| field.message == message && field.field == number;
        self.added.iter().find(is).is_none_or(|field| field.since <= self.protocol)
    }

    /// The encoded `message` as the other side encodes it after it has read it.
    pub(crate) fn reencoded(self, bytes: &[u8], message: &str) -> Vec<u8> {
        // The bytes come from an encoder, so they are well-formed.
        rewrite(bytes, message, &|message, field| self.knows(message, field), &[]).unwrap_or_default()
    }
}

/// The encoded `message`, by its full name, with only the fields to `keep`, and with `suffix` at the end of each
/// message in it. `None` if the bytes are malformed. With a suffix, tests add fields that nobody knows.
#[must_use]
pub fn rewrite(mut bytes: &[u8], message: &str, keep: &dyn Fn(&str, u32) -> bool, suffix: &[u8]) -> Option<Vec<u8>> {
    let nested = NESTED.get(message);
    let mut out = Vec::with_capacity(bytes.len() + suffix.len());
    while !bytes.is_empty() {
        let start = bytes;
        let (number, wire_type) = decode_key(&mut bytes).ok()?;
        let key = start.get(..start.len() - bytes.len())?;
        let length = match wire_type {
            WireType::Varint => {
                let mut rest = bytes;
                decode_varint(&mut rest).ok()?;
                bytes.len() - rest.len()
            }
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut bytes).ok()?).ok()?,
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        let (content, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        if !keep(message, number) {
            continue;
        }
        out.extend_from_slice(key);
        if wire_type != WireType::LengthDelimited {
            out.extend_from_slice(content);
            continue;
        }
        let inner = nested.and_then(|fields| fields.get(&number));
        let rewritten = inner.map(|inner| rewrite(content, inner, keep, suffix));
        let content = match &rewritten {
            Some(content) => content.as_deref()?,
            None => content,
        };
        encode_varint(u64::try_from(content.len()).ok()?, &mut out);
        out.extend_from_slice(content);
    }
    out.extend_from_slice(suffix);
    Some(out)
}

#[cfg(test)]
mod tests;
