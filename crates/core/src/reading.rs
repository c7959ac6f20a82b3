//! Reading the state.
//!
//! What the machine itself answers is a look-up of one thing: readers hold the lock that `apply`
//! writes under. Everything that grows with the state is read from a [`crate::Frozen`] one, which is made
//! in a microsecond and needs no lock.

use crate::event::SessionEnd;
use crate::id::{ClusterId, FencingToken, RequestNumber, Secret, SessionId};
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::outcome::{Acquired, Rejection};
use crate::pod::{Pod, PodUid};
use crate::query::{LeaseView, SessionView, Summary, Verdict};
use crate::settings::{LEAD_MAX, LEAD_PART, Settings};
use crate::tables::Tables;
use crate::time::{ClusterTime, Millis, WallTime};
use alloc::sync::Arc;
use core::ops::Bound;

impl StateMachine {
    /// Cluster time.
    #[must_use]
    pub fn time(&self) -> ClusterTime {
        self.time
    }

    /// Wall time as the newest entries have it: for people, it decides nothing.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        self.wall
    }

    /// The token counter: no token up to here is granted from now on. It never falls, over all
    /// lives of the cluster.
    #[must_use]
    pub fn token_counter(&self) -> u64 {
        self.counter
    }

    /// The newest entry that was applied or skipped, 0 before the first.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The newest term that was opened, 0 before the first.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The cluster, once it is formed.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// The token floor the cluster was formed with. With one, it must not stand before a lasting
    /// store.
    #[must_use]
    pub fn token_floor(&self) -> Option<u64> {
        self.token_floor
    }

    /// The level: every member knows the log commands of all versions up to this one. It never
    /// falls, so a behaviour of `apply` that older releases lack may begin with a level.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.level
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The entry that set them.
    #[must_use]
    pub fn settings_set_at(&self) -> u64 {
        self.settings_set_at
    }

    /// Figures about the whole.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            time: self.time,
            sessions: self.sessions.len(),
            leases: self.leases.len() as u64,
            held: self.held,
            waiters: self.waiters,
            last_token: self.last_token,
            forgotten: self.forgotten,
            quiet: self.quiet_until.since(self.time),
            level: self.level,
        }
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

    /// One lease; `None` if the name was never granted or asked for, or is forgotten.
    #[must_use]
    pub fn get(&self, name: &LeaseName) -> Option<LeaseView> {
        self.tables().lease(name)
    }

    /// Leases whose names begin with `prefix` and stand behind `after`, in order.
    pub fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = LeaseView> + 'a {
        self.tables().list(prefix, after)
    }

    /// How many leases whose names begin with `prefix` are held.
    #[must_use]
    pub fn held(&self, prefix: &str) -> usize {
        self.tables().held(prefix)
    }

    fn tables(&self) -> Tables<'_> {
        Tables {
            time: self.time,
            term_start: self.term_start,
            sessions: &self.sessions,
            leases: &self.leases,
            pods: &self.pods,
        }
    }

    /// What a token is worth now.
    #[must_use]
    pub fn check(&self, name: &LeaseName, token: FencingToken) -> Verdict {
        let lease = self.leases.get(name);
        let current = lease
            .and_then(|lease| lease.grant.as_deref())
            .map(|grant| grant.token);
        if current == Some(token) {
            return Verdict::Current;
        }
        match lease.and_then(|lease| lease.floor) {
            Some(newest) if newest > token => Verdict::Superseded { newest },
            _ if token.get() > self.last_token => Verdict::Unknown,
            _ => Verdict::Ended,
        }
    }

    /// One session with its leases; `None` if it is not alive.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<SessionView> {
        self.tables().session(id)
    }

    /// How long ago a session was last kept alive; `None` if it is not alive.
    #[must_use]
    pub fn silence(&self, id: SessionId) -> Option<Millis> {
        Some(self.time.since(self.sessions.get(id)?.seen))
    }

    /// Why a session ended, within the last minute of cluster time.
    #[must_use]
    pub fn session_end(&self, id: SessionId) -> Option<SessionEnd> {
        Some(self.ended.get(id)?.cause.clone())
    }

    /// Whether a session with this number was ever opened, alive or not. A node that lags may be
    /// asked about sessions of entries that it has yet to apply.
    #[must_use]
    pub fn has_opened(&self, id: SessionId) -> bool {
        id.get() < self.next_session
    }

    /// Sessions behind `after` in the order of their numbers, without their leases.
    pub fn sessions(&self, after: Option<SessionId>) -> impl Iterator<Item = SessionView> + '_ {
        self.tables().sessions(after)
    }

    /// The Pods that living sessions are bound to, in the order of their UIDs.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.tables().pods()
    }

    /// Whether any living session is bound to a Pod.
    #[must_use]
    pub fn has_pods(&self) -> bool {
        !self.pods.is_empty()
    }

    /// Whether a living session is bound to a container of this Pod.
    #[must_use]
    pub fn has_pod(&self, uid: &PodUid) -> bool {
        self.bound_to(uid).is_some()
    }

    /// The session that is bound to the first container of this Pod, in the order of their names.
    pub(crate) fn bound_to(&self, uid: &PodUid) -> Option<SessionId> {
        let first = (uid.clone(), Arc::from(""));
        let ((found, _), id) = self.pods.iter_from(Bound::Included(&first)).next()?;
        (found == uid).then_some(*id)
    }

    /// Whether a session is alive and this is its secret.
    ///
    /// # Errors
    /// [`Rejection::SessionExpired`] or [`Rejection::WrongSecret`].
    pub fn authenticate(&self, id: SessionId, secret: &Secret) -> Result<(), Rejection> {
        match self.sessions.get(id) {
            Some(session) if session.secret.proves(secret) => Ok(()),
            Some(_) => Err(Rejection::WrongSecret),
            None => {
                let cause = self.session_end(id);
                Err(Rejection::SessionExpired { cause })
            }
        }
    }

    /// How a session's acquire stands now; `None` if the session is not alive, the number is not
    /// remembered, or it was no acquire.
    #[must_use]
    pub fn standing(&self, id: SessionId, number: RequestNumber) -> Option<Acquired> {
        self.standing_of(&self.sessions.get(id)?.requests.get(number)?)
    }

    /// The greatest token granted for each remembered name that begins with `prefix`.
    pub fn floors<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (LeaseName, FencingToken)> + 'a {
        self.tables().floors(prefix, None)
    }
}
