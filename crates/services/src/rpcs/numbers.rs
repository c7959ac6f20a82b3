//! Every number of every request at its edges: each is answered or refused, and none is a fault of the
//! node.

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet};
use ringfence_core::Verb;
use ringfence_proto::FILE_DESCRIPTOR_SET;
use ringfence_proto::v1::Reason;

use super::RPCS;
use super::called::{Target, request};
use super::world::{World, rule, who};
use crate::alone::within;
use crate::{Fresh, ObjectService, ObjectsAsked};

/// The edges of counts, sizes, times, indices and ids.
const EDGES: [u64; 6] = [
    0,
    u32::MAX as u64,
    1 << 32,
    i64::MAX as u64 + 1,
    u64::MAX - 1,
    u64::MAX,
];
/// How deep messages are followed into each other.
const DEPTH: usize = 3;

/// Behind an encoded message each of these sets one of its numbers, also one of a message in it.
fn settings(set: &FileDescriptorSet, of: &str, depth: usize) -> Vec<(String, Vec<u8>)> {
    let of = of.trim_start_matches(".ringfence.v1.");
    let mut messages = set.file.iter().flat_map(|file| &file.message_type);
    let found: Option<&DescriptorProto> = messages.find(|message| message.name() == of);
    let mut all = Vec::new();
    for field in found.iter().flat_map(|message| &message.field) {
        let number = u32::try_from(field.number()).unwrap();
        match field.r#type() {
            Type::Uint32 | Type::Uint64 | Type::Int32 | Type::Int64 => {
                for edge in EDGES {
                    let mut bytes = Vec::new();
                    encode_key(number, WireType::Varint, &mut bytes);
                    encode_varint(edge, &mut bytes);
                    all.push((format!("{} = {edge}", field.name()), bytes));
                }
            }
            Type::Message if depth > 0 => {
                for (what, inner) in settings(set, field.type_name(), depth - 1) {
                    let mut bytes = Vec::new();
                    encode_key(number, WireType::LengthDelimited, &mut bytes);
                    encode_varint(inner.len() as u64, &mut bytes);
                    bytes.extend(inner);
                    all.push((format!("{}.{what}", field.name()), bytes));
                }
            }
            _ => {}
        }
    }
    all
}

/// The type of the request of this RPC, `Service/Method`.
fn input<'a>(set: &'a FileDescriptorSet, rpc: &str) -> &'a str {
    let (of, method) = rpc.split_once('/').unwrap();
    let services = set.file.iter().flat_map(|file| &file.service);
    let mut methods = services
        .filter(|service| service.name() == of)
        .flat_map(|service| &service.method);
    methods
        .find(|found| found.name() == method)
        .unwrap()
        .input_type()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_number_of_a_request_is_a_fault_of_the_node() {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    let world = World::new().await;
    let root = who("root");
    for verb in Verb::ALL {
        world.allow(&rule("root", verb, "*")).await;
    }
    let mut asked = 0;
    // The frames of a stream are the requests of the other RPCs.
    let rpcs = RPCS.map(|(rpc, _)| rpc).into_iter();
    for rpc in rpcs.filter(|rpc| *rpc != "Connection/Stream") {
        let mut session = world.open(&root).await;
        for (what, more) in settings(&set, input(&set, rpc), DEPTH) {
            // A request may end its session, or use up its numbers.
            if rpc.starts_with("Leases/") || rpc.starts_with("Sessions/") {
                session = world.open(&root).await;
            }
            let name = format!("team/{}", world.number());
            let target = Target {
                name: &name,
                session: &session,
                other: session.session,
            };
            let mut message = request(&world, rpc, &target);
            message.extend(more);
            let told = world.call(rpc, &message, &root).await;
            assert_ne!(told.reason(), Some(Reason::Fault), "{rpc} {what}: {told:?}");
            asked += 1;
        }
    }
    assert!(asked > 200, "{asked} requests");
    // And the node goes on.
    let session = world.open(&root).await;
    world.take(&root, &session, "team/still-there").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_objects_may_be_as_large_as_any_number() {
    let world = World::new().await;
    let objects = ObjectService::new(world.alone.context.clone());
    let mut beside = http::Extensions::new();
    beside.insert(who("root"));
    world.allow(&rule("root", Verb::Observe, "*")).await;
    let caller = objects.caller(&beside);
    for size in [None, Some(1), Some(usize::MAX - 1), Some(usize::MAX)] {
        let asked = ObjectsAsked {
            prefix: "k8s/".to_owned(),
            size,
            ..ObjectsAsked::default()
        };
        let page = objects.list(&caller, asked, Fresh::Any);
        let mut page = within("page", page).await.unwrap();
        let found = page.next(|_| true).await.unwrap().unwrap();
        assert!(found.is_empty() && page.more_behind().is_none(), "{size:?}");
    }
}
