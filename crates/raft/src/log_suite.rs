//! openraft's own tests of a log and a state machine, run on ours.

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use ringfence_core::ClusterId;
use ringfence_wal::{Options, Wal};

use crate::history::HistoryFeed;
use crate::log_store::LogStore;
use crate::snapshot_file::SnapshotDir;
use crate::state::{State, StateStore};
use crate::stop::StopSignal;
use crate::type_config::TypeConfig;

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
        let state = State::new(HistoryFeed::off(), StopSignal::new());
        state.open(snapshots, None);
        Ok((dir, log, StateStore::new(std::sync::Arc::new(state))))
    }
}

#[test]
fn the_log_passes_the_suite_of_openraft() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async { Suite::test_all(Builder).await.unwrap() });
}
