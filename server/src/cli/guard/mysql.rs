//! `ringfence guard mysql`, through `mariadb` or `mysql`.

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use ringfence_core::{Fence, Refused};
use ringfence_guard::sql::MYSQL_MIGRATION;

use super::client::{self, Ended};
use super::{
    Failure, Global, Task, Work, busy, commits_by_itself, refused, rejected, unavailable, unknown,
};

/// What is printed on the way.
const ADMITTED: &str = "admitted";
const COMMITTING: &str = "committing";
const DONE: &str = "done";

/// The client program, in the order in which it is looked for.
const PROGRAMS: [&str; 2] = ["mariadb", "mysql"];

/// The server's numbers of errors.
const NO_SUCH_PROCEDURE: u32 = 1305;
const BUSY: [u32; 4] = [1020, 1205, 1213, 1614];
/// A statement that would end the transaction.
const IN_XA: [u32; 2] = [1399, 1400];
/// From here on they are the client's own.
const OF_CLIENT: u32 = 2000;

const EXAMPLE: &str = "\
Examples:
  ringfence guard mysql bank --fence bank/interest#42 < update.sql -- --host=db1
  ringfence lock bank/interest -- sh -c 'ringfence guard mysql bank < update.sql'";

/// Run a script of SQL in MySQL or MariaDB under a fence
///
/// One transaction: first the mark, then the script from stdin (16 MiB at most), then the commit. If a
/// later holder has been here, the script is not run, and the exit code is 76. The table of marks and
/// its procedures are created if they are absent. The transaction is one of XA, in which the server
/// refuses each statement that would commit, as CREATE TABLE does; a Galera cluster has no such
/// transactions. What the script's queries find is not printed. --timeout bounds the wait for another
/// transaction, in whole seconds. It needs the program mariadb or mysql, which reads ~/.my.cnf.
#[derive(clap::Args, Debug)]
#[command(after_help = format!("{EXAMPLE}\n\n{}", crate::cli::EXIT_CODES_HELP))]
pub(crate) struct Mysql {
    /// The database's name
    #[arg(value_name = "DATABASE", value_parser = database)]
    database: String,
    #[command(flatten)]
    task: Task,
    /// More arguments for the client, --host=… for example
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// A name that the client does not take for an option.
fn database(raw: &str) -> Result<String, String> {
    match raw.is_empty() || raw.starts_with('-') {
        true => {
            Err("expected the name of a database; options of the client stand behind --".to_owned())
        }
        false => Ok(raw.to_owned()),
    }
}

impl Mysql {
    pub(super) fn run(self, global: &Global) -> Result<(), Failure> {
        let work = self.task.work()?;
        client::check_arguments(&self.arguments, &["-e", "--execute", "-f", "--force"])?;
        let client = Client {
            database: self.database,
            arguments: self.arguments,
            timeout: global.timeout,
        };
        let (fence, script) = match &work {
            Work::Install => return client.install(),
            Work::Advance(fence) => (fence, ""),
            Work::Write(fence, script) => (fence, script.as_str()),
        };
        let mut ended = client.write(fence, script)?;
        if number(&ended) == Some(NO_SUCH_PROCEDURE) && !ended.has_passed(ADMITTED) {
            client.install()?;
            ended = client.write(fence, script)?;
        }
        judge(&ended, Some(fence))
    }
}

/// The client program, and what it connects to.
struct Client {
    database: String,
    arguments: Vec<OsString>,
    timeout: Duration,
}

impl Client {
    fn install(&self) -> Result<(), Failure> {
        let nonce = client::nonce();
        let input = format!("{MYSQL_MIGRATION}\nSELECT '{nonce} {DONE}';\n");
        judge(&self.run(input, &nonce)?, None)
    }

    fn write(&self, fence: &Fence, script: &str) -> Result<Ended, Failure> {
        let nonce = client::nonce();
        let (name, token) = (&fence.name, fence.token);
        // Neither a lease name nor a number can end a text in SQL.
        let input = format!(
            "SET innodb_lock_wait_timeout = {seconds};\nXA START '{nonce}';\n\
             CALL ringfence_show('{name}', '{token}');\nSELECT '{nonce} {ADMITTED}';\n\
             {script}\nDELIMITER ;\nXA END '{nonce}';\nSELECT '{nonce} {COMMITTING}';\n\
             XA COMMIT '{nonce}' ONE PHASE;\nSELECT '{nonce} {DONE}';\n",
            seconds = self.timeout.as_secs().clamp(1, 1 << 30),
            script = closed(script),
        );
        self.run(input, &nonce)
    }

    fn run(&self, input: String, nonce: &str) -> Result<Ended, Failure> {
        let program = PROGRAMS.into_iter().find(|program| is_there(program));
        let mut command = Command::new(program.unwrap_or(PROGRAMS[0]));
        // An option that names a file of options must come first.
        command.args(&self.arguments);
        // Behind them: an option that goes on at errors would run the script after a refusal, others
        // hide what is judged. Without commands of the client a script cannot reconnect.
        command.args(["--batch", "--skip-column-names", "--unbuffered"]);
        command.args(["--binary-mode", "--skip-force", "--skip-table"]);
        command.args(["--skip-html", "--skip-xml", "--skip-vertical"]);
        command.arg("--default-character-set=utf8mb4");
        let seconds = self.timeout.as_secs().max(1);
        command.arg(format!("--connect-timeout={seconds}"));
        command.arg(&self.database);
        client::run(command, input, nonce, "mariadb-client")
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The script with an end to its last statement.
fn closed(script: &str) -> String {
    let script = script.trim_end();
    match script.is_empty() || script.ends_with(';') {
        true => script.to_owned(),
        false => format!("{script}\n;"),
    }
}

/// The statement stands in front of it, and may contain anything.
fn error_of(ended: &Ended) -> &str {
    ended.error(|line| line.starts_with(ERROR))
}

/// The number in `ERROR 1644 (45000) at line 3: …`.
fn number(ended: &Ended) -> Option<u32> {
    let error = error_of(ended).strip_prefix(ERROR)?;
    error.split_whitespace().next()?.parse().ok()
}

const ERROR: &str = "ERROR ";

fn judge(ended: &Ended, fence: Option<&Fence>) -> Result<(), Failure> {
    if ended.has_passed(DONE) && ended.status.success() {
        return Ok(());
    }
    let line = error_of(ended);
    let message = line.split_once(": ").map_or(line, |(_, message)| message);
    if let Some(fence) = fence
        && let Some(why) = Refused::from_message(fence, message)
        && !ended.has_passed(ADMITTED)
    {
        return Err(refused(&why));
    }
    Err(match number(ended) {
        Some(number) if IN_XA.contains(&number) && !ended.has_passed(COMMITTING) => {
            commits_by_itself(message)
        }
        Some(number) if BUSY.contains(&number) => busy(message),
        Some(OF_CLIENT..) | None if ended.has_passed(COMMITTING) => unknown(line),
        Some(OF_CLIENT..) if !ended.has_passed(ADMITTED) => unavailable(line),
        None if ended.status.success() => rejected("it has ended the client before its own end"),
        _ => rejected(message),
    })
}
