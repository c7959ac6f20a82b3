//! Connecting again: at once after one failure, with pauses after many.

use std::time::Duration;

use ringfence_client::{Client, Loss, SessionState, unstable};
use ringfence_proto::v1::GetRequest;
use ringfence_proto::v1::client_frame::Body as Ask;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Act, Cluster, client, is_keep_alive, served, session, unavailable, within};

const TTL: Duration = Duration::from_secs(2);

fn is_get(ask: &Ask) -> bool {
    matches!(ask, Ask::Get(_))
}

#[tokio::test]
async fn a_server_that_breaks_every_stream_is_not_connected_to_in_a_hot_loop() {
    let (cluster, node, client) = served().await;
    let session = session(&client, TTL).await;
    let mut state = session.state();
    // Sent on every new stream at once, and what breaks it.
    node.script(is_keep_alive, Act::BreakBefore, usize::MAX);

    let lost = state.wait_for(|state| matches!(state, SessionState::Lost { .. }));
    let lost = within("the loss", lost).await.unwrap().clone();

    let why = Loss::WindowPassed;
    assert_eq!(lost, SessionState::Lost { why });
    // Pauses double up to half a second: hardly more than a dozen fit into the window.
    let asked = cluster.count(is_keep_alive);
    assert!((2..=20).contains(&asked), "{asked} streams in {TTL:?}");
}

#[tokio::test]
async fn nodes_that_name_each_other_as_the_leader_are_not_visited_in_a_hot_loop() {
    let cluster = Cluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    one.script(is_get, unavailable(Some(&other.address())), usize::MAX);
    other.script(is_get, unavailable(Some(&one.address())), usize::MAX);
    let client = client(&[&one, &other]).await;

    let timeout = Duration::from_secs(2);
    let ask = Ask::Get(GetRequest::default());
    let answer = within("an error", unstable::request(&client, ask, timeout)).await;

    assert!(answer.is_err());
    let asked = cluster.count(is_get);
    assert!((2..=30).contains(&asked), "{asked} tries in {timeout:?}");
}

#[tokio::test]
async fn a_server_that_needs_three_seconds_to_greet_is_waited_for_in_the_end() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slow = listener.local_addr().unwrap().to_string();
    let far = node.address();
    let accepting = tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let far = far.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                let mut far = TcpStream::connect(far).await.unwrap();
                copy_bidirectional(&mut near, &mut far).await.ok();
            });
        }
    });

    let builder = Client::builder().endpoints([slow.clone()]);
    let connecting = builder.connect_timeout(Duration::from_secs(18)).connect();
    let client = within("a connection", connecting).await.unwrap();

    assert_eq!(client.endpoint(), Some(slow));
    accepting.abort();
}
