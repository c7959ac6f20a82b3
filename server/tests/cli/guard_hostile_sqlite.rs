//! `ringfence guard sqlite` against scripts and databases that would take a write past its fence.

use std::path::Path;
use std::process::Stdio;

use crate::guard::{ADD, Database, Sqlite, ended, guard};
use crate::harness::{Said, ringfence};

#[test]
fn a_script_for_sqlite_can_neither_lower_nor_hide_a_mark() {
    let database = Sqlite::create();
    let advance = ["--fence", "a#9", "--advance"];
    ended(&guard(&database, &advance, ""), 0, "");
    for (harms, says) in [
        ("DROP TABLE ringfence_marks", "outlive"),
        ("ALTER TABLE ringfence_marks RENAME TO old_marks", "outlive"),
        ("DROP TRIGGER ringfence_marks_only_grow", "outlive"),
        ("CREATE TEMP VIEW ringfence_marks AS SELECT 1", "outlive"),
        (
            "CREATE UNIQUE INDEX one ON ringfence_marks (mark);
             REPLACE INTO ringfence_marks VALUES ('b', 9); DROP INDEX one",
            "outlive",
        ),
        ("PRAGMA writable_schema = ON", "outlive"),
        ("ATTACH ':memory:' AS other", "outlive"),
        (
            "REPLACE INTO ringfence_marks VALUES ('a', 1)",
            "STALE_TOKEN",
        ),
        ("UPDATE ringfence_marks SET mark = 1", "can only grow"),
    ] {
        let said = guard(&database, &["--fence", "a#9"], &format!("{ADD}; {harms}"));
        ended(&said, 1, says);
        assert_eq!(database.ask("SELECT amount FROM balance"), "100", "{harms}");
        let stale = guard(&database, &["--fence", "a#8"], ADD);
        assert_eq!(stale.code, Some(76), "{harms}: {stale:?}");
    }
    // By another program.
    let rename = "ALTER TABLE ringfence_marks RENAME TO old_marks";
    database.open().execute_batch(rename).unwrap();
    ended(
        &guard(&database, &["--fence", "a#8"], ADD),
        1,
        "table old_marks",
    );
}

/// Without its journal SQLite cannot take back what the guard refuses to commit.
#[test]
fn a_script_for_sqlite_cannot_write_without_a_journal() {
    let database = Sqlite::create();
    let fill = "CREATE TABLE big (id INTEGER PRIMARY KEY, amount INTEGER, text TEXT);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
        INSERT INTO big SELECT i, 1, hex(randomblob(400)) FROM n";
    database.open().execute_batch(fill).unwrap();
    for end in ["ROLLBACK; ", ""] {
        let script = format!("{end}PRAGMA journal_mode = OFF; UPDATE big SET amount = 1000");
        let said = guard(&database, &["--fence", "a#9"], &script);
        ended(&said, 1, "journal_mode");
        let written = database.ask("SELECT COUNT(*) FROM big WHERE amount = 1000");
        assert_eq!(written, "0", "{said:?}");
    }
}

#[test]
fn a_database_in_memory_keeps_no_mark_and_is_refused() {
    let mut command = ringfence();
    command.args(["guard", "sqlite", ":memory:", "--fence", "a#9", "--advance"]);
    let said: Said = command.stdin(Stdio::null()).output().unwrap().into();
    ended(&said, 2, "no mark outlives this command");
    assert!(!Path::new(":memory:").exists());
}

#[test]
fn a_table_of_marks_of_another_shape_is_refused_by_the_command() {
    let database = Sqlite::create();
    let create = "CREATE TABLE ringfence_marks (name TEXT, mark TEXT)";
    database.open().execute_batch(create).unwrap();
    ended(
        &guard(&database, &["--fence", "a#9"], ADD),
        1,
        "expected (name TEXT PRIMARY KEY, mark INTEGER NOT NULL)",
    );
    assert_eq!(database.ask("SELECT amount FROM balance"), "100");
}
