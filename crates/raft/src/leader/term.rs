//! One term of leadership: what the leader knows and may do until the term ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use parking_lot::Mutex;
use ringfence_core::{AccessChange, ClusterTime, Command, Mode};
use ringfence_planted::{Bug, planted};
use ringfence_proto::record::{decode_command, encode_command, version_of};

use crate::config::WAL_SEGMENT_BYTES;
use crate::membership::term::MembersOfTerm;
use crate::network::Transport;
use crate::network::forward::Forwarder;
use crate::platform::clock::{self, Reading};
use crate::store::log_store::LogStore;
use crate::store::log_store::reserve::share_of_a_term;
use crate::store::state::Raft;
use crate::store::state::State;
use crate::types::entry_size::{self, NotAdmitted};
use crate::types::proposal::Proposal;
use crate::types::reply::{Applied, LeaderHint, ProposeError};
use crate::types::type_config::{CommittedLeaderId, FnResponder, TypeConfig};

/// The most entries of a leader's log that may wait to be committed; see
/// [`LOG_UNCOMMITTED_BYTES_MAX`].
pub const LOG_UNCOMMITTED_ENTRIES_MAX: u64 = 32_768;
/// The most bytes of a leader's log that may wait to be committed, with what each entry takes in
/// memory. Followers that answer heartbeats and take no entries keep a leader in its place: behind this
/// limit it refuses proposals as not done, or its log would grow as long as anybody asks. What is under
/// way when the limit is reached is still taken.
///
/// The first entry of a new term stands behind all of them, and a follower without room takes only a
/// share of a segment in a term. So with shorter segments it is less: a quarter of a segment, though at
/// least [`LOG_UNCOMMITTED_BYTES_MIN`].
pub const LOG_UNCOMMITTED_BYTES_MAX: u64 = 16 << 20;
/// See [`LOG_UNCOMMITTED_BYTES_MAX`].
pub const LOG_UNCOMMITTED_BYTES_MIN: u64 = 1 << 20;
const _: () = assert!(
    2 * LOG_UNCOMMITTED_BYTES_MAX <= share_of_a_term(WAL_SEGMENT_BYTES),
    "a follower without room takes what a leader may leave uncommitted, and as much under way"
);

/// The most changes that operators may ask the log about in one term while a leader takes nothing else:
/// its file system is full, or that of followers which a majority needs, or its disk is behind. To hand
/// leadership over is what helps then. Each takes a block of 4 KiB of the log, of the share that
/// followers set aside for a term. There are as many again once there is room.
pub const OPERATIONS_WITHOUT_ROOM_MAX: u32 = 4;

/// The limit with segments of so many bytes.
pub(crate) fn log_uncommitted_max(segment_bytes: u64) -> u64 {
    (share_of_a_term(segment_bytes) / 2).clamp(LOG_UNCOMMITTED_BYTES_MIN, LOG_UNCOMMITTED_BYTES_MAX)
}

/// One term of one process in which this node leads and its first entry has been applied. A node
/// that leads in term 5 and again in term 7 has two of these, and nothing passes between them.
pub(crate) struct LeaderTerm {
    pub(super) term: u64,
    pub(crate) node_id: u64,
    pub(super) reading: Mutex<Reading>,
    pub(super) raft: Raft,
    pub(crate) state: Arc<State>,
    pub(crate) log: LogStore,
    pub(super) log_unflushed_max: u64,
    pub(super) log_uncommitted_max: u64,
    pub(super) pod_sessions: bool,
    /// Whether this node's own peer port is authenticated.
    pub(super) peer_authenticated: bool,
    /// Whether all first members compared what the log begins with when they took their seats.
    pub(super) beginning_agreed: bool,
    /// How many operations were logged since there is no room; see [`OPERATIONS_WITHOUT_ROOM_MAX`].
    pub(super) operations: AtomicU32,
    pub(crate) transport: Arc<Transport>,
    pub(crate) members: MembersOfTerm,
}

impl LeaderTerm {
    /// Lets an encoded command pass that may be proposed now; else says why it may not.
    pub(crate) fn admit(&self, command: &[u8]) -> Result<(), NotAdmitted> {
        if !planted(Bug::SizeLeftToTheLog) {
            entry_size::check(Proposal::encoded_len(command)).map_err(NotAdmitted::ForGood)?;
        }
        self.admit_kind(command).map_err(NotAdmitted::ForGood)?;
        self.has_room().map_err(NotAdmitted::ForNow)?;
        // The room that was set aside for operations is there again.
        if self.operations.load(Ordering::Relaxed) > 0 {
            self.operations.store(0, Ordering::Relaxed);
        }
        self.others_keep_up().map_err(NotAdmitted::ForNow)?;
        self.admit_version(command).map_err(NotAdmitted::ForNow)
    }

    /// The same for an operation whose caller has the right to it, also if there is no room.
    fn admit_operation(&self, command: &[u8]) -> Result<(), NotAdmitted> {
        let Err(why) = self.has_room() else {
            return self.admit(command);
        };
        entry_size::check(Proposal::encoded_len(command)).map_err(NotAdmitted::ForGood)?;
        self.others_keep_up().map_err(NotAdmitted::ForNow)?;
        self.admit_version(command).map_err(NotAdmitted::ForNow)?;
        let next = |taken| (taken < OPERATIONS_WITHOUT_ROOM_MAX).then_some(taken + 1);
        let taken = self
            .operations
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.map(drop).map_err(|_| {
            NotAdmitted::ForNow(format!(
                "{why}; {OPERATIONS_WITHOUT_ROOM_MAX} changes of members or leadership were logged \
                 meanwhile, as many as a term sets room aside for"
            ))
        })
    }

    /// What this leader's own configuration must allow before the log may hold it: the one place in
    /// the way of a write that looks at what the command says.
    fn admit_kind(&self, command: &[u8]) -> Result<(), String> {
        // Most commands are of the first version, and need not be decoded for this.
        if version_of(command).is_none_or(|version| version <= 1) {
            return Ok(());
        }
        // One that cannot be decoded is refused by its version.
        let Ok(command) = decode_command(command) else {
            return Ok(());
        };
        match command.bare() {
            Command::OpenForPod(_) if !self.pod_sessions => Err(
                "the leader watches no Pods: start all nodes with --kube-pods, or open the session \
                 with a TTL"
                    .to_owned(),
            ),
            Command::ChangeAccess(change)
                if change.changes.contains(&AccessChange::SetMode(Mode::Enforced)) =>
            {
                self.peers_authenticated()
            }
            // Each first member of a restored cluster has looked at its own port.
            Command::Form(form) if form.mode == Mode::Enforced && form.restored.is_none() => {
                self.peers_authenticated()
            }
            _ => Ok(()),
        }
    }

    /// Whether the log has room where a majority needs it, and this leader's disk keeps up.
    fn has_room(&self) -> Result<(), String> {
        if self.log.no_room() {
            return Err(
                "the leader's file system has no room for more log: free space where its data \
                 directory is; it goes on without an operator once there is room"
                    .to_owned(),
            );
        }
        if self.members.lack_room() && !planted(Bug::FullFollowersFed) {
            return Err(self.who_lacks_room());
        }
        let waiting = self.log.unflushed();
        let limit = self.log_unflushed_max;
        if waiting > limit {
            return Err(format!(
                "the leader's disk is behind: {waiting} bytes of its log wait to be written, at \
                 most {limit} may; look at its disk, or hand leadership to another node"
            ));
        }
        Ok(())
    }

    fn others_keep_up(&self) -> Result<(), String> {
        let (entries, bytes) = self.log.uncommitted();
        let bytes_max = self.log_uncommitted_max;
        if entries > LOG_UNCOMMITTED_ENTRIES_MAX || bytes > bytes_max {
            return Err(format!(
                "the other nodes are behind: {entries} entries of the log, {bytes} bytes, wait to \
                 be committed, at most {LOG_UNCOMMITTED_ENTRIES_MAX} and {bytes_max} may; look at the disks of the other nodes and at \
                 their room"
            ));
        }
        Ok(())
    }

    fn admit_version(&self, command: &[u8]) -> Result<(), String> {
        match version_of(command) {
            // Every release knows the first version.
            Some(0..=1) => Ok(()),
            Some(needed) => self.known_by_all(needed, command),
            None => Err(
                "this node leads and its release does not know this kind of command: upgrade it \
                 first"
                    .to_owned(),
            ),
        }
    }

    fn who_lacks_room(&self) -> String {
        let mut view = self.members.view();
        view.look_at_conditions(&self.transport);
        let full: Vec<String> = view.full().into_iter().map(|id| view.called(id)).collect();
        format!(
            "no majority can do without nodes whose file systems have no room for more log ({}): \
             free space where their data directories are; it goes on without an operator once there is room",
            full.join(", ")
        )
    }

    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    pub(crate) fn raft(&self) -> &Raft {
        &self.raft
    }

    /// This leader's reading of cluster time, now.
    pub(crate) fn read_time(&self) -> ClusterTime {
        let mut reading = self.reading.lock();
        // The clock is read under the lock: readings must not overtake each other.
        let (applied, lead) = self.state.time.read();
        reading.read(applied, lead, clock::since_boot())
    }

    /// A proposal of an encoded command, with the time it is.
    pub(crate) fn stamp(&self, command: &[u8]) -> Proposal {
        Proposal::new(self.read_time(), clock::wall(), command)
    }

    /// Writes a command in this term and waits until it is applied.
    pub(crate) async fn write(&self, command: &Command) -> Result<Applied, ProposeError> {
        let command = encode_command(command);
        self.admit(&command)?;
        self.write_admitted(&command).await
    }

    /// The same for an operation. `allowed` says that this leader's state gives its caller the right
    /// to it; without that nothing is logged while there is no room.
    pub(crate) async fn write_operation(
        &self,
        command: &Command,
        allowed: bool,
    ) -> Result<Applied, ProposeError> {
        let command = encode_command(command);
        match allowed && !planted(Bug::OperationsWantRoom) {
            true => self.admit_operation(&command)?,
            false => self.admit(&command)?,
        }
        self.write_admitted(&command).await
    }

    /// The same past every check.
    pub(crate) async fn write_admitted(&self, command: &[u8]) -> Result<Applied, ProposeError> {
        let proposal = self.stamp(command);
        write_in_term(&self.raft, self.term, proposal).await
    }
}

/// What openraft's answer to a write means.
pub(crate) enum Written {
    Applied(Applied),
    /// It never got into the log.
    NotAppended(String),
    /// It may be in the log.
    Unknown(String),
}

pub(crate) fn classify(result: ClientWriteResult<TypeConfig>) -> Written {
    match result {
        Ok(response) => Written::Applied(response.data),
        Err(ClientWriteError::ForwardToLeader(forward)) => {
            Written::NotAppended(format!("this node does not lead ({:?})", forward.reason))
        }
        Err(ClientWriteError::LogEntryDiscarded(_)) if planted(Bug::DiscardedIsNotDone) => {
            Written::NotAppended("leadership was lost".to_owned())
        }
        Err(ClientWriteError::LogEntryDiscarded(_)) => {
            Written::Unknown("leadership was lost while the entry was under way".to_owned())
        }
        Err(ClientWriteError::ChangeMembershipError(error)) => Written::Unknown(error.to_string()),
        Err(ClientWriteError::PreconditionFailed(error)) => Written::Unknown(error.to_string()),
    }
}

/// Writes one entry in a term and waits until it is applied.
pub(crate) async fn write_in_term(
    raft: &Raft,
    term: u64,
    proposal: Proposal,
) -> Result<Applied, ProposeError> {
    let (tell, answer) = tokio::sync::oneshot::channel();
    let responder = FnResponder(Box::new(move |result| {
        tell.send(result).ok();
    }));
    let leader = CommittedLeaderId::new(term);
    let written = raft
        .write(proposal)
        .responder(responder)
        .with_leader(leader)
        .await;
    written.map_err(|fatal| ProposeError::Fault {
        why: fatal.to_string(),
    })?;
    let result = answer
        .await
        .map_err(|_| ProposeError::unknown("the node stopped"))?;
    match classify(result) {
        Written::Applied(applied) => Ok(applied),
        Written::NotAppended(why) => Err(ProposeError::not_done(why)),
        Written::Unknown(why) => Err(ProposeError::unknown(why)),
    }
}

/// Who leads as far as this node knows, and how to reach it.
#[derive(Clone)]
pub(crate) enum Route {
    /// No node leads as far as this node knows.
    NoLeader,
    Leader(Arc<LeaderTerm>),
    Follower(Arc<Forwarder>),
}

impl Route {
    pub(crate) fn hint(&self) -> Option<LeaderHint> {
        match self {
            Self::NoLeader | Self::Leader(_) => None,
            Self::Follower(forwarder) => Some(forwarder.hint()),
        }
    }

    /// The leader's node id.
    pub(crate) fn leader(&self) -> Option<u64> {
        match self {
            Self::NoLeader => None,
            Self::Leader(leading) => Some(leading.node_id),
            Self::Follower(forwarder) => Some(forwarder.node_id()),
        }
    }
}

/// Counters since the node was started.
#[derive(Debug, Default)]
pub(crate) struct LeadCounts {
    /// How often this node has begun to lead.
    pub(crate) terms_led: AtomicU64,
    /// How often the known leader changed.
    pub(crate) leader_changes: AtomicU64,
    pub(crate) ticks: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library offers both of them as a hint to go elsewhere; only one says that nothing was
    /// done.
    #[test]
    fn an_entry_that_was_discarded_by_its_leader_may_still_commit() {
        let elsewhere = openraft::errors::ForwardToLeader::empty;
        let discarded = classify(Err(ClientWriteError::LogEntryDiscarded(elsewhere())));
        assert!(matches!(discarded, Written::Unknown(_)));
        let refused = classify(Err(ClientWriteError::ForwardToLeader(elsewhere())));
        assert!(matches!(refused, Written::NotAppended(_)));
    }
}
