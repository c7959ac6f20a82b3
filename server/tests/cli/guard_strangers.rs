//! `ringfence guard postgres` in a database in which other roles may create, and of a server in another
//! language.

use crate::databases::Disk;
use crate::databases::postgres::Postgres;
use crate::guard::{ADD, Database, OfPostgres, ended, guard};
use crate::guard_hostile::advanced_postgres;
use crate::harness::{Said, await_that};

/// As the user has a schema of its own name, which comes first in its search path.
#[test]
fn a_users_own_schema_and_a_temporary_table_hide_no_marks_from_the_command() {
    let Some(database) = advanced_postgres() else {
        return;
    };
    database.ask("CREATE SCHEMA postgres; CREATE TABLE postgres.marks (LIKE ringfence.marks)");
    let stale = guard(&database, &["--fence", "a#8"], ADD);
    assert_eq!(stale.code, Some(76), "{stale:?}");
    let hides = format!("CREATE TEMP TABLE marks (LIKE ringfence.marks); {ADD}");
    ended(&guard(&database, &["--fence", "a#9"], &hides), 0, "");
    let stale = guard(&database, &["--fence", "a#8"], ADD);
    assert_eq!(stale.code, Some(76), "{stale:?}");
    assert_eq!(database.ask("SELECT amount FROM balance"), "110");
}

const TRAPS: &str = include_str!("../../../crates/guard/tests/servers/traps.sql");

/// In PostgreSQL 12 to 14 each role may create in `public`, which is in the search path of all.
#[test]
fn no_function_in_the_search_path_is_called_by_the_command() {
    let Some(server) = Postgres::start(Disk::Memory) else {
        return;
    };
    let database = OfPostgres(server);
    database.ask("CREATE TABLE balance (amount bigint); INSERT INTO balance VALUES (100)");
    let sources = [
        include_str!("../../src/cli/guard/postgres.rs"),
        ringfence_guard::sql::POSTGRES_MIGRATION,
    ];
    let text = format!(
        "SELECT pg_catalog.set_config('trap.text', $all$ {} $all$, false);\n",
        sources.join(" ")
    );
    database.ask(&(text + TRAPS));
    // Its search path has the traps first. The script is the user's own.
    let script = "UPDATE public.balance SET amount = 110 WHERE amount OPERATOR(pg_catalog.=) 100";
    for (options, code) in [
        (&["--install"][..], 0),
        (&["--install"], 0),
        (&["--fence", "a#9", "--advance"], 0),
        (&["--fence", "a#9"], 0),
        (&["--fence", "a#8"], 76),
    ] {
        let said = guard(&database, options, script);
        assert_eq!(said.code, Some(code), "{options:?}: {said:?}");
    }
    let own = "SET search_path = pg_catalog;";
    let sprung = database.ask(&format!("{own} SELECT is_called FROM trap.sprung"));
    assert_eq!(sprung, "f");
    let amount = database.ask(&format!("{own} SELECT amount FROM public.balance"));
    assert_eq!(amount, "110");
    let springs = database
        .psql("SELECT concat_ws(' ', 'a'::pg_catalog.name)")
        .output();
    let springs: Said = springs.unwrap().into();
    assert!(
        springs.err.contains("TRAP: "),
        "the traps do nothing: {springs:?}"
    );
}

/// A role that may only connect has temporary objects, and perhaps a schema of its own.
#[test]
fn objects_of_other_roles_keep_no_command_from_the_marks() {
    let Some(database) = advanced_postgres() else {
        return;
    };
    database.ask("CREATE ROLE other LOGIN; CREATE SCHEMA other AUTHORIZATION other");
    let function = "ringfence_admit() RETURNS int LANGUAGE sql AS 'SELECT 1'";
    let made = format!(
        "SET ROLE other; CREATE FUNCTION pg_temp.{function}; CREATE FUNCTION other.{function};
         CREATE VIEW other.ringfence_marks AS SELECT 1; SET search_path = other;
         SELECT pg_advisory_lock(8244241983257013859); SELECT pg_sleep(60)"
    );
    let mut holder = database.psql(&made).spawn().unwrap();
    let sleeps = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    await_that("the other role has its objects", || {
        database.ask(&format!("SELECT count(*) {sleeps}")) == "1"
    });
    let timeout = ["--fence", "a#9", "--timeout", "2s"];
    let said = guard(&database, &timeout, ADD);
    let stale = guard(&database, &["--fence", "a#8"], ADD);
    database.ask(&format!("SELECT pg_terminate_backend(pid) {sleeps}"));
    holder.wait().unwrap();
    ended(&said, 0, "");
    assert_eq!(stale.code, Some(76), "{stale:?}");
}

/// What its owner can change later is no mark.
#[test]
fn marks_that_another_role_has_made_are_refused_by_the_command() {
    let Some(server) = Postgres::start(Disk::Memory) else {
        return;
    };
    let database = OfPostgres(server);
    database.ask("CREATE ROLE other LOGIN; CREATE SCHEMA other AUTHORIZATION other");
    let table = "name text PRIMARY KEY, mark bigint NOT NULL";
    database.ask(&format!(
        "SET ROLE other; CREATE TABLE other.ringfence_marks ({table})"
    ));
    let said = guard(&database, &["--install"], "");
    ended(
        &said,
        77,
        "NOT_OWNED: table other.ringfence_marks belongs to role \"other\"",
    );
    assert_eq!(
        guard(&database, &["--install", "--json"], "").error()["reason"],
        "NOT_OWNED"
    );
    database.ask("DROP TABLE other.ringfence_marks");
    ended(&guard(&database, &["--install"], ""), 0, "");
}

/// A server in which `other` has made functions of the guard first. They would make it a superuser, and admit
/// any token.
fn squatted(made: &str) -> Option<OfPostgres> {
    let database = OfPostgres(Postgres::start(Disk::Memory)?);
    database.ask(
        "CREATE TABLE balance (amount bigint); INSERT INTO balance VALUES (100);
         CREATE ROLE other LOGIN; GRANT CREATE ON DATABASE postgres TO other",
    );
    database.ask(made);
    Some(database)
}

const TAKES_OVER: &str = "FUNCTION ringfence.admit(resource text, token numeric) RETURNS bigint
    LANGUAGE plpgsql AS 'BEGIN ALTER ROLE other SUPERUSER; RETURN 1; END'";

#[test]
fn functions_that_another_role_has_made_first_are_called_by_no_command() {
    let Some(database) = squatted(&format!(
        "SET ROLE other; CREATE SCHEMA ringfence; GRANT USAGE ON SCHEMA ringfence TO PUBLIC;
         CREATE TABLE ringfence.marks (name text PRIMARY KEY, mark bigint NOT NULL);
         GRANT ALL ON ringfence.marks TO PUBLIC; CREATE {TAKES_OVER}"
    )) else {
        return;
    };
    for options in [
        &["--install"][..],
        &["--fence", "a#9", "--advance"],
        &["--fence", "a#9"],
    ] {
        let said = guard(&database, options, ADD);
        ended(&said, 77, "schema ringfence belongs to role \"other\"");
    }
    let taken =
        "SELECT rolsuper, (SELECT amount FROM balance) FROM pg_roles WHERE rolname = 'other'";
    assert_eq!(database.ask(taken), "f|100");
}

/// The marks are good ones; what runs with the caller's rights in front of them, or may be made later, is not.
#[test]
fn what_another_role_has_added_to_good_marks_is_refused_by_each_command() {
    let Some(database) = squatted("SELECT 1") else {
        return;
    };
    ended(&guard(&database, &["--fence", "a#9"], ADD), 0, "");
    for (made, says, away) in [
        (
            "GRANT CREATE ON SCHEMA ringfence TO other".to_owned(),
            "the right to create in schema ringfence belongs to role \"other\"",
            "REVOKE CREATE ON SCHEMA ringfence FROM other",
        ),
        (
            "GRANT CREATE ON SCHEMA ringfence TO PUBLIC".to_owned(),
            "belongs to PUBLIC",
            "REVOKE CREATE ON SCHEMA ringfence FROM PUBLIC",
        ),
        (
            format!(
                "CREATE OR REPLACE {TAKES_OVER}; ALTER FUNCTION ringfence.admit OWNER TO other"
            ),
            "function ringfence.admit(text,numeric) belongs to role \"other\"",
            "ALTER FUNCTION ringfence.admit OWNER TO postgres",
        ),
    ] {
        database.ask(&made);
        for options in [&["--install"][..], &["--fence", "a#9"]] {
            let said = guard(&database, options, ADD);
            assert_eq!(said.code, Some(77), "{made}: {options:?}: {said:?}");
        }
        ended(&guard(&database, &["--fence", "a#9"], ADD), 77, says);
        database.ask(away);
    }
    // It runs the migration, also where the function is there.
    ended(&guard(&database, &["--install"], ""), 0, "");
    let stale = guard(&database, &["--fence", "a#8"], ADD);
    assert_eq!(stale.code, Some(76), "{stale:?}");
    assert_eq!(database.ask("SELECT amount FROM balance"), "110");
}

/// As a deployer makes the marks, and services with other roles write.
#[test]
fn marks_of_a_role_that_is_trusted_are_used_by_the_command() {
    let Some(server) = Postgres::start(Disk::Memory) else {
        return;
    };
    let database = OfPostgres(server);
    database.ask(
        "CREATE ROLE deployer; CREATE ROLE service LOGIN; ALTER DATABASE postgres OWNER TO deployer",
    );
    let migration = ringfence_guard::sql::POSTGRES_MIGRATION;
    database.ask(&format!("SET ROLE deployer; {migration}"));
    database.ask(
        "CREATE TABLE balance (amount bigint); INSERT INTO balance VALUES (100);
         GRANT ALL ON balance TO service; GRANT SELECT, INSERT, UPDATE ON ringfence.marks TO service",
    );
    let service = AsRole(&database, "service");
    ended(&guard(&service, &["--fence", "a#9"], ADD), 0, "");
    // A superuser has more to lose than the owner of the database has.
    let owned = "schema ringfence belongs to role \"deployer\"";
    ended(&guard(&database, &["--fence", "a#9"], ADD), 77, owned);
    let named = ["--fence", "a#9", "--owner", "deployer"];
    ended(&guard(&database, &named, ADD), 0, "");
    database.ask("ALTER DATABASE postgres OWNER TO postgres");
    ended(&guard(&service, &["--fence", "a#9"], ADD), 77, owned);
    ended(&guard(&service, &named, ADD), 0, "");
    let stranger = ["--fence", "a#9", "--owner", "x' OR true --"];
    ended(&guard(&service, &stranger, ADD), 77, owned);
    assert_eq!(database.ask("SELECT amount FROM balance"), "130");
}

/// The same database, as another role meets it.
struct AsRole<'a>(&'a OfPostgres, &'static str);

impl Database for AsRole<'_> {
    fn arguments(&self) -> (Vec<String>, Vec<String>) {
        let uri = self.0.uri().replace("postgres@", &format!("{}@", self.1));
        (vec!["postgres".to_owned(), uri], Vec::new())
    }

    fn ask(&self, sql: &str) -> String {
        self.0.ask(sql)
    }

    fn held(&self, work: &mut dyn FnMut()) {
        self.0.held(work);
    }

    fn ends(&self) -> &'static [&'static str] {
        self.0.ends()
    }
}

/// psql shows the server's word for ERROR as the server says it.
#[test]
fn errors_are_understood_by_their_state_and_not_by_their_words() {
    let Some(database) = advanced_postgres() else {
        return;
    };
    database.ask("CREATE TABLE late (value int UNIQUE DEFERRABLE INITIALLY DEFERRED)");
    // The server's own words, which a server in another language has not.
    let warns = "DO $$ BEGIN RAISE WARNING 'ERROR:  RF001: STALE_TOKEN: no' ; END $$";
    for (script, code, says) in [
        (
            "UPDATE nosuch SET a = 1",
            1,
            "relation \"nosuch\" does not exist",
        ),
        ("COMMIT", 1, "ends its own transaction"),
        (
            "INSERT INTO late VALUES (1), (1)",
            1,
            "nothing of it was written: duplicate key",
        ),
        (
            &format!("SET client_min_messages = warning; {warns}; SELECT 1 / 0"),
            1,
            "division by zero",
        ),
        (
            "SELECT pg_terminate_backend(pg_backend_pid())",
            1,
            "nothing of it was written",
        ),
    ] {
        let said = guard(&database, &["--fence", "a#9"], script);
        ended(&said, code, says);
    }
}
