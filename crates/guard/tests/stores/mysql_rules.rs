//! What the guard in MariaDB promises beyond the suite.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use ringfence_guard::mysql::{Connection, LOCK_ATTEMPTS, MysqlError, MysqlGuard};
use ringfence_guard::{Ceiling, Fence, FencingToken, Refused};

use crate::mysql_store::LEVELS;
use crate::servers::Disk;
use crate::servers::mysql::{Mysql, Said};
use crate::{fence, run_to_end};

/// One server for all the tests that run at a time, each in a database of its own.
static SERVER: Mutex<Weak<Mysql>> = Mutex::new(Weak::new());

fn server() -> Option<Arc<Mysql>> {
    let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let server = Arc::new(Mysql::start(Disk::Memory)?);
    *shared = Arc::downgrade(&server);
    Some(server)
}

/// A database with a table `datum` and nothing of this crate.
pub(crate) struct Database {
    server: Arc<Mysql>,
    name: &'static str,
}

impl Database {
    pub(crate) async fn create(name: &'static str) -> Option<Self> {
        let server = server()?;
        let mut conn = server.connect("mysql").await;
        let create = format!("CREATE DATABASE {name}");
        conn.query_drop(create).await.unwrap();
        let database = Self { server, name };
        let table = "CREATE TABLE datum (value BIGINT NOT NULL)";
        database.conn().await.query_drop(table).await.unwrap();
        Some(database)
    }

    pub(crate) async fn conn(&self) -> Conn {
        self.server.connect(self.name).await
    }

    pub(crate) async fn connect(&self) -> Connection {
        Connection::new(self.conn().await)
    }

    pub(crate) fn client(&self, script: &str) -> Said {
        self.server.client(self.name, script.as_bytes())
    }
}

/// Runs a test in a database with the migration in it.
pub(crate) fn installed(name: &'static str, test: impl AsyncFnOnce(&Database)) {
    run_to_end(async {
        let Some(database) = Database::create(name).await else {
            return;
        };
        MysqlGuard::install(&mut database.conn().await)
            .await
            .unwrap();
        test(&database).await;
    });
}

fn guard() -> MysqlGuard {
    MysqlGuard::new(fence("a#1").name)
}

/// Rows of `datum`, and the mark, as another connection sees them.
async fn held(database: &Database) -> (u64, Option<u64>) {
    let mut conn = database.conn().await;
    let count = conn.query_first("SELECT COUNT(*) FROM datum").await;
    let mark = guard().mark(&mut conn).await.unwrap();
    (count.unwrap().unwrap(), mark.map(FencingToken::get))
}

const INSERT: &str = "INSERT INTO datum VALUES (1)";

async fn insert(
    bound: &MysqlGuard,
    connection: &mut Connection,
    shown: &Fence,
) -> Result<(), MysqlError> {
    let effect = async |conn: &mut Conn| {
        conn.query_drop(INSERT).await?;
        Ok::<_, MysqlError>(())
    };
    bound.write(connection, shown, effect).await
}

#[test]
fn a_mysql_database_without_the_migration_says_what_to_do() {
    run_to_end(async {
        let Some(database) = Database::create("bare").await else {
            return;
        };
        let mut connection = database.connect().await;
        let advanced = guard().advance(&mut connection, &fence("a#8")).await;
        let error = advanced.unwrap_err();
        assert!(matches!(error, MysqlError::NotInstalled), "{error:?}");
        assert!(error.to_string().contains("MysqlGuard::install"), "{error}");
        let mark = guard().mark(connection.get().unwrap()).await;
        assert!(matches!(mark, Err(MysqlError::NotInstalled)), "{mark:?}");
    });
}

#[test]
fn many_may_install_in_mysql_at_the_same_time_and_marks_stay() {
    installed("installing", async |database| {
        let mut connection = database.connect().await;
        guard()
            .advance(&mut connection, &fence("a#8"))
            .await
            .unwrap();
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let mut conn = database.conn().await;
            running.spawn(async move { MysqlGuard::install(&mut conn).await });
        }
        while let Some(installed) = running.join_next().await {
            installed.unwrap().unwrap();
        }
        assert_eq!(held(database).await, (0, Some(8)));
    });
}

#[test]
fn a_table_of_marks_that_knows_no_transactions_is_refused() {
    run_to_end(async {
        let Some(database) = Database::create("engines").await else {
            return;
        };
        let mut conn = database.conn().await;
        for engine in ["MyISAM", "Aria", "MEMORY"] {
            let table = format!(
                "CREATE OR REPLACE TABLE ringfence_marks (name VARCHAR(255) CHARACTER SET ascii \
                 COLLATE ascii_bin NOT NULL PRIMARY KEY, mark BIGINT NOT NULL, admissions BIGINT \
                 UNSIGNED NOT NULL DEFAULT 1) ENGINE = {engine}"
            );
            conn.query_drop(table).await.unwrap();
            let error = MysqlGuard::install(&mut conn).await.unwrap_err();
            assert!(
                matches!(&error, MysqlError::WrongEngine { engine: found } if found == engine),
                "{error:?}"
            );
            assert!(error.to_string().contains("expected InnoDB"), "{error}");
            // The same by the database's own client.
            let said = database.client(ringfence_guard::sql::MYSQL_MIGRATION);
            assert!(!said.succeeded, "{said:?}");
            let expected = format!("WRONG_ENGINE: ringfence_marks is in {engine}");
            assert!(said.stderr.contains(&expected), "{said:?}");
        }
    });
}

#[test]
fn an_equal_token_keeps_the_next_grant_out_of_mysql_until_the_commit() {
    installed("waiting", async |database| {
        for level in LEVELS {
            let (mut one, mut two) = (database.connect().await, database.connect().await);
            guard().advance(&mut one, &fence("a#8")).await.unwrap();
            let bound = guard().isolation(level);
            let mut guarded = bound.begin(&mut one, &fence("a#8")).await.unwrap();

            // It does not wait for long, so that the test does not.
            let impatient = "SET innodb_lock_wait_timeout = 0";
            two.get().unwrap().query_drop(impatient).await.unwrap();
            let hasty = bound.attempts(1);
            let error = hasty.advance(&mut two, &fence("a#9")).await.unwrap_err();
            assert!(error.is_retryable(), "{level}: {error:?}");
            guarded.conn().unwrap().query_drop(INSERT).await.unwrap();
            guarded.commit().await.unwrap();

            hasty.advance(&mut two, &fence("a#9")).await.unwrap();
            let late = insert(&hasty, &mut one, &fence("a#8")).await.unwrap_err();
            let mark = fence("a#9").token;
            assert_eq!(late.refused(), Some(&fence("a#8").overtaken_by(mark)));
            let again = "DELETE FROM datum; TRUNCATE ringfence_marks";
            database.conn().await.query_drop(again).await.unwrap();
        }
    });
}

#[test]
fn a_lock_of_mysql_that_is_not_to_be_had_is_waited_for_a_few_times_only() {
    installed("locked", async |database| {
        let (mut one, mut two) = (database.connect().await, database.connect().await);
        let guarded = guard().begin(&mut one, &fence("a#8")).await.unwrap();
        let impatient = "SET innodb_lock_wait_timeout = 0";
        two.get().unwrap().query_drop(impatient).await.unwrap();
        let mut attempts = 0;
        let other = guard();
        let error = loop {
            // Each call tries on its own; a write that begins its effect would be a mistake.
            attempts += 1;
            let error = insert(&other, &mut two, &fence("a#9")).await.unwrap_err();
            if attempts == LOCK_ATTEMPTS {
                break error;
            }
        };
        assert!(matches!(error, MysqlError::Conflict { .. }), "{error:?}");
        guarded.roll_back().await.unwrap();
        insert(&other, &mut two, &fence("a#9")).await.unwrap();
        assert!(!one.is_closed(), "a rollback has closed the connection");
        assert_eq!(held(database).await, (1, Some(9)));
    });
}

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
fn the_effect_of_a_refused_write_to_mysql_never_begins() {
    installed("refused", async |database| {
        let mut connection = database.connect().await;
        let bound = guard();
        bound.advance(&mut connection, &fence("a#9")).await.unwrap();
        for (shown, reason) in [
            ("a#8", "STALE_TOKEN"),
            ("b#10", "WRONG_LEASE"),
            ("a#9223372036854775807", "TOKEN_TOO_HIGH"),
        ] {
            let effect = async |_: &mut Conn| panic!("it began");
            let shown = fence(shown);
            let write = bound.write::<(), MysqlError>(&mut connection, &shown, effect);
            let error = write.await.unwrap_err();
            assert_eq!(error.refused().map(Refused::reason), Some(reason));
        }
        let far = fence("a#9223372036854775807");
        let high = guard().ceiling(Ceiling::Off);
        high.advance(&mut connection, &far).await.unwrap();
        // The mark is there, so that its token is one like any other.
        insert(&bound, &mut connection, &far).await.unwrap();
        let floor = fence("a#7").token;
        bound.advance_to(&mut connection, floor).await.unwrap();
        assert_eq!(held(database).await, (1, Some(far.token.get())));
    });
}

#[test]
fn an_effect_that_fails_is_rolled_back_with_its_mark_in_mysql() {
    installed("failing", async |database| {
        let mut connection = database.connect().await;
        let (write, shown) = (guard(), fence("a#8"));
        let write = write.write(&mut connection, &shown, async |conn| {
            conn.query_drop(INSERT).await?;
            conn.query_drop("INSERT INTO nowhere VALUES (1)").await?;
            Ok::<_, MysqlError>(())
        });
        let error = write.await.unwrap_err();
        assert!(matches!(error, MysqlError::Database { .. }), "{error:?}");
        assert_eq!(held(database).await, (0, None));
        assert!(!connection.is_closed(), "the connection was given up");
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

#[test]
fn a_holder_whose_mysql_connection_is_killed_stops_nobody() {
    installed("cutting", async |database| {
        let (mut one, mut two) = (database.connect().await, database.connect().await);
        let id = one.id().unwrap();
        let mut guarded = guard().begin(&mut one, &fence("a#8")).await.unwrap();
        let kill = format!("KILL {id}");
        two.get().unwrap().query_drop(kill).await.unwrap();
        guard().advance(&mut two, &fence("a#9")).await.unwrap();
        let late = guarded.conn().unwrap().query_drop(INSERT).await;
        assert!(late.is_err(), "a killed connection has written");
        assert!(guarded.commit().await.is_err(), "it has committed");
        assert_eq!(held(database).await, (0, Some(9)));
    });
}

#[test]
fn a_mysql_server_that_is_killed_before_the_commit_keeps_mark_and_data_together() {
    run_to_end(async {
        // One of its own: the others would notice.
        let Some(mut server) = Mysql::start(Disk::Memory) else {
            return;
        };
        let mut conn = server.connect("mysql").await;
        conn.query_drop("CREATE DATABASE killed").await.unwrap();
        let mut conn = server.connect("killed").await;
        MysqlGuard::install(&mut conn).await.unwrap();
        let table = "CREATE TABLE datum (value BIGINT NOT NULL)";
        conn.query_drop(table).await.unwrap();
        let mut connection = Connection::new(conn);
        guard()
            .advance(&mut connection, &fence("a#8"))
            .await
            .unwrap();

        let many = "INSERT INTO datum SELECT seq FROM seq_1_to_10000";
        for (token, commits, held) in [(9, false, (0, 8)), (10, true, (10_000, 10))] {
            let shown = fence(&format!("a#{token}"));
            let mut guarded = guard().begin(&mut connection, &shown).await.unwrap();
            guarded.conn().unwrap().query_drop(many).await.unwrap();
            if commits {
                guarded.commit().await.unwrap();
                server.crash();
            } else {
                server.crash();
                let committed = guarded.commit().await;
                assert!(
                    matches!(committed, Err(MysqlError::Unknown { .. })),
                    "{committed:?}"
                );
            }
            let mut conn = server.connect("killed").await;
            let count: Option<u64> = conn
                .query_first("SELECT COUNT(*) FROM datum")
                .await
                .unwrap();
            let mark = guard().mark(&mut conn).await.unwrap();
            assert_eq!((count.unwrap(), mark.unwrap().get()), held);
            connection = Connection::new(conn);
        }
    });
}

#[test]
fn a_write_to_mysql_can_be_a_task_of_its_own() {
    installed("spawning", async |database| {
        let mut connection = database.connect().await;
        let task = tokio::spawn(async move {
            let bound = guard();
            bound.advance(&mut connection, &fence("a#8")).await?;
            insert(&bound, &mut connection, &fence("a#8")).await
        });
        task.await.unwrap().unwrap();
        assert_eq!(held(database).await, (1, Some(8)));
    });
}
