//! The guard of data in sled 1.0: mark and data change in one batch.
//!
//! sled has no transactions, and nothing that is atomic over two trees. So marks and data share one
//! tree under different prefixes, the check happens under a lock of this process, and both go into
//! one batch, which sled applies wholly or not at all, also across a crash. A sled directory is
//! open in one process at a time, which makes that lock enough.
//!
//! ```
//! use ringfence_guard::Fence;
//! use ringfence_guard::sled::{Changes, SledStore};
//!
//! # let directory = tempfile::tempdir()?;
//! let store = SledStore::open(directory.path())?;
//! let old: Fence = "bank/balance#8".parse()?;
//! let new: Fence = "bank/balance#9".parse()?;
//! let guard = store.guard(old.name.clone());
//!
//! guard.admit(&old, Changes::new().insert("balance", "100"))?;
//!
//! // A new holder advances the mark before its first read.
//! guard.advance(&new)?;
//! assert_eq!(store.get("balance")?.as_deref(), Some(&b"100"[..]));
//!
//! let refused = guard.admit(&old, Changes::new().insert("balance", "0")).unwrap_err();
//! assert_eq!(refused.refused().map(|why| why.reason()), Some("STALE_TOKEN"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::sled::Batch;
use ringfence_core::{FencingToken, LeaseName};

use crate::{Admitted, Ceiling, EndsBelief, Fence, Refused};

/// The database as it is opened here: the leaf fan-out is part of its type and of its files.
pub type Db = ::sled::Db<1024>;

/// What comes before a lease name in the key of its mark.
const MARK_PREFIX: u8 = b'm';
/// What comes before the keys of the data.
const DATA_PREFIX: u8 = b'd';

/// A sled directory whose data is written through guards only. Clones share it; a thread that
/// works on it has a clone of its own, as sled wants it.
#[derive(Clone)]
pub struct SledStore {
    db: Db,
    /// Held from the check of a mark until mark and data are on disk. It guards no data of its
    /// own, so its poison is ignored.
    checking: Arc<Mutex<()>>,
}

/// A guard whose mark is a key beside the data, bound to one lease. Clones share it.
#[derive(Clone)]
pub struct SledGuard {
    name: LeaseName,
    ceiling: Ceiling,
    store: SledStore,
}

/// The changes of one guarded write, applied together. Of several to one key the last counts.
#[derive(Clone, Default)]
#[must_use = "changes do nothing until a guard admits them"]
pub struct Changes {
    batch: Batch,
}

/// Why a call of [`SledGuard`] or [`SledStore`] did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SledError {
    /// The guard refused the fence; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A mark is not 8 bytes long or out of range: something else writes this directory.
    #[error("the mark of lease `{name}` is damaged; advance it to the lease's newest token")]
    DamagedMark {
        /// The lease.
        name: LeaseName,
    },
    /// sled failed. If it was during a write, the write may or may not be there after a restart.
    #[error("the database failed")]
    Database(#[from] io::Error),
}

impl SledError {
    /// The guard's refusal, if it is one.
    #[must_use]
    pub const fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::DamagedMark { .. } | Self::Database(_) => None,
        }
    }
}

/// So that a client ends belief in a lease whose fence the store rejects as stale.
impl EndsBelief for SledError {
    fn refused(&self) -> Option<&Refused> {
        Self::refused(self)
    }
}

impl Changes {
    /// No change yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn insert(mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.batch
            .insert(prefixed(DATA_PREFIX, key.as_ref()), value.as_ref());
        self
    }

    /// Removes `key`. The mark stays.
    pub fn remove(mut self, key: impl AsRef<[u8]>) -> Self {
        self.batch.remove(prefixed(DATA_PREFIX, key.as_ref()));
        self
    }
}

impl SledStore {
    /// Opens the directory, or creates it. Nothing is flushed in the background, since every
    /// guarded write flushes itself.
    ///
    /// # Errors
    /// [`SledError::Database`], also if the directory is open elsewhere.
    pub fn open(directory: &Path) -> Result<Self, SledError> {
        Self::open_with(&::sled::Config::new().path(directory).flush_every_ms(None))
    }

    /// Opens with a configuration of one's own.
    ///
    /// # Errors
    /// As [`SledStore::open`].
    pub fn open_with(config: &::sled::Config) -> Result<Self, SledError> {
        let db = config.open()?;
        Ok(Self {
            db,
            checking: Arc::default(),
        })
    }

    /// A guard bound to `name`. All guards of one lease share its mark.
    #[must_use]
    pub fn guard(&self, name: LeaseName) -> SledGuard {
        SledGuard {
            name,
            ceiling: Ceiling::default(),
            store: self.clone(),
        }
    }

    /// The value of `key`. A holder that builds a write on it calls [`SledGuard::advance`] before.
    ///
    /// # Errors
    /// [`SledError::Database`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, SledError> {
        let value = self.db.get(prefixed(DATA_PREFIX, key.as_ref()))?;
        Ok(value.map(|value| value.to_vec()))
    }
}

impl SledGuard {
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

    /// Admits the fence if no greater token was admitted before, and applies `changes` together
    /// with the mark. Durable once it has returned.
    ///
    /// # Errors
    /// [`SledError::Refused`]: nothing was written; after [`Refused::StaleToken`] the lease is
    /// lost. [`SledError::Database`]: whether it was written is not known.
    pub fn admit(&self, fence: &Fence, changes: Changes) -> Result<Admitted, SledError> {
        self.raise(fence, changes.batch)?;
        Ok(Admitted::new(fence.token))
    }

    /// Tells the guard that `fence` is the grant in force: once it has returned, every older token
    /// is refused. A new holder calls it **before its first read** of what is guarded. Advancing
    /// twice changes nothing.
    ///
    /// # Errors
    /// As [`SledGuard::admit`].
    pub fn advance(&self, fence: &Fence) -> Result<Admitted, SledError> {
        self.admit(fence, Changes::new())
    }

    /// Raises the mark to `floor` if it is lower, and repairs a damaged one; never lowers it. After
    /// a restore of the directory, call it with the lease's newest token before writes are served.
    /// The [`Ceiling`] does not judge it.
    ///
    /// # Errors
    /// [`SledError::Database`].
    pub fn advance_to(&self, floor: FencingToken) -> Result<(), SledError> {
        let held = self.hold();
        match self.mark() {
            Ok(Some(mark)) if mark >= floor => Ok(()),
            Ok(_) | Err(SledError::DamagedMark { .. }) => {
                self.apply(&held, floor, Batch::default())
            }
            Err(error) => Err(error),
        }
    }

    /// The greatest token admitted so far. Advice for an early check: only [`SledGuard::admit`]
    /// decides.
    ///
    /// # Errors
    /// [`SledError::DamagedMark`] or [`SledError::Database`].
    pub fn mark(&self) -> Result<Option<FencingToken>, SledError> {
        let Some(bytes) = self.store.db.get(self.mark_key())? else {
            return Ok(None);
        };
        let value = <[u8; 8]>::try_from(&*bytes).ok().map(u64::from_be_bytes);
        match value.and_then(FencingToken::new) {
            Some(mark) => Ok(Some(mark)),
            None => Err(SledError::DamagedMark {
                name: self.name.clone(),
            }),
        }
    }

    fn raise(&self, fence: &Fence, batch: Batch) -> Result<(), SledError> {
        let held = self.hold();
        let mark = self.mark()?;
        let raised = fence.judge(&self.name, mark)?;
        self.ceiling.judge(fence, mark)?;
        self.apply(&held, raised, batch)
    }

    /// Keeps every other guard of this store from checking a mark.
    fn hold(&self) -> MutexGuard<'_, ()> {
        self.store
            .checking
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Mark and data in one batch, then on disk. The flush belongs under the lock of the check: a
    /// newer grant must not read what a crash could still take back.
    fn apply(
        &self,
        _held: &MutexGuard<'_, ()>,
        token: FencingToken,
        mut batch: Batch,
    ) -> Result<(), SledError> {
        batch.insert(self.mark_key(), token.get().to_be_bytes().as_slice());
        self.store.db.apply_batch(batch)?;
        self.store.db.flush()?;
        Ok(())
    }

    fn mark_key(&self) -> Vec<u8> {
        prefixed(MARK_PREFIX, self.name.as_str().as_bytes())
    }
}

fn prefixed(prefix: u8, key: &[u8]) -> Vec<u8> {
    [&[prefix], key].concat()
}
