//! Random histories that shrink well: a list of abstract moves ("the holder of lease 2 releases
//! it"), resolved against the state of the run into entries. Leaving a move out or making its
//! numbers smaller leaves a history that still makes sense.

mod callers;
mod objects;
mod resolve;
mod strategies;

use ringfence_core::Mode;

pub use resolve::Resolver;
pub use strategies::{extreme_histories, histories};

/// A history to be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The first settings.
    pub limits: Limits,
    /// The cluster is formed with this floor; without one it follows the clock.
    pub floor: Option<u64>,
    /// After this many moves the state is restored from its snapshot on a second machine, which
    /// plays the rest without another restore.
    pub restore_after: usize,
    /// The level that the cluster has from the beginning.
    pub level: u32,
    /// Whether the cluster keeps quiet at first, as after a restore.
    pub quiet: bool,
    /// What the cluster is restored from, if it is; its level is the newest one then.
    pub past: Option<Past>,
    /// How rights are changed before the first session opens; nothing, if it is empty.
    pub rights: Vec<AccessAct>,
    /// How many sessions are open from the beginning.
    pub crowd: u8,
    /// What happens.
    pub moves: Vec<Move>,
}

/// How tight the limits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limits {
    /// Nothing is refused for its number.
    Wide,
    /// A few leases and sessions.
    Tight,
    /// One of each.
    One,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// How the leader's reading moves before it.
    pub pace: Pace,
    /// Whether it is of a term that no leader opened.
    pub stray: bool,
    /// Who asks for it, if a client can.
    pub by: By,
    /// What it does.
    pub act: Act,
}

/// How time moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Not at all.
    Still,
    /// By this many milliseconds.
    By(u64),
    /// To the next deadline, and this many milliseconds beyond it.
    ToDeadline(u64),
    /// To one millisecond before the next deadline.
    BeforeDeadline,
    /// The reading is this many milliseconds behind cluster time.
    Back(u64),
    /// To this very time.
    At(u64),
}

/// Who asks for a command, as a node has proven it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Nothing is proven.
    Nobody,
    /// The owner of the session that it names, who opens it if it is new; `local` for what is asked of
    /// no session.
    Owner,
    /// One of a few principals, counted around.
    Principal(u8),
    /// The bearer of the cluster token at this place among those that are valid, or of one that is
    /// not.
    Token(u8),
}

/// A part of a change of rights. Principals, patterns, verbs and names are counted around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the change")]
pub enum AccessAct {
    /// See [`ringfence_core::AccessChange::AddRule`].
    Allow { who: u8, verb: u8, names: u8 },
    /// Takes back the rule at this place among those in force.
    Forbid(u8),
    /// See [`ringfence_core::AccessChange::Ban`].
    Ban(u8),
    /// See [`ringfence_core::AccessChange::Unban`].
    Unban(u8),
    /// See [`ringfence_core::AccessChange::AddToken`].
    Token(u8),
    /// See [`ringfence_core::AccessChange::RemoveTokens`].
    EndTokens(u8),
    /// See [`ringfence_core::AccessChange::SetMode`].
    Mode(Mode),
    /// See [`ringfence_core::AccessChange::SetLimits`].
    Limits { sessions: u8, leases: u8 },
}

/// Who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// One of the living, counted around.
    Live(u8),
    /// The session with this number, alive or not, opened or not.
    Number(u64),
    /// The holder of the lease that the act is about.
    Holder,
    /// The waiter at this place of the queue of the lease that the act is about.
    Waiter(u8),
}

/// Which token is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// That of the grant in force, or the floor.
    Current,
    /// This many below the floor.
    Older(u8),
    /// One that was lost and not acknowledged by the one who acts.
    Lost(u8),
    /// This very one.
    Exactly(u64),
}

/// Which request number is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A new one.
    Next,
    /// One that was used this many requests ago.
    Used(u8),
    /// This very one.
    Exactly(u64),
    /// This far from the lowest that is remembered.
    FromLowest(u64),
}

/// Which number is called the lowest that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lowest {
    /// The first: nothing is confirmed.
    First,
    /// This many below the request's own.
    Behind(u8),
    /// This very one.
    Exactly(u64),
}

/// An ask for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireAct {
    /// The lease, counted around.
    pub lease: u8,
    /// How long to wait, in milliseconds.
    pub wait: Option<u64>,
    /// The lock-delay in milliseconds.
    pub lock_delay: u64,
    /// What the holder publishes.
    pub data: u8,
}

/// What a session asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the ask")]
pub enum AskAct {
    /// See [`ringfence_core::Ask::Acquire`].
    Acquire(AcquireAct),
    /// See [`ringfence_core::Ask::Cancel`].
    Cancel { number: Number },
    /// See [`ringfence_core::Ask::Release`].
    Release {
        lease: u8,
        token: Token,
        close: bool,
    },
    /// See [`ringfence_core::Ask::Transfer`].
    Transfer {
        lease: u8,
        token: Token,
        to: Option<Who>,
    },
}

/// Which version a write of a Lease object is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The present one, or that there is no object.
    Present,
    /// So many before the present one.
    Older(u8),
    /// That there is no object.
    Absent,
}

/// What is written to a Lease object. Holders and Pods are counted around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the write")]
pub enum ObjectAct {
    /// See [`ringfence_core::ObjectWrite::Put`] without a spec.
    Metadata(u8),
    /// The same with one. Holder 0 is none.
    Spec {
        holder: u8,
        seconds: u32,
        new_term: bool,
    },
    /// See [`ringfence_core::ObjectWrite::Delete`]: with a revoke, and whether it does not wait.
    Delete(Option<bool>),
}

/// What a cluster is restored from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Where its tokens have come to.
    pub tokens: u64,
    /// The number of its next session.
    pub sessions: u64,
    /// The greatest TTL of its sessions, in milliseconds.
    pub ttl_greatest: u64,
    /// Whether it is a drill.
    pub drill: bool,
    /// What Pods held, by part.
    pub held: Vec<Vec<(u8, u8)>>,
}

/// What an entry does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the command")]
pub enum Act {
    /// Opens a term this much later than the newest one; 0 is the newest one again.
    TermStart {
        later: u64,
        unix_seconds: Option<u64>,
    },
    /// See [`ringfence_core::Command::Form`].
    Form {
        limits: Limits,
        floor: Option<u64>,
        past: Option<Past>,
    },
    /// See [`ringfence_core::Command::Seed`]; names and Pods are counted around.
    Seed { part: u8, held: Vec<(u8, u8)> },
    /// See [`ringfence_core::Command::Tick`].
    Tick,
    /// See [`ringfence_core::Command::Configure`].
    Configure {
        stale: bool,
        limits: Limits,
        ttl_max: u64,
        idle_retention: u64,
    },
    /// See [`ringfence_core::Command::Open`]; an `id` used before is a repeat or a forgery.
    Open {
        id: u8,
        forged: bool,
        /// How long ago the client saw cluster time; the end of time is in the future.
        seen_ago: Option<u64>,
        ttl: u64,
        acquire: Option<AcquireAct>,
    },
    /// See [`ringfence_core::Command::Request`].
    Request {
        by: Who,
        forged: bool,
        number: Number,
        lowest: Lowest,
        ask: AskAct,
    },
    /// See [`ringfence_core::Command::Close`].
    Close { by: Who, forged: bool },
    /// See [`ringfence_core::Command::Renew`]: the living whose bit is set, and one more.
    Renew {
        living: u8,
        also: Option<Who>,
        acknowledge: Option<(u8, Token)>,
    },
    /// See [`ringfence_core::Command::Revoke`].
    Revoke { lease: u8, token: Token, now: bool },
    /// See [`ringfence_core::Command::Evict`].
    Evict { who: Who },
    /// See [`ringfence_core::Command::DrawNodeId`].
    DrawNodeId,
    /// See [`ringfence_core::Command::RaiseLevel`].
    RaiseLevel(u32),
    /// See [`ringfence_core::Command::OpenForPod`]; one of a few Pods with two containers each.
    OpenForPod {
        id: u8,
        forged: bool,
        seen_ago: Option<u64>,
        pod: u8,
    },
    /// See [`ringfence_core::Command::PodEnded`].
    PodEnded { pod: u8 },
    /// See [`ringfence_core::Command::ChangeAccess`].
    ChangeAccess {
        stale: bool,
        foreign: bool,
        changes: Vec<AccessAct>,
    },
    /// See [`ringfence_core::Command::Adopt`].
    Adopt { by: Who, forged: bool },
    /// See [`ringfence_core::Command::Operate`].
    Operate,
    /// See [`ringfence_core::Command::WriteObject`]. A process is in one of a few Pods, or in none.
    WriteObject {
        lease: u8,
        pod: Option<u8>,
        watched: bool,
        version: Version,
        write: ObjectAct,
    },
    /// Delivers the command that was sent this many entries ago once more; from the same caller, or
    /// from one of the few principals if it says so.
    Again(u8),
}
