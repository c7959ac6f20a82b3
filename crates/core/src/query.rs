//! What readers can ask of the state. Reading changes nothing.

use alloc::vec::Vec;

use crate::event::Granted;
use crate::id::{FencingToken, SessionId};
use crate::name::{Identity, LeaseName};
use crate::pod::Pod;
use crate::time::{ClusterTime, Millis};

/// What a token is worth at this instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The grant is in force.
    Current,
    /// A later grant of the name is known.
    Superseded {
        /// The newest token of the name.
        newest: FencingToken,
    },
    /// It was granted and has ended, or is so old that no more is known.
    Ended,
    /// It is greater than any token the cluster granted.
    Unknown,
}

/// A lease as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// Its name.
    pub name: LeaseName,
    /// The grant in force, if any.
    pub holder: Option<Granted>,
    /// The TTL of the holder's session.
    pub ttl: Millis,
    /// What is left of that session unless it is kept alive.
    pub remaining: Millis,
    /// How many wait.
    pub waiters: u32,
    /// The greatest token granted for this name, if any was.
    pub floor: Option<FencingToken>,
    /// For how long the lease is granted to no session, also if some wait.
    pub blocked: Millis,
}

/// A session as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Its number.
    pub session: SessionId,
    /// Who it says it is.
    pub identity: Identity,
    /// Its TTL.
    pub ttl: Millis,
    /// What is left of it unless it is kept alive.
    pub remaining: Millis,
    /// The leases it holds, by name.
    pub leases: Vec<(LeaseName, FencingToken)>,
    /// How many leases it waits for.
    pub waits: u32,
    /// The Pod that it is bound to; it has neither TTL nor end then.
    pub pod: Option<Pod>,
}

/// Figures about the whole state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Cluster time.
    pub time: ClusterTime,
    /// Living sessions.
    pub sessions: u64,
    /// Remembered lease names.
    pub leases: u64,
    /// Leases that are held.
    pub held: u64,
    /// Places in queues.
    pub waiters: u64,
    /// The greatest token granted, 0 before the first.
    pub last_token: u64,
    /// The greatest floor forgotten with an idle name, if any.
    pub forgotten: Option<FencingToken>,
    /// For how long nothing is granted after a restore.
    pub quiet: Millis,
    /// Every member knows the log commands of all versions up to this one.
    pub level: u32,
}
