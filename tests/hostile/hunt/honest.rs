//! The honest: principals with rules of their own, whose sessions live as long as the hunt. They keep
//! some leases, pass others on, and write through guards; what they saw is a history for both checkers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_check::Recording;
use ringfence_check::history::{
    Acquire, Admission, Checked, Guard as Visit, GuardAct, Header, Invoked, KeepAlive, Op, Outcome,
    Record, Returned,
};
use ringfence_core::{Fence, FencingToken, LeaseName};
use ringfence_guard::Guard;
use ringfence_proto::v1::{Lease, Reason};
use ringfence_tests::{Caller, Failure, Journal, Session};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::bandit::OWN;
use super::figures::Figures;
use super::known::{HIDDEN, Stolen, UNSEEN};

/// The TTL of their sessions: an election of a starved cluster takes a few seconds.
const TTL: Duration = Duration::from_secs(20);
/// How long a request may be repeated: some waits that a fault broke off, and a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long they wait for a lease.
const WAIT: Duration = Duration::from_secs(30);
/// Between two requests of one of them.
const REST: Duration = Duration::from_millis(60);
/// A node that was started a moment ago may not know a token yet, and says so; then another is asked.
const UNKNOWN_HERE: Duration = Duration::from_millis(100);
const UNKNOWN_HERE_MAX: usize = 100;

/// The honest population.
pub(super) struct Honest {
    stop: Arc<AtomicBool>,
    history: Arc<History>,
    people: Vec<Arc<Person>>,
    tasks: JoinSet<()>,
}

/// What all of them saw.
#[derive(Default)]
struct History {
    records: Mutex<Vec<Record>>,
    operations: AtomicU64,
    commits: AtomicU64,
    grants: AtomicU64,
    keep_alives: AtomicU64,
}

struct Person {
    caller: Caller,
    client: u32,
    session: Session,
    figures: Arc<Figures>,
    history: Arc<History>,
    stop: Arc<AtomicBool>,
    /// Whether what it sees is recorded: the leases of the mate are also hostile clients' to take.
    recorded: bool,
}

/// Nanoseconds of the recorder's clock.
fn now() -> u64 {
    u64::try_from(Journal::now().as_nanos()).unwrap()
}

impl Honest {
    /// Opens sessions of these callers, the last of which shares the rule of hostile clients, and lets
    /// them work.
    pub(super) async fn start(callers: Vec<Caller>, figures: &Arc<Figures>) -> Self {
        let (stop, history) = (Arc::default(), Arc::<History>::default());
        let mut people = Vec::new();
        let last = callers.len() - 1;
        for (at, mut caller) in callers.into_iter().enumerate() {
            caller.patience = PATIENCE;
            caller.try_for = Duration::from_secs(3);
            let client = u32::try_from(at).unwrap() + 1;
            let identity = match at == last {
                true => "mate".to_owned(),
                false => format!("{UNSEEN}-{at}"),
            };
            let begun = now();
            let session = again(figures, || caller.open(&identity, TTL)).await;
            let session = session.expect("an honest session is opened");
            let person = Person {
                caller,
                client,
                session,
                figures: Arc::clone(figures),
                history: Arc::clone(&history),
                stop: Arc::clone(&stop),
                recorded: at != last,
            };
            let id: String = person
                .session
                .open_id
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect();
            let ttl_ms = TTL.as_millis() as u64;
            let opened = Outcome::Opened {
                session: person.session.handle.session,
                ttl_ms,
                acquired: None,
            };
            let open = Op::Open {
                ttl_ms,
                open_id: Some(id),
                acquire: None,
            };
            person.operation(begun, None, open, opened);
            people.push(Arc::new(person));
        }
        let mut tasks = JoinSet::new();
        let shared = Arc::new(Guard::new(
            LeaseName::parse(&format!("{HIDDEN}/shared")).unwrap(),
        ));
        for (at, person) in people.iter().enumerate() {
            tasks.spawn(Arc::clone(person).keep_alive());
            let guard = person.recorded.then(|| Arc::clone(&shared));
            tasks.spawn(Arc::clone(person).work(at, guard));
        }
        Self {
            stop,
            history,
            people,
            tasks,
        }
    }

    /// What hostile clients have overheard.
    pub(super) fn stolen(&self) -> Vec<Stolen> {
        let people = self.people.iter();
        let stolen = people.map(|person| Stolen {
            handle: person.session.handle.clone(),
            open_id: person.session.open_id.clone().into(),
        });
        stolen.collect()
    }

    /// Grants and keep-alives so far.
    pub(super) fn progress(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.history.grants), of(&self.history.keep_alives))
    }

    /// Lets them finish what they do; the history.
    pub(super) async fn finish(mut self, seed: u64) -> Recording {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no honest client has panicked");
        }
        let mut header = Header::new("hunt");
        header.seed = Some(seed);
        let records = std::mem::take(&mut *self.history.records.lock().unwrap());
        Recording::of(header, records).expect("a recorder writes a history")
    }
}

/// Asks again while a node says that it does not know who asks: it says that of this try.
async fn again<T, F>(figures: &Figures, mut ask: impl FnMut() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    for _ in 0..UNKNOWN_HERE_MAX {
        match ask().await {
            Err(failure) if failure.reason() == Some(Reason::Unauthenticated) => {
                figures.count("honest: not known at a node", "asked again");
                sleep(UNKNOWN_HERE).await;
            }
            done => return done,
        }
    }
    ask().await
}

impl Person {
    fn running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn add(&self, record: Record) {
        if self.recorded {
            self.history.records.lock().unwrap().push(record);
        }
    }

    fn operation(&self, begun: u64, request: Option<u64>, op: Op, outcome: Outcome) {
        let id = self.history.operations.fetch_add(1, Ordering::Relaxed) + 1;
        let session = (!matches!(op, Op::Open { .. } | Op::Get { .. } | Op::Check { .. }))
            .then_some(self.session.handle.session);
        self.add(Record::Invoked(Invoked {
            id,
            t: begun,
            client: self.client,
            session,
            request,
            op,
        }));
        self.add(Record::Returned(Returned {
            id,
            t: now(),
            outcome,
            index: None,
        }));
    }

    fn wrong(&self, what: &str) {
        self.figures
            .found(&format!("honest client {}: {what}", self.client));
    }

    /// A session that is kept alive never ends, whatever others do.
    async fn keep_alive(self: Arc<Self>) {
        while self.running() {
            let sent = now();
            let kept = again(&self.figures, || self.caller.keep_alive(&self.session)).await;
            match kept {
                Ok(reply) if reply.ended.is_empty() && reply.lost.is_empty() => {
                    if reply.untold.is_empty() {
                        self.history.keep_alives.fetch_add(1, Ordering::Relaxed);
                        self.add(Record::KeepAlive(KeepAlive {
                            client: self.client,
                            session: self.session.handle.session,
                            sent,
                            acked: now(),
                            ttl_ms: TTL.as_millis() as u64,
                        }));
                    }
                }
                other => return self.wrong(&format!("keep-alive: {other:?}")),
            }
            sleep(TTL / 10).await;
        }
    }

    /// Keeps one lease, and passes another on.
    async fn work(self: Arc<Self>, at: usize, guard: Option<Arc<Guard>>) {
        let kept = match self.recorded {
            true => format!("{HIDDEN}/held-{at}"),
            false => format!("{OWN}kept-by-mate"),
        };
        let shared = match self.recorded {
            true => format!("{HIDDEN}/shared"),
            false => format!("{OWN}mate"),
        };
        let worked = async {
            let token = self.acquire(&kept).await?;
            let mut last = None;
            while self.running() {
                self.still_holds(&kept, token).await?;
                if let Some(passed) = self.pass_on(&shared, guard.as_deref(), last).await? {
                    last = Some(passed);
                }
                sleep(REST).await;
            }
            self.still_holds(&kept, token).await?;
            self.release(&kept, token).await
        };
        if let Err(wrong) = worked.await {
            self.wrong(&wrong);
        }
    }

    async fn acquire(&self, name: &str) -> Result<u64, String> {
        match self.try_acquire(name).await? {
            Some(token) => Ok(token),
            None => Err(format!("{name} was not granted in {WAIT:?}")),
        }
    }

    /// The token; `None` if the wait is over.
    async fn try_acquire(&self, name: &str) -> Result<Option<u64>, String> {
        let (begun, number) = (now(), self.session.number());
        let ask = || self.caller.acquire(&self.session, number, name, Some(WAIT));
        let (outcome, token) = match again(&self.figures, ask).await {
            Ok(grant) => {
                let token = grant.token;
                (Outcome::Granted { token }, Some(token))
            }
            Err(failure) if failure.reason() == Some(Reason::WaitTimeout) => {
                (Outcome::TimedOut, None)
            }
            Err(failure) => return Err(format!("acquire {name}: {failure:?}")),
        };
        let acquire = Acquire {
            lease: name.to_owned(),
            wait_ms: Some(WAIT.as_millis() as u64),
            lock_delay_ms: 0,
        };
        self.operation(begun, Some(number), Op::Acquire(acquire), outcome);
        Ok(token)
    }

    async fn release(&self, name: &str, token: u64) -> Result<(), String> {
        let (begun, number) = (now(), self.session.number());
        let ask = || self.caller.release(&self.session, number, name, token);
        let released = again(&self.figures, ask).await;
        released.map_err(|failure| format!("release of {name}#{token}: {failure:?}"))?;
        let release = Op::Release {
            lease: name.to_owned(),
            token,
            close: false,
        };
        self.operation(begun, Some(number), release, Outcome::Released);
        Ok(())
    }

    /// Its grant is in force, by both reads.
    async fn still_holds(&self, name: &str, token: u64) -> Result<(), String> {
        let begun = now();
        let got = again(&self.figures, || self.caller.get(name)).await;
        let lease: Lease = match got {
            Ok(Some(lease)) => lease,
            other => return Err(format!("get {name}: {other:?}")),
        };
        let holder = lease.holder.as_ref();
        let get = Op::Get {
            lease: name.to_owned(),
        };
        let outcome = Outcome::Lease {
            session: holder.map(|grant| grant.session),
            token: holder.map(|grant| grant.token),
            waiters: Some(lease.waiters),
        };
        self.operation(begun, None, get, outcome);
        if holder.is_none_or(|grant| grant.token != token) {
            return Err(format!("{name}#{token} is held no more: {holder:?}"));
        }
        let begun = now();
        let checked = again(&self.figures, || self.caller.check(name, token)).await;
        let checked = checked.map_err(|failure| format!("check {name}: {failure:?}"))?;
        if checked.verdict != 1 {
            return Err(format!("{name}#{token} is not current: {checked:?}"));
        }
        let check = Op::Check {
            lease: name.to_owned(),
            token,
        };
        self.operation(begun, None, check, Outcome::Checked(Checked::Current));
        Ok(())
    }

    /// Acquires, writes through the guard, releases; then writes once more with the token of its grant
    /// before, as a stale holder would. The token.
    async fn pass_on(
        &self,
        name: &str,
        guard: Option<&Guard>,
        last: Option<u64>,
    ) -> Result<Option<u64>, String> {
        let Some(token) = self.try_acquire(name).await? else {
            return Ok(None);
        };
        self.history.grants.fetch_add(1, Ordering::Relaxed);
        if let Some(guard) = guard {
            self.visit(guard, token, GuardAct::Advance);
            self.visit(guard, token, GuardAct::Write);
            if let Some(last) = last {
                self.visit(guard, last, GuardAct::Write);
            }
        }
        self.release(name, token).await?;
        Ok(Some(token))
    }

    fn visit(&self, guard: &Guard, token: u64, act: GuardAct) {
        let fence = Fence::new(guard.name().clone(), FencingToken::new(token).unwrap());
        let begin = now();
        let commits = &self.history.commits;
        let visited = guard.with(&fence, || commits.fetch_add(1, Ordering::SeqCst));
        let (commit, admission) = match visited {
            Ok(commit) => (Some(commit), Admission::Admitted),
            Err(ringfence_guard::Refused::StaleToken { mark, .. }) => {
                self.figures.count("honest: stale writes", "refused");
                (None, Admission::Refused { mark: mark.get() })
            }
            Err(refused) => return self.wrong(&format!("guard: {refused}")),
        };
        self.add(Record::Guard(Visit {
            store: "memory".to_owned(),
            client: self.client,
            lease: guard.name().to_string(),
            token,
            act,
            begin,
            end: now(),
            commit,
            admission,
            value: None,
            guarded: true,
        }));
    }
}
