//! The test that every guarded store must pass, whatever it is made of.
//!
//! A store shows itself as a [`Store`] with [`Connection`]s of single small steps. [`run`] then
//! plays an overtaken holder against its successor through **every** order in which their steps
//! can follow each other, and holds what came of it against these rules:
//!
//! * in commit order, admitted tokens never decrease;
//! * no acknowledged write is lost, and nothing else is ever found;
//! * data deleted by the successor is not brought back by the one it overtook;
//! * nobody is refused unless a greater token was shown, so never the newest grant;
//! * a fence of another lease, none, or a malformed one is refused and changes nothing;
//! * the same token is admitted again; advancing twice changes nothing;
//! * marks survive a reopening, and a restore with a floor keeps out whom the copy would let in.
//!
//! A guard can be wrong in ways that no single run shows: reading the mark without locking it
//! works until somebody commits in between. That is why the orders are enumerated, not drawn.
//!
//! # How a step waits
//! The whole suite runs on one thread, so a step must never wait. Where a store would block, the
//! step answers [`Stop::Blocked`]; it is tried again after another connection got on, and is
//! no fault. A transaction that its store has given up (a deadlock, a snapshot too old) answers
//! [`Stop::Restart`] and is repeated from its beginning.

use std::fmt;

use ringfence_core::{FencingToken, LeaseName};

use crate::{Fence, Refused};

mod actor;
mod overtaking;
mod schedule;
mod single;

/// What the names of all the suite's leases begin with; a number of their own follows.
const LEASES: &str = "conformance/store-";

/// A fresh guarded store with one datum, absent at first, and no mark.
pub trait Store {
    /// One of its connections.
    type Connection: Connection;
    /// A copy of everything that a backup of this store holds: the datum and the mark.
    type Backup;

    /// Opens another connection.
    fn connect(&self) -> Self::Connection;

    /// Closes the store and opens it again, as after a crash of its process. Called without
    /// connections. A store that lives and dies with its data, mark included, does nothing.
    fn reopen(&mut self);

    /// Copies the store. Called without open transactions.
    fn backup(&self) -> Self::Backup;

    /// Replaces the store's content with the copy, then raises the mark to `floor`, as an operator
    /// must before writes are served. Called without connections.
    fn restore(&mut self, backup: Self::Backup, floor: FencingToken);
}

/// One connection, with at most one transaction open. Dropping it rolls back.
pub trait Connection {
    /// Begins a transaction and admits the fence in it, given as a request would carry it: `None`
    /// if it carried none.
    ///
    /// # Errors
    /// [`Stop`]; no transaction is open then, or [`Connection::abort`] closes it.
    fn admit(&mut self, fence: Option<&str>) -> Step;

    /// Begins a transaction and raises the mark in it, for a holder that has just been granted the
    /// lease. [`Connection::commit`] follows; if the store commits at once, that does nothing.
    ///
    /// # Errors
    /// As [`Connection::admit`].
    fn advance(&mut self, fence: &str) -> Step;

    /// Reads the datum: within the open transaction if there is one, else on its own.
    ///
    /// # Errors
    /// [`Stop`]; the transaction stays open unless it is [`Stop::Restart`].
    fn read(&mut self) -> Step<Option<u64>>;

    /// Sets the datum within the open transaction; `None` deletes it. A store whose check is part
    /// of its commit may only note it here.
    ///
    /// # Errors
    /// As [`Connection::read`].
    fn write(&mut self, datum: Option<u64>) -> Step;

    /// Commits the open transaction.
    ///
    /// # Errors
    /// As [`Connection::read`]; nothing was committed then.
    fn commit(&mut self) -> Step;

    /// Gives up the open transaction, if there is one.
    fn abort(&mut self);
}

/// What became of one step.
pub type Step<T = ()> = Result<T, Stop>;

/// Why a step did not happen.
#[derive(Debug)]
pub enum Stop {
    /// Another connection is in the way. The step had no effect and may be tried again.
    Blocked,
    /// The store has given up the transaction; it must be repeated from its beginning.
    Restart,
    /// The guard refused.
    Refused(Refused),
    /// The store failed in a way that has nothing to do with guarding.
    Broken(String),
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// What a passed run has seen, so that a reader can tell it was not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Orders of steps that were played.
    pub schedules: u64,
    /// Of these, orders in which the overtaken holder's work was committed.
    pub admitted: u64,
    /// Orders in which it was refused.
    pub refused: u64,
    /// Steps that found another connection in the way.
    pub blocked: u64,
    /// Transactions that were repeated from their beginning.
    pub restarted: u64,
}

/// The rule that a store broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rule {
    /// A token was committed after a greater one.
    #[error("token {after} was committed after token {before}")]
    TokensDecreased {
        /// The greatest token committed before.
        before: FencingToken,
        /// The smaller token committed then.
        after: FencingToken,
    },
    /// The datum is not what the acknowledged writes make of it.
    #[error("acknowledged writes make the datum {expected:?}, but {found:?} was found")]
    WrongDatum {
        /// What it should be.
        expected: Option<u64>,
        /// What it is.
        found: Option<u64>,
    },
    /// A fence was refused though no greater token had been shown.
    #[error("fence `{offered}` was refused without cause: {refused}")]
    RefusedWithoutCause {
        /// The fence.
        offered: String,
        /// The refusal.
        refused: Refused,
    },
    /// A refusal does not say what happened.
    #[error("fence {offered:?} had to be refused with {expected}, but: {refused}")]
    WrongRefusal {
        /// The fence, `None` if none was shown.
        offered: Option<String>,
        /// The refusal that was due.
        expected: String,
        /// The refusal that came.
        refused: Refused,
    },
    /// A fence was admitted that must be refused.
    #[error("fence {offered:?} was admitted, but had to be refused with {expected}")]
    WronglyAdmitted {
        /// The fence, `None` if none was shown.
        offered: Option<String>,
        /// The refusal that was due.
        expected: String,
    },
    /// The connections wait for each other for ever, or one alone makes no progress.
    #[error("the connections make no progress")]
    Stuck,
    /// The store failed.
    #[error("the store failed: {0}")]
    Broken(String),
}

/// A rule that was broken, and how it came to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What was being tried.
    pub case: String,
    /// The rule that was broken.
    pub rule: Rule,
    /// The steps that led there, in their order.
    pub story: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.rule)?;
        write!(f, "in the case: {}", self.case)?;
        self.story
            .iter()
            .try_for_each(|step| write!(f, "\n  {step}"))
    }
}

impl std::error::Error for Violation {}

/// Runs the whole suite. `fresh` makes a new empty store, guarded by the lease it is given. It is
/// called once for every order that is played, up to a thousand times, each with another lease:
/// where opening a store is slow, they may all be parts of one.
///
/// # Errors
/// The first [`Violation`] that was found.
pub fn run<S: Store>(fresh: impl FnMut(&LeaseName) -> S) -> Result<Report, Box<Violation>> {
    let mut subjects = Subjects { fresh, made: 0 };
    single::run(&mut subjects)?;
    overtaking::run(&mut subjects)
}

/// Makes one subject after the other.
struct Subjects<F> {
    fresh: F,
    made: u64,
}

impl<F> Subjects<F> {
    fn next<S>(&mut self) -> Subject<S>
    where
        F: FnMut(&LeaseName) -> S,
    {
        self.made += 1;
        let lease = LeaseName::parse(&format!("{LEASES}{}", self.made))
            .expect("the suite's own lease names are well formed");
        Subject {
            store: (self.fresh)(&lease),
            lease,
        }
    }
}

/// A store under test, and the lease that guards it.
struct Subject<S> {
    store: S,
    lease: LeaseName,
}

impl<S> Subject<S> {
    /// The fence with this token.
    fn fence(&self, token: FencingToken) -> Fence {
        Fence::new(self.lease.clone(), token)
    }

    /// The refusal that is due when `offered` is shown after `mark` was.
    fn stale(&self, offered: FencingToken, mark: FencingToken) -> Refused {
        Refused::StaleToken {
            name: self.lease.clone(),
            offered,
            mark,
        }
    }
}

/// The tokens of the suite are small constants.
fn token(value: u64) -> FencingToken {
    FencingToken::new(value).expect("the suite's own tokens are in range")
}
