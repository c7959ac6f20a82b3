//! Guarded writes whose connection is disturbed at each step between the first byte and the commit,
//! or whose effect ends its transaction and goes on, or whose session hides the marks.

use std::cell::RefCell;
use std::collections::BTreeMap;

use ringfence_core::LeaseName;

use super::hostile_store::{
    Aside, Disturbed, Fault, Held, Hit, HostileStore, Shadow, Since, Written,
};
use super::{Rule, Violation, suite_lease, token};
use crate::Fence;

/// The most steps of one guarded write that the suite disturbs, per kind of fault. A store whose
/// write has more is not tested to its end, and fails.
pub const STEPS_MAX: u32 = 4_096;

/// The calm holder's datum, and those of the writes that are disturbed.
const BEFORE: u64 = 1;
const DISTURBED: u64 = 2;
const AFTER: u64 = 3;

/// What a passed run has seen, so that a reader can tell it was not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostileReport {
    /// Writes that met their fault, by its kind.
    pub faults: BTreeMap<Hit, u64>,
    /// Writes whose effect had an [`Aside`].
    pub asides: u64,
    /// Stale and rightful writes of connections with a [`Shadow`].
    pub shadows: u64,
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
/// they do. Then connections write whose session hides the marks, in each way that the store has: a
/// stale holder writes nothing there, and the mark of a newer one keeps others out, if it may write.
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
    for statements in fresh(&suite_lease(made)).await.shadows() {
        for &since in Since::ALL {
            made += 1;
            let shadow = Shadow { statements, since };
            let lease = suite_lease(made);
            let store = fresh(&lease).await;
            let mut story = Vec::new();
            let done = with_shadow(&store, &lease, shadow, &mut story).await;
            let written = done.map_err(|rule| {
                Box::new(Violation {
                    case: format!("a connection with {shadow:?}"),
                    rule,
                    story,
                })
            })?;
            for written in &written {
                report.shadows += 1;
                report.came(written);
            }
        }
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

/// What became of a stale write on a connection with `shadow`, and of a rightful one.
async fn with_shadow<S: HostileStore>(
    store: &S,
    lease: &LeaseName,
    shadow: Shadow,
    story: &mut Vec<String>,
) -> Result<[Written; 2], Rule> {
    let [old, new, last, end] = [8, 9, 10, 11].map(|value| Fence::new(lease.clone(), token(value)));
    calm(store, &old, BEFORE, story).await?;
    calm(store, &new, AFTER, story).await?;
    let mut shadowed = async |fence: &Fence, before: Held| {
        let written = store.write_shadowed(fence, DISTURBED, shadow).await;
        story.push(format!("{fence} writes {DISTURBED} with it: {written:?}"));
        let held = store.look().await;
        story.push(format!("then there is {held:?}"));
        judge(fence, DISTURBED, before, held, &written)?;
        Ok((written, held))
    };
    let (stale, _) = shadowed(&old, whole(&new, AFTER)).await?;
    let (rightful, held) = shadowed(&last, whole(&new, AFTER)).await?;
    // On a connection without it the mark is the same.
    if rightful == Written::Committed {
        let late = store.write(&new, BEFORE, None).await.written;
        story.push(format!("{new} writes {BEFORE} without it: {late:?}"));
        judge(&new, BEFORE, held, store.look().await, &late)?;
    }
    calm(store, &end, AFTER, story).await?;
    Ok([stale, rightful])
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
