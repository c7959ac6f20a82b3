//! `ringfence guard mysql`, through `mariadb` or `mysql`.

use std::ffi::OsString;
use std::time::Duration;

use ringfence_core::{Fence, Refused};
use ringfence_guard::sql::MYSQL_MIGRATION;

use super::client::{self, Ended, Passed, Value};
use super::{
    Failure, Global, Task, Work, busy, commits_by_itself, denied, refused, rejected, unavailable,
    unknown, wrong_shape,
};

/// What is printed on the way.
const ADMITTED: &str = "admitted";
const COMMITTING: &str = "committing";
const DONE: &str = "done";

/// The client program, in the order in which it is looked for.
const PROGRAMS: [&str; 2] = ["mariadb", "mysql"];

/// The options of the clients of MariaDB and MySQL that may be passed on.
const PASSED: [Passed; 33] = [
    option("--host", "-h", Value::Needed),
    option("--port", "-P", Value::Needed),
    option("--user", "-u", Value::Needed),
    option("--password", "-p", Value::Optional),
    option("--socket", "-S", Value::Needed),
    option("--protocol", "", Value::Needed),
    option("--no-defaults", "", Value::No),
    option("--defaults-file", "", Value::Needed),
    option("--defaults-extra-file", "", Value::Needed),
    option("--defaults-group-suffix", "", Value::Needed),
    option("--login-path", "", Value::Needed),
    option("--no-login-paths", "", Value::No),
    option("--bind-address", "", Value::Needed),
    option("--compress", "-C", Value::No),
    option("--max-allowed-packet", "", Value::Needed),
    option("--default-auth", "", Value::Needed),
    option("--plugin-dir", "", Value::Needed),
    option("--enable-cleartext-plugin", "", Value::No),
    option("--get-server-public-key", "", Value::No),
    option("--server-public-key-path", "", Value::Needed),
    option("--tls-version", "", Value::Needed),
    option("--tls-ciphersuites", "", Value::Needed),
    option("--ssl", "", Value::Optional),
    option("--skip-ssl", "", Value::No),
    option("--ssl-mode", "", Value::Needed),
    option("--ssl-ca", "", Value::Needed),
    option("--ssl-capath", "", Value::Needed),
    option("--ssl-cert", "", Value::Needed),
    option("--ssl-key", "", Value::Needed),
    option("--ssl-cipher", "", Value::Needed),
    option("--ssl-crl", "", Value::Needed),
    option("--ssl-crlpath", "", Value::Needed),
    option("--ssl-verify-server-cert", "", Value::No),
];

const fn option(long: &'static str, short: &'static str, value: Value) -> Passed {
    Passed { long, short, value }
}

/// What the client prints is read here, whatever a script has set.
const NAMES: &str = "SET NAMES utf8mb4;\n";

/// The greatest wait for a lock that every server takes, in seconds: a year.
const LOCK_WAIT_SECONDS_MAX: u64 = 31_536_000;

/// The server's numbers of errors.
const NO_SUCH_PROCEDURE: u32 = 1305;
const BUSY: [u32; 4] = [1020, 1205, 1213, 1614];
/// No such account, or one without the right.
const DENIED: [u32; 8] = [1044, 1045, 1142, 1143, 1227, 1370, 1410, 1698];
/// The answers to a commit that say that it was not done. Any other, an interrupt for example, says nothing.
const ROLLED_BACK: [u32; 4] = [1213, 1402, 1613, 1614];
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
    /// Options of the connection for the client: --host, --port, --user, --defaults-file, --ssl-ca and so on
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
        client::check_arguments(&self.arguments, &PASSED)?;
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
        let session = self.session();
        let input = format!("{session}{MYSQL_MIGRATION}\nSELECT '{nonce} {DONE}';\n");
        judge(&self.run(input, &nonce)?, None)
    }

    fn write(&self, fence: &Fence, script: &str) -> Result<Ended, Failure> {
        let nonce = client::nonce();
        let (name, token) = (&fence.name, fence.token);
        // Neither a lease name nor a number can end a text in SQL.
        let input = format!(
            "{session}XA START '{nonce}';\n\
             CALL ringfence_show_fence('{name}', '{token}');\nSELECT '{nonce} {ADMITTED}';\n\
             {script}\nDELIMITER ;\n{NAMES}XA END '{nonce}';\nSELECT '{nonce} {COMMITTING}';\n\
             XA COMMIT '{nonce}' ONE PHASE;\nSELECT '{nonce} {DONE}';\n",
            session = self.session(),
            script = closed(script),
        );
        self.run(input, &nonce)
    }

    /// What bounds the waits of the session: for rows, and for tables that another session has locked.
    fn session(&self) -> String {
        let seconds = self.timeout.as_secs().clamp(1, LOCK_WAIT_SECONDS_MAX);
        format!("{NAMES}SET innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds};\n")
    }

    fn run(&self, input: String, nonce: &str) -> Result<Ended, Failure> {
        let program = PROGRAMS
            .into_iter()
            .find(|program| client::is_there(program));
        let mut command = client::command(program.unwrap_or(PROGRAMS[0]))?;
        // An option that names a file of options must come first.
        command.args(&self.arguments);
        // Behind them, since files of options can have any: one that goes on at errors would run the script
        // after a refusal, others hide what is judged. Without commands of the client a script cannot reconnect.
        command.args(["--batch", "--skip-column-names", "--unbuffered"]);
        command.args(["--binary-mode", "--skip-force", "--skip-table"]);
        command.args(["--skip-html", "--skip-xml", "--skip-vertical"]);
        // A client that connects again in the middle goes on outside of the transaction.
        command.args(["--skip-reconnect", "--delimiter=;"]);
        command.arg("--default-character-set=utf8mb4");
        let seconds = self.timeout.as_secs().max(1);
        command.arg(format!("--connect-timeout={seconds}"));
        command.arg(&self.database);
        client::run(command, input, nonce, "mariadb-client")
    }
}

/// The script with an end to its last statement, by the delimiter that it has set last.
fn closed(script: &str) -> String {
    let script = script.trim_end();
    let last = script.lines().filter_map(delimiter).next_back();
    let end = last.unwrap_or(";");
    let sets_it = script
        .lines()
        .next_back()
        .is_some_and(|line| delimiter(line).is_some());
    match script.is_empty() || script.ends_with(end) || sets_it {
        true => script.to_owned(),
        false => format!("{script}\n{end}"),
    }
}

/// What a line with the client's one command sets. One inside of a text or a comment is none; taking it for
/// one leaves the script without its end, which the server refuses.
fn delimiter(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let command = words.next()?;
    words
        .next()
        .filter(|_| command.eq_ignore_ascii_case("delimiter"))
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

/// How the migration begins the message about a table of marks that it has not made.
const WRONG_SHAPE: &str = "WRONG_SHAPE: ";

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
    let number = number(ended);
    if ended.has_passed(COMMITTING) {
        return Err(match number {
            Some(number) if ROLLED_BACK.contains(&number) => busy(message),
            _ => unknown(line),
        });
    }
    Err(match number {
        // All that is printed on the way is missing, and no error says why.
        None if ended.status.success() => unknown("the client has not said how far it came"),
        None if !ended.has_passed(ADMITTED) => unavailable(line),
        Some(number) if IN_XA.contains(&number) => commits_by_itself(message),
        Some(number) if BUSY.contains(&number) => busy(message),
        Some(number) if DENIED.contains(&number) => denied(message),
        Some(OF_CLIENT..) if !ended.has_passed(ADMITTED) => unavailable(line),
        _ if message.starts_with(WRONG_SHAPE) => wrong_shape(message),
        _ => rejected(message),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    /// A client that has printed `passed`, then this error, or none.
    fn judged(passed: &[&str], error: &str) -> Failure {
        let code = i32::from(!error.is_empty());
        let ended = Ended {
            status: ExitStatus::from_raw(code << 8),
            passed: passed.iter().map(|&mark| mark.to_owned()).collect(),
            stderr: error.to_owned(),
        };
        judge(&ended, Some(&"a#9".parse().unwrap())).unwrap_err()
    }

    #[test]
    fn an_outcome_that_the_client_does_not_show_is_unknown() {
        let sent = [ADMITTED, COMMITTING];
        for (passed, error, reason) in [
            (&[][..], "", "UNKNOWN_OUTCOME"),
            (&sent[..1], "", "UNKNOWN_OUTCOME"),
            (&sent, "", "UNKNOWN_OUTCOME"),
            (
                &sent,
                "ERROR 1053 (08S01) at line 9: Server shutdown in progress",
                "UNKNOWN_OUTCOME",
            ),
            (
                &sent,
                "ERROR 1317 (70100) at line 9: Query execution was interrupted",
                "UNKNOWN_OUTCOME",
            ),
            (
                &sent,
                "ERROR 1927 (70100) at line 9: Connection was killed",
                "UNKNOWN_OUTCOME",
            ),
            (
                &sent,
                "ERROR 2013 (HY000) at line 9: Lost connection",
                "UNKNOWN_OUTCOME",
            ),
            (
                &sent,
                "ERROR 1205 (HY000) at line 9: Lock wait timeout exceeded",
                "UNKNOWN_OUTCOME",
            ),
            // The server says that it has rolled back, or the commit was not sent.
            (
                &sent,
                "ERROR 1614 (XA106) at line 9: Deadlock",
                "STORE_BUSY",
            ),
            (
                &sent[..1],
                "ERROR 1317 (70100) at line 5: interrupted",
                "SCRIPT_FAILED",
            ),
            (
                &sent[..1],
                "ERROR 1927 (70100) at line 5: Connection was killed",
                "SCRIPT_FAILED",
            ),
            (
                &sent[..1],
                "ERROR 1205 (HY000) at line 5: Lock wait timeout",
                "STORE_BUSY",
            ),
            (
                &[],
                "ERROR 1205 (HY000) at line 2: Lock wait timeout",
                "STORE_BUSY",
            ),
            (
                &[],
                "ERROR 2002 (HY000): Can't connect to server",
                "STORE_UNAVAILABLE",
            ),
            (
                &[],
                "ERROR 1045 (28000): Access denied for user",
                "STORE_DENIED",
            ),
        ] {
            let failure = judged(passed, error);
            assert_eq!(failure.reason, reason, "{passed:?}, {error}");
        }
    }
}
