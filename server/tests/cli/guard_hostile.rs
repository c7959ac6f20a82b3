//! `ringfence guard` against scripts, options and servers that would take a write past its fence.

use std::fs;
use std::process::Child;
use std::thread;

use crate::databases::Disk;
use crate::databases::mysql::Mysql;
use crate::databases::postgres::Postgres;
use crate::guard::{ADD, Database, OfMysql, OfPostgres, ended, guard, spawned};
use crate::harness::{Said, await_that, ringfence};

/// A server with the table `balance`, in which token 9 of lease `a` was admitted.
fn advanced_mysql() -> Option<OfMysql> {
    let server = Mysql::start(Disk::Memory)?;
    let create = "CREATE DATABASE bank; USE bank; CREATE TABLE balance (amount BIGINT);
        INSERT INTO balance VALUES (100)";
    assert!(server.client("mysql", create.as_bytes()).succeeded);
    let database = OfMysql(server);
    let advance = ["--fence", "a#9", "--advance"];
    ended(&guard(&database, &advance, ""), 0, "");
    Some(database)
}

/// As `guard`, with other arguments of the client in front of its own, or behind them.
fn guard_with(database: &OfMysql, token: &str, script: &str, front: &str, behind: &str) -> Said {
    let (named, passed) = database.arguments();
    let mut command = ringfence();
    command.arg("guard").args(named).args(["--fence", token]);
    command
        .arg("--")
        .args([front].iter().filter(|front| !front.is_empty()));
    command.args(
        passed
            .iter()
            .filter(|passed| front.is_empty() || *passed != "--no-defaults"),
    );
    command.args([behind].iter().filter(|behind| !behind.is_empty()));
    spawned(&mut command, script)
        .wait_with_output()
        .unwrap()
        .into()
}

/// Files of options may have `force`, too.
#[test]
fn a_client_of_mysql_that_would_go_on_at_errors_does_not() {
    let Some(database) = advanced_mysql() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client.cnf");
    fs::write(&file, "[mysql]\nforce\n[client]\nforce\n").unwrap();
    let options = format!("--defaults-file={}", file.display());
    let said = guard_with(&database, "a#8", ADD, &options, "");
    assert_eq!(said.code, Some(76), "{said:?}");
    for banned in [
        "--force",
        "-f",
        "-vf",
        "-e",
        "-Be",
        "-vvveUPDATE balance SET amount = 0",
        "--exec=DO 1",
        "--init-command=DO 1",
        "--delimiter=//",
        "--database=mysql",
        "mysql",
    ] {
        let said = guard_with(&database, "a#8", ADD, "", banned);
        ended(&said, 2, "could run SQL past the guard");
    }
    assert_eq!(database.ask("SELECT amount FROM balance"), "100");
}

#[test]
fn a_script_for_mysql_has_no_commands_of_its_client_and_no_way_out_of_xa() {
    let Some(database) = advanced_mysql() else {
        return;
    };
    for out in [
        "\\r",
        "connect bank",
        "XA ROLLBACK 'x'",
        "SET autocommit = 1; COMMIT",
        "SELECT 'open",
    ] {
        let said = guard(&database, &["--fence", "a#9"], &format!("{out};\n{ADD};\n"));
        assert_ne!(said.code, Some(0), "{out}: {said:?}");
        let amount = database.ask("SELECT amount FROM balance");
        assert_eq!(amount, "100", "{out}: {said:?}");
    }
}

#[test]
fn a_script_for_mysql_that_is_committed_is_reported_so_in_any_format() {
    let Some(database) = advanced_mysql() else {
        return;
    };
    let amount = || database.ask("SELECT amount FROM balance");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client.cnf");
    let options = format!("--defaults-file={}", file.display());
    for format in [
        "table",
        "html",
        "xml",
        "vertical",
        "column-names",
        "delimiter=//",
    ] {
        fs::write(&file, format!("[client]\n{format}\n")).unwrap();
        let before = amount();
        let said = guard_with(&database, "a#9", ADD, &options, "");
        assert_eq!(said.code, Some(0), "{format}: {said:?}");
        assert_ne!(amount(), before, "{format}");
    }
    let before = amount();
    let script = format!("SET character_set_results = utf16; {ADD}");
    ended(&guard(&database, &["--fence", "a#9"], &script), 0, "");
    assert_ne!(amount(), before);
}

/// The client has one command that it never gives up.
#[test]
fn a_script_for_mysql_may_set_its_delimiter_and_leave_it_so() {
    let Some(database) = advanced_mysql() else {
        return;
    };
    let amount = || database.ask("SELECT amount FROM balance");
    for script in [
        format!("DELIMITER //\n{ADD}//\nDELIMITER ;\n"),
        format!("DELIMITER //\n{ADD}//\n"),
        format!("DELIMITER //\n{ADD}"),
        format!("DELIMITER //\n{ADD};"),
        format!("{ADD};\nDELIMITER //\n"),
        format!("delimiter $$\n{ADD}$$\n-- done"),
        format!("DELIMITER //\nBEGIN NOT ATOMIC {ADD}; END//"),
    ] {
        let before: u64 = amount().parse().unwrap();
        ended(&guard(&database, &["--fence", "a#9"], &script), 0, "");
        assert_eq!(amount(), (before + 10).to_string(), "{script}");
    }
}

/// It ends with the session of its script.
#[test]
fn a_script_for_mysql_hides_the_marks_from_no_later_one() {
    let Some(database) = advanced_mysql() else {
        return;
    };
    for hides in [
        "CREATE TEMPORARY TABLE ringfence_marks (name VARCHAR(255) PRIMARY KEY, mark BIGINT)",
        "USE mysql",
    ] {
        let script = format!("{hides}; UPDATE bank.balance SET amount = 7");
        ended(&guard(&database, &["--fence", "a#9"], &script), 0, "");
        assert_eq!(database.ask("SELECT amount FROM balance"), "7", "{hides}");
        let stale = guard(&database, &["--fence", "a#8"], ADD);
        assert_eq!(stale.code, Some(76), "{hides}: {stale:?}");
    }
    for harms in [
        "RENAME TABLE ringfence_marks TO other_marks",
        "DROP TABLE ringfence_marks",
        "TRUNCATE TABLE ringfence_marks",
        "DROP TRIGGER ringfence_marks_only_grow",
    ] {
        let said = guard(&database, &["--fence", "a#9"], &format!("{ADD}; {harms}"));
        ended(&said, 1, "nothing of it was written");
        assert_eq!(database.ask("SELECT amount FROM balance"), "7", "{harms}");
        assert_eq!(database.ask("SELECT mark FROM ringfence_marks"), "9");
    }
}

#[test]
fn an_account_that_the_store_refuses_is_denied() {
    let Some(database) = advanced_mysql() else {
        return;
    };
    let said = guard_with(&database, "a#9", ADD, "", "--user=stranger");
    ended(&said, 77, "the store refuses this account");
    database.ask("CREATE USER reader@'%'; GRANT SELECT ON bank.* TO reader@'%'; SELECT 1");
    let said = guard_with(&database, "a#9", ADD, "", "--user=reader");
    ended(&said, 77, "the store refuses this account");
    assert_eq!(database.ask("SELECT amount FROM balance"), "100");
}

/// The lock is one of the table, for which `innodb_lock_wait_timeout` does not count.
#[test]
fn timeout_bounds_the_wait_for_a_table_of_mysql() {
    let Some(database) = advanced_mysql() else {
        return;
    };
    let sleeping = "FROM information_schema.processlist WHERE state = 'User sleep'";
    let waits_for = |table: &str, options: &[&str], script: &str| {
        let hold = format!("LOCK TABLES {table} WRITE; DO SLEEP(60);");
        thread::scope(|scope| {
            scope.spawn(|| database.0.client("bank", hold.as_bytes()));
            await_that("the table is locked", || {
                database.ask(&format!("SELECT COUNT(*) {sleeping}")) == "1"
            });
            let said = guard(&database, options, script);
            let id = database.ask(&format!("SELECT id {sleeping}"));
            database.ask(&format!("KILL {id}"));
            // Behind the lock's minute it would have succeeded.
            ended(&said, 75, "another transaction is in the way");
        });
    };
    let timeout = ["--fence", "a#9", "--timeout", "1s"];
    waits_for("ringfence_marks", &timeout, ADD);
    waits_for("balance", &timeout, ADD);
    waits_for("ringfence_marks", &["--install", "--timeout", "1s"], "");
}

#[test]
fn timeout_bounds_the_wait_for_a_table_of_postgres() {
    let Some(server) = Postgres::start(Disk::Memory) else {
        return;
    };
    let database = OfPostgres(server);
    database.ask("CREATE TABLE balance (amount bigint); INSERT INTO balance VALUES (100)");
    ended(&guard(&database, &["--install"], ""), 0, "");
    for table in ["ringfence.marks", "balance"] {
        let hold = format!("BEGIN; LOCK TABLE {table}; SELECT pg_sleep(60)");
        let mut holder = database.psql(&hold).spawn().unwrap();
        let waits = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        await_that("the table is locked", || {
            database.ask(&format!("SELECT count(*) {waits}")) == "1"
        });
        let said = guard(&database, &["--fence", "a#9", "--timeout", "1s"], ADD);
        database.ask(&format!("SELECT pg_terminate_backend(pid) {waits}"));
        holder.wait().unwrap();
        ended(&said, 75, "another transaction is in the way");
    }
}

/// psql takes several short options in one word.
#[test]
fn options_of_psql_that_are_not_of_the_connection_are_refused() {
    let Some(database) = advanced_postgres() else {
        return;
    };
    let stale = "UPDATE balance SET amount = 0";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stale.sql");
    fs::write(&file, stale).unwrap();
    let file = file.to_str().unwrap();
    for refused in [
        &["-c", stale][..],
        &["-qc", stale],
        &["-vX=1", "-wc", stale],
        &["-qf", file],
        &["-1Xf", file],
        &["--comm", stale],
        &["--set=ON_ERROR_STOP=0"],
        &["--dbname=other"],
        &["other"],
    ] {
        let mut command = ringfence();
        command.args(["guard", "postgres"]).arg(database.uri());
        command.args(["--fence", "a#8", "--"]).args(refused);
        let said = spawned(&mut command, ADD).wait_with_output().unwrap();
        ended(&said.into(), 2, "could run SQL past the guard");
        assert_eq!(
            database.ask("SELECT amount FROM balance"),
            "100",
            "{refused:?}"
        );
    }
    let mut command = ringfence();
    command.args(["guard", "postgres"]).arg("postgres");
    command.args([
        "--fence",
        "a#9",
        "--",
        "-h127.0.0.1",
        "-w",
        "-U",
        "postgres",
    ]);
    command.arg(format!("--port={}", database.0.port()));
    let said = spawned(&mut command, ADD).wait_with_output().unwrap();
    ended(&said.into(), 0, "");
}

/// A server with the table `balance`, in which token 9 of lease `a` was admitted.
pub(crate) fn advanced_postgres() -> Option<OfPostgres> {
    let database = OfPostgres(Postgres::start(Disk::Memory)?);
    database.ask("CREATE TABLE balance (amount bigint); INSERT INTO balance VALUES (100)");
    let advance = ["--fence", "a#9", "--advance"];
    ended(&guard(&database, &advance, ""), 0, "");
    Some(database)
}

#[test]
fn other_marks_in_postgres_are_moved_if_alone_and_refused_beside_the_guards() {
    let Some(server) = Postgres::start(Disk::Memory) else {
        return;
    };
    let database = OfPostgres(server);
    let earlier = "CREATE TABLE balance (amount bigint); INSERT INTO balance VALUES (100);
        CREATE TABLE ringfence_marks (name text PRIMARY KEY, mark bigint NOT NULL);
        INSERT INTO ringfence_marks VALUES ('a', 9);
        CREATE FUNCTION ringfence_admit(resource text, token numeric) RETURNS bigint
            LANGUAGE sql AS 'SELECT 1::bigint'";
    database.ask(earlier);
    let stale = guard(&database, &["--fence", "a#8"], ADD);
    assert_eq!(stale.code, Some(76), "{stale:?}");
    assert_eq!(database.ask("SELECT mark FROM ringfence.marks"), "9");

    // A service of the earlier release has installed once more: its table, or its functions alone.
    let table = "CREATE TABLE ringfence_marks (name text PRIMARY KEY, mark bigint NOT NULL)";
    let function = "CREATE FUNCTION ringfence_admit(resource text, token numeric) RETURNS bigint
            LANGUAGE sql AS 'SELECT 1::bigint'";
    for (other, away) in [
        (table, "DROP TABLE ringfence_marks"),
        (function, "DROP FUNCTION ringfence_admit(text, numeric)"),
    ] {
        database.ask(other);
        for options in [
            &["--fence", "a#9"][..],
            &["--fence", "a#9", "--advance"],
            &["--install"],
        ] {
            let said = guard(&database, options, ADD);
            ended(
                &said,
                1,
                "in schema public; expected marks in ringfence.marks alone",
            );
        }
        let json = guard(&database, &["--fence", "a#9", "--json"], ADD).error();
        assert_eq!(json["reason"], "OTHER_MARKS");
        assert_eq!(database.ask("SELECT amount FROM balance"), "100");
        database.ask(away);
    }
    ended(&guard(&database, &["--fence", "a#9"], ADD), 0, "");
}

/// The owner of the table may do so; without its triggers a mark can be lowered.
#[test]
fn a_script_for_postgres_cannot_change_the_table_of_marks() {
    let Some(database) = advanced_postgres() else {
        return;
    };
    for harms in [
        "DROP TABLE ringfence.marks",
        "DROP SCHEMA ringfence CASCADE",
        "ALTER TABLE ringfence.marks RENAME TO old_marks",
        "ALTER TABLE ringfence.marks SET SCHEMA public",
        "DROP TRIGGER ringfence_marks_only_grow ON ringfence.marks",
        "ALTER TABLE ringfence.marks DISABLE TRIGGER ALL; UPDATE ringfence.marks SET mark = 1;
         ALTER TABLE ringfence.marks ENABLE TRIGGER ALL",
        "DROP TABLE ringfence.marks; CREATE TABLE ringfence.marks (name text PRIMARY KEY, mark bigint)",
        "SET LOCAL search_path = pg_temp; ALTER TABLE ringfence.marks ENABLE ROW LEVEL SECURITY",
        "UPDATE ringfence.marks SET mark = 1",
        "TRUNCATE ringfence.marks",
        "CREATE OR REPLACE FUNCTION ringfence.mark_stays() RETURNS trigger LANGUAGE plpgsql
             AS 'BEGIN RETURN NEW; END'; UPDATE ringfence.marks SET mark = 1",
        "CREATE FUNCTION ringfence.admit(resource text, token integer) RETURNS bigint
             LANGUAGE sql AS 'SELECT 1::bigint'",
        "ALTER FUNCTION ringfence.raise_mark(text, bigint) SET search_path = public",
        "ALTER TABLE ringfence.marks DROP CONSTRAINT marks_pkey;
         INSERT INTO ringfence.marks VALUES ('a', 1)",
        "SET LOCAL session_replication_role = replica; UPDATE ringfence.marks SET mark = 1;
         SET LOCAL session_replication_role = origin",
        "SET LOCAL session_replication_role = replica; DELETE FROM ringfence.marks",
        "UPDATE ringfence.marks SET mark = 9223372036854775807",
        // What it leaves for the commit.
        "CREATE TABLE late (value bigint);
         CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
             ALTER TABLE ringfence.marks DISABLE TRIGGER ALL; UPDATE ringfence.marks SET mark = 1;
             ALTER TABLE ringfence.marks ENABLE TRIGGER ALL; RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION late();
         INSERT INTO late VALUES (1)",
    ] {
        let said = guard(&database, &["--fence", "a#9"], &format!("{ADD}; {harms}"));
        ended(&said, 1, "nothing of it was written");
        assert_eq!(database.ask("SELECT amount FROM balance"), "100", "{harms}");
        let stale = guard(&database, &["--fence", "a#8"], ADD);
        assert_eq!(stale.code, Some(76), "{harms}: {stale:?}");
    }
    // The commit would run it.
    let held = "CREATE FUNCTION low() RETURNS int LANGUAGE plpgsql AS 'BEGIN
             ALTER TABLE ringfence.marks DISABLE TRIGGER ALL; UPDATE ringfence.marks SET mark = 1;
             ALTER TABLE ringfence.marks ENABLE TRIGGER ALL; RETURN 1; END';
         DECLARE held CURSOR WITH HOLD FOR SELECT low()";
    ended(&guard(&database, &["--fence", "a#9"], held), 0, "");
    let stale = guard(&database, &["--fence", "a#8"], ADD);
    assert_eq!(stale.code, Some(76), "{stale:?}");
}

/// Waits until a script runs, and kills the command in the middle of it.
fn kill(mut command: Child, runs: impl Fn() -> bool) {
    await_that("the script runs", &runs);
    command.kill().unwrap();
    command.wait().unwrap();
    await_that("its client has ended", || !runs());
}

/// The client has the rest of the script by then, and the commit.
#[cfg(target_os = "linux")]
#[test]
fn a_command_that_is_killed_leaves_no_client_that_commits() {
    let Some(database) = advanced_mysql() else {
        return;
    };
    let (named, passed) = database.arguments();
    let mut command = ringfence();
    command
        .arg("guard")
        .args(named)
        .args(["--fence", "a#10", "--"])
        .args(passed);
    let child = spawned(&mut command, &format!("{ADD}; DO SLEEP(5);"));
    kill(child, || {
        let ask = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User sleep'";
        database.ask(ask) == "1"
    });
    // The server sees the end of a connection when its statement is over.
    await_that("the transaction has ended", || {
        database.ask("SELECT COUNT(*) FROM information_schema.innodb_trx") == "0"
    });
    let held = "SELECT CONCAT(amount, ' ', (SELECT mark FROM ringfence_marks)) FROM balance";
    assert_eq!(database.ask(held), "100 9");
}
