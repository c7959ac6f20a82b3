//! How a store shows itself to the hostile suite.

use std::fmt;
use std::future;

use ringfence_core::FencingToken;

use crate::{Fence, Refused};

/// What happens to a guarded write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Hit {
    /// The store gives up the step as it begins, and has done nothing for it: a statement timeout
    /// that was over at once, a pooler that refuses, a file that cannot grow.
    TimesOut,
    /// The step is cancelled from outside while the store carries it out.
    Cancelled,
    /// The connection is reset before the first byte of the step has left.
    ResetBefore,
    /// The connection is reset in the middle of the step's bytes.
    ResetInside,
    /// The connection is reset when the store has done the step, before its answer arrives.
    ResetBehind,
    /// The store is killed while it carries out the step, and starts again.
    Restart,
}

impl Hit {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::TimesOut,
        Self::Cancelled,
        Self::ResetBefore,
        Self::ResetInside,
        Self::ResetBehind,
        Self::Restart,
    ];
}

/// A disturbance: what happens, and at which step of the write, counted from 0. What a step is, a
/// message or an instruction, is the store's matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What happens.
    pub hit: Hit,
    /// At which step.
    pub step: u32,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at step {}", self.hit, self.step)
    }
}

/// Statements of an effect that are about its transaction, not about data; in the words of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    /// Behind them the transaction has ended, and the effect goes on all the same: in none, in
    /// another one, or in a savepoint that opens one.
    Ends(&'static str),
    /// Behind them the transaction is the same: a savepoint that was undone, a nested one.
    Stays(&'static str),
}

impl Aside {
    /// The statements.
    #[must_use]
    pub const fn statements(self) -> &'static str {
        match self {
            Self::Ends(statements) | Self::Stays(statements) => statements,
        }
    }
}

/// What stands between a connection and the marks: settings or objects of its session by which their name
/// means something else. A temporary table of that name, for example, or another search path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// The statements that make it, in the words of the store.
    pub statements: &'static str,
    /// Since when it is there.
    pub since: Since,
}

/// When a [`Shadow`] comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Before the connection's first guarded write.
    TheBeginning,
    /// Behind a guarded write of another lease.
    AWrite,
    /// As the effect of a guarded write of another lease.
    AnEffect,
}

impl Since {
    /// All of them.
    pub const ALL: &[Self] = &[Self::TheBeginning, Self::AWrite, Self::AnEffect];
}

/// What a guarded write returned to its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It succeeded.
    Committed,
    /// The guard refused it.
    Refused(Refused),
    /// It failed with an error after which nothing is committed.
    Failed(String),
    /// It failed with an error that leaves open whether all of it is committed, or nothing.
    Unknown(String),
}

/// A guarded write that was disturbed, or was over before the fault came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disturbed {
    /// What it returned.
    pub written: Written,
    /// Whether it got as far as the step of the fault.
    pub reached: bool,
}

/// What the store holds. There are two data, so that an effect can be torn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The mark.
    pub mark: Option<FencingToken>,
    /// The first datum.
    pub first: Option<u64>,
    /// The second datum.
    pub second: Option<u64>,
}

/// A guarded store with two data whose connections can be disturbed. Implementations may write
/// `async fn`.
pub trait HostileStore {
    /// The kinds of fault that this store can meet.
    fn hits(&self) -> Vec<Hit>;

    /// Writes `datum` into both data in one guarded write, each with a statement of its own if the
    /// store has statements, through a connection of its own.
    ///
    /// With a fault the connection is disturbed, from the moment at which the write is called. How
    /// far it got is reported.
    fn write(
        &self,
        fence: &Fence,
        datum: u64,
        fault: Option<Fault>,
    ) -> impl Future<Output = Disturbed>;

    /// What effects of this store can do to their transactions; nothing, unless it has some that
    /// effects can reach.
    fn asides(&self) -> Vec<Aside> {
        Vec::new()
    }

    /// As [`HostileStore::write`], undisturbed, with an effect that carries out the statements of
    /// `aside`, awaits `meanwhile`, writes both data then, and overlooks every error. Called for
    /// the store's own [`HostileStore::asides`] only.
    fn write_aside(
        &self,
        _fence: &Fence,
        _datum: u64,
        aside: Aside,
        _meanwhile: impl AsyncFn(),
    ) -> impl Future<Output = Written> {
        future::ready(Written::Failed(format!("{aside:?} is not of this store")))
    }

    /// What can stand between a connection of this store and the marks, as statements; nothing, unless its
    /// sessions have names of their own.
    fn shadows(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// As [`HostileStore::write`], undisturbed, on a connection with this shadow. A store that refuses the
    /// statements goes on without them. Called for the store's own [`HostileStore::shadows`] only.
    fn write_shadowed(
        &self,
        _fence: &Fence,
        _datum: u64,
        shadow: Shadow,
    ) -> impl Future<Output = Written> {
        future::ready(Written::Failed(format!("{shadow:?} is not of this store")))
    }

    /// Waits until the store has nothing under way for connections that are gone, and reads mark
    /// and data.
    fn look(&self) -> impl Future<Output = Held>;
}
