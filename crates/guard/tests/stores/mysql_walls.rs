//! What keeps an effect in MariaDB inside of its transaction, and an answer with its question.

use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use ringfence_guard::mysql::{MysqlError, MysqlGuard};

use crate::fence;
use crate::mysql_rules::{INSERT, guard, held, insert, installed};

#[test]
fn a_deadlock_in_mysql_is_repeated_from_the_admission() {
    installed("deadlocks", async |database| {
        let mut conn = database.conn().await;
        let table = "CREATE TABLE pair (id INT PRIMARY KEY, value INT); INSERT INTO pair VALUES (1, 0), (2, 0)";
        conn.query_drop(table).await.unwrap();
        let adds = async |lease: &str, ids: [u32; 2]| {
            let mut connection = database.connect().await;
            let shown = fence(lease);
            let bound = MysqlGuard::new(shown.name.clone());
            let mut begun = 0;
            for _ in 0..20 {
                let write = bound.write(&mut connection, &shown, async |conn| {
                    begun += 1;
                    for id in ids {
                        let add = "UPDATE pair SET value = value + 1 WHERE id = ?";
                        conn.exec_drop(add, (id,)).await?;
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    Ok::<_, MysqlError>(())
                });
                write.await.unwrap();
            }
            begun
        };
        let (one, two) = tokio::join!(adds("a#8", [1, 2]), adds("b#8", [2, 1]));
        let sum: Vec<u32> = conn.query("SELECT value FROM pair").await.unwrap();
        assert_eq!(sum, [40, 40]);
        assert!(one + two > 40, "no deadlock was met");
    });
}

/// The server has rolled all of it back, and what follows would commit on its own.
#[test]
fn a_deadlock_that_the_effect_overlooks_writes_nothing() {
    installed("overlooked", async |database| {
        let mut conn = database.conn().await;
        let table = "CREATE TABLE pair (id INT PRIMARY KEY, value INT); INSERT INTO pair VALUES (1, 0), (2, 0)";
        conn.query_drop(table).await.unwrap();
        // It has changed more rows, so the server gives up the other one.
        conn.query_drop("START TRANSACTION; INSERT INTO pair SELECT seq, 0 FROM seq_3_to_500; UPDATE pair SET value = 9 WHERE id = 2")
            .await
            .unwrap();
        let mut connection = database.connect().await;
        let mut given_up = None;
        let (write, shown) = (guard().attempts(1), fence("a#8"));
        let write = write.write(&mut connection, &shown, async |mine| {
            mine.query_drop("UPDATE pair SET value = 1 WHERE id = 1")
                .await?;
            let wait = mine.query_drop("UPDATE pair SET value = 1 WHERE id = 2");
            let close = async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                conn.query_drop("UPDATE pair SET value = 9 WHERE id = 1")
                    .await
            };
            let (waited, closed) = tokio::join!(wait, close);
            closed.unwrap();
            given_up = waited.err();
            // It begins a transaction of its own, which the guard does not commit.
            mine.query_drop(INSERT).await.unwrap();
            Ok::<_, MysqlError>(())
        });
        let error = write.await.unwrap_err();
        assert!(given_up.unwrap().to_string().contains("Deadlock"));
        assert!(matches!(error, MysqlError::Ended), "{error:?}");
        assert_eq!(held(database).await, (0, None));
        let autocommit = "SELECT @@autocommit";
        let restored: Option<u8> = connection
            .get()
            .unwrap()
            .query_first(autocommit)
            .await
            .unwrap();
        assert_eq!(restored, Some(1));
    });
}

#[test]
fn a_guarded_write_to_mysql_does_not_begin_inside_of_another_transaction() {
    installed("nesting", async |database| {
        let mut connection = database.connect().await;
        let conn = connection.get().unwrap();
        conn.query_drop("START TRANSACTION").await.unwrap();
        conn.query_drop(INSERT).await.unwrap();
        for shown in ["a#8", "a#9"] {
            let begun = guard().begin(&mut connection, &fence(shown)).await.err();
            assert!(matches!(begun, Some(MysqlError::NotFirst)), "{begun:?}");
            let error = guard().advance(&mut connection, &fence(shown)).await;
            assert!(matches!(error, Err(MysqlError::NotFirst)), "{error:?}");
        }
        let conn = connection.get().unwrap();
        conn.query_drop("ROLLBACK").await.unwrap();
        insert(&guard(), &mut connection, &fence("a#8"))
            .await
            .unwrap();
        assert_eq!(held(database).await, (1, Some(8)));
    });
}

#[test]
fn what_the_program_writes_past_the_guard_is_refused() {
    installed("past", async |database| {
        let mut connection = database.connect().await;
        insert(&guard(), &mut connection, &fence("a#8"))
            .await
            .unwrap();
        let past = connection.get().unwrap().query_drop(INSERT).await;
        assert!(past.unwrap_err().to_string().contains("READ ONLY"));
        assert_eq!(held(database).await, (1, Some(8)));
    });
}

#[test]
fn an_effect_that_ends_its_mysql_transaction_is_told_so_and_not_repeated() {
    installed("ending", async |database| {
        for (token, end, fails) in [
            (8, "COMMIT", true),
            (9, "ROLLBACK", true),
            (10, "COMMIT", false),
            (11, "CREATE TABLE more (value INT)", false),
            (12, "START TRANSACTION", true),
        ] {
            let mut connection = database.connect().await;
            let shown = fence(&format!("a#{token}"));
            let mut begun = 0;
            let bound = guard();
            let write = bound.write(&mut connection, &shown, async |conn| {
                begun += 1;
                conn.query_drop(end).await.ok();
                if fails {
                    conn.query_drop("SELECT * FROM nowhere").await?;
                }
                Ok::<_, MysqlError>(())
            });
            let error = write.await.unwrap_err();
            assert!(matches!(error, MysqlError::Ended), "{end}: {error:?}");
            assert_eq!(begun, 1, "{end}");
        }
    });
}

/// The future of a query is dropped, so that its answer stays unread, and is the next one's.
#[test]
fn an_answer_to_a_dropped_query_confirms_no_admission() {
    installed("dropped", async |database| {
        let mut connection = database.connect().await;
        guard()
            .advance(&mut connection, &fence("a#9"))
            .await
            .unwrap();
        let query = "SELECT SLEEP(0.3)";
        let conn = connection.get().unwrap();
        let slow = conn.query_drop(query);
        tokio::time::timeout(Duration::from_millis(50), slow)
            .await
            .unwrap_err();
        let mut begun = false;
        let (bound, shown) = (guard(), fence("a#8"));
        let stale = bound.write(&mut connection, &shown, async |conn| {
            begun = true;
            conn.query_drop(INSERT).await?;
            Ok::<_, MysqlError>(())
        });
        let error = stale.await.unwrap_err();
        assert!(!begun, "the effect began: {error:?}");
        assert!(matches!(error, MysqlError::OutOfStep), "{error:?}");
        let error = insert(&guard(), &mut connection, &fence("a#9")).await;
        assert!(matches!(error, Err(MysqlError::Closed)), "{error:?}");
        assert_eq!(held(database).await, (0, Some(9)));
    });
}

#[test]
fn a_commit_whose_answer_is_another_querys_is_of_unknown_outcome() {
    installed("instead", async |database| {
        let mut connection = database.connect().await;
        let (bound, shown) = (guard(), fence("a#8"));
        let write = bound.write(&mut connection, &shown, async |conn| {
            conn.query_drop(INSERT).await?;
            let slow = conn.query_drop("SELECT SLEEP(0.3)");
            let limit = Duration::from_millis(50);
            tokio::time::timeout(limit, slow).await.unwrap_err();
            Ok::<_, MysqlError>(())
        });
        let error = write.await.unwrap_err();
        assert!(matches!(error, MysqlError::Unknown { .. }), "{error:?}");
        assert!(connection.is_closed());
    });
}

#[test]
fn a_write_to_mysql_that_is_dropped_half_way_is_rolled_back() {
    installed("dropping", async |database| {
        let mut connection = database.connect().await;
        let bound = guard();
        let shown = fence("a#8");
        let write = bound.write(&mut connection, &shown, async |conn| {
            conn.query_drop(INSERT).await?;
            std::future::pending::<()>().await;
            Ok::<_, MysqlError>(())
        });
        tokio::time::timeout(Duration::from_millis(200), write)
            .await
            .unwrap_err();
        assert!(connection.is_closed());
        let mut other = database.connect().await;
        guard().advance(&mut other, &fence("a#9")).await.unwrap();
        assert_eq!(held(database).await, (0, Some(9)));
    });
}

/// What one effect leaves in its session does not decide which marks the next one is compared with.
#[test]
fn an_effect_that_changes_its_database_does_not_move_the_marks() {
    installed("bound", async |database| {
        let mut other = database.conn().await;
        other
            .query_drop("CREATE DATABASE bound_other; USE bound_other")
            .await
            .unwrap();
        MysqlGuard::install(&mut other).await.unwrap();

        let (mut old, mut new) = (database.connect().await, database.connect().await);
        let leave =
            async |conn: &mut Conn| Ok::<_, MysqlError>(conn.query_drop("USE bound_other").await?);
        guard().write(&mut old, &fence("a#8"), leave).await.unwrap();
        guard().advance(&mut new, &fence("a#9")).await.unwrap();
        let write = async |conn: &mut Conn| {
            conn.query_drop("INSERT INTO bound.datum VALUES (1)")
                .await?;
            Ok::<_, MysqlError>(())
        };
        let stale = guard().write(&mut old, &fence("a#8"), write).await;
        let stale = stale.unwrap_err();
        assert!(matches!(stale, MysqlError::Refused(_)), "{stale:?}");
        assert_eq!(held(database).await, (0, Some(9)));
        guard()
            .write(&mut old, &fence("a#10"), write)
            .await
            .unwrap();
        assert_eq!(held(database).await, (1, Some(10)));
    });
}
