//! Linearizable reads: a point in the log that no acknowledged entry lies behind, and local state
//! that has got there.

use std::sync::Arc;
use std::time::Duration;

use openraft::ReadPolicy;
use openraft::errors::{Fatal, LinearizableReadError, RaftError};
use ringfence_planted::{Bug, planted};
use ringfence_proto::raft as pb;

use crate::leader::term::Route;
use crate::network::forward::{CallBody, unexpected};
use crate::platform::clock;
use crate::shared::inner::Inner;
use crate::store::events::Position;
use crate::types::reply::ProposeError;
use crate::types::type_config::TypeConfig;

/// How long a read that found no leader waits before it looks again.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Returns once local state holds everything that was acknowledged before the call, and tells
/// [`Inner`] when that was.
pub(crate) async fn barrier(inner: &Arc<Inner>) -> Result<(), ProposeError> {
    // Boxed, because the compiler gives up on the layout of calls that nest futures deeper than this.
    let pass = Box::pin(async { confirmed(inner).await?.applied(inner).await });
    let passed = tokio::time::timeout(inner.config.timing.leader_wait, pass);
    let passed = tokio::select! {
        passed = passed => passed,
        _ = inner.stop.stopped() => return Err(stopping()),
    };
    passed.map_err(|_| ProposeError::not_done("no leader answered the read in time"))?
}

/// What a leader with a majority behind it says of its log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confirmed {
    /// The log holds everything that was acknowledged before `begun` up to this index.
    index: u64,
    /// On [`clock::since_boot`].
    begun: Duration,
}

impl Confirmed {
    /// Returns once local state has come that far, and tells [`Inner`] so.
    pub(crate) async fn applied(self, inner: &Inner) -> Result<(), ProposeError> {
        if !planted(Bug::ReadBeforeApplied) {
            let mut applied = inner.state.watch_applied();
            let reached = applied.wait_for(|applied| *applied >= self.index).await;
            reached.map_err(|_| stopping())?;
        }
        inner.newest_at(self.begun);
        inner.state.caught_up(self.index);
        Ok(())
    }
}

/// Whether the log has a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It has: every event behind the position comes behind it here too.
    Yes,
    /// It has not. It was reported by a log that was lost since, or never.
    No {
        /// Up to this index the log is applied here.
        newest: u64,
    },
}

/// Every position that was ever reported is committed, and a node that holds all committed entries
/// has it. A node that was restarted may stand behind what it reported before, so a position in the
/// future is judged after a linearizable read.
pub(crate) async fn known(
    inner: &Arc<Inner>,
    at: Position,
    term: Option<u64>,
) -> Result<Known, ProposeError> {
    // The head is read twice and may move in between. It only moves forward, so a position that needed
    // no barrier stays at or before it.
    let feed = inner.state.events.feed();
    if at.index > feed.head().index && !planted(Bug::PositionNotAwaited) {
        barrier(inner).await?;
    }
    let newest = feed.head().index;
    let ours = feed.term_of(at.index);
    let other_term = ours.zip(term).is_some_and(|(ours, theirs)| ours != theirs);
    Ok(match at.index > newest || other_term {
        true => Known::No { newest },
        false => Known::Yes,
    })
}

/// Asks leaders until one confirms an index.
async fn confirmed(inner: &Arc<Inner>) -> Result<Confirmed, ProposeError> {
    let mut route = inner.route.subscribe();
    loop {
        // Marked as seen before the read is sent, so that a change of leader during it wakes the
        // retry below at once.
        let now = route.borrow_and_update().clone();
        match confirmed_by(inner, now).await {
            Ok(confirmed) => return Ok(confirmed),
            Err(error @ ProposeError::Fault { .. }) => return Err(error),
            // A read has no effect, so it may be repeated after any failure.
            Err(_) => {
                tokio::select! {
                    _ = route.changed() => {}
                    () = tokio::time::sleep(RETRY_AFTER) => {}
                }
            }
        }
    }
}

/// Asks the leader once to confirm an index, which proves that a majority stands behind it, and tells
/// [`Inner`] so.
pub(crate) async fn confirmed_by(
    inner: &Arc<Inner>,
    leader: Route,
) -> Result<Confirmed, ProposeError> {
    // Taken before the leader is asked: the index covers everything acknowledged up to here, but
    // perhaps not what is acknowledged while the answer is on its way.
    let begun = clock::since_boot();
    let index = match leader {
        Route::Leader(_) => leader_read_index(inner).await?,
        Route::Follower(forwarder) => match forwarder.ask(CallBody::ReadIndex).await?.0 {
            pb::answer::Body::ReadIndex(index) => index,
            other => return Err(unexpected(&other)),
        },
        Route::NoLeader => return Err(ProposeError::not_done("no node leads")),
    };
    inner.had_majority_at(begun);
    Ok(Confirmed { index, begun })
}

/// A node that stops has no fault, and another one answers the read.
fn stopping() -> ProposeError {
    ProposeError::not_done("this node is stopping")
}

/// The log index that a read must wait for, confirmed by a majority after the call.
pub(crate) async fn leader_read_index(inner: &Arc<Inner>) -> Result<u64, ProposeError> {
    let leads = matches!(&*inner.route.borrow(), Route::Leader(_));
    let running = inner.running.get().filter(|_| leads);
    let running = running.ok_or_else(|| ProposeError::not_done("this node does not lead"))?;
    if planted(Bug::ReadWithoutMajority) {
        return Ok(*inner.state.watch_applied().borrow());
    }
    match running
        .raft
        .get_read_linearizer(ReadPolicy::ReadIndex)
        .await
    {
        Ok(linearizer) => Ok(linearizer.read_log_id().index()),
        Err(error) => Err(refusal(error)),
    }
}

fn refusal(error: RaftError<TypeConfig, LinearizableReadError<TypeConfig>>) -> ProposeError {
    match error {
        RaftError::APIError(error) => ProposeError::not_done(error.to_string()),
        RaftError::Fatal(Fatal::Stopped) => stopping(),
        RaftError::Fatal(fatal) => ProposeError::Fault {
            why: fatal.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_a_stop_interrupts_is_not_done_and_no_fault() {
        for interrupted in [stopping(), refusal(RaftError::Fatal(Fatal::Stopped))] {
            let done = matches!(interrupted, ProposeError::NotDone { .. });
            assert!(done, "{interrupted:?}");
        }
    }
}
