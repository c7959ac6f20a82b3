//! Code that a stranger has put into the search path of a session never runs in the guard's statements.
//!
//! In PostgreSQL 12 to 14 each role may create in `public`. A function there is called in place of the
//! server's own if its arguments fit better, and with the rights of its caller.

use std::fs;
use std::path::Path;

use ringfence_guard::postgres::{MIGRATION, PostgresError, PostgresGuard, PostgresSeal};
use ringfence_guard::{FencingToken, SealAnswer, Sealable as _, sql};
use tokio_postgres::{Client, NoTls};

use crate::postgres_rules::{Database, guard};
use crate::postgres_sql::{ask, refused};
use crate::{fence, run_to_end};

const TRAPS: &str = include_str!("../servers/traps.sql");

/// The migration, and the sources that statements of the guard are in.
fn all_sql() -> String {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = MIGRATION.to_owned();
    for file in fs::read_dir(sources.join("postgres")).unwrap() {
        all += &fs::read_to_string(file.unwrap().path()).unwrap();
    }
    for file in ["postgres.rs", "sql.rs"] {
        all += &fs::read_to_string(sources.join(file)).unwrap();
    }
    all
}

/// A database in whose later sessions each name that is not qualified is a trap.
async fn trapped(name: &'static str, first: &str) -> Option<Database> {
    let database = Database::create(name).await?;
    let client = database.connect().await;
    client.batch_execute(first).await.unwrap();
    let text = format!(
        "SELECT pg_catalog.set_config('trap.text', $all$ {} $all$, false)",
        all_sql()
    );
    client.batch_execute(&text).await.unwrap();
    client.batch_execute(TRAPS).await.unwrap();
    Some(database)
}

/// What in the schema of the marks would go with the traps.
const MADE: &str = "SELECT concat_ws(' ',
    (SELECT string_agg(oid::regprocedure || ' ' || prorettype::regtype, ' ' ORDER BY oid) FROM pg_proc
        WHERE pronamespace = 'ringfence'::regnamespace),
    (SELECT string_agg(pg_get_triggerdef(oid), ' ' ORDER BY oid) FROM pg_trigger
        WHERE tgrelid = 'ringfence.marks'::regclass),
    (SELECT string_agg(attname || ' ' || atttypid::regtype || ' ' || attcollation, ' ' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = 'ringfence.marks'::regclass AND NOT attisdropped))";

/// Fails if a trap was called, or if anything that the guard made refers to one.
async fn none_was_sprung(database: &Database) {
    let client = &database.connect().await;
    let own = "SET search_path = pg_catalog";
    client.batch_execute(own).await.unwrap();
    let sprung = ask(client, "SELECT is_called FROM trap.sprung").await;
    assert_eq!(sprung.as_deref(), Ok("f"));
    let made = ask(client, MADE).await.unwrap();
    assert!(made.contains("ringfence.mark_stays()"), "{made}");
    let without = "DROP SCHEMA trap CASCADE";
    client.batch_execute(without).await.unwrap();
    assert_eq!(ask(client, MADE).await.unwrap(), made);
}

/// Each statement of the guard, those in which it refuses, too.
async fn use_guard(database: &Database, label: &'static str) {
    let client = &mut database.connect().await;
    let (bound, low, shown) = (guard(), fence("a#8"), fence("a#9"));
    bound.advance(client, &shown).await.unwrap();
    for bound in [bound.clone(), bound.clone().pooled()] {
        let wrote = bound.write(client, &shown, async |_| Ok::<_, PostgresError>(()));
        wrote.await.unwrap();
        let stale = bound.begin(client, &low).await.unwrap_err();
        assert!(stale.refused().is_some(), "{label}: {stale:?}");
        let failed = bound.write(client, &shown, async |client| {
            Ok::<_, PostgresError>(client.batch_execute("no statement").await?)
        });
        failed.await.unwrap_err();
    }
    let high = fence(&format!("a#{}", 1_u64 << 62));
    let error = bound.advance(client, &high).await.unwrap_err();
    assert!(error.refused().is_some(), "{label}: {error:?}");
    let floor = FencingToken::new(10).unwrap();
    bound.advance_to(client, floor).await.unwrap();
    assert_eq!(bound.mark(client).await.unwrap(), Some(floor), "{label}");
    for statement in [
        sql::POSTGRES_ADMIT,
        sql::POSTGRES_ADVANCE,
        sql::POSTGRES_ADVANCE_TO,
    ] {
        client.query(statement, &[&"a", &10_i64]).await.unwrap();
    }
    let guarded = "CREATE TABLE public.kept (value bigint);
        CREATE TRIGGER guarded BEFORE INSERT ON public.kept
            FOR EACH STATEMENT EXECUTE FUNCTION ringfence.guarded('a')";
    client.batch_execute(guarded).await.unwrap();
    let unguarded = "INSERT INTO public.kept VALUES (1)";
    refused(client, unguarded, "RF003", "has not admitted").await;
    let admitted = format!("BEGIN; SELECT ringfence.admit('a', 10); {unguarded}; COMMIT");
    client.batch_execute(&admitted).await.unwrap();
    let token = "SELECT ringfence.token('a', 'a#10')";
    assert_eq!(ask(client, token).await.as_deref(), Ok("10"));
    let lowered = "UPDATE ringfence.marks SET mark = 1";
    refused(client, lowered, "RF005", "MARK_STAYS").await;
}

async fn call_trap(client: &Client, statement: &str) {
    let (_, message) = ask(client, statement).await.unwrap_err();
    assert!(message.contains("TRAP: "), "{statement}: {message}");
}

/// Else the tests below show nothing.
#[test]
fn a_name_without_its_schema_springs_a_trap() {
    run_to_end(async {
        let Some(database) = trapped("traps", "").await else {
            return;
        };
        let client = &database.connect().await;
        for statement in [
            "SELECT format('%s', 'public'::pg_catalog.regnamespace)",
            "SELECT format('schema %I', 'a'::pg_catalog.name)",
            "SELECT to_regclass('a')",
            "SELECT current_setting('fsync')",
            "SELECT pg_advisory_xact_lock(8244241983257013859)",
            "SELECT count(*)",
            "SELECT pg_catalog.now() = pg_catalog.now()",
            "SELECT 'a'::text",
            "SELECT * FROM pg_class",
        ] {
            call_trap(client, statement).await;
        }
    });
}

#[test]
fn no_trap_in_the_search_path_is_called_by_the_migration_or_the_guard() {
    run_to_end(async {
        let Some(database) = trapped("trapped", "").await else {
            return;
        };
        for _ in 0..2 {
            let client = database.connect().await;
            PostgresGuard::install(&client).await.unwrap();
        }
        use_guard(&database, "new").await;
        let high = fence("a#11");
        let address = database.address();
        let seal = PostgresSeal::new("marks", guard(), move || {
            let address = address.clone();
            async move { tokio_postgres::connect(&address, NoTls).await }
        });
        let sealed = seal.seal(&high).await;
        assert!(
            matches!(&sealed, SealAnswer::NotDurable { why } if why.contains("fsync is off")),
            "{sealed:?}"
        );
        none_was_sprung(&database).await;
    });
}

#[test]
fn no_trap_is_called_where_the_marks_of_an_earlier_release_are_moved_or_refused() {
    run_to_end(async {
        let earlier = crate::postgres_schema::EARLIER;
        let Some(database) = trapped("trapped_earlier", earlier).await else {
            return;
        };
        let client = &database.connect().await;
        PostgresGuard::install(client).await.unwrap();
        use_guard(&database, "moved").await;
        let second = "CREATE TABLE public.ringfence_marks (name pg_catalog.text PRIMARY KEY)";
        client.batch_execute(second).await.unwrap();
        let error = PostgresGuard::install(client).await.unwrap_err();
        assert!(format!("{error:?}").contains("OTHER_MARKS"), "{error:?}");
        none_was_sprung(&database).await;
    });
}

/// A migration is often one of several in a transaction.
#[test]
fn the_migration_leaves_the_search_path_of_its_transaction_and_session_as_it_was() {
    run_to_end(async {
        let Some(database) = Database::create("paths").await else {
            return;
        };
        let client = &database.connect().await;
        let path = "SHOW search_path";
        for (set, inside, behind) in [
            ("SELECT 1", "\"$user\", public", "\"$user\", public"),
            (
                "SET search_path = public, pg_temp",
                "public, pg_temp",
                "public, pg_temp",
            ),
            (
                "SET LOCAL search_path = pg_temp",
                "pg_temp",
                "public, pg_temp",
            ),
            ("SET search_path = ''", "\"\"", "\"\""),
        ] {
            let begin = format!("BEGIN; {set}");
            client.batch_execute(&begin).await.unwrap();
            client.batch_execute(MIGRATION).await.unwrap();
            assert_eq!(ask(client, path).await.as_deref(), Ok(inside), "{set}");
            client.batch_execute("COMMIT").await.unwrap();
            assert_eq!(ask(client, path).await.as_deref(), Ok(behind), "{set}");
            // Alone, as a client sends each statement of a file.
            client.batch_execute(MIGRATION).await.unwrap();
            assert_eq!(ask(client, path).await.as_deref(), Ok(behind), "{set}");
        }
    });
}
