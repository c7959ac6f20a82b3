//! The SQL of the guards in other languages is this crate's: a Go module and a Python package cannot reach
//! files outside of their own folders, so they have copies.

use std::fs;
use std::path::PathBuf;

use ringfence_guard::sql;

/// Where the copies of a file stand.
const FOLDERS: [&str; 2] = ["client/go/guard/sql", "client/python/ringfence/guards/sql"];

/// The sources that have statements of their own.
const SOURCES: [&str; 4] = [
    "client/go/guard/guard.go",
    "client/go/pgxguard/pgxguard.go",
    "client/python/ringfence/guards/psycopg.py",
    "client/python/ringfence/guards/sqlalchemy.py",
];

fn read(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = fs::read_to_string(root.join(path));
    read.unwrap_or_else(|cause| panic!("{path}: {cause}"))
}

#[test]
fn the_sql_of_other_languages_is_a_copy() {
    for (file, original) in [
        ("postgres.sql", sql::POSTGRES_MIGRATION),
        ("sqlite.sql", sql::SQLITE_MIGRATION),
    ] {
        for folder in FOLDERS {
            let same = read(&format!("{folder}/{file}")) == original;
            assert!(same, "run: cp crates/guard/sql/{file} {folder}/");
        }
    }
}

/// A name without a schema is looked for in the session's, where another table can come first.
#[test]
fn statements_in_other_languages_name_the_schema_of_the_marks() {
    for path in SOURCES {
        let source = read(path);
        for bare in [
            "INTO ringfence_marks",
            "FROM ringfence_marks",
            "UPDATE ringfence_marks",
            "ringfence_admit(",
            "ringfence_advance(",
            "ringfence_token(",
            " marks ",
        ] {
            let code = source
                .lines()
                .filter(|line| line.contains("SELECT") || line.contains("INTO"));
            for line in code {
                assert!(!line.contains(bare), "{path}: {bare} in: {line}");
            }
        }
        // Types, operators and functions are looked for there, too.
        for bare in [
            "::text",
            "AS text)",
            "ringfence.marks WHERE name =",
            "SELECT pg_",
            " txid_",
        ] {
            for line in source.lines() {
                let line = line.replace("SELECT pg_catalog.", "");
                assert!(!line.contains(bare), "{path}: {bare} in: {line}");
            }
        }
        let named = [
            "main.ringfence_marks",
            "ringfence.admit(",
            "ringfence.marks",
        ];
        assert!(named.iter().any(|name| source.contains(name)), "{path}");
    }
}

/// Without the condition a mark would be lowered where the trigger is missing.
#[test]
fn the_admission_to_sqlite_is_the_same_in_each_language() {
    let bare = |text: &str| text.replace(['"', '+', ' ', '\n', '\t'], "");
    let (front, behind) = sql::SQLITE_ADMIT.split_once("?1, ?2").unwrap();
    for path in [SOURCES[0], SOURCES[3]] {
        let source = bare(&read(path));
        for part in [front, behind] {
            assert!(source.contains(&bare(part)), "{path} lacks: {part}");
        }
    }
}
