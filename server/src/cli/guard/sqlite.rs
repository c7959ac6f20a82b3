//! `ringfence guard sqlite`.

use std::path::{Path, PathBuf};

use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use rusqlite::{Connection, OpenFlags, ffi};

use super::{
    Failure, Global, Task, Work, busy, commits_by_itself, refused, rejected, unknown, wrong_shape,
};
use crate::cli::exit;

/// What the guard's authorizer refuses. SQLite does not say which of them it was.
const FORBIDDEN: &str = "it sets journal_mode or writable_schema, attaches a database, or drops, alters, \
     indexes, hides or empties the table ringfence_marks; the marks outlive what they guard";

const EXAMPLE: &str = "\
Examples:
  ringfence guard sqlite bank.db --fence bank/interest#42 < update.sql
  ringfence lock bank/interest -- sh -c 'ringfence guard sqlite bank.db < update.sql'";

/// Run a script of SQL in SQLite under a fence
///
/// One transaction: first the mark, then the script from stdin (16 MiB at most), then the commit. If a
/// later holder has been here, the script is not run, and the exit code is 76. The table of marks is
/// created if it is absent. A script that drops, alters, indexes, hides or empties it, attaches a database,
/// or sets the journal mode or a writable schema is refused. What the script's queries find is not printed.
/// --timeout bounds the wait for another transaction.
#[derive(clap::Args, Debug)]
#[command(after_help = format!("{EXAMPLE}\n\n{}", crate::cli::EXIT_CODES_HELP))]
pub(crate) struct Sqlite {
    /// The database's file; with --install it is created
    #[arg(value_name = "FILE")]
    database: PathBuf,
    #[command(flatten)]
    task: Task,
}

impl Sqlite {
    pub(super) fn run(self, global: &Global) -> Result<(), Failure> {
        // Before the file is touched.
        let work = self.task.work()?;
        // It ends with the command, and its marks with it.
        if self.database == Path::new(":memory:") {
            let message = "the database is in memory, where no mark outlives this command";
            return Err(Failure::usage(message).hint("name the file of a database"));
        }
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if matches!(work, Work::Install) {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let opened = Connection::open_with_flags(&self.database, flags);
        let mut database = opened.map_err(|cause| {
            let file = self.database.display();
            let message = format!("cannot open the database {file}: {cause}");
            let hint = format!("to create it: ringfence guard sqlite {file} --install");
            Failure::new(exit::SYSTEM, "DATABASE", message).hint(hint)
        })?;
        database
            .busy_timeout(global.timeout)
            .map_err(|cause| failure(cause.into()))?;
        // A commit that is reported outlives a power failure, in any journal mode.
        database
            .pragma_update(None, "synchronous", "EXTRA")
            .map_err(|cause| failure(cause.into()))?;
        SqliteGuard::install(&database).map_err(failure)?;
        match work {
            Work::Install => Ok(()),
            Work::Advance(fence) => {
                let guard = SqliteGuard::new(fence.name.clone());
                guard
                    .advance(&mut database, &fence)
                    .map(drop)
                    .map_err(failure)
            }
            Work::Write(fence, script) => {
                let guard = SqliteGuard::new(fence.name.clone());
                let run = |transaction: &rusqlite::Transaction<'_>| {
                    Ok(transaction.execute_batch(&script)?)
                };
                guard.write(&mut database, &fence, run).map_err(failure)
            }
        }
    }
}

fn failure(error: SqliteError) -> Failure {
    let source = match &error {
        SqliteError::Refused(why) => return refused(why),
        SqliteError::Busy { source } => return busy(&source.to_string()),
        SqliteError::Unknown { source } => return unknown(&source.to_string()),
        SqliteError::WrongShape { .. } | SqliteError::Renamed { .. } => {
            return wrong_shape(&error.to_string());
        }
        SqliteError::Database { source } => source,
        _ => return rejected(&error.to_string()),
    };
    let code = source.sqlite_error().map(|error| error.extended_code);
    match code {
        // The guard's hook has refused the commit.
        Some(ffi::SQLITE_CONSTRAINT_COMMITHOOK) => commits_by_itself("it commits"),
        Some(ffi::SQLITE_AUTH) => rejected(FORBIDDEN),
        // Its transaction had ended behind the last statement.
        Some(ffi::SQLITE_ABORT_ROLLBACK) => commits_by_itself("it rolls back"),
        _ => rejected(&source.to_string()),
    }
}
