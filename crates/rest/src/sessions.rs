//! Sessions: opened, kept alive, closed.

use http::StatusCode;
use ringfence_proto::v1::Reason;
use ringfence_proto::v1::sessions_server::Sessions;
use ringfence_proto::{Refusal, v1};
use serde_json::{Value, json};

use crate::Rest;
use crate::call::{Answer, Call, Refused, refusal};
use crate::handle;
use crate::numbers;
use crate::repeats::{in_words_of_key, same_ttl};
use crate::shown::{self, Members};
use crate::window::{validity, validity_after};
use bytes::Bytes;
use tonic::Status;

/// A session that was opened for this caller.
pub(crate) struct Opened {
    pub(crate) handle: v1::SessionHandle,
    pub(crate) ttl_ms: u64,
}

/// What a keep-alive came to.
pub(crate) struct Kept {
    /// Counted from before the request was sent; 0 if nothing is extended.
    pub(crate) valid_for_ms: u64,
    /// Grants that have ended against the session's will.
    pub(crate) lost: Vec<v1::LostGrant>,
}

/// A session that a request opens.
pub(crate) fn open_request(id: Option<Bytes>, secret: Option<Bytes>) -> v1::OpenRequest {
    let chance = || Bytes::copy_from_slice(&rand::random::<[u8; handle::SECRET_BYTES]>());
    v1::OpenRequest {
        id: id.unwrap_or_else(chance),
        secret: secret.unwrap_or_else(chance),
        ..v1::OpenRequest::default()
    }
}

/// The id and the secret of an opening that its caller can repeat.
pub(crate) fn repeatable(
    call: &Call,
    secret: Option<Bytes>,
) -> Result<(Option<Bytes>, Option<Bytes>), Refusal> {
    let id = numbers::of_open(call.headers())?;
    if id.is_some() && secret.is_none() {
        let allowed = "with an Idempotency-Key, a secret of the caller's own: 32 hexadecimal digits. \
                       Without it the repeat could not be answered with the session";
        return Err(Refusal::missing("secret", allowed));
    }
    Ok((id, secret))
}

impl Rest {
    /// `POST /v1/sessions`
    pub(crate) async fn open_session(&self, call: &Call, body: &[u8]) -> Result<Answer, Refused> {
        let mut fields = call.fields(body)?;
        let ttl_ms = fields.millis("ttl")?;
        let identity = fields.text("identity")?.unwrap_or_default();
        let (id, secret) = repeatable(call, fields.secret()?)?;
        fields.end()?;
        let repeats = id.is_some();
        let open = v1::OpenRequest {
            ttl_ms,
            identity,
            ..open_request(id, secret)
        };
        let opened = self.open(call, open).await;
        let opened = opened.map_err(|status| in_words_of_key(refusal(&status)))?;
        same_ttl(ttl_ms, opened.ttl_ms)?;
        let valid_for_ms = match repeats {
            // The session was perhaps opened by an earlier try, long before this one was sent.
            true => {
                self.keep_or_nothing(call, &opened.handle)
                    .await?
                    .valid_for_ms
            }
            false => validity(opened.ttl_ms),
        };
        let value = json!({
            "session": handle::shown(&opened.handle),
            "ttl_ms": opened.ttl_ms,
            "valid_for_ms": valid_for_ms,
        });
        Ok(Answer {
            status: StatusCode::CREATED,
            ..Answer::ok(value)
        })
    }

    /// Opens a session.
    pub(crate) async fn open(&self, call: &Call, open: v1::OpenRequest) -> Result<Opened, Status> {
        let secret = open.secret.clone();
        let opened = self.sessions.open(call.ask(open)).await?.into_inner();
        Ok(Opened {
            handle: v1::SessionHandle {
                session: opened.session,
                secret,
            },
            ttl_ms: opened.ttl_ms,
        })
    }

    /// `POST /v1/keep-alive`
    pub(crate) async fn keep_alive(&self, call: &Call, body: &[u8]) -> Result<Answer, Refused> {
        let mut fields = call.fields(body)?;
        let session = fields.required_session()?;
        let acknowledged = fields.numbers("acknowledged")?;
        fields.end()?;
        let kept = self.keep(call, &session, acknowledged).await?;
        Ok(Answer::ok(json!({
            "valid_for_ms": kept.valid_for_ms,
            "lost": lost(&kept.lost),
        })))
    }

    /// Keeps a session alive; its window counts from before the caller sent the request.
    pub(crate) async fn keep(
        &self,
        call: &Call,
        session: &v1::SessionHandle,
        acknowledged: Vec<u64>,
    ) -> Result<Kept, Refused> {
        let acknowledged = acknowledged.into_iter().map(|token| v1::Acknowledged {
            session: session.session,
            token,
        });
        let ask = v1::KeepAliveRequest {
            id: 1,
            sessions: vec![session.clone()],
            acknowledged: acknowledged.collect(),
        };
        // Before it is submitted: from then on the session lives for a TTL.
        let elapsed = call.elapsed_ms();
        let (answer, ttl) = self.sessions.keep_alive_once(call.ask(ask)).await?;
        if let Some(refusal) = answer.refusal {
            let known = Refusal::from_wire(refusal);
            let unknown = || Refusal::outcome_unknown("the keep-alive was not acknowledged");
            return Err(known.unwrap_or_else(unknown).into());
        }
        if let Some(state) = answer.ended.into_iter().next() {
            return Err(over(&state).into());
        }
        let valid_for_ms = match ttl {
            Some(ttl) if answer.untold.is_empty() => {
                let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                validity_after(elapsed, ttl)
            }
            // What it has to report had no room, or the session has ended since.
            _ => 0,
        };
        let lost = answer.lost.into_iter().flat_map(|lost| lost.grants);
        Ok(Kept {
            valid_for_ms,
            lost: lost.collect(),
        })
    }

    /// The same behind an answer that is known already: unless the session is over, belief is only
    /// not extended yet, and the caller's next keep-alive says more.
    pub(crate) async fn keep_or_nothing(
        &self,
        call: &Call,
        session: &v1::SessionHandle,
    ) -> Result<Kept, Refused> {
        match self.keep(call, session, Vec::new()).await {
            Err(refused) if !is_over(refused.refusal.reason) => Ok(Kept {
                valid_for_ms: 0,
                lost: Vec::new(),
            }),
            kept => kept,
        }
    }

    /// `POST /v1/close`
    pub(crate) async fn close(&self, call: &Call, body: &[u8]) -> Result<Answer, Refused> {
        let mut fields = call.fields(body)?;
        let session = Some(fields.required_session()?);
        fields.end()?;
        numbers::of_nothing(call.headers())?;
        let close = v1::CloseRequest { session };
        let closed = self.sessions.close(call.ask(close)).await?.into_inner();
        let cause = closed
            .cause
            .as_ref()
            .map(|end| json!(end.kind().as_str_name()));
        Ok(Answer::ok(
            Members::default().with_some("cause", cause).value(),
        ))
    }
}

/// Whether the session has ended for this caller.
pub(crate) fn is_over(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::SessionExpired
            | Reason::WrongSecret
            | Reason::PermissionDenied
            | Reason::Unauthenticated
    )
}

/// Lost grants as an array.
pub(crate) fn lost(grants: &[v1::LostGrant]) -> Value {
    grants.iter().map(shown::lost).collect()
}

/// A session that a keep-alive did not renew.
fn over(state: &v1::SessionState) -> Refusal {
    let message = match state.reason() {
        Reason::SessionExpired => {
            "the session has ended, and all of its leases with it; stop the work"
        }
        Reason::WrongSecret => "the secret is not the session's; nothing was extended",
        Reason::Unauthenticated => "the caller's token was revoked; nothing was extended",
        _ => "the session is another principal's, or the caller is banned; nothing was extended",
    };
    let refusal = Refusal::new(state.reason(), message).with("session", state.session);
    match &state.cause {
        Some(cause) => refusal.with("cause", cause.kind().as_str_name()),
        None => refusal,
    }
}
