//! What can go wrong, sorted by what the caller has to do.

use tokio_postgres::error::{DbError, Severity, SqlState};

use super::retries::is_conflict;
use crate::{EndsBelief, Fence, Refused};

/// What the names of the migration's table and functions begin with: their schema.
const SCHEMA: &str = "ringfence.";

/// Stands in the error of a transaction of the guard's own that was open before.
pub(super) const NOT_FIRST: &str = "TRANSACTION_OPEN";

/// Why a call of [`PostgresGuard`](super::PostgresGuard) did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// The guard refused the fence.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Another transaction was in the way: a serialization failure (`40001`), a deadlock (`40P01`)
    /// or a lock that was not to be had (`55P03`). Nothing was committed: roll back and repeat the
    /// transaction from its beginning.
    #[error("another transaction is in the way; roll back and repeat the whole transaction")]
    Conflict {
        /// What the server said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The migration was not run in this database.
    #[error(
        "the database has no table ringfence.marks with its functions; run PostgresGuard::install or \
         the migration sql/postgres.sql once"
    )]
    NotInstalled,
    /// A transaction is open on the connection already. The guard begins its own, so that nothing
    /// comes before the admission and no savepoint can undo it. The open one is rolled back; so it is
    /// in the first write of a connection, which then goes on.
    #[error(
        "a transaction is open on this connection already; end it first, since the guard begins its \
         own"
    )]
    NotFirst,
    /// A statement has ended the transaction that the fence was admitted in. If it was a `COMMIT`,
    /// what came before it is committed, under the fence. What came behind it was not guarded: it
    /// is rolled back if it stands in a transaction, and else committed, unless the connection
    /// [refuses it](super::PostgresGuard::only_guarded). If it was a `PREPARE TRANSACTION`, what came
    /// before it may be committed at any time, and no newer grant is admitted until then. It stands in
    /// place of the effect's own error, and is never repeated.
    #[error(
        "the transaction in which the fence was admitted has ended before its commit; leave out \
         COMMIT, ROLLBACK and PREPARE TRANSACTION in guarded work"
    )]
    Ended,
    /// The connection failed after the commit was sent, so it may or may not have happened; or the
    /// server did not answer whether a statement of a failed effect has committed. Look at the data
    /// before repeating what is not harmless twice.
    #[error("the server did not answer for the commit: whether it happened is not known")]
    Unknown {
        /// How it failed.
        #[source]
        source: tokio_postgres::Error,
    },
    /// Anything else that the server or the connection reports.
    #[error("the database failed")]
    Database {
        /// What it said.
        #[source]
        source: tokio_postgres::Error,
    },
}

impl PostgresError {
    /// Whether the whole transaction is worth repeating.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// The guard's refusal, if it is one.
    #[must_use]
    pub const fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            _ => None,
        }
    }

    /// What the server says to a statement that shows `fence`.
    pub(super) fn of_fence(source: tokio_postgres::Error, fence: &Fence) -> Self {
        // The second: it is open, and too late to be made one that writes.
        if is_raised(&source, NOT_FIRST) || source.code() == Some(&SqlState::ACTIVE_SQL_TRANSACTION)
        {
            return Self::NotFirst;
        }
        let refused = source
            .as_db_error()
            .and_then(|error| Refused::from_sqlstate(fence, error.code().code(), error.detail()));
        match refused {
            Some(refused) => refused.into(),
            None => source.into(),
        }
    }

    /// What came of a commit that was sent.
    pub(super) fn of_commit(source: tokio_postgres::Error) -> Self {
        // FATAL ends the connection, perhaps when the commit was done and only waited for a standby.
        let answered = source
            .as_db_error()
            .is_some_and(|error| error.parsed_severity() == Some(Severity::Error));
        if answered {
            source.into()
        } else {
            Self::Unknown { source }
        }
    }
}

/// So that a client ends belief in a lease whose fence the store rejects as stale.
impl EndsBelief for PostgresError {
    fn refused(&self) -> Option<&Refused> {
        Self::refused(self)
    }
}

/// So that `?` works on the statements that follow in the same transaction.
impl From<tokio_postgres::Error> for PostgresError {
    fn from(source: tokio_postgres::Error) -> Self {
        match source.as_db_error() {
            Some(error) if is_conflict(error) => Self::Conflict { source },
            Some(error) if is_missing(error) => Self::NotInstalled,
            _ => Self::Database { source },
        }
    }
}

/// Whether a statement of the guard has raised `word`, by a cast of it to a number.
pub(super) fn is_raised(error: &tokio_postgres::Error, word: &str) -> bool {
    error.as_db_error().is_some_and(|error| {
        *error.code() == SqlState::INVALID_TEXT_REPRESENTATION && error.message().contains(word)
    })
}

/// The table or the functions of the migration, and no other.
fn is_missing(error: &DbError) -> bool {
    match *error.code() {
        SqlState::UNDEFINED_FUNCTION | SqlState::UNDEFINED_TABLE => {
            error.message().contains(SCHEMA)
        }
        _ => {
            *error.code() == SqlState::INVALID_SCHEMA_NAME && error.message().contains("ringfence")
        }
    }
}
