//! The task that follows who leads, and leads when it is this node's turn.

pub(crate) mod forming;
mod giving_way;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::errors::RaftError;
use openraft::{ReadPolicy, ServerState};
use parking_lot::Mutex;
use ringfence_core::{ClusterTime, Command, WallTime};
use ringfence_planted::{Bug, planted};
use ringfence_proto::record::encode_command;
use tokio::sync::watch;

use self::forming::Forming;
use super::term::{LeadCounts, LeaderTerm, Route, write_in_term};
use crate::leader::reconciler::Reconciler;
use crate::membership::term::MembersOfTerm;
use crate::network::Transport;
use crate::network::forward::Forwarder;
use crate::platform::clock::{self, Reading, TICK_MIN, tick_max};
use crate::platform::hooks::Observer;
use crate::platform::runtime;
use crate::store::log_store::LogStore;
use crate::store::state::Raft;
use crate::store::state::State;
use crate::types::proposal::Proposal;
use crate::types::reply::{Applied, ProposeError};
use crate::types::type_config::Peer;

/// How long calls to the previous leader may still be answered.
const ABANDON_AFTER: Duration = Duration::from_millis(500);
/// How long a leader waits before it tries its term's first entry again.
const OPEN_RETRY: Duration = Duration::from_millis(20);
/// How long a node has had its seat before it opens a term whose tokens come from the wall clock.
///
/// They come in whole seconds. If all disks are rolled back to an older copy, the terms of before
/// are forgotten and only the seconds tell their tokens from those of the new ones. All of those
/// terms were opened before this node took its seat, so with [`WALL_SKEW_MAX`] between the nodes'
/// clocks, their seconds are over once this has passed: a second and the skew.
pub(crate) const TERM_AFTER: Duration =
    Duration::from_millis(1_000 + WALL_SKEW_MAX.as_millis() as u64);
/// How far apart the wall clocks of a cluster's nodes may be if its tokens are to survive a
/// rollback of all disks in the same second.
const WALL_SKEW_MAX: Duration = Duration::from_millis(500);
/// How long it waits before it looks at a wall clock again that was not believable.
const CLOCK_RETRY: Duration = Duration::from_millis(200);
/// How often it says that it does, in looks.
const CLOCK_SAY_EVERY: u32 = 25;

/// A deposed leader still answers calls in flight if it can be reached. If it cannot, they fail after
/// [`ABANDON_AFTER`].
fn abandon_soon(former: Arc<Forwarder>, route: watch::Sender<Route>) {
    let _detached = runtime::spawn(async move {
        tokio::time::sleep(ABANDON_AFTER).await;
        let leads_again =
            matches!(&*route.borrow(), Route::Follower(now) if Arc::ptr_eq(now, &former));
        if !leads_again {
            former.abandon();
        }
    });
}

/// Follows who leads, and leads when it is this node's turn.
pub(crate) struct LeadershipTask {
    pub(crate) node_id: u64,
    pub(crate) raft: Raft,
    pub(crate) state: Arc<State>,
    pub(crate) log: LogStore,
    /// See [`crate::NodeConfig::log_unflushed_max`].
    pub(crate) log_unflushed_max: u64,
    /// See [`super::term::LOG_UNCOMMITTED_BYTES_MAX`].
    pub(crate) log_uncommitted_max: u64,
    /// See [`crate::NodeConfig::pod_sessions`].
    pub(crate) pod_sessions: bool,
    /// See [`crate::NodeConfig::peer_authenticated`].
    pub(crate) peer_authenticated: bool,
    /// See [`crate::NodeConfig::flush_lag_max`].
    pub(crate) flush_lag_max: Duration,
    pub(crate) live_within: Duration,
    pub(crate) wall_millis: fn() -> u64,
    /// The time since boot when this node took its seat.
    pub(crate) seated: Duration,
    pub(crate) transport: Arc<Transport>,
    pub(crate) route: watch::Sender<Route>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// What the cluster is formed with, should this node lead it first.
    pub(crate) forming: Forming,
    /// See [`LeaderTerm::beginning_agreed`].
    pub(crate) beginning_agreed: bool,
    pub(crate) counts: Arc<LeadCounts>,
}

impl LeadershipTask {
    pub(crate) async fn run(self) {
        let leadership = Arc::new(self);
        let mut metrics = leadership.raft.server_metrics();
        let mut leading: Option<(u64, tokio::task::JoinHandle<()>)> = None;
        let mut known = None;
        loop {
            let (state, term, leader, peer) = {
                let now = metrics.borrow_watched();
                let leader = now.current_leader;
                let peer = leader.and_then(|id| now.membership_config.get_node(&id).cloned());
                (now.state, now.vote.leader_id.term, leader, peer)
            };
            if leader.is_some() && leader != known {
                leadership
                    .counts
                    .leader_changes
                    .fetch_add(1, Ordering::Relaxed);
            }
            known = leader.or(known);
            let leads = state == ServerState::Leader && leader == Some(leadership.node_id);
            if let Some((led, task)) = leading.take_if(|(led, _)| !leads || *led != term) {
                task.abort();
                // Wait for the task to end: aborted in the middle of a step it could still publish
                // its own route, after the new leader's.
                drop(task.await);
                if let Some(observer) = &leadership.observer {
                    observer.leads_no_more(led);
                }
            }
            if !leads {
                leadership.follow(leader.zip(peer));
            } else if leading.is_none() {
                // Until the term is open proposals wait here: no leader's reading exists to stamp them.
                leadership.route.send_replace(Route::NoLeader);
                leadership.counts.terms_led.fetch_add(1, Ordering::Relaxed);
                let task = runtime::spawn(leadership.clone().lead(term));
                leading = Some((term, task));
            }
            if metrics.changed().await.is_err() {
                break;
            }
        }
        if let Some((_, task)) = leading {
            task.abort();
        }
        leadership.route.send_replace(Route::NoLeader);
    }

    fn follow(&self, leader: Option<(u64, Arc<Peer>)>) {
        let leader = leader.filter(|(id, _)| *id != self.node_id);
        let route = match leader {
            Some((id, peer)) => Route::Follower(self.transport.forwarder(id, &peer)),
            None => Route::NoLeader,
        };
        self.route.send_if_modified(|current| {
            let same = match (&*current, &route) {
                (Route::NoLeader, Route::NoLeader) => true,
                (Route::Follower(old), Route::Follower(new)) => Arc::ptr_eq(old, new),
                _ => false,
            };
            if !same {
                let former = std::mem::replace(current, route);
                if let Route::Follower(former) = former {
                    abandon_soon(former, self.route.clone());
                }
            }
            !same
        });
    }

    /// Opens the term, then moves cluster time for as long as the term lasts. It is aborted when
    /// the term ends, and every entry it writes names the term, so a late one goes nowhere.
    async fn lead(self: Arc<Self>, term: u64) {
        let elected = clock::since_boot();
        let Some(opened) = self.open_term(term).await else {
            return;
        };
        let reading = if planted(Bug::ReadingFromTheElection) {
            Reading::start(opened.time, elected)
        } else if planted(Bug::ReadingOfTheOwnClock) {
            let shown = u64::try_from(elected.as_millis()).unwrap_or(u64::MAX);
            Reading::start(ClusterTime(shown), clock::since_boot())
        } else {
            Reading::start(opened.time, clock::since_boot())
        };
        // From here on the term is open: whatever is written in it stands behind its `TermStart`.
        let (members, incoming) = MembersOfTerm::new(&self.raft, self.node_id, self.live_within);
        let leading = Arc::new(LeaderTerm {
            term,
            node_id: self.node_id,
            reading: Mutex::new(reading),
            raft: self.raft.clone(),
            state: self.state.clone(),
            log: self.log.clone(),
            log_unflushed_max: self.log_unflushed_max,
            log_uncommitted_max: self.log_uncommitted_max,
            pod_sessions: self.pod_sessions,
            peer_authenticated: self.peer_authenticated,
            beginning_agreed: self.beginning_agreed,
            operations: AtomicU32::new(0),
            transport: self.transport.clone(),
            members,
        });
        if !self.state.machine().is_formed() && !self.form_cluster(&leading).await {
            return;
        }
        tracing::info!(term, time = %opened.time, "this node leads");
        if let Some(observer) = &self.observer {
            observer.leads(term);
        }
        self.route.send_replace(Route::Leader(leading.clone()));
        let reconciler = Reconciler::new(leading.clone(), incoming, self.flush_lag_max);
        let handed_to = tokio::select! {
            // A hand-over comes first: after it this leader must not log one more tick.
            biased;
            to = reconciler.run() => to,
            () = self.keep_time(&leading) => return,
            never = leading.keep_level() => match never {},
        };
        // It writes nothing more in this term. With a disk that hangs it may hear of the next one
        // only when the disk goes on, and until then calls are better off there.
        let peer = leading.members.view().peers.get(&handed_to).cloned();
        self.follow(peer.map(|peer| (handed_to, peer)));
    }

    /// Nothing of a term counts before its `TermStart`, which also raises the token counter.
    async fn open_term(&self, term: u64) -> Option<Applied> {
        if self.tokens_follow_the_wall_clock().await {
            let age = clock::since_boot().saturating_sub(self.seated);
            tokio::time::sleep(TERM_AFTER.saturating_sub(age)).await;
        }
        let mut looks = 0;
        loop {
            let wall = WallTime((self.wall_millis)());
            if let Some(why) = self.clock_in_the_way(wall).await {
                if looks % CLOCK_SAY_EVERY == 0 {
                    self.say_clock(wall, &why);
                }
                looks += 1;
                if looks % CLOCK_SAY_EVERY == 0 {
                    self.hand_over(looks as usize / CLOCK_SAY_EVERY as usize)
                        .await;
                }
                tokio::time::sleep(CLOCK_RETRY).await;
                continue;
            }
            let unix_seconds = clock::believable_seconds(wall);
            let command = encode_command(&Command::TermStart { unix_seconds });
            // It does not move time: the reading begins where this entry finds it.
            let proposal = Proposal::new(self.state.time(), wall, &command);
            match write_in_term(&self.raft, term, proposal).await {
                Ok(applied) => return Some(applied),
                Err(ProposeError::Fault { why }) => {
                    tracing::warn!(term, why, "the term was not opened");
                    return None;
                }
                // Check-quorum refuses writes until a majority has answered.
                Err(error) => tracing::debug!(term, %error, "the term is not open yet"),
            }
            tokio::time::sleep(OPEN_RETRY).await;
        }
    }

    /// Whether a term raises the tokens to the wall clock: not in a cluster that was formed with a
    /// token floor.
    async fn tokens_follow_the_wall_clock(&self) -> bool {
        let formed = || self.state.machine().cluster().is_some();
        if !formed() && self.forming.replaces_clock() && !self.is_formed().await {
            return false;
        }
        // What has not applied its forming yet waits without need, which does no harm.
        self.state.machine().token_floor().is_none()
    }

    /// Whether the log holds the forming of the cluster: only a majority can say so, and the state
    /// once it has applied everything up to there. Only a term's first entry raises the tokens, so
    /// this has to be known before.
    async fn is_formed(&self) -> bool {
        loop {
            let read = self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await;
            match read {
                Ok(linearizer) => {
                    let index = linearizer.read_log_id().index();
                    let mut applied = self.state.watch_applied();
                    // It lives as long as the state does.
                    let reached = applied.wait_for(|applied| *applied >= index).await;
                    return reached.is_err() || self.state.machine().cluster().is_some();
                }
                // Opening the term will say the same.
                Err(RaftError::Fatal(_)) => return true,
                Err(RaftError::APIError(error)) => {
                    tracing::debug!(%error, "the term is not confirmed yet");
                    tokio::time::sleep(OPEN_RETRY).await;
                }
            }
        }
    }

    /// The one timer: a `Tick` at the next deadline, and often enough that the reading, which
    /// stays near applied time, can get there.
    async fn keep_time(&self, leading: &LeaderTerm) {
        loop {
            // Taken before the deadline is read: a deadline that moves in between is not missed.
            let moved = self.state.deadline_moved.notified();
            let Some(due) = self.state.arm() else {
                moved.await;
                continue;
            };
            // Work that one entry did not finish goes on at once; what comes due is gathered.
            let (time, lead) = self.state.time.read();
            if due > time {
                let left = Duration::from_millis(due.since(leading.read_time()).0);
                tokio::select! {
                    () = moved => continue,
                    () = tokio::time::sleep(left.clamp(TICK_MIN, tick_max(lead))) => {}
                }
                if self.state.time() >= due {
                    continue;
                }
            }
            self.counts.ticks.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = leading.write(&Command::Tick).await {
                tracing::debug!(%error, "a tick was not applied");
                tokio::time::sleep(OPEN_RETRY).await;
            }
        }
    }
}
