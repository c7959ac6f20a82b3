//! A raw lock: one lease, taken, renewed and released by explicit calls.
//!
//! It is the layer that other tools know as a resource lock: nothing happens unless it is called,
//! and what runs the renewals is the business of other code, [`Elector`](crate::Elector) for
//! example.

use std::time::Duration;

use ringfence_core::{FencingToken, InvalidName, LeaseName, SessionId};

use crate::clock::Moment;
use crate::lease::HeldLease;
use crate::lease::acquire::AcquireError;
use crate::lease::identity::{DuplicateIdentity, RenewalCounter, sample_session};
use crate::session::client::Client;
use crate::session::error::{OpenError, ReleaseError};
use crate::session::heartbeat::Heartbeat;
use crate::session::loss::Loss;
use crate::session::{Session, SessionOptions};
use crate::transport::error::CallError;
use crate::watch::observer::Observer;

/// Which part of the TTL a call renews the lock for before it needs another one.
const CALLS_PER_TTL: u32 = 3;

/// A lock that is renewed by calls, on any backend that is consistent.
///
/// [`RawLock`] is the one on a Ringfence cluster. What is written against this trait works with
/// every other one.
pub trait Lock {
    /// Why a call failed. Nothing is known then about the lock, except what was known before.
    type Error: std::error::Error;

    /// Takes the lock if it is free, renews it if it is mine; whether it is mine now.
    fn try_acquire(&mut self) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Looks at the lock without changing it.
    fn refresh(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Releases the lock if it is mine; whether it is not mine now, so also if it never was.
    fn try_release(&mut self) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// The number of the newest term that is known, never less than before; −1: none is.
    fn term(&self) -> i64;

    /// Who held the lock at the last call, as far as it reported.
    fn owner(&self) -> Option<&str>;

    /// Until when the lock is mine unless it is renewed; `None` if it is not mine.
    fn locked_until(&self) -> Option<Moment>;
}

/// Who held a lock when it was last looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Who it says it is.
    pub identity: String,
    /// The holder's session; two processes never share one, whatever identities they use.
    pub session: SessionId,
    /// The token of its grant: the lock's term.
    pub token: FencingToken,
}

/// Why a call on a raw lock failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// No session could be opened.
    #[error("open a session")]
    Open(#[source] OpenError),
    /// The request failed; if it may have been done, it is being taken back.
    #[error(transparent)]
    Call(CallError),
    /// Another living process uses this lock's identity.
    #[error(transparent)]
    Duplicate(DuplicateIdentity),
}

/// One lease as a lock that is renewed by calls; see the trait [`Lock`] for what each does.
///
/// It stays mine while [`try_acquire`](Self::try_acquire) or [`refresh`](Self::refresh) is called
/// at least every third of its TTL. One that is called no more goes stale: it is lost here when its
/// window has passed, and free for others soon after. Theft (a revoke, say) is seen as it happens,
/// by a watch; see [`lost`](Self::lost). Dropping it releases it in the background.
#[must_use = "a lock is released when it is dropped"]
pub struct RawLock {
    client: Client,
    name: LeaseName,
    options: SessionOptions,
    session: Option<(Session, Heartbeat)>,
    held: Option<HeldLease>,
    observer: Option<Observer>,
    owner: Option<Owner>,
    term: Option<FencingToken>,
    /// A session with our identity that may be alive, and the looks taken at it.
    duplicate: Option<(SessionId, RenewalCounter)>,
}

impl RawLock {
    /// A lock on the lease `name`, which no client has asked for yet.
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(client: &Client, name: &str, options: SessionOptions) -> Result<Self, InvalidName> {
        Ok(Self {
            client: client.clone(),
            name: LeaseName::parse(name)?,
            options,
            session: None,
            held: None,
            observer: None,
            owner: None,
            term: None,
            duplicate: None,
        })
    }

    /// Takes the lock if it is free, renews it if it is mine, in one request, or two if there is no
    /// session yet. `false` if another client holds it or waits for it; never a wrong `true`.
    ///
    /// # Errors
    /// [`LockError`].
    pub async fn try_acquire(&mut self) -> Result<bool, LockError> {
        if self.is_mine() {
            self.refresh().await?;
            return Ok(self.is_mine());
        }
        self.held = None;
        let session = self.session().await?;
        match session.acquire(self.name.as_str()).send().await {
            Ok(lease) => {
                self.saw(Some(Owner {
                    identity: self.options.identity.clone(),
                    session: lease.session(),
                    token: lease.token(),
                }));
                self.held = Some(lease);
                Ok(true)
            }
            Err(AcquireError::Held(holder)) => {
                let (session, token) = (holder.session, holder.token);
                let owner = session.zip(token).map(|(session, token)| Owner {
                    identity: holder.identity,
                    session,
                    token,
                });
                self.saw(owner);
                self.check_for_duplicate().await?;
                Ok(false)
            }
            Err(AcquireError::Call(error)) => Err(LockError::Call(error)),
            Err(_) => Ok(false),
        }
    }

    /// Looks at the lock without changing it: one read, which any node answers without writing. If
    /// the lock is mine this renews it as well, since it is a call; if it is mine no more, that is
    /// known from here on.
    ///
    /// # Errors
    /// [`LockError`].
    pub async fn refresh(&mut self) -> Result<(), LockError> {
        if let Some((_, heartbeat)) = &self.session {
            heartbeat.beat();
        }
        // A name that no client ever held is not known.
        let lease = self.client.look_up(&self.name).await;
        let lease = lease.map_err(LockError::Call)?;
        let floor = lease.as_ref().and_then(|lease| lease.floor);
        self.term = self.term.max(floor);
        let owner = lease.and_then(|lease| lease.holder).map(|grant| Owner {
            identity: grant.identity,
            session: grant.session,
            token: grant.token,
        });
        let mine = self.held.as_ref().map(|held| held.token());
        if mine.is_some() && owner.as_ref().map(|owner| owner.token) != mine {
            self.drop_lost_lease();
        }
        self.saw(owner);
        self.check_for_duplicate().await
    }

    /// Releases the lock if it is mine. `true` if it is not mine now, so also if it never was. The
    /// term stays known, here and at the cluster.
    ///
    /// # Errors
    /// [`LockError`] if it is not certain that it is released; belief in it has ended all the same.
    pub async fn try_release(&mut self) -> Result<bool, LockError> {
        let Some(lease) = self.held.take() else {
            return Ok(true);
        };
        match lease.release().await {
            Ok(()) | Err(ReleaseError::Lost(_)) => {
                self.owner = None;
                Ok(true)
            }
            Err(ReleaseError::Call(error)) => Err(LockError::Call(error)),
        }
    }

    /// The newest token known for this lock as a signed number, which only grows; −1 if none is
    /// known. No two owners ever have the same.
    #[must_use]
    pub fn term(&self) -> i64 {
        // A token is below 2^63.
        self.term
            .map_or(-1, |term| i64::try_from(term.get()).unwrap_or(i64::MAX))
    }

    /// Who held the lock at the last call, as far as it reported.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// Whether it is mine at this instant; asks the clock each time.
    #[must_use]
    pub fn is_mine(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_valid())
    }

    /// Until when it is mine unless a call renews it; `None` if it is not mine.
    #[must_use]
    pub fn locked_until(&self) -> Option<Moment> {
        let held = self.held.as_ref().filter(|held| held.is_valid());
        held.map(|held| held.valid_until())
    }

    /// The lease, while it is mine: its fence for guards, for example.
    #[must_use]
    pub fn lease(&self) -> Option<&HeldLease> {
        self.held.as_ref().filter(|held| held.is_valid())
    }

    /// Completes when the lock is mine no more, with the reason: stolen, gone stale, or released.
    /// `None` if it is not mine.
    #[must_use]
    pub fn lost(&self) -> Option<impl Future<Output = Loss> + Send + 'static> {
        self.held.as_ref().map(|held| held.lost())
    }

    async fn session(&mut self) -> Result<Session, LockError> {
        if let Some((session, heartbeat)) = self.session.as_ref().filter(|(s, _)| s.is_live()) {
            heartbeat.beat();
            return Ok(session.clone());
        }
        let session = self.client.open_session(self.options.clone()).await;
        let session = session.map_err(LockError::Open)?;
        let limit: Duration = session.ttl() / CALLS_PER_TTL;
        let heartbeat = session.heartbeat(limit);
        self.session = Some((session.clone(), heartbeat));
        // It ends belief in what is stolen before the next renewal tells.
        let observer = self.client.observe(self.name.clone(), drop);
        self.observer = Some(observer);
        Ok(session)
    }

    /// The cluster says that the lock is another's.
    fn drop_lost_lease(&mut self) {
        if let Some(lease) = self.held.take() {
            lease.report_stale();
        }
    }

    fn saw(&mut self, owner: Option<Owner>) {
        self.term = self.term.max(owner.as_ref().map(|owner| owner.token));
        self.owner = owner;
    }

    /// Looks whether an owner with our identity is another process that lives.
    async fn check_for_duplicate(&mut self) -> Result<(), LockError> {
        let mine = self.session.as_ref().map(|(session, _)| session.id());
        let identity = &self.options.identity;
        let suspect = self.owner.as_ref().filter(|owner| {
            !identity.is_empty() && owner.identity == *identity && Some(owner.session) != mine
        });
        let Some(suspect) = suspect.map(|owner| owner.session) else {
            self.duplicate = None;
            return Ok(());
        };
        let found = || {
            Err(LockError::Duplicate(DuplicateIdentity {
                identity: identity.clone(),
                session: suspect,
            }))
        };
        // Opened after ours, and not by us.
        if mine.is_some_and(|mine| mine < suspect) {
            return found();
        }
        let mut renewals = match self.duplicate.take() {
            Some((session, renewals)) if session == suspect => renewals,
            _ => RenewalCounter::default(),
        };
        let seen = sample_session(&self.client, suspect)
            .await
            .map_err(LockError::Call)?;
        let alive = seen.is_some_and(|seen| renewals.observe(seen.remaining_ms));
        self.duplicate = Some((suspect, renewals));
        if alive { found() } else { Ok(()) }
    }
}

impl Lock for RawLock {
    type Error = LockError;

    async fn try_acquire(&mut self) -> Result<bool, LockError> {
        Self::try_acquire(self).await
    }

    async fn refresh(&mut self) -> Result<(), LockError> {
        Self::refresh(self).await
    }

    async fn try_release(&mut self) -> Result<bool, LockError> {
        Self::try_release(self).await
    }

    fn term(&self) -> i64 {
        Self::term(self)
    }

    fn owner(&self) -> Option<&str> {
        Self::owner(self).map(|owner| owner.identity.as_str())
    }

    fn locked_until(&self) -> Option<Moment> {
        Self::locked_until(self)
    }
}

impl std::fmt::Debug for RawLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawLock")
            .field("name", &self.name)
            .field("term", &self.term())
            .field("owner", &self.owner)
            .field("locked_until", &self.locked_until())
            .finish_non_exhaustive()
    }
}
