//! One grant, and whether this client believes in it.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ringfence_core::{FencingToken, LeaseName, SessionId};
use ringfence_proto::v1;
use tokio::sync::watch;

use crate::clock::Moment;
use crate::session::loss::Loss;
use crate::session::unsealed::UnsealedGuard;
use crate::sync::lock;

/// What this client thinks of a grant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Belief {
    /// Held, as long as the session's window is open.
    Held,
    /// Ended; a grant never returns from this state.
    Over {
        loss: Loss,
        /// The end of the session's window when belief ended. Keep-alives that are acknowledged
        /// later move the session's window and not this: the cluster lets the next holder in one
        /// TTL after a revoke, whatever it hears from the session meanwhile.
        until: Moment,
    },
}

/// A grant of this client.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) name: LeaseName,
    pub(crate) token: FencingToken,
    pub(crate) session: SessionId,
    pub(crate) data: Bytes,
    pub(crate) since_unix_ms: u64,
    belief: watch::Sender<Belief>,
    /// The guards that were to be sealed and are not.
    unsealed: Mutex<Arc<[UnsealedGuard]>>,
}

impl Grant {
    /// The grant in a reply; `None` if the reply makes no sense.
    pub(crate) fn from_wire(grant: v1::Grant) -> Option<Self> {
        Some(Self {
            name: LeaseName::parse(&grant.name).ok()?,
            token: FencingToken::new(grant.token)?,
            session: SessionId::new(grant.session)?,
            data: grant.data,
            since_unix_ms: grant.since_unix_ms,
            belief: watch::Sender::new(Belief::Held),
            unsealed: Mutex::default(),
        })
    }

    pub(crate) fn belief(&self) -> Belief {
        self.belief.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Belief> {
        self.belief.subscribe()
    }

    /// The guards that were to be sealed and are not, as far as is known now.
    pub(crate) fn unsealed(&self) -> Arc<[UnsealedGuard]> {
        Arc::clone(&lock(&self.unsealed))
    }

    pub(crate) fn set_unsealed(&self, guards: Vec<UnsealedGuard>) {
        *lock(&self.unsealed) = guards.into();
    }

    /// Ends belief for ever, in a session whose window ends at `until`; says whether it had not
    /// ended before.
    pub(crate) fn end(&self, why: &Loss, until: Moment) -> bool {
        self.belief.send_if_modified(|belief| {
            let first = *belief == Belief::Held;
            if first {
                let loss = why.clone();
                *belief = Belief::Over { loss, until };
            }
            first
        })
    }

    /// The same grant for the caller that gets it back from a hand-over that did not take place.
    /// Those who learned of its loss keep seeing it as lost.
    pub(crate) fn believed_again(&self) -> Self {
        Self {
            name: self.name.clone(),
            token: self.token,
            session: self.session,
            data: self.data.clone(),
            since_unix_ms: self.since_unix_ms,
            belief: watch::Sender::new(Belief::Held),
            unsealed: Mutex::new(self.unsealed()),
        }
    }
}
