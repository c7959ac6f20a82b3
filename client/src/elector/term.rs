//! One term: from the grant through the work to its end, and who is told of it.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use ringfence_core::FencingToken;
use tokio::sync::watch;

use super::Inner;
use super::campaign::Campaign;
use super::handle::{CampaignState, Successor, hand_over};
use super::leading::Leading;
use super::outcome::{Outcome, sealed::Sealed};
use super::shared::{Leader, Shared};
use crate::hub::lock;
use crate::identity::{DuplicateIdentity, is_kept_alive};
use crate::lease::HeldLease;
use crate::loss::Loss;
use crate::view::View;

/// A term that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Stopped {
    /// The term's token.
    pub token: FencingToken,
    /// Why it is over.
    pub cause: StopCause,
}

/// Why a term is over.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StopCause {
    /// The lease was lost; the work was dropped.
    Lost(Loss),
    /// The work is done.
    Done,
    /// The work failed, and says why.
    Failed(String),
    /// The work panicked, and said this.
    Panicked(String),
    /// The campaign was asked to give it up.
    Asked,
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(loss) => write!(f, "the lease was lost: {loss}"),
            Self::Done => f.write_str("the work is done"),
            Self::Failed(why) => write!(f, "the work failed: {why}"),
            Self::Panicked(why) => write!(f, "the work panicked: {why}"),
            Self::Asked => f.write_str("it was asked to give the lease up"),
        }
    }
}

type Listener<T> = Option<Box<dyn FnMut(&T) + Send>>;

/// Who wants to be told.
#[derive(Default)]
pub(super) struct Listeners {
    pub(super) started: Listener<Leading>,
    pub(super) stopped: Listener<Stopped>,
    pub(super) new_leader: Listener<Leader>,
    pub(super) duplicate: Listener<DuplicateIdentity>,
}

impl Campaign {
    /// One term. When it returns the lease was lost or given up.
    pub(super) async fn term<W, F>(&mut self, lease: HeldLease, work: &mut W) -> StopCause
    where
        W: FnMut(Leading) -> F,
        F: Future,
        F::Output: Outcome,
    {
        let view = View::of(&lease);
        let token = view.token();
        let (leaving, told) = watch::channel(false);
        let leading = Leading {
            view: view.clone(),
            shard: self.shard,
            leaving: told,
        };
        self.shared.ask.send_modify(|ask| ask.step_down = false);
        self.shared.begin_term(&view);
        self.shared
            .state
            .send_replace(CampaignState::Leading { token });
        tracing::debug!(name = self.name, %token, "leads");
        if let Some(started) = &mut lock(&self.listeners).started {
            started(&leading);
        }

        let cause = self.work(&view, leading, leaving, work).await;

        tracing::debug!(name = self.name, %token, %cause, "leads no more");
        if !(self.shared.fails_open() && cause == StopCause::Lost(Loss::WindowPassed)) {
            self.shared.give_up_term();
        }
        let stopped = Stopped { token, cause };
        if let Some(listener) = &mut lock(&self.listeners).stopped {
            listener(&stopped);
        }
        self.give_up(lease, &stopped.cause).await;
        stopped.cause
    }

    /// Runs the work until it or the term is over. The work is dropped when this returns.
    async fn work<W, F>(
        &self,
        view: &View,
        leading: Leading,
        leaving: watch::Sender<bool>,
        work: &mut W,
    ) -> StopCause
    where
        W: FnMut(Leading) -> F,
        F: Future,
        F::Output: Outcome,
    {
        let mut lost = pin!(view.lost());
        let mut working = pin!(caught(async move { work(leading).await }));
        tokio::select! {
            biased;
            loss = &mut lost => return StopCause::Lost(loss),
            cause = &mut working => return cause,
            () = asked(&self.shared) => {}
        }
        leaving.send_replace(true);
        if self.grace.is_zero() {
            return StopCause::Asked;
        }
        let client = &self.elector.client;
        tokio::select! {
            biased;
            loss = &mut lost => StopCause::Lost(loss),
            _ = &mut working => StopCause::Asked,
            () = client.sleep_until(client.now() + self.grace) => StopCause::Asked,
        }
    }

    async fn give_up(&self, lease: HeldLease, cause: &StopCause) {
        let successor = match cause {
            // Dropping it settles what there is to settle.
            StopCause::Lost(_) => return,
            StopCause::Asked => self.shared.ask.borrow().successor.clone(),
            StopCause::Done | StopCause::Failed(_) | StopCause::Panicked(_) => Successor::Next,
        };
        if self.linger {
            let end = lease.valid_until();
            self.elector.client.sleep_until(end).await;
        }
        hand_over(&self.elector.client, lease, &successor).await;
    }
}

/// Completes when the campaign is asked to give up the term.
async fn asked(shared: &Shared) {
    let mut ask = shared.ask.subscribe();
    let asked = ask.wait_for(|ask| ask.leave || ask.step_down).await;
    asked.map(drop).ok();
}

/// Runs work to its end, and catches its panic: an elector that dies with its work would leave a
/// process behind that lives and never leads again.
async fn caught<F>(work: F) -> StopCause
where
    F: Future,
    F::Output: Outcome,
{
    let mut work = pin!(work);
    poll_fn(|cx| {
        // Nothing of the work is looked at after its panic; it is dropped.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        match polled {
            Ok(polled) => polled.map(|output| match output.failure() {
                None => StopCause::Done,
                Some(why) => StopCause::Failed(why),
            }),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(ToString::to_string);
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                let text = text.unwrap_or_else(|| "without a text".into());
                Poll::Ready(StopCause::Panicked(text))
            }
        }
    })
    .await
}

type Proof = Pin<Box<dyn Future<Output = Option<DuplicateIdentity>> + Send>>;

/// Tells of leaders and of duplicate identities, for ever.
pub(super) async fn tell(
    elector: Arc<Inner>,
    shared: Arc<Shared>,
    mut new_leader: Listener<Leader>,
    mut duplicate: Listener<DuplicateIdentity>,
) -> Infallible {
    let mut leaders = shared.leader.subscribe();
    let mut told = None;
    let mut proof: Proof = Box::pin(std::future::pending());
    loop {
        let leader = leaders.borrow_and_update().clone();
        if let Some(leader) = leader.filter(|leader| told != Some(leader.token)) {
            told = Some(leader.token);
            if leader.identity == elector.identity && !leader.mine {
                proof = Box::pin(prove(Arc::clone(&elector), leader.clone()));
            }
            if let Some(listener) = &mut new_leader {
                listener(&leader);
            }
        }
        tokio::select! {
            changed = leaders.changed() => {
                if changed.is_err() {
                    // The sender lives as long as `shared`, which this holds.
                    return std::future::pending().await;
                }
            }
            proven = &mut proof => {
                proof = Box::pin(std::future::pending());
                if let Some(found) = proven {
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
async fn prove(elector: Arc<Inner>, leader: Leader) -> Option<DuplicateIdentity> {
    let alive = elector.own.is_older_than(leader.session)
        || is_kept_alive(&elector.client, leader.session).await;
    alive.then_some(DuplicateIdentity {
        identity: leader.identity,
        session: leader.session,
    })
}
