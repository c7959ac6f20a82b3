//! Releasing and handing over by name and token. The caller may believe in the grant, as a
//! held lease or by another attachment: belief ends before a request leaves.

use std::sync::Arc;

use ringfence_core::{FencingToken, LeaseName, SessionId};
use ringfence_planted::{Bug, planted};

use crate::lease::{HeldLease, TransferError};
use crate::session::endings::{self, Transferred};
use crate::session::error::ReleaseError;
use crate::session::{Session, SessionGuard};
use crate::transport::error::CallError;
use crate::transport::refusal::Reason;

impl Session {
    /// Releases a lease by its token, for a session that was resumed from its handle. A
    /// [`HeldLease`](crate::HeldLease) is released by its own method.
    ///
    /// Every [`HeldLease`](crate::HeldLease) of this grant that this client has, by whichever
    /// attachment, is lost before the request leaves. For other processes see
    /// [`handle`](Self::handle).
    ///
    /// # Errors
    /// [`ReleaseError`]; [`CallError::Refused`] inside it if this session does not hold the lease
    /// with this token.
    pub async fn release(&self, name: &LeaseName, token: FencingToken) -> Result<(), ReleaseError> {
        self.guard.release(name, token).await
    }

    /// Hands a lease over by its token, for a session that was resumed from its handle; see
    /// [`HeldLease::transfer_to`](crate::HeldLease::transfer_to). Belief ends as with
    /// [`release`](Self::release); if the target does not wait and this client believed in the
    /// grant, the lease comes back in the error.
    ///
    /// # Errors
    /// [`TransferError`].
    pub async fn transfer(
        &self,
        name: &LeaseName,
        token: FencingToken,
        to: Option<SessionId>,
    ) -> Result<Transferred, TransferError> {
        transfer(Arc::clone(&self.guard), name.clone(), token, to).await
    }

    /// Waits until the cluster has answered for all of `name` that this client has given up: an
    /// acquire whose future was dropped, a lease that was dropped or lost. Behind it nothing of these
    /// is granted or waits. For a process that ends and leaves its session to others: what is under
    /// way ends with it, and its place in a queue would be served.
    ///
    /// # Errors
    /// [`CallError`] if that is not certain within the
    /// [request timeout](crate::ClientBuilder::request_timeout).
    pub async fn settle(&self, name: &LeaseName) -> Result<(), CallError> {
        let inner = &self.guard.client.inner;
        let (endings, transport) = (Arc::clone(&inner.endings), Arc::clone(&inner.transport));
        let name = name.clone();
        let settling = inner.transport.thread.spawn(async move {
            let deadline = transport.deadline();
            endings.settle(&name, deadline).await
        });
        settling.await.unwrap_or_else(|_| Err(CallError::stopped()))
    }
}

/// Hands over by name and token. If this client believed in the grant it is a hand-over of that
/// lease; else the caller answers for it that belief has ended wherever it was.
async fn transfer(
    guard: Arc<SessionGuard>,
    name: LeaseName,
    token: FencingToken,
    to: Option<SessionId>,
) -> Result<Transferred, TransferError> {
    let (inner, session) = (&guard.client.inner, guard.session.id());
    let believed = match planted(Bug::BeliefByHandleAlone) {
        true => None,
        false => inner.end_belief(session.get(), name.as_str(), token),
    };
    if let Some(grant) = believed {
        return HeldLease::new(guard, grant)
            .hand_over_in_background(to)
            .await;
    }
    let thread = guard.session.transport.thread.clone();
    let asking = thread.spawn(async move {
        let answer = endings::transfer(&guard.session, &name, token, to).await;
        drop(guard);
        answer
    });
    match asking.await.unwrap_or_else(|_| Err(CallError::stopped())) {
        Ok(transferred) => Ok(transferred),
        Err(CallError::Refused(refusal)) if refusal.reason == Reason::NotWaiting => {
            Err(TransferError::NotWaiting { lease: None })
        }
        Err(error) => Err(TransferError::Call(error)),
    }
}
