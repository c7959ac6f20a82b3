//! The only one that changes the members: it works in one term of one leader.
//!
//! Whatever it finds between two steps it finishes first, also what a leader before it began. Then
//! it takes the wishes in turn and makes one step at a time. It runs apart from those that wait for
//! a wish, so that their going away leaves nothing half-done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::{ChangeMembers, Precondition};
use ringfence_core::Mode;
use ringfence_planted::{Bug, planted};
use tokio::sync::mpsc;

use super::flush::FlushWatch;
use super::{hand_over, ids};
use crate::leader::term::LeaderTerm;
use crate::membership;
use crate::membership::error::MembershipError;
use crate::membership::plan::{self, Step};
use crate::membership::view::View;
use crate::membership::wish::{WISHES_MAX, Wish};
use crate::platform::clock;
use crate::types::entry_size;
use crate::types::type_config::{CommittedLeaderId, LogId, Peer, TypeConfig};

/// How often it looks whether a wish can go on: what it waits for makes no other sign.
const LOOK: Duration = Duration::from_millis(20);
/// How often it looks at the leader's disk while there are no wishes.
const IDLE_LOOK: Duration = Duration::from_millis(250);

/// How long a leader without room for more log leads on before it hands leadership over to one that
/// has some: its own may come back in a moment, and each change of leader takes some of what is set
/// aside.
const NO_ROOM_MAX: Duration = Duration::from_secs(3);

type Change = ChangeMembers<u64, Arc<Peer>>;
/// Ends with the entry that holds the new membership.
type Work = Pin<Box<dyn Future<Output = Result<LogId, MembershipError>> + Send>>;

/// Changes the members for as long as one term lasts.
pub(crate) struct Reconciler {
    leading: Arc<LeaderTerm>,
    incoming: mpsc::Receiver<Wish>,
    waiting: VecDeque<Waiting>,
    accepted: u64,
    /// The newest entry with members that this leader has written: what it sees of them may be
    /// older for a moment.
    written: Option<LogId>,
    /// No step begins before this time, so that one that fails at once is not repeated at once.
    pause_until: Duration,
    /// The voters of the last look, and since when.
    voters: Vec<BTreeSet<u64>>,
    voters_since: Duration,
    flush: FlushWatch,
    flush_lag_max: Duration,
    /// Since when there has been no room for more log.
    no_room_since: Option<Duration>,
}

/// A wish in the queue.
struct Waiting {
    number: u64,
    wish: Wish,
    /// What it waits for, for people.
    why: String,
}

/// A step under way.
struct UnderWay {
    /// The wish that it is for; `None` for what was found half-done.
    number: Option<u64>,
    /// The membership that it changes.
    from: Option<LogId>,
    work: Work,
}

/// What to do with a wish now.
enum Verdict {
    Keep(String),
    Answer(Result<u64, MembershipError>),
    Begin(Work),
    HandOver,
}

impl Reconciler {
    pub(crate) fn new(
        leading: Arc<LeaderTerm>,
        incoming: mpsc::Receiver<Wish>,
        flush_lag_max: Duration,
    ) -> Self {
        Self {
            leading,
            incoming,
            waiting: VecDeque::new(),
            accepted: 0,
            written: None,
            pause_until: Duration::ZERO,
            voters: Vec::new(),
            voters_since: clock::since_boot(),
            flush: FlushWatch::default(),
            flush_lag_max,
            no_room_since: None,
        }
    }

    /// Works until it has handed leadership over, and says to which voter.
    pub(crate) async fn run(mut self) -> u64 {
        let mut metrics = self.leading.raft().server_metrics();
        let mut under_way: Option<UnderWay> = None;
        loop {
            let view = self.look();
            if self.disk_hangs(&view)
                && let Some(to) = self.give_up(&view, "its disk hangs").await
            {
                return to;
            }
            if self.lacks_room(&view)
                && let Some(to) = self
                    .give_up(&view, "its disk has no room for more log")
                    .await
            {
                return to;
            }
            self.answer_late();
            if under_way.is_none() {
                match self.begin(&view) {
                    Begun::Nothing => {}
                    Begun::Step(step) => under_way = Some(step),
                    Begun::HandOver => {
                        if let Some(to) = self.give_up(&view, "it is to lose its vote").await {
                            return to;
                        }
                    }
                }
            }
            let busy = under_way.is_some() || !self.waiting.is_empty() || view.is_joint();
            let pause = if busy { LOOK } else { IDLE_LOOK };
            tokio::select! {
                // The end of a step first: the next look must know what was written.
                biased;
                done = finished(&mut under_way) => self.ended(done),
                Some(wish) = self.incoming.recv(), if self.waiting.len() < WISHES_MAX => {
                    self.accepted += 1;
                    self.waiting.push_back(Waiting {
                        number: self.accepted,
                        wish,
                        why: "another change is under way".to_owned(),
                    });
                }
                // A core that has ended says no more: the node stops, and this task with it.
                Ok(()) = metrics.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn look(&mut self) -> View {
        let mut view = self.leading.members.view();
        let now = clock::since_boot();
        if view.configs != self.voters {
            self.voters.clone_from(&view.configs);
            self.voters_since = now;
        }
        view.age = now.saturating_sub(self.voters_since);
        {
            let machine = self.leading.state.machine();
            view.level = machine.level();
            view.enforced = machine.access().mode() == Mode::Enforced;
        }
        view.look_at_conditions(&self.leading.transport);
        self.leading.members.note_room(view.lacks_room());
        view
    }

    /// Whether this leader's disk has finished nothing for too long while entries were committed
    /// without it.
    fn disk_hangs(&mut self, view: &View) -> bool {
        let log = &self.leading.log;
        let stats = log.wal_stats();
        let done = (stats.bytes_appended, stats.syncs);
        let lag = self.flush.look(log.unflushed(), done, clock::since_boot());
        self.leading.members.note_flush_lag(lag);
        let passed = view.committed_index > view.matched(view.me).unwrap_or(0);
        lag > self.flush_lag_max && passed && !planted(Bug::HungLeaderStays)
    }

    /// Whether this leader has had no room for more log for a while, and the others have some. If
    /// they have none, too, or cannot do without this node, reads are served best by going on.
    fn lacks_room(&mut self, view: &View) -> bool {
        let now = clock::since_boot();
        if !self.leading.log.no_room() {
            self.no_room_since = None;
            return false;
        }
        let since = *self.no_room_since.get_or_insert(now);
        let others = view.others_can_lead()
            && plan::successor(view, 0).is_ok_and(|to| view.has_room(to))
            || planted(Bug::FullLeaderAlwaysGivesUp) && view.voters().len() > 1;
        now.saturating_sub(since) > NO_ROOM_MAX && others
    }

    /// Hands leadership over, if there is a voter that can take it.
    async fn give_up(&self, view: &View, why: &str) -> Option<u64> {
        match hand_over::begin(self.leading.raft(), view, 0).await {
            Ok(to) => {
                tracing::warn!(to, why, "this leader hands leadership over");
                Some(to)
            }
            Err(error) => {
                tracing::debug!(%error, "leadership cannot be handed over yet");
                None
            }
        }
    }

    /// Answers the wishes whose time is over, and drops those that no caller waits for.
    fn answer_late(&mut self) {
        let now = clock::since_boot();
        for at in (0..self.waiting.len()).rev() {
            let wish = &self.waiting[at].wish;
            let unwanted = wish.is_abandoned() && !wish.begun;
            if now < wish.deadline && !unwanted {
                continue;
            }
            if let Some(late) = self.waiting.remove(at) {
                late.wish.answer_unfinished(&late.why);
            }
        }
    }

    /// Begins the next step, if there is one to make.
    fn begin(&mut self, view: &View) -> Begun {
        // openraft publishes a membership after it acknowledges it. A step that was planned on the
        // older one would only fail its precondition.
        let stale = view.at < self.written;
        if !view.committed || stale || clock::since_boot() < self.pause_until {
            return Begun::Nothing;
        }
        if view.is_joint() && !planted(Bug::JointLeftStanding) {
            return self.finish(view);
        }
        let mut at = 0;
        while at < self.waiting.len() {
            match self.judge(view, at) {
                Verdict::Keep(why) => {
                    self.waiting[at].why = why;
                    at += 1;
                }
                Verdict::Answer(outcome) => {
                    if let Some(answered) = self.waiting.remove(at) {
                        answered.wish.answer(outcome);
                    }
                }
                Verdict::Begin(work) => {
                    let waiting = &mut self.waiting[at];
                    // Before the work is polled: if this task is aborted meanwhile, the caller learns
                    // that the outcome is unknown.
                    waiting.wish.begun = true;
                    waiting.why = "its entries are not committed yet".to_owned();
                    return Begun::Step(UnderWay {
                        number: Some(waiting.number),
                        from: view.at,
                        work,
                    });
                }
                Verdict::HandOver => return Begun::HandOver,
            }
        }
        Begun::Nothing
    }

    fn judge(&self, view: &View, at: usize) -> Verdict {
        let wish = &self.waiting[at].wish;
        let waited = clock::since_boot().saturating_sub(wish.made);
        match plan::next(view, &wish.ask, waited, wish.begun) {
            Step::Done(node_id) => Verdict::Answer(Ok(node_id)),
            Step::Refuse(why) => Verdict::Answer(Err(MembershipError::refused(why))),
            Step::Wait(why) => Verdict::Keep(why),
            Step::TakeIn(peer) => {
                let present = membership::newest(self.leading.raft());
                match entry_size::check_members(present.membership(), &peer) {
                    Ok(()) => Verdict::Begin(self.take_in(view, peer)),
                    Err(why) => Verdict::Answer(Err(MembershipError::refused(why))),
                }
            }
            Step::DropLearners(ids) => {
                tracing::info!(?ids, "members without a vote are removed");
                Verdict::Begin(self.write(view, ChangeMembers::RemoveNodes(ids)))
            }
            Step::SetVoters(voters) => {
                tracing::info!(from = ?view.voters(), to = ?voters, "the voters change");
                Verdict::Begin(self.write(view, ChangeMembers::ReplaceAllVoters(voters)))
            }
            Step::HandOver => match plan::successor(view, 0) {
                Ok(_) => Verdict::HandOver,
                Err(MembershipError::NotDone { why }) => Verdict::Keep(why),
                Err(refused) => Verdict::Answer(Err(refused)),
            },
        }
    }

    /// The second step of a change whose first one is committed, whichever node began it.
    fn finish(&self, view: &View) -> Begun {
        // A leader that lost its vote would never hear that it was removed.
        if !view.voters().contains(&view.me) {
            return Begun::HandOver;
        }
        tracing::info!(sets = ?view.configs, "a change of the voters is finished");
        // From a joint membership this leads to its newer half, and no further.
        let change = ChangeMembers::AddVoterIds(BTreeSet::new());
        Begun::Step(UnderWay {
            number: None,
            from: view.at,
            work: self.write(view, change),
        })
    }

    fn take_in(&self, view: &View, peer: Peer) -> Work {
        let (leading, view) = (self.leading.clone(), view.clone());
        Box::pin(async move {
            let node_id = ids::draw(&leading, &view).await?;
            tracing::info!(node_id, %peer, "a node joins as a learner");
            let nodes = BTreeMap::from([(node_id, Arc::new(peer))]);
            write(&leading, view.at, ChangeMembers::AddNodes(nodes)).await
        })
    }

    fn write(&self, view: &View, change: Change) -> Work {
        let (leading, from) = (self.leading.clone(), view.at);
        Box::pin(async move { write(&leading, from, change).await })
    }

    /// Notes the end of a step. Whether the wish is fulfilled shows the next look at the members.
    fn ended(&mut self, (step, result): (UnderWay, Result<LogId, MembershipError>)) {
        let error = match result {
            Ok(written) => {
                self.written = self.written.max(Some(written));
                return;
            }
            Err(error) => error,
        };
        self.pause_until = clock::since_boot() + LOOK;
        tracing::debug!(%error, "a step of a change of the members failed");
        let mine = |waiting: &Waiting| Some(waiting.number) == step.number;
        let Some(at) = self.waiting.iter().position(mine) else {
            return;
        };
        // A step can fail although its entry was appended. It counts as without effect only if the
        // membership is still the one that it began from.
        let untouched = self.leading.members.view().at == step.from;
        match error {
            MembershipError::Refused { .. } if untouched => {
                if let Some(refused) = self.waiting.remove(at) {
                    refused.wish.answer(Err(error));
                }
            }
            MembershipError::NotDone { why } if untouched => {
                self.waiting[at].wish.begun = false;
                self.waiting[at].why = why;
            }
            // It stays begun: the next look finishes it, or the next leader does.
            other => self.waiting[at].why = other.to_string(),
        }
    }
}

enum Begun {
    Nothing,
    Step(UnderWay),
    /// Another node has to lead before this can go on.
    HandOver,
}

/// The step under way, once it ends; never if there is none.
async fn finished(under_way: &mut Option<UnderWay>) -> (UnderWay, Result<LogId, MembershipError>) {
    let result = match under_way {
        Some(step) => step.work.as_mut().await,
        None => std::future::pending().await,
    };
    match under_way.take() {
        Some(step) => (step, result),
        None => std::future::pending().await,
    }
}

/// Writes a change of the members in this term, provided that they are still those of `from`.
async fn write(
    leading: &LeaderTerm,
    from: Option<LogId>,
    change: Change,
) -> Result<LogId, MembershipError> {
    let conditions: [Precondition<TypeConfig>; 2] = [
        Precondition::CommittedLeaderId {
            committed_leader_id: CommittedLeaderId::new(leading.term()),
        },
        Precondition::LastMembershipLogId {
            last_membership_log_id: from,
        },
    ];
    let raft = leading.raft();
    let written = raft.change_membership_if(change, false, conditions).await?;
    tracing::debug!(membership = ?written.membership, "the members have changed");
    Ok(written.log_id)
}
