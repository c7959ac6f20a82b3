//! Running a campaign: from term to term, until one leads, or once.

use std::convert::Infallible;
use std::panic::resume_unwind;
use std::sync::Arc;

use ringfence_core::{FencingToken, LeaseName};

use super::NameEntry;
use super::backoff::Backoff;
use super::campaign::{Campaign, CampaignError};
use super::leading::Leading;
use super::listeners::StopCause;
use super::outcome::{Outcome, sealed::Sealed};
use super::shared::CampaignState;
use super::shared::{Leader, Shared};
use super::term::{TermEnd, notify_listeners};
use crate::lease::HeldLease;
use crate::session::loss::Loss;
use crate::sync::lock;
use crate::watch::observer::Observer;

impl Campaign {
    /// Campaigns for ever, or until [asked to leave](super::CampaignHandle::leave). In each term
    /// `work` is called and what it returns is run until it is done or the term is over; then it is
    /// dropped. When it is done, fails or panics, the lease is given up: a leader that cannot do its
    /// work is none.
    ///
    /// Dropping the future drops the work and releases the lease.
    ///
    /// # Errors
    /// [`CampaignError`] if no retry can help.
    pub async fn run<W, F>(mut self, mut work: W) -> Result<(), CampaignError>
    where
        W: FnMut(Leading) -> F,
        F: Future,
        F::Output: Outcome,
    {
        let running = self.begin()?;
        let notifying = self.notify_listeners();
        let mut work = |leading| {
            let working = work(leading);
            async move { working.await.failure() }
        };
        tokio::select! {
            biased;
            never = notifying => match never {},
            result = self.terms(&running.name, &mut work) => result,
        }
    }

    /// Campaigns for ever with the callbacks alone, as client-go does: `on_started` may spawn what
    /// it likes, which has to stop at [`Leading::lost`](crate::Term::lost).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_callbacks(self) -> Result<(), CampaignError> {
        self.run(|leading| async move { drop(leading.lost().await) })
            .await
    }

    /// Waits until this candidate leads, however long that takes and whatever fails meanwhile, and
    /// returns the lease: one call that blocks, and afterwards no step of the elector's any more.
    /// The campaign's [handle](Self::handle) says "leading" as long as the lease is held, and "over"
    /// after that; what it is asked has no effect on a lease that was returned.
    /// Of the listeners those for other leaders are notified until then. Unless notified
    /// [otherwise](Self::observe) the lease is watched as long as it is held, so that
    /// [`Term::lost`](crate::Term::lost) completes at once when it is taken away.
    ///
    /// # Errors
    /// [`CampaignError`] if no retry can help, or it was asked to leave.
    pub async fn lead(mut self) -> Result<HeldLease, CampaignError> {
        let mut running = self.begin()?;
        let mut pauses = Backoff::new(&self.elector.timings);
        let notifying = self.notify_listeners();
        let leading = async {
            loop {
                if let Some(attempt) = self.attempt(&running.name, &mut pauses).await? {
                    return Ok::<_, CampaignError>(attempt);
                }
            }
        };
        let (mut lease, permit) = tokio::select! {
            biased;
            never = notifying => match never {},
            result = leading => result?,
        };
        // The campaign's own watch ends with it.
        if self.observe {
            lease.watch_for_loss();
        }
        let (view, token) = (lease.term(), lease.token());
        // The lease leaves the campaign. Dropping `running` must not report the campaign as over
        // while its caller holds the lease; the task below does that at the loss.
        running.campaign = None;
        self.shared.begin_term(&view);
        self.shared
            .state
            .send_replace(CampaignState::Leading { token });
        tracing::info!(name = self.name, %token, "leading");
        let shared = Arc::clone(&self.shared);
        let thread = &self.elector.client.inner.transport.thread;
        drop(thread.spawn(async move {
            let why = view.lost().await;
            log_end(view.name(), view.token(), &why);
            shared.over();
            drop(permit);
        }));
        Ok(lease)
    }

    /// Waits until this candidate leads, runs `work` to its end, gives the lease up and returns what
    /// the work returned. If the lease is lost or given up by request before, the work is dropped,
    /// and begun again under the next one: it has to bear being begun more than once. Asked to
    /// leave, the work has the campaign's [grace](Self::grace) to come to its end.
    ///
    /// Each process that calls this runs its work, one after the other. What is to happen once in
    /// all has to be recorded by the work, under its [fence](crate::Term::fence) and in one step with
    /// what it does, and looked for first.
    ///
    /// # Errors
    /// [`CampaignError`] if no retry can help, or it was asked to leave and the work had not come to
    /// its end.
    ///
    /// # Panics
    /// If the work panics: with what it panicked with, after the lease was given up.
    pub async fn once<W, F>(mut self, mut work: W) -> Result<F::Output, CampaignError>
    where
        W: FnMut(Leading) -> F,
        F: Future,
    {
        let running = self.begin()?;
        let notifying = self.notify_listeners();
        tokio::select! {
            biased;
            never = notifying => match never {},
            result = self.until_done(&running.name, &mut work) => result,
        }
    }

    /// From term to term, until the work has come to its end in one.
    async fn until_done<W, F>(
        &mut self,
        name: &LeaseName,
        work: &mut W,
    ) -> Result<F::Output, CampaignError>
    where
        W: FnMut(Leading) -> F,
        F: Future,
    {
        let mut pauses = Backoff::new(&self.elector.timings);
        loop {
            let Some((lease, _permit)) = self.attempt(name, &mut pauses).await? else {
                continue;
            };
            let TermEnd { cause, output } = self.term(lease, work, |_| None).await;
            match output {
                Some(Ok(output)) => return Ok(output),
                Some(Err(panic)) => resume_unwind(panic),
                None if self.shared.request.borrow().leave => return Err(CampaignError::Left),
                None => self.pause(pauses.after_term(), &cause.to_string()).await,
            }
        }
    }

    /// From term to term.
    async fn terms<W, F>(&mut self, name: &LeaseName, work: &mut W) -> Result<(), CampaignError>
    where
        W: FnMut(Leading) -> F,
        F: Future<Output = Option<String>>,
    {
        let mut pauses = Backoff::new(&self.elector.timings);
        loop {
            let attempt = match self.attempt(name, &mut pauses).await {
                Err(CampaignError::Left) => return Ok(()),
                attempt => attempt?,
            };
            let Some((lease, permit)) = attempt else {
                continue;
            };
            let began = self.elector.client.now();
            let TermEnd { cause, .. } = self.term(lease, work, Clone::clone).await;
            drop(permit);
            if self.shared.request.borrow().leave {
                return Ok(());
            }
            let lasted = self.elector.client.now().saturating_since(began);
            let pause = match cause {
                StopCause::Lost(_) | StopCause::Asked => pauses.after_term(),
                StopCause::Done => pauses.after_work(),
                StopCause::Failed(_) | StopCause::Panicked(_) => pauses.after_failure(lasted),
            };
            self.pause(pause, &cause.to_string()).await;
        }
    }

    /// Tells those listeners that are notified beside the terms.
    fn notify_listeners(&self) -> impl Future<Output = Infallible> + use<> {
        let mut listeners = lock(&self.listeners);
        notify_listeners(
            Arc::clone(&self.elector),
            Arc::clone(&self.shared),
            listeners.new_leader.take(),
            listeners.duplicate.take(),
        )
    }

    fn begin(&self) -> Result<Running, CampaignError> {
        let name = LeaseName::parse(&self.name).map_err(CampaignError::InvalidName)?;
        let entry = self.elector.enter(&self.name);
        let twice = || CampaignError::Twice {
            name: self.name.clone(),
        };
        let entry = entry.ok_or_else(twice)?;
        let observer = self.observe.then(|| {
            let (shared, own) = (Arc::clone(&self.shared), Arc::clone(&self.elector.own));
            self.elector.client.observe(name.clone(), move |grant| {
                shared.saw(grant.map(|grant| Leader::of(grant, &own)));
            })
        });
        Ok(Running {
            name,
            campaign: Some(Arc::clone(&self.shared)),
            _entry: entry,
            _observer: observer,
        })
    }
}

/// What lasts as long as a campaign runs.
struct Running {
    name: LeaseName,
    /// What is over when this is dropped, wherever the campaign's future stood then; `None` once the
    /// lease has gone to the caller.
    campaign: Option<Arc<Shared>>,
    _entry: NameEntry,
    _observer: Option<Observer>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(campaign) = &self.campaign {
            campaign.over();
        }
    }
}

/// Says how a lease ended that was won by a campaign and is its caller's.
fn log_end(name: &LeaseName, token: FencingToken, why: &Loss) {
    if why.is_own_doing() {
        tracing::info!(%name, %token, %why, "leadership ended");
    } else {
        tracing::warn!(%name, %token, %why, "lost leadership");
    }
}
