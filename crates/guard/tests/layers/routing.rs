//! What each policy lets through.

use std::sync::Arc;

use ringfence_guard::tower::{FenceLayer, Policy, TurnedAway, door_fn};
use ringfence_guard::{Fence, Guard, LeaseName};

use crate::support::{request, send, under};

fn name(text: &str) -> LeaseName {
    LeaseName::parse(text).unwrap()
}

/// Lets every fence pass.
fn open_door() -> impl ringfence_guard::tower::Door {
    door_fn(|_| std::future::ready(Ok(())))
}

#[tokio::test]
async fn an_admitted_fence_reaches_the_handler() {
    let guard = Arc::new(Guard::new(name("db")));
    let layer = FenceLayer::new(Arc::clone(&guard));
    let seen = send(&layer, under("/write", "db#8")).await;
    assert_eq!(seen.response.status(), 200);
    assert_eq!(seen.response.body(), "db#8");
    assert_eq!(guard.mark().unwrap().get(), 8);
}

#[tokio::test]
async fn an_optional_fence_may_be_missing_and_may_not_be_stale_or_malformed() {
    let layer = FenceLayer::new(Guard::new(name("db"))).route("/read", Policy::Optional);
    assert!(send(&layer, under("/write", "db#8")).await.reached);

    let seen = send(&layer, request("/read", &[])).await;
    assert_eq!(seen.response.body(), "no fence");
    assert_eq!(
        send(&layer, under("/read", "db#8")).await.response.body(),
        "db#8"
    );
    assert!(!send(&layer, under("/read", "db#7")).await.reached);
    let half = request("/read", &[("ringfence-token", "8")]);
    assert!(!send(&layer, half).await.reached);
    assert!(!send(&layer, request("/write", &[])).await.reached);
}

#[tokio::test]
async fn a_fixed_lease_refuses_the_fence_of_another_before_the_door_is_asked() {
    let asked = door_fn(|fence: Fence| async move {
        assert_eq!(fence.name.as_str(), "db", "the door is asked");
        Ok(())
    });
    let layer = FenceLayer::new(asked).route("/db/*", Policy::Lease(name("db")));
    assert!(send(&layer, under("/db/write", "db#1")).await.reached);
    let seen = send(&layer, under("/db/write", "other#900")).await;
    assert!(!seen.reached);
    assert_eq!(seen.response.status(), 400);
    assert!(seen.response.body().contains("\"reason\":\"WRONG_LEASE\""));
    assert!(seen.response.body().contains("\"expected\":\"db\""));
}

#[tokio::test]
async fn what_no_route_names_needs_a_fence_unless_said_otherwise() {
    let strict = FenceLayer::new(open_door()).route("/read", Policy::Optional);
    for path in ["/write", "/read/", "/READ", "//read", "/read/../write"] {
        assert!(!send(&strict, request(path, &[])).await.reached, "{path}");
    }
    let lax = FenceLayer::new(open_door())
        .otherwise(Policy::Optional)
        .route("/write", Policy::Required);
    assert!(send(&lax, request("/any", &[])).await.reached);
    assert!(!send(&lax, request("/write", &[])).await.reached);
}

#[tokio::test]
async fn a_fence_that_others_put_into_the_extensions_does_not_get_past_the_door() {
    let layer = FenceLayer::new(open_door()).otherwise(Policy::Optional);
    let mut request = request("/read", &[]);
    let forged: Fence = "db#9".parse().unwrap();
    request.extensions_mut().insert(forged);
    assert_eq!(send(&layer, request).await.response.body(), "no fence");
}

#[tokio::test]
async fn a_door_that_fails_lets_no_request_pass() {
    let layer = FenceLayer::new(door_fn(|_| async {
        Err(TurnedAway::Later {
            reason: "UNAVAILABLE",
            message: "the store does not answer; try again".into(),
        })
    }));
    let seen = send(&layer, under("/write", "db#8")).await;
    assert!(!seen.reached);
    assert_eq!(seen.response.status(), 503);
    assert_eq!(seen.header("retry-after"), Some("1"));
}
