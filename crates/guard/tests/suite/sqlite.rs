//! The guard in SQLite: two connections to one file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_guard::conformance::{Connection, Step, Stop, Store};
use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use ringfence_guard::{Fence, FencingToken, LeaseName};
use rusqlite::{DropBehavior, OptionalExtension, Transaction, TransactionBehavior};
use tempfile::TempDir;

/// How the store under test is driven.
#[derive(Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) journal: &'static str,
    pub(crate) begin: TransactionBehavior,
    /// Whether the holder advances with [`SqliteGuard::advance`], which commits on its own, or in a
    /// transaction whose commit is a step of its own.
    pub(crate) advance_at_once: bool,
}

pub(crate) struct Database {
    pub(crate) directory: TempDir,
    mode: Mode,
    guard: SqliteGuard,
}

impl Database {
    pub(crate) fn create(name: &LeaseName, mode: Mode) -> Self {
        let database = Self {
            directory: crate::scratch(),
            mode,
            guard: SqliteGuard::new(name.clone()),
        };
        let connection = database.open();
        connection
            .pragma_update(None, "journal_mode", mode.journal)
            .unwrap();
        SqliteGuard::install(&connection).unwrap();
        connection
            .execute_batch("CREATE TABLE datum (value INTEGER NOT NULL)")
            .unwrap();
        database
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }

    pub(crate) fn open(&self) -> rusqlite::Connection {
        open(&self.path())
    }
}

pub(crate) fn open(path: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    // A step never waits, and no step is about power failures.
    connection.busy_timeout(Duration::ZERO).unwrap();
    connection
        .pragma_update(None, "synchronous", "OFF")
        .unwrap();
    connection
}

impl Store for Database {
    type Connection = Client;
    type Backup = Vec<u8>;

    fn connect(&self) -> Client {
        let (guard, mode) = (self.guard.clone(), self.mode);
        Client {
            connection: self.open(),
            guard,
            mode,
        }
    }

    fn reopen(&mut self) {}

    fn backup(&self) -> Vec<u8> {
        self.open()
            .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
            .unwrap();
        fs::read(self.path()).unwrap()
    }

    fn restore(&mut self, backup: Vec<u8>) {
        fs::write(self.path(), backup).unwrap();
    }

    fn advance_to(&mut self, floor: FencingToken) {
        self.guard.advance_to(&mut self.open(), floor).unwrap();
    }
}

pub(crate) struct Client {
    connection: rusqlite::Connection,
    guard: SqliteGuard,
    mode: Mode,
}

/// What an error means to the suite's scheduler.
fn stop(error: SqliteError) -> Stop {
    match error {
        SqliteError::Refused(refused) => Stop::Refused(refused),
        SqliteError::Busy { source } => stop_busy(&source),
        other => Stop::Broken(format!("{other:?}")),
    }
}

fn stop_busy(source: &rusqlite::Error) -> Stop {
    match source.sqlite_error() {
        Some(error) if error.extended_code == rusqlite::ffi::SQLITE_BUSY_SNAPSHOT => Stop::Restart,
        _ => Stop::Blocked,
    }
}

impl Client {
    /// Leaves the transaction open for the steps that follow.
    fn begin_and_admit(&mut self, fence: Option<&str>) -> Step {
        self.abort();
        let fence = Fence::receive(self.guard.name(), fence)?;
        let transaction = Transaction::new_unchecked(&self.connection, self.mode.begin);
        let mut transaction = transaction.map_err(SqliteError::from).map_err(stop)?;
        self.guard.admit(&transaction, &fence).map_err(stop)?;
        transaction.set_drop_behavior(DropBehavior::Ignore);
        Ok(())
    }

    fn run(&self, sql: &str, value: Option<u64>) -> Step {
        let done = match value {
            Some(value) => self.connection.execute(sql, [value]),
            None => self.connection.execute(sql, []),
        };
        done.map(drop).map_err(SqliteError::from).map_err(stop)
    }
}

impl Connection for Client {
    fn admit(&mut self, fence: Option<&str>) -> Step {
        self.begin_and_admit(fence)
    }

    fn advance(&mut self, fence: &str) -> Step {
        if !self.mode.advance_at_once {
            return self.begin_and_admit(Some(fence));
        }
        let fence = Fence::receive(self.guard.name(), Some(fence))?;
        self.guard
            .advance(&mut self.connection, &fence)
            .map(drop)
            .map_err(stop)
    }

    fn read(&mut self) -> Step<Option<u64>> {
        let read = self
            .connection
            .query_row("SELECT value FROM datum", [], |row| row.get(0));
        read.optional().map_err(SqliteError::from).map_err(stop)
    }

    fn write(&mut self, datum: Option<u64>) -> Step {
        self.run("DELETE FROM datum", None)?;
        match datum {
            Some(_) => self.run("INSERT INTO datum VALUES (?1)", datum),
            None => Ok(()),
        }
    }

    fn commit(&mut self) -> Step {
        if self.connection.is_autocommit() {
            Ok(())
        } else {
            self.run("COMMIT", None)
        }
    }

    fn abort(&mut self) {
        if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK").unwrap();
        }
    }
}

fn passes(mode: Mode) {
    let report = super::passes(|name| Database::create(name, mode));
    assert!(report.blocked > 0, "no step ever met a lock: {report:?}");
}

#[test]
fn a_rollback_journal_passes_the_suite() {
    let begin = TransactionBehavior::Deferred;
    passes(Mode {
        journal: "DELETE",
        begin,
        advance_at_once: false,
    });
}

#[test]
fn a_rollback_journal_with_immediate_transactions_passes_the_suite() {
    let begin = TransactionBehavior::Immediate;
    passes(Mode {
        journal: "DELETE",
        begin,
        advance_at_once: true,
    });
}

#[test]
fn a_write_ahead_log_passes_the_suite() {
    let begin = TransactionBehavior::Deferred;
    passes(Mode {
        journal: "WAL",
        begin,
        advance_at_once: false,
    });
}

#[test]
fn a_write_ahead_log_with_immediate_transactions_passes_the_suite() {
    let begin = TransactionBehavior::Immediate;
    passes(Mode {
        journal: "WAL",
        begin,
        advance_at_once: true,
    });
}

#[test]
fn a_crowd_of_writers_on_one_file_loses_nothing() {
    for journal in ["DELETE", "WAL"] {
        let mode = Mode {
            journal,
            begin: TransactionBehavior::Immediate,
            advance_at_once: true,
        };
        super::withstands_a_crowd(|name| Database::create(name, mode));
    }
}
