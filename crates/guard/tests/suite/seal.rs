//! Guards in this process and in SQLite as a holder's client seals them.

use std::path::Path;
use std::sync::Arc;

use ringfence_guard::sqlite::{SqliteError, SqliteGuard, SqliteSeal};
use ringfence_guard::{Fence, Guard, LeaseName, Refused, SealAnswer, Sealable};
use rusqlite::Connection;

fn fence(token: u64) -> Fence {
    format!("bank/balance#{token}").parse().unwrap()
}

fn name() -> LeaseName {
    fence(1).name
}

/// A connection to the database in `directory`, which commits so.
fn open(directory: &Path, journal: &str, synchronous: &str) -> Connection {
    let connection = Connection::open(directory.join("store.db")).unwrap();
    connection
        .pragma_update(None, "journal_mode", journal)
        .unwrap();
    connection
        .pragma_update(None, "synchronous", synchronous)
        .unwrap();
    SqliteGuard::install(&connection).unwrap();
    connection
}

fn is_stale(answer: &SealAnswer) -> bool {
    matches!(answer, SealAnswer::Refused(Refused::StaleToken { .. }))
}

#[tokio::test]
async fn a_guard_in_this_process_is_sealed_and_refuses_older_tokens() {
    let guard = Arc::new(Guard::new(name()));
    assert_eq!(guard.seal(&fence(9)).await, SealAnswer::Durable);
    assert!(guard.with(&fence(8), || ()).is_err());
    assert!(is_stale(&guard.seal(&fence(8)).await));
    let other: Fence = "other#9".parse().unwrap();
    let answer = guard.seal(&other).await;
    assert!(matches!(
        answer,
        SealAnswer::Refused(Refused::WrongLease { .. })
    ));
}

#[tokio::test]
async fn a_database_is_sealed_for_every_connection_and_across_a_restart() {
    let directory = crate::scratch();
    let seal = SqliteSeal::new(
        SqliteGuard::new(name()),
        open(directory.path(), "wal", "FULL"),
    );
    assert!(
        seal.label().contains("store.db, bank/balance"),
        "{}",
        seal.label()
    );
    let mut other = open(directory.path(), "wal", "FULL");
    let guard = SqliteGuard::new(name());
    let write = |connection: &mut Connection, token| {
        guard.write(connection, &fence(token), |_| Ok::<_, SqliteError>(()))
    };
    write(&mut other, 8).unwrap();

    assert_eq!(seal.seal(&fence(9)).await, SealAnswer::Durable);

    assert!(write(&mut other, 8).is_err());
    assert!(is_stale(&seal.seal(&fence(8)).await));
    drop((seal, other));
    let mut again = open(directory.path(), "wal", "FULL");
    assert!(write(&mut again, 8).is_err());
    write(&mut again, 9).unwrap();
}

#[tokio::test]
async fn a_database_whose_commits_a_power_failure_takes_back_is_unsealed() {
    for (journal, synchronous, durable) in [
        ("wal", "FULL", true),
        ("wal", "EXTRA", true),
        ("wal", "NORMAL", false),
        ("wal", "OFF", false),
        // A commit is the journal's unlink, which only EXTRA syncs.
        ("delete", "EXTRA", true),
        ("delete", "FULL", false),
        ("delete", "NORMAL", false),
        ("truncate", "EXTRA", true),
        ("persist", "FULL", false),
        ("delete", "OFF", false),
        ("memory", "FULL", false),
    ] {
        let directory = crate::scratch();
        let connection = open(directory.path(), journal, synchronous);
        let seal = SqliteSeal::new(SqliteGuard::new(name()), connection);
        let answer = seal.seal(&fence(9)).await;
        let is_durable = answer == SealAnswer::Durable;
        assert_eq!(is_durable, durable, "{journal} {synchronous}: {answer:?}");
        if let SealAnswer::NotDurable { why } = answer {
            assert!(why.contains("synchronous to EXTRA"), "{why}");
        }
    }
}

#[tokio::test]
async fn a_database_that_is_not_set_up_or_busy_has_failed() {
    let directory = crate::scratch();
    let connection = Connection::open(directory.path().join("empty.db")).unwrap();
    let seal = SqliteSeal::new(SqliteGuard::new(name()), connection);
    let answer = seal.seal(&fence(9)).await;
    assert!(matches!(answer, SealAnswer::Failed { .. }), "{answer:?}");

    let writer = open(directory.path(), "wal", "FULL");
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let connection = open(directory.path(), "wal", "FULL");
    connection.busy_timeout(std::time::Duration::ZERO).unwrap();
    let seal = SqliteSeal::new(SqliteGuard::new(name()), connection);
    let answer = seal.seal(&fence(9)).await;
    assert!(matches!(answer, SealAnswer::Failed { .. }), "{answer:?}");
    writer.execute_batch("COMMIT").unwrap();
    assert_eq!(seal.seal(&fence(9)).await, SealAnswer::Durable);
}

/// A second seal does not wait behind one that hangs, thread upon thread.
#[tokio::test]
async fn a_seal_behind_one_that_has_not_come_back_fails_at_once() {
    let directory = crate::scratch();
    let writer = open(directory.path(), "wal", "FULL");
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let connection = open(directory.path(), "wal", "FULL");
    connection
        .busy_timeout(std::time::Duration::from_secs(60))
        .unwrap();
    let seal = Arc::new(SqliteSeal::new(SqliteGuard::new(name()), connection));
    let first = {
        let seal = Arc::clone(&seal);
        tokio::spawn(async move { seal.seal(&fence(9)).await })
    };
    let busy = |answer: &SealAnswer| matches!(answer, SealAnswer::Failed { why } if why.contains("earlier seal"));
    // Until the first one has its thread, this one may be the one that waits.
    let (patience, next) = (std::time::Duration::from_millis(20), fence(10));
    let second = tokio::time::timeout(std::time::Duration::from_secs(30), async {
        loop {
            if let Ok(answer) = tokio::time::timeout(patience, seal.seal(&next)).await {
                return answer;
            }
        }
    });
    let second = second.await.unwrap();
    assert!(busy(&second), "{second:?}");
    writer.execute_batch("COMMIT").unwrap();
    let first = first.await.unwrap();
    assert!(!matches!(first, SealAnswer::NotDurable { .. }), "{first:?}");
}
