//! What passes, what is refused, and what the service sees of it.

use std::sync::Arc;

use http_body_util::Full;

use crate::stage::{Served, Service, options};

#[tokio::test(flavor = "multi_thread")]
async fn the_holders_requests_pass_as_they_are_and_older_ones_do_not() {
    let (service, upstream) = Service::start().await;
    let proxy = Served::start(options(&upstream)).await;
    let head = proxy
        .request("/deposit?to=a%2fb", Some(8))
        .header("host", "bank.example")
        .header("connection", "keep-alive")
        .header("x-forwarded-for", "10.0.0.1")
        .header("expect", "100-continue")
        .header("authorization", "Bearer b");
    let answer = proxy.send(head, Full::from("100")).await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.headers["x-of-service"], "yes");
    assert!(
        !answer.headers.contains_key("x-gone"),
        "{:?}",
        answer.headers
    );
    assert_eq!(answer.body.unwrap(), "done /deposit?to=a%2fb");
    let noted = service.noted.lock().unwrap()[0].clone();
    assert_eq!(noted.body, "100");
    let header = |name: &str| noted.headers.get(name).map(String::as_str);
    assert_eq!(header("host"), Some("bank.example"));
    assert_eq!(header("authorization"), Some("Bearer b"));
    assert_eq!(header("x-forwarded-for"), Some("10.0.0.1, 127.0.0.1"));
    assert_eq!(
        (header("ringfence-lease"), header("ringfence-token")),
        (Some("bank/x"), Some("8"))
    );
    assert_eq!((header("connection"), header("expect")), (None, None));

    assert_eq!(proxy.post("/deposit", Some(9)).await.status, 201);
    let stale = proxy.post("/deposit", Some(8)).await;
    assert_eq!(stale.status, 412);
    assert_eq!(stale.headers["ringfence-stale"], "bank/x#8");
    assert_eq!(stale.problem(), ("STALE_TOKEN".into(), "not_done".into()));
    assert_eq!(service.paths().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_shows_no_fence_passes_where_that_is_said_alone() {
    let (service, upstream) = Service::start().await;
    let proxy = Served::start(options(&upstream)).await;
    let missing = proxy.post("/deposit", None).await;
    assert_eq!(missing.status, 428);
    assert_eq!(
        missing.problem(),
        ("MISSING_FENCE".into(), "not_done".into())
    );
    assert_eq!(proxy.post("/open/a", None).await.status, 201);
    assert_eq!(proxy.post("/open/../deposit", None).await.status, 400);
    assert_eq!(proxy.post("//open/a", Some(8)).await.status, 400);
    let other = proxy
        .request("/open/a", None)
        .header("ringfence-lease", "shop/x")
        .header("ringfence-token", "7");
    assert_eq!(proxy.send(other, Full::default()).await.status, 400);
    let twice = proxy
        .request("/open/a", Some(7))
        .header("ringfence-token", "9");
    assert_eq!(proxy.send(twice, Full::default()).await.status, 400);
    assert_eq!(service.paths(), ["/open/a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_outlive_a_proxy_that_is_stopped() {
    let (service, upstream) = Service::start().await;
    let options = options(&upstream);
    let proxy = Served::start(options.clone()).await;
    assert_eq!(proxy.post("/a", Some(9)).await.status, 201);
    let folder = Arc::clone(&proxy.folder);
    assert!(proxy.stop().await);
    // Nothing was inside, so none has to wait.
    let proxy = Served::start_in(folder, options).await;
    assert_eq!(proxy.post("/b", Some(8)).await.status, 412);
    assert_eq!(proxy.post("/c", Some(9)).await.status, 201);
    assert_eq!(proxy.post("/d", Some(10)).await.status, 201);
    assert_eq!(service.paths(), ["/a", "/c", "/d"]);
}
