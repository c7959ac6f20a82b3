//! A held lease in front of a guarded service.

use ringfence_client::Loss;
use ringfence_guard::Guard;
use ringfence_guard::tower::FenceLayer;
use ringfence_proto::refusal::Refusal;
use ringfence_proto::v1::Reason;
use tonic::Code;
use tonic_health::pb::health_client::HealthClient;
use tower::Layer;

use crate::support::{NAME, Service, acquire, name, one_node, session, within, write, write_with};

#[tokio::test]
async fn the_headers_have_the_same_names_on_both_sides() {
    use ringfence_client::attach;
    use ringfence_guard::tower;
    assert_eq!(attach::LEASE_HEADER, tower::LEASE_HEADER);
    assert_eq!(attach::TOKEN_HEADER, tower::TOKEN_HEADER);
    assert_eq!(attach::STALE_HEADER, tower::STALE_HEADER);
}

#[tokio::test]
async fn a_holder_writes_and_nothing_is_sent_once_the_lease_is_lost() {
    let cluster = one_node().await;
    let session = session(&cluster).await;
    let service = Service::start(FenceLayer::new(Guard::new(name()))).await;
    let lease = acquire(&session).await;
    let mut fenced = HealthClient::new(lease.attach().layer(service.channel().await));

    fenced.check(write("held")).await.unwrap();
    lease.release().await.unwrap();
    let unsent = fenced.check(write("released")).await.unwrap_err();

    assert_eq!(unsent.code(), Code::Aborted, "{unsent}");
    assert!(unsent.message().starts_with("not sent"), "{unsent}");
    let refusal = Refusal::from_status(&unsent).unwrap();
    assert_eq!(refusal.reason, Reason::Ended);
    assert_eq!(service.passed(), 1);
    assert_eq!(service.written(), ["held"]);
}

#[tokio::test]
async fn what_is_under_way_at_the_loss_is_not_hidden() {
    let cluster = one_node().await;
    let session = session(&cluster).await;
    let service = Service::start(FenceLayer::new(Guard::new(name()))).await;
    let lease = acquire(&session).await;
    let mut fenced = HealthClient::new(lease.attach().layer(service.channel().await));
    service.hold_up_the_next();
    let under_way = tokio::spawn(async move { fenced.check(write("under way")).await });
    service.until_passed(1).await;

    lease.release().await.unwrap();
    service.go_on();

    // No holder came after it, so the store took it, and the caller learns so.
    within("the answer", under_way).await.unwrap().unwrap();
    assert_eq!(service.written(), ["under way"]);
}

#[tokio::test]
async fn a_refusal_at_the_door_ends_belief_in_the_lease() {
    let cluster = one_node().await;
    let session = session(&cluster).await;
    let service = Service::start(FenceLayer::new(Guard::new(name()))).await;
    let lease = acquire(&session).await;
    let mut fenced = HealthClient::new(lease.attach().layer(service.channel().await));
    let mut other = HealthClient::new(service.channel().await);
    let newer = (lease.token().get() + 1).to_string();
    other
        .check(write_with("newer", Some(NAME), Some(&newer)))
        .await
        .unwrap();
    assert!(lease.is_valid());

    let refused = fenced.check(write("older")).await.unwrap_err();

    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert_eq!(lease.loss(), Some(Loss::Reported));
    let unsent = fenced.check(write("again")).await.unwrap_err();
    assert!(unsent.message().starts_with("not sent"), "{unsent}");
    assert_eq!(service.passed(), 1);
}

#[tokio::test]
async fn who_is_paused_behind_the_door_is_refused_by_the_mark_in_the_store() {
    let cluster = one_node().await;
    let (first, second) = (session(&cluster).await, session(&cluster).await);
    let service = Service::start(FenceLayer::new(Guard::new(name()))).await;
    let old = acquire(&first).await;
    let mut fenced = HealthClient::new(old.attach().layer(service.channel().await));
    service.hold_up_the_next();
    let paused = tokio::spawn(async move { fenced.check(write("old")).await });
    service.until_passed(1).await;

    old.release().await.unwrap();
    let new = acquire(&second).await;
    let mut fenced = HealthClient::new(new.attach().layer(service.channel().await));
    fenced.check(write("new")).await.unwrap();
    service.go_on();

    let refused = within("the answer", paused).await.unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let refusal = Refusal::from_status(&refused).unwrap();
    assert_eq!(refusal.reason, Reason::StaleToken);
    assert_eq!(service.written(), ["new"]);
    assert!(new.is_valid());
}
