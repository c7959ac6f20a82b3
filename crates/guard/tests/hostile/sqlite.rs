//! SQLite interrupted at each instruction of a guarded write, and with a file that cannot grow.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Waker};

use ringfence_guard::conformance::{
    Aside, Disturbed, Fault, Held, Hit, HostileStore, Rule, Shadow, Since, Written,
};
use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use ringfence_guard::{Fence, LeaseName, sql};
use rusqlite::{Connection, Transaction};
use tempfile::TempDir;

use crate::{falls, run_to_end, scratch, withstands};

/// How an effect goes on behind an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It returns the first error.
    Stops,
    /// It makes its second statement all the same, and returns the error then.
    GoesOn,
    /// Wrong: it does so in a transaction of its own, which no code watches.
    Unwatched,
    /// Wrong: the marks are looked for in all schemas of the connection.
    AnySchema,
}

/// What an effect can do to its transaction. There is a row of the name `warm/up`.
const ASIDES: &[Aside] = &[
    Aside::Ends("ROLLBACK"),
    Aside::Ends("COMMIT"),
    Aside::Ends("INSERT OR ROLLBACK INTO pair (name) VALUES ('warm/up')"),
    Aside::Ends("ROLLBACK; BEGIN"),
    Aside::Ends("ROLLBACK; BEGIN; SAVEPOINT step"),
    Aside::Ends("ROLLBACK; SAVEPOINT step"),
    Aside::Stays("SAVEPOINT step; DELETE FROM pair; ROLLBACK TO step"),
    Aside::Stays("SAVEPOINT step; SAVEPOINT inside; RELEASE step"),
];

/// What a connection can have in front of the marks. SQLite looks into the temporary schema first.
const SHADOWS: &[&str] = &[
    "CREATE TEMP TABLE ringfence_marks (name TEXT PRIMARY KEY, mark INTEGER)",
    "CREATE TEMP TABLE other (name TEXT PRIMARY KEY, mark INTEGER);
     ALTER TABLE other RENAME TO ringfence_marks",
    "CREATE TEMP VIEW ringfence_marks AS SELECT '' AS name, 1 AS mark",
    "CREATE TEMP TRIGGER hides BEFORE INSERT ON main.ringfence_marks
         BEGIN SELECT RAISE(IGNORE); END",
    "CREATE TEMP TRIGGER lowers AFTER UPDATE ON main.ringfence_marks
         BEGIN UPDATE ringfence_marks SET mark = 1; END",
    "ATTACH ':memory:' AS other;
     CREATE TABLE other.ringfence_marks (name TEXT PRIMARY KEY, mark INTEGER)",
];

/// One file for all parts, each with a lease and a row of its own.
struct Part {
    file: Arc<TempDir>,
    guard: SqliteGuard,
    way: Way,
}

/// More than one page, so that a file that cannot grow is too small.
const BULK: usize = 20_000;

fn create(journal: &str) -> Arc<TempDir> {
    let file = Arc::new(scratch());
    let connection = open(&file);
    connection
        .pragma_update(None, "journal_mode", journal)
        .unwrap();
    SqliteGuard::install(&connection).unwrap();
    let table = "CREATE TABLE pair (name TEXT PRIMARY KEY, first INTEGER, second INTEGER, bulk)";
    connection.execute_batch(table).unwrap();
    file
}

fn open(file: &TempDir) -> Connection {
    let connection = Connection::open(file.path().join("store.db")).unwrap();
    connection
        .pragma_update(None, "synchronous", "OFF")
        .unwrap();
    connection
}

pub(crate) fn written(done: Result<(), SqliteError>) -> Written {
    match done {
        Ok(()) => Written::Committed,
        Err(SqliteError::Refused(refused)) => Written::Refused(refused),
        Err(error @ SqliteError::Unknown { .. }) => Written::Unknown(format!("{error:?}")),
        Err(error) => Written::Failed(format!("{error:?}")),
    }
}

impl Part {
    fn effect(
        &self,
        tx: &Transaction<'_>,
        name: &LeaseName,
        datum: u64,
    ) -> Result<(), SqliteError> {
        let first = "INSERT INTO pair (name, first, bulk) VALUES (?1, ?2, zeroblob(?3))
            ON CONFLICT (name) DO UPDATE SET first = excluded.first, bulk = excluded.bulk";
        let second = "INSERT INTO pair (name, second) VALUES (?1, ?2)
            ON CONFLICT (name) DO UPDATE SET second = excluded.second";
        let bulk = BULK + usize::try_from(datum).unwrap() * BULK;
        let one = tx
            .prepare_cached(first)
            .and_then(|mut first| first.execute((name.as_str(), datum, bulk)));
        if matches!(self.way, Way::Stops | Way::AnySchema) {
            one?;
            tx.prepare_cached(second)?.execute((name.as_str(), datum))?;
            return Ok(());
        }
        let two = tx
            .prepare_cached(second)
            .and_then(|mut second| second.execute((name.as_str(), datum)));
        one.and(two)?;
        Ok(())
    }

    /// A connection that has made its statements once: what is prepared is not prepared again, so
    /// instructions of the write alone are counted.
    fn warm(&self) -> Connection {
        let mut connection = open(&self.file);
        self.warm_up(&mut connection, "");
        connection
    }

    /// A write of another lease, and what `statements` do in it.
    fn warm_up(&self, connection: &mut Connection, statements: &str) {
        let warm: Fence = "warm/up#1".parse().unwrap();
        let guard = SqliteGuard::new(warm.name.clone());
        let warmed = guard.write(connection, &warm, |tx| {
            // What is refused is refused.
            tx.execute_batch(statements).ok();
            self.effect(tx, &warm.name, 0)
        });
        warmed.unwrap();
    }

    fn guarded(
        &self,
        connection: &mut Connection,
        fence: &Fence,
        effect: impl FnOnce(&Transaction<'_>) -> Result<(), SqliteError>,
    ) -> Result<(), SqliteError> {
        if !matches!(self.way, Way::Unwatched | Way::AnySchema) {
            return self.guard.write(connection, fence, effect);
        }
        let transaction = connection.transaction()?;
        if self.way == Way::AnySchema {
            let admit = sql::SQLITE_ADMIT.replace("main.", "");
            let name = fence.name.as_str();
            transaction.execute(&admit, (name, fence.token.get()))?;
        } else {
            self.guard.admit(&transaction, fence)?;
        }
        effect(&transaction)?;
        Ok(transaction.commit()?)
    }
}

impl HostileStore for Part {
    fn hits(&self) -> Vec<Hit> {
        vec![Hit::Cancelled, Hit::TimesOut]
    }

    async fn write(&self, fence: &Fence, datum: u64, fault: Option<Fault>) -> Disturbed {
        let mut connection = self.warm();
        let reached = Arc::new(AtomicBool::new(false));
        match fault {
            Some(Fault {
                hit: Hit::Cancelled,
                step,
            }) => {
                let (left, reached) = (AtomicU32::new(step), Arc::clone(&reached));
                connection.progress_handler(
                    1,
                    Some(move || {
                        let now = left.fetch_sub(1, Ordering::SeqCst) == 0;
                        reached.fetch_or(now, Ordering::SeqCst) || now
                    }),
                );
            }
            Some(Fault { step, .. }) => {
                let pages: u32 = connection
                    .pragma_query_value(None, "page_count", |row| row.get(0))
                    .unwrap();
                let limit = format!("PRAGMA max_page_count = {}", pages + step);
                connection.query_row(&limit, [], |_| Ok(())).unwrap();
            }
            None => {}
        }
        let full = Cell::new(false);
        let done = self.guarded(&mut connection, fence, |tx| {
            let done = self.effect(tx, &fence.name, datum);
            full.set(matches!(&done, Err(SqliteError::Database { source })
                if source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)));
            done
        });
        Disturbed {
            written: written(done),
            reached: reached.load(Ordering::SeqCst) || full.get(),
        }
    }

    fn asides(&self) -> Vec<Aside> {
        match self.way {
            Way::AnySchema => Vec::new(),
            _ => ASIDES.to_vec(),
        }
    }

    fn shadows(&self) -> Vec<&'static str> {
        SHADOWS.to_vec()
    }

    async fn write_shadowed(&self, fence: &Fence, datum: u64, shadow: Shadow) -> Written {
        let mut connection = open(&self.file);
        if shadow.since == Since::AnEffect {
            self.warm_up(&mut connection, shadow.statements);
        } else {
            if shadow.since == Since::AWrite {
                self.warm_up(&mut connection, "");
            }
            connection.execute_batch(shadow.statements).unwrap();
        }
        let effect = |tx: &Transaction<'_>| self.effect(tx, &fence.name, datum);
        written(self.guarded(&mut connection, fence, effect))
    }

    async fn write_aside(
        &self,
        fence: &Fence,
        datum: u64,
        aside: Aside,
        meanwhile: impl AsyncFn(),
    ) -> Written {
        let mut connection = self.warm();
        written(self.guarded(&mut connection, fence, |tx| {
            let _overlooked = tx.execute_batch(aside.statements());
            // Nothing of this store waits.
            let done = pin!(meanwhile()).poll(&mut Context::from_waker(Waker::noop()));
            assert!(done.is_ready());
            let _overlooked = self.effect(tx, &fence.name, datum);
            Ok(())
        }))
    }

    async fn look(&self) -> Held {
        let connection = open(&self.file);
        let name = self.guard.name().as_str();
        let pair = "SELECT first, second FROM pair WHERE name = ?1";
        let read = connection.query_row(pair, [name], |row| Ok((row.get(0)?, row.get(1)?)));
        let (first, second) = match read {
            Err(rusqlite::Error::QueryReturnedNoRows) => (None, None),
            read => read.unwrap(),
        };
        Held {
            mark: self.guard.mark(&connection).unwrap(),
            first,
            second,
        }
    }
}

fn passes(journal: &str, way: Way) {
    let file = create(journal);
    let report = run_to_end(withstands(
        async |name: &LeaseName| Part {
            file: Arc::clone(&file),
            guard: SqliteGuard::new(name.clone()),
            way,
        },
        &[Hit::Cancelled, Hit::TimesOut],
    ));
    assert!(report.failed > 100, "{report:?}");
    assert_eq!(report.asides, ASIDES.len() as u64, "{report:?}");
    assert_eq!(report.shadows, 6 * SHADOWS.len() as u64, "{report:?}");
}

#[test]
fn an_sqlite_write_that_is_interrupted_anywhere_has_committed_nothing() {
    for journal in ["wal", "delete"] {
        passes(journal, Way::Stops);
    }
}

#[test]
fn an_sqlite_effect_that_goes_on_behind_an_error_has_committed_nothing() {
    for journal in ["wal", "delete"] {
        passes(journal, Way::GoesOn);
    }
}

#[test]
fn an_sqlite_effect_that_writes_behind_the_end_of_its_transaction_is_found() {
    let file = create("wal");
    let violation = run_to_end(falls(async |name: &LeaseName| Part {
        file: Arc::clone(&file),
        guard: SqliteGuard::new(name.clone()),
        way: Way::Unwatched,
    }));
    assert!(
        matches!(
            violation.rule,
            Rule::CommittedAfterAll { .. } | Rule::TokensDecreased { .. }
        ),
        "{violation}"
    );
    assert!(violation.case.contains("Ends"), "{violation}");
}

#[test]
fn sqlite_marks_that_are_looked_for_in_all_schemas_are_found() {
    let file = create("wal");
    let violation = run_to_end(falls(async |name: &LeaseName| Part {
        file: Arc::clone(&file),
        guard: SqliteGuard::new(name.clone()),
        way: Way::AnySchema,
    }));
    let stale = matches!(violation.rule, Rule::TokensDecreased { .. });
    assert!(stale && violation.case.contains("Shadow"), "{violation}");
}

/// The wall before commits is down again, whatever became of the effect.
#[test]
fn an_sqlite_connection_is_fit_for_other_work_behind_a_failed_write() {
    let file = create("wal");
    let mut connection = open(&file);
    let fence: Fence = "a#1".parse().unwrap();
    let guard = SqliteGuard::new(fence.name.clone());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let effect = |_: &Transaction<'_>| -> Result<(), SqliteError> { panic!("an effect") };
        guard.write(&mut connection, &fence, effect)
    }));
    assert!(panicked.is_err());
    let failed = guard.write(&mut connection, &fence, |tx| {
        Ok::<_, SqliteError>(tx.execute_batch("INSERT INTO nowhere VALUES (1)")?)
    });
    assert!(failed.is_err());
    connection
        .execute_batch("INSERT INTO pair (name) VALUES ('b')")
        .unwrap();
    guard.advance(&mut connection, &fence).unwrap();
}
