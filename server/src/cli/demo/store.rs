//! The store of the demo: a process that owns an SQLite database with one balance in it.
//!
//! It is spoken to in lines over TCP: `advance FENCE`, `read`, `write FENCE AMOUNT`, `mark`. With
//! `--guarded` the guard's mark is written first in the transaction of each write; without, the
//! store believes every writer, as most stores do.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_core::LeaseName;
use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use ringfence_guard::{Fence, Refused};
use rusqlite::Connection;

use crate::cli::{Failure, exit, output, parse};

/// What the account holds at first.
pub(super) const FIRST_BALANCE: i64 = 100;
/// How long a connection waits for another one's transaction.
const BUSY_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

/// The store of `ringfence demo`
#[derive(clap::Args, Debug)]
pub(crate) struct DemoStore {
    /// The database file
    #[arg(long)]
    database: PathBuf,
    /// The lease whose fences are checked
    #[arg(long, value_parser = parse::name)]
    lease: LeaseName,
    /// Check fences
    #[arg(long)]
    guarded: bool,
}

impl DemoStore {
    /// Serves until it is killed; the first line on stdout tells its address.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Self {
            database,
            lease,
            guarded,
        } = self;
        let prepared = prepare(&database).map_err(|cause| failed(&cause))?;
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|cause| failed(&cause))?;
        let address = listener.local_addr().map_err(|cause| failed(&cause))?;
        output::raw(format!("listening {address}\n").as_bytes())?;
        drop(prepared);
        for caller in listener.incoming() {
            let caller = caller.map_err(|cause| failed(&cause))?;
            let connection = open(&database).map_err(|cause| failed(&cause))?;
            let guard = guarded.then(|| SqliteGuard::new(lease.clone()));
            std::thread::spawn(move || serve(caller, Account { connection, guard }));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn failed(cause: &dyn std::error::Error) -> Failure {
    Failure::new(
        exit::UNAVAILABLE,
        "FAULT",
        format!("the demo's store failed: {cause}"),
    )
}

fn open(database: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open(database)?;
    connection.busy_timeout(BUSY_LIMIT)?;
    Ok(connection)
}

fn prepare(database: &Path) -> Result<Connection, SqliteError> {
    let connection = open(database)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch("CREATE TABLE balance (amount INTEGER NOT NULL)")?;
    connection.execute("INSERT INTO balance VALUES (?1)", [FIRST_BALANCE])?;
    SqliteGuard::install(&connection)?;
    Ok(connection)
}

fn serve(caller: TcpStream, mut account: Account) {
    let Ok(mut answers) = caller.try_clone() else {
        return;
    };
    for line in BufReader::new(caller).lines() {
        let Ok(line) = line else { return };
        let answer = account.answer(&line);
        // A caller that has gone away wants no answer.
        if answers.write_all(format!("{answer}\n").as_bytes()).is_err() {
            return;
        }
    }
}

/// One caller's way to the balance.
struct Account {
    connection: Connection,
    guard: Option<SqliteGuard>,
}

impl Account {
    fn answer(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let answered = match words[..] {
            ["advance", fence] => self.advance(fence),
            ["read"] => self.read().map(|amount| format!("balance {amount}")),
            ["write", fence, amount] => self.write(fence, amount),
            ["mark"] => self.mark(),
            _ => return format!("error not understood: {line}"),
        };
        match answered {
            Ok(answer) => answer,
            Err(SqliteError::Refused(Refused::StaleToken { offered, mark, .. })) => {
                format!("refused STALE_TOKEN {offered} {mark}")
            }
            Err(other) => format!("error {other}"),
        }
    }

    fn advance(&mut self, fence: &str) -> Result<String, SqliteError> {
        let Some(guard) = &self.guard else {
            return Ok("unguarded".into());
        };
        let fence = Fence::receive(guard.name(), Some(fence))?;
        let admitted = guard.advance(&mut self.connection, &fence)?;
        Ok(format!("advanced {}", admitted.token()))
    }

    fn read(&self) -> Result<i64, SqliteError> {
        Ok(self
            .connection
            .query_row("SELECT amount FROM balance", [], |row| row.get(0))?)
    }

    fn write(&mut self, fence: &str, amount: &str) -> Result<String, SqliteError> {
        const SET: &str = "UPDATE balance SET amount = CAST(?1 AS INTEGER)";
        match &self.guard {
            None => {
                self.connection.execute(SET, [amount])?;
            }
            Some(guard) => {
                let fence = Fence::receive(guard.name(), Some(fence))?;
                guard.write(&mut self.connection, &fence, |transaction| {
                    transaction.execute(SET, [amount])?;
                    Ok::<_, SqliteError>(())
                })?;
            }
        }
        Ok(format!("written {}", self.read()?))
    }

    fn mark(&self) -> Result<String, SqliteError> {
        let mark = match &self.guard {
            Some(guard) => guard.mark(&self.connection)?,
            None => None,
        };
        Ok(mark.map_or_else(|| "mark none".into(), |mark| format!("mark {mark}")))
    }
}
