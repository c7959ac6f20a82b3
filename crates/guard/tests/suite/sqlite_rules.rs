//! What the guard in SQLite promises beyond the suite.

use std::fs;
use std::thread;

use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use ringfence_guard::{Fence, FencingToken, Refused};
use rusqlite::TransactionBehavior;
use tempfile::TempDir;

use crate::contention::{Worker, no_increment_is_lost};
use crate::sqlite::{Database, Mode, open};

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
        // A replaced row is deleted without a trigger.
        (
            "REPLACE INTO ringfence_marks VALUES ('a', 7)",
            "STALE_TOKEN",
        ),
        (
            "INSERT OR REPLACE INTO ringfence_marks VALUES ('a', 1)",
            "STALE_TOKEN",
        ),
        (
            "INSERT OR IGNORE INTO ringfence_marks VALUES ('a', 7)",
            "STALE_TOKEN",
        ),
        (
            "UPDATE OR REPLACE ringfence_marks SET mark = 7",
            "can only grow",
        ),
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

/// A conflict has ended the transaction (`OR ROLLBACK`; an interrupt or a full disk do the same), and
/// the effect goes on in one of its own.
#[test]
fn what_an_effect_begins_anew_is_not_committed_without_the_mark() {
    let ends = [
        "INSERT OR ROLLBACK INTO job VALUES (1, 'old')",
        "ROLLBACK",
        "COMMIT",
    ];
    let anew = ["", "BEGIN; ", "BEGIN IMMEDIATE; ", "SAVEPOINT step; "];
    for (ends, anew) in ends.iter().flat_map(|ends| anew.map(|anew| (ends, anew))) {
        let database = wal();
        let (mut old, mut new) = (database.open(), database.open());
        old.execute_batch(
            "CREATE TABLE job (id INTEGER PRIMARY KEY, by TEXT);
             INSERT INTO job VALUES (1, 'first')",
        )
        .unwrap();
        let guard = guard(&fence("a#1"));
        let written = guard.write(&mut old, &fence("a#8"), |tx| {
            // There is one already; that is fine.
            let _overlooked = tx.execute_batch(ends);
            guard.advance(&mut new, &fence("a#9"))?;
            let _refused = tx.execute_batch(&format!("{anew}INSERT INTO job VALUES (2, 'old')"));
            Ok::<_, SqliteError>(())
        });
        let by: Vec<String> = new
            .prepare("SELECT by FROM job ORDER BY id")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(by, ["first"], "{ends}, {anew}: #8 behind #9: {written:?}");
        assert!(
            matches!(written, Err(SqliteError::Database { .. })),
            "{ends}, {anew}: {written:?}"
        );
        // The connection is fit for other work.
        guard.advance(&mut old, &fence("a#9")).unwrap();
        old.execute_batch("INSERT INTO job VALUES (2, 'past')")
            .unwrap();
    }
}

/// A savepoint that is undone ends no transaction.
#[test]
fn an_effect_may_undo_a_savepoint() {
    let mut connection = wal().open();
    let guard = guard(&fence("a#1"));
    let written = guard.write(&mut connection, &fence("a#8"), |tx| {
        tx.execute_batch(
            "SAVEPOINT step; INSERT INTO datum VALUES (1); ROLLBACK TO step; RELEASE step;
             INSERT INTO datum VALUES (2)",
        )?;
        Ok::<_, SqliteError>(())
    });
    written.unwrap();
    let value: u64 = connection
        .query_row("SELECT value FROM datum", [], |row| row.get(0))
        .unwrap();
    assert_eq!(
        (value, guard.mark(&connection).unwrap()),
        (2, FencingToken::new(8))
    );
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

/// It would stand in front of the marks, and be compared in their place.
#[test]
fn a_temporary_table_of_marks_in_sqlite_is_not_compared() {
    let database = wal();
    let (mut old, mut new) = (database.open(), database.open());
    let guard = guard(&fence("a#1"));
    let hides = "CREATE TEMP TABLE ringfence_marks (name TEXT PRIMARY KEY, mark INTEGER)";
    guard.advance(&mut old, &fence("a#8")).unwrap();
    old.execute_batch(hides).unwrap();
    guard.advance(&mut new, &fence("a#9")).unwrap();
    let stale = guard.advance(&mut old, &fence("a#8")).unwrap_err();
    let why = stale.refused().map(Refused::reason);
    assert_eq!(why, Some("STALE_TOKEN"), "{stale:?}");
    assert_eq!(guard.mark(&old).unwrap(), FencingToken::new(9));
}

/// Without a journal SQLite cannot take back what the guard refuses to commit.
#[test]
fn an_effect_cannot_end_its_transaction_and_write_without_a_journal() {
    let database = wal();
    let mut connection = database.open();
    let guard = guard(&fence("a#1"));
    let fill = "PRAGMA journal_mode = DELETE; CREATE TABLE big (amount INTEGER, text TEXT);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
        INSERT INTO big SELECT 1, hex(randomblob(400)) FROM n";
    connection.execute_batch(fill).unwrap();
    for set in [
        "PRAGMA journal_mode = OFF",
        "PRAGMA main.Journal_Mode('off')",
        "SELECT * FROM pragma_journal_mode('off')",
    ] {
        let torn = guard.write(&mut connection, &fence("a#9"), |tx| {
            tx.execute_batch("ROLLBACK").ok();
            tx.execute_batch(set).ok();
            tx.execute_batch("UPDATE big SET amount = 1000").ok();
            Ok::<_, SqliteError>(())
        });
        assert!(
            matches!(torn, Err(SqliteError::Database { .. })),
            "{torn:?}"
        );
        let count = "SELECT COUNT(*) FROM big WHERE amount = 1000";
        let other = database.open();
        let written: u64 = other.query_row(count, [], |row| row.get(0)).unwrap();
        assert_eq!(written, 0, "{set}");
    }
    // The wall goes with the write.
    let mode = connection.query_row("PRAGMA journal_mode = OFF", [], |row| row.get(0));
    assert_eq!(mode, Ok("off".to_owned()));
}

#[test]
fn a_table_of_marks_of_another_shape_is_refused_in_sqlite() {
    for columns in [
        "name TEXT NOT NULL, mark INTEGER NOT NULL",
        "name TEXT PRIMARY KEY, mark TEXT NOT NULL",
        "name TEXT PRIMARY KEY, mark INTEGER",
        "id INTEGER PRIMARY KEY",
    ] {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let create = format!("CREATE TABLE ringfence_marks ({columns})");
        connection.execute_batch(&create).unwrap();
        let error = SqliteGuard::install(&connection).unwrap_err();
        assert!(matches!(error, SqliteError::WrongShape { .. }), "{error:?}");
        let expected = "expected (name TEXT PRIMARY KEY, mark INTEGER NOT NULL)";
        assert!(error.to_string().contains(expected), "{error}");
    }
}
