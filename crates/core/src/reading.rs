//! Reading the state.

use crate::id::{ClusterId, FencingToken, RequestNumber, Secret, SessionId};
use crate::lease::Lease;
use crate::machine::StateMachine;
use crate::name::LeaseName;
use crate::outcome::{Acquired, Rejection};
use crate::pod::Pod;
use crate::query::{LeaseView, SessionView, Summary, Verdict};
use crate::session::Session;
use crate::settings::Settings;
use crate::time::{ClusterTime, Millis, WallTime};
use alloc::vec::Vec;
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
        }
    }

    /// One lease; `None` if the name was never granted or asked for, or is forgotten.
    #[must_use]
    pub fn get(&self, name: &LeaseName) -> Option<LeaseView> {
        self.leases
            .get(name)
            .map(|lease| self.lease_view(name, lease))
    }

    fn lease_view(&self, name: &LeaseName, lease: &Lease) -> LeaseView {
        let holder = self.granted(name);
        let session = holder
            .as_ref()
            .and_then(|holder| self.sessions.get(holder.session));
        LeaseView {
            name: name.clone(),
            ttl: session.map_or(Millis(0), |session| session.ttl),
            remaining: session.map_or(Millis(0), |session| self.remaining(session)),
            holder,
            waiters: lease.waiters(),
            floor: lease.floor,
            blocked: lease
                .blocked
                .as_ref()
                .map_or(Millis(0), |block| block.over().since(self.time)),
        }
    }

    fn remaining(&self, session: &Session) -> Millis {
        match session.pod() {
            Some(_) => Millis::FOREVER,
            None => session.deadline(self.term_start).since(self.time),
        }
    }

    /// Leases whose names begin with `prefix` and stand behind `after`, in order.
    pub fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = LeaseView> + 'a {
        self.named(prefix, after)
            .map(|(name, lease)| self.lease_view(name, lease))
    }

    /// How many leases whose names begin with `prefix` are held.
    #[must_use]
    pub fn held(&self, prefix: &str) -> usize {
        let leases = self.named(prefix, None);
        leases.filter(|(_, lease)| lease.grant.is_some()).count()
    }

    fn named<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a LeaseName, &'a Lease)> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.leases
            .iter_from::<str>(from)
            .take_while(move |(name, _)| name.as_str().starts_with(prefix))
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
        let session = self.sessions.get(id)?;
        Some(SessionView {
            leases: session.holds().to_vec(),
            ..self.session_view(id, session)
        })
    }

    /// How long ago a session was last kept alive; `None` if it is not alive.
    #[must_use]
    pub fn silence(&self, id: SessionId) -> Option<Millis> {
        Some(self.time.since(self.sessions.get(id)?.seen))
    }

    /// Whether a session with this number was ever opened, alive or not. A node that lags may be
    /// asked about sessions of entries that it has yet to apply.
    #[must_use]
    pub fn has_opened(&self, id: SessionId) -> bool {
        id.get() < self.next_session
    }

    /// Sessions behind `after` in the order of their numbers, without their leases.
    pub fn sessions(&self, after: Option<SessionId>) -> impl Iterator<Item = SessionView> + '_ {
        self.sessions
            .iter(after)
            .map(|(id, session)| self.session_view(id, session))
    }

    fn session_view(&self, id: SessionId, session: &Session) -> SessionView {
        SessionView {
            session: id,
            identity: session.identity.clone(),
            ttl: session.ttl,
            remaining: self.remaining(session),
            leases: Vec::new(),
            // At most 4,096.
            waits: u32::try_from(session.waits().len()).unwrap_or(u32::MAX),
            pod: session.pod().cloned(),
        }
    }

    /// The Pods that living sessions are bound to, in the order of their UIDs.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        let ids = self.pods.values();
        ids.filter_map(|&id| self.sessions.get(id)?.pod())
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
                let cause = self.ended.get(id).map(|ended| ended.cause.clone());
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
        self.named(prefix, None)
            .filter_map(|(name, lease)| Some((name.clone(), lease.floor?)))
    }
}
