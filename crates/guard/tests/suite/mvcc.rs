//! A small store of many versions, as most databases are, with a guard that can be made wrong.
//!
//! It has two rows, the mark and the datum. Reading a row takes no lock; writing it does, until
//! the end of the transaction. With its guard in order it passes the suite, so that whatever the
//! suite finds with a fault planted comes from the fault.

use std::cell::RefCell;
use std::rc::Rc;

use ringfence_guard::conformance::{Connection, Step, Stop, Store};
use ringfence_guard::{Ceiling, Fence, FencingToken, LeaseName, Refused};

/// What a transaction sees of the commits of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Each statement sees what is committed when it runs.
    ReadCommitted,
    /// All statements see what was committed when the transaction began; writing a row that
    /// changed since gives the transaction up.
    Snapshot,
}

/// How the guard is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not at all.
    None,
    /// An equal mark is read, not written: nothing holds it until the commit.
    EqualMarkOnlyRead,
    /// The mark is checked and raised in a transaction of its own, before the one that writes.
    CheckedBeforehand,
    /// The new holder's first read comes before it advances.
    ReadBeforeAdvance,
    /// Advancing does nothing: the first write is to raise the mark.
    AdvanceDoesNothing,
    /// The mark is deleted with the datum.
    MarkDeletedWithData,
    /// After a restore the mark is left as the copy has it.
    FloorForgotten,
    /// After a restore the mark is set to the floor, be it lower.
    FloorLowersMark,
    /// The mark is kept beside the store, not in it, and is lost when it closes.
    MarkNotStored,
    /// Only the token is looked at.
    AnyLease,
    /// Any token raises the mark, however far ahead of the clock.
    NoCeiling,
    /// A write without a fence passes.
    FenceOptional,
    /// A refused token must be greater, not greater or equal.
    EqualRefused,
    /// What is refused was written all the same.
    RefusedWriteStays,
    /// The refusal names the offered token as the mark.
    WrongMarkTold,
    /// The lock on the mark is never released.
    LockKept,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    Mark,
    Datum,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Version {
    value: Option<u64>,
    /// The commit that wrote it.
    commit: u64,
}

#[derive(Default)]
struct Engine {
    rows: [Version; 2],
    /// The transaction that writes each row.
    locks: [Option<u64>; 2],
    commits: u64,
    transactions: u64,
}

struct Transaction {
    id: u64,
    snapshot: [Version; 2],
    writes: [Option<Option<u64>>; 2],
}

/// The store under test.
pub(crate) struct Mvcc {
    engine: Rc<RefCell<Engine>>,
    name: LeaseName,
    isolation: Isolation,
    fault: Fault,
}

impl Mvcc {
    pub(crate) fn new(name: &LeaseName, isolation: Isolation, fault: Fault) -> Self {
        Self {
            engine: Rc::default(),
            name: name.clone(),
            isolation,
            fault,
        }
    }
}

impl Store for Mvcc {
    type Connection = Client;
    type Backup = [Version; 2];

    fn connect(&self) -> Client {
        Client {
            engine: Rc::clone(&self.engine),
            name: self.name.clone(),
            isolation: self.isolation,
            fault: self.fault,
            open: None,
            read_early: None,
        }
    }

    fn reopen(&mut self) {
        if self.fault == Fault::MarkNotStored {
            self.engine.borrow_mut().rows[Row::Mark as usize] = Version::default();
        }
    }

    fn backup(&self) -> Self::Backup {
        self.engine.borrow().rows
    }

    fn restore(&mut self, backup: Self::Backup) {
        self.engine.borrow_mut().rows = backup;
    }

    fn advance_to(&mut self, floor: FencingToken) {
        let mark = &mut self.engine.borrow_mut().rows[Row::Mark as usize].value;
        match self.fault {
            Fault::FloorForgotten => {}
            Fault::FloorLowersMark => *mark = Some(floor.get()),
            _ => *mark = (*mark).max(Some(floor.get())),
        }
    }
}

pub(crate) struct Client {
    engine: Rc<RefCell<Engine>>,
    name: LeaseName,
    isolation: Isolation,
    fault: Fault,
    open: Option<Transaction>,
    /// What a holder read before it advanced, if it is wrong in that way.
    read_early: Option<Option<u64>>,
}

impl Client {
    fn begin(&mut self) {
        self.abort();
        let mut engine = self.engine.borrow_mut();
        engine.transactions += 1;
        let (id, snapshot) = (engine.transactions, engine.rows);
        self.open = Some(Transaction {
            id,
            snapshot,
            writes: [None; 2],
        });
    }

    fn get(&self, row: Row) -> Option<u64> {
        let newest = self.engine.borrow().rows[row as usize].value;
        let Some(open) = &self.open else {
            return newest;
        };
        open.writes[row as usize].unwrap_or(match self.isolation {
            Isolation::ReadCommitted => newest,
            Isolation::Snapshot => open.snapshot[row as usize].value,
        })
    }

    fn lock(&mut self, row: Row) -> Step {
        let open = self.open.as_ref().expect("begun");
        let mut engine = self.engine.borrow_mut();
        if engine.locks[row as usize].is_some_and(|holder| holder != open.id) {
            return Err(Stop::Blocked);
        }
        let unseen = engine.rows[row as usize].commit > open.snapshot[row as usize].commit;
        if self.isolation == Isolation::Snapshot && unseen {
            return Err(Stop::Restart);
        }
        engine.locks[row as usize] = Some(open.id);
        Ok(())
    }

    fn put(&mut self, row: Row, value: Option<u64>) -> Step {
        self.lock(row)?;
        self.open.as_mut().expect("begun").writes[row as usize] = Some(value);
        Ok(())
    }

    fn check(&self, offered: FencingToken) -> Result<(), Stop> {
        let mark = self.get(Row::Mark).and_then(FencingToken::new);
        if self.fault != Fault::NoCeiling {
            let fence = Fence::new(self.name.clone(), offered);
            Ceiling::Clock.judge(&fence, mark)?;
        }
        let Some(mark) = mark else {
            return Ok(());
        };
        let equal_refused = self.fault == Fault::EqualRefused && mark == offered;
        if mark < offered || (mark == offered && !equal_refused) {
            return Ok(());
        }
        let mark = if self.fault == Fault::WrongMarkTold {
            offered
        } else {
            mark
        };
        Err(Refused::StaleToken {
            name: self.name.clone(),
            offered,
            mark,
        }
        .into())
    }

    fn receive(&self, fence: Option<&str>) -> Result<Fence, Refused> {
        let received = Fence::receive(&self.name, fence);
        match (&received, fence) {
            (Err(Refused::WrongLease { .. }), Some(raw)) if self.fault == Fault::AnyLease => {
                let token = raw.parse::<Fence>().expect("parsed before").token;
                Ok(Fence::new(self.name.clone(), token))
            }
            (Err(Refused::MissingFence { .. }), _) if self.fault == Fault::FenceOptional => {
                Ok(Fence::new(
                    self.name.clone(),
                    FencingToken::new(8).expect("8 is a token"),
                ))
            }
            _ => received,
        }
    }

    fn guard(&mut self, fence: Option<&str>) -> Step {
        let token = self.receive(fence)?.token;
        self.begin();
        if self.fault == Fault::EqualMarkOnlyRead && self.get(Row::Mark) == Some(token.get()) {
            return Ok(());
        }
        self.lock(Row::Mark)?;
        self.check(token)?;
        self.put(Row::Mark, Some(token.get()))
    }
}

impl Connection for Client {
    fn admit(&mut self, fence: Option<&str>) -> Step {
        let guarded = self.guard(fence);
        if self.fault == Fault::CheckedBeforehand && guarded.is_ok() {
            self.commit()?;
            self.begin();
        }
        if self.fault == Fault::RefusedWriteStays && matches!(guarded, Err(Stop::Refused(_))) {
            self.engine.borrow_mut().rows[Row::Datum as usize].value = Some(666);
        }
        guarded
    }

    fn advance(&mut self, fence: &str) -> Step {
        if self.fault == Fault::ReadBeforeAdvance && self.read_early.is_none() {
            self.read_early = Some(self.get(Row::Datum));
        }
        if self.fault == Fault::AdvanceDoesNothing {
            return Ok(());
        }
        self.guard(Some(fence))
    }

    fn read(&mut self) -> Step<Option<u64>> {
        Ok(self.read_early.unwrap_or_else(|| self.get(Row::Datum)))
    }

    fn write(&mut self, datum: Option<u64>) -> Step {
        if datum.is_none() && self.fault == Fault::MarkDeletedWithData {
            self.put(Row::Mark, None)?;
        }
        self.put(Row::Datum, datum)
    }

    fn commit(&mut self) -> Step {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let mut engine = self.engine.borrow_mut();
        engine.commits += 1;
        let commit = engine.commits;
        for row in [Row::Mark, Row::Datum] {
            if let Some(value) = open.writes[row as usize] {
                engine.rows[row as usize] = Version { value, commit };
            }
            let kept = self.fault == Fault::LockKept && row == Row::Mark;
            if engine.locks[row as usize] == Some(open.id) && !kept {
                engine.locks[row as usize] = None;
            }
        }
        Ok(())
    }

    fn abort(&mut self) {
        let Some(open) = self.open.take() else { return };
        for lock in &mut self.engine.borrow_mut().locks {
            if *lock == Some(open.id) {
                *lock = None;
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.abort();
    }
}
