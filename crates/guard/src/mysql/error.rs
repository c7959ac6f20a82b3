//! What can go wrong, sorted by what the caller has to do.

use std::error::Error;

use mysql_async::ServerError;

use crate::retries::Conflict;
use crate::{EndsBelief, Refused};

/// The table of marks, as the errors of the server name it.
const TABLE: &str = "ringfence_marks";

/// The server's numbers of errors, in the manuals of MariaDB and MySQL.
mod code {
    pub(super) const CHECK_READ: u16 = 1020;
    pub(super) const NO_SUCH_TABLE: u16 = 1146;
    pub(super) const LOCK_WAIT_TIMEOUT: u16 = 1205;
    pub(super) const DEADLOCK: u16 = 1213;
    pub(super) const DOES_NOT_EXIST: u16 = 1305;
    pub(super) const ROLLED_BACK_BY_GROUP: u16 = 3101;
    pub(super) const LOCK_NOT_AVAILABLE: u16 = 3572;
}

/// Why a call of [`MysqlGuard`](super::MysqlGuard) did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MysqlError {
    /// The guard refused the fence.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Another transaction was in the way: a deadlock (`1213`), a lock that was not to be had in time
    /// (`1205`, `3572`), a row that has changed (`1020`) or a certification that failed (`3101`).
    /// Nothing was committed: roll back and repeat the transaction from its beginning.
    #[error("another transaction is in the way; roll back and repeat the whole transaction")]
    Conflict {
        /// What the server said.
        #[source]
        source: mysql_async::Error,
    },
    /// The migration was not run in the database that is in use.
    #[error(
        "the database in use has no table ringfence_marks; run MysqlGuard::install or the migration \
         sql/mysql.sql once"
    )]
    NotInstalled,
    /// The write of the mark has not met the marks: the session has a temporary table of their name, which
    /// the server shows in their place; the migration was an earlier release's; or another trigger has kept the
    /// mark as it was. Nothing is admitted, and no transaction is open.
    #[error(
        "a temporary table ringfence_marks hides the marks, their trigger ringfence_marks_seen is missing, \
         or another trigger keeps the mark as it was; run DROP TEMPORARY TABLE ringfence_marks, or \
         MysqlGuard::install, which says what is wrong"
    )]
    Hidden,
    /// The table of marks is not in InnoDB. Any other engine keeps a mark whose data was rolled back,
    /// and locks no row until the commit.
    #[error(
        "the table ringfence_marks is in the engine {engine}, expected InnoDB; run ALTER TABLE \
         ringfence_marks ENGINE = InnoDB"
    )]
    WrongEngine {
        /// The engine that it is in.
        engine: String,
    },
    /// The table of marks was not made by the migration, and has another key or another type of mark.
    /// Without its key it holds several marks of one lease, and any of them is compared.
    #[error(
        "the table ringfence_marks has another shape than the migration makes: {found}; rename that \
         table, run MysqlGuard::install again, and raise each mark with MysqlGuard::advance_to"
    )]
    WrongShape {
        /// What it has, and what is expected.
        found: String,
    },
    /// A transaction is open on the connection already. The guard begins its own, which would
    /// commit the open one. Nothing was sent.
    #[error(
        "a transaction is open on this connection already; end it first, since the guard begins its \
         own"
    )]
    NotFirst,
    /// The transaction that the fence was admitted in had ended before its commit: by a statement of
    /// the effect, or by the server at a deadlock whose error the effect has overlooked. If it was a
    /// `COMMIT`, or a statement that commits implicitly as `CREATE TABLE` does, what came before it is
    /// committed, under the fence. What came behind it was refused by the server, unless the effect
    /// has begun a transaction that writes. It is never repeated.
    #[error(
        "the transaction in which the fence was admitted has ended before its commit; leave out \
         COMMIT, ROLLBACK, START TRANSACTION and statements that commit by themselves in guarded \
         work, and pass on the error of a deadlock"
    )]
    Ended,
    /// The connection failed after the commit was sent, or the commit was interrupted, so it may or
    /// may not have happened. Look at the data before repeating what is not harmless twice.
    #[error("the server did not confirm the commit: whether it happened is not known")]
    Unknown {
        /// How it failed.
        #[source]
        source: mysql_async::Error,
    },
    /// The connection was closed: a call was dropped before its end, the server went away, or it
    /// answered another question. The server rolls back what was open. Make a new one.
    #[error(
        "the connection is closed, since an earlier call on it did not come to its end; connect again"
    )]
    Closed,
    /// The server's answer is one to an earlier question, whose future was dropped before it had been
    /// read. Nothing of the effect was sent. The connection is closed now.
    #[error(
        "the answer is one to an earlier query, which was dropped before its end; the connection is \
         closed: connect again"
    )]
    OutOfStep,
    /// Anything else that the server or the connection reports.
    #[error("the database failed")]
    Database {
        /// What it said.
        #[source]
        source: mysql_async::Error,
    },
}

impl MysqlError {
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
}

/// So that a client ends belief in a lease whose fence the store rejects as stale.
impl EndsBelief for MysqlError {
    fn refused(&self) -> Option<&Refused> {
        Self::refused(self)
    }
}

/// So that `?` works on the statements that follow in the same transaction.
impl From<mysql_async::Error> for MysqlError {
    fn from(source: mysql_async::Error) -> Self {
        match &source {
            mysql_async::Error::Server(error) if conflict(error).is_some() => {
                Self::Conflict { source }
            }
            mysql_async::Error::Server(error)
                if error.code == code::NO_SUCH_TABLE && error.message.contains(TABLE) =>
            {
                Self::NotInstalled
            }
            _ => Self::Database { source },
        }
    }
}

/// The conflict that the server means by this error.
fn conflict(error: &ServerError) -> Option<Conflict> {
    match error.code {
        code::DEADLOCK | code::CHECK_READ | code::ROLLED_BACK_BY_GROUP => {
            Some(Conflict::Transaction)
        }
        code::LOCK_WAIT_TIMEOUT | code::LOCK_NOT_AVAILABLE => Some(Conflict::Lock),
        _ => None,
    }
}

/// The conflict that an error stems from, however deep it is wrapped.
pub(super) fn conflict_in(error: &(dyn Error + 'static)) -> Option<Conflict> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(conflict) = error.downcast_ref::<ServerError>().and_then(conflict) {
            return Some(conflict);
        }
        next = error.source();
    }
    None
}

/// Whether the server says that there is no such savepoint.
pub(super) fn is_missing_savepoint(error: &mysql_async::Error) -> bool {
    matches!(error, mysql_async::Error::Server(error) if error.code == code::DOES_NOT_EXIST)
}
