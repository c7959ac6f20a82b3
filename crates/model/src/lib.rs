//! A naive reference model of the state machine, written from the contract: plain vectors, scans
//! for everything, nothing lazy and nothing indexed. What it answers is what the real one must
//! answer, entry by entry.
//!
//! It knows no budgets: one entry ends everything that is due and serves every queue. Histories
//! that stay below the budgets must agree exactly; others agree once enough entries have passed.

mod clock;
mod forming;
mod judging;
mod leases;
mod objects;
mod requests;
pub mod rights;
mod sessions;

use ringfence_core::snapshot::{Answer, GrantRecord, RevokedHolder, WaiterRecord};
use ringfence_core::{
    Ask, Caller, ClusterId, ClusterTime, Command, Configure, Entry, Event, FencingToken, Identity,
    LeaseName, LostGrant, Millis, OpenId, Outcome, Pod, Principal, Rejection, RequestNumber,
    Secret, SessionEnd, SessionId, Settings, Summary, WallTime,
};

use forming::Lacks;
use objects::Objects;
use rights::Rights;

/// A clock that shows this many seconds or more would raise tokens above 2^53.
const UNIX_SECONDS_END: u64 = 1 << 33;

/// The reference model.
#[derive(Clone, Debug)]
pub struct Model {
    cluster: Option<ClusterId>,
    level: u32,
    token_floor: Option<u64>,
    settings: Settings,
    settings_set_at: u64,
    index: u64,
    term: u64,
    term_start: ClusterTime,
    time: ClusterTime,
    wall: WallTime,
    counter: u64,
    next_session: u64,
    next_place: u64,
    next_turn: u64,
    forgotten: Option<FencingToken>,
    quiet_until: ClusterTime,
    /// The parts of a restored state that are still to come.
    lacks: Option<Lacks>,
    /// In the order in which they were opened.
    sessions: Vec<Session>,
    ended: Vec<EndedSession>,
    /// In the order of their names.
    leases: Vec<Lease>,
    rights: Rights,
    objects: Objects,
    /// Who asks for the present entry, if that was proven.
    caller: Option<Caller>,
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
struct Session {
    id: SessionId,
    open: OpenId,
    secret: Secret,
    identity: Identity,
    /// Who opened it, if that was proven.
    owner: Option<Principal>,
    ttl: Millis,
    seen: ClusterTime,
    lowest: RequestNumber,
    answers: Vec<Kept>,
    lost: Vec<LostGrant>,
    /// Bound to it, and without a TTL.
    pod: Option<Pod>,
}

/// A remembered answer; no ask if the number was voided before it came.
#[derive(Clone, Debug)]
struct Kept {
    number: RequestNumber,
    ask: Option<Ask>,
    answer: Answer,
}

#[derive(Clone, Debug)]
struct EndedSession {
    id: SessionId,
    open: OpenId,
    secret: Secret,
    cause: SessionEnd,
    at: ClusterTime,
    owner: Option<Principal>,
    /// The release that closed it: its number, what it asked, and the token that it gave back.
    released: Option<(RequestNumber, Ask, FencingToken)>,
}

/// Why a lease that no session holds or waits for is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Until then no session is granted it.
    Blocked(ClusterTime),
    /// No session has used it since.
    Idle(ClusterTime),
}

#[derive(Clone, Debug)]
struct Lease {
    name: LeaseName,
    floor: Option<FencingToken>,
    grant: Option<GrantRecord>,
    /// Set while the lock-delay of a dirty end runs.
    lock_delay_until: Option<ClusterTime>,
    /// Set while a holder that lost it may not know.
    unaware: Option<RevokedHolder>,
    idle_since: ClusterTime,
    /// As it was when `look_at` was set.
    rest: Option<Rest>,
    /// When members that know no repeats look whether that is over. A change of the retention does not
    /// move it.
    look_at: Option<ClusterTime>,
    /// The newest grant that was revoked.
    revoked: Option<FencingToken>,
    /// Whose session used it last, or whose grant has left its block; means nothing while it is held,
    /// nor while it is not blocked and a session waits.
    last_of: Option<Principal>,
    /// Whether its loss counts for that principal already.
    loss_counts: bool,
    queue: Vec<WaiterRecord>,
    /// Whose turn it is among the free leases that a session waits for.
    turn: Option<u64>,
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// The empty state.
    #[must_use]
    pub fn new() -> Self {
        Self {
            cluster: None,
            level: 1,
            token_floor: None,
            settings: Settings::STANDARD,
            settings_set_at: 0,
            index: 0,
            term: 0,
            term_start: ClusterTime(0),
            time: ClusterTime(0),
            wall: WallTime(0),
            counter: 0,
            next_session: 1,
            next_place: 1,
            next_turn: 1,
            forgotten: None,
            quiet_until: ClusterTime(0),
            lacks: None,
            sessions: Vec::new(),
            ended: Vec::new(),
            leases: Vec::new(),
            rights: Rights::default(),
            objects: Objects::default(),
            caller: None,
            events: Vec::new(),
        }
    }

    /// Grants nothing before `until`, as after a restore.
    pub fn keep_quiet(&mut self, until: ClusterTime) {
        self.quiet_until = until;
    }

    /// Cluster time.
    #[must_use]
    pub fn time(&self) -> ClusterTime {
        self.time
    }

    /// Figures about the whole, as the state machine tells them.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let waiters = self.leases.iter().map(|lease| lease.queue.len() as u64);
        let floors = self.leases.iter().map(|lease| lease.floor);
        let greatest = floors.max().flatten().max(self.forgotten);
        Summary {
            time: self.time,
            sessions: self.sessions.len() as u64,
            leases: self.leases.len() as u64,
            held: self.holders().count() as u64,
            waiters: waiters.sum(),
            last_token: greatest.map_or(0, FencingToken::get),
            forgotten: self.forgotten,
            quiet: self.quiet_until.since(self.time),
            level: self.level,
        }
    }

    /// Whether every member makes room in a full table, answers repeats as the first try, and forgets
    /// idle names last and by the retention in force.
    fn knows_repeats(&self) -> bool {
        self.level >= 3
    }

    /// Whether every member counts a name for the principal that used it last.
    fn counts_idle_names(&self) -> bool {
        self.level >= 6
    }

    /// How far the leader's reading may run ahead: a second, and a fifth of every TTL.
    #[must_use]
    pub fn lead(&self) -> Millis {
        let bounded = self.sessions.iter().filter(|session| session.pod.is_none());
        let parts = bounded.map(|session| Millis(session.ttl.0 / 5));
        parts.chain([Millis(1_000)]).min().expect("there is one")
    }

    /// Who holds what, in the order of the names.
    pub fn holders(&self) -> impl Iterator<Item = (&LeaseName, SessionId)> {
        self.leases.iter().filter_map(|lease| {
            let grant = lease.grant.as_ref()?;
            Some((&lease.name, grant.session))
        })
    }

    /// Applies the next entry; the answer, and what changed.
    pub fn apply(&mut self, entry: &Entry) -> (Outcome, Vec<Event>) {
        self.index = entry.index;
        let outcome = self.outcome(entry);
        (outcome, std::mem::take(&mut self.events))
    }

    fn outcome(&mut self, entry: &Entry) -> Outcome {
        if let Command::TermStart { unix_seconds } = entry.command
            && entry.term > self.term
        {
            self.open_term(entry, unix_seconds);
            return Outcome::Done;
        }
        let forms = self.cluster.is_some() || matches!(entry.command, Command::Form(_));
        if entry.term != self.term || entry.term == 0 || !forms {
            return Outcome::Rejected(Rejection::NotReady);
        }
        if self.lacks.is_some() && judging::comes_from_a_client(&entry.command) {
            return Outcome::Rejected(Rejection::NotReady);
        }
        self.time = self.time.max(entry.time);
        self.wall = self.wall.max(entry.wall);
        self.end_due();
        let outcome = self.called(&entry.command);
        self.caller = None;
        self.serve();
        self.remove_freed_objects();
        outcome
    }

    /// Opens a term. Time stands still, and nothing is judged: each living session gets a fresh
    /// TTL.
    fn open_term(&mut self, entry: &Entry, unix_seconds: Option<u64>) {
        self.term = entry.term;
        self.term_start = self.time;
        self.wall = self.wall.max(entry.wall);
        if let (Some(seconds), None) = (unix_seconds, self.token_floor)
            && seconds < UNIX_SECONDS_END
        {
            self.counter = self.counter.max(seconds << 20);
        }
        self.raise_versions();
    }

    fn carry_out(&mut self, command: &Command) -> Outcome {
        match command {
            Command::Form(form) => match self.form(form) {
                Ok(()) => Outcome::Done,
                Err(refused) => Outcome::Rejected(refused),
            },
            // A term is opened once.
            Command::TermStart { .. } | Command::Tick => Outcome::Done,
            Command::Configure(configure) => self.configure(configure),
            Command::Open(open) => self.open(open),
            Command::Request(request) => self.request(request),
            Command::Close { session, secret } => self.close(*session, secret),
            Command::Renew(renew) => self.renew(renew),
            Command::Revoke(revoke) => self.revoke(revoke),
            Command::Evict(evict) => self.evict(evict),
            Command::DrawNodeId => Outcome::NodeId(self.index),
            Command::OpenForPod(open) => self.open_for_pod(open),
            Command::PodEnded(ended) => self.pod_ended(ended),
            Command::RaiseLevel { level } => {
                let before = self.level;
                self.level = self.level.max(*level);
                self.raise_versions();
                self.make_objects_of_held(before);
                Outcome::Done
            }
            Command::ChangeAccess(change) => match self.change_access(change) {
                Ok(outcome) => outcome,
                Err(refused) => Outcome::Rejected(refused),
            },
            Command::Adopt { session, secret } => match self.adopt(*session, secret) {
                Ok(()) => Outcome::Done,
                Err(refused) => Outcome::Rejected(refused),
            },
            Command::Operate { .. } => Outcome::Done,
            Command::WriteObject(write) => self.write_object(write),
            Command::Seed(seed) => match self.seed(seed) {
                Ok(()) => Outcome::Done,
                Err(refused) => Outcome::Rejected(refused),
            },
            Command::Called(_) => Outcome::Rejected(Rejection::NotReady),
        }
    }

    fn configure(&mut self, configure: &Configure) -> Outcome {
        if configure.based_on != self.settings_set_at {
            let set_at = self.settings_set_at;
            return Outcome::Rejected(Rejection::StaleSettings { set_at });
        }
        if let Err(invalid) = configure.settings.check() {
            return Outcome::Rejected(Rejection::InvalidSetting(invalid));
        }
        self.set(configure.settings);
        Outcome::Done
    }

    fn set(&mut self, settings: Settings) {
        self.settings = settings;
        if self.level < 5 {
            // Older releases read no factor.
            self.settings.lease_api_factor = Settings::STANDARD.lease_api_factor;
        }
        self.settings_set_at = self.index;
    }
}
