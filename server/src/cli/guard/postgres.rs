//! `ringfence guard postgres`, through `psql`.

use std::ffi::OsString;

use ringfence_core::{Fence, Refused};
use ringfence_guard::sql::POSTGRES_MIGRATION;

use super::client::{self, Ended, Passed, Value};
use super::{
    Failure, Global, Task, Work, busy, commits_by_itself, denied, other_marks, refused, rejected,
    unavailable, unknown, wrong_shape,
};

/// What is printed on the way.
const ADMITTED: &str = "admitted";
const COMMITTING: &str = "committing";
const DONE: &str = "done";

/// How psql says that the server refuses the account. It shows no SQLSTATE of a connection that failed.
const DENIED: [&str; 4] = [
    "authentication failed",
    "no pg_hba.conf entry",
    "no password supplied",
    "permission denied for database",
];

/// The options of psql that may be passed on.
const PASSED: [Passed; 5] = [
    option("--host", "-h", Value::Needed),
    option("--port", "-p", Value::Needed),
    option("--username", "-U", Value::Needed),
    option("--no-password", "-w", Value::No),
    option("--password", "-W", Value::No),
];

const fn option(long: &'static str, short: &'static str, value: Value) -> Passed {
    Passed { long, short, value }
}

/// Stands in the error of a script that has changed the table of marks, or its triggers.
const MARKS_CHANGED: &str = "MARKS_CHANGED";

/// What is other behind a statement that drops, replaces, empties or alters the table of marks or one of its
/// triggers. Without these a mark can be lowered.
const MARKS: &str = "SELECT concat_ws(' ', c.oid, c.relfilenode, c.xmin, \
     (SELECT string_agg(concat_ws(' ', t.oid, t.xmin), ' ' ORDER BY t.oid) \
     FROM pg_trigger t WHERE t.tgrelid = c.oid)) \
     FROM pg_class c WHERE c.oid = to_regclass('ringfence.marks')";

const EXAMPLE: &str = "\
Examples:
  ringfence guard postgres bank --fence bank/interest#42 < update.sql
  ringfence lock bank/interest -- sh -c 'ringfence guard postgres bank < update.sql'";

/// Run a script of SQL in PostgreSQL under a fence
///
/// One transaction: first the mark, then the script from stdin (16 MiB at most), then the commit. If a
/// later holder has been here, the script is not run, and the exit code is 76. The table of marks,
/// ringfence.marks, and its functions are created if they are absent; another table of marks in the
/// database is refused. The server runs the script as one dynamic statement:
/// it has no commands of psql and no COPY from stdin, and what its queries find is not printed.
/// --timeout bounds the wait for another transaction. It needs the program psql, which reads PGHOST,
/// PGUSER, PGPASSFILE and so on.
#[derive(clap::Args, Debug)]
#[command(after_help = format!("{EXAMPLE}\n\n{}", crate::cli::EXIT_CODES_HELP))]
pub(crate) struct Postgres {
    /// The database's name, its URI (postgresql://…), or a connection string
    #[arg(value_name = "DATABASE")]
    database: String,
    #[command(flatten)]
    task: Task,
    /// Options of the connection for psql: --host, --port, --username, --no-password, --password
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

impl Postgres {
    pub(super) fn run(self, global: &Global) -> Result<(), Failure> {
        let work = self.task.work()?;
        client::check_arguments(&self.arguments, &PASSED)?;
        let nonce = client::nonce();
        let timeout = global.timeout;
        let mut command = client::command("psql")?;
        command.arg("--dbname").arg(&self.database);
        // In front of the others, which count then.
        command.args(&self.arguments);
        command.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"]);
        command.args(["--set=ON_ERROR_STOP=1", "--set=VERBOSITY=verbose"]);
        command.env("PGCLIENTENCODING", "UTF8");
        command.env("PGCONNECT_TIMEOUT", timeout.as_secs().max(2).to_string());
        let mut input = format!(
            "SET client_min_messages = error;\nSET lock_timeout = {};\n{}",
            timeout.as_millis().clamp(1, 1 << 30),
            install(),
        );
        let fence = match &work {
            Work::Install => None,
            Work::Advance(fence) | Work::Write(fence, _) => Some(fence),
        };
        if let Some(fence) = fence {
            input += &begin(fence, &nonce);
        }
        if let Work::Write(_, script) = &work {
            input += &execute(script, &nonce);
            input += &unchanged();
        }
        if fence.is_some() {
            input += &format!("\\echo {nonce} {COMMITTING}\nCOMMIT;\n");
        }
        input += &format!("\\echo {nonce} {DONE}\n");
        let ended = client::run(command, input, &nonce, "postgresql-client")?;
        judge(&ended, fence)
    }
}

/// The migration where it was not run, or where there is another table of marks, or its functions: it moves
/// those of an earlier release, and fails where there are two. Many may do so at a time; the number is that
/// of the guard in Rust.
fn install() -> String {
    format!(
        "SELECT to_regprocedure('ringfence.admit(text, numeric)') IS NULL \
         OR EXISTS (SELECT FROM pg_class WHERE relname = 'ringfence_marks' AND relpersistence <> 't') \
         OR EXISTS (SELECT FROM pg_proc WHERE proname = 'ringfence_admit') AS ringfence_stale \\gset\n\
         \\if :ringfence_stale\nBEGIN;\nSELECT pg_advisory_xact_lock(8244241983257013859);\n\
         {POSTGRES_MIGRATION}\nCOMMIT;\n\\endif\n"
    )
}

/// Neither a lease name nor a number can end a text in SQL.
fn begin(fence: &Fence, nonce: &str) -> String {
    let (name, token) = (&fence.name, fence.token);
    format!(
        "BEGIN READ WRITE;\nSELECT ringfence.admit('{name}', {token});\n\
         {marks} \\gset\n\\echo {nonce} {ADMITTED}\n",
        marks = MARKS.replacen(" FROM pg_class", " AS ringfence_marks FROM pg_class", 1),
    )
}

/// The script as a text inside of a block: psql finds no commands in it, and the server refuses to end a
/// transaction there.
fn execute(script: &str, nonce: &str) -> String {
    format!(
        "DO ${nonce}_block$ BEGIN EXECUTE ${nonce}$\n{script}\n${nonce}$; END ${nonce}_block$;\n"
    )
}

/// Fails if the script has changed the table of marks, whatever names its session has now.
fn unchanged() -> String {
    format!(
        "SET LOCAL search_path = pg_catalog, pg_temp;\nSELECT CAST(CASE WHEN ({MARKS}) = :'ringfence_marks' \
         THEN '0' ELSE '{MARKS_CHANGED}' END AS integer);\n"
    )
}

fn judge(ended: &Ended, fence: Option<&Fence>) -> Result<(), Failure> {
    if ended.has_passed(DONE) && ended.status.success() {
        return Ok(());
    }
    // `psql:<stdin>:7: ERROR:  RF001: STALE_TOKEN: …`
    const ERROR: &str = "ERROR:  ";
    let line = ended.error(|line| line.contains(ERROR));
    let Some((_, error)) = line.split_once(ERROR) else {
        return Err(
            match (ended.has_passed(COMMITTING), ended.has_passed(ADMITTED)) {
                (true, _) => unknown(line),
                (false, true) => rejected(line),
                (false, false) if DENIED.iter().any(|why| line.contains(why)) => denied(line),
                (false, false) => unavailable(line),
            },
        );
    };
    let (state, message) = error.split_once(": ").unwrap_or(("", error));
    if let Some(fence) = fence
        && let Some(why) = Refused::from_sqlstate(fence, state, Some(message))
        && !ended.has_passed(ADMITTED)
    {
        return Err(refused(&why));
    }
    Err(match state {
        "40001" | "40P01" | "55P03" => busy(message),
        "0A000" if message.contains("transaction commands") => commits_by_itself(message),
        "2D000" => commits_by_itself(message),
        "22P02" if message.contains(MARKS_CHANGED) => rejected(
            "it drops, alters or empties the table ringfence.marks; the marks outlive what they guard",
        ),
        "42501" => denied(message),
        "42P16" if message.starts_with("WRONG_SHAPE") => wrong_shape(message),
        "42P07" if message.starts_with("OTHER_MARKS") => other_marks(message),
        _ => rejected(message),
    })
}
