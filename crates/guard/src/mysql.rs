//! The guard of data in MySQL and MariaDB: mark and data change in one transaction of InnoDB.
//!
//! ```no_run
//! use mysql_async::prelude::Queryable as _;
//! use ringfence_guard::Fence;
//! use ringfence_guard::mysql::{Connection, MysqlError, MysqlGuard};
//!
//! # async fn example(mut conn: mysql_async::Conn) -> Result<(), MysqlError> {
//! MysqlGuard::install(&mut conn).await?; // or run the migration with what runs the others
//!
//! let fence: Fence = "bank/balance#9".parse().expect("from the lease that was granted");
//! let guard = MysqlGuard::new(fence.name.clone());
//! let mut connection = Connection::new(conn);
//!
//! // A new holder advances the mark before its first read.
//! guard.advance(&mut connection, &fence).await?;
//! let select = "SELECT amount FROM balance";
//! let amount: Option<i64> = connection.get()?.query_first(select).await?;
//! let amount = amount.unwrap_or(0);
//!
//! // Mark first, then the data, in one transaction, which is repeated if the server asks for it.
//! guard
//!     .write(&mut connection, &fence, async |conn| {
//!         conn.exec_drop("UPDATE balance SET amount = ?", (amount + 10,)).await?;
//!         Ok::<_, MysqlError>(())
//!     })
//!     .await?;
//!
//! // The same by hand.
//! let mut guarded = guard.begin(&mut connection, &fence).await?;
//! guarded.conn()?.query_drop("UPDATE balance SET amount = amount + 10").await?;
//! guarded.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Other languages
//! The rules are procedures, [`crate::sql::MYSQL_MIGRATION`] in this crate's `sql/mysql.sql`. A service in any
//! language runs the same migration and begins its transactions with `CALL ringfence_admit('bank/balance',
//! 9)`; it and services that use this guard share one mark. A refusal is an error whose message begins with
//! its reason, `STALE_TOKEN` for example, and leaves a transaction open that can only read.
//!
//! # Isolation
//! It is right at every isolation level, from `READ UNCOMMITTED` to `SERIALIZABLE`: the mark is written,
//! and a write in InnoDB takes the row's exclusive lock until the commit, and sees what the last commit has
//! left. The snapshot of `REPEATABLE READ` is made at the first read behind it. What it cannot make right
//! is an effect that reads from elsewhere: from a replica, or from another connection.
//!
//! With `autocommit = 0` it works as well: the guard begins and ends its transactions by statements.
//!
//! # What commits implicitly
//! `CREATE`, `ALTER`, `DROP`, `TRUNCATE`, `LOCK TABLES` and a second `START TRANSACTION` commit the open
//! transaction. In guarded work the server commits what came before, under the fence, refuses the statement
//! with `1792`, and the guard reports [`MysqlError::Ended`]. Make tables before.
//!
//! Tables of other engines than InnoDB (`MyISAM`, `Aria`, `MEMORY`) know no transactions: what is written to
//! them is not guarded. [`MysqlGuard::install`] refuses a table of marks in one.
//!
//! # Holders that are paused
//! A guarded transaction keeps the mark to itself until it ends, and so does that of a holder which is
//! paused, or cut off, in the middle of it: the next holder's [`MysqlGuard::advance`] waits for as long as
//! `innodb_lock_wait_timeout` says, 50 s by default, then tries again, [`LOCK_ATTEMPTS`] times in all. Only
//! the server can end such a transaction. In MariaDB set `idle_write_transaction_timeout` to about the TTL of
//! the writers' sessions, longer than an effect computes between two statements; MySQL has `wait_timeout`,
//! which also ends idle connections without a transaction.
//!
//! # Connections of a pool
//! What one user of a connection sets stays for the next: `@ringfence_ceiling`, `autocommit`, or `timestamp`,
//! by which the ceiling is judged. Have the pool reset it, by `COM_RESET_CONNECTION` for example.
//!
//! # What the server itself can lose
//! With `innodb_flush_log_at_trx_commit` other than 1 a power failure takes back the newest commits. Where there
//! is a binary log, `sync_binlog` other than 1 does so too, whatever InnoDB has flushed: at the next start the
//! server rolls back what is not in that log. **In MariaDB its default is 0**: set it to 1. A failover to an
//! asynchronous replica takes back the newest commits as well. Each is a restore: see
//! [`MysqlGuard::advance_to`]. A replica serves reads from before the advance: read from the primary what a write
//! builds on.
//!
//! A replica applies rows without triggers, so what a primary sends late lowers a mark that was raised at the
//! replica. Stop replication from a former primary before a promoted replica takes writes, as `RESET REPLICA` (or
//! `SLAVE`) `ALL` does; MariaDB also refuses such a row with `slave_run_triggers_for_rbr = ENFORCE`, and then
//! stops applying. `YES` does not help.

mod connection;
mod error;
mod guarded;
mod migration;

use std::error::Error;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, IsolationLevel, Row};

use crate::retries::{Conflict, Retries};
use crate::{Admitted, Ceiling, Fence, FencingToken, LeaseName};

use connection::Told;
use error::conflict_in;
use guarded::{SAVEPOINT, roll_back};

pub use crate::retries::{ATTEMPTS, LOCK_ATTEMPTS, PAUSE_MAX, PAUSE_MIN};
pub use connection::Connection;
pub use error::MysqlError;
pub use guarded::Guarded;

/// Whatever `completion_type` says.
const COMMIT: &str = "COMMIT AND NO CHAIN NO RELEASE";
const ROLLBACK: &str = "ROLLBACK AND NO CHAIN NO RELEASE";

/// Outside of the transaction that follows nothing is written; see [`Connection`].
const ONLY_GUARDED: &str = "SET SESSION TRANSACTION READ ONLY";
const BEGIN: &str = "START TRANSACTION READ WRITE";

/// What comes behind a transaction that the server has given up must not commit on its own. Restored when
/// the guarded transaction is over.
const NO_AUTOCOMMIT: &str = "SET @ringfence_autocommit = @@autocommit, autocommit = 0";
const AUTOCOMMIT: &str = "SET autocommit = COALESCE(@ringfence_autocommit, @@autocommit), \
     @ringfence_autocommit = NULL";

/// What a trigger of the marks sets, in front of a write to them. A temporary table has no triggers.
const UNSEEN: &str = "SET @ringfence_seen = NULL";

/// A guard whose mark is a row beside the data, bound to one lease.
///
/// The mark lives in the table `ringfence_marks` of the database that is in use at the first guarded call on
/// a [`Connection`], and protects data of that server only.
///
/// # Rules for its transactions
/// * They are begun and committed by the guard: with [`MysqlGuard::write`], or with
///   [`MysqlGuard::begin`] and [`Guarded::commit`]. The admission comes first in them; from there to the end
///   of the transaction no newer grant is admitted.
/// * A statement of their effect must not end them. Savepoints are allowed, as statements.
/// * An effect leaves no temporary table `ringfence_marks` behind: the server shows that to later calls on
///   the connection in place of the marks. They fail with [`MysqlError::Hidden`] until it is dropped.
/// * A new holder calls [`MysqlGuard::advance`] before its first read.
#[derive(Clone, Debug)]
pub struct MysqlGuard {
    name: LeaseName,
    isolation: Option<IsolationLevel>,
    attempts: u32,
    ceiling: Ceiling,
}

impl MysqlGuard {
    /// Runs the migration in the database in use. Many may do so at a time. In MariaDB it replaces the
    /// triggers and procedures of an earlier release; in MySQL drop those before.
    ///
    /// # Errors
    /// [`MysqlError::Database`], if the account may not create tables, triggers and procedures.
    /// [`MysqlError::WrongEngine`] or [`MysqlError::WrongShape`], if there is a table of that name in another
    /// engine than InnoDB, or with another key.
    pub async fn install(conn: &mut Conn) -> Result<(), MysqlError> {
        migration::run(conn).await
    }

    /// A guard bound to `name`. It holds no state of its own; any number may exist.
    #[must_use]
    pub const fn new(name: LeaseName) -> Self {
        Self {
            name,
            isolation: None,
            attempts: ATTEMPTS,
            ceiling: Ceiling::Clock,
        }
    }

    /// Sets the greatest token that raises the mark; [`Ceiling::Clock`] unless set otherwise.
    #[must_use]
    pub const fn ceiling(mut self, ceiling: Ceiling) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// Sets the isolation level of its transactions; without it the session's own holds.
    #[must_use]
    pub const fn isolation(mut self, level: IsolationLevel) -> Self {
        self.isolation = Some(level);
        self
    }

    /// Sets how often [`MysqlGuard::write`] and [`MysqlGuard::advance`] try a transaction that meets
    /// another one: at least once, [`ATTEMPTS`] times by default, and not more often than
    /// [`LOCK_ATTEMPTS`] where a lock is not to be had within the server's `innodb_lock_wait_timeout`. In
    /// between they pause for up to [`PAUSE_MIN`], doubled with each attempt, and [`PAUSE_MAX`] at most.
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

    /// Begins a transaction and admits the fence in it, if no greater token was admitted before. One
    /// round trip.
    ///
    /// # Errors
    /// [`MysqlError::Refused`]: after [`Refused::StaleToken`](crate::Refused::StaleToken) the lease is lost;
    /// [`Refused::TokenTooHigh`](crate::Refused::TokenTooHigh) says nothing about it, see [`Ceiling`].
    /// [`MysqlError::Conflict`]: begin again. [`MysqlError::NotFirst`], [`MysqlError::NotInstalled`] and
    /// [`MysqlError::Hidden`] are mistakes of the program. No transaction is open then.
    pub async fn begin<'a>(
        &self,
        connection: &'a mut Connection,
        fence: &Fence,
    ) -> Result<Guarded<'a>, MysqlError> {
        self.check(connection, fence).await?;
        let level = self
            .isolation
            .map(|level| format!("SET TRANSACTION ISOLATION LEVEL {level}"));
        let mut statements = vec![ROLLBACK, ONLY_GUARDED, NO_AUTOCOMMIT];
        statements.extend(level.as_deref());
        statements.push(BEGIN);
        self.show(connection, fence, statements, SAVEPOINT).await?;
        Ok(Guarded::new(connection))
    }

    /// Tells the guard, in a transaction of its own, that `fence` is the grant in force: once it has
    /// returned, every older token is refused. A new holder calls it **before its first read** of what is
    /// guarded. Advancing twice changes nothing. It waits for an open transaction of the former holder;
    /// see [Holders that are paused](self#holders-that-are-paused).
    ///
    /// # Errors
    /// As [`MysqlGuard::begin`], where a conflict was met in every attempt. After
    /// [`MysqlError::Database`] of a broken connection the mark may have been raised: advance again.
    pub async fn advance(
        &self,
        connection: &mut Connection,
        fence: &Fence,
    ) -> Result<Admitted, MysqlError> {
        self.check(connection, fence).await?;
        self.raise(connection, fence).await?;
        Ok(Admitted::new(fence.token))
    }

    /// Runs `effect` in a transaction that admits `fence` first, and commits it. Any error rolls back.
    /// Dropping the future closes the connection, and nothing is committed if `effect` was still running.
    /// From the commit on the outcome of a dropped future is not known: all of the effect may be committed,
    /// or nothing, but never a part. Look at the data before repeating it, as after
    /// [`MysqlError::Unknown`].
    ///
    /// No statement of `effect` is sent before the server has confirmed that the transaction is open and
    /// the fence admitted.
    ///
    /// `effect` must not end the transaction on its own. On a conflict, wherever it is met, all of it is
    /// repeated, so it must do nothing that a rollback does not undo. A conflict is recognised in the
    /// errors that `effect` returns by following [`Error::source`], so they must not hide where they come
    /// from.
    ///
    /// # Errors
    /// As [`MysqlGuard::begin`] and [`Guarded::commit`], or whatever `effect` returns.
    /// [`MysqlError::Unknown`] is the only error after which all of the effect may have been committed, and
    /// [`MysqlError::Ended`] the only one after which parts of it may, and it stands in place of the error of
    /// an effect that ended its transaction and then failed. Two cases are not noticed, and leave what such an
    /// effect has committed on its own: its connection broke, or it met a conflict in another transaction
    /// that it had begun.
    pub async fn write<R, E>(
        &self,
        connection: &mut Connection,
        fence: &Fence,
        mut effect: impl AsyncFnMut(&mut Conn) -> Result<R, E>,
    ) -> Result<R, E>
    where
        E: From<MysqlError> + Error + 'static,
    {
        let mut retries = Retries::new(self.attempts);
        loop {
            match self.write_once(connection, fence, &mut effect).await {
                Ok(value) => return Ok(value),
                Err(error) => match conflict_in(&error) {
                    Some(conflict) if again(&mut retries, connection, conflict).await => {}
                    _ => return Err(error),
                },
            }
        }
    }

    async fn write_once<R, E>(
        &self,
        connection: &mut Connection,
        fence: &Fence,
        effect: &mut impl AsyncFnMut(&mut Conn) -> Result<R, E>,
    ) -> Result<R, E>
    where
        E: From<MysqlError> + Error + 'static,
    {
        let mut guarded = self.begin(connection, fence).await?;
        match effect(guarded.conn()?).await {
            Ok(value) => {
                guarded.commit().await?;
                Ok(value)
            }
            Err(error) => {
                // Before any retry: what the effect has committed on its own would be there twice.
                let given_up = conflict_in(&error).is_some();
                guarded.roll_back_after(given_up).await?;
                Err(error)
            }
        }
    }

    /// Raises the mark to `floor` if it is lower; never lowers it. After a restore of the database, and
    /// after any loss of its newest commits, call it with the lease's newest token before writes are
    /// served: the copy's mark may admit a grant that was fenced off since. The [`Ceiling`] does not judge
    /// it.
    ///
    /// # Errors
    /// As [`MysqlGuard::advance`], but never [`MysqlError::Refused`].
    pub async fn advance_to(
        &self,
        connection: &mut Connection,
        floor: FencingToken,
    ) -> Result<(), MysqlError> {
        let fence = Fence::new(self.name.clone(), floor);
        match self.raise(connection, &fence).await {
            // A greater token came first.
            Err(MysqlError::Refused(_)) => Ok(()),
            done => done,
        }
    }

    /// The greatest token admitted so far. Advice for people: only [`MysqlGuard::begin`] and
    /// [`MysqlGuard::write`] decide. A temporary table `ringfence_marks` of the session is not noticed here.
    ///
    /// # Errors
    /// [`MysqlError::NotInstalled`] or [`MysqlError::Database`].
    pub async fn mark(&self, conn: &mut Conn) -> Result<Option<FencingToken>, MysqlError> {
        let found: Option<Row> = conn.query_first(self.look("ringfence_marks", "")).await?;
        let mark = found.and_then(|row| row.get_opt::<u64, _>(0)?.ok());
        Ok(mark.and_then(FencingToken::new))
    }

    /// What can be judged before the transaction.
    async fn check(&self, connection: &mut Connection, fence: &Fence) -> Result<(), MysqlError> {
        fence.check_lease(&self.name)?;
        if self.ceiling.judge(fence, None).is_ok() {
            return Ok(());
        }
        // The mark may be this very token, raised by an operator or before the clock was set back. It
        // only grows, so what is read here can become too low, never too high.
        let look = self.look(connection.marks(), "");
        let mark = match connection.send(&[&look]).await? {
            Told::Done(sets) => mark_in(connection, sets.get(1)).map(|(mark, _)| mark),
            Told::Failed(_, source) => return Err(source.into()),
        };
        Ok(self.ceiling.judge(fence, mark)?)
    }

    /// Raises the mark in a transaction of its own, in one message. A stale token changes no mark, so that
    /// it may be committed, too.
    async fn raise(&self, connection: &mut Connection, fence: &Fence) -> Result<(), MysqlError> {
        let mut retries = Retries::new(self.attempts);
        loop {
            let shown = self.show(connection, fence, vec![ROLLBACK, BEGIN], COMMIT);
            match shown.await {
                Err(MysqlError::Conflict { source }) => {
                    let again = match conflict_in(&source) {
                        Some(conflict) => again(&mut retries, connection, conflict).await,
                        None => false,
                    };
                    if !again {
                        return Err(source.into());
                    }
                }
                done => return done,
            }
        }
    }

    /// Sends `before`, the statements that show the fence, and `behind`, in one message. After an error
    /// no transaction is open.
    async fn show(
        &self,
        connection: &mut Connection,
        fence: &Fence,
        before: Vec<&str>,
        behind: &str,
    ) -> Result<(), MysqlError> {
        if connection.is_in_transaction() {
            return Err(MysqlError::NotFirst);
        }
        let marks = connection.marks();
        // Neither a lease name nor a number can end a text in SQL. The row changes also when the mark is
        // equal, so that it is locked, and compared where servers certify each other's transactions.
        let write = format!(
            "INSERT INTO {marks} (name, mark) VALUES ('{}', {token}) ON DUPLICATE KEY UPDATE \
             mark = GREATEST(mark, {token}), admissions = admissions + 1",
            self.name,
            token = fence.token,
        );
        let look = self.look(marks, " FOR UPDATE");
        let mut statements = before;
        statements.extend([UNSEEN, write.as_str(), look.as_str(), behind]);
        // Behind the message's number.
        let answer = statements.len() - 1;
        let error = match connection.send(&statements).await? {
            Told::Done(sets) => match mark_in(connection, sets.get(answer)) {
                Some((mark, true)) if mark == fence.token => return Ok(()),
                Some((mark, true)) if mark > fence.token => fence.overtaken_by(mark).into(),
                Some(_) => MysqlError::Hidden,
                None => MysqlError::NotInstalled,
            },
            Told::Failed(_, source) => source.into(),
        };
        // If that fails the connection is closed, and the error above counts all the same.
        roll_back(connection).await.ok();
        Err(error)
    }

    fn look(&self, marks: &str, lock: &str) -> String {
        let name = &self.name;
        format!(
            "SELECT mark, DATABASE(), @ringfence_seen IS NOT NULL FROM {marks} \
             WHERE name = '{name}'{lock}"
        )
    }
}

/// The mark in the answer to [`MysqlGuard::look`], and whether the write before has met the marks
/// themselves. The first one binds the connection to its database.
fn mark_in(connection: &mut Connection, rows: Option<&Vec<Row>>) -> Option<(FencingToken, bool)> {
    let row = rows?.first()?;
    let mark = FencingToken::new(row.get_opt::<u64, _>(0)?.ok()?)?;
    connection.bind(&row.get_opt::<String, _>(1)?.ok()?);
    Some((mark, row.get_opt::<bool, _>(2)?.ok()?))
}

/// Whether an attempt that met `conflict` is to be repeated; then it has paused.
///
/// The server pauses, on the connection that has nothing else to do: so no timer is needed, of whatever
/// executor this runs on. A pause that fails is shorter, and the next attempt says why.
async fn again(retries: &mut Retries, connection: &mut Connection, conflict: Conflict) -> bool {
    let Some(pause) = retries.pause_after(conflict) else {
        return false;
    };
    let pause = format!("DO SLEEP({})", pause.as_secs_f64());
    connection.send(&[&pause]).await.is_ok()
}
