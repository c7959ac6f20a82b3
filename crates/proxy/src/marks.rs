//! The marks of all leases, in a file that outlives the proxy.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ringfence_core::{FencingToken, LeaseName};
use ringfence_guard::Fence;
use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use ringfence_guard::tower::TurnedAway;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::MARKS_MAX;
use crate::failure::with_sources;

/// For how long requests of this process can be at work in the service behind its end, in milliseconds: one
/// row. It is 0 behind a stop for which nothing was left inside.
const QUIET_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS main.ringfence_proxy (quiet_ms INTEGER NOT NULL) STRICT";

/// The greatest number of the note: a year.
const QUIET_MS_MAX: u64 = 31_536_000_000;

/// The marks, which this process alone may use.
#[derive(Clone)]
pub struct Marks {
    file: Arc<Mutex<File>>,
    place: Arc<Place>,
}

struct File {
    connection: Connection,
    /// How many leases have a mark.
    count: usize,
    /// As it was left by what was written last.
    left: Option<Seen>,
}

/// What a file looks like from outside. Another size or time of change is that of another hand. The counter of
/// changes inside says nothing: one who has the file alone raises it once.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// Device and inode.
    file: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

/// Where the file is. Another one under its name has none of what is written here.
struct Place {
    path: PathBuf,
    is_lost: AtomicBool,
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
        connection.execute_batch(QUIET_TABLE).map_err(failed)?;
        let left = seen(path).ok_or_else(|| MarksError::NoFile(path.to_owned()))?;
        Ok(Self {
            file: Arc::new(Mutex::new(File {
                connection,
                count,
                left: Some(left),
            })),
            place: Arc::new(Place {
                path: path.to_owned(),
                is_lost: AtomicBool::new(false),
            }),
        })
    }

    /// Notes for how long requests of this process can be at work behind its end, and returns for how long
    /// those of the one before can: not at all if it has stopped with nothing inside.
    ///
    /// # Errors
    /// [`MarksError::Open`], if the file cannot be written.
    pub(crate) fn begin(&self, quiet: Duration) -> Result<Duration, MarksError> {
        let mut file = self.file.lock();
        let begun = file.begin(
            u64::try_from(quiet.as_millis())
                .unwrap_or(u64::MAX)
                .min(QUIET_MS_MAX),
        );
        self.place.look(&mut file, true);
        begun
            .map(Duration::from_millis)
            .map_err(|source| MarksError::Open {
                path: self.place.path.clone(),
                source,
            })
    }

    /// Notes that nothing is inside any more.
    pub(crate) async fn end(&self) -> Result<(), TurnedAway> {
        self.on_a_thread(|file| file.note(0).map_err(|error| away(error.into())))
            .await
    }

    /// Refuses everything once the file was removed, replaced, or written by another hand: the next process would find none of the
    /// marks that are written from here on.
    pub(crate) fn check_file(&self) -> Result<(), TurnedAway> {
        self.place.check()
    }

    /// Looks whether the file is still as it was left, and returns false if it is not, for ever.
    pub(crate) async fn look(&self) -> bool {
        self.on_a_thread(|_| Ok(())).await.is_ok()
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

    /// The file is waited for where no other request waits. It is looked at before the work, and behind it:
    /// what was written is in the file that the next process finds.
    async fn on_a_thread<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut File) -> Result<R, TurnedAway> + Send + 'static,
    ) -> Result<R, TurnedAway> {
        let (file, place) = (Arc::clone(&self.file), Arc::clone(&self.place));
        let done = tokio::task::spawn_blocking(move || {
            let mut file = file.lock();
            place.look(&mut file, false);
            place.check()?;
            let done = work(&mut file);
            place.look(&mut file, true);
            place.check()?;
            done
        });
        let done = done.await;
        done.unwrap_or_else(|error| Err(later(format!("the mark was not written: {error}"))))
    }
}

impl Place {
    /// Compares the file with what was left. Behind a write it may look otherwise, but be no other one.
    fn look(&self, file: &mut File, is_written: bool) {
        let now = seen(&self.path);
        let is_same = now.map(|now| now.file) == file.left.map(|left| left.file);
        if is_written && is_same {
            file.left = now;
        }
        if now != file.left && !self.is_lost.swap(true, Ordering::Relaxed) {
            tracing::error!(path = %self.path.display(), "{}", self.lost());
        }
    }

    fn check(&self) -> Result<(), TurnedAway> {
        match self.is_lost.load(Ordering::Relaxed) {
            true => Err(later(self.lost())),
            false => Ok(()),
        }
    }

    fn lost(&self) -> String {
        format!(
            "the file of marks {} was removed, replaced, or written by another hand while the proxy had it open, so no request under a \
             fence is let in any more; put it back and start the proxy again, or stop all holders before a \
             start without it",
            self.path.display()
        )
    }
}

fn seen(path: &Path) -> Option<Seen> {
    let found = std::fs::metadata(path).ok()?;
    Some(Seen {
        file: (found.dev(), found.ino()),
        bytes: found.size(),
        changed: (found.mtime(), found.mtime_nsec()),
    })
}

impl File {
    fn begin(&self, own: u64) -> Result<u64, rusqlite::Error> {
        let before = self.connection.query_row(
            "SELECT max(quiet_ms) FROM main.ringfence_proxy",
            [],
            |row| row.get::<_, Option<u64>>(0),
        )?;
        // Marks without a note come from another hand.
        let before = before.or((self.count > 0).then_some(own));
        let quiet = before.unwrap_or_default().max(own);
        self.note(quiet)?;
        Ok(match before {
            None | Some(0) => 0,
            Some(_) => quiet,
        })
    }

    fn note(&self, quiet_ms: u64) -> Result<(), rusqlite::Error> {
        let note = format!(
            "BEGIN IMMEDIATE; DELETE FROM main.ringfence_proxy; \
             INSERT INTO main.ringfence_proxy VALUES ({quiet_ms}); COMMIT"
        );
        let noted = self.connection.execute_batch(&note);
        if noted.is_err() && !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK").ok();
        }
        noted
    }

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
