//! Connections between two processes, and how each end learns that one is no more.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_raft::place;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{Net, SILENT_MAX};
use crate::lock::lock;
use crate::machine::{Machine, Process};

/// Which end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one that opened it.
    Caller,
    /// The one that was called.
    Callee,
}

impl Side {
    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Caller => Self::Callee,
            Self::Callee => Self::Caller,
        }
    }
}

/// Why nothing comes any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

/// An open connection, as long as a caller holds it.
pub struct Connection {
    net: Net,
    caller: End,
    callee: End,
    /// When the ends heard each other last.
    heard: Mutex<Duration>,
}

struct End {
    machine: Machine,
    process: Arc<Process>,
    /// Why it is broken, as far as this end knows.
    broken: Mutex<Option<String>>,
    told: Notify,
}

impl End {
    fn new(machine: Machine, process: Arc<Process>) -> Self {
        Self {
            machine,
            process,
            broken: Mutex::default(),
            told: Notify::new(),
        }
    }

    fn hear(&self, why: &str) -> bool {
        let is_first = {
            let mut broken = lock(&self.broken);
            let is_first = broken.is_none();
            broken.get_or_insert_with(|| why.to_owned());
            is_first
        };
        if is_first {
            self.told.notify_waiters();
        }
        is_first
    }
}

impl Net {
    /// Opens a connection from the process of one machine to that of another, which must have
    /// begun to serve there.
    ///
    /// # Errors
    /// [`Broken`] says why there is none: no process listens, or no answer came in time.
    pub async fn connect(
        &self,
        from: &Machine,
        to: &Machine,
        limit: Duration,
    ) -> Result<Arc<Connection>, Broken> {
        let callee = to.process();
        self.connect_to(from, to, callee, limit).await
    }

    pub(super) async fn connect_to(
        &self,
        from: &Machine,
        to: &Machine,
        callee: Arc<Process>,
        limit: Duration,
    ) -> Result<Arc<Connection>, Broken> {
        let caller = from.process();
        let shake_hands = async {
            self.travel(from.id(), to.id()).await;
            if !to.is_powered() {
                std::future::pending::<()>().await;
            }
            self.travel(to.id(), from.id()).await;
        };
        if tokio::time::timeout(limit, shake_hands).await.is_err() {
            return Err(Broken(format!("{} does not answer", to.name())));
        }
        if callee.is_dead() {
            return Err(Broken(format!("{} refuses the connection", to.name())));
        }
        let connection = Arc::new(Connection {
            net: self.clone(),
            caller: End::new(from.clone(), caller),
            callee: End::new(to.clone(), callee),
            heard: Mutex::new(self.now()),
        });
        let mut state = self.state();
        state.counts.opened += 1;
        state.connections.push(Arc::downgrade(&connection));
        Ok(connection)
    }
}

impl Connection {
    /// Runs a task in the process at one end.
    pub fn spawn<F>(&self, side: Side, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let end = self.end(side);
        place::spawn(&end.machine.place_of(&end.process), future)
    }

    /// The machine at one end.
    #[must_use]
    pub fn machine(&self, side: Side) -> &Machine {
        &self.end(side).machine
    }

    /// Closes it; the other end hears of it like of a process that ended.
    pub fn close(self: &Arc<Self>, side: Side) {
        self.end(side).hear("closed");
        self.tell(side.other());
    }

    /// Whether this end takes it for open.
    ///
    /// # Errors
    /// [`Broken`] says why it is none.
    pub fn whole_at(&self, side: Side) -> Result<(), Broken> {
        match &*lock(&self.end(side).broken) {
            None => Ok(()),
            Some(why) => Err(Broken(why.clone())),
        }
    }

    /// Returns once this end knows that it is broken.
    pub async fn broken_at(&self, side: Side) {
        let end = self.end(side);
        loop {
            let told = end.told.notified();
            if lock(&end.broken).is_some() {
                return;
            }
            told.await;
        }
    }

    pub(super) fn net(&self) -> &Net {
        &self.net
    }

    fn end(&self, side: Side) -> &End {
        match side {
            Side::Caller => &self.caller,
            Side::Callee => &self.callee,
        }
    }

    pub(super) fn process_ended(self: &Arc<Self>, process: &Process, power_lost: bool) {
        for side in [Side::Caller, Side::Callee] {
            if *self.end(side).process == *process {
                self.end(side).hear("the process ended");
                if !power_lost {
                    self.tell(side.other());
                }
            }
        }
    }

    /// A last packet on its way: it is over.
    fn tell(self: &Arc<Self>, side: Side) {
        let (from, to) = (self.machine(side.other()).id(), self.machine(side).id());
        let this = self.clone();
        let _detached = tokio::spawn(async move {
            this.net.travel(from, to).await;
            this.hear(side, "the other end closed the connection");
        });
    }

    fn hear(&self, side: Side, why: &str) {
        if self.end(side).hear(why) {
            self.net.state().counts.broken += 1;
        }
    }

    /// Breaks it where an end has been silent for too long.
    pub(super) fn look(self: &Arc<Self>) {
        let (a, b) = (&self.caller, &self.callee);
        let (from, to) = (a.machine.id(), b.machine.id());
        let cut = self.net.is_cut(from, to) || self.net.is_cut(to, from);
        let alive = |end: &End| !end.process.is_dead() && !end.machine.is_paused();
        if !cut && alive(a) && alive(b) {
            *lock(&self.heard) = self.net.now();
            return;
        }
        let silent = self.net.now().saturating_sub(*lock(&self.heard));
        // A machine that is back refuses what belongs to its former process.
        let reset = !cut && (a.process.is_dead() || b.process.is_dead());
        let reset = reset && a.machine.is_powered() && b.machine.is_powered();
        if silent >= SILENT_MAX || reset {
            self.hear(Side::Caller, "the other end does not answer");
            self.hear(Side::Callee, "the other end does not answer");
        }
    }
}
