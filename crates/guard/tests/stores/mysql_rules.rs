//! What the guard in MariaDB promises beyond the suite.

use std::sync::{Arc, Mutex, PoisonError, Weak};

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

pub(crate) fn guard() -> MysqlGuard {
    MysqlGuard::new(fence("a#1").name)
}

/// Rows of `datum`, and the mark, as another connection sees them.
pub(crate) async fn held(database: &Database) -> (u64, Option<u64>) {
    let mut conn = database.conn().await;
    let count = conn.query_first("SELECT COUNT(*) FROM datum").await;
    let mark = guard().mark(&mut conn).await.unwrap();
    (count.unwrap().unwrap(), mark.map(FencingToken::get))
}

pub(crate) const INSERT: &str = "INSERT INTO datum VALUES (1)";

pub(crate) async fn insert(
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

/// Without the key each admission is a row, and the first one is compared.
#[test]
fn a_table_of_marks_of_another_shape_is_refused_in_mysql() {
    run_to_end(async {
        let Some(database) = Database::create("shapes").await else {
            return;
        };
        let mut conn = database.conn().await;
        let admissions = "admissions BIGINT UNSIGNED NOT NULL DEFAULT 1";
        // A cascade fires no trigger.
        let parents = "CREATE TABLE parents (name VARCHAR(255) PRIMARY KEY)";
        conn.query_drop(parents).await.unwrap();
        for (columns, found) in [
            ("name VARCHAR(255) NOT NULL, mark BIGINT NOT NULL", "(none)"),
            (
                "name VARCHAR(255), mark BIGINT, PRIMARY KEY (name, mark)",
                "(name,mark)",
            ),
            (
                "name VARCHAR(255), mark BIGINT NOT NULL, PRIMARY KEY (name(9))",
                "(name(9))",
            ),
            ("name VARCHAR(255) PRIMARY KEY, mark BIGINT", "mark bigint"),
            (
                "name VARCHAR(255) PRIMARY KEY, mark VARCHAR(20) NOT NULL",
                "mark varchar(20)",
            ),
            ("id BIGINT PRIMARY KEY", "mark"),
            (
                "name VARCHAR(255) PRIMARY KEY, mark BIGINT NOT NULL, more INT",
                "column more",
            ),
            (
                "name VARCHAR(255) PRIMARY KEY, mark BIGINT NOT NULL, UNIQUE KEY one (mark)",
                "index one",
            ),
            (
                "name VARCHAR(255) PRIMARY KEY, mark BIGINT NOT NULL,
                 CONSTRAINT gone FOREIGN KEY (name) REFERENCES parents (name) ON DELETE CASCADE",
                "foreign key gone",
            ),
        ] {
            let table =
                format!("CREATE OR REPLACE TABLE ringfence_marks ({columns}, {admissions})");
            conn.query_drop(table).await.unwrap();
            let error = MysqlGuard::install(&mut conn).await.unwrap_err();
            let named =
                matches!(&error, MysqlError::WrongShape { found: it } if it.contains(found));
            assert!(named, "{columns}: {error:?}");
            let said = database.client(ringfence_guard::sql::MYSQL_MIGRATION);
            assert!(!said.succeeded, "{columns}: {said:?}");
        }
        conn.query_drop("DROP TABLE ringfence_marks").await.unwrap();
        MysqlGuard::install(&mut conn).await.unwrap();
        MysqlGuard::install(&mut conn).await.unwrap();
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
fn a_holder_whose_mysql_connection_is_killed_does_not_stop_the_next() {
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
