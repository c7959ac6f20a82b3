//! Releasing and handing over by name and token. Whoever calls this may believe in the grant, as a
//! held lease or by another attachment: belief ends before a request leaves.

use std::sync::Arc;

use ringfence_core::{FencingToken, LeaseName, SessionId};
use ringfence_planted::{Bug, planted};
use ringfence_proto::v1::{TransferRequest, client_frame, server_frame};

use crate::error::{CallError, ReleaseError};
use crate::lease::{HeldLease, TransferError, Transferred};
use crate::liveness::Liveness;
use crate::numbers::Number;
use crate::refusal::Reason;
use crate::session::{Hold, Session};
use crate::settle::{self, Work};
use crate::unsettled::What;

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
        release(Arc::clone(&self.hold), name.clone(), token).await
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
        transfer(Arc::clone(&self.hold), name.clone(), token, to).await
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
        let hub = Arc::clone(&self.hold.liveness.hub);
        let name = name.clone();
        let settling = self.hold.liveness.hub.thread.spawn(async move {
            let deadline = hub.deadline();
            hub.unsettled.settle(&name, deadline).await
        });
        settling.await.unwrap_or_else(|_| Err(stopped()))
    }
}

/// Releases by name and token. The request goes on in the background if it is not answered in
/// time, or if the caller does not wait.
pub(crate) async fn release(
    hold: Arc<Hold>,
    name: LeaseName,
    token: FencingToken,
) -> Result<(), ReleaseError> {
    let liveness = &hold.liveness;
    let ending = liveness
        .hub
        .unsettled
        .begin(liveness, &name, What::Grant(token));
    let releasing = Releasing {
        work: Some(Work::on(ending)),
        hold,
    };
    let deadline = releasing.hold.liveness.hub.deadline();
    let answer = match &releasing.work {
        Some(work) => settle::release(&work.ending, token, Some(deadline)).await,
        None => Ok(()),
    };
    if matches!(answer, Ok(()) | Err(CallError::Refused(_))) {
        releasing.over();
    }
    answer.map_err(ReleaseError::Call)
}

/// A release that goes on in the background when its caller stops waiting before it is answered.
struct Releasing {
    work: Option<Work>,
    hold: Arc<Hold>,
}

impl Releasing {
    fn over(mut self) {
        if let Some(work) = self.work.take() {
            work.over(true);
        }
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let hold = Arc::clone(&self.hold);
            settle::in_background(&self.hold.liveness.hub, work, Some(hold));
        }
    }
}

/// Hands over by name and token. If this client believed in the grant it is a hand-over of that
/// lease; else the caller answers for it that belief has ended wherever it was.
pub(crate) async fn transfer(
    hold: Arc<Hold>,
    name: LeaseName,
    token: FencingToken,
    to: Option<SessionId>,
) -> Result<Transferred, TransferError> {
    let liveness = &hold.liveness;
    let hub = Arc::clone(&liveness.hub);
    let believed = match planted(Bug::BeliefByHandleAlone) {
        true => None,
        false => hub.end_belief(liveness.id().get(), name.as_str(), token),
    };
    if let Some(grant) = believed {
        return HeldLease::new(hold, grant)
            .hand_over_in_background(to)
            .await;
    }
    let asking = hub.thread.spawn(async move {
        let answer = request_transfer(&hold.liveness, &name, token, to).await;
        drop(hold);
        answer
    });
    match asking.await.unwrap_or_else(|_| Err(stopped())) {
        Ok(transferred) => Ok(transferred),
        Err(CallError::Refused(refusal)) if refusal.reason == Reason::NotWaiting => {
            Err(TransferError::NotWaiting { lease: None })
        }
        Err(error) => Err(TransferError::Call(error)),
    }
}

pub(crate) async fn request_transfer(
    session: &Arc<Liveness>,
    name: &LeaseName,
    token: FencingToken,
    to: Option<SessionId>,
) -> Result<Transferred, CallError> {
    let deadline = session.hub.deadline();
    let body = |number: Number| {
        client_frame::Body::Transfer(TransferRequest {
            session: Some(session.handle().to_wire()),
            number: number.number,
            lowest: number.lowest,
            name: name.to_string(),
            token: token.get(),
            to_session: to.map_or(0, SessionId::get),
        })
    };
    let reply = settle::repeat(session, Some(deadline), body).await?;
    let transferred = match reply {
        server_frame::Body::Transfer(reply) => SessionId::new(reply.to_session)
            .zip(FencingToken::new(reply.token))
            .map(|(to, token)| Transferred { to, token }),
        _ => None,
    };
    let why = "the server's reply does not fit the request";
    transferred.ok_or_else(|| CallError::Unknown { why: why.into() })
}

pub(crate) fn stopped() -> CallError {
    CallError::Unknown {
        why: "the client has stopped".into(),
    }
}
