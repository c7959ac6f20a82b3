//! Running a campaign: from term to term, until one leads, or once.

use std::convert::Infallible;
use std::sync::Arc;

use ringfence_core::LeaseName;
use tokio::sync::watch;

use super::Entry;
use super::back_off::BackOff;
use super::campaign::{Campaign, CampaignError};
use super::handle::CampaignState;
use super::leading::Leading;
use super::observer::Observer;
use super::outcome::Outcome;
use super::shared::Leader;
use super::term::{StopCause, tell};
use crate::hub::lock;
use crate::lease::HeldLease;
use crate::view::View;

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
        let telling = self.tell();
        let result = tokio::select! {
            biased;
            never = telling => match never {},
            result = self.terms(&running.name, &mut work) => result,
        };
        self.shared.state.send_replace(CampaignState::Over);
        result
    }

    /// Campaigns for ever with the callbacks alone, as client-go does: `on_started` may spawn what
    /// it likes, which has to stop at [`Leading::lost`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_callbacks(self) -> Result<(), CampaignError> {
        self.run(|leading| async move { drop(leading.lost().await) })
            .await
    }

    /// Waits until this candidate leads, however long that takes and whatever fails meanwhile, and
    /// returns the lease: one call that blocks, and afterwards no step of the elector's any more.
    /// Of the listeners those for other leaders are told until then. Unless told
    /// [otherwise](Self::observe) the lease is watched as long as it is held, so that
    /// [`HeldLease::lost`] completes at once when it is taken away.
    ///
    /// # Errors
    /// [`CampaignError`] if no retry can help, or it was asked to leave.
    pub async fn lead(mut self) -> Result<HeldLease, CampaignError> {
        let running = self.begin()?;
        let mut pauses = BackOff::new(&self.elector.timings);
        let telling = self.tell();
        let leading = async {
            loop {
                if let Some((mut lease, _place)) = self.stand(&running.name, &mut pauses).await? {
                    // The campaign's own watch ends with it.
                    if self.observe {
                        lease.follow();
                    }
                    self.shared.begin_term(&View::of(&lease));
                    return Ok(lease);
                }
            }
        };
        tokio::select! {
            biased;
            never = telling => match never {},
            result = leading => result,
        }
    }

    /// Waits until this candidate leads, runs `work` to its end, gives the lease up and returns what
    /// the work returned. If the lease is lost before, the work is dropped, and begun anew under
    /// the next one: it has to bear being begun more than once.
    ///
    /// # Errors
    /// [`CampaignError`] if no retry can help, or it was asked to leave.
    pub async fn once<W, F>(mut self, mut work: W) -> Result<F::Output, CampaignError>
    where
        W: FnMut(Leading) -> F,
        F: Future,
    {
        let running = self.begin()?;
        let mut pauses = BackOff::new(&self.elector.timings);
        loop {
            let Some((lease, _place)) = self.stand(&running.name, &mut pauses).await? else {
                continue;
            };
            let view = View::of(&lease);
            self.shared.begin_term(&view);
            // Nobody asks a single run to leave in the middle.
            let (_leaving, leaving) = watch::channel(false);
            let leading = Leading {
                view: view.clone(),
                shard: self.shard,
                leaving,
            };
            match view.run(work(leading)).await {
                Ok(output) => {
                    if let Err(error) = lease.release().await {
                        tracing::debug!(%error, "not released; if it is still held it will be");
                    }
                    return Ok(output);
                }
                Err(loss) => self.pause(pauses.after_term(), &loss.to_string()).await,
            }
        }
    }

    /// From term to term.
    async fn terms<W, F>(&mut self, name: &LeaseName, work: &mut W) -> Result<(), CampaignError>
    where
        W: FnMut(Leading) -> F,
        F: Future,
        F::Output: Outcome,
    {
        let mut pauses = BackOff::new(&self.elector.timings);
        loop {
            let stood = match self.stand(name, &mut pauses).await {
                Err(CampaignError::Left) => return Ok(()),
                stood => stood?,
            };
            let Some((lease, place)) = stood else {
                continue;
            };
            let began = self.elector.client.now();
            let cause = self.term(lease, work).await;
            drop(place);
            if self.shared.ask.borrow().leave {
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

    /// Tells those listeners that are told beside the terms.
    fn tell(&self) -> impl Future<Output = Infallible> + use<> {
        let mut listeners = lock(&self.listeners);
        tell(
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
            Observer::begin(&self.elector.client, name.clone(), move |grant| {
                shared.saw(grant.and_then(|grant| Leader::from_wire(grant, &own)));
            })
        });
        Ok(Running {
            name,
            _entry: entry,
            _observer: observer,
        })
    }
}

/// What lasts as long as a campaign runs.
struct Running {
    name: LeaseName,
    _entry: Entry,
    _observer: Option<Observer>,
}
