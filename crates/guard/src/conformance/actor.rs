//! A holder at work: a short program over one connection.

use super::{Connection, Step, Stop};
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
    connection: C,
    program: &'static [Op],
    at: usize,
    /// The step that began the open transaction.
    began: usize,
    seen: u64,
}

impl<C: Connection> Actor<C> {
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
            connection,
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

    /// Tries the next step.
    pub(super) fn step(&mut self) -> Step {
        let op = self.next();
        match op {
            Op::Admit | Op::Advance => self.begin(op)?,
            Op::Read => self.seen = self.connection.read()?.unwrap_or(0),
            Op::Write => self.connection.write(Some(self.seen | self.bit))?,
            Op::Delete => self.connection.write(None)?,
            Op::Commit => self.connection.commit()?,
        }
        self.wrote |= matches!(op, Op::Write | Op::Delete);
        self.at += 1;
        if self.at == self.program.len() {
            self.end = Some(End::Finished);
        }
        Ok(())
    }

    fn begin(&mut self, op: Op) -> Result<(), Stop> {
        self.began = self.at;
        self.wrote = false;
        self.shown = true;
        let fence = self.fence.to_string();
        if op == Op::Advance {
            self.connection.advance(&fence)
        } else {
            self.connection.admit(Some(&fence))
        }
    }

    /// Gives up the open transaction and goes back to its beginning.
    pub(super) fn restart(&mut self) {
        self.connection.abort();
        self.at = self.began;
        self.restarts += 1;
    }

    /// The guard has refused this actor: its work is over.
    pub(super) fn refuse(&mut self) {
        self.connection.abort();
        self.end = Some(End::Refused);
    }
}
