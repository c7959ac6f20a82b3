//! A held lease whose methods block.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ringfence_core::{EndsBelief, Fence, FencingToken, LeaseName, SessionId};

use super::wait;
use crate::clock::Moment;
use crate::lease::TransferError;
use crate::lease::range::Range;
use crate::lease::term::Guarded;
use crate::session::endings::Transferred;
use crate::session::error::ReleaseError;
use crate::session::loss::Loss;
use crate::session::unsealed::UnsealedGuard;

/// A lease that this client holds, until it is released, handed over, or lost; see
/// [`crate::HeldLease`]. Dropping it releases it in the background.
#[derive(Debug)]
#[must_use = "a lease is released when it is dropped"]
pub struct HeldLease {
    inner: crate::HeldLease,
}

impl HeldLease {
    /// The name of the lease, as it was acquired.
    #[must_use]
    pub fn name(&self) -> &LeaseName {
        self.inner.name()
    }

    /// The fencing token of this grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.inner.token()
    }

    /// What a guard wants to see, `name#token` as text.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.inner.fence()
    }

    /// The session that holds it.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.inner.session()
    }

    /// What was published with the grant.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.inner.data()
    }

    /// The guards that the lease was to be sealed at and is not; see [`crate::Term::unsealed`].
    #[must_use]
    pub fn unsealed(&self) -> Arc<[UnsealedGuard]> {
        self.inner.unsealed()
    }

    /// When belief in this grant ends, unless a keep-alive is acknowledged before.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.inner.valid_until()
    }

    /// What is left until [`valid_until`](Self::valid_until); zero once the lease is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// The wall-clock range in which the lease is held; see [`crate::Term::range`].
    #[must_use]
    pub fn range(&self) -> Option<Range> {
        self.inner.range()
    }

    /// Whether the lease is held at this instant. Asks the clock each time; once it has said no it
    /// never says yes again.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.inner.is_valid()
    }

    /// Why the lease is held no more; `None` while it is held. Asks the clock each time.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.inner.loss()
    }

    /// Asks whether the lease is held at this instant, for use with `?` before each step of work.
    ///
    /// # Errors
    /// The [`Loss`], once the lease is held no more.
    pub fn ensure(&self) -> Result<(), Loss> {
        self.loss().map_or(Ok(()), Err)
    }

    /// Blocks until the lease is lost, or `timeout` has passed: then `None`.
    #[must_use]
    pub fn wait_lost(&self, timeout: Duration) -> Option<Loss> {
        let transport = Arc::clone(&self.inner.guard.session.transport);
        let until = transport.now() + timeout;
        wait(async {
            tokio::select! {
                biased;
                loss = self.inner.lost() => Some(loss),
                () = transport.sleep_until(until) => None,
            }
        })
    }

    /// Calls `tell` once when the lease is lost, released or handed over, on a thread of its own that
    /// may block: to close a connection that work hangs on, or to end the process. It is called also
    /// if this lease is dropped; [`Loss::is_own_doing`] tells the difference.
    ///
    /// # Errors
    /// The system's, if the thread cannot be started: `tell` is not called then. It is started here
    /// and not at the loss, when no caller could learn that it is missing.
    pub fn on_lost(&self, tell: impl FnOnce(Loss) + Send + 'static) -> io::Result<()> {
        let lost = self.inner.lost();
        thread::Builder::new()
            .name("ringfence-on-lost".into())
            .spawn(move || tell(wait(lost)))?;
        Ok(())
    }

    /// Runs `work` if the lease is held, and says whether it was held to its end.
    ///
    /// # Errors
    /// The [`Loss`], if the lease is lost before `work` begins or while it runs; what it has brought
    /// is dropped then, and what it has written was for a guard to judge.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Loss> {
        self.ensure()?;
        let output = work();
        self.ensure().map(|()| output)
    }

    /// Runs work that shows its fence to guards, as [`run`](Self::run) does. If it fails because a
    /// guard has seen a greater token, belief in the lease ends before this returns.
    ///
    /// # Errors
    /// [`Guarded`].
    pub fn guarded<T, E: EndsBelief>(
        &self,
        work: impl FnOnce(Fence) -> Result<T, E>,
    ) -> Result<T, Guarded<E>> {
        let fence = self.fence();
        match self.run(|| work(fence.clone())) {
            Err(loss) => Err(Guarded::Lost(loss)),
            Ok(Ok(output)) => Ok(output),
            Ok(Err(error)) => {
                if error.ends_belief_in(&fence) {
                    self.report_stale();
                }
                Err(Guarded::Failed(error))
            }
        }
    }

    /// Says that a guard refused this grant's token: the lease is lost, for ever.
    pub fn report_stale(&self) {
        self.inner.report_stale();
    }

    /// Gives the lease back. Belief ends at once, before the request leaves.
    ///
    /// # Errors
    /// See [`crate::HeldLease::release`].
    pub fn release(self) -> Result<(), ReleaseError> {
        wait(self.inner.release())
    }

    /// Hands the lease to a session that waits for it, or to the head of the queue. A lease that
    /// comes back in the error is turned into one of these with [`From`].
    ///
    /// # Errors
    /// See [`crate::HeldLease::transfer_to`].
    pub fn transfer_to(self, to: Option<SessionId>) -> Result<Transferred, TransferError> {
        wait(self.inner.transfer_to(to))
    }

    /// Stops believing in the lease without releasing it; see [`crate::HeldLease::forget`].
    pub fn forget(self) -> FencingToken {
        self.inner.forget()
    }

    /// The lease underneath, for everything that has no method here.
    pub fn as_async(&self) -> &crate::HeldLease {
        &self.inner
    }
}

impl From<crate::HeldLease> for HeldLease {
    fn from(inner: crate::HeldLease) -> Self {
        Self { inner }
    }
}
