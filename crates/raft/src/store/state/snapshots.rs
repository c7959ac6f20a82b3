//! Snapshots of the applied state: taken, kept, installed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use openraft::{RaftSnapshotBuilder, Snapshot};
use ringfence_core::{Frozen, StateMachine};
use ringfence_planted::{Bug, planted};

use super::{State, StateStore};
use crate::store::snapshot_file::{Loaded, SnapshotDir, SnapshotFile};
use crate::types::type_config::{SnapshotMeta, TypeConfig};

impl State {
    /// Takes up the newest snapshot of the node's directory; once, before anything is applied.
    pub(crate) fn open(&self, snapshots: SnapshotDir, newest: Option<(PathBuf, Loaded)>) {
        drop(self.snapshots.set(snapshots));
        if let Some((path, loaded)) = newest {
            drop(self.replace(loaded, SnapshotFile { path }));
        }
    }

    /// The index up to which the newest snapshot goes, 0 if there is none.
    pub(crate) fn snapshot_index(&self) -> u64 {
        let current = self.current.lock();
        let last = current.as_ref().and_then(|(meta, _)| meta.last_log_id);
        last.map_or(0, |last| last.index)
    }

    /// Takes a snapshot of the state as it is now, which the next builder hands out. A failure is
    /// counted, and the snapshot before it stays.
    pub(crate) async fn prepare_snapshot(self: &Arc<Self>) -> io::Result<()> {
        let built = self.take_snapshot().await;
        match &built {
            Ok(_) => self.prepared.store(true, Ordering::Release),
            Err(_) => {
                self.counts.snapshots_failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        built.map(drop)
    }

    async fn take_snapshot(self: &Arc<Self>) -> io::Result<(SnapshotMeta, SnapshotFile)> {
        let early = planted(Bug::SnapshotOfTwoMoments).then(|| self.freeze().0);
        let state = self.clone();
        // The guard moves into the blocking work: dropping this future must not let a second writer
        // start while the first still writes.
        let alone = self.building.clone().lock_owned().await;
        let built = crate::platform::runtime::writing(move || {
            let _alone = alone;
            state.build(early)
        });
        built.await.map_err(io::Error::other)?
    }

    /// Returns once no snapshot is being written.
    pub(crate) async fn snapshot_written(&self) {
        drop(self.building.lock().await);
    }

    fn build(&self, early: Option<SnapshotMeta>) -> io::Result<(SnapshotMeta, SnapshotFile)> {
        let (meta, frozen) = self.freeze();
        let meta = early.unwrap_or(meta);
        let path = self
            .snapshots()?
            .write(&meta, &frozen)
            .map_err(io::Error::other)?;
        let file = SnapshotFile { path };
        self.counts.snapshots_built.fetch_add(1, Ordering::Relaxed);
        let mut current = self.current.lock();
        // The leader may have sent a newer snapshot while this one was written. The older one must
        // not replace it, since the log behind the newer one may already be purged.
        if let Some((newest, installed)) = &*current
            && newest.last_log_id > meta.last_log_id
        {
            self.snapshots()?.remove_leftover(&file.path);
            return Ok((newest.clone(), installed.clone()));
        }
        *current = Some((meta.clone(), file.clone()));
        drop(current);
        Ok((meta, file))
    }

    /// Where snapshots are kept.
    ///
    /// # Errors
    /// If the node belongs to no cluster yet; no caller asks before.
    pub(crate) fn snapshots(&self) -> io::Result<&SnapshotDir> {
        self.snapshots
            .get()
            .ok_or_else(|| io::Error::other("the node belongs to no cluster yet"))
    }

    /// The state as it is now and its position; entries are applied while it is written out.
    pub(crate) fn freeze(&self) -> (SnapshotMeta, Frozen) {
        // Both under one lock: the position must be that of the frozen state.
        let machine = self.machine();
        let position = self.position.lock().clone();
        let meta = SnapshotMeta {
            last_log_id: position.log_id,
            last_membership: position.membership,
        };
        (meta, machine.freeze())
    }

    /// Replaces the state by an installed one and returns it.
    fn replace(&self, loaded: Loaded, file: SnapshotFile) -> StateMachine {
        let Loaded {
            meta,
            machine: newer,
        } = loaded;
        let index = meta.last_log_id.map_or(0, |id| id.index);
        let term = meta.last_log_id.map_or(0, |id| id.leader_id.term);
        let mut machine = self.machine.write();
        let older = std::mem::replace(&mut *machine, newer);
        // A node does not lead while it installs a state, so no timer has to know.
        let _ = self.time.publish(&machine);
        self.rights.note(&machine, index);
        self.rights.publish(&machine);
        // The events between the two states are unknown here, so every waiter is checked.
        let settled = self.waiters.settle_all(&machine);
        if let Some(observer) = &self.observer {
            observer.installed(&machine, index, term);
        }
        {
            let mut position = self.position.lock();
            position.log_id = meta.last_log_id;
            position.membership = meta.last_membership.clone();
        }
        drop(machine);
        *self.current.lock() = Some((meta, file));
        self.counts
            .snapshots_installed
            .fetch_add(1, Ordering::Relaxed);
        // Before the applied index moves: a watcher that sees the index must also see the gap.
        self.history.skipped_to(index);
        self.events.compact(index, term);
        let _ = self.applied.send_replace(index);
        self.deadline_moved.notify_one();
        settled.tell();
        older
    }

    /// Installs a snapshot that the leader sent.
    pub(super) async fn install(
        &self,
        meta: &SnapshotMeta,
        snapshot: SnapshotFile,
    ) -> io::Result<()> {
        let dir = self.snapshots()?.clone();
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
        let older = self.replace(loaded, file);
        // It may be large, and to take it apart then takes long.
        drop(crate::platform::runtime::blocking(move || drop(older)));
        Ok(())
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
