//! Any bytes into the readers of a node's files and of its peers' messages: fuzz targets of
//! `crates/fuzz`, and properties of the tests below. Each panics where a reader breaks a promise.
//! Not part of what is shipped.
//!
//! Checksums would keep random bytes from ever getting anywhere, so here they are made right.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use prost::Message;
use ringfence_core::ClusterId;
use ringfence_proto::raft as pb;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

use crate::membership::list::member_from_pb;
use crate::network::Caller;
use crate::requests::keepalive::request_from_pb;
use crate::store::backup_file::{Backup, MAGIC as BACKUP_MAGIC};
use crate::store::frames::write_frame;
use crate::store::identity::{Identity, Seat};
use crate::store::snapshot_file::SnapshotDir;
use crate::store::snapshot_frames::write_raw_frames;
use crate::types::codec;
use crate::types::incarnation::Incarnation;

/// The payload of a log entry, and the marks beside the entries.
pub fn entry(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    if let Ok(payload) = codec::payload_from_bytes(bytes.clone()) {
        let again = codec::payload_to_bytes(&payload);
        assert_eq!(codec::payload_from_bytes(again), Ok(payload));
    }
    if let Ok(entry) = pb::Entry::decode(bytes.clone())
        && let Ok(entry) = codec::entry_from_pb(entry)
    {
        let again = codec::entry_from_pb(codec::entry_to_pb(&entry));
        assert_eq!(again, Ok(entry));
    }
    if let Ok(vote) = pb::Vote::decode(bytes.clone())
        && let Ok(vote) = codec::vote_from_pb(Some(vote))
    {
        assert_eq!(codec::vote_from_pb(Some(codec::vote_to_pb(vote))), Ok(vote));
    }
    if let Ok(id) = pb::LogId::decode(bytes.clone()) {
        let id = codec::log_id_from_pb(id);
        assert_eq!(codec::log_id_from_pb(codec::log_id_to_pb(id)), id);
    }
    if let Ok(membership) = pb::Membership::decode(bytes)
        && let Ok(membership) = codec::membership_from_pb(membership)
    {
        let again = codec::membership_from_pb(codec::membership_to_pb(&membership));
        assert_eq!(again, Ok(membership));
    }
}

/// An identity file, as it is and with its checksum made right.
pub fn identity(bytes: &[u8]) {
    drop(Identity::decode(bytes));
    if let Ok(identity) = Identity::decode(&Identity::framed(bytes)) {
        assert_eq!(Identity::decode(&identity.encode()), Ok(identity));
    }
}

/// What peers say: the headers of their calls, and messages with an encoding of their own.
pub fn peer(bytes: &[u8]) {
    let me = Caller {
        seat: Seat {
            cluster: ClusterId::new([0; 16]),
            node_id: 0,
        },
        incarnation: Incarnation::default(),
    };
    let mut metadata = MetadataMap::new();
    let keys = ["ringfence-cluster", "ringfence-to", "ringfence-from"];
    for (key, value) in keys.iter().zip(bytes.split(|byte| *byte == b'\n')) {
        if let Ok(value) = AsciiMetadataValue::try_from(value) {
            metadata.insert(*key, value.clone());
            metadata.insert("ringfence-records", value);
        }
    }
    crate::network::check_headers(&metadata, &me);
    if let Ok(keep_alive) = pb::KeepAlive::decode(bytes) {
        drop(request_from_pb(&keep_alive));
    }
    if let Ok(state) = pb::MemberState::decode(bytes) {
        drop(member_from_pb(state));
    }
    if let Ok(calls) = pb::Calls::decode(bytes) {
        for call in &calls.calls {
            drop(crate::peers::receive::not_known(call));
        }
    }
}

/// A snapshot file whose frames hold these bytes: the first of a frame is its kind, the next two
/// the length of its body. It is refused, or it makes a state whose own snapshot reads as the
/// same state.
pub fn snapshot(bytes: &[u8]) {
    let scratch = Scratch::new();
    let cluster = ClusterId::new([1; 16]);
    let dir = SnapshotDir::open(scratch.0.clone(), cluster).expect("a scratch directory");
    let path = scratch.0.join("offered");
    fs::write(&path, bytes).expect("there is room for a small file");
    drop(dir.load(&path).map(drop));
    write_raw_frames(&path, frames(bytes)).expect("there is room for a small file");
    let verified = dir.verify(&path, None).is_ok();
    if let Ok(loaded) = dir.load(&path) {
        let again = dir.write(&loaded.meta, &loaded.machine.freeze());
        let again = dir.load(&again.expect("a state can be written"));
        let again = again.expect("what was written can be read");
        assert_eq!(again.meta, loaded.meta);
        assert!(again.machine.records().eq(loaded.machine.records()));
        assert!(verified || loaded.meta.last_log_id.is_some());
    }
}

/// A file of a backup, as it is and with the frames of these bytes: it is refused, or read as one.
pub fn backup(bytes: &[u8]) {
    let path = Path::new("offered");
    Backup::read_from(path, bytes).ok();
    let mut framed = BACKUP_MAGIC.to_vec();
    for (kind, body) in frames(bytes) {
        write_frame(&mut framed, kind, body).expect("a vector takes everything");
    }
    if let Ok(read) = Backup::read_from(path, &framed[..]) {
        assert_eq!(read.bytes, framed.len() as u64);
        let again = Backup::read_from(path, &framed[..]).expect("it was read before");
        assert_eq!(again, read);
    }
}

fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let ([kind, low, high], rest) = bytes.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let (body, rest) = rest.split_at(length.min(rest.len()));
        bytes = rest;
        Some((*kind, body))
    })
}

/// A directory that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringfence-decoders-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use prost::encoding::encode_varint;
    use ringfence_core::StateMachine;
    use ringfence_proto::record::{encode_backup_record, encode_record};
    use ringfence_testkit::arbitrary::histories;
    use ringfence_testkit::heap;
    use ringfence_testkit::run::steps;

    use super::*;

    #[global_allocator]
    static HEAP: heap::Counting = heap::Counting;

    /// What a reader may take beside the bytes: two frames of a snapshot are the most.
    const READER_BYTES: usize = 8 << 20;
    /// How many bytes a reader may take for one byte that it was given.
    const READER_BYTES_PER_BYTE: usize = 512;

    fn feed(bytes: &[u8]) {
        let limit = READER_BYTES + READER_BYTES_PER_BYTE * bytes.len();
        for target in [entry, identity, peer, snapshot, backup] {
            heap::within(limit, || target(bytes));
        }
    }

    fn framed(kind: u8, body: &[u8], into: &mut Vec<u8>) {
        into.push(kind);
        let length = u16::try_from(body.len()).unwrap();
        into.extend(length.to_le_bytes());
        into.extend(body);
    }

    /// The frames of a snapshot of any state.
    fn snapshots() -> impl Strategy<Value = Vec<u8>> {
        histories(20).prop_map(|history| {
            let mut machine = StateMachine::new();
            for step in steps(&history) {
                machine.apply(&step.entry, &mut Vec::new());
            }
            let mut records = Vec::new();
            let mut count = 0;
            for record in machine.records() {
                let mut one = Vec::new();
                encode_record(&record, &mut one);
                encode_varint(one.len() as u64, &mut records);
                records.extend(one);
                count += 1;
            }
            let header = pb::SnapshotHeader {
                cluster: Bytes::from_static(&[1; 16]),
                ..Default::default()
            };
            let end = pb::SnapshotEnd { records: count };
            let mut bytes = Vec::new();
            framed(1, &header.encode_to_vec(), &mut bytes);
            framed(2, &records, &mut bytes);
            framed(3, &end.encode_to_vec(), &mut bytes);
            bytes
        })
    }

    /// The frames of a backup of any state.
    fn backups() -> impl Strategy<Value = Vec<u8>> {
        histories(20).prop_map(|history| {
            let mut machine = StateMachine::new();
            for step in steps(&history) {
                machine.apply(&step.entry, &mut Vec::new());
            }
            let state = machine.freeze();
            let (mut records, mut count) = (Vec::new(), 0);
            for record in state.backup().into_iter().flatten() {
                let mut one = Vec::new();
                encode_backup_record(&record, &mut one);
                encode_varint(one.len() as u64, &mut records);
                records.extend(one);
                count += 1;
            }
            let end = pb::SnapshotEnd { records: count };
            let mut bytes = Vec::new();
            framed(2, &records, &mut bytes);
            framed(3, &end.encode_to_vec(), &mut bytes);
            bytes
        })
    }

    fn headers() -> impl Strategy<Value = Vec<u8>> {
        let line = "[0-9a-f]{32}|0\\.0{32}|[0-9]{1,25}\\.[0-9a-fx+]{30,34}|\\PC{0,20}";
        vec(line, 3).prop_map(|lines| lines.join("\n").into_bytes())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn any_bytes_are_read_or_refused(kind in 0..4_u8, bytes in vec(any::<u8>(), 0..200)) {
            feed(&bytes);
            feed(&[&[kind], &bytes[..]].concat());
        }

        #[test]
        fn any_headers_are_read_or_refused(bytes in headers()) {
            peer(&bytes);
        }

        #[test]
        fn a_changed_snapshot_or_backup_is_read_or_refused(
            bytes in prop_oneof![snapshots(), backups()],
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in proptest::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = bytes;
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            feed(&bytes);
        }
    }
}
