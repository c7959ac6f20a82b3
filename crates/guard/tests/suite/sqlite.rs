//! The guard in SQLite: two connections to one file.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::contention::{Worker, no_increment_is_lost};
use ringfence_guard::conformance::{Connection, Step, Stop, Store};
use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use ringfence_guard::{Fence, FencingToken, LeaseName, Refused};
use rusqlite::{DropBehavior, OptionalExtension, Transaction, TransactionBehavior};
use tempfile::TempDir;

/// How the store under test is driven.
#[derive(Clone, Copy)]
struct Mode {
    journal: &'static str,
    begin: TransactionBehavior,
    /// Whether the holder advances with [`SqliteGuard::advance`], which commits by itself, or in a
    /// transaction whose commit is a step of its own.
    advance_at_once: bool,
}

struct Database {
    directory: TempDir,
    mode: Mode,
    guard: SqliteGuard,
}

impl Database {
    fn create(name: &LeaseName, mode: Mode) -> Self {
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

    fn open(&self) -> rusqlite::Connection {
        open(&self.path())
    }
}

fn open(path: &Path) -> rusqlite::Connection {
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

    fn restore(&mut self, backup: Vec<u8>, floor: FencingToken) {
        fs::write(self.path(), backup).unwrap();
        self.guard.advance_to(&mut self.open(), floor).unwrap();
    }
}

struct Client {
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

fn wal() -> Database {
    let begin = TransactionBehavior::Deferred;
    let mode = Mode {
        journal: "WAL",
        begin,
        advance_at_once: true,
    };
    Database::create(&fence("a#1").name, mode)
}

fn fence(text: &str) -> Fence {
    text.parse().unwrap()
}

fn guard(fence: &Fence) -> SqliteGuard {
    SqliteGuard::new(fence.name.clone())
}

#[test]
fn a_transaction_that_has_read_before_it_admits_is_turned_away() {
    let mut connection = wal().open();
    let tx = connection.transaction().unwrap();
    tx.query_row("SELECT count(*) FROM datum", [], |row| row.get::<_, u64>(0))
        .unwrap();
    let error = guard(&fence("a#1")).admit(&tx, &fence("a#1")).unwrap_err();
    assert!(matches!(error, SqliteError::NotFirst), "{error:?}");
}

#[test]
fn a_transaction_that_holds_the_write_lock_may_have_read() {
    let mut connection = wal().open();
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    tx.query_row("SELECT count(*) FROM datum", [], |row| row.get::<_, u64>(0))
        .unwrap();
    guard(&fence("a#1")).admit(&tx, &fence("a#1")).unwrap();
    tx.commit().unwrap();
    assert_eq!(
        guard(&fence("a#1")).mark(&connection).unwrap(),
        FencingToken::new(1)
    );
}

#[test]
fn an_equal_token_takes_the_write_lock_too() {
    let database = wal();
    let (mut one, mut two) = (database.open(), database.open());
    let guard = guard(&fence("a#1"));
    guard.advance(&mut one, &fence("a#8")).unwrap();

    let tx = one.transaction().unwrap();
    guard.admit(&tx, &fence("a#8")).unwrap();

    let error = guard.advance(&mut two, &fence("a#9")).unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    tx.commit().unwrap();
    guard.advance(&mut two, &fence("a#9")).unwrap();
}

#[test]
fn a_snapshot_that_is_too_old_is_retryable() {
    let database = wal();
    let (one, two) = (database.open(), database.open());
    one.execute_batch("BEGIN; SELECT * FROM datum").unwrap();
    two.execute_batch("INSERT INTO datum VALUES (1)").unwrap();
    let error = one
        .execute_batch("INSERT INTO datum VALUES (2)")
        .unwrap_err();
    let extended = error.sqlite_error().map(|error| error.extended_code);
    assert_eq!(extended, Some(rusqlite::ffi::SQLITE_BUSY_SNAPSHOT));
    assert!(SqliteError::from(error).is_retryable());
}

#[test]
fn a_database_without_marks_says_what_to_do() {
    let mut connection = rusqlite::Connection::open_in_memory().unwrap();
    let error = guard(&fence("a#1"))
        .advance(&mut connection, &fence("a#1"))
        .unwrap_err();
    assert!(matches!(error, SqliteError::NotInstalled), "{error:?}");
    assert!(
        error.to_string().contains("SqliteGuard::install"),
        "{error}"
    );
}

#[test]
fn installing_twice_keeps_the_marks() {
    let mut connection = wal().open();
    guard(&fence("a#1"))
        .advance(&mut connection, &fence("a#8"))
        .unwrap();
    SqliteGuard::install(&connection).unwrap();
    assert_eq!(
        guard(&fence("a#1")).mark(&connection).unwrap(),
        FencingToken::new(8)
    );
}

#[test]
fn a_mark_can_be_neither_lowered_nor_deleted_by_hand() {
    let mut connection = wal().open();
    guard(&fence("a#1"))
        .advance(&mut connection, &fence("a#8"))
        .unwrap();
    for (sql, says) in [
        ("UPDATE ringfence_marks SET mark = 7", "can only grow"),
        ("UPDATE ringfence_marks SET name = 'b'", "can only grow"),
        ("DELETE FROM ringfence_marks", "outlives its data"),
    ] {
        let error = connection.execute_batch(sql).unwrap_err().to_string();
        assert!(error.contains(says), "{sql}: {error}");
    }
    assert_eq!(
        guard(&fence("a#1")).mark(&connection).unwrap(),
        FencingToken::new(8)
    );
}

#[test]
fn leases_of_one_database_have_marks_of_their_own() {
    let mut connection = wal().open();
    guard(&fence("a#1"))
        .advance(&mut connection, &fence("a#8"))
        .unwrap();
    guard(&fence("b#1"))
        .advance(&mut connection, &fence("b#3"))
        .unwrap();
    let error = guard(&fence("a#1"))
        .advance(&mut connection, &fence("a#3"))
        .unwrap_err();
    assert!(
        matches!(error.refused(), Some(Refused::StaleToken { .. })),
        "{error:?}"
    );
    assert_eq!(
        guard(&fence("b#1")).mark(&connection).unwrap(),
        FencingToken::new(3)
    );
}

#[test]
fn an_effect_that_fails_is_rolled_back_with_its_mark() {
    let mut connection = wal().open();
    let guard = guard(&fence("a#1"));
    let failed: Result<(), SqliteError> = guard.write(&mut connection, &fence("a#8"), |tx| {
        tx.execute("INSERT INTO datum VALUES (1)", [])?;
        tx.execute("INSERT INTO nowhere VALUES (1)", [])?;
        Ok(())
    });
    assert!(
        matches!(failed, Err(SqliteError::Database { .. })),
        "{failed:?}"
    );
    let count: u64 = connection
        .query_row("SELECT count(*) FROM datum", [], |row| row.get(0))
        .unwrap();
    assert_eq!((count, guard.mark(&connection).unwrap()), (0, None));
}

/// The files as a crash at this moment would leave them.
fn crash_image(database: &Database) -> TempDir {
    let image = crate::scratch();
    for entry in fs::read_dir(database.directory.path())
        .unwrap()
        .map(Result::unwrap)
    {
        // The index of the write-ahead log is memory that processes share; a crash loses it.
        if !entry.file_name().to_string_lossy().ends_with("-shm") {
            fs::copy(entry.path(), image.path().join(entry.file_name())).unwrap();
        }
    }
    image
}

#[test]
fn a_crash_keeps_mark_and_data_together() {
    for journal in ["DELETE", "WAL"] {
        let begin = TransactionBehavior::Deferred;
        let mode = Mode {
            journal,
            begin,
            advance_at_once: true,
        };
        let database = Database::create(&fence("a#1").name, mode);
        let mut connection = database.open();
        // A small cache, so that the open transaction has written to the files already.
        connection.pragma_update(None, "cache_size", 4).unwrap();
        let guard = guard(&fence("a#1"));
        guard.advance(&mut connection, &fence("a#8")).unwrap();
        let look = |image: &TempDir| {
            let copy = open(&image.path().join("store.db"));
            let count = copy
                .query_row("SELECT count(*) FROM datum", [], |row| row.get(0))
                .unwrap();
            let mark = guard.mark(&copy).unwrap().map(FencingToken::get);
            (mark, count)
        };

        let tx = connection.transaction().unwrap();
        guard.admit(&tx, &fence("a#9")).unwrap();
        tx.execute_batch(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000)
                 INSERT INTO datum SELECT i FROM n",
        )
        .unwrap();
        let during = crash_image(&database);
        let written = fs::metadata(during.path().join("store.db")).unwrap().len()
            + fs::metadata(during.path().join("store.db-wal")).map_or(0, |wal| wal.len());
        assert!(
            written > 100_000,
            "{journal}: only {written} bytes were on disk in between"
        );
        assert_eq!(look(&during), (Some(8), 0), "{journal}: in mid-transaction");

        tx.commit().unwrap();
        assert_eq!(
            look(&crash_image(&database)),
            (Some(9), 20_000),
            "{journal}: after commit"
        );
    }
}

struct Counter {
    connection: rusqlite::Connection,
    guard: SqliteGuard,
}

/// Repeats what met another connection.
fn insist<R>(mut call: impl FnMut() -> Result<R, SqliteError>) -> Result<R, SqliteError> {
    loop {
        match call() {
            Err(error) if error.is_retryable() => thread::yield_now(),
            done => return done,
        }
    }
}

/// `false` for a stale token; whatever else fails is a failure of the test.
fn admitted<R>(outcome: Result<R, SqliteError>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(SqliteError::Refused(Refused::StaleToken { .. })) => false,
        Err(error) => panic!("{error:?}"),
    }
}

impl Worker for Counter {
    fn advance(&mut self, fence: &Fence) -> bool {
        admitted(insist(|| self.guard.advance(&mut self.connection, fence)))
    }

    fn read(&mut self) -> u64 {
        let select = "SELECT value FROM datum";
        insist(|| Ok(self.connection.query_row(select, [], |row| row.get(0))?)).unwrap()
    }

    fn write(&mut self, fence: &Fence, count: u64) -> bool {
        admitted(insist(|| {
            self.guard.write(&mut self.connection, fence, |tx| {
                tx.execute("UPDATE datum SET value = ?1", [count])?;
                Ok::<_, SqliteError>(())
            })
        }))
    }
}

#[test]
fn no_increment_is_lost_between_threads() {
    let database = wal();
    database
        .open()
        .execute_batch("INSERT INTO datum VALUES (0)")
        .unwrap();
    let name = fence("a#1").name;
    let worker = |_| Counter {
        connection: database.open(),
        guard: SqliteGuard::new(name.clone()),
    };
    no_increment_is_lost(&name, (0..4).map(worker).collect(), 300);
}
