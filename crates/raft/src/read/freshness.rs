//! Keeps what a node knows of itself fresh: its status, and the age of its state.

use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;

use crate::leader::term::Route;
use crate::platform::clock;
use crate::read::reading::{self, Confirmed};
use crate::shared::inner::Inner;
use crate::types::reply::LeaderHint;
use crate::types::status::{Role, Status};

/// How often a status is refreshed when nothing important changes.
const REFRESH: Duration = Duration::from_millis(250);

pub(crate) fn status_of(inner: &Inner) -> Status {
    let Some(running) = inner.running.get() else {
        return Status {
            waiting_for: inner.waiting_for.lock().clone(),
            ..Status::starting(&inner.config.name)
        };
    };
    let route = inner.route.borrow().clone();
    let (state, term) = {
        let metrics = running.raft.server_metrics();
        let now = metrics.borrow_watched();
        (now.state, now.vote.leader_id.term)
    };
    let formed = inner.state.machine().is_formed();
    let role = match state {
        ServerState::Leader => Role::Leader,
        ServerState::Candidate => Role::Candidate,
        ServerState::Follower => Role::Follower,
        ServerState::Learner | ServerState::Shutdown => Role::Learner,
    };
    let leader = match &route {
        Route::Leader(_) => Some(LeaderHint {
            node_id: running.caller.seat.node_id,
            client_address: inner.config.client_advertise.clone(),
        }),
        other => other.hint(),
    };
    Status {
        cluster: Some(running.caller.seat.cluster),
        node_id: Some(running.caller.seat.node_id),
        name: inner.config.name.clone(),
        role,
        serving: formed && leader.is_some() && !inner.stop.is_stopped(),
        leader,
        term,
        last_log_index: running.log.last_index(),
        applied_index: inner.state.applied_index(),
        restore_unused: formed && inner.config.restore.is_some(),
        waiting_for: None,
    }
}

/// Keeps the watched status fresh.
pub(crate) async fn keep_fresh(inner: Arc<Inner>) {
    let mut route = inner.route.subscribe();
    loop {
        let now = status_of(&inner);
        inner.note_majority();
        inner.status.send_if_modified(|status| {
            let changed = *status != now;
            *status = now;
            changed
        });
        tokio::select! {
            changed = route.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(REFRESH) => {}
        }
    }
}

/// How often a node asks its leader to confirm an index.
const CONFIRM_EVERY: Duration = Duration::from_millis(500);
/// How long a node waits before it asks again, after its leader has confirmed nothing.
const CONFIRM_AGAIN: Duration = Duration::from_millis(100);

/// Finds out again and again whether a majority stands behind the leader, and how new local state is.
pub(crate) async fn keep_confirmed(inner: Arc<Inner>) {
    // A newer one does not take its place: a node that is always a little behind would never get there.
    let mut awaited: Option<Confirmed> = None;
    let mut route = inner.route.subscribe();
    loop {
        let leader = route.borrow_and_update().clone();
        tokio::select! {
            () = confirm(&inner, leader, &mut awaited) => {}
            changed = route.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

/// Asks once, and waits until it is time to ask again.
async fn confirm(inner: &Arc<Inner>, leader: Route, awaited: &mut Option<Confirmed>) {
    let limit = inner.config.timing.leader_wait;
    let begun = clock::since_boot();
    let pause = match tokio::time::timeout(limit, reading::confirmed_by(inner, leader)).await {
        Ok(Ok(confirmed)) => {
            awaited.get_or_insert(confirmed);
            // Where answers take long, the next question does not wait on top of that.
            CONFIRM_EVERY.saturating_sub(clock::since_boot().saturating_sub(begun))
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "no leader confirms an index");
            CONFIRM_AGAIN
        }
        Err(_) => {
            tracing::debug!("no leader confirms an index in time");
            CONFIRM_AGAIN
        }
    };
    let applied = tokio::time::timeout(pause, applied(inner, awaited));
    let (_, ()) = tokio::join!(applied, tokio::time::sleep(pause));
}

async fn applied(inner: &Inner, awaited: &mut Option<Confirmed>) {
    if let Some(confirmed) = *awaited
        && confirmed.applied(inner).await.is_ok()
    {
        *awaited = None;
    }
}
