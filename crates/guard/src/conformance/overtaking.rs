//! A holder becomes stale: its steps and its successor's, in every order.

use ringfence_core::{FencingToken, LeaseName};

use super::actor::{Actor, End, Op};
use super::schedule::Schedule;
use super::single::Setup;
use super::{AsyncStore, Report, Rule, Stop, Subject, Subjects, Violation, token};
use crate::{Fence, Refused};

const OLD: u64 = 8;
const NEW: u64 = 9;
/// What stands in the datum when a case begins with some.
const INITIAL_BIT: u64 = 1;
const OLD_BIT: u64 = 2;
const NEW_BIT: u64 = 4;

/// How often one transaction may be repeated before the store counts as stuck. Between two
/// connections of which one only has a handful of steps, each repetition is paid with progress of
/// the other.
const RESTARTS_MAX: u32 = 8;

/// How often the only holder that is left may be found waiting inside the store before the store
/// counts as stuck.
const LOOKS_MAX: u32 = 1_000;

/// The stale holder: a blind write, and one that builds on what it reads.
const OLD_PROGRAMS: [&[Op]; 2] = [
    &[Op::Admit, Op::Write, Op::Commit],
    &[Op::Admit, Op::Read, Op::Write, Op::Commit],
];

/// Its successor: reads on its own before it writes, reads in the transaction that writes, deletes.
const NEW_PROGRAMS: [&[Op]; 3] = [
    &[
        Op::Advance,
        Op::Commit,
        Op::Read,
        Op::Admit,
        Op::Write,
        Op::Commit,
    ],
    &[
        Op::Advance,
        Op::Commit,
        Op::Admit,
        Op::Read,
        Op::Write,
        Op::Commit,
    ],
    &[Op::Advance, Op::Commit, Op::Admit, Op::Delete, Op::Commit],
];

/// Who has written before the case begins: none, so that there is no mark yet; an earlier
/// grant, so that the stale one raises the mark; the stale one itself, so that its token
/// equals the mark.
const SEEDS: [Option<u64>; 3] = [None, Some(7), Some(OLD)];

/// One pair of programs on one kind of store.
#[derive(Clone, Copy)]
struct Case {
    seed: Option<u64>,
    old: &'static [Op],
    new: &'static [Op],
}

impl Case {
    fn describe(self) -> String {
        let seed = self
            .seed
            .map_or_else(|| "no mark".to_owned(), |mark| format!("mark {mark}"));
        format!(
            "{seed}; old holder {:?}; new holder {:?}",
            self.old, self.new
        )
    }
}

pub(super) async fn run<S: AsyncStore>(
    subjects: &mut Subjects<impl AsyncFnMut(&LeaseName) -> S>,
) -> Result<Report, Box<Violation>> {
    let mut report = Report::default();
    for seed in SEEDS {
        for new in NEW_PROGRAMS {
            for old in OLD_PROGRAMS {
                run_case(Case { seed, old, new }, subjects, &mut report).await?;
            }
        }
    }
    Ok(report)
}

async fn run_case<S: AsyncStore>(
    case: Case,
    subjects: &mut Subjects<impl AsyncFnMut(&LeaseName) -> S>,
    report: &mut Report,
) -> Result<(), Box<Violation>> {
    let mut schedule = Schedule::default();
    loop {
        let mut story = Vec::new();
        let subject = subjects.next().await;
        let played = play(case, &subject, &mut schedule, &mut story, report);
        Box::pin(played).await.map_err(|rule| {
            Box::new(Violation {
                case: case.describe(),
                rule,
                story,
            })
        })?;
        report.schedules += 1;
        if !schedule.advance() {
            return Ok(());
        }
    }
}

/// Plays one order.
async fn play<S: AsyncStore>(
    case: Case,
    subject: &Subject<S>,
    schedule: &mut Schedule,
    story: &mut Vec<String>,
    report: &mut Report,
) -> Result<(), Rule> {
    let initial = if case.seed.is_some() { INITIAL_BIT } else { 0 };
    if let Some(seed) = case.seed {
        let mut setup = Setup(subject.store.connect().await);
        setup
            .write(&subject.fence(token(seed)), Some(initial))
            .await?;
    }
    let old = Actor::new(
        "old",
        subject.fence(token(OLD)),
        OLD_BIT,
        case.old,
        subject.store.connect().await,
        initial,
    );
    let new = Actor::new(
        "new",
        subject.fence(token(NEW)),
        NEW_BIT,
        case.new,
        subject.store.connect().await,
        initial,
    );
    let mut scene = Scene {
        store: &subject.store,
        actors: [old, new],
        newest: case.seed.map(token),
        datum: case.seed.map(|_| initial),
        story,
        report,
    };
    while scene.actors.iter().any(|actor| actor.end.is_none()) {
        scene.step(schedule).await?;
    }
    match scene.actors[0].end {
        Some(End::Finished) => scene.report.admitted += 1,
        Some(End::Refused) | None => scene.report.refused += 1,
    }
    let expected = scene.datum;
    drop(scene);
    Setup(subject.store.connect().await)
        .expect_datum(expected)
        .await
}

/// Both holders, and what the store has acknowledged so far.
struct Scene<'a, S: AsyncStore> {
    store: &'a S,
    actors: [Actor<S::Connection>; 2],
    /// The greatest token of an acknowledged commit.
    newest: Option<FencingToken>,
    /// What the acknowledged writes make of the datum.
    datum: Option<u64>,
    story: &'a mut Vec<String>,
    report: &'a mut Report,
}

impl<S: AsyncStore> Scene<'_, S> {
    /// Lets one of those who can try their next step.
    async fn step(&mut self, schedule: &mut Schedule) -> Result<(), Rule> {
        let able = self.those(|actor| actor.end.is_none() && !actor.blocked);
        if able.is_empty() {
            return self.break_deadlock(schedule).await;
        }
        let at = able[schedule.choose(able.len())];
        if self.attempt(at).await? {
            self.land().await?;
        }
        Ok(())
    }

    /// A connection that waits inside the store goes on as soon as the store lets it: no order in
    /// which it does not can happen there.
    async fn land(&mut self) -> Result<(), Rule> {
        loop {
            let mut landed = false;
            for at in self.those(Actor::is_busy) {
                landed |= self.attempt(at).await?;
            }
            if !landed {
                return Ok(());
            }
        }
    }

    /// Tries the next step of one of them; false if it waits.
    async fn attempt(&mut self, at: usize) -> Result<bool, Rule> {
        let actor = &mut self.actors[at];
        let (who, op, waited) = (actor.who, actor.next(), actor.is_busy());
        let outcome = actor.step(self.store).await;
        if matches!(outcome, Err(Stop::Blocked)) {
            actor.blocked = true;
            if !waited {
                self.report.blocked += 1;
                self.story.push(format!("{who} {op:?}: {}", tell(&outcome)));
            }
            return Ok(false);
        }
        self.story.push(format!("{who} {op:?}: {}", tell(&outcome)));
        match outcome {
            Ok(()) if op == Op::Commit => self.committed(at)?,
            Ok(()) | Err(Stop::Blocked) => {}
            Err(Stop::Restart) => self.restart(at).await?,
            Err(Stop::Refused(refused)) => self.refused(at, refused).await?,
            Err(Stop::Broken(why)) => return Err(Rule::Broken(why)),
        }
        self.actors
            .iter_mut()
            .for_each(|actor| actor.blocked = false);
        Ok(true)
    }

    fn those(&self, which: impl Fn(&Actor<S::Connection>) -> bool) -> Vec<usize> {
        (0..self.actors.len())
            .filter(|&at| which(&self.actors[at]))
            .collect()
    }

    /// Every connection that has not ended is blocked. As a database would, one of them is rolled
    /// back; it goes on only after the other did. Those that wait inside the store are left to it.
    async fn break_deadlock(&mut self, schedule: &mut Schedule) -> Result<(), Rule> {
        let busy = self.those(Actor::is_busy);
        if !busy.is_empty() {
            return self.await_store(&busy).await;
        }
        let waiting = self.those(|actor| actor.end.is_none());
        if waiting.len() < 2 {
            return Err(Rule::Stuck);
        }
        let victim = waiting[schedule.choose(waiting.len())];
        self.story.push(format!(
            "{} is rolled back: both wait",
            self.actors[victim].who
        ));
        self.restart(victim).await?;
        for (at, actor) in self.actors.iter_mut().enumerate() {
            actor.blocked = at == victim;
        }
        Ok(())
    }

    async fn await_store(&mut self, busy: &[usize]) -> Result<(), Rule> {
        for _ in 0..LOOKS_MAX {
            for &at in busy {
                if self.attempt(at).await? {
                    return self.land().await;
                }
            }
        }
        Err(Rule::Stuck)
    }

    async fn restart(&mut self, at: usize) -> Result<(), Rule> {
        self.actors[at].restart().await;
        self.report.restarted += 1;
        if self.actors[at].restarts > RESTARTS_MAX {
            Err(Rule::Stuck)
        } else {
            Ok(())
        }
    }

    fn committed(&mut self, at: usize) -> Result<(), Rule> {
        let actor = &self.actors[at];
        if let Some(newest) = self.newest
            && newest > actor.fence.token
        {
            return Err(Rule::TokensDecreased {
                before: newest,
                after: actor.fence.token,
            });
        }
        self.newest = Some(actor.fence.token);
        if actor.deletes() {
            self.datum = None;
        } else if actor.wrote {
            self.datum = Some(self.datum.unwrap_or(0) | actor.bit);
        }
        Ok(())
    }

    /// A refusal is right only if a greater token was shown, and must name it.
    async fn refused(&mut self, at: usize, refused: Refused) -> Result<(), Rule> {
        let Fence {
            name,
            token: offered,
        } = self.actors[at].fence.clone();
        let text = self.actors[at].fence.to_string();
        let shown = self
            .actors
            .iter()
            .filter(|other| other.shown)
            .map(|other| other.fence.token);
        let Some(mark) = shown.max().filter(|&mark| mark > offered) else {
            return Err(Rule::RefusedWithoutCause {
                offered: text,
                refused,
            });
        };
        let due = Refused::StaleToken {
            name,
            offered,
            mark,
        };
        if refused != due {
            let (offered, expected) = (Some(text), due.to_string());
            return Err(Rule::WrongRefusal {
                offered,
                expected,
                refused,
            });
        }
        self.actors[at].refuse().await;
        Ok(())
    }
}

fn tell(outcome: &Result<(), Stop>) -> String {
    match outcome {
        Ok(()) => "done".to_owned(),
        Err(Stop::Blocked) => "blocked".to_owned(),
        Err(Stop::Restart) => "must begin again".to_owned(),
        Err(Stop::Refused(refused)) => format!("refused, {}", refused.reason()),
        Err(Stop::Broken(why)) => format!("failed, {why}"),
    }
}
