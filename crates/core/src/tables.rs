//! Looking at sessions and leases, whether of the machine or of a frozen state.

use alloc::vec::Vec;
use core::ops::Bound;

use crate::event::Granted;
use crate::id::{FencingToken, SessionId};
use crate::lease::Lease;
use crate::name::{Identity, LeaseName};
use crate::pod::{Pod, PodKey};
use crate::query::{LeaseView, SessionView};
use crate::session::{Session, Sessions};
use crate::time::{ClusterTime, Millis};
use crate::tree::Tree;

/// What readers look at, in a machine or in a frozen state.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'a> {
    pub(crate) time: ClusterTime,
    pub(crate) term_start: ClusterTime,
    pub(crate) sessions: &'a Sessions,
    pub(crate) leases: &'a Tree<LeaseName, Lease>,
    pub(crate) pods: &'a Tree<PodKey, SessionId>,
}

impl<'a> Tables<'a> {
    pub(crate) fn lease(self, name: &LeaseName) -> Option<LeaseView> {
        let lease = self.leases.get(name)?;
        Some(self.lease_view(name, lease))
    }

    fn lease_view(self, name: &LeaseName, lease: &Lease) -> LeaseView {
        let holder = granted(self.sessions, name, lease);
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

    fn remaining(self, session: &Session) -> Millis {
        match session.pod() {
            Some(_) => Millis::FOREVER,
            None => session.deadline(self.term_start).since(self.time),
        }
    }

    pub(crate) fn list(
        self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = LeaseView> + 'a {
        self.named(prefix, after)
            .map(move |(name, lease)| self.lease_view(name, lease))
    }

    pub(crate) fn held(self, prefix: &str) -> usize {
        let leases = self.leases.iter_from::<str>(Bound::Included(prefix));
        leases
            .take_while(|(name, _)| name.as_str().starts_with(prefix))
            .filter(|(_, lease)| lease.grant.is_some())
            .count()
    }

    pub(crate) fn floors(
        self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (LeaseName, FencingToken)> + 'a {
        self.named(prefix, after)
            .filter_map(|(name, lease)| Some((name.clone(), lease.floor?)))
    }

    fn named(
        self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a LeaseName, &'a Lease)> + use<'a> {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.leases
            .iter_from::<str>(from)
            .take_while(move |(name, _)| name.as_str().starts_with(prefix))
    }

    pub(crate) fn session(self, id: SessionId) -> Option<SessionView> {
        let session = self.sessions.get(id)?;
        Some(SessionView {
            leases: session.holds().to_vec(),
            ..self.session_view(id, session)
        })
    }

    pub(crate) fn sessions(
        self,
        after: Option<SessionId>,
    ) -> impl Iterator<Item = SessionView> + 'a {
        self.sessions
            .iter(after)
            .map(move |(id, session)| self.session_view(id, session))
    }

    fn session_view(self, id: SessionId, session: &Session) -> SessionView {
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

    pub(crate) fn pods(self) -> impl Iterator<Item = &'a Pod> {
        let ids = self.pods.iter().map(|(_, id)| *id);
        ids.filter_map(move |id| self.sessions.get(id)?.pod())
    }
}

/// The identity of a holder. Every holder is alive; were one not there, its lease would be held all
/// the same, and must not look free.
pub(crate) fn identity_of(sessions: &Sessions, id: SessionId) -> Identity {
    let session = sessions.get(id);
    session.map_or_else(Identity::unknown, |session| session.identity.clone())
}

/// The grant in force of a lease, as events and answers show it.
pub(crate) fn granted(sessions: &Sessions, name: &LeaseName, lease: &Lease) -> Option<Granted> {
    let grant = lease.grant.as_deref()?;
    Some(Granted {
        name: name.clone(),
        token: grant.token,
        session: grant.session,
        identity: identity_of(sessions, grant.session),
        data: grant.data.clone(),
        request: grant.request,
        index: grant.index,
        since: grant.since,
    })
}
