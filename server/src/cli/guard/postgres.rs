//! `ringfence guard postgres`, through `psql`.

use std::ffi::OsString;

use ringfence_core::{Fence, Refused};
use ringfence_guard::sql::POSTGRES_MIGRATION;

use super::client::{self, Ended};
use super::{
    Failure, Global, Task, Work, busy, commits_by_itself, denied, refused, rejected, unavailable,
    unknown, wrong_shape,
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

const EXAMPLE: &str = "\
Examples:
  ringfence guard postgres bank --fence bank/interest#42 < update.sql
  ringfence lock bank/interest -- sh -c 'ringfence guard postgres bank < update.sql'";

/// Run a script of SQL in PostgreSQL under a fence
///
/// One transaction: first the mark, then the script from stdin (16 MiB at most), then the commit. If a
/// later holder has been here, the script is not run, and the exit code is 76. The table of marks and
/// its functions are created if they are absent. The server runs the script as one dynamic statement:
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
    /// More arguments for psql
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

impl Postgres {
    pub(super) fn run(self, global: &Global) -> Result<(), Failure> {
        let work = self.task.work()?;
        client::check_arguments(&self.arguments, &["-c", "--command", "-f", "--file"])?;
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
        }
        if fence.is_some() {
            input += &format!("\\echo {nonce} {COMMITTING}\nCOMMIT;\n");
        }
        input += &format!("\\echo {nonce} {DONE}\n");
        let ended = client::run(command, input, &nonce, "postgresql-client")?;
        judge(&ended, fence)
    }
}

/// The migration where it was not run. Many may do so at a time; the number is that of the guard in Rust.
fn install() -> String {
    format!(
        "SELECT to_regprocedure('ringfence_admit(text, numeric)') IS NULL AS ringfence_absent \\gset\n\
         \\if :ringfence_absent\nBEGIN;\nSELECT pg_advisory_xact_lock(8244241983257013859);\n\
         {POSTGRES_MIGRATION}\nCOMMIT;\n\\endif\n"
    )
}

/// Neither a lease name nor a number can end a text in SQL.
fn begin(fence: &Fence, nonce: &str) -> String {
    let (name, token) = (&fence.name, fence.token);
    format!(
        "BEGIN READ WRITE;\nSELECT ringfence_admit('{name}', {token});\n\\echo {nonce} {ADMITTED}\n"
    )
}

/// The script as a text inside of a block: psql finds no commands in it, and the server refuses to end a
/// transaction there.
fn execute(script: &str, nonce: &str) -> String {
    format!(
        "DO ${nonce}_block$ BEGIN EXECUTE ${nonce}$\n{script}\n${nonce}$; END ${nonce}_block$;\n"
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
        "42501" => denied(message),
        "42P16" if message.starts_with("WRONG_SHAPE") => wrong_shape(message),
        _ => rejected(message),
    })
}
