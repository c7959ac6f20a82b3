//! Wires the history to the peers: fetches from them what this node lacks after it has installed
//! a snapshot, and sends them what they lack.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use ringfence_history::History;
use ringfence_proto::raft as pb;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::shared::inner::{Inner, Running};

/// How often gaps are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How soon after the start they are looked for first.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// How long a peer may take for the next part.
const PART_MAX: Duration = Duration::from_secs(10);
/// How long a part may wait for room in this node's own index. The peer waits as long.
const ROOM_MAX: Duration = Duration::from_secs(60);

/// Looks for gaps as long as the node runs.
pub(crate) async fn fill_gaps(inner: Arc<Inner>, running: Arc<Running>) {
    let mut wait = FIRST_LOOK;
    loop {
        tokio::time::sleep(wait).await;
        wait = LOOK_EVERY;
        let gaps = match inner.history.gaps().await {
            Ok(gaps) => gaps,
            Err(error) => {
                tracing::warn!(%error, "the history index cannot be read");
                continue;
            }
        };
        for (first, last) in gaps {
            if fill(&inner, &running, first, last).await {
                // There may be more to have at once.
                wait = FIRST_LOOK;
            }
        }
    }
}

/// Asks peers for one gap, until one of them has something of it; true if one had.
async fn fill(inner: &Inner, running: &Running, first: u64, last: u64) -> bool {
    let me = running.caller.seat.node_id;
    let membership = running.membership();
    for (id, peer) in membership.nodes().filter(|(id, _)| **id != me) {
        let link = running.transport.link(*id, peer);
        let request = pb::FetchHistoryRequest { first, last };
        let mut covered = Vec::new();
        let fetched = fetch(inner, link.fetch_history(request), &mut covered).await;
        // Also what came before the transfer broke off is kept.
        if let (Some((first, _)), Some((_, last))) = (covered.first(), covered.last()) {
            tracing::info!(first, last, from = id, "history was filled from a peer");
        }
        if let Err(why) = fetched {
            tracing::debug!(first, last, from = id, %why, "no more history from this peer");
        }
        if !covered.is_empty() {
            return true;
        }
    }
    false
}

/// Takes a peer's answer and notes the ranges that it covers.
async fn fetch(
    inner: &Inner,
    opened: impl Future<Output = Result<tonic::Streaming<pb::HistoryPart>, tonic::Status>>,
    covered: &mut Vec<(u64, u64)>,
) -> Result<(), String> {
    let slow = |_| "it does not answer in time".to_owned();
    let opened = tokio::time::timeout(PART_MAX, opened).await.map_err(slow)?;
    let mut parts = opened.map_err(|status| status.message().to_owned())?;
    loop {
        let part = tokio::time::timeout(PART_MAX, parts.message())
            .await
            .map_err(slow)?;
        let part = part.map_err(|status| status.message().to_owned())?;
        let Some(part) = part else {
            return Ok(());
        };
        let ranges: Vec<_> = part.covered.iter().map(|r| (r.first, r.last)).collect();
        tokio::time::timeout(ROOM_MAX, inner.history.add(part))
            .await
            .map_err(|_| "this node's own index has no room for it".to_owned())?;
        covered.extend(ranges);
    }
}

/// Sends a peer what this node knows of a range of log indices.
pub(crate) fn serve(
    history: &History,
    first: u64,
    last: u64,
) -> Pin<Box<dyn Stream<Item = Result<pb::HistoryPart, Status>> + Send>> {
    let parts = ReceiverStream::new(history.parts(first, last));
    Box::pin(parts.map(|part| part.map_err(|error| Status::unavailable(error.to_string()))))
}
