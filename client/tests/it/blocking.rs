//! The blocking facade: the same guarantees for programs without a runtime.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ringfence_client::blocking::{Client, Session, Stop};
use ringfence_client::{Loss, SessionOptions, TransferError};
use tokio::runtime::{Builder, Runtime};

use crate::support::{Act, Cluster, LONG, Node, is_keep_alive, is_release};

/// Waits until `condition` holds, without a runtime.
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    // Each turn takes a millisecond or more.
    for _ in 0..LONG.as_millis() {
        if condition() {
            return;
        }
        thread::park_timeout(Duration::from_millis(1));
    }
    panic!("not within {LONG:?}: {what}");
}

/// Only to start fake nodes; the client under test sees nothing of it.
fn starter() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn open(client: &Client, ttl: Duration) -> Session {
    let identity = "alice".into();
    client
        .open_session(SessionOptions { ttl, identity })
        .unwrap()
}

fn alone(ttl: Duration) -> (Cluster, Node, Client, Session) {
    let cluster = Cluster::new();
    let node = starter().block_on(cluster.node());
    let client = Client::connect([node.address()]).unwrap();
    let session = open(&client, ttl);
    (cluster, node, client, session)
}

#[test]
fn a_lease_is_taken_used_and_given_back_without_a_runtime() {
    let (cluster, _node, _client, session) = alone(Duration::from_secs(60));

    let lease = session.acquire("db").data("here").send().unwrap();
    assert_eq!(lease.fence().to_string(), "db#1");
    assert_eq!(lease.data(), b"here");
    assert_eq!(lease.run(|| 7), Ok(7));
    assert_eq!(lease.wait_lost(Duration::from_millis(1)), None);
    lease.release().unwrap();

    assert_eq!(cluster.distinct(is_release), 1);
    assert!(cluster.model().is_quiet());
    session.close().unwrap();
}

#[test]
fn a_thread_that_blocks_for_longer_than_the_ttl_loses_nothing() {
    let ttl = Duration::from_millis(1_500);
    let (_cluster, _node, client, session) = alone(ttl);
    let lease = session.acquire("db").send().unwrap();
    let before = lease.valid_until();

    eventually("a TTL and more", || client.now() > before + ttl);

    assert!(lease.is_valid());
    assert!(lease.valid_until() > before);
}

#[test]
fn silence_ends_belief_and_tells_who_blocks() {
    let (_cluster, node, client, session) = alone(Duration::from_millis(900));
    let lease = session.acquire("db").send().unwrap();
    let (tell, told) = mpsc::channel();
    lease.on_lost(move |loss| tell.send(loss).unwrap()).unwrap();
    node.script(is_keep_alive, Act::Swallow, usize::MAX);

    assert_eq!(told.recv_timeout(LONG).unwrap(), Loss::WindowPassed);
    assert!(!Loss::WindowPassed.is_own_doing());

    assert_eq!(lease.ensure(), Err(Loss::WindowPassed));
    assert_eq!(lease.wait_lost(LONG), Some(Loss::WindowPassed));
    let polled = lease.run(|| panic!("runs after the loss"));
    assert_eq!(polled, Err::<(), _>(Loss::WindowPassed));
    assert!(!session.is_live());
    // Loss is final also when the cluster answers again.
    node.behave();
    let later = client.now() + Duration::from_millis(900);
    eventually("a TTL has passed", || client.now() > later);
    assert!(!lease.is_valid());
}

#[test]
fn work_during_which_the_lease_is_lost_brings_nothing() {
    let (_cluster, _node, _client, session) = alone(Duration::from_secs(60));
    let lease = session.acquire("db").send().unwrap();

    let ran = lease.run(|| lease.report_stale());

    assert_eq!(ran, Err(Loss::Reported));
}

#[test]
fn a_wait_is_given_up_from_another_thread_and_leaves_no_ghost() {
    let (cluster, _node, client, session) = alone(Duration::from_secs(60));
    let lease = session.acquire("db").send().unwrap();
    let other = open(&client, Duration::from_secs(60));
    let stop = Stop::new();
    let waiting = thread::spawn({
        let stop = stop.clone();
        move || {
            other
                .acquire("db")
                .wait(LONG * 10)
                .send_unless(&stop)
                .unwrap()
                .map(|lease| lease.token())
        }
    });
    eventually("it waits", || !cluster.model().nobody_waits());

    stop.stop();

    assert_eq!(waiting.join().unwrap(), None);
    // The cancel follows in the background; a release that overtakes it would grant to the waiter.
    eventually("nobody waits", || cluster.model().nobody_waits());
    lease.release().unwrap();
    // No caller waits any more: what was free stays free.
    eventually("nothing is left", || cluster.model().is_quiet());
    let again = session.acquire("db").send_unless(&Stop::new()).unwrap();
    assert_eq!(again.unwrap().token().get(), 2);
}

#[test]
fn a_transfer_that_nobody_waits_for_gives_the_lease_back() {
    let (_cluster, _node, _client, session) = alone(Duration::from_secs(60));
    let lease = session.acquire("db").send().unwrap();

    let Err(TransferError::NotWaiting { lease: Some(lease) }) = lease.transfer_to(None) else {
        panic!("handed over to nobody");
    };

    assert!(lease.is_valid());
    assert_eq!(lease.token().get(), 1);
}

#[test]
fn dropping_releases_and_closes_in_the_background() {
    let (cluster, _node, _client, session) = alone(Duration::from_secs(60));
    drop(session.acquire("db").send().unwrap());

    eventually("the release", || cluster.count(is_release) == 1);
    drop(session);
    eventually("nothing is left", || cluster.model().is_quiet());
}
