//! The mirror against an API server that refuses a part of what it asks for.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{Either, Full};
use kube::client::Body;
use ringfence_core::{
    ClusterId, FencingToken, Granted, HolderData, Identity, LeaseView, Millis, RequestNumber,
    SessionId, WallTime,
};
use serde_json::{Value, json};
use tower_service::Service;

use super::*;
use crate::decision::LeaseSnapshot;
use crate::lease_object::{MANAGED_BY, MANAGER, TOKEN};
use crate::position::Position;

const PATIENCE: Duration = Duration::from_secs(600);

/// One lease, held by a session.
struct Held;

impl Source for Held {
    fn look(&self, lease: &LeaseName) -> Option<LeaseSnapshot> {
        let token = FencingToken::new(7)?;
        let granted = Granted {
            name: lease.clone(),
            token,
            session: SessionId::new(9)?,
            identity: Identity::parse("worker").ok()?,
            data: HolderData::default(),
            request: RequestNumber::FIRST,
            index: 5,
            since: WallTime(1_000_000),
        };
        let view = LeaseView {
            name: lease.clone(),
            holder: Some(granted),
            ttl: Millis(15_000),
            remaining: Millis(15_000),
            waiters: 0,
            floor: Some(token),
            blocked: Millis(0),
        };
        Some(LeaseSnapshot {
            at: Position {
                counter: 100,
                index: 5,
            },
            cluster: ClusterId::new([0xab; 16]),
            lease: Some(view),
            forgotten: None,
            now: WallTime(1_000_000),
            silent: Millis(0),
        })
    }

    fn names(&self, _: &str) -> Vec<LeaseName> {
        vec![LeaseName::parse("k8s/demo/leader").unwrap()]
    }

    async fn confirm(&self) -> bool {
        true
    }
}

/// A body that never ends: a watch without events.
struct Silence;

impl http_body::Body for Silence {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

#[derive(Default)]
struct Server {
    /// The account has rights on the namespace of floors.
    floors_allowed: bool,
    /// The floor that the manifests brought.
    floor: Value,
    /// How often the floors were asked for.
    asked: u32,
    /// Paths of the objects that were made or changed.
    written: Vec<String>,
}

impl Server {
    fn answer(&mut self, request: &Request<Body>) -> (u16, Option<Value>) {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default();
        let of_floors = path.contains("/namespaces/ringfence/");
        if of_floors && !self.floors_allowed {
            self.asked += 1;
            let status = json!({
                "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
                "message": "leases.coordination.k8s.io is forbidden"
            });
            return (403, Some(status));
        }
        let lease = |name: &str, annotations: Value| {
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {
                    "namespace": path.split('/').nth(5), "name": name, "uid": "u",
                    "resourceVersion": "9", "labels": { MANAGED_BY: MANAGER },
                    "annotations": annotations,
                }
            })
        };
        match request.method() {
            _ if query.contains("watch=") => (200, None),
            &Method::GET if path.ends_with("/leases") => {
                let items = match of_floors {
                    true => vec![self.floor.clone()],
                    false => vec![],
                };
                let list = json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList",
                    "metadata": { "resourceVersion": "8" }, "items": items,
                });
                (200, Some(list))
            }
            _ => {
                self.written.push(path.clone());
                (200, Some(lease("leader", json!({ TOKEN: "7" }))))
            }
        }
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Server>>);

impl Shared {
    fn with<R>(&self, look: impl FnOnce(&mut Server) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Service<Request<Body>> for Shared {
    type Response = Response<Either<Full<Bytes>, Silence>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (code, answer) = self.with(|server| server.answer(&request));
        let body = match answer {
            Some(value) => Either::Left(Full::from(value.to_string())),
            None => Either::Right(Silence),
        };
        ready(Ok(Response::builder().status(code).body(body).unwrap()))
    }
}

/// Lets the mirror run until this is so.
async fn until(mirror: &Mirror<Held>, server: &Shared, what: &str, so: impl Fn(&Server) -> bool) {
    let reached = async {
        while !server.with(|server| so(server)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        never = mirror.run() => match never {},
        reached = tokio::time::timeout(PATIENCE, reached) => {
            assert!(reached.is_ok(), "{what}: {:?}", server.with(|server| server.written.clone()));
        }
    }
}

/// What a node shows of the mirror.
fn shown(metrics: &Metrics) -> String {
    let mut registry = prometheus_client::registry::Registry::with_prefix("ringfence");
    metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn leases_are_mirrored_without_a_right_on_the_floors_and_floors_once_there_is_one() {
    let server = Shared::default();
    let client = Client::new(server.clone(), "demo");
    let naming = Naming::new("k8s", Some("demo")).unwrap();
    let metrics = Metrics::default();
    let mirror = Mirror::new(Held, client, naming, metrics.clone());
    let made = |server: &Server| {
        let written = &server.written;
        written.iter().any(|path| path.ends_with("demo/leases"))
    };
    until(&mirror, &server, "the lease is shown", made).await;
    let denied = || shown(&metrics).contains("\nringfence_kube_mirror_floors_denied 1\n");
    let asked = server.with(|server| server.asked);
    let again = |server: &Server| denied() && server.asked > asked + 1;
    until(&mirror, &server, "it is told, and tried again", again).await;

    server.with(|server| {
        server.floors_allowed = true;
        server.floor = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "namespace": "ringfence", "name": "floor.demo.leader", "uid": "f",
                "resourceVersion": "3", "labels": { MANAGED_BY: MANAGER },
            }
        });
    });
    let filled = |server: &Server| {
        let written = &server.written;
        let floor = "ringfence/leases/floor.demo.leader";
        !denied() && written.iter().any(|path| path.ends_with(floor))
    };
    until(&mirror, &server, "the floor is filled", filled).await;
}
