//! The bytes of a node's files and of the log's payloads, as they were written once: today's code
//! writes the same, and reads them.
//!
//! `RECORD=1 cargo test -p ringfence-raft --lib golden` writes them again. Directories that were
//! written once are opened for ever, so other bytes here mean a new version, read beside this one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use prost::Message;
use ringfence_core::{ClusterId, ClusterTime, WallTime};
use ringfence_core::{Command, Entry as CoreEntry, Form, Settings, StateMachine};
use ringfence_proto::text::{from_hex, hex};

use crate::store::identity::{Identity, Seat};
use crate::store::snapshot_file::SnapshotDir;
use crate::types::codec;
use crate::types::incarnation::Incarnation;
use crate::types::proposal::Proposal;
use crate::types::type_config::{
    Membership, Payload, Peer, SnapshotMeta, StoredMembership, Vote, log_id,
};

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(file)
}

/// The bytes that were written once. Requires that they are `today`, or writes them.
fn golden(file: &str, today: &[u8]) -> Vec<u8> {
    let path = path(file);
    if env::var_os("RECORD").is_some() {
        fs::write(&path, hex(today) + "\n").unwrap();
    }
    let told = fs::read_to_string(&path).unwrap();
    assert_eq!(told.trim_end(), hex(today), "{file} is written differently");
    from_hex(told.trim_end()).unwrap()
}

fn peer(name: &str) -> Peer {
    Peer {
        name: name.into(),
        peer_address: format!("{name}.example:7421"),
        client_address: format!("{name}.example:7420"),
        incarnation: Incarnation::from_slice(&[0xab; 16]).unwrap(),
    }
}

fn membership() -> Membership {
    let members = [(1, "n1"), (2, "n2"), (9, "n9")].map(|(id, name)| (id, Arc::new(peer(name))));
    let configs = vec![BTreeSet::from([1, 2]), BTreeSet::from([1, 9])];
    Membership::new(configs, BTreeMap::from(members)).unwrap()
}

#[test]
fn payloads_of_the_log_are_written_and_read_as_ever() {
    let proposal = Proposal::new(ClusterTime(70_000), WallTime(1_700_000_000_123), b"command");
    let payloads = [
        ("payload-blank.hex", Payload::Blank),
        ("payload-proposal.hex", Payload::Normal(proposal)),
        ("payload-members.hex", Payload::Membership(membership())),
    ];
    for (file, payload) in payloads {
        let bytes = golden(file, &codec::payload_to_bytes(&payload));
        assert_eq!(
            codec::payload_from_bytes(bytes.into()),
            Ok(payload),
            "{file}"
        );
    }
}

#[test]
fn votes_and_commit_marks_are_written_and_read_as_ever() {
    let mut vote = Vote::new(8, 2);
    vote.committed = true;
    let bytes = golden("vote.hex", &codec::vote_to_pb(vote).encode_to_vec());
    let read = codec::vote_from_pb(Message::decode(&bytes[..]).ok());
    assert_eq!(read, Ok(vote));

    let mark = log_id(8, 42);
    let bytes = golden("committed.hex", &codec::log_id_to_pb(mark).encode_to_vec());
    let read = Message::decode(&bytes[..]).map(codec::log_id_from_pb);
    assert_eq!(read, Ok(mark));
}

#[test]
fn an_identity_is_written_and_read_as_ever() {
    let identity = Identity {
        incarnation: Incarnation::from_slice(&[0xab; 16]).unwrap(),
        seat: Some(Seat {
            cluster: ClusterId::new([7; 16]),
            node_id: 3,
        }),
        forming: Some(ClusterId::new([8; 16])),
        first_members: vec![(1, peer("n1"))],
        ..Identity::unseated("n3")
    };
    let bytes = golden("identity.hex", &identity.encode());
    assert_eq!(Identity::decode(&bytes), Ok(identity));
}

#[test]
fn a_snapshot_is_written_and_read_as_ever() {
    let cluster = ClusterId::new([7; 16]);
    let mut machine = StateMachine::new();
    let form = Form {
        cluster,
        token_floor: Some(41),
        settings: Settings::STANDARD,
        mode: ringfence_core::Mode::Off,
        quiet_time: ringfence_core::Millis(0),
        restored: None,
    };
    let commands = [
        Command::TermStart { unix_seconds: None },
        Command::Form(form),
    ];
    for (index, command) in (1..).zip(commands) {
        let entry = CoreEntry {
            index,
            term: 2,
            time: ClusterTime(5),
            wall: WallTime(6),
            command,
        };
        machine.apply(&entry, &mut Vec::new());
    }
    let meta = SnapshotMeta {
        last_log_id: Some(log_id(2, 2)),
        last_membership: StoredMembership::new(Some(log_id(1, 1)), membership()),
    };
    let temp = tempfile::tempdir().unwrap();
    let dir = SnapshotDir::open(temp.path().join("s"), cluster).unwrap();
    let path = dir.write(&meta, &machine.freeze()).unwrap();

    let bytes = golden("snapshot.hex", &fs::read(&path).unwrap());

    fs::write(&path, bytes).unwrap();
    let loaded = dir.load(&path).unwrap();
    assert_eq!(loaded.meta, meta);
    assert!(loaded.machine.records().eq(machine.records()));
}
