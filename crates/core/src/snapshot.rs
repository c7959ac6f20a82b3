//! The whole state as a sequence of plain records, in an order that depends on the state alone.
//! How they look as bytes is none of this crate's business.

use alloc::vec::Vec;
use core::fmt;

use crate::access::AccessRecord;
use crate::access::principal::Principal;
use crate::audit::AuditRecord;
use crate::backup::BackupDigest;
use crate::id::{ClusterId, FencingToken, OpenId, RequestNumber, Secret, SessionId};
use crate::name::{HolderData, Identity, LeaseName};
use crate::objects::object::{GoneObject, LeaseObject, Owing};
use crate::outcome::LostGrant;
use crate::pod::Pod;
use crate::settings::Settings;
use crate::time::{ClusterTime, Millis, WallTime};

pub use crate::answer::{Answer, Remembered};
pub use crate::ended::{ClosingRelease, EndedRecord};
pub use crate::lease::{Block, GrantRecord, RevokedHolder};
pub use crate::tokens::TokenCounter;

/// One record of a snapshot: a header first, then sessions, leases, ended sessions, rights and acts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// Cluster-wide state.
    Header(Header),
    /// A living session; in rising order of their numbers.
    Session(SessionRecord),
    /// A lease; in the order of their names.
    Lease(LeaseRecord),
    /// A session that ended within the last minute; in the order of their ends.
    Ended(EndedRecord),
    /// A part of who may do what.
    Access(AccessRecord),
    /// An act of an operator; oldest first.
    Audit(AuditRecord),
    /// A Lease object; in the order of their names.
    Object(ObjectRecord),
    /// A deleted one; in the order of their deletions.
    GoneObject(GoneRecord),
    /// Who lost terms of a lease; in the order of the names.
    Owing(OwingRecord),
}

/// A Lease object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRecord {
    /// Its name.
    pub name: LeaseName,
    /// The object.
    pub object: LeaseObject,
}

/// A deleted Lease object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GoneRecord {
    /// The version of its deletion.
    pub version: u64,
    /// Its name.
    pub name: LeaseName,
    /// What is remembered of it.
    pub gone: GoneObject,
}

/// Who lost terms of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwingRecord {
    /// The lease.
    pub name: LeaseName,
    /// Who; the oldest first.
    pub notes: Vec<Owing>,
}

/// Cluster-wide state.
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
    /// Where the tokens have come to.
    pub tokens: TokenCounter,
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
    /// The newest version of a Lease object, 0 before the first.
    pub versions: u64,
    /// The greatest version of a deletion that is forgotten, 0 if none is.
    pub versions_forgotten: u64,
    /// The clusters that this one was restored from, the newest last; at most
    /// [`LINEAGE_MAX`](crate::LINEAGE_MAX).
    pub lineage: Vec<ClusterId>,
    /// What a restored cluster still lacks.
    pub seeding: Option<Seeding>,
    /// The newest act of an operator that is gone and was not the oldest of all, 0 if there is none.
    pub audit_dropped: u64,
}

/// How far the restoring of a cluster has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seeding {
    /// The digest of the backup.
    pub digest: BackupDigest,
    /// Of how many parts the state consists, 1 or more.
    pub parts: u32,
    /// How many of them are applied, fewer than there are.
    pub done: u32,
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
    /// Who opened it, if that was proven.
    pub owner: Option<Principal>,
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

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRecord {
    /// Its name.
    pub name: LeaseName,
    /// The greatest token granted for it.
    pub floor: Option<FencingToken>,
    /// The grant in force.
    pub grant: Option<GrantRecord>,
    /// Why it is granted to no session although none holds it.
    pub blocked: Option<Block>,
    /// Since when no session has held it or waited for it; means nothing while one does.
    pub idle_since: ClusterTime,
    /// Below [`LEVEL_REPEATS`](crate::LEVEL_REPEATS), when it is looked at whether its block or its
    /// idle time is over; `None` from that level on, where nothing is looked at before its time.
    pub armed: Option<ClusterTime>,
    /// The token of the newest grant that an operator revoked.
    pub revoked: Option<FencingToken>,
    /// For whom it counts while no session holds it, and none waits or it is blocked: the principal of
    /// the session that used it last. Below [`LEVEL_RESTORE`](crate::LEVEL_RESTORE) always `None`.
    pub kept_for: Option<Principal>,
    /// Whether its loss counts for that principal already, since it has yet to be acknowledged.
    pub kept_lost: bool,
    /// The queue, head first.
    pub queue: Vec<WaiterRecord>,
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
