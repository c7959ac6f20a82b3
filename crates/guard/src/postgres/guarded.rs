//! A transaction whose fence is admitted.

use std::fmt;
use std::mem;
use std::ops::Deref;

use ringfence_planted::{Bug, planted};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::PostgresError;
use super::error::is_raised;
use super::opening::Open;

/// Stands in the error of a statement that finds another transaction.
const ENDED: &str = "TRANSACTION_ENDED";

/// How `txid_status` calls a transaction that was rolled back. One that was prepared for a commit in
/// two phases is in progress.
const ABORTED: &str = "aborted";

/// An open transaction in which the guard has admitted a fence, and which only
/// [`Guarded::commit`] commits. Dropping it rolls back. Made by
/// [`PostgresGuard::begin`](super::PostgresGuard::begin).
///
/// Its statements are sent as with a [`Client`]. It gives no `Transaction` of `tokio_postgres`, which
/// is a type of savepoints, too: to commit one of those would say nothing of the admission, which
/// would be undone with another. Savepoints are statements here:
///
/// ```no_run
/// # use ringfence_guard::{Fence, postgres::{PostgresError, PostgresGuard}};
/// # async fn f(guard: PostgresGuard, mut client: tokio_postgres::Client, fence: Fence)
/// # -> Result<(), PostgresError> {
/// let guarded = guard.begin(&mut client, &fence).await?;
/// guarded.batch_execute("SAVEPOINT entry").await?;
/// if guarded.batch_execute("INSERT INTO entry VALUES (1)").await.is_err() {
///     guarded.batch_execute("ROLLBACK TO entry").await?;
/// }
/// guarded.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// The type has no nested transactions:
///
/// ```compile_fail,E0596
/// # use ringfence_guard::{Fence, postgres::{PostgresError, PostgresGuard}};
/// # async fn f(guard: PostgresGuard, mut client: tokio_postgres::Client, fence: Fence)
/// # -> Result<(), PostgresError> {
/// let mut guarded = guard.begin(&mut client, &fence).await?;
/// let nested = guarded.transaction().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "it is rolled back when it is dropped"]
pub struct Guarded<'a> {
    open: Open<'a>,
    /// What the server calls the transaction that has written the mark. It was the first to write
    /// in it, outside of savepoints, so the mark is written for as long as this transaction is open.
    number: u64,
}

impl<'a> Guarded<'a> {
    /// What the answers to an admission tell of the transaction.
    pub(super) fn admitted(
        open: Open<'a>,
        answers: &[SimpleQueryMessage],
    ) -> Result<Self, PostgresError> {
        let row = answers.iter().rev().find_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => Some((row.get(0)?.parse::<u64>().ok()?, row.get(1)?)),
            _ => None,
        });
        match row {
            Some((number, "t")) => Ok(Self { open, number }),
            _ => Err(PostgresError::NotFirst),
        }
    }

    /// Commits, if this is still the transaction that the fence was admitted in. Use it instead of
    /// a statement `COMMIT`, to which the server answers success also where it rolls back, since a
    /// statement had failed.
    ///
    /// # Errors
    /// [`PostgresError::Database`] or [`PostgresError::Conflict`]: nothing was committed.
    /// [`PostgresError::Ended`] if a statement has ended the transaction.
    /// [`PostgresError::Unknown`] if the connection broke meanwhile.
    pub async fn commit(self) -> Result<(), PostgresError> {
        // In one message, so that the server does not commit if the first part fails. It fails in a
        // transaction that a failed statement has aborted, and in any other than this one.
        let message = if planted(Bug::AnyTransactionCommitted) {
            "SELECT; COMMIT".to_owned()
        } else {
            format!("{}; COMMIT", self.is_open())
        };
        let Err(error) = self.open.0.batch_execute(&message).await else {
            // It is over; a rollback would make the server warn.
            mem::forget(self.open);
            return Ok(());
        };
        if error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION) {
            self.rolled_back().await?;
        }
        Err(of_commit(error))
    }

    /// Rolls back after an error.
    ///
    /// # Errors
    /// [`PostgresError::Ended`] if a statement had ended the transaction: what it has committed is
    /// not undone, and must not be repeated. [`PostgresError::Unknown`] if the server does not
    /// answer whether one had. A broken connection is no error: it leaves nothing to ask for.
    pub(super) async fn roll_back(self) -> Result<(), PostgresError> {
        match self.open.0.batch_execute(&self.is_open()).await {
            Ok(()) => Ok(()),
            Err(error) if is_ended(&error) => Err(PostgresError::Ended),
            // Mostly the error of a transaction that has failed, which answers nothing.
            Err(error) if error.as_db_error().is_some() => self.rolled_back().await,
            Err(_) => Ok(()),
        }
    }

    /// Rolls back a transaction that has failed, and asks what became of the one that the fence was
    /// admitted in: a statement may have committed or prepared that and begun another.
    async fn rolled_back(self) -> Result<(), PostgresError> {
        let ask = format!("ROLLBACK; SELECT pg_catalog.txid_status({})", self.number);
        let answers = match self.open.0.simple_query(&ask).await {
            Ok(answers) => answers,
            Err(source) if source.as_db_error().is_some() => {
                return Err(PostgresError::Unknown { source });
            }
            Err(_) => return Ok(()),
        };
        mem::forget(self.open);
        let aborted = answers.iter().any(|answer| match answer {
            SimpleQueryMessage::Row(row) => row.get(0) == Some(ABORTED),
            _ => false,
        });
        if !aborted {
            return Err(PostgresError::Ended);
        }
        Ok(())
    }

    /// A statement that fails unless this transaction is open. Nothing in it is looked for in the
    /// search path, which may be another one meanwhile.
    fn is_open(&self) -> String {
        format!(
            "SELECT CAST(CASE WHEN pg_catalog.txid_current_if_assigned() OPERATOR(pg_catalog.=) {} \
             THEN '0' ELSE '{ENDED}' END AS integer)",
            self.number
        )
    }
}

fn of_commit(source: tokio_postgres::Error) -> PostgresError {
    if is_ended(&source) {
        PostgresError::Ended
    } else {
        PostgresError::of_commit(source)
    }
}

fn is_ended(error: &tokio_postgres::Error) -> bool {
    is_raised(error, ENDED)
}

impl Deref for Guarded<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.open.0
    }
}

impl fmt::Debug for Guarded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
