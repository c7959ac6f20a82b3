//! Standing for a lease: waiting for room, for a session, and in the queue.

use std::time::Duration;

use ringfence_core::LeaseName;
use ringfence_planted::{Bug, planted};
use tokio::sync::watch;

use super::ask::Ask;
use super::back_off::BackOff;
use super::campaign::{Campaign, CampaignError};
use super::room::Place;
use super::shared::CampaignState;
use super::shared::Shared;
use crate::lease::HeldLease;
use crate::lease::acquire::AcquireError;
use crate::session::Session;
use crate::session::error::OpenError;
use crate::session::state::SessionState;
use crate::transport::error::CallError;
use crate::transport::refusal::Reason;

/// How long one request waits in the queue before another takes its place.
const WAIT: Duration = Duration::from_secs(12 * 60 * 60);

/// Why no lease was acquired this time.
pub(super) enum Stood {
    /// Worth another try.
    Failed(String),
    /// At once, since that was no failure.
    Again,
    /// Asked to leave.
    Left,
    /// Not worth another try.
    Hopeless(CampaignError),
}

impl Campaign {
    /// Waits for the lease once. `None`: try again; the pause is over.
    pub(super) async fn stand(
        &mut self,
        name: &LeaseName,
        pauses: &mut BackOff,
    ) -> Result<Option<(HeldLease, Option<Place>)>, CampaignError> {
        self.shared.state.send_replace(CampaignState::Waiting);
        let leave = left(&self.shared);
        let stood = tokio::select! {
            biased;
            () = leave => Err(Stood::Left),
            stood = self.acquire(name) => stood,
        };
        match stood {
            Ok(granted) => Ok(Some(granted)),
            Err(Stood::Again) => Ok(None),
            Err(Stood::Left) => Err(CampaignError::Left),
            Err(Stood::Hopeless(error)) => Err(error),
            Err(Stood::Failed(why)) => {
                tracing::debug!(name = self.name, why, "not acquired");
                self.pause(pauses.after_failure(Duration::ZERO), &why).await;
                Ok(None)
            }
        }
    }

    /// Waits for room, then for the lease.
    async fn acquire(&self, name: &LeaseName) -> Result<(HeldLease, Option<Place>), Stood> {
        if let Some(room) = &self.room {
            room.free().await;
        }
        let session = self.elector.session().await.map_err(not_opened)?;
        let full = async {
            match &self.room {
                Some(room) => room.full().await,
                None => std::future::pending().await,
            }
        };
        let acquire = session.acquire(name.as_str()).wait(WAIT);
        let acquire = acquire.data(self.data.clone()).lock_delay(self.lock_delay);
        let mut lease = tokio::select! {
            biased;
            acquired = acquire.unfollowed() => acquired.map_err(not_acquired)?,
            // Who waits for a session that is over would wait for nothing.
            () = over(&session) => return Err(Stood::Failed("the session was lost".into())),
            () = full => return Err(Stood::Again),
        };
        // Also beside the campaign's own watch: it may have begun behind the end of this grant.
        if !self.observe || !planted(Bug::OwnWatchTrusted) {
            lease.follow_for_life();
        }
        match &self.room {
            None => Ok((lease, None)),
            Some(room) => match room.take() {
                Some(place) => Ok((lease, Some(place))),
                None => Err(Stood::Again),
            },
        }
    }

    /// Pauses, but not if it was asked to leave.
    pub(super) async fn pause(&self, pause: Duration, why: &str) {
        self.shared.state.send_replace(CampaignState::Pausing {
            pause,
            why: why.into(),
        });
        let client = &self.elector.client;
        tokio::select! {
            () = client.sleep_until(client.now() + pause) => {}
            () = left(&self.shared) => {}
        }
    }
}

/// Completes when the campaign is asked to end.
async fn left(shared: &Shared) {
    let mut ask: watch::Receiver<Ask> = shared.ask.subscribe();
    // The sender lives as long as the campaign.
    ask.wait_for(|ask| ask.leave).await.map(drop).ok();
}

/// Completes when the session is lost.
async fn over(session: &Session) {
    let mut state = session.state();
    let lost = |state: &SessionState| matches!(state, SessionState::Lost { .. });
    state.wait_for(lost).await.map(drop).ok();
}

fn not_opened(error: OpenError) -> Stood {
    match error {
        OpenError::InvalidIdentity(fault) => Stood::Hopeless(CampaignError::InvalidIdentity(fault)),
        OpenError::Call(error) => failed(error),
        OpenError::ShutDown => Stood::Left,
        OpenError::TooLate => Stood::Failed(error.to_string()),
    }
}

fn not_acquired(error: AcquireError) -> Stood {
    match error {
        AcquireError::InvalidName(fault) => Stood::Hopeless(CampaignError::InvalidName(fault)),
        AcquireError::TimedOut => Stood::Again,
        AcquireError::Call(error) => failed(error),
        AcquireError::Held(_)
        | AcquireError::Queued { .. }
        | AcquireError::NotNow { .. }
        | AcquireError::Ended(_)
        | AcquireError::Open(_)
        | AcquireError::SessionLost(_) => Stood::Failed(error.to_string()),
    }
}

fn failed(error: CallError) -> Stood {
    match error {
        CallError::Refused(refusal) if refusal.reason == Reason::InvalidArgument => {
            Stood::Hopeless(CampaignError::Refused(refusal))
        }
        error => Stood::Failed(error.to_string()),
    }
}
