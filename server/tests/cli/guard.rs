//! `ringfence guard`: a script under a fence, in real databases.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rusqlite::Connection;
use tempfile::TempDir;

use crate::databases::Disk;
use crate::databases::mysql::Mysql;
use crate::databases::postgres::Postgres;
use crate::harness::{Said, ringfence};

/// A database with a table `balance` of one row, and how the command reaches it.
pub(crate) trait Database {
    /// The arguments that name it, and those for its client program behind `--`.
    fn arguments(&self) -> (Vec<String>, Vec<String>);

    /// The first column of the first row.
    fn ask(&self, sql: &str) -> String;

    /// Makes another transaction hold the mark of `a` while `work` runs.
    fn held(&self, work: &mut dyn FnMut());

    /// The table of marks.
    fn marks(&self) -> &'static str {
        "ringfence_marks"
    }

    /// Statements that end the transaction of a script, and what it must say.
    fn ends(&self) -> &'static [&'static str];
}

pub(crate) fn guard(database: &dyn Database, options: &[&str], script: &str) -> Said {
    let mut command = ringfence();
    command
        .env_remove("RINGFENCE_LEASE")
        .env_remove("RINGFENCE_TOKEN");
    fed(&mut command, database, options, script)
}

fn fed(command: &mut Command, database: &dyn Database, options: &[&str], script: &str) -> Said {
    let (named, passed) = database.arguments();
    command
        .arg("guard")
        .args(named)
        .args(options)
        .arg("--")
        .args(passed);
    spawned(command, script).wait_with_output().unwrap().into()
}

/// Starts the command with a script on its stdin.
pub(crate) fn spawned(command: &mut Command, script: &str) -> Child {
    let spawned = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.unwrap();
    // One that is refused early does not read it.
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .ok();
    child
}

pub(crate) const ADD: &str = "UPDATE balance SET amount = amount + 10";

#[track_caller]
pub(crate) fn ended(said: &Said, code: i32, says: &str) {
    assert_eq!(said.code, Some(code), "{said:?}");
    assert!(said.err.contains(says), "{says}: {said:?}");
    assert_eq!(said.out, "", "{said:?}");
}

/// What the command promises of every store.
fn keeps_its_promises(database: &dyn Database) {
    let amount = || database.ask("SELECT amount FROM balance");
    let mark = || {
        let marks = database.marks();
        database.ask(&format!("SELECT mark FROM {marks} WHERE name = 'a'"))
    };

    // The table of marks is created, and the script need not end with a semicolon.
    ended(&guard(database, &["--fence", "a#8"], ADD), 0, "");
    assert_eq!(amount(), "110");
    ended(&guard(database, &["--install"], ""), 0, "");
    ended(
        &guard(database, &["--fence", "a#8"], &format!("{ADD};\n-- done\n")),
        0,
        "",
    );
    assert_eq!(amount(), "120");

    // The same under the variables of `lock`.
    let mut command = ringfence();
    command
        .env("RINGFENCE_LEASE", "a")
        .env("RINGFENCE_TOKEN", "9");
    ended(&fed(&mut command, database, &["--advance"], ""), 0, "");
    assert_eq!(mark(), "9");

    // One line names both tokens, and nothing is written.
    for options in [&["--fence", "a#8"][..], &["--fence", "a#8", "--advance"]] {
        let said = guard(database, options, ADD);
        ended(
            &said,
            76,
            "STALE_TOKEN: token 8 of lease `a` was overtaken by token 9",
        );
        assert_eq!(said.err.lines().count(), 1, "{said:?}");
    }
    let json = guard(database, &["--fence", "a#8", "--json"], ADD).error();
    assert_eq!(
        (&json["reason"], &json["offered"], &json["mark"]),
        (&"STALE_TOKEN".into(), &8.into(), &9.into())
    );
    let far = format!("a#{}", 1_u64 << 62);
    ended(
        &guard(database, &["--fence", &far], ADD),
        1,
        "TOKEN_TOO_HIGH",
    );
    assert_eq!(amount(), "120");

    // A script that fails is rolled back, with its mark.
    let torn = format!("{ADD}; SELECT * FROM nowhere; {ADD};");
    ended(&guard(database, &["--fence", "a#10"], &torn), 1, "nowhere");
    assert_eq!(amount(), "120");
    assert_eq!(mark(), "9");

    // So is one that would end its transaction.
    for end in database.ends() {
        let script = format!("{ADD};\n{end};\n{ADD};");
        let said = guard(database, &["--fence", "a#10"], &script);
        assert_eq!(said.code, Some(1), "{end}: {said:?}");
        assert_eq!(amount(), "120", "{end}: {said:?}");
        assert_eq!(mark(), "9", "{end}: {said:?}");
    }
    let script = format!("{ADD}; COMMIT; {ADD}");
    ended(
        &guard(database, &["--fence", "a#10"], &script),
        1,
        "ends its own transaction",
    );

    // Savepoints are no ends.
    let script = format!("{ADD}; SAVEPOINT s; {ADD}; ROLLBACK TO s;");
    if !database.ends().contains(&"SAVEPOINT s") {
        ended(&guard(database, &["--fence", "a#10"], &script), 0, "");
        assert_eq!(amount(), "130");
    }

    // Another transaction holds the mark for longer than this waits.
    database.held(&mut || {
        let said = guard(database, &["--fence", "a#10", "--timeout", "1s"], ADD);
        ended(&said, 75, "another transaction is in the way");
    });
    let before = amount();
    ended(&guard(database, &["--fence", "a#10"], ADD), 0, "");
    let sum = before.parse::<u64>().unwrap() + 10;
    assert_eq!(amount(), sum.to_string());
}

pub(crate) struct Sqlite(TempDir);

impl Sqlite {
    pub(crate) fn create() -> Self {
        let database = Self(tempfile::tempdir().unwrap());
        let create = "CREATE TABLE balance (amount INTEGER); INSERT INTO balance VALUES (100)";
        database.open().execute_batch(create).unwrap();
        database
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.path().join("bank.db")
    }

    pub(crate) fn open(&self) -> Connection {
        Connection::open(self.file()).unwrap()
    }
}

impl Database for Sqlite {
    fn arguments(&self) -> (Vec<String>, Vec<String>) {
        let file = self.file().to_str().unwrap().to_owned();
        (vec!["sqlite".to_owned(), file], Vec::new())
    }

    fn ask(&self, sql: &str) -> String {
        let value = self.open().query_row(sql, [], |row| row.get::<_, i64>(0));
        value.unwrap().to_string()
    }

    fn held(&self, work: &mut dyn FnMut()) {
        let holder = self.open();
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        work();
    }

    fn ends(&self) -> &'static [&'static str] {
        &[
            "COMMIT",
            "END",
            "ROLLBACK",
            "BEGIN",
            "COMMIT; BEGIN",
            "ROLLBACK; BEGIN",
        ]
    }
}

#[test]
fn a_script_for_sqlite_is_written_under_its_fence_or_not_at_all() {
    keeps_its_promises(&Sqlite::create());
}

pub(crate) struct OfPostgres(pub(crate) Postgres);

impl OfPostgres {
    pub(crate) fn psql(&self, script: &str) -> Command {
        let mut psql = Command::new("psql");
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
        psql.args([
            "--set=ON_ERROR_STOP=1",
            "--dbname",
            &self.uri(),
            "--command",
            script,
        ]);
        psql
    }

    pub(crate) fn uri(&self) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/postgres", self.0.port())
    }
}

impl Database for OfPostgres {
    fn arguments(&self) -> (Vec<String>, Vec<String>) {
        (vec!["postgres".to_owned(), self.uri()], Vec::new())
    }

    fn ask(&self, sql: &str) -> String {
        let output = self.psql(sql).output().unwrap();
        assert!(output.status.success(), "{sql}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn held(&self, work: &mut dyn FnMut()) {
        let hold = "BEGIN; SELECT ringfence.admit('a', 10); SELECT pg_sleep(3600)";
        let mut holder = self.psql(hold).spawn().unwrap();
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        crate::harness::await_that("the mark is held", || self.ask(waits) == "1");
        work();
        let end =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        self.ask(end);
        holder.wait().unwrap();
    }

    fn marks(&self) -> &'static str {
        "ringfence.marks"
    }

    fn ends(&self) -> &'static [&'static str] {
        // A savepoint is a command of transactions, too, which a block has none of.
        &[
            "COMMIT",
            "END",
            "ROLLBACK",
            "BEGIN",
            "COMMIT AND CHAIN",
            "PREPARE TRANSACTION 'x'",
            "SAVEPOINT s",
            "\\q",
            "VACUUM",
        ]
    }
}

#[test]
fn a_script_for_postgres_is_written_under_its_fence_or_not_at_all() {
    let Some(server) = Postgres::start(Disk::Memory) else {
        return;
    };
    let database = OfPostgres(server);
    database.ask("CREATE TABLE balance (amount bigint); INSERT INTO balance VALUES (100)");
    keeps_its_promises(&database);
    // What psql would take for its own is text here.
    let quoted = "UPDATE balance SET amount = CASE WHEN ':a \\q $$ $x$' = ':a' THEN 0 ELSE 7 END";
    ended(&guard(&database, &["--fence", "a#11"], quoted), 0, "");
    assert_eq!(database.ask("SELECT amount FROM balance"), "7");
}

pub(crate) struct OfMysql(pub(crate) Mysql);

impl Database for OfMysql {
    fn arguments(&self) -> (Vec<String>, Vec<String>) {
        let port = format!("--port={}", self.0.port());
        let passed = [
            "--no-defaults",
            "--host=127.0.0.1",
            "--protocol=tcp",
            "--user=root",
            &port,
        ];
        (
            vec!["mysql".to_owned(), "bank".to_owned()],
            passed.map(str::to_owned).to_vec(),
        )
    }

    fn ask(&self, sql: &str) -> String {
        let said = self.0.client("bank", sql.as_bytes());
        assert!(said.succeeded, "{sql}: {said:?}");
        said.stdout.trim().to_owned()
    }

    fn held(&self, work: &mut dyn FnMut()) {
        let hold = "START TRANSACTION; CALL ringfence_admit('a', 10); SELECT SLEEP(3600);";
        std::thread::scope(|scope| {
            scope.spawn(|| self.0.client("bank", hold.as_bytes()));
            let sleeping = "FROM information_schema.processlist WHERE state = 'User sleep'";
            let count = format!("SELECT COUNT(*) {sleeping}");
            crate::harness::await_that("the mark is held", || self.ask(&count) == "1");
            work();
            let id = self.ask(&format!("SELECT id {sleeping}"));
            self.ask(&format!("KILL {id}"));
        });
    }

    fn ends(&self) -> &'static [&'static str] {
        &[
            "COMMIT",
            "ROLLBACK",
            "BEGIN",
            "START TRANSACTION",
            "CREATE TABLE more (value INT)",
            "LOCK TABLES balance WRITE",
            "COMMIT AND CHAIN",
            "CALL ringfence_advance('b', 1)",
            "quit",
        ]
    }
}

#[test]
fn a_script_for_mysql_is_written_under_its_fence_or_not_at_all() {
    let Some(server) = Mysql::start(Disk::Memory) else {
        return;
    };
    let create = "CREATE DATABASE bank; USE bank; CREATE TABLE balance (amount BIGINT);
        INSERT INTO balance VALUES (100)";
    assert!(server.client("mysql", create.as_bytes()).succeeded);
    keeps_its_promises(&OfMysql(server));
}

#[test]
fn a_guarded_script_without_a_fence_a_script_or_a_store_says_what_to_do() {
    let database = Sqlite::create();
    ended(
        &guard(&database, &[], ADD),
        2,
        "neither --fence nor RINGFENCE_LEASE is set",
    );
    ended(&guard(&database, &["--fence", "a"], ADD), 2, "NAME#TOKEN");
    ended(
        &guard(&database, &["--fence", "a#0"], ADD),
        2,
        "1 to 9223372036854775807",
    );
    ended(
        &guard(&database, &["--fence", "a#8"], " \n"),
        2,
        "--advance",
    );
    let both = ["--fence", "a#8", "--advance", "--install"];
    ended(&guard(&database, &both, ADD), 2, "cannot be used with");

    let mut command = ringfence();
    command
        .env("RINGFENCE_LEASE", "a")
        .env("RINGFENCE_TOKEN", "-1");
    ended(
        &fed(&mut command, &database, &[], ADD),
        2,
        "RINGFENCE_TOKEN: got `-1`",
    );

    // A mistaken name makes no file, until that is asked for.
    let other = Sqlite(tempfile::tempdir().unwrap());
    ended(
        &guard(&other, &["--fence", "a#8", "--advance"], ""),
        71,
        "--install",
    );
    assert!(!other.file().exists());
    ended(&guard(&other, &["--install"], ""), 0, "");
    ended(&guard(&other, &["--fence", "a#8", "--advance"], ""), 0, "");

    // Without the client programs.
    for store in ["postgres", "mysql"] {
        let mut command = ringfence();
        command.env("PATH", Path::new("/nowhere"));
        command.args(["guard", store, "bank", "--fence", "a#8", "--advance"]);
        let said: Said = command.output().unwrap().into();
        ended(&said, 71, "apt-get install");
    }
}
