//! What effects in SQLite can do to the table of marks: nothing that lowers a mark, or hides it.

use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use ringfence_guard::{Fence, FencingToken};
use rusqlite::Connection;
use rusqlite::ffi::SQLITE_AUTH;

fn fence(text: &str) -> Fence {
    text.parse().unwrap()
}

fn guard() -> SqliteGuard {
    SqliteGuard::new(fence("a#1").name)
}

/// A database in which token 9 was admitted.
fn advanced() -> Connection {
    let mut connection = Connection::open_in_memory().unwrap();
    SqliteGuard::install(&connection).unwrap();
    let table = "CREATE TABLE datum (value INTEGER)";
    connection.execute_batch(table).unwrap();
    guard().advance(&mut connection, &fence("a#9")).unwrap();
    connection
}

/// What the wall refuses, whatever comes before it in the effect.
#[test]
fn an_effect_can_neither_drop_nor_rename_nor_hide_the_marks() {
    for harm in [
        "DROP TABLE ringfence_marks",
        "DROP TABLE IF EXISTS main.Ringfence_Marks",
        "DROP TRIGGER ringfence_marks_no_stale_token",
        "DROP TRIGGER ringfence_marks_only_grow",
        "DELETE FROM ringfence_marks",
        "ALTER TABLE ringfence_marks RENAME TO old_marks",
        "ALTER TABLE ringfence_marks RENAME COLUMN mark TO old_mark",
        "ALTER TABLE ringfence_marks ADD COLUMN more",
        "CREATE TRIGGER more AFTER INSERT ON ringfence_marks BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TEMP TRIGGER more BEFORE INSERT ON ringfence_marks BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TEMP TABLE ringfence_marks (name TEXT, mark INTEGER)",
        "CREATE TEMP TABLE ringfence_marks AS SELECT 'a' AS name, 1 AS mark",
        "CREATE TEMP VIEW ringfence_marks AS SELECT 'a' AS name, 1 AS mark",
        "CREATE UNIQUE INDEX one ON ringfence_marks (mark);
            REPLACE INTO ringfence_marks VALUES ('b', 9); DROP INDEX one",
        "CREATE INDEX one ON Ringfence_Marks (json(mark))",
        "PRAGMA writable_schema = ON",
        "PRAGMA main.Writable_Schema(1)",
        "ROLLBACK; ATTACH ':memory:' AS other",
    ] {
        let mut connection = advanced();
        let done = guard().write(&mut connection, &fence("a#9"), |tx| {
            tx.execute_batch("INSERT INTO datum VALUES (1)")?;
            Ok::<_, SqliteError>(tx.execute_batch(harm)?)
        });
        let Err(SqliteError::Database { source }) = &done else {
            panic!("{harm}: {done:?}");
        };
        let code = source.sqlite_error().map(|error| error.extended_code);
        assert_eq!(code, Some(SQLITE_AUTH), "{harm}: {source:?}");
        let count = connection.query_row("SELECT count(*) FROM datum", [], |row| row.get(0));
        assert_eq!(count, Ok(0), "{harm}");
        still_guarded(&mut connection, harm);
    }
}

/// What the triggers refuse, also to an effect that goes on.
#[test]
fn an_effect_cannot_lower_a_mark() {
    for harm in [
        "UPDATE ringfence_marks SET mark = 1",
        "UPDATE OR REPLACE ringfence_marks SET mark = 1",
        "UPDATE ringfence_marks SET name = 'b'",
        "REPLACE INTO ringfence_marks VALUES ('a', 1)",
        "INSERT OR REPLACE INTO main.ringfence_marks VALUES ('a', 1)",
        "INSERT INTO ringfence_marks VALUES ('a', 1) ON CONFLICT DO UPDATE SET mark = 1",
        "PRAGMA recursive_triggers = OFF; REPLACE INTO ringfence_marks VALUES ('a', 1)",
        "PRAGMA ignore_check_constraints = ON; UPDATE ringfence_marks SET mark = -1",
    ] {
        let mut connection = advanced();
        let done = guard().write(&mut connection, &fence("a#9"), |tx| {
            let refused = tx.execute_batch(harm);
            assert!(refused.is_err(), "{harm}");
            Ok::<_, SqliteError>(())
        });
        done.unwrap();
        still_guarded(&mut connection, harm);
    }
}

#[track_caller]
fn still_guarded(connection: &mut Connection, harm: &str) {
    let mark = guard().mark(connection).unwrap();
    assert_eq!(mark, FencingToken::new(9), "{harm}");
    let stale = guard().advance(connection, &fence("a#8")).unwrap_err();
    assert!(stale.refused().is_some(), "{harm}: {stale:?}");
    guard().advance(connection, &fence("a#10")).unwrap();
}

/// One transaction may be guarded by two leases.
#[test]
fn an_effect_may_admit_the_fence_of_another_lease() {
    let mut connection = advanced();
    let other = SqliteGuard::new(fence("b#1").name);
    let done = guard().write(&mut connection, &fence("a#9"), |tx| {
        other.admit(tx, &fence("b#5"))?;
        Ok::<_, SqliteError>(tx.execute_batch("ALTER TABLE datum ADD COLUMN more")?)
    });
    done.unwrap();
    assert_eq!(other.mark(&connection).unwrap(), FencingToken::new(5));
}

/// Temporary objects of that name were there before the file.
#[test]
fn installing_beside_a_temporary_table_makes_the_marks_with_their_triggers() {
    let connection = Connection::open_in_memory().unwrap();
    let hides = "CREATE TEMP TABLE ringfence_marks (name TEXT, mark INTEGER)";
    connection.execute_batch(hides).unwrap();
    SqliteGuard::install(&connection).unwrap();
    SqliteGuard::install(&connection).unwrap();
    let count = "SELECT count(*) FROM main.sqlite_master WHERE type = 'trigger'";
    let triggers = connection.query_row(count, [], |row| row.get::<_, u64>(0));
    assert_eq!(triggers, Ok(5));
}

/// By hand, past the guard. A new table would begin without marks.
#[test]
fn marks_that_were_renamed_are_missed_when_the_guard_is_installed_again() {
    let mut connection = advanced();
    let rename = "ALTER TABLE ringfence_marks RENAME TO old_marks";
    connection.execute_batch(rename).unwrap();
    let error = guard().advance(&mut connection, &fence("a#8")).unwrap_err();
    assert!(matches!(error, SqliteError::NotInstalled), "{error:?}");
    let error = SqliteGuard::install(&connection).unwrap_err();
    assert!(error.to_string().contains("table old_marks"), "{error}");
    let back = "ALTER TABLE old_marks RENAME TO ringfence_marks";
    connection.execute_batch(back).unwrap();
    SqliteGuard::install(&connection).unwrap();
    still_guarded(&mut connection, back);
}

#[test]
fn a_trigger_of_the_program_may_have_a_name_that_begins_like_those_of_the_marks() {
    let mut connection = advanced();
    let own = "CREATE TRIGGER ringfence_marks_of_mine BEFORE INSERT ON datum BEGIN SELECT 1; END";
    connection.execute_batch(own).unwrap();
    SqliteGuard::install(&connection).unwrap();
    still_guarded(&mut connection, own);
}

/// A trigger that ignores the write would have it look as if it had been made.
#[test]
fn a_mark_that_is_not_written_admits_nothing() {
    let mut connection = advanced();
    let ignores = "CREATE TEMP TRIGGER hides BEFORE INSERT ON main.ringfence_marks
        BEGIN SELECT RAISE(IGNORE); END";
    connection.execute_batch(ignores).unwrap();
    let error = guard()
        .advance(&mut connection, &fence("a#10"))
        .unwrap_err();
    assert!(matches!(error, SqliteError::NotWritten), "{error:?}");
    let stale = guard().advance(&mut connection, &fence("a#8")).unwrap_err();
    assert!(stale.refused().is_some(), "{stale:?}");
}

/// REPLACE deletes what is equal in any unique index, and no trigger sees it.
#[test]
fn by_hand_no_mark_is_replaced_through_an_index() {
    let mut connection = advanced();
    guard().advance(&mut connection, &fence("a#9")).unwrap();
    let other = SqliteGuard::new(fence("b#1").name);
    other.advance(&mut connection, &fence("b#5")).unwrap();
    for index in [
        "UNIQUE INDEX one ON ringfence_marks (mark)",
        "UNIQUE INDEX one ON RINGFENCE_MARKS ((mark > 9))",
        "INDEX one ON ringfence_marks (abs(mark))",
    ] {
        let create = format!("CREATE {index}");
        connection.execute_batch(&create).ok();
        for harm in [
            "REPLACE INTO ringfence_marks VALUES ('c', 9)",
            "UPDATE OR REPLACE ringfence_marks SET mark = 9 WHERE name = 'b'",
        ] {
            let indexes = "SELECT count(*) FROM sqlite_master WHERE name = 'one'";
            let made = connection.query_row(indexes, [], |row| row.get::<_, u64>(0));
            if made == Ok(1) {
                let refused = connection.execute_batch(harm).unwrap_err();
                assert!(
                    refused.to_string().contains("MARKS_INDEXED"),
                    "{index}: {refused}"
                );
                // It says what to do.
                let error = guard().advance(&mut connection, &fence("a#9")).unwrap_err();
                assert!(format!("{error:?}").contains("drop it"), "{error:?}");
            }
        }
        connection
            .execute_batch("DROP INDEX IF EXISTS one")
            .unwrap();
        assert_eq!(guard().mark(&connection).unwrap(), FencingToken::new(9));
        assert_eq!(other.mark(&connection).unwrap(), FencingToken::new(5));
    }
    still_guarded(&mut connection, "indexes");
}
