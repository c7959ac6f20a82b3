//! The test that every guarded store must pass, whatever it is made of.
//!
//! A store shows itself as a [`Store`] with [`Connection`]s of single small steps, or as an
//! [`AsyncStore`] with [`AsyncConnection`]s. [`run`] and [`run_async`] then play a stale holder
//! against its successor through **every** order in which their steps can follow each other, and
//! hold what came of it against these rules:
//!
//! * in commit order, admitted tokens never decrease;
//! * no acknowledged write is lost, and nothing else is ever found;
//! * data deleted by the successor is not brought back by the one it overtook;
//! * no holder is refused unless a greater token was shown, so never the newest grant;
//! * a fence of another lease, none, or a malformed one is refused and changes nothing;
//! * the same token is admitted again; advancing twice changes nothing;
//! * tokens are exact up to 2^63 - 1, also beyond what a double can tell apart;
//! * a holder that is cut off between its check and its commit leaves nothing, and stops no other
//!   holder;
//! * marks survive a reopening; a restore brings back mark and data together, and with a floor keeps
//!   out whom the copy alone would let in.
//!
//! [`crowd`] and [`crowd_async`] let [`WRITERS`] writers loose on one store at the same time and
//! hold the first two rules against all that they committed.
//!
//! [`hostile`] disturbs guarded writes at each of their steps, with timeouts, cancel requests, resets
//! and restarts, has effects end their transactions and go on, hides the marks from sessions, and demands
//! that what was refused or has failed has committed nothing. A store shows itself to it as a [`HostileStore`].
//!
//! A guard can be wrong in ways that no single run shows: reading the mark without locking it
//! works until another holder commits in between. That is why the orders are enumerated, not drawn.
//!
//! # How a step waits
//! A step of a [`Connection`] must never wait, since all run on one thread. Where a store would
//! block, the step answers [`Stop::Blocked`]; it is tried again after another connection got on, and
//! is no fault.
//!
//! A step of an [`AsyncConnection`] may wait inside its store. That one does is for
//! [`AsyncStore::until_blocked`] to notice; others then get on, and the step ends when the store lets
//! it. A store in which no connection waits for another needs nothing of this.
//!
//! A transaction that its store has given up (a deadlock, a snapshot too old) answers
//! [`Stop::Restart`] and is repeated from its beginning.
//!
//! # An adapter of one's own
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::{Arc, Mutex};
//!
//! use ringfence_guard::conformance::{Connection, Step, Store, crowd, run};
//! use ringfence_guard::{Ceiling, Fence, FencingToken, LeaseName};
//!
//! /// Mark and datum under one lock, which a write holds from the check to the end.
//! #[derive(Clone, Copy, Default)]
//! struct Row {
//!     mark: Option<FencingToken>,
//!     datum: Option<u64>,
//! }
//!
//! struct Shelf(LeaseName, Arc<Mutex<Row>>);
//!
//! impl Store for Shelf {
//!     type Connection = Hand;
//!     type Backup = Row;
//!     fn connect(&self) -> Hand {
//!         Hand { name: self.0.clone(), row: Arc::clone(&self.1), open: None }
//!     }
//!     fn reopen(&mut self) {}
//!     fn backup(&self) -> Row {
//!         *self.1.lock().unwrap()
//!     }
//!     fn restore(&mut self, backup: Row) {
//!         *self.1.lock().unwrap() = backup;
//!     }
//!     fn advance_to(&mut self, floor: FencingToken) {
//!         let mut row = self.1.lock().unwrap();
//!         row.mark = row.mark.max(Some(floor));
//!     }
//! }
//!
//! struct Hand {
//!     name: LeaseName,
//!     row: Arc<Mutex<Row>>,
//!     /// The fence, and what is to be written.
//!     open: Option<(Fence, Option<Option<u64>>)>,
//! }
//!
//! fn check(row: &Row, fence: &Fence) -> Step {
//!     fence.judge(&fence.name, row.mark)?;
//!     Ok(Ceiling::default().judge(fence, row.mark)?)
//! }
//!
//! impl Connection for Hand {
//!     fn admit(&mut self, fence: Option<&str>) -> Step {
//!         let fence = Fence::receive(&self.name, fence)?;
//!         check(&self.row.lock().unwrap(), &fence)?;
//!         self.open = Some((fence, None));
//!         Ok(())
//!     }
//!     fn advance(&mut self, fence: &str) -> Step {
//!         self.admit(Some(fence))?;
//!         self.commit()
//!     }
//!     fn read(&mut self) -> Step<Option<u64>> {
//!         let noted = self.open.as_ref().and_then(|(_, noted)| *noted);
//!         Ok(noted.unwrap_or(self.row.lock().unwrap().datum))
//!     }
//!     fn write(&mut self, datum: Option<u64>) -> Step {
//!         self.open.as_mut().unwrap().1 = Some(datum);
//!         Ok(())
//!     }
//!     fn commit(&mut self) -> Step {
//!         let Some((fence, noted)) = self.open.take() else {
//!             return Ok(());
//!         };
//!         let mut row = self.row.lock().unwrap();
//!         check(&row, &fence)?; // once more, now that no writer can come between
//!         row.mark = Some(fence.token);
//!         row.datum = noted.unwrap_or(row.datum);
//!         Ok(())
//!     }
//!     fn abort(&mut self) {
//!         self.open = None;
//!     }
//! }
//!
//! let fresh = |name: &LeaseName| Shelf(name.clone(), Arc::default());
//! let report = run(fresh)?;
//! assert!(report.refused > 0, "an empty run shows nothing");
//! crowd(fresh)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

use ringfence_core::{FencingToken, LeaseName};

use crate::{Fence, Refused};

mod actor;
mod crowd;
mod direct;
mod hostile;
mod hostile_store;
mod overtaking;
mod schedule;
mod single;
mod store;

pub use crowd::{CrowdReport, ROUNDS, WRITERS, crowd, crowd_async};
pub use hostile::{HostileReport, STEPS_MAX, hostile, judge};
pub use hostile_store::{Aside, Disturbed, Fault, Held, Hit, HostileStore, Shadow, Since, Written};
pub use store::{AsyncConnection, AsyncStore, Connection, Store};

use direct::{Direct, block_on};

/// What the names of all the suite's leases begin with; a number of their own follows.
const LEASES: &str = "conformance/store-";

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
    /// Of these, orders in which the stale holder's work was committed.
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
    /// A write has left something although it was refused, failed or stale; or a part of it.
    #[error("fence `{offered}` has left something in the store, though {what}: {found}")]
    CommittedAfterAll {
        /// The fence.
        offered: String,
        /// What became of its write.
        what: String,
        /// What the store holds.
        found: String,
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

/// Runs the stepped part of the suite. `fresh` makes a new empty store, guarded by the lease it is
/// given. It is called once for every order that is played, up to a thousand times, each with
/// another lease: where opening a store is slow, they may all be parts of one.
///
/// # Errors
/// The first [`Violation`] that was found.
pub fn run<S: Store>(mut fresh: impl FnMut(&LeaseName) -> S) -> Result<Report, Box<Violation>> {
    block_on(run_async(async |lease: &LeaseName| {
        Direct(Box::new(fresh(lease)))
    }))
}

/// As [`run`], for a store that is reached by futures. All of it is one future, to be awaited under
/// whatever runtime the store's own futures need. It has no limit of its own: a store that loses
/// a wake-up hangs it.
///
/// # Errors
/// The first [`Violation`] that was found.
pub async fn run_async<S: AsyncStore>(
    fresh: impl AsyncFnMut(&LeaseName) -> S,
) -> Result<Report, Box<Violation>> {
    let mut subjects = Subjects { fresh, made: 0 };
    single::run(&mut subjects).await?;
    overtaking::run(&mut subjects).await
}

/// Makes one subject after the other.
struct Subjects<F> {
    fresh: F,
    made: u64,
}

impl<F> Subjects<F> {
    async fn next<S>(&mut self) -> Subject<S>
    where
        F: AsyncFnMut(&LeaseName) -> S,
    {
        self.made += 1;
        let lease = suite_lease(self.made);
        Subject {
            store: (self.fresh)(&lease).await,
            lease,
        }
    }
}

fn suite_lease(number: u64) -> LeaseName {
    LeaseName::parse(&format!("{LEASES}{number}"))
        .expect("the suite's own lease names are well formed")
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
