//! openraft's own tests of a log and a state machine, run on ours.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, TryStreamExt};
use openraft::StorageError;
use openraft::storage::{RaftLogReader, RaftLogStorage, RaftLogStorageExt};
use openraft::testing::log::{StoreBuilder, Suite};
use ringfence_core::{ClusterId, ClusterTime, WallTime};
use ringfence_wal::sim::{Crash, SimFs};
use ringfence_wal::{Options, Wal};

use crate::store::log_store::{LogStore, READ_BYTES_MAX};
use crate::store::ring::RING_BYTES;
use crate::store::snapshot_file::SnapshotDir;
use crate::store::state::{State, StateStore};
use crate::types::proposal::Proposal;
use crate::types::stop::StopSignal;
use crate::types::type_config::{Entry, Payload, TypeConfig, Vote, log_id};
use ringfence_history::HistoryFeed;

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
    let files = Arc::new(SimFs::with_dir(Path::new("/wal")));
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

/// openraft installs a snapshot behind the cut: a crash between the two must find the cut.
#[tokio::test]
async fn the_end_of_the_log_is_cut_when_the_disk_has_it_and_not_before() {
    let files = SimFs::with_dir(Path::new("/wal"));
    let open = |files: &SimFs| {
        let options = Options {
            // What the first opening does at its end comes behind the crash.
            on_fatal: Box::new(|_| {}),
            ..Options::new(b"suite".to_vec())
        };
        let files = Arc::new(files.clone());
        Wal::open_stepped(files, Path::new("/wal"), options, Box::new(|| {})).unwrap()
    };
    let (wal, mut steps, recovered) = open(&files);
    let mut log = LogStore::new(wal, recovered, u64::MAX).unwrap();
    let entry = |index| Entry {
        log_id: log_id(1, index),
        payload: Payload::Blank,
    };
    {
        let mut appending = pin!(log.blocking_append((1..=5).map(entry)));
        assert!(appending.as_mut().now_or_never().is_none());
        assert!(steps.write());
        steps.sync();
        appending.await.unwrap();
    }

    let mut same = log.clone();
    let mut cutting = pin!(same.truncate_after(Some(log_id(1, 2))));
    assert!(cutting.as_mut().now_or_never().is_none(), "it has queued");
    assert!(steps.write());
    assert!(cutting.as_mut().now_or_never().is_none(), "it is written");
    steps.sync();
    cutting.await.unwrap();
    files.crash(Crash::LoseAll);
    let (_, _, recovered) = open(&files);
    assert_eq!(recovered.last.map(|last| last.index), Some(2));
}

/// A start reads what the ring holds into memory, and the rest from the disk when it is asked for.
#[tokio::test]
async fn a_log_longer_than_the_ring_is_whole_after_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options {
        segment_bytes: 1 << 20,
        recover_bytes: RING_BYTES as u64,
        ..Options::new(b"suite".to_vec())
    };
    let large = vec![7; READ_BYTES_MAX / 4];
    let count = (2 * RING_BYTES / large.len()) as u64;
    let (wal, recovered) = Wal::open(dir.path(), options()).unwrap();
    let mut log = LogStore::new(wal, recovered, u64::MAX).unwrap();
    for index in 1..=count {
        let entry = Entry {
            log_id: log_id(1, index),
            payload: Payload::Normal(Proposal::new(ClusterTime(index), WallTime(0), &large)),
        };
        log.blocking_append([entry]).await.unwrap();
    }
    log.close();

    let (wal, recovered) = Wal::open(dir.path(), options()).unwrap();
    let held: usize = recovered
        .entries
        .iter()
        .map(|entry| entry.payload.len())
        .sum();
    assert!(
        held <= RING_BYTES && recovered.live_bytes > 2 * RING_BYTES as u64,
        "{held}"
    );
    let mut log = LogStore::new(wal, recovered, u64::MAX).unwrap();
    let entries = log.try_get_log_entries(0..count + 1).await.unwrap();
    let indices = entries.iter().map(|entry| entry.log_id.index);
    assert!(indices.eq(1..=count));
}
