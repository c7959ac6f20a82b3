//! Acquiring a lease under a session: the request, its retries, and its cancellation.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::{FencingToken, InvalidName, LeaseName, SessionId};
use ringfence_proto::v1::{self, client_frame, server_frame};

use crate::lease::HeldLease;
use crate::lease::seal::Seal;
use crate::lease::sealing::{NotSealed, sealed};
use crate::session::endings::EndTarget;
use crate::session::error::OpenError;
use crate::session::grant::Grant;
use crate::session::inner::SessionInner;
use crate::session::loss::Loss;
use crate::session::request_numbers::{RequestKind, RequestNumber};
use crate::session::unsealed::{UnsealedGuard, in_a_line};
use crate::session::{Session, SessionGuard};
use crate::transport::calls::{Answer, ReplyMode};
use crate::transport::error::CallError;
use crate::transport::refusal::{Reason, Refusal};

/// An acquire in the making; [`Session::acquire`](crate::Session::acquire) begins one.
#[derive(Debug)]
#[must_use = "nothing is acquired until send()"]
pub struct Acquire {
    guard: Arc<SessionGuard>,
    name: String,
    options: AcquireOptions,
}

/// What is asked for beside the name.
#[derive(Clone, Debug, Default)]
pub(crate) struct AcquireOptions {
    pub(crate) wait: Option<Duration>,
    pub(crate) data: Bytes,
    pub(crate) lock_delay: Duration,
    pub(crate) seal: Seal,
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
        /// Sessions in the queue, 1 or more.
        waiters: u64,
    },
    /// The lease is blocked: the cluster grants it to no client now.
    #[error("the lease is blocked{}: {why}", remaining_text(.remaining))]
    NotNow {
        /// What blocks the lease.
        why: Blocked,
        /// How much longer at most, where known.
        remaining: Option<Duration>,
    },
    /// The wait is over and brought no grant.
    #[error("not granted within the wait")]
    TimedOut,
    /// It was granted, and the grant has ended before the answer came, or while the lease was being
    /// [sealed](Acquire::seal): it was never held.
    #[error("the lease was granted and lost again: {0}")]
    Ended(Loss),
    /// It was granted and could not be [sealed](Acquire::seal). It is being released, and was never
    /// held.
    #[error("the lease was given back, since not all guards are sealed: {}", in_a_line(.guards))]
    Unsealed {
        /// The guards that made it so, one or more. A guard that had not answered when another one
        /// failed is not among them.
        guards: Vec<UnsealedGuard>,
    },
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

impl From<NotSealed> for AcquireError {
    fn from(why: NotSealed) -> Self {
        match why {
            NotSealed::Ended(loss) => Self::Ended(loss),
            NotSealed::Unsealed(guards) => Self::Unsealed { guards },
        }
    }
}

impl Session {
    /// Begins to acquire the lease `name`.
    pub fn acquire(&self, name: impl Into<String>) -> Acquire {
        Acquire::new(Arc::clone(&self.guard), name.into())
    }
}

impl Acquire {
    pub(crate) fn new(guard: Arc<SessionGuard>, name: String) -> Self {
        Self {
            guard,
            name,
            options: AcquireOptions::default(),
        }
    }

    pub(crate) fn with_options(session: &Session, name: String, options: AcquireOptions) -> Self {
        let guard = Arc::clone(&session.guard);
        Self {
            guard,
            name,
            options,
        }
    }

    /// Waits in the queue for at most this long, in whole milliseconds up to 24 h of cluster time;
    /// without it the acquire is answered at once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Publishes up to 1 KiB with the grant, an address for example.
    pub fn data(mut self, data: impl Into<Bytes>) -> Self {
        self.options.data = data.into();
        self
    }

    /// For how long no client is granted the lease if this grant ends by expiry or revoke, in whole
    /// milliseconds up to 60 s.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.options.lock_delay = delay;
        self
    }

    /// Seals the lease before it is reported held: every guard that the seal names has raised its
    /// mark by then, so none admits a write of an earlier holder.
    pub fn seal(mut self, seal: Seal) -> Self {
        self.options.seal = seal;
        self
    }

    /// Watches the lease as long as it is held, so that an end that this process did not ask for is
    /// noticed as it happens and not by the next keep-alive. For leases whose session others have
    /// the handle of; a node has 10,000 watchers at most.
    pub fn watched(mut self) -> Self {
        self.options.watched = true;
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
        let (watched, seal) = (self.options.watched, self.options.seal.clone());
        let mut lease = self.granted().await?;
        // Before it is sealed: an end that comes meanwhile is noticed then.
        if watched {
            lease.watch_for_loss();
        } else {
            lease.watch_if_for_life();
        }
        Ok(sealed(lease, &seal, None).await?)
    }

    /// The lease as it is granted, for a caller that watches it if that is to be, and seals it.
    pub(crate) async fn granted(self) -> Result<HeldLease, AcquireError> {
        let name = LeaseName::parse(&self.name).map_err(AcquireError::InvalidName)?;
        attempt(&self.guard, &name, &self.options).await
    }
}

/// Asks until there is an answer, or the deadline has passed. Dropping it cancels what was asked.
async fn attempt(
    guard: &Arc<SessionGuard>,
    name: &LeaseName,
    options: &AcquireOptions,
) -> Result<HeldLease, AcquireError> {
    let session = &guard.session;
    let transport = &session.transport;
    let deadline = transport.deadline() + options.wait.unwrap_or_default();
    let endings = &guard.client.inner.endings;
    endings
        .settle(name, transport.deadline())
        .await
        .map_err(AcquireError::Call)?;
    loop {
        if let Some(loss) = session.loss() {
            return Err(AcquireError::SessionLost(loss));
        }
        let what = match options.wait {
            Some(_) => RequestKind::Wait,
            None => RequestKind::Acquire,
        };
        let number = session
            .next_number(what, deadline)
            .await
            .map_err(AcquireError::Call)?;
        // Before the request is sent: from here on every way out, also a dropped future, either
        // learns the outcome or cancels the request under its number.
        let in_flight = InFlightAcquire {
            guard,
            name,
            number: Some(number.number),
        };
        let handle = Some(session.handle().to_wire());
        let body = client_frame::Body::Acquire(request(handle, name, number, options));
        let mode = if options.wait.is_some() {
            ReplyMode::Waiting
        } else {
            ReplyMode::Prompt
        };
        let refusal = match transport.call(body, mode, deadline).await {
            Ok(answer) => return in_flight.granted(answer),
            Err(CallError::Refused(refusal)) => refusal,
            Err(CallError::Unavailable { why }) => {
                // It was never sent, so there is nothing to take back.
                in_flight.answered();
                return Err(AcquireError::Call(CallError::Unavailable { why }));
            }
            // The outcome is open, so dropping `in_flight` cancels the request in the background,
            // and a grant that it may have received is released.
            Err(unknown) => return Err(AcquireError::Call(unknown)),
        };
        in_flight.answered();
        session.apply_refusal(&refusal);
        // Another client has used the session and spent this number, or the wait was confirmed
        // before it arrived, or its end before its answer came back: it holds nothing.
        if refusal.reason != Reason::StaleRequest || transport.now() >= deadline {
            return Err(error_of_refusal(session, refusal));
        }
    }
}

/// The lease of a grant that came with its session; what makes no sense is given back by closing it.
pub(crate) fn lease_of_grant(
    owner: &Session,
    name: &LeaseName,
    grant: Option<v1::Grant>,
) -> Result<HeldLease, AcquireError> {
    let session = &owner.guard.session;
    let fits = |grant: &Grant| grant.name == *name && grant.session == session.id();
    let grant = grant.and_then(Grant::from_wire).filter(fits);
    let grant = grant.ok_or_else(|| AcquireError::Call(CallError::unexpected_reply()))?;
    match session.admit(grant) {
        Ok(grant) => Ok(HeldLease::new(Arc::clone(&owner.guard), grant)),
        Err(loss) => Err(AcquireError::Ended(loss)),
    }
}

/// A request for a lease whose fate is open. Dropping it takes the request back, as often as that
/// has to be repeated.
struct InFlightAcquire<'a> {
    guard: &'a Arc<SessionGuard>,
    name: &'a LeaseName,
    number: Option<u64>,
}

impl InFlightAcquire<'_> {
    /// The cluster has answered: there is nothing to take back.
    fn answered(mut self) {
        if let Some(number) = self.number.take() {
            self.guard.session.confirm(number);
        }
    }

    /// The answer is a grant: believes in it, unless it was lost meanwhile.
    fn granted(self, answer: Answer) -> Result<HeldLease, AcquireError> {
        let (guard, name) = (self.guard, self.name);
        let session = &guard.session;
        let grant = match answer.body {
            server_frame::Body::Acquire(reply) => reply.grant.and_then(Grant::from_wire),
            _ => None,
        };
        // What makes no sense is taken back, which tells what it was.
        let fits = |grant: &Grant| grant.name == *self.name && grant.session == session.id();
        let Some(grant) = grant.filter(fits) else {
            return Err(AcquireError::Call(CallError::unexpected_reply()));
        };
        // The window is not moved: only a keep-alive's answer tells what was lost, and a caller
        // that asks often enough to need none would believe in a revoked grant for ever.
        self.answered();
        match session.admit(grant) {
            Ok(grant) => Ok(HeldLease::new(Arc::clone(guard), grant)),
            Err(loss) => {
                give_back(guard, name);
                Err(AcquireError::Ended(loss))
            }
        }
    }
}

/// A grant came when its session was over for this client: it is noted as given up. No other client
/// may ever ask for the lease here, and a client that keeps the session alive would keep it for no
/// holder.
fn give_back(guard: &Arc<SessionGuard>, name: &LeaseName) {
    // In the background, since the caller already has its error. The guard keeps the session and
    // the client's thread alive until the cluster has answered.
    let (guard, name) = (Arc::clone(guard), name.clone());
    let thread = guard.session.transport.thread.clone();
    drop(thread.spawn(async move {
        let deadline = guard.client.now() + guard.session.ttl();
        if let Err(error) = guard.client.inner.endings.settle(&name, deadline).await {
            tracing::debug!(%name, %error, "a grant that came too late was not released");
        }
    }));
}

impl Drop for InFlightAcquire<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number.take() else {
            return;
        };
        let session = &self.guard.session;
        let what = EndTarget::Request(number);
        let endings = &self.guard.client.inner.endings;
        let work = endings.begin(session, self.name, what);
        work.in_background(Arc::clone(self.guard));
    }
}

/// What an acquire asks the cluster for.
pub(crate) fn request(
    session: Option<v1::SessionHandle>,
    name: &LeaseName,
    number: RequestNumber,
    options: &AcquireOptions,
) -> v1::AcquireRequest {
    v1::AcquireRequest {
        session,
        open: None,
        number: number.number,
        lowest: number.lowest,
        name: name.to_string(),
        wait_ms: options.wait.map(millis),
        data: options.data.clone(),
        lock_delay_ms: millis(options.lock_delay),
    }
}

/// Sorts a refusal for the caller.
pub(crate) fn error_of_refusal(session: &Arc<SessionInner>, refusal: Box<Refusal>) -> AcquireError {
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
                session.forget_grant(token);
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
