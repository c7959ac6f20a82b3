//! A replica of a cluster's state without its node: the real state machine, fed from a log that
//! tests write by hand, as far as they let it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ringfence_core::{
    Acquire, Ask, ClusterId, ClusterTime, Command, Entry, FencingToken, Form, HolderData, Identity,
    LeaseName, Millis, Open, OpenId, Outcome, Request, RequestNumber, Secret, SessionId, Settings,
    StateMachine, WallTime,
};
use ringfence_kube::{LeaseSnapshot, Source, look};

/// A log of a cluster.
#[derive(Clone, Default)]
pub(crate) struct Log {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    entries: Vec<Entry>,
    /// Has applied all of them.
    newest: StateMachine,
}

impl Log {
    /// The log of a new cluster.
    pub(crate) fn begin() -> Self {
        let log = Self::default();
        let unix_seconds = Some(1_800_000_000);
        log.append(Command::TermStart { unix_seconds });
        log.append(Command::Form(Form {
            cluster: ClusterId::new([7; 16]),
            token_floor: None,
            settings: Settings::STANDARD,
            mode: ringfence_core::Mode::Off,
            quiet_time: Millis(0),
            restored: None,
        }));
        log
    }

    fn append(&self, command: Command) -> Outcome {
        let mut shared = self.shared.lock().unwrap();
        let index = shared.entries.len() as u64 + 1;
        let entry = Entry {
            index,
            term: 1,
            time: ClusterTime(index * 10),
            wall: WallTime(1_800_000_000_000 + index * 10),
            command,
        };
        let outcome = shared.newest.apply(&entry, &mut Vec::new());
        shared.entries.push(entry);
        outcome
    }

    /// Opens a session that is granted a lease at once.
    pub(crate) fn grant(&self, identity: &str, lease: &str) -> Held {
        let name = LeaseName::parse(lease).unwrap();
        let secret = Secret::new(rand::random());
        let outcome = self.append(Command::Open(Open {
            id: OpenId::new(rand::random()),
            secret,
            seen: None,
            ttl: Millis::from_secs(60),
            identity: Identity::parse(identity).unwrap(),
            acquire: Some(Acquire {
                name: name.clone(),
                wait: None,
                data: HolderData::default(),
                lock_delay: Millis(0),
            }),
        }));
        let newest = self.shared.lock().unwrap().newest.get(&name);
        let holder = newest.and_then(|lease| lease.holder);
        let holder = holder.unwrap_or_else(|| panic!("not granted: {outcome:?}"));
        assert_eq!(holder.identity.as_str(), identity);
        Held {
            log: self.clone(),
            name,
            secret,
            session: holder.session,
            token: holder.token,
        }
    }

    /// A replica that has applied nothing yet.
    pub(crate) fn replica(&self) -> Replica {
        Replica {
            log: self.clone(),
            inner: Arc::new(Inner {
                machine: Mutex::new(StateMachine::new()),
                cut_off: AtomicBool::new(false),
                asked: AtomicUsize::new(0),
            }),
        }
    }
}

/// A lease that a session of a log holds.
pub(crate) struct Held {
    log: Log,
    name: LeaseName,
    secret: Secret,
    session: SessionId,
    pub(crate) token: FencingToken,
}

impl Held {
    pub(crate) fn release(self) {
        let number = RequestNumber::new(2).unwrap();
        let outcome = self.log.append(Command::Request(Request {
            session: self.session,
            secret: self.secret,
            number,
            lowest: number,
            ask: Ask::Release {
                name: self.name,
                token: self.token,
                close: false,
            },
        }));
        assert!(!matches!(outcome, Outcome::Rejected(_)), "{outcome:?}");
    }
}

/// One node's view.
#[derive(Clone)]
pub(crate) struct Replica {
    log: Log,
    inner: Arc<Inner>,
}

struct Inner {
    machine: Mutex<StateMachine>,
    /// No node confirms anything to it.
    cut_off: AtomicBool,
    /// How often it asked.
    asked: AtomicUsize,
}

impl Replica {
    /// Applies everything that is in the log now.
    pub(crate) fn catch_up(&self) {
        let log = self.log.shared.lock().unwrap();
        let mut machine = self.inner.machine.lock().unwrap();
        for entry in &log.entries {
            if entry.index > machine.index() {
                machine.apply(entry, &mut Vec::new());
            }
        }
    }

    pub(crate) fn cut_off(&self, cut_off: bool) {
        self.inner.cut_off.store(cut_off, Ordering::SeqCst);
    }

    pub(crate) fn asked(&self) -> usize {
        self.inner.asked.load(Ordering::SeqCst)
    }
}

impl Source for Replica {
    fn look(&self, lease: &LeaseName) -> Option<LeaseSnapshot> {
        look(&self.inner.machine.lock().unwrap(), lease)
    }

    fn names(&self, prefix: &str) -> Vec<LeaseName> {
        let machine = self.inner.machine.lock().unwrap();
        machine.list(prefix, None).map(|lease| lease.name).collect()
    }

    async fn confirm(&self) -> bool {
        self.inner.asked.fetch_add(1, Ordering::SeqCst);
        let confirmed = !self.inner.cut_off.load(Ordering::SeqCst);
        if confirmed {
            self.catch_up();
        }
        confirmed
    }
}
