//! What this client has given up, but the cluster may still grant it: releases and cancels that are
//! under way, and grants that were lost here first.
//!
//! An acquire of a name waits until what is unsettled of that name is settled: requests in flight
//! together have no order, so it could overtake the release, and new work must have a new token.
//!
//! [`ending`] is one of these and how far it is, [`request`] what is sent for it and repeated until
//! it is answered, [`work`] the claim of the task that sends it. This file is the table of all.

mod ending;
mod request;
mod task;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ringfence_core::{FencingToken, LeaseName, SessionId};

use crate::clock::Moment;
use crate::session::grant::Grant;
use crate::session::inner::SessionInner;
use crate::session::loss::Loss;
use crate::sync::lock;
use crate::transport::error::CallError;

use ending::Stage;
pub(crate) use ending::{EndTarget, Ending};
pub use request::Transferred;
pub(crate) use request::transfer;
pub(crate) use task::EndingTask;

/// The most that is remembered. What is forgotten is granted until its session ends.
const ENDINGS_MAX: usize = 65_536;

/// All of a client's endings, by name.
#[derive(Default)]
pub(crate) struct Endings {
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    endings: HashMap<LeaseName, Vec<Arc<Ending>>>,
    count: usize,
}

impl Endings {
    /// Remembers that a grant was lost here that the cluster may still grant.
    pub(crate) fn note_release(
        &self,
        session: &Arc<SessionInner>,
        name: &LeaseName,
        token: FencingToken,
    ) -> Arc<Ending> {
        self.add(session, name, EndTarget::Grant(token), Stage::Idle)
    }

    /// Remembers an ending that the caller is about to work on.
    pub(crate) fn begin(
        self: &Arc<Self>,
        session: &Arc<SessionInner>,
        name: &LeaseName,
        target: EndTarget,
    ) -> EndingTask {
        let ending = self.add(session, name, target, Stage::Running);
        EndingTask::on(Arc::clone(self), ending)
    }

    fn add(
        &self,
        session: &Arc<SessionInner>,
        name: &LeaseName,
        target: EndTarget,
        stage: Stage,
    ) -> Arc<Ending> {
        let ending = Arc::new(Ending::new(session, name, target, stage));
        let mut names = lock(&self.names);
        // Beyond the limit the ending is still worked on, if the caller does so. It only does not
        // hold back a later acquire of the name.
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

    /// A session is over for this client, and what it believed in may still be granted.
    pub(crate) fn session_lost(
        &self,
        session: &Arc<SessionInner>,
        why: &Loss,
        grants: &[Arc<Grant>],
    ) {
        if may_still_be_granted(why) {
            for grant in grants {
                self.note_release(session, &grant.name, grant.token);
            }
        }
        match why {
            Loss::SessionEnded { .. } | Loss::ClusterChanged => self.session_over(session.id()),
            // Only this attachment is over.
            Loss::Detached | Loss::WrongSecret => self.detached(session.key()),
            _ => {}
        }
    }

    /// The session is known to have ended: nothing of it is granted any more.
    pub(crate) fn session_over(&self, session: SessionId) {
        let mut names = lock(&self.names);
        names.retain(|ending| ending.session.id() != session);
    }

    /// An attachment to a session is over: what it has begun is left to the session's end.
    fn detached(&self, key: u64) {
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
    fn finish(&self, ending: &Arc<Ending>, settled: bool) {
        if settled {
            let mut names = lock(&self.names);
            names.remove(ending);
        }
        ending.stop(if settled { Stage::Done } else { Stage::Idle });
    }

    /// Waits until nothing of `name` is unsettled, and works on what no task works on.
    pub(crate) async fn settle(
        self: &Arc<Self>,
        name: &LeaseName,
        deadline: Moment,
    ) -> Result<(), CallError> {
        // One after the other, and looked up again each time: while one is settled another caller
        // may add the next, for example by dropping a lease of this name.
        while let Some(ending) = self.first(name) {
            let in_time = self.settle_once(&ending, deadline).await;
            if !in_time && !ending.is_done() {
                let why = format!("an earlier grant or request of {name} is not settled yet");
                return Err(CallError::Unavailable { why });
            }
        }
        Ok(())
    }

    /// Settles one by the deadline, unless another task does; returns whether it is settled.
    pub(crate) async fn settled(self: &Arc<Self>, ending: &Arc<Ending>, deadline: Moment) -> bool {
        while !ending.is_done() && self.settle_once(ending, deadline).await {}
        ending.is_done()
    }

    /// Works on it, or waits for the task that does. Returns whether the deadline is still ahead.
    async fn settle_once(self: &Arc<Self>, ending: &Arc<Ending>, deadline: Moment) -> bool {
        // Exactly one task sends the requests of an ending. All others wait for it to stop, and
        // take over if it stops without an answer.
        if ending.claim() {
            let work = EndingTask::on(Arc::clone(self), Arc::clone(ending));
            let settled = request::end(ending, Some(deadline)).await;
            work.over(settled);
        }
        let transport = &ending.session.transport;
        crate::sync::select! {
            () = ending.stopped() => transport.now() < deadline,
            () = transport.sleep_until(deadline) => false,
        }
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

/// Whether the cluster may still grant what was lost for this reason.
fn may_still_be_granted(why: &Loss) -> bool {
    match why {
        Loss::WindowPassed | Loss::Stuck | Loss::Reported | Loss::Closed => true,
        Loss::SessionEnded { .. }
        | Loss::GrantEnded { .. }
        | Loss::WrongSecret
        | Loss::ClusterChanged
        | Loss::Detached
        | Loss::Released => false,
    }
}
