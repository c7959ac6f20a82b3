//! A held lease: proof that can run out.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ringfence_core::{FencingToken, LeaseName, SessionId};
use ringfence_planted::{Bug, planted};
use ringfence_proto::v1::Reason;
use tokio::sync::oneshot;

use crate::client::Client;
use crate::clock::Moment;
use crate::elector::Observer;
use crate::error::{CallError, ReleaseError};
use crate::give_up;
use crate::grant::{Belief, Grant};
use crate::liveness::Liveness;
use crate::loss::Loss;
use crate::session::Hold;
use crate::settle::{self, Work};
use crate::unsettled::What;

/// A lease that this client holds, until it is released, handed over, or lost.
///
/// Dropping it releases it in the background. It says nothing about other processes' *writes*:
/// show its [`fence`](Self::fence) to a guard inside the store.
#[must_use = "a lease is released when it is dropped"]
pub struct HeldLease {
    pub(crate) hold: Arc<Hold>,
    pub(crate) grant: Arc<Grant>,
    /// Tells of its end before a keep-alive does, and where nobody sends any.
    following: Option<Observer>,
}

/// What a hand-over brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transferred {
    /// The new holder.
    pub to: SessionId,
    /// The new holder's token.
    pub token: FencingToken,
}

/// What came of a hand-over that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The target does not wait for this lease, or nobody does. The cluster has changed nothing: the
    /// lease comes back, under the same token, unless it was named by that.
    #[error("the target does not wait for this lease, or nobody does")]
    NotWaiting {
        /// The lease, still held.
        lease: Option<HeldLease>,
    },
    /// The grant had ended before.
    #[error("the lease was lost before it was handed over: {0}")]
    Lost(Loss),
    /// The request failed. Belief in the grant has ended; it is released in the background.
    #[error(transparent)]
    Call(CallError),
}

impl HeldLease {
    pub(crate) fn new(hold: Arc<Hold>, grant: Arc<Grant>) -> Self {
        Self {
            hold,
            grant,
            following: None,
        }
    }

    /// From now on a watch tells of its end.
    pub(crate) fn follow(&mut self) {
        let client = Client {
            hub: Arc::clone(&self.hold.liveness.hub),
            tether: Arc::clone(&self.hold.tether),
        };
        let following = Observer::begin(&client, self.grant.name.clone(), drop);
        self.following = Some(following);
    }

    /// The same, if its session lasts as long as a Pod: no keep-alive would ever tell.
    pub(crate) fn follow_for_life(&mut self) {
        if self.hold.liveness.is_for_life() {
            self.follow();
        }
    }

    /// The lease's name.
    #[must_use]
    pub fn name(&self) -> &LeaseName {
        &self.grant.name
    }

    /// The fencing token of this grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.grant.token
    }

    /// What a guard wants to see: `name#token`.
    #[must_use]
    pub fn fence(&self) -> String {
        format!("{}#{}", self.grant.name, self.grant.token)
    }

    /// The session that holds it.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.grant.session
    }

    /// What was published with the grant.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.grant.data
    }

    /// When the cluster granted it, by its wall clock, in milliseconds since the Unix epoch: for
    /// people, it decides nothing.
    #[must_use]
    pub fn granted_unix_ms(&self) -> u64 {
        self.grant.since_unix_ms
    }

    /// When belief in this grant ends, unless a keep-alive is acknowledged before. Work must have
    /// stopped by then.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.hold.liveness.valid_until()
    }

    /// What is left until [`valid_until`](Self::valid_until); zero once the lease is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let valid_until = self.valid_until();
        let left = valid_until.saturating_since(self.hold.liveness.hub.now());
        if self.is_valid() {
            left
        } else {
            Duration::ZERO
        }
    }

    /// Whether the lease is held at this instant. Asks the clock each time; once it has said no it
    /// never says yes again.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.loss().is_none()
    }

    /// Why the lease is held no more; `None` while it is held. Asks the clock each time.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.hold.liveness.loss_of(&self.grant)
    }

    /// Completes when the lease is lost, released or handed over, with the reason. The future asks
    /// the clock whenever it is polled, and the client's own thread wakes it, so neither a starved
    /// executor nor a suspended machine makes it miss the end. The thread wakes it up to 20 ms
    /// before [`valid_until`](Self::valid_until), so that it is heard by then. It can be moved into
    /// another task.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        // Not the hold: watching a lease does not keep its session open.
        lost(Arc::clone(&self.hold.liveness), Arc::clone(&self.grant))
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
            if let Poll::Ready(loss) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(loss));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Says that a guard refused this grant's token: the lease is lost, for ever.
    pub fn report_stale(&self) {
        if self.grant.end(&Loss::Reported) {
            let liveness = &self.hold.liveness;
            liveness.drop_grant(self.grant.token);
            liveness
                .hub
                .unsettled
                .note_release(liveness, &self.grant.name, self.grant.token);
        }
    }

    /// Gives the lease back. Belief ends at once, before the request leaves. Dropping the future
    /// does not stop the release.
    ///
    /// # Errors
    /// [`ReleaseError`] if the grant had ended before, or the outcome is not known.
    pub async fn release(self) -> Result<(), ReleaseError> {
        if let Some(loss) = self.loss() {
            return Err(ReleaseError::Lost(loss));
        }
        let (hold, name, token) = (
            Arc::clone(&self.hold),
            self.grant.name.clone(),
            self.token(),
        );
        if planted(Bug::BeliefOutlivesRelease) {
            let answer = give_up::release(hold, name, token).await;
            self.end_belief();
            return answer;
        }
        if !self.end_belief() {
            return Err(ReleaseError::Lost(self.loss().unwrap_or(Loss::Released)));
        }
        drop(self);
        give_up::release(hold, name, token)
            .await
            .map_err(|error| match error {
                ReleaseError::Call(CallError::Refused(refusal)) => match refusal.reason {
                    Reason::StaleToken => ReleaseError::Lost(Loss::GrantEnded { cause: None }),
                    Reason::SessionExpired => {
                        ReleaseError::Lost(Loss::SessionEnded { cause: None })
                    }
                    _ => ReleaseError::Call(CallError::Refused(refusal)),
                },
                other => other,
            })
    }

    /// Hands the lease to a session that waits for it, or to the head of the queue: a new token,
    /// no gap, no overlap. Belief ends before the request leaves: [`lost`](Self::lost) completes,
    /// layers that attach the lease's fence send nothing any more, and that stays so for them if the
    /// lease comes back. Dropping the future does not stop the hand-over; if that does not succeed
    /// the lease is then released.
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn transfer_to(self, to: Option<SessionId>) -> Result<Transferred, TransferError> {
        if let Some(loss) = self.loss() {
            return Err(TransferError::Lost(loss));
        }
        if !self.end_belief() {
            return Err(TransferError::Lost(self.loss().unwrap_or(Loss::Released)));
        }
        let (reply, answer) = oneshot::channel();
        let hub = Arc::clone(&self.hold.liveness.hub);
        drop(hub.thread.spawn(async move {
            // If nobody wants the answer any more, a lease that comes back in it is released.
            drop(reply.send(self.hand_over(to).await));
        }));
        answer
            .await
            .unwrap_or_else(|_| Err(TransferError::Call(give_up::stopped())))
    }

    async fn hand_over(self, to: Option<SessionId>) -> Result<Transferred, TransferError> {
        let session = &self.hold.liveness;
        match give_up::request_transfer(session, &self.grant.name, self.grant.token, to).await {
            Ok(transferred) => Ok(transferred),
            Err(CallError::Refused(refusal)) if refusal.reason == Reason::NotWaiting => {
                let lease = Some(self.again().map_err(TransferError::Lost)?);
                Err(TransferError::NotWaiting { lease })
            }
            Err(CallError::Refused(refusal)) if refusal.reason == Reason::StaleToken => {
                Err(TransferError::Lost(Loss::GrantEnded { cause: None }))
            }
            Err(error) => {
                // If it was handed over after all, that is refused.
                self.release_in_background();
                Err(TransferError::Call(error))
            }
        }
    }

    /// The lease that a hand-over has left where it was.
    fn again(mut self) -> Result<Self, Loss> {
        let grant = self.hold.liveness.admit(self.grant.anew())?;
        Ok(Self {
            hold: Arc::clone(&self.hold),
            grant,
            following: self.following.take(),
        })
    }

    /// Stops believing in the lease without releasing it: it lives at the cluster until its
    /// session ends or somebody releases it by the token returned.
    pub fn forget(self) -> FencingToken {
        self.end_belief();
        self.grant.token
    }

    fn release_in_background(&self) {
        let liveness = &self.hold.liveness;
        let what = What::Grant(self.grant.token);
        let ending = liveness
            .hub
            .unsettled
            .begin(liveness, &self.grant.name, what);
        settle::in_background(Arc::clone(&self.hold), Work::on(ending));
    }

    /// Ends belief by this client's own doing; says whether it had not ended before. What is
    /// ended so is not released by dropping.
    fn end_belief(&self) -> bool {
        let first = self.grant.end(&Loss::Released);
        if first {
            self.hold.liveness.drop_grant(self.grant.token);
        }
        first
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        if self.end_belief() {
            self.release_in_background();
        }
    }
}

impl fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldLease({}#{})", self.grant.name, self.grant.token)
    }
}

pub(crate) async fn lost(liveness: Arc<Liveness>, grant: Arc<Grant>) -> Loss {
    let mut belief = grant.watch();
    let mut over = pin!(async move {
        // The sender lives in the grant, which this future holds.
        belief
            .wait_for(|belief| matches!(belief, Belief::Over(_)))
            .await
            .map(drop)
            .ok();
    });
    poll_fn(move |cx| {
        if let Some(loss) = liveness.loss_of(&grant) {
            return Poll::Ready(loss);
        }
        match over.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(liveness.loss_of(&grant).unwrap_or(Loss::Released)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
