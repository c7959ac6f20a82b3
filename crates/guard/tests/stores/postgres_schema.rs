//! Which marks a session in PostgreSQL gets: those of the schema `ringfence`, whatever its names mean.

use ringfence_guard::postgres::{PostgresError, PostgresGuard};
use tokio_postgres::Client;

use crate::postgres_rules::{Database, guard, installed};
use crate::postgres_sql::{ask, refused};
use crate::{fence, run_to_end};

/// A temporary table of marks as each release has called it.
const TEMPORARY: &str = "CREATE TEMP TABLE marks (name text PRIMARY KEY, mark bigint NOT NULL);
    CREATE TEMP TABLE ringfence_marks (name text PRIMARY KEY, mark bigint NOT NULL)";

/// What an earlier release has made in the first schema of the search path, as far as it matters.
pub(crate) const EARLIER: &str = "
    CREATE TABLE ringfence_marks (name text COLLATE \"C\" PRIMARY KEY, mark bigint NOT NULL);
    CREATE FUNCTION ringfence_mark_stays() RETURNS trigger LANGUAGE plpgsql
        AS 'BEGIN RAISE EXCEPTION ''MARK_STAYS''; END';
    CREATE TRIGGER ringfence_marks_only_grow BEFORE UPDATE ON ringfence_marks
        FOR EACH ROW WHEN (NEW.mark < OLD.mark OR NEW.name <> OLD.name)
        EXECUTE FUNCTION ringfence_mark_stays();
    CREATE TRIGGER ringfence_marks_stay BEFORE DELETE ON ringfence_marks
        FOR EACH ROW EXECUTE FUNCTION ringfence_mark_stays();
    CREATE TRIGGER ringfence_marks_stay_all BEFORE TRUNCATE ON ringfence_marks
        FOR EACH STATEMENT EXECUTE FUNCTION ringfence_mark_stays();
    CREATE FUNCTION ringfence_raise(lease text, offered bigint) RETURNS bigint LANGUAGE sql AS
        'INSERT INTO ringfence_marks VALUES (lease, offered) RETURNING mark';
    CREATE FUNCTION ringfence_admit(resource text, token numeric) RETURNS bigint LANGUAGE sql
        SET search_path FROM CURRENT AS 'SELECT ringfence_raise(resource, token::bigint)';
    CREATE FUNCTION ringfence_guarded() RETURNS trigger LANGUAGE plpgsql
        SET search_path FROM CURRENT AS
        'BEGIN PERFORM FROM ringfence_marks WHERE xmin::text::bigint = txid_current() % 4294967296;
         IF NOT FOUND THEN RAISE EXCEPTION ''MISSING_FENCE''; END IF; RETURN NULL; END';";

async fn marks(client: &Client) -> String {
    let all = "SELECT string_agg(name || '#' || mark, ' ' ORDER BY name) FROM ringfence.marks";
    ask(client, all).await.unwrap()
}

/// The whole file, whatever it comes to contain.
#[test]
fn each_function_of_the_migration_has_a_search_path_of_its_own() {
    installed("own_paths", async |database| {
        let client = &database.connect().await;
        let without = "SELECT string_agg(proname, ' ') FROM pg_proc
            WHERE pronamespace = 'ringfence'::regnamespace
                AND NOT coalesce(proconfig @> '{\"search_path=pg_catalog, pg_temp\"}', false)";
        assert_eq!(ask(client, without).await.as_deref(), Ok(""));
        let outside = "SELECT count(*) FROM pg_class WHERE relname LIKE 'ringfence%'";
        assert_eq!(ask(client, outside).await.as_deref(), Ok("0"));
    });
}

/// `pg_temp` comes first in every search path that does not name it.
#[test]
fn no_search_path_and_no_temporary_table_leads_to_other_marks() {
    installed("hidden", async |database| {
        let client = &mut database.connect().await;
        let (bound, old, new) = (guard(), fence("a#8"), fence("a#9"));
        bound.advance(client, &new).await.unwrap();
        let user =
            "CREATE SCHEMA postgres; CREATE SCHEMA other; CREATE TABLE public.kept (value bigint);
            CREATE TRIGGER guarded BEFORE INSERT ON public.kept
                FOR EACH STATEMENT EXECUTE FUNCTION ringfence.guarded('a')";
        client.batch_execute(user).await.unwrap();
        client.batch_execute(TEMPORARY).await.unwrap();
        for path in [
            "pg_temp, public",
            "other, public",
            "pg_catalog",
            "\"$user\", public",
        ] {
            let set = format!("SET search_path = {path}");
            client.batch_execute(&set).await.unwrap();
            let stale = bound.begin(client, &old).await.unwrap_err();
            assert!(stale.refused().is_some(), "{path}: {stale:?}");
            for function in ["admit", "advance"] {
                let call = format!("SELECT ringfence.{function}('a', 8)");
                refused(client, &call, "RF001", "STALE_TOKEN").await;
            }
            assert_eq!(bound.mark(client).await.unwrap(), Some(new.token), "{path}");
            // The trigger looks at the same marks.
            let faked = "BEGIN; INSERT INTO pg_temp.marks VALUES ('a', 9) ON CONFLICT DO NOTHING;
                 INSERT INTO pg_temp.ringfence_marks VALUES ('a', 9) ON CONFLICT DO NOTHING;
                 INSERT INTO public.kept VALUES (1)";
            refused(client, faked, "RF003", "has not admitted").await;
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        assert_eq!(marks(client).await, "a#9");
        // What was raised under such names is raised for all.
        bound.advance(client, &fence("a#10")).await.unwrap();
        let other = &database.connect().await;
        assert_eq!(marks(other).await, "a#10");
    });
}

/// The ceiling is judged before the transaction, by a look at the mark.
#[test]
fn the_ceiling_looks_at_the_same_marks() {
    installed("ceilings", async |database| {
        let client = &mut database.connect().await;
        client.batch_execute(TEMPORARY).await.unwrap();
        let far = 1_u64 << 62;
        let fake = format!(
            "INSERT INTO marks VALUES ('a', {far}); INSERT INTO ringfence_marks VALUES ('a', {far})"
        );
        client.batch_execute(&fake).await.unwrap();
        let high = fence(&format!("a#{far}"));
        let error = guard().advance(client, &high).await.unwrap_err();
        let reason = error.refused().map(|refused| refused.reason());
        assert_eq!(reason, Some("TOKEN_TOO_HIGH"), "{error:?}");
        let call = format!("SELECT ringfence.admit('a', {far})");
        refused(client, &call, "RF006", "TOKEN_TOO_HIGH").await;
        assert_eq!(marks(client).await, "");
    });
}

/// A schema that a role may not use is passed over in a search path: the next table of that name counts.
#[test]
fn a_role_that_may_not_reach_the_marks_is_refused_and_admits_nothing() {
    installed("strangers", async |database| {
        let client = &mut database.connect().await;
        guard().advance(client, &fence("a#9")).await.unwrap();
        let role = "DO $$ BEGIN IF to_regrole('stranger') IS NULL THEN CREATE ROLE stranger; END IF; END $$;
            REVOKE USAGE ON SCHEMA ringfence FROM PUBLIC; SET ROLE stranger";
        client.batch_execute(role).await.unwrap();
        client.batch_execute(TEMPORARY).await.unwrap();
        for stale in ["a#8", "a#9"] {
            let error = guard().begin(client, &fence(stale)).await.unwrap_err();
            assert!(matches!(error, PostgresError::Database { .. }), "{error:?}");
            let error = guard()
                .pooled()
                .begin(client, &fence(stale))
                .await
                .unwrap_err();
            assert!(matches!(error, PostgresError::Database { .. }), "{error:?}");
            let error = guard().advance(client, &fence(stale)).await.unwrap_err();
            assert!(matches!(error, PostgresError::Database { .. }), "{error:?}");
        }
        let error = guard().mark(client).await.unwrap_err();
        assert!(matches!(error, PostgresError::Database { .. }), "{error:?}");
        refused(
            client,
            "SELECT ringfence.admit('a', 8)",
            "42501",
            "permission denied",
        )
        .await;
    });
}

/// It has the names of its owner, and the marks of all.
#[test]
fn a_function_with_its_owners_rights_admits_by_the_same_marks() {
    installed("definers", async |database| {
        let client = &mut database.connect().await;
        guard().advance(client, &fence("a#9")).await.unwrap();
        client.batch_execute(TEMPORARY).await.unwrap();
        let function =
            "CREATE FUNCTION pay(token bigint) RETURNS bigint LANGUAGE sql SECURITY DEFINER
            SET search_path = pg_temp, public AS 'SELECT ringfence.admit(''a'', token)'";
        client.batch_execute(function).await.unwrap();
        refused(client, "SELECT pay(8)", "RF001", "STALE_TOKEN").await;
        assert_eq!(ask(client, "SELECT pay(10)").await.as_deref(), Ok("10"));
        assert_eq!(marks(client).await, "a#10");
    });
}

/// A migration is run by roles with search paths of their own.
#[test]
fn installing_again_from_another_search_path_makes_no_other_marks() {
    installed("again", async |database| {
        let client = &mut database.connect().await;
        guard().advance(client, &fence("a#9")).await.unwrap();
        let other = "CREATE SCHEMA other; SET search_path = other, pg_temp";
        client.batch_execute(other).await.unwrap();
        client.batch_execute(TEMPORARY).await.unwrap();
        PostgresGuard::install(client).await.unwrap();
        assert_eq!(marks(client).await, "a#9");
        let made = "SELECT count(*) FROM pg_class WHERE relnamespace = 'other'::regnamespace";
        assert_eq!(ask(client, made).await.as_deref(), Ok("0"));
    });
}

#[test]
fn the_marks_of_an_earlier_release_are_moved_with_its_functions_and_triggers() {
    run_to_end(async {
        let Some(database) = Database::create("earlier").await else {
            return;
        };
        let client = &mut database.connect().await;
        client.batch_execute(EARLIER).await.unwrap();
        let used = "SELECT ringfence_admit('a', 9); CREATE TABLE balance (amount bigint);
            CREATE TRIGGER guarded BEFORE INSERT ON balance
                FOR EACH STATEMENT EXECUTE FUNCTION ringfence_guarded('a')";
        client.batch_execute(used).await.unwrap();
        PostgresGuard::install(client).await.unwrap();
        PostgresGuard::install(client).await.unwrap();
        assert_eq!(marks(client).await, "a#9");
        // A service of that release fails.
        refused(
            client,
            "SELECT ringfence_admit('a', 8)",
            "42883",
            "ringfence_admit",
        )
        .await;
        refused(
            client,
            "INSERT INTO balance VALUES (1)",
            "RF003",
            "has not admitted",
        )
        .await;
        let error = guard().begin(client, &fence("a#8")).await.unwrap_err();
        assert!(error.refused().is_some(), "{error:?}");
        let written = guard();
        let shown = fence("a#9");
        let written = written.write(client, &shown, async |client| {
            client
                .batch_execute("INSERT INTO balance VALUES (1)")
                .await?;
            Ok::<_, PostgresError>(())
        });
        written.await.unwrap();
        let lower = "UPDATE ringfence.marks SET mark = 8";
        refused(client, lower, "RF005", "MARK_STAYS").await;
    });
}

#[test]
fn a_second_table_of_marks_is_refused() {
    run_to_end(async {
        let Some(database) = Database::create("several").await else {
            return;
        };
        let client = &mut database.connect().await;
        let two = format!("{EARLIER}; CREATE SCHEMA other; SET search_path = other; {EARLIER}");
        client.batch_execute(&two).await.unwrap();
        let says = "schema other, schema public";
        refused_to_install(client, says).await;
        // Functions alone would admit in a temporary table.
        client
            .batch_execute("DROP TABLE other.ringfence_marks")
            .await
            .unwrap();
        refused_to_install(client, says).await;
        client
            .batch_execute("DROP SCHEMA other CASCADE; RESET search_path")
            .await
            .unwrap();
        PostgresGuard::install(client).await.unwrap();
        client.batch_execute(EARLIER).await.unwrap();
        refused_to_install(client, "in schema public").await;
        assert_eq!(marks(client).await, "");
    });
}

async fn refused_to_install(client: &Client, says: &str) {
    let error = PostgresGuard::install(client).await.unwrap_err();
    let said = format!("{error:?}");
    assert!(
        said.contains("OTHER_MARKS") && said.contains(says),
        "{said}"
    );
    client.batch_execute("ROLLBACK").await.unwrap();
}
