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
//! let guarded = guard.begin(&mut client, &fence).await?;
//! guarded.execute("UPDATE balance SET amount = amount + 10", &[]).await?;
//! guarded.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Other languages
//! The rules are SQL functions, [`MIGRATION`] in this crate's `sql/postgres.sql`. A service in any
//! language runs the same migration and begins its transactions with `SELECT ringfence.admit('bank/balance', 9)`;
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
//! # Holders that are paused
//! A guarded transaction keeps the mark to itself until it ends, and so does that of a holder which
//! is paused, or cut off, in the middle of it: the next holder's [`PostgresGuard::advance`] waits for
//! as long. Only the server can end that. Set `idle_in_transaction_session_timeout` for the role
//! that writes, to about the TTL of its sessions and longer than an effect computes between two
//! statements:
//!
//! ```sql
//! ALTER ROLE bank SET idle_in_transaction_session_timeout = '15s';
//! ```
//!
//! The server then ends the connection of such a holder and rolls its transaction back; on its own
//! it waits without limit. `statement_timeout` bounds a statement that does not come to its end, and
//! `lock_timeout` for how long an advance waits before it fails as [`PostgresError::Conflict`].
//!
//! # Connections of a pool
//! What one user of a connection sets stays for the next: `ringfence.ceiling`, `session_replication_role`,
//! which switches the triggers of the marks off for a superuser, or `synchronous_commit`. Have the pool reset
//! it, by `DISCARD ALL` for example.
//!
//! # What PostgreSQL itself can lose
//! With `synchronous_commit = off`, or `fsync = off`, a crash takes back the newest commits; a
//! failover to an asynchronous standby does too. Either is a restore: see
//! [`PostgresGuard::advance_to`]. A standby that lags serves reads from before the advance: read
//! from the primary what a write builds on.

mod error;
mod guarded;
mod opening;
mod retries;
mod seal;

use std::error::Error;
use std::mem;

use ringfence_core::{FencingToken, LeaseName};
use ringfence_planted::{Bug, planted};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, GenericClient, IsolationLevel, SimpleQueryMessage};

use crate::retries::{Conflict, Retries};
use crate::{Admitted, Ceiling, Fence, Refused};

pub use crate::retries::{ATTEMPTS, LOCK_ATTEMPTS, PAUSE_MAX, PAUSE_MIN};
use error::NOT_FIRST;
pub use error::PostgresError;
pub use guarded::Guarded;
use opening::{Open, Ways, pipelined};
use retries::{again, conflict_in};
pub use seal::PostgresSeal;

/// The table of marks and the functions around it, for whatever runs a service's migrations.
/// Running it again changes nothing.
pub const MIGRATION: &str = crate::sql::POSTGRES_MIGRATION;

/// Writes also on a connection that [`PostgresGuard::only_guarded`] has made read-only.
const BEGIN: &str = "START TRANSACTION READ WRITE";

const ONLY_GUARDED: &str = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY";

/// A guard whose mark is a row beside the data, bound to one lease.
///
/// The mark lives in the table `ringfence.marks` and protects data of the same database only, in all of
/// its schemas. The guard names that schema in each statement, so neither the session's search path nor
/// a temporary table leads it to other marks.
///
/// # Rules for its transactions
/// * They are begun and committed by the guard: with [`PostgresGuard::write`], or with
///   [`PostgresGuard::begin`] and [`Guarded::commit`]. The admission comes first in them; from there
///   to the end of the transaction no newer grant is admitted.
/// * A statement of their effect must not end them. Savepoints are allowed, as statements.
/// * A new holder calls [`PostgresGuard::advance`] before its first read.
#[derive(Clone, Debug)]
pub struct PostgresGuard {
    name: LeaseName,
    isolation: Option<IsolationLevel>,
    attempts: u32,
    prepares: bool,
    ceiling: Ceiling,
}

/// How often [`PostgresGuard::install`] runs a migration whose snapshot was too old.
pub const INSTALLS: u32 = 100;

/// Before the next of these: up to half a second.
const PAUSE: &str = "SELECT pg_catalog.pg_sleep(pg_catalog.random() / 2)";

impl PostgresGuard {
    /// Runs [`MIGRATION`]. Many may do so at a time. Where transactions are `REPEATABLE READ` or `SERIALIZABLE`
    /// by default, it is repeated if another one was under way, [`INSTALLS`] times in all.
    ///
    /// # Errors
    /// [`PostgresError::Database`], if the role may not create the schema `ringfence`; also if there is
    /// a table of marks of another shape (`WRONG_SHAPE`) or a second one (`OTHER_MARKS`), or if what there
    /// is belongs to a role other than this one and no superuser (`NOT_OWNED`).
    pub async fn install(client: &Client) -> Result<(), PostgresError> {
        for _ in 1..INSTALLS {
            match client.batch_execute(MIGRATION).await {
                Err(error) if error.code() == Some(&SqlState::T_R_SERIALIZATION_FAILURE) => {}
                done => return Ok(done?),
            }
            // Those that try again at once find each other under way again.
            client.batch_execute(PAUSE).await?;
        }
        Ok(client.batch_execute(MIGRATION).await?)
    }

    /// A guard bound to `name`. It holds no state of its own; any number may exist.
    #[must_use]
    pub const fn new(name: LeaseName) -> Self {
        Self {
            name,
            isolation: None,
            attempts: ATTEMPTS,
            prepares: true,
            ceiling: Ceiling::Clock,
        }
    }

    /// Sets the greatest token that raises the mark; [`Ceiling::Clock`] unless set otherwise.
    #[must_use]
    pub const fn ceiling(mut self, ceiling: Ceiling) -> Self {
        self.ceiling = ceiling;
        self
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
    /// that meets another one: at least once, [`ATTEMPTS`] times by default, and not more often than
    /// [`LOCK_ATTEMPTS`] where a lock is not to be had within the server's `lock_timeout`. In between
    /// they pause for up to [`PAUSE_MIN`], doubled with each attempt, and [`PAUSE_MAX`] at most.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Makes the connection read-only outside of guarded transactions, until it ends: what an
    /// effect writes after it has ended its transaction by mistake, and what the program writes
    /// past the guard, fails with `25006` instead of being committed. All methods of the guard go
    /// on to work. Install the migration before.
    ///
    /// It does not hold for an effect that ends its transaction with `COMMIT AND CHAIN` or
    /// `ROLLBACK AND CHAIN`: the server lets the next one write, too. The guard does not commit that
    /// one, but if the effect commits it with a second `COMMIT`, it has written without the mark.
    /// Where effects may do so, give their tables the trigger `ringfence.guarded` of [`MIGRATION`],
    /// which refuses each statement of a transaction that has not admitted a fence.
    ///
    /// It is a setting of the session: a pooler that gives each transaction another connection
    /// passes it on to others.
    ///
    /// # Errors
    /// [`PostgresError::Database`].
    pub async fn only_guarded(client: &Client) -> Result<(), PostgresError> {
        Ok(client.batch_execute(ONLY_GUARDED).await?)
    }

    /// The lease this guard is bound to.
    #[must_use]
    pub const fn name(&self) -> &LeaseName {
        &self.name
    }

    /// Begins a transaction and admits the fence in it, if no greater token was admitted before. One
    /// round trip; the first write of a connection needs up to three, as in
    /// [`PostgresGuard::write`], which automatically repeats what meets a conflict.
    ///
    /// # Errors
    /// [`PostgresError::Refused`]: after [`Refused::StaleToken`] the lease is lost;
    /// [`Refused::TokenTooHigh`] says nothing about it, see [`Ceiling`].
    /// [`PostgresError::Conflict`]: begin again. [`PostgresError::NotFirst`] and
    /// [`PostgresError::NotInstalled`] are mistakes of the program. No transaction is open then.
    pub async fn begin<'a>(
        &self,
        client: &'a mut Client,
        fence: &Fence,
    ) -> Result<Guarded<'a>, PostgresError> {
        self.open(client, fence).await
    }

    /// Tells the guard, in a transaction of its own, that `fence` is the grant in force: once it
    /// has returned, every older token is refused. A new holder calls it **before its first read**
    /// of what is guarded. Advancing twice changes nothing. It waits for an open transaction of the
    /// former holder; see [Holders that are paused](self#holders-that-are-paused).
    ///
    /// # Errors
    /// As [`PostgresGuard::begin`], where a conflict was met in every attempt. After
    /// [`PostgresError::Database`] of a broken connection the mark may have been raised: advance
    /// again.
    pub async fn advance(
        &self,
        client: &mut Client,
        fence: &Fence,
    ) -> Result<Admitted, PostgresError> {
        fence.check_lease(&self.name)?;
        self.stay_below_the_ceiling(client, fence).await?;
        self.insist("raise_mark", client, fence).await?;
        Ok(Admitted::new(fence.token))
    }

    /// Runs `effect` in a transaction that admits `fence` first, and commits it. Any error rolls
    /// back, and so does dropping the future while `effect` runs: nothing of it is committed then.
    /// From the commit on the outcome of a dropped future is not known: all of the effect may be
    /// committed, or nothing, but never a part. Look at the data before repeating it, as after
    /// [`PostgresError::Unknown`].
    ///
    /// No statement of `effect` is sent before the server has confirmed that the transaction is
    /// open and the fence admitted. Sent earlier, it would run outside of a transaction, and commit
    /// on its own, whenever the message that opens the transaction fails: at a `statement_timeout`,
    /// for example, or at a cancel request.
    ///
    /// `effect` gets the client with the transaction open, and must not end it on its own; see
    /// [`PostgresGuard::only_guarded`] for a connection that refuses what such an effect writes
    /// next. On a conflict, wherever it is met, all of it is repeated, so it must do nothing that a
    /// rollback does not undo.
    ///
    /// The admission is a statement that the server has prepared. Where it has not, as in the first
    /// write of a connection, the transaction is begun again with it; see [`PostgresGuard::pooled`].
    ///
    /// A conflict is recognised in the errors that `effect` returns by following
    /// [`Error::source`], so they must not hide where they come from.
    ///
    /// # Errors
    /// As [`PostgresGuard::begin`] and [`Guarded::commit`], or whatever `effect` returns.
    /// [`PostgresError::Unknown`] is the only error after which all of the effect may have been
    /// committed, and [`PostgresError::Ended`] the only one after which parts of it may, and it
    /// stands in place of the error of an effect that ended its transaction and then failed. Two
    /// cases are not noticed, and leave what such an effect has committed on its own: its
    /// connection broke, or it rolled back, wrote, and failed in another transaction that it had
    /// begun. If a statement failed and `effect` returned `Ok` nevertheless,
    /// [`PostgresError::Database`]: that transaction cannot be committed.
    pub async fn write<R, E>(
        &self,
        client: &mut Client,
        fence: &Fence,
        mut effect: impl AsyncFnMut(&Client) -> Result<R, E>,
    ) -> Result<R, E>
    where
        E: From<PostgresError> + Error + 'static,
    {
        let mut retries = Retries::new(self.attempts);
        loop {
            match self.write_once(client, fence, &mut effect).await {
                Ok(value) => return Ok(value),
                Err(error) => match conflict_in(&error) {
                    Some(conflict) if again(&mut retries, client, conflict).await => {}
                    _ => return Err(error),
                },
            }
        }
    }

    async fn write_once<R, E: From<PostgresError>>(
        &self,
        client: &Client,
        fence: &Fence,
        effect: &mut impl AsyncFnMut(&Client) -> Result<R, E>,
    ) -> Result<R, E> {
        let open = self.open(client, fence);
        let (guarded, done) = if planted(Bug::EffectSentBeforeTheAdmission) {
            pipelined(open, effect(client)).await?
        } else {
            let guarded = open.await?;
            let done = effect(&guarded).await;
            (guarded, done)
        };
        match done {
            Ok(value) => {
                guarded.commit().await?;
                Ok(value)
            }
            Err(error) => {
                // Before any retry: what the effect has committed on its own would be there twice.
                guarded.roll_back().await?;
                Err(error)
            }
        }
    }

    /// Opens the transaction and admits the fence, and waits until the server has confirmed both. In
    /// one message, so that the server does not carry out the second if the first has failed.
    async fn open<'a>(
        &self,
        client: &'a Client,
        fence: &Fence,
    ) -> Result<Guarded<'a>, PostgresError> {
        fence.check_lease(&self.name)?;
        self.stay_below_the_ceiling(client, fence).await?;
        let level = match self.isolation {
            None => "",
            Some(IsolationLevel::Serializable) => ", ISOLATION LEVEL SERIALIZABLE",
            Some(IsolationLevel::RepeatableRead) => ", ISOLATION LEVEL REPEATABLE READ",
            // The server does not tell these two apart.
            Some(_) => ", ISOLATION LEVEL READ COMMITTED",
        };
        // What is sent behind a way that comes to nothing would have to be sent again.
        let mut ways = Ways::new(self.prepares && !planted(Bug::EffectSentBeforeTheAdmission));
        loop {
            let open = Open(client);
            let admission = ways.now().admission(fence);
            let message = format!("{BEGIN}{level}; {admission}");
            let begun = client.simple_query(&message).await;
            if ways.instead(&begun) {
                continue;
            }
            let answers = begun.map_err(|source| PostgresError::of_fence(source, fence))?;
            return Guarded::admitted(open, &answers);
        }
    }

    /// Raises the mark to `floor` if it is lower; never lowers it. After a restore of the database,
    /// and after any loss of its newest commits, call it with the lease's newest token before
    /// writes are served: the copy's mark may admit a grant that was fenced off since. The
    /// [`Ceiling`] does not judge it.
    ///
    /// # Errors
    /// As [`PostgresGuard::advance`], but never [`PostgresError::Refused`].
    pub async fn advance_to(
        &self,
        client: &mut Client,
        floor: FencingToken,
    ) -> Result<(), PostgresError> {
        let fence = Fence::new(self.name.clone(), floor);
        match self.insist("advance_to", client, &fence).await {
            // A greater token came first.
            Err(PostgresError::Refused(Refused::StaleToken { .. })) => Ok(()),
            done => done,
        }
    }

    /// The greatest token admitted so far. Advice for people: only [`PostgresGuard::begin`]
    /// and [`PostgresGuard::write`] decide.
    ///
    /// # Errors
    /// [`PostgresError::NotInstalled`] or [`PostgresError::Database`].
    pub async fn mark(
        &self,
        client: &impl GenericClient,
    ) -> Result<Option<FencingToken>, PostgresError> {
        let name = self.name.as_str();
        let row = client
            .query_opt(crate::sql::POSTGRES_MARK, &[&name])
            .await?;
        let mark = row.map(|row| row.get::<_, i64>(0));
        Ok(mark.and_then(|mark| FencingToken::new(mark.unsigned_abs())))
    }

    async fn stay_below_the_ceiling(
        &self,
        client: &Client,
        fence: &Fence,
    ) -> Result<(), PostgresError> {
        if self.ceiling.judge(fence, None).is_ok() {
            return Ok(());
        }
        // The mark may be this very token, raised by an operator or before the clock was set back.
        // It only grows, so what is read here can become too low, never too high. As text, since
        // nothing is prepared behind a pooler; no lease name can end a text in SQL.
        let look = format!(
            "SELECT mark FROM ringfence.marks WHERE name OPERATOR(pg_catalog.=) '{}'",
            self.name
        );
        let answers = client.simple_query(&look).await;
        let answers = answers.map_err(|source| PostgresError::of_fence(source, fence))?;
        let mark = answers.iter().find_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        Ok(self
            .ceiling
            .judge(fence, mark.and_then(FencingToken::new))?)
    }

    /// Calls a function of the migration in a transaction of its own, in one message: if any part
    /// of it fails, the server does not carry out the rest. The first part fails in a transaction
    /// that was open before, which would be committed otherwise.
    async fn insist(
        &self,
        function: &str,
        client: &Client,
        fence: &Fence,
    ) -> Result<(), PostgresError> {
        let (name, token) = (&fence.name, fence.token);
        let message = format!(
            "{BEGIN}; SELECT CAST(CASE WHEN pg_catalog.now() OPERATOR(pg_catalog.=) \
             pg_catalog.statement_timestamp() THEN '0' ELSE '{NOT_FIRST}' END AS integer); \
             SELECT ringfence.{function}('{name}', {token}); COMMIT"
        );
        let mut retries = Retries::new(self.attempts);
        loop {
            let open = Open(client);
            match client.batch_execute(&message).await {
                Ok(()) => {
                    mem::forget(open);
                    return Ok(());
                }
                Err(source) => {
                    let left_open = source.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION);
                    let error = PostgresError::of_fence(source, fence);
                    drop(open);
                    let conflict = if left_open {
                        Some(Conflict::LeftOpen)
                    } else {
                        conflict_in(&error)
                    };
                    match conflict {
                        Some(conflict) if again(&mut retries, client, conflict).await => {}
                        _ => return Err(error),
                    }
                }
            }
        }
    }
}
