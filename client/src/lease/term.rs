//! A term: one grant of a lease, as work sees it that does not own the lease.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ringfence_core::{EndsBelief, Fence, FencingToken, LeaseName, SessionId};

use crate::clock::{self, Moment};
use crate::lease::range::{Range, millis};
use crate::session::grant::{Belief, Grant};
use crate::session::heartbeat::Heartbeat;
use crate::session::inner::SessionInner;
use crate::session::loss::Loss;
use crate::session::unsealed::UnsealedGuard;

/// One grant of a lease to this client, from its start to its end: what work needs that runs under
/// the lease and does not give it up. [`HeldLease`](crate::HeldLease) and
/// [`Leading`](crate::Leading) have all of its methods.
///
/// Cheap to clone. It keeps neither the lease nor its session, and once it was lost it stays lost:
/// a later grant is another term with a greater token.
#[derive(Clone)]
pub struct Term {
    pub(crate) session: Arc<SessionInner>,
    pub(crate) grant: Arc<Grant>,
}

/// Why work under a lease did not succeed; see [`Term::guarded`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guarded<E> {
    /// The lease was lost, and the work was dropped or not begun.
    Lost(Loss),
    /// The work failed. If a guard refused this term's token belief in it has ended.
    Failed(E),
}

impl Term {
    /// The name of the lease, as it was acquired.
    #[must_use]
    pub fn name(&self) -> &LeaseName {
        &self.grant.name
    }

    /// The fencing token of this grant: greater than those of all grants before it.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.grant.token
    }

    /// What a guard wants to see, `name#token` as text.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence::new(self.grant.name.clone(), self.grant.token)
    }

    /// The session that holds the lease.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.grant.session
    }

    /// What was published with the grant; up to 1 KiB.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.grant.data
    }

    /// The guards that the lease was to be [sealed](crate::Seal) at and is not: empty unless the seal
    /// [goes on](crate::Seal::go_on_unsealed). Advance each before the first read of what it guards.
    #[must_use]
    pub fn unsealed(&self) -> Arc<[UnsealedGuard]> {
        self.grant.unsealed()
    }

    /// When the cluster granted it, by its wall clock, in milliseconds since the Unix epoch: for
    /// people, it decides nothing.
    #[must_use]
    pub fn granted_unix_ms(&self) -> u64 {
        self.grant.since_unix_ms
    }

    /// When belief in this grant ends, unless a keep-alive is acknowledged before. Work must have
    /// stopped by then. Once the lease is lost it stays where it was at that moment: keep-alives of
    /// the session move it no further.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.session.valid_until_of(&self.grant)
    }

    /// What is left until [`valid_until`](Self::valid_until); zero once the lease is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let valid_until = self.valid_until();
        match self.loss() {
            None => valid_until.saturating_since(self.session.transport.now()),
            Some(_) => Duration::ZERO,
        }
    }

    /// Whether the lease is held at this instant. Asks the clock each time; once it has said no it
    /// never says yes again.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.loss().is_none()
    }

    /// Why the lease is lost; `None` while it is held. Asks the clock each time.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.session.loss_of(&self.grant)
    }

    /// Completes when the lease is lost, released or handed over, with the reason. The future asks
    /// the clock whenever it is polled, and the client's own thread wakes it, so neither a starved
    /// executor nor a suspended machine makes it miss the end. The thread wakes it up to 20 ms
    /// before [`valid_until`](Self::valid_until), so that it is heard by then. It can be moved into
    /// another task.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        lost(Arc::clone(&self.session), Arc::clone(&self.grant))
    }

    /// The wall-clock range in which the lease is held, as far as is known now; `None` once it is
    /// lost. A renewal that fails leaves its end where it was.
    #[must_use]
    pub fn range(&self) -> Option<Range> {
        // The wall clock first: whatever passes between the two readings shortens the range.
        let now_unix_ms = clock::wall_micros() / 1_000;
        let range = Range {
            start_unix_ms: self.grant.since_unix_ms,
            end_unix_ms: now_unix_ms + millis(self.remaining()),
            failing_open: false,
        };
        self.is_valid().then_some(range)
    }

    /// Runs `work` until it is done or the lease is lost, whichever comes first; at loss `work` is
    /// dropped. The clock is asked before `work` is polled, each time.
    ///
    /// # Errors
    /// The [`Loss`], if it came first.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Loss> {
        let mut lost = pin!(self.lost());
        let mut work = pin!(work);
        poll_fn(|cx| {
            // The loss first, in each poll: work that was woken after the window's end must not run
            // one more step.
            if let Poll::Ready(loss) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(loss));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Runs work that shows its fence to guards, as [`run`](Self::run) does. If it fails because a
    /// guard has seen a greater token, belief in the lease ends before this returns.
    ///
    /// ```no_run
    /// # use ringfence_client::{Fence, Guarded, HeldLease, Refused};
    /// # async fn write(fence: &Fence) -> Result<u64, Refused> { Ok(1) }
    /// # async fn f(lease: HeldLease) -> Result<(), Guarded<Refused>> {
    /// let written = lease.guarded(|fence| async move { write(&fence).await }).await?;
    /// # drop(written);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Guarded`].
    pub async fn guarded<T, E, F>(&self, work: impl FnOnce(Fence) -> F) -> Result<T, Guarded<E>>
    where
        E: EndsBelief,
        F: Future<Output = Result<T, E>>,
    {
        if let Some(loss) = self.loss() {
            return Err(Guarded::Lost(loss));
        }
        let fence = self.fence();
        match self.run(work(fence.clone())).await {
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

    /// Says that a guard refused this grant's token: the lease is lost, for ever, and released.
    /// [`guarded`](Self::guarded) does this automatically.
    pub fn report_stale(&self) {
        self.session.report_stale(&self.grant);
    }

    /// Promises a sign of life at least every `limit`: a session whose holder is stuck is not
    /// renewed. The promise binds the session, so all leases that it holds.
    pub fn heartbeat(&self, limit: Duration) -> Heartbeat {
        Heartbeat::promise(Arc::clone(&self.session), limit)
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Term({}#{})", self.grant.name, self.grant.token)
    }
}

impl<E: fmt::Display> fmt::Display for Guarded<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(loss) => write!(f, "the lease was lost: {loss}"),
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

impl<E: Error + 'static> Error for Guarded<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Lost(loss) => Some(loss),
            Self::Failed(error) => error.source(),
        }
    }
}

async fn lost(session: Arc<SessionInner>, grant: Arc<Grant>) -> Loss {
    let mut belief = grant.watch();
    let mut over = pin!(async move {
        // The sender lives in the grant, which this future holds.
        belief
            .wait_for(|belief| *belief != Belief::Held)
            .await
            .map(drop)
            .ok();
    });
    poll_fn(move |cx| {
        if let Some(loss) = session.loss_of(&grant) {
            return Poll::Ready(loss);
        }
        match over.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(session.loss_of(&grant).unwrap_or(Loss::Released)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
