//! The guard in memory under many threads, whose effects become stale, are slow or panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ringfence_guard::{Fence, FencingToken, Guard, LeaseName};

use crate::soak::{Came, Chance, Tally, writes};

const WORKERS: u64 = 8;

/// What is guarded: atomics, so that a guard that lets two effects run at once shows wrong numbers
/// and is no data race.
#[derive(Default)]
struct Data {
    /// The token of the last effect.
    token: AtomicU64,
    first: AtomicU64,
    second: AtomicU64,
}

fn fence(token: u64) -> Fence {
    let name = LeaseName::parse("soak").unwrap();
    Fence::new(name, FencingToken::new(token).unwrap())
}

/// One worker: its tokens are the newest it has seen, an older one, or a new one.
fn work(guard: &Guard, data: &Data, number: u64) -> Tally {
    let mut chance = Chance(number);
    let mut tally = Tally::default();
    for turn in 0..writes().div_ceil(WORKERS) {
        let mark = guard.mark().map_or(2, FencingToken::get);
        let (token, surely_stale) = match chance.below(40) {
            0 => (mark + 1, false),
            1..=20 => (mark - 1, true),
            _ => (mark, false),
        };
        let panics = chance.below(10) == 0;
        let id = (number << 40) | (turn + 1);
        let mut torn = false;
        let mut overtaken = false;
        let effect = || {
            assert!(!panics, "an effect that gives up");
            overtaken = data.token.swap(token, Ordering::SeqCst) > token;
            data.first.store(id, Ordering::SeqCst);
            if turn.is_multiple_of(64) {
                thread::yield_now();
            }
            torn = data.second.swap(id, Ordering::SeqCst) == id;
            torn |= data.first.load(Ordering::SeqCst) != id;
        };
        let shown = fence(token);
        let done = catch_unwind(AssertUnwindSafe(|| guard.with(&shown, effect)));
        let (came, found) = match done {
            Ok(Ok(())) => (Came::Committed, 2),
            Ok(Err(_)) => (Came::Refused, 0),
            Err(_) => (Came::Failed, 0),
        };
        // Others raise the mark meanwhile: a refusal is without cause only if it is not.
        let stale = surely_stale || came == Came::Refused;
        tally.judge(stale, came, found, 2);
        tally.stale_commits += u64::from(overtaken);
        tally.torn += u64::from(torn);
        if came == Came::Refused {
            let mark = guard.mark().map_or(0, FencingToken::get);
            tally.wrong += u64::from(mark <= token);
        }
    }
    tally
}

#[test]
fn hostile_memory_writes_commit_nothing_stale_and_nothing_torn() {
    // Panics are part of it; what they say is not.
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        if !text.contains("an effect that gives up") {
            eprintln!("{text}");
        }
    }));
    let guard = Arc::new(Guard::new(fence(1).name));
    guard.advance_to(fence(2).token);
    let data = Arc::new(Data::default());
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let (guard, data) = (Arc::clone(&guard), Arc::clone(&data));
            thread::spawn(move || work(&guard, &data, number))
        })
        .collect();
    let mut sum = Tally::default();
    for worker in workers {
        sum.add(&worker.join().unwrap());
    }
    sum.settle("memory");
}
