//! What a node tells of itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use ringfence_core::ClusterId;

use crate::inner::Inner;
use crate::leading::Route;
use crate::propose::LeaderHint;
use crate::reading;

/// How often a status is refreshed when nothing important changes.
const REFRESH: Duration = Duration::from_millis(250);

/// What a node is at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It belongs to no cluster yet.
    Forming,
    /// It follows the log and has no vote.
    Learner,
    /// It follows a leader, or waits for one.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It leads.
    Leader,
}

/// What a node knows of itself and its cluster, without asking others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The cluster; `None` until it is formed or joined.
    pub cluster: Option<ClusterId>,
    /// This node's id there.
    pub node_id: Option<u64>,
    /// This node's name.
    pub name: String,
    /// What it is at present.
    pub role: Role,
    /// Who leads, if known; this node itself included.
    pub leader: Option<LeaderHint>,
    /// The newest term it has seen.
    pub term: u64,
    /// The last index of its log, 0 if it is empty.
    pub last_log_index: u64,
    /// The newest applied index, 0 if there is none.
    pub applied_index: u64,
    /// Whether it can serve: the cluster is formed and a leader is known that has opened its term.
    pub serving: bool,
}

impl Status {
    pub(crate) fn starting(name: &str) -> Self {
        Self {
            cluster: None,
            node_id: None,
            name: name.to_owned(),
            role: Role::Forming,
            leader: None,
            term: 0,
            last_log_index: 0,
            applied_index: 0,
            serving: false,
        }
    }

    /// The status now.
    pub(crate) fn of(inner: &Inner) -> Self {
        let Some(running) = inner.running.get() else {
            return Self::starting(&inner.config.name);
        };
        let route = inner.route.borrow().clone();
        let (state, term) = {
            let metrics = running.raft.server_metrics();
            let now = metrics.borrow_watched();
            (now.state, now.vote.leader_id.term)
        };
        let formed = inner.state.machine().cluster();
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
        Self {
            cluster: Some(running.caller.seat.cluster),
            node_id: Some(running.caller.seat.node_id),
            name: inner.config.name.clone(),
            role,
            serving: formed.is_some() && leader.is_some() && !inner.stop.is_stopped(),
            leader,
            term,
            last_log_index: running.log.last_index(),
            applied_index: inner.state.applied_index(),
        }
    }
}

/// Keeps the watched status fresh.
pub(crate) async fn keep_fresh(inner: Arc<Inner>) {
    let mut route = inner.route.subscribe();
    loop {
        let now = Status::of(&inner);
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

/// How long a follower's state may be unconfirmed while somebody asks for its age.
const CONFIRM_EVERY: Duration = Duration::from_millis(500);

/// Confirms from time to time how new local state is, while anybody wants to know.
pub(crate) async fn keep_age(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(CONFIRM_EVERY).await;
        if inner.age_wanted.swap(false, Ordering::Relaxed)
            && let Err(error) = reading::barrier(&inner).await
        {
            tracing::debug!(%error, "the age of local state is not known");
        }
    }
}
