//! Operations: what clients asked the cluster, and what they received.

use serde::{Deserialize, Serialize};

/// A client began an operation. All tries of one operation, on whatever connection, are one
/// `invoked`, written before the first try left.
///
/// A recorder that sees tries singly may write an operation for each: those with the same session
/// and request number, or the same `open_id`, are taken for tries of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invoked {
    /// The operation's number, unique within the history.
    pub id: u64,
    /// When, in ns: not after the first byte of the first try left.
    pub t: u64,
    /// The client's number, as its recorder chose it.
    pub client: u32,
    /// In which session; none for `open`, for reads, and for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The session's number for the request, if it has one and the recorder knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<u64>,
    /// The request, with its arguments.
    pub op: Op,
}

/// What can be asked. Reads are linearizable ones; one that may be stale is not written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// Opens a session, if wanted together with its first acquire.
    Open {
        /// Its TTL in milliseconds.
        ttl_ms: u64,
        /// The client's 128-bit name for it in hexadecimal, if the recorder knows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        open_id: Option<String>,
        /// A lease to acquire in the same step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        acquire: Option<Acquire>,
    },
    /// Asks for a lease.
    Acquire(Acquire),
    /// Takes an earlier request back.
    Cancel {
        /// The number of that request.
        request: u64,
    },
    /// Gives a lease back.
    Release {
        /// Name of the lease.
        lease: String,
        /// The token of the grant.
        token: u64,
        /// Whether the session is closed with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        close: bool,
    },
    /// Hands a lease over to a waiter.
    Transfer {
        /// Name of the lease.
        lease: String,
        /// The token of the grant.
        token: u64,
        /// To which session; the head of the queue if left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<u64>,
    },
    /// Closes the session that sends it, and ends all its grants.
    Close,
    /// Asks what a token is worth.
    Check {
        /// Name of the lease.
        lease: String,
        /// The fencing token that is asked about.
        token: u64,
    },
    /// Asks who holds a lease.
    Get {
        /// Name of the lease.
        lease: String,
    },
    /// Ends a grant at an operator's wish.
    Revoke {
        /// Name of the lease.
        lease: String,
        /// The token of the grant.
        token: u64,
        /// Whether the next grant need not wait until the old holder knows; beliefs in the grant
        /// are then not checked for overlap.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        now: bool,
    },
    /// Ends a session at an operator's wish.
    Evict {
        /// Number of the session.
        session: u64,
    },
}

/// The arguments of [`Op::Acquire`] and of an acquire inside [`Op::Open`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acquire {
    /// Name of the lease.
    pub lease: String,
    /// How long to stand in the queue, in milliseconds of cluster time; left out means not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// For how long no client is granted it after a dirty end of this grant, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lock_delay_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// An operation ended, as its client sees it. One that never returned has no such record and counts
/// as [`Outcome::Unknown`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Returned {
    /// The [`Invoked::id`] of the operation.
    pub id: u64,
    /// When, in ns: not before the last byte of the answer came.
    pub t: u64,
    /// What the client received, or that it is unknown.
    pub outcome: Outcome,
    /// The log index of the entry that answered it, if the client learned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
}

/// How an operation ended. What is not [`Outcome::Unknown`] or [`Outcome::NotDone`] is the answer of
/// an applied entry, or of a linearizable read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// Done, and there is no more to say: `revoke`.
    Done,
    /// `open`: the session is open.
    Opened {
        /// Number of the new session.
        session: u64,
        /// Its TTL in milliseconds.
        ttl_ms: u64,
        /// What became of the inline acquire, at last: `waiting` is not final.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        acquired: Option<Box<Outcome>>,
    },
    /// `acquire`: the lease is held.
    Granted {
        /// The fencing token of the grant.
        token: u64,
    },
    /// `acquire`: it was granted and has ended since.
    Ended {
        /// The fencing token of the grant.
        token: u64,
    },
    /// `acquire`: the wait brought no grant.
    TimedOut,
    /// `acquire`: it was taken back.
    Cancelled,
    /// `cancel`: it waited, and waits no more.
    Removed,
    /// `cancel`: it has been granted, and the grant is in force.
    StillGranted {
        /// Name of the lease.
        lease: String,
        /// The fencing token of the grant.
        token: u64,
    },
    /// `cancel`: it was answered otherwise, or its grant has ended.
    Settled,
    /// `cancel`: it never came, and will be refused.
    Voided,
    /// `release`: the grant has ended.
    Released,
    /// `transfer`: the lease is another's.
    Transferred {
        /// The new holder's session.
        to: u64,
        /// The new holder's token.
        token: u64,
    },
    /// `close`, `evict`: the session has ended, now or earlier.
    Closed,
    /// `acquire`: a session holds it.
    Held {
        /// Session of the current holder.
        session: u64,
        /// Fencing token of the current grant.
        token: u64,
        /// Whether that is the session that asks, under another request number.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        mine: bool,
    },
    /// `acquire`: no session holds it, but others wait.
    Queued {
        /// How many, if that was reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waiters: Option<u32>,
    },
    /// `acquire`: no session holds it, and none may yet.
    Blocked(Block),
    /// `release`, `transfer`, `revoke`: this is not the grant in force.
    StaleToken {
        /// The token in force, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        current: Option<u64>,
    },
    /// `release`, `transfer`: the grant in force is another session's.
    NotHolder,
    /// `transfer`: the target does not wait for the lease, or no session does.
    NotWaiting,
    /// Any: the session has ended, or there never was one.
    SessionExpired,
    /// `check`: what the token is worth.
    Checked(Checked),
    /// `get`: who holds the lease; all empty if none does.
    Lease {
        /// Session of the current holder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u64>,
        /// Fencing token of the current grant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<u64>,
        /// Length of the queue, if it was reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waiters: Option<u32>,
    },
    /// Refused by an applied entry for another reason, without effect; only `STALE_REQUEST` leaves
    /// open what an earlier try did.
    Refused {
        /// The reason as the protocol names it, such as `STALE_REQUEST` or `LIMIT_EXCEEDED`.
        reason: String,
    },
    /// Unknown: it may have taken effect, may still, or never will.
    Unknown {
        /// What was heard instead of an answer.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        error: String,
    },
    /// The cluster said that it was not done, and never will be.
    NotDone {
        /// The reason as the protocol names it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        error: String,
    },
}

/// Why no session may hold a free lease yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// The lock-delay of a dirty end runs.
    LockDelay,
    /// The last grant was revoked, and its holder may not know.
    Revoking,
    /// The cluster was restored.
    QuietTime,
}

/// What a token is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checked {
    /// The grant is in force.
    Current,
    /// A later grant of the name is known: the newest one.
    Superseded(u64),
    /// It has ended, or no more is known of it.
    Ended,
    /// It is greater than any that was granted.
    Unknown,
}

/// A client learned that its acquire stands in the queue; the operation goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queued {
    /// The [`Invoked::id`] of the operation.
    pub id: u64,
    /// When the client learned it, in ns.
    pub t: u64,
}
