//! Watches as server-sent events. The id of an event is the position behind it, so a reader that
//! comes back with `Last-Event-ID` misses nothing and sees nothing twice.
//!
//! A position without other events follows at least every second: it proves to the reader, and to
//! each proxy between, that the stream lives.

use std::convert::Infallible;
use std::fmt::Write;
use std::future::ready;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{HeaderName, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use ringfence_proto::v1::leases_server::Leases;
use ringfence_proto::v1::watch_event::Kind;
use ringfence_proto::wire::{WirePosition, position_from_wire, position_to_wire};
use ringfence_proto::{Refusal, v1};
use ringfence_services::problem::members;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;

use crate::Rest;
use crate::call::{Call, Refused, refusal};
use crate::shown::{self, Members, fence};
use http::StatusCode;
use ringfence_proto::refusal::http_status;

/// The header with which a reader comes back.
const LAST_EVENT_ID: &str = "last-event-id";
/// What the stream begins with: when readers come back after it was cut.
const BEGIN: &str = "retry: 1000\n\n";
/// How long the answer waits for its first message, so that a refusal has a status of its own. A
/// watch says something at least every second, unless its position is in the future.
const FIRST_MAX: Duration = Duration::from_millis(1_500);

/// Where a reader goes on: the header, which a reader that comes back adds to its first URL, before
/// the parameter.
fn from(call: &Call, query: Option<String>) -> Result<Option<v1::Position>, Refusal> {
    let header = call.headers().get(LAST_EVENT_ID);
    let header = header.map(|value| {
        value
            .to_str()
            .unwrap_or("bytes that are no text")
            .to_owned()
    });
    // A reader that has seen no position yet sends an empty one, or none.
    let (text, field) = match header.filter(|text| !text.is_empty()) {
        Some(text) => (text, "Last-Event-ID"),
        None => match query {
            Some(text) => (text, "from"),
            None => return Ok(None),
        },
    };
    let position: Result<WirePosition, _> = text.parse();
    let allowed = "CLUSTER.INDEX.N.TERM, the id of an event of this stream";
    let position = position.map_err(|_| Refusal::invalid(field, format!("{text:?}"), allowed))?;
    Ok(Some(position_to_wire(position)))
}

impl Rest {
    /// `GET /v1/watch`
    pub(crate) async fn watch(&self, call: &Call) -> Result<Response<Body>, Refused> {
        let mut query = call.query()?;
        let prefix = query.text("prefix")?.unwrap_or_default();
        let from = from(call, query.text("from")?)?;
        query.end()?;
        let watch = v1::WatchRequest { prefix, from };
        let messages = self.leases.watch(call.ask(watch)).await?.into_inner();
        events(messages, |message| of_watch(&message)).await
    }

    /// `GET /v1/floors`. Floors only rise, so a reader that comes back is sent all of them again.
    pub(crate) async fn watch_floors(&self, call: &Call) -> Result<Response<Body>, Refused> {
        let mut query = call.query()?;
        let prefix = query.text("prefix")?.unwrap_or_default();
        let from = from(call, query.text("from")?)?;
        query.end()?;
        let watch = v1::WatchFloorsRequest { prefix };
        let messages = self
            .leases
            .watch_floors(call.ask(watch))
            .await?
            .into_inner();
        let mut from = from.map(|position| position.cluster_id);
        let messages = messages.map(move |message| {
            let message = message?;
            // Floors of a cluster say nothing of another's.
            let ours = message.position.as_ref().map(|at| at.cluster_id.clone());
            match (from.take(), ours) {
                (Some(theirs), Some(ours)) if theirs != ours => Err(other_cluster(&theirs, &ours)),
                _ => Ok(message),
            }
        });
        events(messages, |message| of_floors(&message)).await
    }
}

fn other_cluster(theirs: &[u8], ours: &[u8]) -> Status {
    use ringfence_proto::text::hex;
    Refusal::cluster_changed(hex(theirs), hex(ours)).into()
}

/// The response whose body tells of these messages. A watch that is refused at once is refused with
/// a status of its own.
async fn events<M, S>(
    messages: S,
    shown: impl Fn(M) -> String + Send + 'static,
) -> Result<Response<Body>, Refused>
where
    M: Send + 'static,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    let mut messages = Box::pin(messages);
    let first = match timeout(FIRST_MAX, messages.next()).await {
        Ok(Some(Ok(first))) => Some(Ok(first)),
        Ok(Some(Err(status))) => return Err(status.into()),
        // Nothing yet; the beginning tells the reader that its request has arrived.
        Ok(None) | Err(_) => None,
    };
    let messages = stream::iter(first).chain(messages);
    let texts = messages.scan(false, move |over, message| {
        let text = (!*over).then(|| match message {
            Ok(message) => shown(message),
            Err(status) => {
                *over = true;
                refused(&status)
            }
        });
        ready(text)
    });
    let texts = stream::iter([BEGIN.to_owned()]).chain(texts);
    let frames = texts.map(|text| Ok::<_, Infallible>(Frame::data(Bytes::from(text))));
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream");
    headers.insert(CONTENT_TYPE, kind);
    let no_store = HeaderValue::from_static("no-store");
    headers.insert(CACHE_CONTROL, no_store);
    // nginx would gather events otherwise.
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    Ok(response)
}

/// One event. JSON has no line breaks in it, so its data is one line.
fn event(text: &mut String, kind: &str, at: Option<&v1::Position>, data: &Value) {
    // Writing to a `String` cannot fail.
    writeln!(text, "event: {kind}").ok();
    if let Some(id) = at.and_then(shown_position) {
        writeln!(text, "id: {id}").ok();
    }
    writeln!(text, "data: {data}\n").ok();
}

fn shown_position(at: &v1::Position) -> Option<WirePosition> {
    position_from_wire(at).ok()
}

/// The messages of a watch of leases.
fn of_watch(message: &v1::WatchResponse) -> String {
    let mut text = String::new();
    if message.compacted {
        event(&mut text, "compacted", None, &json!({}));
    }
    for one in &message.events {
        let at = one.position.as_ref();
        match &one.kind {
            Some(Kind::Granted(grant)) => {
                event(&mut text, "granted", at, &shown::grant(grant).value());
            }
            Some(Kind::Ended(ended)) => event(&mut text, "ended", at, &of_end(ended)),
            Some(Kind::Present(lease)) => event(&mut text, "present", at, &shown::lease(lease)),
            None => {}
        }
    }
    if let Some(at) = &message.position {
        event(
            &mut text,
            "position",
            Some(at),
            &json!({ "index": at.index }),
        );
    }
    text
}

fn of_end(ended: &v1::GrantEnded) -> Value {
    Members::default()
        .with("name", ended.name.as_str())
        .with("token", ended.token)
        .with("fence", fence(&ended.name, ended.token))
        .with_number("holder", ended.session)
        .with("identity", ended.identity.as_str())
        .with_some("cause", ended.cause.as_ref().map(shown::end_cause))
        .with_number("at_unix_ms", ended.at_unix_ms)
        .value()
}

/// The messages of a watch of floors.
fn of_floors(message: &v1::WatchFloorsResponse) -> String {
    let mut text = String::new();
    let floor = |floor: &v1::Floor| {
        let of = fence(&floor.name, floor.token);
        json!({ "name": floor.name, "token": floor.token, "fence": of })
    };
    let members = Members::default()
        .with(
            "floors",
            message.floors.iter().map(floor).collect::<Value>(),
        )
        .with_number("forgotten", message.forgotten)
        .with("complete", message.complete);
    // Within the present state a reader has nothing to come back to.
    let at = message.position.as_ref().filter(|_| message.complete);
    event(&mut text, "floors", at, &members.value());
    text
}

/// The last event of a stream that ends for a reason.
fn refused(status: &Status) -> String {
    let refusal = refusal(status);
    let status = StatusCode::from_u16(http_status(refusal.reason));
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut text = String::new();
    event(
        &mut text,
        "refused",
        None,
        &Value::Object(members(status, &refusal)),
    );
    text
}
