//! What is answered from the state and from the history.

use http::StatusCode;
use ringfence_core::FencingToken;
use ringfence_proto::v1::Reason;
use ringfence_proto::v1::check_response::Verdict;
use ringfence_proto::v1::leases_server::Leases;
use ringfence_proto::wire::{HISTORY_LIMIT_MAX, LEASES_PAGE_MAX};
use ringfence_proto::{Refusal, v1};
use serde_json::{Value, json};

use crate::Rest;
use crate::call::{Answer, Call, Refused};
use crate::query::{Query, decoded, whole};
use crate::shown::{self, Members, fence};

/// How fresh a read has to be.
fn read_options(query: &mut Query) -> Result<Option<v1::ReadOptions>, Refusal> {
    let max = query.millis("max_staleness")?;
    Ok(max.map(|max_staleness_ms| v1::ReadOptions { max_staleness_ms }))
}

impl Rest {
    /// `GET /v1/leases`
    pub(crate) async fn list(&self, call: &Call) -> Result<Answer, Refused> {
        let mut query = call.query()?;
        let list = v1::ListRequest {
            prefix: query.text("prefix")?.unwrap_or_default(),
            page_size: query.limit(LEASES_PAGE_MAX)?,
            page_token: query.text("page")?.unwrap_or_default(),
            read: read_options(&mut query)?,
        };
        query.end()?;
        let listed = self.leases.list(call.ask(list)).await?;
        let (_, listed, extensions) = listed.into_parts();
        let value = Members::default()
            .with(
                "leases",
                listed.leases.iter().map(shown::lease).collect::<Value>(),
            )
            .with_text("next_page", &listed.next_page_token)
            .with("at", shown::read_point(listed.at.as_ref()))
            .value();
        Ok(Answer {
            extensions,
            ..Answer::ok(value)
        })
    }

    /// `GET /v1/leases/NAME`
    pub(crate) async fn get(&self, call: &Call) -> Result<Answer, Refused> {
        let mut query = call.query()?;
        let get = v1::GetRequest {
            name: decoded(call.rest(), "name")?,
            read: read_options(&mut query)?,
        };
        query.end()?;
        let got = self.leases.get(call.ask(get)).await?.into_inner();
        let lease = got.lease.unwrap_or_default();
        let Value::Object(mut members) = shown::lease(&lease) else {
            return Err(Refusal::fault("a lease is shown as an object").into());
        };
        members.insert("at".to_owned(), shown::read_point(got.at.as_ref()));
        Ok(Answer::ok(Value::Object(members)))
    }

    /// `GET /v1/check/NAME/TOKEN`
    pub(crate) async fn check(&self, call: &Call) -> Result<Answer, Refused> {
        let mut query = call.query()?;
        let (name, token) = call.rest().rsplit_once('/').unwrap_or((call.rest(), ""));
        let (name, token) = (decoded(name, "name")?, whole(token, "token")?);
        let check = v1::CheckRequest {
            name: name.clone(),
            token,
            read: read_options(&mut query)?,
        };
        query.end()?;
        let checked = self.leases.check(call.ask(check)).await?.into_inner();
        let verdict = checked.verdict();
        let members = Members::default()
            .with("name", name.as_str())
            .with("token", token)
            .with("fence", fence(&name, token))
            .with("verdict", verdict.as_str_name())
            .with_number("newest", checked.newest)
            .with("at", shown::read_point(checked.at.as_ref()));
        if verdict == Verdict::Current {
            return Ok(Answer::ok(members.value()));
        }
        let message = format!(
            "token {token} is not that of the present grant of lease {name}; stop the work under it"
        );
        let refusal = Refusal::new(Reason::StaleToken, message).with("offered", token);
        let more = members.map();
        Err(Refused { refusal, more })
    }

    /// `GET /v1/history/NAME`
    pub(crate) async fn history(&self, call: &Call) -> Result<Answer, Refused> {
        let mut query = call.query()?;
        let ask = v1::HistoryRequest {
            name: decoded(call.rest(), "name")?,
            token: 0,
            limit: query.limit(HISTORY_LIMIT_MAX)?,
        };
        query.end()?;
        self.records(call, ask).await
    }

    /// `GET /v1/history?token=TOKEN`
    pub(crate) async fn history_of_token(&self, call: &Call) -> Result<Answer, Refused> {
        let mut query = call.query()?;
        let token = query.number("token")?;
        query.end()?;
        let token = token.ok_or_else(|| {
            Refusal::missing("token", "a token here, or a name as in /v1/history/NAME,")
        })?;
        if token == 0 {
            // The message takes it for no token.
            let allowed = format!("1 to {}", FencingToken::MAX);
            return Err(Refusal::invalid("token", token, allowed).into());
        }
        let ask = v1::HistoryRequest {
            token,
            ..v1::HistoryRequest::default()
        };
        self.records(call, ask).await
    }

    async fn records(&self, call: &Call, ask: v1::HistoryRequest) -> Result<Answer, Refused> {
        let answered = self.leases.history(call.ask(ask)).await?;
        let (_, answered, extensions) = answered.into_parts();
        let covered = answered.covered.iter();
        let covered = covered.map(|range| json!({ "first": range.first, "last": range.last }));
        let value = json!({
            "records": answered.records.iter().map(shown::record).collect::<Value>(),
            "covered": covered.collect::<Value>(),
        });
        Ok(Answer {
            status: StatusCode::OK,
            value,
            extensions,
        })
    }
}
