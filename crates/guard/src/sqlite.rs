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

use ringfence_core::{FencingToken, LeaseName};
use rusqlite::{
    Connection, ErrorCode, MAIN_DB, OptionalExtension, Transaction, TransactionBehavior,
    TransactionState, params,
};

use ringfence_planted::{Bug, planted};

use crate::{Admitted, Fence, Refused};

/// One row per lease. Rows are never deleted and marks never lowered; the triggers hold that also
/// against a hand at the console.
const INSTALL: &str = "
    CREATE TABLE IF NOT EXISTS ringfence_marks (
        name TEXT PRIMARY KEY NOT NULL,
        mark INTEGER NOT NULL CHECK (mark > 0)
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER IF NOT EXISTS ringfence_marks_only_grow
        BEFORE UPDATE ON ringfence_marks WHEN NEW.mark < OLD.mark OR NEW.name <> OLD.name
        BEGIN SELECT RAISE(ABORT, 'a mark of ringfence_marks can only grow'); END;
    CREATE TRIGGER IF NOT EXISTS ringfence_marks_stay
        BEFORE DELETE ON ringfence_marks
        BEGIN SELECT RAISE(ABORT, 'a mark of ringfence_marks outlives its data'); END;
";

/// What [`Bug::MarkOfOneConnection`] makes.
const MARKS_OF_ONE_CONNECTION: &str =
    "CREATE TEMP TABLE IF NOT EXISTS ringfence_marks (name TEXT PRIMARY KEY, mark INTEGER)";

/// Writes the mark also when it is equal: the write takes the lock that keeps every other grant
/// out until the commit. One changed row, or the token is stale.
const RAISE: &str = "
    INSERT INTO ringfence_marks (name, mark) VALUES (?1, ?2)
        ON CONFLICT (name) DO UPDATE SET mark = excluded.mark WHERE mark <= excluded.mark
";

const READ: &str = "SELECT mark FROM ringfence_marks WHERE name = ?1";

/// A guard whose mark is a row beside the data, bound to one lease.
///
/// The mark lives in the table `ringfence_marks` of the connection's main database, and protects
/// data in that same file only: SQLite does not commit attached files together in WAL mode.
///
/// # Rules for its transactions
/// * [`SqliteGuard::admit`] comes first. It writes the mark, and that write takes the database's
///   write lock, so from there to the commit no newer grant can be admitted by any connection;
///   `BEGIN` and `BEGIN IMMEDIATE` both do. A transaction that has read before holds a snapshot
///   that may be older than the mark and is turned away with [`SqliteError::NotFirst`].
/// * A refused transaction is rolled back: dropping it does.
/// * A new holder calls [`SqliteGuard::advance`] before its first read.
/// * [`SqliteGuard::write`] keeps the first two by itself.
///
/// # Durability
/// Mark and data are lost or kept together, but with `synchronous` below `FULL` a power failure can
/// take back the newest commits. That is a restore: see [`SqliteGuard::advance_to`].
#[derive(Clone, Debug)]
pub struct SqliteGuard {
    name: LeaseName,
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
    /// Anything else SQLite reports.
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
            Self::Busy { .. } | Self::NotFirst | Self::NotInstalled | Self::Database { .. } => None,
        }
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
    /// [`SqliteError::Busy`] or [`SqliteError::Database`].
    pub fn install(connection: &Connection) -> Result<(), SqliteError> {
        if planted(Bug::MarkOfOneConnection) {
            return Ok(connection.execute_batch(MARKS_OF_ONE_CONNECTION)?);
        }
        Ok(connection.execute_batch(INSTALL)?)
    }

    /// A guard bound to `name`. It holds no state of its own; any number may exist.
    #[must_use]
    pub const fn new(name: LeaseName) -> Self {
        Self { name }
    }

    /// The lease this guard is bound to.
    #[must_use]
    pub const fn name(&self) -> &LeaseName {
        &self.name
    }

    /// Admits the fence for the rest of the transaction, if no greater token was admitted before,
    /// and writes the mark. Must be the first statement of `transaction`.
    ///
    /// # Errors
    /// [`SqliteError::Refused`]: roll back; after [`Refused::StaleToken`] the lease is lost.
    /// [`SqliteError::Busy`]: roll back and repeat. [`SqliteError::NotFirst`] and
    /// [`SqliteError::NotInstalled`] are mistakes of the program.
    pub fn admit(
        &self,
        transaction: &Transaction<'_>,
        fence: &Fence,
    ) -> Result<Admitted, SqliteError> {
        fence.check_lease(&self.name)?;
        self.raise(transaction, fence.token)?;
        Ok(Admitted::new(fence.token))
    }

    /// Tells the guard, in a transaction of its own, that `fence` is the grant in force: once it
    /// has returned, every older token is refused. A new holder calls it **before its first read**
    /// of what is guarded. Advancing twice changes nothing.
    ///
    /// # Errors
    /// As [`SqliteGuard::admit`].
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
    /// # Errors
    /// As [`SqliteGuard::admit`], or whatever `effect` returns.
    pub fn write<R, E: From<SqliteError>>(
        &self,
        connection: &mut Connection,
        fence: &Fence,
        effect: impl FnOnce(&Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let transaction = begin(connection)?;
        self.admit(&transaction, fence)?;
        let value = effect(&transaction)?;
        transaction.commit().map_err(SqliteError::from)?;
        Ok(value)
    }

    /// Raises the mark to `floor` if it is lower; never lowers it. After a restore of the database,
    /// or a power failure with `synchronous` below `FULL`, call it with the lease's newest token
    /// before writes are served: the copy's mark may admit a grant that was fenced off since.
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
            Ok(()) | Err(SqliteError::Refused(_)) => Ok(transaction.commit()?),
            Err(error) => Err(error),
        }
    }

    /// The greatest token admitted so far. Advice for people: only [`SqliteGuard::admit`] decides.
    ///
    /// # Errors
    /// [`SqliteError::Busy`], [`SqliteError::NotInstalled`] or [`SqliteError::Database`].
    pub fn mark(&self, connection: &Connection) -> Result<Option<FencingToken>, SqliteError> {
        let mut read = connection.prepare_cached(READ).map_err(not_installed)?;
        let mark = read
            .query_row([self.name.as_str()], |row| row.get::<_, u64>(0))
            .optional()?;
        Ok(mark.and_then(FencingToken::new))
    }

    fn raise(&self, transaction: &Transaction<'_>, token: FencingToken) -> Result<(), SqliteError> {
        if transaction.transaction_state(Some(MAIN_DB))? == TransactionState::Read {
            return Err(SqliteError::NotFirst);
        }
        if planted(Bug::EqualMarkNotWritten) && self.mark(transaction)? == Some(token) {
            return Ok(());
        }
        let mut raise = transaction.prepare_cached(RAISE).map_err(not_installed)?;
        if raise.execute(params![self.name.as_str(), token.get()])? == 1 {
            return Ok(());
        }
        let mark = self.mark(transaction)?.unwrap_or(token);
        Err(Refused::StaleToken {
            name: self.name.clone(),
            offered: token,
            mark,
        }
        .into())
    }
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
