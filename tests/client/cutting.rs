//! Networks that are cut, swallow and garble, and servers that are none.

use std::time::Duration;

use ringfence_client::{Loss, SessionState};
use ringfence_tests::Journal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::proxy::Fate;
use crate::support::{TTL, behind_proxies, client_through, eventually, open, renewed, within};

/// Cuts a holder off; it stops in time, another is granted the lease, and what arrives late revives
/// nothing.
async fn cut_off(up: Fate, down: Fate) {
    let (cluster, proxies) = behind_proxies(1).await;
    let client = client_through(&proxies).await;
    let session = open(&client, TTL).await;
    let lease = session.acquire("db").send().await.unwrap();
    let caller = cluster.caller();
    let bob = caller.open("bob", TTL * 20).await.unwrap();
    let mut state = session.state();

    proxies[0].set(up, down);
    let waiting = tokio::spawn(async move {
        let grant = caller.acquire(&bob, 1, "db", Some(TTL * 20)).await.unwrap();
        (Journal::now(), grant)
    });
    let warned = state.wait_for(|state| matches!(state, SessionState::Jeopardy { .. }));
    drop(within("jeopardy", warned).await.unwrap());
    assert!(lease.is_valid(), "warned before the loss");
    let loss = within("the loss", lease.lost()).await;
    let lost_at = client.now().since_boot();

    assert_eq!(loss, Loss::WindowPassed);
    let (granted_at, grant) = within("the next grant", waiting).await.unwrap();
    assert!(lost_at < granted_at, "{lost_at:?} {granted_at:?}");
    assert!(grant.token > lease.token().get());

    // Everything that was held up arrives now, and the client is well again.
    proxies[0].set(Fate::Pass, Fate::Pass);
    let again = open(&client, TTL).await;
    let other = within("another lease", again.acquire("db/2").send())
        .await
        .unwrap();
    renewed(&client, &other, TTL).await;
    assert!(!lease.is_valid());
    assert!(!session.is_live());
}

#[tokio::test]
async fn pain_03_a_holder_cut_off_both_ways_stops_before_the_next_one_starts() {
    cut_off(Fate::Hold, Fate::Hold).await;
}

#[tokio::test]
async fn pain_03_a_holder_that_is_not_heard_stops_before_the_next_one_starts() {
    cut_off(Fate::Hold, Fate::Pass).await;
}

#[tokio::test]
async fn pain_03_a_holder_that_hears_nothing_stops_before_the_next_one_starts() {
    cut_off(Fate::Pass, Fate::Hold).await;
}

/// The leader's connection dies without a word; the client goes to another node and loses nothing.
async fn half_open(up: Fate, down: Fate) {
    let (_cluster, proxies) = behind_proxies(3).await;
    let client = client_through(&proxies).await;
    let ttl = Duration::from_secs(15);
    let session = open(&client, ttl).await;
    let lease = session.acquire("db").send().await.unwrap();
    renewed(&client, &lease, ttl).await;
    let at = client.endpoint().unwrap();
    let dead = proxies.iter().find(|proxy| proxy.address() == at).unwrap();
    let mut state = session.state();
    state.mark_unchanged();

    let cut = client.now();
    dead.set(up, down);
    eventually("another node", || {
        client.endpoint().is_some_and(|now| now != at)
    })
    .await;
    let took = client.now().saturating_since(cut);
    renewed(&client, &lease, ttl).await;

    println!("a half-open connection was replaced after {took:?} ({up:?}, {down:?})");
    // The interval and the timeout are 2 s each; half a second is for a busy machine.
    assert!(took < Duration::from_millis(4_500), "{took:?}");
    assert!(lease.is_valid());
    assert!(!state.has_changed().unwrap(), "{:?}", *state.borrow());
}

#[tokio::test]
async fn pain_12_a_connection_that_is_dead_both_ways_is_replaced_and_nothing_is_lost() {
    half_open(Fate::Hold, Fate::Hold).await;
}

#[tokio::test]
async fn pain_12_a_connection_that_brings_nothing_is_replaced_and_nothing_is_lost() {
    half_open(Fate::Pass, Fate::Hold).await;
}

#[tokio::test]
async fn pain_09_replies_that_are_swallowed_are_asked_for_again_and_done_once() {
    let (cluster, proxies) = behind_proxies(1).await;
    let client = client_through(&proxies).await;
    let session = open(&client, Duration::from_secs(60)).await;
    let first = session.acquire("db/0").send().await.unwrap();
    let caller = cluster.caller();

    proxies[0].set(Fate::Pass, Fate::Swallow);
    let acquiring = tokio::spawn(session.acquire("db/1").send());
    let released = tokio::spawn(first.release());
    // Both were done, and no client learned it.
    let done = async {
        loop {
            let [released, granted] = [caller.get("db/0").await, caller.get("db/1").await];
            let held = |lease: Option<ringfence_proto::v1::Lease>| {
                lease.is_some_and(|lease| lease.holder.is_some())
            };
            if !held(released.unwrap()) && held(granted.unwrap()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the effects", done).await;
    assert!(!acquiring.is_finished());
    proxies[0].set(Fate::Pass, Fate::Pass);

    let lease = within("the grant", acquiring).await.unwrap().unwrap();
    within("the release", released).await.unwrap().unwrap();
    assert_eq!(lease.token().get(), 2);
    // Tokens are without gaps in such a small cluster: nothing was granted twice.
    let next = session.acquire("db/2").send().await.unwrap();
    assert_eq!(next.token().get(), 3);
}

#[tokio::test]
async fn garbage_from_the_server_ends_no_belief_early_and_stretches_none() {
    let (_cluster, proxies) = behind_proxies(1).await;
    let client = client_through(&proxies).await;
    let session = open(&client, TTL).await;
    let lease = session.acquire("db").send().await.unwrap();
    renewed(&client, &lease, TTL).await;
    let connections = proxies[0].connections();

    proxies[0].set(Fate::Pass, Fate::Garble);
    let until = lease.valid_until();
    let loss = within("the loss", lease.lost()).await;

    assert_eq!(loss, Loss::WindowPassed);
    // A keep-alive that was under way may have been answered just before.
    assert!(client.now() + Duration::from_millis(20) >= until);
    let tries = proxies[0].connections() - connections;
    assert!((1..40).contains(&tries), "{tries} connections in {TTL:?}");

    proxies[0].set(Fate::Pass, Fate::Pass);
    let again = open(&client, TTL).await;
    let anew = within("a new grant", again.acquire("db").wait(TTL * 10).send());
    assert!(anew.await.unwrap().token() > lease.token());
    assert!(!lease.is_valid());
}

/// Something that takes connections and answers each read so.
async fn impostor(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4_096];
                while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn servers_that_are_none_do_not_keep_a_client_from_those_that_are() {
    let (cluster, proxies) = behind_proxies(1).await;
    let mut endpoints = vec![
        impostor(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await,
        impostor(b"\xff\x00\xfe garbage \x01\x02").await,
        // A frame of settings, and then one of a kind and a length that no peer has.
        impostor(b"\0\0\0\x04\0\0\0\0\0\xff\xff\xff\xee\xff\x7f\xff\xff\xff").await,
        impostor(b"").await,
    ];
    endpoints.push(proxies[0].address().to_owned());
    for turn in 0..endpoints.len() {
        endpoints.rotate_left(turn);
        let connecting = ringfence_client::Client::connect(endpoints.clone());
        let client = within("a connection", connecting).await.unwrap();
        assert_eq!(client.endpoint().as_deref(), Some(proxies[0].address()));
        let session = open(&client, TTL).await;
        let name = format!("db/{turn}");
        session
            .acquire(name)
            .send()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    drop(cluster);
}
