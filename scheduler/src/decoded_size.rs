//! Bounds the memory that a request takes when it is decoded, while its bytes arrive. Two bytes can encode an object of
//! several hundred bytes, so that a limit on the encoded size is not enough.

use plimsoll_proto::FILE_DESCRIPTOR_SET;
use plimsoll_runtime::request_body::Inspect;
use plimsoll_runtime::serve::MAX_DECODING_BYTES;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet, MessageOptions};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use tonic::Status;

/// Maximum request size in bytes. A self-contained request with 100,000 pods and a few node classes has 20 MiB.
pub const MAX_REQUEST_BYTES: usize = 2 * MAX_DECODING_BYTES;

/// Maximum estimated size of a decoded message, without the bytes of its strings. A request of the maximum size with
/// 100,000 pods that are all different takes less.
pub(crate) const MAX_DECODED_BYTES: usize = 8 * MAX_REQUEST_BYTES;

/// Size of a string, a list and a map; no other field is larger, except for messages.
const FIELD_BYTES: usize = 24;

/// What the allocator uses for the text of a string beside its bytes.
const TEXT_BYTES: usize = 16;

/// A list has room for so many elements as soon as it has one.
const LIST_ROOM: usize = 4;

/// The same of a map, whose nodes have this many entries.
const MAP_ROOM: usize = 11;

/// Nested messages are inline in the structs of their parents. The schema has no cycles; this bound only ends the
/// recursion if it ever has one.
const MAX_DEPTH: usize = 16;

static SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::new);

/// Input messages by the path of the method, and what their bytes mean.
#[derive(Debug)]
struct Schema {
    inputs: BTreeMap<String, usize>,
    messages: Vec<MessageType>,
}

/// The lists, messages and strings of a message, by field number.
type MessageType = BTreeMap<u32, FieldType>;

#[derive(Debug, Clone, Copy)]
struct FieldType {
    /// Size of the first occurrence of the field in a message.
    first: usize,
    /// Size of each further one.
    size: usize,
    message: Option<usize>,
}

impl Schema {
    fn new() -> Self {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap_or_default();
        let mut descriptors = Vec::new();
        let mut methods = Vec::new();
        for file in set.file {
            let package = format!(".{}", file.package());
            for service in &file.service {
                let path = |method: &str| format!("/{}.{}/{method}", file.package(), service.name());
                methods.extend(service.method.iter().map(|it| (path(it.name()), it.input_type().to_owned())));
            }
            let mut open: Vec<_> = file.message_type.into_iter().map(|message| (package.clone(), message)).collect();
            while let Some((parent, message)) = open.pop() {
                let name = format!("{parent}.{}", message.name());
                open.extend(message.nested_type.iter().map(|nested| (name.clone(), nested.clone())));
                descriptors.push((name, message));
            }
        }
        let names: Names<'_> =
            descriptors.iter().enumerate().map(|(index, (name, it))| (name.as_str(), (index, it))).collect();
        let fields = |message: &DescriptorProto| message.field.iter().filter_map(|it| field_type(it, &names)).collect();
        let messages = descriptors.iter().map(|(_, message)| fields(message));
        let input = |(path, name): (String, String)| Some((path, names.get(name.as_str())?.0));
        Self { messages: messages.collect(), inputs: methods.into_iter().filter_map(input).collect() }
    }
}

/// Messages by full name with a leading dot, with their index.
type Names<'a> = BTreeMap<&'a str, (usize, &'a DescriptorProto)>;

/// At least the size of the struct of a message.
fn size(descriptor: &DescriptorProto, names: &Names<'_>, depth: usize) -> usize {
    let field_size = |field: &FieldDescriptorProto| match names.get(field.type_name()) {
        Some((_, inner)) if field.label() != Label::Repeated && depth < MAX_DEPTH => {
            FIELD_BYTES.max(size(inner, names, depth + 1))
        }
        _ => FIELD_BYTES,
    };
    descriptor.field.iter().map(field_size).sum()
}

fn field_type(field: &FieldDescriptorProto, names: &Names<'_>) -> Option<(u32, FieldType)> {
    let number = u32::try_from(field.number()).ok()?;
    let repeated = field.label() == Label::Repeated;
    let (first, size, message) = match (field.r#type(), names.get(field.type_name())) {
        (Type::Message, Some((index, inner))) => {
            let is_map = inner.options.as_ref().is_some_and(MessageOptions::map_entry);
            let room = if is_map { MAP_ROOM } else { LIST_ROOM };
            let size = size(inner, names, 0);
            (if repeated { room * size } else { size }, size, Some(*index))
        }
        (Type::String | Type::Bytes, _) if repeated => {
            (LIST_ROOM * FIELD_BYTES + TEXT_BYTES, FIELD_BYTES + TEXT_BYTES, None)
        }
        (Type::String | Type::Bytes, _) => (TEXT_BYTES, TEXT_BYTES, None),
        _ => return None,
    };
    Some((number, FieldType { first, size, message }))
}

/// Inspection of the requests of a method of Plimsoll's services, by its path.
pub(crate) fn inspect(path: &str) -> Option<Inspect> {
    let mut reader = Reader::new(&SCHEMA, *SCHEMA.inputs.get(path)?);
    Some(Box::new(move |bytes| reader.read(bytes)))
}

/// Follows the frames of a gRPC request and the fields of their messages, in pieces of any length.
struct Reader {
    schema: &'static Schema,
    input: usize,
    /// The message of the frame and the nested ones that have begun.
    open: Vec<OpenMessage>,
    expected: Expected,
    /// What has arrived of the frame header or of the current varint, and how many bits.
    number: u64,
    bits: u32,
    /// Estimated size of the present message when it is decoded.
    decoded: usize,
    /// The same of the messages before, and of all bytes so far.
    others: usize,
}

/// A message that has begun.
struct OpenMessage {
    /// Its type.
    message: usize,
    /// Its remaining length.
    remaining: u64,
    /// Its fields so far, a bit for each number.
    seen: u64,
}

#[derive(Debug, Clone, Copy)]
enum Expected {
    /// Compression flag and length.
    FrameHeader,
    Key,
    Varint,
    /// Length of the field of this number.
    Length(u32),
    /// Bytes without further structure; not zero.
    Content(u64),
}

const FRAME_HEADER_BITS: u32 = 40;

impl Reader {
    fn new(schema: &'static Schema, input: usize) -> Self {
        Self {
            schema,
            input,
            open: Vec::new(),
            expected: Expected::FrameHeader,
            number: 0,
            bits: 0,
            decoded: 0,
            others: 0,
        }
    }

    /// Reads the next bytes. Returns the estimated memory of the request so far: its bytes, whose strings are copied,
    /// and what is decoded.
    fn read(&mut self, mut bytes: &[u8]) -> Result<usize, Status> {
        self.others += bytes.len();
        while let Some((&byte, rest)) = bytes.split_first() {
            if let Expected::Content(length) = self.expected {
                let read = usize::try_from(length).map_or(bytes.len(), |length| length.min(bytes.len()));
                bytes = bytes.get(read..).unwrap_or_default();
                self.expect_content(length.saturating_sub(u64::try_from(read).unwrap_or(length)));
            } else {
                bytes = rest;
                self.read_byte(byte).ok_or_else(|| Status::invalid_argument("the request is malformed"))?;
            }
            if self.decoded > MAX_DECODED_BYTES {
                let message = format!("the request takes more than {MAX_DECODED_BYTES} bytes when it is decoded");
                return Err(Status::out_of_range(message));
            }
            self.close_complete();
        }
        Ok(self.others + self.decoded)
    }

    /// Reads a byte of a frame header, key, length or value. `None` if the request is malformed.
    fn read_byte(&mut self, byte: u8) -> Option<()> {
        if matches!(self.expected, Expected::FrameHeader) {
            (self.number, self.bits) = ((self.number << 8) | u64::from(byte), self.bits + 8);
            if self.bits == FRAME_HEADER_BITS {
                // Compressed messages are not accepted: their flag makes the number larger.
                let length = u32::try_from(self.take_number()).ok()?;
                self.open.push(OpenMessage { message: self.input, remaining: u64::from(length), seen: 0 });
                self.expected = Expected::Key;
                self.others += std::mem::take(&mut self.decoded);
            }
            return Some(());
        }
        self.consume(1)?;
        if self.bits > 63 {
            return None;
        }
        (self.number, self.bits) = (self.number | (u64::from(byte & 0x7f) << self.bits), self.bits + 7);
        if byte < 0x80 {
            let number = self.take_number();
            self.read_number(number)?;
        }
        Some(())
    }

    fn take_number(&mut self) -> u64 {
        self.bits = 0;
        std::mem::take(&mut self.number)
    }

    /// Reads a complete varint. `None` if the request is malformed.
    fn read_number(&mut self, number: u64) -> Option<()> {
        match self.expected {
            Expected::Key => match number & 7 {
                0 => self.expected = Expected::Varint,
                1 => self.read_content(8)?,
                2 => self.expected = Expected::Length(u32::try_from(number >> 3).ok()?),
                5 => self.read_content(4)?,
                // No message has groups.
                _ => return None,
            },
            Expected::Length(field) => {
                let open = self.open.last_mut()?;
                // A field with a higher number counts as a first one each time.
                let bit = 1_u64.checked_shl(field).unwrap_or(0);
                let is_first = open.seen & bit == 0;
                open.seen |= bit;
                let field = self.schema.messages.get(open.message)?.get(&field).copied();
                self.decoded += field.map_or(0, |field| if is_first { field.first } else { field.size });
                match field.and_then(|field| field.message) {
                    Some(nested) => {
                        self.consume(number)?;
                        self.open.push(OpenMessage { message: nested, remaining: number, seen: 0 });
                        self.expected = Expected::Key;
                    }
                    None => self.read_content(number)?,
                }
            }
            Expected::Varint | Expected::FrameHeader | Expected::Content(_) => self.expected = Expected::Key,
        }
        Some(())
    }

    fn read_content(&mut self, length: u64) -> Option<()> {
        self.consume(length)?;
        self.expect_content(length);
        Some(())
    }

    fn expect_content(&mut self, length: u64) {
        self.expected = if length == 0 { Expected::Key } else { Expected::Content(length) };
    }

    /// Takes bytes from the innermost message. `None` if it has fewer.
    fn consume(&mut self, length: u64) -> Option<()> {
        let open = self.open.last_mut()?;
        open.remaining = open.remaining.checked_sub(length)?;
        Some(())
    }

    fn close_complete(&mut self) {
        if self.bits != 0 || !matches!(self.expected, Expected::Key) {
            return;
        }
        while self.open.pop_if(|open| open.remaining == 0).is_some() {}
        if self.open.is_empty() {
            self.expected = Expected::FrameHeader;
        }
    }
}

#[cfg(test)]
mod tests;
