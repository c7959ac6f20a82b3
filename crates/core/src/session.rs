//! Sessions: one client's liveness contract each, and the table that finds them by number.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::event::SessionEnd;
use crate::id::{FencingToken, OpenId, RequestNumber, Secret, SessionId};
use crate::name::{Identity, LeaseName};
use crate::outcome::LostGrant;
use crate::requests::Requests;
use crate::snapshot::EndedRecord;
use crate::time::{ClusterTime, Millis};

/// A living session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) open: OpenId,
    pub(crate) secret: Secret,
    pub(crate) identity: Identity,
    pub(crate) ttl: Millis,
    /// Cluster time of its last keep-alive.
    pub(crate) seen: ClusterTime,
    /// Where it stands among the deadlines; never later than its own deadline.
    pub(crate) armed: ClusterTime,
    pub(crate) requests: Requests,
    /// In the order of the names.
    pub(crate) holds: Vec<(LeaseName, FencingToken)>,
    /// In rising order of the numbers.
    pub(crate) waits: Vec<Wait>,
    /// Grants that ended against its will and that it has not acknowledged.
    pub(crate) lost: Vec<LostGrant>,
}

/// A place in a queue, as its session knows it.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) number: RequestNumber,
    pub(crate) name: LeaseName,
    pub(crate) place: u64,
}

impl Session {
    /// When it ends unless it is kept alive. A new term gives one fresh TTL and only one, however
    /// many terms follow: the second one begins after `seen + ttl` and so counts for nothing more.
    pub(crate) fn deadline(&self, term_start: ClusterTime) -> ClusterTime {
        let fresh = term_start.min(self.seen.after(self.ttl));
        self.seen.max(fresh).after(self.ttl)
    }

    /// What counts against the limit of one session. Losses count until they are acknowledged, or
    /// their list could grow without bound.
    pub(crate) fn load(&self) -> usize {
        self.holds.len() + self.waits.len() + self.lost.len()
    }

    pub(crate) fn add_hold(&mut self, name: LeaseName, token: FencingToken) {
        if let Err(at) = self.holds.binary_search_by(|(held, _)| held.cmp(&name)) {
            if self.holds.is_empty() {
                self.holds.reserve_exact(1);
            }
            self.holds.insert(at, (name, token));
        }
    }

    pub(crate) fn remove_hold(&mut self, name: &LeaseName) {
        if let Ok(at) = self.holds.binary_search_by(|(held, _)| held.cmp(name)) {
            self.holds.remove(at);
        }
    }

    pub(crate) fn add_wait(&mut self, wait: Wait) {
        if let Err(at) = self
            .waits
            .binary_search_by_key(&wait.number, |known| known.number)
        {
            self.waits.insert(at, wait);
        }
    }

    pub(crate) fn remove_wait(&mut self, number: RequestNumber) -> Option<Wait> {
        let at = self
            .waits
            .binary_search_by_key(&number, |known| known.number)
            .ok()?;
        Some(self.waits.remove(at))
    }
}

/// How many neighbouring numbers share a chunk.
const CHUNK: u64 = 256;

/// The living sessions by number.
///
/// Numbers are given out in order, so neighbours are opened, and mostly renewed, together: a
/// chunk of boxes costs one search per 256 of them where a plain map would cost one each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    chunks: BTreeMap<u64, Chunk>,
    len: u64,
}

#[derive(Clone, Debug)]
struct Chunk {
    slots: Vec<Option<Box<Session>>>,
    used: u32,
}

fn place(id: SessionId) -> (u64, usize) {
    // The remainder is below 256.
    (id.get() / CHUNK, (id.get() % CHUNK) as usize)
}

impl Sessions {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        let (chunk, slot) = place(id);
        self.chunks.get(&chunk)?.slots.get(slot)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        let (chunk, slot) = place(id);
        self.chunks
            .get_mut(&chunk)?
            .slots
            .get_mut(slot)?
            .as_deref_mut()
    }

    pub(crate) fn insert(&mut self, id: SessionId, session: Session) {
        let (chunk, slot) = place(id);
        let chunk = self.chunks.entry(chunk).or_insert_with(|| Chunk {
            slots: Vec::new(),
            used: 0,
        });
        if chunk.slots.len() <= slot {
            chunk.slots.resize_with(slot + 1, || None);
        }
        if chunk.slots[slot].replace(Box::new(session)).is_none() {
            chunk.used += 1;
            self.len += 1;
        }
    }

    pub(crate) fn remove(&mut self, id: SessionId) -> Option<Session> {
        let (number, slot) = place(id);
        let chunk = self.chunks.get_mut(&number)?;
        let session = chunk.slots.get_mut(slot)?.take()?;
        chunk.used -= 1;
        self.len -= 1;
        if chunk.used == 0 {
            self.chunks.remove(&number);
        }
        Some(*session)
    }

    /// Those behind `after`, in rising order.
    pub(crate) fn iter(
        &self,
        after: Option<SessionId>,
    ) -> impl Iterator<Item = (SessionId, &Session)> {
        let first = after.map_or(0, |after| after.get().saturating_add(1));
        self.chunks
            .range(first / CHUNK..)
            .flat_map(move |(number, chunk)| {
                let base = number * CHUNK;
                chunk
                    .slots
                    .iter()
                    .enumerate()
                    .filter_map(move |(slot, session)| {
                        let id = SessionId::new(base + slot as u64)?;
                        (id.get() >= first).then_some((id, session.as_deref()?))
                    })
            })
    }
}

/// Sessions that ended within the last minute: their `Open` ids are still refused, and a repeated
/// `Close` is still told the cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndedSessions {
    by_id: BTreeMap<SessionId, EndedSession>,
    /// In the order of their ends, which is the order in which they are forgotten.
    order: VecDeque<SessionId>,
}

/// What is remembered of an ended session.
#[derive(Clone, Debug)]
pub(crate) struct EndedSession {
    pub(crate) open: OpenId,
    pub(crate) secret: Secret,
    pub(crate) cause: SessionEnd,
    pub(crate) at: ClusterTime,
}

impl EndedSessions {
    pub(crate) fn len(&self) -> u64 {
        self.order.len() as u64
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<&EndedSession> {
        self.by_id.get(&id)
    }

    pub(crate) fn push(&mut self, id: SessionId, ended: EndedSession) {
        if self.by_id.insert(id, ended).is_none() {
            self.order.push_back(id);
        }
    }

    /// When the oldest one ended.
    pub(crate) fn oldest(&self) -> Option<ClusterTime> {
        Some(self.by_id.get(self.order.front()?)?.at)
    }

    /// Forgets the oldest one.
    pub(crate) fn pop(&mut self) -> Option<EndedSession> {
        self.by_id.remove(&self.order.pop_front()?)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = EndedRecord> {
        self.order.iter().filter_map(|&session| {
            let EndedSession {
                open,
                secret,
                cause,
                at,
            } = self.by_id.get(&session)?.clone();
            Some(EndedRecord {
                session,
                open,
                secret,
                cause,
                at,
            })
        })
    }
}
