//! `ringfence guard postgres`, through `psql`.

use std::ffi::OsString;

use ringfence_core::{Fence, Refused};
use ringfence_guard::sql::POSTGRES_MIGRATION;

use super::client::{self, Ended, Passed, Value};
use super::{
    Failure, Global, Task, Work, busy, commits_by_itself, denied, not_owned, other_marks, refused,
    rejected, unavailable, unknown, wrong_shape,
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

/// What is other behind a statement that drops, replaces, empties or alters the table of marks, one of its
/// triggers, indices or constraints, or a function of the schema. Without these a mark can be lowered, or a
/// stale token admitted.
///
/// Each name in it has its schema, operators too: it is sent in the session of the script, whose search path
/// may lead to what other roles have made.
const MARKS: &str = "SELECT pg_catalog.concat_ws(' ', n.oid, n.nspowner, c.oid, c.relfilenode, c.xmin, \
     (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', t.oid, t.xmin), ' ' ORDER BY t.oid) \
     FROM pg_catalog.pg_trigger t WHERE t.tgrelid OPERATOR(pg_catalog.=) c.oid), \
     (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', i.indexrelid, i.indisunique, i.indisvalid), ' ' \
     ORDER BY i.indexrelid) \
     FROM pg_catalog.pg_index i WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid), \
     (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', k.oid, k.xmin), ' ' ORDER BY k.oid) \
     FROM pg_catalog.pg_constraint k WHERE k.conrelid OPERATOR(pg_catalog.=) c.oid), \
     (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', p.oid, p.proowner, p.prolang, p.prosecdef, \
     p.proconfig, p.prosrc, p.probin), ' ' ORDER BY p.oid) \
     FROM pg_catalog.pg_proc p WHERE p.pronamespace OPERATOR(pg_catalog.=) n.oid))";

/// Where [`MARKS`] looks.
const FROM_MARKS: &str = "FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c \
     WHERE n.nspname OPERATOR(pg_catalog.=) 'ringfence' \
     AND c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) 'marks'";

/// Whether the migration is to be run: it was not, or there is another table of marks, or its functions, that
/// it moves or refuses. What belongs to roles that the migration does not trust is none: any role can make it.
const STALE: &str = "WITH trusted AS (SELECT oid FROM pg_roles WHERE rolsuper OR rolname = current_user) \
     SELECT to_regprocedure('ringfence.admit(text, numeric)') IS NULL \
     OR EXISTS (SELECT FROM pg_class WHERE relname = 'ringfence_marks' AND relkind IN ('r', 'p') \
     AND relpersistence <> 't' AND relowner IN (SELECT oid FROM trusted)) \
     OR EXISTS (SELECT FROM pg_proc WHERE proname = 'ringfence_admit' \
     AND NOT pg_is_other_temp_schema(pronamespace) AND pronamespace <> pg_my_temp_schema() \
     AND proowner IN (SELECT oid FROM trusted)) AS ringfence_stale";

/// Fails with `NOT_OWNED` if a role that is not trusted could change what is called next, or has made it:
/// functions and triggers run with the rights of this account. A superuser trusts superusers alone, as the
/// migration does, since it has more to lose than the owner of a database has; `--owner` adds a role.
///
/// Its names are the server's own; see [`install`].
const OWNED: &str = r#"DO $ringfence_owned$
DECLARE
    trusted oid[];
    one record;
BEGIN
    SELECT array_agg(oid) INTO trusted FROM pg_roles
        WHERE rolsuper OR rolname IN (current_user, current_setting('ringfence.owner')) OR (
            oid = (SELECT datdba FROM pg_database WHERE datname = current_database())
            AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
        );
    SELECT * INTO one FROM (
        SELECT 'schema ringfence' AS what, nspowner AS owner FROM pg_namespace WHERE nspname = 'ringfence'
        UNION ALL
        SELECT format('%s', oid::regclass), relowner FROM pg_class
            WHERE relnamespace = to_regnamespace('ringfence')
        UNION ALL
        SELECT format('function %s', oid::regprocedure), proowner FROM pg_proc
            WHERE pronamespace = to_regnamespace('ringfence')
        UNION ALL
        SELECT format('trigger %I of ringfence.marks', tgname), proowner
            FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
            WHERE tgrelid = to_regclass('ringfence.marks') AND NOT tgisinternal
        UNION ALL
        SELECT 'the right to create in schema ringfence', grantee
            FROM pg_namespace, aclexplode(nspacl)
            WHERE nspname = 'ringfence' AND privilege_type = 'CREATE'
    ) AS called WHERE owner <> ALL (trusted) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'NOT_OWNED: % belongs to %; expected role "%", a superuser, or a role of --owner',
            one.what, CASE one.owner WHEN 0 THEN 'PUBLIC' ELSE format('role "%s"', pg_get_userbyid(one.owner)) END,
            current_user
            USING ERRCODE = 'insufficient_privilege';
    END IF;
END
$ringfence_owned$;
"#;

/// What to do then.
const OWN: &str = "look at what that role has made, and drop it or give it to a role that you trust; or run this \
     as the owner of the schema ringfence. A write takes that owner's name in --owner";

const EXAMPLE: &str = "\
Examples:
  ringfence guard postgres bank --fence bank/interest#42 < update.sql
  ringfence lock bank/interest -- sh -c 'ringfence guard postgres bank < update.sql'";

/// Run a script of SQL in PostgreSQL under a fence
///
/// One transaction: first the mark, then the script from stdin (16 MiB at most), then the commit. If a
/// later holder has been here, the script is not run, and the exit code is 76. The table of marks,
/// ringfence.marks, and its functions are created if they are absent; another table of marks of this
/// account is refused. So are marks and functions that a role has made which is not trusted, since they run
/// with this account's rights. Trusted are this account, superusers, the role of --owner and, unless this
/// account is a superuser, the owner of the database. The server runs the script as one dynamic
/// statement: it has no commands of psql and no COPY from stdin, and what its queries find is not printed.
/// Deferred constraints are checked before the commit. --timeout bounds the wait for another transaction. It
/// needs the program psql, which reads PGHOST, PGUSER, PGPASSFILE and so on.
#[derive(clap::Args, Debug)]
#[command(after_help = format!("{EXAMPLE}\n\n{}", crate::cli::EXIT_CODES_HELP))]
pub(crate) struct Postgres {
    /// The database's name, its URI (postgresql://…), or a connection string
    #[arg(value_name = "DATABASE")]
    database: String,
    #[command(flatten)]
    task: Task,
    /// A role more that may own the schema ringfence and what is in it; --install does not trust it
    #[arg(long, value_name = "ROLE", conflicts_with = "install")]
    owner: Option<String>,
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
        // psql quotes it.
        let owner = self.owner.as_deref().unwrap_or_default();
        command.arg(format!("--set=ringfence_owner={owner}"));
        command.env("PGCLIENTENCODING", "UTF8");
        command.env("PGCONNECT_TIMEOUT", timeout.as_secs().max(2).to_string());
        let mut input = format!(
            "SET client_min_messages = error;\nSET lock_timeout = {};\n{}",
            timeout.as_millis().clamp(1, 1 << 30),
            install(&work),
        );
        let fence = match &work {
            Work::Install => None,
            Work::Advance(fence) | Work::Write(fence, _) => Some(fence),
        };
        if let Some(fence) = fence {
            input += &begin(fence, &nonce);
        }
        if let Work::Write(fence, script) = &work {
            input += &execute(script, &nonce);
            input += &unchanged(fence);
        }
        if fence.is_some() {
            input += &format!("\\echo {nonce} {COMMITTING}\nCOMMIT;\n");
        }
        input += &format!("\\echo {nonce} {DONE}\n");
        let ended = client::run(command, input, &nonce, "postgresql-client")?;
        judge(&ended, fence)
    }
}

/// The migration where it is to be run, and the question who owns what it has made. Their names are the
/// server's own. Many may do so at a time.
fn install(work: &Work) -> String {
    let migration = match work {
        Work::Install => POSTGRES_MIGRATION.to_owned(),
        Work::Advance(_) | Work::Write(..) => {
            format!("{STALE} \\gset\n\\if :ringfence_stale\n{POSTGRES_MIGRATION}\n\\endif")
        }
    };
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED;\nSET LOCAL search_path = pg_catalog, pg_temp;\n{migration}\n\
         SELECT set_config('ringfence.owner', :'ringfence_owner', true);\n{OWNED}COMMIT;\n"
    )
}

/// Neither a lease name nor a number can end a text in SQL.
fn begin(fence: &Fence, nonce: &str) -> String {
    let (name, token) = (&fence.name, fence.token);
    format!(
        "BEGIN READ WRITE;\nSELECT ringfence.admit('{name}', {token});\n\
         {MARKS} AS ringfence_marks {FROM_MARKS} \\gset\n\\echo {nonce} {ADMITTED}\n"
    )
}

/// The script as a text inside of a block: psql finds no commands in it, and the server refuses to end a
/// transaction there.
fn execute(script: &str, nonce: &str) -> String {
    format!(
        "DO ${nonce}_block$ BEGIN EXECUTE ${nonce}$\n{script}\n${nonce}$; END ${nonce}_block$;\n"
    )
}

/// Fails if the script has changed the table of marks, its functions or its own mark, also in a trigger that it
/// has left for the commit, or in a cursor that the commit would run. A trigger that leaves another one for the
/// commit is not met: a script can do what its account can do, and this finds mistakes.
fn unchanged(fence: &Fence) -> String {
    let (name, token) = (&fence.name, fence.token);
    format!(
        "SET CONSTRAINTS ALL IMMEDIATE;\nCLOSE ALL;\n\
         SELECT CAST(CASE WHEN ({MARKS} {FROM_MARKS}) OPERATOR(pg_catalog.=) :'ringfence_marks' AND \
         (SELECT pg_catalog.string_agg(CAST(mark AS pg_catalog.text), ' ') FROM ringfence.marks \
         WHERE name OPERATOR(pg_catalog.=) '{name}') OPERATOR(pg_catalog.=) '{token}' \
         THEN '0' ELSE '{MARKS_CHANGED}' END AS integer);\n"
    )
}

/// How psql ends if a statement of its script has failed. With a connection that ended it is another status.
const STATEMENT_FAILED: i32 = 3;

/// The SQLSTATE and the message in `ERROR:  RF001: STALE_TOKEN: ...`. The server says ERROR in its own language.
fn answer(line: &str) -> Option<(&str, &str)> {
    let (_, error) = line.split_once(":  ")?;
    let (state, message) = error.split_once(": ")?;
    let is_state = state.len() == 5
        && (state.bytes()).all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    // Notices and warnings look the same.
    let fails = !["00", "01", "02"]
        .iter()
        .any(|class| state.starts_with(class));
    (is_state && fails).then_some((state, message))
}

fn judge(ended: &Ended, fence: Option<&Fence>) -> Result<(), Failure> {
    if ended.has_passed(DONE) && ended.status.success() {
        return Ok(());
    }
    let line = ended.error(|line| answer(line).is_some());
    let failed = ended.status.code() == Some(STATEMENT_FAILED);
    let Some((state, message)) = answer(line).filter(|_| failed) else {
        return Err(
            match (ended.has_passed(COMMITTING), ended.has_passed(ADMITTED)) {
                (true, _) => unknown(line),
                (false, true) => rejected(line),
                (false, false) if DENIED.iter().any(|why| line.contains(why)) => denied(line),
                (false, false) => unavailable(line),
            },
        );
    };
    if let Some(fence) = fence
        && let Some(why) = Refused::from_sqlstate(fence, state, Some(message))
        && !ended.has_passed(ADMITTED)
    {
        return Err(refused(&why));
    }
    Err(match state {
        "40001" | "40P01" | "55P03" => busy(message),
        // The function of the server that says so, whose name is the same in all languages.
        "0A000" if ended.stderr.contains("exec_stmt_dynexecute") => commits_by_itself(message),
        "2D000" => commits_by_itself(message),
        "22P02" if message.contains(MARKS_CHANGED) => rejected(
            "it drops, alters or empties the table ringfence.marks, or changes its functions; the marks \
             outlive what they guard",
        ),
        "42501" if message.starts_with("NOT_OWNED") => not_owned(message, OWN),
        "42501" => denied(message),
        "42P16" if message.starts_with("WRONG_SHAPE") => wrong_shape(message),
        "42P07" if message.starts_with("OTHER_MARKS") => other_marks(message),
        _ => rejected(message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_found_in_any_language_and_is_no_notice() {
        for (line, expected) in [
            (
                "ERROR:  RF001: STALE_TOKEN: token 8",
                Some(("RF001", "STALE_TOKEN: token 8")),
            ),
            (
                "psql:<stdin>:7: FEHLER:  42P01: Relation »a« existiert nicht",
                Some(("42P01", "Relation »a« existiert nicht")),
            ),
            ("WARNING:  01000: RF001: no", None),
            ("NOTICE:  00000: 42P01: no", None),
            ("LOCATION:  exec_stmt_raise, pl_exec.c:3891", None),
            ("psql: error: connection to server failed: FATAL:  no", None),
        ] {
            assert_eq!(answer(line), expected, "{line}");
        }
    }
}
