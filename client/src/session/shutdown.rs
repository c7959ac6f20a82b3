//! Ending a client in order: everything is given back, and waited for.

use std::sync::Arc;

use futures_util::future::join_all;
use ringfence_core::SessionId;

use crate::clock::Moment;
use crate::session::client::Client;
use crate::session::inner::SessionInner;
use crate::session::loss::Loss;
use crate::transport::error::CallError;

/// What a client that was shut down is not certain to have given back. It ends by its TTL at the
/// latest, since no client keeps it alive any more.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{} session(s) are not certain to have ended, the first one {}: {why}", .sessions.len(), .sessions[0])]
pub struct ShutdownError {
    /// The sessions; at least one.
    pub sessions: Vec<SessionId>,
    /// Why the first of them is not.
    pub why: CallError,
}

impl Client {
    /// Gives back everything that this client and its clones have, and waits until the cluster has
    /// answered, within the [request timeout](crate::ClientBuilder::request_timeout): its sessions
    /// are closed, and of sessions that were resumed from a handle the leases held here are
    /// released, and what was given up of them before is waited for. Belief in all of them ends
    /// first. Campaigns end, and from then on no session is opened or resumed: one that is being
    /// opened is waited for and closed. Other calls still work.
    ///
    /// Dropping the future does not stop it.
    ///
    /// # Errors
    /// [`ShutdownError`] names what is not certain to have ended.
    pub async fn shutdown(&self) -> Result<(), ShutdownError> {
        // It keeps the thread running until all is given back.
        let client = self.clone();
        let ending = self.inner.transport.thread.spawn(async move {
            let (inner, options) = (&client.inner, &client.inner.transport.options);
            // The flag first. Openings that begin later are refused; those that began before hold a
            // permit, and are waited for below.
            inner.shut_down();
            let (now, limit) = (client.now(), options.request_timeout);
            let deadline = now + limit;
            crate::sync::select! {
                () = inner.wait_until_none_opens() => {}
                // What is opened later is closed at once.
                () = options.clock.sleep_until(now + limit / 2) => {}
            }
            let sessions = inner.sessions();
            let giving = sessions
                .iter()
                .map(|session| client.give_back(session, deadline));
            let failed = join_all(giving).await;
            let mut failed = failed.into_iter().flatten();
            let Some((first, why)) = failed.next() else {
                return Ok(());
            };
            let sessions = std::iter::once(first).chain(failed.map(|(session, _)| session));
            Err(ShutdownError {
                sessions: sessions.collect(),
                why,
            })
        });
        // The client's thread runs as long as `self` is there.
        ending.await.unwrap_or(Ok(()))
    }

    /// Ends one attachment; says what is not certain.
    async fn give_back(
        &self,
        session: &Arc<SessionInner>,
        deadline: Moment,
    ) -> Option<(SessionId, CallError)> {
        if session.is_ours() {
            session.lose(&Loss::Closed);
            let closed = self.close(session, deadline).await;
            return closed.err().map(|why| (session.id(), why));
        }
        let endings = &self.inner.endings;
        // Leaving it forgets what was given up before, which the cluster may not have answered yet.
        let begun = endings.of(session.key());
        // Left first: a grant that comes from now on is not admitted, and is released where it comes.
        let held = session.lose_all(&Loss::Detached).unwrap_or_default();
        let released = held
            .iter()
            .map(|grant| endings.note_release(session, &grant.name, grant.token));
        let left: Vec<_> = begun.into_iter().chain(released).collect();
        let settling = left.iter().map(|ending| endings.settled(ending, deadline));
        let settled = join_all(settling).await.into_iter().all(|settled| settled);
        (!settled).then(|| {
            let why = "a release was not answered in time".into();
            (session.id(), CallError::Unknown { why })
        })
    }
}
