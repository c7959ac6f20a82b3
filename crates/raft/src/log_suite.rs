//! openraft's own tests of a log and a state machine, run on ours.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, TryStreamExt};
use openraft::StorageError;
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt};
use openraft::testing::log::{StoreBuilder, Suite};
use ringfence_core::{ClusterId, ClusterTime, WallTime};
use ringfence_wal::sim::SimFs;
use ringfence_wal::{Options, Wal};

use crate::history::HistoryFeed;
use crate::log_store::{LogStore, READ_BYTES_MAX};
use crate::proposal::Proposal;
use crate::ring::RING_BYTES;
use crate::snapshot_file::SnapshotDir;
use crate::state::{State, StateStore};
use crate::stop::StopSignal;
use crate::type_config::{Entry, Payload, TypeConfig, Vote, log_id};

struct Builder;

impl StoreBuilder<TypeConfig, LogStore, StateStore, tempfile::TempDir> for Builder {
    async fn build(
        &self,
    ) -> Result<(tempfile::TempDir, LogStore, StateStore), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            segment_bytes: 1 << 20,
            ..Options::new(b"suite".to_vec())
        };
        let (wal, recovered) = Wal::open(dir.path(), options).unwrap();
        let log = LogStore::new(wal, recovered, u64::MAX).unwrap();
        let snapshots = SnapshotDir::open(dir.path().join("s"), ClusterId::new([1; 16])).unwrap();
        let state = State::new(HistoryFeed::off(), StopSignal::new(), None);
        state.open(snapshots, None);
        Ok((dir, log, StateStore::new(Arc::new(state))))
    }
}

#[test]
fn the_log_passes_the_suite_of_openraft() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async { Suite::test_all(Builder).await.unwrap() });
}

#[tokio::test]
async fn what_is_applied_comes_whole_from_the_disk_and_from_memory() {
    let (_dir, mut log, _) = Builder.build().await.unwrap();
    // Three times what is kept in memory, and some entries to each part.
    let large = vec![7; READ_BYTES_MAX / 4];
    let count = (3 * RING_BYTES / large.len()) as u64;
    let entry = |index| Entry {
        log_id: log_id(1, index),
        payload: Payload::Normal(Proposal::new(ClusterTime(index), WallTime(0), &large)),
    };
    for index in 1..=count {
        log.blocking_append([entry(index)]).await.unwrap();
    }
    let ranges = [
        (0..count + 1, 1..=count),
        (2..5, 2..=4),
        (count / 2..count + 99, count / 2..=count),
    ];
    for (range, expected) in ranges {
        let entries = log.entries_stream(range).await;
        let entries: Vec<Entry> = entries.try_collect().await.unwrap();
        let indices = entries.iter().map(|entry| entry.log_id.index);
        assert!(indices.eq(expected.clone()), "not {expected:?}");
    }
    assert_eq!(
        log.entries_stream(count + 1..count + 9).await.count().await,
        0
    );
}

#[tokio::test]
async fn a_vote_is_given_when_the_disk_has_it_and_not_before() {
    let files = Arc::new(SimFs::new());
    let options = Options::new(b"suite".to_vec());
    let opened = Wal::open_stepped(files, Path::new("/wal"), options, Box::new(|| {}));
    let (wal, mut steps, recovered) = opened.unwrap();
    let mut log = LogStore::new(wal, recovered, u64::MAX).unwrap();
    let mut same = log.clone();

    let vote = Vote::new(3, 1);
    let mut voting = pin!(log.save_vote(&vote));
    assert!(voting.as_mut().now_or_never().is_none(), "it has queued");
    assert!(steps.write());
    assert!(voting.as_mut().now_or_never().is_none(), "it is written");
    assert_eq!(same.read_vote().await.unwrap(), None);
    steps.sync();
    voting.await.unwrap();
    assert_eq!(same.read_vote().await.unwrap(), Some(vote));
}
