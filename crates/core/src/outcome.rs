//! What an entry answers: the outputs of the state machine. A refused command is an outcome like
//! any other; `apply` itself cannot fail.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::access::change::InvalidAccess;
use crate::access::principal::Principal;
use crate::access::rules::Rule;
use crate::event::{EndCause, Granted, SessionEnd};
use crate::id::{ClusterId, FencingToken, RequestNumber, SessionId};
use crate::name::{HolderData, Identity, LeaseName};
use crate::objects::object::ObjectView;
use crate::settings::InvalidSetting;
use crate::time::{ClusterTime, Millis};

/// The answer to one entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Done, and there is nothing more to say.
    Done,
    /// The session is open.
    Opened(Opened),
    /// The answer to an acquire.
    Acquired(Acquired),
    /// The answer to a cancel.
    Cancelled(Cancelled),
    /// The lease was released.
    Released {
        /// The token of the grant that ended.
        token: FencingToken,
    },
    /// The lease was handed over.
    Transferred {
        /// To this session.
        to: SessionId,
        /// The new holder's token.
        token: FencingToken,
    },
    /// The session has ended, now or earlier.
    Closed {
        /// Why; `None` if it ended so long ago that the cause is forgotten.
        cause: Option<SessionEnd>,
    },
    /// The keep-alives are acknowledged, but for the sessions listed.
    Renewed(Renewed),
    /// The node id was drawn.
    NodeId(u64),
    /// Rights were changed.
    AccessChanged {
        /// The entry that did: what the next change is based on.
        set_at: u64,
        /// The id of the new cluster token, if there is one.
        token: Option<u64>,
    },
    /// A Lease object was written, or deleted.
    Object(Box<ObjectWritten>),
    /// Refused without effect.
    Rejected(Rejection),
}

/// See [`Outcome::Object`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectWritten {
    /// As it is now; a deleted one as it was last, with the version of its deletion.
    pub object: ObjectView,
    /// The token, and the TTL that has begun, if the writer holds the lease.
    pub held: Option<(FencingToken, Millis)>,
}

/// See [`Outcome::Opened`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Opened {
    /// The session's number.
    pub session: SessionId,
    /// Its TTL.
    pub ttl: Millis,
    /// The answer to the inline acquire, if there was one.
    pub acquired: Option<Acquired>,
    /// Whether this was a repeat of an earlier `Open`.
    pub repeated: bool,
}

/// The answer to an acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Acquired {
    /// The lease is held.
    Granted(Granted),
    /// The request is in the queue; a [`crate::event::Event`] will say what became of it.
    Waiting {
        /// The lease.
        name: LeaseName,
    },
    /// The request was answered with a grant that has ended since.
    Ended {
        /// The lease.
        name: LeaseName,
        /// The token of that grant.
        token: FencingToken,
        /// Why it ended; `None` if that is forgotten.
        cause: Option<EndCause>,
    },
    /// The wait is over and brought no grant.
    TimedOut {
        /// The lease.
        name: LeaseName,
    },
    /// The request was taken back.
    Cancelled {
        /// The lease.
        name: Option<LeaseName>,
    },
    /// Refused without effect.
    Refused(Rejection),
}

/// The answer to a cancel: what became of the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cancelled {
    /// It waited, and waits no more.
    Removed,
    /// It had been granted; the lease is still held and wants a release.
    Granted {
        /// The lease.
        name: LeaseName,
        /// The token of the grant.
        token: FencingToken,
    },
    /// It was already answered otherwise, or its grant has ended.
    Settled,
    /// It never came, and if it still comes it is refused.
    Voided,
}

/// The answer to a batch of keep-alives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Renewed {
    /// Cluster time after the entry.
    pub time: ClusterTime,
    /// Sessions of the batch that are not alive, in rising order. Those that more due sessions than
    /// one entry ends have kept from their end are among them: they are still in the state.
    pub ended: Vec<SessionId>,
    /// Grants that ended against the will of a living session of the batch and that it has not
    /// acknowledged yet.
    pub lost: Vec<(SessionId, Vec<LostGrant>)>,
}

/// A grant that ended against its session's will.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LostGrant {
    /// The lease.
    pub name: LeaseName,
    /// Its token.
    pub token: FencingToken,
    /// Why it ended.
    pub cause: EndCause,
}

/// Who holds a lease, as a refusal shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The session; public, since only its secret proves anything.
    pub session: SessionId,
    /// Its identity.
    pub identity: Identity,
    /// The token of its grant.
    pub token: FencingToken,
    /// What it publishes.
    pub data: HolderData,
}

/// Why a command had no effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// The state has no cluster yet, or the term is not open yet: try again.
    NotReady,
    /// A cluster is formed once only.
    AlreadyFormed {
        /// The cluster that exists.
        cluster: ClusterId,
    },
    /// The token floor is above [`crate::settings::TOKEN_FLOOR_MAX`].
    TokenFloorTooHigh {
        /// What was offered.
        offered: u64,
    },
    /// A setting is out of range.
    InvalidSetting(InvalidSetting),
    /// The settings have changed since the ones this change was based on.
    StaleSettings {
        /// The index of the entry that set the present ones.
        set_at: u64,
    },
    /// The TTL is outside the cluster's bounds.
    InvalidTtl {
        /// What was offered.
        offered: Millis,
        /// The least that is allowed.
        min: Millis,
        /// The most that is allowed.
        max: Millis,
    },
    /// The wait is longer than [`crate::settings::WAIT_MAX`].
    InvalidWait {
        /// What was offered.
        offered: Millis,
    },
    /// The lock-delay is longer than [`crate::settings::LOCK_DELAY_MAX`].
    InvalidLockDelay {
        /// What was offered.
        offered: Millis,
    },
    /// The `Open` was under way for too long, or for longer than the container lives that it is for;
    /// it may be a late duplicate.
    OpenTooOld {
        /// The cluster time it carried.
        seen: ClusterTime,
        /// The present one.
        now: ClusterTime,
    },
    /// The session of this `Open` id has ended; or its secret is another one.
    OpenIdUsed,
    /// The session is not alive: it has ended, or there never was one with this number.
    SessionExpired {
        /// Why it ended, if that is remembered.
        cause: Option<SessionEnd>,
    },
    /// The secret is not the session's.
    WrongSecret,
    /// The request's number is below the lowest the session said it waits for.
    StaleRequest {
        /// The number offered.
        number: RequestNumber,
        /// The lowest that is remembered.
        lowest: RequestNumber,
    },
    /// The number was used before, for another request.
    RequestMismatch {
        /// The number offered.
        number: RequestNumber,
    },
    /// The request was cancelled before it came.
    RequestVoided,
    /// Too many requests of the session are unconfirmed.
    TooManyUnconfirmed {
        /// The number offered.
        number: RequestNumber,
        /// The lowest that is remembered.
        lowest: RequestNumber,
    },
    /// A session holds the lease.
    Held {
        /// Who.
        holder: Holder,
        /// Whether it is the very session that asks, under another request number.
        mine: bool,
    },
    /// No session holds the lease, but others wait for it.
    Queued {
        /// How many.
        waiters: u32,
    },
    /// The last holder's end was dirty, and its lock-delay runs.
    LockDelay {
        /// How much longer.
        remaining: Millis,
    },
    /// The last grant was revoked, and its holder may not know yet.
    Revoking {
        /// How much longer at most.
        remaining: Millis,
    },
    /// The cluster was restored, and holders of the lost one may still be working.
    QuietTime {
        /// How much longer.
        remaining: Millis,
    },
    /// The token is not that of the present grant.
    StaleToken {
        /// The lease.
        name: LeaseName,
        /// The token offered.
        offered: FencingToken,
        /// The token in force, if any, and if the principal that asks may read the lease.
        current: Option<FencingToken>,
    },
    /// The present grant with this token is another session's.
    NotHolder {
        /// The lease.
        name: LeaseName,
        /// The token offered.
        offered: FencingToken,
    },
    /// The target of a transfer does not wait for the lease; or no session does.
    NotWaiting {
        /// The lease.
        name: LeaseName,
    },
    /// A limit is reached.
    Limit(Limit),
    /// No token is left below 2^63.
    TokensExhausted,
    /// No rule allows it.
    PermissionDenied {
        /// The rule that would.
        needed: Box<Rule>,
    },
    /// The principal is banned.
    Banned {
        /// Who.
        principal: Principal,
    },
    /// The cluster token that proved the caller is not valid any more.
    TokenRevoked {
        /// The token's id.
        id: u64,
    },
    /// The session was opened by another principal.
    OtherPrincipal,
    /// Rights have changed since what this change was based on.
    StaleAccess {
        /// The entry that made the last change.
        set_at: u64,
    },
    /// A change of rights makes no sense.
    InvalidAccess(InvalidAccess),
    /// The change would take from its author the right to change rights.
    WouldLockOut,
    /// Another write of the object came first.
    ObjectChanged {
        /// Its present version; `None` if there is no object of this name.
        present: Option<u64>,
    },
    /// The candidate lost its last term and may not know yet.
    Owing {
        /// For how much longer it is refused.
        remaining: Millis,
    },
}

/// A limit that a command would have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Leases and waits of one session.
    SessionLeases(u32),
    /// Waiters of one lease.
    LeaseWaiters(u32),
    /// Lease names in the cluster.
    Leases(u64),
    /// Sessions in the cluster.
    Sessions(u64),
    /// Sessions of one principal.
    PrincipalSessions(u64),
    /// Leases and waits of one principal.
    PrincipalLeases(u64),
    /// Lease objects in the cluster.
    Objects(u64),
    /// Lease objects of one namespace.
    NamespaceObjects(u64),
    /// Lease objects of one principal.
    PrincipalObjects(u64),
}
