//! A connection that is closed when a call on it does not come to its end, and messages whose answers
//! are known to be theirs.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};

use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};
use ringfence_planted::{Bug, planted};

use super::MysqlError;

/// A connection for guarded writes.
///
/// It owns the driver's connection, so that it can close it. A future of the driver that is dropped
/// before its end leaves the server's answer unread, and the next call would take that for its own: an
/// admission could be taken for confirmed that never was. Here a dropped call closes the connection, and
/// the server rolls back what was open on it.
///
/// The same holds for futures of the driver that the program drops itself, inside or outside of guarded
/// writes, at a timeout for example. Their connection should be replaced; the guard notices it at its next
/// message, as [`MysqlError::OutOfStep`], and writes nothing.
///
/// Make it of a connection that belongs to no pool: a pool takes a connection back when a call is
/// dropped, with its answer unread.
///
/// # Writes that are not guarded
/// From its first guarded transaction on, the session is read-only outside of guarded ones: what an
/// effect writes after it has ended its transaction, and what the program writes past the guard, fails
/// with `1792` instead of being committed. Use another connection for data that is not guarded, or begin
/// its transactions with `START TRANSACTION READ WRITE`.
///
/// While an effect runs, `autocommit` is 0. For a transaction that the server gives up at a deadlock stays
/// one that writes, and what an effect that overlooks the error sends next would commit on its own; so it
/// waits for a commit, which the guard does not give.
///
/// An effect that ends its transaction with `COMMIT AND CHAIN` or `ROLLBACK AND CHAIN`, or overlooks a
/// deadlock, *and then commits on its own*, has written without the mark.
///
/// # The database of the marks
/// The first guarded call binds the connection to the database that is in use then. A later `USE` moves
/// the program's own statements, not the marks.
pub struct Connection {
    /// `None`: it is closed.
    conn: Option<Conn>,
    /// The number of the next message.
    step: u64,
    /// The table of marks with its database, quoted; `None` before the first guarded call.
    marks: Option<String>,
}

/// What came of a message whose connection is still good.
pub(super) enum Told {
    /// All of its statements have succeeded; the rows of each.
    Done(Vec<Vec<Row>>),
    /// The statement at this place of the message has failed. What stands behind it was not carried
    /// out.
    Failed(usize, mysql_async::Error),
}

/// Why a message has no answer. The connection is closed.
pub(super) enum Silent {
    /// It was closed before.
    Closed,
    /// The answer is one to another message.
    OutOfStep,
    /// It failed.
    Broken(mysql_async::Error),
}

impl From<Silent> for MysqlError {
    fn from(silent: Silent) -> Self {
        match silent {
            Silent::Closed => Self::Closed,
            Silent::OutOfStep => Self::OutOfStep,
            Silent::Broken(source) => Self::Database { source },
        }
    }
}

impl Connection {
    /// Takes over a connection on which no transaction is open and no answer is awaited.
    #[must_use]
    pub fn new(conn: Conn) -> Self {
        Self {
            conn: Some(conn),
            // Another connection's answers, which a pool could mix up, have other numbers.
            step: RandomState::new().hash_one(0) >> 1,
            marks: None,
        }
    }

    /// The driver's connection, for reads and for all that is not guarded.
    ///
    /// # Errors
    /// [`MysqlError::Closed`].
    pub fn get(&mut self) -> Result<&mut Conn, MysqlError> {
        self.conn.as_mut().ok_or(MysqlError::Closed)
    }

    /// The server's number of the connection, for `KILL QUERY` and the list of processes; `None` if it
    /// was closed.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.conn.as_ref().map(Conn::id)
    }

    /// Whether it was closed, since a call was dropped or the connection failed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.conn.is_none()
    }

    /// Gives the driver's connection back; `None` if it was closed. Its session is read-only unless a
    /// transaction says otherwise.
    #[must_use]
    pub fn into_inner(self) -> Option<Conn> {
        self.conn
    }

    /// The table of marks: once the connection is bound, with its database. An effect may leave its
    /// session in another one, whose marks are of no account.
    pub(super) fn marks(&self) -> &str {
        self.marks.as_deref().unwrap_or("ringfence_marks")
    }

    /// Binds it, unless it is bound, to the database that is in use where its marks were read.
    pub(super) fn bind(&mut self, database: &str) {
        let quoted = || format!("`{}`.ringfence_marks", database.replace('`', "``"));
        self.marks.get_or_insert_with(quoted);
    }

    /// Closes it without waiting. The server rolls back what is open.
    pub(super) fn close(&mut self) {
        self.conn = None;
    }

    /// Whether the newest answer of the server says that a transaction is open. It knows nothing of it
    /// behind an error.
    pub(super) fn is_in_transaction(&self) -> bool {
        let ok = self.conn.as_ref().and_then(Conn::last_ok_packet);
        ok.is_some_and(|ok| {
            ok.status_flags()
                .contains(StatusFlags::SERVER_STATUS_IN_TRANS)
        })
    }

    /// Sends statements in one message, behind a statement that answers the message's number. The
    /// server stops at the first that fails.
    pub(super) async fn send(&mut self, statements: &[&str]) -> Result<Told, Silent> {
        // Held here while the answer is awaited: if this future is dropped, so is the connection.
        let mut conn = self.conn.take().ok_or(Silent::Closed)?;
        self.step = self.step.wrapping_add(1);
        let message = format!(
            "{IMPATIENT}; SELECT {}; {}; {PATIENT}",
            self.step,
            statements.join("; ")
        );
        let told = answers(&mut conn, &message, self.step).await?;
        if matches!(told, Told::Failed(..)) && !be_patient(&mut conn).await {
            return Ok(told);
        }
        self.conn = Some(conn);
        Ok(told)
    }
}

/// A kill request that comes between two statements of a message ends the message without an answer to
/// the second one (MariaDB 10.11, `dispatch_command`). The server waits for the next message then, and
/// would for hours. So it waits for a second only until a message is answered.
const IMPATIENT: &str = "SET @ringfence_wait = CAST(COALESCE(NULLIF(@@wait_timeout, 1), @ringfence_wait, 1) \
     AS UNSIGNED), wait_timeout = 1";
const PATIENT: &str = "SET wait_timeout = CAST(@ringfence_wait AS UNSIGNED)";
/// How often that is tried behind a message that has failed: another kill request may hit it, too.
const PATIENT_ATTEMPTS: usize = 3;

/// Lets the server wait for the next message as long as before; `false` if that fails.
async fn be_patient(conn: &mut Conn) -> bool {
    for _ in 0..PATIENT_ATTEMPTS {
        if conn.query_drop(PATIENT).await.is_ok() {
            return true;
        }
    }
    false
}

/// Reads what the server answers to each statement of `message`: the first makes it impatient, the second
/// answers `step`, and the last makes it patient again. The places of answers count from the second on.
async fn answers(conn: &mut Conn, message: &str, step: u64) -> Result<Told, Silent> {
    let mut result = match conn.query_iter(message).await {
        Ok(result) => result,
        Err(error @ mysql_async::Error::Server(_)) => return Ok(Told::Failed(0, error)),
        Err(error) => return Err(Silent::Broken(error)),
    };
    let mut sets = Vec::new();
    let mut first = true;
    loop {
        let mut rows = Vec::new();
        // It also reads how the next statement begins, or that it has failed.
        let read = result.for_each(|row| rows.push(row)).await;
        if !std::mem::take(&mut first) {
            if sets.is_empty() && !answers_step(&rows, step) && !planted(Bug::AnswerOfAnyMessage) {
                return Err(Silent::OutOfStep);
            }
            sets.push(rows);
        }
        match read {
            Ok(()) if result.is_empty() => break,
            Ok(()) => {}
            Err(error @ mysql_async::Error::Server(_)) => {
                return Ok(Told::Failed(sets.len(), error));
            }
            Err(error) => return Err(Silent::Broken(error)),
        }
    }
    // An answer to another message may be all that there is.
    if sets.is_empty() && !planted(Bug::AnswerOfAnyMessage) {
        return Err(Silent::OutOfStep);
    }
    match result.drop_result().await {
        Ok(()) => Ok(Told::Done(sets)),
        // The driver may keep the error of the statement behind the last one for this call.
        Err(error @ mysql_async::Error::Server(_)) => Ok(Told::Failed(sets.len(), error)),
        Err(error) => Err(Silent::Broken(error)),
    }
}

fn answers_step(rows: &[Row], step: u64) -> bool {
    let row = rows.first().and_then(|row| row.get_opt::<u64, _>(0));
    matches!(row, Some(Ok(number)) if number == step)
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
