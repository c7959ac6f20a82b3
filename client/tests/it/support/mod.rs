//! A fake cluster: one state, any number of nodes that serve it, and wires that can be cut.

mod clock;
mod guard;
mod model;
mod node;
mod wire;

use std::future::Future;
use std::time::Duration;

use ringfence_client::{Client, Session, SessionOptions};

pub(crate) use clock::SteppedClock;
pub(crate) use guard::{FakeGuard, at, failing, unsealed};
pub(crate) use model::Model;
pub(crate) use node::{
    Act, Cluster, Node, is_acquire, is_keep_alive, is_open, is_release, unavailable,
};
pub(crate) use wire::Wire;

/// Long enough that no healthy test reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Waits until `condition` holds, and says what was waited for if it never does.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(what, waiting).await;
}

/// Waits for `future`, and says what was waited for if it does not complete.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("not within {LONG:?}: {what}"),
    }
}

/// A client of these nodes.
pub(crate) async fn client(nodes: &[&Node]) -> Client {
    let endpoints = nodes.iter().map(|node| node.address());
    Client::connect(endpoints).await.unwrap()
}

/// A session with this TTL.
pub(crate) async fn session(client: &Client, ttl: Duration) -> Session {
    let options = SessionOptions {
        ttl,
        identity: "alice".into(),
    };
    client.open_session(options).await.unwrap()
}

/// A cluster of one node, and a client of it.
pub(crate) async fn served() -> (Cluster, Node, Client) {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let client = client(&[&node]).await;
    (cluster, node, client)
}

/// The same, with this timeout for each request.
pub(crate) async fn served_within(timeout: Duration) -> (Cluster, Node, Client) {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let builder = Client::builder().endpoints([node.address()]);
    let client = builder.request_timeout(timeout).connect().await.unwrap();
    (cluster, node, client)
}

/// A cluster of one node, and a session with a TTL that no test outlasts.
pub(crate) async fn alone() -> (Cluster, Node, Session) {
    let (cluster, node, client) = served().await;
    let session = session(&client, Duration::from_secs(60)).await;
    (cluster, node, session)
}
