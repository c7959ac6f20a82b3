//! The guard in memory.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::contention::{Worker, no_increment_is_lost};
use ringfence_guard::conformance::{Connection, Rule, Step, Stop, Store, crowd};
use ringfence_guard::{Fence, FencingToken, Guard, LeaseName, Refused};

/// A datum beside its guard. Writes wait for the commit, which is one guarded effect.
struct Memory {
    inside: Arc<Inside>,
}

struct Inside {
    guard: Guard,
    datum: Mutex<Option<u64>>,
}

impl Memory {
    fn new(name: &LeaseName) -> Self {
        Self::holding(name, None)
    }

    fn holding(name: &LeaseName, datum: Option<u64>) -> Self {
        let guard = Guard::new(name.clone());
        Self {
            inside: Arc::new(Inside {
                guard,
                datum: Mutex::new(datum),
            }),
        }
    }
}

impl Store for Memory {
    type Connection = Client;
    type Backup = (Option<u64>, Option<FencingToken>);

    fn connect(&self) -> Client {
        Client {
            inside: Arc::clone(&self.inside),
            fence: None,
            written: None,
        }
    }

    fn reopen(&mut self) {}

    fn backup(&self) -> Self::Backup {
        (*self.inside.datum.lock().unwrap(), self.inside.guard.mark())
    }

    fn restore(&mut self, (datum, mark): Self::Backup) {
        *self = Self::holding(self.inside.guard.name(), datum);
        if let Some(mark) = mark {
            self.advance_to(mark);
        }
    }

    fn advance_to(&mut self, floor: FencingToken) {
        self.inside.guard.advance_to(floor);
    }
}

struct Client {
    inside: Arc<Inside>,
    fence: Option<Fence>,
    written: Option<Option<u64>>,
}

impl Connection for Client {
    fn admit(&mut self, fence: Option<&str>) -> Step {
        let fence = Fence::receive(self.inside.guard.name(), fence)?;
        self.inside.guard.admit(&fence)?;
        self.fence = Some(fence);
        Ok(())
    }

    fn advance(&mut self, fence: &str) -> Step {
        let fence = Fence::receive(self.inside.guard.name(), Some(fence))?;
        self.inside.guard.advance(&fence)?;
        Ok(())
    }

    fn read(&mut self) -> Step<Option<u64>> {
        Ok(self.written.unwrap_or(*self.inside.datum.lock().unwrap()))
    }

    fn write(&mut self, datum: Option<u64>) -> Step {
        self.written = Some(datum);
        Ok(())
    }

    fn commit(&mut self) -> Step {
        let Some(fence) = self.fence.take() else {
            return Ok(());
        };
        let written = self.written.take();
        self.inside.guard.with(&fence, || {
            if let Some(datum) = written {
                *self.inside.datum.lock().unwrap() = datum;
            }
        })?;
        Ok(())
    }

    fn abort(&mut self) {
        self.fence = None;
        self.written = None;
    }
}

/// Writes at once, on the word of a check that is over: what `admit` alone does not protect.
struct CheckThenAct(Memory);

impl Store for CheckThenAct {
    type Connection = Hasty;
    type Backup = <Memory as Store>::Backup;

    fn connect(&self) -> Hasty {
        Hasty(self.0.connect())
    }

    fn reopen(&mut self) {}

    fn backup(&self) -> Self::Backup {
        self.0.backup()
    }

    fn restore(&mut self, backup: Self::Backup) {
        self.0.restore(backup);
    }

    fn advance_to(&mut self, floor: FencingToken) {
        self.0.advance_to(floor);
    }
}

struct Hasty(Client);

impl Connection for Hasty {
    fn admit(&mut self, fence: Option<&str>) -> Step {
        self.0.admit(fence)
    }

    fn advance(&mut self, fence: &str) -> Step {
        self.0.advance(fence)
    }

    fn read(&mut self) -> Step<Option<u64>> {
        self.0.read()
    }

    fn write(&mut self, datum: Option<u64>) -> Step {
        self.0.write(datum)
    }

    fn commit(&mut self) -> Step {
        if let Some(datum) = self.0.written.take() {
            *self.0.inside.datum.lock().unwrap() = datum;
        }
        Ok(())
    }

    fn abort(&mut self) {
        self.0.abort();
    }
}

fn fence(text: &str) -> Fence {
    text.parse().unwrap()
}

#[test]
fn the_guard_in_memory_passes_the_suite() {
    super::passes(Memory::new);
}

#[test]
fn a_crowd_of_writers_in_memory_loses_nothing() {
    super::withstands_a_crowd(Memory::new);
}

#[test]
fn a_crowd_finds_a_check_that_protects_nothing() {
    // Chance decides who comes in between; some crowd or other shows it.
    let found = (0..100).find_map(|_| crowd(|name| CheckThenAct(Memory::new(name))).err());
    let violation = found.expect("a hundred crowds noticed nothing");
    assert!(
        matches!(
            violation.rule,
            Rule::TokensDecreased { .. } | Rule::WrongDatum { .. }
        ),
        "{violation}"
    );
}

#[test]
fn a_check_alone_protects_nothing_that_follows_it() {
    let violation = super::fails(|name| CheckThenAct(Memory::new(name)));
    assert!(
        matches!(violation.rule, Rule::TokensDecreased { .. }),
        "{violation}"
    );
}

#[test]
fn a_newer_grant_waits_for_the_running_effect_of_an_older_one() {
    let guard = Guard::new(fence("a#1").name);
    let happened = Mutex::new(Vec::new());
    let (running, runs) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let effect = || {
                running.send(()).unwrap();
                // Gives the other thread every chance to overtake, if it could.
                (0..1_000).for_each(|_| thread::yield_now());
                happened.lock().unwrap().push("effect of 1 ended");
            };
            guard.with(&fence("a#1"), effect).unwrap();
        });
        runs.recv().unwrap();
        guard.advance(&fence("a#2")).unwrap();
        happened.lock().unwrap().push("2 advanced");
    });
    assert_eq!(
        *happened.lock().unwrap(),
        ["effect of 1 ended", "2 advanced"]
    );
}

#[test]
fn effects_run_one_at_a_time_and_in_the_order_of_their_tokens() {
    let guard = Guard::new(fence("a#1").name);
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for first in 1..=4_u64 {
            let (guard, order) = (&guard, &order);
            scope.spawn(move || {
                for token in (first..2_000).step_by(4) {
                    let fence = fence(&format!("a#{token}"));
                    let outcome = guard.with(&fence, || {
                        let mut order = order.try_lock().expect("effects do not overlap");
                        order.push(token);
                        // Others get their chance to break in.
                        thread::yield_now();
                    });
                    // Some are stale; once they are, they stay so.
                    assert!(outcome.is_ok() || guard.admit(&fence).is_err());
                }
            });
        }
    });
    let order = order.into_inner().unwrap();
    assert!(!order.is_empty());
    assert!(order.is_sorted(), "an older token ran after a newer one");
    assert_eq!(guard.mark().map(FencingToken::get), order.last().copied());
}

#[test]
fn a_panic_in_an_effect_leaves_the_guard_in_order() {
    let guard = Guard::new(fence("a#1").name);
    let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        guard.with(&fence("a#5"), || panic!("on purpose"))
    }));
    assert!(thrown.is_err());
    assert!(matches!(
        guard.admit(&fence("a#4")),
        Err(Refused::StaleToken { .. })
    ));
    assert_eq!(guard.with(&fence("a#5"), || 7), Ok(7));
}

#[test]
fn a_refusal_says_that_it_is_final_and_what_to_do() {
    let guard = Guard::new(fence("db/primary#1").name);
    guard.advance(&fence("db/primary#9")).unwrap();
    let refused = guard.admit(&fence("db/primary#8")).unwrap_err();
    assert!(refused.ends_the_grant());
    assert_eq!(
        refused.to_string(),
        "STALE_TOKEN: token 8 of lease `db/primary` was overtaken by token 9; this is final for \
         that grant: stop the work, its lease is lost"
    );
    let refused = guard.admit(&fence("db/other#10")).unwrap_err();
    assert!(!refused.ends_the_grant());
    assert_eq!(
        refused.to_string(),
        "WRONG_LEASE: the fence is of lease `db/other`, but this is guarded by lease `db/primary`; \
         stop the work and acquire `db/primary`"
    );
    let stop = Stop::from(refused);
    assert!(matches!(stop, Stop::Refused(Refused::WrongLease { .. })));
}

struct Counter<'a> {
    guard: &'a Guard,
    count: &'a Mutex<u64>,
}

impl Worker for Counter<'_> {
    fn advance(&mut self, fence: &Fence) -> bool {
        self.guard.advance(fence).is_ok()
    }

    fn read(&mut self) -> u64 {
        *self.count.lock().unwrap()
    }

    fn write(&mut self, fence: &Fence, count: u64) -> bool {
        self.guard
            .with(fence, || *self.count.lock().unwrap() = count)
            .is_ok()
    }
}

#[test]
fn no_increment_is_lost_between_threads() {
    let name = fence("a#1").name;
    let (guard, count) = (&Guard::new(name.clone()), &Mutex::new(0));
    let workers = (0..4).map(|_| Counter { guard, count }).collect();
    no_increment_is_lost(&name, workers, 5_000);
}
