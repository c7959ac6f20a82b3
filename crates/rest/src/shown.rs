//! Messages of the protocol as JSON. What is absent there is absent here.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringfence_proto::v1;
use serde_json::{Map, Value, json};

/// An object that is written member by member.
#[derive(Default)]
pub(crate) struct Members(Map<String, Value>);

impl Members {
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// Without the member if the text is empty.
    pub(crate) fn with_text(self, name: &str, text: &str) -> Self {
        match text {
            "" => self,
            text => self.with(name, text),
        }
    }

    /// Without the member if the number is 0, which means that there is none.
    pub(crate) fn with_number(self, name: &str, number: u64) -> Self {
        match number {
            0 => self,
            number => self.with(name, number),
        }
    }

    pub(crate) fn with_some(self, name: &str, value: Option<Value>) -> Self {
        match value {
            None => self,
            Some(value) => self.with(name, value),
        }
    }

    pub(crate) fn value(self) -> Value {
        Value::Object(self.0)
    }

    pub(crate) fn map(self) -> Map<String, Value> {
        self.0
    }
}

/// Lease name and token as guards take them.
pub(crate) fn fence(name: &str, token: u64) -> String {
    format!("{name}#{token}")
}

/// Holder data: a text if it is one.
fn data(members: Members, data: &[u8]) -> Members {
    match std::str::from_utf8(data) {
        Ok(text) => members.with_text("data", text),
        Err(_) => members.with("data_base64", STANDARD.encode(data)),
    }
}

/// A grant as readers see it; its session is the number alone.
pub(crate) fn grant(grant: &v1::Grant) -> Members {
    let members = Members::default()
        .with("name", grant.name.as_str())
        .with("token", grant.token)
        .with("fence", fence(&grant.name, grant.token))
        .with_number("holder", grant.session)
        .with("identity", grant.identity.as_str());
    data(members, &grant.data)
        .with_number("request", grant.request)
        .with_number("index", grant.index)
        .with_number("since_unix_ms", grant.since_unix_ms)
}

/// A lease as readers see it.
pub(crate) fn lease(lease: &v1::Lease) -> Value {
    let held = lease.holder.as_ref();
    let members = Members::default()
        .with("name", lease.name.as_str())
        .with_some("held", held.map(|held| grant(held).value()));
    let members = match held {
        None => members,
        Some(_) => members
            .with("ttl_ms", lease.ttl_ms)
            .with("left_ms", lease.remaining_ms),
    };
    members
        .with("waiters", lease.waiters)
        .with_number("floor", lease.floor)
        .with_number("blocked_ms", lease.blocked_ms)
        .value()
}

/// Why a grant ended.
pub(crate) fn end_cause(cause: &v1::EndCause) -> Value {
    let kind = cause.kind().as_str_name();
    let members = Members::default().with("kind", kind);
    members
        .with_text("operator", &cause.operator)
        .with_text("reason", &cause.reason)
        .with_number("to_session", cause.to_session)
        .with_text("pod_uid", &cause.pod_uid)
        .value()
}

/// A grant that ended against its session's will.
pub(crate) fn lost(lost: &v1::LostGrant) -> Value {
    Members::default()
        .with("name", lost.name.as_str())
        .with("token", lost.token)
        .with("fence", fence(&lost.name, lost.token))
        .with_some("cause", lost.cause.as_ref().map(end_cause))
        .value()
}

/// Where in the log a read was answered.
pub(crate) fn read_point(at: Option<&v1::ReadPoint>) -> Value {
    match at {
        None => Value::Null,
        Some(at) => json!({
            "index": at.index,
            "cluster_time_ms": at.cluster_time_ms,
            "age_ms": at.age_ms,
        }),
    }
}

/// A record of the history.
pub(crate) fn record(record: &v1::HistoryRecord) -> Value {
    let members = record.grant.as_ref().map(grant).unwrap_or_default();
    members
        .with_some("cause", record.cause.as_ref().map(end_cause))
        .with_number("ended_index", record.ended_index)
        .with_number("ended_unix_ms", record.ended_unix_ms)
        .value()
}
