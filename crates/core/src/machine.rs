//! The way of an entry through the state.
//!
//! An entry moves cluster time forward; then everything whose time has come ends; then the entry's
//! own command is carried out; last, free leases are granted to those who wait. Since all that an
//! entry ends is over before it grants anything, no grant goes to a session that ends with it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Deref;

use ringfence_planted::{Bug, planted};

use crate::access::change::Caller;
use crate::access::usage::Usages;
use crate::budget::Budget;
use crate::command::{Command, Configure, Entry};
use crate::deadlines::Deadlines;
use crate::event::Event;
use crate::id::{FencingToken, OpenId, SessionId};
use crate::level::{LEVEL_FIRST, LEVEL_OBJECTS, LEVEL_REPEATS, LEVEL_RESTORE};
use crate::looks::Looks;
use crate::name::LeaseName;
use crate::outcome::{Outcome, Rejection};
use crate::settings::{LEAD_MAX, LEAD_PART, OPEN_AGE_MAX, Settings};
use crate::snapshot::{Header, TokenCounter};
use crate::state::Frozen;
use crate::time::{ClusterTime, Millis, WallTime};
use crate::ttls::Ttls;

/// Tokens stay below 2^53, exact as JSON numbers everywhere, as long as the wall clock that raises
/// them shows less than this many seconds; it gets there in the year 2242.
const UNIX_SECONDS_END: u64 = 1 << 33;

/// The replicated state machine.
///
/// Entries go in through [`StateMachine::apply`] in the order of their indices, each once; nothing
/// else changes the state. Two machines that were given the same entries are equal. It is read as
/// its state is.
#[derive(Clone, Debug)]
pub struct StateMachine {
    pub(crate) state: Frozen,
    // The rest follows from the state, or is empty between two entries.
    pub(crate) deadlines: Deadlines,
    /// The TTLs of the living sessions that have one.
    pub(crate) ttls: Ttls,
    /// Exactly one entry per living session and per remembered ended one.
    pub(crate) opens: BTreeMap<OpenId, SessionId>,
    /// What the principals have that opened sessions.
    pub(crate) usages: Usages,
    /// What is left of the work that the present entry may do.
    pub(crate) budget: Budget,
    /// What the present entry has changed.
    pub(crate) events: Vec<Event>,
    /// The leases that the present entry has freed and whose objects go with their grants.
    pub(crate) freed: Vec<LeaseName>,
    /// Who asks for the present entry, if that was proven.
    pub(crate) caller: Option<Caller>,
    /// Whether the present entry asked for what was so already.
    pub(crate) changed_nothing: bool,
}

impl Default for StateMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for StateMachine {
    type Target = Frozen;

    fn deref(&self) -> &Frozen {
        &self.state
    }
}

impl StateMachine {
    /// The empty state, before a cluster is formed.
    #[must_use]
    pub fn new() -> Self {
        Self::from_header(Header {
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
            tokens: TokenCounter::default(),
            next_session: 1,
            next_place: 1,
            forgotten: None,
            quiet_until: ClusterTime(0),
            unserved: Vec::new(),
            versions: 0,
            versions_forgotten: 0,
            lineage: Vec::new(),
            seeding: None,
            audit_dropped: 0,
        })
    }

    /// The state that this header describes, without sessions and leases.
    pub(crate) fn from_header(header: Header) -> Self {
        Self {
            state: Frozen::new(header),
            deadlines: Deadlines::default(),
            ttls: Ttls::default(),
            opens: BTreeMap::new(),
            usages: Usages::default(),
            budget: Budget::new(),
            events: Vec::new(),
            freed: Vec::new(),
            caller: None,
            changed_nothing: false,
        }
    }

    /// The state as it is now, to be read while entries are applied. It takes microseconds, however
    /// much there is.
    #[must_use]
    pub fn freeze(&self) -> Frozen {
        self.state.clone()
    }

    /// Applies the next entry and appends what it changed to `events`.
    ///
    /// An entry of a term that no [`Command::TermStart`] has opened is refused without any effect
    /// ([`Rejection::NotReady`]), and so is everything but [`Command::Form`] before a cluster is
    /// formed, and what clients ask before a restored one has all of its state. Refused entries still
    /// count as applied.
    pub fn apply(&mut self, entry: &Entry, events: &mut Vec<Event>) -> Outcome {
        self.skip(entry.index);
        let header = &mut self.state.header;
        if let Command::TermStart { unix_seconds } = entry.command
            && entry.term > header.term
        {
            header.wall = header.wall.max(entry.wall);
            return self.open_term(entry.term, unix_seconds);
        }
        // An entry of a deposed leader may commit after the new term began. Its reading of time and
        // its place before `TermStart` mean nothing here, so it has no effect at all.
        if entry.term != header.term || !self.is_ready_for(&entry.command) {
            return Outcome::Rejected(Rejection::NotReady);
        }
        let header = &mut self.state.header;
        header.time = header.time.max(entry.time);
        header.wall = header.wall.max(entry.wall);

        self.budget = Budget::new();
        core::mem::swap(&mut self.events, events);
        // Before the command, so that a late request finds its session ended and a free lease is
        // judged as free.
        self.settle_due();
        let outcome = self.judge_and_carry_out(&entry.command);
        // After the command, so that what it freed goes to the head of the queue in the same entry: no
        // later request can come between.
        self.serve_queues();
        self.remove_freed_objects();
        core::mem::swap(&mut self.events, events);
        outcome
    }

    /// Whether there is a cluster, and all of its state if it is a restored one.
    pub(crate) fn is_ready_for(&self, command: &Command) -> bool {
        let header = &self.state.header;
        let formed = header.cluster.is_some() || matches!(command, Command::Form(_));
        formed && (header.seeding.is_none() || !command.bare().is_asked())
    }

    /// Takes notice of an entry that does not concern it: a blank one, or a membership change.
    pub fn skip(&mut self, index: u64) {
        let header = &mut self.state.header;
        header.index = header.index.max(index);
    }

    /// Refuses what its caller may not do. Rights to leases are judged where the request turns out
    /// to be new, so that a repeat is answered as before whatever was taken away since.
    pub(crate) fn judge_and_carry_out(&mut self, command: &Command) -> Outcome {
        if let Command::Called(called) = command {
            // Nothing is proven of `anonymous`: what it opens is not its own for life.
            let caller = Some(called.caller.clone());
            self.caller = caller.filter(Caller::is_proven);
        }
        self.changed_nothing = false;
        let judged = self.judge(command);
        let done = judged.and_then(|()| self.carry_out(command.bare()));
        let outcome = done.unwrap_or_else(Outcome::Rejected);
        self.note(command, &outcome);
        self.caller = None;
        outcome
    }

    fn carry_out(&mut self, command: &Command) -> Result<Outcome, Rejection> {
        match command {
            Command::Form(form) => self.form(form),
            // Of a term that is open already: a repeat.
            Command::TermStart { .. } | Command::Tick => Ok(Outcome::Done),
            Command::Configure(configure) => self.configure(configure),
            Command::Open(open) => self.open(open, None),
            Command::Request(request) => self.request(request),
            Command::Close { session, secret } => self.close(*session, secret),
            Command::Renew(renew) => Ok(self.renew(renew)),
            Command::Revoke(revoke) => self.revoke(revoke),
            Command::Evict(evict) => self.evict(evict),
            Command::DrawNodeId => Ok(Outcome::NodeId(self.index())),
            Command::OpenForPod(open) => self.open_for_pod(open),
            Command::PodEnded(ended) => Ok(self.pod_ended(ended)),
            Command::RaiseLevel { level } => {
                let before = self.level();
                self.state.header.level = before.max(*level);
                // From here on the deadlines themselves judge blocks and idle names; a time that was
                // kept for 0.1.0 would still go into snapshots.
                if self.is_at(LEVEL_REPEATS) {
                    self.state.looks = Looks::default();
                }
                self.raise_versions();
                if before < LEVEL_RESTORE {
                    self.make_objects_of_held();
                }
                Ok(Outcome::Done)
            }
            Command::ChangeAccess(change) => self.change_access(change),
            Command::Adopt { session, secret } => self.adopt(*session, secret),
            // Judged before; the leader does the rest.
            Command::Operate { .. } => Ok(Outcome::Done),
            Command::WriteObject(write) => self.write_object(write),
            Command::Seed(seed) => self.seed(seed),
            // Only one caller asks.
            Command::Called(_) => Err(Rejection::NotReady),
        }
    }

    /// Opens a term. It does not move time: a leader's reading starts where this entry finds it,
    /// and every session that is alive now gets a fresh TTL before anything is judged.
    fn open_term(&mut self, term: u64, unix_seconds: Option<u64>) -> Outcome {
        let header = &mut self.state.header;
        header.term = term;
        header.term_start = header.time;
        // Clocks of two terms may disagree, so the counter is raised and never set.
        if header.token_floor.is_none()
            && let Some(seconds) = unix_seconds
            && seconds < UNIX_SECONDS_END
            && !(planted(Bug::TermDoesNotRaiseTokens) && header.cluster.is_some())
        {
            header.tokens.raise(seconds << FencingToken::CLOCK_SHIFT);
        }
        self.raise_versions();
        Outcome::Done
    }

    fn configure(&mut self, configure: &Configure) -> Result<Outcome, Rejection> {
        let set_at = self.settings_set_at();
        if configure.based_on != set_at {
            return Err(Rejection::StaleSettings { set_at });
        }
        let checked = configure.settings.check();
        checked.map_err(Rejection::InvalidSetting)?;
        self.changed_nothing = configure.settings == *self.settings();
        self.set(configure.settings);
        Ok(Outcome::Done)
    }

    pub(crate) fn set(&mut self, settings: Settings) {
        // Nodes of older releases read no factor of the Lease endpoint in the same entry.
        let known = self.is_at(LEVEL_OBJECTS);
        let header = &mut self.state.header;
        header.settings = Settings {
            lease_api_factor: match known {
                true => settings.lease_api_factor,
                false => Settings::STANDARD.lease_api_factor,
            },
            ..settings
        };
        header.settings_set_at = header.index;
    }

    /// The next cluster time at which something is due; at or before the present one
    /// means at once, with the next entry whatever it says.
    #[must_use]
    pub fn next_deadline(&self) -> Option<ClusterTime> {
        // Also where no lease waits for it: a quiet time is over only when an entry says so, and a cluster
        // without callers has no other.
        let quiet = self.header.quiet_until;
        let serving = (!self.unserved.is_empty() || quiet > self.time()).then_some(quiet);
        let forgetting = self.ended.oldest().map(|at| at.after(OPEN_AGE_MAX));
        let looks = (!self.is_at(LEVEL_REPEATS)).then_some(&self.looks);
        let due = self.deadlines.next(self.settings().idle_retention, looks);
        [due, serving, forgetting].into_iter().flatten().min()
    }

    /// How far the leader's reading of cluster time may run ahead of this state: a fifth of the
    /// shortest TTL of a living session, and at most [`LEAD_MAX`]. So a pause of the whole cluster,
    /// however long, takes at most a fifth of its TTL from any session.
    #[must_use]
    pub fn lead(&self) -> Millis {
        let shortest = self.ttls.least();
        let part = shortest.map_or(LEAD_MAX, |ttl| Millis(ttl.0 / LEAD_PART));
        part.min(LEAD_MAX)
    }
}
