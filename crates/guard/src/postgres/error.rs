//! What can go wrong, sorted by what the caller has to do.

use std::error::Error;

use ringfence_core::FencingToken;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::{Fence, Refused};

/// The `SQLSTATE` of a stale token.
const STALE_TOKEN: &str = "RF001";
/// What stands before the mark in that error's detail.
const MARK: &str = "mark=";
/// What the names of the migration's table and functions begin with.
const PREFIX: &str = "ringfence_";

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
    /// The migration was not run in this database, or its schema is not in the search path.
    #[error(
        "the database has no function ringfence_raise in its search path; run \
         PostgresGuard::install or the migration sql/postgres.sql once"
    )]
    NotInstalled,
    /// The connection failed after the commit was sent, so it may or may not have happened. Look
    /// at the data before repeating what is not harmless twice.
    #[error("the connection failed during the commit: whether it happened is not known")]
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
        let stale = source
            .as_db_error()
            .filter(|error| error.code().code() == STALE_TOKEN);
        let Some(error) = stale else {
            return source.into();
        };
        let mark = error
            .detail()
            .and_then(|detail| detail.strip_prefix(MARK)?.parse().ok());
        Refused::StaleToken {
            name: fence.name.clone(),
            offered: fence.token,
            // The migration always names the mark.
            mark: mark.and_then(FencingToken::new).unwrap_or(fence.token),
        }
        .into()
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

fn is_conflict(error: &DbError) -> bool {
    [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
    ]
    .contains(error.code())
}

/// The table or the functions of the migration, and nobody else's.
fn is_missing(error: &DbError) -> bool {
    [SqlState::UNDEFINED_FUNCTION, SqlState::UNDEFINED_TABLE].contains(error.code())
        && error.message().contains(PREFIX)
}

/// Whether what the effect of a write returned comes from a conflict, however deep it is wrapped.
pub(super) fn stems_from_conflict(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let found = match error.downcast_ref::<PostgresError>() {
            Some(PostgresError::Conflict { .. }) => true,
            _ => error.downcast_ref::<DbError>().is_some_and(is_conflict),
        };
        if found {
            return true;
        }
        next = error.source();
    }
    false
}
