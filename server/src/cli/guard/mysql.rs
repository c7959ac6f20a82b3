//! `ringfence guard mysql`, through `mariadb` or `mysql`.

use std::ffi::OsString;
use std::time::Duration;

use ringfence_core::{Fence, FencingToken, Refused};
use ringfence_guard::sql::MYSQL_MIGRATION;

use super::client::{self, Ended, Passed, Value};
use super::{
    Failure, Global, Task, Work, busy, commits_by_itself, denied, not_owned, refused, rejected,
    unavailable, unknown, wrong_shape,
};
use crate::cli::stderr::aside;

/// What is printed on the way.
const ADMITTED: &str = "admitted";
const COMMITTING: &str = "committing";
const DONE: &str = "done";
/// What stands behind the nonce where the fence is not admitted: a number, or what is wrong.
const CEILING: &str = "ceiling ";
const MARK: &str = "mark ";
const UNSEEN: &str = "mark 0";
const VIEW: &str = "a view";
/// The same, with the setting by which the server can lose what it has committed.
const SYNC: &str = "sync_binlog ";

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
const NO_SUCH_TABLE: u32 = 1146;
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
/// its procedures are created if they are absent; of these the command calls none, since another account can
/// have made them. The transaction is one of XA, in which the server
/// refuses each statement that would commit, as CREATE TABLE does; a Galera cluster has no such
/// transactions. What the script's queries find is not printed. A server with a binary log keeps what it has
/// acknowledged with sync_binlog = 1 alone (in MariaDB the default is 0); creating the marks warns of
/// another. --timeout bounds the wait for another transaction, in whole seconds. It needs the program mariadb or mysql, which reads ~/.my.cnf.
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
        if !ended.has_passed(ADMITTED) && lacks_migration(&ended) {
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
        // As MysqlGuard::install does: services that start together install together. It ends with the session.
        let lock = format!("DO GET_LOCK('ringfence_install', {});\n", self.seconds());
        let input = format!(
            "{session}{lock}{MYSQL_MIGRATION}\nSELECT CONCAT('{nonce} {SYNC}', @@sync_binlog) FROM DUAL \
             WHERE @@log_bin AND @@sync_binlog <> 1;\nSELECT '{nonce} {DONE}';\n"
        );
        let ended = self.run(input, &nonce)?;
        judge(&ended, None)?;
        if let Some(sync) = ended
            .passed
            .iter()
            .find_map(|passed| passed.strip_prefix(SYNC))
        {
            aside(format!(
                "warning: sync_binlog is {sync}: with a binary log, a power failure takes back marks and \
                 writes that were acknowledged, also with innodb_flush_log_at_trx_commit = 1; set it to 1"
            ));
        }
        Ok(())
    }

    fn write(&self, fence: &Fence, script: &str) -> Result<Ended, Failure> {
        let nonce = client::nonce();
        let input = format!(
            "{session}{ceiling}XA START '{nonce}';\n{admission}SELECT '{nonce} {ADMITTED}';\n\
             {script}\nDELIMITER ;\n{NAMES}XA END '{nonce}';\nSELECT '{nonce} {COMMITTING}';\n\
             XA COMMIT '{nonce}' ONE PHASE;\nSELECT '{nonce} {DONE}';\n",
            session = self.session(),
            ceiling = judge_ceiling(fence, &nonce),
            admission = admit(fence, &nonce),
            script = closed(script),
        );
        self.run(input, &nonce)
    }

    /// What bounds the waits of the session: for rows, and for tables that another session has locked.
    fn session(&self) -> String {
        let seconds = self.seconds();
        format!("{NAMES}SET innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds};\n")
    }

    fn seconds(&self) -> u64 {
        self.timeout.as_secs().clamp(1, LOCK_WAIT_SECONDS_MAX)
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

/// Prints the ceiling if the token is above it and above the mark, and that the marks are a view, whose columns
/// can be functions of others. It reads before the transaction, whose first read makes its snapshot; a mark only
/// grows meanwhile.
///
/// Neither a lease name nor a number can end a text in SQL.
fn judge_ceiling(fence: &Fence, nonce: &str) -> String {
    let (name, token) = (&fence.name, fence.token);
    format!(
        "SET @ringfence_view = EXISTS (SELECT 1 FROM information_schema.tables WHERE \
         table_schema = DATABASE() AND table_name = 'ringfence_marks' AND table_type = 'VIEW');\n\
         SELECT '{nonce} {VIEW}' FROM DUAL WHERE @ringfence_view;\n{view}\
         SET @ringfence_greatest = CASE COALESCE(@ringfence_ceiling, '') \
         WHEN 'off' THEN 9223372036854775807 \
         WHEN '' THEN (FLOOR(UNIX_TIMESTAMP()) + 86400) * 1048576 \
         ELSE CAST(@ringfence_ceiling AS SIGNED) END;\n\
         SET @ringfence_high = {token} > @ringfence_greatest AND NOT EXISTS \
         (SELECT 1 FROM ringfence_marks WHERE name = '{name}' AND mark >= {token});\n\
         SELECT CONCAT('{nonce} {CEILING}', @ringfence_greatest) FROM DUAL WHERE @ringfence_high;\n{high}",
        view = stop_if("@ringfence_view"),
        high = stop_if("@ringfence_high"),
    )
}

/// Writes the mark, also when it is equal, and prints what is there then if that is not the token.
///
/// It is what `ringfence_show_fence` does, without a procedure: one that an account has made which is not
/// trusted would run with the rights of this one. The server shows no account who may change it.
fn admit(fence: &Fence, nonce: &str) -> String {
    let (name, token) = (&fence.name, fence.token);
    format!(
        "SET @ringfence_seen = NULL;\n\
         INSERT INTO ringfence_marks (name, mark) VALUES ('{name}', {token}) ON DUPLICATE KEY UPDATE \
         mark = GREATEST(mark, {token}), admissions = admissions + 1;\n\
         SET @ringfence_mark = NULL;\nSELECT mark INTO @ringfence_mark FROM ringfence_marks WHERE name = '{name}' FOR UPDATE;\n\
         SET @ringfence_mark = COALESCE(IF(@ringfence_seen IS NULL, 0, @ringfence_mark), 0);\n\
         SELECT CONCAT('{nonce} {MARK}', @ringfence_mark) FROM DUAL WHERE @ringfence_mark <> {token};\n{other}",
        other = stop_if(&format!("@ringfence_mark <> {token}")),
    )
}

/// Fails if the condition is true, by preparing what is no statement: outside of procedures the server has no
/// other way. The client stops there.
fn stop_if(condition: &str) -> String {
    format!(
        "SET @ringfence_next = IF({condition}, 'ringfence stops', 'DO 0');\n\
         PREPARE ringfence_next FROM @ringfence_next;\nDEALLOCATE PREPARE ringfence_next;\n"
    )
}

/// Whether there is no table of marks, or it lacks the trigger that says that the mark was written.
fn lacks_migration(ended: &Ended) -> bool {
    number(ended) == Some(NO_SUCH_TABLE) || ended.has_passed(UNSEEN)
}

/// Why the statements of [`judge_ceiling`] and [`admit`] have stopped the client, if they have.
fn stopped(ended: &Ended, fence: &Fence) -> Option<Failure> {
    let number_of = |passed: &str, what: &str| passed.strip_prefix(what)?.parse::<u64>().ok();
    ended.passed.iter().find_map(|passed| {
        if passed == VIEW {
            return Some(wrong_shape(
                "WRONG_SHAPE: ringfence_marks is a view; expected a table of InnoDB: drop the view",
            ));
        }
        if let Some(ceiling) = number_of(passed, CEILING) {
            return Some(refused(&Refused::TokenTooHigh {
                name: fence.name.clone(),
                offered: fence.token,
                ceiling: FencingToken::new(ceiling)?,
            }));
        }
        let mark = number_of(passed, MARK)?;
        Some(match FencingToken::new(mark) {
            Some(mark) if mark > fence.token => refused(&fence.overtaken_by(mark)),
            Some(mark) => rejected(&format!(
                "MARK_KEPT: another trigger of ringfence_marks keeps the mark at {mark}, below token {}: \
                 drop it",
                fence.token
            )),
            None => rejected(
                "HIDDEN_MARKS: the mark was not written: the trigger ringfence_marks_seen is missing, or \
                 another one is in its way: run this with --install",
            ),
        })
    })
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
/// The same, about what another account has made.
const NOT_OWNED: &str = "NOT_OWNED: ";
const OWN: &str = "look at what that account has made; run this as that account if it is trusted, else drop its \
     procedures ringfence_* and its triggers of the marks";

fn judge(ended: &Ended, fence: Option<&Fence>) -> Result<(), Failure> {
    if ended.has_passed(DONE) && ended.status.success() {
        return Ok(());
    }
    let line = error_of(ended);
    let message = line.split_once(": ").map_or(line, |(_, message)| message);
    if let Some(fence) = fence
        && !ended.has_passed(ADMITTED)
        && let Some(why) = stopped(ended, fence)
    {
        return Err(why);
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
        _ if message.starts_with(NOT_OWNED) => not_owned(message, OWN),
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
