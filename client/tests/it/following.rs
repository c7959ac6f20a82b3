//! Finding a member, following the leader, replacing dead connections.

use std::time::Duration;

use ringfence_client::{BootClock, Client, Clock, ConnectError, LeaseName, Loss};
use ringfence_proto::v1::client_frame::Body as Ask;
use tokio::net::TcpListener;

use crate::support::{
    Act, Cluster, Wire, client, eventually, is_acquire, served, session, unavailable, within,
};

const TTL: Duration = Duration::from_secs(60);

fn is_get(ask: &Ask) -> bool {
    matches!(ask, Ask::Get(_))
}

#[tokio::test]
async fn the_leader_that_the_greeting_names_is_preferred() {
    let cluster = Cluster::new();
    let (follower, leader) = (cluster.node().await, cluster.node().await);
    cluster.set_leader(&leader.address());

    // Only the follower is known to the client.
    let client = client(&[&follower]).await;

    assert_eq!(client.endpoint(), Some(leader.address()));
}

#[tokio::test]
async fn a_leader_that_cannot_be_reached_is_done_without() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    // A port without a server.
    let dead = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    cluster.set_leader(&dead.to_string());

    let client = client(&[&node]).await;

    assert_eq!(client.endpoint(), Some(node.address()));
    assert!(session(&client, TTL).await.is_live());
}

#[tokio::test]
async fn a_refusal_that_names_the_leader_is_followed() {
    let cluster = Cluster::new();
    let (old, new) = (cluster.node().await, cluster.node().await);
    let client = client(&[&old]).await;
    let session = session(&client, TTL).await;
    old.script(is_acquire, unavailable(Some(&new.address())), usize::MAX);

    let lease = within("the grant", session.acquire("db").send())
        .await
        .unwrap();

    assert!(lease.is_valid());
    assert_eq!(client.endpoint(), Some(new.address()));
}

#[tokio::test]
async fn a_hint_at_the_address_that_just_failed_means_wait() {
    let cluster = Cluster::new();
    let (leader, follower) = (cluster.node().await, cluster.node().await);
    cluster.set_leader(&leader.address());
    let client = client(&[&leader, &follower]).await;
    let session = session(&client, TTL).await;
    let dead = leader.address();
    drop(leader);
    // Until it has elected another one, the follower goes on naming the dead leader.
    follower.script(is_acquire, unavailable(Some(&dead)), 5);

    let lease = within("the grant", session.acquire("db").send())
        .await
        .unwrap();

    assert!(lease.is_valid());
    assert_eq!(client.endpoint(), Some(follower.address()));
    assert_eq!(cluster.count(is_acquire), 6);
    assert_eq!(
        follower.streams(),
        1,
        "it left the follower for the dead leader"
    );
}

#[tokio::test]
async fn a_dead_node_is_left_for_another() {
    let cluster = Cluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    let client = client(&[&one, &other]).await;
    let session = session(&client, TTL).await;
    let at_one = client.endpoint() == Some(one.address());
    let (dead, left) = if at_one { (one, other) } else { (other, one) };

    drop(dead);

    let lease = within("the grant", session.acquire("db").send())
        .await
        .unwrap();
    assert!(lease.is_valid());
    assert_eq!(client.endpoint(), Some(left.address()));
}

#[tokio::test]
async fn a_half_open_connection_is_replaced_in_time() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let wire = Wire::to(node.address()).await;
    let (interval, timeout) = (Duration::from_millis(300), Duration::from_millis(300));
    let client = Client::builder()
        .endpoints([wire.address(), node.address()])
        .keep_alive(interval, timeout)
        .connect()
        .await
        .unwrap();
    if client.endpoint() != Some(wire.address()) {
        // Which endpoint comes first is left to chance: make it the wire.
        node.going_away(&wire.address());
        let on_wire = || client.endpoint() == Some(wire.address());
        eventually("the wire", on_wire).await;
    }

    wire.cut();

    let idle = async {
        while client.endpoint() != Some(node.address()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // The sum of both, and some time to connect.
    tokio::time::timeout(interval + timeout + Duration::from_millis(600), idle)
        .await
        .unwrap();
    within("an answer", client.look_up(&db())).await.unwrap();
    wire.mend();
    assert!(wire.connections() >= 1);
}

#[tokio::test]
async fn a_node_that_swallows_requests_is_left() {
    let cluster = Cluster::new();
    let (mute, other) = (cluster.node().await, cluster.node().await);
    let client = Client::builder()
        .endpoints([mute.address()])
        .keep_alive(Duration::from_millis(200), Duration::from_millis(200))
        .connect()
        .await
        .unwrap();
    mute.script(is_get, Act::Swallow, 1);
    // It answers pings and says nothing else, until it is left and asked again.
    within("an answer", client.look_up(&db())).await.unwrap();

    assert_eq!(cluster.count(is_get), 2);
    drop(other);
}

#[tokio::test]
async fn a_node_that_only_refuses_is_left_for_another() {
    let cluster = Cluster::new();
    let (one, other) = (cluster.node().await, cluster.node().await);
    let client = client(&[&one, &other]).await;
    let at_one = client.endpoint() == Some(one.address());
    let (cut_off, left) = if at_one {
        (&one, &other)
    } else {
        (&other, &one)
    };
    cut_off.script(is_get, unavailable(None), usize::MAX);

    within("an answer", client.look_up(&db())).await.unwrap();

    assert_eq!(client.endpoint(), Some(left.address()));
}

#[tokio::test]
async fn a_node_that_says_goodbye_loses_nothing() {
    let cluster = Cluster::new();
    let (leaving, staying) = (cluster.node().await, cluster.node().await);
    let client = client(&[&leaving]).await;
    let session = session(&client, TTL).await;
    leaving.script(is_acquire, Act::Swallow, 1);
    let acquiring = tokio::spawn(session.acquire("db").send());
    eventually("the request", || cluster.count(is_acquire) == 1).await;

    leaving.going_away(&staying.address());

    let lease = within("the grant", acquiring).await.unwrap().unwrap();
    assert_eq!(lease.token().get(), 1);
    assert_eq!(client.endpoint(), Some(staying.address()));
}

#[tokio::test]
async fn a_member_of_another_cluster_is_not_talked_to() {
    let (_cluster, node, client) = served().await;
    let session = session(&client, TTL).await;
    let lease = session.acquire("db").send().await.unwrap();
    let address = node.address();
    drop(node);

    let restored = Cluster::new();
    let _node = restored.node_at(&address, 8).await;

    let loss = within("the loss", lease.lost()).await;
    assert_eq!(loss, Loss::ClusterChanged);
    let new = self::session(&client, TTL).await;
    assert!(new.is_live());
}

#[tokio::test]
async fn endpoints_that_do_not_answer_are_named() {
    let dead = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let begun = BootClock.now();

    let error = Client::builder()
        .endpoints([dead.clone(), silent.local_addr().unwrap().to_string()])
        .connect_timeout(Duration::from_millis(2_500))
        .connect()
        .await
        .unwrap_err();

    let ConnectError::Unreachable { why } = error else {
        panic!("{error:?}")
    };
    assert!(why.contains(&dead), "{why}");
    assert!(BootClock.now() < begun + Duration::from_secs(10));
}

#[tokio::test]
async fn what_is_not_grpc_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            use tokio::io::AsyncWriteExt;
            stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .await
                .ok();
        }
    });

    let error = Client::builder()
        .endpoints([address.clone()])
        .connect_timeout(Duration::from_millis(300))
        .connect()
        .await
        .unwrap_err();

    let text = error.to_string();
    assert!(text.contains(&address), "{text}");
    serving.abort();
}

fn db() -> LeaseName {
    LeaseName::parse("db").unwrap()
}
