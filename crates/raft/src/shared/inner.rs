//! What a node consists of, shared by everything that works for it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use openraft::Instant;
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;
use ringfence_core::BackupDigest;
use ringfence_history::History;
use ringfence_planted::{Bug, planted};
use ringfence_tls::PortFigures;
use ringfence_wal::{Fs, FsLock};
use tokio::sync::watch;

use crate::config::{NodeConfig, quiet_time_digest};
use crate::leader::term::{LeadCounts, Route};
use crate::membership;
use crate::membership::list::members;
use crate::membership::standing::Standing;
use crate::network::{Caller, Transport};
use crate::platform::awake::Awake;
use crate::platform::clock;
use crate::requests::keepalive::KeepAlives;
use crate::requests::propose::Proposals;
use crate::store::identity::Identity;
use crate::store::log_store::LogStore;
use crate::store::state::Raft;
use crate::store::state::State;
use crate::types::incarnation::Incarnation;
use crate::types::status::Status;
use crate::types::stop::StopSignal;
use crate::types::type_config::StoredMembership;

/// A node, whether it belongs to a cluster yet or not.
pub(crate) struct Inner {
    pub(crate) config: NodeConfig,
    pub(crate) peer_address: SocketAddr,
    /// host:port that other nodes receive.
    pub(crate) peer_advertise: String,
    pub(crate) incarnation: Incarnation,
    /// Tells this process from another one with the same identity. Empty in a simulation.
    pub(crate) process: Bytes,
    pub(crate) identity: Mutex<Identity>,
    pub(crate) state: Arc<State>,
    pub(crate) history: Arc<History>,
    pub(crate) stop: StopSignal,
    /// Set once the node belongs to a cluster and its log is open.
    pub(crate) running: OnceLock<Arc<Running>>,
    /// What a node without a seat waits for, for people.
    pub(crate) waiting_for: Mutex<Option<String>>,
    /// Held while the node takes its seat: it takes one only.
    pub(crate) seating: tokio::sync::Mutex<()>,
    /// Whether everything has been stopped.
    pub(crate) ended: tokio::sync::Mutex<bool>,
    pub(crate) proposals: Proposals,
    pub(crate) keepalives: KeepAlives,
    pub(crate) route: watch::Sender<Route>,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) lead_counts: Arc<LeadCounts>,
    pub(crate) tasks: Tasks,
    /// Counts the connections of other nodes.
    pub(crate) peer_port: Arc<PortFigures>,
    /// Nanoseconds on [`clock::since_boot`] at which local state was known to be the newest.
    newest: AtomicU64,
    /// The same for the last word of a leader.
    heard: AtomicU64,
    /// The same for the first leader that it heard.
    heard_first: AtomicU64,
    /// The same for the moment at which this node took its seat.
    seated: AtomicU64,
    /// The same for the last moment at which a majority is known to have stood behind a leader.
    majority: AtomicU64,
    /// How far the clock of a member was from this one's at the last look, in milliseconds and one
    /// more; 0 if none was seen.
    clocks_apart: AtomicU64,
    /// Whether and how long this machine has slept.
    pub(crate) awake: Awake,
    /// Keeps other processes out of the directory while it is there.
    lock: Mutex<Option<FsLock>>,
}

/// What [`Inner`] is made of at the start.
pub(crate) struct Parts {
    pub(crate) config: NodeConfig,
    pub(crate) peer_address: SocketAddr,
    pub(crate) peer_advertise: String,
    pub(crate) identity: Identity,
    pub(crate) process: Bytes,
    pub(crate) state: Arc<State>,
    pub(crate) history: Arc<History>,
    pub(crate) stop: StopSignal,
    pub(crate) proposals: Proposals,
    pub(crate) keepalives: KeepAlives,
    pub(crate) route: watch::Sender<Route>,
    pub(crate) lock: FsLock,
}

impl Inner {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            status: watch::Sender::new(Status::starting(&parts.config.name)),
            config: parts.config,
            peer_address: parts.peer_address,
            peer_advertise: parts.peer_advertise,
            incarnation: parts.identity.incarnation,
            process: parts.process,
            identity: Mutex::new(parts.identity),
            state: parts.state,
            history: parts.history,
            stop: parts.stop,
            running: OnceLock::new(),
            waiting_for: Mutex::default(),
            seating: tokio::sync::Mutex::default(),
            ended: tokio::sync::Mutex::default(),
            proposals: parts.proposals,
            keepalives: parts.keepalives,
            route: parts.route,
            lead_counts: Arc::default(),
            tasks: Tasks::default(),
            peer_port: Arc::default(),
            newest: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            heard_first: AtomicU64::new(0),
            seated: AtomicU64::new(0),
            majority: AtomicU64::new(0),
            clocks_apart: AtomicU64::new(0),
            awake: Awake::new(),
            lock: Mutex::new(Some(parts.lock)),
        }
    }

    /// Where the node keeps its files.
    pub(crate) fn files(&self) -> &dyn Fs {
        self.config.hooks.files.as_ref()
    }

    /// What first members compare before they take seats: a digest of all that the log begins with, if
    /// that is a backup or a quiet time. A seat was taken with it or without it, for good; a flag that
    /// was given or left out since changes nothing.
    pub(crate) fn begins_with(&self) -> Option<BackupDigest> {
        let identity = self.identity.lock();
        match identity.seat {
            Some(_) if !planted(Bug::SeatForgetsItsRestore) => identity.restores,
            _ => self.started_to_begin_with(),
        }
    }

    /// What the flags of this start ask for.
    pub(crate) fn started_to_begin_with(&self) -> Option<BackupDigest> {
        let config = &self.config;
        match &config.restore {
            Some(restore) => Some(restore.digest(config.token_floor, config.quiet_time)),
            None => quiet_time_digest(config.quiet_time),
        }
    }

    /// The peer address of the leader, if one is known.
    pub(crate) fn leader_peer_address(&self) -> Option<String> {
        let running = self.running.get()?;
        let leader = self.route.borrow().leader()?;
        let membership = running.membership();
        let peer = membership.get_node(&leader)?;
        Some(peer.peer_address.clone())
    }

    /// What this node is among the members that it knows.
    pub(crate) fn standing(&self) -> Standing {
        let Some(running) = self.running.get() else {
            return Standing::None;
        };
        let members = members(&running.raft, None);
        Standing::among(&members, running.caller.seat.node_id, &self.config.name)
    }

    /// Lets other processes use the directory.
    pub(crate) fn unlock_dir(&self) {
        let lock = self.lock.lock().take();
        drop(lock);
    }

    /// Notes that local state held, at `at`, everything that had been acknowledged.
    pub(crate) fn newest_at(&self, at: Duration) {
        self.newest.fetch_max(nanos(at), Ordering::Relaxed);
    }

    /// How long ago local state was last known to be the newest.
    pub(crate) fn newest_ago(&self) -> Option<Duration> {
        ago(self.newest.load(Ordering::Relaxed))
    }

    /// Notes that a leader was heard.
    pub(crate) fn heard_leader(&self) {
        let now = nanos(clock::since_boot());
        if self.heard.fetch_max(now, Ordering::Relaxed) == 0 {
            self.heard_first.store(now, Ordering::Relaxed);
        }
    }

    /// Notes that this node takes its seat.
    pub(crate) fn takes_seat(&self) {
        let now = nanos(clock::since_boot());
        self.seated.store(now, Ordering::Relaxed);
    }

    /// For how long no leader was heard: at most since this node took its seat, or for ever if it has none.
    pub(crate) fn leader_unheard_for(&self) -> Option<Duration> {
        let last = self.heard.load(Ordering::Relaxed);
        ago(last.max(self.seated.load(Ordering::Relaxed)))
    }

    /// How long ago this node heard a leader for the first time since it was started.
    pub(crate) fn leader_first_heard_ago(&self) -> Option<Duration> {
        ago(self.heard_first.load(Ordering::Relaxed))
    }

    /// Notes when a majority last answered this node, if it leads.
    pub(crate) fn note_majority(&self) {
        let running = self.running.get();
        if let Some(ago) = running.and_then(|running| running.quorum_acked_ago(&self.awake)) {
            self.had_majority_at(clock::since_boot().saturating_sub(ago));
        }
    }

    /// Notes that a majority stood behind a leader at `at` or later.
    pub(crate) fn had_majority_at(&self, at: Duration) {
        self.majority.fetch_max(nanos(at), Ordering::Relaxed);
    }

    /// How long ago a majority is known to have stood behind a leader.
    pub(crate) fn majority_ago(&self) -> Option<Duration> {
        ago(self.majority.load(Ordering::Relaxed))
    }

    /// How long ago there was a leader, with a majority or without.
    pub(crate) fn leader_ago(&self) -> Option<Duration> {
        let last = self.heard.load(Ordering::Relaxed);
        ago(last.max(self.majority.load(Ordering::Relaxed)))
    }

    /// Whether this node leads, and is the only voter.
    pub(crate) fn leads_alone(&self) -> bool {
        matches!(&*self.route.borrow(), Route::Leader(leading) if leading.members.has_one_voter())
    }

    /// Notes how far the clocks of other members are apart from this one's, at the most.
    pub(crate) fn note_clocks(&self, apart: Option<Duration>) {
        let millis = apart.map_or(0, |apart| {
            let millis = u64::try_from(apart.as_millis()).unwrap_or(u64::MAX);
            millis.saturating_add(1)
        });
        self.clocks_apart.store(millis, Ordering::Relaxed);
    }

    /// See [`crate::Node::clocks_apart`].
    pub(crate) fn clocks_apart(&self) -> Option<Duration> {
        let noted = self.clocks_apart.load(Ordering::Relaxed).checked_sub(1);
        noted.map(Duration::from_millis)
    }
}

fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

fn ago(at: u64) -> Option<Duration> {
    (at > 0).then(|| clock::since_boot().saturating_sub(Duration::from_nanos(at)))
}

/// A node that belongs to a cluster.
pub(crate) struct Running {
    pub(crate) caller: Caller,
    pub(crate) raft: Raft,
    pub(crate) log: LogStore,
    pub(crate) transport: Arc<Transport>,
}

impl Running {
    /// How long ago a majority answered this node as its leader; `None` if it does not lead, or none
    /// has yet.
    pub(crate) fn quorum_acked_ago(&self, awake: &Awake) -> Option<Duration> {
        let leader = self.raft.as_leader().ok()?;
        Some(awake.ago(leader.last_quorum_acked()?.elapsed()))
    }

    /// The newest membership this node knows, committed or not.
    pub(crate) fn membership(&self) -> Arc<StoredMembership> {
        membership::newest(&self.raft)
    }

    /// The newest membership that is known to be committed.
    pub(crate) fn committed_membership(&self) -> Arc<StoredMembership> {
        self.raft
            .server_metrics()
            .borrow_watched()
            .committed_membership_config
            .clone()
    }
}

/// The tasks of a node, to be ended with it.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<Vec<tokio::task::AbortHandle>>);

impl Tasks {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = crate::platform::runtime::spawn(task).abort_handle();
        let mut tasks = self.0.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(handle);
    }

    pub(crate) fn abort_all(&self) {
        let mut tasks = self.0.lock();
        for task in tasks.drain(..) {
            task.abort();
        }
    }
}
