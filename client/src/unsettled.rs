//! What this client has given up, but the cluster may still grant it: releases and cancels that are
//! under way, and grants that were lost here first.
//!
//! An acquire of a name waits until what is unsettled of that name is settled: requests in flight
//! together have no order, so it could overtake the release, and new work must have a new token.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use ringfence_core::{FencingToken, LeaseName, SessionId};
use tokio::sync::Notify;

use crate::clock::Moment;
use crate::error::CallError;
use crate::liveness::Liveness;
use crate::settle::{self, Work};
use crate::sync::lock;

/// The most that is remembered. What is forgotten is granted until its session ends.
const ENDINGS_MAX: usize = 65_536;

/// What is to be ended at the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A grant.
    Grant(FencingToken),
    /// An acquire with this request number, whatever became of it.
    Request(u64),
}

/// How far an ending is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nobody works on it.
    Idle,
    /// Somebody does.
    Running,
    /// The cluster has answered.
    Done,
}

/// Something to be ended.
pub(crate) struct Ending {
    pub(crate) session: Arc<Liveness>,
    pub(crate) name: LeaseName,
    pub(crate) what: What,
    stage: Mutex<Stage>,
    moved: Notify,
}

/// All of a client's endings, by name.
#[derive(Default)]
pub(crate) struct Unsettled {
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    endings: HashMap<LeaseName, Vec<Arc<Ending>>>,
    count: usize,
}

impl Unsettled {
    #[cfg(feature = "sim")]
    pub(crate) fn forget(&self) {
        let names = std::mem::take(&mut *lock(&self.names));
        drop(names);
    }

    /// Remembers that a grant was lost here that the cluster may still grant.
    pub(crate) fn note_release(
        &self,
        session: &Arc<Liveness>,
        name: &LeaseName,
        token: FencingToken,
    ) -> Arc<Ending> {
        self.add(session, name, What::Grant(token), Stage::Idle)
    }

    /// Remembers an ending that the caller is about to work on.
    pub(crate) fn begin(
        &self,
        session: &Arc<Liveness>,
        name: &LeaseName,
        what: What,
    ) -> Arc<Ending> {
        self.add(session, name, what, Stage::Running)
    }

    fn add(
        &self,
        session: &Arc<Liveness>,
        name: &LeaseName,
        what: What,
        stage: Stage,
    ) -> Arc<Ending> {
        let ending = Arc::new(Ending {
            session: Arc::clone(session),
            name: name.clone(),
            what,
            stage: Mutex::new(stage),
            moved: Notify::new(),
        });
        let mut names = lock(&self.names);
        if names.count < ENDINGS_MAX {
            names.count += 1;
            names
                .endings
                .entry(name.clone())
                .or_default()
                .push(Arc::clone(&ending));
        }
        ending
    }

    /// The session is known to have ended: nothing of it is granted any more.
    pub(crate) fn session_over(&self, session: SessionId) {
        let mut names = lock(&self.names);
        names.retain(|ending| ending.session.id() != session);
    }

    /// An attachment to a session is over: what it has begun is left to the session's end.
    pub(crate) fn left(&self, key: u64) {
        let mut names = lock(&self.names);
        names.retain(|ending| ending.session.key() != key);
    }

    /// What an attachment to a session has begun to end, and the cluster has not answered.
    pub(crate) fn of(&self, key: u64) -> Vec<Arc<Ending>> {
        let names = lock(&self.names);
        let endings = names.endings.values().flatten();
        let theirs = endings.filter(|ending| ending.session.key() == key);
        theirs.cloned().collect()
    }

    /// The work on an ending is over.
    pub(crate) fn finish(&self, ending: &Arc<Ending>, settled: bool) {
        if settled {
            let mut names = lock(&self.names);
            names.remove(ending);
        }
        *lock(&ending.stage) = if settled { Stage::Done } else { Stage::Idle };
        ending.moved.notify_waiters();
    }

    /// Waits until nothing of `name` is unsettled, and works on what nobody works on.
    pub(crate) async fn settle(&self, name: &LeaseName, deadline: Moment) -> Result<(), CallError> {
        while let Some(ending) = self.first(name) {
            let in_time = ending.settle_once(deadline).await;
            if !in_time && !ending.is_done() {
                let why = format!("an earlier grant or request of {name} is not settled yet");
                return Err(CallError::Unavailable { why });
            }
        }
        Ok(())
    }

    fn first(&self, name: &LeaseName) -> Option<Arc<Ending>> {
        let names = lock(&self.names);
        names
            .endings
            .get(name)
            .and_then(|endings| endings.first().cloned())
    }
}

impl Names {
    fn remove(&mut self, gone: &Arc<Ending>) {
        let Some(endings) = self.endings.get_mut(&gone.name) else {
            return;
        };
        let before = endings.len();
        endings.retain(|ending| !Arc::ptr_eq(ending, gone));
        self.count -= before - endings.len();
        if endings.is_empty() {
            self.endings.remove(&gone.name);
        }
    }

    fn retain(&mut self, keep: impl Fn(&Ending) -> bool) {
        for endings in self.endings.values_mut() {
            endings.retain(|ending| keep(ending));
        }
        self.endings.retain(|_, endings| !endings.is_empty());
        self.count = self.endings.values().map(Vec::len).sum();
    }
}

impl Ending {
    /// Settles it by the deadline, unless another task does; returns whether it is settled.
    pub(crate) async fn settled(self: &Arc<Self>, deadline: Moment) -> bool {
        while !self.is_done() && self.settle_once(deadline).await {}
        self.is_done()
    }

    /// Works on it, or waits for the task that does. Returns whether the deadline is still ahead.
    async fn settle_once(self: &Arc<Self>, deadline: Moment) -> bool {
        if self.claim() {
            let work = Work::on(Arc::clone(self));
            let settled = settle::end(self, Some(deadline)).await;
            work.over(settled);
        }
        let hub = &self.session.hub;
        tokio::select! {
            () = self.stopped() => hub.now() < deadline,
            () = hub.sleep_until(deadline) => false,
        }
    }

    fn is_done(&self) -> bool {
        *lock(&self.stage) == Stage::Done
    }

    /// Takes over the work, unless somebody has.
    fn claim(&self) -> bool {
        let mut stage = lock(&self.stage);
        let idle = *stage == Stage::Idle;
        if idle {
            *stage = Stage::Running;
        }
        idle
    }

    /// Waits until nobody works on it.
    async fn stopped(&self) {
        loop {
            let mut moved = pin!(self.moved.notified());
            // From here on no move is missed.
            moved.as_mut().enable();
            if *lock(&self.stage) != Stage::Running {
                return;
            }
            moved.await;
        }
    }
}
