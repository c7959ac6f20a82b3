//! What rejected callers receive.

use ringfence_guard::tower::{FenceLayer, Policy};
use ringfence_guard::{Guard, LeaseName};

use crate::support::{Seen, request, send, under};

const GRPC: (&str, &str) = ("content-type", "application/grpc+proto");

fn layer() -> FenceLayer<Guard> {
    let name = LeaseName::parse("db/primary").unwrap();
    let guard = Guard::new(name.clone());
    guard.admit(&"db/primary#9".parse().unwrap()).unwrap();
    FenceLayer::new(guard).route("/fixed", Policy::Lease(name))
}

fn says(seen: &Seen, words: &[&str]) {
    assert!(!seen.reached, "{}", seen.response.body());
    for word in words {
        assert!(
            seen.response.body().contains(word),
            "{word} in {}",
            seen.response.body()
        );
    }
}

#[tokio::test]
async fn a_stale_token_is_a_conflict() {
    let seen = send(&layer(), under("/write", "db/primary#8")).await;
    assert_eq!(seen.response.status(), 409);
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(seen.header("ringfence-stale"), Some("db/primary#8"));
    says(
        &seen,
        &[
            r#""domain":"ringfence""#,
            r#""reason":"STALE_TOKEN""#,
            r#""metadata":{"name":"db/primary","offered":"8","current":"9"}"#,
            "stop the work",
        ],
    );
}

#[tokio::test]
async fn a_missing_fence_is_told_which_headers_to_send() {
    let seen = send(&layer(), request("/write", &[])).await;
    assert_eq!(seen.response.status(), 428);
    assert_eq!(seen.header("ringfence-stale"), None);
    says(
        &seen,
        &["MISSING_FENCE", "`ringfence-lease`", "`ringfence-token`"],
    );

    let seen = send(&layer(), request("/fixed", &[])).await;
    says(&seen, &["lease `db/primary`", r#""expected":"db/primary""#]);
}

#[tokio::test]
async fn a_malformed_fence_is_told_what_is_wrong_and_what_is_allowed() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("ringfence-lease", "db/primary")], "came without"),
        (
            &[("ringfence-lease", "db/primary"), ("ringfence-token", "9x")],
            "`9x` is not a number",
        ),
        (
            &[("ringfence-lease", "db//primary"), ("ringfence-token", "9")],
            "lease name",
        ),
    ];
    for (headers, wrong) in cases {
        let seen = send(&layer(), request("/write", headers)).await;
        assert_eq!(seen.response.status(), 400);
        says(&seen, &["MALFORMED_FENCE", wrong, "decimal digits"]);
    }
}

#[tokio::test]
async fn a_wrong_lease_is_the_callers_mistake_and_no_loss() {
    let seen = send(&layer(), under("/write", "db/other#900")).await;
    assert_eq!(seen.response.status(), 400);
    assert_eq!(seen.header("ringfence-stale"), None);
    says(&seen, &["WRONG_LEASE", r#""expected":"db/primary""#]);
}

#[tokio::test]
async fn a_grpc_caller_is_answered_in_trailers_with_the_code() {
    let cases = [
        (Some("db/primary#8"), "9", "STALE_TOKEN"),
        (Some("db/other#900"), "3", "WRONG_LEASE"),
        (Some("db/primary#x"), "3", "MALFORMED_FENCE"),
        (None, "3", "MISSING_FENCE"),
    ];
    for (fence, code, reason) in cases {
        let mut request = match fence {
            Some(fence) => under("/bank.Ledger/Add", fence),
            None => request("/bank.Ledger/Add", &[]),
        };
        request
            .headers_mut()
            .insert(GRPC.0, GRPC.1.parse().unwrap());
        let seen = send(&layer(), request).await;
        assert!(!seen.reached);
        assert_eq!(seen.response.status(), 200);
        assert_eq!(seen.header("content-type"), Some("application/grpc"));
        assert_eq!(seen.header("grpc-status"), Some(code));
        assert!(seen.header("grpc-message").unwrap().starts_with(reason));
        assert!(seen.header("grpc-status-details-bin").is_some());
        assert_eq!(seen.response.body(), "");
    }
}
