//! The guard in PostgreSQL as a holder's client seals it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringfence_guard::postgres::{PostgresError, PostgresGuard, PostgresSeal};
use ringfence_guard::{Refused, SealAnswer, Sealable};

use tokio_postgres::{Client, NoTls};

use crate::servers::Disk;
use crate::servers::machine::find;
use crate::servers::postgres::Postgres;
use crate::{fence, run_to_end};

const DATABASE: &str = "postgres";

/// A seal whose connections have these options.
fn seal(server: &Postgres, options: &'static str) -> PostgresSeal {
    let guard = PostgresGuard::new(fence("bank/balance#1").name);
    let port = server.port();
    PostgresSeal::new("ledger", guard, move || async move {
        let at = format!(
            "host=127.0.0.1 port={port} user=postgres dbname={DATABASE} options='{options}'"
        );
        tokio_postgres::connect(&at, NoTls).await
    })
}

async fn ask(server: &Postgres, options: &'static str, token: u64) -> SealAnswer {
    let fence = fence(&format!("bank/balance#{token}"));
    seal(server, options).seal(&fence).await
}

fn lost(answer: &SealAnswer) -> &str {
    match answer {
        SealAnswer::NotDurable { why } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_database_is_sealed_unless_it_can_lose_the_mark() {
    run_to_end(async {
        let Some(server) = Postgres::start(Disk::Real) else {
            return;
        };
        let mut client = server.connect(DATABASE).await;
        PostgresGuard::install(&client).await.unwrap();
        let guard = PostgresGuard::new(fence("bank/balance#1").name);
        let old = fence("bank/balance#8");
        guard.advance(&mut client, &old).await.unwrap();

        assert_eq!(ask(&server, "", 9).await, SealAnswer::Durable);

        // The old holder's connection, which was there before.
        let write = guard.write(&mut client, &old, async |_| Ok::<_, PostgresError>(()));
        assert!(matches!(
            write.await,
            Err(PostgresError::Refused(Refused::StaleToken { .. }))
        ));
        let stale = ask(&server, "", 8).await;
        assert!(
            matches!(stale, SealAnswer::Refused(Refused::StaleToken { .. })),
            "{stale:?}"
        );

        let off = ask(&server, "-c synchronous_commit=off", 10).await;
        assert!(lost(&off).contains("synchronous_commit is off"), "{off:?}");

        // A standby that may be promoted, and receives commits behind their acknowledgement.
        let slot = "SELECT pg_create_physical_replication_slot('standby')";
        client.batch_execute(slot).await.unwrap();
        let replica = ask(&server, "", 11).await;
        assert!(
            lost(&replica).contains("synchronous_standby_names"),
            "{replica:?}"
        );
        let fence = fence("bank/balance#12");
        let vouched = seal(&server, "").survives_failover();
        assert_eq!(vouched.seal(&fence).await, SealAnswer::Durable);
        let mark = guard.mark(&client).await.unwrap();
        assert_eq!(mark, Some(fence.token), "what was raised stays");
    });
}

#[test]
fn a_server_that_syncs_nothing_or_is_not_there_is_not_sealed() {
    run_to_end(async {
        let Some(server) = Postgres::start(Disk::Memory) else {
            return;
        };
        let missing = ask(&server, "", 9).await;
        assert!(
            matches!(&missing, SealAnswer::Failed { why } if why.contains("PostgresGuard::install")),
            "{missing:?}"
        );
        let client = server.connect(DATABASE).await;
        PostgresGuard::install(&client).await.unwrap();
        let unsynced = ask(&server, "", 9).await;
        assert!(lost(&unsynced).contains("fsync is off"), "{unsynced:?}");

        let seal = seal(&server, "");
        drop((client, server));
        let gone = seal.seal(&fence("bank/balance#10")).await;
        assert!(matches!(gone, SealAnswer::Failed { .. }), "{gone:?}");
    });
}

/// Sets what the server waits for at each commit; `''` for nothing.
async fn set_standbys(client: &Client, names: &str) {
    let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'");
    client.batch_execute(&set).await.unwrap();
    client
        .batch_execute("SELECT pg_reload_conf()")
        .await
        .unwrap();
    let shows = |row: &tokio_postgres::Row| row.get::<_, String>(0) == names;
    while !shows(
        &client
            .query_one("SHOW synchronous_standby_names", &[])
            .await
            .unwrap(),
    ) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The commit is done on this server, and says so, with a warning.
#[test]
fn a_wait_for_a_standby_that_was_cancelled_is_not_durable() {
    run_to_end(async {
        let Some(server) = Postgres::start(Disk::Real) else {
            return;
        };
        let client = server.connect(DATABASE).await;
        PostgresGuard::install(&client).await.unwrap();
        // Else this connection waits as well.
        client
            .batch_execute("SET synchronous_commit = local")
            .await
            .unwrap();
        set_standbys(&client, "no_such_standby").await;
        for options in ["", "-c client_min_messages=error"] {
            let sealing = ask(&server, options, 9);
            let cancelling = async {
                let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                    WHERE wait_event = 'SyncRep'";
                loop {
                    client.batch_execute(cancel).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let answer = tokio::select! {
                answer = sealing => answer,
                () = cancelling => unreachable!(),
            };
            assert!(
                lost(&answer).contains("canceling wait"),
                "{options}: {answer:?}"
            );
        }
        set_standbys(&client, "").await;
        assert_eq!(ask(&server, "", 10).await, SealAnswer::Durable);
    });
}

/// A program of PostgreSQL that receives the log as a standby or a subscriber does. Dropping it ends it.
struct Receiver(Child);

impl Receiver {
    fn start(server: &Postgres, program: &str, name: &str, arguments: &[&str]) -> Self {
        let program = find(program, "postgresql-client").unwrap();
        let at = format!(
            "host=127.0.0.1 port={} user=postgres dbname={DATABASE} application_name={name}",
            server.port()
        );
        let mut command = Command::new(program);
        command.args(["--no-loop", "--status-interval=1", "--dbname", &at]);
        command.args(arguments).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

async fn until(client: &Client, condition: &str) {
    while !client
        .query_one(&format!("SELECT {condition}"), &[])
        .await
        .unwrap()
        .get::<_, bool>(0)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// It cannot take over, though the server waits for it.
#[test]
fn a_logical_subscriber_is_no_standby_that_makes_a_seal_durable() {
    run_to_end(async {
        let Some(mut server) = Postgres::start(Disk::Real) else {
            return;
        };
        let client = server.connect(DATABASE).await;
        let logical = "ALTER SYSTEM SET wal_level = 'logical'";
        client.batch_execute(logical).await.unwrap();
        drop(client);
        server.crash();
        let client = server.connect(DATABASE).await;
        PostgresGuard::install(&client).await.unwrap();
        let prepare = "SET synchronous_commit = local; CREATE ROLE service LOGIN;
            GRANT USAGE ON SCHEMA ringfence TO service;
            GRANT SELECT, INSERT, UPDATE ON ringfence.marks TO service";
        client.batch_execute(prepare).await.unwrap();
        // In a transaction of its own: the server makes no such slot behind writes.
        let slot = "SELECT pg_create_logical_replication_slot('subscriber', 'test_decoding')";
        client.batch_execute(slot).await.unwrap();
        let arguments = [
            "--slot=subscriber",
            "--start",
            "--file=-",
            "--fsync-interval=1",
        ];
        let subscriber = Receiver::start(&server, "pg_recvlogical", "subscriber", &arguments);
        set_standbys(&client, "subscriber").await;
        let synchronous = |name: &str| {
            format!(
                "EXISTS (SELECT FROM pg_stat_replication
                 WHERE application_name = '{name}' AND sync_state <> 'async')"
            )
        };
        until(&client, &synchronous("subscriber")).await;
        let answer = ask(&server, "", 9).await;
        assert!(lost(&answer).contains("physical standby"), "{answer:?}");

        // It may have answered alone.
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().to_str().unwrap();
        let arguments = ["--synchronous", "--directory", folder];
        let standby = Receiver::start(&server, "pg_receivewal", "standby", &arguments);
        set_standbys(&client, "ANY 1 (subscriber, standby)").await;
        until(&client, &synchronous("standby")).await;
        let answer = ask(&server, "", 10).await;
        assert!(lost(&answer).contains("physical standby"), "{answer:?}");

        set_standbys(&client, "FIRST 2 (subscriber, standby)").await;
        let both = "(SELECT count(*) = 2 FROM pg_stat_replication WHERE sync_state = 'sync')";
        until(&client, both).await;
        assert_eq!(ask(&server, "", 11).await, SealAnswer::Durable);
        let late = ask(&server, "-c synchronous_commit=remote_write", 12).await;
        assert!(lost(&late).contains("remote_write"), "{late:?}");
        drop(subscriber);
        set_standbys(&client, "standby").await;
        assert_eq!(ask(&server, "", 13).await, SealAnswer::Durable);
        // A session may take another role: what it may see is that one's.
        let unseen = ask(&server, "-c role=service", 14).await;
        assert!(lost(&unseen).contains("pg_monitor"), "{unseen:?}");
        drop(standby);
        set_standbys(&client, "").await;
        client
            .batch_execute(
                "SELECT pg_drop_replication_slot('subscriber');
                 ALTER TABLE ringfence.marks SET UNLOGGED",
            )
            .await
            .unwrap();
        let unlogged = ask(&server, "", 15).await;
        assert!(lost(&unlogged).contains("unlogged"), "{unlogged:?}");
    });
}

/// The server does not notice that a client has gone away while it waits for a lock.
#[test]
fn seals_that_are_given_up_wait_on_one_connection_at_most() {
    run_to_end(async {
        let Some(server) = Postgres::start(Disk::Real) else {
            return;
        };
        let mut holder = server.connect(DATABASE).await;
        PostgresGuard::install(&holder).await.unwrap();
        let guard = PostgresGuard::new(fence("bank/balance#1").name);
        let guarded = guard
            .begin(&mut holder, &fence("bank/balance#8"))
            .await
            .unwrap();

        let seal = seal(&server, "");
        let watcher = server.connect(DATABASE).await;
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let patience = Duration::from_millis(100);
        for token in 9..14 {
            let next = fence(&format!("bank/balance#{token}"));
            let given_up = tokio::time::timeout(patience, seal.seal(&next)).await;
            assert!(given_up.is_err(), "{given_up:?}");
            let waiting: i64 = watcher.query_one(waiting, &[]).await.unwrap().get(0);
            assert!(waiting <= 1, "{waiting} connections wait after {token}");
        }
        // One that runs is not taken over.
        let (one, two) = (fence("bank/balance#14"), fence("bank/balance#15"));
        let mut running = seal.seal(&one);
        assert!(
            tokio::time::timeout(patience, running.as_mut())
                .await
                .is_err()
        );
        let beside = seal.seal(&two).await;
        assert!(
            matches!(&beside, SealAnswer::Failed { why } if why.contains("earlier seal")),
            "{beside:?}"
        );
        guarded.commit().await.unwrap();
        assert_eq!(running.await, SealAnswer::Durable);
        assert_eq!(seal.seal(&two).await, SealAnswer::Durable);
        assert_eq!(guard.mark(&watcher).await.unwrap(), Some(two.token));
    });
}
