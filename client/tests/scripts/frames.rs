//! Requests as JSON, and JSON as replies.

use bytes::Bytes;
use ringfence_proto::v1::client_frame::Body as Ask;
use ringfence_proto::v1::server_frame::Body as Reply;
use ringfence_proto::v1::{
    self, AcquireResponse, CancelResponse, CheckResponse, CloseResponse, EndCause, GetResponse,
    Grant, KeepAliveResponse, Lease, LostGrant, OpenResponse, Reason, ReleaseResponse, SessionEnd,
    SessionHandle, SessionLosses, SessionState, TransferResponse,
};
use serde_json::{Value, json};

/// The kind of a request, as scripts write it, and its fields.
pub(crate) fn of_request(ask: &Ask) -> (&'static str, Value) {
    match ask {
        Ask::Open(ask) => (
            "open",
            json!({
                "open_id": hex(&ask.id),
                "secret": hex(&ask.secret),
                "ttl_ms": ask.ttl_ms,
                "identity": ask.identity,
                "seen_cluster_time_ms": ask.seen_cluster_time_ms,
            }),
        ),
        Ask::KeepAlive(ask) => {
            let sessions: Vec<_> = ask.sessions.iter().map(|one| one.session).collect();
            let acknowledged = ask.acknowledged.iter();
            let acknowledged: Vec<_> = acknowledged
                .map(|one| json!({"session": one.session, "token": one.token}))
                .collect();
            (
                "keep_alive",
                json!({"sessions": sessions, "acknowledged": acknowledged}),
            )
        }
        Ask::Close(ask) => ("close", with_handle(ask.session.as_ref(), json!({}))),
        Ask::Acquire(ask) => {
            let fields = json!({
                "number": ask.number,
                "lowest": ask.lowest,
                "name": ask.name,
                "wait_ms": ask.wait_ms,
                "data": String::from_utf8_lossy(&ask.data),
                "lock_delay_ms": ask.lock_delay_ms,
            });
            ("acquire", with_handle(ask.session.as_ref(), fields))
        }
        Ask::Cancel(ask) => {
            let fields = json!({"number": ask.number, "lowest": ask.lowest, "target": ask.target});
            ("cancel", with_handle(ask.session.as_ref(), fields))
        }
        Ask::Release(ask) => {
            let fields = json!({
                "number": ask.number,
                "lowest": ask.lowest,
                "name": ask.name,
                "token": ask.token,
                "close_session": ask.close_session,
            });
            ("release", with_handle(ask.session.as_ref(), fields))
        }
        Ask::Transfer(ask) => {
            let fields = json!({
                "number": ask.number,
                "lowest": ask.lowest,
                "name": ask.name,
                "token": ask.token,
                "to_session": ask.to_session,
            });
            ("transfer", with_handle(ask.session.as_ref(), fields))
        }
        Ask::Get(ask) => ("get", json!({"name": ask.name})),
        Ask::Check(ask) => ("check", json!({"name": ask.name, "token": ask.token})),
    }
}

fn with_handle(handle: Option<&SessionHandle>, mut fields: Value) -> Value {
    let handle = handle.cloned().unwrap_or_default();
    fields["session"] = handle.session.into();
    fields["secret"] = hex(&handle.secret).into();
    fields
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The reply that a script writes, as an object with one member, named by the kind of the reply. What a
/// grant leaves out is what the request asked for.
pub(crate) fn reply(kind: &str, told: &Value, request: &Value) -> Result<Reply, String> {
    Ok(match kind {
        "grant" => Reply::Acquire(AcquireResponse {
            grant: Some(grant(told, request)?),
            opened: None,
            cluster_time_ms: number(told, "cluster_time_ms", 0)?,
        }),
        "no_grant" => Reply::Acquire(AcquireResponse::default()),
        "refusal" => Reply::Refusal(refusal(told)?),
        "open" => Reply::Open(OpenResponse {
            session: number(told, "session", 1)?,
            ttl_ms: number(told, "ttl_ms", request["ttl_ms"].as_u64().unwrap_or(0))?,
            cluster_time_ms: number(told, "cluster_time_ms", 0)?,
            cluster_id: Bytes::new(),
        }),
        "keep_alive" => Reply::KeepAlive(keep_alive(told)?),
        "close" => Reply::Close(CloseResponse {
            cause: session_end(&told["cause"])?,
            cluster_time_ms: 0,
        }),
        "release" => Reply::Release(ReleaseResponse::default()),
        "cancel" => {
            let result = text(told, "result")?;
            let found = v1::cancel_response::Result::from_str_name(result);
            let result = found.ok_or_else(|| format!("no result of a cancel: {result}"))?;
            Reply::Cancel(CancelResponse {
                result: result.into(),
                name: told["name"].as_str().unwrap_or_default().to_owned(),
                token: number(told, "token", 0)?,
                cluster_time_ms: 0,
            })
        }
        "transfer" => Reply::Transfer(TransferResponse {
            to_session: number(told, "to_session", 0)?,
            token: number(told, "token", 0)?,
            cluster_time_ms: 0,
        }),
        "get" => Reply::Get(GetResponse {
            lease: Some(Lease {
                name: request["name"].as_str().unwrap_or_default().to_owned(),
                ..Lease::default()
            }),
            at: None,
        }),
        "check" => {
            let verdict = text(told, "verdict")?;
            let found = v1::check_response::Verdict::from_str_name(verdict);
            let verdict = found.ok_or_else(|| format!("no verdict: {verdict}"))?;
            Reply::Check(CheckResponse {
                verdict: verdict.into(),
                newest: number(told, "newest", 0)?,
                at: None,
            })
        }
        other => return Err(format!("no kind of a reply: {other}")),
    })
}

fn grant(told: &Value, request: &Value) -> Result<Grant, String> {
    let name = told["name"].as_str().or(request["name"].as_str());
    let data = told["data"].as_str().or(request["data"].as_str());
    let data = data.unwrap_or_default();
    Ok(Grant {
        name: name.unwrap_or_default().to_owned(),
        token: number(told, "token", 0)?,
        session: number(told, "session", request["session"].as_u64().unwrap_or(0))?,
        identity: String::new(),
        data: Bytes::copy_from_slice(data.as_bytes()),
        request: number(told, "request", request["number"].as_u64().unwrap_or(0))?,
        index: 1,
        since_unix_ms: 1_700_000_000_000,
    })
}

/// Also for a stream that is refused as a whole.
pub(crate) fn refusal(told: &Value) -> Result<v1::Refusal, String> {
    let reason = match told["reason"].as_i64() {
        Some(number) => i32::try_from(number).map_err(|_| "a reason out of range".to_owned())?,
        None => reason(told)?.into(),
    };
    let details = told["details"].as_object();
    let details = details.into_iter().flatten();
    let metadata = details
        .map(|(key, value)| {
            let text = value.as_str().map(str::to_owned);
            (key.clone(), text.unwrap_or_else(|| value.to_string()))
        })
        .collect();
    Ok(v1::Refusal {
        reason,
        message: told["message"].as_str().unwrap_or("as scripted").to_owned(),
        metadata,
        retry_after_ms: number(told, "retry_after_ms", 0)?,
    })
}

fn reason(told: &Value) -> Result<Reason, String> {
    let name = text(told, "reason")?;
    Reason::from_str_name(&format!("REASON_{name}")).ok_or_else(|| format!("no reason: {name}"))
}

pub(crate) fn keep_alive(told: &Value) -> Result<KeepAliveResponse, String> {
    let mut reply = KeepAliveResponse::default();
    for one in list(told, "lost") {
        let name = one["name"].as_str().unwrap_or_default().to_owned();
        let grant = LostGrant {
            name,
            token: number(one, "token", 0)?,
            cause: grant_end(&one["cause"])?,
        };
        reply.lost.push(SessionLosses {
            session: number(one, "session", 1)?,
            grants: vec![grant],
        });
    }
    for one in list(told, "ended") {
        reply.ended.push(SessionState {
            session: number(one, "session", 1)?,
            reason: reason(one)?.into(),
            cause: session_end(&one["cause"])?,
        });
    }
    for one in list(told, "untold") {
        let session = one.as_u64().ok_or("untold: expected session numbers")?;
        reply.untold.push(session);
    }
    if told.get("refusal").is_some() {
        reply.refusal = Some(refusal(&told["refusal"])?);
    }
    Ok(reply)
}

fn list<'a>(told: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    told[key].as_array().into_iter().flatten()
}

fn grant_end(told: &Value) -> Result<Option<EndCause>, String> {
    let Some(name) = told.as_str() else {
        return Ok(None);
    };
    let kind = v1::end_cause::Kind::from_str_name(name);
    let kind = kind.ok_or_else(|| format!("no cause of a grant's end: {name}"))?;
    Ok(Some(EndCause {
        kind: kind.into(),
        ..EndCause::default()
    }))
}

fn session_end(told: &Value) -> Result<Option<SessionEnd>, String> {
    let Some(name) = told.as_str() else {
        return Ok(None);
    };
    let kind = v1::session_end::Kind::from_str_name(name);
    let kind = kind.ok_or_else(|| format!("no cause of a session's end: {name}"))?;
    Ok(Some(SessionEnd {
        kind: kind.into(),
        ..SessionEnd::default()
    }))
}

fn text<'a>(told: &'a Value, key: &str) -> Result<&'a str, String> {
    told[key]
        .as_str()
        .ok_or_else(|| format!("no text {key} in {told}"))
}

fn number(told: &Value, key: &str, absent: u64) -> Result<u64, String> {
    match &told[key] {
        Value::Null => Ok(absent),
        value => value
            .as_u64()
            .ok_or_else(|| format!("{key}: {value} is no number")),
    }
}
