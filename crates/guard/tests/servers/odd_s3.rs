//! A server of S3 as there should be none: objects in memory, and one fault that it is made for.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;

use super::s3::builder;
use ringfence_guard::s3::S3Store;

/// What is wrong with a server. `u64`: so many times, counted over all writes but those of the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Oddity {
    /// Nothing is.
    None,
    /// It ignores `If-None-Match`, as old releases do.
    IgnoresIfNoneMatch,
    /// It ignores `If-Match`.
    IgnoresIfMatch,
    /// Its ETags are weak, as behind a proxy that compresses.
    WeakEtags,
    /// Its answers to writes carry no ETag.
    NoEtagOfWrites,
    /// It has no ETags at all.
    NoEtags,
    /// It answers 409 so often, and writes nothing.
    Conflicts(u64),
    /// It answers 500 so often, after it wrote.
    FailsAfterwards(u64),
    /// It answers 500 so often, and writes nothing.
    FailsBefore(u64),
    /// It answers 403 to writes.
    Denies,
    /// In front of it something sends each write twice, and passes on the second answer.
    WritesTwice,
}

/// The key of the probe, which is spared by faults that are counted.
const PROBE: &str = ringfence_guard::s3::PROBE_KEY;

/// One such server. It ends with the runtime.
pub(crate) struct OddS3 {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    oddity: Mutex<Oddity>,
    objects: Mutex<HashMap<String, (Bytes, String)>>,
    requests: Mutex<Vec<String>>,
    faults: AtomicU64,
    etags: AtomicU64,
}

impl OddS3 {
    pub(crate) async fn start(oddity: Oddity) -> Self {
        let shared = Arc::new(Shared {
            oddity: Mutex::new(oddity),
            objects: Mutex::default(),
            requests: Mutex::default(),
            faults: AtomicU64::new(0),
            etags: AtomicU64::new(0),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = axum::Router::new()
            .route("/bucket/{*key}", axum::routing::any(answer))
            .with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { port, shared }
    }

    pub(crate) fn store(&self) -> S3Store {
        S3Store::new(builder(self.port)).unwrap()
    }

    /// Becomes odd in another way.
    pub(crate) fn turn(&self, oddity: Oddity) {
        *self.shared.oddity.lock().unwrap() = oddity;
        self.shared.faults.store(0, Ordering::SeqCst);
    }

    /// The requests since the last call, as `PUT key`, without those of the probe.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.requests.lock().unwrap())
    }

    pub(crate) fn object(&self, key: &str) -> Option<Bytes> {
        let objects = self.shared.objects.lock().unwrap();
        objects.get(key).map(|(content, _)| content.clone())
    }

    pub(crate) fn put(&self, key: &str, content: impl Into<Bytes>) {
        self.shared.write(key, content.into());
    }

    pub(crate) fn delete(&self, key: &str) {
        self.shared.objects.lock().unwrap().remove(key);
    }
}

impl Shared {
    fn write(&self, key: &str, content: Bytes) -> String {
        let etag = format!("\"{:032x}\"", self.etags.fetch_add(1, Ordering::SeqCst) + 1);
        let object = (content, etag.clone());
        self.objects.lock().unwrap().insert(key.to_owned(), object);
        etag
    }

    /// Whether a fault that is counted comes now.
    fn strikes(&self, key: &str, times: u64) -> bool {
        key != PROBE && self.faults.fetch_add(1, Ordering::SeqCst) < times
    }

    fn put(&self, oddity: Oddity, key: &str, headers: &HeaderMap, content: Bytes) -> Response {
        let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
        let now = self
            .objects
            .lock()
            .unwrap()
            .get(key)
            .map(|(_, etag)| etag.clone());
        let if_match = header("if-match").filter(|_| oddity != Oddity::IgnoresIfMatch);
        let if_none = header("if-none-match").filter(|_| oddity != Oddity::IgnoresIfNoneMatch);
        if (if_match.is_some() && if_match != now.as_deref())
            || (if_none.is_some() && now.is_some())
        {
            return StatusCode::PRECONDITION_FAILED.into_response();
        }
        let etag = self.write(key, content);
        let mut answer = StatusCode::OK.into_response();
        let shown = match oddity {
            Oddity::NoEtagOfWrites | Oddity::NoEtags => None,
            Oddity::WeakEtags => Some(format!("W/{etag}")),
            _ => Some(etag),
        };
        if let Some(etag) = shown {
            let etag = HeaderValue::from_str(&etag).unwrap();
            answer.headers_mut().insert("etag", etag);
        }
        answer
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    Path(key): Path<String>,
    method: Method,
    headers: HeaderMap,
    content: Bytes,
) -> Response {
    if key != PROBE {
        let request = format!("{method} {key}");
        shared.requests.lock().unwrap().push(request);
    }
    let oddity = *shared.oddity.lock().unwrap();
    if method == Method::PUT {
        let failed = || StatusCode::INTERNAL_SERVER_ERROR.into_response();
        let put = || shared.put(oddity, &key, &headers, content.clone());
        return match oddity {
            Oddity::Conflicts(times) if shared.strikes(&key, times) => {
                StatusCode::CONFLICT.into_response()
            }
            Oddity::FailsBefore(times) if shared.strikes(&key, times) => failed(),
            Oddity::FailsAfterwards(times) if shared.strikes(&key, times) => {
                put();
                failed()
            }
            Oddity::Denies if key != PROBE => StatusCode::FORBIDDEN.into_response(),
            Oddity::WritesTwice => {
                put();
                put()
            }
            _ => put(),
        };
    }
    let object = shared.objects.lock().unwrap().get(&key).cloned();
    let Some((content, etag)) = object else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let etag = match oddity {
        Oddity::NoEtags => None,
        Oddity::WeakEtags => Some(format!("W/{etag}")),
        _ => Some(etag),
    };
    ranged(&headers, content, etag)
}

/// The object, or the part of it that was asked for, as `bytes=0-1023`.
fn ranged(headers: &HeaderMap, content: Bytes, etag: Option<String>) -> Response {
    let range = headers.get("range").map(|range| range.to_str().unwrap());
    let last = range.map(|range| range.strip_prefix("bytes=0-").unwrap().parse().unwrap());
    let size = content.len();
    if last.is_some() && size == 0 {
        return StatusCode::RANGE_NOT_SATISFIABLE.into_response();
    }
    let mut answer = match last {
        Some(last) => {
            let end = size.min(1_usize.saturating_add(last));
            let mut answer = content.slice(..end).into_response();
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
            let said = format!("bytes 0-{}/{size}", end - 1);
            let said = HeaderValue::from_str(&said).unwrap();
            answer.headers_mut().insert("content-range", said);
            answer
        }
        None => content.into_response(),
    };
    if let Some(etag) = etag {
        let etag = HeaderValue::from_str(&etag).unwrap();
        answer.headers_mut().insert("etag", etag);
    }
    answer
}
