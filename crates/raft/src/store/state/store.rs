//! openraft's way to the state: entries are applied, snapshots built and installed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::{FutureExt, Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{RaftSnapshotBuilder, Snapshot};

use super::{APPLY_CHUNK, State, decode};
use crate::store::snapshot_file::SnapshotFile;
use crate::types::type_config::{LogId, SnapshotMeta, StoredMembership, TypeConfig};

/// openraft's handle on the state.
pub(crate) struct StateStore {
    state: Arc<State>,
}

impl StateStore {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

/// Raft, as this crate runs it.
pub(crate) type Raft = openraft::Raft<TypeConfig, StateStore>;

impl RaftStateMachine<TypeConfig> for StateStore {
    type SnapshotData = SnapshotFile;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let position = self.state.position.lock().clone();
        Ok((position.log_id, position.membership))
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + Send,
    {
        let mut entries = entries.fuse();
        while let Some(first) = entries.next().await {
            let (mut batch, mut failed) = (Vec::new(), None);
            let mut next = Some(first);
            while let Some(item) = next {
                let decoded = item.map(|(entry, responder)| decode(entry, responder));
                match decoded {
                    Ok(Ok(decoded)) => batch.push(decoded),
                    Ok(Err(reason)) => {
                        // Everything before it still counts; nothing behind it does.
                        failed = Some(io::Error::other(reason.to_string()));
                        self.state.stop.stop(reason);
                        break;
                    }
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
                // What is there already; most often it is nothing.
                next = match batch.len() < APPLY_CHUNK {
                    true => entries.next().now_or_never().flatten(),
                    false => None,
                };
            }
            self.state.apply(batch);
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<Self> {
        Some(self.get_snapshot_builder().await)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        Self {
            state: self.state.clone(),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotFile,
    ) -> Result<(), io::Error> {
        let dir = self.state.snapshots()?.clone();
        let expected = meta.clone();
        let install = move || {
            let loaded = dir.load(&snapshot.path).map_err(io::Error::other)?;
            if loaded.meta.last_log_id != expected.last_log_id {
                return Err(io::Error::other(
                    "the snapshot file is another one than was offered",
                ));
            }
            let path = dir
                .adopt(&snapshot.path, &loaded.meta)
                .map_err(io::Error::other)?;
            Ok((loaded, SnapshotFile { path }))
        };
        let (loaded, file) = crate::platform::runtime::blocking(install)
            .await
            .map_err(io::Error::other)??;
        let older = self.state.replace(loaded, file);
        // It may be large, and to take it apart then takes long.
        drop(crate::platform::runtime::blocking(move || drop(older)));
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<openraft::alias::SnapshotOf<TypeConfig, SnapshotFile>>, io::Error> {
        let current = self.state.current.lock().clone();
        Ok(current.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for StateStore {
    type SnapshotData = SnapshotFile;

    /// The snapshot that was prepared: it is taken before openraft is made to ask for one, since
    /// openraft takes a snapshot that cannot be written for the end of the node.
    async fn build_snapshot(
        &mut self,
    ) -> Result<openraft::alias::SnapshotOf<TypeConfig, SnapshotFile>, io::Error> {
        let prepared = self.state.prepared.swap(false, Ordering::AcqRel);
        let current = self.state.current.lock().clone().filter(|_| prepared);
        let (meta, snapshot) = match current {
            Some(current) => current,
            None => self.state.take_snapshot().await?,
        };
        Ok(Snapshot { meta, snapshot })
    }
}
