//! What callers receive at the door of a gRPC service.

use ringfence_guard::Guard;
use ringfence_guard::tower::{FenceLayer, Policy, TurnedAway, door_fn};
use ringfence_proto::refusal::Refusal;
use ringfence_proto::v1::Reason;
use tonic::Code;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

use crate::support::{NAME, Service, name, write, write_with};

#[tokio::test]
async fn each_bad_fence_is_refused_with_its_own_details() {
    let service = Service::start(FenceLayer::new(Guard::new(name()))).await;
    let mut caller = HealthClient::new(service.channel().await);
    caller
        .check(write_with("nine", Some(NAME), Some("9")))
        .await
        .unwrap();

    let cases = [
        (
            Some(NAME),
            Some("8"),
            Code::FailedPrecondition,
            "STALE_TOKEN",
        ),
        (None, None, Code::InvalidArgument, "MISSING_FENCE"),
        (Some(NAME), None, Code::InvalidArgument, "MALFORMED_FENCE"),
        (
            Some(NAME),
            Some("9.0"),
            Code::InvalidArgument,
            "MALFORMED_FENCE",
        ),
        (
            Some("bank//x"),
            Some("9"),
            Code::InvalidArgument,
            "MALFORMED_FENCE",
        ),
        (
            Some("other"),
            Some("900"),
            Code::InvalidArgument,
            "WRONG_LEASE",
        ),
    ];
    for (lease, token, code, reason) in cases {
        let refused = caller
            .check(write_with("no", lease, token))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().starts_with(reason), "{refused}");
        let details = refused.get_error_details();
        let info = details.error_info().unwrap();
        assert_eq!(
            (info.domain.as_str(), info.reason.as_str()),
            ("ringfence", reason)
        );
    }

    assert_eq!(service.passed(), 1);
    assert_eq!(service.written(), ["nine"]);
}

#[tokio::test]
async fn a_stale_token_is_told_in_the_words_of_the_cluster() {
    let service = Service::start(FenceLayer::new(Guard::new(name()))).await;
    let mut caller = HealthClient::new(service.channel().await);
    caller
        .check(write_with("nine", Some(NAME), Some("9")))
        .await
        .unwrap();

    let refused = caller
        .check(write_with("no", Some(NAME), Some("8")))
        .await
        .unwrap_err();

    let refusal = Refusal::from_status(&refused).unwrap();
    assert_eq!(refusal.reason, Reason::StaleToken);
    assert!(refusal.is_certain());
    let detail = |key: &str| refusal.metadata[key].as_str();
    assert_eq!(
        (detail("name"), detail("offered"), detail("current")),
        (NAME, "8", "9")
    );
}

#[tokio::test]
async fn a_door_that_cannot_tell_yet_says_when_to_come_back() {
    let later = door_fn(|_| async {
        Err(TurnedAway::Later {
            reason: "UNKNOWN_TOKEN",
            message: "UNKNOWN_TOKEN: 9 is not known yet ….".into(),
        })
    });
    let service = Service::start(FenceLayer::new(later)).await;
    let mut caller = HealthClient::new(service.channel().await);

    let refused = caller
        .check(write_with("no", Some(NAME), Some("9")))
        .await
        .unwrap_err();

    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(refused.message(), "UNKNOWN_TOKEN: 9 is not known yet ….");
    let details = refused.get_error_details();
    let retry = details.retry_info().unwrap().retry_delay.unwrap();
    assert_eq!(retry.as_secs(), 1);
}

#[tokio::test]
async fn a_route_of_its_own_needs_no_fence() {
    let layer = FenceLayer::new(Guard::new(name()));
    let layer = layer.route("/grpc.health.v1.Health/Check", Policy::Optional);
    let service = Service::start(layer).await;
    let mut caller = HealthClient::new(service.channel().await);

    caller.check(write("a read")).await.unwrap();
    caller
        .check(write_with("nine", Some(NAME), Some("9")))
        .await
        .unwrap();
    let refused = caller.watch(write("any")).await.unwrap_err();

    assert!(refused.message().starts_with("MISSING_FENCE"), "{refused}");
    assert_eq!(service.written(), ["nine"]);
}
