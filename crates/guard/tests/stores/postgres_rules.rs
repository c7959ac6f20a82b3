//! What the guard in PostgreSQL promises beyond the suite.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ringfence_guard::FencingToken;
use ringfence_guard::postgres::{PostgresError, PostgresGuard};
use tokio_postgres::{Client, IsolationLevel};

use crate::servers::Disk;
use crate::servers::postgres::Postgres;
use crate::{fence, run_to_end};

/// One server for all the tests that run at a time, each in a database of its own.
static SERVER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());

fn server() -> Option<Arc<Postgres>> {
    let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let server = Arc::new(Postgres::start(Disk::Memory)?);
    *shared = Arc::downgrade(&server);
    Some(server)
}

/// A database with a table `datum` and nothing of this crate.
pub(crate) struct Database {
    server: Arc<Postgres>,
    name: &'static str,
}

impl Database {
    pub(crate) async fn create(name: &'static str) -> Option<Self> {
        let server = server()?;
        let client = server.connect("postgres").await;
        let create = format!("CREATE DATABASE {name}");
        client.batch_execute(&create).await.unwrap();
        let database = Self { server, name };
        let table = "CREATE TABLE datum (value bigint NOT NULL)";
        database.connect().await.batch_execute(table).await.unwrap();
        Some(database)
    }

    pub(crate) async fn connect(&self) -> Client {
        self.server.connect(self.name).await
    }

    /// What a seal connects to.
    pub(crate) fn address(&self) -> String {
        let (port, name) = (self.server.port(), self.name);
        format!("host=127.0.0.1 port={port} user=postgres dbname={name}")
    }
}

/// Runs a test in a database with the migration in it.
pub(crate) fn installed(name: &'static str, test: impl AsyncFnOnce(&Database)) {
    run_to_end(async {
        let Some(database) = Database::create(name).await else {
            return;
        };
        let client = database.connect().await;
        PostgresGuard::install(&client).await.unwrap();
        test(&database).await;
    });
}

pub(crate) fn guard() -> PostgresGuard {
    PostgresGuard::new(fence("a#1").name)
}

pub(crate) async fn count(client: &Client) -> i64 {
    let select = "SELECT count(*) FROM datum";
    client.query_one(select, &[]).await.unwrap().get(0)
}

pub(crate) async fn mark(client: &Client) -> Option<u64> {
    guard().mark(client).await.unwrap().map(FencingToken::get)
}

#[test]
fn a_database_without_the_migration_says_what_to_do() {
    run_to_end(async {
        let Some(database) = Database::create("bare").await else {
            return;
        };
        let mut client = database.connect().await;
        let error = guard()
            .advance(&mut client, &fence("a#1"))
            .await
            .unwrap_err();
        assert!(matches!(error, PostgresError::NotInstalled), "{error:?}");
        assert!(
            error.to_string().contains("PostgresGuard::install"),
            "{error}"
        );
        let error = guard().mark(&client).await.unwrap_err();
        assert!(matches!(error, PostgresError::NotInstalled), "{error:?}");
    });
}

#[test]
fn many_may_install_at_the_same_time_and_marks_stay() {
    installed("installing", async |database| {
        let mut client = database.connect().await;
        guard().advance(&mut client, &fence("a#8")).await.unwrap();
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let client = database.connect().await;
            running.spawn(async move { PostgresGuard::install(&client).await });
        }
        while let Some(installed) = running.join_next().await {
            installed.unwrap().unwrap();
        }
        assert_eq!(mark(&client).await, Some(8));
    });
}

#[test]
fn an_equal_token_keeps_the_next_grant_out_until_the_commit() {
    installed("waiting", async |database| {
        let (mut one, mut two) = (database.connect().await, database.connect().await);
        guard().advance(&mut one, &fence("a#8")).await.unwrap();
        let guarded = guard().begin(&mut one, &fence("a#8")).await.unwrap();

        // It does not wait for long, so that the test does not.
        let impatient = "SET lock_timeout = '20ms'";
        two.batch_execute(impatient).await.unwrap();
        let hasty = guard().attempts(1);
        let error = hasty.advance(&mut two, &fence("a#9")).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");

        guarded.commit().await.unwrap();
        hasty.advance(&mut two, &fence("a#9")).await.unwrap();
    });
}

/// Makes this connection's first write, which prepares the statement of all that follow.
pub(crate) async fn prepared(client: &mut Client) {
    let (bound, shown) = (guard(), fence("a#1"));
    let nothing = bound.write(client, &shown, async |_| Ok::<_, PostgresError>(()));
    nothing.await.unwrap();
}

#[test]
fn an_effect_begins_once_whether_or_not_its_connection_has_prepared() {
    installed("preparing", async |database| {
        let mut client = database.connect().await;
        let (bound, shown) = (guard(), fence("a#8"));
        let mut answered = 0;
        // Not prepared yet, and without a row; prepared; made to forget; prepared again.
        for (write, forgets) in [(1, false), (2, false), (3, true), (4, false)] {
            if forgets {
                client.batch_execute("DISCARD ALL").await.unwrap();
            }
            let mut began = 0;
            let written = bound.write(&mut client, &shown, async |client| {
                began += 1;
                client.batch_execute("INSERT INTO datum VALUES (1)").await?;
                answered += 1;
                Ok::<_, PostgresError>(())
            });
            written.await.unwrap();
            assert_eq!((began, answered), (1, write));
            assert_eq!(count(&client).await, write);
        }

        // Behind a pooler nothing is prepared, and nothing is begun twice.
        let mut pooled = database.connect().await;
        let bound = guard().pooled();
        let mut began = 0;
        let written = bound.write(&mut pooled, &shown, async |_| {
            began += 1;
            Ok::<_, PostgresError>(())
        });
        written.await.unwrap();
        assert_eq!(began, 1);
    });
}

#[test]
fn a_write_repeats_what_the_server_gives_up() {
    for (name, level) in [
        ("repeat_read", IsolationLevel::RepeatableRead),
        ("repeat_serial", IsolationLevel::Serializable),
    ] {
        installed(name, async |database| {
            let mut client = database.connect().await;
            let other = database.connect().await;
            client
                .batch_execute("INSERT INTO datum VALUES (0)")
                .await
                .unwrap();
            let add = "UPDATE datum SET value = value + 1";
            let mut tries = 0;
            let guard = guard().isolation(level);
            prepared(&mut client).await;
            guard
                .write(&mut client, &fence("a#8"), async |client| {
                    tries += 1;
                    client.query("SELECT value FROM datum", &[]).await?;
                    if tries < 3 {
                        // No client that would ask this guard.
                        other.execute(add, &[]).await?;
                    }
                    client.execute(add, &[]).await?;
                    Ok::<_, PostgresError>(())
                })
                .await
                .unwrap();
            assert_eq!(tries, 3);
            let select = "SELECT value FROM datum";
            let row = other.query_one(select, &[]).await.unwrap();
            assert_eq!(row.get::<_, i64>(0), 3);

            let (stubborn, shown) = (guard.attempts(2), fence("a#8"));
            let stubborn = stubborn.write(&mut client, &shown, async |tx| {
                tx.query("SELECT value FROM datum", &[]).await?;
                other.execute(add, &[]).await?;
                tx.execute(add, &[]).await?;
                Ok::<_, PostgresError>(())
            });
            let error = stubborn.await.unwrap_err();
            assert!(error.is_retryable(), "{error:?}");
        });
    }
}

/// An error of a service, with the database's deep inside.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the account could not be read")]
    Reading(#[source] tokio_postgres::Error),
    #[error("the guard or its store failed")]
    Guard(#[from] PostgresError),
}

#[test]
fn a_conflict_is_recognised_inside_the_errors_of_a_service() {
    installed("wrapped", async |database| {
        let mut client = database.connect().await;
        let mut tries = 0;
        let (bound, shown) = (guard(), fence("a#8"));
        let written = bound.write(&mut client, &shown, async |client| {
            tries += 1;
            let raise = "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$";
            if tries < 3 {
                client.batch_execute(raise).await.map_err(Failed::Reading)?;
            }
            Ok::<_, Failed>(())
        });
        written.await.unwrap();
        assert_eq!(tries, 3);
    });
}

#[test]
fn the_effect_of_a_refused_write_never_begins() {
    installed("refusing", async |database| {
        let mut client = database.connect().await;
        prepared(&mut client).await;
        guard().advance(&mut client, &fence("a#9")).await.unwrap();
        let insert = client
            .prepare("INSERT INTO datum VALUES (1)")
            .await
            .unwrap();
        let mut began = 0;
        for shown in [fence("a#8"), fence("b#10")] {
            let bound = guard();
            let written = bound.write(&mut client, &shown, async |client| {
                began += 1;
                client.execute(&insert, &[]).await?;
                Ok::<_, PostgresError>(())
            });
            let error = written.await.unwrap_err();
            assert!(error.refused().is_some(), "{error:?}");
        }
        assert_eq!((began, count(&client).await), (0, 0));
    });
}

#[test]
fn an_effect_that_asks_nothing_of_the_store_waits_for_the_admission_all_the_same() {
    installed("idle", async |database| {
        let mut client = database.connect().await;
        guard().advance(&mut client, &fence("a#9")).await.unwrap();
        for (shown, passes) in [(fence("a#8"), false), (fence("a#9"), true)] {
            let bound = guard();
            let written = bound.write(&mut client, &shown, async |_| Ok::<_, PostgresError>(7));
            assert_eq!(written.await.ok(), passes.then_some(7));
        }
        // An error of its own does not hide that the lease is lost.
        let (bound, shown) = (guard(), fence("a#8"));
        let written = bound.write(&mut client, &shown, async |_| {
            Err::<(), _>(PostgresError::NotInstalled)
        });
        let error = written.await.unwrap_err();
        assert!(error.refused().is_some(), "{error:?}");
    });
}

#[test]
fn an_effect_that_fails_is_rolled_back_with_its_mark() {
    installed("failing", async |database| {
        let mut client = database.connect().await;
        let (bound, shown) = (guard(), fence("a#8"));
        let written = bound.write(&mut client, &shown, async |client| {
            let insert = "INSERT INTO datum VALUES (1)";
            client.execute(insert, &[]).await?;
            client
                .execute("INSERT INTO nowhere VALUES (1)", &[])
                .await?;
            Ok::<_, PostgresError>(())
        });
        let error = written.await.unwrap_err();
        assert!(matches!(error, PostgresError::Database { .. }), "{error:?}");
        assert_eq!((count(&client).await, mark(&client).await), (0, None));
    });
}

#[test]
fn a_failure_that_the_effect_overlooks_is_no_success() {
    installed("overlooking", async |database| {
        let mut client = database.connect().await;
        let (bound, shown) = (guard(), fence("a#8"));
        let written = bound.write(&mut client, &shown, async |client| {
            let insert = "INSERT INTO datum VALUES (1)";
            client.execute(insert, &[]).await?;
            // The server has aborted the transaction; a plain COMMIT would roll it back and say
            // nothing.
            client
                .execute("INSERT INTO nowhere VALUES (1)", &[])
                .await
                .ok();
            Ok::<_, PostgresError>(())
        });
        let error = written.await.unwrap_err();
        assert!(matches!(error, PostgresError::Database { .. }), "{error:?}");
        assert_eq!((count(&client).await, mark(&client).await), (0, None));
        // The connection is fit for the next one.
        guard().advance(&mut client, &fence("a#8")).await.unwrap();
    });
}

#[test]
fn a_connection_that_breaks_during_the_commit_leaves_the_outcome_unknown() {
    installed("breaking", async |database| {
        let mut client = database.connect().await;
        client
            .batch_execute(
                "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS
                     'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
                 CREATE CONSTRAINT TRIGGER die AFTER INSERT ON datum
                     DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()",
            )
            .await
            .unwrap();
        let (bound, shown) = (guard(), fence("a#8"));
        let written = bound.write(&mut client, &shown, async |client| {
            let insert = "INSERT INTO datum VALUES (1)";
            client.execute(insert, &[]).await?;
            Ok::<_, PostgresError>(())
        });
        let error = written.await.unwrap_err();
        assert!(matches!(error, PostgresError::Unknown { .. }), "{error:?}");
    });
}

#[test]
fn a_holder_whose_connection_is_cut_between_check_and_write_does_not_stop_the_next() {
    installed("cutting", async |database| {
        let (mut one, mut two) = (database.connect().await, database.connect().await);
        let ask = "SELECT pg_backend_pid()";
        let pid: i32 = one.query_one(ask, &[]).await.unwrap().get(0);
        let guarded = guard().begin(&mut one, &fence("a#8")).await.unwrap();

        let cut = "SELECT pg_terminate_backend($1)";
        two.query(cut, &[&pid]).await.unwrap();
        guard().advance(&mut two, &fence("a#9")).await.unwrap();

        let late = guarded.batch_execute("INSERT INTO datum VALUES (1)").await;
        assert!(late.is_err(), "a cut connection has written");
        assert_eq!((count(&two).await, mark(&two).await), (0, Some(9)));
    });
}

#[test]
fn a_server_that_is_killed_between_check_and_commit_keeps_mark_and_data_together() {
    run_to_end(async {
        // One of its own: the others would notice.
        let Some(mut server) = Postgres::start(Disk::Memory) else {
            return;
        };
        let mut client = server.connect("postgres").await;
        PostgresGuard::install(&client).await.unwrap();
        let table = "CREATE TABLE datum (value bigint NOT NULL)";
        client.batch_execute(table).await.unwrap();
        guard().advance(&mut client, &fence("a#8")).await.unwrap();

        let insert = "INSERT INTO datum SELECT generate_series(1, 10000)";
        let guarded = guard().begin(&mut client, &fence("a#9")).await.unwrap();
        guarded.execute(insert, &[]).await.unwrap();
        server.crash();
        assert!(guarded.commit().await.is_err());
        let mut client = server.connect("postgres").await;
        assert_eq!((count(&client).await, mark(&client).await), (0, Some(8)));

        let guarded = guard().begin(&mut client, &fence("a#9")).await.unwrap();
        guarded.execute(insert, &[]).await.unwrap();
        guarded.commit().await.unwrap();
        server.crash();
        let client = server.connect("postgres").await;
        assert_eq!(
            (count(&client).await, mark(&client).await),
            (10_000, Some(9))
        );
    });
}

#[test]
fn a_write_can_be_a_task_of_its_own() {
    installed("spawning", async |database| {
        let mut client = database.connect().await;
        let task = tokio::spawn(async move {
            let (bound, shown) = (guard(), fence("a#8"));
            bound.advance(&mut client, &shown).await?;
            let write = bound.write(&mut client, &shown, async |client| {
                let insert = "INSERT INTO datum VALUES (1)";
                client.execute(insert, &[]).await?;
                Ok::<_, PostgresError>(())
            });
            write.await?;
            Ok::<_, PostgresError>(count(&client).await)
        });
        assert_eq!(task.await.unwrap().unwrap(), 1);
    });
}

#[test]
fn a_write_that_is_dropped_half_way_is_rolled_back() {
    installed("dropping", async |database| {
        let mut client = database.connect().await;
        let (bound, shown) = (guard(), fence("a#8"));
        let (written, half_way) = tokio::sync::oneshot::channel();
        let mut written = Some(written);
        let write = bound.write(&mut client, &shown, async |client| {
            let insert = "INSERT INTO datum VALUES (1)";
            client.execute(insert, &[]).await?;
            written.take().unwrap().send(()).unwrap();
            std::future::pending::<()>().await;
            Ok::<_, PostgresError>(())
        });
        tokio::select! {
            _ = write => panic!("it ended"),
            reached = half_way => reached.unwrap(),
        }
        // No client is kept out by what it left.
        let mut other = database.connect().await;
        guard().advance(&mut client, &fence("a#9")).await.unwrap();
        guard().advance(&mut other, &fence("a#10")).await.unwrap();
        assert_eq!((count(&client).await, mark(&client).await), (0, Some(10)));
    });
}
