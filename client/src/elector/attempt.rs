//! Standing for a lease: waiting for room, for a session, and in the queue.

use std::time::Duration;

use ringfence_core::LeaseName;
use ringfence_planted::{Bug, planted};
use tokio::sync::watch;

use super::backoff::Backoff;
use super::campaign::{Campaign, CampaignError};
use super::limit::LeasePermit;
use super::request::CampaignRequest;
use super::shared::CampaignState;
use super::shared::Shared;
use crate::lease::HeldLease;
use crate::lease::acquire::AcquireError;
use crate::lease::sealing::sealed;
use crate::session::Session;
use crate::session::error::OpenError;
use crate::session::state::SessionState;
use crate::transport::error::CallError;
use crate::transport::refusal::Reason;

/// How long one request waits in the queue before another takes its place.
const WAIT: Duration = Duration::from_secs(12 * 60 * 60);

/// Why no lease was acquired this time.
pub(super) enum AttemptOutcome {
    /// A transient failure, with its reason: retried after a backoff.
    Failed(String),
    /// At once, since that was no failure.
    Again,
    Left,
    /// Not worth another try.
    Final(CampaignError),
}

impl Campaign {
    /// Waits for the lease once. `None`: try again; the pause is over.
    pub(super) async fn attempt(
        &mut self,
        name: &LeaseName,
        pauses: &mut Backoff,
    ) -> Result<Option<(HeldLease, Option<LeasePermit>)>, CampaignError> {
        self.shared.state.send_replace(CampaignState::Waiting);
        let leave = left(&self.shared);
        let attempt = tokio::select! {
            biased;
            () = leave => Err(AttemptOutcome::Left),
            attempt = self.acquire(name) => attempt,
        };
        match attempt {
            Ok(granted) => Ok(Some(granted)),
            Err(AttemptOutcome::Again) => Ok(None),
            Err(AttemptOutcome::Left) => Err(CampaignError::Left),
            Err(AttemptOutcome::Final(error)) => Err(error),
            Err(AttemptOutcome::Failed(why)) => {
                tracing::debug!(name = self.name, why, "not acquired");
                self.pause(pauses.after_failure(Duration::ZERO), &why).await;
                Ok(None)
            }
        }
    }

    /// Waits for room, then for the lease, then for its guards.
    async fn acquire(
        &self,
        name: &LeaseName,
    ) -> Result<(HeldLease, Option<LeasePermit>), AttemptOutcome> {
        if let Some(limit) = &self.limit {
            limit.free().await;
        }
        let session = self.elector.session().await.map_err(not_opened)?;
        let full = async {
            match &self.limit {
                Some(limit) => limit.full().await,
                None => std::future::pending().await,
            }
        };
        let acquire = session.acquire(name.as_str()).wait(WAIT);
        let acquire = acquire.data(self.data.clone()).lock_delay(self.lock_delay);
        let mut lease = tokio::select! {
            biased;
            acquired = acquire.granted() => acquired.map_err(not_acquired)?,
            // Who waits for a session that is over would wait for nothing.
            () = over(&session) => return Err(AttemptOutcome::Failed("the session was lost".into())),
            () = full => return Err(AttemptOutcome::Again),
        };
        // Also beside the campaign's own watch: it may have begun behind the end of this grant.
        if !self.observe || !planted(Bug::OwnWatchTrusted) {
            lease.watch_if_for_life();
        }
        let permit = match &self.limit {
            None => None,
            // Another campaign may have taken the last permit while this one waited in the queue.
            // Dropping the lease gives it back.
            Some(limit) => Some(limit.take().ok_or(AttemptOutcome::Again)?),
        };
        if !self.seal.is_empty() {
            let token = lease.token();
            self.shared
                .state
                .send_replace(CampaignState::Sealing { token });
        }
        let sealed = sealed(lease, &self.seal, None).await;
        let lease = sealed.map_err(|why| not_acquired(why.into()))?;
        Ok((lease, permit))
    }

    /// Pauses, but not if it was asked to leave.
    pub(super) async fn pause(&self, pause: Duration, why: &str) {
        self.shared.state.send_replace(CampaignState::Pausing {
            pause,
            why: why.into(),
        });
        let client = &self.elector.client;
        crate::sync::select! {
            () = client.sleep_until(client.now() + pause) => {}
            () = left(&self.shared) => {}
        }
    }
}

/// Completes when the campaign is asked to end.
async fn left(shared: &Shared) {
    let mut request: watch::Receiver<CampaignRequest> = shared.request.subscribe();
    // The sender lives as long as the campaign.
    request
        .wait_for(|request| request.leave)
        .await
        .map(drop)
        .ok();
}

/// Completes when the session is lost.
async fn over(session: &Session) {
    let mut state = session.state();
    let lost = |state: &SessionState| matches!(state, SessionState::Lost { .. });
    state.wait_for(lost).await.map(drop).ok();
}

fn not_opened(error: OpenError) -> AttemptOutcome {
    match error {
        OpenError::InvalidIdentity(fault) => {
            AttemptOutcome::Final(CampaignError::InvalidIdentity(fault))
        }
        OpenError::Call(error) => failed(error),
        OpenError::ShutDown => AttemptOutcome::Left,
        OpenError::TooLate => AttemptOutcome::Failed(error.to_string()),
    }
}

fn not_acquired(error: AcquireError) -> AttemptOutcome {
    match error {
        AcquireError::InvalidName(fault) => {
            AttemptOutcome::Final(CampaignError::InvalidName(fault))
        }
        AcquireError::TimedOut => AttemptOutcome::Again,
        AcquireError::Call(error) => failed(error),
        AcquireError::Held(_)
        | AcquireError::Queued { .. }
        | AcquireError::NotNow { .. }
        | AcquireError::Ended(_)
        | AcquireError::Unsealed { .. }
        | AcquireError::Open(_)
        | AcquireError::SessionLost(_) => AttemptOutcome::Failed(error.to_string()),
    }
}

fn failed(error: CallError) -> AttemptOutcome {
    match error {
        CallError::Refused(refusal) if refusal.reason == Reason::InvalidArgument => {
            AttemptOutcome::Final(CampaignError::Refused(refusal))
        }
        error => AttemptOutcome::Failed(error.to_string()),
    }
}
