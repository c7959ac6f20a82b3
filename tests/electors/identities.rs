//! Two living processes that use one identity.

use std::time::Duration;

use ringfence_client::{LockError, RawLock, SessionOptions};

use crate::support::{LEASE, Story, client, elector, one_node, short, within};

fn options(ttl: Duration) -> SessionOptions {
    SessionOptions {
        ttl,
        identity: "pod-0".into(),
    }
}

#[tokio::test]
async fn s0_8_a_duplicate_identity_is_detected_and_named() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let mut first = RawLock::new(&client, "db", options(LEASE)).unwrap();
    let mut second = RawLock::new(&client, "db", options(LEASE)).unwrap();
    assert!(first.try_acquire().await.unwrap());

    // Two owners with one name are still two owners.
    assert!(!second.try_acquire().await.unwrap());
    let detecting = async {
        loop {
            first.refresh().await.unwrap();
            match second.try_acquire().await {
                Ok(mine) => assert!(!mine),
                Err(error) => return error,
            }
            tokio::time::sleep(LEASE / 10).await;
        }
    };
    let error = within("the duplicate is found", detecting).await;
    let LockError::Duplicate(found) = &error else {
        panic!("{error}");
    };
    assert_eq!(found.identity, "pod-0");
    assert_eq!(found.session, first.lease().unwrap().session());
    assert!(error.to_string().contains("pod-0"), "{error}");
}

#[tokio::test]
async fn s0_8_a_former_life_is_no_duplicate() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let session = client.open_session(options(LEASE)).await.unwrap();
    let lease = session.acquire("db").send().await.unwrap();
    // As a process that is killed: nothing is released, nothing kept alive.
    lease.forget();
    session.detach();

    let mut again = RawLock::new(&client, "db", options(LEASE)).unwrap();
    let taking = async {
        while !again.try_acquire().await.unwrap() {
            tokio::time::sleep(LEASE / 20).await;
        }
    };
    within("it leads when its former life has ended", taking).await;
}

#[tokio::test]
async fn s0_8_an_elector_names_the_duplicate() {
    let cluster = one_node().await;
    let client = client(&cluster).await;
    let story = Story::new();
    let leader = elector(&client, "pod-0", short()).campaign("db").lead();
    let leader = leader.await.unwrap();

    let told = story.clone();
    let second = elector(&client, "pod-0", short())
        .campaign("db")
        .on_started(|_| panic!("two leaders"))
        .on_duplicate(move |found| told.tell(format!("{} {}", found.identity, found.session)));
    let campaign = tokio::spawn(second.run_callbacks());

    story.until(1, &format!("pod-0 {}", leader.session())).await;
    assert!(leader.is_valid());
    campaign.abort();
}
