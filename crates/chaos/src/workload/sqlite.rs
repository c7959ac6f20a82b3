//! A store in SQLite files, one for each lease: a number that its holder adds to, and a journal of
//! everything that was committed, in the order of the commits.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence_check::history::{Admission, GuardAct};
use ringfence_core::LeaseName;
use ringfence_guard::Refused;
use ringfence_guard::sqlite::{SqliteError, SqliteGuard};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::ask::{Answer, Ask, Entry};

/// How long another process may be in the way; one that is paused in the middle of a transaction
/// is in the way for longer.
const BUSY: Duration = Duration::from_millis(1_500);

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS balance (only INTEGER PRIMARY KEY CHECK (only = 1), amount INTEGER NOT NULL);
    INSERT OR IGNORE INTO balance VALUES (1, 0);
    CREATE TABLE IF NOT EXISTS journal (
        place INTEGER PRIMARY KEY AUTOINCREMENT,
        token INTEGER NOT NULL, client INTEGER NOT NULL, act TEXT NOT NULL, amount INTEGER)";

/// Who is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// Whom the guard admits.
    Guarded,
    /// Every token.
    Open,
}

#[derive(Debug)]
pub(super) struct SqliteStore {
    dir: PathBuf,
    door: Door,
    open: BTreeMap<LeaseName, Connection>,
}

/// A step that did not come to an answer.
enum Stopped {
    Guard(SqliteError),
}

impl From<SqliteError> for Stopped {
    fn from(error: SqliteError) -> Self {
        Self::Guard(error)
    }
}

impl From<rusqlite::Error> for Stopped {
    fn from(error: rusqlite::Error) -> Self {
        Self::Guard(error.into())
    }
}

impl SqliteStore {
    pub(super) fn new(dir: PathBuf, door: Door) -> Self {
        Self {
            dir,
            door,
            open: BTreeMap::new(),
        }
    }

    pub(super) fn answer(&mut self, ask: &Ask) -> Answer {
        let done = match ask.act {
            GuardAct::Read => self.read(&ask.fence.name),
            GuardAct::Advance | GuardAct::Write => self.change(ask),
        };
        match done {
            Ok(answer) => answer,
            Err(Stopped::Guard(SqliteError::Refused(Refused::StaleToken { mark, .. }))) => Answer {
                admission: Admission::Refused { mark: mark.get() },
                ..Answer::FAILED
            },
            Err(Stopped::Guard(_)) => Answer::FAILED,
        }
    }

    fn connection(&mut self, name: &LeaseName) -> Result<&mut Connection, Stopped> {
        if !self.open.contains_key(name) {
            let connection = Connection::open(database(&self.dir, name))?;
            connection.busy_timeout(BUSY)?;
            // The machine is not going to lose its power: what is judged is the order.
            connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")?;
            connection.execute_batch(SCHEMA)?;
            SqliteGuard::install(&connection)?;
            self.open.insert(name.clone(), connection);
        }
        self.open
            .get_mut(name)
            .ok_or(Stopped::Guard(SqliteError::NotInstalled))
    }

    fn read(&mut self, name: &LeaseName) -> Result<Answer, Stopped> {
        let connection = self.connection(name)?;
        let amount = connection.query_row("SELECT amount FROM balance", [], |row| row.get(0))?;
        Ok(Answer {
            admission: Admission::Admitted,
            commit: None,
            value: Some(amount),
        })
    }

    fn change(&mut self, ask: &Ask) -> Result<Answer, Stopped> {
        let door = self.door;
        let connection = self.connection(&ask.fence.name)?;
        let place = match door {
            Door::Guarded => {
                let guard = SqliteGuard::new(ask.fence.name.clone());
                guard.write(connection, &ask.fence, |transaction| {
                    write_down(transaction, ask).map_err(Stopped::from)
                })?
            }
            Door::Open => {
                let behavior = TransactionBehavior::Immediate;
                let transaction = connection.transaction_with_behavior(behavior)?;
                let place = write_down(&transaction, ask)?;
                transaction.commit()?;
                place
            }
        };
        Ok(Answer {
            admission: Admission::Admitted,
            commit: u64::try_from(place).ok(),
            value: None,
        })
    }
}

fn write_down(transaction: &Transaction<'_>, ask: &Ask) -> rusqlite::Result<i64> {
    let (act, amount) = match ask.act {
        GuardAct::Write => ("write", Some(ask.value)),
        GuardAct::Advance | GuardAct::Read => ("advance", None),
    };
    if let Some(amount) = amount {
        transaction.execute("UPDATE balance SET amount = ?1", [amount])?;
    }
    transaction.execute(
        "INSERT INTO journal (token, client, act, amount) VALUES (?1, ?2, ?3, ?4)",
        rusqlite::params![ask.fence.token.get(), ask.client, act, amount],
    )?;
    Ok(transaction.last_insert_rowid())
}

/// The file of a lease: its name without what a path would read.
fn database(dir: &Path, name: &LeaseName) -> PathBuf {
    dir.join(format!("{}.db", name.as_str().replace('/', "!")))
}

/// The databases in a directory, each with its lease.
///
/// # Errors
/// If the directory cannot be read.
pub(crate) fn databases(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(lease) = name.and_then(|name| name.strip_suffix(".db")) {
            found.push((lease.replace('!', "/"), path));
        }
    }
    found.sort();
    Ok(found)
}

/// What was committed, in order.
///
/// # Errors
/// If the database cannot be read.
pub(crate) fn read_journal(path: &Path) -> rusqlite::Result<Vec<Entry>> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let mut read = connection.prepare("SELECT place, token, amount FROM journal ORDER BY place")?;
    let entries = read.query_map([], |row| {
        Ok(Entry {
            place: row.get(0)?,
            token: row.get(1)?,
            amount: row.get(2)?,
        })
    })?;
    entries.collect()
}
