//! A transaction whose fence is admitted.

use std::fmt;

use mysql_async::{Conn, DriverError};
use ringfence_planted::{Bug, planted};

use super::connection::{Connection, Silent, Told};
use super::error::{conflict_in, is_missing_savepoint};
use super::{AUTOCOMMIT, COMMIT, MysqlError, ROLLBACK};

/// Made with the admission. It goes with the transaction, so that to release it fails in any other.
pub(super) const SAVEPOINT: &str = "SAVEPOINT ringfence_admitted";
const RELEASE: &str = "RELEASE SAVEPOINT ringfence_admitted";

/// Where a message's statements stand, behind its number.
const FIRST: usize = 1;
const SECOND: usize = 2;
const THIRD: usize = 3;

/// An open transaction in which the guard has admitted a fence, and which only [`Guarded::commit`]
/// commits. Dropping it closes the connection, and the server rolls back;
/// [`Guarded::roll_back`] keeps the connection. Made by [`MysqlGuard::begin`](super::MysqlGuard::begin).
///
/// Its statements are sent with [`Guarded::conn`]. Savepoints are statements here, too; leave the one
/// called `ringfence_admitted` alone.
#[must_use = "its connection is closed when it is dropped"]
pub struct Guarded<'a> {
    connection: &'a mut Connection,
    /// Whether the transaction was ended by this type, so that the connection is as good as before.
    over: bool,
}

impl<'a> Guarded<'a> {
    pub(super) const fn new(connection: &'a mut Connection) -> Self {
        Self {
            connection,
            over: false,
        }
    }

    /// The driver's connection, for the statements of the effect.
    ///
    /// # Errors
    /// [`MysqlError::Closed`].
    pub fn conn(&mut self) -> Result<&mut Conn, MysqlError> {
        self.connection.get()
    }

    /// Commits, if this is still the transaction that the fence was admitted in.
    ///
    /// # Errors
    /// [`MysqlError::Database`] or [`MysqlError::Conflict`]: nothing was committed.
    /// [`MysqlError::Ended`] if the transaction had ended before.
    /// [`MysqlError::Unknown`] if the server has not confirmed the commit.
    pub async fn commit(mut self) -> Result<(), MysqlError> {
        let release = if planted(Bug::AnyTransactionCommitted) {
            "DO 0"
        } else {
            RELEASE
        };
        match self.connection.send(&[release, COMMIT, AUTOCOMMIT]).await {
            Ok(Told::Done(_)) => {
                self.over = true;
                Ok(())
            }
            // It is done, and the session is not as before: so it is closed.
            Ok(Told::Failed(THIRD.., _)) => Ok(()),
            // The commit itself. A conflict is an answer that it was not done; an interruption is not.
            Ok(Told::Failed(SECOND, source)) => match conflict_in(&source) {
                Some(_) if self.roll_back().await.is_ok() => Err(source.into()),
                _ => Err(MysqlError::Unknown { source }),
            },
            Ok(Told::Failed(_, source)) => {
                let ended = is_missing_savepoint(&source);
                // That this is answered shows that the error was one of the message above.
                match self.roll_back().await {
                    Ok(()) if ended => Err(MysqlError::Ended),
                    Ok(()) => Err(source.into()),
                    Err(_) => Err(MysqlError::Unknown { source }),
                }
            }
            Err(Silent::Closed) => Err(MysqlError::Closed),
            Err(Silent::OutOfStep) => Err(MysqlError::Unknown {
                source: DriverError::PacketOutOfOrder.into(),
            }),
            Err(Silent::Broken(source)) => Err(MysqlError::Unknown { source }),
        }
    }

    /// Rolls back, and keeps the connection.
    ///
    /// # Errors
    /// [`MysqlError::Database`], [`MysqlError::OutOfStep`] or [`MysqlError::Closed`]: the connection is
    /// closed, and the server rolls back as soon as it notices.
    pub async fn roll_back(mut self) -> Result<(), MysqlError> {
        self.over = true;
        roll_back(self.connection).await
    }

    /// Rolls back after an effect that failed. `given_up`: its error says that the server gave up the
    /// transaction.
    ///
    /// # Errors
    /// [`MysqlError::Ended`] if the transaction had ended before, and the server had not given it up: what a statement has committed is not undone, and must not be repeated.
    /// [`MysqlError::Unknown`] if the server does not answer whether it had. A broken connection is no
    /// error: it leaves nothing to ask for.
    pub(super) async fn roll_back_after(mut self, given_up: bool) -> Result<(), MysqlError> {
        match self.connection.send(&[RELEASE, ROLLBACK, AUTOCOMMIT]).await {
            Ok(Told::Done(_)) => {
                self.over = true;
                Ok(())
            }
            Ok(Told::Failed(FIRST, source)) if is_missing_savepoint(&source) => {
                self.roll_back().await.ok();
                if given_up {
                    Ok(())
                } else {
                    Err(MysqlError::Ended)
                }
            }
            // It had not ended, and ends with the connection.
            Ok(Told::Failed(SECOND.., _)) => Ok(()),
            Ok(Told::Failed(_, source)) => Err(MysqlError::Unknown { source }),
            Err(_) => Ok(()),
        }
    }
}

/// Rolls back what may be open. If that fails, the connection is closed.
pub(super) async fn roll_back(connection: &mut Connection) -> Result<(), MysqlError> {
    match connection.send(&[ROLLBACK, AUTOCOMMIT]).await? {
        Told::Done(_) => Ok(()),
        Told::Failed(_, source) => {
            connection.close();
            Err(source.into())
        }
    }
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.connection.close();
        }
    }
}

impl fmt::Debug for Guarded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}
