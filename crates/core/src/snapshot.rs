//! The whole state as a sequence of plain records, in an order that depends on the state alone.
//! How they look as bytes is none of this crate's business.

use alloc::vec::Vec;
use core::fmt;

use crate::event::{EndCause, SessionEnd};
use crate::id::{ClusterId, FencingToken, OpenId, RequestNumber, Secret, SessionId};
use crate::name::{HolderData, Identity, LeaseName};
use crate::outcome::{LostGrant, Rejection};
use crate::pod::Pod;
use crate::settings::Settings;
use crate::time::{ClusterTime, Millis, WallTime};

/// One record of a snapshot: a header first, then sessions, leases and ended sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// What there is once.
    Header(Header),
    /// A living session; in rising order of their numbers.
    Session(SessionRecord),
    /// A lease; in the order of their names.
    Lease(LeaseRecord),
    /// A session that ended within the last minute; in the order of their ends.
    Ended(EndedRecord),
}

/// What there is once in a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The cluster, once it is formed.
    pub cluster: Option<ClusterId>,
    /// Every member knows the log commands of all versions up to this one.
    pub level: u32,
    /// The token floor it was formed with.
    pub token_floor: Option<u64>,
    /// The settings in force.
    pub settings: Settings,
    /// The entry that set them.
    pub settings_set_at: u64,
    /// The newest applied entry.
    pub index: u64,
    /// The newest term that was opened.
    pub term: u64,
    /// Cluster time when it was opened.
    pub term_start: ClusterTime,
    /// Cluster time.
    pub time: ClusterTime,
    /// The greatest wall time seen.
    pub wall: WallTime,
    /// The greatest token granted, or what the counter was raised to.
    pub counter: u64,
    /// The greatest token really granted, 0 before the first.
    pub last_token: u64,
    /// The number of the next session.
    pub next_session: u64,
    /// The number of the next place in a queue.
    pub next_place: u64,
    /// The greatest floor forgotten, if any.
    pub forgotten: Option<FencingToken>,
    /// Nothing is granted before this time.
    pub quiet_until: ClusterTime,
    /// Free leases whose queue has not been served yet, in the order in which they came free.
    pub unserved: Vec<LeaseName>,
}

/// A living session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionRecord {
    /// Its number.
    pub id: SessionId,
    /// The id of the `Open` that made it.
    pub open: OpenId,
    /// Its secret.
    pub secret: Secret,
    /// Who it says it is.
    pub identity: Identity,
    /// Its TTL.
    pub ttl: Millis,
    /// Cluster time of its last keep-alive.
    pub seen: ClusterTime,
    /// When its deadline is looked at next; never later than the deadline.
    pub armed: ClusterTime,
    /// The lowest request number it remembers.
    pub lowest: RequestNumber,
    /// The answers it remembers, in rising order of their numbers.
    pub answers: Vec<Remembered>,
    /// Grants that ended against its will and that it has not acknowledged.
    pub lost: Vec<LostGrant>,
    /// The Pod that it is bound to; its TTL is [`Millis::FOREVER`] then, and only then.
    pub pod: Option<Pod>,
}

/// A remembered answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remembered {
    /// The request's number.
    pub number: RequestNumber,
    /// A fingerprint of what was asked, so that another ask under the same number is noticed.
    pub fingerprint: u64,
    /// What it was answered, as it stands now.
    pub answer: Answer,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It stands in the queue.
    Waiting {
        /// Of this lease.
        name: LeaseName,
    },
    /// It was granted, and the grant is in force.
    Granted {
        /// The lease.
        name: LeaseName,
        /// The token.
        token: FencingToken,
    },
    /// It was granted, and the grant has ended.
    Ended {
        /// The lease.
        name: LeaseName,
        /// The token.
        token: FencingToken,
        /// Why it ended.
        cause: EndCause,
    },
    /// Its wait was over.
    TimedOut {
        /// The lease.
        name: LeaseName,
    },
    /// It was taken back, or voided before it came if there is no name.
    Cancelled {
        /// The lease.
        name: Option<LeaseName>,
    },
    /// A release was done.
    Released {
        /// The token of the grant that it ended.
        token: FencingToken,
    },
    /// A transfer was done.
    Transferred {
        /// To this session.
        to: SessionId,
        /// The new token.
        token: FencingToken,
    },
    /// A cancel was done.
    CancelDone(crate::outcome::Cancelled),
    /// It was refused.
    Refused(Rejection),
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRecord {
    /// Its name.
    pub name: LeaseName,
    /// The greatest token granted for it.
    pub floor: Option<FencingToken>,
    /// The grant in force.
    pub grant: Option<GrantRecord>,
    /// Why no session is granted it although none holds it.
    pub blocked: Option<Block>,
    /// Since when no session has held it or waited for it; meaningless while one does.
    pub idle_since: ClusterTime,
    /// Below [`LEVEL_REPEATS`](crate::LEVEL_REPEATS), when it is looked at whether its block or its
    /// idle time is over; `None` from that level on, where nothing is looked at before its time.
    pub armed: Option<ClusterTime>,
    /// The token of the newest grant that an operator revoked.
    pub revoked: Option<FencingToken>,
    /// The queue, head first.
    pub queue: Vec<WaiterRecord>,
}

/// A grant in force.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantRecord {
    /// Its token.
    pub token: FencingToken,
    /// Its holder.
    pub session: SessionId,
    /// The request that was answered with it.
    pub request: RequestNumber,
    /// What the holder publishes.
    pub data: HolderData,
    /// For how long no client is granted the lease after a dirty end.
    pub lock_delay: Millis,
    /// The entry that granted it.
    pub index: u64,
    /// When, for people.
    pub since: WallTime,
}

/// Why no session is granted a lease although none holds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// The lock-delay ends here.
    pub lock_delay_until: ClusterTime,
    /// A revoked holder that may not know yet.
    pub revoked: Option<RevokedHolder>,
}

/// A revoked holder that may not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RevokedHolder {
    /// The session that held the lease.
    pub session: SessionId,
    /// The token that was revoked.
    pub token: FencingToken,
    /// From here on it cannot believe any more.
    pub until: ClusterTime,
}

/// A place in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaiterRecord {
    /// The number of the place; lower ones are served first.
    pub place: u64,
    /// Who waits.
    pub session: SessionId,
    /// The request that waits.
    pub request: RequestNumber,
    /// When the wait is over.
    pub until: ClusterTime,
    /// What the holder would publish.
    pub data: HolderData,
    /// The lock-delay of the grant to come.
    pub lock_delay: Millis,
}

/// A session that ended within the last minute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndedRecord {
    /// Its number.
    pub session: SessionId,
    /// The id of the `Open` that made it.
    pub open: OpenId,
    /// Its secret.
    pub secret: Secret,
    /// Why it ended.
    pub cause: SessionEnd,
    /// When.
    pub at: ClusterTime,
    /// The release that closed it, if one did.
    pub release: Option<ClosingRelease>,
}

/// A release that closed its session: what it takes to answer its repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClosingRelease {
    /// The request's number.
    pub number: RequestNumber,
    /// As [`Remembered::fingerprint`].
    pub fingerprint: u64,
    /// The token of the grant that it ended.
    pub token: FencingToken,
}

/// Records that do not make a state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BadSnapshot {
    /// The number of the first record that does not fit, from 0.
    pub record: u64,
    /// What is wrong with it.
    pub why: &'static str,
}

impl fmt::Display for BadSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} of the snapshot: {}", self.record, self.why)
    }
}

impl core::error::Error for BadSnapshot {}
