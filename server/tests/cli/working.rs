//! `Term::working` against a real cluster.

use std::time::Duration;

use ringfence_client::{BootClock, Client, Clock, SessionOptions};

use crate::harness::Dev;

const TTL: Duration = Duration::from_secs(3);

/// "The next holder is granted the lease when the last of these values is dropped, and at the latest
/// when this session's window has passed. Work must have stopped by `valid_until` all the same."
#[test]
fn work_that_stops_by_the_end_of_the_window_runs_beside_no_other() {
    let dev = Dev::start(1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::connect([dev.endpoints()]).await.unwrap();
        let options = |identity: &str| SessionOptions {
            ttl: TTL,
            identity: identity.into(),
        };
        let old = client.open_session(options("old")).await.unwrap();
        let new = client.open_session(options("new")).await.unwrap();
        let lease = old.acquire("jobs/a").send().await.unwrap();
        let working = lease.working();
        let waiting = new.acquire("jobs/a").wait(Duration::from_secs(60)).send();
        let waiting = tokio::spawn(async move {
            let granted = waiting.await;
            (granted, BootClock.now())
        });
        // Just behind a keep-alive, so that the next one hears of it.
        let before = lease.valid_until();
        while lease.valid_until() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let held_until = lease.valid_until();
        let token = lease.token().to_string();
        dev.run(&["lease", "revoke", "jobs/a", &token, "--reason", "drill"])
            .object();
        let revoked = BootClock.now();

        lease.lost().await;
        // What work is to stop by, as the docs say.
        let stop_by = lease.valid_until();
        let (granted, at) = waiting.await.unwrap();
        let granted = granted.unwrap();

        let since = |moment: ringfence_client::Moment| moment.saturating_since(revoked);
        let (left, stop, next) = (since(held_until), since(stop_by), since(at));
        println!("since the revoke: window {left:?}, valid_until {stop:?}, next grant {next:?}");
        assert!(
            at >= stop_by,
            "{granted:?} is granted {next:?} behind the revoke, while work may go on until {stop:?}"
        );
        drop(working);
    });
}

/// "A reader that falls behind holds up only itself."
#[test]
fn a_slow_reader_of_a_watch_costs_no_lease() {
    let dev = Dev::start(1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let others = Client::connect([dev.endpoints()]).await.unwrap();
        let mut held = Vec::new();
        for crowd in 0..2 {
            let options = SessionOptions {
                ttl: Duration::from_secs(120),
                identity: format!("crowd-{crowd}"),
            };
            let session = others.open_session(options).await.unwrap();
            for page in 0..40 {
                let leases = (0..100).map(|at| {
                    let name = format!("jobs/{crowd}-{page}-{at}");
                    session.acquire(name).data(vec![7; 1_024]).send()
                });
                for lease in futures_util::future::join_all(leases).await {
                    held.push(lease.unwrap());
                }
            }
        }
        let client = Client::connect([dev.endpoints()]).await.unwrap();
        let options = SessionOptions {
            ttl: TTL,
            identity: "alice".into(),
        };
        let session = client.open_session(options).await.unwrap();
        let lease = session.acquire("db").send().await.unwrap();

        let (mut one, mut other) = (client.watch("jobs/"), client.watch(""));
        for watch in [&mut one, &mut other] {
            let first = watch.next().await;
            assert!(matches!(first, Some(Ok(_))), "{first:?}");
        }
        // It is busy with that for a while.
        let lost = tokio::time::timeout(Duration::from_secs(8), lease.lost()).await;

        assert!(
            lost.is_err(),
            "a reader that is slow has cost a lease: {lost:?}"
        );
    });
}
