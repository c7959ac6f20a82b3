//! Callers that acquire, check and release without end, and sessions that are kept alive; what they
//! saw goes into a journal.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_proto::v1::Reason;
use tokio::task::JoinHandle;

use crate::{Act, Caller, Cluster, Failure, Journal, Session};

/// Running callers; [`finish`](Load::finish) judges them.
pub struct Load {
    stop: Arc<AtomicBool>,
    journal: Arc<Mutex<Journal>>,
    wrong: Arc<Mutex<Vec<String>>>,
    keep_alives: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

/// How the load of one test looks.
#[derive(Clone, Copy)]
pub struct Shape {
    /// How many callers, each with a session of its own.
    pub callers: usize,
    /// How many names `load/N` they share.
    pub leases: usize,
    /// The TTL of each session.
    pub ttl: Duration,
    /// How long the cluster may leave a caller without an answer.
    pub patience: Duration,
}

#[derive(Clone)]
struct Worker {
    caller: Caller,
    session: Arc<Session>,
    stop: Arc<AtomicBool>,
    journal: Arc<Mutex<Journal>>,
    wrong: Arc<Mutex<Vec<String>>>,
    keep_alives: Arc<AtomicU64>,
}

impl Load {
    /// Opens the sessions and starts the callers.
    ///
    /// # Panics
    /// If a session cannot be opened.
    pub async fn start(cluster: &Cluster, shape: Shape) -> Self {
        let mut load = Self {
            stop: Arc::default(),
            journal: Arc::default(),
            wrong: Arc::default(),
            keep_alives: Arc::default(),
            tasks: Vec::new(),
        };
        for at in 0..shape.callers {
            let mut caller = cluster.caller();
            caller.patience = shape.patience;
            let session = caller
                .open(&format!("worker-{at}"), shape.ttl)
                .await
                .expect("a session can be opened");
            let worker = Worker {
                caller,
                session: Arc::new(session),
                stop: load.stop.clone(),
                journal: load.journal.clone(),
                wrong: load.wrong.clone(),
                keep_alives: load.keep_alives.clone(),
            };
            load.tasks.push(tokio::spawn(worker.clone().keep_alive()));
            load.tasks.push(tokio::spawn(
                worker.work(format!("load/{}", at % shape.leases)),
            ));
        }
        load
    }

    /// How many grants were seen so far.
    ///
    /// # Panics
    /// If a caller has panicked.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.journal.lock().expect("no caller has panicked").len()
    }

    /// Waits for so many more grants.
    ///
    /// # Panics
    /// If they do not come in time.
    pub async fn progress(&self, more: usize, within: Duration) {
        let wanted = self.grants() + more;
        let wait = async {
            while self.grants() < wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let arrived = tokio::time::timeout(within, wait).await;
        let (grants, wrong) = (
            self.grants(),
            self.wrong.lock().expect("no caller has panicked"),
        );
        assert!(
            arrived.is_ok(),
            "{grants} of {wanted} grants after {within:?}; {wrong:?}"
        );
    }

    /// Stops the callers and checks what they saw.
    ///
    /// # Panics
    /// If a promise was broken.
    pub async fn finish(self) -> Journal {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("no caller has panicked");
        }
        let wrong = std::mem::take(&mut *self.wrong.lock().expect("no caller has panicked"));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let journal = std::mem::take(&mut *self.journal.lock().expect("no caller has panicked"));
        if let Err(contradiction) = journal.check() {
            panic!("{contradiction}");
        }
        let keep_alives = self.keep_alives.load(Ordering::Relaxed);
        println!(
            "{} grants and {keep_alives} keep-alives seen, all as promised",
            journal.len()
        );
        journal
    }
}

impl Worker {
    fn running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn complain(&self, what: impl Into<String>) {
        self.wrong
            .lock()
            .expect("no caller has panicked")
            .push(what.into());
    }

    /// A session that is kept alive never ends (I7).
    async fn keep_alive(self) {
        while self.running() {
            match self.caller.keep_alive(&self.session).await {
                Ok(reply) if reply.ended.is_empty() && reply.lost.is_empty() => {
                    self.keep_alives.fetch_add(1, Ordering::Relaxed);
                }
                Ok(reply) => return self.complain(format!("a session ended early: {reply:?}")),
                Err(failure) => return self.complain(format!("keep-alive: {failure:?}")),
            }
            tokio::time::sleep(self.session.ttl / 5).await;
        }
    }

    async fn work(self, name: String) {
        while self.running() {
            if let Err(what) = self.cycle(&name).await {
                return self.complain(format!("{name}: {what}"));
            }
        }
    }

    /// Acquires, checks, releases. Each request is repeated until it is answered; an answer that
    /// contradicts an earlier one is an error.
    async fn cycle(&self, name: &str) -> Result<(), String> {
        let (caller, session) = (&self.caller, &self.session);
        let (number, invoked) = (session.number(), Journal::now());
        let wait = Some(Duration::from_secs(5));
        let grant = match caller.acquire(session, number, name, wait).await {
            Ok(grant) => grant,
            Err(failure) if failure.reason() == Some(Reason::WaitTimeout) => return Ok(()),
            Err(failure) => return Err(format!("acquire: {failure:?}")),
        };
        let answered = Journal::now();
        let verdict = caller.check(name, grant.token).await;
        let verdict = verdict.map_err(|failure| format!("check: {failure:?}"))?;
        if verdict.verdict != 1 {
            return Err(format!("token {} is not current: {verdict:?}", grant.token));
        }
        let released = Journal::now();
        let number = session.number();
        let release = caller.release(session, number, name, grant.token).await;
        let (name, token) = (name.to_owned(), grant.token);
        let act = Act {
            name,
            token,
            invoked,
            answered,
            released: Some(released),
        };
        self.journal
            .lock()
            .expect("no caller has panicked")
            .add(act);
        release.map_err(|failure: Failure| format!("release of token {token}: {failure:?}"))
    }
}
