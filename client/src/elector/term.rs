//! One term: from the grant through the work to its end, and which listeners are notified of it.

use std::any::Any;
use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::watch;

use super::Inner;
use super::campaign::Campaign;
use super::handle::hand_over;
use super::leading::Leading;
use super::listeners::{Listener, StopCause, Stopped};
use super::request::Successor;
use super::shared::{CampaignState, Leader, Shared};
use crate::lease::HeldLease;
use crate::lease::identity::{DuplicateIdentity, is_kept_alive};
use crate::lease::term::Term;
use crate::session::loss::Loss;
use crate::sync::lock;

/// What a panic carries.
pub(super) type Panic = Box<dyn Any + Send>;

/// How a term ended, and what its work returned, if it came to its end.
pub(super) struct TermEnd<T> {
    pub(super) cause: StopCause,
    pub(super) output: Option<Result<T, Panic>>,
}

impl<T> TermEnd<T> {
    fn without_output(cause: StopCause) -> Self {
        let output = None;
        Self { cause, output }
    }
}

impl Campaign {
    /// One term. When it returns the lease was lost or given up. `failure` says what is wrong with
    /// the output of the work, if that is a failure.
    pub(super) async fn term<W, F>(
        &mut self,
        lease: HeldLease,
        work: &mut W,
        failure: impl Fn(&F::Output) -> Option<String>,
    ) -> TermEnd<F::Output>
    where
        W: FnMut(Leading) -> F,
        F: Future,
    {
        let view = lease.term();
        let token = view.token();
        let (leaving, told) = watch::channel(false);
        let leading = Leading {
            term: view.clone(),
            shard: self.shard,
            leaving: told,
        };
        self.shared
            .request
            .send_modify(|request| request.step_down = false);
        // The handle says "leading" before the work runs, so that work which asks it is not
        // refused.
        self.shared.begin_term(&view);
        self.shared
            .state
            .send_replace(CampaignState::Leading { token });
        tracing::info!(name = self.name, %token, "leading");
        if let Some(started) = &mut lock(&self.listeners).started {
            started(&leading);
        }

        let TermEnd { cause, output } = self.work(&view, leading, leaving, work, failure).await;

        match &cause {
            StopCause::Done | StopCause::Asked => {
                tracing::info!(name = self.name, %token, %cause, "leadership ended");
            }
            StopCause::Lost(_) | StopCause::Failed(_) | StopCause::Panicked(_) => {
                tracing::warn!(name = self.name, %token, %cause, "lost leadership");
            }
        }
        // A campaign that fails open keeps the lost term for its range. All other ends are known
        // for certain, and leave no range.
        if !(self.shared.fails_open() && cause == StopCause::Lost(Loss::WindowPassed)) {
            self.shared.give_up_term();
        }
        let stopped = Stopped { token, cause };
        if let Some(listener) = &mut lock(&self.listeners).stopped {
            listener(&stopped);
        }
        self.give_up(lease, &stopped.cause).await;
        TermEnd {
            cause: stopped.cause,
            output,
        }
    }

    /// Runs the work until it or the term is over. The work is dropped when this returns.
    async fn work<W, F>(
        &self,
        view: &Term,
        leading: Leading,
        leaving: watch::Sender<bool>,
        work: &mut W,
        failure: impl Fn(&F::Output) -> Option<String>,
    ) -> TermEnd<F::Output>
    where
        W: FnMut(Leading) -> F,
        F: Future,
    {
        let mut lost = pin!(view.lost());
        let mut working = pin!(catch_panic(async move { work(leading).await }));
        tokio::select! {
            // Biased: when the loss and the output are ready in the same poll, the work was under a
            // lease that may have a new holder, and its result does not count.
            biased;
            loss = &mut lost => return TermEnd::without_output(StopCause::Lost(loss)),
            output = &mut working => {
                let cause = match &output {
                    Ok(output) => failure(output).map_or(StopCause::Done, StopCause::Failed),
                    Err(panic) => StopCause::Panicked(panic_message(panic)),
                };
                return TermEnd { cause, output: Some(output) };
            }
            () = asked(&self.shared) => {}
        }
        leaving.send_replace(true);
        if self.grace.is_zero() {
            return TermEnd::without_output(StopCause::Asked);
        }
        let client = &self.elector.client;
        tokio::select! {
            biased;
            loss = &mut lost => TermEnd::without_output(StopCause::Lost(loss)),
            output = &mut working => TermEnd { cause: StopCause::Asked, output: Some(output) },
            () = client.sleep_until(client.now() + self.grace) => {
                TermEnd::without_output(StopCause::Asked)
            }
        }
    }

    async fn give_up(&self, lease: HeldLease, cause: &StopCause) {
        let successor = match cause {
            // Dropping it settles what there is to settle.
            StopCause::Lost(_) => return,
            StopCause::Asked => self.shared.request.borrow().successor.clone(),
            StopCause::Done | StopCause::Failed(_) | StopCause::Panicked(_) => Successor::Next,
        };
        // The range of a leader for life was reported without an end: there is none to wait for.
        if self.linger && !lease.guard.session.is_for_life() {
            let end = lease.valid_until();
            self.elector.client.sleep_until(end).await;
        }
        hand_over(&self.elector.client, lease, &successor).await;
    }
}

/// Completes when the campaign is asked to give up the term.
async fn asked(shared: &Shared) {
    let mut request = shared.request.subscribe();
    let asked = request
        .wait_for(|request| request.leave || request.step_down)
        .await;
    asked.map(drop).ok();
}

/// Runs work to its end, and catches its panic: an elector that dies with its work would leave a
/// process behind that lives and never leads again.
async fn catch_panic<F: Future>(work: F) -> Result<F::Output, Panic> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        // Nothing of the work is looked at after its panic; it is dropped.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

/// What a panic said.
fn panic_message(panic: &Panic) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a text".into())
}

type Confirming = Pin<Box<dyn Future<Output = Option<DuplicateIdentity>> + Send>>;

/// Tells of leaders and of duplicate identities, for ever.
pub(super) async fn notify_listeners(
    elector: Arc<Inner>,
    shared: Arc<Shared>,
    mut new_leader: Listener<Leader>,
    mut duplicate: Listener<DuplicateIdentity>,
) -> Infallible {
    let mut leaders = shared.leader.subscribe();
    let mut told = None;
    let mut confirming: Confirming = Box::pin(std::future::pending());
    loop {
        let leader = leaders.borrow_and_update().clone();
        if let Some(leader) = leader.filter(|leader| told != Some(leader.token)) {
            told = Some(leader.token);
            if leader.identity == elector.identity && !leader.mine {
                confirming = Box::pin(confirm_duplicate(Arc::clone(&elector), leader.clone()));
            }
            if let Some(listener) = &mut new_leader {
                listener(&leader);
            }
        }
        crate::sync::select! {
            changed = leaders.changed() => {
                if changed.is_err() {
                    // The sender lives as long as `shared`, which this holds.
                    return std::future::pending().await;
                }
            }
            confirmed = &mut confirming => {
                confirming = Box::pin(std::future::pending());
                if let Some(found) = confirmed {
                    tracing::error!("{found}");
                    if let Some(listener) = &mut duplicate {
                        listener(&found);
                    }
                }
            }
        }
    }
}

/// Whether a leader with our identity lives, or is what a former life of this process left behind.
async fn confirm_duplicate(elector: Arc<Inner>, leader: Leader) -> Option<DuplicateIdentity> {
    let alive = elector.own.is_older_than(leader.session)
        || is_kept_alive(&elector.client, leader.session).await;
    alive.then_some(DuplicateIdentity {
        identity: leader.identity,
        session: leader.session,
    })
}
