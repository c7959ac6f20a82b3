//! What ends a grant or hands it over, and what takes a request back.

use ringfence_proto::v1;
use ringfence_proto::v1::leases_server::Leases;
use serde_json::json;
use tonic::Status;

use crate::Rest;
use crate::call::{Answer, Call, Refused, refusal};
use crate::fields::Fields;
use crate::numbers::{self, Numbered, TRIES_MAX};
use crate::shown::{Members, fence};
use ringfence_proto::Refusal;

/// What names a grant.
struct Named {
    name: String,
    token: u64,
}

fn named(fields: &mut Fields) -> Result<Named, Refusal> {
    let name = fields.required("name", "a lease name")?;
    let token = fields.number("token")?;
    let token = token.ok_or_else(|| Refusal::missing("token", "the grant's token"))?;
    Ok(Named { name, token })
}

impl Rest {
    /// Makes a numbered request: once under its caller's number; else under one of this node's, and
    /// under the next if the session has seen a greater one. Returns the number as well.
    pub(crate) async fn numbered<T, F>(
        &self,
        given: Option<Numbered>,
        ask: impl Fn(Numbered) -> F,
    ) -> (u64, Result<T, Status>)
    where
        F: Future<Output = Result<T, Status>>,
    {
        if let Some(given) = given {
            return (given.number, ask(given).await);
        }
        let mut number = numbers::chosen();
        for _ in 1..TRIES_MAX {
            let lowest = number;
            let answered = ask(Numbered { number, lowest }).await;
            let Err(status) = &answered else {
                return (number, answered);
            };
            match numbers::after(&refusal(status), number) {
                Some(next) => number = next,
                None => return (number, answered),
            }
        }
        let lowest = number;
        (number, ask(Numbered { number, lowest }).await)
    }

    /// `POST /v1/release`
    pub(crate) async fn release(&self, call: &Call, body: &[u8]) -> Result<Answer, Refused> {
        let mut fields = call.fields(body)?;
        let session = fields.required_session()?;
        let Named { name, token } = named(&mut fields)?;
        let close_session = fields.flag("close")?;
        let given = numbers::of_request(call.headers(), fields.number("lowest")?)?;
        fields.end()?;
        let ask = |numbered: Numbered| {
            let release = v1::ReleaseRequest {
                session: Some(session.clone()),
                number: numbered.number,
                lowest: numbered.lowest,
                name: name.clone(),
                token,
                close_session,
            };
            self.leases.release(call.ask(release))
        };
        let (_, released) = self.numbered(given, ask).await;
        released?;
        Ok(Answer::ok(json!({ "released": fence(&name, token) })))
    }

    /// `POST /v1/transfer`
    pub(crate) async fn transfer(&self, call: &Call, body: &[u8]) -> Result<Answer, Refused> {
        let mut fields = call.fields(body)?;
        let session = fields.required_session()?;
        let Named { name, token } = named(&mut fields)?;
        let to_session = fields.number("to_session")?.unwrap_or_default();
        let given = numbers::of_request(call.headers(), fields.number("lowest")?)?;
        fields.end()?;
        let ask = |numbered: Numbered| {
            let transfer = v1::TransferRequest {
                session: Some(session.clone()),
                number: numbered.number,
                lowest: numbered.lowest,
                name: name.clone(),
                token,
                to_session,
            };
            self.leases.transfer(call.ask(transfer))
        };
        let (_, transferred) = self.numbered(given, ask).await;
        let transferred = transferred?.into_inner();
        Ok(Answer::ok(json!({
            "name": name,
            "token": transferred.token,
            "fence": fence(&name, transferred.token),
            "to_session": transferred.to_session,
        })))
    }

    /// `POST /v1/cancel`
    pub(crate) async fn cancel(&self, call: &Call, body: &[u8]) -> Result<Answer, Refused> {
        let mut fields = call.fields(body)?;
        let session = fields.required_session()?;
        let target = fields.number("request")?;
        let target = target.ok_or_else(|| Refusal::missing("request", "a request number"))?;
        let given = numbers::of_request(call.headers(), fields.number("lowest")?)?;
        fields.end()?;
        let (_, cancelled) = self.take_back(call, &session, target, given).await;
        let cancelled = cancelled?;
        let members = Members::default().with("result", cancelled.result().as_str_name());
        let members = match cancelled.token {
            0 => members,
            token => members
                .with("name", cancelled.name.as_str())
                .with("token", token)
                .with("fence", fence(&cancelled.name, token)),
        };
        Ok(Answer::ok(members.value()))
    }

    /// Cancels a request of a session.
    pub(crate) async fn take_back(
        &self,
        call: &Call,
        session: &v1::SessionHandle,
        target: u64,
        given: Option<Numbered>,
    ) -> (u64, Result<v1::CancelResponse, Status>) {
        let ask = |numbered: Numbered| {
            let cancel = v1::CancelRequest {
                session: Some(session.clone()),
                number: numbered.number,
                lowest: numbered.lowest,
                target,
            };
            let cancelled = self.leases.cancel(call.ask(cancel));
            async { Ok(cancelled.await?.into_inner()) }
        };
        self.numbered(given, ask).await
    }

    /// `POST /v1/revoke`
    pub(crate) async fn revoke(&self, call: &Call, body: &[u8]) -> Result<Answer, Refused> {
        let mut fields = call.fields(body)?;
        let Named { name, token } = named(&mut fields)?;
        let revoke = v1::RevokeRequest {
            name: name.clone(),
            token,
            now: fields.flag("now")?,
            reason: fields.text("reason")?.unwrap_or_default(),
            operator: fields.text("operator")?.unwrap_or_default(),
        };
        fields.end()?;
        // It names a token, so that repeating it is harmless without a number.
        numbers::of_nothing(call.headers())?;
        self.leases.revoke(call.ask(revoke)).await?;
        Ok(Answer::ok(json!({ "revoked": fence(&name, token) })))
    }
}
