//! `ringfence guard STORE`: a script of SQL in one transaction, which the store's guard admits or refuses;
//! and `ringfence guard http`, which stands before a service.
//!
//! The script comes behind the admission and in front of the commit, and cannot end the transaction: the
//! store itself refuses that. SQLite is compiled in. PostgreSQL and MariaDB are driven by their own client
//! programs, which know how to find and to authenticate with their servers.

mod client;
mod http;
mod mysql;
mod postgres;
mod sqlite;

use std::io::{IsTerminal as _, Read as _, stdin};
use std::process::ExitCode;

use ringfence_core::{Fence, LeaseName, Refused};

use super::{Failure, Global, exit, parse};
use http::Http;
use mysql::Mysql;
use postgres::Postgres;
use sqlite::Sqlite;

/// The greatest script, in bytes: it is held in memory.
const SCRIPT_BYTES_MAX: u64 = 16 << 20;

const MISSING: &str =
    "show the fence of the grant: --fence NAME#TOKEN, or run this under `ringfence lock NAME -- …`";

/// Commands that write to a store under a fence.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum GuardCommand {
    Sqlite(Sqlite),
    Postgres(Postgres),
    Mysql(Mysql),
    Http(Box<Http>),
}

impl GuardCommand {
    pub(crate) fn run(self, global: &Global) -> Result<ExitCode, Failure> {
        match self {
            Self::Sqlite(command) => command.run(global)?,
            Self::Postgres(command) => command.run(global)?,
            Self::Mysql(command) => command.run(global)?,
            Self::Http(command) => return command.run(global),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What is to be done under which fence.
#[derive(clap::Args, Debug)]
struct Task {
    /// The fence of the grant [default: that of RINGFENCE_LEASE and RINGFENCE_TOKEN, as `lock` sets them]
    #[arg(long, value_name = "NAME#TOKEN", value_parser = parse::fence)]
    fence: Option<Fence>,
    /// Only raise the mark to the token, as a new holder does before its first read
    #[arg(long, conflicts_with = "install")]
    advance: bool,
    /// Only create the table of marks, if there is none
    #[arg(long)]
    install: bool,
}

/// The same, with what it takes.
enum Work {
    Install,
    Advance(Fence),
    Write(Fence, String),
}

impl Task {
    /// Reads what the work takes: the fence from the environment, the script from stdin.
    fn work(self) -> Result<Work, Failure> {
        if self.install {
            return Ok(Work::Install);
        }
        let fence = match self.fence {
            Some(fence) => fence,
            None => fence_of_environment()?,
        };
        if self.advance {
            return Ok(Work::Advance(fence));
        }
        Ok(Work::Write(fence, script()?))
    }
}

fn fence_of_environment() -> Result<Fence, Failure> {
    let variable = |name: &str| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty());
        value.ok_or_else(|| {
            let message = format!("no fence: neither --fence nor {name} is set");
            Failure::new(exit::USAGE, "MISSING_FENCE", message).hint(MISSING)
        })
    };
    let (name, token) = (variable("RINGFENCE_LEASE")?, variable("RINGFENCE_TOKEN")?);
    let name = LeaseName::parse(&name)
        .map_err(|cause| Failure::usage(format!("RINGFENCE_LEASE: {cause}")))?;
    let token = parse::token(&token)
        .map_err(|allowed| Failure::usage(format!("RINGFENCE_TOKEN: got `{token}`: {allowed}")))?;
    Ok(Fence::new(name, token))
}

fn script() -> Result<String, Failure> {
    const HINT: &str = "give the script on stdin: < update.sql";
    if stdin().is_terminal() {
        return Err(Failure::usage("no script: stdin is a terminal").hint(HINT));
    }
    let mut script = Vec::new();
    let read = stdin()
        .lock()
        .take(SCRIPT_BYTES_MAX + 1)
        .read_to_end(&mut script);
    read.map_err(|cause| {
        Failure::new(exit::SYSTEM, "INPUT", format!("cannot read stdin: {cause}"))
    })?;
    if script.len() as u64 > SCRIPT_BYTES_MAX {
        let message = format!("the script has more than {SCRIPT_BYTES_MAX} bytes");
        return Err(Failure::usage(message).hint("split it; each part is a transaction of its own"));
    }
    let script = String::from_utf8(script)
        .map_err(|cause| Failure::usage(format!("the script is no UTF-8: {cause}")))?;
    if script.contains('\0') {
        return Err(Failure::usage(
            "the script has a byte of 0; expected SQL as text",
        ));
    }
    if script.trim().is_empty() {
        let hint = format!("{HINT}, or raise the mark alone with --advance");
        return Err(Failure::usage("the script is empty").hint(hint));
    }
    Ok(script)
}

/// The guard has refused the fence.
fn refused(refused: &Refused) -> Failure {
    let code = match refused {
        Refused::StaleToken { .. } => exit::LOST,
        _ => exit::NEGATIVE,
    };
    let failure = Failure::new(code, refused.reason(), refused.to_string());
    match refused {
        Refused::StaleToken { offered, mark, .. } => failure
            .detail("offered", offered.get())
            .detail("mark", mark.get()),
        _ => failure,
    }
}

/// The store has rejected the script, and nothing of it is written.
fn rejected(why: &str) -> Failure {
    let message = format!("the script failed, and nothing of it was written: {why}");
    Failure::new(exit::NEGATIVE, "SCRIPT_FAILED", message)
}

/// The script would end its own transaction.
fn commits_by_itself(why: &str) -> Failure {
    let message =
        format!("the script ends its own transaction, and nothing of it was written: {why}");
    Failure::new(exit::NEGATIVE, "SCRIPT_COMMITS", message).hint(
        "leave out BEGIN, COMMIT, ROLLBACK and statements that commit: the script is one transaction",
    )
}

/// Another transaction was in the way for longer than `--timeout`, or the store gave this one up.
fn busy(why: &str) -> Failure {
    let message = format!("another transaction is in the way, and nothing was written: {why}");
    Failure::new(exit::NOT_OBTAINED, "STORE_BUSY", message)
        .hint("repeat it; --timeout says how long to wait for the other one")
}

/// There is a table of marks that the guard's migration has not made.
fn wrong_shape(why: &str) -> Failure {
    let message = format!("nothing was written: {why}");
    Failure::new(exit::NEGATIVE, "WRONG_SHAPE", message)
}

/// There are marks that the guard does not use, and that another service may use.
fn other_marks(why: &str) -> Failure {
    let message = format!("nothing was written: {why}");
    Failure::new(exit::NEGATIVE, "OTHER_MARKS", message)
        .hint("drop all but one of the tables of marks, with their functions, and raise the marks")
}

/// A role that the caller cannot trust could change the marks.
fn not_owned(why: &str, hint: &str) -> Failure {
    let message = format!("nothing was written: {why}");
    Failure::new(exit::DENIED, "NOT_OWNED", message).hint(hint)
}

/// The store knows the caller, and refuses it; or does not know the caller.
fn denied(why: &str) -> Failure {
    let message = format!("the store refuses this account, and nothing was written: {why}");
    Failure::new(exit::DENIED, "STORE_DENIED", message)
        .hint("check the account and its rights in the store")
}

/// The store was not reached.
fn unavailable(why: &str) -> Failure {
    let message = format!("the store cannot be used, and nothing was written: {why}");
    Failure::new(exit::UNAVAILABLE, "STORE_UNAVAILABLE", message)
}

/// The store did not answer for the commit.
fn unknown(why: &str) -> Failure {
    let message = format!("whether the script was committed is not known: {why}");
    Failure::new(exit::UNAVAILABLE, "UNKNOWN_OUTCOME", message)
        .hint("look at the data before repeating what is not harmless twice")
}
