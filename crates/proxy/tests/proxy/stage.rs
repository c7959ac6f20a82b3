//! A service that notes what reaches it, a proxy before it, and callers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ringfence_guard::tower::{Policy, Routes};
use ringfence_proxy::{Limits, Marks, Options, Proxy, Undrained, Upstream};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

pub(crate) const LONG: Duration = Duration::from_secs(30);

/// What has reached the service.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Bytes,
}

/// A service. `/slow…` is answered once a permit is given; all else at once.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) noted: Arc<Mutex<Vec<Noted>>>,
    pub(crate) gate: Arc<Semaphore>,
}

async fn note(State(service): State<Service>, request: axum::extract::Request) -> Response<String> {
    let (head, body) = request.into_parts();
    let headers = head.headers.iter();
    let headers =
        headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let path = head.uri.path_and_query().unwrap().to_string();
    let noted = Noted {
        path: path.clone(),
        headers: headers.collect(),
        body: axum::body::to_bytes(body, 64 << 20).await.unwrap(),
    };
    service.noted.lock().unwrap().push(noted);
    if path.starts_with("/slow") {
        service.gate.acquire().await.unwrap().forget();
    }
    let answer = Response::builder().status(StatusCode::CREATED);
    let answer = answer
        .header("x-of-service", "yes")
        .header("connection", "x-gone");
    answer
        .header("x-gone", "1")
        .body(format!("done {path}"))
        .unwrap()
}

impl Service {
    pub(crate) async fn start() -> (Self, String) {
        let service = Self {
            noted: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().fallback(note).with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (service, format!("http://{address}"))
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        let noted = self.noted.lock().unwrap();
        noted.iter().map(|one| one.path.clone()).collect()
    }

    /// Waits until so many requests have reached it.
    pub(crate) async fn has(&self, count: usize) {
        let reached = async {
            while self.noted.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, reached).await.unwrap();
    }
}

/// Options that tests change.
pub(crate) fn options(upstream: &str) -> Options {
    let mut routes = Routes::default();
    routes.add("/open/*".into(), Policy::Optional);
    Options {
        upstream: Upstream::parse(upstream).unwrap(),
        prefix: "bank/".into(),
        routes,
        safe_methods: false,
        drain: Duration::from_secs(20),
        undrained: Undrained::Refuse,
        request_max: LONG,
        limits: Limits::default(),
    }
}

/// A proxy that serves until it is dropped, in a runtime of its own.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<bool>>,
    runtime: Option<Runtime>,
    pub(crate) folder: Arc<TempDir>,
}

impl Served {
    pub(crate) async fn start(options: Options) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), options).await
    }

    pub(crate) async fn start_in(folder: Arc<TempDir>, options: Options) -> Self {
        let marks = Marks::open(&folder.path().join("marks.db")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let proxy = Proxy::new(options, marks, None).unwrap();
        let runtime = Runtime::new().unwrap();
        let listener = listener.into_std().unwrap();
        let serving = runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            proxy
                .serve(listener, async { stopped.await.unwrap_or(()) })
                .await
        });
        Self {
            address,
            stop: Some(stop),
            serving: Some(serving),
            runtime: Some(runtime),
            folder,
        }
    }

    /// Stops it as a signal does, and waits for that. Returns whether nothing was inside.
    pub(crate) async fn stop(mut self) -> bool {
        self.stop.take().unwrap().send(()).unwrap();
        let has_ended = self.serving.take().unwrap().await.unwrap();
        self.kill().await;
        has_ended
    }

    /// Ends it as SIGKILL does: all its tasks and connections go at once.
    pub(crate) async fn kill(mut self) {
        let runtime = self.runtime.take().unwrap();
        let killed = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(LONG));
        killed.await.unwrap();
    }

    /// Posts under a token of `bank/x`, or without.
    pub(crate) async fn post(&self, path: &str, token: Option<u64>) -> Answer {
        self.send(self.request(path, token), Full::from("a body"))
            .await
    }

    pub(crate) fn request(&self, path: &str, token: Option<u64>) -> http::request::Builder {
        let request = Request::post(format!("http://{}{path}", self.address));
        match token {
            Some(token) => request
                .header("ringfence-lease", "bank/x")
                .header("ringfence-token", token.to_string()),
            None => request,
        }
    }

    pub(crate) async fn send(&self, head: http::request::Builder, body: Full<Bytes>) -> Answer {
        let client: Client<HttpConnector, Full<Bytes>> =
            Client::builder(TokioExecutor::new()).build_http();
        let sent = client.request(head.body(body).unwrap());
        let answer = tokio::time::timeout(LONG, sent).await.unwrap().unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes());
        Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body
                .ok()
                .map(|body| String::from_utf8(body.to_vec()).unwrap()),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A head of a request under a token, as bytes.
pub(crate) fn head(method: &str, path: &str, token: u64, more: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nringfence-lease: bank/x\r\n\
         ringfence-token: {token}\r\n{more}\r\n"
    )
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// `None` if it broke off.
    pub(crate) body: Option<String>,
}

impl Answer {
    /// The reason of a refusal, and whether it says that nothing was done.
    pub(crate) fn problem(&self) -> (String, String) {
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let body: serde_json::Value = serde_json::from_str(self.body.as_ref().unwrap()).unwrap();
        assert_eq!(body["status"], self.status);
        let member = |name: &str| body[name].as_str().unwrap().to_owned();
        (member("reason"), member("outcome"))
    }
}
