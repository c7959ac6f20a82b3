//! What a log entry says: the inputs of the state machine.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::access::AccessRecord;
use crate::access::change::{Caller, ChangeAccess, Mode};
use crate::backup::{BackupDigest, HeldByPod};
use crate::id::{ClusterId, FencingToken, OpenId, RequestNumber, Secret, SessionId};
use crate::name::{HolderData, Identity, LeaseName};
use crate::objects::object::ObjectMetadata;
use crate::pod::{Pod, PodSeen, PodUid};
use crate::settings::Settings;
use crate::time::{ClusterTime, Millis, WallTime};

/// One entry of the log, as `apply` sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its log index; entries arrive in rising order.
    pub index: u64,
    /// The Raft term it was proposed in.
    pub term: u64,
    /// The leader's reading of cluster time when it proposed the entry.
    pub time: ClusterTime,
    /// The leader's wall clock, for people.
    pub wall: WallTime,
    /// What to do.
    pub command: Command,
}

/// What an entry does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Gives an empty state its name and settings: the first command of a new cluster.
    Form(Form),
    /// Opens a term. The state honours nothing else of a term before it, so no grant of the term
    /// can precede the raising of the token counter.
    TermStart {
        /// The proposer's wall clock in seconds since the Unix epoch, or `None` if it was not
        /// believable.
        unix_seconds: Option<u64>,
    },
    /// Moves time forward and nothing else.
    Tick,
    /// Replaces the settings.
    Configure(Configure),
    /// Opens a session, and may acquire a lease in the same step.
    Open(Open),
    /// A numbered request of a session.
    Request(Request),
    /// Ends a session at its client's wish.
    Close {
        /// The session.
        session: SessionId,
        /// Its secret.
        secret: Secret,
    },
    /// Keep-alives of many sessions, gathered by the leader, which has checked their secrets.
    Renew(Renew),
    /// Ends a grant at an operator's wish.
    Revoke(Revoke),
    /// Ends a session at an operator's wish.
    Evict(Evict),
    /// Draws a node id: the entry's own index.
    DrawNodeId,
    /// Opens a session that lasts as long as a Pod of Kubernetes.
    OpenForPod(OpenForPod),
    /// Ends the sessions of a Pod, by what the leader has seen of it.
    PodEnded(PodEnded),
    /// Raises the level: every member knows all commands up to this version, and a node that does
    /// not is no longer let in. A lower level changes nothing.
    RaiseLevel {
        /// The version of log commands.
        level: u32,
    },
    /// A command with who asks for it, proven by a node. What a client asks without it comes from a
    /// caller that has proven nothing.
    Called(Box<Called>),
    /// Changes what principals may do.
    ChangeAccess(ChangeAccess),
    /// Makes a session that was opened while nothing was proven the caller's.
    Adopt {
        /// The session.
        session: SessionId,
        /// Its secret.
        secret: Secret,
    },
    /// Asks whether its caller may change the members or hand over leadership. It changes nothing:
    /// the leader carries the change out once this is done.
    Operate {
        /// The change, for people: `remove n3 (node 17)`. At most [`OPERATE_BYTES_MAX`].
        change: String,
    },
    /// Writes or deletes a Lease object.
    WriteObject(Box<WriteObject>),
    /// Gives a restored cluster a part of its state.
    Seed(Seed),
}

/// The longest text of a [`Command::Operate`], in bytes.
pub const OPERATE_BYTES_MAX: usize = 512;

/// See [`Command::Called`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Called {
    /// Who asks.
    pub caller: Caller,
    /// For what; one of the commands that clients can ask for ([`Command::is_asked`]).
    pub command: Command,
}

impl Command {
    /// Whether a client can ask for it. Others come from the leader itself.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        match self {
            Self::Configure(_)
            | Self::Open(_)
            | Self::OpenForPod(_)
            | Self::Request(_)
            | Self::Close { .. }
            | Self::Revoke(_)
            | Self::Evict(_)
            | Self::ChangeAccess(_)
            | Self::Adopt { .. }
            | Self::Operate { .. }
            | Self::WriteObject(_) => true,
            Self::Form(_)
            | Self::TermStart { .. }
            | Self::Tick
            | Self::Renew(_)
            | Self::DrawNodeId
            | Self::PodEnded(_)
            | Self::RaiseLevel { .. }
            | Self::Seed(_)
            | Self::Called(_) => false,
        }
    }

    /// The command itself, without who asks for it.
    #[must_use]
    pub fn bare(&self) -> &Self {
        match self {
            Self::Called(called) => &called.command,
            other => other,
        }
    }
}

/// See [`Command::Form`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// The new cluster's name.
    pub cluster: ClusterId,
    /// Replaces the wall clock as the lower bound of tokens for the cluster's whole life; at most
    /// [`crate::settings::TOKEN_FLOOR_MAX`].
    pub token_floor: Option<u64>,
    /// The first settings.
    pub settings: Settings,
    /// How much rights bind from this entry on. Any but [`Mode::Off`] raises the level to
    /// [`LEVEL_ACCESS`](crate::LEVEL_ACCESS): every first member has to know rights.
    pub mode: Mode,
    /// For how long nothing is granted, since holders of a lost cluster may still work; 0 to
    /// [`QUIET_TIME_MAX`](crate::QUIET_TIME_MAX). A restored cluster adds to it. Any but 0 raises
    /// the level to [`LEVEL_RESTORE`](crate::LEVEL_RESTORE).
    pub quiet_time: Millis,
    /// What the cluster is restored from; raises the level as a quiet time does.
    pub restored: Option<Restored>,
}

/// The past of a restored cluster, as far as it is small; [`Seed`]s follow with the rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restored {
    /// The clusters before this one, the newest last; a state keeps the newest
    /// [`LINEAGE_MAX`](crate::LINEAGE_MAX).
    pub lineage: Vec<ClusterId>,
    /// The digest of the backup.
    pub digest: BackupDigest,
    /// How many [`Seed`]s follow.
    pub parts: u32,
    /// Where the tokens of the backup have come to. Where the clock is not above it,
    /// [`Form::token_floor`] has to be, by [`RESTORE_TOKEN_GAP`](crate::RESTORE_TOKEN_GAP).
    pub tokens: u64,
    /// The token floor that the lost cluster was formed with, for people: it ends with it.
    pub token_floor: Option<u64>,
    /// The number of the next session in the backup.
    pub sessions: u64,
    /// The newest version of a Lease object in the backup, 0 if there was none.
    pub versions: u64,
    /// The greatest TTL of a session that was alive in the backup.
    pub ttl_greatest: Millis,
    /// Whether the cluster is a drill: its tokens start at [`Form::token_floor`], or else at the
    /// clock, it keeps no quiet time, and it is no descendant of the cluster in the backup, which may
    /// be alive.
    pub drill: bool,
}

/// See [`Command::Seed`]. Parts count in their order, and each once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seed {
    /// The digest of the backup; another one than that of the [`Form`] is refused.
    pub digest: BackupDigest,
    /// The number of the part, from 0.
    pub part: u32,
    /// Rights, to be added to those that are there. Cluster tokens are left out.
    pub access: Vec<AccessRecord>,
    /// Names that Pods hold: each is granted to a session that stands for its Pod's container.
    pub held: Vec<HeldByPod>,
    /// The secret of the sessions that this part opens. No client is shown it.
    pub secret: Secret,
}

/// See [`Command::Configure`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Configure {
    /// The index of the entry that set the settings it is based on; another one means that
    /// another change came first. This makes repeating it harmless.
    pub based_on: u64,
    /// The new settings.
    pub settings: Settings,
}

/// See [`Command::Open`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Open {
    /// The client's name for this very `Open`; a repeat with the same one opens nothing new.
    pub id: OpenId,
    /// The session's secret.
    pub secret: Secret,
    /// The newest cluster time that the client has seen. A raw caller may leave it out and accept
    /// that a duplicate delayed by the network opens a session that no client keeps alive.
    pub seen: Option<ClusterTime>,
    /// The session's TTL, fixed for its life.
    pub ttl: Millis,
    /// Who it says it is.
    pub identity: Identity,
    /// A first request of the new session, number 1, applied in the same entry.
    pub acquire: Option<Acquire>,
}

/// A numbered request of a session. Being logged, it is a keep-alive too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The session.
    pub session: SessionId,
    /// Its secret.
    pub secret: Secret,
    /// The request's number: the same at every try.
    pub number: RequestNumber,
    /// The lowest number whose answer the session still waits for. Answers below it are
    /// forgotten, requests below it refused.
    pub lowest: RequestNumber,
    /// What is asked.
    pub ask: Ask,
}

/// What a session can ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// For a lease.
    Acquire(Acquire),
    /// To take an earlier request back, and to void it if it never came.
    Cancel {
        /// The number of the request to take back.
        number: RequestNumber,
    },
    /// To give a lease back.
    Release {
        /// The lease.
        name: LeaseName,
        /// The token of the grant to end; no other one is ended.
        token: FencingToken,
        /// Whether to close the session in the same step.
        close: bool,
    },
    /// To hand a lease over to a waiter, with no gap.
    Transfer {
        /// The lease.
        name: LeaseName,
        /// The token of the grant to hand over.
        token: FencingToken,
        /// Which waiting session gets it; the head of the queue if left out.
        to: Option<SessionId>,
    },
}

/// An ask for a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    /// The lease.
    pub name: LeaseName,
    /// How long to stand in the queue if it cannot be granted at once, in cluster time; `None`
    /// means not at all. At most [`crate::settings::WAIT_MAX`].
    pub wait: Option<Millis>,
    /// What the holder publishes with its grant.
    pub data: HolderData,
    /// For how long the lease is granted to no session after a dirty end of this grant; at most
    /// [`crate::settings::LOCK_DELAY_MAX`].
    pub lock_delay: Millis,
}

/// See [`Command::Renew`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Renew {
    /// Session numbers in rising order.
    pub sessions: Vec<SessionId>,
    /// Losses that their sessions have acknowledged: belief in these grants has ended.
    pub acknowledged: Vec<(SessionId, FencingToken)>,
}

/// See [`Command::Revoke`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revoke {
    /// The lease.
    pub name: LeaseName,
    /// The token of the grant to end.
    pub token: FencingToken,
    /// Whether the next grant need not wait until the old holder knows. Mutual exclusion of
    /// beliefs does not cover such a revoke.
    pub now: bool,
    /// Why, for people.
    pub reason: String,
    /// Who, for people.
    pub operator: String,
}

/// See [`Command::Evict`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Evict {
    /// The session to end.
    pub session: SessionId,
    /// Why, for people.
    pub reason: String,
    /// Who, for people.
    pub operator: String,
}

/// See [`Command::OpenForPod`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpenForPod {
    /// The client's name for this very `Open`; a repeat with the same one opens nothing new.
    pub id: OpenId,
    /// The session's secret.
    pub secret: Secret,
    /// As [`Open::seen`]. If a session is bound to this container already, it has to be later than
    /// that one's last sign of life.
    pub seen: Option<ClusterTime>,
    /// Who it says it is.
    pub identity: Identity,
    /// The Pod and its container. A session that was bound to the same one ends with this entry: its
    /// process has ended, or this one would not run.
    pub pod: Pod,
}

/// See [`Command::PodEnded`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodEnded {
    /// Which Pod; one that was made later under its name has another UID. This makes repeating it
    /// harmless.
    pub uid: PodUid,
    /// What was seen.
    pub seen: PodSeen,
}

/// See [`Command::WriteObject`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WriteObject {
    /// The lease, and the object beside it.
    pub name: LeaseName,
    /// The version that it is based on; `None`: there is no object of this name. Another one means
    /// that another write came first.
    pub version: Option<u64>,
    /// The Pod that the caller's token was made for, as a node has proven it.
    pub pod: Option<PodUid>,
    /// The same Pod with its names, if leaders watch its Kubernetes: its end ends the caller's grant.
    pub watched: Option<Pod>,
    /// What is written.
    pub write: ObjectWrite,
}

/// What is written to a Lease object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ObjectWrite {
    /// Makes or changes it.
    Put {
        /// Its labels, annotations and owners from now on.
        metadata: ObjectMetadata,
        /// Who holds the lease; left out where the writer changes nothing of that.
        spec: Option<ObjectSpec>,
    },
    /// Deletes it. Its holder releases the lease with that.
    Delete {
        /// Ends the grant of another one first.
        revoke: Option<Revoke>,
    },
}

/// Who holds a lease, as the writer of its object says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectSpec {
    /// The holder; empty: none. The present one's own write is its keep-alive.
    pub holder: Identity,
    /// For how long it may be believed without another write, in seconds.
    pub seconds: u32,
    /// Whether the writer, which holds the lease, has started again: it is granted a new token.
    pub new_term: bool,
    /// The id of the session to open if this is a grant.
    pub open: OpenId,
    /// The secret of that session, which no client is shown.
    pub secret: Secret,
}
