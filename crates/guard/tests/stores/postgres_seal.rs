//! The guard in PostgreSQL as a holder's client seals it.

use ringfence_guard::postgres::{PostgresError, PostgresGuard, PostgresSeal};
use ringfence_guard::{Refused, SealAnswer, Sealable};

use crate::servers::Disk;
use crate::servers::postgres::Postgres;
use crate::{fence, run_to_end};

const DATABASE: &str = "postgres";

/// A seal whose connections begin with these statements.
fn seal(server: &Postgres, first: &'static str) -> PostgresSeal {
    let guard = PostgresGuard::new(fence("bank/balance#1").name);
    let port = server.port();
    PostgresSeal::new("ledger", guard, move || async move {
        let at = format!("host=127.0.0.1 port={port} user=postgres dbname={DATABASE}");
        let (client, connection) = tokio_postgres::connect(&at, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(first).await?;
        Ok(client)
    })
}

async fn ask(server: &Postgres, first: &'static str, token: u64) -> SealAnswer {
    let fence = fence(&format!("bank/balance#{token}"));
    seal(server, first).seal(&fence).await
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

        let off = ask(&server, "SET synchronous_commit = off", 10).await;
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
