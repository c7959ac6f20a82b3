//! Load that fills logs: for a disk to be missed, something must want to write to it.

use std::sync::Arc;
use std::time::Duration;

use ringfence_client::{Client, Session, SessionOptions};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ClientOptions;

/// So many clients make load when it is asked for.
const FLOODING: u32 = 4;
/// What is published with each grant; the most that is allowed, nearly.
const DATA: &[u8] = &[b'f'; 1_000];
/// How long its session outlives its client.
const TTL: Duration = Duration::from_secs(3);
/// So many leases each of them has in hand at a time.
const ABREAST: u32 = 16;
/// Behind a request that failed.
const PAUSE: Duration = Duration::from_millis(50);

/// Acquires and releases leases of its own as fast as it can, while it is asked to. The history
/// does not tell of them, and no other lease is concerned.
pub(super) async fn run(client: Client, options: ClientOptions, mut wanted: watch::Receiver<bool>) {
    if options.number > FLOODING {
        return;
    }
    while wanted.wait_for(|wanted| *wanted).await.is_ok() {
        let opening = SessionOptions {
            ttl: TTL,
            identity: format!("c{} flood", options.number),
        };
        match client.open_session(opening).await {
            Ok(session) => {
                let session = Arc::new(session);
                let mut hands = JoinSet::new();
                for hand in 0..ABREAST {
                    let name = format!("flood/{}/{hand}", options.number);
                    hands.spawn(keep_at_it(Arc::clone(&session), name, wanted.clone()));
                }
                hands.join_all().await;
                if let Some(session) = Arc::into_inner(session) {
                    session.close().await.ok();
                }
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn keep_at_it(session: Arc<Session>, name: String, wanted: watch::Receiver<bool>) {
    while *wanted.borrow() && session.is_live() {
        once(&session, &name).await;
    }
}

async fn once(session: &Session, name: &str) {
    match session.acquire(name).data(DATA).send().await {
        Ok(lease) => {
            lease.release().await.ok();
        }
        Err(_) => tokio::time::sleep(PAUSE).await,
    }
}
