//! Guarded writes whose connection is disturbed at each step between the first byte and the commit,
//! or whose effect ends its transaction and goes on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future;

use ringfence_core::{FencingToken, LeaseName};

use super::{Rule, Violation, suite_lease, token};
use crate::{Fence, Refused};

/// The most steps of one guarded write that the suite disturbs, per kind of fault. A store whose
/// write has more is not tested to its end, and fails.
pub const STEPS_MAX: u32 = 4_096;

/// The calm holder's datum, and those of the writes that are disturbed.
const BEFORE: u64 = 1;
const DISTURBED: u64 = 2;
const AFTER: u64 = 3;

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

/// What stands in the store. There are two data, so that an effect can be torn.
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

    /// Waits until the store has nothing under way for connections that are gone, and reads mark
    /// and data.
    fn look(&self) -> impl Future<Output = Held>;
}

/// What a passed run has seen, so that a reader can tell it was not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostileReport {
    /// Writes that met their fault, by its kind.
    pub faults: BTreeMap<Hit, u64>,
    /// Writes whose effect had an [`Aside`].
    pub asides: u64,
    /// Of all these, writes that succeeded all the same.
    pub committed: u64,
    /// Writes that the guard refused.
    pub refused: u64,
    /// Writes that failed, with nothing committed.
    pub failed: u64,
    /// Writes whose outcome the error left open.
    pub unknown: u64,
}

impl HostileReport {
    /// Notes a write that met a fault.
    pub fn note(&mut self, hit: Hit, written: &Written) {
        *self.faults.entry(hit).or_default() += 1;
        self.came(written);
    }

    const fn came(&mut self, written: &Written) {
        match written {
            Written::Committed => self.committed += 1,
            Written::Refused(_) => self.refused += 1,
            Written::Failed(_) => self.failed += 1,
            Written::Unknown(_) => self.unknown += 1,
        }
    }
}

/// Who writes.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    /// The newest token that has written, and the one that the disturbed write shows.
    mark: u64,
    shown: u64,
}

const CASES: &[Case] = &[
    Case {
        name: "a stale holder",
        mark: 9,
        shown: 8,
    },
    Case {
        name: "the holder",
        mark: 9,
        shown: 9,
    },
    Case {
        name: "a new holder",
        mark: 8,
        shown: 9,
    },
];

/// Disturbs guarded writes of stale and rightful holders, with each kind of fault that the store
/// can meet, at each step that a write has, and holds what is in the store then against one rule:
/// **what was refused or has failed has committed nothing.** Where the error leaves the outcome open,
/// all of the write or nothing may be there; never a part of it, and nothing at all of a stale
/// holder. The next write of the rightful holder succeeds.
///
/// Before that, effects end their transaction in each way that the store has, become stale, and go
/// on: nothing of what they write then may stay, and their write does not succeed. With savepoints
/// they do.
///
/// `fresh` makes a new empty store, guarded by the lease it is given; once per fault and step.
///
/// # Errors
/// The first [`Violation`] that was found.
pub async fn hostile<S: HostileStore>(
    fresh: impl AsyncFn(&LeaseName) -> S,
) -> Result<HostileReport, Box<Violation>> {
    let mut report = HostileReport::default();
    let mut made = 0;
    let asides = fresh(&suite_lease(made)).await.asides();
    for aside in asides {
        made += 1;
        let lease = suite_lease(made);
        let store = fresh(&lease).await;
        let mut story = Vec::new();
        let done = with_aside(&store, &lease, aside, &mut story).await;
        let written = done.map_err(|rule| {
            Box::new(Violation {
                case: format!("an effect with {aside:?}"),
                rule,
                story,
            })
        })?;
        report.asides += 1;
        report.came(&written);
    }
    for &case in CASES {
        for &hit in Hit::ALL {
            for step in 0..=STEPS_MAX {
                made += 1;
                let lease = suite_lease(made);
                let store = fresh(&lease).await;
                if !store.hits().contains(&hit) {
                    break;
                }
                let fault = Fault { hit, step };
                let mut story = Vec::new();
                let done = disturb(&store, &lease, case, fault, &mut story).await;
                let disturbed = done.map_err(|rule| {
                    Box::new(Violation {
                        case: format!("{} meets {fault}", case.name),
                        rule,
                        story,
                    })
                })?;
                if !disturbed.reached {
                    break;
                }
                report.note(hit, &disturbed.written);
                if step == STEPS_MAX {
                    return Err(Box::new(Violation {
                        case: format!("{} meets {fault}", case.name),
                        rule: Rule::Broken(format!("a write has more than {STEPS_MAX} steps")),
                        story: vec![],
                    }));
                }
            }
        }
    }
    Ok(report)
}

async fn disturb<S: HostileStore>(
    store: &S,
    lease: &LeaseName,
    case: Case,
    fault: Fault,
    story: &mut Vec<String>,
) -> Result<Disturbed, Rule> {
    let fence = |value| Fence::new(lease.clone(), token(value));
    calm(store, &fence(case.mark), BEFORE, story).await?;
    let before = store.look().await;

    let shown = fence(case.shown);
    let disturbed = store.write(&shown, DISTURBED, Some(fault)).await;
    story.push(format!("{shown} writes {DISTURBED}: {disturbed:?}"));
    let held = store.look().await;
    story.push(format!("then there is {held:?}"));
    judge(&shown, DISTURBED, before, held, &disturbed.written)?;

    // Whatever happened, the newest holder goes on.
    let newest = fence(case.mark.max(case.shown));
    calm(store, &newest, AFTER, story).await?;
    Ok(disturbed)
}

async fn with_aside<S: HostileStore>(
    store: &S,
    lease: &LeaseName,
    aside: Aside,
    story: &mut Vec<String>,
) -> Result<Written, Rule> {
    let [old, new, last] = [8, 9, 10].map(|value| Fence::new(lease.clone(), token(value)));
    calm(store, &old, BEFORE, story).await?;
    if let Aside::Stays(_) = aside {
        let before = store.look().await;
        let written = store.write_aside(&new, DISTURBED, aside, async || {}).await;
        story.push(format!("{new} writes {DISTURBED}: {written:?}"));
        if written != Written::Committed {
            return Err(Rule::Broken(format!("it is not committed: {written:?}")));
        }
        judge(&new, DISTURBED, before, store.look().await, &written)?;
        calm(store, &last, AFTER, story).await?;
        let stale = store.write_aside(&old, DISTURBED, aside, async || {}).await;
        story.push(format!("{old} writes {DISTURBED} with it: {stale:?}"));
        let after = whole(&last, AFTER);
        judge(&old, DISTURBED, after, store.look().await, &stale)?;
        return Ok(written);
    }

    let taken_over = RefCell::new(None);
    let take_over = async || {
        let done = store.write(&new, AFTER, None).await;
        taken_over.replace(Some(done.written));
    };
    let written = store.write_aside(&old, DISTURBED, aside, take_over).await;
    let taken_over = taken_over.into_inner();
    story.push(format!("meanwhile {new} writes {AFTER}: {taken_over:?}"));
    story.push(format!("{old} writes {DISTURBED} behind it: {written:?}"));
    if taken_over != Some(Written::Committed) {
        return Err(Rule::Broken(format!("a calm write: {taken_over:?}")));
    }
    let held = store.look().await;
    story.push(format!("then there is {held:?}"));
    judge(&old, DISTURBED, whole(&new, AFTER), held, &written)?;
    calm(store, &last, AFTER, story).await?;
    Ok(written)
}

/// What stands in a store behind a whole write.
const fn whole(fence: &Fence, datum: u64) -> Held {
    Held {
        mark: Some(fence.token),
        first: Some(datum),
        second: Some(datum),
    }
}

/// Holds what a guarded write has left against what it returned. `before` and `held` are what stood in
/// the store before and behind it, while no other connection wrote.
///
/// # Errors
/// The rule that was broken.
pub fn judge(
    shown: &Fence,
    datum: u64,
    before: Held,
    held: Held,
    written: &Written,
) -> Result<(), Rule> {
    let all = whole(shown, datum);
    let stale = before.mark.filter(|&mark| mark > shown.token);
    let nothing_left = || {
        let broken = |what: &str| Rule::CommittedAfterAll {
            offered: shown.to_string(),
            what: what.to_owned(),
            found: format!("{held:?}"),
        };
        match written {
            _ if held == before => Ok(()),
            _ if stale.is_some() => Err(broken("it was stale")),
            Written::Refused(_) => Err(broken("it was refused")),
            Written::Failed(_) => Err(broken("it failed")),
            Written::Committed | Written::Unknown(_) => Err(broken("it is torn")),
        }
    };
    match (written, stale) {
        (Written::Committed, Some(mark)) => Err(Rule::TokensDecreased {
            before: mark,
            after: shown.token,
        }),
        (Written::Refused(refused), None) => Err(Rule::RefusedWithoutCause {
            offered: shown.to_string(),
            refused: refused.clone(),
        }),
        (Written::Refused(refused), Some(mark)) if *refused != shown.overtaken_by(mark) => {
            Err(Rule::WrongRefusal {
                offered: Some(shown.to_string()),
                expected: shown.overtaken_by(mark).to_string(),
                refused: refused.clone(),
            })
        }
        (Written::Committed, None) if held != all => Err(Rule::WrongDatum {
            expected: Some(datum),
            found: held.first,
        }),
        (Written::Committed, None) => Ok(()),
        (Written::Unknown(_), None) if held == all => Ok(()),
        _ => nothing_left(),
    }
}

/// A write that nothing disturbs.
async fn calm<S: HostileStore>(
    store: &S,
    fence: &Fence,
    datum: u64,
    story: &mut Vec<String>,
) -> Result<(), Rule> {
    let done = store.write(fence, datum, None).await;
    story.push(format!("{fence} writes {datum} in peace: {done:?}"));
    if done.written != Written::Committed {
        return Err(Rule::Broken(format!("a calm write: {:?}", done.written)));
    }
    let held = store.look().await;
    judge(fence, datum, Held::default(), held, &done.written)
}
