//! A held lease: proof that can run out.
//!
//! `acquire` asks for one under a session, `open_and_acquire` together with a session, and `lock` until it
//! is granted. `sealing` raises the marks of the guards of a `seal` before it is held. A `term` is what work sees of a held lease; `working` delays the news of its loss,
//! `range` is its time by the wall clock. `by_token` gives leases up without holding them, `reading`
//! asks and watches, `identity` says who holds.

pub(crate) mod acquire;
pub(crate) mod by_token;
pub(crate) mod identity;
pub(crate) mod lock;
pub(crate) mod open_and_acquire;
pub(crate) mod range;
pub(crate) mod reading;
pub(crate) mod seal;
pub(crate) mod sealing;
pub(crate) mod term;
pub(crate) mod working;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use ringfence_core::{FencingToken, SessionId};
use ringfence_planted::{Bug, planted};
use tokio::sync::oneshot;

use crate::lease::term::Term;
use crate::session::SessionGuard;
use crate::session::endings::{self, EndTarget, Transferred};
use crate::session::error::ReleaseError;
use crate::session::grant::Grant;
use crate::session::loss::Loss;
use crate::transport::error::CallError;
use crate::transport::refusal::Reason;
use crate::watch::observer::Observer;

/// A lease that this client holds, until it is released, handed over, or lost. What can be asked of
/// it, and work that runs under it, are methods of its [`Term`].
///
/// Dropping it releases it in the background. It says nothing about other processes' *writes*:
/// show its [`fence`](Term::fence) to a guard inside the store, by [`guarded`](Term::guarded) for
/// example.
#[must_use = "a lease is released when it is dropped"]
pub struct HeldLease {
    pub(crate) guard: Arc<SessionGuard>,
    term: Term,
    /// Tells of its end before a keep-alive does, and where no task sends any.
    observer: Option<Observer>,
}

/// What came of a hand-over that did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The target does not wait for this lease, or no client does. The cluster has changed nothing:
    /// the lease comes back, under the same token, unless it was named by that.
    #[error("the target does not wait for this lease, or no session does")]
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
    pub(crate) fn new(guard: Arc<SessionGuard>, grant: Arc<Grant>) -> Self {
        let session = Arc::clone(&guard.session);
        Self {
            guard,
            term: Term { session, grant },
            observer: None,
        }
    }

    /// The lease without the right to give it up, for work that runs elsewhere. It keeps nothing
    /// open: once this is dropped, the term is over.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term.clone()
    }

    /// From now on a watch reports its end. A watch that runs already has reported what went before:
    /// if this grant is not among what it knows to be in force, the cluster is asked.
    pub(crate) fn watch_for_loss(&mut self) {
        let client = &self.guard.client;
        let observer = client.observe(self.term.grant.name.clone(), drop);
        if let Some(present) = observer.present()
            && present != Some(self.token())
        {
            self.guard.session.renew_and_wake();
        }
        self.observer = Some(observer);
    }

    /// The same, if its session lasts as long as a Pod: no keep-alive would ever tell.
    pub(crate) fn watch_if_for_life(&mut self) {
        if self.guard.session.is_for_life() {
            self.watch_for_loss();
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
        if planted(Bug::BeliefOutlivesRelease) {
            let answer = self.guard.release(self.name(), self.token()).await;
            self.end_belief();
            return answer;
        }
        // The lease may be lost between the question above and this line. The party that ends
        // belief first decides what the caller learns.
        if !self.end_belief() {
            return Err(ReleaseError::Lost(self.loss().unwrap_or(Loss::Released)));
        }
        let (guard, name, token) = (
            Arc::clone(&self.guard),
            self.term.grant.name.clone(),
            self.token(),
        );
        // Belief has ended, so this drop releases nothing; it stops the watch before the release
        // makes it report an end.
        drop(self);
        guard
            .release(&name, token)
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
    /// no gap, no overlap. Belief ends before the request leaves: [`lost`](Term::lost) completes,
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
        self.hand_over_in_background(to).await
    }

    /// Hands over a grant that is believed in no more, on the client's own thread.
    pub(crate) async fn hand_over_in_background(
        self,
        to: Option<SessionId>,
    ) -> Result<Transferred, TransferError> {
        let (reply, answer) = oneshot::channel();
        let thread = self.guard.session.transport.thread.clone();
        drop(thread.spawn(async move {
            // If no caller wants the answer any more, a lease that comes back in it is released.
            reply.send(self.hand_over(to).await).ok();
        }));
        answer
            .await
            .unwrap_or_else(|_| Err(TransferError::Call(CallError::stopped())))
    }

    async fn hand_over(self, to: Option<SessionId>) -> Result<Transferred, TransferError> {
        let session = &self.guard.session;
        match endings::transfer(session, &self.term.grant.name, self.term.grant.token, to).await {
            Ok(transferred) => Ok(transferred),
            Err(CallError::Refused(refusal)) if refusal.reason == Reason::NotWaiting => {
                let lease = Some(self.restored().map_err(TransferError::Lost)?);
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
    fn restored(mut self) -> Result<Self, Loss> {
        let session = &self.guard.session;
        // Admitted as a new belief. The old one stays ended for all tasks that have seen its loss,
        // and the token is believed in only through this new lease.
        let grant = session.admit(self.term.grant.believed_again())?;
        let inner = &self.guard.client.inner;
        // `end_belief` had marked the token as given up, in every attachment. A revoke would now be
        // acknowledged while the lease is held, so the mark goes.
        inner.take_back(self.term.grant.session.get(), self.term.grant.token);
        Ok(Self {
            guard: Arc::clone(&self.guard),
            term: Term {
                session: Arc::clone(session),
                grant,
            },
            observer: self.observer.take(),
        })
    }

    /// Stops believing in the lease without releasing it: it lives at the cluster until its
    /// session ends or a client releases it by the token returned.
    pub fn forget(self) -> FencingToken {
        self.end_belief();
        self.term.grant.token
    }

    fn release_in_background(&self) {
        let SessionGuard {
            client, session, ..
        } = &*self.guard;
        let what = EndTarget::Grant(self.term.grant.token);
        let endings = &client.inner.endings;
        let work = endings.begin(session, &self.term.grant.name, what);
        work.in_background(Arc::clone(&self.guard));
    }

    /// Ends belief by this client's own doing; says whether it had not ended before. What is
    /// ended so is not released by dropping.
    fn end_belief(&self) -> bool {
        let until = self.guard.session.valid_until();
        let first = self.term.grant.end(&Loss::Released, until);
        if first {
            self.guard.session.drop_grant(self.term.grant.token);
        }
        first
    }
}

impl Deref for HeldLease {
    type Target = Term;

    fn deref(&self) -> &Term {
        &self.term
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
        write!(
            f,
            "HeldLease({}#{})",
            self.term.grant.name, self.term.grant.token
        )
    }
}
