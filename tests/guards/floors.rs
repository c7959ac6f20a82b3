//! Floors of a real cluster: who is stale is refused before the new holder's first write, and who was
//! never granted waits and is refused.

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use ringfence_client::Client;
use ringfence_guard::Guard;
use ringfence_guard::follow::{FloorFollower, FollowError, Options as Follow, Unheard};
use ringfence_guard::tower::FenceLayer;
use ringfence_proto::refusal::Refusal;
use ringfence_proto::v1::Reason;
use ringfence_tests::{Cluster, Options, Signal};
use tonic_health::pb::health_client::HealthClient;
use tower::Layer;

use crate::support::{
    LONG, NAME, Service, acquire, fence, name, session, within, write, write_with,
};

/// A follower of the cluster's floors, once it is live.
async fn follow(cluster: &Cluster, options: Follow) -> FloorFollower {
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    let follower = FloorFollower::new(options);
    let told = client.watch_floors("bank/");
    let following = follower.clone();
    tokio::spawn(async move { following.follow(told).await });
    until_live(&follower, true).await;
    follower
}

async fn until_live(follower: &FloorFollower, live: bool) {
    let turning = async {
        while follower.is_live() != live {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the stream is live, or is not", turning).await;
}

/// Silence that a slow machine does not reach, and nothing passes that was not reported.
fn steady() -> Follow {
    Follow {
        silence: LONG,
        unheard: Unheard::Refuse,
        ..Follow::default()
    }
}

/// Waits for true tokens as long as a slow machine takes.
fn patient() -> Follow {
    Follow {
        patience: LONG,
        ..steady()
    }
}

#[tokio::test]
async fn the_old_holder_is_refused_before_the_new_ones_first_write() {
    let cluster = Cluster::start(Options::default()).await;
    let follower = follow(&cluster, patient()).await;
    let service = Service::start(FenceLayer::new(follower.clone())).await;
    let (first, second) = (session(&cluster).await, session(&cluster).await);
    let old = acquire(&first).await;
    let old_token = old.token();
    let mut fenced = HealthClient::new(old.attach().layer(service.channel().await));
    fenced.check(write("old")).await.unwrap();

    old.release().await.unwrap();
    let new = acquire(&second).await;
    let floor = within("the floor", follower.risen(&name(), Some(old_token))).await;
    assert_eq!(floor, new.token());

    // The new holder has shown its fence to no store yet.
    let mut zombie = HealthClient::new(service.channel().await);
    let late = write_with("late", Some(NAME), Some(&old_token.to_string()));
    let refused = zombie.check(late).await.unwrap_err();
    let refusal = Refusal::from_status(&refused).unwrap();
    assert_eq!(refusal.reason, Reason::StaleToken);
    assert_eq!(refusal.metadata["current"], new.token().to_string());

    let mut fenced = HealthClient::new(new.attach().layer(service.channel().await));
    fenced.check(write("new")).await.unwrap();
    assert_eq!(service.written(), ["old", "new"]);
}

#[tokio::test]
async fn a_store_that_is_fed_refuses_who_had_passed_the_door_before() {
    let cluster = Cluster::start(Options::default()).await;
    let follower = follow(&cluster, patient()).await;
    let service = Arc::new(Service::start(FenceLayer::new(follower.clone())).await);
    let (store, feeding) = (Arc::clone(&service), follower.clone());
    let feeding = tokio::spawn(async move {
        let raise = |floor| {
            store.raise(floor);
            ready(Ok::<_, Infallible>(()))
        };
        feeding.feed(&name(), raise).await
    });
    let (first, second) = (session(&cluster).await, session(&cluster).await);
    let old = acquire(&first).await;
    let old_token = old.token();
    let mut fenced = HealthClient::new(old.attach().layer(service.channel().await));
    service.hold_up_the_next();
    let paused = tokio::spawn(async move { fenced.check(write("old")).await });
    service.until_passed(1).await;

    old.release().await.unwrap();
    let new = acquire(&second).await;
    within("the floor", follower.risen(&name(), Some(old_token))).await;
    until_mark(&service, new.token()).await;
    service.go_on();

    let refused = within("the answer", paused).await.unwrap().unwrap_err();
    let refusal = Refusal::from_status(&refused).unwrap();
    assert_eq!(refusal.reason, Reason::StaleToken);
    assert_eq!(service.written(), Vec::<String>::new());
    feeding.abort();
}

async fn until_mark(service: &Service, token: ringfence_guard::FencingToken) {
    let rising = async {
        while service.mark() != Some(token) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the mark in the store", rising).await;
}

#[tokio::test]
async fn a_forged_token_is_refused_and_the_true_holder_goes_on() {
    let cluster = Cluster::start(Options::default()).await;
    let follower = follow(&cluster, steady()).await;
    let session = session(&cluster).await;
    let lease = acquire(&session).await;
    let guard = Guard::new(name());
    let token = lease.token().get();
    within("the floor", follower.risen(&name(), None)).await;
    follower.admit(&guard, &fence(token)).await.unwrap();

    for forged in [token + 1, token + 1_000_000, (1 << 63) - 1] {
        let refused = follower.admit(&guard, &fence(forged)).await.unwrap_err();
        assert!(
            matches!(refused, FollowError::UnknownToken { .. }),
            "{refused}"
        );
    }

    // Nothing was raised by them.
    follower.admit(&guard, &fence(token)).await.unwrap();
    assert_eq!(guard.mark(), Some(lease.token()));
}

#[tokio::test]
async fn true_tokens_pass_while_the_leader_is_killed_and_forged_ones_never_do() {
    let mut cluster = Cluster::start(Options::default()).await;
    let follower = follow(&cluster, patient()).await;
    let session = session(&cluster).await;
    let guard = Guard::new(name());
    for _ in 0..2 {
        let leader = cluster.wait_for_leader(LONG).await;
        cluster.signal(leader, Signal::Kill);
        let lease = acquire(&session).await;
        let shown = fence(lease.token().get());
        let admit = follower.admit(&guard, &shown);
        within("the floor", admit).await.unwrap();
        lease.release().await.unwrap();
        cluster.spawn(leader);
        cluster.wait_until_serving(LONG).await;
    }
    let forged = fence(guard.mark().unwrap().get() + 1);
    let brief = tokio::time::timeout(Duration::from_millis(1_500), follower.check(&forged));
    assert!(brief.await.is_err(), "it waits, and does not pass");
}

#[tokio::test]
async fn without_a_cluster_the_known_holder_goes_on_and_the_rest_is_as_configured() {
    let mut cluster = Cluster::start(Options::default()).await;
    let options = |unheard| Follow {
        unheard,
        ..Follow::default()
    };
    let plain = follow(&cluster, options(Unheard::Plain)).await;
    let strict = follow(&cluster, options(Unheard::Refuse)).await;
    let session = session(&cluster).await;
    let lease = acquire(&session).await;
    let token = lease.token();
    for follower in [&plain, &strict] {
        within("the floor", follower.risen(&name(), None)).await;
    }

    for node in 0..cluster.len() {
        cluster.signal(node, Signal::Kill);
    }
    for follower in [&plain, &strict] {
        until_live(follower, false).await;
        follower.check(&fence(token.get())).await.unwrap();
        let stale = follower.check(&fence(token.get() - 1)).await.unwrap_err();
        assert_eq!(stale.reason(), "STALE_TOKEN");
    }
    plain.check(&fence(token.get() + 1)).await.unwrap();
    let refused = strict.check(&fence(token.get() + 1)).await.unwrap_err();
    assert!(matches!(refused, FollowError::NoFloors { .. }), "{refused}");

    // It comes back on its own.
    for node in 0..cluster.len() {
        cluster.spawn(node);
    }
    until_live(&strict, true).await;
}
