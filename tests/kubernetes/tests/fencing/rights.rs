//! What the fenced account may do with the rights that the manifests give it, and what not.

use http::Request;
use kube::Error;
use ringfence_kube::policy::Carrier;
use ringfence_kubernetes::User;
use serde_json::Value;

use crate::stand::{CURRENT, Stand};
use crate::verdict::Verdict;
use crate::writer::Op;

/// Why a user may not act as another; `None` if it may.
async fn refusal(stand: &Stand, headers: &[(&str, &str)]) -> Option<String> {
    let path = format!("/api/v1/namespaces/{}/configmaps", stand.namespace);
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = stand
        .account
        .request::<Value>(request.body(Vec::new()).unwrap());
    match answer.await {
        Ok(_) => None,
        Err(Error::Api(status)) => {
            assert_eq!(status.code, 403, "{}", status.message);
            Some(status.message)
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_may_act_as_itself_with_a_fence_and_as_nobody_else() {
    let Some(stand) = Stand::start(Carrier::Impersonate, CURRENT).await else {
        return;
    };
    assert_eq!(stand.would_create(CURRENT).await, Ok(Verdict::Admitted));
    let itself = User::Default.name();
    let fence = ("impersonate-extra-ringfence.io%2ffence", "k8s/a/b#1");
    assert_eq!(
        refusal(&stand, &[("impersonate-user", itself), fence]).await,
        None
    );

    let namesake = format!("system:serviceaccount:{}:default", stand.namespace);
    for (headers, right) in [
        (vec![("impersonate-user", "admin")], "users"),
        (
            vec![("impersonate-user", User::Ringfence.name())],
            "serviceaccounts",
        ),
        // A role for all namespaces would have allowed this one.
        (
            vec![("impersonate-user", namesake.as_str())],
            "serviceaccounts",
        ),
        (
            vec![
                ("impersonate-user", itself),
                ("impersonate-group", "system:masters"),
            ],
            "groups",
        ),
        (
            vec![
                ("impersonate-user", itself),
                ("impersonate-extra-scopes", "all"),
            ],
            "userextras",
        ),
    ] {
        let refused = refusal(&stand, &headers).await;
        let refused = refused.unwrap_or_else(|| panic!("{headers:?} is allowed"));
        assert!(refused.contains("cannot impersonate resource"), "{refused}");
        assert!(refused.contains(right), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_is_not_taken_for_a_fence() {
    let Some(stand) = Stand::start(Carrier::Impersonate, CURRENT).await else {
        return;
    };
    let other = stand.plane.client(User::Ringfence).await;
    let fence = stand.fence(CURRENT);
    let writer = crate::writer::Writer::new(other, &stand.namespace, stand.carrier, Some(fence));
    let refused = writer.write(Op::Create, "prices").await.unwrap_err();
    assert!(
        refused.starts_with("403: ") && !refused.contains("ringfence: "),
        "{refused}"
    );
}
