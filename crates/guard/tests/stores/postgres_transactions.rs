//! Savepoints in guarded transactions of PostgreSQL, and effects that end theirs.

use std::time::Duration;

use ringfence_guard::postgres::{PostgresError, PostgresGuard};
use tokio_postgres::error::SqlState;

use crate::fence;
use crate::postgres_rules::{count, guard, installed, mark, prepared};

const INSERT: &str = "INSERT INTO datum VALUES (1)";
const SLOW_INSERT: &str = "INSERT INTO datum SELECT 1 FROM pg_sleep(0.5)";

/// What is undone to a savepoint leaves the admission in place: it came before.
#[test]
fn a_guarded_transaction_goes_on_behind_a_savepoint_that_was_undone() {
    installed("savepoint_undone", async |database| {
        let (mut old, mut new) = (database.connect().await, database.connect().await);
        let guarded = guard().begin(&mut old, &fence("a#8")).await.unwrap();
        let step = format!("SAVEPOINT step; {INSERT}; ROLLBACK TO step; {INSERT}");
        guarded.batch_execute(&step).await.unwrap();

        new.batch_execute("SET lock_timeout = '20ms'")
            .await
            .unwrap();
        let hasty = guard().attempts(1);
        let waits = hasty.advance(&mut new, &fence("a#9")).await.unwrap_err();
        assert!(waits.is_retryable(), "{waits:?}");

        guarded.commit().await.unwrap();
        hasty.advance(&mut new, &fence("a#9")).await.unwrap();
        assert_eq!(count(&new).await, 1);
    });
}

/// What follows a savepoint that was committed with everything else is in no transaction.
#[test]
fn what_follows_a_savepoint_that_was_committed_is_guarded() {
    installed("savepoint_committed", async |database| {
        let (mut old, mut new) = (database.connect().await, database.connect().await);
        PostgresGuard::only_guarded(&old).await.unwrap();
        let guarded = guard().begin(&mut old, &fence("a#8")).await.unwrap();
        let step = format!("SAVEPOINT step; {INSERT}");
        guarded.batch_execute(&step).await.unwrap();
        guarded.batch_execute("COMMIT").await.unwrap();

        guard().advance(&mut new, &fence("a#9")).await.unwrap();
        let before = count(&new).await;
        let late = guarded.batch_execute(INSERT).await.unwrap_err();
        assert_eq!(late.code(), Some(&SqlState::READ_ONLY_SQL_TRANSACTION));
        let error = guarded.commit().await.unwrap_err();
        assert!(matches!(error, PostgresError::Ended), "{error:?}");
        assert_eq!(count(&new).await, before, "a write under #8 behind #9");
    });
}

/// Its admission could be undone with a savepoint that came before it.
#[test]
fn a_guarded_transaction_does_not_begin_inside_of_another_one() {
    installed("savepoint_before", async |database| {
        let (mut old, mut new) = (database.connect().await, database.connect().await);
        prepared(&mut old).await;
        for open in ["BEGIN", "BEGIN; SAVEPOINT step"] {
            old.batch_execute(open).await.unwrap();
            let error = guard().begin(&mut old, &fence("a#8")).await.unwrap_err();
            assert!(matches!(error, PostgresError::NotFirst), "{error:?}");

            old.batch_execute(open).await.unwrap();
            let (bound, shown) = (guard(), fence("a#8"));
            let written = bound.write(&mut old, &shown, async |client| {
                client.batch_execute("ROLLBACK TO step").await?;
                guard().advance(&mut new, &fence("a#9")).await?;
                client.batch_execute(INSERT).await?;
                Ok::<_, PostgresError>(())
            });
            let error = written.await.unwrap_err();
            assert!(matches!(error, PostgresError::NotFirst), "{error:?}");
        }
        assert_eq!((count(&new).await, mark(&new).await), (0, Some(1)));
        // It was rolled back.
        guard().advance(&mut old, &fence("a#8")).await.unwrap();
    });
}

/// One that ends its transaction with AND CHAIN is in another that may write, on a connection that
/// is read-only outside of guarded ones.
#[test]
fn a_chained_transaction_is_not_committed_without_the_mark() {
    installed("chained", async |database| {
        let (mut old, mut new) = (database.connect().await, database.connect().await);
        PostgresGuard::only_guarded(&old).await.unwrap();
        for (ends, token) in [("COMMIT AND CHAIN", 8), ("ROLLBACK AND CHAIN", 10)] {
            let (bound, shown) = (guard(), fence(&format!("a#{token}")));
            let newer = fence(&format!("a#{}", token + 1));
            let written = bound.write(&mut old, &shown, async |client| {
                client.batch_execute(ends).await?;
                guard().advance(&mut new, &newer).await?;
                client.batch_execute(INSERT).await?;
                Ok::<_, PostgresError>(())
            });
            let error = written.await.unwrap_err();
            assert!(matches!(error, PostgresError::Ended), "{ends}: {error:?}");
            assert_eq!(count(&new).await, 0, "{ends}: a write behind {newer}");
        }
    });
}

/// The last resort against effects that chain and commit: the table itself.
#[test]
fn a_guarded_table_refuses_what_is_written_in_a_chained_transaction() {
    installed("chained_table", async |database| {
        let (mut old, new) = (database.connect().await, database.connect().await);
        let trigger = "CREATE TRIGGER guarded BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE
            ON datum FOR EACH STATEMENT EXECUTE FUNCTION ringfence.guarded('a')";
        new.batch_execute(trigger).await.unwrap();
        let (bound, shown) = (guard(), fence("a#8"));
        let chains = format!("COMMIT AND CHAIN; {INSERT}; COMMIT");
        let written = bound.write(&mut old, &shown, async |client| {
            client.batch_execute(INSERT).await?;
            let refused = client.batch_execute(&chains).await.unwrap_err();
            assert_eq!(refused.code().map(SqlState::code), Some("RF003"));
            Err::<(), _>(PostgresError::from(refused))
        });
        let error = written.await.unwrap_err();
        assert!(matches!(error, PostgresError::Ended), "{error:?}");
        assert_eq!(count(&new).await, 1, "what came before the chain");
    });
}

/// A trigger that makes a commit take a while, as one that waits for a standby.
const SLOW_COMMIT: &str = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON datum
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()";

/// "… and so does dropping the future while `effect` runs: nothing of it is committed then."
#[test]
fn a_write_that_was_dropped_in_its_effect_has_committed_nothing() {
    installed("dropped_effect", async |database| {
        let (mut old, mut new) = (database.connect().await, database.connect().await);
        prepared(&mut old).await;
        // Between two statements, and in the middle of one.
        for second in [None, Some("SELECT pg_sleep(0.5)"), Some(SLOW_INSERT)] {
            let (bound, shown) = (guard(), fence("a#8"));
            let written = bound.write(&mut old, &shown, async |client| {
                client.batch_execute(INSERT).await?;
                match second {
                    Some(second) => client.batch_execute(second).await?,
                    None => std::future::pending().await,
                }
                std::future::pending().await
            });
            let dropped: Result<Result<(), PostgresError>, _> =
                tokio::time::timeout(Duration::from_millis(200), written).await;
            assert!(dropped.is_err(), "{dropped:?}");
            // What the connection was sent comes first.
            old.batch_execute("SELECT").await.unwrap();
            assert_eq!(count(&new).await, 0, "dropped at {second:?}");
        }
        // Nothing is open any more.
        guard().advance(&mut new, &fence("a#9")).await.unwrap();
    });
}

/// "From the commit on … all of the effect may be committed, or nothing, but never a part."
#[test]
fn a_write_that_was_dropped_in_its_commit_has_not_committed_half() {
    installed("dropped_commit", async |database| {
        let (mut old, mut new) = (database.connect().await, database.connect().await);
        prepared(&mut old).await;
        new.batch_execute(SLOW_COMMIT).await.unwrap();
        let (bound, shown) = (guard(), fence("a#8"));
        let written = bound.write(&mut old, &shown, async |client| {
            client.batch_execute(INSERT).await?;
            Ok::<_, PostgresError>(client.batch_execute(INSERT).await?)
        });
        let dropped = tokio::time::timeout(Duration::from_millis(300), written).await;
        assert!(dropped.is_err(), "{dropped:?}");
        // It waits for whatever comes of it, so that nothing comes of it later.
        guard().advance(&mut new, &fence("a#9")).await.unwrap();
        let there = count(&new).await;
        assert!([0, 2].contains(&there), "{there} of 2 rows");
        old.batch_execute("SELECT").await.unwrap();
        assert_eq!(count(&new).await, there, "it was committed behind #9");
    });
}

/// What a request that was given up may leave on a pooled connection.
const LEFT_OPEN: [&str; 3] = [
    "BEGIN; INSERT INTO datum VALUES (1)",
    "BEGIN; INSERT INTO datum VALUES (1); SAVEPOINT step",
    // Too late to be made one that writes.
    "BEGIN READ ONLY; SELECT FROM datum",
];

/// "… in a transaction of its own", and "as `begin`", which refuses one that is open already.
#[test]
fn advancing_commits_nothing_that_somebody_has_left_open() {
    installed("advance_open", async |database| {
        let (mut old, new) = (database.connect().await, database.connect().await);
        guard().advance(&mut old, &fence("a#8")).await.unwrap();
        for left in LEFT_OPEN {
            old.batch_execute(left).await.unwrap();
            let advanced = guard().advance(&mut old, &fence("a#9")).await;
            assert_eq!(count(&new).await, 0, "{left}: {advanced:?}");
            let error = advanced.unwrap_err();
            assert!(
                matches!(error, PostgresError::NotFirst),
                "{left}: {error:?}"
            );
            assert_eq!(mark(&new).await, Some(8));
        }
        // It was rolled back.
        guard().advance(&mut old, &fence("a#9")).await.unwrap();
        assert_eq!((count(&new).await, mark(&new).await), (0, Some(9)));
    });
}

/// The same for a floor.
#[test]
fn advancing_to_a_floor_commits_nothing_that_somebody_has_left_open() {
    installed("floor_open", async |database| {
        let (mut old, new) = (database.connect().await, database.connect().await);
        let floor = fence("a#9").token;
        for left in LEFT_OPEN {
            old.batch_execute(left).await.unwrap();
            let error = guard().advance_to(&mut old, floor).await.unwrap_err();
            assert!(
                matches!(error, PostgresError::NotFirst),
                "{left}: {error:?}"
            );
            assert_eq!(count(&new).await, 0, "{left}");
        }
        guard().advance_to(&mut old, floor).await.unwrap();
        assert_eq!((count(&new).await, mark(&new).await), (0, Some(9)));
    });
}

/// "`Ended` is the only error after which parts of it may have been committed."
#[test]
fn an_effect_that_ends_its_transaction_and_fails_is_told_so() {
    installed("ended_and_failed", async |database| {
        let (mut old, new) = (database.connect().await, database.connect().await);
        let fails = "SELECT 1 / 0";
        // How it ends its transaction, and how many rows it has committed then.
        let ways = [
            ("COMMIT", 1),
            ("COMMIT; BEGIN", 1),
            ("COMMIT AND CHAIN", 1),
            ("ROLLBACK", 0),
            ("ROLLBACK; INSERT INTO datum VALUES (2)", 1),
        ];
        for (ends, committed) in ways {
            new.batch_execute("TRUNCATE datum").await.unwrap();
            let (bound, shown) = (guard(), fence("a#8"));
            let written = bound.write(&mut old, &shown, async |client| {
                client.batch_execute(INSERT).await?;
                client.batch_execute(ends).await?;
                Ok::<_, PostgresError>(client.batch_execute(fails).await?)
            });
            let error = written.await.unwrap_err();
            assert!(matches!(error, PostgresError::Ended), "{ends}: {error:?}");
            assert_eq!(count(&new).await, committed, "{ends}");
        }
        // One that overlooks its failure.
        let (bound, shown) = (guard(), fence("a#8"));
        let written = bound.write(&mut old, &shown, async |client| {
            client.batch_execute("COMMIT; BEGIN").await?;
            client.batch_execute(fails).await.unwrap_err();
            Ok::<_, PostgresError>(())
        });
        let error = written.await.unwrap_err();
        assert!(matches!(error, PostgresError::Ended), "{error:?}");
    });
}

/// The effect's own error is passed on where nothing was ended, and nothing is left open.
#[test]
fn an_effect_that_fails_keeps_its_error_and_leaves_nothing() {
    installed("failed", async |database| {
        let (mut old, new) = (database.connect().await, database.connect().await);
        for fails in ["SELECT 1 / 0", "ROLLBACK TO nowhere"] {
            let (bound, shown) = (guard(), fence("a#8"));
            let written = bound.write(&mut old, &shown, async |client| {
                client.batch_execute(INSERT).await?;
                Ok::<_, PostgresError>(client.batch_execute(fails).await?)
            });
            let error = written.await.unwrap_err();
            assert!(
                matches!(error, PostgresError::Database { .. }),
                "{fails}: {error:?}"
            );
            assert_eq!(count(&new).await, 0, "{fails}");
        }
        guard().advance(&mut old, &fence("a#9")).await.unwrap();
    });
}

/// "On a conflict all of it is repeated": not what has been committed.
#[test]
fn an_effect_that_ends_its_transaction_is_not_repeated() {
    installed("ended_and_repeated", async |database| {
        let (mut old, new) = (database.connect().await, database.connect().await);
        for ends in ["COMMIT", "COMMIT; BEGIN"] {
            new.batch_execute("TRUNCATE datum").await.unwrap();
            let (bound, shown) = (guard(), fence("a#8"));
            let mut tries = 0;
            let written = bound.write(&mut old, &shown, async |client| {
                tries += 1;
                client.batch_execute(INSERT).await?;
                if tries == 1 {
                    client.batch_execute(ends).await?;
                    let conflict = "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$";
                    client.batch_execute(conflict).await?;
                }
                Ok::<_, PostgresError>(())
            });
            let written = written.await;
            let there = count(&new).await;
            assert!(
                there == 1 && tries == 1,
                "{ends}: {there} rows in {tries} tries: {written:?}"
            );
            let error = written.unwrap_err();
            assert!(matches!(error, PostgresError::Ended), "{ends}: {error:?}");
        }
    });
}

/// What was prepared for a commit in two phases is not undone by a rollback, and may be committed later.
#[test]
fn an_effect_that_prepares_its_transaction_is_not_repeated() {
    installed("prepared_and_repeated", async |database| {
        let (mut old, new) = (database.connect().await, database.connect().await);
        for (number, begins) in ["", "; BEGIN"].into_iter().enumerate() {
            new.batch_execute("TRUNCATE datum").await.unwrap();
            let name = format!("step{number}");
            let (bound, shown) = (guard(), fence("a#8"));
            let mut tries = 0;
            let written = bound.write(&mut old, &shown, async |client| {
                tries += 1;
                client.batch_execute(INSERT).await?;
                if tries == 1 {
                    let prepare = format!("PREPARE TRANSACTION '{name}'{begins}");
                    client.batch_execute(&prepare).await?;
                    let conflict = "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$";
                    client.batch_execute(conflict).await?;
                }
                Ok::<_, PostgresError>(())
            });
            // As a coordinator does.
            let commit = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                let commit = format!("COMMIT PREPARED '{name}'");
                new.batch_execute(&commit).await.unwrap();
            };
            let (written, ()) = tokio::join!(written, commit);
            let there = count(&new).await;
            assert!(
                there == 1 && tries == 1,
                "{begins}: {there} rows in {tries} tries: {written:?}"
            );
            let error = written.unwrap_err();
            assert!(matches!(error, PostgresError::Ended), "{begins}: {error:?}");
        }
    });
}
