//! A gRPC service with a store, a guard in its store, and another at its door.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_client::{Client, HeldLease, Session, SessionOptions};
use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use ringfence_guard::tower::{Door, FenceLayer, TurnedAway};
use ringfence_guard::{Fence, LeaseName};
use ringfence_tests::{Cluster, Options};
use rusqlite::Connection;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// Long enough that no healthy test reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) const NAME: &str = "bank/balance";

pub(crate) fn name() -> LeaseName {
    LeaseName::parse(NAME).unwrap()
}

pub(crate) fn fence(token: u64) -> Fence {
    format!("{NAME}#{token}").parse().unwrap()
}

/// Waits for `future`, and says what was waited for if it does not complete.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {LONG:?}: {what}"),
    }
}

pub(crate) async fn one_node() -> Cluster {
    let options = Options {
        nodes: 1,
        ..Options::default()
    };
    Cluster::start(options).await
}

pub(crate) async fn session(cluster: &Cluster) -> Session {
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let options = SessionOptions::default();
    client.open_session(options).await.unwrap()
}

pub(crate) async fn acquire(session: &Session) -> HeldLease {
    let acquire = session.acquire(NAME).wait(LONG).send();
    within("a grant", acquire).await.unwrap()
}

/// The service: its one call stands for a write of what it is asked.
struct Ledger {
    shared: Arc<Shared>,
}

struct Shared {
    guard: SqliteGuard,
    database: Mutex<Connection>,
    /// While set, a call stops behind the door, before its transaction.
    held_up: AtomicBool,
    go_on: Semaphore,
    /// How many calls have passed the door.
    passed: AtomicUsize,
}

#[tonic::async_trait]
impl Health for Ledger {
    type WatchStream = tokio_stream::Empty<Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let shared = &self.shared;
        let held_up = shared.held_up.swap(false, Ordering::SeqCst);
        shared.passed.fetch_add(1, Ordering::SeqCst);
        if held_up {
            shared.go_on.acquire().await.unwrap().forget();
        }
        let Some(fence) = request.extensions().get::<Fence>().cloned() else {
            return Ok(Response::new(HealthCheckResponse::default()));
        };
        let what = request.into_inner().service;
        let mut database = shared.database.lock().unwrap();
        let written = shared.guard.write(&mut database, &fence, |transaction| {
            transaction.execute("INSERT INTO written VALUES (?1)", [&what])?;
            Ok::<_, SqliteError>(())
        });
        match written {
            Ok(()) => Ok(Response::new(HealthCheckResponse::default())),
            Err(SqliteError::Refused(refused)) => {
                let headers = TurnedAway::from(refused).grpc_headers();
                Err(Status::from_header_map(&headers).unwrap())
            }
            Err(error) => Err(Status::internal(error.to_string())),
        }
    }

    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Ok(Response::new(tokio_stream::empty()))
    }
}

/// A running service.
pub(crate) struct Service {
    shared: Arc<Shared>,
    address: String,
    task: AbortHandle,
}

impl Service {
    /// Starts it behind a layer.
    pub(crate) async fn start<D: Door>(layer: FenceLayer<D>) -> Self {
        let database = Connection::open_in_memory().unwrap();
        SqliteGuard::install(&database).unwrap();
        database
            .execute_batch("CREATE TABLE written (what TEXT)")
            .unwrap();
        let shared = Arc::new(Shared {
            guard: SqliteGuard::new(name()),
            database: Mutex::new(database),
            held_up: AtomicBool::new(false),
            go_on: Semaphore::new(0),
            passed: AtomicUsize::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let ledger = HealthServer::new(Ledger {
            shared: Arc::clone(&shared),
        });
        let server = Server::builder().layer(layer).add_service(ledger);
        let serving = server.serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(serving).abort_handle();
        Self {
            shared,
            address,
            task,
        }
    }

    pub(crate) async fn channel(&self) -> Channel {
        let endpoint = Channel::from_shared(self.address.clone()).unwrap();
        endpoint.connect().await.unwrap()
    }

    /// The next call stops behind the door.
    pub(crate) fn hold_up_the_next(&self) {
        self.shared.held_up.store(true, Ordering::SeqCst);
    }

    /// It goes on.
    pub(crate) fn go_on(&self) {
        self.shared.go_on.add_permits(1);
    }

    pub(crate) fn passed(&self) -> usize {
        self.shared.passed.load(Ordering::SeqCst)
    }

    /// Waits until that many calls have passed the door.
    pub(crate) async fn until_passed(&self, count: usize) {
        let passing = async {
            while self.passed() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within("calls behind the door", passing).await;
    }

    /// What was written, in order.
    pub(crate) fn written(&self) -> Vec<String> {
        let database = self.shared.database.lock().unwrap();
        let select = "SELECT what FROM written ORDER BY rowid";
        let mut select = database.prepare(select).unwrap();
        let rows = select.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Raises the mark in the store, as a task that is fed by floors does.
    pub(crate) fn raise(&self, floor: ringfence_guard::FencingToken) {
        let mut database = self.shared.database.lock().unwrap();
        let guard = &self.shared.guard;
        guard.advance_to(&mut database, floor).unwrap();
    }

    /// The mark in the store.
    pub(crate) fn mark(&self) -> Option<ringfence_guard::FencingToken> {
        let database = self.shared.database.lock().unwrap();
        self.shared.guard.mark(&database).unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A write of this.
pub(crate) fn write(what: &str) -> Request<HealthCheckRequest> {
    Request::new(HealthCheckRequest {
        service: what.into(),
    })
}

/// A write of this with metadata made by hand.
pub(crate) fn write_with(
    what: &str,
    lease: Option<&str>,
    token: Option<&str>,
) -> Request<HealthCheckRequest> {
    let mut request = write(what);
    let headers = [("ringfence-lease", lease), ("ringfence-token", token)];
    for (key, value) in headers {
        if let Some(value) = value {
            request.metadata_mut().insert(key, value.parse().unwrap());
        }
    }
    request
}
