//! Connecting to the server that answers first.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::transport::connection::{self, OpenStream};
use crate::transport::endpoint::Endpoint;
use crate::transport::options::Options;

/// How long one address has for itself before the next is tried beside it: one that swallows
/// packets must not hold up the others.
const STAGGER: Duration = Duration::from_millis(200);
/// How long one address has altogether.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Both double with each round that found no server, this often: servers that a crowd of clients
/// comes back to answer late, and would never catch up with clients that give up and knock again.
const DOUBLED_MAX: u32 = 2;

/// What came of trying all candidates.
pub(crate) struct Race {
    pub(crate) winner: Option<OpenStream>,
    /// Those that failed, and why.
    pub(crate) failed: Vec<(Endpoint, String)>,
}

/// Tries the candidates in order, each a little after the one before, until one greets; `tries`
/// rounds have found no server.
pub(crate) async fn race(candidates: Vec<Endpoint>, options: &Options, tries: u32) -> Race {
    let doubled = 1 << tries.min(DOUBLED_MAX);
    let (stagger, timeout) = (STAGGER * doubled, CONNECT_TIMEOUT * doubled);
    let mut waiting = candidates.into_iter();
    let mut running = JoinSet::new();
    let mut race = Race {
        winner: None,
        failed: Vec::new(),
    };
    loop {
        if let Some(endpoint) = waiting.next() {
            let options = options.clone();
            running.spawn(async move {
                let opened = connection::open(&endpoint, &options, timeout).await;
                opened.map_err(|why| (endpoint, why))
            });
        }
        let next = options.clock.now() + stagger;
        crate::sync::select! {
            finished = running.join_next() => match finished {
                None => return race,
                Some(Ok(Ok(opened))) => {
                    race.winner = Some(opened);
                    return race;
                }
                Some(Ok(Err(failed))) => race.failed.push(failed),
                // A task that was aborted or panicked found out nothing.
                Some(Err(_)) => {}
            },
            () = options.clock.sleep_until(next), if waiting.len() > 0 => {}
        }
    }
}
