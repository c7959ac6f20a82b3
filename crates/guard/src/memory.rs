//! The guard of something that lives in this process.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_core::{FencingToken, LeaseName};
use ringfence_planted::{Bug, planted};

use crate::{Admitted, Ceiling, Fence, Refused, Sealable, Sealing};

/// A guard in memory, bound to one lease.
///
/// # What it protects
/// * [`Guard::with`] protects its effect: the mark cannot move while the effect runs, so no effect
///   of an older grant begins after, or ends after, a newer grant was admitted.
/// * [`Guard::admit`] alone protects **nothing that happens after it returns**. It is the check of
///   an instant: the thread can be paused between the check and the effect, and a newer grant can
///   read, write and finish in between. Use it to turn stale work away early, or where the effect
///   is conditional on the token itself (an `UPDATE … WHERE mark <= token` further down).
/// * The mark dies with the process. If what it guards does not (a file, a device, another
///   service), keep the mark there; if that is impossible, call [`Guard::advance_to`] with the
///   lease's newest token before serving writes after each start.
/// * Two `Guard`s for one lease know nothing of each other: share one.
///
/// ```
/// use std::cell::Cell;
///
/// use ringfence_guard::{Fence, Guard, Refused};
///
/// let old: Fence = "db/primary#8".parse()?;
/// let new: Fence = "db/primary#9".parse()?;
/// let guard = Guard::new(old.name.clone());
/// let balance = Cell::new(100);
///
/// guard.with(&old, || balance.set(balance.get() + 1))?;
///
/// // A later grant takes over: it advances the guard before its first read.
/// guard.advance(&new)?;
/// let read = balance.get();
///
/// // The old holder wakes up in the middle of that and is rejected.
/// let refused = guard.with(&old, || balance.set(0)).unwrap_err();
/// assert!(matches!(refused, Refused::StaleToken { .. }));
///
/// guard.with(&new, || balance.set(read + 10))?;
/// assert_eq!(balance.get(), 111);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Guard {
    name: LeaseName,
    ceiling: Ceiling,
    /// The greatest token admitted; 0 before the first. It only grows, and only with `effects`
    /// locked, so that it stands still while an effect runs.
    mark: AtomicU64,
    /// Held while an effect runs and while the mark moves. It guards no data, so a panic in an
    /// effect leaves nothing half-done here and its poison is ignored.
    effects: Mutex<()>,
}

impl Guard {
    /// A guard of `name` that has admitted nothing yet.
    #[must_use]
    pub const fn new(name: LeaseName) -> Self {
        Self {
            name,
            ceiling: Ceiling::Clock,
            mark: AtomicU64::new(0),
            effects: Mutex::new(()),
        }
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

    /// The greatest token admitted so far.
    #[must_use]
    pub fn mark(&self) -> Option<FencingToken> {
        FencingToken::new(self.mark.load(Ordering::Acquire))
    }

    /// Admits the fence if no greater token was admitted before, and raises the mark to it.
    ///
    /// The check of an instant; see the type's documentation for what it does not protect. With
    /// the mark's own token it takes no lock and writes nothing; with a greater one it waits for a
    /// running effect of [`Guard::with`].
    ///
    /// # Errors
    /// [`Refused::WrongLease`]; [`Refused::StaleToken`]: the caller has lost its lease and must
    /// stop; [`Refused::TokenTooHigh`].
    pub fn admit(&self, fence: &Fence) -> Result<Admitted, Refused> {
        fence.check_lease(&self.name)?;
        let offered = fence.token.get();
        let mark = self.mark.load(Ordering::Acquire);
        if offered == mark {
            return Ok(Admitted::new(fence.token));
        }
        if offered < mark {
            return Err(self.stale(fence.token, mark));
        }
        let _effects = self.lock();
        self.raise(fence)
    }

    /// Tells the guard that `fence` is the grant in force: from here on every older token is
    /// refused. A new holder calls it **before its first read** of what is guarded; otherwise the
    /// old holder could still write between that read and the write that builds on it.
    ///
    /// Waits for a running effect of an older grant. Advancing twice changes nothing.
    ///
    /// # Errors
    /// As [`Guard::admit`].
    pub fn advance(&self, fence: &Fence) -> Result<Admitted, Refused> {
        self.admit(fence)
    }

    /// Raises the mark to `floor` if it is lower; never lowers it. After a restore of what is
    /// guarded, call it with the lease's newest token before writes are served. The [`Ceiling`] does
    /// not judge it: the floor comes from the cluster, not from a caller.
    pub fn advance_to(&self, floor: FencingToken) {
        let _effects = self.lock();
        if self.mark.load(Ordering::Acquire) < floor.get() || planted(Bug::FloorLowersMark) {
            self.mark.store(floor.get(), Ordering::Release);
        }
    }

    /// Admits the fence and runs `effect` while the mark is held: until `effect` returns, no newer
    /// grant is admitted and none of the older ones runs.
    ///
    /// Effects run one at a time. A newer grant waits for a running one, so keep effects short and
    /// never wait in them. Calling this guard inside an effect with a greater token, or calling
    /// `with` again, deadlocks.
    ///
    /// # Errors
    /// As [`Guard::admit`]; `effect` was not run then.
    pub fn with<R>(&self, fence: &Fence, effect: impl FnOnce() -> R) -> Result<R, Refused> {
        fence.check_lease(&self.name)?;
        let effects = self.lock();
        self.raise(fence)?;
        if planted(Bug::EffectAfterTheCheck) {
            drop(effects);
            return Ok(effect());
        }
        Ok(effect())
    }

    /// Only with `effects` locked.
    fn raise(&self, fence: &Fence) -> Result<Admitted, Refused> {
        let offered = fence.token;
        let before = self.mark.load(Ordering::Acquire);
        if before > offered.get() {
            return Err(self.stale(offered, before));
        }
        // Its writer has the lock, so nothing can come between, and writing an equal mark
        // would give no reader anything new.
        if before < offered.get() {
            self.ceiling.judge(fence, FencingToken::new(before))?;
            self.mark.store(offered.get(), Ordering::Release);
        }
        Ok(Admitted::new(offered))
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn stale(&self, offered: FencingToken, mark: u64) -> Refused {
        // A mark above an offered token is not 0, and only tokens are ever stored.
        let mark = FencingToken::new(mark).unwrap_or(offered);
        Refused::StaleToken {
            name: self.name.clone(),
            offered,
            mark,
        }
    }
}

/// What it guards ends with the process, and so does its mark: no failover takes it back.
impl Sealable for Guard {
    fn label(&self) -> &str {
        self.name.as_str()
    }

    fn seal<'a>(&'a self, fence: &'a Fence) -> Sealing<'a> {
        Box::pin(async move { self.advance(fence).into() })
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name)
            .field("mark", &self.mark())
            .finish_non_exhaustive()
    }
}
