//! What a connection, a lock or a failed statement keeps the guard in PostgreSQL from, and not.

use std::time::Duration;

use ringfence_guard::postgres::{PostgresError, PostgresGuard};
use tokio_postgres::error::SqlState;

use crate::fence;
use crate::postgres_rules::{count, guard, installed, mark};

#[test]
fn an_effect_that_ends_its_transaction_cannot_write_on_a_guarded_connection() {
    installed("walled", async |database| {
        let mut client = database.connect().await;
        PostgresGuard::only_guarded(&client).await.unwrap();
        let (bound, shown) = (guard(), fence("a#8"));
        bound.advance(&mut client, &shown).await.unwrap();
        let written = bound.write(&mut client, &shown, async |client| {
            client.batch_execute("COMMIT").await?;
            let insert = client.batch_execute("INSERT INTO datum VALUES (1)").await;
            let refused = insert.unwrap_err();
            assert_eq!(refused.code(), Some(&SqlState::READ_ONLY_SQL_TRANSACTION));
            Err::<(), _>(PostgresError::from(refused))
        });
        let error = written.await.unwrap_err();
        assert!(matches!(error, PostgresError::Ended), "{error:?}");
        let past = client.batch_execute("INSERT INTO datum VALUES (2)").await;
        assert!(past.is_err(), "a write past the guard");
        assert_eq!(count(&client).await, 0);

        let good = bound.write(&mut client, &shown, async |client| {
            client.batch_execute("INSERT INTO datum VALUES (3)").await?;
            Ok::<_, PostgresError>(())
        });
        good.await.unwrap();
        bound.advance_to(&mut client, shown.token).await.unwrap();
        assert_eq!(count(&client).await, 1);
    });
}

#[test]
fn a_lock_that_is_not_to_be_had_is_waited_for_a_few_times_only() {
    installed("locked", async |database| {
        let (mut one, mut two) = (database.connect().await, database.connect().await);
        guard().advance(&mut two, &fence("a#8")).await.unwrap();
        let guarded = guard().begin(&mut one, &fence("a#8")).await.unwrap();
        let settings = "SET lock_timeout = '200ms'";
        two.batch_execute(settings).await.unwrap();
        let waits = guard();
        let shown = fence("a#9");
        let gives_up = tokio::time::timeout(
            // Far below 64 times 200 ms.
            Duration::from_secs(8),
            waits.advance(&mut two, &shown),
        );
        let error = gives_up.await.unwrap().unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        drop(guarded);
    });
}

#[test]
fn a_transaction_that_was_rolled_back_is_not_called_committed() {
    installed("rolled_back", async |database| {
        let mut client = database.connect().await;
        let guarded = guard().begin(&mut client, &fence("a#8")).await.unwrap();
        guarded
            .batch_execute("INSERT INTO nowhere VALUES (1)")
            .await
            .ok();
        let error = guarded.commit().await.unwrap_err();
        assert!(matches!(error, PostgresError::Database { .. }), "{error:?}");
        assert_eq!((count(&client).await, mark(&client).await), (0, None));

        let guarded = guard().begin(&mut client, &fence("a#8")).await.unwrap();
        guarded.commit().await.unwrap();
        assert_eq!(mark(&client).await, Some(8));
    });
}
