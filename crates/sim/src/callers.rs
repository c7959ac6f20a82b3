//! Who the clients of a run are, and what those who are hostile know of others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{Principal, Rejection};
use ringfence_proto::Refusal;
use ringfence_proto::v1::{self, client_frame};
use ringfence_raft::Node;
use ringfence_services::Identified;

use crate::lock::lock;

/// The most requests of one session that are overheard; the oldest goes first.
const OVERHEARD_MAX: usize = 12;

/// How a caller proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// By what a node can prove alone, such as a certificate.
    Proven(Principal),
    /// By a cluster token of this principal, if the node's state has one.
    ClusterToken(Principal),
}

impl Credential {
    /// Who it says it is.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        match self {
            Self::Proven(principal) | Self::ClusterToken(principal) => principal,
        }
    }

    /// Who this node takes the caller for, as the binary's edge does: what does not hold is refused
    /// where rights bind, and proves nothing elsewhere.
    ///
    /// # Errors
    /// [`Refusal`] of a cluster token that was revoked or not made yet.
    pub fn identify(&self, node: &Node) -> Result<Option<Identified>, Refusal> {
        let identified = |token| Identified {
            principal: self.principal().clone(),
            token,
            process: None,
            pod: None,
            expires_unix: None,
        };
        if matches!(self, Self::Proven(_)) {
            return Ok(Some(identified(None)));
        }
        let (newest, mode) = node.read(|machine| {
            let access = machine.access();
            let own = access
                .tokens()
                .filter(|(_, token)| token.principal == *self.principal());
            (own.map(|(id, _)| id).last(), access.mode())
        });
        match newest {
            Some(id) => Ok(Some(identified(Some(id)))),
            None if mode == ringfence_core::Mode::Enforced => {
                Err(Refusal::from_rejection(&Rejection::TokenRevoked { id: 0 }))
            }
            None => Ok(None),
        }
    }
}

/// What a client machine is to nodes, and to those who overhear it.
#[derive(Clone, Default)]
pub struct Caller {
    /// What it shows; nothing is `anonymous`.
    pub credential: Option<Credential>,
    /// Where its requests are overheard.
    pub loot: Option<Loot>,
    /// Whether it asks in the name of others, so that its requests are none of the history.
    pub hostile: bool,
}

/// Sessions of others with their secrets, and what they asked. Clones are the same.
#[derive(Clone, Default)]
pub struct Loot(Arc<Mutex<BTreeMap<u64, Stolen>>>);

/// A session that was overheard.
#[derive(Clone, Debug)]
pub struct Stolen {
    /// Its number.
    pub session: u64,
    /// Its secret.
    pub secret: Bytes,
    /// What it asked last, the newest last.
    pub asked: Vec<client_frame::Body>,
    /// When it was heard last.
    pub heard: Duration,
}

impl Stolen {
    /// What every request of the session shows.
    #[must_use]
    pub fn handle(&self) -> v1::SessionHandle {
        v1::SessionHandle {
            session: self.session,
            secret: self.secret.clone(),
        }
    }
}

impl Loot {
    /// A client sends this now.
    pub fn overhear(&self, now: Duration, message: &v1::ClientMessage) {
        use client_frame::Body;
        for body in message
            .frames
            .iter()
            .filter_map(|frame| frame.body.as_ref())
        {
            let handles = match body {
                Body::KeepAlive(ask) => ask.sessions.as_slice(),
                Body::Acquire(ask) => ask.session.as_slice(),
                Body::Cancel(ask) => ask.session.as_slice(),
                Body::Release(ask) => ask.session.as_slice(),
                Body::Transfer(ask) => ask.session.as_slice(),
                Body::Close(ask) => ask.session.as_slice(),
                Body::Open(_) | Body::Get(_) | Body::Check(_) => &[],
            };
            for handle in handles {
                self.steal(now, handle, body);
            }
        }
    }

    fn steal(&self, now: Duration, handle: &v1::SessionHandle, body: &client_frame::Body) {
        let mut known = lock(&self.0);
        let stolen = known.entry(handle.session).or_insert_with(|| Stolen {
            session: handle.session,
            secret: handle.secret.clone(),
            asked: Vec::new(),
            heard: now,
        });
        stolen.heard = now;
        if !matches!(body, client_frame::Body::KeepAlive(_)) {
            if stolen.asked.len() == OVERHEARD_MAX {
                stolen.asked.remove(0);
            }
            stolen.asked.push(body.clone());
        }
    }

    /// All that was overheard, in the order of the sessions.
    #[must_use]
    pub fn all(&self) -> Vec<Stolen> {
        lock(&self.0).values().cloned().collect()
    }

    /// A session has ended: there is nothing more to try.
    pub fn forget(&self, session: u64) {
        lock(&self.0).remove(&session);
    }
}
