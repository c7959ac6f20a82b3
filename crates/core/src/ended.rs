//! Sessions that ended within the last minute: their `Open` ids are still refused, and the repeat of
//! a `Close` is still answered with the cause.

use crate::access::principal::Principal;
use crate::event::SessionEnd;
use crate::id::{FencingToken, OpenId, RequestNumber, Secret, SessionId};
use crate::time::ClusterTime;
use crate::tree::Tree;

/// A session that ended within the last minute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EndedRecord {
    /// Its number.
    pub session: SessionId,
    /// The id of the `Open` that made it.
    pub open: OpenId,
    /// Its secret.
    pub secret: Secret,
    /// Why it ended.
    pub cause: SessionEnd,
    /// When.
    pub at: ClusterTime,
    /// Who opened it, if that was proven.
    pub owner: Option<Principal>,
    /// The release that closed it, if one did.
    pub release: Option<ClosingRelease>,
}

/// A release that closed its session: what it takes to answer its repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClosingRelease {
    /// The request's number.
    pub number: RequestNumber,
    /// As that of a [`Remembered`](crate::snapshot::Remembered) answer.
    pub fingerprint: u64,
    /// The token of the grant that it ended.
    pub token: FencingToken,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndedSessions {
    /// In the order of their ends, which is the order in which they are forgotten.
    order: Tree<u64, EndedRecord>,
    places: Tree<SessionId, u64>,
}

impl EndedSessions {
    pub(crate) fn len(&self) -> u64 {
        self.order.len() as u64
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<&EndedRecord> {
        self.order.get(self.places.get(&id)?)
    }

    /// Remembers a session that is not among them yet, as no number is given out twice.
    pub(crate) fn push(&mut self, ended: EndedRecord) {
        let id = ended.session;
        let place = self.order.push(ended);
        self.places.insert(id, place);
    }

    /// Notes which release has closed a session.
    pub(crate) fn remember_release(&mut self, id: SessionId, release: ClosingRelease) {
        if let Some(place) = self.places.get(&id)
            && let Some(ended) = self.order.get_mut(place)
        {
            ended.release = Some(release);
        }
    }

    /// When the oldest one ended.
    pub(crate) fn oldest(&self) -> Option<ClusterTime> {
        Some(self.order.first()?.1.at)
    }

    /// Forgets the oldest one.
    pub(crate) fn pop(&mut self) -> Option<EndedRecord> {
        let (_, ended) = self.order.pop_first()?;
        self.places.remove(&ended.session);
        Some(ended)
    }

    /// In the order of their ends.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &EndedRecord> {
        self.order.iter().map(|(_, ended)| ended)
    }
}
