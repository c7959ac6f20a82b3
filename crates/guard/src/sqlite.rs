//! The guard of data in an SQLite database: mark and data change in one transaction.
//!
//! ```
//! use ringfence_guard::Fence;
//! use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
//! use rusqlite::Connection;
//!
//! let mut database = Connection::open_in_memory()?;
//! database.execute_batch(
//!     "CREATE TABLE balance (amount INTEGER NOT NULL); INSERT INTO balance VALUES (100)",
//! )?;
//! SqliteGuard::install(&database)?;
//!
//! let old: Fence = "bank/balance#8".parse()?;
//! let new: Fence = "bank/balance#9".parse()?;
//! let guard = SqliteGuard::new(old.name.clone());
//!
//! // The holder admits its fence first, then writes, in one transaction.
//! let tx = database.transaction()?;
//! guard.admit(&tx, &old)?;
//! tx.execute("UPDATE balance SET amount = amount + 1", [])?;
//! tx.commit()?;
//!
//! // A new holder advances the mark before its first read.
//! guard.advance(&mut database, &new)?;
//! let read: i64 = database.query_row("SELECT amount FROM balance", [], |row| row.get(0))?;
//! guard.write(&mut database, &new, |tx| {
//!     tx.execute("UPDATE balance SET amount = ?1", [read + 10])?;
//!     Ok::<_, SqliteError>(())
//! })?;
//!
//! // The old holder comes back and is refused, for good.
//! let tx = database.transaction()?;
//! let refused = guard.admit(&tx, &old).unwrap_err();
//! assert_eq!(refused.refused().map(|why| why.reason()), Some("STALE_TOKEN"));
//! # drop(tx);
//! # let amount: i64 = database.query_row("SELECT amount FROM balance", [], |row| row.get(0))?;
//! # assert_eq!(amount, 111);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod seal;
mod wall;

use std::borrow::Cow;

use ringfence_core::{FencingToken, LeaseName};
use rusqlite::hooks::{AuthContext, Authorization};
use rusqlite::{
    Connection, ErrorCode, MAIN_DB, OptionalExtension, Transaction, TransactionBehavior,
    TransactionState, params,
};

use ringfence_planted::{Bug, planted};

use crate::sql::{SQLITE_ADMIT, SQLITE_MARK, SQLITE_MIGRATION};
use crate::{Admitted, Ceiling, EndsBelief, Fence, Refused};

pub use seal::SqliteSeal;
use wall::Wall;

/// What [`Bug::MarkOfOneConnection`] makes.
const MARKS_OF_ONE_CONNECTION: &str =
    "CREATE TEMP TABLE IF NOT EXISTS ringfence_marks (name TEXT PRIMARY KEY, mark INTEGER)";

/// Takes the write lock, as a mere look would not, and changes nothing.
const HOLD_MARK: &str = "UPDATE main.ringfence_marks SET mark = mark WHERE name = ?1";

/// The columns of the table of marks, as [`shape`] shows them.
const SHAPE: &str = "name TEXT PRIMARY KEY, mark INTEGER NOT NULL";

/// A guard whose mark is a row beside the data, bound to one lease.
///
/// The mark lives in the table `ringfence_marks` of the connection's main database, and protects
/// data in that same file only: SQLite does not commit attached files together in WAL mode.
///
/// # Rules for its transactions
/// * [`SqliteGuard::admit`] comes first. It writes the mark, and that write takes the database's
///   write lock, so from there to the commit no newer grant can be admitted by any connection;
///   `BEGIN` and `BEGIN IMMEDIATE` both do. A transaction that has read before holds a snapshot
///   that may be older than the mark and is rejected with [`SqliteError::NotFirst`].
/// * A refused transaction is rolled back: dropping it does.
/// * A new holder calls [`SqliteGuard::advance`] before its first read.
/// * At any error the transaction is given up: SQLite may have ended it already, and what is
///   written behind that commits on its own. After an error of `COMMIT` it may be done
///   nevertheless.
/// * [`SqliteGuard::write`] keeps all but the third automatically.
///
/// # Durability
/// Mark and data are lost or kept together, but a power failure takes back the newest commits with
/// `synchronous` below `EXTRA`, or `FULL` in WAL mode: a restore, see [`SqliteGuard::advance_to`].
///
/// A database that is opened with `journal_mode = OFF` is not covered: SQLite cannot roll back then, so what
/// a write that was refused or has failed did before stays. [`SqliteGuard::write`] refuses an effect that
/// sets the mode. With `MEMORY` the same holds for a process that is killed.
#[derive(Clone, Debug)]
pub struct SqliteGuard {
    name: LeaseName,
    ceiling: Ceiling,
}

/// Why a call of [`SqliteGuard`] did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// The guard refused the fence.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Another connection is in the way (`SQLITE_BUSY` with all its kinds, `SQLITE_LOCKED`), or
    /// the transaction's snapshot is no longer the newest (`SQLITE_BUSY_SNAPSHOT`). Nothing was
    /// decided: roll back and repeat the transaction from its beginning.
    #[error("another connection is in the way; roll back and repeat the whole transaction")]
    Busy {
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// The transaction has read before it admitted its fence.
    #[error(
        "the transaction has read before it admitted its fence, so what it read may be older than \
         the mark; admit first, then read"
    )]
    NotFirst,
    /// [`SqliteGuard::install`] was never called on this database.
    #[error("the database has no table ringfence_marks; call SqliteGuard::install once")]
    NotInstalled,
    /// The mark was not written, though no greater token stands there: a trigger that is none of the
    /// guard's ignores the write. Nothing is admitted.
    #[error(
        "the mark was not written, and no greater token was admitted; drop the triggers on \
         ringfence_marks that SqliteGuard::install has not made"
    )]
    NotWritten,
    /// The table of marks was not made by [`SqliteGuard::install`], and has another key or another type of
    /// mark: texts, for example, have another order than tokens.
    #[error(
        "the table ringfence_marks has the columns ({found}), expected ({SHAPE}); rename that table, call \
         SqliteGuard::install again, and raise each mark with SqliteGuard::advance_to"
    )]
    WrongShape {
        /// The columns that it has.
        found: String,
    },
    /// The triggers of the marks stand on another table: `ringfence_marks` was renamed, and its marks with
    /// it.
    #[error(
        "the triggers of ringfence_marks are on the table {table}, so it was renamed; rename it back, or \
         drop its triggers, call SqliteGuard::install again and raise each mark with \
         SqliteGuard::advance_to"
    )]
    Renamed {
        /// The table that has the marks.
        table: String,
    },
    /// The commit was interrupted, or its file failed, when it may have been done already. Look at
    /// the data before repeating what is not harmless twice.
    #[error("the commit was interrupted: whether it happened is not known")]
    Unknown {
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
    /// Anything else SQLite reports. Nothing was committed.
    #[error("the database failed")]
    Database {
        /// What SQLite said.
        #[source]
        source: rusqlite::Error,
    },
}

impl SqliteError {
    /// Whether the whole transaction is worth repeating.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }

    /// The guard's refusal, if it is one.
    #[must_use]
    pub const fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::Busy { .. }
            | Self::NotFirst
            | Self::NotInstalled
            | Self::NotWritten
            | Self::WrongShape { .. }
            | Self::Renamed { .. }
            | Self::Unknown { .. }
            | Self::Database { .. } => None,
        }
    }
}

/// So that a client ends belief in a lease whose fence the store rejects as stale.
impl EndsBelief for SqliteError {
    fn refused(&self) -> Option<&Refused> {
        Self::refused(self)
    }
}

/// So that `?` works on the statements that follow in the same transaction.
impl From<rusqlite::Error> for SqliteError {
    fn from(source: rusqlite::Error) -> Self {
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { source },
            _ => Self::Database { source },
        }
    }
}

impl SqliteGuard {
    /// Creates the table of marks in the main database, unless it is there.
    ///
    /// # Errors
    /// [`SqliteError::Busy`] or [`SqliteError::Database`]. [`SqliteError::WrongShape`], if there is a table of
    /// that name with another key or another type of mark; [`SqliteError::Renamed`], if there was one.
    pub fn install(connection: &Connection) -> Result<(), SqliteError> {
        if planted(Bug::MarkOfOneConnection) {
            return Ok(connection.execute_batch(MARKS_OF_ONE_CONNECTION)?);
        }
        let shape = shape(connection)?;
        if !shape.is_empty() && shape != SHAPE {
            return Err(SqliteError::WrongShape { found: shape });
        }
        if let Some(table) = renamed(connection)? {
            return Err(SqliteError::Renamed { table });
        }
        Ok(connection.execute_batch(SQLITE_MIGRATION)?)
    }

    /// A guard bound to `name`. It holds no state of its own; any number may exist.
    #[must_use]
    pub const fn new(name: LeaseName) -> Self {
        Self {
            name,
            ceiling: Ceiling::Clock,
        }
    }

    /// Sets the greatest token that raises the mark; [`Ceiling::Clock`] unless set otherwise.
    #[must_use]
    pub const fn ceiling(mut self, ceiling: Ceiling) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// The lease this guard is bound to.
    #[must_use]
    pub const fn name(&self) -> &LeaseName {
        &self.name
    }

    /// Admits the fence for the rest of the transaction, if no greater token was admitted before,
    /// and writes the mark. Must be the first statement of `transaction`. Nothing keeps the statements
    /// that follow from dropping or renaming the table of marks; [`SqliteGuard::write`] does.
    ///
    /// # Errors
    /// [`SqliteError::Refused`]: roll back; after [`Refused::StaleToken`] the lease is lost.
    /// [`Refused::TokenTooHigh`] says nothing about the lease; see [`Ceiling`].
    /// [`SqliteError::Busy`]: roll back and repeat. [`SqliteError::NotFirst`] and
    /// [`SqliteError::NotInstalled`] are mistakes of the program.
    pub fn admit(
        &self,
        transaction: &Transaction<'_>,
        fence: &Fence,
    ) -> Result<Admitted, SqliteError> {
        fence.check_lease(&self.name)?;
        self.stay_below_the_ceiling(transaction, fence)?;
        self.raise(transaction, fence.token)?;
        Ok(Admitted::new(fence.token))
    }

    /// Tells the guard, in a transaction of its own, that `fence` is the grant in force: once it
    /// has returned, every older token is refused. A new holder calls it **before its first read**
    /// of what is guarded. Advancing twice changes nothing.
    ///
    /// # Errors
    /// As [`SqliteGuard::admit`]. After [`SqliteError::Unknown`] advance again.
    pub fn advance(
        &self,
        connection: &mut Connection,
        fence: &Fence,
    ) -> Result<Admitted, SqliteError> {
        if planted(Bug::AdvanceLeftToFirstWrite) {
            fence.check_lease(&self.name)?;
            return Ok(Admitted::new(fence.token));
        }
        self.write(connection, fence, |_| Ok(Admitted::new(fence.token)))
    }

    /// Runs `effect` in a transaction that has admitted `fence`, and commits it. Any error rolls
    /// back.
    ///
    /// SQLite ends a transaction on its own when a write in it is interrupted, finds the disk full
    /// or says `OR ROLLBACK`. What an effect that overlooks this error writes next would commit by
    /// itself, without the mark: a commit hook refuses it, and everything else that would commit
    /// before `effect` has returned. A rollback hook notes that the transaction has ended: another
    /// one that `effect` has begun since, with `BEGIN` or `SAVEPOINT`, is rolled back. An authorizer
    /// refuses, with `SQLITE_AUTH`, to set `PRAGMA journal_mode`, since without a journal what the hook
    /// refuses could not be taken back; and what would lower or hide a mark: to set `PRAGMA
    /// writable_schema`, to attach a database, to drop, alter or empty `ringfence_marks`, to change its
    /// triggers or indexes, or to make a temporary table or view of that name. So hooks of both kinds and an
    /// authorizer that the program has set on `connection` are gone afterwards; set them again, or use
    /// [`SqliteGuard::admit`] and stop at any error. `effect` must not set any.
    ///
    /// # Errors
    /// As [`SqliteGuard::admit`], or whatever `effect` returns. [`SqliteError::Database`] also if
    /// the transaction had ended and `effect` returned `Ok` nevertheless.
    /// [`SqliteError::Unknown`] is the only error after which `effect` may have been committed.
    pub fn write<R, E: From<SqliteError>>(
        &self,
        connection: &mut Connection,
        fence: &Fence,
        effect: impl FnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let wall = Wall::default();
        let done = self.write_behind(&wall, connection, fence, effect);
        connection.commit_hook(None::<fn() -> bool>);
        connection.rollback_hook(None::<fn()>);
        connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>);
        done
    }

    fn write_behind<R, E: From<SqliteError>>(
        &self,
        wall: &Wall,
        connection: &mut Connection,
        fence: &Fence,
        effect: impl FnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let transaction = begin(connection)?;
        self.admit(&transaction, fence)?;
        if !planted(Bug::CommitsOfItsOwn) {
            wall.raise(&transaction);
        }
        let value = effect(&transaction)?;
        if wall.has_ended() && !planted(Bug::BegunAnewCommitted) {
            // Dropping it rolls back whatever is open now.
            return Err(ended().into());
        }
        wall.lower();
        commit(transaction)?;
        Ok(value)
    }

    /// Raises the mark to `floor` if it is lower; never lowers it. After a restore of the database,
    /// or a power failure that took commits back, call it with the lease's newest token
    /// before writes are served: the copy's mark may admit a grant that was fenced off since. The
    /// [`Ceiling`] does not judge it.
    ///
    /// # Errors
    /// As [`SqliteGuard::admit`], but never [`SqliteError::Refused`].
    pub fn advance_to(
        &self,
        connection: &mut Connection,
        floor: FencingToken,
    ) -> Result<(), SqliteError> {
        let transaction = begin(connection)?;
        match self.raise(&transaction, floor) {
            Ok(()) | Err(SqliteError::Refused(_)) => commit(transaction),
            Err(error) => Err(error),
        }
    }

    /// The greatest token admitted so far. Advice for people: only [`SqliteGuard::admit`] decides.
    ///
    /// # Errors
    /// [`SqliteError::Busy`], [`SqliteError::NotInstalled`] or [`SqliteError::Database`].
    pub fn mark(&self, connection: &Connection) -> Result<Option<FencingToken>, SqliteError> {
        let mut read = connection
            .prepare_cached(&of_marks(SQLITE_MARK))
            .map_err(not_installed)?;
        let mark = read
            .query_row([self.name.as_str()], |row| row.get::<_, u64>(0))
            .optional()?;
        Ok(mark.and_then(FencingToken::new))
    }

    fn stay_below_the_ceiling(
        &self,
        transaction: &Transaction<'_>,
        fence: &Fence,
    ) -> Result<(), SqliteError> {
        if self.ceiling.judge(fence, None).is_ok() {
            return Ok(());
        }
        // The mark may be this very token, raised by an operator or before the clock was set back.
        come_first(transaction)?;
        let mut hold = transaction
            .prepare_cached(&of_marks(HOLD_MARK))
            .map_err(not_installed)?;
        hold.execute([self.name.as_str()])?;
        Ok(self.ceiling.judge(fence, self.mark(transaction)?)?)
    }

    fn raise(&self, transaction: &Transaction<'_>, token: FencingToken) -> Result<(), SqliteError> {
        come_first(transaction)?;
        if planted(Bug::EqualMarkNotWritten) && self.mark(transaction)? == Some(token) {
            return Ok(());
        }
        let mut raise = transaction
            .prepare_cached(&of_marks(SQLITE_ADMIT))
            .map_err(not_installed)?;
        let fence = Fence::new(self.name.clone(), token);
        match raise.execute(params![self.name.as_str(), token.get()]) {
            Ok(1) => return Ok(()),
            // A table that was made without the trigger.
            Ok(_) => {}
            Err(rusqlite::Error::SqliteFailure(_, Some(message)))
                if Refused::from_message(&fence, &message).is_some() => {}
            // Also where the statement was prepared before the table went.
            Err(error) => return Err(not_installed(error)),
        }
        match self.mark(transaction)? {
            Some(mark) if mark > token => Err(fence.overtaken_by(mark).into()),
            _ => Err(SqliteError::NotWritten),
        }
    }
}

/// A statement about the marks. It names the main database, since a temporary table that an effect has left
/// would stand in front of the marks.
fn of_marks(statement: &'static str) -> Cow<'static, str> {
    if planted(Bug::MarkOfOneConnection) {
        return statement.replace("main.", "").into();
    }
    statement.into()
}

/// The columns of the table of marks in the main database; empty if there is none.
fn shape(connection: &Connection) -> Result<String, SqliteError> {
    let columns = "SELECT coalesce(group_concat(concat, ', '), '') FROM (
        SELECT name || ' ' || upper(type) || CASE WHEN pk > 0 THEN ' PRIMARY KEY'
            WHEN \"notnull\" THEN ' NOT NULL' ELSE '' END AS concat
        FROM pragma_table_info('ringfence_marks', 'main') ORDER BY cid)";
    Ok(connection.query_row(columns, [], |row| row.get(0))?)
}

/// The table that has the triggers of the marks under another name. They go with a table that is renamed.
fn renamed(connection: &Connection) -> Result<Option<String>, SqliteError> {
    let table = "SELECT tbl_name FROM main.sqlite_master
        WHERE type = 'trigger' AND substr(lower(name), 17) IN ('no_stale_token', 'only_grow', 'stay', 'no_index_at_insert',
            'no_index_at_update') AND name LIKE 'ringfence\\_marks\\_%' ESCAPE '\\' AND tbl_name <> 'ringfence_marks' COLLATE NOCASE";
    let found = connection.query_row(table, [], |row| row.get(0));
    Ok(found.optional()?)
}

fn come_first(transaction: &Transaction<'_>) -> Result<(), SqliteError> {
    if transaction.transaction_state(Some(MAIN_DB))? == TransactionState::Read {
        return Err(SqliteError::NotFirst);
    }
    Ok(())
}

/// Commits, and tells a commit that has failed from one whose answer was lost: SQLite looks for an
/// interrupt once more when the commit is done.
fn commit(transaction: Transaction<'_>) -> Result<(), SqliteError> {
    let was_open = !transaction.is_autocommit();
    let Err(source) = transaction.execute_batch("COMMIT") else {
        return Ok(());
    };
    let certain = source.sqlite_error_code() == Some(ErrorCode::DiskFull);
    if was_open && transaction.is_autocommit() && !certain {
        return Err(SqliteError::Unknown { source });
    }
    // Still open, and rolled back now; or ended by SQLite before.
    Err(source.into())
}

/// The error of an effect that has overlooked the end of its transaction.
fn ended() -> SqliteError {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT_ROLLBACK);
    let what = "the transaction had ended before its effect did; an effect stops at any error";
    rusqlite::Error::SqliteFailure(code, Some(what.to_owned())).into()
}

/// Takes the write lock at once: `BEGIN` alone would meet a busy database only at the first
/// statement, after its caller believed to have begun.
fn begin(connection: &mut Connection) -> Result<Transaction<'_>, SqliteError> {
    Ok(connection.transaction_with_behavior(TransactionBehavior::Immediate)?)
}

/// SQLite has no code of its own for a missing table; preparing a statement fails for no other
/// reason than the schema.
fn not_installed(error: rusqlite::Error) -> SqliteError {
    let missing = matches!(
        &error,
        rusqlite::Error::SqliteFailure(_, Some(message)) if message.starts_with("no such table")
    ) || matches!(
        &error,
        rusqlite::Error::SqlInputError { msg, .. } if msg.starts_with("no such table")
    );
    if missing {
        SqliteError::NotInstalled
    } else {
        error.into()
    }
}
