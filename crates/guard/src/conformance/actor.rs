//! A holder at work: a short program over one connection.

use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::task::Poll;

use super::{AsyncConnection, AsyncStore, Step, Stop};
use crate::Fence;

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Begin a transaction and admit the fence.
    Admit,
    /// Begin a transaction and raise the mark.
    Advance,
    /// Read the datum.
    Read,
    /// Add the own bit to what was read, or to what stood there at the start.
    Write,
    /// Delete the datum.
    Delete,
    /// Commit.
    Commit,
}

/// How an actor's work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Every step was done.
    Finished,
    /// The guard refused it.
    Refused,
}

/// A step under way. It owns the connection and gives it back.
type Flight<C> = Pin<Box<dyn Future<Output = (C, Step<Option<u64>>)>>>;

enum Hand<C> {
    Idle(C),
    Busy {
        flight: Flight<C>,
        id: u64,
    },
    /// Only while one of the others is being made of what was there.
    Empty,
}

/// A holder, its program and how far it is.
pub(super) struct Actor<C> {
    pub(super) who: &'static str,
    pub(super) fence: Fence,
    /// What this holder adds to the datum, so that the end shows whose writes are in it.
    pub(super) bit: u64,
    pub(super) end: Option<End>,
    /// Waits until another actor gets on.
    pub(super) blocked: bool,
    pub(super) restarts: u32,
    /// Whether it has shown its token to the guard.
    pub(super) shown: bool,
    /// Whether the open transaction, or the one just committed, has written the datum.
    pub(super) wrote: bool,
    hand: Hand<C>,
    program: &'static [Op],
    at: usize,
    /// The step that began the open transaction.
    began: usize,
    seen: u64,
}

impl<C: AsyncConnection + 'static> Actor<C> {
    pub(super) fn new(
        who: &'static str,
        fence: Fence,
        bit: u64,
        program: &'static [Op],
        connection: C,
        initial: u64,
    ) -> Self {
        Self {
            who,
            fence,
            bit,
            end: None,
            blocked: false,
            restarts: 0,
            shown: false,
            wrote: false,
            hand: Hand::Idle(connection),
            program,
            at: 0,
            began: 0,
            seen: initial,
        }
    }

    /// The step that comes next; the actor has not ended.
    pub(super) fn next(&self) -> Op {
        self.program[self.at]
    }

    /// Whether this holder deletes where others write.
    pub(super) fn deletes(&self) -> bool {
        self.wrote && self.program.contains(&Op::Delete)
    }

    /// Whether a step of this holder waits inside the store.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self.hand, Hand::Busy { .. })
    }

    /// Tries the next step, or goes on with the one that waits.
    pub(super) async fn step(&mut self, store: &impl AsyncStore<Connection = C>) -> Step {
        let op = self.next();
        self.start(op);
        let Hand::Busy { flight, id } = &mut self.hand else {
            return Ok(());
        };
        let mut blocked = pin!(store.until_blocked(*id));
        let landed = poll_fn(|context| match flight.as_mut().poll(context) {
            Poll::Ready(landed) => Poll::Ready(Some(landed)),
            Poll::Pending => blocked.as_mut().poll(context).map(|()| None),
        });
        let Some((connection, outcome)) = landed.await else {
            return Err(Stop::Blocked);
        };
        self.hand = Hand::Idle(connection);
        self.done(op, outcome?);
        Ok(())
    }

    fn start(&mut self, op: Op) {
        let connection = match mem::replace(&mut self.hand, Hand::Empty) {
            Hand::Idle(connection) => connection,
            busy => {
                self.hand = busy;
                return;
            }
        };
        if matches!(op, Op::Admit | Op::Advance) {
            self.began = self.at;
            self.wrote = false;
            self.shown = true;
        }
        let id = connection.id();
        let (fence, value) = (self.fence.to_string(), self.seen | self.bit);
        let flight = Box::pin(perform(connection, op, fence, value));
        self.hand = Hand::Busy { flight, id };
    }

    fn done(&mut self, op: Op, read: Option<u64>) {
        if op == Op::Read {
            self.seen = read.unwrap_or(0);
        }
        self.wrote |= matches!(op, Op::Write | Op::Delete);
        self.at += 1;
        if self.at == self.program.len() {
            self.end = Some(End::Finished);
        }
    }

    /// Gives up the open transaction and goes back to its beginning.
    pub(super) async fn restart(&mut self) {
        self.abort().await;
        self.at = self.began;
        self.restarts += 1;
    }

    /// The guard has refused this actor: its work is over.
    pub(super) async fn refuse(&mut self) {
        self.abort().await;
        self.end = Some(End::Refused);
    }

    async fn abort(&mut self) {
        if let Hand::Idle(connection) = &mut self.hand {
            connection.abort().await;
        }
    }
}

async fn perform<C: AsyncConnection>(
    mut connection: C,
    op: Op,
    fence: String,
    value: u64,
) -> (C, Step<Option<u64>>) {
    let outcome = match op {
        Op::Admit => connection.admit(Some(&fence)).await,
        Op::Advance => connection.advance(&fence).await,
        Op::Write => connection.write(Some(value)).await,
        Op::Delete => connection.write(None).await,
        Op::Commit => connection.commit().await,
        Op::Read => {
            let read = connection.read().await;
            return (connection, read);
        }
    };
    (connection, outcome.map(|()| None))
}
