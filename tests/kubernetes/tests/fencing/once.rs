//! Every write is sent once: what would repeat it has not asked the clock again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::http::StatusCode;
use http::Uri;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Config;
use kube::api::Api;
use ringfence_client::HeldLease;
use ringfence_kube::fenced::{self, Carrier, Verdict};
use ringfence_tests::Signal;
use tokio::net::TcpListener;

use crate::layer::{SHORT, hold, one_node, refused};
use crate::stand::until;

/// What has reached a server that answers nothing but this status.
struct Busy {
    at: Uri,
    /// All requests.
    arrived: Arc<AtomicU64>,
    /// Those that came when the lease was lost already.
    late: Arc<AtomicU64>,
}

impl Busy {
    async fn start(held: &Arc<HeldLease>, status: StatusCode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("http://{}", listener.local_addr().unwrap());
        let (arrived, late) = <(Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let (held, count) = (Arc::clone(held), (Arc::clone(&arrived), Arc::clone(&late)));
        let answer = move || {
            let lost = held.loss().is_some();
            count.0.fetch_add(1, Ordering::Relaxed);
            count.1.fetch_add(u64::from(lost), Ordering::Relaxed);
            async move { status }
        };
        let served = axum::serve(listener, Router::new().fallback(answer));
        tokio::spawn(served.into_future());
        Self {
            at: at.parse().unwrap(),
            arrived,
            late,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_a_busy_server_turns_away_is_not_sent_again_after_the_loss() {
    let mut cluster = one_node().await;
    let held = hold(&cluster, "demo", SHORT).await;
    // What kube repeats unless it is configured not to. The last one may have been stored.
    let busy = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    let carriers = [
        Carrier::FieldManager,
        Carrier::impersonate("system:serviceaccount:demo:a"),
        Carrier::Sequence,
    ];
    let mut writes = Vec::new();
    for (status, carrier) in busy.into_iter().zip(carriers) {
        let server = Busy::start(&held, status).await;
        let config = Config::new(server.at.clone());
        let client = fenced::client(config, Arc::clone(&held), carrier).unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client, "demo");
        let write = {
            let maps = maps.clone();
            tokio::spawn(async move { refused(&maps, "prices").await })
        };
        writes.push((status, server, maps, write));
    }
    // It is unknown by now who holds it.
    cluster.signal(0, Signal::Stop);
    until("the window passes", || async { held.loss().is_some() }).await;

    for (status, server, maps, write) in writes {
        let late = || server.late.load(Ordering::Relaxed);
        until("the write is given up", || async {
            write.is_finished() || late() > 0
        })
        .await;
        assert_eq!(late(), 0, "{status}: it was sent after the loss");
        assert_eq!(server.arrived.load(Ordering::Relaxed), 1, "{status}");
        assert_eq!(write.await.unwrap(), Verdict::Other, "{status}");
        assert!(refused(&maps, "prices").await.is_lost());
        assert_eq!(late(), 0, "{status}: it was sent after the loss");
    }
}
