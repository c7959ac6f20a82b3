//! What can be asked of a campaign from outside.

use std::sync::Arc;

use ringfence_core::SessionId;
use ringfence_proto::v1::ListSessionsRequest;
use ringfence_proto::v1::sessions_client::SessionsClient;
use tokio::sync::watch;

use super::request::Successor;
use super::shared::{CampaignState, Leader, Shared};
use crate::lease::range::Range;
use crate::lease::{HeldLease, TransferError};
use crate::session::client::Client;
use crate::transport::error::CallError;
use crate::transport::unary;

/// How many sessions are looked through for a successor's identity.
const LISTED_MAX: usize = 100_000;

/// Looks at a campaign and asks it to give up. Cheap to clone; dropping it changes nothing.
#[derive(Clone, Debug)]
pub struct CampaignHandle {
    pub(super) shared: Arc<Shared>,
}

impl CampaignHandle {
    /// Ends the campaign: a leader stops its work, then hands the lease over in one step, so that
    /// the lease is never free while a candidate waits. Where none does, it is released. A lease
    /// that [`Campaign::lead`](super::Campaign::lead) has returned is its caller's to give up.
    pub fn leave(&self, successor: Successor) {
        self.shared.request.send_modify(|request| {
            request.leave = true;
            request.successor = successor;
        });
    }

    /// Gives up the present term as [`leave`](Self::leave) does, and campaigns again behind the
    /// others. Without a present term it does nothing.
    pub fn step_down(&self, successor: Successor) {
        if !self.is_leading() {
            return;
        }
        self.shared.request.send_modify(|request| {
            request.step_down = true;
            request.successor = successor;
        });
    }

    /// How the campaign stands, now and at each change.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<CampaignState> {
        self.shared.state.subscribe()
    }

    /// Whether it leads at this instant; asks the clock each time.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.shared.is_held()
    }

    /// Who leads, now and at each change, as watchers receive it; empty while no candidate leads,
    /// or no report has come yet.
    #[must_use]
    pub fn leader(&self) -> watch::Receiver<Option<Leader>> {
        self.shared.leader.subscribe()
    }

    /// The wall-clock range to work with now: that of the present term, or, with
    /// [`Campaign::fail_open`](super::Campaign::fail_open), an assumption.
    #[must_use]
    pub fn range(&self) -> Option<Range> {
        self.shared.range()
    }
}

/// Gives a lease up: to the successor, to the next, or back.
pub(super) async fn hand_over(client: &Client, lease: HeldLease, successor: &Successor) {
    let named = match successor {
        Successor::Next => Vec::new(),
        Successor::Session(session) => vec![*session],
        Successor::Identity(identity) => {
            let mine = lease.session();
            match sessions_of(client, identity).await {
                Ok(found) => found.into_iter().filter(|found| *found != mine).collect(),
                Err(error) => {
                    tracing::warn!(%error, identity, "cannot look for the successor");
                    Vec::new()
                }
            }
        }
    };
    let mut lease = lease;
    for to in named.into_iter().map(Some).chain([None]) {
        match lease.transfer_to(to).await {
            Ok(transferred) => {
                tracing::debug!(to = %transferred.to, token = %transferred.token, "handed over");
                return;
            }
            Err(TransferError::NotWaiting { lease: Some(back) }) => lease = back,
            Err(error) => {
                tracing::debug!(%error, "not handed over");
                return;
            }
        }
    }
    if let Err(error) = lease.release().await {
        tracing::debug!(%error, "not released; if it is still held it will be");
    }
}

/// The sessions with this identity.
async fn sessions_of(client: &Client, identity: &str) -> Result<Vec<SessionId>, CallError> {
    let mut found = Vec::new();
    let (mut after, mut seen) = (0, 0);
    loop {
        let request = ListSessionsRequest {
            after,
            ..ListSessionsRequest::default()
        };
        let page = unary::call(&client.inner.transport, move |channel| async move {
            SessionsClient::new(channel).list(request).await
        })
        .await?;
        seen += page.sessions.len();
        let last = page.sessions.last().map(|session| session.session);
        let theirs = page.sessions.iter().filter(|s| s.identity == identity);
        found.extend(theirs.filter_map(|session| SessionId::new(session.session)));
        match last {
            Some(last) if page.more && seen < LISTED_MAX => after = last,
            _ => return Ok(found),
        }
    }
}
