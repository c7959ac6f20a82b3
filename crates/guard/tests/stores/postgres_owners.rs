//! The migration takes nothing that another role has made: its owner could change it later.

use ringfence_guard::postgres::PostgresGuard;
use tokio_postgres::Client;

use crate::postgres_rules::{Database, guard, installed};
use crate::postgres_schema::EARLIER;
use crate::postgres_sql::{ask, refused};
use crate::{fence, run_to_end};

/// A role with a schema of its own, and nothing else.
const SQUATTER: &str = "
    DO $$ BEGIN CREATE ROLE squatter; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
    CREATE SCHEMA squat AUTHORIZATION squatter";

const ADMIT: &str =
    "(resource text, token numeric) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'";
const MARKS: &str = "(name text COLLATE \"C\" PRIMARY KEY, mark bigint NOT NULL)";

async fn not_owned(client: &Client, says: &str) {
    let error = PostgresGuard::install(client).await.unwrap_err();
    let said = format!("{error:?}");
    assert!(
        said.contains("NOT_OWNED") && said.contains(says),
        "{says}: {said}"
    );
    assert!(said.contains("42501"), "{said}");
}

async fn run(client: &Client, script: &str) {
    client.batch_execute(script).await.unwrap();
}

#[test]
fn what_another_role_has_made_before_is_refused_and_left_where_it_is() {
    run_to_end(async {
        let Some(database) = Database::create("squatted").await else {
            return;
        };
        let client = &database.connect().await;
        run(client, SQUATTER).await;
        let lent = |made: &str| {
            format!(
                "CREATE SCHEMA ringfence; GRANT USAGE, CREATE ON SCHEMA ringfence TO squatter;
                 SET ROLE squatter; {made}; RESET ROLE; REVOKE CREATE ON SCHEMA ringfence FROM squatter"
            )
        };
        let own = |made: &str| format!("SET ROLE squatter; {made}; RESET ROLE");
        for (made, says) in [
            (
                own(&format!("CREATE FUNCTION squat.ringfence_admit{ADMIT}")),
                "function squat.ringfence_admit(text,numeric) belongs to role \\\"squatter\\\"",
            ),
            (
                own(&format!("CREATE TABLE squat.ringfence_marks {MARKS}")),
                "table squat.ringfence_marks belongs to role \\\"squatter\\\"",
            ),
            (
                "CREATE SCHEMA ringfence AUTHORIZATION squatter".to_owned(),
                "schema ringfence belongs to role \\\"squatter\\\"; expected role \\\"postgres\\\"",
            ),
            (
                lent(&format!("CREATE FUNCTION ringfence.admit{ADMIT}")),
                "function ringfence.admit(text,numeric) belongs to role \\\"squatter\\\"",
            ),
            (
                lent(&format!("CREATE TABLE ringfence.marks {MARKS}")),
                "ringfence.marks",
            ),
            (
                lent("CREATE VIEW ringfence.more AS SELECT 1"),
                "ringfence.more belongs to role \\\"squatter\\\"",
            ),
            (
                "CREATE SCHEMA ringfence; GRANT CREATE ON SCHEMA ringfence TO PUBLIC".to_owned(),
                "PUBLIC may create in schema ringfence",
            ),
            (
                "CREATE SCHEMA ringfence; GRANT CREATE ON SCHEMA ringfence TO squatter".to_owned(),
                "role \\\"squatter\\\" may create in schema ringfence",
            ),
        ] {
            run(client, &made).await;
            not_owned(client, says).await;
            let state =
                "SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace('ringfence')
                AND proname <> 'admit'";
            assert_eq!(ask(client, state).await.as_deref(), Ok("0"), "{made}");
            let away = "DROP SCHEMA IF EXISTS ringfence CASCADE;
                DROP FUNCTION IF EXISTS squat.ringfence_admit; DROP TABLE IF EXISTS squat.ringfence_marks";
            run(client, away).await;
        }
        PostgresGuard::install(client).await.unwrap();
    });
}

/// Otherwise any role could keep the services out.
#[test]
fn what_another_role_makes_later_or_beside_the_own_marks_counts_for_nothing() {
    run_to_end(async {
        let Some(database) = Database::create("beside").await else {
            return;
        };
        let client = &mut database.connect().await;
        let foreign = format!(
            "SET ROLE squatter; CREATE FUNCTION squat.ringfence_admit{ADMIT};
             CREATE TABLE squat.ringfence_marks {MARKS}; RESET ROLE"
        );
        run(client, &[SQUATTER, ";", EARLIER, ";", &foreign].concat()).await;
        run(client, "SELECT ringfence_admit('a', 9)").await;
        for _ in 0..2 {
            PostgresGuard::install(client).await.unwrap();
            let mark = ask(client, "SELECT mark FROM ringfence.marks").await;
            assert_eq!(mark.as_deref(), Ok("9"));
        }
        let error = guard().advance(client, &fence("a#8")).await.unwrap_err();
        assert!(error.refused().is_some(), "{error:?}");
        let left = "SELECT count(*) FROM pg_class WHERE oid = to_regclass('squat.ringfence_marks')";
        assert_eq!(ask(client, left).await.as_deref(), Ok("1"));
    });
}

#[test]
fn a_role_that_is_no_superuser_installs_again_what_it_has_made() {
    run_to_end(async {
        let Some(database) = Database::create("deployed").await else {
            return;
        };
        let client = &database.connect().await;
        let role = "DO $$ BEGIN IF to_regrole('deployer') IS NULL THEN CREATE ROLE deployer; END IF; END $$;
            GRANT CREATE ON DATABASE deployed TO deployer; SET ROLE deployer";
        run(client, role).await;
        for _ in 0..2 {
            PostgresGuard::install(client).await.unwrap();
        }
        run(client, "RESET ROLE").await;
        not_owned(client, "schema ringfence belongs to role \\\"deployer\\\"").await;
        run(client, "SET ROLE deployer").await;
        PostgresGuard::install(client).await.unwrap();
        // As a superuser could have done it for this role.
        run(
            client,
            "RESET ROLE; ALTER SCHEMA ringfence OWNER TO postgres",
        )
        .await;
        not_owned(client, "ringfence.marks").await;
    });
}

/// A trigger of that name is not enough.
#[test]
fn triggers_that_do_not_hold_the_marks_are_replaced() {
    installed("triggers", async |database| {
        let client = &mut database.connect().await;
        guard().advance(client, &fence("a#9")).await.unwrap();
        let lower = "UPDATE ringfence.marks SET mark = 8";
        for weaker in [
            "DROP TRIGGER ringfence_marks_only_grow ON ringfence.marks;
             CREATE TRIGGER ringfence_marks_only_grow BEFORE UPDATE ON ringfence.marks
                 FOR EACH ROW WHEN (NEW.mark < OLD.mark AND false) EXECUTE FUNCTION ringfence.mark_stays()",
            "DROP TRIGGER ringfence_marks_only_grow ON ringfence.marks",
            "ALTER TABLE ringfence.marks DISABLE TRIGGER ALL",
            // As an earlier release has made them.
            "ALTER TABLE ringfence.marks ENABLE TRIGGER ALL",
            "CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
             DROP TRIGGER ringfence_marks_only_grow ON ringfence.marks;
             CREATE TRIGGER ringfence_marks_only_grow BEFORE UPDATE ON ringfence.marks
                 FOR EACH ROW WHEN (NEW.mark < OLD.mark OR NEW.name <> OLD.name)
                 EXECUTE FUNCTION public.nothing()",
        ] {
            run(client, weaker).await;
            PostgresGuard::install(client).await.unwrap();
            refused(client, lower, "RF005", "MARK_STAYS").await;
            // As what applies a replicated change does, which fires the triggers that fire always.
            let applied = format!("SET session_replication_role = replica; {lower}");
            refused(client, &applied, "RF005", "MARK_STAYS").await;
            run(client, "RESET session_replication_role").await;
        }
        // Those that hold are left alone: to replace them takes a lock that waits for every writer.
        let triggers = "SELECT string_agg(oid::text, ' ') FROM pg_trigger
            WHERE tgrelid = 'ringfence.marks'::regclass";
        let before = ask(client, triggers).await;
        PostgresGuard::install(client).await.unwrap();
        assert_eq!(ask(client, triggers).await, before);
    });
}

/// It keeps the mark as it was, or the row away, so that every token would be admitted.
#[test]
fn a_trigger_that_keeps_the_mark_admits_nothing() {
    installed("keeping", async |database| {
        let client = &mut database.connect().await;
        guard().advance(client, &fence("a#8")).await.unwrap();
        for (body, event) in [
            ("NEW.mark := OLD.mark; RETURN NEW", "UPDATE"),
            ("RETURN NULL", "UPDATE"),
            ("RETURN NULL", "INSERT OR UPDATE"),
        ] {
            let keeps = format!(
                "CREATE OR REPLACE FUNCTION public.keeps() RETURNS trigger LANGUAGE plpgsql
                     AS 'BEGIN {body}; END';
                 CREATE TRIGGER keeps BEFORE {event} ON ringfence.marks FOR EACH ROW
                     EXECUTE FUNCTION public.keeps()"
            );
            run(client, &keeps).await;
            for token in [9, 8] {
                let shown = fence(&format!("a#{token}"));
                let wrote = guard().advance(client, &shown).await;
                // An equal mark is there, if it was written.
                let kept = token == 9 || body == "RETURN NULL";
                assert_eq!(wrote.is_err(), kept, "{body}: {token}: {wrote:?}");
            }
            let says = "another trigger of ringfence.marks keeps the mark";
            refused(client, "SELECT ringfence.admit('a', 9)", "RF005", says).await;
            if event != "UPDATE" {
                refused(client, "SELECT ringfence.admit('b', 9)", "RF005", says).await;
            }
            run(client, "DROP TRIGGER keeps ON ringfence.marks").await;
        }
        let other =
            "DO $$ BEGIN IF to_regrole('keeper') IS NULL THEN CREATE ROLE keeper; END IF; END $$;
            ALTER FUNCTION public.keeps() OWNER TO keeper;
            CREATE TRIGGER keeps BEFORE UPDATE ON ringfence.marks FOR EACH ROW
                EXECUTE FUNCTION public.keeps()";
        run(client, other).await;
        not_owned(
            client,
            "trigger keeps of ringfence.marks belongs to role \\\"keeper\\\"",
        )
        .await;
    });
}

/// Each has the snapshot of its beginning.
#[test]
fn services_whose_transactions_are_repeatable_read_install_together() {
    run_to_end(async {
        let Some(database) = Database::create("repeatable").await else {
            return;
        };
        let client = &database.connect().await;
        for level in ["repeatable read", "serializable"] {
            run(client, "DROP SCHEMA IF EXISTS ringfence CASCADE").await;
            let set =
                format!("ALTER DATABASE repeatable SET default_transaction_isolation = '{level}'");
            run(client, &set).await;
            let mut installing = tokio::task::JoinSet::new();
            for _ in 0..6 {
                let client = database.connect().await;
                installing.spawn(async move { PostgresGuard::install(&client).await });
            }
            for done in installing.join_all().await {
                done.unwrap();
            }
        }
    });
}
