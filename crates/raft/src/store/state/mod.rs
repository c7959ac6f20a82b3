//! The applied state of a node, and openraft's way to it.
//!
//! Entries are decoded before the state is locked and answered after it is unlocked; what happens
//! in between is the core's work alone.

mod rights;
mod snapshots;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::{FutureExt, Stream, StreamExt};
use openraft::Snapshot;
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use ringfence_core::{
    Access, ClusterTime, Command, Entry as CoreEntry, Event, Mode, Outcome, StateMachine,
};
use ringfence_history::HistoryFeed;
use ringfence_planted::{Bug, planted};
use ringfence_proto::record::decode_command;
use tokio::sync::{Notify, watch};

use self::rights::Rights;
use crate::platform::clock::{self, AppliedTime};
use crate::platform::hooks::Observer;
use crate::spans::proposal;
use crate::store::events::{EventLog, Limits, Position};
use crate::store::snapshot_file::{SnapshotDir, SnapshotFile};
use crate::store::waiters::{Settled, Waiters};
use crate::types::reply::Applied;
use crate::types::stop::{StopReason, StopSignal};
use crate::types::type_config::{
    Entry, LogId, Payload, SnapshotMeta, StoredMembership, TypeConfig,
};

/// How many entries are applied before readers get their turn.
const APPLY_CHUNK: usize = 64;

/// The applied state and everything that hangs on its movement.
pub(crate) struct State {
    machine: RwLock<StateMachine>,
    position: Mutex<AppliedPosition>,
    /// The rights of the applied state, to be read while entries are applied.
    rights: Rights,
    /// Set once the node belongs to a cluster.
    snapshots: OnceLock<SnapshotDir>,
    /// The newest snapshot on disk.
    current: Mutex<Option<(SnapshotMeta, SnapshotFile)>>,
    /// `current` was taken for the next builder.
    prepared: AtomicBool,
    /// Held while a snapshot is written, by the thread that does it, which cannot be stopped.
    building: Arc<tokio::sync::Mutex<()>>,
    applied: watch::Sender<u64>,
    /// For the leader's readings.
    pub(crate) time: AppliedTime,
    /// The deadline that the leader's timer waits for.
    armed: AtomicU64,
    /// Notified when a deadline came up that is earlier than the armed one, and when cluster time has
    /// to move in shorter steps.
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
    /// Snapshots that could not be taken.
    pub(crate) snapshots_failed: AtomicU64,
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
            rights: Rights::default(),
            snapshots: OnceLock::new(),
            current: Mutex::default(),
            prepared: AtomicBool::new(false),
            building: Arc::default(),
            applied: watch::Sender::new(0),
            time: AppliedTime::default(),
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

    /// The state machine, for reading.
    pub(crate) fn machine(&self) -> RwLockReadGuard<'_, StateMachine> {
        self.machine.read()
    }

    /// The rights of the applied state. Needs no lock that entries are applied under.
    pub(crate) fn access(&self) -> Access {
        self.rights.all()
    }

    /// How much rights bind. Needs no such lock either.
    pub(crate) fn access_mode(&self) -> Mode {
        self.rights.mode()
    }

    /// Whether the mode was set; see [`Rights::mode_was_set`].
    pub(crate) fn mode_was_set(&self) -> Option<bool> {
        self.rights.mode_was_set()
    }

    /// Notes an index up to which the log was committed since this node started. It is applied here.
    pub(crate) fn caught_up(&self, index: u64) {
        self.rights.caught_up(index);
    }

    /// Notes that everything is applied that the disk of this node has for committed; once, when it starts.
    pub(crate) fn started(&self) {
        self.rights.started();
    }

    /// Whether the node started with a mode; see [`Rights::holds_a_mode`].
    pub(crate) fn holds_a_mode(&self) -> bool {
        self.rights.holds_a_mode()
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
        self.time.time()
    }

    /// The next deadline. [`State::deadline_moved`] tells of an earlier one from now on.
    pub(crate) fn arm(&self) -> Option<ClusterTime> {
        let machine = self.machine();
        let next = machine.next_deadline();
        self.armed
            .store(next.map_or(u64::MAX, |next| next.0), Ordering::Release);
        next
    }

    /// Applies decoded entries and notifies all that wait for them.
    fn apply(&self, batch: Vec<Decoded>) {
        let Some(newest) = batch.last().map(|decoded| decoded.log_id) else {
            return;
        };
        let mut done = Done::default();
        let begun = proposal::applying();
        // One lock for the batch: readers see the state behind a whole batch, never between two of
        // its entries. Replies, events and waiters are collected and go out after the unlock, since
        // each may call code that reads the state.
        let mut machine = self.machine.write();
        let mut events = Vec::new();
        let due_before = machine.next_deadline();
        for decoded in batch {
            let index = decoded.log_id.index;
            self.apply_one(&mut machine, decoded, &mut events, &mut done);
            self.rights.note(&machine, index);
        }
        let happened = done.events.iter().map(|(_, event)| event);
        self.waiters.settle(&machine, happened, &mut done.settled);
        let due = machine.next_deadline();
        if let Some(before) = due_before.filter(|before| *before <= machine.time()) {
            self.counts.ended(before, machine.time());
        }
        let lead_shrank = self.time.publish(&machine);
        self.rights.publish(&machine);
        // Still under the lock, so that `freeze` never pairs a state with another position.
        self.position.lock().log_id = Some(newest);
        drop(machine);
        let applied = begun.map(|_| clock::since_boot());

        let earlier = due.is_some_and(|due| due.0 < self.armed.load(Ordering::Acquire));
        if earlier || lead_shrank {
            self.deadline_moved.notify_one();
        }
        self.counts
            .applied
            .fetch_add(done.replies.len() as u64, Ordering::Relaxed);
        let happened = done.events.iter().map(|(at, event)| (at.index, event));
        self.history.applied(newest.index, happened);
        // Events before the applied index: a reader that waited for an index finds its events.
        self.events.publish(done.events, done.head);
        let _ = self.applied.send_replace(newest.index);
        proposal::answering(begun, applied, || {
            for (responder, applied) in done.replies {
                if let Some(responder) = responder {
                    responder.send(applied);
                }
            }
        });
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
        self.events.note_term(index, log_id.leader_id.term);
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
                self.position.lock().membership = membership;
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
        self.state.install(meta, snapshot).await
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<openraft::alias::SnapshotOf<TypeConfig, SnapshotFile>>, io::Error> {
        let current = self.state.current.lock().clone();
        Ok(current.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}

/// What became of a batch, to be reported once the state is unlocked.
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
