//! A request that has arrived, and what answers it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Extensions, HeaderMap, Response, StatusCode};
use http_body_util::Full;
use ringfence_core::ClusterId;
use ringfence_proto::Refusal;
use ringfence_raft::since_boot;
use ringfence_services::CLUSTER_HEADER;
use ringfence_services::problem::{NOT_DONE, problem};
use serde_json::{Map, Value};
use tonic::body::Body;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Status};

use crate::fields::Fields;
use crate::hidden;
use crate::query::Query;

/// What stands for a header that is no text, and names no cluster.
const NO_CLUSTER: &str = "-";

/// A request without its body.
#[derive(Clone)]
pub(crate) struct Call {
    headers: Arc<HeaderMap>,
    /// Who asks, and on which connection: what services look at beside their messages.
    extensions: Extensions,
    query: Option<String>,
    /// What stands behind the fixed part of the path.
    rest: String,
    /// The cluster that this node belongs to.
    cluster: Option<ClusterId>,
    /// When its head was here: the caller had sent it before.
    arrived: Duration,
}

impl Call {
    pub(crate) fn new(head: http::request::Parts, rest: &str, cluster: Option<ClusterId>) -> Self {
        Self {
            rest: rest.to_owned(),
            cluster,
            query: head.uri.query().map(ToOwned::to_owned),
            headers: Arc::new(head.headers),
            extensions: head.extensions,
            arrived: since_boot(),
        }
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    pub(crate) fn rest(&self) -> &str {
        &self.rest
    }

    pub(crate) fn query(&self) -> Result<Query, Refusal> {
        Query::parse(self.query.as_deref())
    }

    /// That a call whose fields stand in its body has none in its URL, where proxies log them.
    pub(crate) fn fields(&self, body: &[u8]) -> Result<Fields, Refusal> {
        self.query()?.end()?;
        Fields::parse(body, self.cluster)
    }

    /// The message as the services take it, of the same caller on the same connection.
    pub(crate) fn ask<T>(&self, message: T) -> Request<T> {
        let mut metadata = MetadataMap::new();
        // Bytes that are no such text are refused where it is read.
        if let Some(cluster) = self.headers.get(CLUSTER_HEADER) {
            let cluster = MetadataValue::try_from(cluster.as_bytes());
            metadata.insert(
                CLUSTER_HEADER,
                cluster.unwrap_or(MetadataValue::from_static(NO_CLUSTER)),
            );
        }
        Request::from_parts(metadata, self.extensions.clone(), message)
    }

    /// How long ago the request arrived, in milliseconds.
    pub(crate) fn elapsed_ms(&self) -> u64 {
        let elapsed = since_boot().saturating_sub(self.arrived);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

/// What answers a call that is not refused.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) value: Value,
    /// The room of a large answer.
    pub(crate) extensions: Extensions,
}

/// What a call that is refused is answered.
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    /// Members beside those of every refusal.
    pub(crate) more: Map<String, Value>,
}

impl Answer {
    pub(crate) fn ok(value: Value) -> Self {
        Self {
            status: StatusCode::OK,
            value,
            extensions: Extensions::new(),
        }
    }
}

impl Refused {
    /// Whether the caller is answered that its try is not done.
    pub(crate) fn is_certain(&self) -> bool {
        match self.more.get("outcome") {
            Some(outcome) => outcome == NOT_DONE,
            None => self.refusal.is_certain(),
        }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let more = Map::new();
        Self { refusal, more }
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        refusal(&status).into()
    }
}

/// What a status of the services says. Without a reason of ours nothing is known.
pub(crate) fn refusal(status: &Status) -> Refusal {
    let known = Refusal::from_status(status);
    known.unwrap_or_else(|| Refusal::outcome_unknown(status.message()))
}

/// Fields of messages, how calls in JSON name them, and the unit of the numbers in a refusal.
const FIELDS: [(&str, &str, &str); 8] = [
    ("ttl_ms", "ttl", " in ms"),
    ("wait_ms", "wait", " in ms"),
    ("lock_delay_ms", "lock_delay", " in ms"),
    ("max_staleness_ms", "max_staleness", " in ms"),
    ("page_size", "limit", ""),
    ("page_token", "page", ""),
    ("number", "Idempotency-Key", ""),
    ("target", "request", ""),
];

/// What a refusal of a field says is allowed, where that names fields of messages, and how calls in
/// JSON name them.
const ALLOWED: [(&str, &str); 2] = [
    ("next_page_token", "next_page"),
    ("0 to `number`, ", "0 to the Idempotency-Key, "),
];

/// A refusal of a field with the name that the caller has for it.
fn in_json(mut refusal: Refusal) -> Refusal {
    let Some(field) = refusal.metadata.get_mut("field") else {
        return refusal;
    };
    let bare = field.rsplit('.').next().unwrap_or_default();
    let known = FIELDS.iter().find(|(message, ..)| *message == bare);
    if let Some((_, name, unit)) = known {
        let before = std::mem::replace(field, (*name).to_owned());
        if let Some(rest) = refusal.message.strip_prefix(&before) {
            refusal.message = format!("{name}{unit}{rest}");
        }
    }
    if let Some(allowed) = refusal.metadata.get_mut("allowed") {
        for (message, name) in ALLOWED {
            if allowed.contains(message) {
                let ours = allowed.replace(message, name);
                refusal.message = refusal.message.replace(&*allowed, &ours);
                *allowed = ours;
            }
        }
    }
    refusal
}

/// The answer of a call as a response. No proxy may keep it: it is true for an instant, and may hold
/// a session's secret.
pub(crate) fn respond(answered: Result<Answer, Refused>) -> Response<Body> {
    let mut response = match answered {
        Ok(answer) => {
            let body = Bytes::from(answer.value.to_string());
            let mut response = Response::new(Body::new(Full::new(body)));
            *response.status_mut() = answer.status;
            *response.extensions_mut() = answer.extensions;
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            response
        }
        Err(refused) => {
            let refusal = hidden::in_refusal(in_json(refused.refusal));
            problem(&refusal, refused.more)
        }
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
