//! The Lease endpoint while another holder has the lease: what is written all the same, what is
//! refused, and what callers learn by it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::lease_api::{Answer, LEASES, Secured, WEB, web};

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_candidate_learns_how_long_the_lease_is_held() {
    let node = Secured::start().await;
    let one = node.principal("one", &[("acquire", "k8s/shop/*")]);
    let two = node.principal("two", &[("acquire", "k8s/shop/*")]);
    let made = node.ask(Some(&one), "POST", LEASES, Some(&web("one")));
    assert_eq!(made.status, 201, "{}", made.body);
    let mut taken = web("two");
    taken["metadata"]["resourceVersion"] = made.body["metadata"]["resourceVersion"].clone();
    for path in [WEB.to_owned(), format!("{WEB}?dryRun=All")] {
        let refused = node.ask(Some(&two), "PUT", &path, Some(&taken));
        assert_eq!(refused.status, 409, "{}", refused.body);
        let message = refused.body["message"].as_str().unwrap();
        let (_, held) = message.split_once("held by \"one\" with token ").unwrap();
        let (_, left) = held.split_once(" for ").unwrap();
        let (left, _) = left.split_once(" ms more").unwrap();
        let left: u64 = left.parse().unwrap();
        // One and a half of its duration at most.
        assert!((1..=9_000).contains(&left), "{message}");
    }
    drop(node.node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_alone_is_written_on_what_a_session_holds() {
    let node = Secured::start().await;
    let elector = node.principal("elector", &[("acquire", "k8s/shop/*")]);
    node.operate(&["access", "grant", "local", "acquire", "k8s/shop/*"]);
    let open = ["session", "open", "--ttl", "30s", "--identity", "native"];
    let opened = node.operate(&open);
    let (_, handle) = opened.rsplit_once(' ').unwrap();
    node.operate(&["lease", "acquire", "k8s/shop/web", "--session", handle]);
    let read = node.ask(Some(&elector), "GET", WEB, None).body;
    sleep(Duration::from_millis(1_200)).await;
    node.operate(&["session", "keep-alive", handle, "--once"]);
    let renewed = node.ask(Some(&elector), "GET", WEB, None).body;
    assert_ne!(read["spec"]["renewTime"], renewed["spec"]["renewTime"]);
    let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
    assert_eq!(version(&read), version(&renewed));

    // The holder was heard since it was read.
    let mut labelled = read.clone();
    labelled["metadata"]["labels"] = json!({ "team": "a" });
    let put = node.ask(Some(&elector), "PUT", WEB, Some(&labelled));
    assert_eq!(put.status, 200, "{}", put.body);
    assert_eq!(put.body["metadata"]["labels"]["team"], "a");
    assert_eq!(put.body["spec"]["holderIdentity"], "native");
    assert!(!put.headers.contains("ringfence-fence"), "{}", put.headers);
    let patch = json!({ "metadata": { "labels": { "team": "b" } } });
    let patched = node.ask(Some(&elector), "PATCH", WEB, Some(&patch));
    assert_eq!(patched.status, 200, "{}", patched.body);

    // An elector of the holder's name renews nothing, with a label or without.
    let now = node.ask(Some(&elector), "GET", WEB, None).body;
    let renewal = "2026-11-25T08:00:00.000001Z";
    for label in ["b", "c"] {
        let mut stolen = now.clone();
        stolen["spec"]["renewTime"] = json!(renewal);
        stolen["metadata"]["labels"]["team"] = json!(label);
        let refused = node.ask(Some(&elector), "PUT", WEB, Some(&stolen));
        assert_eq!(refused.status, 409, "{}", refused.body);
    }
    drop(node.node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_without_a_pod_is_warned_that_it_cannot_release() {
    let node = Secured::start().await;
    let owner = node.principal("owner", &[("acquire", "k8s/shop/*")]);
    let made = node.ask(Some(&owner), "POST", LEASES, Some(&web("one")));
    assert_eq!(made.status, 201, "{}", made.body);
    assert!(made.headers.contains("warning: 299"), "{}", made.headers);
    assert!(made.headers.contains("names no pod"), "{}", made.headers);
    let put = |of: &Answer, holder: &str| {
        let mut body = web(holder);
        body["metadata"]["resourceVersion"] = of.body["metadata"]["resourceVersion"].clone();
        node.ask(Some(&owner), "PUT", WEB, Some(&body))
    };
    let renewed = put(&made, "one");
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    assert!(!renewed.headers.contains("warning"), "{}", renewed.headers);
    let released = put(&renewed, "");
    assert_eq!(released.status, 409, "{}", released.body);
    drop(node.node);
}

/// What differs tells a caller without rights whether a name is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_name_and_an_absent_one_are_refused_alike() {
    let node = Secured::start().await;
    let owner = node.principal("owner", &[("acquire", "k8s/shop/*")]);
    let observer = node.principal("observer", &[("observe", "k8s/other/*")]);
    let made = node.ask(Some(&owner), "POST", LEASES, Some(&web("one")));
    assert_eq!(made.status, 201, "{}", made.body);
    let patch = json!({ "metadata": { "annotations": { "team": "a" } } });
    let stale = |name: &str| {
        let mut stale = web("two");
        stale["metadata"]["name"] = json!(name);
        stale["metadata"]["resourceVersion"] = json!("1");
        stale["metadata"]["uid"] = json!("6f1c");
        stale
    };
    let asked = |caller: Option<&str>, method: &str, query: &str, name: &str| {
        let path = format!("{LEASES}/{name}{query}");
        let body = match method {
            "PUT" => Some(stale(name)),
            "PATCH" => Some(patch.clone()),
            _ => None,
        };
        let answer = node.ask(caller, method, &path, body.as_ref());
        (answer.status, answer.body.to_string().replace(name, "NAME"))
    };
    for caller in [None, Some(observer.as_str())] {
        for method in ["GET", "PUT", "PATCH", "DELETE"] {
            for query in ["", "?dryRun=All"] {
                let hidden = asked(caller, method, query, "web");
                let absent = asked(caller, method, query, "gone");
                assert_eq!(hidden, absent, "{method}{query}");
                assert_eq!(hidden.0, 403, "{method}{query}: {}", hidden.1);
            }
        }
    }
    drop(node.node);
}
