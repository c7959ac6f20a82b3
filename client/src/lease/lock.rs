//! A lease with a session of its own, in one call and, where no client holds it, one round trip.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringfence_core::LeaseName;

use crate::clock::Moment;
use crate::lease::HeldLease;
use crate::lease::acquire::{Acquire, AcquireError, AcquireOptions};
use crate::lease::identity::unique_identity;
use crate::lease::open_and_acquire::{OpenedAndAcquired, open_and_acquire};
use crate::lease::seal::Seal;
use crate::lease::sealing;
use crate::session::client::Client;
use crate::session::error::OpenError;
use crate::session::loss::Loss;
use crate::session::unsealed::{Unsealed, UnsealedGuard};
use crate::session::{Session, SessionOptions};
use crate::transport::error::CallError;
use crate::transport::refusal::Reason;
use crate::transport::retry;

/// How long one request waits in the queue before another takes its place.
const WAIT: Duration = Duration::from_secs(12 * 60 * 60);

/// A lock in the making; [`Client::lock`] begins one, and `.await` carries it out.
///
/// Dropping the future at any point leaves no grant and no place in the queue behind.
#[derive(Clone, Debug)]
#[must_use = "nothing is locked until it is awaited"]
pub struct LockRequest {
    client: Client,
    name: String,
    options: SessionOptions,
    limit: WaitLimit,
    acquire_options: AcquireOptions,
}

/// How long to wait.
#[derive(Clone, Copy, Debug)]
enum WaitLimit {
    Never,
    After(Duration),
}

impl Client {
    /// Acquires the lease `name` under a session of its own, which is closed when the lease is
    /// dropped or released. It waits as long as it takes, also through outages of the cluster; see
    /// [`LockRequest::wait`] and [`LockRequest::try_once`].
    ///
    /// Opening and acquiring are one request: a lease that is free costs one round trip.
    /// For several leases open one [session](Self::open_session) and acquire them with it.
    ///
    /// ```no_run
    /// # use ringfence_client::{Client, HeldLease};
    /// # async fn f(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let lease = client.lock("jobs/x").await?;
    /// println!("working as {}", lease.fence());
    /// lease.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, name: impl Into<String>) -> LockRequest {
        LockRequest {
            client: self.clone(),
            name: name.into(),
            options: SessionOptions {
                identity: unique_identity(),
                ..SessionOptions::default()
            },
            limit: WaitLimit::Never,
            acquire_options: AcquireOptions::default(),
        }
    }
}

impl LockRequest {
    /// Waits for at most this long, outages and [sealing](Self::seal) included, and fails with
    /// [`AcquireError::TimedOut`] then.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.limit = WaitLimit::After(limit);
        self
    }

    /// Does not wait: a lease that is held is refused with [`AcquireError::Held`].
    pub fn try_once(mut self) -> Self {
        self.limit = WaitLimit::After(Duration::ZERO);
        self
    }

    /// The session's TTL; see [`SessionOptions::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// Who the holder is, for people; a [unique identity](unique_identity) unless set.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.options.identity = identity.into();
        self
    }

    /// Publishes up to 1 KiB with the grant; see [`Acquire::data`].
    pub fn data(mut self, data: impl Into<Bytes>) -> Self {
        self.acquire_options.data = data.into();
        self
    }

    /// Seals the lease before it is reported held; see [`Acquire::seal`]. A lease that cannot be
    /// sealed is given back, and acquired again after a pause, which doubles from 0.2 s to 30 s.
    /// At the end of the [wait](Self::wait), or at once with [`try_once`](Self::try_once) or if a
    /// guard refuses the lease by mistake, that fails with [`AcquireError::Unsealed`].
    pub fn seal(mut self, seal: Seal) -> Self {
        self.acquire_options.seal = seal;
        self
    }

    /// How long the lease stays blocked after a dirty end; see [`Acquire::lock_delay`].
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.acquire_options.lock_delay = delay;
        self
    }

    async fn send(self) -> Result<HeldLease, AcquireError> {
        let name = LeaseName::parse(&self.name).map_err(AcquireError::InvalidName)?;
        let transport = Arc::clone(&self.client.inner.transport);
        let until = match self.limit {
            WaitLimit::Never => None,
            WaitLimit::After(limit) => Some(transport.now() + limit),
        };
        // A lock that does not wait for its lease still waits for the guards' answers.
        let sealed_by = until.filter(|_| !self.is_at_once());
        let seal = &self.acquire_options.seal;
        let mut session: Option<Session> = None;
        let mut tries = 0;
        loop {
            let open = session.take().filter(Session::is_live);
            let granted = match open {
                None => match self.open_and_acquire(&name).await {
                    Ok((opened, granted)) => {
                        session = Some(opened);
                        granted
                    }
                    Err(error) => Err(error),
                },
                Some(open) => {
                    let left = until.map_or(WAIT, |until| until.saturating_since(transport.now()));
                    let mut acquire_options = self.acquire_options.clone();
                    acquire_options.wait = Some(left.min(WAIT));
                    let acquire = Acquire::with_options(&open, name.to_string(), acquire_options);
                    let granted = acquire.granted().await;
                    session = Some(open);
                    granted
                }
            };
            let sealed = match granted {
                Ok(lease) => sealing::sealed(lease, seal, sealed_by)
                    .await
                    .map_err(Into::into),
                Err(error) => Err(error),
            };
            let failed = match sealed {
                Ok(lease) => return Ok(lease),
                Err(error) => error,
            };
            let pause = match next(&failed) {
                NextStep::Fail => return Err(failed),
                NextStep::Wait => Duration::ZERO,
                NextStep::Pause => retry::pause(tries, None),
                NextStep::PauseUnsealed => sealing::pause(tries),
            };
            if until.is_some_and(|until| is_over(until, transport.now() + pause)) {
                return Err(self.error_at_limit(failed));
            }
            if !pause.is_zero() {
                tries += 1;
                transport.sleep_until(transport.now() + pause).await;
            }
        }
    }

    async fn open_and_acquire(&self, name: &LeaseName) -> Result<OpenedAndAcquired, AcquireError> {
        let (options, acquire_options) = (self.options.clone(), self.acquire_options.clone());
        open_and_acquire(&self.client, options, name.clone(), acquire_options).await
    }

    /// Whether it has one try.
    fn is_at_once(&self) -> bool {
        matches!(self.limit, WaitLimit::After(limit) if limit.is_zero())
    }

    /// What to say when the time is over: without a limit above zero, why it is not free.
    fn error_at_limit(&self, failed: AcquireError) -> AcquireError {
        match failed {
            AcquireError::Held(_) | AcquireError::Queued { .. } | AcquireError::NotNow { .. }
                if !self.is_at_once() =>
            {
                AcquireError::TimedOut
            }
            failed => failed,
        }
    }
}

fn is_over(until: Moment, now: Moment) -> bool {
    now >= until
}

/// What to do after a try that brought nothing.
enum NextStep {
    /// It would be refused again.
    Fail,
    /// Stand in the queue.
    Wait,
    /// Try again after a while.
    Pause,
    /// Try again after a longer while: each try takes a grant.
    PauseUnsealed,
}

fn next(failed: &AcquireError) -> NextStep {
    match failed {
        AcquireError::Held(_)
        | AcquireError::Queued { .. }
        | AcquireError::NotNow { .. }
        | AcquireError::TimedOut => NextStep::Wait,
        AcquireError::SessionLost(_) => NextStep::Pause,
        AcquireError::Ended(Loss::Reported) => NextStep::PauseUnsealed,
        AcquireError::Ended(_) => NextStep::Pause,
        AcquireError::Unsealed { guards } => {
            // A guard of another lease, say. It would refuse the next token as well.
            let refused = |guard: &UnsealedGuard| matches!(guard.why, Unsealed::Refused(_));
            match guards.iter().any(refused) {
                true => NextStep::Fail,
                false => NextStep::PauseUnsealed,
            }
        }
        AcquireError::InvalidName(_) => NextStep::Fail,
        AcquireError::Call(error) | AcquireError::Open(OpenError::Call(error)) => match error {
            CallError::Refused(refusal) if refusal.reason == Reason::Limit => NextStep::Pause,
            CallError::Refused(_) => NextStep::Fail,
            CallError::Unavailable { .. } | CallError::Unknown { .. } => NextStep::Pause,
        },
        AcquireError::Open(OpenError::TooLate) => NextStep::Pause,
        AcquireError::Open(OpenError::InvalidIdentity(_) | OpenError::ShutDown) => NextStep::Fail,
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<HeldLease, AcquireError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
