//! The guard of objects in S3 and its like: mark and body in one object, written under a condition.
//!
//! ```no_run
//! use object_store::aws::AmazonS3Builder;
//! use ringfence_guard::Fence;
//! use ringfence_guard::s3::{Change, S3Error, S3Guard, S3Store};
//!
//! # async fn example() -> Result<(), S3Error> {
//! let bucket = AmazonS3Builder::from_env().with_bucket_name("ledger");
//! let store = S3Store::new(bucket)?;
//! store.check().await?; // refuses a server that ignores conditions
//!
//! let fence: Fence = "bank/balance#9".parse().expect("from the lease that was granted");
//! let guard = S3Guard::new(&store, fence.name.clone(), "balances/main")?;
//!
//! // A new holder advances the mark before its first read.
//! guard.advance(&fence).await?;
//! let balance = guard.read().await?;
//!
//! // Mark and body at once, or neither.
//! let changed = balance.map_or("10".into(), |old| [&old[..], b"+10"].concat());
//! guard.admit(&fence, Change::put(changed)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! `object_store` comes without what sends requests: ask for its feature `aws` in your own `Cargo.toml`
//! (HTTPS by `reqwest`), with the version that this crate has, or give the builder a connector.
//!
//! # What is covered
//! One object, written through this guard. Its content is a head with the mark, then the body. Each
//! write replaces the object as it was read (`If-Match` with its ETag, `If-None-Match: *` if there was
//! none), so the server compares and writes in one step: what a stale holder was about to write meets
//! another ETag, and its next look at the object meets the greater mark.
//!
//! # What is not covered
//! | what | why | instead |
//! |---|---|---|
//! | a mark in the metadata or tags of an object | an ETag covers the content only: a write with equal content and another mark keeps it, so `If-Match` does not see the mark change | the head is content |
//! | objects under a prefix, with one mark for all | no request compares one object and writes another | write each version to a key of its own that is never changed, and its key through the guard: readers follow the guarded object |
//! | objects as they are, without a head | the mark has no place that a condition compares | the same |
//! | bodies above [`BODY_MAX`], multipart uploads | a new holder reads and writes the body to raise the mark | the same |
//! | writes, deletions and lifecycle rules that pass by the guard | S3 carries them out | a policy of the bucket that requires conditions (`s3:if-match`) of all but an operator; no rule of expiry for guarded keys |
//! | replicas of the bucket | they follow later | read and write one bucket; after a failover [`S3Guard::advance_to`] |
//!
//! An earlier version that is put back, by hand or in a bucket with versions, is a restore: raise the
//! mark with [`S3Guard::advance_to`] before writes are served. Versions themselves cost nothing here:
//! conditions compare the current one.
//!
//! # Which servers
//! S3, and servers that compare and write in one step and answer with strong ETags. Tested: versitygw
//! 1.8. A server that ignores the conditions is refused before the first write ([`S3Store::check`],
//! [`S3Error::Unfit`]), one without strong ETags at the first write over an object. A server that checks
//! and writes in two steps, or answers a read with the content of one version and the ETag of a later one,
//! looks like a good one; it is not fit.
//!
//! # What it costs
//! | call | requests | |
//! |---|---|---|
//! | [`S3Guard::admit`] | one PUT | if this guard wrote last; else one GET of 1 KiB more |
//! | [`S3Guard::write`] | one GET, one PUT | |
//! | [`S3Guard::advance`] | one GET, one PUT | the GET alone if the token is the mark already |
//! | [`S3Guard::mark`] | one GET of 1 KiB | |
//! | each other writer that was in the way | one GET, one PUT more | |
//! | the first write through an [`S3Store`] | two or three PUTs of 70 bytes more | |
//!
//! # The head
//! For programs in other languages. At most 1,024 bytes of UTF-8, six lines that each end with a line
//! feed, and an empty line; numbers have 19 digits:
//!
//! ```text
//! ringfence-guarded-object 1
//! lease bank/balance
//! mark 0000000000000000009
//! revision 0000000000000000003
//! body 0000000000000000012
//! writes 5f1c…32 hexadecimal digits… 09ab…
//!
//! ```
//!
//! `revision` counts the writes of the object. `body` is the length of what follows the head; the line
//! `deleted` is in its place if there is no body. `writes` are random ids, of the newest write first and
//! of up to 15 before it: by them a writer whose answer was lost finds out whether it has written.
mod base;
mod error;
mod head;
mod store;
mod write;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use object_store::path::Path;
use ringfence_core::{FencingToken, LeaseName};

use crate::{Admitted, Ceiling, Fence};

pub use crate::retries::{ATTEMPTS, PAUSE_MAX, PAUSE_MIN};
pub use error::S3Error;
pub use store::{PROBE_KEY, S3Store};

use base::Base;
use store::Part;
use write::Next;

/// The most bytes of a guarded body: 8 MiB. A new holder's [`S3Guard::advance`] reads and writes all
/// of it.
pub const BODY_MAX: u64 = 8 << 20;

/// The most bytes of a key; the limit of S3.
pub const KEY_MAX: usize = 1_024;

/// How many requests of one write may fail without an answer that says what became of it.
pub const FAILURES_MAX: u32 = 4;

/// What a guarded write makes of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The body is this from now on; at most [`BODY_MAX`] bytes.
    Put(Bytes),
    /// There is no body any more; the object stays, with the mark.
    Delete,
}

impl Change {
    /// The body is this from now on.
    pub fn put(body: impl Into<Bytes>) -> Self {
        Self::Put(body.into())
    }
}

/// A guard of one object, bound to one lease.
///
/// All that changes the object must do so through a guard; what is written past it is found by its
/// missing head, or not at all if it takes the old head along. Cloning is cheap. A guard remembers
/// what it wrote last, so its next write needs no read if no other writer came in between.
#[derive(Clone, Debug)]
pub struct S3Guard {
    store: S3Store,
    name: LeaseName,
    key: Path,
    ceiling: Ceiling,
    /// What this guard wrote or saw last; taken while a write is under way. It may be long out of
    /// date: what is written on it is written under the condition that it is not.
    known: Arc<Mutex<Option<Base>>>,
}

impl S3Guard {
    /// A guard of the object `key`, bound to `name`. Nothing is sent yet; the object need not exist.
    ///
    /// # Errors
    /// [`S3Error::InvalidKey`]: a key has 1 to [`KEY_MAX`] bytes, segments that are not empty, `.` or
    /// `..`, and no `/` at either end.
    pub fn new(store: &S3Store, name: LeaseName, key: &str) -> Result<Self, S3Error> {
        Ok(Self {
            store: store.clone(),
            name,
            key: store::path(key)?,
            ceiling: Ceiling::Clock,
            known: Arc::default(),
        })
    }

    /// Sets the greatest token that raises the mark; [`Ceiling::Clock`] unless set otherwise.
    #[must_use]
    pub const fn ceiling(mut self, ceiling: Ceiling) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// The lease this guard is bound to.
    #[must_use]
    pub const fn name(&self) -> &LeaseName {
        &self.name
    }

    /// The key of the object.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_ref()
    }

    /// Admits the fence if no greater token was admitted before, and writes mark and body together,
    /// whatever the body was. One request if this guard was the last writer, two if not.
    ///
    /// # Errors
    /// [`S3Error::Unknown`]: whether it was written is not known. After every other error nothing was;
    /// after [`Refused::StaleToken`](crate::Refused::StaleToken) the lease is lost.
    pub async fn admit(&self, fence: &Fence, change: Change) -> Result<Admitted, S3Error> {
        let make = |_: &Base| Ok(Next::Write(change.clone()));
        self.run(fence, Part::Head, self.take_known(), make).await
    }

    /// As [`S3Guard::admit`], with a change that is made of the body as it is: `None` if there is
    /// none. `make` runs again if another writer came in between, and must have no other effect. Two
    /// requests.
    ///
    /// # Errors
    /// As [`S3Guard::admit`], and what `make` returns; nothing was written then.
    pub async fn write<E: From<S3Error>>(
        &self,
        fence: &Fence,
        mut make: impl FnMut(Option<Bytes>) -> Result<Change, E>,
    ) -> Result<Admitted, E> {
        let make = |base: &Base| Ok(Next::Write(make(base.body())?));
        self.run(fence, Part::Whole, None, make).await
    }

    /// Tells the guard that `fence` is the grant in force: once it has returned, every older token
    /// is refused. A new holder calls it **before its first read** of the object. Two requests for a
    /// new token, one if the token is the mark already.
    ///
    /// # Errors
    /// As [`S3Guard::admit`]; after [`S3Error::Unknown`] advance again.
    pub async fn advance(&self, fence: &Fence) -> Result<Admitted, S3Error> {
        let raise = |base: &Base| Ok(Next::raise(base, fence.token));
        self.run(fence, Part::Whole, None, raise).await
    }

    /// Raises the mark to `floor` if it is lower; never lowers it. After a restore of the bucket or a
    /// change of the object by hand, call it with the lease's newest token before writes are served.
    /// The [`Ceiling`] does not judge it.
    ///
    /// # Errors
    /// As [`S3Guard::admit`]; never a refusal.
    pub async fn advance_to(&self, floor: FencingToken) -> Result<(), S3Error> {
        let raise = |base: &Base| Ok(Next::raise(base, floor));
        let judge = |_: &Base| Ok(());
        self.run_judged(floor, Part::Whole, None, judge, raise)
            .await
    }

    /// The body; `None` if there is none. A holder advances before its first read.
    ///
    /// # Errors
    /// [`S3Error::Store`], [`S3Error::NotGuarded`], [`S3Error::OtherLease`], [`S3Error::Damaged`],
    /// [`S3Error::TooLarge`].
    pub async fn read(&self) -> Result<Option<Bytes>, S3Error> {
        Ok(self.look(Part::Whole).await?.body())
    }

    /// The greatest token admitted so far. Advice for people: only a write decides.
    ///
    /// # Errors
    /// As [`S3Guard::read`].
    pub async fn mark(&self) -> Result<Option<FencingToken>, S3Error> {
        Ok(self.look(Part::Head).await?.mark())
    }

    fn take_known(&self) -> Option<Base> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.take()
    }

    fn remember(&self, base: Base) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(base);
    }
}
