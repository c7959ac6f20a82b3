//! Fetches from peers what this node's history lacks, after it has installed a snapshot.

use std::sync::Arc;
use std::time::Duration;

use ringfence_proto::raft as pb;

use crate::inner::{Inner, Running};

/// How often gaps are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How soon after the start they are looked for first.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// How long a peer may take for the next part.
const PART_MAX: Duration = Duration::from_secs(10);

/// Looks for gaps as long as the node runs.
pub(crate) async fn fill_gaps(inner: Arc<Inner>, running: Arc<Running>) {
    let mut wait = FIRST_LOOK;
    loop {
        tokio::time::sleep(wait).await;
        wait = LOOK_EVERY;
        let Ok(store) = inner.history.store() else {
            return;
        };
        let feed = inner.history.feed.clone();
        let newest = feed.newest();
        let look = move || feed.look(|_, _| false, |change| store.gaps(&change, newest));
        let gaps = match crate::runtime::blocking(look).await {
            Ok(Ok(gaps)) => gaps,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the history index cannot be read");
                continue;
            }
            Err(_) => return,
        };
        for (first, last) in gaps {
            fill(&inner, &running, first, last).await;
        }
    }
}

/// Asks peers for one gap, until one of them has something.
async fn fill(inner: &Inner, running: &Running, first: u64, last: u64) {
    let me = running.caller.seat.node_id;
    let membership = running.membership();
    for (id, peer) in membership.nodes().filter(|(id, _)| **id != me) {
        let link = running.transport.link(*id, peer);
        let request = pb::FetchHistoryRequest { first, last };
        match fetch(inner, link.fetch_history(request)).await {
            Ok(0) => {}
            Ok(records) => {
                tracing::info!(
                    records,
                    first,
                    last,
                    from = id,
                    "a gap of the history is filled"
                );
                return;
            }
            Err(why) => tracing::debug!(first, last, from = id, %why, "no history from this peer"),
        }
    }
}

/// Takes a peer's answer, and says in how many ranges it covers the gap.
async fn fetch(
    inner: &Inner,
    opened: impl Future<Output = Result<tonic::Streaming<pb::HistoryPart>, tonic::Status>>,
) -> Result<usize, String> {
    let slow = |_| "it does not answer in time".to_owned();
    let opened = tokio::time::timeout(PART_MAX, opened).await.map_err(slow)?;
    let mut parts = opened.map_err(|status| status.message().to_owned())?;
    let mut covered_ranges = 0;
    loop {
        let part = tokio::time::timeout(PART_MAX, parts.message())
            .await
            .map_err(slow)?;
        let part = part.map_err(|status| status.message().to_owned())?;
        let Some(part) = part else {
            return Ok(covered_ranges);
        };
        let covered: Vec<_> = part.covered.iter().map(|r| (r.first, r.last)).collect();
        covered_ranges += covered.len();
        if !inner.history.feed.fetched(part.records, covered) {
            return Err("this node's own index is busy".to_owned());
        }
    }
}
