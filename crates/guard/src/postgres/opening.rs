//! How a guarded transaction is opened on a connection, and given up.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::PostgresError;
use crate::Fence;

/// What an admission answers: the server's number of the transaction that has written the mark, and
/// whether this message has opened it. `now()` is the time of the message that did.
macro_rules! told {
    () => {
        "pg_catalog.txid_current(), \
         pg_catalog.now() OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp()"
    };
}

/// The way of most writes: a statement that the server has parsed and planned once per connection.
/// It writes the mark also when it is equal, raises as the functions do, and changes no row if there
/// is none yet. A third of the cost of calling `ringfence.raise_mark` is saved.
///
/// Each name in it has its schema, operators too: the server parses it again whenever the session's
/// search path has changed. Its own name is not that of an earlier release, which wrote another table,
/// since a pooled connection may have that one prepared.
const PREPARE: &str = concat!(
    "PREPARE ringfence_raise_mark(pg_catalog.text, bigint) AS UPDATE ringfence.marks \
     SET mark = CASE WHEN mark OPERATOR(pg_catalog.<=) $2 THEN $2 \
     ELSE ringfence.stale($1, mark, $2) END \
     WHERE name OPERATOR(pg_catalog.=) $1 RETURNING ",
    told!(),
    // What a trigger has made of it.
    ", CASE WHEN mark OPERATOR(pg_catalog.=) $2 THEN $2 ELSE ringfence.stale($1, mark, $2) END"
);

/// How often one transaction may change its [`Way`] before it takes the one that always works.
const WAYS_MAX: u32 = 4;

/// How a transaction shows its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By the statement that an earlier write has prepared on this connection.
    Prepared,
    /// The same, which is prepared before.
    Prepare,
    /// By the function, which also makes a row where there is none.
    Raise,
}

impl Way {
    /// The statements that admit the fence.
    pub(super) fn admission(self, fence: &Fence) -> String {
        // Neither a lease name nor a number can end a text in SQL.
        let (name, token) = (&fence.name, fence.token);
        match self {
            Self::Prepared => format!("EXECUTE ringfence_raise_mark('{name}', {token})"),
            Self::Prepare => {
                format!("{PREPARE}; EXECUTE ringfence_raise_mark('{name}', {token})")
            }
            Self::Raise => format!(
                concat!("SELECT ", told!(), " FROM ringfence.raise_mark('{}', {})"),
                name, token
            ),
        }
    }

    /// The way to take instead of `self` where it has come to nothing on this connection.
    fn instead(
        self,
        begun: &Result<Vec<SimpleQueryMessage>, tokio_postgres::Error>,
    ) -> Option<Self> {
        match begun {
            Ok(answers) => {
                let rows = answers.iter().rev().find_map(|answer| match answer {
                    SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
                    _ => None,
                });
                (rows == Some(0)).then_some(Self::Raise)
            }
            Err(error) => {
                let code = error.code()?;
                if *code == SqlState::INVALID_SQL_STATEMENT_NAME {
                    Some(Self::Prepare)
                } else if *code == SqlState::DUPLICATE_PSTATEMENT {
                    Some(Self::Prepared)
                } else if *code == SqlState::IN_FAILED_SQL_TRANSACTION {
                    // The rollback of an earlier write was cancelled; the next one is on its way.
                    Some(self)
                } else {
                    None
                }
            }
        }
    }
}

/// The ways that one transaction tries.
pub(super) struct Ways {
    now: Way,
    left: u32,
}

impl Ways {
    pub(super) const fn new(prepares: bool) -> Self {
        let now = if prepares { Way::Prepared } else { Way::Raise };
        let left = WAYS_MAX;
        Self { now, left }
    }

    pub(super) const fn now(&self) -> Way {
        self.now
    }

    /// Whether another way is to be tried after this answer; that one is [`Ways::now`] then.
    pub(super) fn instead(
        &mut self,
        begun: &Result<Vec<SimpleQueryMessage>, tokio_postgres::Error>,
    ) -> bool {
        let instead = self.now.instead(begun);
        instead.is_some_and(|other| self.take(other))
    }

    const fn take(&mut self, other: Way) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.now = if self.left == 0 { Way::Raise } else { other };
        true
    }
}

/// An open transaction of this client. Dropping it sends a rollback and does not wait for it; what is
/// sent later comes later.
pub(super) struct Open<'a>(pub(super) &'a Client);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut rollback = pin!(self.0.batch_execute("ROLLBACK"));
        // The first poll sends it. No caller asks for the answer.
        let polled = rollback
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        drop(polled);
    }
}

/// What the planted bug `effect-sent-before-the-admission` does: the effect's first statement is sent behind the
/// admission without waiting for its answer.
pub(super) async fn pipelined<T, R>(
    begin: impl Future<Output = Result<T, PostgresError>>,
    effect: impl Future<Output = R>,
) -> Result<(T, R), PostgresError> {
    let (mut begin, mut effect) = (pin!(begin), pin!(effect));
    let (mut begun, mut value) = (None, None);
    poll_fn(|context| {
        if begun.is_none()
            && let Poll::Ready(outcome) = begin.as_mut().poll(context)
        {
            match outcome {
                Ok(outcome) => begun = Some(outcome),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if value.is_none()
            && let Poll::Ready(outcome) = effect.as_mut().poll(context)
        {
            value = Some(outcome);
        }
        match (begun.take(), value.take()) {
            (Some(begun), Some(value)) => Poll::Ready(Ok((begun, value))),
            unfinished => {
                (begun, value) = unfinished;
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As when each rollback is cancelled, so that each transaction finds the last one failed.
    #[test]
    fn ways_come_to_an_end_at_the_one_that_always_works() {
        for prepares in [true, false] {
            let mut ways = Ways::new(prepares);
            let mut tried = 1;
            while ways.take(ways.now()) {
                tried += 1;
            }
            assert_eq!((tried, ways.now()), (1 + WAYS_MAX, Way::Raise));
            assert!(!ways.take(Way::Prepare));
        }
    }
}
