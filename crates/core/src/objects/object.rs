//! What an object, and a deleted one, consist of.

use alloc::sync::Arc;

use crate::access::principal::Principal;
use crate::id::{FencingToken, SessionId};
use crate::name::{Identity, InvalidText, LeaseName};
use crate::pod::{Pod, PodUid};
use crate::time::{ClusterTime, WallTime};

/// The most bytes of labels, annotations and owners of one object, as the endpoint encodes them.
pub const OBJECT_METADATA_BYTES_MAX: usize = 4 << 10;
/// The most objects of a cluster; of those that go when their leases are free see
/// [`NAMESPACE_OBJECTS_MAX`].
pub const OBJECTS_MAX: u64 = 100_000;
/// The most objects whose names have the same first two segments, `k8s/NAMESPACE`.
///
/// Written ones do not count those that go when their leases are free, or sessions would leave no room
/// for them; such an object is made while there are fewer of both kinds than this.
pub const NAMESPACE_OBJECTS_MAX: u64 = 10_000;
/// The most objects of one principal, where rights bind; those that go when their leases are free are
/// left out.
pub const PRINCIPAL_OBJECTS_MAX: u64 = 2_500;
/// The most deleted objects that are remembered, for watches that go on behind them.
pub const GONE_OBJECTS_MAX: u64 = 10_000;
/// The most candidates of one name that owe the end of their term.
pub const OWING_MAX: usize = 64;
/// The most candidates of all names that owe the end of their term.
pub const OWING_TOTAL_MAX: usize = 100_000;

/// Labels, annotations and owners of an object: bytes that mean nothing here.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct ObjectMetadata(Option<Arc<[u8]>>);

impl ObjectMetadata {
    /// Metadata of these bytes; none at all is fine.
    ///
    /// # Errors
    /// [`InvalidText::TooLong`] above [`OBJECT_METADATA_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidText> {
        if bytes.len() > OBJECT_METADATA_BYTES_MAX {
            return Err(InvalidText::TooLong {
                bytes: bytes.len(),
                max: OBJECT_METADATA_BYTES_MAX,
            });
        }
        Ok(Self((!bytes.is_empty()).then(|| Arc::from(bytes))))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// Which process writes an object, as far as that was proven.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Candidate {
    /// The principal; `None` while nothing is proven.
    pub principal: Option<Principal>,
    /// The Pod that its token was made for. Without one, several processes may be behind the
    /// principal.
    pub pod: Option<PodUid>,
}

impl Candidate {
    /// Whether both are one process, as far as that was proven. Principals are compared where rights
    /// bind.
    pub(super) fn is(&self, other: &Self, binds: bool) -> bool {
        self.pod == other.pod && (self.principal == other.principal || !binds)
    }

    /// Whether nothing at all was proven of it.
    pub(super) fn is_unproven(&self) -> bool {
        self.principal.is_none() && self.pod.is_none()
    }
}

/// The grant of an object that was made through the endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// Its token.
    pub token: FencingToken,
    /// The session that was opened for it.
    pub session: SessionId,
    /// Who alone may renew and release it.
    pub candidate: Candidate,
    /// The Pod whose end ends it, once a leader has seen that; `None` if no leader watches it.
    pub pod: Option<Pod>,
}

/// A candidate that lost a term against its will, and may not know yet. One that slept is not granted
/// a second term inside its first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owing {
    /// As it called itself.
    pub identity: Identity,
    /// Who it was.
    pub candidate: Candidate,
    /// The version that its loss gave the object; no other note has it.
    pub lost: u64,
    /// Set by its next write, which is refused: from here on it is granted a term again.
    pub until: Option<ClusterTime>,
}

/// A Lease object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseObject {
    /// Raised by each change of it, and no other object's.
    pub version: u64,
    /// The version it was made with, which no other object ever has.
    pub created: u64,
    /// When, for people.
    pub created_at: WallTime,
    /// Labels, annotations and owners.
    pub metadata: ObjectMetadata,
    /// The duration that the last holder asked for, in seconds; 0 before the first.
    pub seconds: u32,
    /// When the last grant was made, for people; 0 before the first.
    pub acquired: WallTime,
    /// When its holder was last heard, for people. Keep-alives of a session do not change the objects
    /// of what it holds: readers see this time moved by as much as the session was heard since.
    pub renewed: WallTime,
    /// Cluster time of `renewed`.
    pub heard: ClusterTime,
    /// How many grants came after the first one.
    pub transitions: u32,
    /// The grant in force, if it was made through the endpoint.
    pub term: Option<Term>,
    /// Made for a lease that a session acquired, and not written since: it goes when the lease is free.
    pub native: bool,
    /// Who wrote it first: it counts for that principal until it is deleted. `None` if nothing was
    /// proven and rights did not bind, and of what was there before
    /// [`LEVEL_RESTORE`](crate::LEVEL_RESTORE).
    pub owner: Option<Principal>,
}

impl LeaseObject {
    /// Whether a write with this metadata makes it stay that would go otherwise. One whose lease is free
    /// goes at the end of this very entry.
    pub(super) fn is_stayed_by(&self, metadata: &ObjectMetadata, free: bool) -> bool {
        self.native && (self.metadata != *metadata || free)
    }

    /// It is written: it stays when the lease is free, and counts for its writer from now on.
    pub(super) fn stay(&mut self, writer: Option<Principal>) {
        if self.native {
            self.native = false;
            self.owner = writer;
        }
    }
}

/// What readers see of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectView {
    /// Its name.
    pub name: LeaseName,
    /// See [`LeaseObject::version`].
    pub version: u64,
    /// See [`LeaseObject::created`].
    pub created: u64,
    /// See [`LeaseObject::created_at`].
    pub created_at: WallTime,
    /// See [`LeaseObject::metadata`].
    pub metadata: ObjectMetadata,
    /// Who holds the lease, and its token.
    pub holder: Option<(Identity, FencingToken)>,
    /// See [`LeaseObject::seconds`].
    pub seconds: u32,
    /// See [`LeaseObject::acquired`].
    pub acquired: WallTime,
    /// See [`LeaseObject::renewed`].
    pub renewed: WallTime,
    /// See [`LeaseObject::transitions`].
    pub transitions: u32,
}

/// A deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GoneObject {
    /// The version it was made with.
    pub created: u64,
    /// When, for people.
    pub created_at: WallTime,
}
