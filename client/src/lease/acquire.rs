//! Acquiring a lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{FencingToken, InvalidName, LeaseName, SessionId};
use ringfence_proto::v1::{self, client_frame, server_frame};

use crate::lease::HeldLease;
use crate::session::endings::What;
use crate::session::error::OpenError;
use crate::session::grant::Grant;
use crate::session::liveness::Liveness;
use crate::session::loss::Loss;
use crate::session::numbers::{Number, Use};
use crate::session::{Hold, Session};
use crate::transport::calls::{Answer, Manner};
use crate::transport::error::CallError;
use crate::transport::refusal::{Reason, Refusal};

/// An acquire in the making; [`Session::acquire`](crate::Session::acquire) begins one.
#[derive(Debug)]
#[must_use = "nothing is acquired until send()"]
pub struct Acquire {
    hold: Arc<Hold>,
    name: String,
    terms: Terms,
}

/// What is asked for beside the name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) wait: Option<Duration>,
    pub(crate) data: Bytes,
    pub(crate) lock_delay: Duration,
    watched: bool,
}

/// Who holds a lease that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The session that holds it.
    pub session: Option<SessionId>,
    /// Who it says it is.
    pub identity: String,
    /// The token of its grant.
    pub token: Option<FencingToken>,
    /// Whether it is the very session that asked.
    pub mine: bool,
}

/// Why a lease is not granted to anybody now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocked {
    /// The last holder's end was dirty and its lock-delay runs.
    LockDelay,
    /// The last grant was revoked and its holder may not know yet.
    Revoking,
    /// The cluster was restored.
    QuietTime,
}

impl fmt::Display for Holder {
    /// Continues the sentence "the lease is held": with what is known of the holder.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mine {
            f.write_str(" by this session already")?;
        } else if !self.identity.is_empty() {
            write!(f, " by {}", self.identity)?;
        }
        if let (false, Some(session)) = (self.mine, self.session) {
            write!(f, " (session {session})")?;
        }
        match self.token {
            Some(token) => write!(f, " with token {token}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LockDelay => "the lock-delay of its last holder runs",
            Self::Revoking => "its last grant was revoked, and the holder may still believe in it",
            Self::QuietTime => "the cluster was restored, and holders from before may still work",
        })
    }
}

/// " for another 59.9 s", rounded up to tenths of a second; empty where the time is not known.
fn remaining_text(remaining: &Option<Duration>) -> String {
    remaining.map_or_else(String::new, |remaining| {
        let tenths = remaining.as_millis().div_ceil(100);
        format!(" for another {}.{} s", tenths / 10, tenths % 10)
    })
}

/// Why a lease was not acquired.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The name is no lease name.
    #[error(transparent)]
    InvalidName(InvalidName),
    /// A session holds it.
    #[error("the lease is held{0}")]
    Held(Holder),
    /// No client holds it, but others wait for it.
    #[error("{waiters} wait for the lease; wait too")]
    Queued {
        /// How many.
        waiters: u64,
    },
    /// The lease is blocked: the cluster grants it to no client now.
    #[error("the lease is blocked{}: {why}", remaining_text(.remaining))]
    NotNow {
        /// Why.
        why: Blocked,
        /// How much longer at most, where known.
        remaining: Option<Duration>,
    },
    /// The wait is over and brought no grant.
    #[error("not granted within the wait")]
    TimedOut,
    /// It was granted, and the grant has ended before the answer came.
    #[error("the lease was granted and lost again: {0}")]
    Ended(Loss),
    /// No session could be opened for it; see [`Client::lock`](crate::Client::lock).
    #[error(transparent)]
    Open(OpenError),
    /// The session is over.
    #[error("the session is over: {0}")]
    SessionLost(Loss),
    /// The request failed otherwise. If its outcome is unknown it is being cancelled in the
    /// background.
    #[error(transparent)]
    Call(CallError),
}

impl Session {
    /// Begins to acquire the lease `name`.
    pub fn acquire(&self, name: impl Into<String>) -> Acquire {
        Acquire::new(Arc::clone(&self.hold), name.into())
    }
}

impl Acquire {
    pub(crate) fn new(hold: Arc<Hold>, name: String) -> Self {
        Self {
            hold,
            name,
            terms: Terms::default(),
        }
    }

    pub(crate) fn with_terms(session: &Session, name: String, terms: Terms) -> Self {
        let hold = Arc::clone(&session.hold);
        Self { hold, name, terms }
    }

    /// Waits in the queue for at most this long, in whole milliseconds up to 24 h of cluster time;
    /// without it the acquire is answered at once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.terms.wait = Some(wait);
        self
    }

    /// Publishes up to 1 KiB with the grant, an address for example.
    pub fn data(mut self, data: impl Into<Bytes>) -> Self {
        self.terms.data = data.into();
        self
    }

    /// For how long no client is granted the lease if this grant ends by expiry or revoke, in whole
    /// milliseconds up to 60 s.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.terms.lock_delay = delay;
        self
    }

    /// Watches the lease as long as it is held, so that an end that this process did not ask for is
    /// noticed as it happens and not by the next keep-alive. For leases whose session others have
    /// the handle of; a node has 10,000 watchers at most.
    pub fn watched(mut self) -> Self {
        self.terms.watched = true;
        self
    }

    /// Sends the acquire and waits for the answer. Dropping the future cancels it: at whatever
    /// point, no grant is left behind and no client stands in the queue for it.
    ///
    /// If this client held the name before and what became of that is not settled yet, that is
    /// settled first: the old grant is released by its token, so that new work has a new one.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub async fn send(self) -> Result<HeldLease, AcquireError> {
        let watched = self.terms.watched;
        let mut lease = self.unfollowed().await?;
        if watched {
            lease.follow();
        } else {
            lease.follow_for_life();
        }
        Ok(lease)
    }

    /// The same for a caller that sees to it that a client watches the lease.
    pub(crate) async fn unfollowed(self) -> Result<HeldLease, AcquireError> {
        let name = LeaseName::parse(&self.name).map_err(AcquireError::InvalidName)?;
        attempt(&self.hold, &name, &self.terms).await
    }
}

/// Asks until there is an answer, or the deadline has passed. Dropping it cancels what was asked.
async fn attempt(
    hold: &Arc<Hold>,
    name: &LeaseName,
    terms: &Terms,
) -> Result<HeldLease, AcquireError> {
    let session = &hold.liveness;
    let transport = &session.transport;
    let deadline = transport.deadline() + terms.wait.unwrap_or_default();
    let endings = &hold.client.hub.endings;
    endings
        .settle(name, transport.deadline())
        .await
        .map_err(AcquireError::Call)?;
    loop {
        if let Some(loss) = session.loss() {
            return Err(AcquireError::SessionLost(loss));
        }
        let what = match terms.wait {
            Some(_) => Use::Wait,
            None => Use::Acquire,
        };
        let number = session
            .number(what, deadline)
            .await
            .map_err(AcquireError::Call)?;
        let asked = Asked {
            hold,
            name,
            number: Some(number.number),
        };
        let handle = Some(session.handle().to_wire());
        let body = client_frame::Body::Acquire(request(handle, name, number, terms));
        let manner = if terms.wait.is_some() {
            Manner::Waiting
        } else {
            Manner::Prompt
        };
        let refusal = match transport.call(body, manner, deadline).await {
            Ok(answer) => return asked.granted(answer),
            Err(CallError::Refused(refusal)) => refusal,
            Err(CallError::Unavailable { why }) => {
                // It was never sent, so there is nothing to take back.
                asked.answered();
                return Err(AcquireError::Call(CallError::Unavailable { why }));
            }
            Err(unknown) => return Err(AcquireError::Call(unknown)),
        };
        asked.answered();
        session.heed(&refusal);
        // Another client has used the session and spent this number, or the wait was confirmed
        // before it arrived, or its end before its answer came back: it holds nothing.
        if refusal.reason != Reason::StaleRequest || transport.now() >= deadline {
            return Err(refused(session, refusal));
        }
    }
}

/// The lease of a grant that came with its session; what makes no sense is given back by closing it.
pub(crate) fn admitted(
    session: &Session,
    name: &LeaseName,
    grant: Option<v1::Grant>,
) -> Result<HeldLease, AcquireError> {
    let liveness = &session.hold.liveness;
    let fits = |grant: &Grant| grant.name == *name && grant.session == liveness.id();
    let grant = grant.and_then(Grant::from_wire).filter(fits);
    let grant = grant.ok_or_else(|| AcquireError::Call(CallError::misfit()))?;
    match liveness.admit(grant) {
        Ok(grant) => Ok(HeldLease::new(Arc::clone(&session.hold), grant)),
        Err(loss) => Err(AcquireError::Ended(loss)),
    }
}

/// A request for a lease whose fate is open. Dropping it takes the request back, as often as that
/// has to be repeated.
struct Asked<'a> {
    hold: &'a Arc<Hold>,
    name: &'a LeaseName,
    number: Option<u64>,
}

impl Asked<'_> {
    /// The cluster has answered: there is nothing to take back.
    fn answered(mut self) {
        if let Some(number) = self.number.take() {
            self.hold.liveness.confirm(number);
        }
    }

    /// The answer is a grant: believes in it, unless it was lost meanwhile.
    fn granted(self, answer: Answer) -> Result<HeldLease, AcquireError> {
        let (hold, name) = (self.hold, self.name);
        let session = &hold.liveness;
        let grant = match answer.body {
            server_frame::Body::Acquire(reply) => reply.grant.and_then(Grant::from_wire),
            _ => None,
        };
        // What makes no sense is taken back, which tells what it was.
        let fits = |grant: &Grant| grant.name == *self.name && grant.session == session.id();
        let Some(grant) = grant.filter(fits) else {
            return Err(AcquireError::Call(CallError::misfit()));
        };
        // The window is not moved: only a keep-alive's answer tells what was lost, and a caller
        // that asks often enough to need none would believe in a revoked grant for ever.
        self.answered();
        match session.admit(grant) {
            Ok(grant) => Ok(HeldLease::new(Arc::clone(hold), grant)),
            Err(loss) => {
                give_back(hold, name);
                Err(AcquireError::Ended(loss))
            }
        }
    }
}

/// A grant came when its session was over for this client: it is noted as given up. No other client
/// may ever ask for the lease here, and a client that keeps the session alive would keep it for no
/// holder.
fn give_back(hold: &Arc<Hold>, name: &LeaseName) {
    let (hold, name) = (Arc::clone(hold), name.clone());
    let thread = hold.liveness.transport.thread.clone();
    drop(thread.spawn(async move {
        let deadline = hold.client.now() + hold.liveness.ttl();
        if let Err(error) = hold.client.hub.endings.settle(&name, deadline).await {
            tracing::debug!(%name, %error, "a grant that came too late was not released");
        }
    }));
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number.take() else {
            return;
        };
        let session = &self.hold.liveness;
        let what = What::Request(number);
        let endings = &self.hold.client.hub.endings;
        let work = endings.begin(session, self.name, what);
        work.in_background(Arc::clone(self.hold));
    }
}

/// What an acquire asks the cluster for.
pub(crate) fn request(
    session: Option<v1::SessionHandle>,
    name: &LeaseName,
    number: Number,
    terms: &Terms,
) -> v1::AcquireRequest {
    v1::AcquireRequest {
        session,
        open: None,
        number: number.number,
        lowest: number.lowest,
        name: name.to_string(),
        wait_ms: terms.wait.map(millis),
        data: terms.data.clone(),
        lock_delay_ms: millis(terms.lock_delay),
    }
}

/// Sorts a refusal for the caller.
pub(crate) fn refused(session: &Arc<Liveness>, refusal: Box<Refusal>) -> AcquireError {
    let detail = |key: &str| refusal.metadata.get(key);
    let number = |key: &str| detail(key).and_then(|text| text.parse().ok());
    let not_now = |why| AcquireError::NotNow {
        why,
        remaining: refusal.retry_after,
    };
    match refusal.reason {
        Reason::Held => AcquireError::Held(Holder {
            session: number("holder").and_then(SessionId::new),
            identity: detail("identity").cloned().unwrap_or_default(),
            token: number("token").and_then(FencingToken::new),
            mine: detail("mine").is_some_and(|mine| mine == "true"),
        }),
        Reason::Queued => AcquireError::Queued {
            waiters: number("waiters").unwrap_or(0),
        },
        Reason::LockDelay => not_now(Blocked::LockDelay),
        Reason::Revoking => not_now(Blocked::Revoking),
        Reason::QuietTime => not_now(Blocked::QuietTime),
        Reason::WaitTimeout => AcquireError::TimedOut,
        Reason::Ended => {
            if let Some(token) = number("token").and_then(FencingToken::new) {
                session.disown(token);
            }
            AcquireError::Ended(Loss::GrantEnded { cause: None })
        }
        Reason::SessionExpired | Reason::WrongSecret => {
            AcquireError::SessionLost(session.loss().unwrap_or(Loss::SessionEnded { cause: None }))
        }
        _ => AcquireError::Call(CallError::Refused(refusal)),
    }
}

/// Whole milliseconds, as the wire has them.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
