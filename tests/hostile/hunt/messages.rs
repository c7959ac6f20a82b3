//! Random requests for every RPC of the public package, drawn from its descriptors: a new RPC or a new
//! field is drawn as soon as it exists.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use rand::Rng;
use rand::rngs::StdRng;
use ringfence_proto::FILE_DESCRIPTOR_SET;
use ringfence_proto::v1::CloseRequest;

use super::known::Known;

/// How deep messages stand in messages.
const DEPTH_MAX: usize = 6;
/// More than a message may have, in bytes.
const TOO_LONG: usize = (1 << 20) + 100;

/// An RPC.
#[derive(Clone, Debug)]
pub(super) struct Method {
    /// `Leases/Acquire`.
    pub(super) name: String,
    /// The full name of what it takes.
    input: String,
    /// Whether the client sends a stream.
    pub(super) takes_stream: bool,
    /// Whether a stream stays open, of the client or of answers.
    pub(super) is_stream: bool,
}

/// The messages and RPCs of the public package.
pub(super) struct Schema {
    messages: HashMap<String, DescriptorProto>,
    enums: HashMap<String, Vec<i32>>,
    pub(super) methods: Vec<Method>,
}

/// Draws for one hostile client.
pub(super) struct Draw<'a> {
    pub(super) random: &'a mut StdRng,
    pub(super) known: &'a Known,
    /// Whose sessions it calls its own.
    pub(super) of: &'a str,
}

impl Schema {
    /// Reads the descriptors.
    pub(super) fn read() -> Self {
        let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap().file;
        let (mut messages, mut enums, mut methods) = (HashMap::new(), HashMap::new(), Vec::new());
        for file in files {
            let package = format!(".{}", file.package());
            for message in file.message_type {
                add(&package, message, &mut messages, &mut enums);
            }
            for of in file.enum_type {
                let values = of.value.iter().map(|value| value.number()).collect();
                enums.insert(format!("{package}.{}", of.name()), values);
            }
            for service in file.service {
                let method = |method: &prost_types::MethodDescriptorProto| Method {
                    name: format!("{}/{}", service.name(), method.name()),
                    input: method.input_type().to_owned(),
                    takes_stream: method.client_streaming(),
                    is_stream: method.client_streaming() || method.server_streaming(),
                };
                methods.extend(service.method.iter().map(method));
            }
        }
        Self {
            messages,
            enums,
            methods,
        }
    }

    /// A request of this RPC. One in thirty is damaged, one in two hundred is too long.
    pub(super) fn request(&self, draw: &mut Draw<'_>, method: &Method) -> Bytes {
        let mut bytes = Vec::new();
        self.message(draw, &method.input, 0, &mut bytes);
        match draw.random.random_range(0..600) {
            0..=9 if !bytes.is_empty() => {
                let at = draw.random.random_range(0..bytes.len());
                bytes[at] ^= 1 << draw.random.random_range(0..8);
            }
            10..=17 => bytes.truncate(bytes.len() / 2),
            18..=20 => {
                encode_key(15, WireType::LengthDelimited, &mut bytes);
                encode_varint(TOO_LONG as u64, &mut bytes);
                bytes.resize(bytes.len() + TOO_LONG, 7);
            }
            _ => {}
        }
        bytes.into()
    }

    fn message(&self, draw: &mut Draw<'_>, of: &str, depth: usize, into: &mut Vec<u8>) {
        if of == ".ringfence.v1.SessionHandle" && draw.random.random_range(0..20) > 0 {
            let handle = draw.known.any_session(draw.random, draw.of);
            return handle.encode(into).unwrap();
        }
        // Who closes its own sessions has none to do harm with.
        if of == ".ringfence.v1.CloseRequest" && draw.random.random_range(0..8) > 0 {
            let session = Some(draw.known.any_session(draw.random, "no one"));
            return CloseRequest { session }.encode(into).unwrap();
        }
        let Some(message) = self.messages.get(of).filter(|_| depth < DEPTH_MAX) else {
            return;
        };
        // Of fields that exclude each other, one.
        let chosen: Vec<usize> = message
            .oneof_decl
            .iter()
            .enumerate()
            .map(|(oneof, _)| {
                let members = message.field.iter();
                let count = members
                    .filter(|field| excluded(field) == Some(oneof))
                    .count();
                draw.random.random_range(0..count.max(1))
            })
            .collect();
        let mut seen = vec![0; chosen.len()];
        for field in &message.field {
            if let Some(oneof) = excluded(field) {
                seen[oneof] += 1;
                if seen[oneof] - 1 != chosen[oneof] {
                    continue;
                }
            } else if Self::is_left_out(draw, field) {
                continue;
            }
            let times = match field.label() {
                Label::Repeated => match draw.random.random_range(0..60) {
                    0 => 600,
                    n => 1 + n % 4,
                },
                _ => 1,
            };
            for _ in 0..times {
                self.field(draw, field, depth, into);
            }
        }
    }

    fn is_left_out(draw: &mut Draw<'_>, field: &FieldDescriptorProto) -> bool {
        // With them most requests would be refused for what they say.
        let rare = [
            "pod",
            "open",
            "from",
            "seen_cluster_time_ms",
            "read",
            "settings",
        ];
        match rare.contains(&field.name()) {
            true => draw.random.random_range(0..8) > 0,
            false => draw.random.random_range(0..12) == 0,
        }
    }

    fn field(
        &self,
        draw: &mut Draw<'_>,
        field: &FieldDescriptorProto,
        depth: usize,
        into: &mut Vec<u8>,
    ) {
        let number = u32::try_from(field.number()).unwrap();
        let delimited = |bytes: &[u8], into: &mut Vec<u8>| {
            encode_key(number, WireType::LengthDelimited, into);
            encode_varint(bytes.len() as u64, into);
            into.extend_from_slice(bytes);
        };
        match field.r#type() {
            Type::Message => {
                let mut bytes = Vec::new();
                self.message(draw, field.type_name(), depth + 1, &mut bytes);
                delimited(&bytes, into);
            }
            Type::String => delimited(text(draw, field.name()).as_bytes(), into),
            Type::Bytes => delimited(&bytes(draw, field.name()), into),
            Type::Enum => {
                let values = self.enums.get(field.type_name());
                let values = values.map_or(&[0][..], Vec::as_slice);
                let value = match draw.random.random_range(0..20) {
                    0 => 99,
                    _ => values[draw.random.random_range(0..values.len())],
                };
                encode_key(number, WireType::Varint, into);
                encode_varint(value as u64, into);
            }
            Type::Bool => {
                encode_key(number, WireType::Varint, into);
                encode_varint(u64::from(draw.random.random::<bool>()), into);
            }
            Type::Fixed64 => {
                encode_key(number, WireType::SixtyFourBit, into);
                into.extend_from_slice(&draw.random.random::<[u8; 8]>());
            }
            _ => {
                encode_key(number, WireType::Varint, into);
                encode_varint(integer(draw, field.name()), into);
            }
        }
    }
}

/// The declared group of fields of which one is set; that of an optional field is none.
fn excluded(field: &FieldDescriptorProto) -> Option<usize> {
    let oneof = field.oneof_index.filter(|_| !field.proto3_optional());
    oneof.and_then(|at| usize::try_from(at).ok())
}

fn add(
    scope: &str,
    message: DescriptorProto,
    messages: &mut HashMap<String, DescriptorProto>,
    enums: &mut HashMap<String, Vec<i32>>,
) {
    let name = format!("{scope}.{}", message.name());
    for of in &message.enum_type {
        let values = of.value.iter().map(|value| value.number()).collect();
        enums.insert(format!("{name}.{}", of.name()), values);
    }
    for nested in message.nested_type.clone() {
        add(&name, nested, messages, enums);
    }
    messages.insert(name, message);
}

/// A number, by what its field means.
fn integer(draw: &mut Draw<'_>, field: &str) -> u64 {
    let random = &mut *draw.random;
    if random.random_range(0..50) == 0 {
        return [0, 1, u64::MAX, 1 << 32, i64::MAX as u64][random.random_range(0..5)];
    }
    match field {
        "session" | "to_session" | "after" => draw.known.any_session(random, draw.of).session,
        "token" | "newest" => draw.known.any_token(random),
        "number" | "id" => match random.random_range(0..8) {
            0 => random.random_range(0..40),
            _ => draw.known.number(),
        },
        "lowest" | "target" => match random.random_range(0..3) {
            0 => random.random_range(0..40),
            // Behind the number of its own request, which was drawn a moment ago.
            _ => draw
                .known
                .last_number()
                .saturating_sub(random.random_range(100..200)),
        },
        "ttl_ms" => random.random_range(1_000..15_000),
        "wait_ms" => random.random_range(0..1_500),
        "lock_delay_ms" => random.random_range(0..2_000),
        "page_size" | "limit" => random.random_range(0..2_000),
        "max_staleness_ms" => random.random_range(0..60_000),
        "node_id" | "replaces" => random.random_range(0..5),
        "index" | "based_on" | "access_index" => random.random_range(0..60),
        _ => random.random_range(0..100),
    }
}

/// A text, by what its field means.
fn text(draw: &mut Draw<'_>, field: &str) -> String {
    let random = &mut *draw.random;
    match field {
        "name" | "names" => Known::any_name(random),
        "prefix" => Known::any_prefix(random),
        "principal" | "principals" | "ban" | "unban" | "remove_tokens" => {
            Known::any_principal(random)
        }
        "peer_address" | "client_address" => "127.0.0.1:1".to_owned(),
        "identity" => match random.random_range(0..30) {
            0 => "i".repeat(random.random_range(0..400)),
            _ => "raider".to_owned(),
        },
        "page_token" => match random.random_range(0..3) {
            0 => String::new(),
            1 => "1.1.1".to_owned(),
            _ => "z".repeat(random.random_range(0..20_000)),
        },
        _ => match random.random_range(0..12) {
            0 => "r".repeat(random.random_range(0..5_000)),
            1 => "\u{0}\u{7}\n{}%s".to_owned(),
            _ => "why not".to_owned(),
        },
    }
}

/// Bytes, by what their field means.
fn bytes(draw: &mut Draw<'_>, field: &str) -> Vec<u8> {
    let random = &mut *draw.random;
    let length = match field {
        "cluster_id" if random.random_range(0..4) > 0 => return draw.known.cluster.to_vec(),
        // Also the name under which an honest client has opened a session.
        "id" if random.random_range(0..8) == 0 && !draw.known.stolen.is_empty() => {
            let at = random.random_range(0..draw.known.stolen.len());
            return draw.known.stolen[at].open_id.to_vec();
        }
        "secret" if random.random_range(0..8) == 0 && !draw.known.stolen.is_empty() => {
            let at = random.random_range(0..draw.known.stolen.len());
            return draw.known.stolen[at].handle.secret.to_vec();
        }
        "data" => random.random_range(0..1_030),
        "digest" => 32,
        _ if random.random_range(0..30) == 0 => random.random_range(0..64),
        _ => 16,
    };
    (0..length).map(|_| random.random()).collect()
}
