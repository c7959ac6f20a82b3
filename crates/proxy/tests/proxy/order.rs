//! What the proxy promises: behind the first request of a newer holder the service sees nothing of an older
//! one, neither its beginning nor its end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ringfence_proxy::Undrained;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::stage::{LONG, Served, Service, options};

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_holder_waits_for_requests_inside_also_for_those_whose_caller_has_gone() {
    let (service, upstream) = Service::start().await;
    let proxy = Arc::new(Served::start(options(&upstream)).await);
    // It sends a whole request, and goes.
    let mut gone = TcpStream::connect(proxy.address).await.unwrap();
    let request = "POST /slow/gone HTTP/1.1\r\nhost: a\r\nringfence-lease: bank/x\r\n\
                   ringfence-token: 8\r\ncontent-length: 2\r\n\r\nab";
    gone.write_all(request.as_bytes()).await.unwrap();
    service.has(1).await;
    drop(gone);

    let mut newer = pin!(proxy.post("/newer", Some(9)));
    assert!(
        timeout(Duration::from_millis(300), &mut newer)
            .await
            .is_err()
    );
    assert_eq!(service.paths(), ["/slow/gone"]);
    assert_eq!(proxy.post("/older", Some(8)).await.status, 412);
    service.gate.add_permits(1);
    assert_eq!(timeout(LONG, newer).await.unwrap().status, 201);
    assert_eq!(service.paths(), ["/slow/gone", "/newer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_holder_is_refused_for_now_or_cuts_what_does_not_end() {
    for undrained in [Undrained::Refuse, Undrained::Cut] {
        let (service, upstream) = Service::start().await;
        let mut options = options(&upstream);
        options.drain = Duration::from_millis(200);
        options.undrained = undrained;
        let proxy = Arc::new(Served::start(options).await);
        let asking = Arc::clone(&proxy);
        let older = tokio::spawn(async move { asking.post("/slow", Some(8)).await });
        service.has(1).await;
        let newer = proxy.post("/newer", Some(9)).await;
        if undrained == Undrained::Refuse {
            assert_eq!(newer.status, 503);
            assert_eq!(newer.headers["retry-after"], "1");
            assert_eq!(newer.problem(), ("DRAINING".into(), "not_done".into()));
            service.gate.add_permits(1);
            assert_eq!(older.await.unwrap().status, 201);
            assert_eq!(proxy.post("/newer", Some(9)).await.status, 201);
        } else {
            assert_eq!(newer.status, 201);
            let older = older.await.unwrap();
            assert_eq!(older.status, 504);
            assert_eq!(
                older.problem(),
                ("OUTCOME_UNKNOWN".into(), "unknown".into())
            );
        }
    }
}

/// Twelve holders come one after the other, and each of them sends from many tasks, also while the next one
/// is there already.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_holders_at_once_the_service_never_sees_an_older_one_behind_a_newer_one() {
    let (seen, upstream) = log_of_service().await;
    let proxy = Arc::new(Served::start(options(&upstream)).await);
    let mut callers = Vec::new();
    for holder in 1..=12_u64 {
        for task in 0..6_u64 {
            let proxy = Arc::clone(&proxy);
            callers.push(tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(holder * 40)).await;
                let mut refused = 0;
                for round in 0..20_u64 {
                    let pause = (holder * 7 + task * 13 + round * 5) % 23;
                    let path = format!("/{holder}/{pause}");
                    let status = proxy.post(&path, Some(holder)).await.status;
                    assert!([201, 412].contains(&status), "{status}");
                    refused += u64::from(status == 412);
                }
                refused
            }));
        }
    }
    let mut refused = 0;
    for caller in callers {
        refused += caller.await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert!(refused > 100, "{refused} refused: holders did not overlap");
    assert!(seen.len() > 200, "{} seen", seen.len());
    let mut newest = 0;
    for (holder, moment) in seen.iter() {
        assert!(*holder >= newest, "{moment} of {holder} behind {newest}");
        newest = newest.max(*holder);
    }
    assert_eq!(newest, 12);
}

type Log = Arc<std::sync::Mutex<Vec<(u64, &'static str)>>>;

/// A service that notes beginnings and ends: `/HOLDER/MILLISECONDS`.
async fn log_of_service() -> (Log, String) {
    let log = Log::default();
    let noting = Arc::clone(&log);
    let answer = move |uri: http::Uri| {
        let log = Arc::clone(&noting);
        async move {
            let mut parts = uri.path()[1..].split('/').map(|part| part.parse().unwrap());
            let (holder, pause): (u64, u64) = (parts.next().unwrap(), parts.next().unwrap());
            log.lock().unwrap().push((holder, "the beginning"));
            tokio::time::sleep(Duration::from_millis(pause)).await;
            log.lock().unwrap().push((holder, "the end"));
            http::StatusCode::CREATED
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = axum::Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (log, format!("http://{address}"))
}
