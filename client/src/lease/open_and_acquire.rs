//! A session and a lease under it, in one request.

use bytes::Bytes;
use rand::Rng;
use ringfence_core::{Identity, LeaseName, Secret, SessionId};
use ringfence_proto::v1::{AcquireRequest, OpenRequest, client_frame, server_frame};

use crate::lease::HeldLease;
use crate::lease::acquire::{self, AcquireError, AcquireOptions};
use crate::session::client::Client;
use crate::session::error::OpenError;
use crate::session::handle::SessionHandle;
use crate::session::open;
use crate::session::request_numbers::{RequestNumber, RequestNumbers};
use crate::session::ttl;
use crate::session::{Session, SessionOptions};
use crate::transport::calls::Answer;
use crate::transport::error::CallError;
use crate::transport::random;

/// A session that was opened, and what came of the acquire that was sent with it.
pub(crate) type OpenedAndAcquired = (Session, Result<HeldLease, AcquireError>);

/// Opens a session and acquires a lease with it in one request, which does not wait. If no caller
/// waits for it any more when the answer comes, both are given back.
pub(crate) async fn open_and_acquire(
    client: &Client,
    options: SessionOptions,
    name: LeaseName,
    acquire_options: AcquireOptions,
) -> Result<OpenedAndAcquired, AcquireError> {
    let fail = AcquireError::Open;
    let inner = &client.inner;
    let Some(under_way) = inner.begin_opening().await else {
        return Err(fail(OpenError::ShutDown));
    };
    let identity = Identity::parse(&options.identity);
    let identity = identity.map_err(|fault| fail(OpenError::InvalidIdentity(fault)))?;
    // What this client had of it before is settled first: new work has a new token.
    let settled = inner
        .endings
        .settle(&name, inner.transport.deadline())
        .await;
    settled.map_err(AcquireError::Call)?;
    let secret = Secret::new(random::rng().random());
    let opener = client.clone();
    let opening = inner.transport.thread.spawn(async move {
        let _under_way = under_way;
        let request = OpenRequest {
            secret: Bytes::copy_from_slice(secret.as_bytes()),
            ttl_ms: Some(u64::try_from(options.ttl.as_millis()).unwrap_or(u64::MAX)),
            identity: identity.as_str().to_owned(),
            ..OpenRequest::default()
        };
        let wanted = acquire::request(None, &name, FIRST, &acquire_options);
        // A refusal does not carry the send time of the try that was answered. The start of all
        // tries is earlier, so the window that counts from it is shorter and safe.
        let asked = opener.now();
        let answer = open::ask(&opener, request, |open| {
            let open = Some(open);
            client_frame::Body::Acquire(AcquireRequest {
                open,
                ..wanted.clone()
            })
        });
        let numbers = RequestNumbers::from(FIRST.number + 1);
        let keep = async |session: u64, ttl_ms: u64, sent| {
            let session =
                SessionId::new(session).ok_or(OpenError::Call(CallError::unexpected_reply()))?;
            let handle = SessionHandle {
                session,
                secret,
                cluster: opener.inner.transport.cluster(),
            };
            let ttl = ttl::of_answer(ttl_ms, false).map_err(OpenError::Call)?;
            let session = opener.inner.new_session(handle, ttl, sent, numbers);
            let kept = open::keep(&opener, session, true).map_err(|_| OpenError::TooLate);
            open::unless_shut_down(kept?)
                .await
                .ok_or(OpenError::ShutDown)
        };
        match answer.await {
            Ok(Answer {
                body: server_frame::Body::Acquire(reply),
                sent,
            }) => {
                let opened = reply
                    .opened
                    .ok_or(fail(OpenError::Call(CallError::unexpected_reply())))?;
                let session = keep(opened.session, opened.ttl_ms, sent)
                    .await
                    .map_err(fail)?;
                let lease = acquire::lease_of_grant(&session, &name, reply.grant);
                Ok((session, lease))
            }
            Ok(_) => Err(fail(OpenError::Call(CallError::unexpected_reply()))),
            Err(CallError::Refused(refusal)) => {
                let detail = |key: &str| refusal.metadata.get(key)?.parse().ok();
                let (Some(session), Some(ttl_ms)) = (detail("session"), detail("ttl_ms")) else {
                    return Err(fail(OpenError::Call(CallError::Refused(refusal))));
                };
                // When the try was sent that was answered is not reported: not before this.
                let session = keep(session, ttl_ms, asked).await.map_err(fail)?;
                let why = acquire::error_of_refusal(&session.guard.session, refusal);
                Ok((session, Err(why)))
            }
            Err(error) => Err(fail(OpenError::Call(error))),
        }
    });
    // Dropping this future drops what the task returns, and so gives it back.
    match opening.await {
        Ok(opened) => opened,
        Err(_) => Err(AcquireError::Call(CallError::stopped())),
    }
}

/// The number of an acquire that opens its session.
const FIRST: RequestNumber = RequestNumber {
    number: 1,
    lowest: 1,
};
