//! What an entry changed, for those who watch.

use alloc::string::String;

use crate::id::{FencingToken, RequestNumber, SessionId};
use crate::name::{HolderData, Identity, LeaseName};
use crate::pod::{PodSeen, PodUid};
use crate::time::WallTime;

/// Why a grant ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EndCause {
    /// Its holder released it.
    Released,
    /// Its holder's session ran out of time.
    Expired,
    /// Its holder closed the session.
    Closed,
    /// An operator revoked it.
    Revoked {
        /// Who.
        operator: String,
        /// Why.
        reason: String,
    },
    /// An operator ended the holder's session.
    Evicted {
        /// Who.
        operator: String,
        /// Why.
        reason: String,
    },
    /// Its holder handed it over.
    Transferred {
        /// To this session.
        to: SessionId,
    },
    /// The Pod that its holder's session was bound to is over.
    PodEnded {
        /// The Pod.
        uid: PodUid,
        /// What was seen of it.
        seen: PodSeen,
    },
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SessionEnd {
    /// Its client closed it.
    Closed,
    /// It ran out of time.
    Expired,
    /// An operator ended it.
    Evicted {
        /// Who.
        operator: String,
        /// Why.
        reason: String,
    },
    /// The Pod that it was bound to is over.
    PodEnded {
        /// The Pod.
        uid: PodUid,
        /// What was seen of it.
        seen: PodSeen,
    },
}

/// Why a place in a queue ended without a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitEnd {
    /// Its wait was over.
    TimedOut,
    /// Its session took it back.
    Cancelled,
    /// Its session ended.
    SessionEnded,
    /// Its session's principal may not have the lease any more.
    Refused,
}

/// A grant: what an entry gives to a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    /// The lease.
    pub name: LeaseName,
    /// The new token.
    pub token: FencingToken,
    /// The holder.
    pub session: SessionId,
    /// The holder's identity.
    pub identity: Identity,
    /// What the holder publishes.
    pub data: HolderData,
    /// The request that is answered with it.
    pub request: RequestNumber,
    /// The index of the entry that granted it.
    pub index: u64,
    /// When, for people.
    pub since: WallTime,
}

/// A change that an entry made. The position of an event is its entry's index and its place among
/// that entry's events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A lease was granted.
    Granted(Granted),
    /// A grant ended.
    Ended {
        /// The lease.
        name: LeaseName,
        /// The token of the grant.
        token: FencingToken,
        /// Whose grant it was.
        session: SessionId,
        /// Its holder's identity.
        identity: Identity,
        /// Why.
        cause: EndCause,
        /// When, for people.
        at: WallTime,
    },
    /// A wait ended without a grant.
    WaitEnded {
        /// The lease.
        name: LeaseName,
        /// The waiting session.
        session: SessionId,
        /// The request that waited.
        request: RequestNumber,
        /// Why.
        why: WaitEnd,
    },
    /// A session was opened.
    SessionOpened {
        /// The session.
        session: SessionId,
    },
    /// A session ended.
    SessionEnded {
        /// The session.
        session: SessionId,
        /// Why.
        cause: SessionEnd,
    },
    /// An idle name was forgotten with its floor.
    Forgotten {
        /// The name.
        name: LeaseName,
        /// Its floor.
        floor: FencingToken,
    },
}
