//! The marks of all leases, in a file that outlives the proxy.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use ringfence_core::{FencingToken, LeaseName};
use ringfence_guard::Fence;
use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use ringfence_guard::tower::TurnedAway;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::MARKS_MAX;

/// The marks, which this process alone may use.
pub struct Marks {
    file: Arc<Mutex<File>>,
}

struct File {
    connection: Connection,
    /// How many leases have a mark.
    count: usize,
}

/// Why a file of marks cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarksError {
    /// Another process has it.
    #[error("{} is in use: one proxy stands before one service, and has marks of its own", .0.display())]
    InUse(PathBuf),
    /// There is a table of marks that is not a guard's.
    #[error("{}: {source}", .path.display())]
    Guard {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: SqliteError,
    },
    /// It cannot be opened, or is no database.
    #[error("{} cannot be opened: {source}; name a file of marks, or one that is to be created", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// Marks that end with the process would let every older holder in.
    #[error("`{}` is no file: marks have to outlive the proxy", .0.display())]
    NoFile(PathBuf),
}

impl Marks {
    /// Opens a file of marks, and makes it if there is none.
    ///
    /// # Errors
    /// See [`MarksError`].
    pub fn open(path: &Path) -> Result<Self, MarksError> {
        if path.as_os_str().is_empty() || path == Path::new(":memory:") {
            return Err(MarksError::NoFile(path.to_owned()));
        }
        let failed = |source: rusqlite::Error| match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                MarksError::InUse(path.to_owned())
            }
            _ => MarksError::Open {
                path: path.to_owned(),
                source,
            },
        };
        // Not as an address: a file may have any name.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection
            .pragma_update(None, "locking_mode", "EXCLUSIVE")
            .map_err(failed)?;
        // A mark that is reported outlives a power failure.
        connection
            .pragma_update(None, "synchronous", "EXTRA")
            .map_err(failed)?;
        // It is kept from here to the end of the process.
        connection
            .transaction_with_behavior(TransactionBehavior::Exclusive)
            .and_then(rusqlite::Transaction::commit)
            .map_err(failed)?;
        SqliteGuard::install(&connection).map_err(|source| MarksError::Guard {
            path: path.to_owned(),
            source,
        })?;
        let count = connection
            .query_row("SELECT count(*) FROM main.ringfence_marks", [], |row| {
                row.get(0)
            })
            .map_err(failed)?;
        Ok(Self {
            file: Arc::new(Mutex::new(File { connection, count })),
        })
    }

    /// The mark of a lease, if it has one.
    pub(crate) async fn read(&self, name: &LeaseName) -> Result<Option<FencingToken>, TurnedAway> {
        let name = name.clone();
        self.on_a_thread(move |file| {
            let mark = SqliteGuard::new(name).mark(&file.connection);
            mark.map_err(away)
        })
        .await
    }

    /// Raises the mark to the token of the fence. It is in the file when this returns.
    pub(crate) async fn raise(&self, fence: &Fence) -> Result<(), TurnedAway> {
        let fence = fence.clone();
        self.on_a_thread(move |file| file.raise(&fence)).await
    }

    /// The file is waited for where no other request waits.
    async fn on_a_thread<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut File) -> Result<R, TurnedAway> + Send + 'static,
    ) -> Result<R, TurnedAway> {
        let file = Arc::clone(&self.file);
        let done = tokio::task::spawn_blocking(move || work(&mut file.lock())).await;
        done.unwrap_or_else(|error| Err(later(format!("the mark was not written: {error}"))))
    }
}

impl File {
    fn raise(&mut self, fence: &Fence) -> Result<(), TurnedAway> {
        let guard = SqliteGuard::new(fence.name.clone());
        let is_new = guard.mark(&self.connection).map_err(away)?.is_none();
        if is_new && self.count >= MARKS_MAX {
            return Err(later(format!(
                "the file of marks has {MARKS_MAX} leases, and `{}` is none of them; let fewer names \
                 in by a prefix",
                fence.name
            )));
        }
        guard.advance(&mut self.connection, fence).map_err(away)?;
        self.count += usize::from(is_new);
        Ok(())
    }
}

fn away(error: SqliteError) -> TurnedAway {
    match error {
        SqliteError::Refused(refused) => TurnedAway::Refused(refused),
        // Also where the outcome is not known: the next request raises it again.
        error => later(format!(
            "the mark was not written: {}",
            with_sources(&error)
        )),
    }
}

fn later(message: String) -> TurnedAway {
    TurnedAway::Later {
        reason: "MARKS_UNAVAILABLE",
        message,
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
