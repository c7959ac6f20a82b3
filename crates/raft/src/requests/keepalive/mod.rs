//! Keep-alives: gathered for a moment, logged together, acknowledged when they are applied.
//!
//! Secrets are checked here, before the log: an entry carries session numbers only. Of the losses that
//! a request acknowledges, those are logged that the leader's state has. That a session is not alive
//! is said only once the entry is applied, since only then is it sure that the state
//! was not an old one. The same holds for the caller's principal, which travels with each request.

mod adopting;
mod answer;
mod checked;
#[cfg(test)]
mod due_tests;
mod entries;
mod judging;
mod lines;
#[cfg(test)]
mod losses_tests;
#[cfg(test)]
mod principal_tests;
#[cfg(test)]
mod size_tests;
#[cfg(test)]
mod test_state;
#[cfg(test)]
mod told_tests;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use ringfence_core::{
    Caller, ClusterTime, Command, FencingToken, LostGrant, Outcome, Rejection, Renewed, Secret,
    SessionId,
};
use ringfence_planted::{Bug, planted};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use self::adopting::Adoptions;
pub use self::answer::KeptAlive;
use self::checked::{CHECKED_AT_ONCE, Checked, check};
pub(crate) use self::checked::{losses_known_here, unknown_here};
use self::entries::entries;
use self::judging::Judge;
pub use self::lines::KeepAliveSource;
use self::lines::Lines;
use self::wire::{kept_from_answer, request_to_pb};
pub(crate) use self::wire::{kept_to_pb, request_from_pb};
use crate::leader::term::{LeaderTerm, Route};
use crate::network::forward::{CallBody, Failed, Forwarder};
use crate::platform::clock;
use crate::requests::propose::Origin;
use crate::store::state::State;
use crate::types::reply::{Applied, ProposeError, Reply};

/// How long keep-alives are gathered at most, and what part of the shortest TTL among them.
const GATHER_MAX: Duration = Duration::from_millis(50);
const GATHER_TTL_PART: u32 = 20;
/// A TTL from which on [`GATHER_MAX`] is the shorter one.
const TTL_UNNOTICED_MILLIS: u64 = 1_000;
/// The most sessions in one entry.
pub const SESSIONS_PER_RENEW_MAX: usize = 10_000;
/// Gathering ends with this many acknowledged losses.
const ACKNOWLEDGED_GATHERED_MAX: usize = 10_000;
/// The most keep-alive requests that wait on one node. Beyond them, up to as many again, only those of
/// other nodes wait, which bound what they forward, and one of each source that has nothing waiting.
pub const KEEP_ALIVES_QUEUED_MAX: usize = 65_536;
/// The most batches that are being logged and answered at a time. What comes meanwhile waits in the
/// lines, where no session waits behind all that another one has asked for.
const BATCHES_MAX: usize = 4;
/// The most sessions and acknowledged losses that a node which does not lead has forwarded and that are
/// not answered; a request counts as one at least. A batch is logged while the next one is gathered, so
/// two keep the leader busy. What comes meanwhile waits in the lines of this node: at the leader all of
/// it would stand in one.
pub const KEEP_ALIVES_FORWARDED_MAX: usize = 2 * SESSIONS_PER_RENEW_MAX;
/// How long a request waits before it is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// A session, and the token of a lost grant of which belief has ended.
pub type Acknowledgement = (SessionId, FencingToken);

/// Keep-alives of sessions of one client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// The sessions, each with its secret.
    pub sessions: Vec<(SessionId, Secret)>,
    /// Losses that these sessions have taken notice of: belief in the grants has ended.
    pub acknowledged: Vec<Acknowledgement>,
    /// Who asks; `None` if nothing was proven of that. Sessions of other principals are not kept
    /// alive once rights bind.
    pub caller: Option<Caller>,
}

impl KeepAlive {
    /// How many of [`KEEP_ALIVES_FORWARDED_MAX`] this is; a request with more of them goes alone.
    fn weight(&self) -> u32 {
        let named = self.sessions.len() + self.acknowledged.len();
        u32::try_from(named.clamp(1, KEEP_ALIVES_FORWARDED_MAX)).unwrap_or(1)
    }
}

/// What this node has logged as a leader, since it was started.
#[derive(Debug, Default)]
pub(crate) struct KeepAliveCounts {
    pub(crate) entries: AtomicU64,
    pub(crate) sessions: AtomicU64,
}

#[derive(Debug)]
struct Asked {
    request: KeepAlive,
    reply: Reply<KeptAlive>,
    origin: Origin,
    source: KeepAliveSource,
    deadline: Duration,
}

/// The queue into the batcher.
#[derive(Debug, Clone)]
pub(crate) struct KeepAlives {
    lines: Arc<Lines<Asked>>,
    pub(crate) counts: Arc<KeepAliveCounts>,
    adoptions: Arc<Adoptions>,
}

impl KeepAlives {
    /// The queue, and the batcher to run behind it.
    pub(crate) fn new(state: Arc<State>, route: watch::Receiver<Route>) -> (Self, Batcher) {
        let this = Self {
            lines: Arc::new(Lines::new(KEEP_ALIVES_QUEUED_MAX)),
            counts: Arc::default(),
            adoptions: Arc::default(),
        };
        (
            this.clone(),
            Batcher {
                queue: this,
                state,
                route,
                batches: Arc::new(Semaphore::new(BATCHES_MAX)),
                forwarded: Arc::new(Semaphore::new(KEEP_ALIVES_FORWARDED_MAX)),
            },
        )
    }

    /// Asks on behalf of a caller of this node, who waits for a leader as long as `leader_wait`.
    pub(crate) fn submit(
        &self,
        source: KeepAliveSource,
        request: KeepAlive,
        leader_wait: Duration,
        reply: Reply<KeptAlive>,
    ) {
        let deadline = clock::since_boot() + leader_wait;
        self.push(Asked {
            request,
            reply,
            origin: Origin::Here,
            source,
            deadline,
        });
    }

    /// Asks on behalf of a node that took this one for the leader.
    pub(crate) fn submit_from_peer(
        &self,
        source: KeepAliveSource,
        request: KeepAlive,
        reply: Reply<KeptAlive>,
    ) {
        self.push(Asked {
            request,
            reply,
            origin: Origin::Peer,
            source,
            deadline: Duration::ZERO,
        });
    }

    fn push(&self, asked: Asked) {
        // What another node forwards is bounded there.
        let bounded = asked.origin == Origin::Peer;
        let (source, weight) = (asked.source, asked.request.weight());
        if let Err(asked) = self.lines.push(source, asked, weight, bounded) {
            let why = format!("{KEEP_ALIVES_QUEUED_MAX} keep-alive requests are waiting");
            asked.reply.send(Err(ProposeError::not_done(why)));
        }
    }

    /// Tries again what was refused without a trace, or tells its caller.
    fn refused(&self, asked: Asked, error: ProposeError) {
        if asked.origin == Origin::Peer || clock::since_boot() >= asked.deadline {
            asked.reply.send(Err(error));
            return;
        }
        let queue = self.clone();
        let _detached = crate::platform::runtime::spawn(async move {
            tokio::time::sleep(RETRY_AFTER).await;
            queue.push(asked);
        });
    }
}

/// Gathers keep-alives and sends each batch on its way.
pub(crate) struct Batcher {
    queue: KeepAlives,
    state: Arc<State>,
    route: watch::Receiver<Route>,
    /// A permit for each batch that may be under way.
    batches: Arc<Semaphore>,
    /// A permit for each session or loss that may be forwarded and not answered.
    forwarded: Arc<Semaphore>,
}

impl Drop for Batcher {
    fn drop(&mut self) {
        // No node would ever answer them.
        self.queue.lines.close();
    }
}

impl Batcher {
    pub(crate) async fn run(mut self) {
        loop {
            let first = self.queue.lines.next().await;
            let route = self.route.borrow_and_update().clone();
            match route {
                Route::Leader(leading) => {
                    let Some(turn) = self.turn(&self.batches.clone(), 1).await else {
                        self.queue.push(first);
                        continue;
                    };
                    // The permit is taken before gathering: while all batches are under way, requests
                    // wait in the lines, where sources take turns, and not in a batch.
                    let batch = self.gather(first).await;
                    let (state, queue) = (self.state.clone(), self.queue.clone());
                    let _detached = crate::platform::runtime::spawn(async move {
                        renew(leading, state, queue, batch).await;
                        drop(turn);
                    });
                }
                Route::Follower(forwarder) if first.origin == Origin::Here => {
                    let weight = first.request.weight();
                    let Some(turn) = self.turn(&self.forwarded.clone(), weight).await else {
                        self.queue.push(first);
                        continue;
                    };
                    forward(&forwarder, self.queue.clone(), first, turn);
                }
                Route::NoLeader | Route::Follower(_) => {
                    let why = "no node of the cluster leads at present";
                    self.queue.refused(first, ProposeError::not_done(why));
                }
            }
        }
    }

    /// So many of these permits, which say that more may be under way; `None` if another node leads
    /// by then.
    async fn turn(&mut self, of: &Arc<Semaphore>, permits: u32) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            turn = of.clone().acquire_many_owned(permits) => turn.ok(),
            Ok(()) = self.route.changed() => None,
        }
    }

    /// Waits for more, as long as the shortest TTL of the batch allows.
    async fn gather(&mut self, first: Asked) -> Vec<Asked> {
        let begun = clock::since_boot();
        let mut limit = self.gather_max(&first.request);
        let mut sessions = first.request.sessions.len();
        let mut acknowledged = first.request.acknowledged.len();
        let mut batch = vec![first];
        while sessions < SESSIONS_PER_RENEW_MAX && acknowledged < ACKNOWLEDGED_GATHERED_MAX {
            let left = limit.saturating_sub(clock::since_boot().saturating_sub(begun));
            let Ok(more) = tokio::time::timeout(left, self.queue.lines.next()).await else {
                break;
            };
            limit = limit.min(self.gather_max(&more.request));
            sessions += more.request.sessions.len();
            acknowledged += more.request.acknowledged.len();
            batch.push(more);
        }
        batch
    }

    fn gather_max(&self, request: &KeepAlive) -> Duration {
        let machine = self.state.machine();
        if machine.settings().ttl_min.0 >= TTL_UNNOTICED_MILLIS {
            return GATHER_MAX;
        }
        // Only clusters set up for tests have sessions this short, and only few of them.
        let sessions = request.sessions.iter().take(CHECKED_AT_ONCE);
        let ttls = sessions
            .filter_map(|(id, _)| machine.session(*id))
            .map(|view| view.ttl.0);
        let shortest = ttls.min().map_or(GATHER_MAX, Duration::from_millis);
        GATHER_MAX.min(shortest / GATHER_TTL_PART)
    }
}

/// Asks the leader, and gives its turn back with the answer.
fn forward(forwarder: &Forwarder, queue: KeepAlives, asked: Asked, turn: OwnedSemaphorePermit) {
    let turn = (!planted(Bug::KeepAlivesForwardedAtOnce)).then_some(turn);
    let body = CallBody::KeepAlive(request_to_pb(&asked.request));
    forwarder.call(body, move |answer| {
        drop(turn);
        match answer {
            Ok(answer) => asked.reply.send(kept_from_answer(answer.0)),
            Err(failed @ (Failed::NotSent(_) | Failed::Refused(_))) => {
                match ProposeError::from(failed) {
                    error @ ProposeError::NotDone { .. } => queue.refused(asked, error),
                    error => asked.reply.send(Err(error)),
                }
            }
            Err(failed) => asked.reply.send(Err(failed.into())),
        }
    });
}

/// Logs a batch, in as many entries as it needs, and answers its requests.
async fn renew(leading: Arc<LeaderTerm>, state: Arc<State>, queue: KeepAlives, batch: Vec<Asked>) {
    // Before the log, and again in `answer` for those that fail here: this state may be behind, so
    // only the applied entry proves that a session is not alive.
    let checked: Vec<Checked> = batch
        .into_iter()
        .map(|asked| check(&state, asked))
        .collect();
    queue.adoptions.log(&leading, &checked);
    let entries = entries(&checked);
    let counts = &queue.counts;
    counts
        .entries
        .fetch_add(entries.len() as u64, Ordering::Relaxed);
    let sessions = entries
        .iter()
        .map(|renew| renew.sessions.len() as u64)
        .sum();
    counts.sessions.fetch_add(sessions, Ordering::Relaxed);

    if planted(Bug::KeepAliveAckedFromMemory) {
        let time = state.time();
        let renewed = Renewed {
            time,
            ..Renewed::default()
        };
        let mut results = Results::new(entries.iter().map(|_| renewed.clone()).collect());
        for one in checked {
            answer(&state, one, &mut results);
        }
        let commands: Vec<Command> = entries.into_iter().map(Command::Renew).collect();
        drop(join_all(commands.iter().map(|command| leading.write(command))).await);
        return;
    }
    let commands: Vec<Command> = entries.into_iter().map(Command::Renew).collect();
    let written = join_all(commands.iter().map(|command| leading.write(command))).await;
    match written
        .into_iter()
        .map(renewed)
        .collect::<Result<Vec<Renewed>, ProposeError>>()
    {
        Ok(renewed) => {
            let mut results = Results::new(renewed);
            for one in checked {
                answer(&state, one, &mut results);
            }
        }
        Err(error) => {
            for one in checked {
                if matches!(error, ProposeError::NotDone { .. }) {
                    queue.refused(one.asked, error.clone());
                } else {
                    one.asked.reply.send(Err(error.clone()));
                }
            }
        }
    }
}

fn renewed(written: Result<Applied, ProposeError>) -> Result<Renewed, ProposeError> {
    match written?.outcome {
        Outcome::Renewed(renewed) => Ok(renewed),
        Outcome::Rejected(Rejection::NotReady) => {
            Err(ProposeError::not_done("the term is not open yet"))
        }
        other => Err(ProposeError::unknown(format!(
            "keep-alives were answered with {other:?}"
        ))),
    }
}

struct Results {
    time: ClusterTime,
    ended: BTreeSet<SessionId>,
    /// What each session has lost; `None` once that was reported.
    lost: BTreeMap<SessionId, Option<Vec<LostGrant>>>,
}

impl Results {
    fn new(renewed: Vec<Renewed>) -> Self {
        let mut all = Self {
            time: ClusterTime(0),
            ended: BTreeSet::new(),
            lost: BTreeMap::new(),
        };
        for one in renewed {
            all.time = all.time.max(one.time);
            all.ended.extend(one.ended);
            let lost = one.lost.into_iter();
            all.lost.extend(lost.map(|(id, lost)| (id, Some(lost))));
        }
        all
    }

    /// Tells what these sessions have lost.
    ///
    /// A batch returns the losses of each session once, however often its requests name it: a name is
    /// short, and what a session has lost may take megabytes. A request that names it again finds it in
    /// `untold` and asks with the next batch.
    fn tell_lost(&mut self, alive: Vec<SessionId>, kept: &mut KeptAlive) {
        if planted(Bug::LossesToldToEach) {
            let lost = |id| {
                self.lost
                    .get(&id)
                    .and_then(|lost| Some((id, lost.clone()?)))
            };
            kept.lost = alive.into_iter().filter_map(lost).collect();
            return;
        }
        let named: BTreeSet<SessionId> = alive.into_iter().collect();
        for id in named {
            match self.lost.get_mut(&id).map(Option::take) {
                Some(Some(lost)) => kept.lost.push((id, lost)),
                Some(None) => kept.untold.push(id),
                None => {}
            }
        }
    }
}

fn answer(state: &State, checked: Checked, results: &mut Results) {
    let Checked {
        asked,
        alive,
        unowned: _,
        doubtful,
        noticed: _,
        left_out,
    } = checked;
    let mut kept = KeptAlive {
        time: results.time,
        ..KeptAlive::default()
    };
    if !results.ended.is_empty() || !doubtful.is_empty() {
        let machine = state.machine();
        let judge = Judge::new(&machine, asked.request.caller.as_ref());
        if !results.ended.is_empty() {
            let ended = asked
                .request
                .sessions
                .iter()
                .filter(|(id, _)| results.ended.contains(id));
            for (session, secret) in ended {
                // One that was due and that the entry's budget did not reach is listed as ended,
                // and may yet get a fresh TTL from a new term: that it has ended is not said
                // before it is so. This is judged here and not in `apply`, which has to do the
                // same with an entry on nodes of every version.
                match judge.judge(*session, secret) {
                    Err(refusal) => kept.ended.push((*session, refusal)),
                    Ok(_) => kept.untold.push(*session),
                }
            }
        }
        for (session, secret) in doubtful {
            match judge.judge(session, &secret) {
                Err(refusal) if !results.ended.contains(&session) => {
                    kept.ended.push((session, refusal));
                }
                Err(_) => {}
                Ok(_) => {
                    drop(machine);
                    let why = "a session was opened, or rights were changed, while its keep-alive \
                               was under way";
                    asked.reply.send(Err(ProposeError::not_done(why)));
                    return;
                }
            }
        }
    }
    if !results.lost.is_empty() {
        results.tell_lost(alive, &mut kept);
        kept.ask_again_for(&left_out);
    }
    asked.reply.send(Ok(kept.limited()));
}
