//! The applied state of a node, and openraft's way to it.
//!
//! Entries are decoded before the state is locked and answered after it is unlocked; what happens
//! in between is the core's work alone.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use futures_util::{FutureExt, Stream, StreamExt};
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use openraft::{RaftSnapshotBuilder, Snapshot};
use ringfence_core::{
    ClusterTime, Command, Entry as CoreEntry, Event, Frozen, Outcome, StateMachine,
};
use ringfence_planted::{Bug, planted};
use ringfence_proto::record::decode_command;
use tokio::sync::{Notify, watch};

use crate::clock;
use crate::events::{EventLog, Limits, Position};
use crate::history::HistoryFeed;
use crate::hooks::Observer;
use crate::propose::Applied;
use crate::snapshot_file::{Loaded, SnapshotDir, SnapshotFile};
use crate::stop::{StopReason, StopSignal};
use crate::type_config::{Entry, LogId, Payload, SnapshotMeta, StoredMembership, TypeConfig};
use crate::waiters::{Settled, Waiters};

/// How many entries are applied before readers get their turn.
const APPLY_CHUNK: usize = 64;

/// The applied state and everything that hangs on its movement.
pub(crate) struct State {
    machine: RwLock<StateMachine>,
    position: Mutex<AppliedPosition>,
    /// Set once the node belongs to a cluster.
    snapshots: OnceLock<SnapshotDir>,
    /// The newest snapshot on disk.
    current: Mutex<Option<(SnapshotMeta, SnapshotFile)>>,
    applied: watch::Sender<u64>,
    /// Cluster time of the newest applied entry, for the leader's readings.
    time: AtomicU64,
    /// The deadline that the leader's timer waits for.
    armed: AtomicU64,
    /// Told when a deadline came up that is earlier than the armed one.
    pub(crate) deadline_moved: Notify,
    pub(crate) events: Arc<EventLog>,
    pub(crate) waiters: Arc<Waiters>,
    history: HistoryFeed,
    observer: Option<Arc<dyn Observer>>,
    stop: StopSignal,
    pub(crate) counts: Counts,
}

/// Figures about the state machine's work.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) applied: AtomicU64,
    pub(crate) snapshots_built: AtomicU64,
    pub(crate) snapshots_installed: AtomicU64,
    /// Of the newest end, and the greatest, in milliseconds of cluster time.
    pub(crate) last_lag: AtomicU64,
    pub(crate) max_lag: AtomicU64,
}

impl Counts {
    /// What was due at `due` was ended when cluster time was `now`.
    fn ended(&self, due: ClusterTime, now: ClusterTime) {
        let lag = now.0.saturating_sub(due.0);
        self.last_lag.store(lag, Ordering::Relaxed);
        self.max_lag.fetch_max(lag, Ordering::Relaxed);
    }
}

#[derive(Default, Clone)]
struct AppliedPosition {
    log_id: Option<LogId>,
    membership: StoredMembership,
}

impl State {
    /// The empty state of a node that belongs to no cluster yet.
    pub(crate) fn new(
        history: HistoryFeed,
        stop: StopSignal,
        observer: Option<Arc<dyn Observer>>,
    ) -> Self {
        Self {
            machine: RwLock::new(StateMachine::new()),
            position: Mutex::default(),
            snapshots: OnceLock::new(),
            current: Mutex::default(),
            applied: watch::Sender::new(0),
            time: AtomicU64::new(0),
            armed: AtomicU64::new(0),
            deadline_moved: Notify::new(),
            events: Arc::new(EventLog::new(0, Limits::STANDARD)),
            waiters: Arc::default(),
            history,
            observer,
            stop,
            counts: Counts::default(),
        }
    }

    /// Takes up the newest snapshot of the node's directory; once, before anything is applied.
    pub(crate) fn open(&self, snapshots: SnapshotDir, newest: Option<(PathBuf, Loaded)>) {
        drop(self.snapshots.set(snapshots));
        if let Some((path, loaded)) = newest {
            drop(self.replace(loaded, SnapshotFile { path }));
        }
    }

    /// The state machine, for reading.
    pub(crate) fn machine(&self) -> RwLockReadGuard<'_, StateMachine> {
        self.machine.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index of the newest applied entry.
    pub(crate) fn applied_index(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Follows the index of the newest applied entry.
    pub(crate) fn watch_applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// Cluster time of the newest applied entry.
    pub(crate) fn time(&self) -> ClusterTime {
        ClusterTime(self.time.load(Ordering::Acquire))
    }

    /// The next deadline. [`State::deadline_moved`] tells of an earlier one from now on.
    pub(crate) fn arm(&self) -> Option<ClusterTime> {
        let machine = self.machine();
        let next = machine.next_deadline();
        self.armed
            .store(next.map_or(u64::MAX, |next| next.0), Ordering::Release);
        next
    }

    /// Where snapshots are kept.
    ///
    /// # Errors
    /// If the node belongs to no cluster yet; nobody asks before.
    pub(crate) fn snapshots(&self) -> io::Result<&SnapshotDir> {
        self.snapshots
            .get()
            .ok_or_else(|| io::Error::other("the node belongs to no cluster yet"))
    }

    fn position(&self) -> MutexGuard<'_, AppliedPosition> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> MutexGuard<'_, Option<(SnapshotMeta, SnapshotFile)>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies decoded entries and tells everybody who waits for them.
    fn apply(&self, batch: Vec<Decoded>) {
        let Some(newest) = batch.last().map(|decoded| decoded.log_id) else {
            return;
        };
        let mut done = Done::default();
        let mut machine = self.machine.write().unwrap_or_else(PoisonError::into_inner);
        let mut events = Vec::new();
        let due_before = machine.next_deadline();
        for decoded in batch {
            self.apply_one(&mut machine, decoded, &mut events, &mut done);
        }
        let happened = done.events.iter().map(|(_, event)| event);
        self.waiters.settle(&machine, happened, &mut done.settled);
        let due = machine.next_deadline();
        if let Some(before) = due_before.filter(|before| *before <= machine.time()) {
            self.counts.ended(before, machine.time());
        }
        self.time.store(machine.time().0, Ordering::Release);
        self.position().log_id = Some(newest);
        drop(machine);

        if due.is_some_and(|due| due.0 < self.armed.load(Ordering::Acquire)) {
            self.deadline_moved.notify_one();
        }
        self.counts
            .applied
            .fetch_add(done.replies.len() as u64, Ordering::Relaxed);
        self.history.applied(newest.index, &done.events);
        self.events.publish(done.events, done.head);
        let _ = self.applied.send_replace(newest.index);
        for (responder, applied) in done.replies {
            if let Some(responder) = responder {
                responder.send(applied);
            }
        }
        done.settled.tell();
    }

    fn apply_one(
        &self,
        machine: &mut StateMachine,
        decoded: Decoded,
        events: &mut Vec<Event>,
        done: &mut Done,
    ) {
        let Decoded {
            log_id,
            what,
            responder,
        } = decoded;
        let index = log_id.index;
        let outcome = match what {
            What::Command(entry) => {
                let outcome = machine.apply(&entry, events);
                if let Some(observer) = &self.observer {
                    observer.applied(machine, &entry, &outcome, events);
                }
                outcome
            }
            What::Blank => self.skip(machine, log_id),
            What::Membership(membership) => {
                self.position().membership = membership;
                self.skip(machine, log_id)
            }
        };
        let mut n = 0;
        for event in events.drain(..) {
            n += 1;
            done.events.push((Position { index, n }, event));
        }
        done.head = Position { index, n };
        done.replies.push((
            responder,
            Applied {
                outcome,
                index,
                time: machine.time(),
            },
        ));
    }

    /// Goes past an entry that holds no command.
    fn skip(&self, machine: &mut StateMachine, log_id: LogId) -> Outcome {
        machine.skip(log_id.index);
        if let Some(observer) = &self.observer {
            observer.skipped(machine, log_id.index, log_id.leader_id.term);
        }
        Outcome::Done
    }

    /// The state as it is now and its position; entries are applied while it is written out.
    pub(crate) fn freeze(&self) -> (SnapshotMeta, Frozen) {
        // Both under one lock: the position must be that of the frozen state.
        let machine = self.machine();
        let position = self.position().clone();
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
        let mut machine = self.machine.write().unwrap_or_else(PoisonError::into_inner);
        let older = std::mem::replace(&mut *machine, newer);
        self.time.store(machine.time().0, Ordering::Release);
        let settled = self.waiters.settle_all(&machine);
        if let Some(observer) = &self.observer {
            let term = meta.last_log_id.map_or(0, |id| id.leader_id.term);
            observer.installed(&machine, index, term);
        }
        {
            let mut position = self.position();
            position.log_id = meta.last_log_id;
            position.membership = meta.last_membership.clone();
        }
        drop(machine);
        *self.current() = Some((meta, file));
        self.counts
            .snapshots_installed
            .fetch_add(1, Ordering::Relaxed);
        self.history.skipped_to(index);
        self.events.compact(index);
        let _ = self.applied.send_replace(index);
        self.deadline_moved.notify_one();
        settled.tell();
        older
    }
}

/// What became of a batch, to be told once the state is unlocked.
#[derive(Default)]
struct Done {
    events: Vec<(Position, Event)>,
    head: Position,
    replies: Vec<(Option<ApplyResponder<TypeConfig>>, Applied)>,
    settled: Settled,
}

struct Decoded {
    log_id: LogId,
    what: What,
    responder: Option<ApplyResponder<TypeConfig>>,
}

enum What {
    Blank,
    Membership(StoredMembership),
    Command(CoreEntry),
}

fn decode(
    entry: Entry,
    responder: Option<ApplyResponder<TypeConfig>>,
) -> Result<Decoded, StopReason> {
    let log_id = entry.log_id;
    let what = match entry.payload {
        Payload::Blank => What::Blank,
        Payload::Membership(membership) => {
            What::Membership(StoredMembership::new(Some(log_id), membership))
        }
        Payload::Normal(proposal) => {
            let command: Command =
                decode_command(&proposal.command()).map_err(|error| StopReason::UnknownEntry {
                    index: log_id.index,
                    why: error.to_string(),
                })?;
            What::Command(CoreEntry {
                index: log_id.index,
                term: log_id.leader_id.term,
                time: proposal.time(),
                wall: match planted(Bug::WallReadInApply) {
                    true => clock::wall(),
                    false => proposal.wall(),
                },
                command,
            })
        }
    };
    Ok(Decoded {
        log_id,
        what,
        responder,
    })
}

/// openraft's handle on the state.
pub(crate) struct StateStore {
    state: Arc<State>,
}

impl StateStore {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

impl RaftStateMachine<TypeConfig> for StateStore {
    type SnapshotData = SnapshotFile;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let position = self.state.position().clone();
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
        Some(Self {
            state: self.state.clone(),
        })
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
        let (loaded, file) = crate::runtime::blocking(install)
            .await
            .map_err(io::Error::other)??;
        let older = self.state.replace(loaded, file);
        // It may be large, and to take it apart then takes long.
        drop(crate::runtime::blocking(move || drop(older)));
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<openraft::alias::SnapshotOf<TypeConfig, SnapshotFile>>, io::Error> {
        let current = self.state.current().clone();
        Ok(current.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for StateStore {
    type SnapshotData = SnapshotFile;

    async fn build_snapshot(
        &mut self,
    ) -> Result<openraft::alias::SnapshotOf<TypeConfig, SnapshotFile>, io::Error> {
        let state = self.state.clone();
        let early = planted(Bug::SnapshotOfTwoMoments).then(|| state.freeze().0);
        let build = move || {
            let (meta, frozen) = state.freeze();
            let meta = early.unwrap_or(meta);
            let path = state
                .snapshots()?
                .write(&meta, &frozen)
                .map_err(io::Error::other)?;
            let file = SnapshotFile { path };
            let mut current = state.current();
            // A newer one may have been installed while this one was written.
            if current
                .as_ref()
                .is_none_or(|(newest, _)| newest.last_log_id <= meta.last_log_id)
            {
                *current = Some((meta.clone(), file.clone()));
            }
            drop(current);
            state.counts.snapshots_built.fetch_add(1, Ordering::Relaxed);
            Ok(Snapshot {
                meta,
                snapshot: file,
            })
        };
        crate::runtime::writing(build)
            .await
            .map_err(io::Error::other)?
    }
}
