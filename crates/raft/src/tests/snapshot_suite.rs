//! Snapshots of a state that goes on changing.

use std::sync::Arc;

use futures_util::stream;
use openraft::RaftSnapshotBuilder;
use openraft::storage::RaftStateMachine;
use ringfence_core::snapshot::Record;
use ringfence_core::{
    Acquire, ClusterId, ClusterTime, Command, Form, HolderData, Identity, LeaseName, Millis, Open,
    OpenId, Secret, SessionId, Settings, WallTime,
};
use ringfence_proto::record::encode_command;

use crate::store::snapshot_file::SnapshotDir;
use crate::store::state::{State, StateStore};
use crate::types::proposal::Proposal;
use crate::types::stop::StopSignal;
use crate::types::type_config::{Entry, Payload, log_id};
use ringfence_history::HistoryFeed;

const CLUSTER: ClusterId = ClusterId::new([1; 16]);
const SESSIONS: u64 = 3_000;

pub(super) fn entry(index: u64, command: &Command) -> Entry {
    let proposal = Proposal::new(ClusterTime(index), WallTime(0), &encode_command(command));
    Entry {
        log_id: log_id(1, index),
        payload: Payload::Normal(proposal),
    }
}

fn secret(n: u64) -> [u8; 16] {
    u128::from(n).to_be_bytes()
}

/// Opens the `n`th session, which takes a lease of its own.
fn open(n: u64) -> Command {
    Command::Open(Open {
        id: OpenId::new(secret(n)),
        secret: Secret::new(secret(n)),
        seen: None,
        ttl: Millis::from_secs(60),
        identity: Identity::parse(&format!("worker {n}")).unwrap(),
        acquire: Some(Acquire {
            name: LeaseName::parse(&format!("jobs/{}", n % SESSIONS)).unwrap(),
            wait: None,
            data: HolderData::default(),
            lock_delay: Millis(0),
        }),
    })
}

fn close(n: u64) -> Command {
    Command::Close {
        session: SessionId::new(n).unwrap(),
        secret: Secret::new(secret(n)),
    }
}

/// A cluster is formed, and its sessions are opened.
fn beginning() -> Vec<Command> {
    let form = Form {
        cluster: CLUSTER,
        token_floor: Some(0),
        settings: Settings::STANDARD,
        mode: ringfence_core::Mode::Off,
        quiet_time: Millis(0),
        restored: None,
    };
    let first = [
        Command::TermStart { unix_seconds: None },
        Command::Form(form),
    ];
    first.into_iter().chain((1..=SESSIONS).map(open)).collect()
}

/// Ends each of these sessions and opens another one in its place.
fn everything_changes(round: u64) -> Vec<Command> {
    let first = round * SESSIONS + 1;
    let pair = |n| [close(n), open(n + SESSIONS)];
    (first..first + SESSIONS).flat_map(pair).collect()
}

struct Node {
    state: Arc<State>,
    store: StateStore,
    dir: SnapshotDir,
    index: u64,
    _temp: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = SnapshotDir::open(temp.path().join("s"), CLUSTER).unwrap();
        let state = Arc::new(State::new(HistoryFeed::off(), StopSignal::new(), None));
        state.open(dir.clone(), None);
        Self {
            store: StateStore::new(state.clone()),
            state,
            dir,
            index: 0,
            _temp: temp,
        }
    }

    async fn apply(&mut self, commands: &[Command]) {
        let entries = (self.index + 1..).zip(commands);
        let entries = entries.map(|(index, command)| Ok((entry(index, command), None)));
        self.store.apply(stream::iter(entries)).await.unwrap();
        self.index += commands.len() as u64;
    }

    fn records(&self) -> Vec<Record> {
        self.state.machine().records().collect()
    }
}

#[tokio::test]
async fn entries_are_applied_while_a_snapshot_waits_for_its_disk() {
    let mut node = Node::new();
    node.apply(&beginning()).await;
    let before = node.records();

    let (meta, frozen) = node.state.freeze();
    node.apply(&everything_changes(0)).await;
    assert_ne!(node.records(), before);
    let path = node.dir.write(&meta, &frozen).unwrap();

    let loaded = node.dir.load(&path).unwrap();
    assert_eq!(loaded.meta.last_log_id, Some(log_id(1, SESSIONS + 2)));
    assert!(loaded.machine.records().eq(before));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_the_state_of_its_index_whatever_is_applied_beside_it() {
    let mut node = Node::new();
    let mut commands = beginning();
    node.apply(&commands).await;
    for round in 0..4 {
        let mut builder = node.store.get_snapshot_builder().await;
        let building =
            crate::platform::runtime::spawn(async move { builder.build_snapshot().await.unwrap() });
        let changes = everything_changes(round);
        for part in changes.chunks(100) {
            node.apply(part).await;
            tokio::task::yield_now().await;
        }
        commands.extend(changes);
        let built = building.await.unwrap();

        let upto = built.meta.last_log_id.unwrap().index as usize;
        let mut again = Node::new();
        again.apply(&commands[..upto]).await;
        let loaded = node.dir.load(&built.snapshot.path).unwrap();
        assert_eq!(loaded.meta.last_log_id, built.meta.last_log_id);
        assert!(loaded.machine.records().eq(again.records()), "at {upto}");
    }
}
