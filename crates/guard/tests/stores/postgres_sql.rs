//! The migration's functions as a service in another language meets them.

use ringfence_guard::FencingToken;
use ringfence_guard::postgres::PostgresGuard;
use tokio_postgres::Client;

use crate::postgres_rules::{Database, installed};
use crate::{fence, run_to_end};

/// What the server says to one statement: `SQLSTATE` and message, or the first column.
pub(crate) async fn ask(client: &Client, sql: &str) -> Result<String, (String, String)> {
    match client.simple_query(sql).await {
        Ok(messages) => {
            let row = messages.iter().find_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            });
            Ok(row.unwrap_or_default())
        }
        Err(error) => {
            let told = error.as_db_error().unwrap();
            Err((told.code().code().to_owned(), told.message().to_owned()))
        }
    }
}

pub(crate) async fn refused(client: &Client, sql: &str, state: &str, says: &str) {
    let (code, message) = ask(client, sql).await.unwrap_err();
    assert_eq!(code, state, "{sql}: {message}");
    assert!(message.contains(says), "{sql}: {message}");
}

#[test]
fn each_refusal_has_a_state_of_its_own() {
    installed("states", async |database| {
        let client = &database.connect().await;
        let admitted = ask(client, "SELECT ringfence.advance('a', 9)").await;
        assert_eq!(admitted.as_deref(), Ok("9"));
        for (sql, state, says) in [
            (
                "ringfence.admit('a', 8)",
                "RF001",
                "token 8 of lease \"a\" was overtaken by token 9",
            ),
            ("ringfence.advance('a', 8)", "RF001", "STALE_TOKEN"),
            ("ringfence.admit('a', NULL)", "RF003", "MISSING_FENCE"),
            ("ringfence.admit(NULL, 9)", "RF003", "MISSING_FENCE"),
            (
                "ringfence.admit('a', 0)",
                "RF004",
                "1 to 9223372036854775807",
            ),
            ("ringfence.admit('a', -1)", "RF004", "out of range"),
            ("ringfence.admit('a', 9.5)", "RF004", "out of range"),
            (
                "ringfence.admit('a', 9223372036854775808)",
                "RF004",
                "9223372036854775808",
            ),
            ("ringfence.admit('a', 'NaN')", "RF004", "out of range"),
            (
                "ringfence.admit('a', 1::bigint << 62)",
                "RF006",
                "TOKEN_TOO_HIGH",
            ),
            (
                "ringfence.advance('a', 1::bigint << 62)",
                "RF006",
                "above the ceiling",
            ),
            ("ringfence.admit('', 9)", "RF004", "no lease name"),
            ("ringfence.admit('a b', 9)", "RF004", "no lease name"),
            (
                "ringfence.admit(repeat('a', 256), 9)",
                "RF004",
                "no lease name",
            ),
            ("ringfence.token('a', 'b#9')", "RF002", "WRONG_LEASE"),
            ("ringfence.token('a', NULL)", "RF003", "MISSING_FENCE"),
            ("ringfence.token('a', 'a#09')", "RF004", "NAME#TOKEN"),
            (
                "ringfence.token('a', 'a#9223372036854775808')",
                "RF004",
                "NAME#TOKEN",
            ),
            ("ringfence.token('a', E'a#9\\n')", "RF004", "NAME#TOKEN"),
        ] {
            refused(client, &format!("SELECT {sql}"), state, says).await;
        }
        ask(client, "SET ringfence.ceiling = '100'").await.unwrap();
        let admitted = ask(client, "SELECT ringfence.admit('a', 100)").await;
        assert_eq!(admitted.as_deref(), Ok("100"));
        refused(client, "SELECT ringfence.admit('a', 101)", "RF006", "100").await;
        ask(client, "SET ringfence.ceiling = 'off'").await.unwrap();
        let greatest = "SELECT ringfence.admit('a', '9223372036854775807')";
        let admitted = ask(client, greatest).await;
        assert_eq!(admitted.as_deref(), Ok("9223372036854775807"));
        // The mark is there, so that its token is one like any other.
        ask(client, "RESET ringfence.ceiling").await.unwrap();
        let admitted = ask(client, greatest).await;
        assert_eq!(admitted.as_deref(), Ok("9223372036854775807"));
    });
}

#[test]
fn what_follows_a_refusal_cannot_be_committed() {
    installed("aborting", async |database| {
        let client = &database.connect().await;
        ask(client, "SELECT ringfence.advance('a', 9)")
            .await
            .unwrap();
        ask(client, "BEGIN").await.unwrap();
        refused(
            client,
            "SELECT ringfence.admit('a', 8)",
            "RF001",
            "STALE_TOKEN",
        )
        .await;
        refused(client, "INSERT INTO datum VALUES (1)", "25P02", "aborted").await;
        ask(client, "COMMIT").await.unwrap();
        let count = ask(client, "SELECT count(*) FROM datum").await;
        assert_eq!(count.as_deref(), Ok("0"));
    });
}

#[test]
fn a_mark_can_be_neither_lowered_nor_deleted_by_hand() {
    installed("byhand", async |database| {
        let client = &database.connect().await;
        ask(client, "SELECT ringfence.advance('a', 9)")
            .await
            .unwrap();
        for sql in [
            "UPDATE ringfence.marks SET mark = 8",
            "UPDATE ringfence.marks SET name = 'b'",
            "DELETE FROM ringfence.marks",
            "TRUNCATE ringfence.marks",
        ] {
            refused(client, sql, "RF005", "MARK_STAYS").await;
        }
        let mark = ask(client, "SELECT mark FROM ringfence.marks").await;
        assert_eq!(mark.as_deref(), Ok("9"));
    });
}

#[test]
fn a_floor_raises_a_mark_and_never_lowers_it() {
    installed("floors", async |database| {
        let client = &database.connect().await;
        for (floor, mark) in [(5, "5"), (3, "5"), (5, "5"), (7, "7")] {
            let raised = ask(
                client,
                &format!("SELECT ringfence.advance_to('a', {floor})"),
            )
            .await;
            assert_eq!(raised.as_deref(), Ok(mark));
        }
        refused(
            client,
            "SELECT ringfence.advance_to('a', NULL)",
            "RF003",
            "MISSING",
        )
        .await;
    });
}

#[test]
fn sql_and_crate_share_one_mark() {
    installed("sharing", async |database| {
        let mut client = database.connect().await;
        let guard = PostgresGuard::new(fence("a#1").name);
        ask(&client, "SELECT ringfence.advance('a', 8)")
            .await
            .unwrap();
        assert!(guard.advance(&mut client, &fence("a#7")).await.is_err());
        guard.advance(&mut client, &fence("a#9")).await.unwrap();
        refused(
            &client,
            "SELECT ringfence.admit('a', 8)",
            "RF001",
            "token 9",
        )
        .await;
        let mark = guard.mark(&client).await.unwrap();
        assert_eq!(mark, FencingToken::new(9));
    });
}

#[test]
fn writing_an_equal_mark_again_and_again_does_not_bloat_the_table() {
    installed("bloat", async |database| {
        let client = &database.connect().await;
        let repeat = "DO $$ BEGIN FOR i IN 1..200 LOOP
            PERFORM ringfence.admit('a', 9); COMMIT; END LOOP; END $$";
        ask(client, repeat).await.unwrap();
        let size = ask(client, "SELECT pg_relation_size('ringfence.marks')").await;
        let pages = size.unwrap().parse::<u64>().unwrap() / 8192;
        assert!(pages <= 2, "200 writes of one mark take {pages} pages");
    });
}

#[test]
fn a_guarded_table_refuses_what_its_transaction_has_not_admitted() {
    installed("tables", async |database| {
        let client = &database.connect().await;
        let trigger = "CREATE TABLE balance (amount bigint);
            CREATE TRIGGER guarded BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON balance
                FOR EACH STATEMENT EXECUTE FUNCTION ringfence.guarded('a')";
        client.batch_execute(trigger).await.unwrap();
        let says = "has not admitted a fence";
        ask(client, "SELECT ringfence.advance('a', 9)")
            .await
            .unwrap();
        for sql in [
            "INSERT INTO balance VALUES (1)",
            "UPDATE balance SET amount = 2",
            "DELETE FROM balance",
            "TRUNCATE balance",
            "BEGIN; SELECT ringfence.admit('b', 9); INSERT INTO balance VALUES (1)",
        ] {
            refused(client, sql, "RF003", says).await;
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        let good = "BEGIN; SELECT ringfence.admit('a', 9); INSERT INTO balance VALUES (1);
            SAVEPOINT s; UPDATE balance SET amount = 2; RELEASE s; COMMIT";
        client.batch_execute(good).await.unwrap();
        let amount = ask(client, "SELECT amount FROM balance").await;
        assert_eq!(amount.as_deref(), Ok("2"));
    });
}

/// The trigger of a partitioned table alone is passed by, as `sql/postgres.sql` says.
#[test]
fn each_partition_of_a_guarded_table_needs_the_trigger() {
    installed("partitions", async |database| {
        let client = &database.connect().await;
        let guarded = |table: &str| {
            format!(
                "CREATE TRIGGER guarded BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table}
                 FOR EACH STATEMENT EXECUTE FUNCTION ringfence.guarded('a')"
            )
        };
        let tables = "CREATE TABLE balance (amount bigint) PARTITION BY RANGE (amount);
            CREATE TABLE small PARTITION OF balance FOR VALUES FROM (0) TO (10)";
        client.batch_execute(tables).await.unwrap();
        client.batch_execute(&guarded("balance")).await.unwrap();
        let says = "has not admitted a fence";
        let (above, inside) = (
            "INSERT INTO balance VALUES (1)",
            "INSERT INTO small VALUES (2)",
        );
        refused(client, above, "RF003", says).await;
        client.batch_execute(inside).await.unwrap();

        client.batch_execute(&guarded("small")).await.unwrap();
        for sql in [above, inside, "DELETE FROM small", "TRUNCATE small"] {
            refused(client, sql, "RF003", says).await;
        }
        let good = format!("BEGIN; SELECT ringfence.admit('a', 9); {above}; {inside}; COMMIT");
        client.batch_execute(&good).await.unwrap();
        let rows = ask(client, "SELECT count(*) FROM balance").await;
        assert_eq!(rows.as_deref(), Ok("3"));
    });
}

/// As in a column of its own.
#[test]
fn a_name_of_any_collation_is_one_of_a_lease() {
    installed("collations", async |database| {
        let client = &database.connect().await;
        for collation in ["\"C\"", "\"POSIX\"", "\"default\"", "\"ucs_basic\""] {
            for call in [
                "admit(lease, 9)",
                "advance(lease, 9)",
                "advance_to(lease, 9)",
                "token(lease, lease || '#9')",
            ] {
                let sql = format!(
                    "SELECT ringfence.{call} FROM (SELECT 'a' COLLATE {collation} AS lease) AS jobs"
                );
                assert_eq!(ask(client, &sql).await.as_deref(), Ok("9"), "{sql}");
            }
        }
    });
}

/// Without the key a lease has several marks, and any of them is compared.
#[test]
fn a_table_of_marks_of_another_shape_is_refused_in_postgres() {
    run_to_end(async {
        let Some(database) = Database::create("shapes").await else {
            return;
        };
        let client = &database.connect().await;
        for columns in [
            "name text, mark bigint NOT NULL",
            "name text, mark bigint, PRIMARY KEY (name, mark)",
            "name text PRIMARY KEY, mark text NOT NULL",
            "name text PRIMARY KEY, mark bigint",
            "id bigint PRIMARY KEY",
            "name text PRIMARY KEY, mark bigint NOT NULL); ALTER TABLE ringfence.marks SET UNLOGGED; --",
            "name text PRIMARY KEY, mark bigint NOT NULL); ALTER TABLE ringfence.marks
                ENABLE ROW LEVEL SECURITY; --",
            "name text PRIMARY KEY, mark bigint NOT NULL) PARTITION BY HASH (name); --",
        ] {
            let create = format!(
                "CREATE SCHEMA IF NOT EXISTS ringfence; DROP TABLE IF EXISTS ringfence.marks;
                 CREATE TABLE ringfence.marks ({columns})"
            );
            client.batch_execute(&create).await.unwrap();
            let error = PostgresGuard::install(client).await.unwrap_err();
            let said = format!("{error:?}");
            assert!(said.contains("WRONG_SHAPE"), "{columns}: {said}");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        let away = "DROP TABLE ringfence.marks";
        client.batch_execute(away).await.unwrap();
        PostgresGuard::install(client).await.unwrap();
        PostgresGuard::install(client).await.unwrap();
    });
}
