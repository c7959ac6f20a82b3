//! The guard of data in PostgreSQL: mark and data change in one transaction.
//!
//! ```no_run
//! use ringfence_guard::Fence;
//! use ringfence_guard::postgres::{PostgresError, PostgresGuard};
//!
//! # async fn example(mut client: tokio_postgres::Client) -> Result<(), PostgresError> {
//! PostgresGuard::install(&client).await?; // or run the migration with what runs the others
//!
//! let fence: Fence = "bank/balance#9".parse().expect("from the lease that was granted");
//! let guard = PostgresGuard::new(fence.name.clone());
//!
//! // A new holder advances the mark before its first read.
//! guard.advance(&mut client, &fence).await?;
//! let row = client.query_one("SELECT amount FROM balance", &[]).await?;
//! let amount: i64 = row.get(0);
//!
//! // Mark first, then the data, in one transaction, which is repeated if the server asks for it.
//! guard
//!     .write(&mut client, &fence, async |client| {
//!         let update = "UPDATE balance SET amount = $1";
//!         client.execute(update, &[&(amount + 10)]).await?;
//!         Ok::<_, PostgresError>(())
//!     })
//!     .await?;
//!
//! // The same by hand.
//! let transaction = client.transaction().await?;
//! guard.admit(&transaction, &fence).await?;
//! transaction.execute("UPDATE balance SET amount = amount + 10", &[]).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Other languages
//! The rules are SQL functions, [`MIGRATION`] in this crate's `sql/postgres.sql`. A service in any
//! language runs the same migration and begins its transactions with `SELECT ringfence_admit('bank/balance', 9)`;
//! it and services that use this guard share one mark. A refusal is an error with a `SQLSTATE` of
//! its own, `RF001` for a stale token, so a program that overlooks it has an aborted transaction and
//! not a stale write.
//!
//! # Isolation
//! It is right at every isolation level, since the mark is written, not only read:
//!
//! * `READ COMMITTED`: a transaction waits for the one that holds the mark, then sees what that
//!   one left.
//! * `REPEATABLE READ` and `SERIALIZABLE`: one that waited for the mark is given up by the server
//!   with `40001`, also if both show the same token, and must be repeated from its beginning. Holders that
//!   write in parallel with themselves are better off with `READ COMMITTED`.
//!
//! # What PostgreSQL itself can lose
//! With `synchronous_commit = off`, or `fsync = off`, a crash takes back the newest commits; a
//! failover to an asynchronous standby does too. Either is a restore: see
//! [`PostgresGuard::advance_to`]. A standby that lags serves reads from before the advance: read
//! from the primary what a write builds on.

mod error;

use std::error::Error;
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use ringfence_core::{FencingToken, LeaseName};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient, IsolationLevel, SimpleQueryMessage, Transaction};

use crate::{Admitted, Fence, Refused};

pub use error::PostgresError;
use error::stems_from_conflict;

/// The table of marks and the functions around it, for whatever runs a service's migrations.
/// Running it again changes nothing.
pub const MIGRATION: &str = include_str!("../sql/postgres.sql");

/// How often a transaction is tried unless [`PostgresGuard::attempts`] says otherwise.
pub const ATTEMPTS: u32 = 64;

/// Beneath `ringfence_admit`: what that checks is checked by types here.
const RAISE: &str = "SELECT ringfence_raise($1, $2)";
/// The way of most writes: a statement that the server has parsed and planned once per connection.
/// It writes the mark also when it is equal, raises as the functions do, and changes no row if there
/// is none yet. A third of the cost of calling `ringfence_raise` is saved.
const PREPARE: &str = "PREPARE ringfence_mark(text, bigint) AS UPDATE ringfence_marks \
     SET mark = CASE WHEN mark <= $2 THEN $2 ELSE ringfence_stale($1, mark, $2) END \
     WHERE name = $1";
const ADVANCE_TO: &str = "SELECT ringfence_advance_to($1, $2)";
const READ: &str = "SELECT mark FROM ringfence_marks WHERE name = $1";

/// How often one write may change its [`Way`] before it takes the one that always works.
const WAYS_MAX: u32 = 4;

/// Services that start together install together; `CREATE … IF NOT EXISTS` alone fails for all but
/// one of them then. The number is "ringfenc" in ASCII.
const INSTALL_LOCK: &str = "SELECT pg_advisory_xact_lock(8244241983257013859);";

/// An empty query fails in a transaction that a failed statement has aborted. A `COMMIT` alone would
/// answer such a transaction with success and roll it back.
const COMMIT: &str = "SELECT; COMMIT";

/// A guard whose mark is a row beside the data, bound to one lease.
///
/// The mark lives in the table `ringfence_marks` and protects data of the same database only.
///
/// # Rules for its transactions
/// * [`PostgresGuard::admit`] comes first. From there to the end of the transaction no newer grant
///   is admitted. What a transaction has read before was not protected.
/// * After a refusal the transaction is aborted: roll it back, as dropping it does.
/// * A new holder calls [`PostgresGuard::advance`] before its first read.
/// * [`PostgresGuard::write`] keeps the first two by itself.
#[derive(Clone, Debug)]
pub struct PostgresGuard {
    name: LeaseName,
    isolation: Option<IsolationLevel>,
    attempts: u32,
    prepares: bool,
}

/// How a write shows its fence.
#[derive(Clone, Copy)]
enum Way {
    /// By the statement that an earlier write has prepared on this connection.
    Prepared,
    /// The same, which is prepared before.
    Prepare,
    /// By the function, which also makes a row where there is none.
    Raise,
}

impl PostgresGuard {
    /// Runs [`MIGRATION`] in the first schema of the search path. Many may do so at a time.
    ///
    /// # Errors
    /// [`PostgresError::Database`], if the role may not create tables and functions.
    pub async fn install(client: &Client) -> Result<(), PostgresError> {
        let script = [INSTALL_LOCK, MIGRATION].concat();
        Ok(client.batch_execute(&script).await?)
    }

    /// A guard bound to `name`. It holds no state of its own; any number may exist.
    #[must_use]
    pub const fn new(name: LeaseName) -> Self {
        Self {
            name,
            isolation: None,
            attempts: ATTEMPTS,
            prepares: true,
        }
    }

    /// For connections behind a pooler that gives each transaction another one, or makes them forget
    /// what was prepared: nothing is. Without it [`PostgresGuard::write`] would be right there, too,
    /// but begin most transactions twice.
    #[must_use]
    pub const fn pooled(mut self) -> Self {
        self.prepares = false;
        self
    }

    /// Sets the isolation level of [`PostgresGuard::write`]; without it the server's default holds.
    #[must_use]
    pub const fn isolation(mut self, level: IsolationLevel) -> Self {
        self.isolation = Some(level);
        self
    }

    /// Sets how often [`PostgresGuard::write`] and [`PostgresGuard::advance`] try a transaction
    /// that meets another one: at least once, [`ATTEMPTS`] times by default.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// The lease this guard is bound to.
    #[must_use]
    pub const fn name(&self) -> &LeaseName {
        &self.name
    }

    /// Admits the fence for the rest of the transaction, if no greater token was admitted before,
    /// and writes the mark. Must be the first statement of `transaction`. One round trip.
    ///
    /// It may be sent together with the first statements that write: poll its future first, as
    /// `tokio::join!` does with `biased;`. If it is refused, those fail as well.
    ///
    /// # Errors
    /// [`PostgresError::Refused`]: roll back; after [`Refused::StaleToken`] the lease is lost.
    /// [`PostgresError::Conflict`]: roll back and repeat. [`PostgresError::NotInstalled`] is a
    /// mistake of the program.
    pub async fn admit(
        &self,
        transaction: &Transaction<'_>,
        fence: &Fence,
    ) -> Result<Admitted, PostgresError> {
        fence.check_lease(&self.name)?;
        self.call(RAISE, transaction, fence).await?;
        Ok(Admitted::new(fence.token))
    }

    /// Tells the guard, in a transaction of its own, that `fence` is the grant in force: once it
    /// has returned, every older token is refused. A new holder calls it **before its first read**
    /// of what is guarded. Advancing twice changes nothing.
    ///
    /// # Errors
    /// As [`PostgresGuard::admit`], where a conflict was met in every attempt. After
    /// [`PostgresError::Database`] of a broken connection the mark may have been raised: advance
    /// again.
    pub async fn advance(
        &self,
        client: &mut Client,
        fence: &Fence,
    ) -> Result<Admitted, PostgresError> {
        fence.check_lease(&self.name)?;
        self.insist(RAISE, client, fence).await?;
        Ok(Admitted::new(fence.token))
    }

    /// Runs `effect` in a transaction that admits `fence` first, and commits it. Any error rolls
    /// back, and so does dropping the future. `effect` gets the client with the transaction open, and
    /// must not end it by itself.
    ///
    /// The first statement of `effect` is sent behind the admission without waiting for its answer,
    /// so that a guard costs no round trip; it waits in the server for as long, and fails if the
    /// fence is refused, since that aborts the transaction. On a conflict, wherever it is met, all of
    /// it is repeated. For both reasons `effect` must do nothing that a rollback does not undo, at
    /// least not before the server has answered a statement of it.
    ///
    /// The admission is a statement that the server has prepared. Where it has not, as in the first
    /// write of a connection, the transaction is begun anew with it, before any statement of
    /// `effect` was answered; see [`PostgresGuard::pooled`].
    ///
    /// A conflict is recognised in the errors that `effect` returns by following
    /// [`Error::source`], so they must not hide where they come from.
    ///
    /// # Errors
    /// As [`PostgresGuard::admit`]; [`PostgresError::Unknown`] if the connection broke during the
    /// commit; or whatever `effect` returns. If a statement failed and `effect` returned `Ok`
    /// nevertheless, [`PostgresError::Database`]: that transaction cannot be committed.
    pub async fn write<R, E>(
        &self,
        client: &mut Client,
        fence: &Fence,
        mut effect: impl AsyncFnMut(&Client) -> Result<R, E>,
    ) -> Result<R, E>
    where
        E: From<PostgresError> + Error + 'static,
    {
        let mut left = self.attempts;
        let mut ways_left = WAYS_MAX;
        let mut way = if self.prepares {
            Way::Prepared
        } else {
            Way::Raise
        };
        loop {
            let other = OnceLock::new();
            let done = self
                .write_once(client, fence, way, &other, &mut effect)
                .await;
            if let Some(&other) = other.get() {
                ways_left -= 1;
                way = if ways_left > 0 { other } else { Way::Raise };
                continue;
            }
            left = left.saturating_sub(1);
            match done {
                Err(error) if left > 0 && stems_from_conflict(&error) => {}
                done => return done,
            }
        }
    }

    async fn write_once<R, E: From<PostgresError>>(
        &self,
        client: &Client,
        fence: &Fence,
        way: Way,
        other: &OnceLock<Way>,
        effect: &mut impl AsyncFnMut(&Client) -> Result<R, E>,
    ) -> Result<R, E> {
        // Before anything is sent: what follows relies on the server to refuse.
        fence.check_lease(&self.name).map_err(PostgresError::from)?;
        let open = Open(client);
        let begin = async {
            let begun = client.simple_query(&self.begin(fence, way)).await;
            let instead = Way::instead_of(&begun);
            if let Some(way) = instead {
                other.get_or_init(|| way);
            }
            match begun {
                Ok(_) if instead.is_none() => Ok(()),
                // Nobody sees this error: the write is begun anew.
                Ok(_) => Err(PostgresError::NotInstalled),
                Err(source) => Err(PostgresError::of_fence(source, fence)),
            }
        };
        let value = behind(begin, effect(client)).await?;
        client
            .batch_execute(COMMIT)
            .await
            .map_err(PostgresError::of_commit)?;
        // It is over; a rollback would make the server warn.
        mem::forget(open);
        Ok(value)
    }

    /// Begins and admits in one message. Neither a lease name nor a number can end a text in SQL.
    fn begin(&self, fence: &Fence, way: Way) -> String {
        let level = match self.isolation {
            None => "",
            Some(IsolationLevel::Serializable) => " ISOLATION LEVEL SERIALIZABLE",
            Some(IsolationLevel::RepeatableRead) => " ISOLATION LEVEL REPEATABLE READ",
            // The server does not tell these two apart.
            Some(_) => " ISOLATION LEVEL READ COMMITTED",
        };
        let (name, token) = (&fence.name, fence.token);
        let begin = format!("START TRANSACTION{level}");
        match way {
            Way::Prepared => format!("{begin}; EXECUTE ringfence_mark('{name}', {token})"),
            Way::Prepare => {
                format!("{begin}; {PREPARE}; EXECUTE ringfence_mark('{name}', {token})")
            }
            Way::Raise => format!("{begin}; SELECT ringfence_raise('{name}', {token})"),
        }
    }

    /// Raises the mark to `floor` if it is lower; never lowers it. After a restore of the database,
    /// and after any loss of its newest commits, call it with the lease's newest token before
    /// writes are served: the copy's mark may admit a grant that was fenced off since.
    ///
    /// # Errors
    /// As [`PostgresGuard::advance`], but never [`PostgresError::Refused`].
    pub async fn advance_to(
        &self,
        client: &mut Client,
        floor: FencingToken,
    ) -> Result<(), PostgresError> {
        let fence = Fence::new(self.name.clone(), floor);
        match self.insist(ADVANCE_TO, client, &fence).await {
            // Somebody greater came first.
            Err(PostgresError::Refused(Refused::StaleToken { .. })) => Ok(()),
            done => done,
        }
    }

    /// The greatest token admitted so far. Advice for people: only [`PostgresGuard::admit`]
    /// decides.
    ///
    /// # Errors
    /// [`PostgresError::NotInstalled`] or [`PostgresError::Database`].
    pub async fn mark(
        &self,
        client: &impl GenericClient,
    ) -> Result<Option<FencingToken>, PostgresError> {
        let name = self.name.as_str();
        let row = client.query_opt(READ, &[&name]).await?;
        let mark = row.map(|row| row.get::<_, i64>(0));
        Ok(mark.and_then(|mark| FencingToken::new(mark.unsigned_abs())))
    }

    /// Calls a function of the migration in a transaction of its own.
    async fn insist(&self, sql: &str, client: &Client, fence: &Fence) -> Result<(), PostgresError> {
        let mut left = self.attempts;
        loop {
            left = left.saturating_sub(1);
            match self.call(sql, client, fence).await {
                Err(error) if left > 0 && error.is_retryable() => {}
                done => return done,
            }
        }
    }

    async fn call(
        &self,
        sql: &str,
        client: &impl GenericClient,
        fence: &Fence,
    ) -> Result<(), PostgresError> {
        let name = self.name.as_str();
        let token = i64::try_from(fence.token.get()).expect("tokens are below 2^63");
        // Typed, so that it is one round trip: untyped parameters have to be asked for first.
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&name, Type::TEXT), (&token, Type::INT8)];
        client
            .query_typed(sql, &parameters)
            .await
            .map_err(|source| PostgresError::of_fence(source, fence))?;
        Ok(())
    }
}

impl Way {
    /// The way to take instead of one that has come to nothing on this connection.
    fn instead_of(begun: &Result<Vec<SimpleQueryMessage>, tokio_postgres::Error>) -> Option<Self> {
        match begun {
            Ok(answers) => {
                let rows = answers.iter().rev().find_map(|answer| match answer {
                    SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
                    _ => None,
                });
                (rows == Some(0)).then_some(Self::Raise)
            }
            Err(error) => {
                let code = error.code()?;
                if *code == SqlState::INVALID_SQL_STATEMENT_NAME {
                    Some(Self::Prepare)
                } else if *code == SqlState::DUPLICATE_PSTATEMENT {
                    Some(Self::Prepared)
                } else {
                    None
                }
            }
        }
    }
}

/// An open transaction of this client. Dropping it sends a rollback and does not wait for it; what is
/// sent later comes later.
struct Open<'a>(&'a Client);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut rollback = pin!(self.0.batch_execute("ROLLBACK"));
        // The first poll sends it. Nobody asks for the answer.
        let polled = rollback
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        drop(polled);
    }
}

/// Awaits both, the admission a step ahead, so that its message is on its way before the first one of
/// the effect. A refusal counts for more than what came of the effect, which is dropped then.
async fn behind<R, E: From<PostgresError>>(
    admission: impl Future<Output = Result<(), PostgresError>>,
    effect: impl Future<Output = Result<R, E>>,
) -> Result<R, E> {
    let (mut admission, mut effect) = (pin!(admission), pin!(effect));
    let (mut admitted, mut value) = (false, None);
    poll_fn(|context| {
        if !admitted {
            match admission.as_mut().poll(context) {
                Poll::Ready(Ok(())) => admitted = true,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => {}
            }
        }
        if value.is_none()
            && let Poll::Ready(outcome) = effect.as_mut().poll(context)
        {
            value = Some(outcome);
        }
        match value.take() {
            Some(outcome) if admitted => Poll::Ready(outcome),
            unfinished => {
                value = unfinished;
                Poll::Pending
            }
        }
    })
    .await
}
