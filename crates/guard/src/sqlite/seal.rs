//! The guard of an SQLite database as a holder's client seals it.

use std::sync::{Arc, Mutex, TryLockError};

use rusqlite::Connection;

use super::{SqliteError, SqliteGuard};
use crate::on_thread::on_thread;
use crate::{Fence, SealAnswer, Sealable, Sealing};

/// An SQLite guard with a connection of its own, to be named in an acquire: a
/// [`Sealable`](crate::Sealable). Needs no runtime; each seal has a thread while it lasts.
///
/// A database that can lose what it has committed counts as unsealed: with any `synchronous` below `EXTRA`,
/// or below `FULL` in WAL mode, a power failure takes back the newest commits. Set it on this connection, and
/// on those that write. Where SQLite keeps a rollback journal a commit is the end of that file, and `FULL`
/// does not sync its directory behind it.
pub struct SqliteSeal {
    label: String,
    shared: Arc<Shared>,
}

struct Shared {
    guard: SqliteGuard,
    connection: Mutex<Connection>,
}

impl SqliteSeal {
    /// The seal of a guard, over this connection. A [`Connection::busy_timeout`] bounds its wait for
    /// other writers.
    #[must_use]
    pub fn new(guard: SqliteGuard, connection: Connection) -> Self {
        let file = connection.path().filter(|path| !path.is_empty());
        let label = format!("SQLite {}, {}", file.unwrap_or("in memory"), guard.name());
        Self {
            label,
            shared: Arc::new(Shared {
                guard,
                connection: Mutex::new(connection),
            }),
        }
    }
}

impl Sealable for SqliteSeal {
    fn label(&self) -> &str {
        &self.label
    }

    fn seal<'a>(&'a self, fence: &'a Fence) -> Sealing<'a> {
        let (shared, fence) = (Arc::clone(&self.shared), fence.clone());
        Box::pin(async move {
            let answer = on_thread(move || shared.seal(&fence)).await;
            answer.unwrap_or_else(|| failed("its thread ended without an answer"))
        })
    }
}

impl Shared {
    fn seal(&self, fence: &Fence) -> SealAnswer {
        let mut connection = match self.connection.try_lock() {
            Ok(connection) => connection,
            // A transaction that it left open is rolled back by the next one's refusal.
            Err(TryLockError::Poisoned(connection)) => connection.into_inner(),
            Err(TryLockError::WouldBlock) => return failed("an earlier seal has not come back"),
        };
        match self.guard.advance(&mut connection, fence) {
            Ok(_) => durability(&connection).unwrap_or_else(|error| Err::<(), _>(error).into()),
            refused => refused.into(),
        }
    }
}

fn failed(why: &str) -> SealAnswer {
    SealAnswer::Failed { why: why.into() }
}

/// Whether a commit of this connection outlives a power failure.
fn durability(connection: &Connection) -> Result<SealAnswer, SqliteError> {
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    let journal: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    // 2 is FULL, 3 is EXTRA. In memory there is nothing that outlives the process.
    let loses = match (synchronous, journal.as_str()) {
        (_, "memory") if connection.path().is_none_or(str::is_empty) => false,
        (_, "memory" | "off") => true,
        (2.., "wal") | (3.., _) => false,
        _ => true,
    };
    Ok(match loses {
        false => SealAnswer::Durable,
        true => SealAnswer::NotDurable {
            why: format!(
                "with synchronous {synchronous} and journal_mode {journal} a power failure takes \
                 back the newest commits; set journal_mode to wal and synchronous to FULL, or \
                 synchronous to EXTRA"
            ),
        },
    })
}
