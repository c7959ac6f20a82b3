//! The state and the way of an entry through it.
//!
//! An entry moves cluster time forward; then everything whose time has come ends; then the entry's
//! own command is carried out; last, free leases are granted to those who wait. Since all that an
//! entry ends is over before it grants anything, no grant goes to a session that ends with it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ringfence_planted::{Bug, planted};

use crate::budget::Budget;
use crate::command::{Command, Entry, Form};
use crate::deadlines::Deadlines;
use crate::event::Event;
use crate::id::{ClusterId, FencingToken, OpenId, SessionId};
use crate::lease::Lease;
use crate::level::{LEVEL_FIRST, LEVEL_REPEATS};
use crate::line::Line;
use crate::looks::Looks;
use crate::name::LeaseName;
use crate::outcome::{Outcome, Rejection};
use crate::pod::PodKey;
use crate::session::{EndedSessions, Sessions};
use crate::settings::{Settings, TOKEN_FLOOR_MAX};
use crate::time::{ClusterTime, WallTime};
use crate::tree::Tree;
use crate::ttls::Ttls;

/// Tokens stay below 2^53, exact as JSON numbers everywhere, as long as the wall clock that raises
/// them shows less than this many seconds; it gets there in the year 2242.
const UNIX_SECONDS_END: u64 = 1 << 33;

/// The replicated state machine.
///
/// Entries go in through [`StateMachine::apply`] in the order of their indices, each once; nothing
/// else changes the state. Two machines that were given the same entries are equal.
#[derive(Clone, Debug)]
pub struct StateMachine {
    pub(crate) cluster: Option<ClusterId>,
    /// Every member knows the log commands of all versions up to this one. It never falls.
    pub(crate) level: u32,
    pub(crate) token_floor: Option<u64>,
    pub(crate) settings: Settings,
    pub(crate) settings_set_at: u64,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) term_start: ClusterTime,
    pub(crate) time: ClusterTime,
    pub(crate) wall: WallTime,
    /// The next token is one more.
    pub(crate) counter: u64,
    /// The greatest token really granted, 0 before the first.
    pub(crate) last_token: u64,
    pub(crate) next_session: u64,
    pub(crate) next_place: u64,
    pub(crate) forgotten: Option<FencingToken>,
    pub(crate) quiet_until: ClusterTime,
    pub(crate) sessions: Sessions,
    /// The TTLs of the living sessions that have one.
    pub(crate) ttls: Ttls,
    pub(crate) ended: EndedSessions,
    /// Exactly one entry per living session that is bound to a Pod.
    pub(crate) pods: Tree<PodKey, SessionId>,
    /// Exactly one entry per living session and per remembered ended one.
    pub(crate) opens: BTreeMap<OpenId, SessionId>,
    pub(crate) leases: Tree<LeaseName, Lease>,
    pub(crate) deadlines: Deadlines,
    /// Free leases whose queue wants to be served, in the order in which they came free. Each knows
    /// its place here.
    pub(crate) unserved: Line<LeaseName>,
    pub(crate) held: u64,
    pub(crate) waiters: u64,
}

impl Default for StateMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl StateMachine {
    /// The empty state, before a cluster is formed.
    #[must_use]
    pub fn new() -> Self {
        Self {
            cluster: None,
            level: LEVEL_FIRST,
            token_floor: None,
            settings: Settings::STANDARD,
            settings_set_at: 0,
            index: 0,
            term: 0,
            term_start: ClusterTime(0),
            time: ClusterTime(0),
            wall: WallTime(0),
            counter: 0,
            last_token: 0,
            next_session: 1,
            next_place: 1,
            forgotten: None,
            quiet_until: ClusterTime(0),
            sessions: Sessions::default(),
            ttls: Ttls::default(),
            ended: EndedSessions::default(),
            pods: Tree::default(),
            opens: BTreeMap::new(),
            leases: Tree::default(),
            deadlines: Deadlines::default(),
            unserved: Line::default(),
            held: 0,
            waiters: 0,
        }
    }

    /// Applies the next entry and appends what it changed to `events`.
    ///
    /// An entry of a term that no [`Command::TermStart`] has opened is refused without any effect
    /// ([`Rejection::NotReady`]), and so is everything but [`Command::Form`] before a cluster is
    /// formed. Refused entries still count as applied.
    pub fn apply(&mut self, entry: &Entry, events: &mut Vec<Event>) -> Outcome {
        self.skip(entry.index);
        if let Command::TermStart { unix_seconds } = entry.command
            && entry.term > self.term
        {
            self.wall = self.wall.max(entry.wall);
            return self.open_term(entry.term, unix_seconds);
        }
        let forming = matches!(entry.command, Command::Form(_));
        if entry.term != self.term || (self.cluster.is_none() && !forming) {
            return Outcome::Rejected(Rejection::NotReady);
        }
        self.time = self.time.max(entry.time);
        self.wall = self.wall.max(entry.wall);
        if planted(Bug::WallTimeDecides) {
            self.time = self.time.max(ClusterTime(entry.wall.0));
        }
        if planted(Bug::TimeRunsBack) {
            self.time = entry.time;
        }

        let mut budget = Budget::new();
        let early = (planted(Bug::LateRequestFirst)
            && matches!(entry.command, Command::Request(_)))
            || (planted(Bug::LateRenewFirst) && matches!(entry.command, Command::Renew(_)));
        let early = early.then(|| self.carry_out(entry, &mut budget, events));
        self.settle_due(&mut budget, events);
        let outcome = early.unwrap_or_else(|| self.carry_out(entry, &mut budget, events));
        self.serve_queues(&mut budget, events);
        outcome
    }

    /// Takes notice of an entry that is none of its business: a blank one, or a membership change.
    pub fn skip(&mut self, index: u64) {
        self.index = self.index.max(index);
    }

    fn carry_out(
        &mut self,
        entry: &Entry,
        budget: &mut Budget,
        events: &mut Vec<Event>,
    ) -> Outcome {
        match &entry.command {
            Command::Form(form) => self.form(form),
            // Of a term that is open already: a repeat.
            Command::TermStart { .. } | Command::Tick => Outcome::Done,
            Command::Configure(configure) => self.configure(configure),
            Command::Open(open) => self.open(open, events),
            Command::Request(request) => self.request(request, events),
            Command::Close { session, secret } => self.close(*session, secret, events),
            Command::Renew(renew) => self.renew(renew),
            Command::Revoke(revoke) => self.revoke(revoke, events),
            Command::Evict(evict) => self.evict(evict, events),
            Command::DrawNodeId => Outcome::NodeId(entry.index),
            Command::OpenForPod(open) => self.open_for_pod(open, events),
            Command::PodEnded(ended) => self.pod_ended(ended, budget, events),
            Command::RaiseLevel { level } => {
                self.level = self.level.max(*level);
                if self.is_at(LEVEL_REPEATS) {
                    self.deadlines.looks = Looks::default();
                }
                Outcome::Done
            }
        }
    }

    /// Opens a term. It does not move time: a leader's reading starts where this entry finds it,
    /// and each session alive now gets a fresh TTL before anything is judged.
    fn open_term(&mut self, term: u64, unix_seconds: Option<u64>) -> Outcome {
        self.term = term;
        self.term_start = self.time;
        if self.token_floor.is_none()
            && let Some(seconds) = unix_seconds
            && seconds < UNIX_SECONDS_END
            && !(planted(Bug::TermDoesNotRaiseTokens) && self.cluster.is_some())
        {
            self.counter = self.counter.max(seconds << 20);
        }
        Outcome::Done
    }

    fn form(&mut self, form: &Form) -> Outcome {
        if let Some(cluster) = self.cluster {
            return Outcome::Rejected(Rejection::AlreadyFormed { cluster });
        }
        if let Err(invalid) = form.settings.check() {
            return Outcome::Rejected(Rejection::InvalidSetting(invalid));
        }
        match form.token_floor {
            Some(offered) if offered > TOKEN_FLOOR_MAX => {
                return Outcome::Rejected(Rejection::TokenFloorTooHigh { offered });
            }
            // Nothing was granted yet, so the counter may still be lowered.
            Some(floor) => self.counter = floor,
            // Without a believable clock a wiped cluster could repeat tokens.
            None if self.counter == 0 => return Outcome::Rejected(Rejection::NotReady),
            None => {}
        }
        self.token_floor = form.token_floor;
        self.cluster = Some(form.cluster);
        self.settings = form.settings;
        self.settings_set_at = self.index;
        Outcome::Done
    }

    /// Whether every member knows this level.
    pub(crate) fn is_at(&self, level: u32) -> bool {
        self.level >= level
    }

    /// The next cluster time at which something happens on its own; at or before
    /// [`StateMachine::time`] means at once, with the next entry whatever it says.
    #[must_use]
    pub fn next_deadline(&self) -> Option<ClusterTime> {
        let serving = (!self.unserved.is_empty()).then_some(self.quiet_until);
        let forgetting = self
            .ended
            .oldest()
            .map(|at| at.after(crate::settings::OPEN_AGE_MAX));
        let due = match self.is_at(LEVEL_REPEATS) {
            true => self.deadlines.next(self.settings.idle_retention),
            false => self.deadlines.next_below_repeats(),
        };
        [due, serving, forgetting].into_iter().flatten().min()
    }
}
