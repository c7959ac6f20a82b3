//! All servers go and come back.

use std::time::Duration;

use ringfence_client::SessionState;
use ringfence_tests::Signal;

use crate::support::{client, cluster, open, renewed, within};

#[tokio::test]
async fn a_restart_of_all_servers_within_a_window_loses_nothing() {
    let mut cluster = cluster(3).await;
    let client = client(&cluster).await;
    let ttl = Duration::from_secs(60);
    let session = open(&client, ttl).await;
    let held = session.acquire("db/held").send().await.unwrap();
    let blocker = session.acquire("db/waited").send().await.unwrap();
    let other = open(&client, ttl).await;
    let waiting = tokio::spawn(other.acquire("db/waited").wait(ttl).send());
    // It stands in the queue, so it was committed.
    let caller = cluster.caller();
    let queued = async {
        while caller
            .get("db/waited")
            .await
            .unwrap()
            .is_none_or(|lease| lease.waiters == 0)
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("a place in the queue", queued).await;

    for at in 0..cluster.len() {
        cluster.signal(at, Signal::Kill);
    }
    let asked_meanwhile = tokio::spawn(session.acquire("db/meanwhile").send());
    for at in 0..cluster.len() {
        cluster.spawn(at);
    }

    renewed(&client, &held, ttl).await;
    assert!(held.is_valid());
    assert_eq!(held.token().get(), 1);
    assert_eq!(*session.state().borrow(), SessionState::Live);
    blocker.release().await.unwrap();
    let waited = within("the grant that was waited for", waiting).await;
    assert!(waited.unwrap().unwrap().token().get() > 2);
    let meanwhile = within("what was asked meanwhile", asked_meanwhile).await;
    meanwhile.unwrap().unwrap().release().await.unwrap();
    held.release().await.unwrap();
}

#[tokio::test]
async fn an_outage_longer_than_the_window_ends_belief_and_then_work_begins_with_a_new_token() {
    let mut cluster = cluster(3).await;
    let client = client(&cluster).await;
    let ttl = Duration::from_secs(3);
    let session = open(&client, ttl).await;
    let lease = session.acquire("db").send().await.unwrap();

    for at in 0..cluster.len() {
        cluster.signal(at, Signal::Kill);
    }
    within("the loss", lease.lost()).await;
    for at in 0..cluster.len() {
        cluster.spawn(at);
    }
    cluster.wait_until_serving(Duration::from_secs(60)).await;

    let again = open(&client, ttl * 10).await;
    let anew = again.acquire("db").wait(ttl * 20).send();
    let anew = within("a new grant", anew).await.unwrap();
    assert!(anew.token() > lease.token());
    assert!(!lease.is_valid());
}
