//! Input that no client should send: each gets a clear error, nothing is lost, the server lives.

use std::time::Duration;

use ringfence_proto::Refusal;
use ringfence_proto::v1::leases_client::LeasesClient;
use ringfence_proto::v1::sessions_client::SessionsClient;
use ringfence_proto::v1::{AcquireRequest, CheckRequest, OpenRequest, Reason, ReleaseRequest};
use ringfence_tests::{Caller, Cluster, Options, Session, sixteen_random_bytes};
use tonic::Status;

async fn single() -> Cluster {
    Cluster::start(Options {
        nodes: 1,
        ..Options::default()
    })
    .await
}

fn open_request(ttl_ms: u64) -> OpenRequest {
    OpenRequest {
        id: sixteen_random_bytes().into(),
        secret: sixteen_random_bytes().into(),
        seen_cluster_time_ms: None,
        ttl_ms: Some(ttl_ms),
        identity: "bad-input".into(),
        pod: None,
    }
}

fn acquire_request(session: &Session, name: &str) -> AcquireRequest {
    AcquireRequest {
        session: Some(session.handle.clone()),
        number: session.number(),
        name: name.into(),
        ..AcquireRequest::default()
    }
}

/// The refusal in a status; every refusal of ours has one.
fn refusal(status: &Status) -> Refusal {
    Refusal::from_status(status).unwrap_or_else(|| panic!("a status without details: {status:?}"))
}

async fn still_serves(caller: &Caller) {
    let session = caller.open("after", Duration::from_secs(5)).await.unwrap();
    let name = format!("after/{}", session.handle.session);
    caller
        .acquire(&session, session.number(), &name, None)
        .await
        .unwrap();
    caller.close(&session).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_no_names() {
    let cluster = single().await;
    let caller = cluster.caller();
    let session = caller.open("names", Duration::from_secs(60)).await.unwrap();
    let mut leases = LeasesClient::new(caller.channel(0));
    let long = "x".repeat(256);
    let names = [
        "", &long, "/a", "a/", "a//b", "a/./b", "..", "a b", "a\nb", "ä", "a\0b", "a#1", "a,b",
    ];
    for name in names {
        let status = leases
            .acquire(acquire_request(&session, name))
            .await
            .unwrap_err();
        let refusal = refusal(&status);
        assert_eq!(
            refusal.reason,
            Reason::InvalidArgument,
            "{name:?}: {refusal:?}"
        );
        assert_eq!(
            refusal.metadata.get("field").map(String::as_str),
            Some("name"),
            "{name:?}"
        );
    }
    let longest = "y".repeat(255);
    leases
        .acquire(acquire_request(&session, &longest))
        .await
        .unwrap();
    still_serves(&caller).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ttls_out_of_range() {
    let cluster = single().await;
    let mut sessions = SessionsClient::new(cluster.caller().channel(0));
    let ten_years = 10 * 365 * 24 * 3600 * 1000;
    for ttl in [0, 1, 999, 300_001, ten_years, u64::MAX] {
        let status = sessions.open(open_request(ttl)).await.unwrap_err();
        let refusal = refusal(&status);
        assert_eq!(
            refusal.reason,
            Reason::InvalidArgument,
            "{ttl}: {refusal:?}"
        );
        assert!(
            refusal.message.contains(&ttl.to_string()),
            "says what was offered: {refusal:?}"
        );
    }
    // What is left out is the default of 15 s.
    let left_out = OpenRequest {
        ttl_ms: None,
        ..open_request(0)
    };
    let opened = sessions.open(left_out).await.unwrap().into_inner();
    assert_eq!(opened.ttl_ms, 15_000);
    still_serves(&cluster.caller()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_no_tokens() {
    let cluster = single().await;
    let caller = cluster.caller();
    let session = caller
        .open("tokens", Duration::from_secs(60))
        .await
        .unwrap();
    let mut leases = LeasesClient::new(caller.channel(0));
    for token in [0, 1 << 63, u64::MAX] {
        let check = CheckRequest {
            name: "a".into(),
            token,
            read: None,
        };
        let status = leases.check(check).await.unwrap_err();
        assert_eq!(refusal(&status).reason, Reason::InvalidArgument, "{token}");
        let release = ReleaseRequest {
            session: Some(session.handle.clone()),
            number: session.number(),
            lowest: 1,
            name: "a".into(),
            token,
            close_session: false,
        };
        let status = leases.release(release).await.unwrap_err();
        assert_eq!(refusal(&status).reason, Reason::InvalidArgument, "{token}");
    }
    still_serves(&caller).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_number_with_another_body_and_a_wrong_secret() {
    let cluster = single().await;
    let caller = cluster.caller();
    let session = caller.open("twice", Duration::from_secs(60)).await.unwrap();
    let mut leases = LeasesClient::new(caller.channel(0));
    let first = acquire_request(&session, "one");
    let number = first.number;
    leases.acquire(first).await.unwrap();
    let other = AcquireRequest {
        number,
        ..acquire_request(&session, "two")
    };
    let status = leases.acquire(other).await.unwrap_err();
    assert_eq!(refusal(&status).reason, Reason::RequestMismatch);

    let mut forged = acquire_request(&session, "three");
    if let Some(handle) = &mut forged.session {
        handle.secret = sixteen_random_bytes().into();
    }
    let status = leases.acquire(forged).await.unwrap_err();
    let refusal = refusal(&status);
    assert_eq!(refusal.reason, Reason::WrongSecret);
    still_serves(&caller).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_five_mebibytes() {
    let cluster = single().await;
    let caller = cluster.caller();
    let session = caller.open("large", Duration::from_secs(60)).await.unwrap();
    let mut leases = LeasesClient::new(caller.channel(0));
    let data = vec![7; 5 << 20].into();
    let request = AcquireRequest {
        data,
        ..acquire_request(&session, "large")
    };
    let status = leases.acquire(request).await.unwrap_err();
    assert!(
        status.message().contains("1048576"),
        "names the limit: {status:?}"
    );
    let data = vec![7; 1025].into();
    let request = AcquireRequest {
        data,
        ..acquire_request(&session, "large")
    };
    let status = leases.acquire(request).await.unwrap_err();
    assert_eq!(refusal(&status).reason, Reason::InvalidArgument);
    still_serves(&caller).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_4097_leases() {
    let cluster = single().await;
    let caller = cluster.caller();
    let session = caller
        .open("greedy", Duration::from_secs(300))
        .await
        .unwrap();
    for at in 0..4_096 {
        let number = session.number();
        caller
            .acquire(&session, number, &format!("greedy/{at}"), None)
            .await
            .unwrap();
    }
    let number = session.number();
    let failure = caller
        .acquire(&session, number, "greedy/more", None)
        .await
        .unwrap_err();
    assert_eq!(failure.reason(), Some(Reason::Limit), "{failure:?}");
    still_serves(&caller).await;
    caller.close(&session).await.unwrap();
    let other = caller.open("heir", Duration::from_secs(5)).await.unwrap();
    caller
        .acquire(&other, other.number(), "greedy/4095", None)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_that_are_down_or_no_cluster() {
    let cluster = single().await;
    // A port where no process listens, one where a process listens and says nothing, one that talks
    // HTTP/1 only, and the real one.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed_address = closed.local_addr().unwrap().to_string();
    drop(closed);
    let silent_address = silent.local_addr().unwrap().to_string();
    let real = cluster.endpoints().remove(0);
    let caller = Caller::new(vec![closed_address, silent_address, cluster.http(0), real]);
    still_serves(&caller).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_waiters_than_the_cluster_is_set_to_allow() {
    use ringfence_proto::v1::cluster_client::ClusterClient;
    use ringfence_proto::v1::{ConfigureRequest, Settings, StatusRequest};
    let cluster = single().await;
    let caller = cluster.caller();
    let mut operator = ClusterClient::new(caller.channel(0));
    let status = operator
        .status(StatusRequest {})
        .await
        .unwrap()
        .into_inner();
    let settings = Settings {
        lease_waiters_max: 1,
        ..status.settings.unwrap()
    };
    let based_on = status.settings_index;
    let request = ConfigureRequest {
        settings: Some(settings),
        based_on,
        change: None,
    };
    operator.configure(request).await.unwrap();
    // The same change again is based on settings that are no longer in force.
    let status = operator.configure(request).await.unwrap_err();
    assert_eq!(refusal(&status).reason, Reason::StaleSettings);

    let ttl = Duration::from_secs(60);
    let holder = caller.open("holder", ttl).await.unwrap();
    caller
        .acquire(&holder, holder.number(), "crowded", None)
        .await
        .unwrap();
    let first = caller.open("first", ttl).await.unwrap();
    let second = caller.open("second", ttl).await.unwrap();
    let waiting = caller.clone();
    let wait = Some(Duration::from_secs(30));
    let first = tokio::spawn(async move {
        waiting
            .acquire(&first, first.number(), "crowded", wait)
            .await
    });
    while caller
        .get("crowded")
        .await
        .unwrap()
        .is_none_or(|lease| lease.waiters == 0)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let failure = caller
        .acquire(&second, second.number(), "crowded", wait)
        .await
        .unwrap_err();
    assert_eq!(failure.reason(), Some(Reason::Limit), "{failure:?}");
    caller.close(&holder).await.unwrap();
    first.await.unwrap().expect("the one that waited is served");
}
